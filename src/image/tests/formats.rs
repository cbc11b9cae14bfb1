//! Every format and depth, by content.

use image::ExtendedColorType;
use png::{BitDepth, ColorType};
use proptest::prelude::*;

use super::super::{Format, foreign};
use super::jpegs::{BASELINE_420, sum};
use super::{assert_damaged, decode, make, pixels};
use crate::error::Error;

#[test]
fn lossless_formats_give_the_pixels_that_went_in() {
    let rgb = make::rgb(7, 5);
    let files = [
        (Format::Png, make::png_rgb(7, 5)),
        (Format::WebP, make::webp_lossless(7, 5, &rgb, ExtendedColorType::Rgb8)),
        (Format::Bmp, make::bmp(7, 5, &rgb, ExtendedColorType::Rgb8)),
        (Format::Qoi, make::qoi(7, 5, &rgb, ExtendedColorType::Rgb8)),
        (Format::Pnm, make::ppm(7, 5, &rgb)),
        (Format::Tiff, make::tiff_picture((7, 5), 2, &[8; 3], &[], &rgb)),
    ];
    for (format, bytes) in files {
        let decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.format, format);
        assert_eq!((decoded.image.width_px(), decoded.image.height_px()), (7, 5), "{}", format.name());
        assert_eq!(decoded.image.pixels(), rgb, "{}", format.name());
        assert!(!decoded.had_alpha);
    }
}

#[test]
fn thin_pictures_of_one_pixel_side_decode() {
    for (width, height) in [(1, 1), (1, 90), (90, 1)] {
        let rgb = make::rgb(width, height);
        for bytes in [
            make::png_rgb(width, height),
            make::webp_lossless(width, height, &rgb, ExtendedColorType::Rgb8),
            make::bmp(width, height, &rgb, ExtendedColorType::Rgb8),
            make::tiff_picture((width, height), 2, &[8; 3], &[], &rgb),
        ] {
            assert_eq!(pixels(&bytes), rgb);
        }
    }
}

#[test]
fn png_of_few_bits_is_stretched_to_8() {
    for (depth, bits) in [(BitDepth::One, 1u8), (BitDepth::Two, 2), (BitDepth::Four, 4)] {
        let values = 1usize << bits;
        let mut row = vec![0u8; (values * usize::from(bits)).div_ceil(8)];
        for value in 0..values {
            let at = value * usize::from(bits);
            row[at / 8] |= (value as u8) << (8 - usize::from(bits) - at % 8);
        }
        let expected: Vec<u8> = (0..values).flat_map(|v| [(v * 255 / (values - 1)) as u8; 3]).collect();
        assert_eq!(pixels(&make::png(values as u32, 1, ColorType::Grayscale, depth, &row)), expected);

        let palette: Vec<u8> = (0..values as u8).flat_map(|v| [v, 100 + v, 200 + v]).collect();
        let indexed = make::png_with(values as u32, 1, ColorType::Indexed, depth, &row, |encoder| {
            encoder.set_palette(palette.clone());
        });
        assert_eq!(pixels(&indexed), palette);
    }
}

#[test]
fn png_of_16_bits_keeps_the_high_byte_as_upstream_does() {
    let rows = [0x12, 0xFF, 0x00, 0x80, 0xFF, 0x00, 0xFF, 0xFF, 0x7F, 0xFF, 0x00, 0xFF];
    let expected = [0x12, 0x00, 0xFF, 0xFF, 0x7F, 0x00];
    assert_eq!(pixels(&make::png(2, 1, ColorType::Rgb, BitDepth::Sixteen, &rows)), expected);
    let alpha = [0x12, 0xFF, 0x00, 0x80, 0xFF, 0x00, 0xFF, 0x00];
    assert_eq!(pixels(&make::png(1, 1, ColorType::Rgba, BitDepth::Sixteen, &alpha)), [0x12, 0x00, 0xFF]);
    assert_eq!(pixels(&make::png(1, 1, ColorType::Grayscale, BitDepth::Sixteen, &[0xAB, 0xCD])), [0xAB; 3]);
}

