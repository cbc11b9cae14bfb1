//! One product: pack the rows together, then share out the columns.
//!
//! Work memory: a head, with experts the order of the rows, one byte a row (does it hold a NaN or an infinity), the packed rows,
//! and for each thread the panels it is working on. Nothing is kept from one product to the next, so weights exist once.
//! A kept copy of the panels would save unpacking for 1.25 bytes a weight.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::ahead::Ahead;
use crate::kernel::Kernel;
use crate::multiply::{Experts, Multiply};
use crate::places::{self, Places};
use crate::raw;
use crate::scheme::{Micro, Scheme, Sums, Weights};
use crate::team::{ALIGN, Head, Team};
use crate::{BLOCK, TILE_COLUMNS, TILE_ROWS};

/// Panels that share one pass over the rows.
const PANELS: usize = 2;

/// Offsets into the work memory.
pub(crate) struct Plan {
    starts: usize,
    used: usize,
    order: usize,
    /// Places in `order`; 0 without experts.
    places: usize,
    special: usize,
    rows: usize,
    panels: usize,
    each: usize,
    pub(crate) total: usize,
}

impl Multiply {
    pub(crate) fn plan<S: Scheme>(&self, threads: usize) -> Option<Plan> {
        let mut end = size_of::<Head>();
        let mut take = |count: usize, size: usize| {
            let start = end;
            end = end.checked_add(count.checked_mul(size)?)?.checked_next_multiple_of(ALIGN)?;
            Some(start)
        };
        let count = self.experts.map_or(0, |experts| experts.count);
        let tiles = places::most_tiles(self.all_rows(), count.max(1))?;
        let places = if count == 0 { 0 } else { tiles.checked_mul(TILE_ROWS)? };
        let each = PANELS * S::SLICE * size_of::<S::Panel>();
        Some(Plan {
            starts: take(if count == 0 { 0 } else { count + 1 }, size_of::<u32>())?,
            used: take(count, size_of::<u32>())?,
            order: take(places, size_of::<u32>())?,
            places,
            special: take(self.all_rows(), 1)?,
            rows: take(tiles.checked_mul(self.blocks())?, size_of::<S::Rows>())?,
            panels: take(threads, each)?,
            each,
            total: take(ALIGN, 1)?.checked_add(ALIGN)?,
        })
    }

    /// As [`Self::run`], for weights of one scheme.
    ///
    /// # Safety
    /// As [`Self::run`]; the product fits, and the thread is one of the team.
    pub(crate) unsafe fn run_as<S: Scheme>(
        &self,
        choose: impl FnOnce() -> Option<Kernel>,
        team: Team<'_>,
        work: *mut u8,
        work_bytes: usize,
    ) -> bool {
        let Some(plan) = self.plan::<S>(team.threads).filter(|plan| plan.total <= work_bytes) else { return false };
        let work = work.wrapping_add(work.align_offset(ALIGN));
        let prepare = || {
            let kernel = choose()?;
            let sorted = self.experts.is_none_or(|experts| {
                // SAFETY: only thread 0 is here, the others wait; the plan's parts lie within the work memory.
                unsafe { self.sort(&experts, &plan, work) }
            });
            sorted.then_some(kernel)
        };
        // SAFETY: the work memory begins with room for a head, aligned above, and belongs to this product.
        let Some((kernel, head)) = (unsafe { Head::agree(prepare, team, work) }) else { return false };
        let places = match self.experts {
            None => Places::Plain(self.rows),
            Some(experts) => {
                let starts = work.wrapping_add(plan.starts).cast();
                let order = work.wrapping_add(plan.order).cast();
                Places::Grouped {
                    // SAFETY: written by thread 0 before the barrier and only read from now on.
                    starts: unsafe { raw::slice(starts, experts.count + 1) },
                    // SAFETY: as above.
                    order: unsafe { raw::slice(order, plan.places) },
                }
            }
        };
        let special = work.wrapping_add(plan.special);
        let rows = work.wrapping_add(plan.rows).cast::<S::Rows>();
        // SAFETY: the caller's promise about the input; `special` and `rows` have room for every row and tile.
        unsafe { self.pack::<S>(kernel, team, &places, special, rows) };
        (team.barrier)();
        let panels = work.wrapping_add(plan.panels + team.index * plan.each).cast::<S::Panel>();
        // SAFETY: each thread has panels of its own; any bytes are a valid panel.
        let panels = unsafe { raw::slice_mut(panels, PANELS * S::SLICE) };
        // SAFETY: written by all threads before the barrier and only read from now on.
        let special = unsafe { raw::slice(special, self.all_rows()) };
        // SAFETY: as above.
        let rows = unsafe { raw::slice(rows, places.all_tiles() * self.blocks()) };
        let micro = S::micro(kernel);
        let shared = Shared::<S> { product: self, kernel, micro, head, threads: team.threads, places, special, rows };
        shared.columns(panels);
        true
    }

