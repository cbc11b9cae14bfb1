//! Activations: f32 rows to int8, 32 elements a scale, woven six rows at a time as the micro-kernels read them.

use super::{Numbers, Second};
use crate::kernel::Kernel;
use crate::{BLOCK, TILE_ROWS};

/// One block of 32 along K of six rows.
#[derive(Clone)]
#[repr(C, align(8))]
pub(crate) struct RowsBlock {
    /// Four int8 of each row, eight times.
    pub quants: [[i32; TILE_ROWS]; 8],
    pub scale: [f32; TILE_ROWS],
    /// What the dot products start from, to take the bias of the weights' bytes off again. Where halves of a block have
    /// scales of their own: of the first half.
    pub start: [i32; TILE_ROWS],
    /// With minima: bits of the f32 `scale * sum of quants`. Where halves have scales of their own: `start` of the second.
    pub second: [i32; TILE_ROWS],
}

/// Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits: the same rounding in every
/// instruction set.
const ROUND: f32 = 12_582_912.0;
/// Below this the reciprocal of a scale overflows; such a block counts as zero.
const TINY: u32 = 1.0e-36_f32.to_bits();
const INFINITE: u32 = f32::INFINITY.to_bits();

/// Whether 32 values hold a NaN or an infinity.
#[inline(always)]
pub(crate) fn not_finite(values: &[f32; BLOCK]) -> bool {
    largest(values) >= INFINITE
}

/// Bits of the largest magnitude: as integers they order like the floats, with NaN above infinity.
#[inline(always)]
fn largest(values: &[f32; BLOCK]) -> u32 {
    values.iter().fold(0, |most, value| most.max(value.to_bits() & 0x7fff_ffff))
}

#[inline(always)]
fn body(values: &[f32], numbers: Numbers, blocks: &mut [RowsBlock], row: usize) -> bool {
    let mut special = false;
    let (chunks, _) = values.as_chunks::<BLOCK>();
    for (chunk, block) in chunks.iter().zip(blocks) {
        let most = largest(chunk);
        special |= most >= INFINITE;
        // a block with NaN or infinity adds nothing here: it is multiplied in f32 afterwards
        let used = (TINY..INFINITE).contains(&most);
        let magnitude = f32::from_bits(most);
        let (scale, inverse) = if used { (magnitude / 127.0, 127.0 / magnitude) } else { (0.0, 0.0) };
        let mut quants = [0_i8; BLOCK];
        let mut sums = [0_i32; 2];
        if used {
            for (quant, value) in quants.iter_mut().zip(chunk) {
                *quant = ((value * inverse + ROUND).to_bits().wrapping_sub(ROUND.to_bits())) as i8;
            }
            for half in 0..2 {
                sums[half] = quants[16 * half..16 * half + 16].iter().map(|quant| i32::from(*quant)).sum();
            }
        }
        let (fours, _) = quants.as_chunks::<4>();
        for (four, place) in fours.iter().zip(&mut block.quants) {
            place[row] = i32::from_le_bytes(four.map(|quant| quant as u8));
        }
        block.scale[row] = scale;
        if numbers.second == Second::Scale {
            block.start[row] = -numbers.bias * sums[0];
            block.second[row] = -numbers.bias * sums[1];
        } else {
            let sum = sums[0] + sums[1];
            block.start[row] = -numbers.bias * sum;
            block.second[row] = (scale * sum as f32).to_bits() as i32;
        }
    }
    special
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn body_avx2(values: &[f32], numbers: Numbers, blocks: &mut [RowsBlock], row: usize) -> bool {
    body(values, numbers, blocks, row)
}

/// Quantises one row into place `row` (below [`TILE_ROWS`]) of its tile; says whether it holds a NaN or an infinity.
#[inline]
pub(crate) fn quantise(kernel: Kernel, values: &[f32], numbers: Numbers, blocks: &mut [RowsBlock], row: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    if kernel != Kernel::Scalar {
        // SAFETY: every kernel above the scalar one is only chosen where `Kernel::available` found AVX2 and FMA.
        return unsafe { body_avx2(values, numbers, blocks, row) };
    }
    let _ = kernel;
    body(values, numbers, blocks, row)
}

/// Makes place `row` of every block a row of zeros.
pub(crate) fn clear(blocks: &mut [RowsBlock], row: usize) {
    for block in blocks {
        for quants in &mut block.quants {
            quants[row] = 0;
        }
        block.scale[row] = 0.0;
        block.start[row] = 0;
        block.second[row] = 0;
    }
}
