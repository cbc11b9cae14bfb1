//! How the rows of one chunk lie: cells of a grid, breaks after grid rows, rows before and behind.

use crate::embedding::Grid;
use crate::error::{Error, Result};
use crate::units::TokenCount;

/// Projectors whose rows are answers to learned queries: their number can look like a grid, but row and place have nothing to
/// do with each other.
const QUERY_PROJECTORS: [&str; 2] = ["resampler", "deepseekocr2"];

/// Whether the rows of a projector type (`clip.projector_type`) stand for places on the picture.
#[must_use]
pub fn has_raster_rows(projector_type: &str) -> bool {
    !QUERY_PROJECTORS.contains(&projector_type)
}

/// A grid of cells inside a chunk, checked against the chunk's number of rows. Cells are counted in raster order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    grid: Grid,
    /// Whether the last grid row has its breaks too.
    last_break: bool,
}

impl Layout {
    /// The layout of a chunk of `rows` rows that lies as `grid` says.
    ///
    /// # Errors
    /// [`Error::UnknownLayout`] where the grid is not known, or does not account for every row.
    pub fn of(grid: Grid, rows: TokenCount) -> Result<Self> {
        let unknown = |reason: String| Error::UnknownLayout { rows: rows.get(), reason };
        if !grid.is_known() {
            return Err(unknown("the projector gives no grid for them".into()));
        }
        let cells = u128::from(grid.columns) * u128::from(grid.rows);
        let around = u128::from(grid.lead) + u128::from(grid.trail);
        let breaks = u128::from(grid.row_breaks);
        let all = u128::from(grid.rows) * breaks;
        let n = rows.get() as u128;
        let last_break = n == cells + around + all;
        if !last_break && n != cells + around + all - breaks {
            return Err(unknown(format!(
                "{} x {} cells, {around} around them and {breaks} after each grid row do not add up to them",
                grid.columns, grid.rows
            )));
        }
        Ok(Self { grid, last_break: last_break && breaks > 0 })
    }

    /// The grid it was made from.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Columns of cells.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.grid.columns as usize
    }

    /// Rows of cells.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.grid.rows as usize
    }

    /// Number of cells: what a budget is compared with.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.columns() * self.rows()
    }

    /// Embedding rows, separators included.
    #[must_use]
    pub fn total(&self) -> usize {
        let breaks = self.rows() * self.grid.row_breaks as usize;
        let missing = if self.last_break { 0 } else { self.grid.row_breaks as usize };
        self.lead() + self.cells() + breaks - missing + self.trail()
    }

    /// Embedding rows before the grid.
    #[must_use]
    pub fn lead(&self) -> usize {
        self.grid.lead as usize
    }

    /// Embedding rows behind the grid.
    #[must_use]
    pub fn trail(&self) -> usize {
        self.grid.trail as usize
    }

    /// Separator rows after each grid row.
    #[must_use]
    pub fn row_breaks(&self) -> usize {
        self.grid.row_breaks as usize
    }

    /// Whether the last grid row is followed by its separators too.
    #[must_use]
    pub fn breaks_after_last(&self) -> bool {
        self.last_break
    }

    /// The embedding row of a cell.
    #[must_use]
    pub fn row_of(&self, cell: usize) -> usize {
        self.lead() + cell + (cell / self.columns()) * self.row_breaks()
    }

    /// Column and row of a cell.
    #[must_use]
    pub fn place(&self, cell: usize) -> (usize, usize) {
        (cell % self.columns(), cell / self.columns())
    }

    /// Cells in the larger of the two directions between two cells.
    #[must_use]
    pub fn distance(&self, a: usize, b: usize) -> usize {
        let ((ax, ay), (bx, by)) = (self.place(a), self.place(b));
        ax.abs_diff(bx).max(ay.abs_diff(by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(columns: u32, rows: u32, row_breaks: u32, lead: u32, trail: u32) -> Grid {
        Grid { columns, rows, row_breaks, lead, trail }
    }

    #[test]
    fn every_row_is_accounted_for() {
        let plain = Layout::of(grid(4, 3, 0, 0, 0), TokenCount(12)).unwrap();
        assert_eq!((plain.total(), plain.row_of(5), plain.breaks_after_last()), (12, 5, false));
        // Pixtral: a break between grid rows
        let between = Layout::of(grid(4, 3, 1, 0, 0), TokenCount(14)).unwrap();
        assert_eq!((between.total(), between.row_of(4), between.row_of(11)), (14, 5, 13));
        // Hunyuan: first and last row, a break after each grid row
        let around = Layout::of(grid(4, 3, 1, 1, 1), TokenCount(17)).unwrap();
        assert_eq!(
            (around.total(), around.row_of(0), around.row_of(11), around.breaks_after_last()),
            (17, 1, 14, true)
        );
    }

    #[test]
    fn a_layout_that_does_not_add_up_is_refused() {
        for (g, n) in [
            (grid(0, 0, 0, 0, 0), 64),
            (grid(4, 3, 0, 0, 0), 13),
            (grid(4, 3, 1, 0, 0), 13),
            (grid(4, 3, 1, 0, 0), 16),
            (grid(u32::MAX, u32::MAX, u32::MAX, 0, 0), 1),
        ] {
            let error = Layout::of(g, TokenCount(n)).unwrap_err();
            assert_eq!(error.code(), "layout-unknown", "{g:?} {n}: {error}");
        }
        assert!(!has_raster_rows("resampler") && has_raster_rows("mlp"));
    }
}
