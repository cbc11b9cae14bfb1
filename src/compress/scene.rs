//! The geometry of one tile that selectors share: directions of its cells, and how far each stands out.

use rayon::prelude::*;

use super::rows::Rows;
use super::vector::{add_rows, dot, inverse, norm, scale, subtract};

/// Rows of equal width in one block.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    values: Vec<f32>,
    width: usize,
}

impl Matrix {
    /// One row per cell, filled by `fill`. Rows are independent of each other, so the number of threads cannot show.
    pub(super) fn of_cells(rows: &Rows<'_>, fill: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        let width = rows.main();
        let mut values = vec![0.0; rows.layout().cells() * width];
        values.par_chunks_mut(width).with_min_len(16).enumerate().for_each(|(cell, out)| fill(cell, out));
        Self { values, width }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() / self.width
    }

    pub(super) fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.width..(index + 1) * self.width]
    }
}

/// Means over the cells of a tile.
#[derive(Debug, Clone)]
pub(super) struct Means {
    /// Mean of the features.
    pub(super) mean: Vec<f32>,
    /// Mean of the features' directions.
    direction: Vec<f32>,
    /// Length of each cell's features.
    lengths: Vec<f32>,
}

/// Rows that are added up at a time.
const BLOCK: usize = 8;

impl Means {
    pub(super) fn new(rows: &Rows<'_>) -> Self {
        let (n, width) = (rows.layout().cells(), rows.main());
        let mut lengths = vec![0.0_f32; n];
        let (mut sum, mut directions) = (vec![0.0_f64; width], vec![0.0_f64; width]);
        let mut block: Vec<&[f32]> = Vec::with_capacity(BLOCK);
        let mut scales: Vec<f32> = Vec::with_capacity(BLOCK);
        for from in (0..n).step_by(BLOCK) {
            block.clear();
            block.extend((from..n.min(from + BLOCK)).map(|cell| rows.features(cell)));
            for (length, row) in lengths[from..].iter_mut().zip(&block) {
                *length = norm(row);
            }
            scales.clear();
            scales.extend(lengths[from..].iter().take(BLOCK).map(|&l| inverse(l)));
            add_rows(&mut sum, &mut directions, &block, &scales);
        }
        let over_n = |sums: Vec<f64>| sums.into_iter().map(|s| (s / n as f64) as f32).collect();
        Self { mean: over_n(sum), direction: over_n(directions), lengths }
    }

    /// Distinctiveness of every cell, scaled to 0 to 1: minus the mean cosine to the other cells, by the geometry before
    /// centring. 1 everywhere where no cell differs from another.
    pub(super) fn distinctiveness(&self, rows: &Rows<'_>) -> Vec<f32> {
        let n = self.lengths.len();
        let others = n.saturating_sub(1).max(1) as f32;
        let raw: Vec<f32> = (0..n)
            .into_par_iter()
            .with_min_len(16)
            .map(|cell| {
                let cosine = dot(rows.features(cell), &self.direction) * inverse(self.lengths[cell]);
                -(n as f32 * cosine - 1.0) / others
            })
            .collect();
        let least = raw.iter().copied().fold(f32::INFINITY, f32::min);
        let most = raw.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let range = most - least;
        if range > 0.0 { raw.iter().map(|g| (g - least) / range).collect() } else { vec![1.0; n] }
    }

    /// Directions of the features; zero for a cell without features.
    pub(super) fn directions(&self, rows: &Rows<'_>) -> Matrix {
        Matrix::of_cells(rows, |cell, out| {
            out.copy_from_slice(rows.features(cell));
            scale(out, inverse(self.lengths[cell]));
        })
    }

    /// Features less their mean.
    pub(super) fn centred(&self, rows: &Rows<'_>) -> Matrix {
        Matrix::of_cells(rows, |cell, out| subtract(out, rows.features(cell), &self.mean))
    }

    /// Directions of the features less their mean; zero for a cell that is the mean.
    pub(super) fn centred_directions(&self, rows: &Rows<'_>) -> Matrix {
        Matrix::of_cells(rows, |cell, out| {
            subtract(out, rows.features(cell), &self.mean);
            let factor = inverse(norm(out));
            scale(out, factor);
        })
    }
}
