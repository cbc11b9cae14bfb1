//! Weight panels: 32 columns of the product as f32, turned so that the columns of one element along K lie side by side.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::ops::Range;

use super::PanelBlock;
use crate::BLOCK;
use crate::format::{WeightType, half};
use crate::kernel::Kernel;
use crate::raw;
use crate::scheme::Weights;

/// One type of floats.
pub(crate) trait Element {
    const TYPE: WeightType;
    /// Eight stored elements as f32. `bytes` are as many as they take.
    fn eight(bytes: &[u8]) -> [f32; 8];
    /// Elements `8 * part..` of a whole block.
    #[cfg(target_arch = "x86_64")]
    fn load(block: &[u8], part: usize) -> __m256;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn load_singles(block: &[u8], part: usize) -> __m256 {
    let eight = &block.as_chunks::<32>().0[part];
    // SAFETY: 32 bytes of any alignment are read from an array of 32 bytes.
    unsafe { _mm256_loadu_ps(eight.as_ptr().cast()) }
}

/// Eight 16-bit elements.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn load_words(block: &[u8], part: usize) -> __m128i {
    let eight = &block.as_chunks::<16>().0[part];
    // SAFETY: 16 bytes of any alignment are read from an array of 16 bytes.
    unsafe { _mm_loadu_si128(eight.as_ptr().cast()) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn load_halves(block: &[u8], part: usize) -> __m256 {
    _mm256_cvtph_ps(load_words(block, part))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn load_upper(block: &[u8], part: usize) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(load_words(block, part))))
}

