//! Naming rows by everything that decides their values.

use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};

/// Raised whenever the meaning of a key changes, so that old entries are not found any more.
const SCHEMA: u64 = 1;

/// The name of one encoded image chunk: XXH3-128 over a versioned, length-prefixed encoding of everything that decides its
/// rows. All 128 bits are kept and compared everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EmbeddingKey(u128);

impl EmbeddingKey {
    /// A key from its number.
    #[must_use]
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// Its number.
    #[must_use]
    pub const fn to_u128(self) -> u128 {
        self.0
    }
}

impl fmt::Display for EmbeddingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for EmbeddingKey {
    type Err = Error;

    /// Reads what `Display` wrote: 32 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self> {
        let digits = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| digits).map(Self).ok_or_else(|| Error::BadParameter {
            name: "key",
            value: text.chars().take(40).collect(),
            reason: "32 hexadecimal digits".into(),
        })
    }
}

/// Takes named values in order and gives their key. Names and values are length-prefixed, so that no two different lists of
/// values are hashed as the same bytes.
#[derive(Clone)]
pub struct KeyBuilder(Xxh3);

impl fmt::Debug for KeyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyBuilder").finish_non_exhaustive()
    }
}

impl KeyBuilder {
    /// A builder for keys of one kind; keys of different domains never meet.
    #[must_use]
    pub fn new(domain: &str) -> Self {
        let mut builder = Self(Xxh3::new());
        builder.number("schema", SCHEMA).text("domain", domain);
        builder
    }

    /// Adds bytes.
    pub fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.prefix(name, value.len());
        self.0.update(value);
        self
    }

    /// Adds text.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.bytes(name, value.as_bytes())
    }

    /// Adds a number.
    pub fn number(&mut self, name: &str, value: u64) -> &mut Self {
        self.bytes(name, &value.to_le_bytes())
    }

    /// Adds a 128-bit hash.
    pub fn hash(&mut self, name: &str, value: u128) -> &mut Self {
        self.bytes(name, &value.to_le_bytes())
    }

    /// Adds floats bit by bit: 0 and -0 differ.
    pub fn floats(&mut self, name: &str, values: &[f32]) -> &mut Self {
        if cfg!(target_endian = "little") {
            return self.bytes(name, bytemuck::cast_slice(values));
        }
        self.prefix(name, size_of_val(values));
        for value in values {
            self.0.update(&value.to_le_bytes());
        }
        self
    }

    /// The key of what was added so far.
    #[must_use]
    pub fn finish(&self) -> EmbeddingKey {
        EmbeddingKey(self.0.digest128())
    }

    fn prefix(&mut self, name: &str, len: usize) {
        self.0.update(&(name.len() as u64).to_le_bytes());
        self.0.update(name.as_bytes());
        self.0.update(&(len as u64).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(f: impl FnOnce(&mut KeyBuilder)) -> EmbeddingKey {
        let mut builder = KeyBuilder::new("test");
        f(&mut builder);
        builder.finish()
    }

    #[test]
    fn where_a_value_ends_is_part_of_the_key() {
        let a = key(|b| {
            b.text("x", "ab").text("y", "c");
        });
        let c = key(|b| {
            b.text("x", "a").text("y", "bc");
        });
        let d = key(|b| {
            b.text("x", "ab");
        });
        assert!(a != c && a != d && c != d);
        assert_ne!(key(|_| ()), KeyBuilder::new("other").finish());
    }

    #[test]
    fn floats_are_compared_by_their_bits() {
        let one = |v: f32| {
            key(|b| {
                b.floats("v", &[v]);
            })
        };
        assert_ne!(one(0.0), one(-0.0));
        assert_ne!(one(1.0), one(f32::from_bits(1.0_f32.to_bits() + 1)));
        assert_eq!(
            one(2.5),
            key(|b| {
                b.bytes("v", &2.5_f32.to_le_bytes());
            })
        );
    }

    #[test]
    fn a_key_is_written_and_read() {
        let key = EmbeddingKey::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(key.to_string(), "0123456789abcdef0011223344556677");
        assert_eq!(key.to_string().parse::<EmbeddingKey>().unwrap(), key);
        for bad in ["", "0", "0123456789abcdef001122334455667", "+123456789abcdef0011223344556677", "../../etc/passwd"]
        {
            assert_eq!(bad.parse::<EmbeddingKey>().unwrap_err().code(), "bad-parameter", "{bad}");
        }
    }

    /// The schema is what stored entries are found by: a change of the encoding has to raise SCHEMA.
    #[test]
    fn the_encoding_is_pinned() {
        let pinned = key(|b| {
            b.text("a", "text").number("n", 7).hash("h", 9).floats("f", &[1.5, -2.0]);
        });
        assert_eq!(pinned.to_string(), PINNED);
    }

    const PINNED: &str = "015d41f79a0095cc16588aa801b1b9f6";
}
