//! The demo model inside the library: its bytes, and putting them where native code can map them.
//!
//! What this room does: writes the two files of `models/demo` to the platform's cache folder, once, and says where they are.
//! What it never does: load them, or trust a file that is already there.
//! Who calls it: `llava-cli` without `-m`, examples, tests.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};

/// A file of the demo model.
struct Bundled {
    name: &'static str,
    bytes: &'static [u8],
}

const MODEL: Bundled = Bundled { name: "demo-lm-f16.gguf", bytes: include_bytes!("../models/demo/demo-lm-f16.gguf") };
const PROJECTOR: Bundled =
    Bundled { name: "demo-mmproj-f16.gguf", bytes: include_bytes!("../models/demo/demo-mmproj-f16.gguf") };

/// The demo model's two files on disk.
///
/// They lie in the platform's cache folder (`$XDG_CACHE_HOME/llava` or `~/.cache/llava` on Linux), in a folder named after
/// their content, so that versions do not disturb each other. Where that folder cannot be written they lie in a private
/// temporary folder, which is removed when this value is dropped: load the models first, then drop it.
///
/// ```
/// use llava::demo::DemoModel;
/// use llava::llama::{Model, ModelParams};
///
/// let demo = DemoModel::unpack()?;
/// let model = Model::load(demo.model(), &ModelParams::default())?;
/// assert_eq!(model.architecture(), "llama");
/// # Ok::<(), llava::Error>(())
/// ```
#[derive(Debug)]
pub struct DemoModel {
    model: PathBuf,
    projector: PathBuf,
    _temporary: Option<TemporaryFolder>,
}

impl DemoModel {
    /// Finds or writes the two files. Processes that do so at the same time do not disturb each other.
    ///
    /// A file that is already there is compared with the bundled bytes and replaced where it differs.
    ///
    /// # Errors
    /// [`Error::Io`] where neither the cache folder nor the temporary folder can be written.
    pub fn unpack() -> Result<Self> {
        if let Some(dirs) = directories::ProjectDirs::from("", "", "llava") {
            let folder = dirs.cache_dir().join(format!("demo-{:032x}", fingerprint()));
            match Self::unpack_into(&folder) {
                Ok(demo) => return Ok(demo),
                Err(error) => tracing::warn!(%error, "the cache folder cannot be used, taking a temporary one"),
            }
        }
        let temporary = TemporaryFolder::new(&std::env::temp_dir())?;
        let Self { model, projector, .. } = Self::unpack_into(&temporary.0)?;
        Ok(Self { model, projector, _temporary: Some(temporary) })
    }

    /// As [`unpack`](Self::unpack), into a folder of the caller's choice, which is made if need be and never removed.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be made or written.
    pub fn unpack_into(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).map_err(io("create", folder))?;
        remove_leftovers(folder);
        Ok(Self { model: place(folder, &MODEL)?, projector: place(folder, &PROJECTOR)?, _temporary: None })
    }

    /// The text model.
    #[must_use]
    pub fn model(&self) -> &Path {
        &self.model
    }

    /// The projector.
    #[must_use]
    pub fn projector(&self) -> &Path {
        &self.projector
    }
}

/// XXH3-128 of both files.
fn fingerprint() -> u128 {
    let mut hash = Xxh3::new();
    for file in [&MODEL, &PROJECTOR] {
        hash.update(&(file.bytes.len() as u64).to_le_bytes());
        hash.update(file.bytes);
    }
    hash.digest128()
}

/// Makes sure that the file is there with the right content.
fn place(folder: &Path, file: &Bundled) -> Result<PathBuf> {
    let path = folder.join(file.name);
    if holds(&path, file.bytes) {
        return Ok(path);
    }
    // A file must not be replaced by its like: whoever has loaded it would see another one. Where folders cannot be locked, the
    // worst is that.
    let folder_lock = File::open(folder).and_then(|f| f.lock().map(|()| f));
    if let Err(error) = &folder_lock {
        tracing::debug!(%error, folder = %folder.display(), "not locked");
    }
    if holds(&path, file.bytes) {
        return Ok(path);
    }
    let temporary = folder.join(format!("{}.{}", file.name, unique()));
    let written = write_new(&temporary, file.bytes)
        .map_err(io("write", &temporary))
        .and_then(|()| fs::rename(&temporary, &path).map_err(io("write", &path)));
    if let Err(error) = written {
        // nothing is lost if it was never made
        let _ = fs::remove_file(&temporary);
        // where another process holds the file open, some platforms refuse to replace it; it may have the right content by now
        return if holds(&path, file.bytes) { Ok(path) } else { Err(error) };
    }
    drop(folder_lock);
    Ok(path)
}