pub(crate) struct F32;
impl Element for F32 {
    const TYPE: WeightType = WeightType::F32;
    #[inline(always)]
    fn eight(bytes: &[u8]) -> [f32; 8] {
        let (words, _) = bytes.as_chunks::<4>();
        std::array::from_fn(|i| f32::from_le_bytes(words[i]))
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load(block: &[u8], part: usize) -> __m256 {
        // SAFETY: only called below `body_avx2`, which runs where `Kernel::available` found these features.
        unsafe { load_singles(block, part) }
    }
}

pub(crate) struct F16;
impl Element for F16 {
    const TYPE: WeightType = WeightType::F16;
    #[inline(always)]
    fn eight(bytes: &[u8]) -> [f32; 8] {
        let (words, _) = bytes.as_chunks::<2>();
        std::array::from_fn(|i| half(u16::from_le_bytes(words[i])))
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load(block: &[u8], part: usize) -> __m256 {
        // SAFETY: only called below `body_avx2`, which runs where `Kernel::available` found these features.
        unsafe { load_halves(block, part) }
    }
}

pub(crate) struct Bf16;
impl Element for Bf16 {
    const TYPE: WeightType = WeightType::Bf16;
    #[inline(always)]
    fn eight(bytes: &[u8]) -> [f32; 8] {
        let (words, _) = bytes.as_chunks::<2>();
        std::array::from_fn(|i| f32::from_bits(u32::from(u16::from_le_bytes(words[i])) << 16))
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn load(block: &[u8], part: usize) -> __m256 {
        // SAFETY: only called below `body_avx2`, which runs where `Kernel::available` found these features.
        unsafe { load_upper(block, part) }
    }
}

/// Stored elements of one block of one column; shorter where the row ends.
///
/// # Safety
/// `column < weights.columns`, `block` begins within the row, and the weights are readable as [`crate::Multiply`] promises.
#[inline(always)]
unsafe fn stored<'a, E: Element>(weights: &Weights, column: usize, block: usize) -> &'a [u8] {
    let bytes = const { E::TYPE.unit_bytes() };
    let len = BLOCK.min(weights.k - block * BLOCK);
    // SAFETY: within the tensor, by the caller's promise.
    let start = unsafe { weights.data.add(column * weights.stride + block * BLOCK * bytes) };
    // SAFETY: as above; weights are read only while a graph computes.
    unsafe { raw::slice(start, len * bytes) }
}

/// Eight columns of one block, from number `first` on; a column that the tensor does not have is empty.
#[inline(always)]
fn columns<E: Element>(weights: &Weights, first: usize, block: usize) -> [&[u8]; 8] {
    std::array::from_fn(|i| {
        if first + i < weights.columns {
            // SAFETY: just asked; `block` is one of the row's.
            unsafe { stored::<E>(weights, first + i, block) }
        } else {
            &[]
        }
    })
}

#[inline(always)]
fn turn_plainly<E: Element>(columns: &[&[u8]; 8], out: &mut PanelBlock, group: usize) {
    let bytes = const { E::TYPE.unit_bytes() };
    for part in 0..4 {
        for (i, column) in columns.iter().enumerate() {
            // behind the end of a row there are zeros, which change no sum
            let mut padded = [0; 32];
            let rest = column.get(8 * part * bytes..).unwrap_or_default();
            let rest = &rest[..rest.len().min(8 * bytes)];
            padded[..rest.len()].copy_from_slice(rest);
            for (k, value) in E::eight(&padded[..8 * bytes]).into_iter().enumerate() {
                out.0[8 * part + k][8 * group + i] = value;
            }
        }
    }
}

/// Whole blocks of eight columns: squares of eight by eight are turned in registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn turn_avx2<E: Element>(columns: &[&[u8]; 8], out: &mut PanelBlock, group: usize) {
    for part in 0..4 {
        let r: [__m256; 8] = std::array::from_fn(|i| E::load(columns[i], part));
        let pair = |i: usize| (_mm256_unpacklo_ps(r[i], r[i + 1]), _mm256_unpackhi_ps(r[i], r[i + 1]));
        let ((a0, a1), (b0, b1), (c0, c1), (d0, d1)) = (pair(0), pair(2), pair(4), pair(6));
        let low = [
            _mm256_shuffle_ps::<0x44>(a0, b0),
            _mm256_shuffle_ps::<0xee>(a0, b0),
            _mm256_shuffle_ps::<0x44>(a1, b1),
            _mm256_shuffle_ps::<0xee>(a1, b1),
        ];
        let high = [
            _mm256_shuffle_ps::<0x44>(c0, d0),
            _mm256_shuffle_ps::<0xee>(c0, d0),
            _mm256_shuffle_ps::<0x44>(c1, d1),
            _mm256_shuffle_ps::<0xee>(c1, d1),
        ];
        for k in 0..4 {
            let first = _mm256_permute2f128_ps::<0x20>(low[k], high[k]);
            let second = _mm256_permute2f128_ps::<0x31>(low[k], high[k]);
            let place = out.0[8 * part + k].as_chunks_mut::<8>().0[group & 3].as_mut_ptr();
            // SAFETY: eight floats of any alignment are written to an array of eight.
            unsafe { _mm256_storeu_ps(place, first) };
            let place = out.0[8 * part + k + 4].as_chunks_mut::<8>().0[group & 3].as_mut_ptr();
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(place, second) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn body_avx2<E: Element>(weights: &Weights, first: usize, blocks: Range<usize>, panel: &mut [PanelBlock]) {
    let whole = const { E::TYPE.unit_bytes() } * BLOCK;
    for group in 0..4 {
        for (block, out) in blocks.clone().zip(&mut *panel) {
            let columns = columns::<E>(weights, first + 8 * group, block);
            if columns.iter().all(|column| column.len() == whole) {
                turn_avx2::<E>(&columns, out, group);
            } else {
                turn_plainly::<E>(&columns, out, group);
            }
        }
    }
}

/// Unpacks `blocks` of columns `first..first + 32` into `panel`. What the tensor does not have becomes zeros.
pub(super) fn fill<E: Element>(
    kernel: Kernel,
    weights: &Weights,
    first: usize,
    blocks: Range<usize>,
    panel: &mut [PanelBlock],
) {
    #[cfg(target_arch = "x86_64")]
    if kernel != Kernel::Scalar {
        // SAFETY: every kernel above the scalar one is only chosen where `Kernel::available` found these features.
        return unsafe { body_avx2::<E>(weights, first, blocks, panel) };
    }
    let _ = kernel;
    for group in 0..4 {
        for (block, out) in blocks.clone().zip(&mut *panel) {
            turn_plainly::<E>(&columns::<E>(weights, first + 8 * group, block), out, group);
        }
    }
}
