//! The one place where pictures become embeddings: from a cache, or from the projector.

use std::sync::Arc;
use std::time::Duration;

use super::prompt::ImageItem;
use super::usage::ImageSource;
use crate::embedding::{Embedding, EmbeddingCache, Tier, Wanted};
use crate::error::Result;
use crate::llama::CancelToken;
use crate::mtmd::Projector;

/// Rows of one image chunk and where they came from.
#[derive(Debug, Clone)]
pub(super) struct Embedded {
    pub(super) rows: Embedding,
    pub(super) source: ImageSource,
    pub(super) took: Duration,
}

/// Gives the rows of every item, in order; all misses go to the projector in one call, so that it can batch them.
pub(super) fn embed(
    projector: &Projector,
    cache: Option<&EmbeddingCache>,
    items: &[Arc<ImageItem>],
    cancel: &CancelToken,
) -> Result<Vec<Embedded>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let encode = |indices: &[usize]| {
        let chunks: Vec<_> = indices.iter().map(|&i| (items[i].prepared.as_ref(), items[i].chunk)).collect();
        projector.encode(&chunks, cancel)
    };
    let wanted = match cache {
        Some(cache) => keys(cache, items),
        None => None,
    };
    let (Some(cache), Some(wanted)) = (cache, wanted) else {
        let all: Vec<usize> = (0..items.len()).collect();
        let encoded = encode(&all)?;
        return Ok(encoded
            .into_iter()
            .map(|(rows, took)| Embedded { rows, source: ImageSource::Encoded, took })
            .collect());
    };
    let hits = cache.get_or_encode(&wanted, || cancel.is_cancelled(), encode)?;
    Ok(hits.into_iter().map(|h| Embedded { rows: h.embedding, source: source(h.tier), took: h.took }).collect())
}

/// Keys of all items. `None` where they cannot be named (the projector's file is gone): then nothing is cached, but the
/// question is answered.
fn keys(cache: &EmbeddingCache, items: &[Arc<ImageItem>]) -> Option<Vec<Wanted>> {
    let salt = cache.config().salt_bytes();
    let wanted: Result<Option<Vec<Wanted>>> = items.iter().map(|i| i.prepared.wanted(i.chunk, salt)).collect();
    wanted.unwrap_or_else(|error| {
        tracing::warn!(%error, "pictures are not cached");
        None
    })
}

fn source(tier: Tier) -> ImageSource {
    match tier {
        Tier::Encoded => ImageSource::Encoded,
        Tier::Memory => ImageSource::Memory,
        Tier::Disk => ImageSource::Disk,
        Tier::Shared => ImageSource::Shared,
    }
}
