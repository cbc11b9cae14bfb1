//! Whole files: what is written is the plan, and nothing else happens to anybody's files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use half::f16;

use super::{numbers, plan_of, projector, projector_file, write};
use crate::error::Error;
use crate::gguf::{GgufFile, TensorType, Value, content_hash};
use crate::quantize::{
    Candidate, Distance, Floor, GateReport, ProjectorPrecision, QuantizeParams, Rules, TowerPrecision, quantize,
};

#[test]
fn every_tensor_is_what_the_plan_says() {
    let dir = tempfile::tempdir().unwrap();
    for matrices in [TensorType::F32, TensorType::F16, TensorType::Bf16] {
        let source_path = projector_file(dir.path(), matrices);
        let out = dir.path().join(format!("out-{matrices}.gguf"));
        let summary = quantize(&source_path, &out, &QuantizeParams::default()).unwrap();
        let (source, result) = (GgufFile::open(&source_path).unwrap(), GgufFile::open(&out).unwrap());
        assert_eq!(result.tensors().len(), source.tensors().len());
        for (before, after) in summary.plan.tensors().iter().zip(result.tensors()) {
            assert_eq!((&before.name, &before.dims, before.target), (&after.name, &after.dims, after.ggml_type));
            let (a, b) = (source.read_tensor(&before.name).unwrap(), result.read_tensor(&before.name).unwrap());
            if !before.changes() {
                assert_eq!(a, b, "{}", before.name);
                continue;
            }
            let values = numbers(&a, before.source);
            let expected = match before.target {
                TensorType::Q8_0 => crate::llama::ggml_q8_0(&values),
                TensorType::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
                TensorType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
                other => panic!("{other}"),
            };
            assert_eq!(b, expected, "{}", before.name);
        }
        // 40 is no multiple of 32
        assert_eq!(result.tensor("v.blk.0.ffn_down.weight").unwrap().ggml_type, TensorType::F16);
        assert_eq!(result.tensor("v.blk.0.ffn_up.weight").unwrap().ggml_type, TensorType::Q8_0);

        let text = |key: &str| result.require::<&str>(key).unwrap().to_owned();
        assert_eq!(text("llava.quantize.source_xxh3"), format!("{:032x}", content_hash(&source_path).unwrap()));
        assert_eq!(text("llava.quantize.data_xxh3"), format!("{:032x}", result.data_hash().unwrap()));
        assert_eq!(text("llava.quantize.rules"), "tower q8_0, projector f16");
        assert_eq!(result.require::<&[Vec<u8>]>("llava.quantize.plan").unwrap().len(), {
            summary.plan.tensors().iter().filter(|t| t.changes()).count()
        });
        assert!(!result.require::<bool>("llava.quantize.checked").unwrap());
        // as many elements behind the tower as in it: whichever is more names the file
        assert_eq!(result.require::<u32>("general.file_type").unwrap(), summary.plan.file_type().unwrap());
        assert_eq!(result.require::<u32>("general.quantization_version").unwrap(), 2);
        for (key, value) in source.metadata().filter(|(key, _)| *key != "general.file_type") {
            assert_eq!(result.value(key), Some(value), "{key}");
        }
    }
}

#[test]
fn a_second_time_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = projector_file(dir.path(), TensorType::F32);
    let (once, twice) = (dir.path().join("once.gguf"), dir.path().join("twice.gguf"));
    quantize(source, &once, &QuantizeParams::default()).unwrap();
    assert!(!plan_of(&once, &Rules::default()).changes());
    let refused = quantize(&once, &twice, &QuantizeParams::default());
    assert!(matches!(refused, Err(Error::BadParameter { name: "input", .. })) && !twice.exists(), "{refused:?}");
}

/// A report about one row, as good as can be or as bad.
fn report(good: bool) -> GateReport {
    GateReport {
        source: "source.gguf".into(),
        text_model: None,
        pictures: Vec::new(),
        rows: Distance::between(&[1.0, 0.0], if good { &[1.0, 0.0] } else { &[0.0, 1.0] }, 2).unwrap(),
        layers: Vec::new(),
        floor: Floor::default(),
    }
}

