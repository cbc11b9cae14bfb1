//! What comes out: rows, and which cells of the picture each of them stands for.

use std::ops::Range;

use super::layout::Layout;
use super::rows::Rows;
use crate::embedding::{Embedding, Grid};
use crate::error::Result;

/// A row to be put out: one survivor or an average.
#[derive(Debug, Clone)]
pub(super) struct Made {
    /// The cell whose place it takes.
    pub(super) anchor: usize,
    /// The cells it stands for, the anchor included, ascending.
    pub(super) members: Vec<u32>,
    /// Its floats; `None`: the anchor's own.
    pub(super) values: Option<Vec<f32>>,
}

impl Made {
    /// A cell that stays as it is and stands for itself.
    pub(super) fn kept(cell: usize) -> Self {
        Self { anchor: cell, members: vec![to_u32(cell)], values: None }
    }
}

pub(super) fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Neighbouring rows that were neighbours before: they move together when positions are restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Rows of the compressed tile.
    pub rows: Range<usize>,
    /// By how much their source rows stood farther from the tile's first row.
    pub shift: usize,
}

/// The rows a tile is decoded from, after compression.
#[derive(Debug, Clone, PartialEq)]
pub struct VisualTokens {
    embedding: Embedding,
    source: Layout,
    /// For each row, the embedding row of the source whose position it takes.
    anchors: Vec<u32>,
    /// `members[starts[i]..starts[i + 1]]` are the cells of row i; none for a separator.
    starts: Vec<u32>,
    members: Vec<u32>,
}

impl VisualTokens {
    /// All rows as they are: the embedding is shared, not copied.
    #[must_use]
    pub fn full(embedding: &Embedding, source: Layout) -> Self {
        let n = source.total();
        let mut starts = vec![0; n + 1];
        let cells = source.cells();
        for cell in 0..cells {
            starts[source.row_of(cell) + 1] = 1;
        }
        for i in 0..n {
            starts[i + 1] += starts[i];
        }
        Self {
            embedding: embedding.clone(),
            source,
            anchors: (0..to_u32(n)).collect(),
            starts,
            members: (0..to_u32(cells)).collect(),
        }
    }

    /// Rows in the order of their anchors, with the separators that still separate something. `grid`: columns and rows, where
    /// what comes out is a grid again.
    pub(super) fn assemble(rows: &Rows<'_>, mut made: Vec<Made>, grid: Option<(usize, usize)>) -> Result<Self> {
        made.sort_by_key(|m| m.anchor);
        let layout = *rows.layout();
        let embedding = rows.embedding();
        let mut out = Builder {
            values: Vec::with_capacity((made.len() + layout.lead() + layout.trail()) * embedding.width()),
            anchors: Vec::new(),
            starts: vec![0],
            members: Vec::new(),
        };
        for row in 0..layout.lead() {
            out.push(row, embedding.row(row), &[]);
        }
        let breaks = layout.row_breaks();
        for (i, m) in made.iter().enumerate() {
            let source = layout.row_of(m.anchor);
            out.push(source, m.values.as_deref().unwrap_or(embedding.row(source)), &m.members);
            let (_, y) = layout.place(m.anchor);
            let next = made.get(i + 1).map(|n| layout.place(n.anchor).1);
            let row_ends = next != Some(y);
            // the last grid row that is left has breaks where the last one of the source had
            let wanted = next.is_some() || (layout.breaks_after_last());
            if breaks > 0 && row_ends && wanted {
                let first = layout.row_of((y + 1) * layout.columns() - 1) + 1;
                for row in first..first + breaks {
                    out.push(row, embedding.row(row), &[]);
                }
            }
        }
        for row in layout.total() - layout.trail()..layout.total() {
            out.push(row, embedding.row(row), &[]);
        }
        let (columns, grid_rows) = grid.map_or((0, 0), |(w, h)| (to_u32(w), to_u32(h)));
        let shape = Grid { columns, rows: grid_rows, ..layout.grid() };
        let n = out.anchors.len();
        let embedding = Embedding::new(out.values, n, embedding.width(), shape)?;
        Ok(Self { embedding, source: layout, anchors: out.anchors, starts: out.starts, members: out.members })
    }

    /// The rows. Their grid has 0 columns where survivors lie scattered.
    #[must_use]
    pub fn embedding(&self) -> &Embedding {
        &self.embedding
    }

    /// How the rows lay before.
    #[must_use]
    pub fn source(&self) -> &Layout {
        &self.source
    }

    /// For each row, the row of the uncompressed tile whose position it takes; ascending.
    #[must_use]
    pub fn anchors(&self) -> &[u32] {
        &self.anchors
    }

    /// The cells a row stands for, ascending. Empty for a separator.
    ///
    /// # Panics
    /// Where there is no such row.
    #[must_use]
    pub fn members(&self, row: usize) -> &[u32] {
        &self.members[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// Rows that stand for cells: separators are not counted.
    #[must_use]
    pub fn cells(&self) -> usize {
        (0..self.anchors.len()).filter(|&row| !self.members(row).is_empty()).count()
    }

    /// Runs of rows that were neighbours before, first to last. Where positions are to be restored, the last one moves first.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (row, &anchor) in self.anchors.iter().enumerate() {
            let shift = anchor as usize - row;
            match runs.last_mut() {
                Some(run) if run.shift == shift => run.rows.end = row + 1,
                _ => runs.push(Run { rows: row..row + 1, shift }),
            }
        }
        runs
    }
}

struct Builder {
    values: Vec<f32>,
    anchors: Vec<u32>,
    starts: Vec<u32>,
    members: Vec<u32>,
}

impl Builder {
    fn push(&mut self, anchor: usize, values: &[f32], members: &[u32]) {
        self.values.extend_from_slice(values);
        self.anchors.push(to_u32(anchor));
        self.members.extend_from_slice(members);
        self.starts.push(to_u32(self.members.len()));
    }
}
