//! EVA2-CLIP-E and CogVLM's projector (Wang et al. 2023).
//!
//! Class token first, position table with its row first, blocks with the norm behind each branch, class token dropped, a
//! gated projector, and a learned row before and after the picture.

use std::path::Path;

use super::numbers::{Matrix, attention, gelu, quick_gelu, silu};
use super::weights::Weights;

/// Epsilon of the projector's norm: PyTorch's default, in no key.
const PROJECTOR_EPSILON: f64 = 1e-5;

/// The tower and its projector.
#[derive(Debug)]
pub struct CogVlm(Weights);

impl CogVlm {
    pub fn open(path: &Path) -> CogVlm {
        CogVlm(Weights::open(path))
    }

    /// The rows for the text model; `shift` as in [`super::InternVl::rows`].
    pub fn rows(&self, pixels: &[f32], side_px: usize, shift: usize) -> Matrix {
        let w = &self.0;
        let (epsilon, heads) = (w.epsilon(), w.number("attention.head_count"));
        let activation = if w.flag("clip.use_gelu") { gelu } else { quick_gelu };
        let patches = w.patches(pixels, side_px, side_px);
        let class = w.vector("v.class_embd");
        let tokens = Matrix::from_rows(std::iter::once(class.as_slice()).chain(patches.rows()));
        let (n, width) = (tokens.len(), tokens.width());
        let positions = w.matrix("v.position_embd.weight").pick((0..n).map(|i| (i + n - shift) % n));
        let mut x = tokens.plus(&positions);
        for i in 0..w.number("block_count") {
            let name = |part: &str| format!("v.blk.{i}.{part}");
            let qkv = w.linear(&name("attn_qkv")).apply(&x);
            let third = |k: usize| qkv.map_rows(|row| row[k * width..(k + 1) * width].to_vec());
            let mixed = attention(&third(0), &third(1), &third(2), heads);
            let attended = w.linear(&name("attn_out")).apply(&mixed);
            x = x.plus(&w.norm(&name("ln1"), epsilon).apply(&attended));
            let hidden = w.linear(&name("ffn_up")).apply(&x).map(activation);
            x = x.plus(&w.norm(&name("ln2"), epsilon).apply(&w.linear(&name("ffn_down")).apply(&hidden)));
        }
        let projected = w.linear("mm.model.fc").apply(&x.pick(1..n));
        let projected = w.norm("mm.post_fc_norm", PROJECTOR_EPSILON).apply(&projected).map(gelu);
        let gate = w.linear("mm.gate").apply(&projected).map(silu);
        let rows = w.linear("mm.down").apply(&gate.zip(&w.linear("mm.up").apply(&projected), |a, b| a * b));
        let (begin, end) = (w.vector("v.boi"), w.vector("v.eoi"));
        Matrix::from_rows(std::iter::once(begin.as_slice()).chain(rows.rows()).chain(std::iter::once(end.as_slice())))
    }
}
