//! The one place where pictures become embeddings: from a file, from a cache, or from the projector.

use std::sync::Arc;
use std::time::Duration;

use super::prompt::{Chunks, ImageItem};
use super::usage::ImageSource;
use crate::embedding::{Embedding, EmbeddingCache, Hit, Tier, Wanted};
use crate::error::{Error, Result};
use crate::llama::CancelToken;
use crate::mtmd::{Prepared, Projector};

/// Rows of one image chunk and where they came from.
#[derive(Debug, Clone)]
pub(super) struct Embedded {
    pub(super) rows: Embedding,
    /// For each row, the row of the encoder's output whose place it takes; `None`: they are the encoder's.
    pub(super) anchors: Option<Vec<u32>>,
    pub(super) source: ImageSource,
    pub(super) took: Duration,
}

/// An image chunk that has to be encoded.
type Job<'a> = (&'a Prepared, usize);

/// Gives the rows of every item, in order; all misses go to the projector in one call, so that it can batch them.
pub(super) fn embed(
    projector: Option<&Projector>,
    cache: Option<&EmbeddingCache>,
    items: &[Arc<ImageItem>],
    cancel: &CancelToken,
) -> Result<Vec<Embedded>> {
    let jobs: Vec<Job<'_>> = items
        .iter()
        .filter_map(|item| match &item.source {
            Chunks::Prepared(prepared) => Some((prepared.as_ref(), item.chunk)),
            Chunks::Encoded(_) => None,
        })
        .collect();
    let mut hits = match projector {
        Some(projector) => look_up(projector, cache, &jobs, cancel)?,
        None if jobs.is_empty() => Vec::new(),
        None => return Err(Error::NoVision { reason: "no projector is loaded".into() }),
    }
    .into_iter();
    items
        .iter()
        .map(|item| match &item.source {
            Chunks::Encoded(picture) => {
                let rows = picture.rows(item.chunk).cloned().ok_or_else(lost)?;
                Ok(Embedded { rows, anchors: None, source: ImageSource::File, took: Duration::ZERO })
            }
            Chunks::Prepared(_) => {
                let hit = hits.next().ok_or_else(lost)?;
                Ok(Embedded { rows: hit.embedding, anchors: None, source: source(hit.tier), took: hit.took })
            }
        })
        .collect()
}

/// Rows of all image chunks of one picture, in order.
pub(super) fn rows(
    projector: &Projector,
    cache: Option<&EmbeddingCache>,
    prepared: &Prepared,
    cancel: &CancelToken,
) -> Result<Vec<Embedding>> {
    let jobs: Vec<Job<'_>> = prepared.images().map(|(chunk, _)| (prepared, chunk)).collect();
    Ok(look_up(projector, cache, &jobs, cancel)?.into_iter().map(|hit| hit.embedding).collect())
}

fn look_up(
    projector: &Projector,
    cache: Option<&EmbeddingCache>,
    jobs: &[Job<'_>],
    cancel: &CancelToken,
) -> Result<Vec<Hit>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(cache) = cache
        && let Some(wanted) = keys(cache, jobs)
    {
        return cache.get_or_encode(
            &wanted,
            || cancel.is_cancelled(),
            |indices| {
                let misses: Vec<Job<'_>> = indices.iter().map(|&i| jobs[i]).collect();
                projector.encode(&misses, cancel)
            },
        );
    }
    let encoded = projector.encode(jobs, cancel)?;
    Ok(encoded.into_iter().map(|(embedding, took)| Hit { embedding, tier: Tier::Encoded, took }).collect())
}

/// Keys of all jobs. `None` where they cannot be named (the projector's file is gone): then nothing is cached, but the
/// question is answered.
fn keys(cache: &EmbeddingCache, jobs: &[Job<'_>]) -> Option<Vec<Wanted>> {
    let salt = cache.config().salt_bytes();
    let wanted: Result<Option<Vec<Wanted>>> =
        jobs.iter().map(|(prepared, chunk)| prepared.wanted(*chunk, salt)).collect();
    wanted.unwrap_or_else(|error| {
        tracing::warn!(%error, "pictures are not cached");
        None
    })
}

fn lost() -> Error {
    Error::Encode { reason: "a tile has no rows".into() }
}

fn source(tier: Tier) -> ImageSource {
    match tier {
        Tier::Encoded => ImageSource::Encoded,
        Tier::Memory => ImageSource::Memory,
        Tier::Disk => ImageSource::Disk,
        Tier::Shared => ImageSource::Shared,
    }
}
