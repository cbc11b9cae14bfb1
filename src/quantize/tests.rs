//! Tests of this room that need whole files.

mod folder;
mod mutations;
mod plans;
mod writing;

use std::path::{Path, PathBuf};

use half::{bf16, f16};

use super::pictures::Random;
use super::{Plan, Rules, q8_0};
use crate::gguf::{Array, GgufFile, GgufWriter, TensorType, Value};

type Tensor = (String, Vec<u64>, TensorType);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }

    /// Between -1 and 1.
    fn weight(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }
}

/// A tensor's bytes: random weights.
fn bytes(name: &str, dims: &[u64], kind: TensorType) -> Vec<u8> {
    let seed = name.bytes().fold(7_u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
    let mut random = Random(seed);
    let values: Vec<f32> = (0..dims.iter().product()).map(|_| random.weight()).collect();
    match kind {
        TensorType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        TensorType::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        TensorType::Bf16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
        TensorType::Q8_0 => {
            let mut out = Vec::new();
            q8_0::encode(&values, &mut out);
            out
        }
        other => vec![0; other.byte_len(dims).unwrap() as usize],
    }
}

/// The numbers behind stored bytes.
fn numbers(stored: &[u8], kind: TensorType) -> Vec<f32> {
    match kind {
        TensorType::F32 => stored.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        TensorType::F16 => stored.as_chunks().0.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
        TensorType::Bf16 => stored.as_chunks().0.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect(),
        TensorType::Q8_0 => stored
            .chunks(34)
            .flat_map(|block| {
                let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                block[2..].iter().map(move |&q| f32::from(q as i8) * scale)
            })
            .collect(),
        other => panic!("{other}"),
    }
}

fn write(path: &Path, keys: &[(&str, Value)], tensors: &[Tensor]) -> PathBuf {
    let mut writer = GgufWriter::new();
    for (key, value) in keys {
        writer.set(key, value.clone()).unwrap();
    }
    for (name, dims, kind) in tensors {
        writer.declare(name, dims, *kind).unwrap();
    }
    let mut sink = writer.begin(path).unwrap();
    for (name, dims, kind) in tensors {
        sink.tensor(|out| out.put(&bytes(name, dims, *kind))).unwrap();
    }
    sink.finish().unwrap();
    path.to_owned()
}

/// A whole tiny LLaVA projector: one layer of width 32, 2x2 patches, class token, matrices of the given type.
fn projector(matrices: TensorType) -> (Vec<(&'static str, Value)>, Vec<Tensor>) {
    let keys = vec![
        ("general.architecture", Value::from("clip")),
        ("general.file_type", 1u32.into()),
        ("clip.has_vision_encoder", true.into()),
        ("clip.projector_type", "mlp".into()),
        ("clip.vision.image_size", 28u32.into()),
        ("clip.vision.patch_size", 14u32.into()),
        ("clip.vision.embedding_length", 32u32.into()),
        ("clip.vision.feed_forward_length", 40u32.into()),
        ("clip.vision.block_count", 1u32.into()),
        ("clip.vision.projection_dim", 64u32.into()),
        ("clip.vision.attention.head_count", 2u32.into()),
        ("clip.vision.attention.layer_norm_epsilon", 1e-5f32.into()),
        ("clip.vision.image_mean", Array::from(vec![0.5f32; 3]).into()),
        ("clip.vision.image_std", Array::from(vec![0.25f32; 3]).into()),
        ("somebody.elses", Array::from(&["key", "kept"][..]).into()),
    ];
    let f32 = TensorType::F32;
    let tensors = [
        ("v.patch_embd.weight", &[14, 14, 3, 32][..], matrices),
        ("v.class_embd", &[32], f32),
        ("v.position_embd.weight", &[32, 5], f32),
        ("v.pre_ln.weight", &[32], f32),
        ("v.pre_ln.bias", &[32], f32),
        ("v.blk.0.ln1.weight", &[32], f32),
        ("v.blk.0.attn_q.weight", &[32, 32], matrices),
        ("v.blk.0.attn_q.bias", &[32], f32),
        ("v.blk.0.attn_k.weight", &[32, 32], matrices),
        ("v.blk.0.attn_v.weight", &[32, 32], matrices),
        ("v.blk.0.attn_out.weight", &[32, 32], matrices),
        ("v.blk.0.ffn_up.weight", &[32, 40], matrices),
        ("v.blk.0.ffn_down.weight", &[40, 32], matrices),
        ("mm.0.weight", &[32, 64], matrices),
        ("mm.0.bias", &[64], f32),
        ("mm.2.weight", &[64, 64], matrices),
        ("mm.2.bias", &[64], f32),
    ];
    (keys, tensors.into_iter().map(|(n, d, t)| (n.to_owned(), d.to_vec(), t)).collect())
}

/// The projector as a file.
fn projector_file(dir: &Path, matrices: TensorType) -> PathBuf {
    let (keys, tensors) = projector(matrices);
    write(&dir.join(format!("mmproj-{matrices}.gguf")), &keys, &tensors)
}

fn plan_of(path: &Path, rules: &Rules) -> Plan {
    Plan::new(&GgufFile::open(path).unwrap(), rules).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
