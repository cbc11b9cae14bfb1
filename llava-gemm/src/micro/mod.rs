//! Micro-kernels: six rows by 32 columns over a slice of K.
//!
//! What they do: add `start` and the int8 products of a block in int32, then, block by block in the order of K,
//! `sum = fma(int as f32, row scale * column scale, sum)`; with minima also `sum = fma(row sum, minimum, sum)`. What they
//! never do: look at the number of rows, so that a row's bits do not depend on its neighbours. Who calls it: `multiply`.

mod scalar;
#[cfg(target_arch = "x86_64")]
mod ymm;
#[cfg(target_arch = "x86_64")]
mod zmm;

use crate::activation::RowsBlock;
use crate::format::{Numbers, Second};
use crate::kernel::Kernel;
use crate::panel::PanelBlock;
use crate::{TILE_COLUMNS, TILE_ROWS};

/// Six places for 32 sums each.
pub(crate) type Sums<'a> = [&'a mut [f32; TILE_COLUMNS]; TILE_ROWS];

/// Products of the slice of K that `rows` and `panel` cover; added to `sums`, or written there where `first` is set.
pub(crate) type Micro = unsafe fn(rows: &[RowsBlock], panel: &[PanelBlock], sums: Sums<'_>, first: bool);

pub(crate) const NONE: u8 = 0;
pub(crate) const MINIMUM: u8 = 1;
pub(crate) const SCALE: u8 = 2;

/// The micro-kernel for weights like these. It may only be called where the kernel is available.
pub(crate) fn choose(kernel: Kernel, numbers: Numbers) -> Micro {
    #[cfg(target_arch = "x86_64")]
    match kernel {
        Kernel::Avx512Vnni => return zmm::choose(numbers.second),
        Kernel::AvxVnni => return ymm::choose_vnni(numbers.second),
        Kernel::Avx2 => return ymm::choose(numbers.second, numbers.bits),
        Kernel::Scalar => {}
    }
    let _ = kernel;
    match numbers.second {
        Second::None => scalar::tile::<NONE>,
        Second::Minimum => scalar::tile::<MINIMUM>,
        Second::Scale => scalar::tile::<SCALE>,
    }
}
