//! CLIP's vision tower (Radford et al. 2021) under LLaVA's projector (Liu et al. 2023).
//!
//! The picture's patches go through one convolution; the class token stands before them; every row gets its learned
//! position (row 0 of the table is the class token's); a norm, where the tower has one; then the blocks. LLaVA takes the
//! hidden state after the second to last block of the tower that CLIP's authors trained, drops the class token's row, and
//! applies no further norm. Two linear layers with a GELU between them make text-model rows of it.

use std::path::Path;

use super::numbers::{LayerNorm, Linear, Matrix, attention, gelu, quick_gelu};
use super::weights::Weights;

/// Where the class token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassToken {
    /// Before the patches, as the authors have it.
    First,
    /// After the patches, while positions are counted and rows are chosen as if it came first: llama.cpp b11434.
    AppendedYetReadAsFirst,
}

/// One block: attention and feed-forward, each behind a norm and added to its input.
#[derive(Debug)]
struct Block {
    norm_1: LayerNorm,
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    norm_2: LayerNorm,
    up: Linear,
    down: Linear,
}

/// The tower and its projector.
#[derive(Debug)]
pub struct Clip {
    weights: Weights,
    heads: usize,
    class_token: Option<Vec<f64>>,
    positions: Matrix,
    pre_norm: Option<LayerNorm>,
    blocks: Vec<Block>,
    post_norm: Option<LayerNorm>,
    activation: fn(f64) -> f64,
}

impl Clip {
    /// Reads all weights that the file holds, whatever its block count says.
    pub fn open(path: &Path) -> Clip {
        let weights = Weights::open(path);
        let epsilon = weights.epsilon();
        let norm = |name: &str| weights.has(&format!("{name}.weight")).then(|| weights.norm(name, epsilon));
        let blocks = (0..)
            .map(|i| format!("v.blk.{i}"))
            .take_while(|block| weights.has(&format!("{block}.attn_q.weight")))
            .map(|block| {
                let linear = |part: &str| weights.linear(&format!("{block}.{part}"));
                Block {
                    norm_1: weights.norm(&format!("{block}.ln1"), epsilon),
                    q: linear("attn_q"),
                    k: linear("attn_k"),
                    v: linear("attn_v"),
                    out: linear("attn_out"),
                    norm_2: weights.norm(&format!("{block}.ln2"), epsilon),
                    up: linear("ffn_up"),
                    down: linear("ffn_down"),
                }
            })
            .collect();
        Clip {
            heads: weights.number("attention.head_count"),
            class_token: weights.has("v.class_embd").then(|| weights.vector("v.class_embd")),
            positions: weights.matrix("v.position_embd.weight"),
            pre_norm: norm("v.pre_ln"),
            blocks,
            post_norm: norm("v.post_ln"),
            activation: if weights.flag("clip.use_gelu") { gelu } else { quick_gelu },
            weights,
        }
    }

    /// Blocks in the file.
    pub fn stored_layers(&self) -> usize {
        self.blocks.len()
    }

    /// The rows for the text model as LLaVA's authors defined them, where the tower had `trained_layers` blocks.
    pub fn authors(&self, pixels: &[f32], side_px: usize, trained_layers: usize) -> Matrix {
        self.rows(pixels, side_px, ClassToken::First, &[trained_layers - 1])
    }

    /// The rows for the text model from the hidden states `layers` (0 is what enters the first block), which lie side by
    /// side in the projector's input.
    pub fn rows(&self, pixels: &[f32], side_px: usize, place: ClassToken, layers: &[usize]) -> Matrix {
        let states = self.hidden_states(pixels, side_px, place, *layers.iter().max().unwrap());
        let chosen: Vec<&Matrix> = layers.iter().map(|&l| &states[l]).collect();
        let stacked: Vec<Vec<f64>> =
            (0..chosen[0].len()).map(|i| chosen.iter().flat_map(|state| state.row(i)).copied().collect()).collect();
        let stacked = Matrix::from_rows(stacked.iter().map(Vec::as_slice));
        // Both layouts take the rows behind the first one; which row that is differs.
        let first = usize::from(self.class_token.is_some());
        self.project(&stacked.pick(first..stacked.len()))
    }

    /// All hidden states up to the one after `deepest` blocks. A norm that the file holds for the end of the tower is
    /// applied to the last one; LLaVA's converters leave it out.
    fn hidden_states(&self, pixels: &[f32], side_px: usize, place: ClassToken, deepest: usize) -> Vec<Matrix> {
        let patches = self.weights.patches(pixels, side_px, side_px);
        let tokens = match (&self.class_token, place) {
            (None, _) => patches,
            (Some(class), ClassToken::First) => {
                Matrix::from_rows(std::iter::once(class.as_slice()).chain(patches.rows()))
            }
            (Some(class), ClassToken::AppendedYetReadAsFirst) => {
                Matrix::from_rows(patches.rows().chain(std::iter::once(class.as_slice())))
            }
        };
        let mut state = tokens.plus(&self.positions.pick(0..tokens.len()));
        if let Some(norm) = &self.pre_norm {
            state = norm.apply(&state);
        }
        let mut states = vec![state];
        for block in &self.blocks[..deepest] {
            states.push(self.block(block, states.last().unwrap()));
        }
        if let Some(norm) = &self.post_norm {
            let last = states.pop().unwrap();
            states.push(norm.apply(&last));
        }
        states
    }

    fn block(&self, block: &Block, x: &Matrix) -> Matrix {
        let normed = block.norm_1.apply(x);
        let mixed = attention(&block.q.apply(&normed), &block.k.apply(&normed), &block.v.apply(&normed), self.heads);
        let x = x.plus(&block.out.apply(&mixed));
        let hidden = block.up.apply(&block.norm_2.apply(&x)).map(self.activation);
        x.plus(&block.down.apply(&hidden))
    }

    /// LLaVA's two linear layers, or Yi-VL's with a norm behind each.
    fn project(&self, x: &Matrix) -> Matrix {
        let first = self.weights.linear("mm.0").apply(x);
        if self.weights.has("mm.3.weight") {
            let epsilon = self.weights.epsilon();
            let hidden = self.weights.norm("mm.1", epsilon).apply(&first).map(gelu);
            return self.weights.norm("mm.4", epsilon).apply(&self.weights.linear("mm.3").apply(&hidden));
        }
        self.weights.linear("mm.2").apply(&first.map(gelu))
    }
}
