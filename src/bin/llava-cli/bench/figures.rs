//! Single parts of the cache, each as a share of what the encoder takes for the same picture.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use llava::TokenCount;
use llava::embedding::{CacheConfig, Embedding, EmbeddingCache, KeyBuilder, Tier, Wanted};
use llava::llama::CancelToken;
use llava::mtmd::Prepared;

use super::stage::Stage;
use super::stats::{Stats, ms};
use crate::exit::Problem;

/// Floats of the buffer that hashing is measured on: 64 MiB, far beyond any cache of a CPU.
const LARGE_FLOATS: usize = 16 << 20;

/// Budget of the folder.
const DISK_BYTES: u64 = 1 << 30;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Ms,
    /// 10^9 bytes per second.
    GigabytesPerSecond,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ms => "ms",
            Unit::GigabytesPerSecond => "GB/s",
        }
    }
}

/// A measured part.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Its name in JSON.
    pub id: &'static str,
    pub about: &'static str,
    pub unit: Unit,
    pub values: Vec<f64>,
    /// Each value as a share of the encoder's time in the same round; empty where that says nothing.
    pub shares: Vec<f64>,
}

/// Times of one round.
struct Round {
    prepare: Duration,
    encode: Duration,
    key: Duration,
    memory_hit: Duration,
    disk_hit: Duration,
    memory_miss: Duration,
    disk_miss: Duration,
    large: Duration,
}

impl Figure {
    /// Measures all parts `runs` times. It has to come before anything has asked for the projector's fingerprint.
    pub fn all(stage: &Stage<'_>, runs: usize) -> Result<Vec<Self>> {
        let start = Instant::now();
        stage.opened.projector.fingerprint()?;
        let fingerprint = start.elapsed();
        let mut parts = Parts::new(stage)?;
        // unmeasured: the first pass touches memory that the others find in place
        parts.measure()?;
        let rounds: Vec<Round> = (0..runs).map(|_| parts.measure()).collect::<Result<_>>()?;

        let time = |id, about, of: &dyn Fn(&Round) -> Duration| Self {
            id,
            about,
            unit: Unit::Ms,
            values: rounds.iter().map(|r| ms(of(r))).collect(),
            shares: rounds.iter().map(|r| ms(of(r)) / ms(r.encode)).collect(),
        };
        let speed = |id, about, bytes: usize, of: &dyn Fn(&Round) -> Duration| Self {
            id,
            about,
            unit: Unit::GigabytesPerSecond,
            values: rounds.iter().map(|r| bytes as f64 / of(r).as_secs_f64().max(1e-9) / 1e9).collect(),
            shares: Vec::new(),
        };
        let encode = Stats::of(rounds.iter().map(|r| ms(r.encode))).median;
        Ok(vec![
            time("encode", "encoding the picture", &|r| r.encode),
            time("prepare", "preprocessing it (needed for hits too)", &|r| r.prepare),
            time("hit-memory", "hit in memory: key and look-up", &|r| r.memory_hit),
            time("hit-disk", "hit on the disk: key, reading, checking", &|r| r.disk_hit),
            time("miss-memory", "what a miss adds: key, look-up, keeping", &|r| r.memory_miss),
            time("miss-disk", "what a miss adds with a disk tier", &|r| r.disk_miss),
            time("key", "key alone", &|r| r.key),
            Self {
                id: "fingerprint",
                about: "projector's fingerprint, once per process",
                unit: Unit::Ms,
                values: vec![ms(fingerprint)],
                shares: vec![ms(fingerprint) / encode],
            },
            speed("hash-tiles", "key of the picture's tiles", parts.tile_bytes(), &|r| r.key),
            speed("hash-large", "hashing 64 MiB of floats", LARGE_FLOATS * 4, &|r| r.large),
        ])
    }

    pub fn value(&self) -> Stats {
        Stats::of(self.values.iter().copied())
    }

    pub fn share(&self) -> Option<Stats> {
        (!self.shares.is_empty()).then(|| Stats::of(self.shares.iter().copied()))
    }
}

/// What the parts are measured on.
struct Parts<'s, 'a> {
    stage: &'s Stage<'a>,
    prepared: Prepared,
    chunks: Vec<usize>,
    memory: Arc<EmbeddingCache>,
    disk: Arc<EmbeddingCache>,
    /// Pictures so far that no cache had seen: salts make one picture many.
    unseen: u64,
    large: Vec<f32>,
}

