//! Sums over floats in a fixed order: independent lanes, which compilers turn into vectors, added up in a tree. So the bits depend
//! neither on how wide the machine's vectors are nor on which of them are used: products and sums are rounded apart everywhere.

use fearless_simd::{Level, Simd, SimdBase, dispatch, f32x16};

/// Enough for several of the widest vectors at a time, which hides how long an addition takes.
const LANES: usize = 2 * WIDE;
const WIDE: usize = 16;

/// Runs a loop with the widest vectors that this processor has.
macro_rules! widest {
    ($work:expr) => {
        dispatch!(Level::new(), simd => simd.vectorize(#[inline(always)] || $work))
    };
}

#[inline(always)]
fn tree(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn sum<S: Simd>(low: f32x16<S>, high: f32x16<S>, a_rest: &[f32], b_rest: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    lanes[..WIDE].copy_from_slice(&low.to_array());
    lanes[WIDE..].copy_from_slice(&high.to_array());
    tree(lanes) + a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum::<f32>()
}

#[inline(always)]
fn halves<S: Simd>(simd: S, chunk: &[f32; LANES]) -> (f32x16<S>, f32x16<S>) {
    let (low, high) = chunk.split_at(WIDE);
    (f32x16::from_slice(simd, low), f32x16::from_slice(simd, high))
}

/// Scalar product of two rows of equal length.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    dispatch!(Level::new(), simd => dot_in(simd, a, b))
}

#[inline(always)]
fn dot_in<S: Simd>(simd: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let (mut low, mut high) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, 0.0));
    for (x, y) in a.iter().zip(b) {
        let ((x0, x1), (y0, y1)) = (halves(simd, x), halves(simd, y));
        low += x0 * y0;
        high += x1 * y1;
    }
    sum(low, high, a_rest, b_rest)
}

/// Scalar products of one row with two others: the one is loaded once. The same bits as [`dot`].
pub(super) fn dot_pair(a: &[f32], b: &[f32], c: &[f32]) -> (f32, f32) {
    dispatch!(Level::new(), simd => pair_in(simd, a, b, c))
}

#[inline(always)]
fn pair_in<S: Simd>(simd: S, a: &[f32], b: &[f32], c: &[f32]) -> (f32, f32) {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let (c, c_rest) = c.as_chunks::<LANES>();
    let zero = f32x16::splat(simd, 0.0);
    let (mut low, mut high, mut other_low, mut other_high) = (zero, zero, zero, zero);
    for ((x, y), z) in a.iter().zip(b).zip(c) {
        let (x0, x1) = halves(simd, x);
        let (y0, y1) = halves(simd, y);
        low += x0 * y0;
        high += x1 * y1;
        let (z0, z1) = halves(simd, z);
        other_low += x0 * z0;
        other_high += x1 * z1;
    }
    (sum(low, high, a_rest, b_rest), sum(other_low, other_high, a_rest, c_rest))
}

/// `sum of weight * max(0, value - best)`, in the order of [`dot`]: never larger for a larger `best`, to the last bit.
pub(super) fn gain(values: &[f32], best: &[f32], weights: &[f32]) -> f32 {
    widest!({
        let (v, v_rest) = values.as_chunks::<LANES>();
        let (b, b_rest) = best.as_chunks::<LANES>();
        let (w, w_rest) = weights.as_chunks::<LANES>();
        let mut lanes = [0.0_f32; LANES];
        for ((v, b), w) in v.iter().zip(b).zip(w) {
            for i in 0..LANES {
                lanes[i] += w[i] * (v[i] - b[i]).max(0.0);
            }
        }
        let rest: f32 = v_rest.iter().zip(b_rest).zip(w_rest).map(|((v, b), w)| w * (v - b).max(0.0)).sum();
        tree(lanes) + rest
    })
}

/// `value - mean` for every element.
pub(super) fn subtract(out: &mut [f32], values: &[f32], mean: &[f32]) {
    widest!({
        for ((o, &v), &m) in out.iter_mut().zip(values).zip(mean) {
            *o = v - m;
        }
    });
}

/// `value * factor` for every element.
pub(super) fn scale(values: &mut [f32], factor: f32) {
    widest!({
        for v in values.iter_mut() {
            *v *= factor;
        }
    });
}

