//! One product: quantise the rows together, then share out the columns.
//!
//! Work memory: a head, one byte a row (does it hold a NaN or an infinity), the quantised rows, and for each thread the panels
//! it is working on. Nothing is kept from one product to the next, so weights exist once. Unpacking costs about as much as 20
//! rows do (AVX-512, Q8_0, 2048 x 2048): 4 % of the time at 576 rows, a quarter at 64. A kept copy of the panels would save
//! that for 1.25 bytes a weight.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::activation::{self, RowsBlock};
use crate::decode::{Iq4Nl, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Unit};
use crate::format::{Layout, WeightType};
use crate::kernel::Kernel;
use crate::micro::{self, Micro, Sums};
use crate::panel::{self, PanelBlock, Weights};
use crate::raw;
use crate::{BLOCK, TILE_COLUMNS, TILE_ROWS};

/// Blocks along K that are worked on at once: two panels of them and the rows they meet stay in a first-level cache of 48 KiB.
const SLICE: usize = 16;
/// Panels that share one pass over the rows.
const PANELS: usize = 2;
const ALIGN: usize = 64;

/// A product `output[m, n] = sum over k of input[m, k] * weights[n, k]`.
#[derive(Debug, Clone, Copy)]
pub struct Multiply {
    /// Type of the weights.
    pub weight: WeightType,
    /// How they lie.
    pub layout: Layout,
    /// First byte of the weights.
    pub weights: *const u8,
    /// Bytes from one row of weights (a column of the product) to the next.
    pub weight_stride: usize,
    /// Rows of activations.
    pub input: *const f32,
    /// Bytes from one row of activations to the next.
    pub input_stride: usize,
    /// Rows of the product.
    pub output: *mut f32,
    /// Bytes from one row of the product to the next.
    pub output_stride: usize,
    /// Elements of a row of activations, and of a row of weights.
    pub k: usize,
    /// Rows of weights: columns of the product.
    pub columns: usize,
    /// Rows of activations: rows of the product.
    pub rows: usize,
}

/// The threads that compute one product together; each calls with its own index.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// Which thread this is, from 0.
    pub index: usize,
    /// How many there are.
    pub threads: usize,
    /// Returns once every thread of the team has called it.
    pub barrier: &'a dyn Fn(),
}

impl std::fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("index", &self.index).field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// First bytes of the work memory: what the threads of a team share.
#[repr(C, align(64))]
pub(crate) struct Head {
    /// The next piece of work that nobody has taken.
    pub(crate) next: AtomicUsize,
    kernel: AtomicU8,
}

impl Head {
    /// Asks `choose` on thread 0 and tells all threads of the team. `None` for all of them where no kernel was named, or one that
    /// is not available.
    ///
    /// # Safety
    /// `work` is aligned for a head and has room for one, is the same on every thread, and nobody but the team uses it while
    /// `'a` lasts.
    pub(crate) unsafe fn agree<'a>(
        choose: impl FnOnce() -> Option<Kernel>,
        team: Team<'_>,
        work: *mut u8,
    ) -> Option<(Kernel, &'a Self)> {
        if team.index == 0 {
            let kernel = choose().filter(|kernel| kernel.available()).map_or(0, |kernel| kernel as u8);
            let head = Self { next: AtomicUsize::new(0), kernel: AtomicU8::new(kernel) };
            // SAFETY: the caller's promise; the others wait at the barrier.
            unsafe { work.cast::<Self>().write(head) };
        }
        (team.barrier)();
        // SAFETY: thread 0 wrote it before the barrier, and it is only changed through atomics from now on.
        let head = unsafe { &*work.cast::<Self>() };
        let kernel = Kernel::from_number(head.kernel.load(Ordering::Relaxed));
        if kernel.is_none() {
            // whoever computes it instead may write to the work memory at once: not before all have read the answer
            (team.barrier)();
        }
        Some((kernel?, head))
    }
}

/// Offsets into the work memory.
struct Plan {
    special: usize,
    rows: usize,
    panels: usize,
    total: usize,
}

