//! How many rows come out, and on which grid, before any row is looked at.

use super::layout::Layout;
use crate::error::{Error, Result};

/// What a tile will turn into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    source: Layout,
    cells: usize,
    grid: Option<(usize, usize)>,
}

impl Plan {
    /// The plan that changes nothing.
    #[must_use]
    pub fn full(source: &Layout) -> Self {
        Self { source: *source, cells: source.cells(), grid: Some((source.columns(), source.rows())) }
    }

    /// `cells` survivors that lie where they lay.
    pub(super) fn scattered(source: &Layout, cells: usize) -> Self {
        Self { source: *source, cells, grid: None }
    }

    /// A smaller grid of `columns` x `rows`.
    pub(super) fn gridded(source: &Layout, (columns, rows): (usize, usize)) -> Self {
        Self { source: *source, cells: columns * rows, grid: Some((columns, rows)) }
    }

    /// The layout it was made for.
    #[must_use]
    pub fn source(&self) -> &Layout {
        &self.source
    }

    /// Cells that come out, separators not counted.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// Columns and rows that come out; `None` where survivors lie scattered over the source's grid.
    #[must_use]
    pub fn grid(&self) -> Option<(usize, usize)> {
        self.grid
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.cells == self.source.cells()
    }

    /// The most embedding rows that can come out, separators included. Exact where the source has no row breaks.
    #[must_use]
    pub fn rows_at_most(&self) -> usize {
        if self.is_full() {
            return self.source.total();
        }
        let grid_rows = self.grid.map_or(self.source.rows().min(self.cells), |(_, rows)| rows);
        self.source.lead() + self.cells + grid_rows * self.source.row_breaks() + self.source.trail()
    }

    /// Refuses rows of another layout.
    pub(super) fn check(&self, layout: &Layout) -> Result<()> {
        if self.source == *layout {
            return Ok(());
        }
        Err(Error::BadParameter {
            name: "plan",
            value: format!("for {} x {} cells", self.source.columns(), self.source.rows()),
            reason: format!("the rows lie on {} x {}", layout.columns(), layout.rows()),
        })
    }
}

/// Refuses a budget of no cells.
pub(super) fn at_least_one(budget: usize) -> Result<()> {
    if budget > 0 {
        return Ok(());
    }
    Err(Error::BadParameter { name: "visual tokens", value: "0".into(), reason: "at least 1".into() })
}

/// The grid of at most `budget` cells that wastes fewest of them and is least distorted, no finer than the source in either
/// direction. Of two equally good ones, the one with fewer columns.
///
/// Cost of a grid: (budget / cells)^2 x distortion, where distortion is the ratio of the two scale factors. Whole numbers only, so
/// that every machine chooses the same.
pub(super) fn target_grid(layout: &Layout, budget: usize) -> (usize, usize) {
    let (w, h) = (layout.columns() as u128, layout.rows() as u128);
    let budget = budget.max(1) as u128;
    let mut best: Option<((u128, u128), (u128, u128))> = None;
    for columns in 1..=w.min(budget) {
        let rows = (budget / columns).min(h);
        // the finest number of rows wastes least; one that keeps the aspect may be better than it
        let square = ((columns * h + w / 2) / w).clamp(1, rows);
        for rows in [square, rows] {
            let (a, b) = (columns * h, rows * w);
            let cost = (a.max(b), (columns * rows) * (columns * rows) * a.min(b));
            let better = best.is_none_or(|(c, _)| cost.0 * c.1 < c.0 * cost.1);
            if better {
                best = Some((cost, (columns, rows)));
            }
        }
    }
    let (_, (columns, rows)) = best.unwrap_or(((1, 1), (1, 1)));
    (usize::try_from(columns).unwrap_or(1), usize::try_from(rows).unwrap_or(1))
}

/// Where bin `index` of `bins` begins and ends along `n` cells; neighbours may share a cell where `n / bins` is not whole.
pub(super) fn overlapping_bin(index: usize, bins: usize, n: usize) -> (usize, usize) {
    (index * n / bins, ((index + 1) * n).div_ceil(bins))
}

/// Where bin `index` of `bins` begins and ends along `n` cells; every cell is in one bin.
pub(super) fn bin(index: usize, bins: usize, n: usize) -> (usize, usize) {
    (index * n / bins, (index + 1) * n / bins)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::Grid;
    use crate::units::TokenCount;

    fn layout(columns: u32, rows: u32) -> Layout {
        let grid = Grid { columns, rows, ..Grid::default() };
        Layout::of(grid, TokenCount((columns * rows) as usize)).unwrap()
    }

    #[test]
    fn target_grids_keep_the_aspect_and_use_the_budget() {
        assert_eq!(target_grid(&layout(14, 14), 64), (8, 8));
        assert_eq!(target_grid(&layout(14, 14), 49), (7, 7));
        assert_eq!(target_grid(&layout(14, 14), 196), (14, 14));
        assert_eq!(target_grid(&layout(14, 14), 1), (1, 1));
        assert_eq!(target_grid(&layout(24, 24), 64), (8, 8));
        assert_eq!(target_grid(&layout(30, 10), 75), (15, 5));
        assert_eq!(target_grid(&layout(10, 30), 75), (5, 15));
        assert_eq!(target_grid(&layout(1, 40), 10), (1, 10));
        for budget in 1..=196 {
            let (w, h) = target_grid(&layout(14, 14), budget);
            assert!(w * h <= budget && w <= 14 && h <= 14);
            assert!(w * h * 4 >= budget * 3, "{budget}: {w} x {h}");
        }
    }

    #[test]
    fn bins_cover_every_cell() {
        for n in 1..30 {
            for bins in 1..=n {
                let mut next = 0;
                for i in 0..bins {
                    let (lo, hi) = bin(i, bins, n);
                    assert!(lo == next && hi > lo);
                    next = hi;
                    let (wide_lo, wide_hi) = overlapping_bin(i, bins, n);
                    assert!(wide_lo == lo && (hi..=hi + 1).contains(&wide_hi));
                }
                assert_eq!(next, n);
            }
        }
        let all: Vec<_> = (0..8).map(|i| overlapping_bin(i, 8, 14)).collect();
        assert_eq!(all, [(0, 2), (1, 4), (3, 6), (5, 7), (7, 9), (8, 11), (10, 13), (12, 14)]);
    }
}
