//! Encode once: rows by key in memory, on disk, and in a store that several machines share.
//!
//! What this room does: finds rows by key, has them computed where they are nowhere (once, however many threads wait), keeps
//! them within budgets of bytes, counts everything.
//! What it never does: know what a projector is, change an answer, fail because a tier fails: a bad entry or a dead disk is a
//! counted miss.
//! Who calls it: `session`'s encoder; applications make one and share it between sessions.
//!
//! The memory tier is our own and not `moka`: a request's misses are encoded together, so the table of computations in progress
//! has to be ours anyway; what is left is an exact budget and an exact order, which moka's deferred housekeeping does not give.

mod config;
mod disk;
mod flight;
mod folder;
mod lru;
#[cfg(feature = "redis")]
mod redis;
mod shared;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[cfg(feature = "redis")]
pub use self::redis::{RedisConfig, RedisTier};
pub use config::{CacheConfig, DiskConfig};
pub use disk::DiskEntry;
pub use folder::{CacheFolder, Room, Verified};
pub use shared::{SharedError, SharedTier};
pub use stats::CacheStats;

pub(crate) use disk::{DiskStore, Put};
pub(crate) use lru::{ByteLru, Weigh};
pub(crate) use stats::Counter;

use super::entry::{self, CacheDtype, Refusal};
use super::key::EmbeddingKey;
use super::rows::{Embedding, Grid};
use crate::error::{Error, Result};
use flight::{Flight, Flights, lock};
use stats::Counters;

/// Rows that are wanted, and what they have to look like: a hit of another shape is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Their name.
    pub key: EmbeddingKey,
    /// How many there are.
    pub rows: usize,
    /// Floats in a row.
    pub width: usize,
    /// How they lie on the picture.
    pub grid: Grid,
}

/// Where rows came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// They were computed for this request.
    Encoded,
    /// Memory, or another thread that was computing them.
    Memory,
    /// The disk.
    Disk,
    /// The shared tier.
    Shared,
}

/// Rows that were wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The rows.
    pub embedding: Embedding,
    /// Where they came from.
    pub tier: Tier,
    /// Time in the encoder where they were computed, else time to find them.
    pub took: Duration,
}

/// An embedding cache. Share it by `Arc` between sessions and threads; keys keep models and projectors apart.
#[derive(Debug)]
pub struct EmbeddingCache {
    config: CacheConfig,
    memory: Mutex<ByteLru<Embedding>>,
    disk: Option<DiskStore>,
    flights: Flights<Embedding>,
    counters: Counters,
}

impl Weigh for Embedding {
    fn bytes(&self) -> u64 {
        size_of_val(self.as_slice()) as u64
    }

    fn in_use(&self) -> bool {
        self.is_shared()
    }
}

impl EmbeddingCache {
    /// A cache. No file is touched before something is stored.
    #[must_use]
    pub fn new(config: CacheConfig) -> Arc<Self> {
        let disk = config.disk.as_ref().filter(|d| d.bytes > 0);
        Arc::new(Self {
            memory: Mutex::new(ByteLru::new(config.memory_bytes)),
            disk: disk.map(|d| Room::Embeddings.store(&d.dir, d.bytes)),
            flights: Flights::new(),
            counters: Counters::default(),
            config,
        })
    }

