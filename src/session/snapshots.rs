//! KV states behind pictures, kept for the next conversation that begins the same way.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_128;

use super::prompt::Item;
use crate::embedding::{
    ByteLru, Counter, DiskStore, EmbeddingCache, EmbeddingKey, HEADER_BYTES, KeyBuilder, Kind, Put, Room, Weigh, seal,
    unseal,
};
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

#[derive(Debug)]
struct Counters {
    memory_hits: Counter,
    disk_hits: Counter,
    misses: Counter,
    saves: Counter,
    refused: Counter,
    evictions: Counter,
    disk_errors: Counter,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            memory_hits: Counter::new("llava_kv_states_memory_hits_total"),
            disk_hits: Counter::new("llava_kv_states_disk_hits_total"),
            misses: Counter::new("llava_kv_states_misses_total"),
            saves: Counter::new("llava_kv_states_saves_total"),
            refused: Counter::new("llava_kv_states_refused_total"),
            evictions: Counter::new("llava_kv_states_evictions_total"),
            disk_errors: Counter::new("llava_kv_states_disk_errors_total"),
        }
    }
}

/// Saved KV states, shared by `Arc` between sessions. A state is found by everything that decides it: model, context
/// parameters, and the whole prompt before it, pictures by embedding key.
///
/// States on the disk are trusted once their checksum is right: use a folder that nobody else can write.
#[derive(Debug)]
pub struct KvSnapshots {
    memory: Mutex<ByteLru<Kept>>,
    disk: Option<DiskStore>,
    folder: Option<PathBuf>,
    counters: Counters,
}

/// A state, and how many rows each tile before it has in it.
#[derive(Debug)]
pub(super) struct Snapshot {
    state: SequenceState,
    counts: Vec<u32>,
}

impl Snapshot {
    pub(super) fn state(&self) -> &SequenceState {
        &self.state
    }

    pub(super) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Reads what lies on the disk: the state, and behind it the counts. How many there are stands in the entry's header.
    fn from_bytes(mut bytes: Vec<u8>, counts: u32) -> Option<Self> {
        let at = bytes.len().checked_sub(4 * counts as usize)?;
        let (counts, _) = bytes[at..].as_chunks();
        let counts = counts.iter().map(|n| u32::from_le_bytes(*n)).collect();
        bytes.truncate(at);
        Some(Self { state: SequenceState::from_bytes(bytes).ok()?, counts })
    }
}

#[derive(Debug, Clone)]
struct Kept(Arc<Snapshot>);

impl Weigh for Kept {
    fn bytes(&self) -> u64 {
        (self.0.state.as_bytes().len() + 4 * self.0.counts.len()) as u64
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
        let disk = disk.filter(|d| d.1 > 0);
        Arc::new(Self {
            memory: Mutex::new(ByteLru::new(memory_bytes)),
            disk: disk.map(|(dir, bytes)| Room::KvStates.store(dir, bytes)),
            folder: disk.map(|(dir, _)| dir.to_owned()),
            counters: Counters::default(),
        })
    }

