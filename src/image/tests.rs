//! Tests of the intake. Pictures are made in code; the JPEG and lossy WebP files in `fixtures/` were written by libjpeg and
//! libwebp for these tests, and the sums beside them come from `stb_image.h` and libwebp.

mod alpha;
mod files;
mod formats;
mod jpegs;
mod limiting;
mod make;
mod mutations;
mod orienting;
mod tiffs;

use super::{DecodeOptions, Decoded, RgbImage, intake};
use crate::error::{Error, Result};

/// Decodes without the net that turns panics into errors.
fn decode(bytes: &[u8]) -> Result<Decoded> {
    intake::decode_unguarded(bytes, "picture", &DecodeOptions::default())
}

fn pixels(bytes: &[u8]) -> Vec<u8> {
    decode(bytes).unwrap().image.pixels().to_vec()
}

fn assert_damaged(bytes: &[u8]) {
    match decode(bytes) {
        Err(Error::PictureDamaged { name, .. }) => assert_eq!(name, "picture"),
        other => panic!("expected a damaged picture, got {other:?}"),
    }
}

#[test]
fn a_picture_knows_its_shape_and_clones_cheaply() {
    let image = RgbImage::from_rgb(2, 1, vec![1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!((image.width_px(), image.height_px()), (2, 1));
    assert_eq!(image.pixel(1, 0), Some([4, 5, 6]));
    assert_eq!((image.pixel(2, 0), image.pixel(0, 1)), (None, None));
    let copy = image.clone();
    assert_eq!(copy.pixels().as_ptr(), image.pixels().as_ptr());
    assert_eq!(format!("{image:?}"), "RgbImage(2x1 px)");
}

#[test]
fn wrong_shapes_are_refused_with_both_numbers() {
    for (width, height, length) in
        [(0, 1, 0), (1, 0, 0), (0, 0, 0), (2, 2, 11), (2, 2, 13), (65_536, 65_536, 0), (u32::MAX, u32::MAX, 3)]
    {
        let error = RgbImage::from_rgb(width, height, vec![0; length]).unwrap_err();
        assert_eq!(error.code(), "bad-parameter", "{width}x{height}");
        assert!(RgbImage::from_rgba(width, height, &vec![0; length], super::Background::WHITE).is_err());
    }
    let error = RgbImage::from_rgb(2, 2, vec![0; 11]).unwrap_err().to_string();
    assert!(error.contains("11 bytes") && error.contains("12 bytes"), "{error}");
}

#[test]
fn the_same_bytes_in_another_shape_are_another_picture() {
    let wide = RgbImage::from_rgb(30, 150, vec![7; 13_500]).unwrap();
    let tall = RgbImage::from_rgb(150, 30, vec![7; 13_500]).unwrap();
    assert_ne!(wide, tall);
}
