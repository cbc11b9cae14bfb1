//! The cache as its callers see it; and the folder under many hands.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::disk::Put;
use super::*;
use crate::embedding::CacheDtype;
use crate::embedding::entry::{Kind, seal, unseal};

const WIDTH: usize = 8;

fn wanted(n: u128) -> Wanted {
    Wanted { key: EmbeddingKey::from_u128(n), rows: 4, width: WIDTH, grid: Grid::default() }
}

fn rows(n: u128) -> Embedding {
    let values = (0..4 * WIDTH).map(|i| n as f32 + i as f32 / 100.0).collect();
    Embedding::new(values, 4, WIDTH, Grid::default()).unwrap()
}

fn ask(cache: &EmbeddingCache, n: u128) -> Hit {
    let hits = cache.get_or_encode(&[wanted(n)], || false, |i| Ok(vec![(rows(n), Duration::from_millis(1)); i.len()]));
    let hit = hits.unwrap().remove(0);
    assert_eq!(hit.embedding, rows(n), "whatever happens, the answer is right");
    hit
}

fn on_disk(dir: &Path, bytes: u64) -> Arc<EmbeddingCache> {
    EmbeddingCache::new(CacheConfig::default().memory_bytes(0).disk(dir, bytes))
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found
}

fn size(dir: &Path) -> u64 {
    files(dir).iter().map(|f| fs::metadata(f).unwrap().len()).sum()
}

#[test]
fn the_second_time_it_is_found() {
    let cache = EmbeddingCache::new(CacheConfig::default());
    assert_eq!(ask(&cache, 1).tier, Tier::Encoded);
    assert_eq!(ask(&cache, 1).tier, Tier::Memory);
    cache.clear_memory();
    assert_eq!(ask(&cache, 1).tier, Tier::Encoded);
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.memory_hits, stats.memory_entries), (2, 1, 1));
}

#[test]
fn a_request_encodes_its_misses_together_and_a_repeated_picture_once() {
    let cache = EmbeddingCache::new(CacheConfig::default());
    ask(&cache, 2);
    let calls = AtomicUsize::new(0);
    let list = [1, 2, 3, 1].map(wanted);
    let hits = cache
        .get_or_encode(
            &list,
            || false,
            |indices| {
                calls.fetch_add(1, Ordering::Relaxed);
                assert_eq!(indices, [0, 2]);
                Ok(indices.iter().map(|&i| (rows(list[i].key.to_u128()), Duration::ZERO)).collect())
            },
        )
        .unwrap();
    assert_eq!(calls.into_inner(), 1);
    assert_eq!(hits.iter().map(|h| h.embedding.clone()).collect::<Vec<_>>(), [1, 2, 3, 1].map(rows));
}

#[test]
fn one_miss_one_encoding_however_many_wait() {
    for memory in [0, 1 << 20] {
        let cache = EmbeddingCache::new(CacheConfig::default().memory_bytes(memory));
        let encodings = AtomicUsize::new(0);
        let start = std::sync::Barrier::new(16);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    let hit = cache.get_or_encode(
                        &[wanted(7)],
                        || false,
                        |_| {
                            encodings.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(Duration::from_millis(200));
                            Ok(vec![(rows(7), Duration::ZERO)])
                        },
                    );
                    assert_eq!(hit.unwrap()[0].embedding, rows(7));
                });
            }
        });
        assert_eq!(encodings.into_inner(), 1, "memory {memory}");
    }
}

/// Two requests that want each other's pictures must not wait for each other.
#[test]
fn crossed_requests_do_not_block() {
    let cache = EmbeddingCache::new(CacheConfig::default().memory_bytes(0));
    std::thread::scope(|scope| {
        for turn in 0..8 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..50_u128 {
                    let pair = if turn % 2 == 0 { [round, round + 1] } else { [round + 1, round] };
                    let list = pair.map(wanted);
                    let hits = cache.get_or_encode(
                        &list,
                        || false,
                        |indices| {
                            std::thread::yield_now();
                            Ok(indices.iter().map(|&i| (rows(pair[i]), Duration::ZERO)).collect())
                        },
                    );
                    let got: Vec<_> = hits.unwrap().into_iter().map(|h| h.embedding).collect();
                    assert_eq!(got, pair.map(rows));
                }
            });
        }
    });
}

