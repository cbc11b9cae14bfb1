//! One block of keys against the queries that a thread holds.

use super::Floats;
use crate::format::half;
use crate::kernel::Kernel;
use crate::raw;
use crate::vector::{Plain, Vector, exp};

/// Queries of one tile.
pub(super) const ROWS: usize = 6;
/// Keys of one block.
pub(super) const KEYS: usize = 128;
const LANES: usize = 16;

/// Keys and values of one head.
pub(super) struct Keys {
    pub k: Floats,
    pub v: Floats,
    /// Bytes from one key to the next.
    pub k_stride: usize,
    pub v_stride: usize,
    pub size: usize,
}

/// What one thread works with.
pub(super) struct Scratch<'a> {
    size: usize,
    /// `size` rounded up to whole vectors.
    width: usize,
    /// Scaled queries: for each tile, `size` times one element of its six queries.
    queries: &'a mut [f32],
    /// Sums of values: `width` for each query.
    sums: &'a mut [f32],
    /// Largest score so far of each query.
    largest: &'a mut [f32],
    /// Sums of exponentials: 16 lanes for each query.
    totals: &'a mut [f32],
    /// A block of keys turned: `size` times one element of 128 keys.
    keys: &'a mut [f32],
    /// A block of values: 128 times `width`.
    values: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    const fn parts(size: usize, queries: usize) -> [usize; 6] {
        let width = size.next_multiple_of(LANES);
        let tall = queries.next_multiple_of(ROWS);
        [tall * size, tall * width, tall.next_multiple_of(LANES), tall * LANES, size * KEYS, KEYS * width]
    }

    /// Bytes that [`Self::split`] takes, a multiple of 64.
    pub(super) const fn bytes(size: usize, queries: usize) -> usize {
        let [a, b, c, d, e, f] = Self::parts(size, queries);
        ((a + b + c + d + e + f) * size_of::<f32>()).next_multiple_of(64)
    }

    /// Shares out memory of [`Self::bytes`] bytes; `None` where it is less.
    pub(super) fn split(memory: &'a mut [f32], size: usize, queries: usize) -> Option<Self> {
        // what the kernels use most comes first, aligned as the memory is
        let [q, s, l, t, k, v] = Self::parts(size, queries);
        let (keys, memory) = memory.split_at_mut_checked(k)?;
        let (values, memory) = memory.split_at_mut_checked(v)?;
        let (sums, memory) = memory.split_at_mut_checked(s)?;
        let (totals, memory) = memory.split_at_mut_checked(t)?;
        let (largest, memory) = memory.split_at_mut_checked(l)?;
        let (queries, _) = memory.split_at_mut_checked(q)?;
        Some(Self { size, width: size.next_multiple_of(LANES), queries, sums, largest, totals, keys, values })
    }

    pub(super) fn put_query(&mut self, i: usize, query: &[f32], scale: f32) {
        let (tile, row) = (i / ROWS, i % ROWS);
        let places = self.queries[tile * self.size * ROWS..].iter_mut().skip(row).step_by(ROWS);
        places.zip(query).for_each(|(place, value)| *place = value * scale);
    }

    /// Starts `count` queries afresh; the last tile is filled up with zeros.
    pub(super) fn begin(&mut self, count: usize) {
        for i in count..count.next_multiple_of(ROWS) {
            let (tile, row) = (i / ROWS, i % ROWS);
            let places = self.queries[tile * self.size * ROWS..].iter_mut().skip(row).step_by(ROWS);
            places.take(self.size).for_each(|place| *place = 0.0);
        }
        let tall = count.next_multiple_of(ROWS);
        self.sums[..tall * self.width].fill(0.0);
        self.totals[..tall * LANES].fill(0.0);
        self.largest[..tall].fill(f32::NEG_INFINITY);
    }

    pub(super) fn finish(&self, i: usize, output: &mut [f32]) {
        let (lanes, _) = self.totals.as_chunks::<LANES>();
        let mut total = lanes[i];
        for step in [8, 4, 2, 1] {
            for lane in 0..step {
                total[lane] += total[lane + step];
            }
        }
        let inverse = 1.0 / total[0];
        let sums = &self.sums[i * self.width..];
        output.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum * inverse);
    }
}

