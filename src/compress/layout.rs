//! How the rows of one chunk lie: cells of a grid, breaks after grid rows, rows before and behind.

use crate::embedding::Grid;
use crate::error::{Error, Result};
use crate::units::TokenCount;

/// Projectors that put a picture of several tiles into the prompt with the overview in front.
const OVERVIEW_FIRST: [&str; 2] = ["resampler", "minicpmv4_6"];

/// Projectors that put the tiles first and the overview behind them. LLaVA's own (`mlp` and its like, `adapter` of GLM-Edge) tile
/// where their file names resolutions.
const OVERVIEW_LAST: [&str; 13] = [
    "mlp",
    "ldp",
    "ldpv2",
    "cogvlm",
    "janus_pro",
    "adapter",
    "idefics3",
    "llama4",
    "step3vl",
    "internvl",
    "lfm2",
    "deepseekocr",
    "deepseekocr2",
];

/// Which tile of a picture shows the whole of it, beside tiles that show parts. `None` for a picture of one tile, and for projectors
/// (`clip.projector_type`) that cut none. As llama.cpp's `tools/mtmd/mtmd.cpp` orders them (`ov_img_first` of each family); Granite's
/// overview and tiles share a chunk and count as one tile.
#[must_use]
pub fn overview(projector_type: &str, tiles: usize) -> Option<usize> {
    let last = tiles.checked_sub(1).filter(|&last| last > 0)?;
    if OVERVIEW_FIRST.contains(&projector_type) {
        return Some(0);
    }
    OVERVIEW_LAST.contains(&projector_type).then_some(last)
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

    /// The cell of an embedding row; `None` for a separator, and where there is no such row.
    #[must_use]
    pub fn cell_of(&self, row: usize) -> Option<usize> {
        let behind_lead = row.checked_sub(self.lead())?;
        let stride = self.columns() + self.row_breaks();
        let (x, y) = (behind_lead % stride, behind_lead / stride);
        (x < self.columns() && y < self.rows()).then_some(y * self.columns() + x)
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
        for layout in [plain, between, around] {
            let cells: Vec<usize> = (0..layout.total() + 3).filter_map(|row| layout.cell_of(row)).collect();
            assert!(cells.iter().copied().eq(0..layout.cells()));
            assert!(cells.iter().all(|&cell| layout.cell_of(layout.row_of(cell)) == Some(cell)));
        }
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
    }

    #[test]
    fn the_overview_stands_where_the_family_puts_it() {
        for first in ["resampler", "minicpmv4_6"] {
            assert_eq!((overview(first, 5), overview(first, 1)), (Some(0), None));
        }
        for last in ["mlp", "idefics3", "internvl", "lfm2", "llama4", "step3vl", "deepseekocr", "deepseekocr2"] {
            assert_eq!((overview(last, 5), overview(last, 2), overview(last, 1)), (Some(4), Some(1), None), "{last}");
        }
        // one tile of any size
        for single in ["qwen2vl_merger", "qwen3vl_merger", "gemma3", "pixtral", "granite4_vision", "hunyuanvl"] {
            assert_eq!(overview(single, 2), None, "{single}");
        }
        assert_eq!(overview("mlp", 0), None);
    }
}