impl<'s, 'a> Parts<'s, 'a> {
    fn new(stage: &'s Stage<'a>) -> Result<Self> {
        let prepared = stage.opened.projector.prepare(stage.opened.picture.image(), TokenCount::ZERO, 0)?;
        let chunks = prepared.images().map(|(index, _)| index).collect();
        let disk = CacheConfig::default().memory_bytes(0).disk(stage.folder("figures"), DISK_BYTES);
        Ok(Self {
            stage,
            prepared,
            chunks,
            memory: EmbeddingCache::new(CacheConfig::default()),
            disk: EmbeddingCache::new(disk),
            unseen: 0,
            large: (0..LARGE_FLOATS).map(|i| i as f32).collect(),
        })
    }

    fn tile_bytes(&self) -> usize {
        let tiles = |&chunk: &usize| (0..).map_while(move |tile| self.prepared.tile(chunk, tile));
        self.chunks.iter().flat_map(tiles).map(|t| size_of_val(t.pixels)).sum()
    }

    fn measure(&mut self) -> Result<Round> {
        self.stage.interrupt.check()?;
        let opened = &self.stage.opened;
        let start = Instant::now();
        black_box(opened.projector.prepare(opened.picture.image(), TokenCount::ZERO, 0)?);
        let prepare = start.elapsed();

        let requests: Vec<_> = self.chunks.iter().map(|&chunk| (&self.prepared, chunk)).collect();
        let token = CancelToken::new();
        self.stage.interrupt.watch(token.clone())?;
        super::sample::settle();
        let start = Instant::now();
        let rows: Vec<Embedding> =
            opened.projector.encode(&requests, &token)?.into_iter().map(|(rows, _)| rows).collect();
        let encode = start.elapsed();

        let (memory, disk) = (Arc::clone(&self.memory), Arc::clone(&self.disk));
        self.through(&memory, &rows, b"")?;
        self.through(&disk, &rows, b"")?;
        Ok(Round {
            prepare,
            encode,
            key: self.mean(16, |picture| picture.wanted(b"").map(drop))?,
            memory_hit: self.mean(16, |picture| picture.hit(&memory, Tier::Memory))?,
            disk_hit: self.mean(8, |picture| picture.hit(&disk, Tier::Disk))?,
            memory_miss: self.misses(&rows, false)?,
            disk_miss: self.misses(&rows, true)?,
            large: self.mean(2, |parts| {
                black_box(KeyBuilder::new("bench").floats("large", &parts.large).finish());
                Ok(())
            })?,
        })
    }

    fn wanted(&self, salt: &[u8]) -> Result<Vec<Wanted>> {
        let mut all = Vec::with_capacity(self.chunks.len());
        for &chunk in &self.chunks {
            let wanted = self.prepared.wanted(chunk, salt)?;
            all.push(wanted.ok_or_else(|| Problem::failed("failed", "a picture without a key"))?);
        }
        Ok(all)
    }

    /// Asks a cache as a session does; what it does not know is already encoded.
    fn through(&self, cache: &EmbeddingCache, rows: &[Embedding], salt: &[u8]) -> Result<()> {
        let encoded = |i: &[usize]| Ok(i.iter().map(|&i| (rows[i].clone(), Duration::ZERO)).collect());
        black_box(cache.get_or_encode(&self.wanted(salt)?, || false, encoded)?);
        Ok(())
    }

    fn hit(&self, cache: &EmbeddingCache, tier: Tier) -> Result<()> {
        let hits = cache.get_or_encode(&self.wanted(b"")?, || false, |_| Ok(Vec::new()))?;
        if hits.iter().any(|hit| hit.tier != tier) {
            return Err(Problem::failed("failed", format!("the cache did not answer from {tier:?}")).into());
        }
        black_box(hits);
        Ok(())
    }

    /// Mean time of some work on the picture, prepared anew each time: one that was named before is not hashed again.
    fn mean(&mut self, times: u32, mut work: impl FnMut(&Self) -> Result<()>) -> Result<Duration> {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            self.prepare_anew()?;
            let start = Instant::now();
            work(self)?;
            total += start.elapsed();
        }
        Ok(total / times)
    }

    fn prepare_anew(&mut self) -> Result<()> {
        let opened = &self.stage.opened;
        self.prepared = opened.projector.prepare(opened.picture.image(), TokenCount::ZERO, 0)?;
        Ok(())
    }

    /// Mean time that a cache takes beside the encoder for a picture it does not know.
    fn misses(&mut self, rows: &[Embedding], disk: bool) -> Result<Duration> {
        const TIMES: u32 = 4;
        let mut total = Duration::ZERO;
        for _ in 0..TIMES {
            let mut config = CacheConfig::default();
            if disk {
                config = config.disk(self.stage.folder("figures"), DISK_BYTES);
            }
            self.unseen += 1;
            let (cache, salt) = (EmbeddingCache::new(config), self.unseen.to_le_bytes());
            self.prepare_anew()?;
            let start = Instant::now();
            self.through(&cache, rows, &salt)?;
            total += start.elapsed();
        }
        Ok(total / TIMES)
    }
}
