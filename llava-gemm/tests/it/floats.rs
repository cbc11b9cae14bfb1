//! Weights that are floats.

use llava_gemm::{Kernel, Layout, Multiply, WeightType};
use proptest::prelude::*;

use crate::world::{Dice, bits, kernels, multiply};

/// Stored bytes of weights, and what they stand for.
fn stored(weight: WeightType, n: usize, dice: &mut Dice) -> (Vec<u8>, Vec<f64>) {
    let mut bytes = Vec::new();
    let values = (0..n).map(|_| {
        let value = dice.normal();
        let kept = match weight {
            WeightType::F32 => value,
            // eleven bits of fraction with the leading one, eight
            WeightType::F16 => f32::from_bits(value.to_bits() & 0xffff_e000),
            _ => f32::from_bits(value.to_bits() & 0xffff_0000),
        };
        let bits = kept.to_bits();
        match weight {
            WeightType::F32 => bytes.extend(bits.to_le_bytes()),
            WeightType::Bf16 => bytes.extend(((bits >> 16) as u16).to_le_bytes()),
            _ if kept.abs() < 1e-4 => {
                bytes.extend([0, 0]);
                return 0.0;
            }
            _ => {
                let half = (bits >> 31) << 15 | ((bits >> 23 & 255) - 112) << 10 | bits >> 13 & 1023;
                bytes.extend((half as u16).to_le_bytes());
            }
        }
        f64::from(kept)
    });
    let values = values.collect();
    (bytes, values)
}

fn rows(n: usize, dice: &mut Dice) -> Vec<f32> {
    (0..n).map(|_| dice.normal()).collect()
}

/// Largest error relative to the sum of the magnitudes that a sum is made of.
fn worst(got: &[f32], weights: &[f64], input: &[f32], (_, columns, k): (usize, usize, usize)) -> f64 {
    let error = |(at, got): (usize, &f32)| {
        let (row, column) = (&input[at / columns * k..][..k], &weights[at % columns * k..][..k]);
        let terms = || row.iter().zip(column).map(|(a, w)| f64::from(*a) * w);
        (f64::from(*got) - terms().sum::<f64>()).abs() / terms().map(f64::abs).sum::<f64>().max(1e-30)
    };
    got.iter().enumerate().map(error).fold(0.0, f64::max)
}

