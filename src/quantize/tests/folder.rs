//! Quantised files for loading: made once, found again, mended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::{names, projector, projector_file, write};
use crate::error::Error;
use crate::gguf::{Fingerprint, GgufFile, TensorType};
use crate::llama::Progress;
use crate::quantize::{
    ProjectorPrecision, QuantizeParams, Rules, TowerPrecision, VisionFolder, VisionPrecision, quantize,
};

/// Counts files that were written: the last thing a writer says is that all is read.
fn counter() -> (Progress, Arc<AtomicU32>) {
    let made = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&made);
    let progress: Progress = Arc::new(move |fraction| {
        counted.fetch_add(u32::from(fraction == 1.0), Ordering::SeqCst);
        true
    });
    (progress, made)
}

#[test]
fn the_switch() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = projector_file(dir.path(), TensorType::F16);
    let folder = VisionFolder::new(cache.path());
    for precision in [VisionPrecision::AsIs, VisionPrecision::F16] {
        assert_eq!(folder.projector(&source, precision, None).unwrap(), source);
    }
    assert!(names(cache.path()).is_empty() && folder.list().unwrap().is_empty() && folder.clear().unwrap() == 0);

    let (progress, made) = counter();
    let small = folder.projector(&source, VisionPrecision::Q8_0, Some(&progress)).unwrap();
    assert!(small.starts_with(folder.path()));
    let file = GgufFile::open(&small).unwrap();
    assert_eq!(file.tensor("v.blk.0.attn_q.weight").unwrap().ggml_type, TensorType::Q8_0);
    assert_eq!(file.tensor("mm.0.weight").unwrap().ggml_type, TensorType::F16);
    // the content counts, not the name
    let renamed = dir.path().join("renamed.gguf");
    std::fs::rename(&source, &renamed).unwrap();
    assert_eq!(folder.projector(&renamed, VisionPrecision::Q8_0, Some(&progress)).unwrap(), small);
    assert_eq!(made.load(Ordering::SeqCst), 1);
    let list = folder.list().unwrap();
    assert!(list.len() == 1 && list[0].path == small && list[0].is_whole());

    // a quantised file is what it is, and never the original
    assert_eq!(folder.projector(&small, VisionPrecision::Q8_0, None).unwrap(), small);
    let refused = folder.projector(&small, VisionPrecision::F16, None);
    assert!(matches!(refused, Err(Error::BadParameter { name: "vision", .. })), "{refused:?}");
    assert_eq!(folder.clear().unwrap(), 1);
    assert!(!small.exists());
}

#[test]
fn another_source_is_another_file() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = VisionFolder::new(cache.path());
    let [a, b] = [TensorType::F16, TensorType::F32].map(|kind| {
        let source = projector_file(dir.path(), kind);
        folder.projector(&source, VisionPrecision::Q8_0, None).unwrap()
    });
    assert_ne!(a, b);
    assert_eq!(folder.list().unwrap().len(), 2);
}

#[test]
fn a_damaged_file_is_made_anew() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = projector_file(dir.path(), TensorType::F16);
    let folder = VisionFolder::new(cache.path());
    let small = folder.projector(&source, VisionPrecision::Q8_0, None).unwrap();
    let right = std::fs::read(&small).unwrap();
    let data = GgufFile::open(&small).unwrap().data_offset() as usize;
    let mut flipped = right.clone();
    flipped[data + 5000] ^= 1;
    let foreign = dir.path().join("foreign.gguf");
    quantize(projector_file(dir.path(), TensorType::F32), &foreign, &QuantizeParams::default()).unwrap();
    for wrong in [&flipped, &right[..right.len() - 100].to_vec(), &Vec::new(), &std::fs::read(&foreign).unwrap()] {
        std::fs::write(&small, wrong).unwrap();
        assert!(!folder.list().unwrap()[0].is_whole());
        let (progress, made) = counter();
        assert_eq!(folder.projector(&source, VisionPrecision::Q8_0, Some(&progress)).unwrap(), small);
        assert_eq!(made.load(Ordering::SeqCst), 1);
        assert!(std::fs::read(&small).unwrap() == right);
    }
    // somebody was killed while writing
    let name = small.file_name().unwrap().to_str().unwrap();
    let leftover = folder.path().join(format!(".{name}.1-0.tmp"));
    std::fs::write(&leftover, "half").unwrap();
    std::fs::remove_file(&small).unwrap();
    folder.projector(&source, VisionPrecision::Q8_0, None).unwrap();
    assert!(!leftover.exists() && small.exists());
}

