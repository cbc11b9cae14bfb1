//! Quantised files for loading: made once, found again, mended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{names, projector_file};
use crate::error::Error;
use crate::gguf::{GgufFile, TensorType};
use crate::llama::Progress;
use crate::quantize::{QuantizeParams, VisionFolder, VisionPrecision, quantize};

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
