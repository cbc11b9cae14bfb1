//! Huffman tables (T.81 annex C) with a direct look-up for short codes.

use super::bits::BitReader;
use super::{Fault, damaged};

const FAST_BITS: u32 = 9;

/// One table: from code to symbol.
pub(super) struct Huffman {
    /// For every prefix of [`FAST_BITS`] bits: `length << 8 | symbol`, or 0 when the code is longer.
    fast: Box<[u16; 1 << FAST_BITS]>,
    /// Per code length: the first 16-bit aligned value that is too large for it.
    limit: [u32; 17],
    /// Per code length: what to add to a code to get its index in `symbols`.
    offset: [i32; 17],
    symbols: Vec<u8>,
}

impl Huffman {
    /// From the number of codes per length 1 to 16 and the symbols in order.
    pub(super) fn new(counts: &[u8; 16], symbols: &[u8]) -> Result<Self, Fault> {
        let mut table =
            Self { fast: Box::new([0; 1 << FAST_BITS]), limit: [0; 17], offset: [0; 17], symbols: symbols.to_vec() };
        let (mut code, mut index) = (0u32, 0u32);
        for length in 1..=16u32 {
            let count = u32::from(counts[length as usize - 1]);
            if code + count > 1 << length {
                return Err(damaged(format!("a Huffman table has too many codes of {length} bits")));
            }
            table.offset[length as usize] = index as i32 - code as i32;
            for _ in 0..count {
                if length <= FAST_BITS {
                    let symbol = u16::from(symbols[index as usize]);
                    let first = (code << (FAST_BITS - length)) as usize;
                    table.fast[first..first + (1 << (FAST_BITS - length))].fill((length as u16) << 8 | symbol);
                }
                code += 1;
                index += 1;
            }
            table.limit[length as usize] = code << (16 - length);
            code <<= 1;
        }
        Ok(table)
    }

    /// The next symbol.
    #[inline]
    pub(super) fn decode(&self, bits: &mut BitReader<'_>) -> Result<u8, Fault> {
        let next = bits.peek16();
        let entry = self.fast[(next >> (16 - FAST_BITS)) as usize];
        if entry != 0 {
            bits.skip(u32::from(entry >> 8))?;
            return Ok(entry as u8);
        }
        for length in FAST_BITS + 1..=16 {
            if next < self.limit[length as usize] {
                bits.skip(length)?;
                let index = (next >> (16 - length)) as i32 + self.offset[length as usize];
                return self
                    .symbols
                    .get(index as usize)
                    .copied()
                    .ok_or_else(|| damaged("a Huffman code has no symbol"));
            }
        }
        Err(damaged("a Huffman code is in no table"))
    }
}
