//! A learned compressor: queries that read all rows of a tile by cross-attention.
//!
//! out = LayerNorm(query + W_o attention(W_q query, W_k rows, W_v rows)), as in Jaegle et al., "Perceiver", 2021, and
//! the resamplers of vision-language models. Weights are trained for one projector with one text model; they come from a GGUF file
//! that names the projector by its content.
//!
//! What it does: reads and checks the weights, computes the rows. What it never does: train, or take weights of another projector.
//! Who calls it: `spec` makes it; the program binds files.

mod weights;

#[cfg(test)]
mod tests;

use rayon::prelude::*;

pub use weights::{FINGERPRINT_KEY, bind_resampler};
use weights::{Linear, Weights};

use super::layout::Layout;
use super::plan::Plan;
use super::rows::Rows;
use super::tokens::{Made, VisualTokens, to_u32};
use super::vector::{add_scaled, dot, exp_negative};
use super::{Compressor, Result};
use crate::error::Error;

/// Learned queries with cross-attention, bound to one projector.
///
/// File: architecture `llava-compressor`; `llava-compressor.n_queries`, `.n_heads`, `.n_embd`, `.n_input_tokens` (u32),
/// `.layer_norm_eps` (f32); [`FINGERPRINT_KEY`]; tensors `query` `[n_queries, n_embd]`, `attn_q`, `attn_k`, `attn_v`, `attn_out`,
/// each with `.weight` `[n_embd, n_embd]` (`[out, in]`) and `.bias`, `norm.weight`, `norm.bias`, all F32.
#[derive(Debug)]
pub struct Resampler {
    weights: Weights,
    /// Projected queries, scaled for the attention, `[n_queries, n_embd]`.
    asked: Vec<f32>,
}

impl Resampler {
    /// Reads weights for the projector whose file has this content hash ([`crate::gguf::content_hash`]).
    ///
    /// # Errors
    /// [`Error::CompressorMismatch`] where the file names another projector, or none; [`Error::BadMetadata`], [`Error::BadTensor`]
    /// for shapes that contradict each other; those of [`crate::gguf::GgufFile::open`].
    pub fn open(path: impl AsRef<std::path::Path>, projector: u128) -> Result<Self> {
        let weights = Weights::read(path.as_ref(), projector)?;
        let width = weights.width;
        let scale = 1.0 / ((width / weights.heads) as f32).sqrt();
        let mut asked = weights.q.on_all(&weights.query, width);
        asked.iter_mut().for_each(|v| *v *= scale);
        Ok(Self { weights, asked })
    }

    /// Rows that come out.
    #[must_use]
    pub fn queries(&self) -> usize {
        self.weights.queries
    }

    /// Cells that have to go in.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.weights.input
    }

    /// Columns and rows of the grid that the queries started from, for a layout: square where their number is one.
    fn grid(&self, layout: &Layout) -> Option<(usize, usize)> {
        let side = self.weights.queries.isqrt();
        let square = side * side == self.weights.queries;
        (square && side <= layout.columns() && side <= layout.rows()).then_some((side, side))
    }

    /// Attention of one query over all cells, all heads side by side, `[n_embd]`.
    fn read(&self, query: usize, keys: &[f32], values: &[f32]) -> Vec<f32> {
        let (width, heads) = (self.weights.width, self.weights.heads);
        let size = width / heads;
        let mut out = vec![0.0; width];
        for head in 0..heads {
            let part = head * size..(head + 1) * size;
            let asked = &self.asked[query * width..][part.clone()];
            let mut shares: Vec<f32> = keys.chunks_exact(width).map(|key| dot(asked, &key[part.clone()])).collect();
            let most = shares.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            shares.iter_mut().for_each(|s| *s = exp_negative(*s - most));
            let total: f32 = shares.iter().sum();
            for (share, value) in shares.iter().zip(values.chunks_exact(width)) {
                add_scaled(&mut out[part.clone()], share / total, &value[part.clone()]);
            }
        }
        out
    }

    fn normalised(&self, row: &[f32]) -> Vec<f32> {
        let n = row.len() as f32;
        let mean = row.iter().sum::<f32>() / n;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / n;
        let scale = 1.0 / (variance + self.weights.eps).sqrt();
        let gains = self.weights.norm_weight.iter().zip(&self.weights.norm_bias);
        row.iter().zip(gains).map(|(v, (g, b))| (v - mean) * scale * g + b).collect()
    }
}

