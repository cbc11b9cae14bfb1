//! The storage types of ggml: how many elements and bytes one block has.

use std::fmt;

macro_rules! tensor_types {
    ($($variant:ident = $id:literal, $name:literal, $block:literal, $bytes:literal;)*) => {
        /// How the elements of a tensor are stored.
        ///
        /// The numbers are those of `enum ggml_type` in llama.cpp b11434 and are part of the file format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum TensorType {
            $(#[doc = concat!("`", $name, "`: blocks of ", $block, " element(s) in ", $bytes, " byte(s).")] $variant = $id,)*
        }

        impl TensorType {
            /// Every type this crate knows, in the order of their numbers.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$variant,)*];

            /// The type behind a number in a file; `None` for removed and unknown ones.
            #[must_use]
            pub fn from_id(id: u32) -> Option<TensorType> {
                match id {
                    $($id => Some(TensorType::$variant),)*
                    _ => None,
                }
            }

            /// The number in a file.
            #[must_use]
            pub fn id(self) -> u32 {
                self as u32
            }

            /// ggml's name, for example `q8_0`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(TensorType::$variant => $name,)*
                }
            }

            /// Elements in one block (1 for plain numbers).
            #[must_use]
            pub fn block_len(self) -> u64 {
                match self {
                    $(TensorType::$variant => $block,)*
                }
            }

            /// Bytes of one block.
            #[must_use]
            pub fn block_bytes(self) -> u64 {
                match self {
                    $(TensorType::$variant => $bytes,)*
                }
            }
        }
    };
}

tensor_types! {
    F32 = 0, "f32", 1, 4;
    F16 = 1, "f16", 1, 2;
    Q4_0 = 2, "q4_0", 32, 18;
    Q4_1 = 3, "q4_1", 32, 20;
    Q5_0 = 6, "q5_0", 32, 22;
    Q5_1 = 7, "q5_1", 32, 24;
    Q8_0 = 8, "q8_0", 32, 34;
    Q8_1 = 9, "q8_1", 32, 36;
    Q2K = 10, "q2_K", 256, 84;
    Q3K = 11, "q3_K", 256, 110;
    Q4K = 12, "q4_K", 256, 144;
    Q5K = 13, "q5_K", 256, 176;
    Q6K = 14, "q6_K", 256, 210;
    Q8K = 15, "q8_K", 256, 292;
    Iq2Xxs = 16, "iq2_xxs", 256, 66;
    Iq2Xs = 17, "iq2_xs", 256, 74;
    Iq3Xxs = 18, "iq3_xxs", 256, 98;
    Iq1S = 19, "iq1_s", 256, 50;
    Iq4Nl = 20, "iq4_nl", 32, 18;
    Iq3S = 21, "iq3_s", 256, 110;
    Iq2S = 22, "iq2_s", 256, 82;
    Iq4Xs = 23, "iq4_xs", 256, 136;
    I8 = 24, "i8", 1, 1;
    I16 = 25, "i16", 1, 2;
    I32 = 26, "i32", 1, 4;
    I64 = 27, "i64", 1, 8;
    F64 = 28, "f64", 1, 8;
    Iq1M = 29, "iq1_m", 256, 56;
    Bf16 = 30, "bf16", 1, 2;
    Tq1_0 = 34, "tq1_0", 256, 54;
    Tq2_0 = 35, "tq2_0", 256, 66;
    Mxfp4 = 39, "mxfp4", 32, 17;
    Nvfp4 = 40, "nvfp4", 64, 36;
    Q1_0 = 41, "q1_0", 128, 18;
    Q2_0 = 42, "q2_0", 64, 18;
}

impl TensorType {
    /// Bytes of a tensor with these extents (`ne` order: the first is the row length).
    ///
    /// `None` if a row is no whole number of blocks or the size does not fit in 63 bits. No extents at all mean a
    /// scalar; an extent of 0 gives 0 bytes.
    #[must_use]
    pub fn byte_len(self, dims: &[u64]) -> Option<u64> {
        let row = dims.first().copied().unwrap_or(1);
        if !row.is_multiple_of(self.block_len()) {
            return None;
        }
        if dims.contains(&0) {
            return Some(0);
        }
        let blocks = dims.iter().skip(1).try_fold(row / self.block_len(), |n, &d| n.checked_mul(d))?;
        blocks.checked_mul(self.block_bytes()).filter(|&n| n <= i64::MAX as u64)
    }

    /// Whether the native code can multiply with a matrix stored like this (integers, f64 and the two
    /// activation-only types `q8_1` and `q8_K` end the process there).
    #[must_use]
    pub fn is_weight(self) -> bool {
        use TensorType::{F64, I8, I16, I32, I64, Q8_1, Q8K};
        !matches!(self, I8 | I16 | I32 | I64 | F64 | Q8_1 | Q8K)
    }

    /// Whether elements are single floating-point numbers (no blocks) that the native code can copy and transpose.
    #[must_use]
    pub fn is_plain_float(self) -> bool {
        matches!(self, TensorType::F32 | TensorType::F16 | TensorType::Bf16)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