impl Keys {
    /// Eight elements of a key or value as f32.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn eight(floats: Floats, at: usize, element: usize) -> [f32; 8] {
        match floats {
            Floats::Half(start) => {
                // SAFETY: within the caller's memory.
                let start = unsafe { start.byte_add(at + element * size_of::<u16>()) };
                // SAFETY: as above.
                let bits: &[u16] = unsafe { raw::slice(start, 8) };
                std::array::from_fn(|i| half(bits[i]))
            }
            Floats::Single(start) => {
                // SAFETY: within the caller's memory.
                let start = unsafe { start.byte_add(at + element * size_of::<f32>()) };
                // SAFETY: as above.
                let values: &[f32] = unsafe { raw::slice(start, 8) };
                std::array::from_fn(|i| values[i])
            }
        }
    }

    /// # Safety
    /// Keys and values `from..from + len` are readable.
    #[inline(always)]
    unsafe fn unpack(&self, from: usize, len: usize, scratch: &mut Scratch<'_>) {
        let (columns, _) = scratch.keys.as_chunks_mut::<KEYS>();
        let wide = len.next_multiple_of(LANES);
        for group in (0..wide).step_by(8) {
            for element in (0..self.size).step_by(8) {
                let mut rows = [[0.0_f32; 8]; 8];
                for (i, row) in rows.iter_mut().enumerate() {
                    if group + i < len {
                        // SAFETY: a key of the range.
                        *row = unsafe { Self::eight(self.k, (from + group + i) * self.k_stride, element) };
                    }
                }
                for (e, column) in columns[element..element + 8].iter_mut().enumerate() {
                    let place = &mut column[group..group + 8];
                    for (i, row) in rows.iter().enumerate() {
                        place[i] = row[e];
                    }
                }
            }
        }
        for (i, row) in scratch.values.chunks_exact_mut(scratch.width).enumerate().take(len) {
            for element in (0..self.size).step_by(8) {
                // SAFETY: a value of the range.
                let eight = unsafe { Self::eight(self.v, (from + i) * self.v_stride, element) };
                row[element..element + 8].copy_from_slice(&eight);
            }
            row[self.size..].fill(0.0);
        }
    }
}

type Scores = [[f32; KEYS]; ROWS];

/// Scores of `R` queries from row `row` with `C` vectors of keys from vector `first`.
#[inline(always)]
fn scores<V: Vector, const R: usize, const C: usize>(
    queries: &[[f32; ROWS]],
    keys: &[[f32; KEYS]],
    row: usize,
    first: usize,
    out: &mut Scores,
) {
    let mut sums = [[V::all(0.0); C]; R];
    for (query, key) in queries.iter().zip(keys) {
        let (vectors, _) = key.as_chunks::<LANES>();
        let key: [V; C] = std::array::from_fn(|c| V::load(&vectors[(first + c) & 7]));
        for r in 0..R {
            let value = V::all(query[row + r]);
            for c in 0..C {
                sums[r][c] = value.mul_add(key[c], sums[r][c]);
            }
        }
    }
    for r in 0..R {
        let (vectors, _) = out[row + r].as_chunks_mut::<LANES>();
        for c in 0..C {
            sums[r][c].store(&mut vectors[(first + c) & 7]);
        }
    }
}

/// Adds probabilities times values to `R` queries' sums from row `row`, `C` vectors from vector `first`.
#[inline(always)]
fn gather<V: Vector, const R: usize, const C: usize>(
    weights: &Scores,
    values: &[f32],
    width: usize,
    row: usize,
    first: usize,
    out: &mut [f32],
) {
    let mut sums = [[V::all(0.0); C]; R];
    for r in 0..R {
        let (vectors, _) = out[(row + r) * width..].as_chunks::<LANES>();
        for c in 0..C {
            sums[r][c] = V::load(&vectors[first + c]);
        }
    }
    for (i, value) in values.chunks_exact(width).enumerate().take(KEYS) {
        let (vectors, _) = value.as_chunks::<LANES>();
        let Some(vectors) = vectors.get(first..first + C) else { return };
        let value: [V; C] = std::array::from_fn(|c| V::load(&vectors[c]));
        for r in 0..R {
            let weight = V::all(weights[row + r][i]);
            for c in 0..C {
                sums[r][c] = weight.mul_add(value[c], sums[r][c]);
            }
        }
    }
    for r in 0..R {
        let (vectors, _) = out[(row + r) * width..].as_chunks_mut::<LANES>();
        for c in 0..C {
            sums[r][c].store(&mut vectors[first + c]);
        }
    }
}

