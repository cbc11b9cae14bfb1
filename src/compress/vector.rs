//! Sums over floats in a fixed order: independent lanes, so that compilers vectorise them, added up in a tree, so that the
//! bits do not depend on how wide the machine's vectors are.

const LANES: usize = 16;

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

/// Scalar product of two rows of equal length.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0_f32; LANES];
    for (x, y) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += x[i] * y[i];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    tree(lanes) + rest
}

/// Scalar products of one row with two others: the one is loaded once. The same bits as [`dot`].
pub(super) fn dot_pair(a: &[f32], b: &[f32], c: &[f32]) -> (f32, f32) {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let (c, c_rest) = c.as_chunks::<LANES>();
    let (mut first, mut second) = ([0.0_f32; LANES], [0.0_f32; LANES]);
    for ((x, y), z) in a.iter().zip(b).zip(c) {
        for i in 0..LANES {
            first[i] += x[i] * y[i];
            second[i] += x[i] * z[i];
        }
    }
    let rest = |other: &[f32]| a_rest.iter().zip(other).map(|(x, y)| x * y).sum::<f32>();
    (tree(first) + rest(b_rest), tree(second) + rest(c_rest))
}

/// `sum of weight * max(0, value - best)`, in the order of [`dot`]: never larger for a larger `best`, to the last bit.
pub(super) fn gain(values: &[f32], best: &[f32], weights: &[f32]) -> f32 {
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
    for (o, v) in out.iter_mut().zip(row) {
        *o += factor * v;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for n in [0, 1, 15, 16, 17, 160, 163] {
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
