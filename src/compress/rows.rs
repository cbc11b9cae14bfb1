//! The rows of one tile as compressors see them.

use super::layout::Layout;
use crate::embedding::Embedding;
use crate::error::{Error, Result};

/// An embedding with its layout. Rows may be wider than what similarity is computed on: models with DeepStack carry further
/// features behind the main ones.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    embedding: &'a Embedding,
    layout: Layout,
    main: usize,
}

impl<'a> Rows<'a> {
    /// Rows whose first `main` floats decide (the text model's `n_embd`); whole rows move.
    ///
    /// # Errors
    /// [`Error::UnknownLayout`] where the layout has another number of rows, [`Error::BadParameter`] for a `main` that does not
    /// divide the width.
    pub fn new(embedding: &'a Embedding, layout: Layout, main: usize) -> Result<Self> {
        let rows = embedding.rows().get();
        if layout.total() != rows {
            return Err(Error::UnknownLayout { rows, reason: format!("the layout has {}", layout.total()) });
        }
        if main == 0 || !embedding.width().is_multiple_of(main) {
            return Err(Error::BadParameter {
                name: "main width",
                value: main.to_string(),
                reason: format!("rows of {} floats are no whole number of it", embedding.width()),
            });
        }
        Ok(Self { embedding, layout, main })
    }

    /// The embedding.
    #[must_use]
    pub fn embedding(&self) -> &'a Embedding {
        self.embedding
    }

    /// How its rows lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Floats that similarity is computed on.
    #[must_use]
    pub fn main(&self) -> usize {
        self.main
    }

    /// All floats of a cell.
    pub(super) fn cell(&self, cell: usize) -> &'a [f32] {
        self.embedding.row(self.layout.row_of(cell))
    }

    /// The floats of a cell that decide.
    pub(super) fn features(&self, cell: usize) -> &'a [f32] {
        &self.cell(cell)[..self.main]
    }
}
