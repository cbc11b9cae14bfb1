use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use llava_gemm::{Kernel, Layout, Multiply, Team, WeightType};
use proptest::prelude::*;

use crate::world::{Dice, Shared, bits, dequantise, kernels, multiply, product, weave, weights};

const TYPES: [WeightType; 9] = WeightType::QUANTISED;

/// The f64 product of the dequantised weights and the f32 activations.
fn exact(weight: WeightType, bytes: &[u8], input: &[f32], (rows, columns, k): (usize, usize, usize)) -> Vec<f64> {
    let numbers = dequantise(weight, bytes);
    let mut out = Vec::with_capacity(rows * columns);
    for row in input.chunks_exact(k).take(rows) {
        for column in numbers.chunks_exact(k).take(columns) {
            out.push(row.iter().zip(column).map(|(a, w)| f64::from(*a) * w).sum());
        }
    }
    out
}

fn rms_error(got: &[f32], wanted: &[f64]) -> f64 {
    let error: f64 = got.iter().zip(wanted).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum();
    let size: f64 = wanted.iter().map(|w| w * w).sum();
    (error / size).sqrt()
}

#[test]
fn close_to_the_exact_product() {
    for weight in TYPES {
        let mut dice = Dice(0x5eed + weight.unit_bytes() as u64);
        let shape = (13, 70, 768);
        let bytes = weights(weight, shape.1, shape.2, &mut dice);
        let input: Vec<f32> = (0..shape.0 * shape.2).map(|_| dice.normal()).collect();
        let wanted = exact(weight, &bytes, &input, shape);
        let got = multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
        let error = rms_error(&got, &wanted);
        // an int8 rounding of normal activations is 0.6 % of their size; a wrong bit anywhere is far beyond that
        assert!(error < 0.008, "{weight:?}: {error}");
    }
}

/// A normal f32 rounded to the 11 bits of a half float's fraction, ties to even.
fn as_half(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff)
}

/// What ggml's Q8_0 makes of activations: the same quants, with a scale in f16.
fn as_ggml_quantises(input: &[f32]) -> Vec<f64> {
    let block = |block: &[f32]| {
        let scale = block.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
        let quant = |x: &f32| if scale > 0.0 { f64::from((x / scale).round()) } else { 0.0 };
        block.iter().map(|x| quant(x) * f64::from(as_half(scale))).collect::<Vec<f64>>()
    };
    input.chunks_exact(32).flat_map(block).collect()
}

#[test]
fn no_less_accurate_than_ggmls_quantisation() {
    let shape @ (rows, columns, k) = (24, 48, 2048);
    type Make = fn(&mut Dice, usize) -> f32;
    let kinds: [(&str, Make); 3] = [
        ("normal", |dice, _| dice.normal()),
        ("heavy-tailed", |dice, _| dice.normal() / (dice.float().abs() + 0.01)),
        ("outlier columns", |dice, i| dice.normal() * if i % 509 == 3 { 60.0 } else { 1.0 }),
    ];
    for weight in TYPES {
        let mut dice = Dice(77);
        let bytes = weights(weight, columns, k, &mut dice);
        let numbers = dequantise(weight, &bytes);
        for (name, make) in kinds {
            let input: Vec<f32> = (0..rows * k).map(|i| make(&mut dice, i % k)).collect();
            let wanted = exact(weight, &bytes, &input, shape);
            let quantised = as_ggml_quantises(&input);
            let mut theirs = Vec::with_capacity(wanted.len());
            for row in quantised.chunks_exact(k) {
                for column in numbers.chunks_exact(k) {
                    theirs.push(row.iter().zip(column).map(|(a, w)| a * w).sum::<f64>() as f32);
                }
            }
            let got = multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
            let (ours, theirs) = (rms_error(&got, &wanted), rms_error(&theirs, &wanted));
            assert!(ours <= theirs * 1.01, "{weight:?}, {name}: {ours} against {theirs}");
        }
    }
}

