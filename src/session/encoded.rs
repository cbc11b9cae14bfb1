//! A picture that is encoded already: everything a text model needs of it, as one file, so that no projector has to be loaded.
//!
//! ```text
//! magic "LLAVAPIC", version, bytes of the body, XXH3-128 of the body, body:
//!   architecture and vocabulary of the text model, width of a row
//!   chunks: marker tokens; or grid, attention, positions, rows as f32
//! ```
//! All numbers are little-endian, all lists and texts are length-prefixed.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::bytes::{Reader, Writer, open, seal};
use super::message::Picture;
use crate::embedding::{Embedding, EmbeddingCache, Grid};
use crate::error::{Error, Result};
use crate::llama::{CancelToken, Model, Position, Token};
use crate::mtmd::{Chunk, ImageChunk, Prepared, Projector};
use crate::units::{PosCount, TokenCount};

const MAGIC: &[u8; 8] = b"LLAVAPIC";
const VERSION: u32 = 1;
/// Another place in the prompt, to see what depends on it.
const ELSEWHERE: i32 = 1000;

/// A picture with its rows. Clones share them.
#[derive(Clone, PartialEq)]
pub struct EncodedPicture(Arc<Content>);

#[derive(PartialEq)]
struct Content {
    hash: u128,
    architecture: String,
    n_vocab: usize,
    width: usize,
    chunks: Vec<EncodedChunk>,
}

#[derive(Debug, Clone, PartialEq)]
enum EncodedChunk {
    Text(Vec<Token>),
    Image(Box<EncodedTile>),
}

#[derive(Debug, Clone, PartialEq)]
struct EncodedTile {
    image: ImageChunk,
    rows: Embedding,
    /// Positions of the rows when the first one stands at 0.
    positions: Vec<Position>,
    /// Which of the four sections move with the place in the prompt.
    moves: [bool; 4],
}

impl std::fmt::Debug for EncodedPicture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EncodedPicture({:032x}, {} chunks, rows of {})", self.0.hash, self.0.chunks.len(), self.0.width)
    }
}

impl EncodedPicture {
    /// Encodes a picture, or takes its rows from a cache.
    ///
    /// # Errors
    /// Those of [`Projector::prepare`] and [`Projector::encode`]; [`Error::BadParameter`] for the few families whose pictures
    /// depend on what stands before them, so that no file can hold them.
    pub fn encode(
        projector: &Arc<Projector>,
        picture: &Picture,
        cache: Option<&EmbeddingCache>,
        cancel: &CancelToken,
    ) -> Result<Self> {
        let image = picture.image();
        let prepared = Arc::new(projector.prepare(image, TokenCount::ZERO, 0)?);
        let moved = projector.prepare_placeholder(image.width_px(), image.height_px(), TokenCount(7), 1)?;
        if moved.chunks() != prepared.chunks() {
            return Err(Error::BadParameter {
                name: "picture",
                value: projector.info().projector_type.clone(),
                reason: "pictures of this family depend on their place in the prompt and cannot be kept as a file"
                    .into(),
            });
        }
        let rows = super::encoder::rows(projector, cache, &prepared, cancel)?;
        let mut rows = rows.into_iter();
        let chunks = prepared
            .chunks()
            .iter()
            .enumerate()
            .map(|(index, chunk)| match chunk {
                Chunk::Text(tokens) => Ok(EncodedChunk::Text(tokens.clone())),
                Chunk::Image(image) => {
                    let rows = rows.next().ok_or_else(|| Error::Encode { reason: "a tile has no rows".into() })?;
                    let (positions, moves) = positions(&prepared, index)?;
                    Ok(EncodedChunk::Image(Box::new(EncodedTile { image: image.clone(), rows, positions, moves })))
                }
            })
            .collect::<Result<Vec<_>>>()?;
        let model = projector.model();
        let mut content = Content {
            hash: 0,
            architecture: model.architecture().to_owned(),
            n_vocab: model.vocab().n_tokens(),
            width: projector.info().width,
            chunks,
        };
        content.hash = xxh3_128(&body(&content));
        Ok(Self(Arc::new(content)))
    }

