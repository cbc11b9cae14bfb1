//! Quantised weights: activations become int8 by blocks of 32, products are summed in int32 and scaled in f32.
//!
//! What it does: packs rows and panels as bytes with their scales, and multiplies them. What it never does: round a scale.
//! Who calls it: `product`, through the scheme.

mod activation;
mod decode;
mod micro;
mod panel;

use std::marker::PhantomData;
use std::ops::Range;

use crate::format::WeightType;
use crate::kernel::Kernel;
use crate::scheme::{Micro, Scheme, Weights};
use activation::RowsBlock;
use decode::Unit;
pub(crate) use decode::{Iq4Nl, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use panel::PanelBlock;

/// How unpacked weights are to be read: `(byte - bias) * scale`, plus the minimum where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    bias: i32,
    /// Bits that a byte uses; decides how many products fit into an int16 where there is no dot product.
    bits: u32,
    second: Second,
}

/// What the second number beside the scale of a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    None,
    /// Added to every weight of the block.
    Minimum,
    /// The scale of the block's second half.
    Scale,
}

/// Weights of one quantised type.
pub(crate) struct Int8<U>(PhantomData<U>);

impl<U: Unit> Scheme for Int8<U> {
    const TYPE: WeightType = U::TYPE;
    const SLICE: usize = 16;
    type Rows = RowsBlock;
    type Panel = PanelBlock;

    fn pack(kernel: Kernel, values: &[f32], blocks: &mut [RowsBlock], row: usize) -> bool {
        activation::quantise(kernel, values, U::NUMBERS, blocks, row)
    }

    fn clear(blocks: &mut [RowsBlock], row: usize) {
        activation::clear(blocks, row);
    }

    fn fill(kernel: Kernel, weights: &Weights, first: usize, blocks: Range<usize>, panel: &mut [PanelBlock]) {
        panel::fill::<U>(kernel, weights, first, blocks, panel);
    }

    fn micro(kernel: Kernel) -> Micro<RowsBlock, PanelBlock> {
        micro::choose(kernel, U::NUMBERS)
    }

    /// Blocks that hold a NaN or an infinity are multiplied in f32, and so give what floats give.
    fn amend(values: &[f32], panel: &[PanelBlock], out: &mut [f32]) {
        panel::add_special(values, panel, U::NUMBERS, out);
    }
}
