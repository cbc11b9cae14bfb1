//! Quantised projectors in use: every family loads and sees the same, the gate tells good from bad, the graph can be looked into.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use llava::Error;
use llava::TokenCount;
use llava::gguf::{Array, GgufFile, GgufWriter, TensorType, Value};
use llava::image::{DecodeOptions, load};
use llava::llama::{CancelToken, Model, ModelParams};
use llava::mtmd::{GraphTap, Projector, ProjectorParams};
use llava::quantize::{
    Candidate, Gate, GateImage, GatePicture, QuantizeParams, Role, VisionFolder, VisionPrecision, builtin_pictures,
    quantize,
};

use crate::models::{Family, Options, Pair, pair_with};
use crate::world::{files, picture, projector_params};

/// Two small pictures, a wide and a high one.
fn pictures() -> Vec<GatePicture> {
    let one = |name: &str, w, h, seed| GatePicture { name: name.to_owned(), image: picture(w, h, seed).into() };
    vec![one("wide", 140, 84, 1), one("high", 70, 130, 2)]
}

fn gate(text_model: Option<&Path>) -> Gate {
    let mut gate = Gate::new(pictures());
    gate.text_model = text_model.map(Path::to_owned);
    gate.threads = Some(1);
    gate
}

fn quantized(pair: &Pair, dir: &Path) -> PathBuf {
    let out = dir.join("q8_0.gguf");
    quantize(&pair.projector, &out, &QuantizeParams { overwrite: true, ..QuantizeParams::default() }).unwrap();
    out
}

#[test]
fn every_family_sees_the_same_after_it() {
    let dir = tempfile::tempdir().unwrap();
    for family in Family::ALL {
        for matrices in [TensorType::F32, TensorType::F16] {
            let mut options = Options::new(family, 11);
            options.matrices = matrices;
            let pair = pair_with(dir.path(), &options).unwrap();
            let out = quantized(&pair, dir.path());
            let file = GgufFile::open(&out).unwrap();
            for t in file.tensors() {
                let in_tower = t.name.starts_with("v.blk.") && t.dims.len() == 2;
                assert_eq!(in_tower, t.ggml_type == TensorType::Q8_0, "{family:?} {}", t.name);
            }
            let report = gate(Some(&pair.text)).run(&pair.projector, &out).unwrap();
            assert!(report.passed(), "{family:?} from {matrices}: {}", report.why_not());
            assert!(
                report.rows.mean_cosine < 1.0 && report.rows.relative_l2 > 0.0,
                "{family:?}: nothing was quantised"
            );
            // the graph runs one layer less than LLaVA's file stores
            let layers: Vec<_> = report.layers.iter().map(|l| l.name.as_str()).collect();
            assert!(layers.starts_with(&["layer_out-0", "layer_out-1"]), "{family:?}: {layers:?}");
            assert!(report.layers.iter().all(|l| l.rows.mean_cosine > 0.999 && l.rows.relative_l2 > 0.0));
            let kl = report.kl().unwrap();
            assert!(kl.is_finite() && kl < 0.01 && report.top1().is_some(), "{family:?}: KL {kl}");

            // without its text model the same rows are compared
            let alone = gate(None).run(&pair.projector, &out).unwrap();
            assert_eq!(alone.rows, report.rows, "{family:?}");
            assert_eq!(alone.kl(), None);
            assert!(alone.markdown().contains("layer_out-1") && report.markdown().contains("KL of the first token"));
        }
    }
}

