//! Thousands of broken files: an answer every time, never a panic, never a hang.

use std::time::{Duration, Instant};

use image::ExtendedColorType;
use png::{BitDepth, ColorType};

use super::super::{DecodeOptions, Limits, intake};
use super::{jpegs, make};

/// Small and fast, and the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn corpus() -> Vec<(&'static str, Vec<u8>)> {
    let rgb = make::rgb(23, 17);
    let rgba: Vec<u8> = rgb.as_chunks::<3>().0.iter().map(|&[r, g, b]| [r, g, b, r]).collect::<Vec<_>>().concat();
    let webp = make::webp_lossless(23, 17, &rgb, ExtendedColorType::Rgb8);
    let indexed = make::png_with(8, 2, ColorType::Indexed, BitDepth::One, &[0x5A, 0xC3], |encoder| {
        encoder.set_palette(vec![1, 2, 3, 4, 5, 6]);
        encoder.set_trns(vec![0]);
    });
    let map: Vec<u32> = (0..48).map(|v| v * 1000).collect();
    vec![
        ("JPEG 4:4:4", jpegs::BASELINE_444.into()),
        ("JPEG 4:2:2", jpegs::BASELINE_422.into()),
        ("JPEG 4:2:0", make::jpeg_with_exif(jpegs::BASELINE_420, &make::exif(6, true))),
        ("JPEG grey", jpegs::GREY.into()),
        ("JPEG progressive", jpegs::PROGRESSIVE_420.into()),
        ("JPEG restart", jpegs::RESTART_420.into()),
        ("JPEG CMYK", jpegs::CMYK.into()),
        ("JPEG YCCK progressive", jpegs::with_adobe_transform(jpegs::CMYK_PROGRESSIVE, 2)),
        ("PNG", make::png_insert(&make::png_rgb(23, 17), b"eXIf", &make::exif(5, false), true)),
        ("PNG 16 bits", make::png(3, 2, ColorType::Rgba, BitDepth::Sixteen, &[0x77; 48])),
        ("PNG palette", indexed),
        ("APNG", make::apng(23, 17, &rgb, &vec![3; rgb.len()])),
        ("WebP extended", make::webp_with_exif(&webp, 23, 17, &make::exif(3, true))),
        ("WebP lossless", webp),
        ("WebP alpha", make::webp_lossless(23, 17, &rgba, ExtendedColorType::Rgba8)),
        ("WebP lossy", include_bytes!("../fixtures/lossy.webp").to_vec()),
        ("WebP lossy alpha", include_bytes!("../fixtures/lossy_alpha.webp").to_vec()),
        ("WebP animated", include_bytes!("../fixtures/animated.webp").to_vec()),
        ("GIF", make::gif(23, 17, &[rgba.clone(), rgba.clone()])),
        ("BMP", make::bmp(23, 17, &rgb, ExtendedColorType::Rgb8)),
        ("BMP alpha", make::bmp(23, 17, &rgba, ExtendedColorType::Rgba8)),
        ("BMP palette", make::bmp(23, 17, &rgb[..391], ExtendedColorType::L8)),
        ("TIFF", make::tiff_picture((23, 17), 2, &[8; 3], &[(274, 3, vec![7])], &rgb)),
        ("TIFF palette", make::tiff_picture((23, 17), 3, &[4], &[(320, 3, map)], &rgb[..204])),
        ("TIFF CMYK", make::tiff_picture((23, 17), 5, &[8; 4], &[], &rgba)),
        ("TIFF 1 bit", make::tiff_picture((23, 17), 0, &[1], &[], &rgb[..51])),
        ("PPM", make::ppm(23, 17, &rgb)),
        ("PGM text", b"P2 3 2 255 1 2 3 4 5 6".to_vec()),
        (
            "PAM",
            [b"P7\nWIDTH 2\nHEIGHT 2\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n".as_slice(), &rgba[..16]]
                .concat(),
        ),
        ("QOI", make::qoi(23, 17, &rgb, ExtendedColorType::Rgb8)),
    ]
}

/// One to four changes: bits, bytes, extreme numbers, cuts, holes, repetitions, and pieces of another file.
fn mutate(random: &mut Random, original: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        // Headers decide more than pixels do, so half of the changes hit the first 64 bytes.
        let reach = if random.below(2) == 0 { bytes.len().min(64) } else { bytes.len() };
        let at = random.below(reach);
        match random.below(9) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFE, 0xFF][random.below(6)],
            3 => {
                let extreme = [0u32, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX, 0xFFFF, 0x0001_0000][random.below(7)];
                for (target, value) in bytes[at..].iter_mut().zip(extreme.to_be_bytes()) {
                    *target = value;
                }
            }
            4 => bytes.truncate(at),
            5 => {
                let end = (at + random.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let end = (at + random.below(32)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            7 => {
                let from = random.below(other.len());
                let piece = &other[from..(from + random.below(64)).min(other.len())];
                for (target, value) in bytes[at..].iter_mut().zip(piece) {
                    *target = *value;
                }
            }
            _ => {
                for byte in bytes[at..].iter_mut().take(random.below(8)) {
                    *byte = random.next() as u8;
                }
            }
        }
    }
    bytes
}

/// PNG checks sums before anything else; with mended sums, mutations get past that door.
fn mend_png(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(head) = bytes.get(at..at + 8) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let name = [head[4], head[5], head[6], head[7]];
        let Some(content) = bytes.get(at + 8..(at + 8).saturating_add(length)) else { return };
        let chunk = make::png_chunk(&name, content);
        let Some(target) = bytes.get_mut(at..at + chunk.len()) else { return };
        target.copy_from_slice(&chunk);
        at += chunk.len();
    }
}

#[test]
fn mutated_files_give_an_answer_and_never_a_panic() {
    const ROUNDS: usize = 400;
    let options = DecodeOptions {
        limits: Limits { max_pixels: 1 << 20, max_decoder_bytes: 16 << 20, ..Limits::default() },
        ..DecodeOptions::default()
    };
    let corpus = corpus();
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let (mut good, mut bad) = (0, 0);
    for (what, original) in &corpus {
        intake::decode_unguarded(original, what, &options).unwrap();
        for round in 0..ROUNDS {
            let other = &corpus[random.below(corpus.len())].1;
            let mut bytes = mutate(&mut random, original, other);
            if what.contains("PNG") && round % 2 == 0 {
                mend_png(&mut bytes);
            }
            let start = Instant::now();
            let outcome = std::panic::catch_unwind(|| intake::decode_unguarded(&bytes, what, &options));
            assert!(start.elapsed() < Duration::from_secs(10), "{what}, round {round}: took {:?}", start.elapsed());
            match outcome {
                Ok(Ok(decoded)) => {
                    good += 1;
                    let image = decoded.image;
                    assert_eq!(image.pixels().len(), (image.width_px() * image.height_px() * 3) as usize);
                }
                Ok(Err(_)) => bad += 1,
                Err(_) => panic!("{what}, round {round}: panicked on {} bytes: {bytes:02x?}", bytes.len()),
            }
        }
    }
    assert_eq!(good + bad, corpus.len() * ROUNDS);
    // Were all of them refused at the door, the test would test nothing.
    assert!(good > 1000 && bad > 1000, "{good} decoded, {bad} refused");
}
