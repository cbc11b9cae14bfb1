//! The geometry of one tile that selectors share: directions of its cells, and how far each stands out.

use rayon::prelude::*;

use super::rows::Rows;
use super::vector::{dot, inverse, norm};

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

impl Means {
    pub(super) fn new(rows: &Rows<'_>) -> Self {
        let (n, width) = (rows.layout().cells(), rows.main());
        let lengths: Vec<f32> =
            (0..n).into_par_iter().with_min_len(16).map(|cell| norm(rows.features(cell))).collect();
        let (mut sum, mut directions) = (vec![0.0_f64; width], vec![0.0_f64; width]);
        for (cell, &length) in lengths.iter().enumerate() {
            let scale = f64::from(inverse(length));
            for ((s, d), &v) in sum.iter_mut().zip(&mut directions).zip(rows.features(cell)) {
                let v = f64::from(v);
                *s += v;
                *d += v * scale;
            }
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
            let scale = inverse(self.lengths[cell]);
            for (o, &v) in out.iter_mut().zip(rows.features(cell)) {
                *o = v * scale;
            }
        })
    }

    /// Features less their mean.
    pub(super) fn centred(&self, rows: &Rows<'_>) -> Matrix {
        Matrix::of_cells(rows, |cell, out| {
            for ((o, &v), m) in out.iter_mut().zip(rows.features(cell)).zip(&self.mean) {
                *o = v - m;
            }
        })
    }

    /// Directions of the features less their mean; zero for a cell that is the mean.
    pub(super) fn centred_directions(&self, rows: &Rows<'_>) -> Matrix {
        Matrix::of_cells(rows, |cell, out| {
            for ((o, &v), m) in out.iter_mut().zip(rows.features(cell)).zip(&self.mean) {
                *o = v - m;
            }
            let scale = inverse(norm(out));
            out.iter_mut().for_each(|o| *o *= scale);
        })
    }
}
