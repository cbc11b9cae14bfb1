//! Quantised vision towers for loading: made once, kept in a cache folder, used by whoever asks next.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::plan::Plan;
use super::record::{KEY_DATA, KEY_SOURCE, RULES_VERSION, fingerprint};
use super::role::Role;
use super::rules::Rules;
use super::write::{Candidate, QuantizeParams};
use crate::error::{Error, Result};
use crate::gguf::{GgufFile, TensorType, check_projector};
use crate::llama::Progress;

/// Folder inside the cache folder.
const NAME: &str = "vision";
/// How long one process waits between looks at a file that another one makes.
const PATIENCE: Duration = Duration::from_millis(50);

/// Which numbers the vision tower is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum VisionPrecision {
    /// Whatever the file holds.
    #[default]
    AsIs,
    /// The original file, and only if its tower is not quantised: for work in which a lost detail does harm.
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
    /// [`Error::BadParameter`] where [`VisionPrecision::F16`] is asked of a file whose tower is quantised already; otherwise as
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
            return match plan.tensors().iter().find(|t| t.role == Role::TowerMatrix && !t.source.is_plain_float()) {
                None => Ok(projector.to_owned()),
                Some(t) => Err(Error::BadParameter {
                    name: "vision",
                    value: "f16".to_owned(),
                    reason: format!(
                        "{} stores `{}` as {}: give the original file",
                        projector.display(),
                        t.name,
                        t.source
                    ),
                }),
            };
        }
        if !plan.tensors().iter().any(|t| t.changes() && t.target == TensorType::Q8_0) {
            tracing::debug!(projector = %projector.display(), "nothing to store as q8_0");
            return Ok(projector.to_owned());
        }
        self.quantized(projector, &source, progress)
    }

    fn quantized(&self, projector: &Path, source: &GgufFile, progress: Option<&Progress>) -> Result<PathBuf> {
        let hash = fingerprint(source)?;
        let name = format!("{hash:032x}-q8_0-{RULES_VERSION}.gguf");
        let goal = self.dir.join(&name);
        if is_whole(&goal, hash) {
            touch(&goal);
            return Ok(goal);
        }
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { action, path, source }
        };
        fs::create_dir_all(&self.dir).map_err(io("create", &self.dir))?;
        // never removed: a removed lock file would be another one for whoever opens it next
        let lock_path = self.dir.join(format!("{name}.lock"));
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(io("write", &lock_path))?;
        wait_for(&lock, &lock_path, progress)?;
        // by whoever held the lock
        if is_whole(&goal, hash) {
            return Ok(goal);
        }
        self.remove_leftovers(&name);
        tracing::info!(projector = %projector.display(), quantized = %goal.display(), "making a q8_0 vision tower, once");
        let params = QuantizeParams { overwrite: true, progress: progress.cloned(), ..QuantizeParams::default() };
        Candidate::write(projector, &goal, &params)?.publish()?;
        Ok(goal)
    }

    /// Temporary files of writers that were killed: who holds the lock is alone.
    fn remove_leftovers(&self, name: &str) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let start = format!(".{name}.");
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&start) {
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
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(io)?,
        };
        let mut list = Vec::new();
        for entry in entries {
            let path = entry.map_err(io)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let source = name.split('-').next().filter(|s| s.len() == 32 && s.bytes().all(|b| b.is_ascii_hexdigit()));
            let (Some(source), Ok(meta)) = (source, fs::metadata(&path)) else { continue };
            if path.extension().is_some_and(|e| e == "gguf") {
                let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                list.push(VisionEntry { source: source.to_owned(), bytes: meta.len(), used, path: path.clone() });
            }
        }
        list.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        Ok(list)
    }

    /// Removes all kept files and returns how many they were.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear(&self) -> Result<u64> {
        let list = self.list()?;
        for entry in &list {
            match fs::remove_file(&entry.path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(|source| Error::Io { action: "remove", path: entry.path.clone(), source })?,
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

/// Whether a kept file was made from a source of this content and still has its bytes.
fn is_whole(path: &Path, source_hash: u128) -> bool {
    let Ok(file) = GgufFile::open(path) else { return false };
    let recorded = |key: &str| file.get::<&str>(key).ok().flatten().and_then(|h| u128::from_str_radix(h, 16).ok());
    let right = recorded(KEY_SOURCE) == Some(source_hash)
        && check_projector(&file).is_ok()
        && recorded(KEY_DATA).is_some_and(|hash| file.data_hash().is_ok_and(|found| found == hash));
    if !right {
        tracing::warn!(file = %path.display(), "a kept vision tower is damaged and is made anew");
    }
    right
}

fn touch(path: &Path) {
    // only `list` is told a wrong time where this fails
    let _ = File::options().append(true).open(path).and_then(|f| f.set_modified(SystemTime::now()));
}

/// Waits until this process alone holds the lock; the system takes it from a process that ends.
fn wait_for(lock: &File, path: &Path, progress: Option<&Progress>) -> Result<()> {
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
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
