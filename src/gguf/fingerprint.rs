//! Telling files apart by what they hold.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::Xxh3;

use super::file::GgufFile;
use crate::error::{Error, Result};

/// Bytes of a tensor that [`sampled_hash`] looks at in three places.
const SAMPLE_BYTES: u64 = 4096;

/// What stands for a file's content as long as nobody writes to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    path: PathBuf,
    bytes: u64,
    modified_ns: u128,
    /// Device, inode and time of the last change of either content or inode, where the system has them.
    inode: (u64, u64, i64, i64),
}

impl Identity {
    fn new(path: &Path, meta: &Metadata) -> Self {
        let modified = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        Self {
            path: path.to_owned(),
            bytes: meta.len(),
            modified_ns: modified.map_or(0, |d| d.as_nanos()),
            inode: inode(meta),
        }
    }
}

#[cfg(unix)]
fn inode(meta: &Metadata) -> (u64, u64, i64, i64) {
    use std::os::unix::fs::MetadataExt;
    (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> (u64, u64, i64, i64) {
    (0, 0, 0, 0)
}

/// A file as it was at one moment: tells later whether it is still the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen(Identity);

impl Seen {
    /// Looks at a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
        Ok(Self(Identity::new(path, &std::fs::metadata(path).map_err(io)?)))
    }

    /// Refuses a file that was replaced or written to since.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::State`].
    pub(crate) fn check(&self) -> Result<()> {
        if Self::new(&self.0.path)? == *self {
            return Ok(());
        }
        Err(Error::State { reason: format!("{} has changed since it was loaded", self.0.path.display()) })
    }
}

/// XXH3-128 of all bytes of a file. Read once per process and file: as long as path, size, times and inode stay the same, the
/// hash is remembered; who asks while it is being read waits.
///
/// # Errors
/// [`Error::Io`].
pub fn content_hash(path: impl AsRef<Path>) -> Result<u128> {
    static KNOWN: Mutex<Option<HashMap<Identity, u128>>> = Mutex::new(None);
    static READING: Mutex<()> = Mutex::new(());
    let path = path.as_ref();
    let io = |action| move |source| Error::Io { action, path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io("open"))?;
    let identity = Identity::new(path, &file.metadata().map_err(io("read"))?);
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = known().as_ref().and_then(|k| k.get(&identity)) {
        return Ok(*hash);
    }
    let _one = READING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hash) = known().as_ref().and_then(|k| k.get(&identity)) {
        return Ok(*hash);
    }
    let mut hash = Xxh3::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(io("read"))? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    let hash = hash.digest128();
    // a file that was written to meanwhile is not remembered
    if file.metadata().is_ok_and(|meta| Identity::new(path, &meta) == identity) {
        known().get_or_insert_default().insert(identity, hash);
    }
    Ok(hash)
}

/// XXH3-128 over the header of a model and 4 KiB at the beginning, the middle and the end of every tensor: tells two
/// fine-tunes of one base apart without reading gigabytes. It is no proof against a forger.
///
/// # Errors
/// Those of [`GgufFile::open_split`] and [`GgufFile::read_part`].
pub fn sampled_hash(path: impl AsRef<Path>) -> Result<u128> {
    let file = GgufFile::open_split(path)?;
    let mut hash = Xxh3::new();
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (key, value) in file.metadata() {
        add(key.as_bytes());
        // whole, where Display shortens
        add(format!("{value:?}").as_bytes());
    }
    let mut buffer = Vec::new();
    for info in file.tensors() {
        add(format!("{} {:?} {:?} {}", info.name, info.dims, info.ggml_type, info.byte_len).as_bytes());
        let n = info.byte_len.min(SAMPLE_BYTES);
        buffer.resize(usize::try_from(n).unwrap_or(0), 0);
        for at in [0, (info.byte_len - n) / 2, info.byte_len - n] {
            file.read_part(info, at, &mut buffer)?;
            add(&buffer);
        }
    }
    Ok(hash.digest128())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_changes_has_another_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        fs::write(&path, "one").unwrap();
        let one = content_hash(&path).unwrap();
        assert_eq!(one, xxhash_rust::xxh3::xxh3_128(b"one"));
        assert_eq!(content_hash(&path).unwrap(), one);
        // same length, same time of modification
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "two").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let two = content_hash(&path).unwrap();
        if cfg!(unix) {
            assert_ne!(two, one);
        }
        assert_eq!(content_hash(folder.path().join("missing")).unwrap_err().code(), "io");
    }
}
