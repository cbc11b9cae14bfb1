//! Weights, activations and teams of threads for the tests, and a dequantiser written apart from the crate's.

use std::sync::Barrier;

use llava_gemm::{Kernel, Layout, Multiply, Team, WeightType};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};

/// xorshift64*: the same numbers on every machine.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In -1..1.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Standard normal, nearly: a sum of twelve.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.float()).sum::<f32>() / 2.0
    }
}

/// Every kernel that this CPU has.
pub fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(|kernel| kernel.available())
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The same cases at every run.
pub fn fixed(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5eed), ..ProptestConfig::default() }
}

/// An f16 between 2^-8 and 2^-4 with a random fraction.
fn scale(dice: &mut Dice) -> [u8; 2] {
    let bits = ((7 + dice.next() % 4) << 10) | (dice.next() % 1024);
    (bits as u16).to_le_bytes()
}

/// `columns` rows of `k` weights of random bytes with sensible scales, as a file has them.
pub fn weights(weight: WeightType, columns: usize, k: usize, dice: &mut Dice) -> Vec<u8> {
    if weight.is_float() {
        let value = |dice: &mut Dice| match weight {
            WeightType::F32 => dice.float().to_le_bytes().to_vec(),
            WeightType::F16 => scale(dice).to_vec(),
            _ => dice.float().to_le_bytes()[2..].to_vec(),
        };
        return (0..columns * k).flat_map(|_| value(dice)).collect();
    }
    let unit = weight.unit_bytes();
    let mut bytes: Vec<u8> = (0..columns * k / weight.unit() * unit).map(|_| (dice.next() >> 33) as u8).collect();
    for unit in bytes.chunks_exact_mut(unit) {
        let places: &[usize] = match weight {
            WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4K | WeightType::Q5K => &[0, 2],
            WeightType::Q6K => &[208],
            _ => &[0],
        };
        for place in places {
            unit[*place..place + 2].copy_from_slice(&scale(dice));
        }
        if weight == WeightType::Q8_0 {
            // what a quantiser makes: -127 to 127
            unit[2..].iter_mut().filter(|byte| **byte == 0x80).for_each(|byte| *byte = 0x81);
        }
    }
    bytes
}

fn f16(bytes: &[u8]) -> f64 {
    let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
    let exponent = i32::from(bits >> 10 & 31);
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f64::from(bits & 1023);
    match exponent {
        0 => sign * fraction * 2_f64.powi(-24),
        31 => f64::NAN,
        e => sign * (1024.0 + fraction) * 2_f64.powi(e - 25),
    }
}

/// Scale and minimum number `j` of eight, in 6 bits each.
fn six_bits(packed: &[u8], j: usize) -> (f64, f64) {
    let bit = |at: usize| u32::from(packed[at / 8] >> (at % 8) & 1);
    let number = |bits: [usize; 6]| f64::from(bits.iter().rev().fold(0, |n, at| n << 1 | bit(*at)));
    if j < 4 {
        let whole = |byte: usize| number(std::array::from_fn(|i| 8 * byte + i));
        return (whole(j), whole(j + 4));
    }
    let split = |low: usize, high: usize| number(std::array::from_fn(|i| if i < 4 { low + i } else { high + i - 4 }));
    (split(8 * (j + 4), 8 * (j - 4) + 6), split(8 * (j + 4) + 4, 8 * j + 6))
}

/// One unit of weights as numbers.
fn dequantise_unit(weight: WeightType, unit: &[u8]) -> Vec<f64> {
    const TABLE: [f64; 16] = [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];
    let nibble = |at: usize, i: usize| {
        let byte = unit[at + i % 16];
        f64::from(if i < 16 { byte & 15 } else { byte >> 4 })
    };
    let fifth = |at: usize, i: usize| f64::from(unit[at + i / 8] >> (i % 8) & 1) * 16.0;
    let d = f16(unit);
    match weight {
        WeightType::Q8_0 => (0..32).map(|i| d * f64::from(unit[2 + i] as i8)).collect(),
        WeightType::Q4_0 => (0..32).map(|i| d * (nibble(2, i) - 8.0)).collect(),
        WeightType::Q4_1 => (0..32).map(|i| d * nibble(4, i) + f16(&unit[2..])).collect(),
        WeightType::Q5_0 => (0..32).map(|i| d * (nibble(6, i) + fifth(2, i) - 16.0)).collect(),
        WeightType::Q5_1 => (0..32).map(|i| d * (nibble(8, i) + fifth(4, i)) + f16(&unit[2..])).collect(),
        WeightType::Iq4Nl => (0..32).map(|i| d * TABLE[nibble(2, i) as usize]).collect(),
        WeightType::Q4K | WeightType::Q5K => (0..256)
            .map(|i| {
                let (block, within) = (i / 32, i % 32);
                let (s, m) = six_bits(&unit[4..16], block);
                let quants = if weight == WeightType::Q4K { 16 } else { 48 };
                let byte = unit[quants + block / 2 * 32 + within];
                let low = if block % 2 == 0 { byte & 15 } else { byte >> 4 };
                let high = if weight == WeightType::Q5K { unit[16 + within] >> block & 1 } else { 0 };
                d * s * (f64::from(low) + 16.0 * f64::from(high)) - f16(&unit[2..]) * m
            })
            .collect(),
        WeightType::Q6K => (0..256)
            .map(|i| {
                let (half, quarter, within) = (i / 128, i / 32 % 4, i % 32);
                let byte = unit[64 * half + 32 * (quarter % 2) + within];
                let low = if quarter < 2 { byte & 15 } else { byte >> 4 };
                let high = unit[128 + 32 * half + within] >> (2 * quarter) & 3;
                f16(&unit[208..]) * f64::from(unit[192 + i / 16] as i8) * (f64::from(low | high << 4) - 32.0)
            })
            .collect(),
        other => panic!("{other:?} has no dequantiser here"),
    }
}

