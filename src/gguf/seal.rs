//! A written file that waits for its name: whole on disk, still open to a last word in its metadata.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::value::Value;
use super::write::{put_value, refused};
use crate::error::{Error, Result};

/// Where a key's value lies in a file.
#[derive(Debug)]
pub(super) struct ValuePlace {
    pub(super) key: String,
    pub(super) at: u64,
    pub(super) len: usize,
}

/// A complete GGUF file under a temporary name. Dropped before [`SealedGguf::publish`], it is removed.
///
/// Somebody can load it from [`SealedGguf::path`] and decide then whether it deserves its name.
#[derive(Debug)]
pub struct SealedGguf {
    file: File,
    temporary: Temporary,
    path: PathBuf,
    values: Vec<ValuePlace>,
    data_hash: u128,
}

impl SealedGguf {
    pub(super) fn new(
        file: File,
        temporary: Temporary,
        path: PathBuf,
        values: Vec<ValuePlace>,
        data_hash: u128,
    ) -> SealedGguf {
        SealedGguf { file, temporary, path, values, data_hash }
    }

    /// Where the file lies until it is published: beside its goal.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.temporary.path.as_deref().unwrap_or(&self.path)
    }

    /// XXH3-128 of all tensors' bytes in file order, without padding: what
    /// [`GgufFile::data_hash`](super::GgufFile::data_hash) computes from the file.
    #[must_use]
    pub fn data_hash(&self) -> u128 {
        self.data_hash
    }

    /// Replaces a value by one of the same type and length.
    ///
    /// # Errors
    /// [`Error::BadParameter`] if there is no such key or the value takes another number of bytes; [`Error::Io`].
    pub fn replace(&mut self, key: &str, value: impl Into<Value>) -> Result<()> {
        let Some(place) = self.values.iter().find(|v| v.key == key) else {
            return Err(refused("key", key, "is not in the file"));
        };
        let mut bytes = Vec::new();
        put_value(&mut bytes, &value.into());
        if bytes.len() != place.len {
            return Err(refused("key", key, format!("holds {} bytes, the new value has {}", place.len, bytes.len())));
        }
        let io = |source| Error::Io { action: "write", path: self.path.clone(), source };
        self.file.seek(SeekFrom::Start(place.at)).map_err(io)?;
        self.file.write_all(&bytes).map_err(io)
    }

    /// As [`SealedGguf::publish`], where nothing has the name yet.
    ///
    /// # Errors
    /// [`Error::Io`], of the kind [`ErrorKind::AlreadyExists`] where something has the name by now; it is untouched then.
    pub fn publish_new(self) -> Result<()> {
        let io = |source| Error::Io { action: "write", path: self.path.clone(), source };
        let Some(temporary) = &self.temporary.path else { return self.publish() };
        self.file.sync_all().map_err(io)?;
        match std::fs::hard_link(temporary, &self.path) {
            // the other name goes with `self`
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(io(e)),
            // a file system without links: looking first is the best there is
            Err(_) => match std::fs::symlink_metadata(&self.path) {
                Ok(_) => Err(io(ErrorKind::AlreadyExists.into())),
                Err(_) => self.publish(),
            },
        }
    }

    /// Makes the bytes durable and gives the file its name, replacing an older one in one step.
    ///
    /// # Errors
    /// [`Error::Io`]; the older file is untouched then.
    pub fn publish(mut self) -> Result<()> {
        let io = |source| Error::Io { action: "write", path: self.path.clone(), source };
        self.file.sync_all().map_err(io)?;
        if let Some(temporary) = &self.temporary.path {
            std::fs::rename(temporary, &self.path).map_err(io)?;
        }
        self.temporary.path = None;
        Ok(())
    }
}

/// Removes the temporary file unless it was given its real name.
#[derive(Debug)]
pub(super) struct Temporary {
    path: Option<PathBuf>,
}

impl Temporary {
    pub(super) fn new(path: PathBuf) -> Temporary {
        Temporary { path: Some(path) }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nobody is left to tell; a stale temporary file is never read by anything.
            let _ = std::fs::remove_file(path);
        }
    }
}
