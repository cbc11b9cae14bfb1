//! The resampler against plain arithmetic in f64, and what its file has to say.

use std::path::{Path, PathBuf};

use super::super::tests::{noise, rows_of};
use super::*;
use crate::embedding::Grid;
use crate::gguf::{GgufWriter, TensorType, content_hash};

const WIDTH: usize = 24;
const HEADS: usize = 4;
const QUERIES: usize = 9;
const CELLS: usize = 36;
const EPS: f32 = 1e-5;

/// Names and shapes in ggml's order.
fn tensors() -> Vec<(String, Vec<u64>)> {
    let w = WIDTH as u64;
    let mut all = vec![("query".to_owned(), vec![w, QUERIES as u64])];
    for name in ["attn_q", "attn_k", "attn_v", "attn_out"] {
        all.push((format!("{name}.weight"), vec![w, w]));
        all.push((format!("{name}.bias"), vec![w]));
    }
    all.push(("norm.weight".into(), vec![w]));
    all.push(("norm.bias".into(), vec![w]));
    all
}

fn values(name: &str, n: usize) -> Vec<f32> {
    let seed = name.bytes().fold(5_u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    (0..n).map(|i| noise(seed, i) * if name.starts_with("attn_q.w") { 1.0 } else { 0.5 }).collect()
}

/// A file of weights; `change` may spoil it.
fn write(path: &Path, keys: &[(&str, u32)], fingerprint: Option<&str>, ggml_type: TensorType, nan: bool) {
    let mut w = GgufWriter::new();
    w.set("general.architecture", "llava-compressor").unwrap();
    let usual = [("n_queries", QUERIES), ("n_heads", HEADS), ("n_embd", WIDTH), ("n_input_tokens", CELLS)];
    for (key, n) in usual {
        let n = keys.iter().find(|k| k.0 == key).map_or(n as u32, |k| k.1);
        w.set(&format!("llava-compressor.{key}"), n).unwrap();
    }
    w.set("llava-compressor.layer_norm_eps", EPS).unwrap();
    if let Some(fingerprint) = fingerprint {
        w.set(FINGERPRINT_KEY, fingerprint).unwrap();
    }
    let tensors = tensors();
    for (name, dims) in &tensors {
        w.declare(name, dims, ggml_type).unwrap();
    }
    let mut sink = w.begin(path).unwrap();
    for (name, dims) in &tensors {
        let mut v = values(name, dims.iter().product::<u64>() as usize);
        if nan {
            v[0] = f32::NAN;
        }
        let bytes: Vec<u8> = match ggml_type {
            TensorType::F32 => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
            _ => vec![0; v.len() * 2],
        };
        sink.tensor(|out| out.put(&bytes)).unwrap();
    }
    sink.finish().unwrap();
}

fn folder() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (weights, projector) = (dir.path().join("weights.gguf"), dir.path().join("mmproj.gguf"));
    std::fs::write(&projector, "a projector").unwrap();
    (dir, weights, projector)
}

#[test]
fn it_computes_what_its_formula_says() {
    let (dir, weights, projector) = folder();
    write(&weights, &[], None, TensorType::F32, false);
    let bound = dir.path().join("bound.gguf");
    bind_resampler(&weights, &projector, &bound).unwrap();
    let resampler = Resampler::open(&bound, content_hash(&projector).unwrap()).unwrap();
    assert_eq!((resampler.queries(), resampler.cells()), (QUERIES, CELLS));

    let (embedding, layout) = rows_of(6, 6, WIDTH, |i| 3.0 * noise(8, i));
    let plan = resampler.plan(&layout, 12).unwrap();
    assert_eq!((plan.cells(), plan.grid()), (QUERIES, Some((3, 3))));
    let tokens = resampler.apply(&Rows::new(&embedding, layout, WIDTH).unwrap(), &plan).unwrap();
    // the middle of each block of 2 x 2
    assert_eq!(tokens.anchors(), [7, 9, 11, 19, 21, 23, 31, 33, 35]);
    assert_eq!(tokens.members(4).len(), CELLS);

    let t = |name: &str, n: usize| -> Vec<f64> { values(name, n).into_iter().map(f64::from).collect() };
    let linear = |name: &str, x: &[f64]| -> Vec<f64> {
        let (w, b) = (t(&format!("{name}.weight"), WIDTH * WIDTH), t(&format!("{name}.bias"), WIDTH));
        (0..WIDTH).map(|o| b[o] + (0..WIDTH).map(|i| w[o * WIDTH + i] * x[i]).sum::<f64>()).collect()
    };
    let visual: Vec<Vec<f64>> = (0..CELLS).map(|c| embedding.row(c).iter().map(|&v| f64::from(v)).collect()).collect();
    let keys: Vec<_> = visual.iter().map(|x| linear("attn_k", x)).collect();
    let vals: Vec<_> = visual.iter().map(|x| linear("attn_v", x)).collect();
    let queries = t("query", QUERIES * WIDTH);
    let (gain, offset) = (t("norm.weight", WIDTH), t("norm.bias", WIDTH));
    let size = WIDTH / HEADS;
    for q in 0..QUERIES {
        let query = &queries[q * WIDTH..(q + 1) * WIDTH];
        let asked = linear("attn_q", query);
        let mut read = vec![0.0; WIDTH];
        for head in 0..HEADS {
            let at = head * size;
            let logits: Vec<f64> = keys
                .iter()
                .map(|k| (0..size).map(|i| asked[at + i] * k[at + i]).sum::<f64>() / (size as f64).sqrt())
                .collect();
            let most = logits.iter().copied().fold(f64::MIN, f64::max);
            let total: f64 = logits.iter().map(|l| (l - most).exp()).sum();
            for (logit, value) in logits.iter().zip(&vals) {
                for i in at..at + size {
                    read[i] += (logit - most).exp() / total * value[i];
                }
            }
        }
        let row: Vec<f64> = linear("attn_out", &read).iter().zip(query).map(|(a, b)| a + b).collect();
        let mean = row.iter().sum::<f64>() / WIDTH as f64;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / WIDTH as f64;
        for i in 0..WIDTH {
            let wanted = (row[i] - mean) / (variance + f64::from(EPS)).sqrt() * gain[i] + offset[i];
            let found = f64::from(tokens.embedding().row(q)[i]);
            assert!((wanted - found).abs() < 1e-4, "query {q}, {i}: {found} instead of {wanted}");
        }
    }
}