#[test]
fn every_kernel_and_every_team_gives_the_same_bits() {
    for weight in TYPES {
        let mut dice = Dice(7 + weight.unit_bytes() as u64);
        let shape = (20, 200, 1280);
        let bytes = weights(weight, shape.1, shape.2, &mut dice);
        let input: Vec<f32> = (0..shape.0 * shape.2).map(|_| dice.normal() * dice.float().powi(9) * 1e3).collect();
        let oracle = multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
        for kernel in kernels() {
            for threads in [1, 2, 4] {
                let got = multiply(kernel, threads, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
                assert!(bits(&got) == bits(&oracle), "{weight:?} {kernel} with {threads} threads");
            }
        }
    }
}

#[test]
fn the_largest_quants_do_not_overflow() {
    for weight in TYPES {
        for fill in [0xff_u8, 0x00, 0x7f, 0x88, 0x81] {
            let mut bytes = weights(weight, 33, 512, &mut Dice(1));
            let scales = bytes.clone();
            let (unit, quants) = (weight.unit_bytes(), if weight.unit() == 32 { 2 } else { 16 });
            for unit in bytes.chunks_exact_mut(unit) {
                let end = unit.len() - if weight == WeightType::Q6K { 18 } else { 0 };
                unit[if weight == WeightType::Q6K { 0 } else { quants }..end].fill(fill);
            }
            if matches!(weight, WeightType::Q4_1 | WeightType::Q5_1) {
                bytes
                    .chunks_exact_mut(unit)
                    .zip(scales.chunks_exact(unit))
                    .for_each(|(to, from)| to[2..4].copy_from_slice(&from[2..4]));
            }
            for sign in [1.0, -1.0] {
                // every activation becomes 127 or -127
                let input = vec![sign * 3.5_f32; 7 * 512];
                let shape = (7, 33, 512);
                let wanted = exact(weight, &bytes, &input, shape);
                for kernel in kernels() {
                    let got = multiply(kernel, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
                    let close =
                        got.iter().zip(&wanted).all(|(g, w)| (f64::from(*g) - w).abs() <= 2e-4 * w.abs().max(100.0));
                    assert!(close, "{weight:?} {kernel} {fill:#x}: {:?} {:?}", &got[..3], &wanted[..3]);
                }
            }
        }
    }
}

#[test]
fn woven_weights_are_the_same_weights() {
    for weight in TYPES.into_iter().filter(|weight| Layout::Woven8.holds(*weight)) {
        let mut dice = Dice(99);
        let shape = (8, 72, 1024);
        let bytes = weights(weight, shape.1, shape.2, &mut dice);
        let woven = weave(weight, &bytes, shape.1);
        assert_eq!(woven.len(), bytes.len());
        let input: Vec<f32> = (0..shape.0 * shape.2).map(|_| dice.normal()).collect();
        let oracle = multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
        for kernel in kernels() {
            let got = multiply(kernel, 2, (weight, Layout::Woven8), &woven, &input, shape).unwrap();
            assert!(bits(&got) == bits(&oracle), "{weight:?} {kernel}");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let mut dice = Dice(3);
    let (columns, k) = (40, 640);
    let bytes = weights(WeightType::Q8_0, columns, k, &mut dice);
    let input: Vec<f32> = (0..17 * k).map(|_| dice.normal()).collect();
    for kernel in kernels() {
        let all = multiply(kernel, 2, (WeightType::Q8_0, Layout::Rows), &bytes, &input, (17, columns, k)).unwrap();
        for m in 0..17 {
            let one = multiply(kernel, 1, (WeightType::Q8_0, Layout::Rows), &bytes, &input[m * k..], (1, columns, k));
            assert!(bits(&one.unwrap()) == bits(&all[m * columns..(m + 1) * columns]), "{kernel}, row {m}");
        }
    }
}

#[test]
fn nan_and_infinity_reach_what_they_touch_and_nothing_else() {
    for weight in TYPES {
        let mut dice = Dice(11);
        let shape @ (rows, columns, k) = (9, 37, 768);
        let bytes = weights(weight, columns, k, &mut dice);
        let clean: Vec<f32> = (0..rows * k).map(|_| dice.normal()).collect();
        for (value, at) in [(f32::NAN, 0), (f32::INFINITY, 300), (f32::NEG_INFINITY, k - 1)] {
            let mut input = clean.clone();
            input[4 * k + at] = value;
            let wanted = exact(weight, &bytes, &input, shape);
            for kernel in kernels() {
                let got = multiply(kernel, 2, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
                let plain = multiply(kernel, 2, (weight, Layout::Rows), &bytes, &clean, shape).unwrap();
                for m in 0..rows {
                    let (got, plain) = (&got[m * columns..][..columns], &plain[m * columns..][..columns]);
                    if m != 4 {
                        assert!(bits(got) == bits(plain), "{weight:?} {kernel}: row {m} has nothing to do with it");
                        continue;
                    }
                    for (g, w) in got.iter().zip(&wanted[m * columns..]) {
                        let same = g.is_nan() && w.is_nan() || f64::from(*g) == *w;
                        assert!(same && !g.is_finite(), "{weight:?} {kernel}: {g} instead of {w}");
                    }
                }
            }
        }
    }
}

#[test]
fn extreme_activations_stay_finite_numbers() {
    let mut dice = Dice(5);
    let (columns, k) = (32, 64);
    let bytes = weights(WeightType::Q8_0, columns, k, &mut dice);
    for size in [0.0, f32::from_bits(1), 1e-38, 1e-30, 1e30] {
        let input: Vec<f32> = (0..6 * k).map(|_| dice.float() * size).collect();
        let wanted = exact(WeightType::Q8_0, &bytes, &input, (6, columns, k));
        for kernel in kernels() {
            let got = multiply(kernel, 1, (WeightType::Q8_0, Layout::Rows), &bytes, &input, (6, columns, k)).unwrap();
            let most = wanted.iter().fold(0.0_f64, |most, w| most.max(w.abs()));
            for (g, w) in got.iter().zip(&wanted) {
                assert!((f64::from(*g) - w).abs() <= 0.02 * most + 1e-34, "{kernel} {size}: {g} {w}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_all_threads() {
    let (rows, columns, k) = (6, 32, 64);
    let bytes = weights(WeightType::Q8_0, columns, k, &mut Dice(1));
    let (input, mut output) = (vec![1.0_f32; rows * k], vec![7.0_f32; rows * columns]);
    let good = product((WeightType::Q8_0, Layout::Rows), &bytes, &input, &mut output, (rows, columns, k));
    assert!(good.fits());
    let bad = [
        Multiply { k: 48, ..good },
        Multiply { k: 0, ..good },
        Multiply { rows: 0, ..good },
        Multiply { columns: 0, ..good },
        Multiply { weight: WeightType::Q4K, weight_stride: 144, ..good },
        Multiply { layout: Layout::Woven8, ..good },
        Multiply { weight_stride: 67, ..good },
        Multiply { input_stride: 4 * k - 4, ..good },
        Multiply { output_stride: 4 * columns - 4, ..good },
        Multiply { output_stride: 4 * columns + 1, ..good },
        Multiply { rows: usize::MAX, ..good },
        Multiply { k: usize::MAX / 32 * 32, ..good },
    ];
    let room = good.work_bytes(1).unwrap();
    let mut work = vec![0_u8; room];
    let team = Team { index: 0, threads: 1, barrier: &|| {} };
    for product in bad {
        assert!(!product.fits() || product.work_bytes(1).is_none_or(|bytes| bytes > room), "{product:?}");
        // SAFETY: refused before anything is touched.
        assert!(!unsafe { product.run(|| Some(Kernel::Scalar), team, work.as_mut_ptr(), room) }, "{product:?}");
    }
    // SAFETY: the vectors have the sizes that the product names.
    assert!(!unsafe { good.run(|| Some(Kernel::Scalar), team, work.as_mut_ptr(), room - 1) }, "too little work memory");
    // SAFETY: as above.
    assert!(!unsafe { good.run(|| None, team, work.as_mut_ptr(), room) }, "no kernel");
    assert!(output.iter().all(|value| *value == 7.0), "nothing was written");
    // SAFETY: as above.
    assert!(unsafe { good.run(|| Some(Kernel::Scalar), team, work.as_mut_ptr(), room) });
    assert!(output.iter().all(|value| *value != 7.0));
}

proptest! {
    #![proptest_config(crate::world::fixed(200))]

    #[test]
    fn any_shape(
        rows in 1_usize..26,
        columns in 1_usize..135,
        blocks in 1_usize..40,
        kind in 0_usize..9,
        threads in 1_usize..4,
        seed in 1_u64..u64::MAX,
    ) {
        let weight = TYPES[kind];
        let k = if weight.unit() == 32 { 32 * blocks } else { 256 * (1 + blocks % 5) };
        let mut dice = Dice(seed);
        let bytes = weights(weight, columns, k, &mut dice);
        let input: Vec<f32> = (0..rows * k).map(|_| dice.normal()).collect();
        let shape = (rows, columns, k);
        let oracle = multiply(Kernel::Scalar, 1, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
        for kernel in kernels().filter(|kernel| *kernel != Kernel::Scalar) {
            let got = multiply(kernel, threads, (weight, Layout::Rows), &bytes, &input, shape).unwrap();
            prop_assert!(bits(&got) == bits(&oracle), "{weight:?} {kernel} {shape:?}");
        }
    }
}

/// Whoever computes a declined product writes to the work memory at once. A thread that had not read the answer yet took the
/// other's data for it: seen as rows of NaN when kernels were switched on a busy machine.
#[test]
fn a_declined_product_leaves_nobody_reading_the_work_memory() {
    let (rows, columns, k) = (6, 32, 64);
    let bytes = weights(WeightType::Q8_0, columns, k, &mut Dice(1));
    let (input, mut output) = (vec![1.0_f32; rows * k], vec![7.0_f32; rows * columns]);
    let product = product((WeightType::Q8_0, Layout::Rows), &bytes, &input, &mut output, (rows, columns, k));
    const THREADS: usize = 4;
    let room = product.work_bytes(THREADS).unwrap();
    let mut work = vec![0_u8; room];
    let (barrier, order) = (Barrier::new(THREADS), AtomicUsize::new(0));
    let (product, work) = (Shared(product), Shared(work.as_mut_ptr()));
    std::thread::scope(|scope| {
        for index in 0..THREADS {
            let (product, work, barrier, order) = (&product, &work, &barrier, &order);
            scope.spawn(move || {
                for round in 0..50 {
                    let calls = Cell::new(0);
                    let wait = || {
                        barrier.wait();
                        // a slow thread: the others have long gone on
                        if index == 1 && calls.get() == 0 {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                        calls.set(calls.get() + 1);
                    };
                    let team = Team { index, threads: THREADS, barrier: &wait };
                    // SAFETY: the vectors have the sizes that the product names.
                    let done = unsafe { product.0.run(|| None, team, work.0, room) };
                    assert!(!done, "thread {index} in round {round}");
                    if index == 2 {
                        // SAFETY: within the work memory, which is the next one's to write.
                        unsafe { work.0.write_bytes(Kernel::Scalar as u8, 128) };
                    }
                    order.fetch_add(1, Ordering::Relaxed);
                    barrier.wait();
                }
            });
        }
    });
    assert_eq!(order.load(Ordering::Relaxed), 50 * THREADS);
}

#[test]
fn the_towers_shapes() {
    let mut dice = Dice(21);
    for (rows, columns, k) in [(577, 1024, 1024), (577, 4096, 1024), (576, 1024, 4096)] {
        let bytes = weights(WeightType::Q8_0, columns, k, &mut dice);
        let input: Vec<f32> = (0..rows * k).map(|_| dice.float()).collect();
        let shape = (rows, columns, k);
        let mut first: Option<Vec<u32>> = None;
        for kernel in kernels().filter(|kernel| *kernel != Kernel::Scalar) {
            for threads in [1, 2] {
                let got =
                    bits(&multiply(kernel, threads, (WeightType::Q8_0, Layout::Rows), &bytes, &input, shape).unwrap());
                assert!(first.get_or_insert_with(|| got.clone()) == &got, "{shape:?} {kernel} with {threads} threads");
            }
        }
    }
}
