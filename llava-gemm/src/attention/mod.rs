//! Attention without a mask: `softmax(scale * q k^T) v` for each head, in blocks of keys, without a matrix of all scores.
//!
//! What it does: gives each thread heads, or parts of their queries; turns a block of keys to columns, adds up scores in f32 in
//! the order of the head's elements, keeps the largest score and the sum of exponentials of each query as it goes along.
//! What it never does: look at the number of threads or of queries; a query's result has the same bits whatever surrounds it.
//! Who calls it: the hook, for the vision tower.

mod block;

use std::sync::atomic::Ordering;

use crate::kernel::Kernel;
use crate::raw;
use crate::team::{Head, Team};
use block::{Keys, Scratch};

/// Queries whose state is kept at once.
const QUERIES: usize = 192;
const ALIGN: usize = 64;

/// Addresses of `f32` or half floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floats {
    /// IEEE halves.
    Half(*const u16),
    /// Single precision.
    Single(*const f32),
}

/// `output[b, n, h, :] = softmax over j of (scale * q[b, h, n, :] . k[b, h, j, :]) v[b, h, j, :]`. Strides are in bytes; elements
/// of a head lie side by side.
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    /// Factor of the scores.
    pub scale: f32,
    /// Elements of a head: a multiple of 8, 16 to 256.
    pub size: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Heads.
    pub heads: usize,
    /// Elements of the batch.
    pub batch: usize,
    /// Queries; strides of a query, a head, an element of the batch.
    pub q: *const f32,
    /// See `q`.
    pub q_stride: [usize; 3],
    /// Keys; strides of a key, a head, an element of the batch.
    pub k: Floats,
    /// See `k`.
    pub k_stride: [usize; 3],
    /// Values, of the same kind of floats as `k`; strides likewise.
    pub v: Floats,
    /// See `v`.
    pub v_stride: [usize; 3],
    /// Result; strides of a head, a query, an element of the batch.
    pub output: *mut f32,
    /// See `output`.
    pub output_stride: [usize; 3],
}

impl Attention {
    /// Whether the kernels take these sizes.
    #[must_use]
    pub fn fits(&self) -> bool {
        let half = |floats: Floats| matches!(floats, Floats::Half(_));
        let all = [self.queries, self.keys, self.heads, self.batch];
        let aligned = |strides: [usize; 3], size: usize| strides.iter().all(|stride| stride.is_multiple_of(size));
        let element = if half(self.k) { 2 } else { 4 };
        (16..=256).contains(&self.size)
            && self.size.is_multiple_of(8)
            && all.iter().all(|n| (1..1 << 24).contains(n))
            && half(self.k) == half(self.v)
            && aligned(self.q_stride, 4)
            && aligned(self.output_stride, 4)
            && aligned(self.k_stride, element)
            && aligned(self.v_stride, element)
    }

    /// Parts of a head's queries, as even as they can be.
    fn part(&self) -> (usize, usize) {
        let parts = self.queries.div_ceil(QUERIES);
        let each = self.queries.div_ceil(parts);
        (parts, each.next_multiple_of(block::ROWS))
    }

    /// Bytes of work memory that `threads` threads need together; `None` where the sum does not fit a `usize`.
    #[must_use]
    pub fn work_bytes(&self, threads: usize) -> Option<usize> {
        Scratch::bytes(self.size, QUERIES + block::ROWS).checked_mul(threads)?.checked_add(size_of::<Head>() + ALIGN)
    }

    /// Computes this thread's part; as [`crate::Multiply::run`].
    ///
    /// # Safety
    /// Until all threads have returned: `q`, `k` and `v` are readable and `output` is writable as far as sizes and strides
    /// say, the output is used by nobody else and overlaps none of them nor itself, and `work` is `work_bytes` bytes for this
    /// attention only.
    pub unsafe fn run(
        &self,
        choose: impl FnOnce() -> Option<Kernel>,
        team: Team<'_>,
        work: *mut u8,
        work_bytes: usize,
    ) -> bool {
        let enough = self.work_bytes(team.threads).is_some_and(|bytes| bytes <= work_bytes);
        if !self.fits() || !enough || team.index >= team.threads {
            return false;
        }
        let work = work.wrapping_add(work.align_offset(ALIGN));
        // SAFETY: the work memory begins with room for a head, aligned above, and belongs to this attention.
        let Some((kernel, head)) = (unsafe { Head::agree(choose, team, work) }) else { return false };
        let each = Scratch::bytes(self.size, QUERIES + block::ROWS);
        // SAFETY: each thread has a part of its own behind the head.
        let own = unsafe { work.add(size_of::<Head>() + team.index * each) };
        // SAFETY: nobody else has this part; any bytes are valid floats.
        let own = unsafe { raw::slice_mut(own.cast::<f32>(), each / size_of::<f32>()) };
        let Some(mut scratch) = Scratch::split(own, self.size, QUERIES + block::ROWS) else { return true };
        let (parts, each) = self.part();
        loop {
            let item = head.next.fetch_add(1, Ordering::Relaxed);
            if item >= parts * self.heads * self.batch {
                return true;
            }
            let (part, rest) = (item % parts, item / parts);
            let from = part * each;
            let to = (from + each).min(self.queries);
            if from < to {
                // SAFETY: the caller's promise; these queries are this thread's.
                unsafe { self.head(kernel, [rest % self.heads, rest / self.heads], from..to, &mut scratch) };
            }
        }
    }

    /// # Safety
    /// As [`Self::run`]; `place` is a head and an element of the batch, `queries` a range of queries.
    unsafe fn head(
        &self,
        kernel: Kernel,
        place: [usize; 2],
        queries: std::ops::Range<usize>,
        scratch: &mut Scratch<'_>,
    ) {
        let [head, element] = place;
        let offset = |strides: [usize; 3]| head * strides[1] + element * strides[2];
        let count = queries.len();
        for (i, n) in queries.clone().enumerate() {
            // SAFETY: a query of this head.
            let start = unsafe { self.q.byte_add(n * self.q_stride[0] + offset(self.q_stride)) };
            // SAFETY: its elements lie side by side.
            scratch.put_query(i, unsafe { raw::slice(start, self.size) }, self.scale);
        }
        scratch.begin(count);
        let place = |floats: Floats, strides: [usize; 3]| match floats {
            // SAFETY: this head's first key or value.
            Floats::Half(at) => Floats::Half(unsafe { at.byte_add(offset(strides)) }),
            // SAFETY: likewise.
            Floats::Single(at) => Floats::Single(unsafe { at.byte_add(offset(strides)) }),
        };
        let keys = Keys {
            k: place(self.k, self.k_stride),
            v: place(self.v, self.v_stride),
            k_stride: self.k_stride[0],
            v_stride: self.v_stride[0],
            size: self.size,
        };
        for from in (0..self.keys).step_by(block::KEYS) {
            let len = block::KEYS.min(self.keys - from);
            // SAFETY: a range of this head's keys, and the kernel is available.
            unsafe { block::run(kernel, &keys, from, len, count, scratch) };
        }
        for (i, n) in queries.enumerate() {
            let at = n * self.output_stride[1] + head * self.output_stride[0] + element * self.output_stride[2];
            // SAFETY: this query's place in the output.
            let start = unsafe { self.output.byte_add(at) };
            // SAFETY: its elements lie side by side and are this thread's.
            scratch.finish(i, unsafe { raw::slice_mut(start, self.size) });
        }
    }
}
