//! JPEG against upstream's decoder.

use super::super::Format;
use super::{assert_damaged, decode, make, pixels};

pub(super) const BASELINE_444: &[u8] = include_bytes!("../fixtures/baseline_444.jpg");
pub(super) const BASELINE_422: &[u8] = include_bytes!("../fixtures/baseline_422.jpg");
pub(super) const BASELINE_420: &[u8] = include_bytes!("../fixtures/baseline_420.jpg");
pub(super) const SQUARE_422: &[u8] = include_bytes!("../fixtures/square_422.jpg");
pub(super) const SQUARE_420: &[u8] = include_bytes!("../fixtures/square_420.jpg");
pub(super) const GREY: &[u8] = include_bytes!("../fixtures/grey.jpg");
pub(super) const PROGRESSIVE_420: &[u8] = include_bytes!("../fixtures/progressive_420.jpg");
pub(super) const RESTART_420: &[u8] = include_bytes!("../fixtures/restart_420.jpg");
pub(super) const RGB_IDS: &[u8] = include_bytes!("../fixtures/rgb_ids.jpg");
pub(super) const CMYK: &[u8] = include_bytes!("../fixtures/cmyk.jpg");
pub(super) const CMYK_PROGRESSIVE: &[u8] = include_bytes!("../fixtures/cmyk_progressive.jpg");

/// 64-bit FNV-1a.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

fn position_of_frame_header(jpeg: &[u8]) -> usize {
    let mut at = 2;
    while !matches!(jpeg[at + 1], 0xC0..=0xC2) {
        at += 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
    }
    at
}

/// The same entropy-coded blocks under another luma sampling: another picture, but a valid one.
fn with_sampling(jpeg: &[u8], sampling: u8) -> Vec<u8> {
    let mut copy = jpeg.to_vec();
    copy[position_of_frame_header(jpeg) + 11] = sampling;
    copy
}

pub(super) fn with_adobe_transform(jpeg: &[u8], transform: u8) -> Vec<u8> {
    let mut copy = jpeg.to_vec();
    let at = copy.windows(5).position(|window| window == b"Adobe").unwrap();
    copy[at + 11] = transform;
    copy
}

/// The sums are those of the RGB bytes that `stb_image.h` gives for the same files.
#[test]
fn pixels_equal_upstreams_for_every_sampling_and_process() {
    let cases: [(&str, Vec<u8>, u64); 16] = [
        ("4:4:4", BASELINE_444.into(), 0xA55C_78B5_61C6_4F26),
        ("4:2:2", BASELINE_422.into(), 0x4692_BE90_7446_A2E4),
        ("4:2:0", BASELINE_420.into(), 0x0D06_3BCF_3211_F2AC),
        ("4:2:2, even size", SQUARE_422.into(), 0x942C_7916_F812_F3C3),
        ("4:2:0, even size", SQUARE_420.into(), 0x6BED_0D58_7007_FC8A),
        ("4:4:0", with_sampling(SQUARE_422, 0x12), 0x36D4_CC53_971E_5E29),
        ("4:1:1", with_sampling(SQUARE_420, 0x41), 0x4982_4E4F_DB81_CB7E),
        ("1x4", with_sampling(SQUARE_420, 0x14), 0x5B47_9B8F_77D4_A261),
        ("grey", GREY.into(), 0xA94B_6A5A_0A09_EC2E),
        ("progressive", PROGRESSIVE_420.into(), 0x0D06_3BCF_3211_F2AC),
        ("restart markers", RESTART_420.into(), 0x0D06_3BCF_3211_F2AC),
        ("stored as RGB", RGB_IDS.into(), 0x7C30_6939_A62A_2F25),
        ("CMYK", CMYK.into(), 0x85AB_6121_3A6A_E6C6),
        ("CMYK, progressive", CMYK_PROGRESSIVE.into(), 0x85AB_6121_3A6A_E6C6),
        ("YCCK", with_adobe_transform(CMYK, 2), 0xAE44_B1B1_420B_4114),
        ("YCCK, progressive", with_adobe_transform(CMYK_PROGRESSIVE, 2), 0xAE44_B1B1_420B_4114),
    ];
    for (what, bytes, expected) in cases {
        let decoded = decode(&bytes).unwrap();
        assert_eq!(decoded.format, Format::Jpeg);
        assert!(!decoded.had_alpha);
        assert_eq!(sum(decoded.image.pixels()), expected, "{what}");
    }
}

