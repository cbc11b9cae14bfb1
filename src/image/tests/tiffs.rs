//! TIFF as scanners, faxes and programs write it.

use super::super::Format;
use super::{assert_damaged, decode, make, pixels};

#[test]
fn grey_of_1_2_4_8_and_16_bits() {
    assert_eq!(
        pixels(&make::tiff_picture((3, 2), 1, &[1], &[], &[0b1010_0000, 0b0100_0000])),
        [255, 0, 255, 0, 255, 0].map(|v| [v; 3]).concat()
    );
    assert_eq!(
        pixels(&make::tiff_picture((4, 1), 1, &[2], &[], &[0b00_01_10_11])),
        [0, 85, 170, 255].map(|v| [v; 3]).concat()
    );
    assert_eq!(
        pixels(&make::tiff_picture((3, 1), 1, &[4], &[], &[0x0F, 0x80])),
        [0, 255, 136].map(|v| [v; 3]).concat()
    );
    assert_eq!(pixels(&make::tiff_picture((2, 1), 1, &[8], &[], &[7, 200])), [7, 200].map(|v| [v; 3]).concat());
    // Little-endian 0x12FF and 0xAB00 keep their high bytes.
    assert_eq!(
        pixels(&make::tiff_picture((2, 1), 1, &[16], &[], &[0xFF, 0x12, 0, 0xAB])),
        [0x12, 0xAB].map(|v| [v; 3]).concat()
    );
}

#[test]
fn white_is_zero() {
    assert_eq!(pixels(&make::tiff_picture((3, 1), 0, &[1], &[], &[0b1010_0000])), [0, 255, 0].map(|v| [v; 3]).concat());
    assert_eq!(pixels(&make::tiff_picture((2, 1), 0, &[8], &[], &[0, 200])), [255, 55].map(|v| [v; 3]).concat());
}

#[test]
fn palettes_of_4_and_8_bits_in_both_byte_orders() {
    let map = |size: usize, scale: u32| -> Vec<u32> {
        (0..3 * size).map(|i| ((i % size) as u32 * 3 + (i / size) as u32) * scale).collect()
    };
    let four = make::tiff_picture((3, 1), 3, &[4], &[(320, 3, map(16, 257))], &[0x1F, 0x20]);
    assert_eq!(pixels(&four), [3, 4, 5, 45, 46, 47, 6, 7, 8]);
    // Some writers leave the high bytes of the map empty.
    let eight =
        make::tiff_picture((2, 1), 3, &[8], &[(320, 3, map(256, 1).iter().map(|v| v % 256).collect())], &[1, 10]);
    assert_eq!(pixels(&eight), [3, 4, 5, 30, 31, 32]);
    let big_endian = make::tiff(
        true,
        &[
            (256, 3, vec![2]),
            (257, 3, vec![1]),
            (258, 3, vec![8]),
            (259, 3, vec![1]),
            (262, 3, vec![3]),
            (273, 4, vec![8]),
            (277, 3, vec![1]),
            (278, 3, vec![1]),
            (279, 4, vec![2]),
            (320, 3, map(256, 85)),
        ],
        &[1, 10],
    );
    let expected = [3u32, 4, 5, 30, 31, 32].map(|v| ((v * 85) >> 8) as u8);
    assert_eq!(pixels(&big_endian), expected);
}

