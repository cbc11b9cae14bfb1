//! What differs between kinds of weights: how rows and weights are laid out for the micro-kernels, and these themselves.

use std::ops::Range;

use crate::ahead::Ahead;
use crate::format::{Layout, WeightType};
use crate::kernel::Kernel;
use crate::{TILE_COLUMNS, TILE_ROWS};

/// Six places for 32 sums each.
pub(crate) type Sums<'a> = [&'a mut [f32; TILE_COLUMNS]; TILE_ROWS];

/// Products of the slice of K that `rows` and `panel` cover; added to `sums`, or written there where `first` is set. Takes a step
/// of `ahead` for each block.
pub(crate) type Micro<R, P> = unsafe fn(rows: &[R], panel: &[P], sums: Sums<'_>, first: bool, ahead: &mut Ahead);

/// One kind of weights.
pub(crate) trait Scheme {
    /// The weights' type.
    const TYPE: WeightType;
    /// Blocks along K that are worked on at once: two panels of them and the rows they meet stay in a first-level cache of
    /// 48 KiB, or close behind it.
    const SLICE: usize;
    /// One block along K of six rows of activations. Any bytes are a valid value.
    type Rows;
    /// One block along K of 32 columns of weights. Any bytes are a valid value.
    type Panel;

    /// Puts one row of activations into place `row` (below [`TILE_ROWS`]) of its tile; says whether [`Self::amend`] is to see it.
    fn pack(kernel: Kernel, values: &[f32], blocks: &mut [Self::Rows], row: usize) -> bool;
    /// Makes place `row` of every block a row of zeros.
    fn clear(blocks: &mut [Self::Rows], row: usize);
    /// Unpacks `blocks` of columns `first..first + 32` into `panel`, which has as many. What the tensor does not have becomes
    /// zeros.
    fn fill(kernel: Kernel, weights: &Weights, first: usize, blocks: Range<usize>, panel: &mut [Self::Panel]);
    /// The micro-kernel. It may only be called where the kernel is available.
    fn micro(kernel: Kernel) -> Micro<Self::Rows, Self::Panel>;
    /// Adds to one row's sums what the micro-kernel left out of a slice: `values` is the row's part that belongs to `panel`.
    fn amend(_values: &[f32], _panel: &[Self::Panel], _out: &mut [f32]) {}
}

/// Where the weights lie. Rows of the tensor are columns of the product.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub data: *const u8,
    /// Bytes from one row to the next, for [`Layout::Rows`].
    pub stride: usize,
    pub columns: usize,
    /// Elements of a row.
    pub k: usize,
    pub layout: Layout,
}