#[test]
fn a_mark_stays_whatever_is_made_from_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let source = projector_file(dir.path(), TensorType::F32);
    let path = |name: &str| dir.path().join(name);
    let params = |tower, projector| QuantizeParams {
        rules: Rules::new(tower, projector),
        overwrite: true,
        ..QuantizeParams::default()
    };
    let halves = params(TowerPrecision::F16, ProjectorPrecision::F16);
    let blocks = params(TowerPrecision::Q8_0, ProjectorPrecision::F32);
    let marks = |name: &str| {
        let file = GgufFile::open(path(name)).unwrap();
        ["checked", "below_floor"].map(|k| file.require::<bool>(&format!("llava.quantize.{k}")).unwrap())
    };
    let candidate =
        |from: &str, to: &str, params: &QuantizeParams| Candidate::write(path(from), path(to), params).unwrap();
    Candidate::write(&source, path("bad.gguf"), &halves).unwrap().publish_checked(&report(false), true).unwrap();
    assert_eq!(marks("bad.gguf"), [true, true]);
    candidate("bad.gguf", "next.gguf", &blocks).publish().unwrap();
    assert_eq!(marks("next.gguf"), [false, true]);
    candidate("bad.gguf", "next.gguf", &blocks).publish_checked(&report(true), false).unwrap();
    assert_eq!(marks("next.gguf"), [true, true]);
    // its first ancestor is on record, two files later too
    let original = format!("{:032x}", content_hash(&source).unwrap());
    candidate("next.gguf", "last.gguf", &QuantizeParams::default()).publish().unwrap();
    for name in ["next.gguf", "last.gguf"] {
        let file = GgufFile::open(path(name)).unwrap();
        assert_eq!(file.require::<&str>("llava.quantize.original_xxh3").unwrap(), original, "{name}");
        assert_ne!(file.require::<&str>("llava.quantize.source_xxh3").unwrap(), original, "{name}");
    }
    // rows of a quantised file say nothing about what was lost before
    let refused = candidate("next.gguf", "again.gguf", &QuantizeParams::default()).publish_checked(&report(true), true);
    assert!(matches!(refused, Err(Error::BadParameter { name: "input", .. })), "{refused:?}");
    assert!(!path("again.gguf").exists());
}

#[test]
fn a_name_can_be_as_long_as_a_name_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let source = projector_file(dir.path(), TensorType::F16);
    let out = dir.path().join(format!("{}.gguf", "n".repeat(250)));
    quantize(&source, &out, &QuantizeParams::default()).unwrap();
    assert!(GgufFile::open(&out).is_ok());
    assert_eq!(super::names(dir.path()).len(), 2);
}

#[test]
fn threads_and_pieces_do_not_show() {
    let dir = tempfile::tempdir().unwrap();
    let (keys, mut tensors) = projector(TensorType::F16);
    // several pieces, the last one short
    tensors.push(("v.blk.0.extra.attn_q.weight".to_owned(), vec![64, 9001], TensorType::F32));
    tensors.push(("v.blk.7.attn_qkv.weight".to_owned(), vec![64, 9001], TensorType::F32));
    let source = write(&dir.path().join("in.gguf"), &keys, &tensors);
    let hash = |threads| {
        let out = dir.path().join(format!("out-{threads}.gguf"));
        let params = QuantizeParams { threads: Some(threads), ..QuantizeParams::default() };
        quantize(&source, &out, &params).unwrap();
        let file = GgufFile::open(&out).unwrap();
        let stored = file.read_tensor("v.blk.7.attn_qkv.weight").unwrap();
        let values = numbers(&super::bytes("v.blk.7.attn_qkv.weight", &[64, 9001], TensorType::F32), TensorType::F32);
        assert_eq!(stored, crate::llama::ggml_q8_0(&values));
        file.data_hash().unwrap()
    };
    assert_eq!(hash(1), hash(5));
    for threads in [0, 513] {
        let params = QuantizeParams { threads: Some(threads), ..QuantizeParams::default() };
        let refused = quantize(&source, dir.path().join("x.gguf"), &params);
        assert!(matches!(refused, Err(Error::BadParameter { name: "threads", .. })));
    }
}

