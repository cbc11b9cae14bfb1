//! An opened GGUF file: metadata in memory, tensors on disk.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::Xxh3;

use super::read::{self, Header};
use super::tensor_type::TensorType;
use super::value::{FromValue, Value};
use crate::error::{Error, Result};

/// One tensor's entry in the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, at most 63 bytes.
    pub name: String,
    /// Extents in ggml's order (`ne`): the first is the length of a row and varies fastest, so a matrix that PyTorch
    /// calls `[out, in]` is `[in, out]` here. At most four; none at all is a scalar.
    pub dims: Vec<u64>,
    /// How the elements are stored.
    pub ggml_type: TensorType,
    /// First byte, counted from the start of the data section of its shard.
    pub offset: u64,
    /// Bytes, without padding.
    pub byte_len: u64,
    /// Which file of a split model holds it; 0 for a single file.
    pub shard: usize,
}

impl TensorInfo {
    /// The extent at `index` in `ne` order, 1 beyond the stored ones.
    #[must_use]
    pub fn dim(&self, index: usize) -> u64 {
        self.dims.get(index).copied().unwrap_or(1)
    }

    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// One file on disk that belongs to an opened model.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) path: PathBuf,
    /// `None` when the header was read from something else than a file.
    pub(super) file: Option<Mutex<File>>,
    pub(super) data_offset: u64,
}

/// A checked GGUF header with its index; tensor bytes are read on demand.
///
/// The handle keeps the file open, so a file that is replaced on disk (by rename) keeps giving the old bytes.
#[derive(Debug)]
pub struct GgufFile {
    version: u32,
    alignment: u64,
    metadata: Vec<(String, Value)>,
    keys: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    names: HashMap<String, usize>,
    shards: Vec<Shard>,
}

