//! The tier that several machines share: what a store has to offer.

use crate::embedding::key::EmbeddingKey;

/// Why a shared store gave nothing. The cache counts it and goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharedError {
    /// It failed lately and is not asked for a while.
    #[error("not asked: it failed lately")]
    Open,
    /// It did not answer, or refused.
    #[error("{0}")]
    Failed(String),
}

/// A store of bytes by key. Implementations bound how long a call takes; entries carry a checksum, so what comes back need not
/// be trusted.
pub trait SharedTier: std::fmt::Debug + Send + Sync {
    /// The bytes of an entry, `None` where there is none.
    ///
    /// # Errors
    /// [`SharedError`] where the store cannot be asked.
    fn get(&self, key: EmbeddingKey) -> Result<Option<Vec<u8>>, SharedError>;

    /// Stores the bytes of an entry.
    ///
    /// # Errors
    /// As [`SharedTier::get`].
    fn put(&self, key: EmbeddingKey, bytes: Vec<u8>) -> Result<(), SharedError>;
}
