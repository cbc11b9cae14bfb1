//! What the vision encoder gives: rows of floats, how they lie on the picture, and keeping them.
//!
//! What this room does: holds embeddings as data, names them by everything that decides their values, keeps them in memory and
//! on disk.
//! What it never does: compute them, or know of native handles.
//! Who calls it: `mtmd` fills it, `session` decodes from it, compressors read it.
#![forbid(unsafe_code)]

mod cache;
mod entry;
mod key;
mod rows;

pub(crate) use cache::{ByteLru, Counter, DiskStore, Put, Weigh};
pub use cache::{
    CacheConfig, CacheFolder, CacheStats, DiskConfig, DiskEntry, EmbeddingCache, Hit, Room, SharedError, SharedTier,
    Tier, Verified, Wanted,
};
#[cfg(feature = "redis")]
pub use cache::{RedisConfig, RedisTier};
pub(crate) use entry::{HEADER_BYTES, Kind, seal, unseal};

pub use entry::{CacheDtype, EntryFacts, inspect};
pub use key::{EmbeddingKey, KeyBuilder};
pub use rows::{Embedding, Grid, has_raster_rows};