impl GgufFile {
    /// Opens one file and checks its header against its size. Of a split model this gives one part; see
    /// [`GgufFile::open_split`].
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotGguf`], [`Error::UnsupportedGguf`], [`Error::DamagedGguf`] (with the byte offset and
    /// both numbers) or [`Error::BadMetadata`] for `general.alignment`; always with the path.
    pub fn open(path: impl AsRef<Path>) -> Result<GgufFile> {
        let path = path.as_ref();
        let io = |action| move |source| Error::Io { action, path: path.to_path_buf(), source };
        // opening a pipe would wait for a writer
        let kind = std::fs::metadata(path).map_err(io("open"))?;
        if kind.is_dir() {
            return Err(io("open")(ErrorKind::IsADirectory.into()));
        }
        if !kind.is_file() {
            return Err(io("open")(std::io::Error::new(ErrorKind::InvalidInput, "not a regular file")));
        }
        let file = File::open(path).map_err(io("open"))?;
        let meta = file.metadata().map_err(io("open"))?;
        let header = read::header(BufReader::new(&file), meta.len(), path)?;
        Ok(GgufFile::from_header(header, path, Some(file)))
    }

    /// Parses a header from any reader at the first byte; `len` is the size of the whole file, `path` is for messages.
    ///
    /// Tensor bytes cannot be read through the result, as the reader is not kept.
    ///
    /// # Errors
    /// As [`GgufFile::open`].
    pub fn read(reader: impl Read, len: u64, path: impl AsRef<Path>) -> Result<GgufFile> {
        let path = path.as_ref();
        Ok(GgufFile::from_header(read::header(reader, len, path)?, path, None))
    }

    fn from_header(header: Header, path: &Path, file: Option<File>) -> GgufFile {
        let shard = Shard { path: path.to_path_buf(), file: file.map(Mutex::new), data_offset: header.data_offset };
        GgufFile {
            version: header.version,
            alignment: header.alignment,
            keys: header.metadata.iter().enumerate().map(|(i, (k, _))| (k.clone(), i)).collect(),
            names: header.tensors.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect(),
            metadata: header.metadata,
            tensors: header.tensors,
            shards: vec![shard],
        }
    }

    /// Adds the tensors of the next part of a split model; a name that is there already is given back as the error.
    pub(super) fn append(&mut self, part: GgufFile) -> std::result::Result<(), String> {
        let shard = self.shards.len();
        self.shards.extend(part.shards);
        for info in part.tensors {
            if self.names.insert(info.name.clone(), self.tensors.len()).is_some() {
                return Err(info.name);
            }
            self.tensors.push(TensorInfo { shard, ..info });
        }
        Ok(())
    }

    /// The file's path; of a split model the first part's.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shards[0].path
    }

    /// All files, in order; one unless the model is split.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.shards.iter().map(|s| s.path.as_path())
    }

    /// Version of the format, 2 or 3.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes, a power of two.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Where the data section begins, in bytes from the start of the (first) file.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        self.shards[0].data_offset
    }

    /// All metadata in file order; of a split model the first part's.
    pub fn metadata(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value of a key, whatever its type.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).map(|&i| &self.metadata[i].1)
    }

    /// The value of a key as exactly this type: `file.get::<u32>("clip.vision.patch_size")?`. `None` if the key is
    /// missing. Works for numbers, `bool`, `&str`, [`Bytes`](super::Bytes), `&[f32]` and the like.
    ///
    /// # Errors
    /// [`Error::BadMetadata`] if the key holds another type.
    pub fn get<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match T::from_value(value) {
            Some(v) => Ok(Some(v)),
            None => Err(self.bad_key(key, format!("has type {} ({value}), must be {}", value.type_name(), T::WANTED))),
        }
    }

    /// As [`GgufFile::get`], for a key that has to be there.
    ///
    /// # Errors
    /// [`Error::BadMetadata`] if the key is missing or holds another type.
    pub fn require<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        self.get(key)?.ok_or_else(|| self.bad_key(key, format!("is missing, must be {}", T::WANTED)))
    }

    /// All tensors in file order.
    #[must_use]
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The entry of one tensor.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.names.get(name).map(|&i| &self.tensors[i])
    }

    /// All bytes of one tensor, as stored.
    ///
    /// # Errors
    /// [`Error::BadTensor`] if there is none of that name, [`Error::Io`], or [`Error::DamagedGguf`] if the file has
    /// become shorter since it was opened.
    pub fn read_tensor(&self, name: &str) -> Result<Vec<u8>> {
        let info = self.tensor(name).ok_or_else(|| self.bad_tensor(name, "is missing"))?;
        let len =
            usize::try_from(info.byte_len).map_err(|_| self.bad_tensor(name, "is larger than the address space"))?;
        let mut out = vec![0; len];
        self.read_part(info, 0, &mut out)?;
        Ok(out)
    }

    /// Fills `out` from the tensor's bytes, beginning at byte `at` of the tensor.
    ///
    /// # Errors
    /// As [`GgufFile::read_tensor`]; [`Error::BadTensor`] also if the range is not inside the tensor.
    pub fn read_part(&self, info: &TensorInfo, at: u64, out: &mut [u8]) -> Result<()> {
        if at.checked_add(out.len() as u64).is_none_or(|end| end > info.byte_len) {
            let reason = format!("has {} bytes, {} from byte {at} were asked for", info.byte_len, out.len());
            return Err(self.bad_tensor(&info.name, reason));
        }
        let shard =
            self.shards.get(info.shard).ok_or_else(|| self.bad_tensor(&info.name, "belongs to another file"))?;
        let file = shard
            .file
            .as_ref()
            .ok_or_else(|| self.bad_tensor(&info.name, "cannot be read, only the header was given"))?;
        let start = shard.data_offset + info.offset + at;
        // A panic of another thread while it held the lock leaves only the seek position behind, which is set anew here.
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(out)).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::DamagedGguf {
                path: shard.path.clone(),
                offset: start,
                reason: format!("the file ended inside tensor `{}`; it has changed since it was opened", info.name),
            },
            _ => Error::Io { action: "read", path: shard.path.clone(), source },
        })
    }

    /// Copies one tensor's bytes to `out` in pieces of 1 MiB; the writer's errors are reported for `out_path`.
    ///
    /// # Errors
    /// As [`GgufFile::read_tensor`], and [`Error::Io`] of `out`.
    pub fn copy_tensor(&self, info: &TensorInfo, out: &mut dyn Write, out_path: &Path) -> Result<()> {
        let mut buffer = vec![0; usize::try_from(info.byte_len.min(1 << 20)).unwrap_or(1 << 20)];
        let mut at = 0;
        while at < info.byte_len {
            let n = usize::try_from((info.byte_len - at).min(buffer.len() as u64)).unwrap_or(buffer.len());
            self.read_part(info, at, &mut buffer[..n])?;
            out.write_all(&buffer[..n]).map_err(|source| Error::Io {
                action: "write",
                path: out_path.to_path_buf(),
                source,
            })?;
            at += n as u64;
        }
        Ok(())
    }

    /// XXH3-128 of all tensors' bytes in file order, without padding: two files whose tensors are stored alike have the
    /// same, whatever their metadata say. Reads the whole file.
    ///
    /// # Errors
    /// As [`GgufFile::read_tensor`].
    pub fn data_hash(&self) -> Result<u128> {
        let mut hash = Xxh3::new();
        let mut buffer = vec![0; 1 << 20];
        for info in &self.tensors {
            let mut at = 0;
            while at < info.byte_len {
                let n = usize::try_from((info.byte_len - at).min(buffer.len() as u64)).unwrap_or(buffer.len());
                self.read_part(info, at, &mut buffer[..n])?;
                hash.update(&buffer[..n]);
                at += n as u64;
            }
        }
        Ok(hash.digest128())
    }

    /// A [`Error::BadMetadata`] of this file.
    pub(crate) fn bad_key(&self, key: &str, reason: impl Into<String>) -> Error {
        Error::BadMetadata { path: self.path().to_path_buf(), key: key.to_owned(), reason: reason.into() }
    }

    /// A [`Error::BadTensor`] of this file.
    pub(crate) fn bad_tensor(&self, tensor: &str, reason: impl Into<String>) -> Error {
        Error::BadTensor { path: self.path().to_path_buf(), tensor: tensor.to_owned(), reason: reason.into() }
    }
}