#[test]
fn a_split_model_becomes_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut keys, tensors) = projector(TensorType::F16);
    let (first, second) = tensors.split_at(8);
    let split = |no: u16| {
        [("split.no", Value::from(no)), ("split.count", 2_u16.into()), ("split.tensors.count", 17_i32.into())]
    };
    let part = |no: usize| dir.path().join(format!("m-0000{no}-of-00002.gguf"));
    write(&part(2), &split(1), second);
    keys.extend(split(0));
    write(&part(1), &keys, first);
    let out = dir.path().join("out.gguf");
    let summary = quantize(part(1), &out, &QuantizeParams::default()).unwrap();
    let whole = GgufFile::open_split(&out).unwrap();
    assert_eq!((whole.paths().len(), whole.tensors().len()), (1, 17));
    assert!(whole.value("split.count").is_none());
    assert_ne!(summary.source_hash, content_hash(part(1)).unwrap());

    let single = projector_file(dir.path(), TensorType::F16);
    let other = dir.path().join("other.gguf");
    assert_eq!(quantize(single, other, &QuantizeParams::default()).unwrap().data_hash, summary.data_hash);
    for no in [1, 2] {
        let params = QuantizeParams { overwrite: true, ..QuantizeParams::default() };
        let refused = quantize(part(1), part(no), &params);
        assert!(matches!(refused, Err(Error::BadParameter { name: "output", .. })), "part {no}");
    }
}

#[test]
fn outputs_that_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = projector_file(dir.path(), TensorType::F16);
    let before = std::fs::read(&source).unwrap();
    let refused = |out: &std::path::Path, overwrite| {
        let params = QuantizeParams { overwrite, ..QuantizeParams::default() };
        match quantize(&source, out, &params) {
            Err(Error::BadParameter { name: "output", reason, .. }) => reason,
            other => panic!("{}: {other:?}", out.display()),
        }
    };
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    assert!(refused(&source, true).contains("source"));
    assert!(refused(&dir.path().join("folder/../mmproj-f16.gguf"), true).contains("source"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&source, dir.path().join("link")).unwrap();
        std::fs::hard_link(&source, dir.path().join("hard")).unwrap();
        assert!(refused(&dir.path().join("link"), true).contains("source"));
        assert!(refused(&dir.path().join("hard"), true).contains("source"));
        assert!(refused(std::path::Path::new("/dev/null"), true).contains("regular"));
    }
    assert!(refused(&dir.path().join("folder"), true).contains("regular"));
    let out = dir.path().join("out.gguf");
    std::fs::write(&out, "old").unwrap();
    assert!(refused(&out, false).contains("exists"));
    assert_eq!(std::fs::read(&out).unwrap(), b"old");
    let params = QuantizeParams { overwrite: true, ..QuantizeParams::default() };
    quantize(&source, &out, &params).unwrap();
    assert!(GgufFile::open(&out).is_ok());
    #[cfg(unix)]
    {
        let link = dir.path().join("link to out");
        std::os::unix::fs::symlink(&out, &link).unwrap();
        std::fs::write(&out, "old").unwrap();
        quantize(&source, &link, &params).unwrap();
        assert!(link.is_symlink() && GgufFile::open(&out).is_ok());
        std::fs::remove_file(&out).unwrap();
        for overwrite in [false, true] {
            assert!(refused(&link, overwrite).contains("not there"));
            assert!(link.is_symlink() && !out.exists());
        }
        let round = dir.path().join("round");
        std::os::unix::fs::symlink("round", &round).unwrap();
        assert!(matches!(quantize(&source, &round, &params), Err(Error::Io { .. })));
        assert!(round.is_symlink());
    }
    assert!(matches!(quantize(&source, dir.path().join("none/out.gguf"), &params), Err(Error::Io { .. })));
    assert_eq!(std::fs::read(&source).unwrap(), before);
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let source = projector_file(dir.path(), TensorType::F16);
    let out = dir.path().join("out.gguf");
    let candidate = Candidate::write(&source, &out, &QuantizeParams::default()).unwrap();
    assert!(candidate.path() != out && GgufFile::open(candidate.path()).is_ok());
    std::fs::write(&out, "somebody else's").unwrap();
    assert!(matches!(candidate.publish(), Err(Error::BadParameter { name: "output", .. })));
    assert_eq!(std::fs::read(&out).unwrap(), b"somebody else's");
    assert_eq!(super::names(dir.path()), ["mmproj-f16.gguf", "out.gguf"]);
    // nor is a link that leads nowhere, which `exists` does not see
    #[cfg(unix)]
    {
        let out = dir.path().join("other.gguf");
        let candidate = Candidate::write(&source, &out, &QuantizeParams::default()).unwrap();
        std::os::unix::fs::symlink("nowhere", &out).unwrap();
        assert!(matches!(candidate.publish(), Err(Error::BadParameter { name: "output", .. })));
        assert!(out.is_symlink());
        assert_eq!(super::names(dir.path()), ["mmproj-f16.gguf", "other.gguf", "out.gguf"]);
    }
}