#[test]
fn colour_of_8_16_and_float_samples() {
    assert_eq!(pixels(&make::tiff_picture((1, 1), 2, &[8; 3], &[], &[1, 2, 3])), [1, 2, 3]);
    assert_eq!(pixels(&make::tiff_picture((1, 1), 2, &[16; 3], &[], &[9, 1, 9, 2, 9, 3])), [1, 2, 3]);
    let floats: Vec<u8> = [0.0f32, 0.5, 7.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(pixels(&make::tiff_picture((1, 1), 2, &[32; 3], &[(339, 3, vec![3; 3])], &floats)), [0, 128, 255]);
    let nan: Vec<u8> = [f32::NAN, f32::INFINITY, -1.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(pixels(&make::tiff_picture((1, 1), 2, &[32; 3], &[(339, 3, vec![3; 3])], &nan)), [0, 255, 0]);
}

#[test]
fn inks_of_cmyk() {
    // No ink is white, full black is black, full cyan takes the red away.
    let inks = [0, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0, 0];
    assert_eq!(pixels(&make::tiff_picture((3, 1), 5, &[8; 4], &[], &inks)), [255, 255, 255, 0, 0, 0, 0, 255, 255]);
}

#[test]
fn a_fourth_sample_without_a_meaning_is_not_alpha() {
    let tiff = make::tiff_picture((1, 1), 2, &[8; 4], &[(338, 3, vec![0])], &[1, 2, 3, 0]);
    let decoded = decode(&tiff).unwrap();
    assert_eq!((decoded.image.pixels(), decoded.had_alpha), (&[1, 2, 3][..], false));
}

#[test]
fn planes_are_interleaved() {
    let planar = make::tiff(
        false,
        &[
            (256, 4, vec![2]),
            (257, 4, vec![1]),
            (258, 3, vec![8; 3]),
            (259, 3, vec![1]),
            (262, 3, vec![2]),
            (273, 4, vec![8, 10, 12]),
            (277, 3, vec![3]),
            (278, 4, vec![1]),
            (279, 4, vec![2, 2, 2]),
            (284, 3, vec![2]),
        ],
        &[1, 2, 10, 20, 100, 200],
    );
    assert_eq!(pixels(&planar), [1, 10, 100, 2, 20, 200]);
}

#[test]
fn the_first_of_several_pages_is_taken() {
    let page = make::tiff_picture((1, 1), 2, &[8; 3], &[], &[1, 2, 3]);
    assert_eq!(decode(&page).unwrap().format, Format::Tiff);
    // The link to the next directory follows the 9 entries. The second page has the sides 2x1.
    let directory = u32::from_le_bytes([page[4], page[5], page[6], page[7]]) as usize;
    let link = directory + 2 + 9 * 12;
    let mut two = page.clone();
    two[link..link + 4].copy_from_slice(&(page.len() as u32).to_le_bytes());
    two.extend_from_slice(&page[directory..link + 4]);
    two[page.len() + 2 + 8] = 2;
    assert_eq!(pixels(&two), [1, 2, 3]);
    // A page that links to itself must not be followed for ever.
    let mut circle = page.clone();
    circle[link..link + 4].copy_from_slice(&(directory as u32).to_le_bytes());
    assert_damaged(&circle);
}

#[test]
fn raw_photos_are_named_and_not_shown_as_their_thumbnail() {
    for marks in [vec![(50_706, 1, vec![1, 4, 0, 0])], vec![(254, 4, vec![1]), (330, 4, vec![8])]] {
        let error = decode(&make::tiff_picture((1, 1), 2, &[8; 3], &marks, &[1, 2, 3])).unwrap_err();
        assert_eq!(error.code(), "picture-format");
        assert!(error.to_string().contains("raw photo"), "{error}");
    }
}

#[test]
fn pixels_nobody_decodes_are_named() {
    let lab = make::tiff_picture((1, 1), 8, &[8; 3], &[], &[1, 2, 3]);
    let error = decode(&lab).unwrap_err();
    assert_eq!(error.code(), "picture-format");
    assert!(error.to_string().contains("PNG"), "{error}");
    let no_map = make::tiff_picture((1, 1), 3, &[8], &[], &[1]);
    assert_eq!(decode(&no_map).unwrap_err().code(), "picture-damaged");
}

#[test]
fn a_number_given_as_an_endless_text_is_damaged() {
    let mut tiff = make::tiff_picture((1, 1), 2, &[8; 3], &[], &[1, 2, 3]);
    let directory = u32::from_le_bytes([tiff[4], tiff[5], tiff[6], tiff[7]]) as usize;
    let width = directory + 2;
    tiff[width + 2..width + 8].copy_from_slice(&[2, 0, 0, 0, 0, 0x40]);
    assert_damaged(&tiff);
}
