//! The prompt as typed items, and how much of it the KV cache already holds.

use std::sync::Arc;

use super::encoded::EncodedPicture;
use crate::embedding::{EmbeddingKey, KeyBuilder};
use crate::error::Result;
use crate::llama::{Position, Token};
use crate::mtmd::{Chunk, ImageChunk, Prepared};
use crate::units::{PosCount, TokenCount};

/// One image chunk of a picture in the prompt.
#[derive(Debug, Clone)]
pub(super) struct ImageItem {
    /// Content hash of the picture.
    pub(super) picture: u128,
    /// Which picture of the prompt it belongs to.
    pub(super) index: usize,
    pub(super) source: Chunks,
    pub(super) chunk: usize,
    pub(super) image: ImageChunk,
}

/// Where a picture's chunks come from.
#[derive(Debug, Clone)]
pub(super) enum Chunks {
    /// Prepared, to be encoded.
    Prepared(Arc<Prepared>),
    /// Encoded elsewhere.
    Encoded(EncodedPicture),
}

impl Chunks {
    /// Whether both are the same object, or the same file.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Prepared(a), Self::Prepared(b)) => Arc::ptr_eq(a, b),
            (Self::Encoded(a), Self::Encoded(b)) => a.content_hash() == b.content_hash(),
            _ => false,
        }
    }

    fn list(&self) -> Vec<Chunk> {
        match self {
            Self::Prepared(prepared) => prepared.chunks().to_vec(),
            Self::Encoded(picture) => picture.chunks(),
        }
    }
}

impl ImageItem {
    /// Decoder positions of its rows when the first one stands at `start`.
    pub(super) fn decoder_positions(&self, start: i32) -> Result<Vec<Position>> {
        match &self.source {
            Chunks::Prepared(prepared) => prepared.decoder_positions(self.chunk, start),
            Chunks::Encoded(picture) => Ok(picture.decoder_positions(self.chunk, start)),
        }
    }

    /// The name of its rows. `None` where they cannot be named.
    pub(super) fn key(&self) -> Result<Option<EmbeddingKey>> {
        match &self.source {
            Chunks::Prepared(prepared) => Ok(prepared.wanted(self.chunk, b"")?.map(|w| w.key)),
            Chunks::Encoded(picture) => {
                let mut key = KeyBuilder::new("llava encoded picture");
                Ok(Some(key.hash("content", picture.content_hash()).number("chunk", self.chunk as u64).finish()))
            }
        }
    }
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
pub(super) fn push_picture(items: &mut Vec<Item>, picture: u128, index: usize, chunks: &Chunks) {
    for (chunk, content) in chunks.list().into_iter().enumerate() {
        match content {
            Chunk::Text(tokens) => items.extend(tokens.into_iter().map(Item::Token)),
            Chunk::Image(image) => {
                let source = chunks.clone();
                items.push(Item::Image(Arc::new(ImageItem { picture, index, source, chunk, image })));
            }
        }
    }
}

/// One image chunk of a picture as an item. `None` where the picture has no such chunk.
pub(super) fn image_item(picture: u128, index: usize, chunks: &Chunks, chunk: usize) -> Option<Item> {
    let Chunk::Image(image) = chunks.list().into_iter().nth(chunk)? else { return None };
    Some(Item::Image(Arc::new(ImageItem { picture, index, source: chunks.clone(), chunk, image })))
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
