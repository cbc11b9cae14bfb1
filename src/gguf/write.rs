//! The writer: metadata and tensor entries first, then tensors one after another from streams; version 3.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::Xxh3;

use super::file::TensorInfo;
use super::read::{self, MAX_DIMS, MAX_KEY_LEN, MAX_NAME_LEN};
use super::seal::{SealedGguf, Temporary, ValuePlace};
use super::tensor_type::TensorType;
use super::value::{ARRAY_ID, Array, Value};
use crate::error::{Error, Result};

/// Collects metadata and the entries of tensors; [`GgufWriter::begin`] then takes the tensors' bytes.
///
/// ```no_run
/// # use llava::gguf::{GgufWriter, TensorType};
/// let mut w = GgufWriter::new();
/// w.set("general.architecture", "llava-compressor")?;
/// w.declare("query", &[160, 64], TensorType::F32)?;
/// let mut sink = w.begin("out.gguf")?;
/// sink.tensor(|out| out.put(&vec![0; 160 * 64 * 4]))?;
/// sink.finish()?;
/// # Ok::<(), llava::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct GgufWriter {
    metadata: Vec<(String, Value)>,
    keys: HashSet<String>,
    tensors: Vec<(String, Vec<u64>, TensorType)>,
    names: HashSet<String>,
}

pub(super) fn refused(name: &'static str, value: impl ToString, reason: impl Into<String>) -> Error {
    Error::BadParameter { name, value: value.to_string(), reason: reason.into() }
}

impl GgufWriter {
    /// An empty file.
    #[must_use]
    pub fn new() -> GgufWriter {
        GgufWriter::default()
    }

    /// Appends a key; the order of calls is the order in the file. `general.alignment` (`u32`) takes effect.
    ///
    /// # Errors
    /// [`Error::BadParameter`] if the key is empty, too long, holds a NUL or is there already, or if an alignment is
    /// no power of two.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<&mut GgufWriter> {
        if key.is_empty() || key.len() as u64 > MAX_KEY_LEN || key.contains('\0') {
            return Err(refused("key", key.escape_debug(), format!("must be 1 to {MAX_KEY_LEN} bytes without NUL")));
        }
        let entry = (key.to_owned(), value.into());
        read::alignment(std::slice::from_ref(&entry))
            .map_err(|reason| refused("general.alignment", &entry.1, reason))?;
        if !self.keys.insert(key.to_owned()) {
            return Err(refused("key", key, "is set already"));
        }
        self.metadata.push(entry);
        Ok(self)
    }

    /// Appends a tensor's entry; its bytes are given later, in the same order. `dims` is in `ne` order (row length
    /// first).
    ///
    /// # Errors
    /// [`Error::BadParameter`] if the name is empty, longer than 63 bytes, holds a NUL or is there already, or if the
    /// extents are more than four, overflow, or do not fit the type's blocks.
    pub fn declare(&mut self, name: &str, dims: &[u64], ggml_type: TensorType) -> Result<&mut GgufWriter> {
        if name.is_empty() || name.len() as u64 > MAX_NAME_LEN || name.contains('\0') {
            return Err(refused(
                "tensor name",
                name.escape_debug(),
                format!("must be 1 to {MAX_NAME_LEN} bytes without NUL"),
            ));
        }
        if dims.len() > MAX_DIMS as usize {
            return Err(refused(
                "dims",
                format!("{dims:?}"),
                format!("tensor `{name}` can have {MAX_DIMS} dimensions at most"),
            ));
        }
        if ggml_type.byte_len(dims).is_none() {
            let block = ggml_type.block_len();
            return Err(refused(
                "dims",
                format!("{dims:?}"),
                format!("{ggml_type} tensor `{name}` needs rows of a multiple of {block}, below 2^63 bytes"),
            ));
        }
        if !self.names.insert(name.to_owned()) {
            return Err(refused("tensor name", name, "is declared already"));
        }
        self.tensors.push((name.to_owned(), dims.to_vec(), ggml_type));
        Ok(self)
    }

    /// Writes the header to a temporary file beside `path`. Nothing appears at `path` before [`GgufSink::finish`].
    ///
    /// # Errors
    /// [`Error::Io`] if the temporary file cannot be made or written; [`Error::BadParameter`] if the tensors' sizes
    /// together overflow.
    pub fn begin(self, path: impl AsRef<Path>) -> Result<GgufSink> {
        let path = path.as_ref();
        let alignment = read::alignment(&self.metadata).map_err(|reason| refused("general.alignment", "", reason))?;
        let mut tensors = Vec::with_capacity(self.tensors.len());
        let mut offset = 0u64;
        for (name, dims, ggml_type) in self.tensors {
            let byte_len = ggml_type.byte_len(&dims).unwrap_or(0);
            let next = byte_len.checked_next_multiple_of(alignment).and_then(|n| n.checked_add(offset));
            let Some(next) = next.filter(|&n| n <= i64::MAX as u64) else {
                return Err(refused(
                    "dims",
                    format!("{dims:?}"),
                    format!("with tensor `{name}` the file would be larger than 2^63 bytes"),
                ));
            };
            tensors.push(TensorInfo { name, dims, ggml_type, offset, byte_len, shard: 0 });
            offset = next;
        }
        let (file, temporary) = create_beside(path)?;
        let (header, values) = encode_header(&self.metadata, &tensors);
        let mut sink = GgufSink {
            out: BufWriter::with_capacity(1 << 20, file),
            temporary: Temporary::new(temporary),
            path: path.to_path_buf(),
            alignment,
            at: 0,
            left: tensors.first().map_or(0, |t| t.byte_len),
            tensors,
            next: 0,
            values,
            hash: Box::default(),
        };
        sink.write(&header)?;
        if !sink.tensors.is_empty() {
            sink.pad()?;
        }
        Ok(sink)
    }
}