/// Turns one query's scores into exponentials, given the largest so far; returns the new largest and the factor for what was
/// summed up before.
#[inline(always)]
fn soften<V: Vector>(scores: &mut [f32; KEYS], len: usize, largest: f32, totals: &mut [f32; LANES]) -> (f32, f32) {
    scores[len..len.next_multiple_of(LANES)].fill(f32::NEG_INFINITY);
    let (vectors, _) = scores[..len.next_multiple_of(LANES)].as_chunks_mut::<LANES>();
    let mut most = V::all(largest);
    for vector in &*vectors {
        most = V::load(vector).max(most);
    }
    let mut lanes = [0.0; LANES];
    most.store(&mut lanes);
    let most = lanes.iter().fold(largest, |most, lane| if *lane > most { *lane } else { most });
    let mut factor = [1.0; LANES];
    if most != largest {
        exp(V::all(largest - most)).store(&mut factor);
    }
    let mut total = V::load(totals).mul(V::all(factor[0]));
    for vector in vectors {
        let weight = exp(V::load(vector).sub(V::all(most)));
        weight.store(vector);
        total = total.add(weight);
    }
    total.store(totals);
    (most, factor[0])
}

/// The whole block, for a vector type and the tiles that fit its registers.
macro_rules! block {
    ($name:ident, $vector:ty, $rows:literal, $columns:literal $(, $features:literal)?) => {
        /// # Safety
        /// Keys and values `from..from + len` are readable; the CPU has the features.
        $(#[target_feature(enable = $features)])?
        unsafe fn $name(keys: &Keys, from: usize, len: usize, count: usize, scratch: &mut Scratch<'_>) {
            // SAFETY: the caller's promise.
            unsafe { keys.unpack(from, len, scratch) };
            let (size, width) = (scratch.size, scratch.width);
            let mut weights: Scores = [[0.0; KEYS]; ROWS];
            let (columns, _) = scratch.keys.as_chunks::<KEYS>();
            let (queries, _) = scratch.queries.as_chunks::<ROWS>();
            let (totals, _) = scratch.totals.as_chunks_mut::<LANES>();
            let values = &scratch.values[..len * width];
            let vectors = len.div_ceil(LANES);
            for tile in 0..count.div_ceil(ROWS) {
                let tile_queries = &queries[tile * size..(tile + 1) * size];
                for row in (0..ROWS).step_by($rows) {
                    let mut first = 0;
                    while vectors - first >= $columns {
                        scores::<$vector, $rows, $columns>(tile_queries, columns, row, first, &mut weights);
                        first += $columns;
                    }
                    while first < vectors {
                        scores::<$vector, $rows, 1>(tile_queries, columns, row, first, &mut weights);
                        first += 1;
                    }
                }
                let sums = &mut scratch.sums[tile * ROWS * width..(tile + 1) * ROWS * width];
                for (r, weights) in weights.iter_mut().enumerate() {
                    let i = tile * ROWS + r;
                    let (most, factor) = soften::<$vector>(weights, len, scratch.largest[i], &mut totals[i]);
                    scratch.largest[i] = most;
                    // a NaN is no 1 either
                    if factor != 1.0 {
                        sums[r * width..(r + 1) * width].iter_mut().for_each(|sum| *sum *= factor);
                    }
                }
                for row in (0..ROWS).step_by($rows) {
                    let mut first = 0;
                    while width / LANES - first >= $columns {
                        gather::<$vector, $rows, $columns>(&weights, values, width, row, first, sums);
                        first += $columns;
                    }
                    while first < width / LANES {
                        gather::<$vector, $rows, 1>(&weights, values, width, row, first, sums);
                        first += 1;
                    }
                }
            }
        }
    };
}

block!(block_scalar, Plain, 1, 1);
#[cfg(target_arch = "x86_64")]
use crate::vector::{Ymm, Zmm};
#[cfg(target_arch = "x86_64")]
block!(block_avx2, Ymm, 3, 2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
block!(block_avx512, Zmm, 6, 4, "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c");

/// Keys `from..from + len` against the `count` queries of `scratch`.
///
/// # Safety
/// Keys and values of the range are readable; the kernel is available.
pub(super) unsafe fn run(
    kernel: Kernel,
    keys: &Keys,
    from: usize,
    len: usize,
    count: usize,
    scratch: &mut Scratch<'_>,
) {
    let len = len.min(KEYS);
    match kernel {
        // SAFETY: the caller's promise.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx512Vnni => unsafe { block_avx512(keys, from, len, count, scratch) },
        // SAFETY: the caller's promise.
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 | Kernel::AvxVnni => unsafe { block_avx2(keys, from, len, count, scratch) },
        // SAFETY: the caller's promise.
        _ => unsafe { block_scalar(keys, from, len, count, scratch) },
    }
}