#[test]
fn who_waits_for_one_that_fails_tries_itself() {
    let cache = EmbeddingCache::new(CacheConfig::default());
    let turn = AtomicUsize::new(0);
    let outcomes: Vec<bool> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let result = cache.get_or_encode(
                        &[wanted(9)],
                        || false,
                        |_| {
                            std::thread::sleep(Duration::from_millis(50));
                            if turn.fetch_add(1, Ordering::Relaxed) == 0 {
                                return Err(Error::Cancelled);
                            }
                            Ok(vec![(rows(9), Duration::ZERO)])
                        },
                    );
                    result.is_ok()
                })
            })
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|ok| !**ok).count(), 1, "only the one that failed");
    assert_eq!(turn.into_inner(), 2);
    // a panic passes the right on too
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = cache.get_or_encode(&[wanted(10)], || false, |_| panic!("on purpose"));
    }));
    assert!(panicked.is_err());
    assert_eq!(ask(&cache, 10).tier, Tier::Encoded);
}

#[test]
fn waiting_can_be_cancelled() {
    let cache = EmbeddingCache::new(CacheConfig::default());
    let release = std::sync::Barrier::new(2);
    let claimed = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cache.get_or_encode(
                &[wanted(1)],
                || false,
                |_| {
                    claimed.wait();
                    release.wait();
                    Ok(vec![(rows(1), Duration::ZERO)])
                },
            )
        });
        claimed.wait();
        let result = cache.get_or_encode(&[wanted(1)], || true, |_| panic!("the other one does it"));
        assert_eq!(result.unwrap_err().code(), "cancelled");
        release.wait();
    });
}

#[test]
fn a_hit_of_another_shape_is_evicted_and_encoded_anew() {
    let home = tempfile::tempdir().unwrap();
    let cache = EmbeddingCache::new(CacheConfig::default().disk(home.path(), 1 << 20));
    ask(&cache, 1);
    let other = Wanted { grid: Grid { columns: 2, rows: 2, ..Grid::default() }, ..wanted(1) };
    let new = Embedding::new(vec![5.0; 32], 4, WIDTH, other.grid).unwrap();
    for round in 0..2 {
        let hits = cache.get_or_encode(&[other], || false, |_| Ok(vec![(new.clone(), Duration::ZERO)])).unwrap();
        assert_eq!(hits[0].embedding, new);
        assert_eq!(hits[0].tier, if round == 0 { Tier::Encoded } else { Tier::Memory });
    }
    assert_eq!(cache.stats().mismatched, 2, "memory and disk");
}

#[test]
fn the_disk_outlives_the_process_and_gives_the_same_bits() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(ask(&on_disk(home.path(), 1 << 20), 1).tier, Tier::Encoded);
    let cache = on_disk(home.path(), 1 << 20);
    assert_eq!(ask(&cache, 1).tier, Tier::Disk);
    assert_eq!(cache.stats().disk_hits, 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let entry = files(home.path()).into_iter().find(|f| f.extension().is_some_and(|e| e == "emb")).unwrap();
        assert_eq!((mode(&entry), mode(entry.parent().unwrap())), (0o600, 0o700));
    }
}

#[test]
fn half_floats_take_half_the_disk() {
    let (full, half) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (dir, dtype) in [(&full, CacheDtype::F32), (&half, CacheDtype::F16)] {
        let config = CacheConfig::default().disk(dir.path(), 1 << 20).dtype(dtype);
        EmbeddingCache::new(config)
            .get_or_encode(&[wanted(1)], || false, |_| Ok(vec![(rows(1), Duration::ZERO)]))
            .unwrap();
    }
    // who wants the encoder's bits does not get half floats
    let exact = on_disk(half.path(), 1 << 20);
    assert_eq!((ask(&exact, 1).tier, exact.stats().mismatched), (Tier::Encoded, 1));
    fs::remove_dir_all(half.path().join("embeddings")).unwrap();
    let config = CacheConfig::default().disk(half.path(), 1 << 20).dtype(CacheDtype::F16);
    EmbeddingCache::new(config).get_or_encode(&[wanted(1)], || false, |_| Ok(vec![(rows(1), Duration::ZERO)])).unwrap();
    let entry = |dir: &Path| CacheFolder::new(dir).list(Room::Embeddings).unwrap()[0].bytes;
    assert_eq!(entry(full.path()) - entry(half.path()), 4 * WIDTH as u64 * 2);
}

/// One bit anywhere in an entry is a counted miss, and the entry is replaced.
#[test]
fn damage_is_a_counted_miss() {
    let home = tempfile::tempdir().unwrap();
    ask(&on_disk(home.path(), 1 << 20), 3);
    let entry = files(home.path()).into_iter().find(|f| f.extension().is_some_and(|e| e == "emb")).unwrap();
    let good = fs::read(&entry).unwrap();
    let cache = on_disk(home.path(), 1 << 20);
    let bits = good.len() * 8;
    for bit in 0..bits {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&entry, bad).unwrap();
        assert_eq!(ask(&cache, 3).tier, Tier::Encoded, "bit {bit}");
        assert!(fs::read(&entry).unwrap() == good, "bit {bit}: the entry was not replaced");
    }
    let stats = cache.stats();
    assert_eq!((stats.corrupt, stats.misses, stats.disk_errors), (bits as u64, bits as u64, 0));
}

