//! KV states behind pictures, kept for the next conversation that begins the same way.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_128;

use super::prompt::Item;
use crate::embedding::{ByteLru, DiskStore, EmbeddingKey, KeyBuilder, Kind, Put, Room, Weigh, seal, unseal};
use crate::error::Result;
use crate::llama::{Context, SequenceState};

/// What a store of snapshots did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SnapshotStats {
    /// States found in memory.
    pub memory_hits: u64,
    /// States found on the disk.
    pub disk_hits: u64,
    /// Questions for which there was none.
    pub misses: u64,
    /// States kept.
    pub saves: u64,
    /// States that were damaged or did not fit; they were removed.
    pub refused: u64,
    /// Pushed out by a budget, in memory and on the disk.
    pub evictions: u64,
    /// Reads or writes of the disk that failed, or found the folder busy.
    pub disk_errors: u64,
}

#[derive(Debug, Default)]
struct Counters {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    saves: AtomicU64,
    refused: AtomicU64,
    evictions: AtomicU64,
    disk_errors: AtomicU64,
}

/// Saved KV states, shared by `Arc` between sessions. A state is found by everything that decides it: model, context
/// parameters, and the whole prompt before it, pictures by embedding key.
///
/// States on the disk are trusted once their checksum is right: use a folder that nobody else can write.
#[derive(Debug)]
pub struct KvSnapshots {
    memory: Mutex<ByteLru<Kept>>,
    disk: Option<DiskStore>,
    counters: Counters,
}

#[derive(Debug, Clone)]
struct Kept(Arc<SequenceState>);

impl Weigh for Kept {
    fn bytes(&self) -> u64 {
        self.0.as_bytes().len() as u64
    }

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl KvSnapshots {
    /// A store that takes at most `memory_bytes` of memory and, where a folder is given, as many bytes of it. 0 turns a tier
    /// off.
    #[must_use]
    pub fn new(memory_bytes: u64, disk: Option<(&Path, u64)>) -> Arc<Self> {
        let disk = disk.filter(|d| d.1 > 0).map(|(dir, bytes)| Room::KvStates.store(dir, bytes));
        Arc::new(Self { memory: Mutex::new(ByteLru::new(memory_bytes)), disk, counters: Counters::default() })
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> SnapshotStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        SnapshotStats {
            memory_hits: get(&c.memory_hits),
            disk_hits: get(&c.disk_hits),
            misses: get(&c.misses),
            saves: get(&c.saves),
            refused: get(&c.refused),
            evictions: get(&c.evictions),
            disk_errors: get(&c.disk_errors),
        }
    }

    pub(super) fn get(&self, key: EmbeddingKey) -> Option<Arc<SequenceState>> {
        if let Some(kept) = self.memory().get(key.to_u128()) {
            count(&self.counters.memory_hits, 1);
            return Some(kept.0);
        }
        let found = self.disk.as_ref().and_then(|disk| {
            let bytes = disk.get(key).unwrap_or_else(|error| {
                tracing::debug!(%error, %key, "a KV snapshot cannot be read");
                count(&self.counters.disk_errors, 1);
                None
            })?;
            let state = unseal(Kind::KvState, key, &bytes).ok().map(|(_, state)| state.to_vec());
            let state = state.and_then(|bytes| SequenceState::from_bytes(bytes).ok());
            if state.is_none() {
                self.refuse(key);
            }
            state
        });
        let Some(state) = found.map(Arc::new) else {
            count(&self.counters.misses, 1);
            return None;
        };
        count(&self.counters.disk_hits, 1);
        let inserted = self.memory().insert(key.to_u128(), Kept(Arc::clone(&state)));
        count(&self.counters.evictions, inserted.evicted);
        Some(state)
    }

    /// Removes a state that did not fit.
    pub(super) fn refuse(&self, key: EmbeddingKey) {
        count(&self.counters.refused, 1);
        self.memory().remove(key.to_u128());
        if let Some(disk) = &self.disk {
            // in a read-only folder it stays, and is refused again
            let _ = disk.remove(key);
        }
    }

    pub(super) fn put(&self, key: EmbeddingKey, state: SequenceState) {
        if let Some(disk) = &self.disk {
            let header = seal(Kind::KvState, key, [0; 10], state.as_bytes());
            match disk.put(key, &header, state.as_bytes()) {
                Ok(Put::Written { evicted }) => count(&self.counters.evictions, evicted),
                Ok(Put::Present | Put::TooLarge) => {}
                Ok(Put::Busy) => count(&self.counters.disk_errors, 1),
                Err(error) => {
                    tracing::debug!(%error, %key, "a KV snapshot cannot be written");
                    count(&self.counters.disk_errors, 1);
                }
            }
        }
        let inserted = self.memory().insert(key.to_u128(), Kept(Arc::new(state)));
        count(&self.counters.evictions, inserted.evicted);
        count(&self.counters.saves, 1);
    }

    /// Whether a state is kept in memory or on the disk.
    pub(super) fn holds(&self, key: EmbeddingKey) -> bool {
        self.memory().get(key.to_u128()).is_some() || self.disk.as_ref().is_some_and(|d| d.holds(key))
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, ByteLru<Kept>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Where a prompt's states are kept: behind the last chunk of each of its pictures, with the key of everything before.
///
/// `Ok(None)` where a picture cannot be named.
pub(super) fn points(context: &Context, items: &[Item], salt: &[u8]) -> Result<Option<Vec<(usize, EmbeddingKey)>>> {
    let mut class = KeyBuilder::new("llava kv class");
    class.hash("state", context.state_fingerprint()?).bytes("salt", salt);
    // how a prompt is cut into batches changes the last bits of what they compute
    class.number("n_batch", context.n_batch().into()).number("n_ubatch", context.n_ubatch().into());
    let mut chain = class.finish().to_u128();
    let mut points: Vec<(usize, EmbeddingKey)> = Vec::new();
    let mut last_picture = None;
    for (i, item) in items.iter().enumerate() {
        let mut link = [0_u8; 40];
        link[..16].copy_from_slice(&chain.to_le_bytes());
        match item {
            Item::Token(token) => link[16..20].copy_from_slice(&token.0.to_le_bytes()),
            Item::Image(image) => {
                let Some(name) = image.key()? else { return Ok(None) };
                link[16..32].copy_from_slice(&name.to_u128().to_le_bytes());
                link[32..40].copy_from_slice(&(image.image.positions.get() as u64).to_le_bytes());
            }
        }
        // tokens and pictures have links of different lengths
        chain = xxh3_128(if matches!(item, Item::Token(_)) { &link[..20] } else { &link });
        if let Item::Image(image) = item {
            let key = KeyBuilder::new("llava kv state").hash("chain", chain).finish();
            // tiles of one picture: only the last one's state is kept
            if last_picture == Some(image.index) {
                points.pop();
            }
            last_picture = Some(image.index);
            points.push((i + 1, key));
        }
    }
    Ok(Some(points))
}
