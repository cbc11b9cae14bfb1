//! A text model that is none: rows as wide as a projector needs, a vocabulary with the tokens it looks up, and weights of zero.
//!
//! libmtmd only cuts pictures into tiles with a vocabulary at hand; comparing two projectors must not need gigabytes for that.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::gguf::{Array, GgufFile, GgufWriter, TensorType, Value, check_projector, needed_tokens};

/// Size of the one attention head.
const HEAD: u64 = 8;

/// A stand-in's file, removed when this value is dropped. On systems that map files it can go once the model is loaded.
#[derive(Debug)]
pub(super) struct StandIn {
    path: PathBuf,
}

impl StandIn {
    /// Writes a stand-in for a projector file into `folder`.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a projector whose width this crate cannot tell from the header: it needs its real text
    /// model. Otherwise as [`check_projector`], and [`Error::Io`].
    pub(super) fn write(projector: &Path, folder: &Path) -> Result<Self> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let file = GgufFile::open_split(projector)?;
        let facts = check_projector(&file)?;
        let Some(width) = facts.projection_width.filter(|w| (1..=1 << 20).contains(w)) else {
            return Err(Error::BadParameter {
                name: "model",
                value: "none".to_owned(),
                reason: format!("comparing `{}` projectors needs the text model they belong to", facts.projector_type),
            });
        };
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("llava-stand-in-{}-{number}.gguf", std::process::id()));
        write(&path, width, needed_tokens(&facts.projector_type))?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // a file of a few megabytes in the temporary folder is all that can be left behind
        let _ = std::fs::remove_file(&self.path);
    }
}

fn write(path: &Path, width: u64, markers: &[&str]) -> Result<()> {
    let mut tokens: Vec<Vec<u8>> = [&b"<unk>"[..], b"<s>", b"</s>"].map(<[u8]>::to_vec).to_vec();
    let mut kinds = vec![2_i32, 3, 3];
    tokens.extend((0..=255).map(|b| format!("<0x{b:02X}>").into_bytes()));
    kinds.extend([6; 256]);
    tokens.extend(markers.iter().map(|m| m.as_bytes().to_vec()));
    kinds.extend(markers.iter().map(|_| 4));
    let n_tokens = tokens.len() as u64;

    let mut w = GgufWriter::new();
    let number = |n: u64| Value::U32(u32::try_from(n).unwrap_or(u32::MAX));
    let keys = [
        ("general.architecture", Value::from("llama")),
        ("general.name", "stand-in".into()),
        ("llama.context_length", number(4096)),
        ("llama.embedding_length", number(width)),
        ("llama.block_count", number(1)),
        ("llama.feed_forward_length", number(HEAD)),
        ("llama.attention.head_count", number(1)),
        ("llama.attention.head_count_kv", number(1)),
        ("llama.attention.key_length", number(HEAD)),
        ("llama.attention.value_length", number(HEAD)),
        ("llama.rope.dimension_count", number(HEAD)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.vocab_size", number(n_tokens)),
        ("tokenizer.ggml.model", "llama".into()),
        ("tokenizer.ggml.scores", Array::from(vec![0_f32; tokens.len()]).into()),
        ("tokenizer.ggml.tokens", Array::from(tokens).into()),
        ("tokenizer.ggml.token_type", Array::from(kinds).into()),
        ("tokenizer.ggml.unknown_token_id", number(0)),
        ("tokenizer.ggml.bos_token_id", number(1)),
        ("tokenizer.ggml.eos_token_id", number(2)),
    ];
    for (key, value) in keys {
        w.set(key, value)?;
    }
    for (name, dims) in [
        ("token_embd.weight", &[width, n_tokens][..]),
        ("output_norm.weight", &[width]),
        ("blk.0.attn_norm.weight", &[width]),
        ("blk.0.attn_q.weight", &[width, HEAD]),
        ("blk.0.attn_k.weight", &[width, HEAD]),
        ("blk.0.attn_v.weight", &[width, HEAD]),
        ("blk.0.attn_output.weight", &[HEAD, width]),
        ("blk.0.ffn_norm.weight", &[width]),
        ("blk.0.ffn_gate.weight", &[width, HEAD]),
        ("blk.0.ffn_up.weight", &[width, HEAD]),
        ("blk.0.ffn_down.weight", &[HEAD, width]),
    ] {
        w.declare(name, dims, if dims.len() == 1 { TensorType::F32 } else { TensorType::F16 })?;
    }
    let mut sink = w.begin(path)?;
    let zeros = [0; 4096];
    while sink.due().is_some() {
        sink.tensor(|out| {
            while out.left() > 0 {
                let n = usize::try_from(out.left()).unwrap_or(usize::MAX).min(zeros.len());
                out.put(&zeros[..n])?;
            }
            Ok(())
        })?;
    }
    sink.finish()
}