/// SigLIP so400m's shapes in one layer: width 1152, hidden rows of 4304, a 14-wide patch, q, k and v in one matrix.
fn so400m(path: &Path) {
    const WIDTH: u64 = 1152;
    let mut w = GgufWriter::new();
    let numbers = [
        ("image_size", 56_u32),
        ("patch_size", 14),
        ("embedding_length", 1152),
        ("feed_forward_length", 4304),
        ("block_count", 1),
        ("projection_dim", 64),
        ("attention.head_count", 16),
        ("projector.scale_factor", 2),
    ];
    w.set("general.architecture", "clip").unwrap().set("clip.projector_type", "gemma3").unwrap();
    w.set("clip.has_vision_encoder", true).unwrap().set("clip.use_gelu", true).unwrap();
    for (name, n) in numbers {
        w.set(&format!("clip.vision.{name}"), n).unwrap();
    }
    w.set("clip.vision.attention.layer_norm_epsilon", 1e-6_f32).unwrap();
    for key in ["clip.vision.image_mean", "clip.vision.image_std"] {
        w.set(key, Value::from(Array::from(vec![0.5_f32; 3]))).unwrap();
    }
    let (f16, f32) = (TensorType::F16, TensorType::F32);
    let tensors = [
        ("v.patch_embd.weight", &[14, 14, 3, WIDTH][..], f32),
        ("v.patch_embd.bias", &[WIDTH], f32),
        ("v.position_embd.weight", &[WIDTH, 16], f32),
        ("v.blk.0.ln1.weight", &[WIDTH], f32),
        ("v.blk.0.ln1.bias", &[WIDTH], f32),
        ("v.blk.0.attn_qkv.weight", &[WIDTH, 3 * WIDTH], f16),
        ("v.blk.0.attn_qkv.bias", &[3 * WIDTH], f32),
        ("v.blk.0.attn_out.weight", &[WIDTH, WIDTH], f16),
        ("v.blk.0.ln2.weight", &[WIDTH], f32),
        ("v.blk.0.ln2.bias", &[WIDTH], f32),
        ("v.blk.0.ffn_up.weight", &[WIDTH, 4304], f16),
        ("v.blk.0.ffn_down.weight", &[4304, WIDTH], f16),
        ("v.post_ln.weight", &[WIDTH], f32),
        ("v.post_ln.bias", &[WIDTH], f32),
        ("mm.soft_emb_norm.weight", &[WIDTH], f32),
        ("mm.input_projection.weight", &[64, WIDTH], f16),
    ];
    for (name, dims, kind) in tensors {
        w.declare(name, dims, kind).unwrap();
    }
    let mut sink = w.begin(path).unwrap();
    let mut state = 1_u64;
    for (name, dims, kind) in tensors {
        let norm = dims.len() == 1 && name.ends_with("weight");
        let size =
            if norm { 0.1 } else { 1.7 / (dims.iter().take(dims.len().max(2) - 1).product::<u64>() as f32).sqrt() };
        let mut bytes = Vec::new();
        for _ in 0..dims.iter().product() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let v = ((state >> 40) as f32 / (1_u32 << 23) as f32 - 1.0) * size + f32::from(u8::from(norm));
            if kind == f16 {
                bytes.extend(half::f16::from_f32(v).to_le_bytes());
            } else {
                bytes.extend(v.to_le_bytes());
            }
        }
        sink.tensor(|out| out.put(&bytes)).unwrap();
    }
    sink.finish().unwrap();
}

#[test]
fn siglip_so400m_shapes_load_and_encode() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("source.gguf"), dir.path().join("out.gguf"));
    so400m(&source);
    let summary = quantize(&source, &out, &QuantizeParams::default()).unwrap();
    let stored = |name: &str| {
        let t = summary.plan.tensors().iter().find(|t| t.name == name).unwrap();
        (t.role, t.target)
    };
    assert_eq!(stored("v.blk.0.ffn_down.weight"), (Role::TowerMatrix, TensorType::F16), "rows of 4304");
    assert_eq!(stored("v.blk.0.ffn_up.weight"), (Role::TowerMatrix, TensorType::Q8_0));
    assert_eq!(stored("v.blk.0.attn_qkv.weight"), (Role::TowerMatrix, TensorType::Q8_0));
    assert_eq!(stored("v.patch_embd.weight"), (Role::PatchConvolution, TensorType::F32));
    let report = gate(None).run(&source, &out).unwrap();
    assert!(report.passed() && report.rows.relative_l2 > 0.0, "{}", report.why_not());
}

#[test]
fn the_gate_refuses_a_file_that_sees_something_else() {
    let dir = tempfile::tempdir().unwrap();
    let source = files(Family::Llava15).projector;
    let other = pair_with(dir.path(), &Options::new(Family::Llava15, 99)).unwrap().projector;
    let report = gate(None).run(&source, &other).unwrap();
    assert!(!report.passed() && report.markdown().contains("Below the floor"));

    let out = dir.path().join("out.gguf");
    let candidate = || Candidate::write(&source, &out, &QuantizeParams::default()).unwrap();
    let refused = candidate().publish_checked(&report, false);
    assert!(matches!(refused, Err(Error::BelowFloor { .. })), "{refused:?}");
    assert!(!out.exists());
    let marks = || {
        let file = GgufFile::open(&out).unwrap();
        ["checked", "below_floor"].map(|k| file.require::<bool>(&format!("llava.quantize.{k}")).unwrap())
    };
    candidate().publish_checked(&report, true).unwrap();
    assert_eq!(marks(), [true, true]);
    std::fs::remove_file(&out).unwrap();

    let candidate = candidate();
    let good = gate(None).run(&source, candidate.path()).unwrap();
    candidate.publish_checked(&good, false).unwrap();
    assert_eq!(marks(), [true, false]);
    // the floor is the caller's
    let mut strict = gate(None);
    strict.floor.mean_cosine = 1.0;
    assert!(!strict.run(&source, &out).unwrap().passed());
    strict.pictures.clear();
    assert!(matches!(strict.run(&source, &out), Err(Error::BadParameter { name: "pictures", .. })));
    let stop = gate(None);
    stop.cancel.cancel();
    assert!(matches!(stop.run(&source, &out), Err(Error::Cancelled)));
}