const fn padded(bytes: usize) -> Option<usize> {
    match bytes.checked_add(ALIGN - 1) {
        Some(sum) => Some(sum / ALIGN * ALIGN),
        None => None,
    }
}

impl Multiply {
    /// Whether sizes and strides are such as the kernels take; says nothing about whether it is worth it.
    #[must_use]
    pub fn fits(&self) -> bool {
        let unit = self.weight.unit();
        let row_bytes = |elements: usize| elements.saturating_mul(size_of::<f32>());
        let aligned = |address: usize, stride: usize| {
            address.is_multiple_of(align_of::<f32>()) && stride.is_multiple_of(align_of::<f32>())
        };
        let woven = self.layout != Layout::Woven8 || self.columns.is_multiple_of(8);
        self.k > 0
            && self.rows > 0
            && self.columns > 0
            && self.k.is_multiple_of(unit)
            && self.layout.holds(self.weight)
            && woven
            && self.weight_stride >= (self.k / unit).saturating_mul(self.weight.unit_bytes())
            && self.input_stride >= row_bytes(self.k)
            && self.output_stride >= row_bytes(self.columns)
            && aligned(self.input as usize, self.input_stride)
            && aligned(self.output as usize, self.output_stride)
    }

    fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE_ROWS)
    }

    fn plan(&self, threads: usize) -> Option<Plan> {
        let special = size_of::<Head>();
        let rows = padded(special.checked_add(self.rows)?)?;
        let blocks = self.tiles().checked_mul(self.k / BLOCK)?;
        let panels = padded(rows.checked_add(blocks.checked_mul(size_of::<RowsBlock>())?)?)?;
        let each = PANELS * SLICE * size_of::<PanelBlock>();
        let total = panels.checked_add(threads.checked_mul(each)?)?;
        Some(Plan { special, rows, panels, total: total.checked_add(ALIGN)? })
    }

    /// Bytes of work memory that `threads` threads need together; `None` where the sum does not fit a `usize`.
    #[must_use]
    pub fn work_bytes(&self, threads: usize) -> Option<usize> {
        self.plan(threads).map(|plan| plan.total)
    }

    /// Computes this thread's part. Every thread of the team calls it, with the same product and the same work memory, and
    /// all get the same answer: false where nothing was computed, because the product does not fit, the work memory is too
    /// small, or `choose` named no kernel or one that is not available. `choose` is asked once, by thread 0.
    ///
    /// # Safety
    /// Until all threads have returned: the weights are readable (`columns` rows of `weight_stride` bytes, the last only as
    /// long as its elements; woven: as many bytes in all), the rows of `input` are readable, the rows of `output` are
    /// writable and used by nobody else, neither overlaps the output, and `work` is `work_bytes` bytes for this product only.
    pub unsafe fn run(
        &self,
        choose: impl FnOnce() -> Option<Kernel>,
        team: Team<'_>,
        work: *mut u8,
        work_bytes: usize,
    ) -> bool {
        let Some(plan) = self.plan(team.threads).filter(|plan| plan.total <= work_bytes) else { return false };
        if !self.fits() || team.index >= team.threads {
            return false;
        }
        let work = work.wrapping_add(work.align_offset(ALIGN));
        // SAFETY: the work memory begins with room for a head, aligned above, and belongs to this product.
        let Some((kernel, head)) = (unsafe { Head::agree(choose, team, work) }) else { return false };

        // SAFETY: the plan's offsets lie within the work memory.
        let special = unsafe { work.add(plan.special) };
        // SAFETY: as above; the offset keeps the alignment.
        let rows = unsafe { work.add(plan.rows) }.cast::<RowsBlock>();
        // SAFETY: the caller's promise about the input; `special` and `rows` have room for every row and tile.
        unsafe { self.quantise(kernel, team, special, rows) };
        (team.barrier)();
        let own = plan.panels + team.index * PANELS * SLICE * size_of::<PanelBlock>();
        // SAFETY: as above; each thread has panels of its own.
        let panels = unsafe { work.add(own) }.cast::<PanelBlock>();
        // SAFETY: nobody else has this part.
        let panels = unsafe { raw::slice_mut(panels, PANELS * SLICE) };
        // SAFETY: written by all threads before the barrier and only read from now on.
        let special = unsafe { raw::slice(special, self.rows) };
        // SAFETY: as above.
        let rows = unsafe { raw::slice(rows, self.tiles() * (self.k / BLOCK)) };
        let shared = Shared { product: self, kernel, head, threads: team.threads, special, rows };
        match self.weight {
            WeightType::Q8_0 => shared.columns::<Q8_0>(panels),
            WeightType::Q4_0 => shared.columns::<Q4_0>(panels),
            WeightType::Q4_1 => shared.columns::<Q4_1>(panels),
            WeightType::Q5_0 => shared.columns::<Q5_0>(panels),
            WeightType::Q5_1 => shared.columns::<Q5_1>(panels),
            WeightType::Iq4Nl => shared.columns::<Iq4Nl>(panels),
            WeightType::Q4K => shared.columns::<Q4K>(panels),
            WeightType::Q5K => shared.columns::<Q5K>(panels),
            WeightType::Q6K => shared.columns::<Q6K>(panels),
        }
        true
    }

    /// # Safety
    /// The input is readable; `special` has room for every row, `rows` for every tile; no other thread touches the tiles
    /// that fall to this one.
    unsafe fn quantise(&self, kernel: Kernel, team: Team<'_>, special: *mut u8, rows: *mut RowsBlock) {
        let numbers = self.weight.numbers();
        let blocks = self.k / BLOCK;
        for tile in (team.index..self.tiles()).step_by(team.threads) {
            // SAFETY: `rows` has room for every tile.
            let start = unsafe { rows.add(tile * blocks) };
            // SAFETY: this tile belongs to this thread; any bytes are a valid block.
            let tile_blocks = unsafe { raw::slice_mut(start, blocks) };
            for r in 0..TILE_ROWS {
                let m = tile * TILE_ROWS + r;
                if m >= self.rows {
                    activation::clear(tile_blocks, r);
                    continue;
                }
                // SAFETY: `m` is a row of the input.
                let values = unsafe { self.input_row(m) };
                let found = activation::quantise(kernel, values, numbers, tile_blocks, r);
                // SAFETY: `special` has a byte for every row.
                let place = unsafe { special.add(m) };
                // SAFETY: this row is this thread's.
                unsafe { place.write(u8::from(found)) };
            }
        }
    }

    /// # Safety
    /// `m < self.rows`, and the input is readable for `'a`.
    unsafe fn input_row<'a>(&self, m: usize) -> &'a [f32] {
        // SAFETY: within the input.
        let start = unsafe { self.input.byte_add(m * self.input_stride) };
        // SAFETY: a row has `k` elements.
        unsafe { raw::slice(start, self.k) }
    }

    /// # Safety
    /// `m < self.rows`, `column + len <= self.columns`, and nobody else uses these elements of the output for `'a`.
    unsafe fn output<'a>(&self, m: usize, column: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: within the output.
        let row = unsafe { self.output.byte_add(m * self.output_stride) };
        // SAFETY: within the row.
        let start = unsafe { row.add(column) };
        // SAFETY: the caller's promise.
        unsafe { raw::slice_mut(start, len) }
    }
}

