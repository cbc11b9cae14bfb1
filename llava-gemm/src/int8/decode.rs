//! Stored units of weights to bytes: one unit gives one block of 32, or eight for the K types.
//!
//! All of it is plain Rust that the compiler vectorises once it is inlined into a function with the CPU's features.

use super::{Numbers, Second};
use crate::format::{WeightType, half};

/// A unit unpacked: `quants[b]` are the 32 bytes of block `b`, see [`Numbers`].
pub(crate) struct Decoded {
    pub quants: [[u8; 32]; 8],
    pub scale: [f32; 8],
    pub second: [f32; 8],
}

impl Decoded {
    pub(crate) const fn zero() -> Self {
        Self { quants: [[0; 32]; 8], scale: [0.0; 8], second: [0.0; 8] }
    }

    /// Scales and minima of the eight blocks, each a whole multiple of the unit's.
    #[inline(always)]
    fn scale_by_pairs(&mut self, scale: f32, minimum: f32, pair: impl Fn(usize) -> (u8, u8)) {
        for block in 0..8 {
            let (s, m) = pair(block);
            self.scale[block] = scale * f32::from(s);
            self.second[block] = -(minimum * f32::from(m));
        }
    }
}

/// Values that the 4 bits of `IQ4_NL` stand for, less -128.
const IQ4_NL: [u8; 16] = {
    let values: [i16; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let mut biased = [0; 16];
    let mut i = 0;
    while i < 16 {
        biased[i] = (values[i] + 128) as u8;
        i += 1;
    }
    biased
};

/// One type of weights.
pub(crate) trait Unit {
    const TYPE: WeightType;
    /// What the unpacked bytes stand for.
    const NUMBERS: Numbers;
    /// Blocks of 32 in a unit.
    const BLOCKS: usize = Self::TYPE.unit() / 32;

    /// Unpacks a unit of `TYPE.unit_bytes()` bytes as the file has it.
    fn decode(unit: &[u8], out: &mut Decoded);

    /// Unpacks column `column` of a unit of eight woven columns. Only for types that [`crate::Layout::Woven8`] holds.
    fn decode_woven(_unit: &[u8], _column: usize, out: &mut Decoded) {
        *out = Decoded::zero();
    }
}

#[inline(always)]
fn half_at(bytes: &[u8], at: usize) -> f32 {
    half(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

#[inline(always)]
fn nibbles(packed: &[u8; 16]) -> [u8; 32] {
    let mut out = [0; 32];
    for i in 0..16 {
        out[i] = packed[i] & 15;
        out[i + 16] = packed[i] >> 4;
    }
    out
}

/// Puts bit `i` of `bits` into bit 4 of byte `i`.
#[inline(always)]
fn fifth_bits(quants: &mut [u8; 32], bits: u32) {
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= ((bits >> i & 1) as u8) << 4;
    }
}

/// A fixed piece of a slice; the callers' slices are long enough by their type's size.
#[inline(always)]
fn piece<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// As `bytes.map(change)`, which the compiler may leave as a function of its own, without the CPU's features and through memory.
#[inline(always)]
fn each<const N: usize>(mut bytes: [u8; N], change: impl Fn(u8) -> u8) -> [u8; N] {
    for byte in &mut bytes {
        *byte = change(*byte);
    }
    bytes
}

/// The `N` bytes of one column out of eight, woven 8 bytes at a time.
#[inline(always)]
fn unweave<const N: usize>(woven: &[u8], column: usize) -> [u8; N] {
    let mut out = [0; N];
    for part in 0..N / 8 {
        let at = (part * 8 + column) * 8;
        out[part * 8..part * 8 + 8].copy_from_slice(&woven[at..at + 8]);
    }
    out
}

/// Scale and minimum of block `block` from the 12 bytes in which the K types keep eight pairs of 6 bits.
#[inline(always)]
fn six_bits(packed: &[u8; 12], block: usize) -> (u8, u8) {
    if block < 4 {
        (packed[block] & 63, packed[block + 4] & 63)
    } else {
        let low = packed[block + 4];
        (low & 15 | packed[block - 4] >> 6 << 4, low >> 4 | packed[block] >> 6 << 4)
    }
}

pub(crate) struct Q8_0;
impl Unit for Q8_0 {
    const TYPE: WeightType = WeightType::Q8_0;
    const NUMBERS: Numbers = Numbers { bias: 128, bits: 8, second: Second::None };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        out.quants[0] = each(piece(unit, 2), |byte| byte ^ 0x80);
        out.scale[0] = half_at(unit, 0);
    }
}

pub(crate) struct Q4_0;
impl Unit for Q4_0 {
    const TYPE: WeightType = WeightType::Q4_0;
    const NUMBERS: Numbers = Numbers { bias: 8, bits: 4, second: Second::None };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        out.quants[0] = nibbles(&piece(unit, 2));
        out.scale[0] = half_at(unit, 0);
    }
    #[inline(always)]
    fn decode_woven(unit: &[u8], column: usize, out: &mut Decoded) {
        // repacked as two's complement
        out.quants[0] = nibbles(&each(unweave(&unit[16..144], column), |byte| byte ^ 0x88));
        out.scale[0] = half_at(unit, 2 * column);
    }
}

pub(crate) struct Q4_1;
impl Unit for Q4_1 {
    const TYPE: WeightType = WeightType::Q4_1;
    const NUMBERS: Numbers = Numbers { bias: 0, bits: 4, second: Second::Minimum };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        out.quants[0] = nibbles(&piece(unit, 4));
        out.scale[0] = half_at(unit, 0);
        out.second[0] = half_at(unit, 2);
    }
}

