//! What to decode next: tokens and embedding rows with their positions, as plain Rust values.
//!
//! The native batch is filled from this one inside [`super::Context::decode`], after every entry has been checked against
//! the context. So a batch needs no native memory of its own and cannot outlive any.

use super::vocab::Token;

/// Position of an entry: `t` alone counts on plain RoPE; M-RoPE rotates by all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Temporal (or only) position.
    pub t: i32,
    /// Row.
    pub y: i32,
    /// Column.
    pub x: i32,
    /// Fourth section, used by few models.
    pub z: i32,
}

impl Position {
    /// The position of a text token: the same in every section.
    #[must_use]
    pub fn text(position: i32) -> Self {
        Self { t: position, y: position, x: position, z: position }
    }

    pub(crate) fn sections(self) -> [i32; 4] {
        [self.t, self.y, self.x, self.z]
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Content<'a> {
    Token(Token),
    Row(&'a [f32]),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) content: Content<'a>,
    pub(super) position: Position,
    pub(super) sequence: i32,
    pub(super) logits: bool,
}

/// Entries to decode together, in order. Rows are borrowed until they are decoded:
///
/// ```compile_fail,E0505
/// use llava::llama::{Batch, Position};
/// let rows = vec![0.0_f32; 64];
/// let mut batch = Batch::new();
/// batch.push_row(&rows, Position::text(0), 0, true);
/// drop(rows);
/// assert_eq!(batch.len(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch<'a> {
    pub(super) entries: Vec<Entry<'a>>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text token; `logits` asks for its output distribution.
    pub fn push_token(&mut self, token: Token, position: i32, sequence: i32, logits: bool) -> &mut Self {
        let position = Position::text(position);
        self.entries.push(Entry { content: Content::Token(token), position, sequence, logits });
        self
    }

    /// Adds an embedding row, as wide as [`super::Model::n_embd_input`].
    pub fn push_row(&mut self, row: &'a [f32], position: Position, sequence: i32, logits: bool) -> &mut Self {
        self.entries.push(Entry { content: Content::Row(row), position, sequence, logits });
        self
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
