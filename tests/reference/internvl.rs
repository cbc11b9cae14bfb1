//! InternViT-300M and InternVL's projector (Chen et al. 2024).
//!
//! Class token first, position table with its row first, blocks whose two branches are scaled per channel, class token
//! dropped, 2x2 patches put side by side, norm and two linear layers.

use std::path::Path;

use super::numbers::{Matrix, attention, gelu};
use super::weights::Weights;

/// Epsilon of the projector's norm: PyTorch's default, in no key.
const PROJECTOR_EPSILON: f64 = 1e-5;

/// The tower and its projector.
#[derive(Debug)]
pub struct InternVl(Weights);

impl InternVl {
    pub fn open(path: &Path) -> InternVl {
        InternVl(Weights::open(path))
    }

    /// The rows for the text model. `shift` is how far positions are off: 0 as the authors have it, 1 where patch `i`
    /// gets the position of patch `i - 1`, the first patch that of the class token and the class token that of the last
    /// patch (llama.cpp b11434).
    pub fn rows(&self, pixels: &[f32], side_px: usize, shift: usize) -> Matrix {
        let w = &self.0;
        let (epsilon, heads) = (w.epsilon(), w.number("attention.head_count"));
        let patches = w.patches(pixels, side_px, side_px);
        let class = w.vector("v.class_embd");
        let tokens = Matrix::from_rows(std::iter::once(class.as_slice()).chain(patches.rows()));
        let n = tokens.len();
        let positions = w.matrix("v.position_embd.weight").pick((0..n).map(|i| (i + n - shift) % n));
        let mut x = tokens.plus(&positions);
        for i in 0..w.number("block_count") {
            let name = |part: &str| format!("v.blk.{i}.{part}");
            let scaled = |branch: Matrix, part: &str| {
                let scale = w.vector(&name(part));
                branch.map_rows(|row| row.iter().zip(&scale).map(|(v, s)| v * s).collect())
            };
            let normed = w.norm(&name("ln1"), epsilon).apply(&x);
            let part = |part: &str| w.linear(&name(part)).apply(&normed);
            let mixed = attention(&part("attn_q"), &part("attn_k"), &part("attn_v"), heads);
            x = x.plus(&scaled(w.linear(&name("attn_out")).apply(&mixed), "ls1.weight"));
            let hidden = w.linear(&name("ffn_up")).apply(&w.norm(&name("ln2"), epsilon).apply(&x)).map(gelu);
            x = x.plus(&scaled(w.linear(&name("ffn_down")).apply(&hidden), "ls2.weight"));
        }
        let merged = merge(&x.pick(1..n), w.number("projector.scale_factor"));
        let normed = w.norm("mm.model.mlp.0", PROJECTOR_EPSILON).apply(&merged);
        w.linear("mm.model.mlp.3").apply(&w.linear("mm.model.mlp.1").apply(&normed).map(gelu))
    }
}

/// `factor` x `factor` patches of a square picture side by side, in raster order ("pixel shuffle", its second version).
fn merge(patches: &Matrix, factor: usize) -> Matrix {
    let side = patches.len().isqrt();
    let mut rows = Vec::new();
    for top in (0..side).step_by(factor) {
        for left in (0..side).step_by(factor) {
            let cells = (0..factor).flat_map(|y| (0..factor).map(move |x| (top + y) * side + left + x));
            rows.push(cells.flat_map(|cell| patches.row(cell)).copied().collect::<Vec<f64>>());
        }
    }
    Matrix::from_rows(rows.iter().map(Vec::as_slice))
}
