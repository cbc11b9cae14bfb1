//! Models in several files.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::gguf::{GgufFile, GgufWriter, TensorType, Value};

fn part(dir: &Path, file: &str, keys: &[(&str, Value)], tensors: &[&str]) -> PathBuf {
    let mut writer = GgufWriter::new();
    for (key, value) in keys {
        writer.set(key, value.clone()).unwrap();
    }
    for name in tensors {
        writer.declare(name, &[4], TensorType::I8).unwrap();
    }
    let path = dir.join(file);
    let mut sink = writer.begin(&path).unwrap();
    for name in tensors {
        sink.tensor(|out| out.put(&[name.as_bytes()[0]; 4])).unwrap();
    }
    sink.finish().unwrap();
    path
}

fn keys(no: u16, count: u16, total: i32) -> [(&'static str, Value); 3] {
    [("split.no", no.into()), ("split.count", count.into()), ("split.tensors.count", total.into())]
}

#[test]
fn parts_are_one_model() {
    let dir = tempfile::tempdir().unwrap();
    let first = part(dir.path(), "m-00001-of-00003.gguf", &keys(0, 3, 3), &[]);
    part(dir.path(), "m-00002-of-00003.gguf", &keys(1, 3, 3), &["a", "b"]);
    part(dir.path(), "m-00003-of-00003.gguf", &keys(2, 3, 3), &["c"]);
    let model = GgufFile::open_split(&first).unwrap();
    assert_eq!(model.paths().len(), 3);
    assert_eq!(model.path(), first);
    for name in ["a", "b", "c"] {
        assert_eq!(model.read_tensor(name).unwrap(), [name.as_bytes()[0]; 4]);
    }
    assert_eq!(GgufFile::open(&first).unwrap().tensors().len(), 0, "`open` reads one file");
}

#[test]
fn a_whole_model_is_opened_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for keys in [&[][..], &[("split.count", Value::U16(1))], &[("split.count", Value::U16(0))]] {
        let path = part(dir.path(), "whole.gguf", keys, &["a"]);
        assert_eq!(GgufFile::open_split(path).unwrap().paths().len(), 1);
    }
}

#[test]
fn parts_that_do_not_belong_together() {
    let dir = tempfile::tempdir().unwrap();
    let open = |p: &Path| GgufFile::open_split(p);
    let first = "m-00001-of-00002.gguf";
    let second = "m-00002-of-00002.gguf";

    let path = part(dir.path(), first, &keys(0, 2, 2), &["a"]);
    match open(&path) {
        Err(Error::Io { path, .. }) => assert!(path.ends_with(second)),
        other => panic!("{other:?}"),
    }
    for (list, tensors, key) in [
        (keys(0, 2, 2), &["b"][..], "split.no"),
        (keys(1, 3, 2), &["b"], "split.count"),
        (keys(1, 2, 2), &["b", "c"], "split.tensors.count"),
    ] {
        part(dir.path(), second, &list, tensors);
        assert!(matches!(open(&path), Err(Error::BadMetadata { key: k, .. }) if k == key), "{key}");
    }
    part(dir.path(), second, &[("split.no", 1u32.into())], &["b"]);
    assert!(matches!(open(&path), Err(Error::BadMetadata { .. })), "the native loader aborts on a u32 here");
    let other = part(dir.path(), second, &keys(1, 2, 2), &["a"]);
    assert!(matches!(open(&path), Err(Error::DamagedGguf { reason, .. }) if reason.contains("`a`")));
    assert!(matches!(open(&other), Err(Error::BadMetadata { key, .. }) if key == "split.no"), "not the first part");
    let renamed = part(dir.path(), "renamed.gguf", &keys(0, 2, 2), &["a"]);
    match open(&renamed) {
        Err(Error::BadMetadata { reason, .. }) => assert!(reason.contains("-00001-of-00002.gguf"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
