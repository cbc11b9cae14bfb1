//! Headers that lie: every one is a typed error with its place, and costs no memory.

use std::io::Read;

use super::Image;
use crate::error::Error;
use crate::gguf::{GgufFile, TensorType, Value};

fn damage(image: &Image) -> (u64, String) {
    match image.parse() {
        Err(Error::DamagedGguf { offset, reason, path }) => {
            assert_eq!(path.to_str(), Some("image.gguf"));
            (offset, reason)
        }
        other => panic!("expected damage, got {other:?}"),
    }
}

#[test]
fn what_is_no_gguf_is_named() {
    for (bytes, word) in [
        (&b""[..], "empty"),
        (b"GG", "2 bytes"),
        (b"GGUF\x03\0\0\0", "8 bytes"),
        (b"\x89PNG\r\n\x1a\n", "PNG"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b"<!DOCTYPE html>", "web page"),
        (b"PK\x03\x04....", "zip"),
    ] {
        match Image(bytes.to_vec()).parse() {
            Err(Error::NotGguf { reason, .. }) => assert!(reason.contains(word), "{reason}"),
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
}

#[test]
fn versions_and_byte_orders_that_are_not_read() {
    for (version, word) in
        [(1, "version 1"), (0, "version 0"), (4, "version 4"), (0x0300_0000, "big-endian"), (0x0200_0000, "big-endian")]
    {
        match Image::header(version, 0, 0).parse() {
            Err(Error::UnsupportedGguf { reason, .. }) => assert!(reason.contains(word), "{reason}"),
            other => panic!("{version}: {other:?}"),
        }
    }
    for version in [2, 3] {
        assert_eq!(Image::header(version, 0, 0).parse().unwrap().version(), version);
    }
}

#[test]
fn counts_beyond_the_file_cost_nothing() {
    for (tensors, keys, at) in [(1 << 60, 0, 8), (0, 1 << 60, 16), (u64::MAX, u64::MAX, 8), (4, 0, 8), (0, 7, 16)] {
        let image = Image::header(3, tensors, keys).bytes(&[0; 76]);
        let (offset, reason) = damage(&image);
        assert_eq!(offset, at);
        assert!(reason.contains(&tensors.max(keys).to_string()) && reason.contains("76"), "{reason}");
    }
}

#[test]
fn counts_beyond_the_caps_are_refused_whatever_the_size_says() {
    // A sparse file can have any size; the reader is never asked for more than the counts.
    struct Once(std::io::Cursor<Vec<u8>>);
    impl Read for Once {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(out)
        }
    }
    let huge = Image::header(3, 0, 1 << 30);
    match GgufFile::read(Once(std::io::Cursor::new(huge.0)), 1 << 50, "sparse") {
        Err(Error::DamagedGguf { reason, .. }) => assert!(reason.contains("limit is 1048576"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let long = Image::header(3, 0, 1).key("k", 8).u64(1 << 40);
    match GgufFile::read(long.0.as_slice(), 1 << 50, "sparse") {
        Err(Error::DamagedGguf { reason, offset, .. }) => {
            assert!(reason.contains("limit"), "{reason}");
            assert_eq!(offset, 24 + 9 + 4 + 8);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn lengths_beyond_the_file_are_refused_before_they_are_reserved() {
    for (image, word) in [
        (Image::header(3, 0, 1).u64(1 << 62).bytes(&[0; 40]), "4611686018427387904"),
        (Image::header(3, 0, 1).key("k", 8).u64(1 << 40), "1099511627776"),
        (Image::header(3, 0, 1).key("k", 9).u32(4).u64(1 << 61), "2305843009213693952"),
        (Image::header(3, 0, 1).key("k", 9).u32(8).u64(3).bytes(&[0; 23]), "3 elements"),
        (Image::header(3, 0, 1).key("k", 9).u32(8).u64(2).string(b"a").bytes(&[9; 8]), "needs"),
        (Image::header(3, 0, 1).key("k", 5).bytes(&[1, 2, 3]), "needs 4 bytes, the file has 3 left"),
    ] {
        let (_, reason) = damage(&image);
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read() {
    let image = Image::header(3, 0, 1).key("k", 4).u32(1);
    match GgufFile::read(&image.0[..30], image.0.len() as u64, "short") {
        Err(Error::DamagedGguf { reason, .. }) => assert!(reason.contains("ended inside"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_that_c_and_rust_would_see_differently() {
    for (image, word) in [
        (Image::header(3, 0, 1).string(b"").u32(0).bytes(&[0; 9]), "0 bytes"),
        (Image::header(3, 0, 1).string(b"a\0b").u32(4).u32(1), "NUL"),
        (Image::header(3, 0, 1).string(b"a\xff").u32(4).u32(1), "UTF-8 from its byte 1"),
        (Image::header(3, 0, 2).key("k", 4).u32(1).key("k", 4).u32(2), "twice"),
        (Image::header(3, 1, 0).tensor("a\0b", &[1], 0, 0).data(4), "NUL"),
        (Image::header(3, 1, 0).tensor(&"n".repeat(64), &[1], 0, 0).data(4), "64 bytes"),
        (Image::header(3, 2, 0).tensor("t", &[8], 0, 0).tensor("t", &[8], 0, 32).data(64), "twice"),
    ] {
        let (_, reason) = damage(&image);
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn value_types() {
    let (offset, reason) = damage(&Image::header(3, 0, 1).key("k", 13).u64(0));
    assert_eq!((offset, reason.contains("type 13")), (33, true));
    assert!(damage(&Image::header(3, 0, 1).key("k", 7).bytes(&[2])).1.contains("value 2"));
    assert!(damage(&Image::header(3, 0, 1).key("k", 9).u32(7).u64(2).bytes(&[1, 9])).1.contains("value 9"));
    assert!(damage(&Image::header(3, 0, 1).key("k", 9).u32(77).u64(0)).1.contains("type 77"));
    match Image::header(3, 0, 1).key("k", 9).u32(9).u64(0).parse() {
        Err(Error::UnsupportedGguf { reason, .. }) => assert!(reason.contains("array of arrays"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let file = Image::header(3, 0, 1).key("k", 9).u32(6).u64(0).parse().unwrap();
    assert_eq!(file.get::<&[f32]>("k").unwrap(), Some(&[][..]));
    match file.get::<&[i32]>("k") {
        Err(Error::BadMetadata { key, reason, .. }) => {
            assert!(key == "k" && reason.contains("array of i32"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn alignments() {
    for bad in [0u32, 3, 48, 1 << 21, u32::MAX] {
        match Image::header(3, 0, 1).key("general.alignment", 4).u32(bad).parse() {
            Err(Error::BadMetadata { reason, .. }) => assert!(reason.contains(&bad.to_string()), "{reason}"),
            other => panic!("{bad}: {other:?}"),
        }
    }
    assert!(matches!(
        Image::header(3, 0, 1).key("general.alignment", 5).u32(32).parse(),
        Err(Error::BadMetadata { .. })
    ));
    assert_eq!(Image::header(3, 0, 1).key("general.alignment", 4).u32(64).parse().unwrap().alignment(), 64);
}

#[test]
fn tensors_that_do_not_fit_their_file() {
    let one = |dims: &[u64], kind, offset| Image::header(3, 1, 0).tensor("t", dims, kind, offset);
    for (image, words) in [
        (one(&[8; 5], 0, 0).data(64), ["5 dimensions", "up to 4"]),
        (one(&[8], 4, 0).data(64), ["unknown storage type 4", ""]),
        (one(&[8], 43, 0).data(64), ["unknown storage type 43", ""]),
        (one(&[33], 8, 0).data(64), ["33 elements", "multiple of 32"]),
        (one(&[1 << 32, 1 << 32], 0, 0).data(64), ["overflows", ""]),
        (one(&[0, 1 << 40, 1 << 40], 0, 0).data(64), ["overflows", ""]),
        (one(&[u64::MAX], 24, 0).data(64), ["overflows", ""]),
        (one(&[1 << 62], 0, 0).data(64), ["overflows", ""]),
        (one(&[8], 0, 4).data(64), ["offset 4", "multiple of 32"]),
        (one(&[8], 0, 32).data(64), ["offset 32", "must be 0"]),
        (one(&[8], 0, 0).data(31), ["takes 32 bytes from byte 64", "has 95 bytes"]),
        (one(&[1 << 40], 0, 0).data(64), ["takes 4398046511104 bytes", "incomplete download"]),
        (one(&[8], 0, 0), ["takes 32 bytes", "has 57 bytes"]),
        (
            Image::header(3, 2, 0).tensor("a", &[8], 0, 0).tensor("b", &[8], 0, 64).data(128),
            ["offset 64", "must be 32"],
        ),
        (
            Image::header(3, 2, 0).tensor("a", &[1 << 61], 24, 0).tensor("b", &[8], 0, 0).data(128),
            ["offset 0", "must be 2305843009213693952"],
        ),
    ] {
        let (_, reason) = damage(&image);
        assert!(words.iter().all(|w| reason.contains(w)), "{reason}");
    }
    let file = one(&[8], 0, 0).data(32).parse().unwrap();
    assert_eq!((file.data_offset(), file.tensor("t").unwrap().byte_len), (64, 32));
    // Scalars, empty tensors and a file that ends with its last tensor, not with padding, are what ggml takes too.
    let odd = Image::header(2, 3, 0)
        .tensor("s", &[], 0, 0)
        .tensor("e", &[0, 4], 0, 32)
        .tensor("l", &[3], 24, 32)
        .data(35)
        .parse()
        .unwrap();
    assert_eq!(odd.tensors().iter().map(|t| t.byte_len).collect::<Vec<_>>(), [4, 0, 3]);
    assert!(odd.read_tensor("l").is_err(), "only the header was given");
}

#[test]
fn a_path_that_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(GgufFile::open(dir.path()), Err(Error::Io { action: "open", .. })));
    let missing = dir.path().join("missing.gguf");
    match GgufFile::open(&missing) {
        Err(Error::Io { path, .. }) => assert_eq!(path, missing),
        other => panic!("{other:?}"),
    }
}

/// Block sizes as `ggml_blck_size` and `ggml_type_size` of b11434 report them.
#[test]
fn storage_types_match_ggml() {
    let table = [
        (0, 1, 4),
        (1, 1, 2),
        (2, 32, 18),
        (3, 32, 20),
        (6, 32, 22),
        (7, 32, 24),
        (8, 32, 34),
        (9, 32, 36),
        (10, 256, 84),
        (11, 256, 110),
        (12, 256, 144),
        (13, 256, 176),
        (14, 256, 210),
        (15, 256, 292),
        (16, 256, 66),
        (17, 256, 74),
        (18, 256, 98),
        (19, 256, 50),
        (20, 32, 18),
        (21, 256, 110),
        (22, 256, 82),
        (23, 256, 136),
        (24, 1, 1),
        (25, 1, 2),
        (26, 1, 4),
        (27, 1, 8),
        (28, 1, 8),
        (29, 256, 56),
        (30, 1, 2),
        (34, 256, 54),
        (35, 256, 66),
        (39, 32, 17),
        (40, 64, 36),
        (41, 128, 18),
        (42, 64, 18),
    ];
    let ours: Vec<_> = TensorType::ALL.iter().map(|t| (t.id(), t.block_len(), t.block_bytes())).collect();
    let theirs: Vec<(u32, u64, u64)> = table.to_vec();
    assert_eq!(ours, theirs);
    for id in 0..64 {
        assert_eq!(TensorType::from_id(id).map(TensorType::id), theirs.iter().find(|t| t.0 == id).map(|t| t.0));
    }
}

#[test]
fn values_show_shortly() {
    assert_eq!(Value::from("a\nb").to_string(), "\"a\\nb\"");
    assert!(Value::from("x".repeat(1 << 20)).to_string().len() < 80);
    assert_eq!(Value::String(vec![0xff, b'a']).to_string(), "\"\u{fffd}a\"");
}
