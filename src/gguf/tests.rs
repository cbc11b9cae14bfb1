//! Tests of this room, by what they attack.

mod checks;
mod header;
mod mutations;
mod round_trip;
mod splits;

use std::path::{Path, PathBuf};

use super::{Array, GgufFile, GgufWriter, TensorType, Value};
use crate::error::Result;

type Keys = Vec<(&'static str, Value)>;
type Tensors = Vec<(String, Vec<u64>, TensorType)>;

/// A little-endian file image, written field by field, right or wrong.
#[derive(Debug, Clone, Default)]
struct Image(Vec<u8>);

impl Image {
    fn header(version: u32, tensors: u64, keys: u64) -> Image {
        let mut image = Image(b"GGUF".to_vec());
        image.0.extend(version.to_le_bytes());
        image.u64(tensors).u64(keys)
    }

    fn u32(mut self, v: u32) -> Image {
        self.0.extend(v.to_le_bytes());
        self
    }

    fn u64(mut self, v: u64) -> Image {
        self.0.extend(v.to_le_bytes());
        self
    }

    fn bytes(mut self, v: &[u8]) -> Image {
        self.0.extend(v);
        self
    }

    fn string(self, v: &[u8]) -> Image {
        self.u64(v.len() as u64).bytes(v)
    }

    fn key(self, name: &str, kind: u32) -> Image {
        self.string(name.as_bytes()).u32(kind)
    }

    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Image {
        let image = self.string(name.as_bytes()).u32(dims.len() as u32);
        dims.iter().fold(image, |i, &d| i.u64(d)).u32(kind).u64(offset)
    }

    fn data(mut self, len: usize) -> Image {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 7);
        self
    }

    fn parse(&self) -> Result<GgufFile> {
        GgufFile::read(self.0.as_slice(), self.0.len() as u64, "image.gguf")
    }
}

/// Writes a file of zeros with these keys and tensors, and opens it.
fn made(dir: &Path, keys: &[(&str, Value)], tensors: &[(&str, &[u64], TensorType)]) -> GgufFile {
    let path = write(dir, keys, tensors);
    GgufFile::open(path).unwrap()
}

fn write(dir: &Path, keys: &[(&str, Value)], tensors: &[(&str, &[u64], TensorType)]) -> PathBuf {
    let mut writer = GgufWriter::new();
    for (key, value) in keys {
        writer.set(key, value.clone()).unwrap();
    }
    for (name, dims, kind) in tensors {
        writer.declare(name, dims, *kind).unwrap();
    }
    let path = dir.join("made.gguf");
    let mut sink = writer.begin(&path).unwrap();
    while let Some(due) = sink.due() {
        let zeros = vec![0; due.byte_len as usize];
        sink.tensor(|out| out.put(&zeros)).unwrap();
    }
    sink.finish().unwrap();
    path
}

/// Keys and tensors of a whole tiny LLaVA projector: 2 layers of width 8, 2x2 patches, class token.
fn projector() -> (Keys, Tensors) {
    let keys = vec![
        ("general.architecture", Value::from("clip")),
        ("clip.has_vision_encoder", true.into()),
        ("clip.projector_type", "mlp".into()),
        ("clip.vision.image_size", 28u32.into()),
        ("clip.vision.patch_size", 14u32.into()),
        ("clip.vision.embedding_length", 8u32.into()),
        ("clip.vision.feed_forward_length", 16u32.into()),
        ("clip.vision.block_count", 2u32.into()),
        ("clip.vision.projection_dim", 12u32.into()),
        ("clip.vision.attention.head_count", 2u32.into()),
        ("clip.vision.attention.layer_norm_epsilon", 1e-5f32.into()),
        ("clip.vision.image_mean", Array::from(vec![0.5f32; 3]).into()),
        ("clip.vision.image_std", Array::from(vec![0.25f32; 3]).into()),
    ];
    let mut tensors = vec![
        ("v.patch_embd.weight".to_owned(), vec![14, 14, 3, 8], TensorType::F16),
        ("v.class_embd".to_owned(), vec![8], TensorType::F32),
        ("v.position_embd.weight".to_owned(), vec![8, 5], TensorType::F32),
        ("v.pre_ln.weight".to_owned(), vec![8], TensorType::F32),
        ("v.pre_ln.bias".to_owned(), vec![8], TensorType::F32),
    ];
    for layer in 0..2 {
        for (part, dims) in [
            ("ln1.weight", vec![8]),
            ("ln1.bias", vec![8]),
            ("attn_q.weight", vec![8, 8]),
            ("attn_q.bias", vec![8]),
            ("attn_k.weight", vec![8, 8]),
            ("attn_v.weight", vec![8, 8]),
            ("attn_out.weight", vec![8, 8]),
            ("ffn_up.weight", vec![8, 16]),
            ("ffn_down.weight", vec![16, 8]),
        ] {
            let kind = if dims.len() == 1 { TensorType::F32 } else { TensorType::F16 };
            tensors.push((format!("v.blk.{layer}.{part}"), dims, kind));
        }
    }
    for (part, dims, kind) in [
        ("mm.0.weight", vec![8, 12], TensorType::F16),
        ("mm.0.bias", vec![12], TensorType::F32),
        ("mm.2.weight", vec![12, 12], TensorType::F16),
        ("mm.2.bias", vec![12], TensorType::F32),
    ] {
        tensors.push((part.to_owned(), dims, kind));
    }
    (keys, tensors)
}

/// Keys and tensors that are enough for the check of a `llama` text model.
fn text_model() -> (Keys, Tensors) {
    let mut tokens: Vec<Vec<u8>> = [b"<unk>".to_vec(), b"<s>".to_vec(), b"</s>".to_vec()].to_vec();
    tokens.extend((0..=255).map(|b| format!("<0x{b:02X}>").into_bytes()));
    let n = tokens.len();
    let keys = vec![
        ("general.architecture", Value::from("llama")),
        ("llama.context_length", 128u32.into()),
        ("llama.embedding_length", 8u32.into()),
        ("llama.block_count", 2u32.into()),
        ("llama.feed_forward_length", 16u32.into()),
        ("llama.attention.head_count", 2u32.into()),
        ("llama.attention.head_count_kv", 1u32.into()),
        ("llama.attention.layer_norm_rms_epsilon", 1e-5f32.into()),
        ("tokenizer.ggml.model", "llama".into()),
        ("tokenizer.ggml.tokens", Array::from(tokens).into()),
        ("tokenizer.ggml.scores", Array::from(vec![0f32; n]).into()),
        ("tokenizer.ggml.token_type", Array::from(vec![1i32; n]).into()),
        ("tokenizer.chat_template", "{{ messages }}".into()),
    ];
    let tensors = vec![
        ("token_embd.weight".to_owned(), vec![8, n as u64], TensorType::F16),
        ("output_norm.weight".to_owned(), vec![8], TensorType::F32),
        ("blk.0.attn_q.weight".to_owned(), vec![8, 8], TensorType::F16),
        ("blk.0.attn_norm.weight".to_owned(), vec![8], TensorType::F32),
    ];
    (keys, tensors)
}

/// Opens a file made of owned lists.
fn built(dir: &Path, keys: &[(&str, Value)], tensors: &[(String, Vec<u64>, TensorType)]) -> GgufFile {
    let tensors: Vec<_> = tensors.iter().map(|(n, d, t)| (n.as_str(), d.as_slice(), *t)).collect();
    made(dir, keys, &tensors)
}