#[test]
fn it_belongs_to_one_projector() {
    let (dir, weights, projector) = folder();
    write(&weights, &[], None, TensorType::F32, false);
    let fingerprint = content_hash(&projector).unwrap();
    let error = Resampler::open(&weights, fingerprint).unwrap_err();
    assert!(matches!(&error, Error::CompressorMismatch { found, .. } if found == "none"), "{error}");
    let bound = dir.path().join("bound.gguf");
    bind_resampler(&weights, &projector, &bound).unwrap();
    let resampler = Resampler::open(&bound, fingerprint).unwrap();
    assert!(resampler.id().starts_with("resampler:weights=") && resampler.id().len() == 50);
    let error = Resampler::open(&bound, fingerprint ^ 1).unwrap_err();
    assert!(
        error.code() == "compressor-mismatch" && error.to_string().contains(&format!("{fingerprint:032x}")),
        "{error}"
    );
    // bound anew, for another one
    std::fs::write(&projector, "another projector").unwrap();
    let again = dir.path().join("again.gguf");
    bind_resampler(&bound, &projector, &again).unwrap();
    let other = Resampler::open(&again, content_hash(&projector).unwrap()).unwrap();
    assert_ne!(other.id(), resampler.id());
}

#[test]
fn a_file_that_contradicts_itself_is_refused() {
    let (_dir, weights, _) = folder();
    let bound = format!("{:032x}", 7);
    let refused = |keys: &[(&str, u32)], ggml_type, nan| {
        write(&weights, keys, Some(&bound), ggml_type, nan);
        Resampler::open(&weights, 7).unwrap_err()
    };
    for keys in [("n_heads", 5), ("n_heads", 0), ("n_queries", CELLS as u32), ("n_embd", 1 << 17)] {
        assert_eq!(refused(&[keys], TensorType::F32, false).code(), "gguf-metadata", "{keys:?}");
    }
    for keys in [("n_queries", 8), ("n_embd", 28)] {
        assert_eq!(refused(&[keys], TensorType::F32, false).code(), "gguf-tensor", "{keys:?}");
    }
    assert_eq!(refused(&[], TensorType::F16, false).code(), "gguf-tensor");
    assert_eq!(refused(&[], TensorType::F32, true).code(), "gguf-tensor");
    std::fs::write(&weights, "no GGUF").unwrap();
    assert_eq!(Resampler::open(&weights, 7).unwrap_err().code(), "gguf-not");
}

#[test]
fn it_takes_the_grid_it_was_trained_on() {
    let (_dir, weights, _) = folder();
    write(&weights, &[], Some(&format!("{:032x}", 7)), TensorType::F32, false);
    let resampler = Resampler::open(&weights, 7).unwrap();
    let (embedding, layout) = rows_of(6, 6, WIDTH, |i| noise(8, i));
    assert!(resampler.plan(&layout, CELLS).unwrap().is_full());
    let (_, other) = rows_of(5, 6, WIDTH, |i| noise(8, i));
    let breaks = Grid { columns: 6, rows: 6, row_breaks: 1, ..Grid::default() };
    let breaks = Layout::of(breaks, crate::TokenCount(42)).unwrap();
    for (layout, budget) in [(&layout, 8), (&other, 12), (&breaks, 12)] {
        assert_eq!(resampler.plan(layout, budget).unwrap_err().code(), "bad-parameter");
    }
    // rows of another width than the weights'
    let (narrow, _) = rows_of(6, 6, 8, |i| noise(8, i));
    let rows = Rows::new(&narrow, layout, 8).unwrap();
    assert_eq!(resampler.apply(&rows, &resampler.plan(&layout, 9).unwrap()).unwrap_err().code(), "bad-parameter");
    let full = resampler.apply(&Rows::new(&embedding, layout, WIDTH).unwrap(), &resampler.plan(&layout, 99).unwrap());
    assert_eq!(full.unwrap().embedding(), &embedding);
}
