//! Limits, all of them refused before pixels exist.

use image::ExtendedColorType;

use super::super::{DecodeOptions, Limits, intake};
use super::jpegs::{BASELINE_444, PROGRESSIVE_420};
use super::{decode, make};
use crate::error::{Error, ErrorKind, Result};

fn too_large(result: Result<super::Decoded>) -> (&'static str, u64, u64) {
    match result {
        Err(ref error @ Error::PictureTooLarge { ref name, what, value, limit }) => {
            assert_eq!(name, "picture");
            assert_eq!(error.kind(), ErrorKind::Enlarge);
            (what, value, limit)
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn jpeg_declaring(width: u16, height: u16) -> Vec<u8> {
    let mut jpeg = BASELINE_444.to_vec();
    let at = jpeg.windows(2).position(|window| window == [0xFF, 0xC0]).unwrap();
    jpeg[at + 5..at + 7].copy_from_slice(&height.to_be_bytes());
    jpeg[at + 7..at + 9].copy_from_slice(&width.to_be_bytes());
    jpeg
}

fn gif_declaring(screen: u16, frame: u16) -> Vec<u8> {
    let mut gif = make::gif(2, 2, &[vec![255; 16]]);
    gif[6..8].copy_from_slice(&screen.to_le_bytes());
    gif[8..10].copy_from_slice(&screen.to_le_bytes());
    let at = gif.iter().rposition(|&byte| byte == 0x2C).unwrap();
    gif[at + 5..at + 7].copy_from_slice(&frame.to_le_bytes());
    gif[at + 7..at + 9].copy_from_slice(&frame.to_le_bytes());
    gif
}

fn bmp_declaring(side: i32) -> Vec<u8> {
    let mut bmp = make::bmp(2, 2, &[0; 12], ExtendedColorType::Rgb8);
    bmp[18..22].copy_from_slice(&side.to_le_bytes());
    bmp[22..26].copy_from_slice(&side.to_le_bytes());
    bmp
}

fn qoi_declaring(side: u32) -> Vec<u8> {
    let mut qoi = make::qoi(2, 2, &[0; 12], ExtendedColorType::Rgb8);
    qoi[4..8].copy_from_slice(&side.to_be_bytes());
    qoi[8..12].copy_from_slice(&side.to_be_bytes());
    qoi
}

fn webp_declaring_16_million() -> Vec<u8> {
    let head = [0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0];
    make::riff(&make::riff_chunk(b"VP8X", &head))
}

#[test]
fn a_few_hundred_bytes_that_declare_a_giant_are_refused_from_the_header() {
    let (what, value, limit) = too_large(decode(&make::png_declaring(40_000, 40_000)));
    assert_eq!((what, value, limit), ("width_px", 40_000, 32_768));
    for (format, bytes) in [
        ("PNG", make::png_declaring(0x7FFF_FFFF, 0x7FFF_FFFF)),
        ("JPEG", jpeg_declaring(65_500, 65_500)),
        ("GIF screen", gif_declaring(65_535, 2)),
        ("GIF frame", gif_declaring(2, 65_535)),
        ("BMP", bmp_declaring(65_535)),
        ("QOI", qoi_declaring(100_000)),
        ("PNM", b"P6 1000000 1000000 255 ".to_vec()),
        ("TIFF", make::tiff_picture((4_000_000_000, 4_000_000_000), 2, &[8; 3], &[], &[0; 12])),
        ("WebP", webp_declaring_16_million()),
    ] {
        assert!(bytes.len() < 1200, "{format}");
        let (what, value, limit) = too_large(decode(&bytes));
        assert!(value > limit && what.ends_with("_px"), "{format}: {what} {value}");
    }
    let (what, value, _) = too_large(decode(&make::png_declaring(3, 32_769)));
    assert_eq!((what, value), ("height_px", 32_769));
    // Both sides are allowed, their product is not.
    let (what, value, limit) = too_large(decode(&make::png_declaring(32_768, 32_768)));
    assert_eq!((what, value, limit), ("pixels", 1 << 30, 1 << 27));
}

#[test]
fn a_codec_header_larger_than_its_container_is_refused_too() {
    let options =
        DecodeOptions { limits: Limits { max_width_px: 100, ..Limits::default() }, ..DecodeOptions::default() };
    let limited = |bytes: &[u8]| intake::decode_unguarded(bytes, "picture", &options);
    let canvas = make::riff_chunk(b"VP8X", &[0, 0, 0, 0, 9, 0, 0, 9, 0, 0]);
    let mut lossy = include_bytes!("../fixtures/lossy.webp")[20..].to_vec();
    lossy[6..10].copy_from_slice(&[0xFF, 0x3F, 0xFF, 0x3F]);
    let still = make::riff(&[canvas.clone(), make::riff_chunk(b"VP8 ", &lossy)].concat());
    assert_eq!(too_large(limited(&still)), ("width_px", 16_383, 100));
    let lossless = [0x2F, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0];
    let frame = [[0; 16].as_slice(), &make::riff_chunk(b"VP8L", &lossless)].concat();
    let animated = make::riff(&[canvas, make::riff_chunk(b"ANMF", &frame)].concat());
    assert_eq!(too_large(limited(&animated)), ("width_px", 16_384, 100));
}

#[test]
fn a_jpeg_too_short_for_its_size_is_refused_before_its_planes_exist() {
    for jpeg in [jpeg_declaring(16_000, 8_000), {
        let mut progressive = PROGRESSIVE_420.to_vec();
        let at = progressive.windows(2).position(|window| window == [0xFF, 0xC2]).unwrap();
        progressive[at + 5..at + 9].copy_from_slice(&[0x1F, 0x40, 0x1F, 0x40]);
        progressive
    }] {
        let error = decode(&jpeg).unwrap_err().to_string();
        assert!(error.contains("cannot fit into"), "{error}");
    }
}

#[test]
fn each_limit_names_itself_and_its_own_number() {
    let png = make::png_rgb(20, 10);
    let with = |limits: Limits| {
        let options = DecodeOptions { limits, ..DecodeOptions::default() };
        intake::decode_unguarded(&png, "picture", &options)
    };
    let base = Limits::default;
    assert_eq!(too_large(with(Limits { max_width_px: 19, ..base() })), ("width_px", 20, 19));
    assert_eq!(too_large(with(Limits { max_height_px: 9, ..base() })), ("height_px", 10, 9));
    assert_eq!(too_large(with(Limits { max_pixels: 199, ..base() })), ("pixels", 200, 199));
    assert_eq!(too_large(with(Limits { max_decoder_bytes: 599, ..base() })).0, "decoder memory in bytes");
    let length = png.len() as u64;
    assert_eq!(too_large(with(Limits { max_file_bytes: length - 1, ..base() })), ("file bytes", length, length - 1));
    // Exactly at the limit is within it.
    let exact = Limits { max_width_px: 20, max_height_px: 10, max_pixels: 200, max_file_bytes: length, ..base() };
    assert!(with(exact).is_ok());
}

#[test]
fn decoder_memory_is_limited_in_every_format() {
    let rgb = make::rgb(64, 64);
    let rgba = vec![200; 64 * 64 * 4];
    let options =
        DecodeOptions { limits: Limits { max_decoder_bytes: 2_000, ..Limits::default() }, ..DecodeOptions::default() };
    for bytes in [
        make::png_rgb(64, 64),
        make::webp_lossless(64, 64, &rgb, ExtendedColorType::Rgb8),
        make::gif(64, 64, &[rgba]),
        make::bmp(64, 64, &rgb, ExtendedColorType::Rgb8),
        make::qoi(64, 64, &rgb, ExtendedColorType::Rgb8),
        make::ppm(64, 64, &rgb),
        make::tiff_picture((64, 64), 2, &[8; 3], &[], &rgb),
        jpeg_declaring(64, 64),
        PROGRESSIVE_420.to_vec(),
    ] {
        let (what, value, limit) = too_large(intake::decode_unguarded(&bytes, "picture", &options));
        assert!(what == "decoder memory in bytes" && value > limit && limit == 2_000);
    }
}

#[test]
fn zero_sized_pictures_are_damaged() {
    for bytes in [
        make::png_declaring(0, 5),
        jpeg_declaring(0, 5),
        gif_declaring(0, 2),
        b"P6 0 4 255 ".to_vec(),
        make::tiff_picture((0, 3), 2, &[8; 3], &[], &[]),
        qoi_declaring(0),
        bmp_declaring(0),
    ] {
        let error = decode(&bytes).unwrap_err();
        assert_eq!(error.code(), "picture-damaged", "{error}");
    }
}

/// Colour profiles and texts are compressed; unpacked they could be a thousand times larger.
#[test]
fn gigantic_profiles_and_texts_are_not_unpacked() {
    let zeros = make::png(8_000, 8_000, png::ColorType::Grayscale, png::BitDepth::Eight, &vec![0; 64_000_000]);
    let at = zeros.windows(4).position(|window| window == b"IDAT").unwrap();
    let length = u32::from_be_bytes(zeros[at - 4..at].try_into().unwrap()) as usize;
    let packed = &zeros[at + 4..at + 4 + length];
    let profile = [b"p\0\0".as_slice(), packed].concat();
    let text = [b"t\0\0".as_slice(), packed].concat();
    let png = make::png_insert(&make::png_rgb(4, 4), b"iCCP", &profile, false);
    let png = make::png_insert(&png, b"zTXt", &text, false);
    let options = DecodeOptions {
        limits: Limits { max_decoder_bytes: 4 << 20, ..Limits::default() },
        ..DecodeOptions::default()
    };
    let decoded = intake::decode_unguarded(&png, "picture", &options).unwrap();
    assert_eq!(decoded.image.pixels(), make::rgb(4, 4));
}