pub(crate) struct Q5_0;
impl Unit for Q5_0 {
    const TYPE: WeightType = WeightType::Q5_0;
    const NUMBERS: Numbers = Numbers { bias: 16, bits: 5, second: Second::None };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        out.quants[0] = nibbles(&piece(unit, 6));
        fifth_bits(&mut out.quants[0], u32::from_le_bytes(piece(unit, 2)));
        out.scale[0] = half_at(unit, 0);
    }
}

pub(crate) struct Q5_1;
impl Unit for Q5_1 {
    const TYPE: WeightType = WeightType::Q5_1;
    const NUMBERS: Numbers = Numbers { bias: 0, bits: 5, second: Second::Minimum };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        out.quants[0] = nibbles(&piece(unit, 8));
        fifth_bits(&mut out.quants[0], u32::from_le_bytes(piece(unit, 4)));
        out.scale[0] = half_at(unit, 0);
        out.second[0] = half_at(unit, 2);
    }
}

pub(crate) struct Iq4Nl;
impl Unit for Iq4Nl {
    const TYPE: WeightType = WeightType::Iq4Nl;
    const NUMBERS: Numbers = Numbers { bias: 128, bits: 8, second: Second::None };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        out.quants[0] = each(nibbles(&piece(unit, 2)), |nibble| IQ4_NL[usize::from(nibble & 15)]);
        out.scale[0] = half_at(unit, 0);
    }
    #[inline(always)]
    fn decode_woven(unit: &[u8], column: usize, out: &mut Decoded) {
        out.quants[0] = each(nibbles(&unweave(&unit[16..144], column)), |nibble| IQ4_NL[usize::from(nibble & 15)]);
        out.scale[0] = half_at(unit, 2 * column);
    }
}

pub(crate) struct Q4K;
impl Unit for Q4K {
    const TYPE: WeightType = WeightType::Q4K;
    const NUMBERS: Numbers = Numbers { bias: 0, bits: 4, second: Second::Minimum };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        let packed = piece::<12>(unit, 4);
        out.scale_by_pairs(half_at(unit, 0), half_at(unit, 2), |block| six_bits(&packed, block));
        for pair in 0..4 {
            let quants: [u8; 32] = piece(unit, 16 + 32 * pair);
            out.quants[2 * pair] = each(quants, |byte| byte & 15);
            out.quants[2 * pair + 1] = each(quants, |byte| byte >> 4);
        }
    }
    #[inline(always)]
    fn decode_woven(unit: &[u8], column: usize, out: &mut Decoded) {
        // here the eight pairs are those of one block, one for each column
        let pair = |block: usize| six_bits(&piece(unit, 32 + 12 * block), column);
        out.scale_by_pairs(half_at(unit, 2 * column), half_at(unit, 16 + 2 * column), pair);
        for pair in 0..4 {
            let woven = &unit[128 + 256 * pair..384 + 256 * pair];
            let quants = unweave::<32>(woven, column);
            out.quants[2 * pair] = each(quants, |byte| byte & 15);
            out.quants[2 * pair + 1] = each(quants, |byte| byte >> 4);
        }
    }
}

pub(crate) struct Q5K;
impl Unit for Q5K {
    const TYPE: WeightType = WeightType::Q5K;
    const NUMBERS: Numbers = Numbers { bias: 0, bits: 5, second: Second::Minimum };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        let packed = piece::<12>(unit, 4);
        out.scale_by_pairs(half_at(unit, 0), half_at(unit, 2), |block| six_bits(&packed, block));
        let high: [u8; 32] = piece(unit, 16);
        for pair in 0..4 {
            let quants: [u8; 32] = piece(unit, 48 + 32 * pair);
            for i in 0..32 {
                let bits = high[i] >> (2 * pair);
                out.quants[2 * pair][i] = quants[i] & 15 | (bits & 1) << 4;
                out.quants[2 * pair + 1][i] = quants[i] >> 4 | (bits >> 1 & 1) << 4;
            }
        }
    }
}

pub(crate) struct Q6K;
impl Unit for Q6K {
    const TYPE: WeightType = WeightType::Q6K;
    const NUMBERS: Numbers = Numbers { bias: 32, bits: 6, second: Second::Scale };
    #[inline(always)]
    fn decode(unit: &[u8], out: &mut Decoded) {
        let scale = half_at(unit, 208);
        for block in 0..8 {
            let signed = |at: usize| f32::from(i8::from_le_bytes([unit[at]]));
            out.scale[block] = scale * signed(192 + 2 * block);
            out.second[block] = scale * signed(193 + 2 * block);
        }
        for half in 0..2 {
            let low: [u8; 64] = piece(unit, 64 * half);
            let high: [u8; 32] = piece(unit, 128 + 32 * half);
            let quants = &mut out.quants[4 * half..4 * half + 4];
            for i in 0..32 {
                quants[0][i] = low[i] & 15 | (high[i] & 3) << 4;
                quants[1][i] = low[i + 32] & 15 | (high[i] >> 2 & 3) << 4;
                quants[2][i] = low[i] >> 4 | (high[i] >> 4 & 3) << 4;
                quants[3][i] = low[i + 32] >> 4 | (high[i] >> 6) << 4;
            }
        }
    }
}