#[test]
fn weights_that_a_type_cannot_hold() {
    let dir = tempfile::tempdir().unwrap();
    let source = projector_file(dir.path(), TensorType::F32);
    let file = GgufFile::open(&source).unwrap();
    let healthy = std::fs::read(&source).unwrap();
    let at = |name: &str| (file.data_offset() + file.tensor(name).unwrap().offset) as usize + 4 * 77;
    let out = dir.path().join("out.gguf");
    for (name, value, words) in [
        ("v.blk.0.attn_v.weight", f32::NAN, "NaN"),
        ("v.blk.0.ffn_down.weight", f32::NEG_INFINITY, "-inf"),
        ("mm.2.weight", 1e5, "f16"),
        ("v.blk.0.attn_v.weight", -1e9, "q8_0"),
    ] {
        let mut bytes = healthy.clone();
        bytes[at(name)..at(name) + 4].copy_from_slice(&value.to_le_bytes());
        std::fs::write(&source, bytes).unwrap();
        match quantize(&source, &out, &QuantizeParams::default()) {
            Err(Error::BadTensor { tensor, reason, .. }) => {
                assert!(tensor == name && reason.contains(words), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        assert!(!out.exists());
    }
    // as the message says
    let mut rules = Rules::default();
    rules.keep("attn_v").unwrap();
    quantize(&source, &out, &QuantizeParams { rules, ..QuantizeParams::default() }).unwrap();
}

#[test]
fn progress_ends_at_one_and_can_cancel() {
    let dir = tempfile::tempdir().unwrap();
    let source = projector_file(dir.path(), TensorType::F16);
    let out = dir.path().join("out.gguf");
    let last = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&last);
    let progress = move |fraction: f32| {
        seen.store(fraction.to_bits(), Ordering::SeqCst);
        true
    };
    let params = QuantizeParams { progress: Some(Arc::new(progress)), ..QuantizeParams::default() };
    quantize(&source, &out, &params).unwrap();
    assert_eq!(f32::from_bits(last.load(Ordering::SeqCst)), 1.0);
    let params = QuantizeParams { overwrite: true, progress: Some(Arc::new(|_| false)), ..QuantizeParams::default() };
    let before = std::fs::read(&out).unwrap();
    assert!(matches!(quantize(&source, &out, &params), Err(Error::Cancelled)));
    assert_eq!(std::fs::read(&out).unwrap(), before);
    assert_eq!(super::names(dir.path()).len(), 2);
}

#[test]
fn only_projectors_are_quantised() {
    let dir = tempfile::tempdir().unwrap();
    let text = write(&dir.path().join("text.gguf"), &[("general.architecture", "llama".into())], &[]);
    let out = dir.path().join("out.gguf");
    let refused = quantize(text, &out, &QuantizeParams::default());
    assert!(matches!(refused, Err(Error::BadMetadata { key, .. }) if key == "general.architecture"));
    let missing = quantize(dir.path().join("none.gguf"), &out, &QuantizeParams::default());
    assert!(matches!(missing, Err(Error::Io { .. })));
    assert!(!out.exists());
}
