//! 256-bit kernels: eight columns by six rows at a time. Sixteen registers hold the integer accumulators; the f32 ones stay in
//! the first-level cache.

use std::arch::x86_64::*;

use super::super::Second;
use super::super::activation::RowsBlock;
use super::super::panel::PanelBlock;
use super::{MINIMUM, NONE, SCALE};
use crate::TILE_ROWS;
use crate::ahead::Ahead;
use crate::scheme::{Micro, Sums};

type Dots = [__m256i; TILE_ROWS];

#[target_feature(enable = "avx2,fma")]
#[inline]
fn bytes(quants: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are read from an array of 32 bytes; the alignment does not matter.
    unsafe { _mm256_loadu_si256(quants.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn floats(values: &[f32; 32], group: usize) -> __m256 {
    let at = values.as_chunks::<8>().0[group & 3].as_ptr();
    // SAFETY: 8 floats are read from an array of 8.
    unsafe { _mm256_loadu_ps(at) }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn put(values: &mut [f32; 32], group: usize, vector: __m256) {
    let at = values.as_chunks_mut::<8>().0[group & 3].as_mut_ptr();
    // SAFETY: 8 floats are written to an array of 8.
    unsafe { _mm256_storeu_ps(at, vector) }
}

/// Dot products by pairs in int16. Bytes of `BITS` bits and less than 8: as many pairs are added in int16 as fit, then widened.
/// Bytes of 8 bits: their halves go two ways, since a pair of whole products would not fit.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn dot_avx2<const SECOND: u8, const BITS: u32, const FROM: usize, const TO: usize>(
    row: &RowsBlock,
    block: &PanelBlock,
    group: usize,
    start: &[i32; TILE_ROWS],
) -> Dots {
    let ones = _mm256_set1_epi16(1);
    let mut dots: Dots = [_mm256_setzero_si256(); TILE_ROWS];
    for r in 0..TILE_ROWS {
        dots[r] = _mm256_set1_epi32(start[r]);
    }
    if BITS == 8 {
        let nibble = _mm256_set1_epi8(15);
        let mut low = [_mm256_setzero_si256(); TILE_ROWS];
        let mut high = [_mm256_setzero_si256(); TILE_ROWS];
        for k in FROM..TO {
            let weights = bytes(&block.quants[k][group]);
            let lower = _mm256_and_si256(weights, nibble);
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(weights), nibble);
            for r in 0..TILE_ROWS {
                let quants = _mm256_set1_epi32(row.quants[k][r]);
                // at most 8 * 2 * 15 * 127 = 30480
                low[r] = _mm256_add_epi16(low[r], _mm256_maddubs_epi16(lower, quants));
                high[r] = _mm256_add_epi16(high[r], _mm256_maddubs_epi16(upper, quants));
            }
        }
        for r in 0..TILE_ROWS {
            let upper = _mm256_slli_epi32::<4>(_mm256_madd_epi16(high[r], ones));
            dots[r] = _mm256_add_epi32(dots[r], _mm256_add_epi32(_mm256_madd_epi16(low[r], ones), upper));
        }
        return dots;
    }
    // 4 bits: 8 * 2 * 15 * 127 = 30480; 5 bits: 4 * 2 * 31 * 127 = 31496; 6 bits: 2 * 2 * 63 * 127 = 32004
    let most = match BITS {
        4 => 8,
        5 => 4,
        _ => 2,
    };
    let mut from = FROM;
    while from < TO {
        let to = if from + most < TO { from + most } else { TO };
        let mut pairs = [_mm256_setzero_si256(); TILE_ROWS];
        for k in from..to {
            let weights = bytes(&block.quants[k][group]);
            for (pairs, quants) in pairs.iter_mut().zip(row.quants[k]) {
                *pairs = _mm256_add_epi16(*pairs, _mm256_maddubs_epi16(weights, _mm256_set1_epi32(quants)));
            }
        }
        for r in 0..TILE_ROWS {
            dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(pairs[r], ones));
        }
        from = to;
    }
    dots
}

#[target_feature(enable = "avx2,fma,avxvnni")]
#[inline]
fn dot_vnni<const SECOND: u8, const BITS: u32, const FROM: usize, const TO: usize>(
    row: &RowsBlock,
    block: &PanelBlock,
    group: usize,
    start: &[i32; TILE_ROWS],
) -> Dots {
    let mut dots: Dots = [_mm256_setzero_si256(); TILE_ROWS];
    for r in 0..TILE_ROWS {
        dots[r] = _mm256_set1_epi32(start[r]);
    }
    for k in FROM..TO {
        let weights = bytes(&block.quants[k][group]);
        for (dots, quants) in dots.iter_mut().zip(row.quants[k]) {
            *dots = _mm256_dpbusd_avx_epi32(*dots, weights, _mm256_set1_epi32(quants));
        }
    }
    dots
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add(dots: &Dots, row: &RowsBlock, scale: &[f32; 32], group: usize, totals: &mut [__m256; TILE_ROWS]) {
    let scales = floats(scale, group);
    for r in 0..TILE_ROWS {
        let both = _mm256_mul_ps(_mm256_set1_ps(row.scale[r]), scales);
        totals[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), both, totals[r]);
    }
}

/// The frame around the dot products (which know `SECOND` to have one caller each, and so are inlined), once for each instruction set: a function cannot be generic over its CPU features.
macro_rules! tile {
    ($name:ident, $dot:ident, $features:literal) => {
        #[target_feature(enable = $features)]
        fn $name<const SECOND: u8, const BITS: u32>(
            rows: &[RowsBlock],
            panel: &[PanelBlock],
            sums: Sums<'_>,
            first: bool,
            ahead: &mut Ahead,
        ) {
            // not in the loop, whose registers are all taken
            panel.iter().for_each(|_| ahead.step());
            for group in 0..4 {
                let mut totals = [_mm256_setzero_ps(); TILE_ROWS];
                if !first {
                    for r in 0..TILE_ROWS {
                        totals[r] = floats(sums[r], group);
                    }
                }
                for (row, block) in rows.iter().zip(panel) {
                    if SECOND == SCALE {
                        let dots = $dot::<SECOND, BITS, 0, 4>(row, block, group, &row.start);
                        add(&dots, row, &block.scale, group, &mut totals);
                        let dots = $dot::<SECOND, BITS, 4, 8>(row, block, group, &row.second);
                        add(&dots, row, &block.second, group, &mut totals);
                    } else {
                        let dots = $dot::<SECOND, BITS, 0, 8>(row, block, group, &row.start);
                        add(&dots, row, &block.scale, group, &mut totals);
                    }
                    if SECOND == MINIMUM {
                        let minima = floats(&block.second, group);
                        for r in 0..TILE_ROWS {
                            let sum = _mm256_set1_ps(f32::from_bits(row.second[r] as u32));
                            totals[r] = _mm256_fmadd_ps(sum, minima, totals[r]);
                        }
                    }
                }
                for r in 0..TILE_ROWS {
                    put(sums[r], group, totals[r]);
                }
            }
        }
    };
}

tile!(tile_avx2, dot_avx2, "avx2,fma");
tile!(tile_vnni, dot_vnni, "avx2,fma,avxvnni");

pub(super) fn choose(second: Second, bits: u32) -> Micro<RowsBlock, PanelBlock> {
    match (second, bits) {
        (Second::None, 4) => tile_avx2::<NONE, 4>,
        (Second::None, 5) => tile_avx2::<NONE, 5>,
        (Second::None, _) => tile_avx2::<NONE, 8>,
        (Second::Minimum, 4) => tile_avx2::<MINIMUM, 4>,
        (Second::Minimum, 5) => tile_avx2::<MINIMUM, 5>,
        (Second::Minimum, _) => tile_avx2::<MINIMUM, 8>,
        (Second::Scale, 6) => tile_avx2::<SCALE, 6>,
        (Second::Scale, _) => tile_avx2::<SCALE, 8>,
    }
}

pub(super) fn choose_vnni(second: Second) -> Micro<RowsBlock, PanelBlock> {
    match second {
        Second::None => tile_vnni::<NONE, 8>,
        Second::Minimum => tile_vnni::<MINIMUM, 8>,
        Second::Scale => tile_vnni::<SCALE, 8>,
    }
}
