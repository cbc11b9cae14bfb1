//! Weights as GGUF stores them: their names and sizes.

/// A type of weights that the kernels can multiply with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightType {
    /// Single precision.
    F32,
    /// IEEE halves.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// 32 int8, one scale.
    Q8_0,
    /// 32 times 4 bits less 8, one scale.
    Q4_0,
    /// 32 times 4 bits, scale and minimum.
    Q4_1,
    /// 32 times 5 bits less 16, one scale.
    Q5_0,
    /// 32 times 5 bits, scale and minimum.
    Q5_1,
    /// 32 times 4 bits into a table of int8, one scale.
    Iq4Nl,
    /// 256 times 4 bits; scale and minimum of each 32 in 6 bits.
    Q4K,
    /// 256 times 5 bits; scale and minimum of each 32 in 6 bits.
    Q5K,
    /// 256 times 6 bits less 32; scale of each 16 in 8 bits.
    Q6K,
}

impl WeightType {
    /// Every quantised type.
    pub const QUANTISED: [Self; 9] =
        [Self::Q8_0, Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Iq4Nl, Self::Q4K, Self::Q5K, Self::Q6K];
    /// Every type that is not.
    pub const FLOATS: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// Whether the weights are floats.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// The type with this number in GGUF files.
    #[must_use]
    pub const fn from_gguf(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::F32),
            1 => Some(Self::F16),
            2 => Some(Self::Q4_0),
            3 => Some(Self::Q4_1),
            6 => Some(Self::Q5_0),
            7 => Some(Self::Q5_1),
            8 => Some(Self::Q8_0),
            12 => Some(Self::Q4K),
            13 => Some(Self::Q5K),
            14 => Some(Self::Q6K),
            20 => Some(Self::Iq4Nl),
            30 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Elements of one stored unit: 32, 256 for the K types, 1 for floats.
    #[must_use]
    pub const fn unit(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
            _ => 32,
        }
    }

    /// Bytes of one stored unit.
    #[must_use]
    pub const fn unit_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of `elements` of a row, which are whole units.
    pub(crate) const fn bytes(self, elements: usize) -> usize {
        (elements / self.unit()).saturating_mul(self.unit_bytes())
    }
}

/// How the columns of the product (rows of the weight tensor) lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One after the other, as in the file.
    Rows,
    /// Units of eight columns woven together, 8 bytes of quants at a time, as ggml's repacking does on AVX2 (`8x8`).
    Woven8,
}

impl Layout {
    /// Whether weights of this type can lie so.
    #[must_use]
    pub const fn holds(self, weight: WeightType) -> bool {
        match self {
            Self::Rows => true,
            Self::Woven8 => matches!(weight, WeightType::Q4_0 | WeightType::Iq4Nl | WeightType::Q4K),
        }
    }
}

/// An IEEE half as f32. Without branches, so that a loop over it can be vectorised; without subnormal floats on the way, which cost
/// CPUs over a hundred cycles each: the scales of small 4-bit weights are subnormal halves.
#[inline(always)]
pub(crate) fn half(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    // the exponent's origin moves from 15 to 127
    let normal = (magnitude << 13) + 0x3800_0000;
    // the last place of 0.5 is 2^-24, as that of a subnormal half
    let subnormal = (f32::from_bits(0x3f00_0000 | magnitude) - 0.5).to_bits();
    let special = 0x7f80_0000 | magnitude << 13;
    let value = match magnitude {
        0..0x400 => subnormal,
        0x400..0x7c00 => normal,
        _ => special,
    };
    f32::from_bits(value | u32::from(bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_converted() {
        for bits in 0..=u16::MAX {
            let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
            let exponent = i32::from(bits >> 10 & 31);
            let fraction = f64::from(bits & 1023);
            let wanted = match exponent {
                0 => sign * fraction * 2_f64.powi(-24),
                31 if fraction == 0.0 => sign * f64::INFINITY,
                31 => f64::NAN,
                e => sign * (1024.0 + fraction) * 2_f64.powi(e - 25),
            };
            let got = f64::from(half(bits));
            assert!(
                got == wanted && got.is_sign_negative() == (sign < 0.0) || got.is_nan() && wanted.is_nan(),
                "{bits:#x}"
            );
        }
    }
}
