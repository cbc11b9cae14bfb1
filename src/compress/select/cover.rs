//! Greedy facility location: picks that every cell finds itself well represented by.
//!
//! Maximises the sum over cells j of w_j times the best A_ji among the picks i, where A is the softmax over i of
//! cosine(j, i) / tau. The gain of a cell only falls as picks are added (Minoux, "Accelerated greedy algorithms for maximizing
//! submodular set functions", 1978), in floating point too: [`gain`] adds falling terms in a fixed order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::super::layout::Layout;
use super::super::scene::Matrix;
use super::super::vector::{dot, dot_pair, exp_negative, gain};
use super::max_min::Bound;

/// Rows whose products with another are computed together.
const BLOCK: usize = 8;

/// `k` rows of `directions`, `first` among them.
pub(super) fn pick(directions: &Matrix, weights: &[f32], tau: f32, k: usize, first: &[usize]) -> Vec<usize> {
    let n = directions.len();
    let served = affinity(directions, tau);
    let column = |cell: usize| &served[cell * n..(cell + 1) * n];
    let mut best = vec![0.0_f32; n];
    let mut picks: Vec<usize> = Vec::with_capacity(k);
    let add = |cell: usize, best: &mut [f32], picks: &mut Vec<usize>| {
        for (b, &v) in best.iter_mut().zip(column(cell)) {
            *b = b.max(v);
        }
        picks.push(cell);
    };
    for &cell in first {
        add(cell, &mut best, &mut picks);
    }
    let scores: Vec<f32> =
        (0..n).into_par_iter().with_min_len(16).map(|cell| gain(column(cell), &best, weights)).collect();
    let mut heap: BinaryHeap<Bound> = (0..n)
        .filter(|cell| !picks.contains(cell))
        .map(|cell| Bound { score: scores[cell], cell: Reverse(cell), seen: picks.len() })
        .collect();
    while picks.len() < k {
        let Some(top) = heap.pop() else { break };
        let cell = top.cell.0;
        if top.seen == picks.len() {
            add(cell, &mut best, &mut picks);
        } else {
            heap.push(Bound { score: gain(column(cell), &best, weights), seen: picks.len(), ..top });
        }
    }
    picks
}

/// `[i, j]`: how well pick i would serve cell j. Each j's values over all i add up to 1.
fn affinity(directions: &Matrix, tau: f32) -> Vec<f32> {
    let n = directions.len();
    let mut cosines = vec![0.0_f32; n * n];
    // from the diagonal on, then mirrored; a row that is loaded meets a block of others, so that it is loaded less often
    cosines.par_chunks_mut(n * BLOCK).enumerate().for_each(|(block, out)| {
        let first = block * BLOCK;
        for j in first..n {
            let other = directions.row(j);
            for (pair, out) in out.chunks_mut(2 * n).enumerate() {
                let i = first + 2 * pair;
                if out.len() == 2 * n {
                    let (a, b) = dot_pair(other, directions.row(i), directions.row(i + 1));
                    out[j] = a;
                    out[n + j] = b;
                } else {
                    out[j] = dot(other, directions.row(i));
                }
            }
        }
    });
    for i in 1..n {
        for j in 0..i {
            cosines[i * n + j] = cosines[j * n + i];
        }
    }
    // cosines are at most 1: no need to look for the largest
    cosines.par_iter_mut().with_min_len(4096).for_each(|c| *c = exp_negative((*c - 1.0) / tau));
    // symmetric until here: the sum over i for one j is that of its own row
    let sums: Vec<f32> = cosines.par_chunks(n).map(|row| row.iter().sum()).collect();
    cosines.par_chunks_mut(n).for_each(|row| row.iter_mut().zip(&sums).for_each(|(v, s)| *v /= s));
    cosines
}

/// Weights smoothed over each cell's 3 x 3 neighbours (1 2 1 in both directions), fewer at the edge.
pub(super) fn smooth(layout: &Layout, weights: &[f32]) -> Vec<f32> {
    let (w, h) = (layout.columns(), layout.rows());
    (0..weights.len())
        .map(|cell| {
            let (x, y) = layout.place(cell);
            let (mut sum, mut total) = (0.0, 0.0);
            for ny in y.saturating_sub(1)..(y + 2).min(h) {
                for nx in x.saturating_sub(1)..(x + 2).min(w) {
                    let share = if nx == x { 2.0 } else { 1.0 } * if ny == y { 2.0 } else { 1.0 };
                    sum += share * weights[ny * w + nx];
                    total += share;
                }
            }
            sum / total
        })
        .collect()
}
