//! Pictures of several tiles: how many rows each may keep. Every tile is compressed for itself.

use rayon::prelude::*;

use super::rows::Rows;
use super::select::energy_curve;
use super::tokens::VisualTokens;
use super::{Compressor, Result};

/// Fewest rows of a tile, as long as the budget allows it.
const LEAST: usize = 8;

/// One tile of a picture.
#[derive(Debug, Clone, Copy)]
pub struct Tile<'a> {
    /// Its rows.
    pub rows: Rows<'a>,
    /// Whether it shows the whole picture, beside tiles that show parts of it.
    pub overview: bool,
}

/// Cells that each tile may keep when all together may keep `budget`; at least one each.
///
/// The overview is compressed half as much as the whole, because it carries the layout of the picture. The others share the
/// rest by cells x (0.5 + 0.5 x relative residual energy): what their fair share of picks would leave unexplained, per cell,
/// relative to the tile with most of it. None gets fewer than 8 while there is enough for that.
#[must_use]
pub fn share_budget(tiles: &[Tile<'_>], budget: usize) -> Vec<usize> {
    let cells: Vec<usize> = tiles.iter().map(|t| t.rows.layout().cells()).collect();
    let all: usize = cells.iter().sum();
    if budget >= all {
        return cells;
    }
    if let [_] = tiles {
        return vec![budget.max(1)];
    }
    let fair = budget as f64 / all as f64;
    let floor = LEAST.min(budget / tiles.len()).max(1);
    let mut wanted: Vec<f64> = tiles
        .par_iter()
        .zip(&cells)
        .map(|(tile, &n)| {
            if tile.overview {
                return 0.0;
            }
            let picks = ((n as f64 * fair) as usize).max(1);
            energy_curve(&tile.rows, 1.0, picks).residual() / n as f64
        })
        .collect();
    let most = wanted.iter().copied().fold(0.0, f64::max);
    for ((want, tile), &n) in wanted.iter_mut().zip(tiles).zip(&cells) {
        let relative = if most > 0.0 { *want / most } else { 1.0 };
        *want = if tile.overview { 0.0 } else { n as f64 * (0.5 + 0.5 * relative) };
    }
    let mut shares: Vec<usize> = cells.iter().map(|&n| floor.min(n)).collect();
    let mut left = budget.saturating_sub(shares.iter().sum());
    for (i, _) in tiles.iter().enumerate().filter(|(_, t)| t.overview) {
        let target = ((cells[i] as f64 * fair * 2.0).round() as usize).min(cells[i]);
        let more = target.saturating_sub(shares[i]).min(left);
        shares[i] += more;
        left -= more;
    }
    if wanted.iter().all(|&w| w == 0.0) {
        wanted = cells.iter().map(|&n| n as f64).collect();
    }
    // one cell at a time to whoever is farthest below its due: no tile can overflow, and no rounding is left over
    let due: f64 = wanted.iter().sum();
    let pool: usize = left + shares.iter().zip(&wanted).filter(|(_, w)| **w > 0.0).map(|(s, _)| s).sum::<usize>();
    while left > 0 {
        let lack = |i: usize| wanted[i] / due * pool as f64 - shares[i] as f64;
        let open = (0..tiles.len()).filter(|&i| shares[i] < cells[i] && wanted[i] > 0.0);
        let Some(next) = open.reduce(|best, i| if lack(i) > lack(best) { i } else { best }) else { break };
        shares[next] += 1;
        left -= 1;
    }
    // nobody else can take more: the overview can
    for (share, &n) in shares.iter_mut().zip(&cells) {
        let more = (n - *share).min(left);
        *share += more;
        left -= more;
    }
    shares
}

/// Compresses every tile to its budget, in order.
///
/// # Errors
/// Those of [`Compressor::plan`] and [`Compressor::apply`].
pub fn compress_tiles(compressor: &dyn Compressor, tiles: &[Tile<'_>], budgets: &[usize]) -> Result<Vec<VisualTokens>> {
    tiles
        .par_iter()
        .zip(budgets)
        .map(|(tile, &budget)| {
            let plan = compressor.plan(tile.rows.layout(), budget)?;
            compressor.apply(&tile.rows, &plan)
        })
        .collect()
}
