//! A picture after preprocessing: the chunks it turned into, their pixels, grid and positions.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use llava_sys as sys;

use super::projector::Projector;
use crate::embedding::Grid;
use crate::error::{Error, Result};
use crate::image::RgbImage;
use crate::llama::{Position, Token, check, log, slice_or_empty};
use crate::units::{PosCount, TokenCount};

/// Largest side that preprocessing takes: upstream asserts on larger ones.
const MAX_SIDE_PX: u32 = 46_000;

/// Owner of a `llava_prepared`.
#[derive(Debug)]
pub(super) struct PreparedOwner(NonNull<sys::llava_prepared>);

impl PreparedOwner {
    pub(super) fn as_ptr(&self) -> *const sys::llava_prepared {
        self.0.as_ptr()
    }
}

impl Drop for PreparedOwner {
    fn drop(&mut self) {
        // SAFETY: made by llava_prepare, freed once.
        unsafe { sys::llava_prepared_free(self.0.as_ptr()) };
    }
}

// SAFETY: chunks are plain memory that is never changed after llava_prepare returned.
unsafe impl Send for PreparedOwner {}
// SAFETY: as above.
unsafe impl Sync for PreparedOwner {}

/// One piece of a prepared picture, in prompt order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Chunk {
    /// Marker tokens around and between tiles.
    Text(Vec<Token>),
    /// A tile: as many embedding rows as it says.
    Image(ImageChunk),
}

/// A tile's place in the prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageChunk {
    /// Embedding rows: visual tokens.
    pub tokens: TokenCount,
    /// By how much it advances the position.
    pub positions: PosCount,
    /// How its rows lie on the picture.
    pub grid: Grid,
    /// Whether its rows attend to each other in both directions.
    pub non_causal: bool,
    /// Preprocessed images in it (two frames of a video can share a chunk).
    pub tiles: usize,
}

/// A preprocessed image inside a chunk: a view.
///
/// ```compile_fail,E0505
/// # fn f(prepared: llava::mtmd::Prepared) {
/// let tile = prepared.tile(0, 0).unwrap();
/// drop(prepared);
/// println!("{}", tile.pixels[0]);
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Tile<'a> {
    /// Width in pixels.
    pub width_px: u32,
    /// Height in pixels.
    pub height_px: u32,
    /// Numbers besides the pixels that change what the encoder computes, in a fixed order.
    pub flags: [i32; 7],
    /// Normalised pixels, `[height, width, 3]`, row-major; empty for a placeholder.
    pub pixels: &'a [f32],
}

/// A picture after preprocessing, ready to encode. Keeps its projector alive.
#[derive(Debug)]
pub struct Prepared {
    // before the projector, whose native side it points into
    owner: PreparedOwner,
    projector: Arc<Projector>,
    chunks: Vec<Chunk>,
    placeholder: bool,
    /// Per chunk, the hash of its tiles once it was asked for: two caches ask.
    pub(super) hashes: Vec<OnceLock<u128>>,
}

impl Projector {
    /// Preprocesses a picture.
    ///
    /// `tokens_before` and `picture_index` are the picture's place in the prompt; two model families (DeepSeek-V4, Hunyuan)
    /// depend on it, the others ignore it.
    ///
    /// # Errors
    /// [`Error::PictureTooLarge`] for sides that native code would abort on, [`Error::Prepare`] where libmtmd fails.
    pub fn prepare(
        self: &Arc<Self>,
        image: &RgbImage,
        tokens_before: TokenCount,
        picture_index: u32,
    ) -> Result<Prepared> {
        prepare(self, Some(image.pixels()), image.width_px(), image.height_px(), tokens_before, picture_index)
    }

    /// Finds out what a picture of this size will turn into, without pixels. What it returns can be counted, not encoded.
    ///
    /// # Errors
    /// As [`Projector::prepare`].
    pub fn prepare_placeholder(
        self: &Arc<Self>,
        width_px: u32,
        height_px: u32,
        tokens_before: TokenCount,
        picture_index: u32,
    ) -> Result<Prepared> {
        prepare(self, None, width_px, height_px, tokens_before, picture_index)
    }
}