impl Linear {
    /// `weight x row + bias` for every row of `[n, width]`.
    fn on_all(&self, rows: &[f32], width: usize) -> Vec<f32> {
        let mut out = vec![0.0; rows.len()];
        out.par_chunks_mut(width).zip(rows.par_chunks(width)).with_min_len(8).for_each(|(out, row)| {
            for ((o, weights), bias) in out.iter_mut().zip(self.weight.chunks_exact(width)).zip(&self.bias) {
                *o = dot(weights, row) + bias;
            }
        });
        out
    }
}

impl Compressor for Resampler {
    fn id(&self) -> String {
        format!("resampler:weights={:032x}", self.weights.hash)
    }

    fn plan(&self, layout: &Layout, budget: usize) -> Result<Plan> {
        if budget >= layout.cells() {
            return Ok(Plan::full(layout));
        }
        let bad = |name, value: String, reason| Err(Error::BadParameter { name, value, reason });
        if layout.cells() != self.weights.input {
            let reason = format!("the resampler was trained on {}", self.weights.input);
            return bad("cells", layout.cells().to_string(), reason);
        }
        if layout.row_breaks() > 0 {
            return bad(
                "row breaks",
                layout.row_breaks().to_string(),
                "the resampler's rows belong to no grid row".into(),
            );
        }
        if budget < self.weights.queries {
            let reason = format!("the resampler gives {} rows", self.weights.queries);
            return bad("visual tokens", budget.to_string(), reason);
        }
        if let Some(grid) = self.grid(layout) {
            return Ok(Plan::gridded(layout, grid));
        }
        Ok(Plan::scattered(layout, self.weights.queries))
    }

    fn apply(&self, rows: &Rows<'_>, plan: &Plan) -> Result<VisualTokens> {
        plan.check(rows.layout())?;
        let layout = rows.layout();
        if plan.is_full() {
            return Ok(VisualTokens::full(rows.embedding(), *layout));
        }
        let width = self.weights.width;
        if rows.embedding().width() != width {
            return Err(Error::BadParameter {
                name: "row width",
                value: rows.embedding().width().to_string(),
                reason: format!("the resampler was trained on rows of {width}"),
            });
        }
        let visual: Vec<f32> = (0..layout.cells()).flat_map(|cell| rows.cell(cell)).copied().collect();
        let keys = self.weights.k.on_all(&visual, width);
        let values = self.weights.v.on_all(&visual, width);
        let queries = self.weights.queries;
        let read: Vec<f32> = (0..queries)
            .into_par_iter()
            .with_min_len(4)
            .flat_map_iter(|query| self.read(query, &keys, &values))
            .collect();
        let mut out = self.weights.out.on_all(&read, width);
        add_scaled(&mut out, 1.0, &self.weights.query);
        let everything: Vec<u32> = (0..to_u32(layout.cells())).collect();
        let made = out
            .chunks_exact(width)
            .enumerate()
            .map(|(query, row)| {
                let anchor = match plan.grid() {
                    Some((columns, grid_rows)) => {
                        let middle = |i: usize, bins: usize, n: usize| (2 * i + 1) * n / (2 * bins);
                        let x = middle(query % columns, columns, layout.columns());
                        let y = middle(query / columns, grid_rows, layout.rows());
                        y * layout.columns() + x
                    }
                    None => query * layout.cells() / queries,
                };
                Made { anchor, members: everything.clone(), values: Some(self.normalised(row)) }
            })
            .collect();
        VisualTokens::assemble(rows, made, plan.grid())
    }
}
