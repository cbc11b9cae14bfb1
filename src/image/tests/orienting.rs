//! All eight orientations, in every format that can store one.

use image::ExtendedColorType;
use png::{BitDepth, ColorType};
use proptest::prelude::*;

use super::super::{DecodeOptions, Decoded, Orientation, intake};
use super::jpegs::{BASELINE_420, PROGRESSIVE_420};
use super::{decode, make};

const WIDTH: u32 = 5;
const HEIGHT: u32 = 3;

/// The rows a camera held in position `exif` would store of an upright picture. Written from the definition of the tag
/// (which visual side the stored row 0 and column 0 are), so it knows nothing of the code under test.
fn stored(upright: &[u8], width: usize, height: usize, exif: u16) -> (u32, u32, Vec<u8>) {
    let (row_0, column_0) = [
        ("top", "left"),
        ("top", "right"),
        ("bottom", "right"),
        ("bottom", "left"),
        ("left", "top"),
        ("right", "top"),
        ("right", "bottom"),
        ("left", "bottom"),
    ][usize::from(exif) - 1];
    let rows_are_horizontal = matches!(row_0, "top" | "bottom");
    let (rows, columns) = if rows_are_horizontal { (height, width) } else { (width, height) };
    let mut out = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let (mut x, mut y) = (0, 0);
            for (side, distance) in [(row_0, row), (column_0, column)] {
                match side {
                    "top" => y = distance,
                    "bottom" => y = height - 1 - distance,
                    "left" => x = distance,
                    _ => x = width - 1 - distance,
                }
            }
            out.extend_from_slice(&upright[(y * width + x) * 3..][..3]);
        }
    }
    (columns as u32, rows as u32, out)
}

fn assert_upright(decoded: &Decoded, exif: u16, what: &str) {
    assert_eq!((decoded.image.width_px(), decoded.image.height_px()), (WIDTH, HEIGHT), "{what} {exif}");
    assert_eq!(decoded.image.pixels(), make::rgb(WIDTH, HEIGHT), "{what} {exif}");
    assert_eq!(decoded.orientation.to_exif(), u32::from(exif), "{what}");
}

fn each(mut check: impl FnMut(u16, u32, u32, Vec<u8>)) {
    for exif in 1..=8 {
        let (width, height, rows) = stored(&make::rgb(WIDTH, HEIGHT), WIDTH as usize, HEIGHT as usize, exif);
        check(exif, width, height, rows);
    }
}

#[test]
fn png_in_any_orientation_gives_the_upright_pixels() {
    each(|exif, width, height, rows| {
        let plain = make::png(width, height, ColorType::Rgb, BitDepth::Eight, &rows);
        for (big_endian, at_end) in [(false, false), (true, false), (false, true), (true, true)] {
            let png = make::png_insert(&plain, b"eXIf", &make::exif(exif, big_endian), at_end);
            assert_upright(&decode(&png).unwrap(), exif, "PNG");
        }
        let prefixed = [b"Exif\0\0".as_slice(), &make::exif(exif, false)].concat();
        assert_upright(&decode(&make::png_insert(&plain, b"eXIf", &prefixed, false)).unwrap(), exif, "PNG, prefixed");
    });
}

#[test]
fn webp_in_any_orientation_gives_the_upright_pixels() {
    each(|exif, width, height, rows| {
        let plain = make::webp_lossless(width, height, &rows, ExtendedColorType::Rgb8);
        let block = make::exif(exif, true);
        let webp = make::webp_with_exif(&plain, width, height, &block);
        assert_upright(&decode(&webp).unwrap(), exif, "WebP");
        let prefixed = make::webp_with_exif(&plain, width, height, &[b"Exif\0\0".as_slice(), &block].concat());
        assert_upright(&decode(&prefixed).unwrap(), exif, "WebP, prefixed");
    });
}