    /// The bytes of a file that [`EncodedPicture::from_bytes`] reads. They tell much about the picture.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        seal(MAGIC, VERSION, &body(&self.0))
    }

    /// Reads what [`EncodedPicture::to_bytes`] gave.
    ///
    /// # Errors
    /// [`Error::State`] for bytes that are something else, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let body = open(MAGIC, VERSION, bytes, "an encoded picture")?;
        let refuse = || Error::State { reason: "the encoded picture contradicts itself".into() };
        let mut content = parse(&mut Reader(body)).ok_or_else(refuse)?;
        content.hash = xxh3_128(body);
        Ok(Self(Arc::new(content)))
    }

    /// XXH3-128 of everything in it.
    #[must_use]
    pub fn content_hash(&self) -> u128 {
        self.0.hash
    }

    /// Whether a file that begins with these bytes says it is an encoded picture.
    #[must_use]
    pub fn is_beginning(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Visual tokens.
    #[must_use]
    pub fn visual_tokens(&self) -> TokenCount {
        let tokens = self.0.chunks.iter().map(|c| match c {
            EncodedChunk::Image(tile) => tile.image.tokens,
            EncodedChunk::Text(_) => TokenCount::ZERO,
        });
        tokens.sum()
    }

    /// Refuses a model that the picture was not encoded for.
    pub(super) fn check_fit(&self, model: &Model) -> Result<()> {
        let mine = (self.0.architecture.as_str(), self.0.n_vocab, self.0.width);
        let theirs = (model.architecture(), model.vocab().n_tokens(), model.n_embd_input());
        if mine == theirs {
            return Ok(());
        }
        Err(Error::State {
            reason: format!(
                "the picture was encoded for `{}` with {} tokens and rows of {}; this is `{}` with {} and {}",
                mine.0, mine.1, mine.2, theirs.0, theirs.1, theirs.2
            ),
        })
    }

    pub(super) fn chunks(&self) -> Vec<Chunk> {
        self.0
            .chunks
            .iter()
            .map(|c| match c {
                EncodedChunk::Text(tokens) => Chunk::Text(tokens.clone()),
                EncodedChunk::Image(tile) => Chunk::Image(tile.image.clone()),
            })
            .collect()
    }

    pub(super) fn rows(&self, chunk: usize) -> Option<&Embedding> {
        self.tile(chunk).map(|tile| &tile.rows)
    }

    pub(super) fn decoder_positions(&self, chunk: usize, start: i32) -> Vec<Position> {
        let Some(tile) = self.tile(chunk) else { return Vec::new() };
        let shift = |value: i32, moves: bool| if moves { value.saturating_add(start) } else { value };
        let [t, y, x, z] = tile.moves;
        let moved = tile.positions.iter().map(|p| Position {
            t: shift(p.t, t),
            y: shift(p.y, y),
            x: shift(p.x, x),
            z: shift(p.z, z),
        });
        moved.collect()
    }

    fn tile(&self, chunk: usize) -> Option<&EncodedTile> {
        match self.0.chunks.get(chunk)? {
            EncodedChunk::Image(tile) => Some(tile),
            EncodedChunk::Text(_) => None,
        }
    }
}

/// Positions at 0, and which sections move with the start. A section that does neither moves in no known way.
fn positions(prepared: &Prepared, chunk: usize) -> Result<(Vec<Position>, [bool; 4])> {
    let here = prepared.decoder_positions(chunk, 0)?;
    let there = prepared.decoder_positions(chunk, ELSEWHERE)?;
    let mut moves = [false; 4];
    for (section, moves) in moves.iter_mut().enumerate() {
        let by = |distance: i32| {
            here.iter().zip(&there).all(|(a, b)| b.sections()[section] - a.sections()[section] == distance)
        };
        *moves = by(ELSEWHERE);
        if !*moves && !by(0) {
            return Err(Error::BadParameter {
                name: "picture",
                value: prepared.projector().info().projector_type.clone(),
                reason: "positions of this family depend on the place in the prompt in a way that no file can hold"
                    .into(),
            });
        }
    }
    Ok((here, moves))
}