#[test]
fn every_remainder_is_close_to_the_exact_product() {
    for weight in WeightType::FLOATS {
        let mut dice = Dice(31);
        // every remainder of rows (by 6), of columns (by 32 and by 8) and of K (by 32 and by 8), and several slices
        let remainders = (0..6)
            .map(|r| (6 + r, 40, 136))
            .chain((0..33).map(|c| (7, 31 + c, 70)))
            .chain((0..33).map(|k| (5, 33, 1 + k)))
            .chain([(1, 1, 1), (13, 70, 700), (6, 32, 128), (12, 64, 129)]);
        for shape @ (m, columns, k) in remainders {
            let (bytes, values) = stored(weight, columns * k, &mut dice);
            let input = rows(m * k, &mut dice);
            for kernel in kernels() {
                let got = multiply(kernel, 2, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
                let worst = worst(&got, &values, &input, shape);
                assert!(worst < 3e-7, "{weight:?} {kernel} {shape:?}: {worst}");
            }
        }
    }
}

#[test]
fn every_kernel_and_every_team_gives_the_same_bits() {
    for weight in WeightType::FLOATS {
        let mut dice = Dice(32);
        let shape = (20, 203, 587);
        let (bytes, _) = stored(weight, shape.1 * shape.2, &mut dice);
        let input = rows(shape.0 * shape.2, &mut dice);
        let oracle = bits(&multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap());
        for kernel in kernels() {
            for threads in [1, 2, 4] {
                let got = multiply(kernel, threads, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
                assert!(bits(&got) == oracle, "{weight:?} {kernel} with {threads} threads");
            }
        }
        for m in [0, 7, 19] {
            let one = &input[m * shape.2..][..shape.2];
            let got = multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, one, (1, shape.1, shape.2));
            assert!(bits(&got.unwrap()) == oracle[m * shape.1..][..shape.1], "row {m} depends on its neighbours");
        }
    }
}

#[test]
fn nan_and_infinity_reach_what_they_touch_and_nothing_else() {
    for weight in WeightType::FLOATS {
        let mut dice = Dice(33);
        let shape @ (m, columns, k) = (9, 37, 77);
        let (bytes, values) = stored(weight, columns * k, &mut dice);
        let clean = rows(m * k, &mut dice);
        for (value, at) in [(f32::NAN, 0), (f32::INFINITY, 40), (f32::NEG_INFINITY, k - 1)] {
            let mut input = clean.clone();
            input[4 * k + at] = value;
            for kernel in kernels() {
                let got = multiply(kernel, 2, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
                let plain = multiply(kernel, 2, (weight, Layout::Rows), &bytes, &clean, shape).unwrap();
                for row in 0..m {
                    let (got, plain) = (&got[row * columns..][..columns], &plain[row * columns..][..columns]);
                    if row != 4 {
                        assert!(bits(got) == bits(plain), "{weight:?} {kernel}: row {row} has nothing to do with it");
                        continue;
                    }
                    for (column, got) in got.iter().enumerate() {
                        let wanted = f64::from(value) * values[column * k + at];
                        let same = got.is_nan() && wanted.is_nan() || f64::from(*got) == wanted;
                        assert!(same, "{weight:?} {kernel}: {got} instead of {wanted}");
                    }
                }
            }
        }
    }
}

#[test]
fn weights_that_are_not_finite_reach_their_column() {
    let patterns: [(WeightType, &[u8], f64); 6] = [
        (WeightType::F32, &[0, 0, 0x80, 0x7f], f64::INFINITY),
        (WeightType::F32, &[0, 0, 0xc0, 0x7f], f64::NAN),
        (WeightType::F16, &[0, 0x7c], f64::INFINITY),
        (WeightType::F16, &[0, 0xfe], f64::NAN),
        (WeightType::Bf16, &[0x80, 0xff], f64::NEG_INFINITY),
        (WeightType::Bf16, &[0xc0, 0x7f], f64::NAN),
    ];
    let shape @ (m, columns, k) = (7, 40, 45);
    for (weight, pattern, value) in patterns {
        let mut dice = Dice(34);
        let (mut bytes, _) = stored(weight, columns * k, &mut dice);
        let input = rows(m * k, &mut dice);
        bytes[(33 * k + 44) * pattern.len()..][..pattern.len()].copy_from_slice(pattern);
        for kernel in kernels() {
            let got = multiply(kernel, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
            for (at, got) in got.iter().enumerate() {
                let wanted = value * f64::from(input[at / columns * k + 44]);
                let same = got.is_nan() && wanted.is_nan() || f64::from(*got) == wanted;
                assert!(if at % columns == 33 { same } else { got.is_finite() }, "{weight:?} {kernel}: {got} at {at}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (bytes, _) = stored(WeightType::F16, 32 * 10, &mut Dice(1));
    let (input, mut output) = (vec![1.0_f32; 60], vec![0.0_f32; 6 * 32]);
    let good = crate::world::product((WeightType::F16, Layout::Rows), &bytes, &input, &mut output, (6, 32, 10));
    assert!(good.fits());
    assert!(!Multiply { layout: Layout::Woven8, ..good }.fits());
    assert!(!Multiply { weight_stride: 19, ..good }.fits());
    assert!(!Multiply { weight: WeightType::F32, ..good }.fits());
    assert!(!Multiply { k: 11, ..good }.fits());
}

proptest! {
    #![proptest_config(crate::world::fixed(60))]

    #[test]
    fn any_shape(
        weight in prop::sample::select(WeightType::FLOATS.as_slice()),
        m in 1_usize..40,
        columns in 1_usize..140,
        k in 1_usize..400,
        threads in 1_usize..4,
        seed in 1_u64..u64::MAX,
    ) {
        let mut dice = Dice(seed);
        let (bytes, values) = stored(weight, columns * k, &mut dice);
        let input = rows(m * k, &mut dice);
        let oracle = multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, &input, (m, columns, k)).unwrap();
        let worst = worst(&oracle, &values, &input, (m, columns, k));
        prop_assert!(worst < 3e-7, "{worst}");
        for kernel in kernels().filter(|kernel| *kernel != Kernel::Scalar) {
            let got = multiply(kernel, threads, (weight, Layout::Rows), &bytes, &input, (m, columns, k)).unwrap();
            prop_assert!(bits(&got) == bits(&oracle), "{kernel}");
        }
    }
}
