//! Entries as they lie on a disk or in a server: a fixed header, a payload, and a checksum over both.
//!
//! ```text
//! offset  size
//!      0     8  magic "LLAVAENT"
//!      8     4  version
//!     12     4  kind: 1 embedding, 2 KV state
//!     16    16  key
//!     32    40  ten numbers that the kind gives a meaning
//!     72     8  bytes of payload
//!     80    32  zero
//!    112    16  XXH3-128 of bytes 0 to 112 and the payload
//!    128        payload
//! ```
//! All numbers are little-endian.

use half::f16;
use half::slice::HalfFloatSliceExt;
use xxhash_rust::xxh3::Xxh3;

use super::key::EmbeddingKey;
use super::rows::{Embedding, Grid};

const MAGIC: &[u8; 8] = b"LLAVAENT";
const VERSION: u32 = 1;
/// Bytes before the payload.
pub(crate) const HEADER_BYTES: usize = 128;
const CHECKED: usize = 112;

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Embedding = 1,
    KvState = 2,
}

/// How the floats of an embedding are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum CacheDtype {
    /// As they are: a hit gives the encoder's bits.
    #[default]
    F32,
    /// Half the size, 11 bits of precision. An embedding with values beyond 65504 is stored as `F32`.
    F16,
}

/// Why an entry is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its bytes are not what was written.
    Damaged,
    /// Whole, but another version, kind or key than was asked for.
    Other,
}

/// The header of an entry for `payload`.
pub(crate) fn seal(kind: Kind, key: EmbeddingKey, numbers: [u32; 10], payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0_u8; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(kind as u32).to_le_bytes());
    header[16..32].copy_from_slice(&key.to_u128().to_le_bytes());
    for (slot, number) in header[32..72].chunks_exact_mut(4).zip(numbers) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    header[72..80].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let sum = checksum(&header[..CHECKED], payload);
    header[CHECKED..].copy_from_slice(&sum);
    header
}

/// Checks an entry and returns its numbers and payload.
pub(crate) fn unseal(kind: Kind, key: EmbeddingKey, bytes: &[u8]) -> Result<([u32; 10], &[u8]), Refusal> {
    let (found, numbers, payload) = read(bytes)?;
    if found != (kind as u32, key) {
        return Err(Refusal::Other);
    }
    Ok((numbers, payload))
}

type Opened<'a> = ((u32, EmbeddingKey), [u32; 10], &'a [u8]);

fn read(bytes: &[u8]) -> Result<Opened<'_>, Refusal> {
    if bytes.len() < HEADER_BYTES {
        return Err(Refusal::Damaged);
    }
    let (header, payload) = bytes.split_at(HEADER_BYTES);
    let sum = checksum(&header[..CHECKED], payload);
    if header[CHECKED..] != sum || header[72..80] != (payload.len() as u64).to_le_bytes() {
        return Err(Refusal::Damaged);
    }
    if &header[..8] != MAGIC || header[8..12] != VERSION.to_le_bytes() {
        return Err(Refusal::Other);
    }
    let mut key = [0_u8; 16];
    key.copy_from_slice(&header[16..32]);
    let mut numbers = [0_u32; 10];
    for (number, slot) in numbers.iter_mut().zip(header[32..72].chunks_exact(4)) {
        *number = number_at(slot);
    }
    Ok(((number_at(&header[12..16]), EmbeddingKey::from_u128(u128::from_le_bytes(key))), numbers, payload))
}

fn number_at(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b))
}

fn checksum(header: &[u8], payload: &[u8]) -> [u8; 16] {
    let mut hash = Xxh3::new();
    hash.update(header);
    hash.update(payload);
    hash.digest128().to_le_bytes()
}

/// What an entry says it is, after its checksum has been verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryFacts {
    /// The key it answers to.
    pub key: EmbeddingKey,
    /// Rows of the embedding; 0 for a KV state.
    pub rows: u32,
    /// Floats in a row; 0 for a KV state.
    pub width: u32,
    /// How they are stored; `None` for a KV state.
    pub dtype: Option<CacheDtype>,
}

/// Checks the bytes of an entry of either kind. `None` where they are damaged or of another version.
#[must_use]
pub fn inspect(bytes: &[u8]) -> Option<EntryFacts> {
    let ((kind, key), numbers, _) = read(bytes).ok()?;
    if kind == Kind::KvState as u32 {
        return Some(EntryFacts { key, rows: 0, width: 0, dtype: None });
    }
    let embedding = decode(key, bytes).ok()?;
    let dtype = if numbers[0] == 1 { CacheDtype::F16 } else { CacheDtype::F32 };
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Some(EntryFacts { key, rows: narrow(embedding.rows().get()), width: narrow(embedding.width()), dtype: Some(dtype) })
}

/// How the floats of a whole entry are stored.
pub(crate) fn dtype(bytes: &[u8]) -> CacheDtype {
    if bytes.len() >= HEADER_BYTES && number_at(&bytes[32..36]) == 1 { CacheDtype::F16 } else { CacheDtype::F32 }
}

