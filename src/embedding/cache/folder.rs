//! Looking after a cache folder from outside: what is in it, whether it is whole, moving single entries.

use std::path::{Path, PathBuf};

use super::disk::{DiskEntry, DiskStore, Put};
use crate::embedding::entry::{EntryFacts, HEADER_BYTES, inspect};
use crate::embedding::key::EmbeddingKey;
use crate::error::{Error, Result};

/// The two kinds of entries of a cache folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Room {
    /// Rows of encoded pictures.
    Embeddings,
    /// KV states behind pictures.
    KvStates,
}

impl Room {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Embeddings, Self::KvStates];

    /// Its name, which is also the folder's: `embeddings` or `kv`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Room::Embeddings => "embeddings",
            Room::KvStates => "kv",
        }
    }

    pub(crate) fn store(self, dir: &Path, bytes: u64) -> DiskStore {
        let suffix = match self {
            Room::Embeddings => "emb",
            Room::KvStates => "kv",
        };
        DiskStore::new(dir.join(self.name()), suffix, bytes)
    }
}

/// What [`CacheFolder::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Entries whose checksum, version and name are right.
    pub good: u64,
    /// The others.
    pub bad: Vec<(Room, EmbeddingKey)>,
}

/// A cache folder, whoever writes to it.
#[derive(Debug, Clone)]
pub struct CacheFolder {
    dir: PathBuf,
}

impl CacheFolder {
    /// The folder. Nothing is read or made yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Makes the folder where it is missing and tries to write to it. A cache does not need this: it works with what it finds
    /// and counts what fails. It is for programs that want to tell their user beforehand.
    ///
    /// # Errors
    /// [`Error::Io`] where nothing can be written there.
    pub fn check_writable(&self) -> Result<()> {
        Room::ALL.into_iter().try_for_each(|room| self.store(room).check_writable().map_err(self.io("write", room)))
    }

    /// All entries of a room, those unused for longest first.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder is there but cannot be read.
    pub fn list(&self, room: Room) -> Result<Vec<DiskEntry>> {
        self.store(room).list().map_err(self.io("read", room))
    }

    /// Removes all entries of a room and returns how many they were.
    ///
    /// # Errors
    /// [`Error::Io`], also where another process held the folder for too long.
    pub fn clear(&self, room: Room) -> Result<u64> {
        match self.store(room).clear() {
            Ok(Some(removed)) => Ok(removed),
            Ok(None) => Err(self.io("clear", room)(std::io::ErrorKind::WouldBlock.into())),
            Err(e) => Err(self.io("clear", room)(e)),
        }
    }

    /// Reads every entry and compares checksum, version and name. `remove` deletes those that are bad.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be read; a single entry that cannot be read is bad.
    pub fn verify(&self, remove: bool) -> Result<Verified> {
        let mut verified = Verified::default();
        for room in Room::ALL {
            let store = self.store(room);
            for entry in self.list(room)? {
                let bytes = match store.read(entry.key) {
                    // gone since it was listed
                    Ok(None) => continue,
                    Ok(bytes) => bytes,
                    Err(_) => None,
                };
                let right = bytes
                    .as_deref()
                    .and_then(inspect)
                    .is_some_and(|facts| facts.key == entry.key && facts.dtype.is_some() == (room == Room::Embeddings));
                if right {
                    verified.good += 1;
                    continue;
                }
                verified.bad.push((room, entry.key));
                if remove {
                    store.remove_bad(entry.key, bytes.as_deref()).map_err(self.io("remove", room))?;
                }
            }
        }
        Ok(verified)
    }

    /// The bytes of an embedding's entry, checked. `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::State`] where it is damaged.
    pub fn export(&self, key: EmbeddingKey) -> Result<Option<Vec<u8>>> {
        let found = self.store(Room::Embeddings).read(key).map_err(self.io("read", Room::Embeddings))?;
        let Some(bytes) = found else { return Ok(None) };
        if inspect(&bytes).is_none_or(|facts| facts.key != key) {
            return Err(Error::State { reason: format!("cache entry {key} is damaged") });
        }
        Ok(Some(bytes))
    }

    /// Puts an exported entry into the folder, within `budget` bytes for all embeddings.
    ///
    /// # Errors
    /// [`Error::State`] for bytes that are no whole entry of an embedding; [`Error::Io`]; [`Error::BadParameter`] where it is
    /// larger than the budget.
    pub fn import(&self, bytes: &[u8], budget: u64) -> Result<EntryFacts> {
        let facts = inspect(bytes)
            .filter(|f| f.dtype.is_some())
            .ok_or_else(|| Error::State { reason: "not an exported embedding, or damaged".into() })?;
        let store = self.store(Room::Embeddings);
        let present = store.read(facts.key).unwrap_or_default();
        if let Some(old) = present.filter(|old| inspect(old).is_none_or(|old| old.key != facts.key)) {
            // a damaged one would count as present
            store.remove_bad(facts.key, Some(&old)).map_err(self.io("remove", Room::Embeddings))?;
        }
        let (header, payload) = bytes.split_at(HEADER_BYTES);
        let put = Room::Embeddings.store(&self.dir, budget).put(facts.key, header, payload);
        match put.map_err(self.io("write", Room::Embeddings))? {
            Put::Written { .. } | Put::Present => Ok(facts),
            Put::Busy => Err(self.io("write", Room::Embeddings)(std::io::ErrorKind::WouldBlock.into())),
            Put::TooLarge => Err(Error::BadParameter {
                name: "cache size",
                value: format!("{budget} bytes"),
                reason: format!("the entry takes {}", bytes.len()),
            }),
        }
    }

    fn store(&self, room: Room) -> DiskStore {
        room.store(&self.dir, u64::MAX)
    }

    fn io(&self, action: &'static str, room: Room) -> impl FnOnce(std::io::Error) -> Error + use<> {
        let path = self.dir.join(room.name());
        move |source| Error::Io { action, path, source }
    }
}