fn prepare(
    projector: &Arc<Projector>,
    rgb: Option<&[u8]>,
    width_px: u32,
    height_px: u32,
    tokens_before: TokenCount,
    picture_index: u32,
) -> Result<Prepared> {
    let too_large = |what: &'static str, value: u64, limit: u64| {
        Err(Error::PictureTooLarge { name: "picture".into(), what, value, limit })
    };
    for (what, side) in [("width_px", width_px), ("height_px", height_px)] {
        if side > MAX_SIDE_PX {
            return too_large(what, side.into(), MAX_SIDE_PX.into());
        }
    }
    let pixels = u64::from(width_px) * u64::from(height_px);
    let limit = u64::from(i32::MAX.unsigned_abs() / 3);
    if pixels > limit {
        return too_large("pixels", pixels, limit);
    }
    let failed = |reason: String| Error::Prepare { width_px, height_px, reason };
    if tokens_before.get() > 1 << 24 {
        return Err(failed(format!("{tokens_before} tokens before it are more than any context holds")));
    }
    if pixels == 0 || rgb.is_some_and(|rgb| rgb.len() as u64 != pixels * 3) {
        return Err(failed("its bytes do not fit its size".into()));
    }
    let mut raw = std::ptr::null_mut();
    let (status, lines) = log::capture(|| {
        // mtmd.h: "this function is thread-safe (shared ctx)"; the lock is held for the pointer only.
        let native = projector.lock().as_ptr();
        // SAFETY: the projector lives by Arc; the pixels are as long as their size says; `raw` is a valid place.
        let status = unsafe {
            sys::llava_prepare(
                native,
                rgb.map_or(std::ptr::null(), <[u8]>::as_ptr),
                width_px,
                height_px,
                tokens_before.get(),
                picture_index,
                &raw mut raw,
            )
        };
        check("mtmd_tokenize", status)
    });
    let owner = match (status, NonNull::new(raw)) {
        (Ok(()), Some(raw)) => PreparedOwner(raw),
        (Err(e), _) => return Err(failed(log::with_lines(e.to_string(), &lines))),
        (Ok(()), None) => return Err(failed("no chunks and no reason".into())),
    };
    let mut chunks = read_chunks(&owner)?;
    if !projector.rows_have_places() {
        for chunk in &mut chunks {
            if let Chunk::Image(image) = chunk {
                image.grid = Grid::default();
            }
        }
    }
    if !chunks.iter().any(|c| matches!(c, Chunk::Image(_))) {
        return Err(failed("it turned into no visual tokens".into()));
    }
    let hashes = chunks.iter().map(|_| OnceLock::new()).collect();
    Ok(Prepared { owner, projector: Arc::clone(projector), chunks, placeholder: rgb.is_none(), hashes })
}

fn read_chunks(owner: &PreparedOwner) -> Result<Vec<Chunk>> {
    // SAFETY: the chunks live.
    let n = unsafe { sys::llava_prepared_n_chunks(owner.as_ptr()) };
    (0..n)
        .map(|index| {
            let mut info = std::mem::MaybeUninit::<sys::llava_chunk_info>::zeroed();
            // SAFETY: the chunks live; the place is valid.
            let status = unsafe { sys::llava_prepared_chunk(owner.as_ptr(), index, info.as_mut_ptr()) };
            check("llava_prepared_chunk", status)?;
            // SAFETY: all-zero is a valid value of the plain struct, and the call filled it.
            let info = unsafe { info.assume_init() };
            if info.kind == sys::LLAVA_CHUNK_TEXT as i32 {
                // SAFETY: llava_shim.h: `n_tokens` tokens that live as long as the chunks.
                let tokens = unsafe { slice_or_empty(info.tokens, info.n_tokens) };
                return Ok(Chunk::Text(tokens.iter().map(|&t| Token(t)).collect()));
            }
            Ok(Chunk::Image(ImageChunk {
                tokens: TokenCount(info.n_tokens),
                positions: PosCount(usize::try_from(info.n_pos).unwrap_or(0)),
                grid: Grid {
                    columns: info.grid_x,
                    rows: info.grid_y,
                    row_breaks: info.row_breaks,
                    lead: info.n_lead,
                    trail: info.n_trail,
                },
                non_causal: info.non_causal,
                tiles: info.n_tiles,
            }))
        })
        .collect()
}