/// A header on disk that waits for its tensors' bytes. Dropped before [`GgufSink::finish`], it leaves nothing behind.
pub struct GgufSink {
    out: BufWriter<File>,
    temporary: Temporary,
    path: PathBuf,
    alignment: u64,
    at: u64,
    tensors: Vec<TensorInfo>,
    next: usize,
    /// Bytes that the tensor that is due still lacks.
    left: u64,
    values: Vec<ValuePlace>,
    hash: Box<Xxh3>,
}

impl std::fmt::Debug for GgufSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GgufSink").field("path", &self.path).field("at", &self.at).field("due", &self.due()).finish()
    }
}

impl GgufSink {
    /// The tensor whose bytes are due next; `None` when all are written.
    #[must_use]
    pub fn due(&self) -> Option<&TensorInfo> {
        self.tensors.get(self.next)
    }

    /// Writes the bytes of the tensor that is due; `fill` may write them in any number of pieces.
    ///
    /// # Errors
    /// The error of `fill`; [`Error::Io`]; [`Error::BadParameter`] if no tensor is due or `fill` gave more or fewer
    /// bytes than declared. The file cannot be finished after an error.
    pub fn tensor(&mut self, fill: impl FnOnce(&mut TensorSink<'_>) -> Result<()>) -> Result<()> {
        let Some(info) = self.due() else {
            return Err(refused("tensor", self.tensors.len(), "all declared tensors are written already"));
        };
        if self.left != info.byte_len {
            return Err(refused("tensor", &info.name, "has a part of its bytes already"));
        }
        let whole = info.byte_len;
        fill(&mut TensorSink { sink: self })?;
        if self.left != 0 {
            let name = self.due().map_or_else(String::new, |t| t.name.clone());
            return Err(refused("tensor", name, format!("has {whole} bytes, {} were not written", self.left)));
        }
        self.advance()
    }

    /// Writes the next bytes of the tensor that is due; when it has all of them, the next one is due. Tensors without bytes
    /// are passed over.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::BadParameter`] if no tensor is due or the one that is has no room for so many bytes.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.pass_empty()?;
        if self.due().is_none() {
            return Err(refused("tensor", self.tensors.len(), "all declared tensors are written already"));
        }
        self.take(bytes)?;
        if self.left == 0 { self.advance() } else { Ok(()) }
    }

    /// Makes the bytes durable and gives the file its name, replacing an older one in one step.
    ///
    /// # Errors
    /// [`Error::BadParameter`] if a declared tensor was not written; [`Error::Io`]. The older file is untouched then.
    pub fn finish(self) -> Result<()> {
        self.seal()?.publish()
    }

    /// Ends writing: the file is whole, and readable under its temporary name, but has not got its real name yet.
    ///
    /// # Errors
    /// As [`GgufSink::finish`].
    pub fn seal(mut self) -> Result<SealedGguf> {
        self.pass_empty()?;
        if let Some(info) = self.due() {
            return Err(refused("tensor", &info.name, "was declared, but its bytes were never written"));
        }
        let io = |source| Error::Io { action: "write", path: self.path.clone(), source };
        let file = self.out.into_inner().map_err(|e| io(e.into_error()))?;
        Ok(SealedGguf::new(file, self.temporary, self.path, self.values, self.hash.digest128()))
    }