    /// What it was made with.
    #[must_use]
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let memory = lock(&self.memory);
        self.counters.snapshot(memory.len() as u64, memory.used())
    }

    /// Forgets what is in memory. Disk and shared tier stay.
    pub fn clear_memory(&self) {
        lock(&self.memory).clear();
    }

    /// Gives the rows of every request, in order. What is in no tier is given to `encode` in one call, by index into `wanted`; it
    /// returns rows and encoder time in the order of the indices. Where another thread is computing some of them, this one
    /// waits for it instead, after having computed its own.
    ///
    /// # Errors
    /// Those of `encode`; [`Error::Cancelled`] where `stop` turned true while waiting; [`Error::Encode`] where `encode` returned
    /// something else than was asked for.
    pub fn get_or_encode(
        &self,
        wanted: &[Wanted],
        stop: impl Fn() -> bool,
        mut encode: impl FnMut(&[usize]) -> Result<Vec<(Embedding, Duration)>>,
    ) -> Result<Vec<Hit>> {
        let mut hits: Vec<Option<Hit>> = vec![None; wanted.len()];
        loop {
            let open: Vec<usize> = (0..wanted.len()).filter(|&i| hits[i].is_none()).collect();
            if open.is_empty() {
                return Ok(hits.into_iter().flatten().collect());
            }
            let mut mine = Vec::new();
            let mut theirs: Vec<(usize, Arc<Flight<Embedding>>)> = Vec::new();
            for i in open {
                let start = Instant::now();
                if let Some(embedding) = self.in_memory(&wanted[i]) {
                    hits[i] = Some(self.found(embedding, Tier::Memory, start));
                    continue;
                }
                match self.flights.claim(wanted[i].key.to_u128()) {
                    Err(flight) => theirs.push((i, flight)),
                    Ok(claim) => {
                        // it may have been published between the look into memory and the claim
                        let found = self.in_memory(&wanted[i]).map(|e| (e, Tier::Memory));
                        match found.or_else(|| self.outside(&wanted[i])) {
                            None => {
                                self.counters.looked_up(start.elapsed());
                                mine.push((i, claim));
                            }
                            Some((embedding, tier)) => {
                                hits[i] = Some(self.found(embedding.clone(), tier, start));
                                claim.publish(embedding);
                            }
                        }
                    }
                }
            }
            if !mine.is_empty() {
                let indices: Vec<usize> = mine.iter().map(|(i, _)| *i).collect();
                let encoded = encode(&indices)?;
                self.counters.misses.add(indices.len() as u64);
                if encoded.len() != indices.len() {
                    let reason = format!("{} embeddings for {} pictures", encoded.len(), indices.len());
                    return Err(Error::Encode { reason });
                }
                for ((i, claim), (embedding, took)) in mine.into_iter().zip(encoded) {
                    if fits(&embedding, &wanted[i]) {
                        self.keep(wanted[i].key, &embedding, Tier::Encoded);
                    }
                    claim.publish(embedding.clone());
                    hits[i] = Some(Hit { embedding, tier: Tier::Encoded, took });
                }
            }
            for (i, flight) in theirs {
                let start = Instant::now();
                match flight.wait(&stop) {
                    Some(embedding) if fits(&embedding, &wanted[i]) => {
                        self.counters.joined.add(1);
                        hits[i] = Some(Hit { embedding, tier: Tier::Memory, took: start.elapsed() });
                    }
                    _ if stop() => return Err(Error::Cancelled),
                    // whoever was computing it gave up: the next round claims it
                    _ => {}
                }
            }
        }
    }

    fn in_memory(&self, wanted: &Wanted) -> Option<Embedding> {
        let key = wanted.key.to_u128();
        let mut memory = lock(&self.memory);
        let embedding = memory.get(key)?;
        if fits(&embedding, wanted) {
            return Some(embedding);
        }
        memory.remove(key);
        self.counters.mismatched.add(1);
        None
    }

    /// Looks on the disk, then in the shared tier; what is found is kept nearer.
    fn outside(&self, wanted: &Wanted) -> Option<(Embedding, Tier)> {
        for tier in [Tier::Disk, Tier::Shared] {
            let Some(bytes) = self.read(tier, wanted.key) else { continue };
            match entry::decode(wanted.key, &bytes) {
                Ok(embedding) if fits(&embedding, wanted) && self.is_exact_enough(&bytes) => {
                    self.keep(wanted.key, &embedding, tier);
                    return Some((embedding, tier));
                }
                Err(Refusal::Damaged) => self.counters.corrupt.add(1),
                Ok(_) | Err(Refusal::Other) => self.counters.mismatched.add(1),
            }
            if let (Tier::Disk, Some(disk)) = (tier, &self.disk) {
                // in a read-only folder it stays, and is found bad again
                let _ = disk.remove_bad(wanted.key, Some(&bytes));
            }
        }
        None
    }

    /// Half floats that somebody else stored are not the encoder's bits.
    fn is_exact_enough(&self, bytes: &[u8]) -> bool {
        self.config.dtype == CacheDtype::F16 || entry::dtype(bytes) == CacheDtype::F32
    }

    fn read(&self, tier: Tier, key: EmbeddingKey) -> Option<Vec<u8>> {
        if tier == Tier::Disk {
            return self.disk.as_ref()?.get(key).unwrap_or_else(|error| {
                tracing::debug!(%error, %key, "a cache entry cannot be read");
                self.counters.disk_errors.add(1);
                None
            });
        }
        self.config.shared.as_ref()?.get(key).unwrap_or_else(|error| {
            tracing::debug!(%error, %key, "the shared cache does not answer");
            self.counters.shared_errors.add(1);
            None
        })
    }

    fn found(&self, embedding: Embedding, tier: Tier, start: Instant) -> Hit {
        let counter = match tier {
            Tier::Disk => &self.counters.disk_hits,
            Tier::Shared => &self.counters.shared_hits,
            Tier::Memory | Tier::Encoded => &self.counters.memory_hits,
        };
        counter.add(1);
        let took = start.elapsed();
        self.counters.looked_up(took);
        Hit { embedding, tier, took }
    }

    /// Puts rows into every tier nearer than the one they came from.
    fn keep(&self, key: EmbeddingKey, embedding: &Embedding, from: Tier) {
        let start = Instant::now();
        if self.config.memory_bytes > 0 {
            let inserted = lock(&self.memory).insert(key.to_u128(), embedding.clone());
            let counter = if inserted.kept { &self.counters.memory_inserts } else { &self.counters.memory_refused };
            counter.add(1);
            self.counters.memory_evictions.add(inserted.evicted);
        }
        let far = from != Tier::Disk;
        if far && (self.disk.is_some() || self.config.shared.is_some()) {
            let (header, payload) = entry::encode(key, embedding, self.config.dtype);
            if let Some(disk) = &self.disk {
                self.count_put(disk.put(key, &header, &payload), key);
            }
            if let (Some(shared), Tier::Encoded) = (&self.config.shared, from) {
                match shared.put(key, [&header[..], &payload].concat()) {
                    Ok(()) => self.counters.shared_inserts.add(1),
                    Err(error) => {
                        tracing::debug!(%error, %key, "the shared cache takes nothing");
                        self.counters.shared_errors.add(1);
                    }
                }
            }
        }
        self.counters.stored(start.elapsed());
    }

    fn count_put(&self, put: std::io::Result<Put>, key: EmbeddingKey) {
        match put {
            Ok(Put::Written { evicted }) => {
                self.counters.disk_inserts.add(1);
                self.counters.disk_evictions.add(evicted);
            }
            Ok(Put::Present) => {}
            Ok(Put::TooLarge | Put::Busy) => self.counters.disk_refused.add(1),
            Err(error) => {
                tracing::debug!(%error, %key, "a cache entry cannot be written");
                self.counters.disk_errors.add(1);
            }
        }
    }
}

fn fits(embedding: &Embedding, wanted: &Wanted) -> bool {
    embedding.rows().get() == wanted.rows && embedding.width() == wanted.width && embedding.grid() == wanted.grid
}
