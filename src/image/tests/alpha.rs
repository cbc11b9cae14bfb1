//! Transparency onto a background, in every form formats have for it.

use image::ExtendedColorType;
use png::{BitDepth, ColorType};
use proptest::prelude::*;

use super::super::{Background, DecodeOptions, RgbImage, intake};
use super::{decode, make, pixels};

const PINK: Background = Background { red: 255, green: 0, blue: 128 };

fn on(bytes: &[u8], background: Background) -> Vec<u8> {
    let options = DecodeOptions { background, ..DecodeOptions::default() };
    let decoded = intake::decode_unguarded(bytes, "picture", &options).unwrap();
    assert!(decoded.had_alpha);
    decoded.image.pixels().to_vec()
}

const RGBA: [u8; 16] = [10, 20, 30, 255, 10, 20, 30, 0, 200, 100, 0, 128, 0, 0, 0, 51];
/// 200 * 128 / 255 + 255 * 127 / 255 = 227.4, 177.2, 127; and 255 * 204 / 255 = 204.
const ON_WHITE: [u8; 12] = [10, 20, 30, 255, 255, 255, 227, 177, 127, 204, 204, 204];
/// The background's share of the third pixel is 127 / 255 of (255, 0, 128), of the fourth 204 / 255.
const ON_PINK: [u8; 12] = [10, 20, 30, 255, 0, 128, 227, 50, 64, 204, 0, 102];

#[test]
fn straight_alpha_blends_alike_in_every_format() {
    let files = [
        ("PNG", make::png(2, 2, ColorType::Rgba, BitDepth::Eight, &RGBA)),
        ("WebP", make::webp_lossless(2, 2, &RGBA, ExtendedColorType::Rgba8)),
        ("QOI", make::qoi(2, 2, &RGBA, ExtendedColorType::Rgba8)),
        ("BMP", make::bmp(2, 2, &RGBA, ExtendedColorType::Rgba8)),
        ("TIFF", make::tiff_picture((2, 2), 2, &[8; 4], &[(338, 3, vec![2])], &RGBA)),
        (
            "PAM",
            [b"P7\nWIDTH 2\nHEIGHT 2\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n".as_slice(), &RGBA].concat(),
        ),
    ];
    for (format, bytes) in files {
        assert_eq!(on(&bytes, Background::WHITE), ON_WHITE, "{format}");
        assert_eq!(on(&bytes, PINK), ON_PINK, "{format}");
    }
    assert_eq!(RgbImage::from_rgba(2, 2, &RGBA, PINK).unwrap().pixels(), ON_PINK);
    assert_eq!(Background::default(), Background::WHITE);
}

#[test]
fn an_opaque_alpha_channel_changes_nothing() {
    let opaque: Vec<u8> = make::rgb(3, 2).as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]).collect();
    for bytes in [
        make::png(3, 2, ColorType::Rgba, BitDepth::Eight, &opaque),
        make::webp_lossless(3, 2, &opaque, ExtendedColorType::Rgba8),
    ] {
        let decoded = decode(&bytes).unwrap();
        assert!(!decoded.had_alpha);
        assert_eq!(decoded.image.pixels(), make::rgb(3, 2));
    }
}

#[test]
fn grey_with_alpha_blends() {
    let la = [0, 255, 0, 0, 100, 51];
    // 100 * 51 / 255 + 255 * 204 / 255 = 224
    let expected = [0, 0, 0, 255, 255, 255, 224, 224, 224];
    assert_eq!(on(&make::png(3, 1, ColorType::GrayscaleAlpha, BitDepth::Eight, &la), Background::WHITE), expected);
    let wide: Vec<u8> = la.iter().flat_map(|&v| [v, 0x5A]).collect();
    assert_eq!(on(&make::png(3, 1, ColorType::GrayscaleAlpha, BitDepth::Sixteen, &wide), Background::WHITE), expected);
    let tiff = make::tiff_picture((3, 1), 1, &[8, 8], &[(338, 3, vec![2])], &la);
    assert_eq!(on(&tiff, Background::WHITE), expected);
}

#[test]
fn trns_blends_for_palette_grey_and_colour() {
    let palette = make::png_with(3, 1, ColorType::Indexed, BitDepth::Two, &[0b00_01_10_00], |encoder| {
        encoder.set_palette(vec![9, 8, 7, 0, 0, 0, 50, 60, 70]);
        encoder.set_trns(vec![255, 0]);
    });
    assert_eq!(on(&palette, PINK), [9, 8, 7, 255, 0, 128, 50, 60, 70]);
    let grey = make::png_with(3, 1, ColorType::Grayscale, BitDepth::Eight, &[5, 6, 7], |encoder| {
        encoder.set_trns(vec![0, 6]);
    });
    assert_eq!(on(&grey, PINK), [5, 5, 5, 255, 0, 128, 7, 7, 7]);
    let colour = make::png_with(2, 1, ColorType::Rgb, BitDepth::Eight, &[1, 2, 3, 1, 2, 4], |encoder| {
        encoder.set_trns(vec![0, 1, 0, 2, 0, 3]);
    });
    assert_eq!(on(&colour, PINK), [255, 0, 128, 1, 2, 4]);
}

#[test]
fn a_16_bit_trns_compares_all_16_bits() {
    let rows = [0x12, 0x34, 0x12, 0x35];
    let png = make::png_with(2, 1, ColorType::Grayscale, BitDepth::Sixteen, &rows, |encoder| {
        encoder.set_trns(vec![0x12, 0x34]);
    });
    assert_eq!(on(&png, PINK), [255, 0, 128, 0x12, 0x12, 0x12]);
}

#[test]
fn a_transparent_gif_shows_the_background() {
    let frame = vec![255, 0, 0, 255, 0, 0, 0, 0, 0, 0, 255, 255];
    assert_eq!(on(&make::gif(3, 1, &[frame]), PINK), [255, 0, 0, 255, 0, 128, 0, 0, 255]);
}

#[test]
fn premultiplied_tiff_is_not_darkened_twice() {
    // Half-transparent white, stored multiplied, on white is white.
    let tiff = make::tiff_picture((2, 1), 2, &[8; 4], &[(338, 3, vec![1])], &[128, 128, 128, 128, 200, 0, 0, 100]);
    assert_eq!(on(&tiff, Background::WHITE), [255, 255, 255, 255, 155, 155]);
    // The same bytes as straight alpha are darker.
    let straight = make::tiff_picture((2, 1), 2, &[8; 4], &[(338, 3, vec![2])], &[128, 128, 128, 128, 200, 0, 0, 100]);
    assert_eq!(on(&straight, Background::WHITE)[0], 191);
}

#[test]
fn a_bmp_whose_alpha_is_zero_everywhere_is_opaque() {
    let rgba: Vec<u8> = make::rgb(2, 2).as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 0]).collect();
    assert_eq!(pixels(&make::bmp(2, 2, &rgba, ExtendedColorType::Rgba8)), make::rgb(2, 2));
}

proptest! {
    #[test]
    fn blending_is_the_rounded_real_number(front: u8, back: u8, alpha: u8) {
        let background = Background { red: back, green: back, blue: back };
        let got = RgbImage::from_rgba(1, 1, &[front, front, front, alpha], background).unwrap().pixels()[0];
        let a = f64::from(alpha) / 255.0;
        let exact = f64::from(front) * a + f64::from(back) * (1.0 - a);
        prop_assert_eq!(f64::from(got), exact.round());
    }
}
