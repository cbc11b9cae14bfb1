//! Weight panels: 32 columns of the product, unpacked to bytes and turned so that four elements along K of eight or sixteen
//! columns lie side by side.

use std::ops::Range;

use super::decode::{Decoded, Unit};
use super::{Numbers, Second};
use crate::format::Layout;
use crate::kernel::Kernel;
use crate::raw;
use crate::scheme::Weights;
use crate::{BLOCK, TILE_COLUMNS};

/// One block of 32 along K of 32 columns.
#[repr(C, align(64))]
pub(crate) struct PanelBlock {
    /// Eight times four elements along K: of eight columns in each of four groups.
    pub quants: [[[u8; 32]; 4]; 8],
    pub scale: [f32; TILE_COLUMNS],
    pub second: [f32; TILE_COLUMNS],
}

impl Weights {
    /// # Safety
    /// `unit` is one of the row's, `column < self.columns`, and `data` is readable as far as [`crate::Multiply`] promises.
    #[inline(always)]
    unsafe fn decode<U: Unit>(&self, column: usize, unit: usize, out: &mut Decoded) {
        let bytes = const { U::TYPE.unit_bytes() };
        match self.layout {
            Layout::Rows => {
                let at = column * self.stride + unit * bytes;
                // SAFETY: within the tensor, by the caller's promise.
                let start = unsafe { self.data.add(at) };
                // SAFETY: a whole unit begins here; weights are read only while a graph computes.
                U::decode(unsafe { raw::slice(start, bytes) }, out);
            }
            Layout::Woven8 => {
                let at = (column / 8 * (self.k / U::TYPE.unit()) + unit) * bytes * 8;
                // SAFETY: as above; eight columns take the room of eight units.
                let start = unsafe { self.data.add(at) };
                // SAFETY: as above.
                U::decode_woven(unsafe { raw::slice(start, bytes * 8) }, column % 8, out);
            }
        }
    }
}

#[inline(always)]
fn body<U: Unit>(
    weights: &Weights,
    first: usize,
    units: Range<usize>,
    panel: &mut [PanelBlock],
    turn: impl Fn(&[[u8; 32]; 8], &mut PanelBlock, usize),
) {
    let mut decoded = [const { Decoded::zero() }; 8];
    for group in 0..4 {
        let column = first + 8 * group;
        if column + 8 > weights.columns {
            decoded = [const { Decoded::zero() }; 8];
        }
        for (unit, blocks) in units.clone().zip(panel.chunks_exact_mut(U::BLOCKS)) {
            for (i, out) in decoded.iter_mut().enumerate() {
                if column + i < weights.columns {
                    // SAFETY: both below their bounds: `units` is a part of the row.
                    unsafe { weights.decode::<U>(column + i, unit, out) };
                }
            }
            for (at, block) in blocks.iter_mut().enumerate() {
                let rows: [[u8; 32]; 8] = std::array::from_fn(|i| decoded[i].quants[at & 7]);
                turn(&rows, block, group);
                for (i, out) in decoded.iter().enumerate() {
                    block.scale[8 * group + i] = out.scale[at & 7];
                    block.second[8 * group + i] = out.second[at & 7];
                }
            }
        }
    }
}

fn turn_plainly(rows: &[[u8; 32]; 8], block: &mut PanelBlock, group: usize) {
    for (k, quants) in block.quants.iter_mut().enumerate() {
        for (i, row) in rows.iter().enumerate() {
            quants[group][4 * i..4 * i + 4].copy_from_slice(&row[4 * k..4 * k + 4]);
        }
    }
}

/// Eight rows of eight 32-bit words become eight columns of them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[inline]
fn turn_avx2(rows: &[[u8; 32]; 8], block: &mut PanelBlock, group: usize) {
    use std::arch::x86_64::*;
    // SAFETY: 32 bytes of any alignment are read from an array of 32 bytes.
    let r: [__m256i; 8] = std::array::from_fn(|i| unsafe { _mm256_loadu_si256(rows[i].as_ptr().cast()) });
    let pair = |i: usize| (_mm256_unpacklo_epi32(r[i], r[i + 1]), _mm256_unpackhi_epi32(r[i], r[i + 1]));
    let ((a0, a1), (b0, b1), (c0, c1), (d0, d1)) = (pair(0), pair(2), pair(4), pair(6));
    let low = [
        _mm256_unpacklo_epi64(a0, b0),
        _mm256_unpackhi_epi64(a0, b0),
        _mm256_unpacklo_epi64(a1, b1),
        _mm256_unpackhi_epi64(a1, b1),
    ];
    let high = [
        _mm256_unpacklo_epi64(c0, d0),
        _mm256_unpackhi_epi64(c0, d0),
        _mm256_unpacklo_epi64(c1, d1),
        _mm256_unpackhi_epi64(c1, d1),
    ];
    for k in 0..4 {
        let first = _mm256_permute2x128_si256::<0x20>(low[k], high[k]);
        let second = _mm256_permute2x128_si256::<0x31>(low[k], high[k]);
        // SAFETY: 32 bytes of any alignment are written to an array of 32 bytes.
        unsafe { _mm256_storeu_si256(block.quants[k][group].as_mut_ptr().cast(), first) };
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(block.quants[k + 4][group].as_mut_ptr().cast(), second) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn body_avx2<U: Unit>(weights: &Weights, first: usize, units: Range<usize>, panel: &mut [PanelBlock]) {
    body::<U>(weights, first, units, panel, |rows, block, group| turn_avx2(rows, block, group & 3));
}

/// Unpacks `blocks` of columns `first..first + 32` into `panel`. Columns that the tensor does not have become zeros.
pub(crate) fn fill<U: Unit>(
    kernel: Kernel,
    weights: &Weights,
    first: usize,
    blocks: Range<usize>,
    panel: &mut [PanelBlock],
) {
    // slices are whole units: 16 blocks are two of the K types, and these have no remainder
    let units = blocks.start / U::BLOCKS..blocks.end / U::BLOCKS;
    #[cfg(target_arch = "x86_64")]
    if kernel != Kernel::Scalar {
        // SAFETY: every kernel above the scalar one is only chosen where `Kernel::available` found AVX2 and FMA.
        return unsafe { body_avx2::<U>(weights, first, units, panel) };
    }
    let _ = kernel;
    body::<U>(weights, first, units, panel, turn_plainly);
}

/// Adds to `out` what blocks with a NaN or an infinity give in f32: `values` is one row's part that belongs to `panel`.
pub(crate) fn add_special(values: &[f32], panel: &[PanelBlock], numbers: Numbers, out: &mut [f32]) {
    let (chunks, _) = values.as_chunks::<BLOCK>();
    for (chunk, block) in chunks.iter().zip(panel) {
        if !super::activation::not_finite(chunk) {
            continue;
        }
        for (column, sum) in out.iter_mut().enumerate().take(TILE_COLUMNS) {
            for (i, value) in chunk.iter().enumerate() {
                *sum += value * block.weight(numbers, i, column);
            }
        }
    }
}

impl PanelBlock {
    /// Element `i` of column `column` as a float.
    fn weight(&self, numbers: Numbers, i: usize, column: usize) -> f32 {
        let byte = self.quants[i / 4][column / 8][column % 8 * 4 + i % 4];
        let scale = if numbers.second == Second::Scale && i >= 16 { self.second[column] } else { self.scale[column] };
        let weight = (i32::from(byte) - numbers.bias) as f32 * scale;
        if numbers.second == Second::Minimum { weight + self.second[column] } else { weight }
    }
}