/// Header and payload of an embedding.
pub(crate) fn encode(key: EmbeddingKey, embedding: &Embedding, dtype: CacheDtype) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let values = embedding.as_slice();
    let narrow = match dtype {
        CacheDtype::F16 => to_f16(values),
        CacheDtype::F32 => None,
    };
    let stored = u32::from(narrow.is_some());
    let payload = narrow.unwrap_or_else(|| to_le(values));
    let grid = embedding.grid();
    let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let numbers = [
        stored,
        narrow(embedding.rows().get()),
        narrow(embedding.width()),
        grid.columns,
        grid.rows,
        grid.row_breaks,
        grid.lead,
        grid.trail,
        0,
        0,
    ];
    (seal(Kind::Embedding, key, numbers, &payload), payload)
}

/// The embedding of an entry.
pub(crate) fn decode(key: EmbeddingKey, bytes: &[u8]) -> Result<Embedding, Refusal> {
    let (numbers, payload) = unseal(Kind::Embedding, key, bytes)?;
    let [stored, rows, width, columns, grid_rows, row_breaks, lead, trail, ..] = numbers;
    let values = match stored {
        0 => from_le(payload),
        1 => from_f16(payload),
        _ => return Err(Refusal::Other),
    };
    let grid = Grid { columns, rows: grid_rows, row_breaks, lead, trail };
    // lengths and finite values are checked there
    Embedding::new(values, rows as usize, width as usize, grid).map_err(|_| Refusal::Damaged)
}

fn to_le(values: &[f32]) -> Vec<u8> {
    if cfg!(target_endian = "little") {
        return bytemuck::cast_slice(values).to_vec();
    }
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn from_le(bytes: &[u8]) -> Vec<f32> {
    if cfg!(target_endian = "little") && bytes.len().is_multiple_of(4) {
        return bytemuck::pod_collect_to_vec(bytes);
    }
    bytes.chunks_exact(4).map(|b| f32::from_bits(number_at(b))).collect()
}

/// `None` where a value is beyond the range of half floats.
fn to_f16(values: &[f32]) -> Option<Vec<u8>> {
    let mut halves = vec![f16::ZERO; values.len()];
    halves.convert_from_f32_slice(values);
    halves.iter().all(|h| h.is_finite()).then(|| halves.iter().flat_map(|h| h.to_le_bytes()).collect())
}

fn from_f16(bytes: &[u8]) -> Vec<f32> {
    let halves: Vec<f16> = bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]])).collect();
    halves.to_f32_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: EmbeddingKey = EmbeddingKey::from_u128(0xfeed);

    fn embedding(values: &[f32]) -> Embedding {
        let grid = Grid { columns: 3, rows: 1, row_breaks: 1, lead: 2, trail: 5 };
        Embedding::new(values.to_vec(), 3, values.len() / 3, grid).unwrap()
    }

    fn entry(dtype: CacheDtype) -> (Embedding, Vec<u8>) {
        let e = embedding(&[0.0, -1.5, 3.25e-3, f32::MIN_POSITIVE, -65504.0, 1e-8]);
        let (header, payload) = encode(KEY, &e, dtype);
        (e, [&header[..], &payload].concat())
    }

    #[test]
    fn f32_gives_the_same_bits_back() {
        let (e, bytes) = entry(CacheDtype::F32);
        let back = decode(KEY, &bytes).unwrap();
        assert_eq!(back, e);
        let bits = |e: &Embedding| e.as_slice().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&e));
        assert_eq!(bytes.len(), HEADER_BYTES + 6 * 4);
    }

    #[test]
    fn f16_is_half_as_long_and_near() {
        let (e, bytes) = entry(CacheDtype::F16);
        assert_eq!(bytes.len(), HEADER_BYTES + 6 * 2);
        for (a, b) in decode(KEY, &bytes).unwrap().as_slice().iter().zip(e.as_slice()) {
            assert!((a - b).abs() <= b.abs() / 1024.0 + 6e-8, "{a} {b}");
        }
        assert_eq!(inspect(&bytes).unwrap().dtype, Some(CacheDtype::F16));
    }

    #[test]
    fn values_that_half_floats_cannot_hold_are_kept_whole() {
        let e = embedding(&[1.0, 70000.0, 3.0]);
        let (header, payload) = encode(KEY, &e, CacheDtype::F16);
        let bytes = [&header[..], &payload].concat();
        assert_eq!(decode(KEY, &bytes).unwrap(), e);
        assert_eq!(inspect(&bytes).unwrap().dtype, Some(CacheDtype::F32));
    }

    #[test]
    fn another_key_or_kind_is_not_taken() {
        let (_, bytes) = entry(CacheDtype::F32);
        assert_eq!(decode(EmbeddingKey::from_u128(1), &bytes).unwrap_err(), Refusal::Other);
        assert_eq!(unseal(Kind::KvState, KEY, &bytes).unwrap_err(), Refusal::Other);
    }

    /// Every bit of a small entry, every length, and bytes behind its end.
    #[test]
    fn no_damage_goes_unnoticed() {
        for dtype in [CacheDtype::F32, CacheDtype::F16] {
            let (_, bytes) = entry(dtype);
            for bit in 0..bytes.len() * 8 {
                let mut copy = bytes.clone();
                copy[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(KEY, &copy).is_err() && inspect(&copy).is_none(), "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(decode(KEY, &bytes[..len]).unwrap_err(), Refusal::Damaged, "cut to {len}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(decode(KEY, &longer).unwrap_err(), Refusal::Damaged);
        }
    }
}
