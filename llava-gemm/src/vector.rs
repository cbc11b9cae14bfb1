//! Sixteen f32 lanes, whatever the registers hold: the same operations in the same order in every instruction set.

/// Sixteen lanes. Only ever used inside functions with the CPU features that the type needs.
pub(crate) trait Vector: Copy {
    fn load(values: &[f32; 16]) -> Self;
    fn store(self, values: &mut [f32; 16]);
    fn all(value: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// The larger; `other` where either is a NaN.
    fn max(self, other: Self) -> Self;
    /// 2^n, where the low bits of `self` hold n because 1.5 * 2^23 was added to it.
    fn power(self) -> Self;
}

const MAGIC: f32 = 12_582_912.0;
const ONE: u32 = 1.0_f32.to_bits();

/// e^x for x <= 0, to about one unit in the last place; below -87 as at -87. NaN gives NaN.
#[inline(always)]
pub(crate) fn exp<V: Vector>(x: V) -> V {
    let x = V::all(-87.0).max(x);
    let shifted = x.mul_add(V::all(std::f32::consts::LOG2_E), V::all(MAGIC));
    let n = shifted.sub(V::all(MAGIC));
    // ln 2 in two parts, the first short enough for n times it to be exact
    let r = n.mul_add(V::all(-0.693_359_4), x);
    let r = n.mul_add(V::all(2.121_944_4e-4), r);
    let mut sum = V::all(1.0 / 720.0);
    for coefficient in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum.mul_add(r, V::all(coefficient));
    }
    // a product, so that a NaN stays one
    sum.mul(shifted.power())
}

/// Plain lanes: the oracle.
#[derive(Clone, Copy)]
pub(crate) struct Plain([f32; 16]);

impl Plain {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Vector for Plain {
    #[inline(always)]
    fn load(values: &[f32; 16]) -> Self {
        Self(*values)
    }
    #[inline(always)]
    fn store(self, values: &mut [f32; 16]) {
        *values = self.0;
    }
    #[inline(always)]
    fn all(value: f32) -> Self {
        Self([value; 16])
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    fn mul_add(self, factor: Self, term: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(factor.0[i], term.0[i])))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn power(self) -> Self {
        Self(self.0.map(|value| f32::from_bits((value.to_bits() << 23).wrapping_add(ONE))))
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Ymm, Zmm};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{ONE, Vector};

    /// One 512-bit register.
    #[derive(Clone, Copy)]
    pub(crate) struct Zmm(__m512);

    /// Two 256-bit registers.
    #[derive(Clone, Copy)]
    pub(crate) struct Ymm(__m256, __m256);

    /// A call of an intrinsic from a function that is inlined into one with its CPU features.
    macro_rules! x {
        ($call:expr) => {
            // SAFETY: these types are only used inside functions with the CPU features that they need, which run where
            // `Kernel::available` found them; loads and stores stay within their arrays.
            unsafe { $call }
        };
    }

    impl Vector for Zmm {
        #[inline(always)]
        fn load(values: &[f32; 16]) -> Self {
            Self(x!(_mm512_loadu_ps(values.as_ptr())))
        }
        #[inline(always)]
        fn store(self, values: &mut [f32; 16]) {
            x!(_mm512_storeu_ps(values.as_mut_ptr(), self.0));
        }
        #[inline(always)]
        fn all(value: f32) -> Self {
            Self(x!(_mm512_set1_ps(value)))
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(x!(_mm512_add_ps(self.0, other.0)))
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Self(x!(_mm512_sub_ps(self.0, other.0)))
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Self(x!(_mm512_mul_ps(self.0, other.0)))
        }
        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            Self(x!(_mm512_fmadd_ps(self.0, factor.0, term.0)))
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Self(x!(_mm512_max_ps(self.0, other.0)))
        }
        #[inline(always)]
        fn power(self) -> Self {
            let bits = x!(_mm512_slli_epi32::<23>(_mm512_castps_si512(self.0)));
            Self(x!(_mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(ONE as i32)))))
        }
    }

    impl Vector for Ymm {
        #[inline(always)]
        fn load(values: &[f32; 16]) -> Self {
            let (eights, _) = values.as_chunks::<8>();
            Self(x!(_mm256_loadu_ps(eights[0].as_ptr())), x!(_mm256_loadu_ps(eights[1].as_ptr())))
        }
        #[inline(always)]
        fn store(self, values: &mut [f32; 16]) {
            let (eights, _) = values.as_chunks_mut::<8>();
            x!(_mm256_storeu_ps(eights[0].as_mut_ptr(), self.0));
            x!(_mm256_storeu_ps(eights[1].as_mut_ptr(), self.1));
        }
        #[inline(always)]
        fn all(value: f32) -> Self {
            let half = x!(_mm256_set1_ps(value));
            Self(half, half)
        }
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(x!(_mm256_add_ps(self.0, other.0)), x!(_mm256_add_ps(self.1, other.1)))
        }
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Self(x!(_mm256_sub_ps(self.0, other.0)), x!(_mm256_sub_ps(self.1, other.1)))
        }
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Self(x!(_mm256_mul_ps(self.0, other.0)), x!(_mm256_mul_ps(self.1, other.1)))
        }
        #[inline(always)]
        fn mul_add(self, factor: Self, term: Self) -> Self {
            let low = x!(_mm256_fmadd_ps(self.0, factor.0, term.0));
            Self(low, x!(_mm256_fmadd_ps(self.1, factor.1, term.1)))
        }
        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Self(x!(_mm256_max_ps(self.0, other.0)), x!(_mm256_max_ps(self.1, other.1)))
        }
        #[inline(always)]
        fn power(self) -> Self {
            let one = x!(_mm256_set1_epi32(ONE as i32));
            let low = x!(_mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(self.0)), one));
            let high = x!(_mm256_add_epi32(_mm256_slli_epi32::<23>(_mm256_castps_si256(self.1)), one));
            Self(x!(_mm256_castsi256_ps(low)), x!(_mm256_castsi256_ps(high)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_exact_to_the_last_bit_but_one() {
        let mut worst = 0.0_f64;
        for i in 0..870_000 {
            let x = -(i as f32) / 10_000.0;
            let Plain(got) = exp(Plain::all(x));
            let wanted = f64::from(x).exp();
            worst = worst.max((f64::from(got[3]) - wanted).abs() / wanted);
        }
        assert!(worst < 2.5e-7, "{worst}");
        assert_eq!(exp(Plain::all(0.0)).0[0], 1.0);
        assert!(exp(Plain::all(f32::NEG_INFINITY)).0[0] < 1e-37);
        assert!(exp(Plain::all(f32::NAN)).0.iter().all(|value| value.is_nan()));
    }
}