impl Prepared {
    pub(super) fn as_ptr(&self) -> *const sys::llava_prepared {
        self.owner.as_ptr()
    }

    /// The projector it was prepared by.
    #[must_use]
    pub fn projector(&self) -> &Arc<Projector> {
        &self.projector
    }

    /// Its chunks in prompt order.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Whether it has no pixels: it can be counted, not encoded.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        self.placeholder
    }

    /// Tokens of all chunks, markers included.
    #[must_use]
    pub fn tokens(&self) -> TokenCount {
        self.chunks
            .iter()
            .map(|c| match c {
                Chunk::Text(tokens) => TokenCount(tokens.len()),
                Chunk::Image(image) => image.tokens,
            })
            .sum()
    }

    /// Visual tokens only.
    #[must_use]
    pub fn visual_tokens(&self) -> TokenCount {
        self.images().map(|(_, image)| image.tokens).sum()
    }

    /// Positions that all chunks advance by.
    #[must_use]
    pub fn positions(&self) -> PosCount {
        self.chunks
            .iter()
            .map(|c| match c {
                Chunk::Text(tokens) => PosCount(tokens.len()),
                Chunk::Image(image) => image.positions,
            })
            .sum()
    }

    /// The image chunks with their indices.
    pub fn images(&self) -> impl Iterator<Item = (usize, &ImageChunk)> {
        self.chunks.iter().enumerate().filter_map(|(i, c)| match c {
            Chunk::Image(image) => Some((i, image)),
            Chunk::Text(_) => None,
        })
    }

    /// A preprocessed image: what the encoder sees. `None` where there is no such chunk or tile.
    #[must_use]
    pub fn tile(&self, chunk: usize, tile: usize) -> Option<Tile<'_>> {
        let mut info = std::mem::MaybeUninit::<sys::llava_tile_info>::zeroed();
        // SAFETY: the chunks live; the shim checks both indices; the place is valid.
        let status = unsafe { sys::llava_prepared_tile(self.as_ptr(), chunk, tile, info.as_mut_ptr()) };
        check("llava_prepared_tile", status).ok()?;
        // SAFETY: all-zero is a valid value of the plain struct, and the call filled it.
        let info = unsafe { info.assume_init() };
        // SAFETY: llava_shim.h: `n_data` floats that live as long as the chunks.
        let pixels = unsafe { slice_or_empty(info.data, info.n_data) };
        Some(Tile {
            width_px: info.nx,
            height_px: info.ny,
            flags: [
                i32::from(info.add_viewsep),
                i32::from(info.add_newline),
                info.lead_pad,
                info.grid_x,
                info.grid_y,
                info.orig_nx,
                info.orig_ny,
            ],
            pixels,
        })
    }

    /// Decoder positions of a chunk's tokens when the first one stands at `start`. Empty for an unknown chunk.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a start that is negative or so large that the last position would not be a number.
    pub fn decoder_positions(&self, chunk: usize, start: i32) -> Result<Vec<Position>> {
        let n = match self.chunks.get(chunk) {
            None => return Ok(Vec::new()),
            Some(Chunk::Text(tokens)) => tokens.len(),
            Some(Chunk::Image(image)) => image.tokens.get(),
        };
        // the last position has to be a number still
        if usize::try_from(start).map_or(true, |s| s + n > i32::MAX as usize) {
            return Err(Error::BadParameter {
                name: "start",
                value: start.to_string(),
                reason: format!("0 to {}", i32::MAX as usize - n),
            });
        }
        let mut flat = vec![0_i32; n * 4];
        // SAFETY: the chunks live; the room is four positions per token.
        let status =
            unsafe { sys::llava_prepared_positions(self.as_ptr(), chunk, start, flat.as_mut_ptr(), flat.len()) };
        check("llava_prepared_positions", status)?;
        Ok(flat.chunks_exact(4).map(|p| Position { t: p[0], y: p[1], x: p[2], z: p[3] }).collect())
    }
}
