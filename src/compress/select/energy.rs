//! Column-pivoted Cholesky: each pick is the cell with most energy that the picks so far do not explain.
//!
//! With x the features less their mean, d = |x|^2 at the start, and for each pick p and every cell i:
//! e = (<x_p, x_i> - sum over earlier picks q of c_qp c_qi) / sqrt(d_p), then d_i -= e^2. What is left of the sum of d after k
//! picks is the energy outside of the span of k cells: 1 minus its share is the information kept (Golub and Van Loan, "Matrix
//! Computations"; the same greedy steps as MAP inference of a determinantal point process, Chen et al. 2018).
//!
//! d only falls, so that an old value is an upper bound, and only leaders are brought up to date.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::super::rows::Rows;
use super::super::scene::{Matrix, Means};
use super::super::vector::dot;

/// A residual below this share of a cell's own energy is rounding.
const NOTHING: f64 = 1e-7;
/// Picks between two looks at how much is explained.
const STEP: usize = 16;

#[derive(Debug)]
struct Cell {
    /// Energy of its own.
    energy: f64,
    /// What the picks that it has seen leave of it.
    residual: f64,
    /// Coefficients to those picks.
    c: Vec<f64>,
}

/// The factorisation so far.
#[derive(Debug)]
struct Cholesky<'a> {
    centred: &'a Matrix,
    weights: Option<&'a [f32]>,
    cells: Vec<Cell>,
    picks: Vec<usize>,
    heap: BinaryHeap<(Score, Reverse<usize>)>,
}

/// Residuals are finite and not negative: total order is that of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Score(f64);
impl Eq for Score {}
impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Cholesky<'a> {
    fn new(centred: &'a Matrix, weights: Option<&'a [f32]>, first: &[usize]) -> Self {
        let cells: Vec<Cell> = (0..centred.len())
            .into_par_iter()
            .with_min_len(16)
            .map(|i| {
                let energy = f64::from(dot(centred.row(i), centred.row(i)));
                Cell { energy, residual: energy, c: Vec::new() }
            })
            .collect();
        let mut this = Self { centred, weights, cells, picks: Vec::new(), heap: BinaryHeap::new() };
        for &cell in first {
            this.refresh(cell);
            this.take(cell);
        }
        this.heap = (0..centred.len())
            .filter(|cell| !first.contains(cell))
            .map(|cell| (Score(this.score(cell)), Reverse(cell)))
            .collect();
        this
    }

    fn score(&self, cell: usize) -> f64 {
        self.cells[cell].residual * self.weights.map_or(1.0, |w| f64::from(w[cell]))
    }

    fn take(&mut self, cell: usize) {
        let root = self.cells[cell].residual.sqrt();
        self.cells[cell].c.push(root);
        self.cells[cell].residual = 0.0;
        self.picks.push(cell);
    }

    /// The coefficients of a cell to the picks it has not seen, and what they leave of it.
    fn updated(&self, cell: usize) -> (f64, Vec<f64>) {
        let Cell { energy, residual, c } = &self.cells[cell];
        let mut residual = *residual;
        let mut all = c.clone();
        let rounding = energy * NOTHING;
        for (step, &pick) in self.picks.iter().enumerate().skip(c.len()) {
            let other = &self.cells[pick];
            let root = other.c[step];
            let known: f64 = other.c[..step].iter().zip(&all).map(|(a, b)| a * b).sum();
            let product = f64::from(dot(self.centred.row(pick), self.centred.row(cell)));
            // the pick of a picture that is fully explained explains nothing more
            let e = if root > 0.0 { (product - known) / root } else { 0.0 };
            let left = residual - e * e;
            residual = if left > rounding { left.min(residual) } else { 0.0 };
            all.push(e);
        }
        (residual, all)
    }

    fn refresh(&mut self, cell: usize) {
        let (residual, c) = self.updated(cell);
        self.cells[cell].residual = residual;
        self.cells[cell].c = c;
    }

    fn pick_next(&mut self) -> bool {
        while let Some((_, Reverse(cell))) = self.heap.pop() {
            if self.cells[cell].c.len() == self.picks.len() {
                self.take(cell);
                return true;
            }
            self.refresh(cell);
            self.heap.push((Score(self.score(cell)), Reverse(cell)));
        }
        false
    }

    /// Brings every cell up to date.
    fn catch_up(&mut self) {
        let done = self.picks.len();
        let updated: Vec<Option<(f64, Vec<f64>)>> = (0..self.cells.len())
            .into_par_iter()
            .with_min_len(4)
            .map(|cell| (self.cells[cell].c.len() < done && !self.is_pick(cell)).then(|| self.updated(cell)))
            .collect();
        for (cell, update) in self.cells.iter_mut().zip(updated) {
            if let Some((residual, c)) = update {
                cell.residual = residual;
                cell.c = c;
            }
        }
        self.heap = (0..self.cells.len())
            .filter(|&cell| !self.is_pick(cell))
            .map(|cell| (Score(self.score(cell)), Reverse(cell)))
            .collect();
    }

    /// A pick's coefficients end with its own.
    fn is_pick(&self, cell: usize) -> bool {
        self.picks.get(self.cells[cell].c.len().wrapping_sub(1)) == Some(&cell)
    }

    fn curve(&self) -> Vec<f32> {
        let total: f64 = self.cells.iter().map(|c| c.energy).sum();
        let mut kept = Vec::with_capacity(self.picks.len());
        let mut explained = 0.0;
        for step in 0..self.picks.len() {
            explained += self.cells.iter().filter_map(|cell| cell.c.get(step)).map(|c| c * c).sum::<f64>();
            kept.push(if total > 0.0 { (explained / total).min(1.0) as f32 } else { 1.0 });
        }
        kept
    }
}