#[test]
fn animations_give_their_first_frame() {
    let (first, second) = (make::rgb(4, 3), vec![9; 36]);
    assert_eq!(pixels(&make::apng(4, 3, &first, &second)), first);
    let rgba = |rgb: &[u8]| rgb.as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]).collect::<Vec<u8>>();
    assert_eq!(pixels(&make::gif(4, 3, &[rgba(&first), rgba(&second)])), first);
}

/// The sums are those of the pixels that libwebp gives, blended onto white.
#[test]
fn lossy_and_animated_webp_equal_libwebp() {
    let cases: [(&[u8], bool, u64); 3] = [
        (include_bytes!("../fixtures/lossy.webp"), false, 0x20CC_BA4E_CB61_B011),
        (include_bytes!("../fixtures/lossy_alpha.webp"), true, 0x7843_7073_1422_65FE),
        (include_bytes!("../fixtures/animated.webp"), false, 0x5D84_9647_424D_B09F),
    ];
    for (bytes, had_alpha, expected) in cases {
        let decoded = decode(bytes).unwrap();
        assert_eq!((decoded.format, decoded.had_alpha), (Format::WebP, had_alpha));
        assert_eq!(sum(decoded.image.pixels()), expected);
    }
}

#[test]
fn portable_maps_of_every_kind() {
    assert_eq!(pixels(b"P1 2 1\n1 0\n"), [0, 0, 0, 255, 255, 255]);
    assert_eq!(pixels(b"P2 2 1 255 10 200"), [10, 10, 10, 200, 200, 200]);
    assert_eq!(pixels(b"P3 1 1 255 1 2 3"), [1, 2, 3]);
    assert_eq!(pixels(b"P4\n2 1\n\x80"), [0, 0, 0, 255, 255, 255]);
    assert_eq!(pixels(b"P5 2 1 255 \x0A\xC8"), [10, 10, 10, 200, 200, 200]);
    assert_eq!(pixels(b"P6 1 1 65535 \x01\x02\x03\x04\x05\x06"), [1, 3, 5]);
}

#[test]
fn bitmaps_with_a_palette() {
    let mut out = Vec::new();
    let palette = [[1, 2, 3], [4, 5, 6]];
    image::codecs::bmp::BmpEncoder::new(&mut out)
        .encode_with_palette(&[0, 1, 1, 0], 2, 2, ExtendedColorType::L8, Some(&palette))
        .unwrap();
    assert_eq!(pixels(&out), [1, 2, 3, 4, 5, 6, 4, 5, 6, 1, 2, 3]);
}

#[test]
fn truncated_files_of_every_format_are_damaged() {
    let rgb = make::rgb(40, 30);
    let rgba: Vec<u8> = rgb.as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]).collect();
    for bytes in [
        make::png_rgb(40, 30),
        make::webp_lossless(40, 30, &rgb, ExtendedColorType::Rgb8),
        make::bmp(40, 30, &rgb, ExtendedColorType::Rgb8),
        make::qoi(40, 30, &rgb, ExtendedColorType::Rgb8),
        make::ppm(40, 30, &rgb),
        make::gif(40, 30, &[rgba]),
        BASELINE_420.to_vec(),
        include_bytes!("../fixtures/lossy.webp").to_vec(),
    ] {
        assert!(decode(&bytes).is_ok());
        for percent in [20, 50, 80] {
            assert_damaged(&bytes[..bytes.len() * percent / 100]);
        }
    }
    // The directory stands behind the pixels, so a cut file is cut in its directory.
    let tiff = make::tiff_picture((40, 30), 2, &[8; 3], &[], &rgb);
    assert_damaged(&tiff[..tiff.len() / 2]);
}

#[test]
fn a_flipped_bit_in_png_data_is_noticed() {
    let mut png = make::png_rgb(20, 20);
    let middle = png.len() / 2;
    png[middle] ^= 0x10;
    assert_damaged(&png);
}