/// Adds rows, and rows times their factors, to two sums: first among each other in f32, then to the sums in f64.
pub(super) fn add_rows(sum: &mut [f64], scaled: &mut [f64], rows: &[&[f32]], factors: &[f32]) {
    widest!({
        let mut at = 0;
        while at < sum.len() {
            let n = WIDE.min(sum.len() - at);
            let (mut plain, mut times) = ([0.0_f32; WIDE], [0.0_f32; WIDE]);
            for (row, &factor) in rows.iter().zip(factors) {
                let part = &row[at..at + n];
                for i in 0..n {
                    plain[i] += part[i];
                    times[i] += part[i] * factor;
                }
            }
            for i in 0..n {
                sum[at + i] += f64::from(plain[i]);
                scaled[at + i] += f64::from(times[i]);
            }
            at += n;
        }
    });
}

/// e to the power of a number that is not positive, to f32's precision. The standard library leaves the last bits to the platform.
pub(super) fn exp_negative(x: f32) -> f32 {
    // beyond it the result is below the smallest normal f32
    if x < -87.0 {
        return 0.0;
    }
    let x = f64::from(x.min(0.0));
    let n = (x * std::f64::consts::LOG2_E).round();
    let r = x - n * std::f64::consts::LN_2;
    // |r| <= ln 2 / 2: the tenth term is below 1e-12
    let series = (1..=10).rev().fold(1.0, |sum, i| 1.0 + sum * r / f64::from(i));
    let power = f64::from_bits(((1023 + n as i64) as u64) << 52);
    (series * power) as f32
}

/// Euclidean length.
pub(super) fn norm(a: &[f32]) -> f32 {
    dot(a, a).sqrt()
}

/// `1 / length`, or 0 for a row without direction.
pub(super) fn inverse(length: f32) -> f32 {
    if length > 0.0 && length.is_finite() { 1.0 / length } else { 0.0 }
}

/// Adds `factor` times a row.
pub(super) fn add_scaled(out: &mut [f32], factor: f32, row: &[f32]) {
    widest!({
        for (o, v) in out.iter_mut().zip(row) {
            *o += factor * v;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_up() {
        for n in [1, 15, 16, 40] {
            let rows: Vec<Vec<f32>> = (0..5).map(|r| (0..n).map(|i| ((r * 31 + i) as f32).cos()).collect()).collect();
            let views: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
            let factors = [0.5, 1.0, 2.0, 3.0, 0.25];
            let (mut sum, mut scaled) = (vec![1.0; n], vec![2.0; n]);
            add_rows(&mut sum, &mut scaled, &views, &factors);
            for i in 0..n {
                let plain: f64 = rows.iter().map(|r| f64::from(r[i])).sum();
                let times: f64 = rows.iter().zip(factors).map(|(r, f)| f64::from(r[i]) * f64::from(f)).sum();
                assert!((sum[i] - 1.0 - plain).abs() < 1e-5 && (scaled[i] - 2.0 - times).abs() < 1e-5);
            }
        }
    }

    /// What the widest vectors give has to be what plain code gives.
    #[test]
    fn the_width_of_vectors_does_not_show() {
        let row = |seed: usize| -> Vec<f32> { (0..1000).map(|i| ((i * 13 + seed) as f32).sin() * 3.0).collect() };
        for seed in 0..50 {
            let (a, b) = (row(seed), row(seed + 1000));
            let mut lanes = [0.0_f32; LANES];
            for (x, y) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
                for i in 0..LANES {
                    lanes[i] += std::hint::black_box(x[i] * y[i]);
                }
            }
            let rest: f32 = a.iter().zip(&b).skip(a.len() / LANES * LANES).map(|(x, y)| x * y).sum();
            assert_eq!(dot(&a, &b).to_bits(), (tree(lanes) + rest).to_bits());
        }
    }

    #[test]
    fn powers_of_e_are_right_to_the_last_bits() {
        assert_eq!(exp_negative(0.0), 1.0);
        assert_eq!(exp_negative(-1e9), 0.0);
        for i in 0..8700 {
            let x = -(i as f32) * 0.01;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp_negative(x)) / exact - 1.0).abs() < 1e-7, "{x}");
        }
    }

    #[test]
    fn pairs_have_the_bits_of_single_products() {
        let row = |seed: usize, n: usize| -> Vec<f32> { (0..n).map(|i| ((i * 7 + seed) as f32).sin()).collect() };
        for n in [0, 1, 31, 32, 33, 160, 163] {
            let (a, b, c) = (row(1, n), row(2, n), row(3, n));
            assert_eq!(dot_pair(&a, &b, &c), (dot(&a, &b), dot(&a, &c)));
            let exact: f64 = a.iter().zip(&b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            assert!((f64::from(dot(&a, &b)) - exact).abs() < 1e-4);
            let ones = vec![1.0; n];
            let exact: f64 = a.iter().zip(&b).map(|(x, y)| f64::from((x - y).max(0.0))).sum();
            assert!((f64::from(gain(&a, &b, &ones)) - exact).abs() < 1e-4);
        }
    }
}
