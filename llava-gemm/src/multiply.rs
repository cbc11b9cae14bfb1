//! What a product is, and whether the kernels take it.

use std::mem::align_of;

use crate::BLOCK;
use crate::floats::{Bf16, F16, F32, Float};
use crate::format::{Layout, WeightType};
use crate::int8::{Int8, Iq4Nl, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::kernel::Kernel;
use crate::team::Team;

/// A product `output[m, n] = sum over k of input[m, k] * weights[n, k]`; with experts, `weights` are those of the expert that a
/// row names.
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
    /// Rows of activations: rows of the product. With experts: tokens, each of which has several of both.
    pub rows: usize,
    /// A mixture of experts.
    pub experts: Option<Experts>,
}

/// Several weights of the same shape, of which each token uses some. Strides are in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Experts {
    /// How many there are.
    pub count: usize,
    /// From the weights of one to those of the next.
    pub weight_stride: usize,
    /// Experts that one token uses: rows of the product for each token.
    pub slots: usize,
    /// Their numbers, side by side for each token.
    pub ids: *const i32,
    /// From one token's numbers to the next one's.
    pub ids_stride: usize,
    /// From the activations of one slot to those of the next; 0 where all slots of a token share one row.
    pub input_stride: usize,
    /// From one slot's row of the product to the next.
    pub output_stride: usize,
}

/// Evaluates `$body` with `$scheme` as the scheme of the weights.
macro_rules! with_scheme {
    ($weight:expr, $scheme:ident => $body:expr) => {{
        macro_rules! case {
            ($kind:ty) => {{
                type $scheme = $kind;
                $body
            }};
        }
        match $weight {
            WeightType::F32 => case!(Float<F32>),
            WeightType::F16 => case!(Float<F16>),
            WeightType::Bf16 => case!(Float<Bf16>),
            WeightType::Q8_0 => case!(Int8<Q8_0>),
            WeightType::Q4_0 => case!(Int8<Q4_0>),
            WeightType::Q4_1 => case!(Int8<Q4_1>),
            WeightType::Q5_0 => case!(Int8<Q5_0>),
            WeightType::Q5_1 => case!(Int8<Q5_1>),
            WeightType::Iq4Nl => case!(Int8<Iq4Nl>),
            WeightType::Q4K => case!(Int8<Q4K>),
            WeightType::Q5K => case!(Int8<Q5K>),
            WeightType::Q6K => case!(Int8<Q6K>),
        }
    }};
}

fn aligned<T>(address: usize, strides: &[usize]) -> bool {
    address.is_multiple_of(align_of::<T>()) && strides.iter().all(|stride| stride.is_multiple_of(align_of::<T>()))
}

impl Multiply {
    /// Whether sizes and strides are such as the kernels take; says nothing about whether it is worth it.
    #[must_use]
    pub fn fits(&self) -> bool {
        let unit = self.weight.unit();
        let row_bytes = |elements: usize| elements.saturating_mul(size_of::<f32>());
        let woven = self.layout != Layout::Woven8 || self.columns.is_multiple_of(8);
        self.k > 0
            && self.rows > 0
            && self.columns > 0
            && self.k.is_multiple_of(unit)
            && self.layout.holds(self.weight)
            && woven
            && self.weight_stride >= self.weight.bytes(self.k)
            && self.input_stride >= row_bytes(self.k)
            && self.output_stride >= row_bytes(self.columns)
            && aligned::<f32>(self.input as usize, &[self.input_stride])
            && aligned::<f32>(self.output as usize, &[self.output_stride])
            && self.experts.is_none_or(|experts| self.experts_fit(&experts))
    }

    fn experts_fit(&self, experts: &Experts) -> bool {
        let all = |stride: usize| stride.saturating_mul(experts.slots);
        let rows = self.rows.checked_mul(experts.slots);
        experts.slots > 0
            && (1..1 << 20).contains(&experts.count)
            && rows.is_some_and(|rows| rows < 1 << 30)
            && self.output_stride >= all(experts.output_stride)
            && experts.output_stride >= self.columns.saturating_mul(size_of::<f32>())
            && (experts.input_stride == 0 || experts.input_stride >= self.k.saturating_mul(size_of::<f32>()))
            && self.input_stride >= all(experts.input_stride)
            && experts.ids_stride >= all(size_of::<i32>())
            && aligned::<i32>(experts.ids as usize, &[experts.ids_stride])
            && aligned::<f32>(0, &[experts.input_stride, experts.output_stride])
    }

    /// Rows of the product.
    pub(crate) fn all_rows(&self) -> usize {
        self.rows.saturating_mul(self.experts.map_or(1, |experts| experts.slots))
    }

    pub(crate) const fn blocks(&self) -> usize {
        self.k.div_ceil(BLOCK)
    }

    /// Token and slot of a row of the product.
    fn split(&self, row: usize) -> (usize, usize) {
        self.experts.map_or((row, 0), |experts| (row / experts.slots, row % experts.slots))
    }

    /// Bytes from `input` to a row of activations.
    pub(crate) fn input_offset(&self, row: usize) -> usize {
        let (token, slot) = self.split(row);
        token * self.input_stride + slot * self.experts.map_or(0, |experts| experts.input_stride)
    }

    /// Bytes from `output` to a row of the product.
    pub(crate) fn output_offset(&self, row: usize) -> usize {
        let (token, slot) = self.split(row);
        token * self.output_stride + slot * self.experts.map_or(0, |experts| experts.output_stride)
    }

    /// Bytes of work memory that `threads` threads need together; `None` where the sum does not fit a `usize`.
    #[must_use]
    pub fn work_bytes(&self, threads: usize) -> Option<usize> {
        with_scheme!(self.weight, S => self.plan::<S>(threads).map(|plan| plan.total))
    }

    /// Computes this thread's part. Every thread of the team calls it, with the same product and the same work memory, and
    /// all get the same answer: false where nothing was computed, because the product does not fit, the work memory is too
    /// small, a token names an expert that does not exist, or `choose` named no kernel or one that is not available. `choose`
    /// is asked once, by thread 0.
    ///
    /// # Safety
    /// Until all threads have returned: the weights (of every expert) are readable (`columns` rows of `weight_stride` bytes, the
    /// last only as long as its elements; woven: as many bytes in all), the rows of `input` and the numbers of experts are
    /// readable, the rows of `output` are writable and used by nobody else, none of these overlaps the output, and `work` is
    /// `work_bytes` bytes for this product only.
    pub unsafe fn run(
        &self,
        choose: impl FnOnce() -> Option<Kernel>,
        team: Team<'_>,
        work: *mut u8,
        work_bytes: usize,
    ) -> bool {
        if !self.fits() || team.index >= team.threads {
            return false;
        }
        // SAFETY: the caller's promise.
        with_scheme!(self.weight, S => unsafe { self.run_as::<S>(choose, team, work, work_bytes) })
    }
}
