//! Telling files apart by what they hold.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

use crate::error::{Error, Result};

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

/// The files of something that was loaded, as they were then, and the name of their content.
#[derive(Debug)]
pub(crate) struct Fingerprint {
    files: Arc<Vec<Identity>>,
    hash: OnceLock<u128>,
    /// Where hashes are kept across processes.
    notes: OnceLock<PathBuf>,
}

impl Fingerprint {
    /// Looks at files that are about to be loaded. Nothing is read yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let files = paths.into_iter().map(look_at).collect::<Result<Vec<_>>>()?;
        Ok(Self { files: Arc::new(files), hash: OnceLock::new(), notes: OnceLock::new() })
    }

    /// [`content_hash`] of the file; of several, one over theirs. The first call reads them.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::State`] where a file was replaced or written to since it was loaded.
    pub(crate) fn get(&self) -> Result<u128> {
        if let Some(known) = self.hash.get() {
            return Ok(*known);
        }
        let hashes = self.files.iter().map(|file| hash_of(&file.path, self.notes.get().map(PathBuf::as_path)));
        let hashes = hashes.collect::<Result<Vec<u128>>>()?;
        // of the files that were loaded, not of ones that took their place
        self.check()?;
        let all = match hashes.as_slice() {
            [one] => *one,
            many => xxh3_128(&many.iter().flat_map(|hash| hash.to_le_bytes()).collect::<Vec<u8>>()),
        };
        Ok(*self.hash.get_or_init(|| all))
    }

    /// Refuses files that were replaced or written to since they were looked at.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::State`].
    pub(crate) fn check(&self) -> Result<()> {
        for file in self.files.iter() {
            if look_at(&file.path)? != *file {
                return Err(Error::State {
                    reason: format!("{} has changed since it was opened", file.path.display()),
                });
            }
        }
        Ok(())
    }

    /// Has the files read on a thread of their own, so that whoever asks first need not wait. `notes`: a folder that nobody else
    /// can write, where hashes are kept for the next process.
    pub(crate) fn ahead(&self, notes: Option<PathBuf>) {
        if let Some(notes) = notes {
            // the first folder stays
            let _ = self.notes.set(notes);
        }
        if self.hash.get().is_some() {
            return;
        }
        let (files, notes) = (Arc::clone(&self.files), self.notes.get().cloned());
        let reading = std::thread::Builder::new().name("llava-fingerprint".into()).spawn(move || {
            for file in files.iter() {
                // whoever needs it reads it again and tells the error
                let _ = hash_of(&file.path, notes.as_deref());
            }
        });
        if let Err(error) = reading {
            tracing::debug!(%error, "no thread for the fingerprint: the first question waits for it");
        }
    }
}

fn look_at(path: &Path) -> Result<Identity> {
    let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
    Ok(Identity::new(path, &std::fs::metadata(path).map_err(io)?))
}

/// XXH3-128 of all bytes of a file. Read once per process and file: as long as path, size, times and inode stay the same, the
/// hash is remembered; who asks while it is being read waits.
///
/// # Errors
/// [`Error::Io`].
pub fn content_hash(path: impl AsRef<Path>) -> Result<u128> {
    hash_of(path.as_ref(), None)
}

/// As [`content_hash`]; `notes` is a folder where the hash is kept for other processes. One that cannot be used costs the
/// reading.
fn hash_of(path: &Path, notes: Option<&Path>) -> Result<u128> {
    static KNOWN: Mutex<Option<HashMap<Identity, u128>>> = Mutex::new(None);
    static READING: Mutex<()> = Mutex::new(());
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
    if let Some(hash) = notes.and_then(|notes| identity.recall(notes)) {
        known().get_or_insert_default().insert(identity, hash);
        return Ok(hash);
    }
    let hash = hash_all(&mut file).map_err(io("read"))?;
    // a file that was written to meanwhile is not remembered
    if file.metadata().is_ok_and(|meta| Identity::new(path, &meta) == identity) {
        if let Some(Err(error)) = notes.map(|notes| identity.keep(notes, hash)) {
            tracing::debug!(%error, path = %path.display(), "a fingerprint is not kept");
        }
        known().get_or_insert_default().insert(identity, hash);
    }
    Ok(hash)
}

