//! Products and attention on one thread, by kernel and shape: `cargo bench -p llava-gemm`. Criterion's "elements" are operations
//! (a multiplication and an addition are two). The peak that fractions refer to is measured first, with registers alone.

#![expect(missing_docs, reason = "criterion's macro makes a public function")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use llava_gemm::{Attention, Floats, Kernel, Layout, Multiply, Team, WeightType};

const TEAM: Team<'static> = Team { index: 0, threads: 1, barrier: &|| {} };

fn kernels() -> impl Iterator<Item = Kernel> {
    Kernel::ALL.into_iter().filter(|kernel| *kernel != Kernel::Scalar && kernel.available())
}

/// Operations a second of integer dot products that never leave the registers.
#[cfg(target_arch = "x86_64")]
mod peak {
    use std::arch::x86_64::*;
    use std::hint::black_box;
    use std::time::Instant;

    const ROUNDS: u64 = 20_000_000;

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn avx512() -> f64 {
        let mut sums = [_mm512_set1_epi32(black_box(1)); 12];
        let (a, b) = (_mm512_set1_epi32(black_box(0x0102_0304)), _mm512_set1_epi32(black_box(0x0403_0201)));
        let start = Instant::now();
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        black_box(sums);
        (ROUNDS * 12 * 128) as f64 / seconds
    }

    #[target_feature(enable = "avx2,avxvnni")]
    fn ymm() -> f64 {
        let mut sums = [_mm256_set1_epi32(black_box(1)); 12];
        let (a, b) = (_mm256_set1_epi32(black_box(0x0102_0304)), _mm256_set1_epi32(black_box(0x0403_0201)));
        let start = Instant::now();
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_dpbusd_avx_epi32(*sum, a, b);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        black_box(sums);
        (ROUNDS * 12 * 64) as f64 / seconds
    }

    pub fn print() {
        if llava_gemm::Kernel::Avx512Vnni.available() {
            // SAFETY: just asked.
            println!("peak avx512vnni: {:.0} GOPS", unsafe { avx512() } / 1e9);
        }
        if llava_gemm::Kernel::AvxVnni.available() {
            // SAFETY: just asked.
            println!("peak avxvnni: {:.0} GOPS", unsafe { ymm() } / 1e9);
        }
    }
}

fn random(n: usize) -> impl Iterator<Item = u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..n).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    })
}

fn products(criterion: &mut Criterion) {
    #[cfg(target_arch = "x86_64")]
    peak::print();
    // the tower's products, and prefill of a 1.1B model
    let shapes = [(577, 1024, 1024), (577, 4096, 1024), (577, 1024, 4096), (64, 2048, 2048), (16, 2048, 2048)];
    for weight in WeightType::QUANTISED.into_iter().chain(WeightType::FLOATS) {
        let mut group = criterion.benchmark_group(format!("{weight:?}"));
        for (rows, columns, k) in shapes {
            if !matches!(weight, WeightType::Q8_0 | WeightType::F16) && (rows, columns) != (577, 4096) && rows != 64 {
                continue;
            }
            let stride = k / weight.unit() * weight.unit_bytes();
            // random bytes are poor scales: halves of any size. Small ones do for timing; floats must not be subnormal.
            let least = if weight.is_float() { 0x20 } else { 0 };
            let bytes: Vec<u8> = random(columns * stride).map(|byte| byte & 0x3f | least).collect();
            let input: Vec<f32> = random(rows * k).map(|byte| f32::from(byte) - 128.0).collect();
            let mut output = vec![0.0_f32; rows * columns];
            let product = Multiply {
                weight,
                layout: Layout::Rows,
                weights: bytes.as_ptr(),
                weight_stride: stride,
                input: input.as_ptr(),
                input_stride: 4 * k,
                output: output.as_mut_ptr(),
                output_stride: 4 * columns,
                k,
                columns,
                rows,
                experts: None,
            };
            let room = product.work_bytes(1).unwrap_or(0);
            let mut work = vec![0_u8; room];
            group.throughput(Throughput::Elements(2 * (rows * columns * k) as u64));
            for kernel in kernels() {
                let id = BenchmarkId::new(kernel.name(), format!("{rows}x{columns}x{k}"));
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        // SAFETY: the vectors have the sizes that the product names.
                        assert!(unsafe { product.run(|| Some(kernel), TEAM, work.as_mut_ptr(), room) });
                    });
                });
            }
            black_box(&output);
        }
    }
}

fn attention(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention");
    for (size, tokens, heads) in [(64, 577, 16), (72, 729, 16), (80, 1024, 16), (128, 576, 8), (64, 197, 12)] {
        let row = size * heads;
        let (q, kv) = (vec![0.37_f32; tokens * row], vec![0x3555_u16; tokens * row]);
        let mut output = vec![0.0_f32; tokens * row];
        let job = Attention {
            scale: 0.125,
            size,
            queries: tokens,
            keys: tokens,
            heads,
            batch: 1,
            q: q.as_ptr(),
            q_stride: [4 * row, 4 * size, 0],
            k: Floats::Half(kv.as_ptr()),
            k_stride: [2 * row, 2 * size, 0],
            v: Floats::Half(kv.as_ptr()),
            v_stride: [2 * row, 2 * size, 0],
            output: output.as_mut_ptr(),
            output_stride: [4 * size, 4 * row, 0],
        };
        let room = job.work_bytes(1).unwrap_or(0);
        let mut work = vec![0_u8; room];
        group.throughput(Throughput::Elements(4 * (tokens * tokens * row) as u64));
        for kernel in kernels() {
            let id = BenchmarkId::new(kernel.name(), format!("{tokens}x{heads}x{size}"));
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|rounds| {
                    let start = Instant::now();
                    for _ in 0..rounds {
                        // SAFETY: the vectors have the sizes that the attention names.
                        assert!(unsafe { job.run(|| Some(kernel), TEAM, work.as_mut_ptr(), room) });
                    }
                    start.elapsed()
                });
            });
        }
        black_box(&output);
    }
}

fn settings() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
}

criterion_group! { name = benches; config = settings(); targets = products, attention }
criterion_main!(benches);
