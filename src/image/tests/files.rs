//! Loading from disk.

use std::fs;

use super::super::{DecodeOptions, Format, Limits, load};
use super::make;
use crate::error::{Error, ErrorKind};

#[test]
fn the_name_of_a_file_means_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photo.jpg");
    fs::write(&path, make::png_rgb(3, 2)).unwrap();
    let decoded = load(&path, &DecodeOptions::default()).unwrap();
    assert_eq!(decoded.format, Format::Png);
    assert_eq!(decoded.image.pixels(), make::rgb(3, 2));
}

#[test]
fn errors_carry_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let options = DecodeOptions::default();
    let missing = folder.path().join("missing.png");
    match load(&missing, &options) {
        Err(Error::Io { action: "open", path, source }) => {
            assert_eq!((path, source.kind()), (missing, std::io::ErrorKind::NotFound));
        }
        other => panic!("{other:?}"),
    }
    match load(folder.path(), &options) {
        Err(Error::Io { path, source, .. }) => {
            assert_eq!((path.as_path(), source.kind()), (folder.path(), std::io::ErrorKind::IsADirectory));
        }
        other => panic!("{other:?}"),
    }
    for (content, code) in
        [(&b""[..], "picture-format"), (b"just text", "picture-format"), (b"\x89PNG\r\n\x1a\n", "picture-damaged")]
    {
        let path = folder.path().join("bad.png");
        fs::write(&path, content).unwrap();
        let error = load(&path, &options).unwrap_err();
        assert_eq!((error.code(), error.kind()), (code, ErrorKind::FixInput));
        assert!(error.to_string().contains("bad.png"), "{error}");
    }
}

#[test]
fn a_file_over_the_limit_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse.png");
    // A hole of one terabyte: reading it would take minutes.
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    match load(&path, &DecodeOptions::default()) {
        Err(Error::PictureTooLarge { what: "file bytes", value, limit, .. }) => {
            assert_eq!((value, limit), (1 << 40, 256 << 20));
        }
        other => panic!("{other:?}"),
    }
}

#[cfg(unix)]
#[test]
fn an_endless_device_ends_at_the_limit() {
    let options =
        DecodeOptions { limits: Limits { max_file_bytes: 1 << 20, ..Limits::default() }, ..DecodeOptions::default() };
    match load("/dev/zero", &options) {
        Err(Error::PictureTooLarge { what: "file bytes", value, limit, .. }) => {
            assert_eq!((value, limit), ((1 << 20) + 1, 1 << 20));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_overwritten_in_place_is_a_new_picture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("same.png");
    fs::write(&path, make::png_rgb(2, 2)).unwrap();
    let first = load(&path, &DecodeOptions::default()).unwrap().image;
    fs::write(&path, make::png(2, 2, png::ColorType::Rgb, png::BitDepth::Eight, &[9; 12])).unwrap();
    let second = load(&path, &DecodeOptions::default()).unwrap().image;
    assert_ne!(first, second);
}