    /// Sorts the rows by expert; false where one does not exist.
    ///
    /// # Safety
    /// The parts of the plan lie within `work` and nobody else uses them now; the numbers of experts are readable.
    unsafe fn sort(&self, experts: &Experts, plan: &Plan, work: *mut u8) -> bool {
        let expert_of = |row: usize| {
            let (token, slot) = (row / experts.slots, row % experts.slots);
            // SAFETY: a token's numbers.
            let ids = unsafe { experts.ids.byte_add(token * experts.ids_stride) };
            // SAFETY: they lie side by side.
            let ids: &[i32] = unsafe { raw::slice(ids, experts.slots) };
            ids[slot]
        };
        let part = |offset: usize| work.wrapping_add(offset).cast::<u32>();
        // SAFETY: a part of the plan; any bytes are valid numbers.
        let starts = unsafe { raw::slice_mut(part(plan.starts), experts.count + 1) };
        // SAFETY: as above.
        let used = unsafe { raw::slice_mut(part(plan.used), experts.count) };
        // SAFETY: as above.
        let order = unsafe { raw::slice_mut(part(plan.order), plan.places) };
        places::group(expert_of, self.all_rows(), starts, used, order)
    }

    /// # Safety
    /// The input is readable; `special` has room for every row, `rows` for every tile; no other thread touches the tiles
    /// that fall to this one.
    unsafe fn pack<S: Scheme>(
        &self,
        kernel: Kernel,
        team: Team<'_>,
        places: &Places<'_>,
        special: *mut u8,
        rows: *mut S::Rows,
    ) {
        for tile in (team.index..places.all_tiles()).step_by(team.threads) {
            // SAFETY: `rows` has room for every tile.
            let start = unsafe { rows.add(tile * self.blocks()) };
            // SAFETY: this tile belongs to this thread; any bytes are a valid block.
            let blocks = unsafe { raw::slice_mut(start, self.blocks()) };
            for place in 0..TILE_ROWS {
                let Some(row) = places.row(tile * TILE_ROWS + place) else {
                    S::clear(blocks, place);
                    continue;
                };
                // SAFETY: a row of the input.
                let found = S::pack(kernel, unsafe { self.input_row(row) }, blocks, place);
                // SAFETY: `special` has a byte for every row.
                let special = unsafe { special.add(row) };
                // SAFETY: this row is this thread's.
                unsafe { special.write(u8::from(found)) };
            }
        }
    }

    /// # Safety
    /// `row < self.all_rows()`, and the input is readable for `'a`.
    unsafe fn input_row<'a>(&self, row: usize) -> &'a [f32] {
        // SAFETY: within the input.
        let start = unsafe { self.input.byte_add(self.input_offset(row)) };
        // SAFETY: a row has `k` elements.
        unsafe { raw::slice(start, self.k) }
    }

    /// # Safety
    /// `row < self.all_rows()`, `column + len <= self.columns`, and nobody else uses these elements of the output for `'a`.
    unsafe fn output_part<'a>(&self, row: usize, column: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: within the output.
        let start = unsafe { self.output.byte_add(self.output_offset(row)) };
        // SAFETY: within the row.
        let start = unsafe { start.add(column) };
        // SAFETY: the caller's promise.
        unsafe { raw::slice_mut(start, len) }
    }
}

/// What the threads share once the rows are packed.
struct Shared<'a, S: Scheme> {
    product: &'a Multiply,
    kernel: Kernel,
    micro: Micro<S::Rows, S::Panel>,
    head: &'a Head,
    threads: usize,
    places: Places<'a>,
    special: &'a [u8],
    rows: &'a [S::Rows],
}

