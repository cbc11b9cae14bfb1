//! The one place where pictures become embeddings. Whatever remembers embeddings plugs in here.

use std::sync::Arc;
use std::time::Duration;

use super::prompt::ImageItem;
use super::usage::ImageSource;
use crate::embedding::Embedding;
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
pub(super) fn embed(projector: &Projector, items: &[Arc<ImageItem>], cancel: &CancelToken) -> Result<Vec<Embedded>> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let chunks: Vec<_> = items.iter().map(|i| (i.prepared.as_ref(), i.chunk)).collect();
    let encoded = projector.encode(&chunks, cancel)?;
    Ok(encoded.into_iter().map(|(rows, took)| Embedded { rows, source: ImageSource::Encoded, took }).collect())
}