#[test]
fn what_is_no_picture_is_named_with_a_remedy() {
    let heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic";
    let avif = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf";
    let avif_mif1 = b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf";
    let cases: [(&[u8], &[&str]); 24] = [
        (b"", &["empty"]),
        (heic, &["HEIC", "JPEG or PNG"]),
        (avif, &["AVIF", "JPEG or PNG"]),
        (avif_mif1, &["AVIF"]),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", &["video", "mp42"]),
        (b"\0\0\0\x18ftypcrx \0\0\0\0", &["raw photo"]),
        (b"\xff\x0a\x01\x02", &["JPEG XL", "PNG"]),
        (b"\0\0\0\x0cJXL \r\n\x87\n", &["JPEG XL"]),
        (b"\0\0\0\x0cjP  \r\n\x87\n", &["JPEG 2000"]),
        (b"%PDF-1.7\n%\xe2\xe3", &["PDF", "pdftoppm"]),
        (b"8BPS\0\x01", &["Photoshop"]),
        (b"II*\0\x10\0\0\0CR\x02\0", &["Canon raw"]),
        (b"\x1a\x45\xdf\xa3\x01\0", &["video"]),
        (b"RIFF\0\0\0\0WAVEfmt ", &["sound"]),
        (b"RIFF\0\0\0\0AVI LIST", &["AVI video"]),
        (b"PK\x03\x04\x14\0", &["ZIP"]),
        (b"GGUF\x03\0\0\0", &["GGUF", "-m"]),
        (b"<?xml version=\"1.0\"?>\n<svg xmlns=\"x\"/>", &["SVG", "PNG"]),
        (b"\xef\xbb\xbf<svg/>", &["SVG"]),
        (b"<!DOCTYPE html><html>", &["web page"]),
        (b"data:image/png;base64,iVBO", &["data URL"]),
        (b"version https://git-lfs.github.com/spec/v1\n", &["LFS"]),
        (b"Dear picture,\nhow are you? \xc3\xbc\n", &["text file"]),
        (b"\x01\x02\x03\x04", &["4 bytes", "01 02 03 04"]),
    ];
    for (bytes, words) in cases {
        match decode(bytes) {
            Err(Error::PictureFormat { name, detail }) => {
                assert_eq!(name, "picture");
                for word in words {
                    assert!(detail.contains(word), "{detail:?} lacks {word:?}");
                }
            }
            other => panic!("{words:?}: {other:?}"),
        }
    }
}

#[test]
fn text_that_begins_like_a_picture_is_text() {
    for text in ["BMW makes cars, and this is a letter about them", "P", "P1x is no map", "GIF is a format"] {
        assert!(foreign::describe(text.as_bytes()).contains("text file"), "{text}");
        assert_eq!(decode(text.as_bytes()).unwrap_err().code(), "picture-format", "{text}");
    }
    // A character across the border of the part that is looked at.
    let long = format!("{}é", "a".repeat(4095));
    assert!(foreign::describe(long.as_bytes()).contains("text file"));
}

#[test]
fn an_ios_png_is_named() {
    let png = make::png_insert(&make::png_rgb(2, 2), b"CgBI", &[0; 4], false);
    let moved = [&png[..8], &png[33..49], &png[8..33], &png[49..]].concat();
    let error = decode(&moved).unwrap_err();
    assert_eq!(error.code(), "picture-format");
    assert!(error.to_string().contains("iOS"), "{error}");
}

proptest! {
    #[test]
    fn any_pixels_survive_png(width in 1u32..40, height in 1u32..40, seed: u8) {
        let rgb: Vec<u8> = make::rgb(width, height).iter().map(|v| v.wrapping_mul(seed | 1).wrapping_add(seed)).collect();
        let png = make::png(width, height, ColorType::Rgb, BitDepth::Eight, &rgb);
        prop_assert_eq!(pixels(&png), rgb);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        prop_assert!(decode(&bytes).is_err());
    }
}
