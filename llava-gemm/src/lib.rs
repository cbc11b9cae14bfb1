//! Matrix kernels for GGUF weights on CPUs. Quantised weights: activations are quantised to int8 per block of 32, weights are
//! unpacked to int8 panels on the way, products are summed in int32 and scaled in f32. Weights that are floats: f32 throughout.
//!
//! What this crate does: multiplies f32 rows by weights, or by those of the experts that each row names; computes non-causal
//! attention; chooses the kernel for the CPU at hand. What it never does: start threads (the caller brings its own and a
//! barrier), allocate, call C, panic on anything a caller can pass to [`Multiply`] or [`Attention`]. Who calls it: the hook in
//! `llava`'s `llama` room.
//!
//! The order of floating-point operations is the same in every kernel: row `m` of a product has the same bits whatever the
//! kernel, the number of threads and the other rows are. [`Kernel::Scalar`] is that order written plainly.

mod ahead;
mod attention;
mod floats;
mod format;
mod int8;
mod kernel;
mod multiply;
mod places;
mod product;
mod raw;
mod scheme;
mod team;
mod vector;

pub use attention::{Attention, Floats};
pub use format::{Layout, WeightType};
pub use kernel::{Kernel, Selection, SelectionError};
pub use multiply::{Experts, Multiply};
pub use team::Team;

/// Elements along K that are laid out together; those of quantised weights share one scale.
pub const BLOCK: usize = 32;
/// Rows of activations that a micro-kernel takes at once.
pub(crate) const TILE_ROWS: usize = 6;
/// Columns of the product that a micro-kernel computes at once.
pub(crate) const TILE_COLUMNS: usize = 32;
