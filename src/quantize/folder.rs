//! Quantised vision towers for loading: made once, kept in a cache folder, used by whoever asks next.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::plan::Plan;
use super::record::{KEY_SOURCE, KEY_VERSION, RULES_VERSION};
use super::rules::Rules;
use super::write::{Candidate, QuantizeParams};
use crate::error::{Error, Result};
use crate::gguf::{Fingerprint, GgufFile, TensorType, check_projector, hash_all};
use crate::llama::Progress;

/// Folder inside the cache folder.
const NAME: &str = "vision";
/// Ending of the file whose lock the maker of a kept file holds, and whose time is that of its last use.
const LOCK: &str = ".lock";
/// Ending of the file that holds the checksum of a kept one.
const SUM: &str = ".xxh3";
/// How long one process waits between looks at a file that another one makes.
const PATIENCE: Duration = Duration::from_millis(50);

/// Which numbers the vision tower is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum VisionPrecision {
    /// Whatever the file holds.
    #[default]
    AsIs,
    /// The original file, and only if nothing in it is quantised and this crate did not write it: for work in which a lost
    /// detail does harm.
    F16,
    /// A Q8_0 tower: half the memory, and faster where int8 kernels are. Made from the original once.
    Q8_0,
}

/// A cache folder's quantised projector files.
#[derive(Debug, Clone)]
pub struct VisionFolder {
    dir: PathBuf,
}

/// One kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VisionEntry {
    /// The file.
    pub path: PathBuf,
    /// XXH3-128 of the source's content, in hexadecimal digits.
    pub source: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last chosen for loading, as far as the file system keeps such times.
    pub used: SystemTime,
}

impl VisionFolder {
    /// The part of a cache folder that is for projector files. Nothing is read or made yet.
    #[must_use]
    pub fn new(cache: impl AsRef<Path>) -> Self {
        Self { dir: cache.as_ref().join(NAME) }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The file to load for a precision: `projector` itself, or the Q8_0 file made from it, now or earlier.
    ///
    /// A file is made by one process at a time; others wait for it. It is found again by the source's content, whatever its
    /// name, and is made anew where its bytes do not have their checksum.
    ///
    /// # Errors
    /// [`Error::BadParameter`] where [`VisionPrecision::F16`] is asked of a file that is not the original; otherwise as
    /// [`Candidate::write`].
    pub fn projector(
        &self,
        projector: &Path,
        precision: VisionPrecision,
        progress: Option<&Progress>,
    ) -> Result<PathBuf> {
        if precision == VisionPrecision::AsIs {
            return Ok(projector.to_owned());
        }
        let source = GgufFile::open_split(projector)?;
        check_projector(&source)?;
        let plan = Plan::new(&source, &Rules::default())?;
        if precision == VisionPrecision::F16 {
            let why = match plan.quantized_already() {
                Some(t) => format!("stores `{}` as {}", t.name, t.source),
                // whatever it stores now, it went through other numbers than the original's
                None if source.value(KEY_VERSION).is_some() => "was converted from another file".to_owned(),
                None => return Ok(projector.to_owned()),
            };
            let reason = format!("{} {why}: give the original file", projector.display());
            return Err(Error::BadParameter { name: "vision", value: "f16".to_owned(), reason });
        }
        if !plan.tensors().iter().any(|t| t.changes() && t.target == TensorType::Q8_0) {
            tracing::debug!(projector = %projector.display(), "nothing to store as q8_0");
            return Ok(projector.to_owned());
        }
        self.quantized(projector, &source, progress)
    }

    fn quantized(&self, projector: &Path, source: &GgufFile, progress: Option<&Progress>) -> Result<PathBuf> {
        let hash = Fingerprint::new(source.paths())?.get()?;
        let name = format!("{hash:032x}-q8_0-{RULES_VERSION}.gguf");
        let goal = self.dir.join(&name);
        // never removed: a removed lock file would be another one for whoever opens it next
        let lock_path = beside(&goal, LOCK);
        if is_whole(&goal, hash) {
            touch(&lock_path);
            return Ok(goal);
        }
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { action, path, source }
        };
        fs::create_dir_all(&self.dir).map_err(io("create", &self.dir))?;
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(io("write", &lock_path))?;
        wait_for(&lock, &lock_path, progress)?;
        touch(&lock_path);
        // by whoever held the lock
        if is_whole(&goal, hash) {
            return Ok(goal);
        }
        self.remove_leftovers(&name);
        tracing::info!(projector = %projector.display(), quantized = %goal.display(), "making a q8_0 vision tower, once");
        let params = QuantizeParams { overwrite: true, progress: progress.cloned(), ..QuantizeParams::default() };
        let candidate = Candidate::write(projector, &goal, &params)?;
        if candidate.summary().source_hash != hash {
            return Err(Error::State { reason: format!("{} was replaced while it was read", projector.display()) });
        }
        // first the checksum: where this process ends between the two, no file is taken for whole that is not
        let sum = checksum(candidate.path()).map_err(io("read", candidate.path()))?;
        let sum = format!("{sum:032x}\n");
        let sum_path = beside(&goal, SUM);
        let temporary = self.dir.join(format!(".{name}{SUM}.{}.tmp", std::process::id()));
        let save = || {
            let mut file = File::create(&temporary)?;
            file.write_all(sum.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &sum_path)
        };
        save().map_err(io("write", &sum_path))?;
        candidate.publish()?;
        Ok(goal)
    }