fn body(content: &Content) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(content.architecture.as_bytes());
    out.len(content.n_vocab);
    out.len(content.width);
    out.len(content.chunks.len());
    for chunk in &content.chunks {
        match chunk {
            EncodedChunk::Text(tokens) => {
                out.byte(0);
                out.len(tokens.len());
                tokens.iter().for_each(|t| out.int(t.0));
            }
            EncodedChunk::Image(tile) => {
                out.byte(1);
                let ImageChunk { tokens, positions, grid, non_causal, tiles } = &tile.image;
                [tokens.get(), positions.get(), *tiles].into_iter().for_each(|n| out.len(n));
                [grid.columns, grid.rows, grid.row_breaks, grid.lead, grid.trail]
                    .into_iter()
                    .for_each(|n| out.len(n as usize));
                out.byte(u8::from(*non_causal));
                tile.moves.into_iter().for_each(|m| out.byte(u8::from(m)));
                tile.positions.iter().flat_map(|p| p.sections()).for_each(|n| out.int(n));
                out.floats(tile.rows.as_slice());
            }
        }
    }
    out.0
}

fn parse(body: &mut Reader<'_>) -> Option<Content> {
    let architecture = String::from_utf8(body.bytes()?.to_vec()).ok()?;
    let (n_vocab, width) = (body.len()?, body.len()?);
    let mut chunks = Vec::new();
    for _ in 0..body.len()? {
        match body.byte()? {
            0 => {
                let tokens: Option<Vec<Token>> = (0..body.len()?).map(|_| body.int().map(Token)).collect();
                let known = |t: &Token| usize::try_from(t.0).is_ok_and(|t| t < n_vocab);
                chunks.push(EncodedChunk::Text(tokens.filter(|t| t.iter().all(known))?));
            }
            1 => chunks.push(EncodedChunk::Image(Box::new(parse_tile(body, width)?))),
            _ => return None,
        }
    }
    let has_rows = chunks.iter().any(|c| matches!(c, EncodedChunk::Image(_)));
    (body.0.is_empty() && has_rows).then_some(Content { hash: 0, architecture, n_vocab, width, chunks })
}

fn parse_tile(body: &mut Reader<'_>, width: usize) -> Option<EncodedTile> {
    let (tokens, positions, tiles) = (body.len()?, body.len()?, body.len()?);
    let mut number = || u32::try_from(body.len()?).ok();
    let grid = Grid { columns: number()?, rows: number()?, row_breaks: number()?, lead: number()?, trail: number()? };
    let mut flag = || match body.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let non_causal = flag()?;
    let moves = [flag()?, flag()?, flag()?, flag()?];
    // each row has four positions and `width` floats: a count that lies is found before memory is taken for it
    if tokens.checked_mul(16)? > body.0.len() || positions > tokens {
        return None;
    }
    let at: Option<Vec<Position>> = (0..tokens)
        .map(|_| Some(Position { t: body.int()?, y: body.int()?, x: body.int()?, z: body.int()? }))
        .collect();
    let at = at.filter(|list| list.iter().flat_map(|p| p.sections()).all(|n| (0..=1 << 24).contains(&n)))?;
    let rows = Embedding::new(body.floats()?, tokens, width, grid).ok()?;
    let image = ImageChunk { tokens: TokenCount(tokens), positions: PosCount(positions), grid, non_causal, tiles };
    Some(EncodedTile { image, rows, positions: at, moves })
}
