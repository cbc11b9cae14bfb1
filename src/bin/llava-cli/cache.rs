//! The caches that flags ask for, and `llava-cli cache`, which looks after the folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use llava::embedding::{CacheConfig, CacheFolder, EmbeddingCache, Room};
use llava::quantize::{VisionEntry, VisionFolder};
use llava::session::KvSnapshots;

use crate::args::{CacheAction, CacheArgs, CacheCommandArgs};
use crate::console::{note, print, say};
use crate::exit::{FAILED, Problem, Reported, in_file};
use crate::save::{read_whole, save_private};
use crate::values::CachePlace;

/// MiB where nothing else is said.
const MEMORY_MIB: u64 = 256;
const DISK_MIB: u64 = 4096;
/// Largest exported file that is read.
const MAX_IMPORT_BYTES: u64 = 1 << 30;

/// How quantised vision towers are called beside the other rooms of the folder.
const VISION: &str = "vision";

type Caches = (Option<Arc<EmbeddingCache>>, Option<Arc<KvSnapshots>>);

/// The embedding cache and the KV snapshots of a session.
pub fn open(args: &CacheArgs) -> Result<Caches> {
    // a large disk is no reason for a large process
    let memory = match args.cache {
        CachePlace::Disk => args.cache_mb.unwrap_or(MEMORY_MIB).min(MEMORY_MIB),
        _ => args.cache_mb.unwrap_or(MEMORY_MIB),
    };
    let memory = bytes(memory);
    let disk = bytes(args.cache_mb.unwrap_or(DISK_MIB));
    let config = CacheConfig::default().memory_bytes(memory).dtype(args.cache_dtype);
    let (config, folder) = match &args.cache {
        CachePlace::Off if args.prompt_cache => {
            return Err(Problem::usage("--prompt-cache keeps states where --cache says, and that is off").into());
        }
        CachePlace::Off => return Ok((None, None)),
        CachePlace::Memory => (config, None),
        CachePlace::Disk => {
            let dir = folder(args.cache_dir.as_deref())?;
            if let Err(error) = CacheFolder::new(&dir).check_writable() {
                note(format_args!("nothing new is kept on the disk: {error}"));
            }
            (config.disk(&dir, disk), Some(dir))
        }
        CachePlace::Redis(url) => (redis(config, url)?, None),
    };
    let snapshots = args.prompt_cache.then(|| KvSnapshots::new(memory, folder.as_deref().map(|dir| (dir, disk))));
    Ok((Some(EmbeddingCache::new(config)), snapshots))
}

#[cfg(feature = "redis")]
fn redis(config: CacheConfig, url: &str) -> Result<CacheConfig> {
    use llava::embedding::{RedisConfig, RedisTier};
    Ok(config.shared(Arc::new(RedisTier::new(RedisConfig::new(url))?)))
}

#[cfg(not(feature = "redis"))]
fn redis(_: CacheConfig, url: &str) -> Result<CacheConfig> {
    // what follows may hold a password
    let scheme = url.split(':').next().unwrap_or_default();
    Err(Problem::usage(format!("--cache {scheme}://...: this program was built without the feature `redis`")).into())
}

fn bytes(mib: u64) -> u64 {
    mib.saturating_mul(1 << 20)
}

/// The cache folder: the one that was named, or the platform's.
pub fn folder(dir: Option<&Path>) -> Result<PathBuf> {
    if let Some(dir) = dir {
        return Ok(dir.to_owned());
    }
    let dirs = directories::ProjectDirs::from("", "", "llava").ok_or_else(|| {
        Problem::usage("this account has no home folder to keep a cache in").hint("name one: --cache-dir DIR")
    })?;
    Ok(dirs.cache_dir().to_owned())
}

/// `llava-cli cache`.
pub fn run(args: &CacheCommandArgs) -> Result<()> {
    let folder = CacheFolder::new(folder(args.cache_dir.as_deref())?);
    let towers = VisionFolder::new(folder.path());
    match &args.action {
        CacheAction::Stats => {
            print(&format!("folder      {}\n", folder.path().display()))?;
            for room in Room::ALL {
                let entries = folder.list(room)?;
                let total: u64 = entries.iter().map(|e| e.bytes).sum();
                print(&format!("{:<11} {} entries, {total} bytes\n", room.name(), entries.len()))?;
            }
            let entries = towers.list()?;
            let total: u64 = entries.iter().map(|e| e.bytes).sum();
            print(&format!("{VISION:<11} {} entries, {total} bytes\n", entries.len()))?;
        }
        CacheAction::List => {
            for room in Room::ALL {
                for entry in folder.list(room)? {
                    print(&format!("{}\t{}\t{}\t{}\n", room.name(), entry.key, entry.bytes, age(entry.used)))?;
                }
            }
            for entry in towers.list()? {
                print(&format!("{VISION}\t{}\t{}\t{}\n", entry.source, entry.bytes, age(entry.used)))?;
            }
        }
        CacheAction::Clear => {
            for room in Room::ALL {
                say(format_args!("{}: {} entries removed", room.name(), folder.clear(room)?));
            }
            say(format_args!("{VISION}: {} entries removed", towers.clear()?));
        }
        CacheAction::Verify { remove } => {
            let verified = folder.verify(*remove)?;
            for (room, key) in &verified.bad {
                print(&format!("{}\t{key}\t{}\n", room.name(), if *remove { "damaged, removed" } else { "damaged" }))?;
            }
            // made anew when they are used next, so that there is nothing to remove
            let (whole, damaged): (Vec<_>, Vec<_>) = towers.list()?.into_iter().partition(VisionEntry::is_whole);
            for entry in &damaged {
                print(&format!("{VISION}\t{}\tdamaged\n", entry.source))?;
            }
            let bad = verified.bad.len() + damaged.len();
            say(format_args!("{} whole, {bad} damaged", verified.good + whole.len() as u64));
            if bad > 0 {
                return Err(Reported(FAILED).into());
            }
        }
        CacheAction::Export { key, output } => {
            let entry = folder.export(*key)?.ok_or_else(|| {
                Problem::failed("no-entry", format!("{} holds no embedding {key}", folder.path().display()))
            })?;
            save_private(output, &entry)?;
        }
        CacheAction::Import { file, cache_mb } => {
            let entry = read_whole(file, MAX_IMPORT_BYTES)?;
            let facts = folder.import(&entry, bytes(cache_mb.unwrap_or(DISK_MIB))).map_err(in_file(file))?;
            say(format_args!("{}: {} rows of {}", facts.key, facts.rows, facts.width));
        }
    }
    Ok(())
}

/// Seconds since a time.
fn age(used: SystemTime) -> u64 {
    SystemTime::now().duration_since(used).map_or(0, |d| d.as_secs())
}