#[test]
fn cmyk_without_an_adobe_marker_is_still_read_as_ink_on_white() {
    let at = CMYK.windows(5).position(|window| window == b"Adobe").unwrap();
    let mut plain = CMYK.to_vec();
    plain[at] = b'X';
    assert_eq!(pixels(&plain), pixels(CMYK));
}

#[test]
fn grey_has_three_equal_channels() {
    let decoded = decode(GREY).unwrap();
    assert_eq!((decoded.image.width_px(), decoded.image.height_px()), (27, 19));
    assert!(decoded.image.pixels().as_chunks::<3>().0.iter().all(|[r, g, b]| r == g && g == b));
}

#[test]
fn every_cut_before_the_end_of_the_data_is_reported() {
    for jpeg in [BASELINE_444, BASELINE_420, GREY, PROGRESSIVE_420, RESTART_420, CMYK] {
        // The last bytes are the end marker and up to a byte and a half of padding.
        for length in (3..jpeg.len() - 6).step_by(5) {
            assert!(decode(&jpeg[..length]).is_err(), "cut at {length} of {}", jpeg.len());
        }
        assert_damaged(&jpeg[..jpeg.len() / 2]);
    }
}

#[test]
fn a_missing_end_marker_and_trailing_junk_are_forgiven() {
    let whole = pixels(BASELINE_420);
    assert_eq!(pixels(&BASELINE_420[..BASELINE_420.len() - 2]), whole);
    assert_eq!(pixels(&[BASELINE_420, b"\xFF\xE1\xFF\xFFtrailing junk"].concat()), whole);
    assert_eq!(pixels(&[&BASELINE_420[..BASELINE_420.len() - 2], b"\xFF\xE1\xFF\xFF\0"].concat()), whole);
}

#[test]
fn a_progressive_picture_that_ends_early_on_purpose_is_a_picture() {
    // Only the first scan, and then an end marker.
    let scan_at = PROGRESSIVE_420.windows(2).position(|window| window == [0xFF, 0xDA]).unwrap();
    let next = (scan_at + 2..).find(|&at| PROGRESSIVE_420[at] == 0xFF && PROGRESSIVE_420[at + 1] >= 0xC0).unwrap();
    let coarse = [&PROGRESSIVE_420[..next], &[0xFF, 0xD9]].concat();
    let decoded = decode(&coarse).unwrap();
    assert_eq!((decoded.image.width_px(), decoded.image.height_px()), (27, 19));
    assert_ne!(decoded.image.pixels(), pixels(PROGRESSIVE_420));
    assert_damaged(&PROGRESSIVE_420[..next]);
}

#[test]
fn kinds_nobody_decodes_are_named() {
    for (marker, word) in [(0xC3, "lossless"), (0xC9, "arithmetic"), (0xC5, "hierarchical"), (0xF7, "JPEG-LS")] {
        let mut other = BASELINE_444.to_vec();
        let at = position_of_frame_header(&other);
        other[at + 1] = marker;
        let error = decode(&other).unwrap_err();
        assert_eq!(error.code(), "picture-format");
        assert!(error.to_string().contains(word), "{error}");
    }
    let mut deep = BASELINE_444.to_vec();
    let at = position_of_frame_header(&deep);
    deep[at + 4] = 12;
    assert!(decode(&deep).unwrap_err().to_string().contains("12 bits"));
}

#[test]
fn metadata_of_any_size_and_number_changes_nothing() {
    let mut jpeg = BASELINE_444.to_vec();
    for marker in [0xE1, 0xE2, 0xED, 0xFE] {
        for _ in 0..20 {
            jpeg = make::jpeg_with_segment(&jpeg, marker, &vec![0xFF; 65_000]);
        }
    }
    assert_eq!(pixels(&jpeg), pixels(BASELINE_444));
}

#[test]
fn a_file_of_endless_scans_is_stopped() {
    // The whole scan of a grey picture, repeated.
    let scan_at = GREY.windows(2).position(|window| window == [0xFF, 0xDA]).unwrap();
    let scan = &GREY[scan_at..GREY.len() - 2];
    let mut file = GREY[..scan_at].to_vec();
    for _ in 0..300 {
        file.extend_from_slice(scan);
    }
    assert_damaged(&file);
}
