//! Micro-kernels: six rows by 32 columns over a slice of K.
//!
//! What they do: add `start` and the int8 products of a block in int32, then, block by block in the order of K,
//! `sum = fma(int as f32, row scale * column scale, sum)`; with minima also `sum = fma(row sum, minimum, sum)`. What they
//! never do: look at the number of rows, so that a row's bits do not depend on its neighbours. Who calls it: `product`, through the scheme.

mod scalar;
#[cfg(target_arch = "x86_64")]
mod ymm;
#[cfg(target_arch = "x86_64")]
mod zmm;

use super::activation::RowsBlock;
use super::panel::PanelBlock;
use super::{Numbers, Second};
use crate::kernel::Kernel;
use crate::scheme::Micro;

pub(crate) const NONE: u8 = 0;
pub(crate) const MINIMUM: u8 = 1;
pub(crate) const SCALE: u8 = 2;

/// The micro-kernel for weights like these. It may only be called where the kernel is available.
pub(crate) fn choose(kernel: Kernel, numbers: Numbers) -> Micro<RowsBlock, PanelBlock> {
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
