//! Tensors with the extents and storage the vision graph needs; a mismatch there is a failed assertion.

use crate::error::Result;
use crate::gguf::file::{GgufFile, TensorInfo};
use crate::gguf::tensor_type::TensorType;

/// How a tensor is used, which decides how it may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Added to or multiplied with f32 rows element by element: f32 only.
    Elementwise,
    /// Left side of a matrix product.
    Weight,
    /// Transposed or convolved first: one number per element, no blocks.
    Plain,
}

impl Use {
    fn allows(self, t: TensorType) -> bool {
        match self {
            Use::Elementwise => t == TensorType::F32,
            Use::Weight => t.is_weight(),
            Use::Plain => t.is_plain_float(),
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Use::Elementwise => "f32",
            Use::Weight => "a float or quantised type",
            Use::Plain => "f32, f16 or bf16",
        }
    }
}

/// A tensor of exactly these extents (`ne` order, missing ones are 1), or `None` if there is none of that name.
pub(super) fn optional<'a>(file: &'a GgufFile, name: &str, dims: &[u64], usage: Use) -> Result<Option<&'a TensorInfo>> {
    let Some(t) = file.tensor(name) else { return Ok(None) };
    if (0..4).any(|i| t.dim(i) != dims.get(i).copied().unwrap_or(1)) {
        return Err(file.bad_tensor(name, format!("has extents {:?}, by the metadata it needs {dims:?}", t.dims)));
    }
    stored(file, t, usage)?;
    Ok(Some(t))
}

/// As [`optional`], for a tensor the graph cannot do without.
pub(super) fn required<'a>(file: &'a GgufFile, name: &str, dims: &[u64], usage: Use) -> Result<&'a TensorInfo> {
    optional(file, name, dims, usage)?
        .ok_or_else(|| file.bad_tensor(name, format!("is missing, extents {dims:?} are needed")))
}

/// A tensor that must exist, with free extents.
pub(super) fn any<'a>(file: &'a GgufFile, name: &str, usage: Use) -> Result<&'a TensorInfo> {
    let t = file.tensor(name).ok_or_else(|| file.bad_tensor(name, "is missing"))?;
    if t.byte_len == 0 {
        return Err(file.bad_tensor(name, format!("is empty: {:?}", t.dims)));
    }
    stored(file, t, usage)?;
    Ok(t)
}

fn stored(file: &GgufFile, t: &TensorInfo, usage: Use) -> Result<()> {
    if usage.allows(t.ggml_type) {
        return Ok(());
    }
    Err(file.bad_tensor(&t.name, format!("is stored as {}, must be {}", t.ggml_type, usage.wanted())))
}

/// How a graph takes q, k and v; it dereferences the tensors of its way without a null check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Qkv {
    /// Three matrices, biases if they are there.
    Separate,
    /// Three matrices with biases.
    SeparateWithBias,
    /// One matrix of all three.
    Fused,
    /// One if it is there, else three.
    Either,
}

/// The extents of one transformer layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer {
    pub(super) width: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    pub(super) head_dim: u64,
    /// How the graph takes q, k and v.
    pub(super) qkv: Qkv,
    /// Whether libmtmd undoes the exchanged names `ffn_up` and `ffn_down` of old converters.
    pub(super) swaps: bool,
    /// First part of the tensors' names.
    pub(super) prefix: &'static str,
}

impl Layer {
    /// Checks layer `index`.
    pub(super) fn check(&self, file: &GgufFile, index: u32) -> Result<()> {
        let name = |part: &str| format!("{}.blk.{index}.{part}", self.prefix);
        let (w, q, kv) = (self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim);
        for norm in ["ln1", "ln2"] {
            optional(file, &name(&format!("{norm}.weight")), &[w], Use::Elementwise)?;
            optional(file, &name(&format!("{norm}.bias")), &[w], Use::Elementwise)?;
        }
        for scale in ["ls1", "ls2", "attn_post_norm", "ffn_post_norm"] {
            optional(file, &name(&format!("{scale}.weight")), &[w], Use::Elementwise)?;
        }
        let fused = name("attn_qkv.weight");
        if self.qkv == Qkv::Fused || (self.qkv == Qkv::Either && file.tensor(&fused).is_some()) {
            // Keys and values are looked for behind as many heads as there are queries.
            required(file, &fused, &[w, 3 * q], Use::Weight)?;
            optional(file, &name("attn_qkv.bias"), &[3 * q], Use::Elementwise)?;
        } else {
            for (part, out) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                required(file, &name(&format!("{part}.weight")), &[w, out], Use::Weight)?;
                let bias = name(&format!("{part}.bias"));
                if self.qkv == Qkv::SeparateWithBias {
                    required(file, &bias, &[out], Use::Elementwise)?;
                } else {
                    optional(file, &bias, &[out], Use::Elementwise)?;
                }
            }
        }
        required(file, &name("attn_out.weight"), &[q, w], Use::Weight)?;
        optional(file, &name("attn_out.bias"), &[w], Use::Elementwise)?;

        // The sign of exchanged names is an `ffn_down` whose rows are as long as the width.
        let swapped = self.swaps && any(file, &name("ffn_down.weight"), Use::Weight)?.dim(0) == w;
        let (up, down) = if swapped { ("ffn_down", "ffn_up") } else { ("ffn_up", "ffn_down") };
        let hidden = any(file, &name(&format!("{up}.weight")), Use::Weight)?.dim(1);
        required(file, &name(&format!("{up}.weight")), &[w, hidden], Use::Weight)?;
        optional(file, &name(&format!("{up}.bias")), &[hidden], Use::Elementwise)?;
        optional(file, &name("ffn_gate.weight"), &[w, hidden], Use::Weight)?;
        optional(file, &name("ffn_gate.bias"), &[hidden], Use::Elementwise)?;
        required(file, &name(&format!("{down}.weight")), &[hidden, w], Use::Weight)?;
        optional(file, &name(&format!("{down}.bias")), &[w], Use::Elementwise)?;
        Ok(())
    }
}

/// A linear layer `name.weight` of `[rows_in, out]` with its bias; gives `out`.
pub(super) fn linear(file: &GgufFile, name: &str, rows_in: u64, needs_bias: bool) -> Result<u64> {
    let weight = format!("{name}.weight");
    let out = any(file, &weight, Use::Weight)?.dim(1);
    required(file, &weight, &[rows_in, out], Use::Weight)?;
    let bias = format!("{name}.bias");
    if needs_bias {
        required(file, &bias, &[out], Use::Elementwise)?;
    } else {
        optional(file, &bias, &[out], Use::Elementwise)?;
    }
    Ok(out)
}
