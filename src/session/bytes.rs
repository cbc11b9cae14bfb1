//! Files of this room: a sealed header, and lists of length-prefixed values behind it.

use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Result};

/// Magic, version, bytes of the body, XXH3-128 of the body.
const HEADER: usize = 8 + 4 + 8 + 16;

/// A body with its header.
pub(super) fn seal(magic: &[u8; 8], version: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(magic);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&xxh3_128(body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The body of a sealed file; `what` names it in errors.
///
/// # Errors
/// [`Error::State`] for other magic or version, and for bytes that have changed.
pub(super) fn open<'a>(magic: &[u8; 8], version: u32, bytes: &'a [u8], what: &str) -> Result<&'a [u8]> {
    let refuse = |reason: String| Err(Error::State { reason });
    if bytes.len() < HEADER || &bytes[..8] != magic {
        return refuse(format!("not {what}"));
    }
    if bytes[8..12] != version.to_le_bytes() {
        return refuse(format!("{what} of another version"));
    }
    let (header, body) = bytes.split_at(HEADER);
    if header[12..20] != (body.len() as u64).to_le_bytes() || header[20..] != xxh3_128(body).to_le_bytes() {
        return refuse(format!("{what}, but damaged"));
    }
    Ok(body)
}

#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn int(&mut self, n: i32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    pub(super) fn hash(&mut self, hash: u128) {
        self.0.extend_from_slice(&hash.to_le_bytes());
    }

    pub(super) fn len(&mut self, n: usize) {
        self.0.extend_from_slice(&(n as u64).to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn floats(&mut self, values: &[f32]) {
        self.len(values.len());
        values.iter().for_each(|v| self.0.extend_from_slice(&v.to_le_bytes()));
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn hash(&mut self) -> Option<u128> {
        Some(u128::from_le_bytes(self.take(16)?.try_into().ok()?))
    }

    pub(super) fn len(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.take(8)?.try_into().ok()?)).ok()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.len()?;
        self.take(n)
    }

    pub(super) fn floats(&mut self) -> Option<Vec<f32>> {
        let n = self.len()?.checked_mul(4)?;
        let bytes = self.take(n)?;
        Some(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }
}
