use std::sync::Barrier;

use llava_gemm::{Attention, Floats, Kernel, Team};
use proptest::prelude::*;

use crate::world::{Dice, Shared, bits, kernels};

/// Queries, keys and values of one attention, as the tower lays them out: heads side by side within a token.
struct Case {
    size: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    half: bool,
}

/// An f32 cut to the ten bits of fraction of a half float of moderate size, and those bits.
fn halved(value: f32) -> (f32, u16) {
    if value.abs() < 1e-4 {
        return (0.0, 0);
    }
    let bits = value.to_bits() & 0xffff_e000;
    let exponent = (bits >> 23 & 255) as i32 - 127 + 15;
    assert!((1..31).contains(&exponent), "{value} is no normal half");
    (f32::from_bits(bits), ((bits >> 31) << 15 | (exponent as u32) << 10 | bits >> 13 & 1023) as u16)
}

impl Case {
    fn new(size: usize, queries: usize, keys: usize, heads: usize, half: bool, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut some = |n: usize| -> Vec<f32> { (0..n * heads * size).map(|_| dice.normal()).collect() };
        let (q, mut k, mut v) = (some(queries), some(keys), some(keys));
        if half {
            k.iter_mut().chain(&mut v).for_each(|value| *value = halved(*value).0);
        }
        Self { size, queries, keys, heads, q, k, v, half }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    fn run(&self, kernel: Kernel, threads: usize) -> Option<Vec<f32>> {
        let row = self.heads * self.size;
        let bits = |values: &[f32]| -> Vec<u16> { values.iter().map(|value| halved(*value).1).collect() };
        let (k, v) = if self.half { (bits(&self.k), bits(&self.v)) } else { (Vec::new(), Vec::new()) };
        let place = |half: &[u16], single: &[f32]| {
            if self.half { Floats::Half(half.as_ptr()) } else { Floats::Single(single.as_ptr()) }
        };
        let element = if self.half { 2 } else { 4 };
        let mut output = vec![f32::from_bits(0x7fc0_dead); self.queries * row];
        let attention = Attention {
            scale: self.scale(),
            size: self.size,
            queries: self.queries,
            keys: self.keys,
            heads: self.heads,
            batch: 1,
            q: self.q.as_ptr(),
            q_stride: [4 * row, 4 * self.size, 0],
            k: place(&k, &self.k),
            k_stride: [element * row, element * self.size, 0],
            v: place(&v, &self.v),
            v_stride: [element * row, element * self.size, 0],
            output: output.as_mut_ptr(),
            output_stride: [4 * self.size, 4 * row, 0],
        };
        let room = attention.work_bytes(threads)?;
        let mut work = vec![0xa5_u8; room];
        let barrier = Barrier::new(threads);
        let (attention, work) = (Shared(attention), Shared(work.as_mut_ptr()));
        let done = std::thread::scope(|scope| {
            let (attention, work, barrier) = (&attention, &work, &barrier);
            let start = |index| {
                scope.spawn(move || {
                    let wait = || {
                        barrier.wait();
                    };
                    let team = Team { index, threads, barrier: &wait };
                    // SAFETY: the vectors live through the scope and have the sizes that the attention names.
                    unsafe { attention.0.run(|| Some(kernel), team, work.0, room) }
                })
            };
            let team: Vec<_> = (0..threads).map(start).collect();
            team.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(done.iter().all(|one| *one == done[0]), "all threads of a team get the same answer");
        done[0].then_some(output)
    }

    /// In f64, with all scores of a query at once.
    fn exact(&self) -> Vec<f64> {
        let row = self.heads * self.size;
        let mut out = vec![0.0; self.queries * row];
        for head in 0..self.heads {
            let of = |values: &[f32], n: usize, d: usize| f64::from(values[n * row + head * self.size + d]);
            for n in 0..self.queries {
                let scores: Vec<f64> = (0..self.keys)
                    .map(|j| (0..self.size).map(|d| of(&self.q, n, d) * of(&self.k, j, d)).sum::<f64>())
                    .map(|dot| dot * f64::from(self.scale()))
                    .collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let total: f64 = weights.iter().sum();
                for d in 0..self.size {
                    let sum: f64 = weights.iter().enumerate().map(|(j, weight)| weight * of(&self.v, j, d)).sum();
                    out[n * row + head * self.size + d] = sum / total;
                }
            }
        }
        out
    }
}

#[test]
fn close_to_f64_for_every_head_size() {
    for size in [16, 64, 72, 80, 88, 96, 128, 256] {
        for half in [false, true] {
            let case = Case::new(size, 50, 197, 2, half, size as u64);
            let wanted = case.exact();
            for kernel in kernels() {
                let got = case.run(kernel, 2).unwrap();
                let worst = got.iter().zip(&wanted).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max);
                assert!(worst < 2e-6, "{size} {kernel}: {worst}");
            }
        }
    }
}

#[test]
fn every_kernel_and_every_team_gives_the_same_bits() {
    // more queries than are held at once, more than one block of keys, remainders of both
    let case = Case::new(72, 401, 300, 3, true, 4);
    let oracle = bits(&case.run(Kernel::Scalar, 1).unwrap());
    for kernel in kernels() {
        for threads in [1, 2, 4] {
            assert!(bits(&case.run(kernel, threads).unwrap()) == oracle, "{kernel} with {threads} threads");
        }
    }
}

#[test]
fn large_scores_and_what_is_not_finite() {
    for kernel in kernels() {
        let mut case = Case::new(64, 20, 150, 1, false, 9);
        // one key takes it all: the sum of exponentials must not overflow
        case.k.iter_mut().for_each(|value| *value *= 200.0);
        let wanted = case.exact();
        let got = case.run(kernel, 1).unwrap();
        let worst = got.iter().zip(&wanted).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max);
        assert!(worst < 2e-3, "{kernel}: {worst}");

        let clean = Case::new(64, 20, 150, 1, false, 9);
        let plain = clean.run(kernel, 1).unwrap();
        for bad in [f32::NAN, f32::INFINITY] {
            let mut case = Case::new(64, 20, 150, 1, false, 9);
            case.q[7 * 64 + 3] = bad;
            let got = case.run(kernel, 1).unwrap();
            for (n, (got, plain)) in got.chunks_exact(64).zip(plain.chunks_exact(64)).enumerate() {
                if n == 7 {
                    assert!(got.iter().all(|value| !value.is_finite()), "{kernel} {bad}");
                } else {
                    assert!(bits(got) == bits(plain), "{kernel} {bad}: query {n} has nothing to do with it");
                }
            }
            let mut case = Case::new(64, 20, 150, 1, false, 9);
            case.v[140 * 64 + 5] = bad;
            let got = case.run(kernel, 1).unwrap();
            assert!(got.chunks_exact(64).all(|got| !got[5].is_finite() && got[4].is_finite()), "{kernel} {bad}");
        }
    }
}

proptest! {
    #![proptest_config(crate::world::fixed(60))]

    #[test]
    fn any_shape(
        size in 2_usize..17,
        queries in 1_usize..230,
        keys in 1_usize..290,
        heads in 1_usize..4,
        half: bool,
        threads in 1_usize..4,
        seed in 1_u64..u64::MAX,
    ) {
        let case = Case::new(8 * size, queries, keys, heads, half, seed);
        let oracle = bits(&case.run(Kernel::Scalar, 1).unwrap());
        for kernel in kernels().filter(|kernel| *kernel != Kernel::Scalar) {
            prop_assert!(bits(&case.run(kernel, threads).unwrap()) == oracle, "{kernel}");
        }
    }
}
