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
    /// What is left of its rows; `None`: all.
    pub(super) fewer: Option<Fewer>,
}

/// What compression leaves of an image item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fewer {
    pub(super) recipe: Recipe,
    /// Rows; as long as they are not known, the fewest there can be.
    pub(super) tokens: TokenCount,
    /// By how much it advances the position.
    pub(super) positions: PosCount,
}

/// How rows become fewer: equal recipes on equal rows give equal rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Recipe {
    /// Compressor, share of energy, positions, which tile is the overview.
    pub(super) method: Arc<str>,
    /// Cells of the whole picture that are kept at least.
    pub(super) least: usize,
}

/// Whether items that differ in the number of rows they keep can stand for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// No.
    Exact,
    /// One that keeps at least as much can.
    AtLeast,
}

impl Match {
    /// Whether a picture that was decoded as `live` can stay where `wanted` is asked for.
    fn allows(self, live: Option<&Fewer>, wanted: Option<&Fewer>) -> bool {
        match (live, wanted) {
            (None, None) => true,
            (Some(live), Some(wanted)) => {
                let (live, wanted) = (&live.recipe, &wanted.recipe);
                let more = self == Self::AtLeast && live.least >= wanted.least;
                live.method == wanted.method && (live.least == wanted.least || more)
            }
            (None, Some(_)) => self == Self::AtLeast,
            (Some(_), None) => false,
        }
    }
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
    /// Rows the text model is given.
    pub(super) fn tokens(&self) -> TokenCount {
        self.fewer.as_ref().map_or(self.image.tokens, |f| f.tokens)
    }

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
            Item::Image(item) => item.tokens(),
        }
    }

    pub(super) fn positions(&self) -> PosCount {
        match self {
            Item::Token(_) => PosCount(1),
            Item::Image(item) => item.fewer.as_ref().map_or(item.image.positions, |f| f.positions),
        }
    }

    /// Whether what this one put into the KV cache serves for `wanted`, given that all before them does.
    fn serves(&self, wanted: &Item, by: Match) -> bool {
        match (self, wanted) {
            (Item::Token(a), Item::Token(b)) => a == b,
            (Item::Image(a), Item::Image(b)) => {
                let same = a.picture == b.picture && a.chunk == b.chunk && a.image == b.image;
                same && by.allows(a.fewer.as_ref(), b.fewer.as_ref())
            }
            _ => false,
        }
    }

    /// Takes over how many rows are left of an image item.
    pub(super) fn set_fewer(&mut self, fewer: Option<Fewer>) {
        if let Item::Image(image) = self
            && image.fewer != fewer
        {
            *image = Arc::new(ImageItem { fewer, ..ImageItem::clone(image) });
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
                items.push(Item::Image(Arc::new(ImageItem { picture, index, source, chunk, image, fewer: None })));
            }
        }
    }
}

/// One image chunk of a picture as an item. `None` where the picture has no such chunk.
pub(super) fn image_item(picture: u128, index: usize, chunks: &Chunks, chunk: usize) -> Option<Item> {
    let Chunk::Image(image) = chunks.list().into_iter().nth(chunk)? else { return None };
    let source = chunks.clone();
    Some(Item::Image(Arc::new(ImageItem { picture, index, source, chunk, image, fewer: None })))
}

/// Length of the longest common beginning. Pictures in it are wanted as they are live from then on.
pub(super) fn common_prefix(live: &[Item], wanted: &mut [Item], by: Match) -> usize {
    let n = live.iter().zip(&*wanted).take_while(|(live, wanted)| live.serves(wanted, by)).count();
    for (live, wanted) in live.iter().zip(&mut wanted[..n]) {
        if let Item::Image(image) = live {
            wanted.set_fewer(image.fewer.clone());
        }
    }
    n
}

/// Pictures of these items: index of the picture, and where its tiles stand.
pub(super) fn pictures(items: &[Item]) -> Vec<(usize, Vec<usize>)> {
    let mut found: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let Item::Image(image) = item else { continue };
        match found.last_mut() {
            Some((index, tiles)) if *index == image.index => tiles.push(at),
            _ => found.push((image.index, vec![at])),
        }
    }
    found
}

/// Tokens of all items.
pub(super) fn count_tokens(items: &[Item]) -> TokenCount {
    items.iter().map(Item::tokens).sum()
}

/// Positions of all items.
pub(super) fn count_positions(items: &[Item]) -> PosCount {
    items.iter().map(Item::positions).sum()
}