/// What the threads share once the rows are quantised.
struct Shared<'a> {
    product: &'a Multiply,
    kernel: Kernel,
    head: &'a Head,
    threads: usize,
    special: &'a [u8],
    rows: &'a [RowsBlock],
}

impl Shared<'_> {
    /// Takes columns until none are left.
    fn columns<U: Unit>(&self, panels: &mut [PanelBlock]) {
        let product = self.product;
        let weights = Weights {
            data: product.weights,
            stride: product.weight_stride,
            columns: product.columns,
            units: product.k / U::TYPE.unit(),
            layout: product.layout,
        };
        let micro = micro::choose(self.kernel, U::TYPE.numbers());
        // few columns for many threads: in smaller parts, so that none waits long for the last
        let together = if product.columns.div_ceil(PANELS * TILE_COLUMNS) >= 4 * self.threads { PANELS } else { 1 };
        let blocks = product.k / BLOCK;
        loop {
            // any order will do: each column is computed by whoever takes it, in the same way
            let first = self.head.next.fetch_add(together * TILE_COLUMNS, Ordering::Relaxed);
            if first >= product.columns {
                return;
            }
            for from in (0..blocks).step_by(SLICE) {
                let to = (from + SLICE).min(blocks);
                for (i, panel) in panels.chunks_exact_mut(SLICE).take(together).enumerate() {
                    let column = first + i * TILE_COLUMNS;
                    let units = from / U::BLOCKS..to / U::BLOCKS;
                    panel::fill::<U>(self.kernel, &weights, column, units, &mut panel[..to - from]);
                }
                for tile in 0..product.tiles() {
                    for (i, panel) in panels.chunks_exact(SLICE).take(together).enumerate() {
                        let column = first + i * TILE_COLUMNS;
                        if column < product.columns {
                            self.tile(micro, tile, from..to, column, &panel[..to - from]);
                        }
                    }
                }
                for (i, panel) in panels.chunks_exact(SLICE).take(together).enumerate() {
                    self.special::<U>(from..to, first + i * TILE_COLUMNS, &panel[..to - from]);
                }
            }
        }
    }

    fn tile(&self, micro: Micro, tile: usize, slice: std::ops::Range<usize>, column: usize, panel: &[PanelBlock]) {
        let product = self.product;
        let blocks = product.k / BLOCK;
        let rows = &self.rows[tile * blocks + slice.start..tile * blocks + slice.end];
        let first = slice.start == 0;
        let (m, width) = (tile * TILE_ROWS, TILE_COLUMNS.min(product.columns - column));
        let height = TILE_ROWS.min(product.rows - m);
        if height == TILE_ROWS && width == TILE_COLUMNS {
            let sums: Sums<'_> = std::array::from_fn(|r| {
                // SAFETY: a whole tile lies within the output; these columns belong to this thread, and the six rows do
                // not overlap because the stride is at least a row.
                let row = unsafe { product.output(m + r, column, TILE_COLUMNS) };
                // SAFETY: 32 elements, as just asked for.
                unsafe { &mut *row.as_mut_ptr().cast::<[f32; TILE_COLUMNS]>() }
            });
            // SAFETY: the kernel is available: `run` checked.
            return unsafe { micro(rows, panel, sums, first) };
        }
        let mut edge = [[0.0_f32; TILE_COLUMNS]; TILE_ROWS];
        if !first {
            for (r, sums) in edge.iter_mut().enumerate().take(height) {
                // SAFETY: `height` and `width` end where the output does; the columns belong to this thread.
                sums[..width].copy_from_slice(unsafe { product.output(m + r, column, width) });
            }
        }
        // SAFETY: as above.
        unsafe { micro(rows, panel, edge.each_mut(), first) };
        for (r, sums) in edge.iter().enumerate().take(height) {
            // SAFETY: as above.
            unsafe { product.output(m + r, column, width) }.copy_from_slice(&sums[..width]);
        }
    }

    /// Rows with a NaN or an infinity: their blocks that hold one are multiplied in f32, and so give what floats give.
    fn special<U: Unit>(&self, slice: std::ops::Range<usize>, column: usize, panel: &[PanelBlock]) {
        let product = self.product;
        if column >= product.columns {
            return;
        }
        let width = TILE_COLUMNS.min(product.columns - column);
        for m in (0..product.rows).filter(|m| self.special[*m] != 0) {
            // SAFETY: `m` is a row.
            let values = unsafe { product.input_row(m) };
            // SAFETY: these columns belong to this thread and end where the output does.
            let out = unsafe { product.output(m, column, width) };
            panel::add_special(&values[slice.start * BLOCK..slice.end * BLOCK], panel, U::TYPE.numbers(), out);
        }
    }
}