impl<S: Scheme> Shared<'_, S> {
    /// Takes columns of experts until none are left.
    fn columns(&self, panels: &mut [S::Panel]) {
        let product = self.product;
        let (experts, expert_stride) = product.experts.map_or((1, 0), |experts| (experts.count, experts.weight_stride));
        // few columns for many threads: in smaller parts, so that none waits long for the last
        let wide = product.columns.div_ceil(PANELS * TILE_COLUMNS);
        let together = if wide * experts >= 4 * self.threads { PANELS } else { 1 };
        let parts = product.columns.div_ceil(together * TILE_COLUMNS);
        loop {
            // any order will do: each column is computed by whoever takes it, in the same way
            let item = self.head.next.fetch_add(1, Ordering::Relaxed);
            let (expert, first) = (item / parts, item % parts * together * TILE_COLUMNS);
            if expert >= experts {
                return;
            }
            let tiles = self.places.tiles(expert);
            if tiles.is_empty() {
                continue;
            }
            let weights = Weights {
                data: product.weights.wrapping_add(expert * expert_stride),
                stride: product.weight_stride,
                columns: product.columns,
                k: product.k,
                layout: product.layout,
            };
            for from in (0..product.blocks()).step_by(S::SLICE) {
                let slice = from..(from + S::SLICE).min(product.blocks());
                let columns = (first..product.columns).step_by(TILE_COLUMNS).take(together);
                for (panel, column) in panels.chunks_exact_mut(S::SLICE).zip(columns.clone()) {
                    S::fill(self.kernel, &weights, column, slice.clone(), &mut panel[..slice.len()]);
                }
                // the next slice, or what this thread will take next if all are equally fast
                let (after, beyond) = if slice.end < product.blocks() {
                    (first, slice.end)
                } else {
                    (first + self.threads * together * TILE_COLUMNS, 0)
                };
                let next = beyond..(beyond + S::SLICE).min(product.blocks());
                let steps = tiles.len() * columns.len() * slice.len();
                let mut ahead = Ahead::of(S::TYPE, &weights, after, together, next, steps);
                for tile in tiles.clone() {
                    for (panel, column) in panels.chunks_exact(S::SLICE).zip(columns.clone()) {
                        self.tile(tile, slice.clone(), column, &panel[..slice.len()], &mut ahead);
                    }
                }
                for (panel, column) in panels.chunks_exact(S::SLICE).zip(columns) {
                    self.amend(tiles.clone(), slice.clone(), column, &panel[..slice.len()]);
                }
            }
        }
    }

    fn tile(&self, tile: usize, slice: Range<usize>, column: usize, panel: &[S::Panel], ahead: &mut Ahead) {
        let product = self.product;
        let blocks = product.blocks();
        let rows = &self.rows[tile * blocks + slice.start..tile * blocks + slice.end];
        let first = slice.start == 0;
        let width = TILE_COLUMNS.min(product.columns - column);
        let place = tile * TILE_ROWS;
        // what fills up a tile comes last
        let full = width == TILE_COLUMNS && self.places.row(place + TILE_ROWS - 1).is_some();
        if full {
            let sums: Sums<'_> = std::array::from_fn(|r| {
                let row = self.places.row(place + r).unwrap_or(0);
                // SAFETY: a whole tile lies within the output; these columns belong to this thread, and the six rows do
                // not overlap because they are different ones and the strides are at least a row.
                let row = unsafe { product.output_part(row, column, TILE_COLUMNS) };
                // SAFETY: 32 elements, as just asked for.
                unsafe { &mut *row.as_mut_ptr().cast::<[f32; TILE_COLUMNS]>() }
            });
            // SAFETY: the kernel is available: all threads agreed on one that is.
            return unsafe { (self.micro)(rows, panel, sums, first, ahead) };
        }
        let mut edge = [[0.0_f32; TILE_COLUMNS]; TILE_ROWS];
        let found = || (0..TILE_ROWS).map_while(|r| self.places.row(place + r));
        if !first {
            for (row, sums) in found().zip(&mut edge) {
                // SAFETY: a row of the output, `width` ends where it does; the columns belong to this thread.
                sums[..width].copy_from_slice(unsafe { product.output_part(row, column, width) });
            }
        }
        // SAFETY: as above.
        unsafe { (self.micro)(rows, panel, edge.each_mut(), first, ahead) };
        for (row, sums) in found().zip(&edge) {
            // SAFETY: as above.
            unsafe { product.output_part(row, column, width) }.copy_from_slice(&sums[..width]);
        }
    }

    /// What the micro-kernel left out of rows with a NaN or an infinity.
    fn amend(&self, tiles: Range<usize>, slice: Range<usize>, column: usize, panel: &[S::Panel]) {
        let product = self.product;
        let width = TILE_COLUMNS.min(product.columns - column);
        let places = tiles.start * TILE_ROWS..tiles.end * TILE_ROWS;
        for row in places.filter_map(|place| self.places.row(place)).filter(|row| self.special[*row] != 0) {
            // SAFETY: a row.
            let values = unsafe { product.input_row(row) };
            // SAFETY: these columns belong to this thread and end where the output does.
            let out = unsafe { product.output_part(row, column, width) };
            S::amend(&values[slice.start * BLOCK..(slice.end * BLOCK).min(product.k)], panel, out);
        }
    }
}
