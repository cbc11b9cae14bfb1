//! AVX-512 VNNI: two vectors of sixteen columns by six rows; twelve int32 and twelve f32 accumulators stay in registers.

use std::arch::x86_64::*;

use super::super::Second;
use super::super::activation::RowsBlock;
use super::super::panel::PanelBlock;
use super::{MINIMUM, NONE, SCALE};
use crate::TILE_ROWS;
use crate::ahead::Ahead;
use crate::scheme::{Micro, Sums};

pub(super) fn choose(second: Second) -> Micro<RowsBlock, PanelBlock> {
    match second {
        Second::None => tile::<NONE>,
        Second::Minimum => tile::<MINIMUM>,
        Second::Scale => tile::<SCALE>,
    }
}

/// Sixteen columns' bytes.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma")]
#[inline]
fn bytes(quants: &[[u8; 32]; 4], half: usize) -> __m512i {
    let at = quants.as_flattened().as_chunks::<64>().0[half & 1].as_ptr();
    // SAFETY: 64 bytes are read from an array of 64 bytes; the alignment does not matter.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma")]
#[inline]
fn floats(values: &[f32; 32], half: usize) -> __m512 {
    let at = values.as_chunks::<16>().0[half & 1].as_ptr();
    // SAFETY: 16 floats are read from an array of 16.
    unsafe { _mm512_loadu_ps(at) }
}

#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma")]
#[inline]
fn put(values: &mut [f32; 32], half: usize, vector: __m512) {
    let at = values.as_chunks_mut::<16>().0[half & 1].as_mut_ptr();
    // SAFETY: 16 floats are written to an array of 16.
    unsafe { _mm512_storeu_ps(at, vector) }
}

type Dots = [[__m512i; 2]; TILE_ROWS];
type Totals = [[__m512; 2]; TILE_ROWS];

/// `SECOND` makes it a function of one caller, which is what has it inlined: the sums are to stay in registers.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma")]
#[inline]
fn dot<const SECOND: u8, const FROM: usize, const TO: usize>(
    row: &RowsBlock,
    block: &PanelBlock,
    start: &[i32; TILE_ROWS],
) -> Dots {
    let mut dots: Dots = [[_mm512_setzero_si512(); 2]; TILE_ROWS];
    for (dots, start) in dots.iter_mut().zip(start) {
        *dots = [_mm512_set1_epi32(*start); 2];
    }
    for k in FROM..TO {
        let weights = [bytes(&block.quants[k], 0), bytes(&block.quants[k], 1)];
        for (dots, quants) in dots.iter_mut().zip(row.quants[k]) {
            let quants = _mm512_set1_epi32(quants);
            dots[0] = _mm512_dpbusd_epi32(dots[0], weights[0], quants);
            dots[1] = _mm512_dpbusd_epi32(dots[1], weights[1], quants);
        }
    }
    dots
}

#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma")]
#[inline]
fn add(dots: &Dots, row: &RowsBlock, scale: &[f32; 32], totals: &mut Totals) {
    let scales = [floats(scale, 0), floats(scale, 1)];
    for r in 0..TILE_ROWS {
        let mine = _mm512_set1_ps(row.scale[r]);
        for half in 0..2 {
            let dot = _mm512_cvtepi32_ps(dots[r][half]);
            totals[r][half] = _mm512_fmadd_ps(dot, _mm512_mul_ps(mine, scales[half]), totals[r][half]);
        }
    }
}

#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vnni,avx2,fma")]
fn tile<const SECOND: u8>(rows: &[RowsBlock], panel: &[PanelBlock], sums: Sums<'_>, first: bool, ahead: &mut Ahead) {
    let mut totals: Totals = [[_mm512_setzero_ps(); 2]; TILE_ROWS];
    if !first {
        for (totals, sums) in totals.iter_mut().zip(&sums) {
            *totals = [floats(sums, 0), floats(sums, 1)];
        }
    }
    for (row, block) in rows.iter().zip(panel) {
        ahead.step();
        if SECOND == SCALE {
            let dots = dot::<SECOND, 0, 4>(row, block, &row.start);
            add(&dots, row, &block.scale, &mut totals);
            let dots = dot::<SECOND, 4, 8>(row, block, &row.second);
            add(&dots, row, &block.second, &mut totals);
        } else {
            let dots = dot::<SECOND, 0, 8>(row, block, &row.start);
            add(&dots, row, &block.scale, &mut totals);
        }
        if SECOND == MINIMUM {
            let minima = [floats(&block.second, 0), floats(&block.second, 1)];
            for (totals, sum) in totals.iter_mut().zip(row.second) {
                let sum = _mm512_set1_ps(f32::from_bits(sum as u32));
                for half in 0..2 {
                    totals[half] = _mm512_fmadd_ps(sum, minima[half], totals[half]);
                }
            }
        }
    }
    for (sums, totals) in sums.into_iter().zip(totals) {
        put(sums, 0, totals[0]);
        put(sums, 1, totals[1]);
    }
}