#[test]
fn no_byte_of_a_header_can_change_unseen() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = projector_file(dir.path(), TensorType::F16);
    let folder = VisionFolder::new(cache.path());
    let small = folder.projector(&source, VisionPrecision::Q8_0, None).unwrap();
    let right = std::fs::read(&small).unwrap();
    let entry = folder.list().unwrap().remove(0);
    let header = GgufFile::open(&small).unwrap().data_offset() as usize;
    for at in (0..header).step_by(7) {
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        std::fs::write(&small, bytes).unwrap();
        assert!(!entry.is_whole(), "byte {at}");
    }
    // what a picture's mean is taken for changes every answer
    let key = b"clip.vision.image_mean";
    let mean = right.windows(key.len()).position(|w| w == key).unwrap() + key.len() + 4 + 4 + 8;
    let mut bytes = right.clone();
    bytes[mean..mean + 4].copy_from_slice(&0.75_f32.to_le_bytes());
    std::fs::write(&small, bytes).unwrap();
    assert_eq!(GgufFile::open(&small).unwrap().require::<&[f32]>("clip.vision.image_mean").unwrap()[0], 0.75);
    assert_eq!(folder.projector(&source, VisionPrecision::Q8_0, None).unwrap(), small);
    assert!(std::fs::read(&small).unwrap() == right && entry.is_whole());
    // nor can the checksum
    std::fs::write(small.with_extension("gguf.xxh3"), "0\n").unwrap();
    assert!(!entry.is_whole());
}

#[test]
fn a_file_in_use_does_not_change_when_another_asks() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = projector_file(dir.path(), TensorType::F16);
    let folder = VisionFolder::new(cache.path());
    let small = folder.projector(&source, VisionPrecision::Q8_0, None).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    File::options().write(true).open(&small).unwrap().set_modified(old).unwrap();
    let lock = File::options().write(true).open(small.with_extension("gguf.lock")).unwrap();
    lock.set_modified(old).unwrap();
    assert_eq!(folder.list().unwrap()[0].used, old);
    let loaded = Fingerprint::new([small.as_path()]).unwrap();
    assert_eq!(folder.projector(&source, VisionPrecision::Q8_0, None).unwrap(), small);
    loaded.check().unwrap();
    assert_eq!(std::fs::metadata(&small).unwrap().modified().unwrap(), old);
    assert!(folder.list().unwrap()[0].used > old, "last used now");
}

#[test]
fn only_the_original_is_the_original() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = VisionFolder::new(cache.path());
    let reason = |path: &std::path::Path| match folder.projector(path, VisionPrecision::F16, None) {
        Err(Error::BadParameter { name: "vision", reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    // a quantised matrix behind the tower loses as much
    let (keys, mut tensors) = projector(TensorType::F16);
    tensors.iter_mut().find(|t| t.0 == "mm.2.weight").unwrap().2 = TensorType::Q8_0;
    let half = write(&dir.path().join("half.gguf"), &keys, &tensors);
    assert!(reason(&half).contains("mm.2.weight"));
    // F16 made from more
    let rules = Rules::new(TowerPrecision::F16, ProjectorPrecision::F16);
    let converted = dir.path().join("f16.gguf");
    let params = QuantizeParams { rules, ..QuantizeParams::default() };
    quantize(projector_file(dir.path(), TensorType::F32), &converted, &params).unwrap();
    assert!(reason(&converted).contains("converted"));
}

#[test]
fn clearing_takes_what_was_left_and_nothing_else() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = projector_file(dir.path(), TensorType::F16);
    let folder = VisionFolder::new(cache.path());
    let small = folder.projector(&source, VisionPrecision::Q8_0, None).unwrap();
    let name = small.file_name().unwrap().to_str().unwrap();
    let lock_name = format!("{name}.lock");
    let leftover = folder.path().join(format!(".{name}.1-0.tmp"));
    let no_file = format!("{}-q8_0-1.gguf", "0".repeat(32));
    std::fs::create_dir(folder.path().join(&no_file)).unwrap();
    std::fs::write(&leftover, "half").unwrap();
    assert_eq!(folder.list().unwrap().len(), 1);
    let lock = File::open(folder.path().join(&lock_name)).unwrap();
    lock.lock().unwrap();
    assert_eq!(folder.clear().unwrap(), 1);
    assert!(leftover.exists() && !small.exists(), "somebody is writing it");
    drop(lock);
    assert_eq!(folder.clear().unwrap(), 0);
    assert_eq!(names(folder.path()), [no_file, lock_name]);
}

#[test]
fn many_ask_and_one_makes_it() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = projector_file(dir.path(), TensorType::F16);
    let (progress, made) = counter();
    let paths: Vec<_> = std::thread::scope(|scope| {
        let ask =
            || VisionFolder::new(cache.path()).projector(&source, VisionPrecision::Q8_0, Some(&progress)).unwrap();
        let askers: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        askers.into_iter().map(|a| a.join().unwrap()).collect()
    });
    assert!(paths.iter().all(|p| *p == paths[0]));
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn waiting_can_be_cancelled() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = projector_file(dir.path(), TensorType::F16);
    let folder = VisionFolder::new(cache.path());
    let small = folder.projector(&source, VisionPrecision::Q8_0, None).unwrap();
    std::fs::remove_file(&small).unwrap();
    let lock_path = small.with_extension("gguf.lock");
    let lock = std::fs::File::open(&lock_path).unwrap();
    lock.lock().unwrap();
    let stop: Progress = Arc::new(|_| false);
    let waited = folder.projector(&source, VisionPrecision::Q8_0, Some(&stop));
    assert!(matches!(waited, Err(Error::Cancelled)) && !small.exists());
    lock.unlock().unwrap();
    assert_eq!(folder.projector(&source, VisionPrecision::Q8_0, None).unwrap(), small);
}
