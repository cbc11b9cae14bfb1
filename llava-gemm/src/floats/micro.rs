//! Micro-kernels: six rows by 32 columns over a slice of K, `sum = fma(row, weight, sum)` for each element in the order of K.

use super::{PanelBlock, RowsBlock};
use crate::ahead::Ahead;
use crate::kernel::Kernel;
use crate::scheme::{Micro, Sums};
use crate::vector::{Plain, Vector};
#[cfg(target_arch = "x86_64")]
use crate::vector::{Ymm, Zmm};
use crate::{BLOCK, TILE_ROWS};

/// `C` vectors of columns at a time: as many as registers hold the sums of.
#[inline(always)]
fn body<V: Vector, const C: usize>(
    rows: &[RowsBlock],
    panel: &[PanelBlock],
    mut sums: Sums<'_>,
    first: bool,
    ahead: &mut Ahead,
) {
    for part in (0..2).step_by(C) {
        let mut totals = [[V::all(0.0); C]; TILE_ROWS];
        if !first {
            for (totals, sums) in totals.iter_mut().zip(&sums) {
                let (vectors, _) = sums.as_chunks::<16>();
                *totals = std::array::from_fn(|c| V::load(&vectors[(part + c) & 1]));
            }
        }
        for (row, block) in rows.iter().zip(panel) {
            if part == 0 {
                ahead.step();
            }
            for k in 0..BLOCK {
                let (vectors, _) = block.0[k].as_chunks::<16>();
                let weights: [V; C] = std::array::from_fn(|c| V::load(&vectors[(part + c) & 1]));
                for (totals, row) in totals.iter_mut().zip(&row.0) {
                    let value = V::all(row[k]);
                    for (total, weight) in totals.iter_mut().zip(weights) {
                        *total = value.mul_add(weight, *total);
                    }
                }
            }
        }
        for (totals, sums) in totals.iter().zip(&mut sums) {
            let (vectors, _) = sums.as_chunks_mut::<16>();
            for (c, total) in totals.iter().enumerate() {
                total.store(&mut vectors[(part + c) & 1]);
            }
        }
    }
}

macro_rules! tile {
    ($name:ident, $vector:ty, $columns:literal $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        fn $name(rows: &[RowsBlock], panel: &[PanelBlock], sums: Sums<'_>, first: bool, ahead: &mut Ahead) {
            body::<$vector, $columns>(rows, panel, sums, first, ahead);
        }
    };
}

tile!(scalar, Plain, 1);
#[cfg(target_arch = "x86_64")]
tile!(avx2, Ymm, 1, "avx2,fma");
#[cfg(target_arch = "x86_64")]
tile!(avx512, Zmm, 2, "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma");

/// The micro-kernel. It may only be called where the kernel is available.
pub(super) fn choose(kernel: Kernel) -> Micro<RowsBlock, PanelBlock> {
    match kernel {
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx512Vnni => avx512,
        #[cfg(target_arch = "x86_64")]
        Kernel::Avx2 | Kernel::AvxVnni => avx2,
        _ => scalar,
    }
}