    /// The folder of the disk tier.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> SnapshotStats {
        let c = &self.counters;
        SnapshotStats {
            memory_hits: c.memory_hits.get(),
            disk_hits: c.disk_hits.get(),
            misses: c.misses.get(),
            saves: c.saves.get(),
            refused: c.refused.get(),
            evictions: c.evictions.get(),
            disk_errors: c.disk_errors.get(),
        }
    }

    pub(super) fn get(&self, key: EmbeddingKey) -> Option<Arc<Snapshot>> {
        if let Some(kept) = self.memory().get(key.to_u128()) {
            self.counters.memory_hits.add(1);
            return Some(kept.0);
        }
        let found = self.disk.as_ref().and_then(|disk| {
            let mut bytes = disk.get(key).unwrap_or_else(|error| {
                tracing::debug!(%error, %key, "a KV snapshot cannot be read");
                self.counters.disk_errors.add(1);
                None
            })?;
            let Ok(([counts, ..], _)) = unseal(Kind::KvState, key, &bytes) else {
                self.counters.refused.add(1);
                self.forget(disk, key, &bytes);
                return None;
            };
            // states are large: the header goes, the rest stays where it is
            bytes.drain(..HEADER_BYTES);
            let snapshot = Snapshot::from_bytes(bytes, counts);
            if snapshot.is_none() {
                self.refuse(key);
            }
            snapshot
        });
        let Some(snapshot) = found.map(Arc::new) else {
            self.counters.misses.add(1);
            return None;
        };
        self.counters.disk_hits.add(1);
        let inserted = self.memory().insert(key.to_u128(), Kept(Arc::clone(&snapshot)));
        self.counters.evictions.add(inserted.evicted);
        Some(snapshot)
    }

    /// Removes a state that did not fit.
    pub(super) fn refuse(&self, key: EmbeddingKey) {
        self.counters.refused.add(1);
        self.memory().remove(key.to_u128());
        if let Some(disk) = &self.disk
            && let Ok(Some(bytes)) = disk.read(key)
        {
            self.forget(disk, key, &bytes);
        }
    }

    fn forget(&self, disk: &DiskStore, key: EmbeddingKey, bytes: &[u8]) {
        if let Err(error) = disk.remove_bad(key, Some(bytes)) {
            // in a read-only folder it stays, and is refused again
            tracing::debug!(%error, %key, "a KV snapshot cannot be removed");
        }
    }

    /// Keeps a state before which tiles have so many rows.
    pub(super) fn put(&self, key: EmbeddingKey, mut state: SequenceState, counts: Vec<u32>) {
        if let Some(disk) = &self.disk {
            let n = u32::try_from(counts.len()).unwrap_or(u32::MAX);
            let mut bytes = state.into_bytes();
            let length = bytes.len();
            bytes.extend(counts.iter().flat_map(|n| n.to_le_bytes()));
            let header = seal(Kind::KvState, key, [n, 0, 0, 0, 0, 0, 0, 0, 0, 0], &bytes);
            match disk.put(key, &header, &bytes) {
                Ok(Put::Written { evicted }) => self.counters.evictions.add(evicted),
                Ok(Put::Present | Put::TooLarge) => {}
                Ok(Put::Busy) => self.counters.disk_errors.add(1),
                Err(error) => {
                    tracing::debug!(%error, %key, "a KV snapshot cannot be written");
                    self.counters.disk_errors.add(1);
                }
            }
            bytes.truncate(length);
            state = SequenceState::unchecked(bytes);
        }
        let inserted = self.memory().insert(key.to_u128(), Kept(Arc::new(Snapshot { state, counts })));
        self.counters.evictions.add(inserted.evicted);
        self.counters.saves.add(1);
    }

    /// Whether a state is kept in memory or on the disk.
    pub(super) fn holds(&self, key: EmbeddingKey) -> bool {
        self.memory().get(key.to_u128()).is_some() || self.disk.as_ref().is_some_and(|d| d.holds(key))
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, ByteLru<Kept>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a prompt's states are kept: behind the last chunk of each of its pictures, with the key of everything before.
///
/// `Ok(None)` where a picture cannot be named.
pub(super) fn points(
    context: &Context,
    items: &[Item],
    cache: Option<&EmbeddingCache>,
) -> Result<Option<Vec<(usize, EmbeddingKey)>>> {
    let mut class = KeyBuilder::new("llava kv class");
    // tenants who share a folder do not find each other's states either
    class.hash("state", context.state_fingerprint()?).bytes("salt", cache.map_or(&[][..], |c| c.config().salt_bytes()));
    // a state computed from half floats is not what one with exact rows would be
    class.number("half rows", cache.is_some_and(|c| c.config().has_half_rows()).into());
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
                // how many rows are left is decided by them and by this
                let way = match &image.fewer {
                    None => image.image.positions.get() as u64,
                    Some(fewer) => {
                        let mut key = KeyBuilder::new("llava fewer rows");
                        key.text("method", &fewer.recipe.method).number("least", fewer.recipe.least as u64);
                        key.number("positions", image.image.positions.get() as u64);
                        key.finish().to_u128() as u64
                    }
                };
                link[32..40].copy_from_slice(&way.to_le_bytes());
            }
        }
        // tokens and pictures have links of different lengths
        chain = xxh3_128(if matches!(item, Item::Token(_)) { &link[..20] } else { &link });
        if let Item::Image(image) = item {
            let key = KeyBuilder::new("llava kv state 2").hash("chain", chain).finish();
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
