//! A share of the budget spread evenly over the picture, so that no region is left without a row.

use super::super::layout::Layout;
use super::super::plan::{bin, target_grid};

/// The most distinct cell of each bin of a coarse grid, in raster order of the bins; `share` of `k` bins at most.
pub(super) fn reserve(layout: &Layout, distinct: &[f32], k: usize, share: f32) -> Vec<usize> {
    let wanted = (k as f32 * share).round() as usize;
    if wanted == 0 {
        return Vec::new();
    }
    let (columns, rows) = target_grid(layout, wanted.min(k));
    let mut picks = Vec::with_capacity(columns * rows);
    for by in 0..rows {
        for bx in 0..columns {
            let (x0, x1) = bin(bx, columns, layout.columns());
            let (y0, y1) = bin(by, rows, layout.rows());
            let cells = (y0..y1).flat_map(|y| (x0..x1).map(move |x| y * layout.columns() + x));
            picks.extend(cells.reduce(|best, cell| if distinct[cell] > distinct[best] { cell } else { best }));
        }
    }
    picks
}
