//! The header parser: every claim is compared with what is left of the file before memory is taken for it.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use super::cursor::Cursor;
use super::file::TensorInfo;
use super::value::Value;
use crate::error::{Error, Result};

/// Most metadata keys a file may have (real files have fewer than 100).
pub const MAX_KEYS: u64 = 1 << 20;
/// Most tensors a file may have (real files have a few thousand).
pub const MAX_TENSORS: u64 = 1 << 20;
/// Largest header (everything before the tensor data) that is read; the largest real ones are about 20 MB.
pub const MAX_HEADER_BYTES: u64 = 256 << 20;

/// Longest key, as the format's text sets it.
pub(super) const MAX_KEY_LEN: u64 = 65_535;
/// Longest tensor name, one less than ggml's fixed buffer (`GGML_MAX_NAME`).
pub(super) const MAX_NAME_LEN: u64 = 63;
/// Most extents of a tensor (`GGML_MAX_DIMS`).
pub(super) const MAX_DIMS: u32 = 4;
/// Largest alignment taken; the usual one is 32.
pub(super) const MAX_ALIGNMENT: u64 = 1 << 20;

/// Fewest bytes a key with its value takes: length, one character, type, one-byte value.
const MIN_KEY_BYTES: u64 = 8 + 1 + 4 + 1;
/// Fewest bytes a tensor's entry takes: length, one character, rank, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 4 + 8;
/// Magic, version and the two counts.
const PREFIX_BYTES: u64 = 4 + 4 + 8 + 8;

/// What the parser found.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) alignment: u64,
    pub(super) metadata: Vec<(String, Value)>,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) data_offset: u64,
}

/// Parses a header from a reader at its first byte; `len` is the size of the whole file.
pub(super) fn header(reader: impl Read, len: u64, path: &Path) -> Result<Header> {
    let mut c = Cursor { reader, at: 0, len, path };
    let not_gguf = |reason: String| Error::NotGguf { path: path.to_path_buf(), reason };
    if len == 0 {
        return Err(not_gguf("it is empty (0 bytes)".to_owned()));
    }
    if len < 4 {
        return Err(not_gguf(format!("it has {len} bytes, a header has at least {PREFIX_BYTES}")));
    }
    let magic: [u8; 4] = c.array("the magic")?;
    if &magic != b"GGUF" {
        return Err(not_gguf(format!(
            "it starts with \"{}\"{}, not with \"GGUF\"",
            magic.escape_ascii(),
            guess(magic)
        )));
    }
    if len < PREFIX_BYTES {
        return Err(not_gguf(format!("it has {len} bytes, a header has at least {PREFIX_BYTES}")));
    }
    let version = c.u32("the version")?;
    let unsupported = |reason: String| Error::UnsupportedGguf { path: path.to_path_buf(), reason };
    match version {
        2 | 3 => {}
        1 => return Err(unsupported("version 1, this build reads 2 and 3; convert it again".to_owned())),
        v if v & 0xffff == 0 && v != 0 => {
            return Err(unsupported(format!(
                "big-endian (version field {v:#010x}), this build reads little-endian files"
            )));
        }
        v => return Err(unsupported(format!("version {v}, this build reads 2 and 3"))),
    }
    let n_tensors = c.u64("the tensor count")?;
    let n_keys = c.u64("the key count")?;
    let room = len - c.at;
    for (n, min, cap, what, at) in [
        (n_tensors, MIN_TENSOR_BYTES, MAX_TENSORS, "tensors", 8),
        (n_keys, MIN_KEY_BYTES, MAX_KEYS, "metadata keys", 16),
    ] {
        if n > room / min {
            return Err(c.damaged(
                at,
                format!("the header claims {n} {what} of at least {min} bytes, the file has {room} bytes left"),
            ));
        }
        if n > cap {
            return Err(c.damaged(at, format!("the header claims {n} {what}, the limit is {cap}")));
        }
    }

    let mut metadata: Vec<(String, Value)> = Vec::new();
    let mut seen = HashSet::new();
    for i in 0..n_keys {
        let start = c.at;
        let key = c.name(&format!("the name of key {i}"), MAX_KEY_LEN)?;
        if !seen.insert(key.clone()) {
            return Err(c.damaged(start, format!("key `{key}` (number {i}) is there twice")));
        }
        let value = c.value(&key)?;
        metadata.push((key, value));
    }
    drop(seen);

    let alignment = alignment(&metadata).map_err(|reason| Error::BadMetadata {
        path: path.to_path_buf(),
        key: "general.alignment".to_owned(),
        reason,
    })?;

    let mut tensors: Vec<TensorInfo> = Vec::new();
    let mut starts = Vec::new();
    let mut names = HashSet::new();
    let mut next = 0u64;
    for i in 0..n_tensors {
        let start = c.at;
        let info = c.tensor(i, alignment, next)?;
        if !names.insert(info.name.clone()) {
            return Err(c.damaged(start, format!("tensor `{}` (number {i}) is there twice", info.name)));
        }
        next =
            info.byte_len.checked_next_multiple_of(alignment).and_then(|padded| next.checked_add(padded)).ok_or_else(
                || {
                    c.damaged(
                        start,
                        format!("tensor `{}` of {} bytes at {next} overflows 64 bits", info.name, info.byte_len),
                    )
                },
            )?;
        starts.push(start);
        tensors.push(info);
    }

    let data_offset = c.at.next_multiple_of(alignment);
    for (info, start) in tensors.iter().zip(starts) {
        // `next` above did not overflow and bounds every offset + byte_len.
        let end = data_offset.checked_add(info.offset + info.byte_len);
        if end.is_none_or(|end| end > len) {
            return Err(c.damaged(
                start,
                format!(
                    "tensor `{}` takes {} bytes from byte {}, the file has {len} bytes (incomplete download?)",
                    info.name,
                    info.byte_len,
                    u128::from(data_offset) + u128::from(info.offset)
                ),
            ));
        }
    }
    Ok(Header { version, alignment, metadata, tensors, data_offset })
}

/// The alignment of the data section that these keys ask for.
pub(super) fn alignment(metadata: &[(String, Value)]) -> std::result::Result<u64, String> {
    match metadata.iter().find(|(k, _)| k == "general.alignment") {
        None => Ok(32),
        Some((_, Value::U32(a))) if a.is_power_of_two() && u64::from(*a) <= MAX_ALIGNMENT => Ok(u64::from(*a)),
        Some((_, Value::U32(a))) => Err(format!("is {a}, must be a power of two up to {MAX_ALIGNMENT}")),
        Some((_, other)) => Err(format!("has type {}, must be u32", other.type_name())),
    }
}

/// What a file that is no GGUF probably is.
fn guess(magic: [u8; 4]) -> &'static str {
    match &magic {
        b"vers" => " (a Git LFS pointer? fetch the real file)",
        b"<!DO" | b"<htm" | b"<HTM" => " (a web page? the download went wrong)",
        b"PK\x03\x04" => " (a zip or PyTorch file)",
        b"lmgg" | b"tjgg" | b"fmgg" | b"algg" => " (a GGML file from before GGUF, convert it again)",
        _ => "",
    }
}