/// XXH3-128 of everything that is left to read.
pub(crate) fn hash_all(from: &mut impl Read) -> std::io::Result<u128> {
    let mut hash = Xxh3::new();
    let mut buffer = vec![0_u8; 1 << 20];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(hash.digest128()),
            Ok(n) => hash.update(&buffer[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Bytes of a kept fingerprint: two hashes of who it belongs to, the fingerprint, a checksum.
const NOTE_BYTES: usize = 16 + 16 + 8;

impl Identity {
    /// Everything that stands for the content, as one number.
    fn digest(&self) -> u128 {
        let mut hash = Xxh3::new();
        hash.update(b"llava fingerprint 1");
        hash.update(self.path.as_os_str().as_encoded_bytes());
        hash.update(&self.bytes.to_le_bytes());
        hash.update(&self.modified_ns.to_le_bytes());
        let (device, inode, changed, nanos) = self.inode;
        hash.update(&device.to_le_bytes());
        hash.update(&inode.to_le_bytes());
        hash.update(&changed.to_le_bytes());
        hash.update(&nanos.to_le_bytes());
        hash.digest128()
    }

    /// One small file for a path: a file that has changed takes its own place.
    fn note(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{:016x}", xxh3_64(self.path.as_os_str().as_encoded_bytes())))
    }

    fn recall(&self, folder: &Path) -> Option<u128> {
        // without inodes an overwritten file of the same size could pass for the old one
        let path = self.note(folder);
        if cfg!(not(unix)) || !std::fs::symlink_metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::with_capacity(NOTE_BYTES);
        File::open(path).ok()?.take(NOTE_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
        let note: [u8; NOTE_BYTES] = bytes.try_into().ok()?;
        let (body, sum) = note.split_at(32);
        if sum != xxh3_64(body).to_le_bytes() || body[..16] != self.digest().to_le_bytes() {
            return None;
        }
        body[16..].try_into().ok().map(u128::from_le_bytes)
    }

    fn keep(&self, folder: &Path, hash: u128) -> std::io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(folder)?;
        let body = [self.digest().to_le_bytes(), hash.to_le_bytes()].concat();
        let path = self.note(folder);
        // processes that write at the same time write the same
        let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
        let written = File::create(&temporary)
            .and_then(|mut f| f.write_all(&body).and_then(|()| f.write_all(&xxh3_64(&body).to_le_bytes())))
            .and_then(|()| std::fs::rename(&temporary, &path));
        if written.is_err() {
            // it may never have been made
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }
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

    #[cfg(unix)]
    #[test]
    fn a_kept_hash_belongs_to_one_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (path, notes) = (folder.path().join("a.bin"), folder.path().join("notes"));
        fs::write(&path, "one").unwrap();
        let identity = || Identity::new(&path, &fs::metadata(&path).unwrap());
        assert_eq!(identity().recall(&notes), None);
        let one = hash_of(&path, Some(&notes)).unwrap();
        // what another process finds
        assert_eq!(identity().recall(&notes), Some(one));
        let note = identity().note(&notes);
        let good = fs::read(&note).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&note, &bad).unwrap();
            assert_eq!(identity().recall(&notes), None, "byte {at}");
        }
        fs::write(&note, &good).unwrap();
        fs::write(&path, "two").unwrap();
        assert_eq!(identity().recall(&notes), None);
        let two = hash_of(&path, Some(&notes)).unwrap();
        assert!(two != one && identity().recall(&notes) == Some(two));
        assert_eq!(fs::read_dir(&notes).unwrap().count(), 1);
        // a folder that is a file
        fs::write(&path, "three").unwrap();
        assert_eq!(hash_of(&path, Some(&note)).unwrap(), xxhash_rust::xxh3::xxh3_128(b"three"));
    }
}