    /// Takes bytes of the tensor that is due.
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let n = bytes.len() as u64;
        if n > self.left {
            let name = self.due().map_or_else(String::new, |t| t.name.clone());
            return Err(refused("tensor", name, format!("takes {} more bytes, {n} were given", self.left)));
        }
        self.write(bytes)?;
        self.hash.update(bytes);
        self.left -= n;
        Ok(())
    }

    fn pass_empty(&mut self) -> Result<()> {
        while self.left == 0 && self.due().is_some() {
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        self.pad()?;
        self.next += 1;
        self.left = self.due().map_or(0, |t| t.byte_len);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|source| Error::Io { action: "write", path: self.path.clone(), source })?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self) -> Result<()> {
        let zeros = [0; 4096];
        let mut missing = self.at.next_multiple_of(self.alignment) - self.at;
        while missing > 0 {
            let n = missing.min(zeros.len() as u64);
            self.write(&zeros[..usize::try_from(n).unwrap_or(zeros.len())])?;
            missing -= n;
        }
        Ok(())
    }
}

/// Where one tensor's bytes go; counts them.
#[derive(Debug)]
pub struct TensorSink<'a> {
    sink: &'a mut GgufSink,
}

impl TensorSink<'_> {
    /// Writes the next bytes.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::BadParameter`] if the tensor has no room for them.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.take(bytes)
    }

    /// The file's path, for error reports of whoever writes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.sink.path
    }

    /// Bytes that are still missing.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.sink.left
    }
}

impl Write for TensorSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.put(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(Error::Io { source, .. }) => Err(source),
            Err(other) => Err(io::Error::new(io::ErrorKind::InvalidInput, other)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.out.flush()
    }
}

/// A new file in the folder of `path`, so that the rename stays on one file system.
fn create_beside(path: &Path) -> Result<(File, PathBuf)> {
    const MOST_NAME: usize = 180;
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| refused("path", path.display(), "names no file"))?;
    loop {
        let mut temporary = std::ffi::OsString::from(".");
        // the longest name that a file can have leaves no room for more
        match name.len() {
            0..=MOST_NAME => temporary.push(name),
            _ => {
                let name = name.to_string_lossy();
                temporary.push(&name[..name.floor_char_boundary(MOST_NAME)]);
            }
        }
        temporary.push(format!(".{}-{}.tmp", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let temporary = path.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((file, temporary)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(Error::Io { action: "write", path: temporary, source }),
        }
    }
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// The header without the padding before the data section, and where its values lie.
fn encode_header(metadata: &[(String, Value)], tensors: &[TensorInfo]) -> (Vec<u8>, Vec<ValuePlace>) {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    let mut places = Vec::with_capacity(metadata.len());
    for (key, value) in metadata {
        put_string(&mut out, key.as_bytes());
        let at = out.len();
        put_value(&mut out, value);
        places.push(ValuePlace { key: key.clone(), at: at as u64, len: out.len() - at });
    }
    for t in tensors {
        put_string(&mut out, t.name.as_bytes());
        // Checked in `declare`: at most four.
        out.extend((t.dims.len() as u32).to_le_bytes());
        out.extend(t.dims.iter().flat_map(|d| d.to_le_bytes()));
        out.extend(t.ggml_type.id().to_le_bytes());
        out.extend(t.offset.to_le_bytes());
    }
    (out, places)
}

/// A value as it is stored: the type's number, then the content.
pub(super) fn put_value(out: &mut Vec<u8>, value: &Value) {
    out.extend(value.type_id().to_le_bytes());
    match value {
        Value::U8(v) => out.extend(v.to_le_bytes()),
        Value::I8(v) => out.extend(v.to_le_bytes()),
        Value::U16(v) => out.extend(v.to_le_bytes()),
        Value::I16(v) => out.extend(v.to_le_bytes()),
        Value::U32(v) => out.extend(v.to_le_bytes()),
        Value::I32(v) => out.extend(v.to_le_bytes()),
        Value::F32(v) => out.extend(v.to_le_bytes()),
        Value::Bool(v) => out.push(u8::from(*v)),
        Value::String(v) => put_string(out, v),
        Value::U64(v) => out.extend(v.to_le_bytes()),
        Value::I64(v) => out.extend(v.to_le_bytes()),
        Value::F64(v) => out.extend(v.to_le_bytes()),
        Value::Array(a) => {
            debug_assert_ne!(a.element_id(), ARRAY_ID);
            out.extend(a.element_id().to_le_bytes());
            out.extend((a.len() as u64).to_le_bytes());
            match a {
                Array::U8(v) => out.extend(v),
                Array::I8(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::U16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::I16(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::U32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::I32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::F32(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::Bool(v) => out.extend(v.iter().map(|&x| u8::from(x))),
                Array::String(v) => v.iter().for_each(|s| put_string(out, s)),
                Array::U64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::I64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
                Array::F64(v) => out.extend(v.iter().flat_map(|x| x.to_le_bytes())),
            }
        }
    }
}
