//! A folder of entries under a budget of bytes, shared by any number of processes.
//!
//! Reading takes no lock: an entry appears under its name whole (temporary name, then rename) or not at all. Everything that
//! changes the folder happens under one file lock, which the system gives back when its holder dies, so a temporary file
//! that is seen under the lock belongs to nobody. The sum of all sizes is kept in a file and is at least the real sum; whoever
//! finds it too large, damaged or missing counts anew. Nothing is flushed to the medium: what a power failure leaves is
//! found by the entry's checksum.

use std::fs::{self, DirEntry, File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use xxhash_rust::xxh3::xxh3_64;

use crate::embedding::key::EmbeddingKey;

/// Longest wait for the folder's lock: longer than writing rows takes, shorter than most encodings. A large state takes longer;
/// others then write nothing.
const PATIENCE: Duration = Duration::from_millis(250);
/// The lock and the sum, so that the folder as a whole stays within its budget.
const OWN_FILES_BYTES: u64 = 64;
/// Largest file that is read back.
const MAX_ENTRY_BYTES: u64 = 4 << 30;

/// What became of an entry that was to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// Written; so many others had to go.
    Written { evicted: u64 },
    /// It was there already.
    Present,
    /// Larger than the budget.
    TooLarge,
    /// Another process held the folder for too long.
    Busy,
}

/// An entry of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskEntry {
    /// Its key.
    pub key: EmbeddingKey,
    /// Its size, header included.
    pub bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
}

/// The folder. Making one touches nothing; folders are made when something is written.
#[derive(Debug, Clone)]
pub(crate) struct DiskStore {
    root: PathBuf,
    suffix: &'static str,
    budget: u64,
}

struct Found {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    key: EmbeddingKey,
}

impl DiskStore {
    pub(crate) fn new(root: PathBuf, suffix: &'static str, budget: u64) -> Self {
        Self { root, suffix, budget }
    }

    /// The bytes of an entry, which becomes the one used last. `None` where there is none.
    pub(crate) fn get(&self, key: EmbeddingKey) -> std::io::Result<Option<Vec<u8>>> {
        self.open(key, true)
    }

    /// The bytes of an entry, which does not count as using it.
    pub(crate) fn read(&self, key: EmbeddingKey) -> std::io::Result<Option<Vec<u8>>> {
        self.open(key, false)
    }

