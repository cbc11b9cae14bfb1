//! Compressors that keep some cells as they are.
//!
//! What it does: chooses cells by one of several rules, a share of them spread over the picture where that is wished.
//! What it never does: change a row; merging what is left over is `merge`'s. Who calls it: `spec` makes selectors; `tiles` and
//! `policy` ask for energy curves.

mod baseline;
mod cover;
mod energy;
mod max_min;
mod quota;

#[cfg(test)]
mod tests;

pub use energy::{EnergyCurve, energy_curve};

use super::layout::Layout;
use super::merge::{MergeTail, merge_tail};
use super::plan::{Plan, at_least_one, target_grid};
use super::rows::Rows;
use super::scene::Means;
use super::tokens::{Made, VisualTokens};
use super::{Compressor, Result};

/// How survivors are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Choice {
    /// Farthest point first, on directions.
    Div,
    /// The same on centred directions, weighed by distinctiveness.
    DivCentred,
    /// Column-pivoted Cholesky on centred features; `weighed`: residuals times distinctiveness.
    Energy { weighed: bool },
    /// Facility location; `weighed`: smoothed distinctiveness says how much a cell counts.
    Cover { tau: f32, weighed: bool },
    /// One cell of each bin, the nearest to the bin's mean.
    Stratified,
    /// Any cells.
    Random { seed: u64 },
}

/// A selector with its options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Selector {
    pub(super) choice: Choice,
    /// Share of the budget that is spread over a coarse grid first; 0 is none.
    pub(super) quota: f32,
    /// What becomes of the others.
    pub(super) merge: MergeTail,
}

/// Most cells `cover` takes: it holds a similarity for each pair.
const COVER_MOST: usize = 1024;

impl Compressor for Selector {
    fn id(&self) -> String {
        let Self { choice, quota, merge } = self;
        let tail = format!("quota={quota},merge={}", merge.beta);
        match choice {
            Choice::Div => format!("div:{tail}"),
            Choice::DivCentred => format!("div-c:{tail}"),
            Choice::Energy { weighed } => format!("energy:weight={},{tail}", u8::from(*weighed)),
            Choice::Cover { tau, weighed } => format!("cover:tau={tau},weight={},{tail}", u8::from(*weighed)),
            Choice::Stratified => format!("stratified:merge={}", merge.beta),
            Choice::Random { seed } => format!("random:seed={seed}"),
        }
    }

    fn plan(&self, layout: &Layout, budget: usize) -> Result<Plan> {
        at_least_one(budget)?;
        let cells = layout.cells();
        if budget >= cells {
            return Ok(Plan::full(layout));
        }
        match self.choice {
            Choice::Cover { .. } if cells > COVER_MOST => Err(crate::Error::BadParameter {
                name: "compressor",
                value: "cover".into(),
                reason: format!("{cells} cells in a tile, {COVER_MOST} are the most it compares; use div-c"),
            }),
            Choice::Stratified => {
                let (columns, rows) = target_grid(layout, budget);
                Ok(Plan::scattered(layout, columns * rows))
            }
            _ => Ok(Plan::scattered(layout, budget)),
        }
    }

    fn apply(&self, rows: &Rows<'_>, plan: &Plan) -> Result<VisualTokens> {
        plan.check(rows.layout())?;
        if plan.is_full() {
            return Ok(VisualTokens::full(rows.embedding(), *rows.layout()));
        }
        let mut kept = self.choose(rows, plan.cells());
        kept.sort_unstable();
        let made = if self.merge.is_on() {
            merge_tail(rows, &kept, self.merge)
        } else {
            kept.into_iter().map(Made::kept).collect()
        };
        VisualTokens::assemble(rows, made, None)
    }
}

impl Selector {
    /// `k` cells, in the order they are chosen.
    fn choose(&self, rows: &Rows<'_>, k: usize) -> Vec<usize> {
        match self.choice {
            Choice::Random { seed } => return baseline::random(rows.layout().cells(), k, seed),
            Choice::Stratified => return baseline::stratified(rows, k),
            _ => {}
        }
        let means = Means::new(rows);
        let distinct = means.distinctiveness(rows);
        let first = quota::reserve(rows.layout(), &distinct, k, self.quota);
        match self.choice {
            Choice::Div => max_min::pick(&means.directions(rows), &distinct, false, k, &first),
            Choice::DivCentred => max_min::pick(&means.centred_directions(rows), &distinct, true, k, &first),
            Choice::Energy { weighed } => {
                energy::pick(&means.centred(rows), weighed.then_some(&distinct[..]), k, &first)
            }
            Choice::Cover { tau, weighed } => {
                let weights =
                    if weighed { cover::smooth(rows.layout(), &distinct) } else { vec![1.0; rows.layout().cells()] };
                cover::pick(&means.directions(rows), &weights, tau, k, &first)
            }
            Choice::Random { .. } | Choice::Stratified => Vec::new(),
        }
    }
}