#[test]
fn pictures_can_stay_in_their_files() {
    let source = files(Family::Llava15).projector;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo/sign.png");
    let decoded = load(&path, &DecodeOptions::default()).unwrap().image;
    let rows = [GateImage::from(decoded), path.into()].map(|image| {
        let mut gate = gate(None);
        gate.pictures = vec![GatePicture { name: "sign".to_owned(), image }];
        gate.run(&source, &source).unwrap().rows
    });
    assert!(rows[0] == rows[1] && rows[0].relative_l2 == 0.0);
    let mut missing = gate(None);
    missing.pictures.push(GatePicture { name: "none".to_owned(), image: PathBuf::from("none.png").into() });
    assert!(matches!(missing.run(&source, &source), Err(Error::Io { .. })));
}

/// Notes names, and panics when told to.
#[derive(Default)]
struct Tap {
    seen: Mutex<Vec<(String, [usize; 4], usize)>>,
    panics: AtomicBool,
}

impl GraphTap for Tap {
    fn wants(&self, node: &str) -> bool {
        node.starts_with("layer_out") || node == "pos_embed"
    }

    fn see(&self, node: &str, shape: [usize; 4], values: &[f32]) {
        assert!(values.iter().all(|v| v.is_finite()));
        self.seen.lock().unwrap().push((node.to_owned(), shape, values.len()));
        if self.panics.load(Ordering::SeqCst) {
            panic!("the tap's own");
        }
    }
}

#[test]
fn a_tap_sees_layers_and_changes_nothing() {
    let pair = files(Family::Gemma3);
    let model = Model::load(&pair.text, &ModelParams::default()).unwrap();
    let plain = Projector::load(&pair.projector, &model, &projector_params()).unwrap();
    let tap = Arc::new(Tap::default());
    let params = ProjectorParams { tap: Some(Arc::clone(&tap) as _), ..projector_params() };
    let tapped = Projector::load(&pair.projector, &model, &params).unwrap();
    // a warm-up, where there is one, is none of the test's
    tap.seen.lock().unwrap().clear();
    let rows = |projector: &Arc<Projector>| {
        let prepared = projector.prepare(&picture(90, 70, 3), TokenCount::ZERO, 0).unwrap();
        let (index, _) = prepared.images().next().unwrap();
        let encoded = projector.encode(&[(&prepared, index)], &CancelToken::new()).unwrap();
        encoded[0].0.as_slice().to_vec()
    };
    let expected = rows(&plain);
    assert!(rows(&tapped) == expected);
    let seen = std::mem::take(&mut *tap.seen.lock().unwrap());
    for layer in ["layer_out-0", "layer_out-1", "layer_out-2"] {
        let (_, shape, n) = seen.iter().find(|(name, ..)| name == layer).unwrap_or_else(|| panic!("{layer}: {seen:?}"));
        assert_eq!((shape[0], shape[1], *n), (64, 16, 1024), "4 x 4 patches of width 64");
    }

    tap.panics.store(true, Ordering::SeqCst);
    let panic = catch_unwind(AssertUnwindSafe(|| rows(&tapped))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the tap's own"));
    assert_eq!(tap.seen.lock().unwrap().len(), 1, "the computation ends there");
    tap.panics.store(false, Ordering::SeqCst);
    assert!(rows(&tapped) == expected, "the projector is as good as before");
}

#[test]
fn a_quantised_tower_has_keys_of_its_own() {
    let cache = tempfile::tempdir().unwrap();
    let pair = files(Family::Llava15);
    let small = VisionFolder::new(cache.path()).projector(&pair.projector, VisionPrecision::Q8_0, None).unwrap();
    let model = Model::load(&pair.text, &ModelParams::default()).unwrap();
    let keys = [&pair.projector, &small].map(|path| {
        let projector = Projector::load(path, &model, &projector_params()).unwrap();
        let prepared = projector.prepare(&picture(84, 84, 1), TokenCount::ZERO, 0).unwrap();
        prepared.wanted(0, b"").unwrap().unwrap().key
    });
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn builtin_pictures_suit_every_family() {
    let dir = tempfile::tempdir().unwrap();
    for family in [Family::Qwen2Vl, Family::Idefics3] {
        let pair = files(family);
        let out = quantized(&pair, dir.path());
        let mut gate = gate(None);
        gate.pictures = builtin_pictures().unwrap().split_off(5);
        gate.layers = false;
        let report = gate.run(&pair.projector, &out).unwrap();
        assert!(report.passed() && report.layers.is_empty(), "{family:?}: {}", report.why_not());
    }
}
