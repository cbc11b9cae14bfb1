//! Weights that are floats: everything is widened to f32 and summed with fused multiply-adds.
//!
//! What it does: lays rows and panels out as f32 and multiplies them, one multiply-add for each element in the order of K. What
//! it never does: round anything but the sums. Who calls it: `product`, through the scheme.

mod micro;
mod panel;

use std::marker::PhantomData;
use std::ops::Range;

use crate::format::WeightType;
use crate::kernel::Kernel;
use crate::scheme::{Micro, Scheme, Weights};
use crate::{BLOCK, TILE_COLUMNS, TILE_ROWS};
use panel::Element;
pub(crate) use panel::{Bf16, F16, F32};

/// 32 elements along K of six rows.
#[repr(C, align(64))]
pub(crate) struct RowsBlock([[f32; BLOCK]; TILE_ROWS]);

/// 32 elements along K, of 32 columns each.
#[repr(C, align(64))]
pub(crate) struct PanelBlock([[f32; TILE_COLUMNS]; BLOCK]);

/// Weights of one type of floats.
pub(crate) struct Float<E>(PhantomData<E>);

impl<E: Element> Scheme for Float<E> {
    const TYPE: WeightType = E::TYPE;
    const SLICE: usize = 4;
    type Rows = RowsBlock;
    type Panel = PanelBlock;

    fn pack(_kernel: Kernel, values: &[f32], blocks: &mut [RowsBlock], row: usize) -> bool {
        for (chunk, block) in values.chunks(BLOCK).zip(blocks) {
            let place = &mut block.0[row];
            place[..chunk.len()].copy_from_slice(chunk);
            place[chunk.len()..].fill(0.0);
        }
        false
    }

    fn clear(blocks: &mut [RowsBlock], row: usize) {
        blocks.iter_mut().for_each(|block| block.0[row] = [0.0; BLOCK]);
    }

    fn fill(kernel: Kernel, weights: &Weights, first: usize, blocks: Range<usize>, panel: &mut [PanelBlock]) {
        panel::fill::<E>(kernel, weights, first, blocks, panel);
    }

    fn micro(kernel: Kernel) -> Micro<RowsBlock, PanelBlock> {
        micro::choose(kernel)
    }
}