    /// Temporary files of writers that were killed: who holds the lock is alone.
    fn remove_leftovers(&self, name: &str) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let start = format!(".{name}.");
        for entry in entries.flatten() {
            let left = entry.file_name();
            let left = left.to_string_lossy();
            if left.starts_with(&start) && left.ends_with(".tmp") {
                // what cannot be removed stays
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// All kept files, those unused for longest first.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder is there but cannot be read.
    pub fn list(&self) -> Result<Vec<VisionEntry>> {
        let io = |source| Error::Io { action: "read", path: self.dir.clone(), source };
        let entries = match fs::read_dir(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(io)?,
        };
        let mut list = Vec::new();
        for entry in entries {
            let path = entry.map_err(io)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let source = name.split('-').next().filter(|s| s.len() == 32 && s.bytes().all(|b| b.is_ascii_hexdigit()));
            let (Some(source), Ok(meta)) = (source, fs::metadata(&path)) else { continue };
            if meta.is_file() && path.extension().is_some_and(|e| e == "gguf") {
                let times = fs::metadata(beside(&path, LOCK)).unwrap_or_else(|_| meta.clone());
                let used = times.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                list.push(VisionEntry { source: source.to_owned(), bytes: meta.len(), used, path: path.clone() });
            }
        }
        list.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        Ok(list)
    }

    /// Removes all kept files and returns how many they were. What writers that were killed have left goes too.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear(&self) -> Result<u64> {
        let list = self.list()?;
        for entry in &list {
            for path in [entry.path.clone(), beside(&entry.path, SUM)] {
                match fs::remove_file(&path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    other => other.map_err(|source| Error::Io { action: "remove", path, source })?,
                }
            }
        }
        let Ok(entries) = fs::read_dir(&self.dir) else { return Ok(list.len() as u64) };
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let Some(name) = file_name.to_str().and_then(|n| n.strip_suffix(LOCK)) else { continue };
            let lock = File::options().write(true).open(entry.path());
            // whoever holds it is writing now
            if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
                self.remove_leftovers(name);
            }
        }
        Ok(list.len() as u64)
    }
}

impl VisionEntry {
    /// Reads the file and compares it with its checksum and its source.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        u128::from_str_radix(&self.source, 16).is_ok_and(|hash| is_whole(&self.path, hash))
    }
}

/// What belongs to a kept file, under a name of its own.
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// XXH3-128 of a file as it is on the disk now: a remembered one would not show damage.
fn checksum(path: &Path) -> io::Result<u128> {
    hash_all(&mut File::open(path)?)
}

/// Whether a kept file was made from a source of this content and still has its bytes, header and all.
fn is_whole(path: &Path, source_hash: u128) -> bool {
    if !path.exists() {
        return false;
    }
    let number = |digits: &str| u128::from_str_radix(digits.trim_end(), 16).ok();
    let recorded = fs::read_to_string(beside(path, SUM)).ok().and_then(|sum| number(&sum));
    let right = recorded.is_some_and(|sum| checksum(path).is_ok_and(|found| found == sum))
        && GgufFile::open(path).is_ok_and(|file| {
            check_projector(&file).is_ok()
                && file.get::<&str>(KEY_SOURCE).ok().flatten().and_then(number) == Some(source_hash)
        });
    if !right {
        tracing::warn!(file = %path.display(), "a kept vision tower is damaged and is made anew");
    }
    right
}

/// Notes that a kept file is used, at its lock: the file itself may be loaded by processes that must not see it change.
fn touch(path: &Path) {
    // only `list` is told a wrong time where this fails
    let _ = File::options().append(true).open(path).and_then(|f| f.set_modified(SystemTime::now()));
}

/// Waits until this process alone holds the lock; the system takes it from a process that ends.
fn wait_for(lock: &File, path: &Path, progress: Option<&Progress>) -> Result<()> {
    let mut told = false;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if told => {}
            Err(TryLockError::WouldBlock) => {
                tracing::info!(lock = %path.display(), "waiting for another process that makes this file");
                told = true;
            }
            Err(TryLockError::Error(source)) => {
                return Err(Error::Io { action: "lock", path: path.to_owned(), source });
            }
        }
        if progress.is_some_and(|p| !p(0.0)) {
            return Err(Error::Cancelled);
        }
        std::thread::sleep(PATIENCE);
    }
}
