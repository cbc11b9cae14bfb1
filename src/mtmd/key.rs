//! The key of an encoded chunk: everything that decides its rows.

use std::path::PathBuf;

use llava_sys as sys;

use super::prepared::{Chunk, Prepared};
use super::projector::Projector;
use crate::embedding::{KeyBuilder, Wanted};
use crate::error::Result;
use crate::llama::gemm;

impl Projector {
    /// XXH3-128 of the projector file's content. The first call reads the file.
    ///
    /// # Errors
    /// [`crate::Error::Io`] where it cannot be read any more, [`crate::Error::State`] where it has changed since it was loaded.
    pub fn fingerprint(&self) -> Result<u128> {
        self.fingerprint.get()
    }

    /// Has the fingerprint read on a thread of its own, so that the first question need not wait for it. `notes`: a folder where
    /// it is kept for the next process.
    pub(crate) fn fingerprint_ahead(&self, notes: Option<PathBuf>) {
        self.fingerprint.ahead(notes);
    }

    /// What all keys of this projector have in common.
    fn key_base(&self, salt: &[u8]) -> Result<KeyBuilder> {
        let info = self.info();
        let params = self.params();
        let mut key = KeyBuilder::new("llava embedding");
        key.bytes("salt", salt)
            .hash("projector file", self.fingerprint()?)
            .text("projector type", &info.projector_type)
            .number("width", info.width as u64)
            .number("image min tokens", params.image_min_tokens.map_or(0, u64::from))
            .number("image max tokens", params.image_max_tokens.map_or(0, u64::from))
            // the layout that is in force, not the one that was asked for
            .number("class token moved", u64::from(info.class_token_moved))
            .number("layers run", info.layers_run.map_or(0, |n| n as u64 + 1))
            // the class of arithmetic
            .text("native code", &self.model().backend().version())
            .text("baseline", sys::CPU_BASELINE)
            .text("device", self.device.get_or_init(|| self.device()))
            .text("flash attention", &format!("{:?}", info.flash_attention))
            .number("gemm", gemm::class());
        Ok(key)
    }

    fn device(&self) -> String {
        let gpu = if self.params().cpu_only {
            None
        } else {
            self.model().backend().devices().into_iter().find(|d| !d.is_cpu)
        };
        gpu.map_or_else(|| "CPU".to_owned(), |d| d.description)
    }
}

impl Prepared {
    /// What a cache is asked for to get the rows of one image chunk. `None` for a placeholder or a chunk that is no image.
    ///
    /// `salt` becomes part of the key: see [`crate::embedding::CacheConfig::salt`].
    ///
    /// # Errors
    /// As [`Projector::fingerprint`].
    pub fn wanted(&self, chunk: usize, salt: &[u8]) -> Result<Option<Wanted>> {
        let Some(Chunk::Image(image)) = self.chunks().get(chunk).filter(|_| !self.is_placeholder()) else {
            return Ok(None);
        };
        let Some(tiles) = self.hashes.get(chunk) else { return Ok(None) };
        let tiles = *tiles.get_or_init(|| self.hash_tiles(chunk));
        let key = self.projector().key_base(salt)?.hash("tiles", tiles).finish();
        Ok(Some(Wanted { key, rows: image.tokens.get(), width: self.projector().info().width, grid: image.grid }))
    }

    /// Sizes, flags and all pixels of a chunk's tiles.
    fn hash_tiles(&self, chunk: usize) -> u128 {
        let mut key = KeyBuilder::new("llava tiles");
        let mut index = 0;
        while let Some(tile) = self.tile(chunk, index) {
            key.number("tile width", tile.width_px.into()).number("tile height", tile.height_px.into());
            for flag in tile.flags {
                key.bytes("flag", &flag.to_le_bytes());
            }
            key.floats("pixels", tile.pixels);
            index += 1;
        }
        key.finish().to_u128()
    }
}
