//! What a cache may use.

use std::path::PathBuf;
use std::sync::Arc;

use super::shared::SharedTier;
use crate::embedding::entry::CacheDtype;

/// Bytes of memory where nothing else is said.
const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;

/// A folder for entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// The folder; it is made, readable for its owner only, when something is written.
    pub dir: PathBuf,
    /// Most bytes of all entries together; 0 turns the tier off.
    pub bytes: u64,
}

/// What an [`EmbeddingCache`](super::EmbeddingCache) may use. The default is 256 MiB of memory and nothing else.
///
/// ```
/// use llava::embedding::{CacheConfig, CacheDtype, EmbeddingCache};
/// let cache = EmbeddingCache::new(
///     CacheConfig::default().memory_bytes(64 << 20).disk("/var/cache/app", 1 << 30).dtype(CacheDtype::F16),
/// );
/// assert_eq!(cache.stats().misses, 0);
/// ```
#[derive(Clone)]
pub struct CacheConfig {
    pub(super) memory_bytes: u64,
    pub(super) disk: Option<DiskConfig>,
    pub(super) shared: Option<Arc<dyn SharedTier>>,
    pub(super) dtype: CacheDtype,
    pub(super) salt: Vec<u8>,
}

// the salt is a secret, and debug output ends up in logs
impl std::fmt::Debug for CacheConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheConfig")
            .field("memory_bytes", &self.memory_bytes)
            .field("disk", &self.disk)
            .field("shared", &self.shared)
            .field("dtype", &self.dtype)
            .field("salted", &!self.salt.is_empty())
            .finish()
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { memory_bytes: DEFAULT_MEMORY_BYTES, disk: None, shared: None, dtype: CacheDtype::F32, salt: Vec::new() }
    }
}

impl CacheConfig {
    /// Most bytes of rows in memory, overhead included; 0 turns the tier off.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// A folder for entries and the most bytes they may take together.
    #[must_use]
    pub fn disk(mut self, dir: impl Into<PathBuf>, bytes: u64) -> Self {
        self.disk = Some(DiskConfig { dir: dir.into(), bytes });
        self
    }

    /// How floats are stored on the disk and in the shared tier; in memory they stay as they are.
    #[must_use]
    pub fn dtype(mut self, dtype: CacheDtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// A store that several machines share.
    #[must_use]
    pub fn shared(mut self, tier: Arc<dyn SharedTier>) -> Self {
        self.shared = Some(tier);
        self
    }

    /// A secret that becomes part of every key, so that tenants who share a disk or a server never find each other's
    /// pictures. Empty is none.
    #[must_use]
    pub fn salt(mut self, salt: impl Into<Vec<u8>>) -> Self {
        self.salt = salt.into();
        self
    }

    /// The folder, where there is one.
    #[must_use]
    pub fn disk_config(&self) -> Option<&DiskConfig> {
        self.disk.as_ref()
    }

    /// Whether rows may come back as half floats.
    pub(crate) fn has_half_rows(&self) -> bool {
        self.dtype == CacheDtype::F16 && (self.disk.is_some() || self.shared.is_some())
    }

    /// The tenants' secret.
    #[must_use]
    pub fn salt_bytes(&self) -> &[u8] {
        &self.salt
    }
}
