//! The order of operations, written plainly.

use super::super::activation::RowsBlock;
use super::super::panel::PanelBlock;
use super::{MINIMUM, SCALE};
use crate::ahead::Ahead;
use crate::scheme::Sums;

pub(super) fn tile<const SECOND: u8>(
    rows: &[RowsBlock],
    panel: &[PanelBlock],
    sums: Sums<'_>,
    first: bool,
    _ahead: &mut Ahead,
) {
    for (r, sums) in sums.into_iter().enumerate() {
        for (column, sum) in sums.iter_mut().enumerate() {
            let mut total = if first { 0.0 } else { *sum };
            for (row, block) in rows.iter().zip(panel) {
                let dot = |range: std::ops::Range<usize>, start: i32| {
                    range.fold(start, |dot, k| {
                        let weights = &block.quants[k][column / 8][column % 8 * 4..column % 8 * 4 + 4];
                        let quants = row.quants[k][r].to_le_bytes();
                        weights.iter().zip(quants).fold(dot, |dot, (w, a)| {
                            dot.wrapping_add(i32::from(*w) * i32::from(i8::from_le_bytes([a])))
                        })
                    })
                };
                if SECOND == SCALE {
                    let low = dot(0..4, row.start[r]) as f32;
                    let high = dot(4..8, row.second[r]) as f32;
                    total = low.mul_add(row.scale[r] * block.scale[column], total);
                    total = high.mul_add(row.scale[r] * block.second[column], total);
                } else {
                    let whole = dot(0..8, row.start[r]) as f32;
                    total = whole.mul_add(row.scale[r] * block.scale[column], total);
                }
                if SECOND == MINIMUM {
                    total = f32::from_bits(row.second[r] as u32).mul_add(block.second[column], total);
                }
            }
            *sum = total;
        }
    }
}