/// `k` rows of `centred`, `first` among them. `weights`: residuals count as much.
pub(super) fn pick(centred: &Matrix, weights: Option<&[f32]>, k: usize, first: &[usize]) -> Vec<usize> {
    let mut work = Cholesky::new(centred, weights, first);
    while work.picks.len() < k && work.pick_next() {}
    work.picks
}

/// How much of a tile's information so many cells keep.
#[derive(Debug, Clone, PartialEq)]
pub struct EnergyCurve {
    kept: Vec<f32>,
    residual: f64,
    cells: usize,
}

impl EnergyCurve {
    /// Share of the centred energy inside the span of the first `k` picks, 0 to 1. Beyond what was computed, the last value.
    #[must_use]
    pub fn kept(&self, k: usize) -> f32 {
        match k.min(self.kept.len()) {
            0 => 0.0,
            k => self.kept[k - 1],
        }
    }

    /// Picks that were computed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none were.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Fewest cells that keep at least `share`; all cells where what was computed does not reach it.
    #[must_use]
    pub fn cells_for(&self, share: f32) -> usize {
        self.kept.iter().position(|&k| k >= share).map_or(self.cells, |at| at + 1)
    }

    /// Energy that all computed picks leave, in squared units of the features.
    #[must_use]
    pub fn residual(&self) -> f64 {
        self.residual
    }
}

/// The energy curve of a tile, until `share` of its energy is explained or `most` cells are picked. With `share` = 0.9, its
/// [`EnergyCurve::cells_for`] is k90.
#[must_use]
pub fn energy_curve(rows: &Rows<'_>, share: f32, most: usize) -> EnergyCurve {
    let centred = Means::new(rows).centred(rows);
    let cells = centred.len();
    let mut work = Cholesky::new(&centred, None, &[]);
    let mut kept = Vec::new();
    loop {
        let until = (work.picks.len() + STEP).min(most);
        while work.picks.len() < until && work.pick_next() {}
        work.catch_up();
        let grown = work.curve();
        let more = grown.len() > kept.len();
        kept = grown;
        if !more || kept.len() >= most || kept.last().is_some_and(|&k| k >= share) {
            break;
        }
    }
    let total: f64 = work.cells.iter().map(|c| c.energy).sum();
    let residual: f64 = work.cells.iter().map(|c| c.residual).sum();
    // less is rounding, and would be compared with other tiles' rounding
    let residual = if residual > total * NOTHING * 10.0 { residual } else { 0.0 };
    EnergyCurve { kept, residual, cells }
}