#[test]
fn tiff_in_any_orientation_gives_the_upright_pixels() {
    each(|exif, width, height, rows| {
        let tiff = make::tiff_picture((width, height), 2, &[8, 8, 8], &[(274, 3, vec![exif.into()])], &rows);
        assert_upright(&decode(&tiff).unwrap(), exif, "TIFF");
    });
}

#[test]
fn jpeg_in_any_orientation_turns_its_decoded_pixels() {
    for jpeg in [BASELINE_420, PROGRESSIVE_420] {
        let plain = decode(jpeg).unwrap();
        assert_eq!(plain.orientation, Orientation::Upright);
        let (width, height) = (plain.image.width_px() as usize, plain.image.height_px() as usize);
        for exif in 1..=8u16 {
            for big_endian in [false, true] {
                let tagged = decode(&make::jpeg_with_exif(jpeg, &make::exif(exif, big_endian))).unwrap();
                assert_eq!(tagged.orientation.to_exif(), u32::from(exif));
                let (upright_width, upright_height) =
                    (tagged.image.width_px() as usize, tagged.image.height_px() as usize);
                // Laying the upright picture down again must give the stored pixels.
                let (stored_width, stored_height, rows) =
                    stored(tagged.image.pixels(), upright_width, upright_height, exif);
                assert_eq!((stored_width as usize, stored_height as usize), (width, height), "{exif}");
                assert_eq!(rows, plain.image.pixels(), "{exif}");
            }
        }
    }
}

#[test]
fn orientation_can_be_left_alone() {
    let tagged = make::jpeg_with_exif(BASELINE_420, &make::exif(6, true));
    let options = DecodeOptions { apply_orientation: false, ..DecodeOptions::default() };
    let decoded = intake::decode(&tagged, "picture", &options).unwrap();
    assert_eq!(decoded.orientation, Orientation::Upright);
    assert_eq!(decoded.image, decode(BASELINE_420).unwrap().image);
}

#[test]
fn meaningless_and_broken_exif_is_upright() {
    let mut endless = make::exif(6, false);
    endless[8..10].copy_from_slice(&u16::MAX.to_le_bytes());
    endless[10..12].copy_from_slice(&0x0111u16.to_le_bytes());
    let mut far = make::exif(6, false);
    far[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let whole = make::exif(6, false);
    let cut = whole[..15].to_vec();
    for block in [
        make::exif(0, false),
        make::exif(9, true),
        make::exif(300, true),
        endless,
        far,
        cut,
        Vec::new(),
        vec![0xFF; 60_000],
    ] {
        let jpeg = make::jpeg_with_exif(BASELINE_420, &block);
        assert_eq!(decode(&jpeg).unwrap().image, decode(BASELINE_420).unwrap().image);
        let png = make::png_insert(&make::png_rgb(WIDTH, HEIGHT), b"eXIf", &block, false);
        assert_eq!(decode(&png).unwrap().orientation, Orientation::Upright);
    }
}

#[test]
fn a_long_in_place_of_a_short_is_understood() {
    for big_endian in [false, true] {
        let block = make::tiff(big_endian, &[(274, 4, vec![8])], &[]);
        let decoded = decode(&make::jpeg_with_exif(BASELINE_420, &block)).unwrap();
        assert_eq!(decoded.orientation, Orientation::Rotate270);
    }
}

proptest! {
    #[test]
    fn any_size_stands_up_again(width in 1usize..80, height in 1usize..80, exif in 1u16..=8) {
        let upright = make::rgb(width as u32, height as u32);
        let (stored_width, stored_height, rows) = stored(&upright, width, height, exif);
        let orientation = Orientation::from_exif(exif.into()).unwrap();
        prop_assert_eq!(orientation.swaps_sides(), exif > 4);
        let (w, h, pixels) = orientation.apply(stored_width, stored_height, rows);
        prop_assert_eq!((w as usize, h as usize), (width, height));
        prop_assert_eq!(pixels, upright);
    }
}
