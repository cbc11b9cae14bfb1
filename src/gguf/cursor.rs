//! The reader under the parser: it knows what is left of the file and takes memory only for that.

use std::io::Read;
use std::path::Path;

use super::file::TensorInfo;
use super::read::{MAX_DIMS, MAX_HEADER_BYTES, MAX_NAME_LEN};
use super::tensor_type::TensorType;
use super::value::{ARRAY_ID, Array, Bytes, Value};
use crate::error::{Error, Result};

/// A reader that knows where it is and how much the file still holds.
pub(super) struct Cursor<'a, R> {
    pub(super) reader: R,
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) path: &'a Path,
}

impl<R: Read> Cursor<'_, R> {
    pub(super) fn damaged(&self, offset: u64, reason: impl Into<String>) -> Error {
        Error::DamagedGguf { path: self.path.to_path_buf(), offset, reason: reason.into() }
    }

    /// Checks that `n` more bytes exist and belong to a header of sane size.
    fn claim(&self, n: u64, what: &str) -> Result<()> {
        let left = self.len - self.at;
        if n > left {
            return Err(self.damaged(self.at, format!("{what} needs {n} bytes, the file has {left} left")));
        }
        if n > MAX_HEADER_BYTES - self.at.min(MAX_HEADER_BYTES) {
            return Err(self.damaged(
                self.at,
                format!("{what} of {n} bytes makes the header larger than the limit of {MAX_HEADER_BYTES} bytes"),
            ));
        }
        Ok(())
    }

    fn fill(&mut self, out: &mut [u8], what: &str) -> Result<()> {
        self.claim(out.len() as u64, what)?;
        self.reader.read_exact(out).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(
                self.at,
                format!("the file ended inside {what}, although it should be {} bytes long", self.len),
            ),
            _ => Error::Io { action: "read", path: self.path.to_path_buf(), source },
        })?;
        self.at += out.len() as u64;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut out = [0; N];
        self.fill(&mut out, what)?;
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Bytes that were claimed by a length field.
    fn bytes(&mut self, n: u64, what: &str) -> Result<Bytes> {
        self.claim(n, what)?;
        // Claimed and capped above, so the conversion cannot lose anything even where usize has 32 bits.
        let mut out = vec![0; usize::try_from(n).map_err(|_| self.damaged(self.at, format!("{what} of {n} bytes")))?];
        self.fill(&mut out, what)?;
        Ok(out)
    }

    fn string(&mut self, what: &str) -> Result<Bytes> {
        let n = self.u64(what)?;
        self.bytes(n, what)
    }

    /// A key or tensor name: UTF-8, no NUL (C code would see another, shorter name), not empty, not longer than `max`.
    pub(super) fn name(&mut self, what: &str, max: u64) -> Result<String> {
        let start = self.at;
        let n = self.u64(what)?;
        if n == 0 || n > max {
            return Err(self.damaged(start, format!("{what} is {n} bytes long, allowed are 1 to {max}")));
        }
        let bytes = self.bytes(n, what)?;
        if bytes.contains(&0) {
            return Err(self.damaged(start, format!("{what} contains a NUL byte")));
        }
        String::from_utf8(bytes).map_err(|e| {
            self.damaged(start, format!("{what} is not UTF-8 from its byte {}", e.utf8_error().valid_up_to()))
        })
    }

    fn boolean(&mut self, what: &str) -> Result<bool> {
        match self.array::<1>(what)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => {
                Err(self.damaged(self.at - 1, format!("{what} is a bool of value {other}, allowed are 0 and 1")))
            }
        }
    }

    fn numbers<const N: usize, T>(&mut self, n: u64, what: &str, decode: fn([u8; N]) -> T) -> Result<Vec<T>> {
        // The multiplication cannot overflow: `value` has compared the count with the rest of the file.
        let raw = self.bytes(n * N as u64, what)?;
        Ok(raw.as_chunks::<N>().0.iter().map(|c| decode(*c)).collect())
    }

    pub(super) fn value(&mut self, key: &str) -> Result<Value> {
        let start = self.at;
        let what = format!("the value of key `{key}`");
        let w = what.as_str();
        Ok(match self.u32(w)? {
            0 => Value::U8(u8::from_le_bytes(self.array(w)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(w)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(w)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(w)?)),
            4 => Value::U32(self.u32(w)?),
            5 => Value::I32(i32::from_le_bytes(self.array(w)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(w)?)),
            7 => Value::Bool(self.boolean(w)?),
            8 => Value::String(self.string(w)?),
            ARRAY_ID => Value::Array(self.array_value(key, w)?),
            10 => Value::U64(self.u64(w)?),
            11 => Value::I64(i64::from_le_bytes(self.array(w)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(w)?)),
            other => return Err(self.damaged(start, format!("key `{key}` has type {other}, known are 0 to 12"))),
        })
    }

    fn array_value(&mut self, key: &str, w: &str) -> Result<Array> {
        let start = self.at;
        let kind = self.u32(w)?;
        let n = self.u64(w)?;
        let element_bytes = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            ARRAY_ID => {
                return Err(Error::UnsupportedGguf {
                    path: self.path.to_path_buf(),
                    reason: format!(
                        "key `{key}` holds an array of arrays (at byte {start}), which llama.cpp does not take"
                    ),
                });
            }
            other => {
                return Err(self.damaged(start, format!("key `{key}` is an array of type {other}, known are 0 to 12")));
            }
        };
        let left = self.len - self.at;
        if n > left / element_bytes {
            return Err(self.damaged(
                start,
                format!(
                    "key `{key}` claims {n} elements of at least {element_bytes} bytes, the file has {left} bytes left"
                ),
            ));
        }
        Ok(match kind {
            0 => Array::U8(self.bytes(n, w)?),
            1 => Array::I8(self.numbers(n, w, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(n, w, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(n, w, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(n, w, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(n, w, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(n, w, f32::from_le_bytes)?),
            7 => {
                let at = self.at;
                let raw = self.bytes(n, w)?;
                if let Some(i) = raw.iter().position(|&b| b > 1) {
                    return Err(self
                        .damaged(at + i as u64, format!("{w} holds a bool of value {}, allowed are 0 and 1", raw[i])));
                }
                Array::Bool(raw.into_iter().map(|b| b == 1).collect())
            }
            8 => {
                self.claim(n * element_bytes, w)?;
                // Grows with what is really read: 24 bytes of bookkeeping per string must be paid for by 8 in the file.
                let mut out = Vec::new();
                for _ in 0..n {
                    out.push(self.string(w)?);
                }
                Array::String(out)
            }
            10 => Array::U64(self.numbers(n, w, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(n, w, i64::from_le_bytes)?),
            _ => Array::F64(self.numbers(n, w, f64::from_le_bytes)?),
        })
    }

    pub(super) fn tensor(&mut self, index: u64, alignment: u64, expected_offset: u64) -> Result<TensorInfo> {
        let start = self.at;
        let name = self.name(&format!("the name of tensor {index}"), MAX_NAME_LEN)?;
        let what = format!("the entry of tensor `{name}`");
        let rank = self.u32(&what)?;
        if rank > MAX_DIMS {
            return Err(
                self.damaged(start, format!("tensor `{name}` has {rank} dimensions, allowed are up to {MAX_DIMS}"))
            );
        }
        let mut dims = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            dims.push(self.u64(&what)?);
        }
        let id = self.u32(&what)?;
        let ggml_type = TensorType::from_id(id)
            .ok_or_else(|| self.damaged(start, format!("tensor `{name}` has unknown storage type {id}")))?;
        let offset = self.u64(&what)?;

        let row = dims.first().copied().unwrap_or(1);
        if !row.is_multiple_of(ggml_type.block_len()) {
            return Err(self.damaged(
                start,
                format!(
                    "tensor `{name}` has rows of {row} elements, {ggml_type} needs a multiple of {}",
                    ggml_type.block_len()
                ),
            ));
        }
        // As ggml does: with zeros left out, so that an empty tensor cannot hide an overflow.
        let elements = dims.iter().filter(|&&d| d > 0).try_fold(1u64, |n, &d| n.checked_mul(d));
        let byte_len = match (elements, ggml_type.byte_len(&dims)) {
            (Some(n), Some(bytes)) if n <= i64::MAX as u64 => bytes,
            _ => {
                return Err(self
                    .damaged(start, format!("tensor `{name}` of {dims:?} elements of {ggml_type} overflows 63 bits")));
            }
        };
        if !offset.is_multiple_of(alignment) {
            return Err(
                self.damaged(start, format!("tensor `{name}` starts at offset {offset}, no multiple of {alignment}"))
            );
        }
        if offset != expected_offset {
            return Err(self.damaged(
                start,
                format!("tensor `{name}` starts at offset {offset}, but the one before ends so that it must be {expected_offset}"),
            ));
        }
        Ok(TensorInfo { name, dims, ggml_type, offset, byte_len, shard: 0 })
    }
}