#[test]
fn thousands_of_pictures_stay_within_the_budget() {
    const BUDGET: u64 = 64 << 20;
    let home = tempfile::tempdir().unwrap();
    let store = Room::Embeddings.store(home.path(), BUDGET);
    let mut random = 1_u64;
    let mut written = 0;
    for n in 0..5000_u128 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let payload = vec![0_u8; (random >> 33) as usize % 64_000];
        let header = [1_u8; 128];
        if let Put::Written { .. } =
            store.put(EmbeddingKey::from_u128(u128::from(random) << 64 | n), &header, &payload).unwrap()
        {
            written += 1;
        }
        if n % 64 == 0 {
            assert!(size(home.path()) <= BUDGET, "{n}");
        }
    }
    assert_eq!(written, 5000);
    let listed: u64 = store.list().unwrap().iter().map(|e| e.bytes).sum();
    assert_eq!(listed + 16, size(home.path()), "the entries, an empty lock and the sum");
    assert!(listed > BUDGET / 2, "room is used");
}

#[test]
fn the_one_unused_for_longest_goes_first() {
    let home = tempfile::tempdir().unwrap();
    let store = Room::Embeddings.store(home.path(), 4 * 228 + 64);
    let put = |n: u128| store.put(EmbeddingKey::from_u128(n), &[0; 128], &[0; 100]).unwrap();
    for n in 1..=4 {
        assert_eq!(put(n), Put::Written { evicted: 0 });
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(put(2), Put::Present);
    store.get(EmbeddingKey::from_u128(1)).unwrap().unwrap();
    put(5);
    let left: Vec<u128> = store.list().unwrap().iter().map(|e| e.key.to_u128()).collect();
    assert!(left.contains(&1) && left.contains(&5) && !left.contains(&2), "{left:?}");
}

#[test]
fn a_folder_that_fails_costs_nothing_but_a_count() {
    let home = tempfile::tempdir().unwrap();
    // a file where the folder should be
    let file = home.path().join("file");
    fs::write(&file, "x").unwrap();
    let cache = on_disk(&file, 1 << 20);
    for _ in 0..2 {
        assert_eq!(ask(&cache, 1).tier, Tier::Encoded);
    }
    assert_eq!(cache.stats().disk_errors, 2);

    // deleted under us
    let dir = home.path().join("cache");
    let cache = on_disk(&dir, 1 << 20);
    ask(&cache, 1);
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(ask(&cache, 1).tier, Tier::Encoded);
    assert_eq!(ask(&cache, 1).tier, Tier::Disk, "it was made anew");

    // smaller than an entry
    let cache = on_disk(&home.path().join("small"), 100);
    assert_eq!(ask(&cache, 1).tier, Tier::Encoded);
    assert_eq!(cache.stats().disk_refused, 1);
}

/// What a writer leaves that was killed: a temporary file, and a sum that is too large, too small or garbage.
#[test]
fn a_killed_writer_leaves_nothing_that_lasts() {
    let home = tempfile::tempdir().unwrap();
    let store = Room::Embeddings.store(home.path(), 2000);
    let put = |n: u128| store.put(EmbeddingKey::from_u128(n), &[0; 128], &[0; 500]).unwrap();
    put(1);
    let room = home.path().join("embeddings");
    let leftover = room.join("00").join(format!("{:032x}.tmp", 77));
    fs::write(&leftover, vec![0; 900]).unwrap();
    // somebody else's file is none of ours
    let foreign = room.join("00").join("notes.tmp");
    fs::write(&foreign, "x").unwrap();
    for sum in [&b"garbage"[..], &[0xff; 16], b""] {
        fs::write(room.join("total"), sum).unwrap();
        put(2);
        assert!(size(home.path()) <= 2000 && !leftover.exists());
        let key = EmbeddingKey::from_u128(2);
        let there = store.read(key).unwrap().unwrap();
        // what another process has put in the place of a bad entry stays
        assert!(!store.remove_bad(key, Some(b"bad")).unwrap() && !store.remove_bad(key, None).unwrap());
        assert!(store.remove_bad(key, Some(&there)).unwrap() && !store.holds(key));
    }
    assert!(foreign.exists());
}

#[test]
fn many_hands_on_one_folder() {
    const BUDGET: u64 = 20_000;
    let home = tempfile::tempdir().unwrap();
    let over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..6_u64 {
            let (dir, over) = (home.path(), &over);
            scope.spawn(move || {
                // a store of its own, as another process would have
                let store = Room::Embeddings.store(dir, BUDGET);
                let mut random = seed;
                for _ in 0..150 {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let n = u128::from(random >> 60);
                    let key = EmbeddingKey::from_u128(n);
                    let payload = vec![n as u8; 1500];
                    match store.get(key).unwrap() {
                        Some(bytes) => assert_eq!(unseal(Kind::Embedding, key, &bytes).unwrap().1, payload),
                        None => {
                            store.put(key, &seal(Kind::Embedding, key, [0; 10], &payload), &payload).unwrap();
                        }
                    }
                    let entries: u64 = store.list().unwrap().iter().map(|e| e.bytes).sum();
                    over.fetch_max(entries, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(over.into_inner() <= BUDGET);
}

#[test]
fn a_folder_is_looked_after() {
    let home = tempfile::tempdir().unwrap();
    let folder = CacheFolder::new(home.path());
    assert_eq!(folder.list(Room::Embeddings).unwrap(), []);
    let cache = on_disk(home.path(), 1 << 20);
    for n in 1..=3 {
        ask(&cache, n);
    }
    let bytes = folder.export(EmbeddingKey::from_u128(2)).unwrap().unwrap();
    assert!(folder.export(EmbeddingKey::from_u128(9)).unwrap().is_none());
    let bad = home.path().join("embeddings/00").join(format!("{:032x}.emb", 3));
    fs::write(&bad, b"x").unwrap();
    let verified = folder.verify(false).unwrap();
    assert_eq!((verified.good, verified.bad.len()), (2, 1));
    assert_eq!(folder.verify(true).unwrap().bad.len(), 1);
    assert!(folder.verify(false).unwrap().bad.is_empty());
    assert_eq!(folder.clear(Room::Embeddings).unwrap(), 2);

    let facts = folder.import(&bytes, 1 << 20).unwrap();
    assert_eq!((facts.key, facts.rows, facts.width), (EmbeddingKey::from_u128(2), 4, WIDTH as u32));
    assert_eq!(ask(&on_disk(home.path(), 1 << 20), 2).tier, Tier::Disk);
    // a damaged entry of the same length is replaced
    let entry = home.path().join("embeddings/00").join(format!("{:032x}.emb", 2));
    fs::write(&entry, vec![0; bytes.len()]).unwrap();
    folder.import(&bytes, 1 << 20).unwrap();
    assert!(fs::read(&entry).unwrap() == bytes);
    assert_eq!(folder.import(&bytes[1..], 1 << 20).unwrap_err().code(), "state");
    assert_eq!(folder.import(&bytes, 100).unwrap_err().code(), "bad-parameter");
}

/// A store that several machines share, as simple as can be, and one that is dead.
#[derive(Debug, Default)]
struct Shop(std::sync::Mutex<std::collections::HashMap<u128, Vec<u8>>>);

impl SharedTier for Shop {
    fn get(&self, key: EmbeddingKey) -> std::result::Result<Option<Vec<u8>>, SharedError> {
        Ok(lock(&self.0).get(&key.to_u128()).cloned())
    }
    fn put(&self, key: EmbeddingKey, bytes: Vec<u8>) -> std::result::Result<(), SharedError> {
        lock(&self.0).insert(key.to_u128(), bytes);
        Ok(())
    }
}

#[derive(Debug)]
struct Dead;

impl SharedTier for Dead {
    fn get(&self, _: EmbeddingKey) -> std::result::Result<Option<Vec<u8>>, SharedError> {
        Err(SharedError::Failed("no route".into()))
    }
    fn put(&self, _: EmbeddingKey, _: Vec<u8>) -> std::result::Result<(), SharedError> {
        Err(SharedError::Open)
    }
}

#[test]
fn machines_share_what_one_of_them_encoded() {
    let shop = Arc::new(Shop::default());
    let machine = || EmbeddingCache::new(CacheConfig::default().shared(Arc::clone(&shop) as Arc<dyn SharedTier>));
    assert_eq!(ask(&machine(), 1).tier, Tier::Encoded);
    let second = machine();
    assert_eq!(ask(&second, 1).tier, Tier::Shared);
    assert_eq!(ask(&second, 1).tier, Tier::Memory);

    lock(&shop.0).values_mut().for_each(|bytes| bytes[200] ^= 1);
    let third = machine();
    assert_eq!(ask(&third, 1).tier, Tier::Encoded);
    assert_eq!(third.stats().corrupt, 1);

    let dead = EmbeddingCache::new(CacheConfig::default().shared(Arc::new(Dead)));
    assert_eq!(ask(&dead, 1).tier, Tier::Encoded);
    assert_eq!(dead.stats().shared_errors, 2);
}
