//! Rows of an encoded picture (or tile) and their grid.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::units::TokenCount;

/// How the rows of an embedding lie on a picture, in raster order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Grid {
    /// Columns; 0 where the layout is not a grid (resamplers) or is unknown.
    pub columns: u32,
    /// Rows; 0 likewise.
    pub rows: u32,
    /// Separator rows after each grid row inside the embedding; the last grid row may lack it.
    pub row_breaks: u32,
    /// Embedding rows before the grid.
    pub lead: u32,
    /// Embedding rows behind the grid.
    pub trail: u32,
}

impl Grid {
    /// Whether cells can be told from each other.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.columns > 0 && self.rows > 0
    }
}

/// Projectors whose rows are answers to learned queries: their number can look like a grid, but row and place have nothing to
/// do with each other.
const QUERY_PROJECTORS: [&str; 2] = ["resampler", "deepseekocr2"];

/// Whether the rows of a projector type (`clip.projector_type`) stand for places on the picture.
#[must_use]
pub fn has_raster_rows(projector_type: &str) -> bool {
    !QUERY_PROJECTORS.contains(&projector_type)
}

/// An encoded picture or tile: `[rows, width]` floats, row-major. Clones share the floats.
#[derive(Clone, PartialEq)]
pub struct Embedding {
    data: Arc<[f32]>,
    rows: usize,
    width: usize,
    grid: Grid,
}

impl Embedding {
    /// Wraps `rows` x `width` floats.
    ///
    /// # Errors
    /// [`Error::BadParameter`] where the lengths do not agree, [`Error::NonFinite`] where a value is NaN or infinite.
    pub fn new(data: Vec<f32>, rows: usize, width: usize, grid: Grid) -> Result<Self> {
        if rows == 0 || width == 0 || rows.checked_mul(width) != Some(data.len()) {
            return Err(Error::BadParameter {
                name: "embedding",
                value: format!("{} floats", data.len()),
                reason: format!("{rows} rows of {width}"),
            });
        }
        let count = data.iter().filter(|v| !v.is_finite()).count();
        if count > 0 {
            return Err(Error::NonFinite { count, rows, width, retried_in_f32: false });
        }
        Ok(Self { data: data.into(), rows, width, grid })
    }

    /// All floats, `[rows, width]`, row-major.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// One row.
    ///
    /// # Panics
    /// Where `index` is not below [`Embedding::rows`].
    #[must_use]
    pub fn row(&self, index: usize) -> &[f32] {
        assert!(index < self.rows, "row {index} of {}", self.rows);
        &self.data[index * self.width..(index + 1) * self.width]
    }

    /// Number of rows: visual tokens.
    #[must_use]
    pub fn rows(&self) -> TokenCount {
        TokenCount(self.rows)
    }

    /// Floats in a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Whether another clone of it is alive.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.data) > 1
    }

    /// How the rows lie on the picture.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.grid
    }
}

impl std::fmt::Debug for Embedding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedding")
            .field("rows", &self.rows)
            .field("width", &self.width)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_learned_queries_have_no_place() {
        assert!(!has_raster_rows("resampler") && has_raster_rows("mlp"));
    }

    #[test]
    fn lengths_must_agree_and_values_must_be_finite() {
        let grid = Grid { columns: 2, rows: 1, ..Grid::default() };
        let e = Embedding::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3, grid).unwrap();
        assert_eq!(e.row(1), [4.0, 5.0, 6.0]);
        assert_eq!(Embedding::new(vec![0.0; 5], 2, 3, grid).unwrap_err().code(), "bad-parameter");
        assert_eq!(Embedding::new(vec![], 0, 3, grid).unwrap_err().code(), "bad-parameter");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = Embedding::new(vec![0.0, bad, bad, 0.0], 2, 2, grid).unwrap_err();
            assert!(matches!(error, Error::NonFinite { count: 2, rows: 2, width: 2, .. }), "{error}");
        }
    }
}