/// Removes what a process that was killed while writing left behind. An hour is longer than any writing takes.
fn remove_leftovers(folder: &Path) {
    const AGE: Duration = Duration::from_secs(3600);
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let old = entry.metadata().and_then(|m| m.modified()).is_ok_and(|t| t.elapsed().is_ok_and(|age| age > AGE));
        if old && entry.path().extension().is_some_and(|e| e == "tmp") {
            // another process may have been quicker
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Whether a file is there with exactly this content. Whatever stands in the way of knowing is a no.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    // opening a pipe would wait for a writer
    if !fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == bytes.len() as u64) {
        return false;
    }
    let Ok(mut file) = File::open(path) else { return false };
    let mut block = vec![0_u8; 1 << 16];
    let mut rest = bytes;
    while !rest.is_empty() {
        let want = block.len().min(rest.len());
        if file.read_exact(&mut block[..want]).is_err() || block[..want] != rest[..want] {
            return false;
        }
        rest = &rest[want..];
    }
    true
}

/// A part of a file name that no other process and no other call uses.
fn unique() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!("{}-{}-{:x}.tmp", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed), nanos)
}

fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> Error + 'a {
    move |source| Error::Io { action, path: path.to_owned(), source }
}

/// A folder that nobody else can write, removed with this value.
#[derive(Debug)]
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new(parent: &Path) -> Result<Self> {
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        loop {
            let path = parent.join(format!("llava-demo-{}", unique()));
            match builder.create(&path) {
                Ok(()) => return Ok(Self(path)),
                // somebody guessed the name; the next one differs
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io("create", &path)(error)),
            }
        }
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, folder = %self.0.display(), "a temporary folder stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_when_it_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let (old, young) = (folder.path().join("a.gguf.1.tmp"), folder.path().join("a.gguf.2.tmp"));
        for path in [&old, &young] {
            fs::write(path, "half").unwrap();
        }
        let yesterday = SystemTime::now() - Duration::from_secs(86400);
        File::options().write(true).open(&old).unwrap().set_modified(yesterday).unwrap();
        DemoModel::unpack_into(folder.path()).unwrap();
        assert!(!old.exists() && young.exists());
        // also when nothing has to be written
        fs::write(&old, "half").unwrap();
        File::options().write(true).open(&old).unwrap().set_modified(yesterday).unwrap();
        DemoModel::unpack_into(folder.path()).unwrap();
        assert!(!old.exists());
    }

    /// Whoever has loaded a file must not find another one in its place.
    #[cfg(unix)]
    #[test]
    fn many_at_once_get_one_file() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let identity = || {
            let demo = DemoModel::unpack_into(folder.path()).unwrap();
            [demo.model(), demo.projector()].map(|p| fs::metadata(p).map(|m| (m.ino(), m.ctime_nsec())).unwrap())
        };
        let seen: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(identity)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|s| *s == seen[0]), "{seen:?}");
    }

    #[test]
    fn writes_once_and_repairs_what_differs() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("a/b");
        let demo = DemoModel::unpack_into(&folder).unwrap();
        assert_eq!(fs::read(demo.model()).unwrap(), MODEL.bytes);
        assert_eq!(fs::read(demo.projector()).unwrap(), PROJECTOR.bytes);

        let before = fs::metadata(demo.model()).unwrap().modified().unwrap();
        DemoModel::unpack_into(&folder).unwrap();
        assert_eq!(fs::metadata(demo.model()).unwrap().modified().unwrap(), before, "written again without need");

        // one byte changed, cut short, and replaced by something else altogether
        let mut wrong = MODEL.bytes.to_vec();
        wrong[MODEL.bytes.len() - 1] ^= 1;
        for content in [&wrong[..], &MODEL.bytes[..1000], b""] {
            fs::write(demo.model(), content).unwrap();
            DemoModel::unpack_into(&folder).unwrap();
            assert!(fs::read(demo.model()).unwrap() == MODEL.bytes);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "temporary files stay behind");
    }

    #[test]
    fn many_at_once_do_not_disturb_each_other() {
        let home = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let demo = DemoModel::unpack_into(home.path()).unwrap();
                    assert!(holds(demo.model(), MODEL.bytes) && holds(demo.projector(), PROJECTOR.bytes));
                });
            }
        });
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error_with_its_path() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = DemoModel::unpack_into(&file.join("below")).unwrap_err();
        assert_eq!(error.code(), "io");
        assert!(error.to_string().contains("below"), "{error}");
    }

    #[test]
    fn a_temporary_folder_is_private_and_goes_away() {
        let home = tempfile::tempdir().unwrap();
        let folder = TemporaryFolder::new(home.path()).unwrap();
        let path = folder.0.clone();
        fs::write(path.join("x"), "x").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        drop(folder);
        assert!(!path.exists());
    }
}
