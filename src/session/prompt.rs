//! The prompt as typed items, and how much of it the KV cache already holds.

use std::sync::Arc;

use crate::llama::Token;
use crate::mtmd::{Chunk, ImageChunk, Prepared};
use crate::units::{PosCount, TokenCount};

/// One image chunk of a picture in the prompt.
#[derive(Debug, Clone)]
pub(super) struct ImageItem {
    /// Content hash of the picture.
    pub(super) picture: u128,
    /// Which picture of the prompt it belongs to.
    pub(super) index: usize,
    pub(super) prepared: Arc<Prepared>,
    pub(super) chunk: usize,
    pub(super) image: ImageChunk,
}

/// A token, or a tile's rows.
#[derive(Debug, Clone)]
pub(super) enum Item {
    Token(Token),
    Image(Arc<ImageItem>),
}

impl Item {
    pub(super) fn tokens(&self) -> TokenCount {
        match self {
            Item::Token(_) => TokenCount(1),
            Item::Image(item) => item.image.tokens,
        }
    }

    pub(super) fn positions(&self) -> PosCount {
        match self {
            Item::Token(_) => PosCount(1),
            Item::Image(item) => item.image.positions,
        }
    }

    /// Whether both put the same thing into the KV cache, given that all before them is the same.
    fn same(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Token(a), Item::Token(b)) => a == b,
            (Item::Image(a), Item::Image(b)) => a.picture == b.picture && a.chunk == b.chunk && a.image == b.image,
            _ => false,
        }
    }
}

/// Appends a picture's chunks.
pub(super) fn push_picture(items: &mut Vec<Item>, picture: u128, index: usize, prepared: &Arc<Prepared>) {
    for (chunk, content) in prepared.chunks().iter().enumerate() {
        match content {
            Chunk::Text(tokens) => items.extend(tokens.iter().map(|&t| Item::Token(t))),
            Chunk::Image(_) => items.extend(image_item(picture, index, prepared, chunk)),
        }
    }
}

/// One image chunk of a picture as an item. `None` where the picture has no such chunk.
pub(super) fn image_item(picture: u128, index: usize, prepared: &Arc<Prepared>, chunk: usize) -> Option<Item> {
    let Chunk::Image(image) = prepared.chunks().get(chunk)? else { return None };
    let prepared = Arc::clone(prepared);
    Some(Item::Image(Arc::new(ImageItem { picture, index, prepared, chunk, image: image.clone() })))
}

/// Length of the longest common beginning.
pub(super) fn common_prefix(live: &[Item], wanted: &[Item]) -> usize {
    live.iter().zip(wanted).take_while(|(a, b)| a.same(b)).count()
}

/// Tokens of all items.
pub(super) fn count_tokens(items: &[Item]) -> TokenCount {
    items.iter().map(Item::tokens).sum()
}

/// Positions of all items.
pub(super) fn count_positions(items: &[Item]) -> PosCount {
    items.iter().map(Item::positions).sum()
}