/// All weights as numbers, row by row.
pub fn dequantise(weight: WeightType, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(weight.unit_bytes()).flat_map(|unit| dequantise_unit(weight, unit)).collect()
}

/// What ggml's repacking makes of eight rows at a time.
pub fn weave(weight: WeightType, bytes: &[u8], columns: usize) -> Vec<u8> {
    let unit = weight.unit_bytes();
    let units = bytes.len() / columns / unit;
    let mut woven = Vec::with_capacity(bytes.len());
    for group in 0..columns / 8 {
        for u in 0..units {
            let of = |column: usize| &bytes[((group * 8 + column) * units + u) * unit..][..unit];
            let quants = if weight == WeightType::Q4K { 16 } else { 2 };
            (0..8).for_each(|c| woven.extend_from_slice(&of(c)[..2]));
            if weight == WeightType::Q4K {
                (0..8).for_each(|c| woven.extend_from_slice(&of(c)[2..4]));
                for block in 0..8 {
                    woven.extend_from_slice(&pack_six_bits(std::array::from_fn(|c| six_bits(&of(c)[4..16], block))));
                }
            }
            for part in 0..(unit - quants) / 8 {
                for column in 0..8 {
                    let eight = of(column)[quants + 8 * part..][..8].iter();
                    let flip = if weight == WeightType::Q4_0 { 0x88 } else { 0 };
                    woven.extend(eight.map(|byte| byte ^ flip));
                }
            }
        }
    }
    woven
}

/// Eight pairs of 6 bits in 12 bytes, bit by bit.
fn pack_six_bits(pairs: [(f64, f64); 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for (j, (s, m)) in pairs.into_iter().enumerate() {
        let (s, m) = (s as u8, m as u8);
        if j < 4 {
            packed[j] |= s;
            packed[j + 4] |= m;
        } else {
            packed[j + 4] |= s & 15 | (m & 15) << 4;
            packed[j - 4] |= s >> 4 << 6;
            packed[j] |= m >> 4 << 6;
        }
    }
    packed
}

/// A product of whole slices, rows side by side.
pub fn product(
    (weight, layout): (WeightType, Layout),
    bytes: &[u8],
    input: &[f32],
    output: &mut [f32],
    (rows, columns, k): (usize, usize, usize),
) -> Multiply {
    Multiply {
        weight,
        layout,
        weights: bytes.as_ptr(),
        weight_stride: k / weight.unit() * weight.unit_bytes(),
        input: input.as_ptr(),
        input_stride: 4 * k,
        output: output.as_mut_ptr(),
        output_stride: 4 * columns,
        k,
        columns,
        rows,
        experts: None,
    }
}

/// Runs one product with a team of threads; `None` where it was refused.
pub fn multiply(
    kernel: Kernel,
    threads: usize,
    (weight, layout): (WeightType, Layout),
    bytes: &[u8],
    input: &[f32],
    (rows, columns, k): (usize, usize, usize),
) -> Option<Vec<f32>> {
    let mut output = vec![f32::from_bits(0x7fc0_dead); rows * columns];
    let product = product((weight, layout), bytes, input, &mut output, (rows, columns, k));
    assert!(bytes.len() >= columns * product.weight_stride && input.len() >= rows * k);
    // SAFETY: the vectors live through the call and have the sizes that the product names.
    unsafe { run(product, kernel, threads) }.then_some(output)
}

/// Runs a product with a team of threads; false where it was refused.
///
/// # Safety
/// As [`Multiply::run`], but for the work memory.
pub unsafe fn run(product: Multiply, kernel: Kernel, threads: usize) -> bool {
    let room = product.work_bytes(threads).unwrap();
    let mut work = vec![0xa5_u8; room];
    let barrier = Barrier::new(threads);
    let (product, work) = (Shared(product), Shared(work.as_mut_ptr()));
    let done = std::thread::scope(|scope| {
        let (product, work, barrier) = (&product, &work, &barrier);
        let team: Vec<_> = (0..threads)
            .map(|index| {
                scope.spawn(move || {
                    let wait = || {
                        barrier.wait();
                    };
                    let team = Team { index, threads, barrier: &wait };
                    // SAFETY: the caller's promise; the work memory lives through the scope.
                    unsafe { product.0.run(|| Some(kernel), team, work.0, room) }
                })
            })
            .collect();
        team.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(done.iter().all(|one| *one == done[0]), "all threads of a team get the same answer");
    done[0]
}

/// Addresses that the threads of a team share.
pub struct Shared<T>(pub T);
// SAFETY: the product's own rules keep the threads apart.
unsafe impl<T> Sync for Shared<T> {}