    fn open(&self, key: EmbeddingKey, touch: bool) -> std::io::Result<Option<Vec<u8>>> {
        let path = self.path(key);
        match only_a_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotADirectory => return Ok(None),
            Err(e) => return Err(e),
        }
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let meta = file.metadata()?;
        if meta.len() > MAX_ENTRY_BYTES {
            return Err(std::io::Error::new(ErrorKind::InvalidData, "no entry"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        (&mut file).take(MAX_ENTRY_BYTES).read_to_end(&mut bytes)?;
        if touch {
            // where the folder is read-only, the order of use stays as it is
            let _ = file.set_modified(SystemTime::now());
        }
        Ok(Some(bytes))
    }

    /// Whether there is an entry, good or bad.
    pub(crate) fn holds(&self, key: EmbeddingKey) -> bool {
        self.path(key).is_file()
    }

    /// Writes an entry, at the cost of those unused for longest.
    pub(crate) fn put(&self, key: EmbeddingKey, header: &[u8], payload: &[u8]) -> std::io::Result<Put> {
        let need = (header.len() + payload.len()) as u64;
        if need > self.room() || need > MAX_ENTRY_BYTES {
            return Ok(Put::TooLarge);
        }
        make_private(&self.root)?;
        let Some(lock) = self.lock()? else { return Ok(Put::Busy) };
        let path = self.path(key);
        if let Ok(old) = fs::metadata(&path) {
            if old.len() == need {
                return Ok(Put::Present);
            }
            fs::remove_file(&path)?;
        }
        let mut total = self.read_total().map_or_else(|| self.count(), Ok)?;
        let mut evicted = 0;
        if total.saturating_add(need) > self.room() {
            (total, evicted) = self.evict(need)?;
        }
        // first the sum, then the file: a death in between leaves a sum that is too large, which only costs a count
        self.write_total(total + need)?;
        let written = self.write(&path, header, payload);
        if written.is_err() {
            self.write_total(total)?;
        }
        drop(lock);
        written.map(|()| Put::Written { evicted })
    }

    /// Removes an entry that was found bad, unless another process has put a good one in its place since. `bad`: what was
    /// read; `None` where it could not be read. The sum keeps its size until somebody counts. False where nothing was
    /// removed, also because the folder was busy for too long.
    pub(crate) fn remove_bad(&self, key: EmbeddingKey, bad: Option<&[u8]>) -> std::io::Result<bool> {
        if !self.root.is_dir() {
            return Ok(false);
        }
        let Some(_lock) = self.lock()? else { return Ok(false) };
        let now = match self.read(key) {
            Ok(None) => return Ok(false),
            Ok(now) => now,
            Err(_) => None,
        };
        if now.as_deref() != bad {
            return Ok(false);
        }
        match fs::remove_file(self.path(key)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Makes the folder and takes its lock once: what the first entry would need.
    pub(crate) fn check_writable(&self) -> std::io::Result<()> {
        make_private(&self.root)?;
        // a folder that is busy is one that can be written
        let lock = self.lock()?;
        if lock.is_some() {
            let total = self.read_total().map_or_else(|| self.count(), Ok)?;
            self.write_total(total)?;
        }
        Ok(())
    }

    /// All entries, those unused for longest first.
    pub(crate) fn list(&self) -> std::io::Result<Vec<DiskEntry>> {
        let found = self.scan(false)?;
        Ok(found.into_iter().map(|f| DiskEntry { key: f.key, bytes: f.bytes, used: f.used }).collect())
    }

    /// Removes all entries and returns how many they were. `None` where the folder was busy for too long.
    pub(crate) fn clear(&self) -> std::io::Result<Option<u64>> {
        match fs::metadata(&self.root) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Some(0)),
            Err(e) => return Err(e),
        }
        let Some(_lock) = self.lock()? else { return Ok(None) };
        let mut removed = 0;
        for entry in self.scan(true)? {
            fs::remove_file(&entry.path)?;
            removed += 1;
        }
        self.write_total(0)?;
        Ok(Some(removed))
    }

    fn room(&self) -> u64 {
        self.budget.saturating_sub(OWN_FILES_BYTES)
    }

    /// `root/ab/ab....suffix`: no folder grows beyond what file systems like.
    fn path(&self, key: EmbeddingKey) -> PathBuf {
        let name = key.to_string();
        self.root.join(&name[..2]).join(format!("{name}.{}", self.suffix))
    }

    /// The folder's lock. `None` where it was held by others for too long.
    fn lock(&self) -> std::io::Result<Option<File>> {
        let path = self.root.join("lock");
        only_a_file(&path)?;
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if start.elapsed() > PATIENCE => return Ok(None),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
    }

    fn read_total(&self) -> Option<u64> {
        let path = self.root.join("total");
        only_a_file(&path).ok()?;
        let bytes: [u8; 16] = fs::read(path).ok()?.try_into().ok()?;
        let (total, sum) = bytes.split_at(8);
        (sum == xxh3_64(total).to_le_bytes()).then(|| total.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    fn write_total(&self, total: u64) -> std::io::Result<()> {
        let total = total.to_le_bytes();
        let path = self.root.join("total");
        only_a_file(&path)?;
        fs::write(path, [total, xxh3_64(&total).to_le_bytes()].concat())
    }

    fn count(&self) -> std::io::Result<u64> {
        Ok(self.scan(true)?.iter().map(|f| f.bytes).sum())
    }

    /// Makes room for `need` and a tenth of the budget more, so that not every insertion has to count. Returns the new sum.
    fn evict(&self, need: u64) -> std::io::Result<(u64, u64)> {
        let found = self.scan(true)?;
        let mut total: u64 = found.iter().map(|f| f.bytes).sum();
        let mut evicted = 0;
        if total + need <= self.room() {
            return Ok((total, evicted));
        }
        let goal = (self.room() - self.room() / 10).saturating_sub(need);
        for entry in found {
            if total <= goal {
                break;
            }
            match fs::remove_file(&entry.path) {
                Ok(()) => evicted += 1,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
            total -= entry.bytes;
        }
        Ok((total, evicted))
    }

    /// Entries, those unused for longest first. `locked`: leftovers of writers that died are removed.
    fn scan(&self, locked: bool) -> std::io::Result<Vec<Found>> {
        let mut found = Vec::new();
        let folders = match fs::read_dir(&self.root) {
            Ok(folders) => folders,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(found),
            Err(e) => return Err(e),
        };
        for folder in folders.flatten().filter(|f| f.file_type().is_ok_and(|t| t.is_dir())) {
            let Ok(entries) = fs::read_dir(folder.path()) else { continue };
            for entry in entries.flatten() {
                if let Some(one) = self.recognise(&entry) {
                    found.push(one);
                } else if locked && is_leftover(&entry) {
                    // another process may have been quicker
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
        found.sort_by_key(|f| (f.used, f.key));
        Ok(found)
    }

    fn recognise(&self, entry: &DirEntry) -> Option<Found> {
        let path = entry.path();
        let key = path.file_stem()?.to_str()?.parse().ok()?;
        if path.extension()? != self.suffix {
            return None;
        }
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Found { bytes: meta.len(), used: meta.modified().ok()?, key, path })
    }

    fn write(&self, path: &Path, header: &[u8], payload: &[u8]) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            make_private(folder)?;
        }
        let temporary = path.with_extension("tmp");
        let result = (|| {
            let mut file = private_file(&temporary)?;
            file.write_all(header)?;
            file.write_all(payload)?;
            fs::rename(&temporary, path)
        })();
        if result.is_err() {
            // it may never have been made
            let _ = fs::remove_file(&temporary);
        }
        result
    }
}

/// Refuses what is there and no file: opening a pipe would wait for ever.
fn only_a_file(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => Ok(()),
        Ok(_) => Err(std::io::Error::new(ErrorKind::InvalidData, "no regular file")),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// A temporary file of this cache: other people's files are left alone.
fn is_leftover(entry: &DirEntry) -> bool {
    let path = entry.path();
    let ours = path.file_stem().and_then(|s| s.to_str()).is_some_and(|s| s.parse::<EmbeddingKey>().is_ok());
    ours && path.extension().is_some_and(|e| e == "tmp") && entry.file_type().is_ok_and(|t| t.is_file())
}

/// Pictures are private, and so is what can be told from their embeddings.
fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
