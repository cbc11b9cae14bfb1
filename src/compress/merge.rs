//! Tail of a selector: what was not kept is not lost altogether, but drawn into a like neighbour.
//!
//! For a survivor a with the dropped cells j that it takes in: y = v_a + beta * sum w_j (v_j - v_a) / (1 + sum w_j), with
//! w = max(0, cosine - 0.7) / 0.3 on centred directions; then y gets the mean length of those it was made of. After Bolya et al.,
//! "Token Merging", 2023; the length is ours.

use super::rows::Rows;
use super::scene::Means;
use super::tokens::{Made, to_u32};
use super::vector::{add_scaled, dot, inverse, norm};

/// Least cosine of cells that are merged.
const LEAST_COSINE: f32 = 0.7;
/// Largest distance on the grid, in either direction.
const REACH: usize = 2;

/// How strongly dropped cells are drawn in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MergeTail {
    /// 0: not at all, 1: a weighted mean.
    pub(super) beta: f32,
}

impl MergeTail {
    pub(super) fn is_on(self) -> bool {
        self.beta > 0.0
    }
}

/// Survivors with what they take in. `kept` ascends.
pub(super) fn merge_tail(rows: &Rows<'_>, kept: &[usize], tail: MergeTail) -> Vec<Made> {
    let layout = rows.layout();
    let z = Means::new(rows).centred_directions(rows);
    let mut slot = vec![usize::MAX; layout.cells()];
    for (i, &cell) in kept.iter().enumerate() {
        slot[cell] = i;
    }
    let mut taken: Vec<Vec<(usize, f32)>> = vec![Vec::new(); kept.len()];
    for cell in (0..layout.cells()).filter(|&c| slot[c] == usize::MAX) {
        let (x, y) = layout.place(cell);
        let mut best: Option<(usize, f32)> = None;
        for ny in y.saturating_sub(REACH)..(y + REACH + 1).min(layout.rows()) {
            for nx in x.saturating_sub(REACH)..(x + REACH + 1).min(layout.columns()) {
                let other = ny * layout.columns() + nx;
                if slot[other] == usize::MAX {
                    continue;
                }
                let cosine = dot(z.row(cell), z.row(other));
                if cosine >= LEAST_COSINE && best.is_none_or(|(_, c)| cosine > c) {
                    best = Some((slot[other], cosine));
                }
            }
        }
        if let Some((survivor, cosine)) = best {
            taken[survivor].push((cell, (cosine - LEAST_COSINE) / (1.0 - LEAST_COSINE)));
        }
    }
    kept.iter().zip(taken).map(|(&anchor, others)| merged(rows, anchor, &others, tail.beta)).collect()
}

fn merged(rows: &Rows<'_>, anchor: usize, others: &[(usize, f32)], beta: f32) -> Made {
    if others.is_empty() {
        return Made::kept(anchor);
    }
    let own = rows.cell(anchor);
    let total = 1.0 + others.iter().map(|o| o.1).sum::<f32>();
    let mut values = own.to_vec();
    for &(cell, weight) in others {
        let share = beta * weight / total;
        for ((out, &v), &a) in values.iter_mut().zip(rows.cell(cell)).zip(own) {
            *out += share * (v - a);
        }
    }
    let mut members: Vec<u32> = others.iter().map(|o| to_u32(o.0)).chain([to_u32(anchor)]).collect();
    members.sort_unstable();
    restore_length(rows, &members, &mut values);
    Made { anchor, members, values: Some(values) }
}

/// Gives an average the mean length of its members; the features of each DeepStack layer for themselves.
pub(super) fn restore_length(rows: &Rows<'_>, members: &[u32], values: &mut [f32]) {
    let main = rows.main();
    for (part, out) in values.chunks_mut(main).enumerate() {
        let of = |cell: u32| norm(&rows.cell(cell as usize)[part * main..(part + 1) * main]);
        let mean = members.iter().map(|&m| of(m)).sum::<f32>() / members.len() as f32;
        let scale = mean * inverse(norm(out));
        out.iter_mut().for_each(|v| *v *= scale);
    }
}

/// The mean of whole rows.
pub(super) fn mean_of(rows: &Rows<'_>, members: &[u32]) -> Vec<f32> {
    let mut values = vec![0.0; rows.embedding().width()];
    for &member in members {
        add_scaled(&mut values, 1.0 / members.len() as f32, rows.cell(member as usize));
    }
    values
}
