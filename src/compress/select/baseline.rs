//! Selectors that every other one has to beat.

use super::super::plan::{bin, target_grid};
use super::super::rows::Rows;
use super::super::vector::add_scaled;

/// The next number of Steele, Lea and Flood's SplitMix64 (2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `k` of `n` cells, each set equally likely (the first steps of a Fisher-Yates shuffle).
pub(super) fn random(n: usize, k: usize, seed: u64) -> Vec<usize> {
    let mut cells: Vec<usize> = (0..n).collect();
    let mut state = seed;
    for i in 0..k.min(n) {
        // a 64-bit number times a small range: the bias is below 2^-50
        let range = (n - i) as u128;
        let at = i + usize::try_from((u128::from(next(&mut state)) * range) >> 64).unwrap_or(0);
        cells.swap(i, at);
    }
    cells.truncate(k);
    cells
}

/// In each bin of the grid that `k` cells make, the cell whose features lie nearest to the bin's mean.
pub(super) fn stratified(rows: &Rows<'_>, k: usize) -> Vec<usize> {
    let layout = rows.layout();
    let (columns, grid_rows) = target_grid(layout, k);
    let mut picks = Vec::with_capacity(k);
    let mut mean = vec![0.0_f32; rows.main()];
    for by in 0..grid_rows {
        for bx in 0..columns {
            let (x0, x1) = bin(bx, columns, layout.columns());
            let (y0, y1) = bin(by, grid_rows, layout.rows());
            let cells: Vec<usize> = (y0..y1).flat_map(|y| (x0..x1).map(move |x| y * layout.columns() + x)).collect();
            mean.fill(0.0);
            for &cell in &cells {
                add_scaled(&mut mean, 1.0 / cells.len() as f32, rows.features(cell));
            }
            let distance =
                |cell: usize| -> f32 { rows.features(cell).iter().zip(&mean).map(|(v, m)| (v - m) * (v - m)).sum() };
            let nearest = cells
                .into_iter()
                .map(|cell| (cell, distance(cell)))
                .reduce(|best, other| if other.1 < best.1 { other } else { best });
            picks.extend(nearest.map(|(cell, _)| cell));
        }
    }
    picks
}
