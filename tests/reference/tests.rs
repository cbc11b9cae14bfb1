//! The oracle's own arithmetic, against values known from elsewhere.

use super::numbers::{LayerNorm, Linear, Matrix, attention, erf, gelu, gelu_tanh, quick_gelu, silu, softmax};
use super::weights::half;

fn near(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance, "{a} is not {b}");
}

#[test]
fn error_function() {
    // Abramowitz and Stegun, table 7.1, and erfc(3), erfc(4) from 1.
    for (x, y) in [
        (0.0, 0.0),
        (0.5, 0.520_499_877_813_046_5),
        (1.0, 0.842_700_792_949_714_9),
        (2.0, 0.995_322_265_018_952_7),
        (3.0, 0.999_977_909_503_001_4),
        (4.0, 0.999_999_984_582_742_1),
        (7.0, 1.0),
    ] {
        near(erf(x), y, 1e-14);
        near(erf(-x), -y, 1e-14);
    }
}

#[test]
fn activations() {
    near(gelu(1.0), 0.841_344_746_068_542_9, 1e-14);
    near(gelu(-3.0), -0.004_049_694_094_890_31, 1e-14);
    near(quick_gelu(1.0), 0.845_795_765_932_821_2, 1e-14);
    near(silu(1.0), 0.731_058_578_630_004_9, 1e-14);
    assert_eq!((gelu(0.0), quick_gelu(0.0), silu(0.0)), (0.0, 0.0, 0.0));
}

/// The two forms of GELU differ by less than half precision does around 1, so either may be the reference for rows that
/// are computed in half precision; the exact one is, because the authors use it.
#[test]
fn the_two_forms_of_gelu_hardly_differ() {
    let worst = (-800..=800).map(|i| f64::from(i) / 100.0).map(|x| (gelu(x) - gelu_tanh(x)).abs()).fold(0.0, f64::max);
    assert!((4e-4..4.8e-4).contains(&worst), "{worst}");
    assert!(worst < 2f64.powi(-11));
}

#[test]
fn norm_linear_softmax_and_attention() {
    let x = Matrix::new(2, vec![1.0, 3.0, -2.0, 2.0]);
    let norm = LayerNorm { weight: vec![1.0, 2.0], bias: vec![0.0, 1.0], epsilon: 0.0 };
    assert_eq!(norm.apply(&x), Matrix::new(2, vec![-1.0, 3.0, -1.0, 3.0]));
    let linear =
        Linear { weight: Matrix::new(2, vec![1.0, 0.0, 1.0, 1.0, 2.0, -1.0]), bias: Some(vec![0.0, 10.0, 0.0]) };
    assert_eq!(linear.apply(&x), Matrix::new(3, vec![1.0, 14.0, -1.0, -2.0, 10.0, -6.0]));
    let weights = softmax(&[1000.0, 1000.0 + 3f64.ln()]);
    near(weights[0], 0.25, 1e-12);
    near(weights[1], 0.75, 1e-12);
    // Two heads of one number: the first sees equal keys, the second one key that wins.
    let q = Matrix::new(2, vec![1.0, 1.0]);
    let k = Matrix::new(2, vec![5.0, 0.0, 5.0, 100.0]);
    let v = Matrix::new(2, vec![1.0, 7.0, 3.0, 9.0]);
    let out = attention(&q, &k, &v, 2);
    near(out.row(0)[0], 2.0, 1e-12);
    near(out.row(0)[1], 9.0, 1e-12);
}

#[test]
fn half_precision() {
    for (bits, value) in [
        (0x3c00u16, 1.0),
        (0xc000, -2.0),
        (0x7bff, 65504.0),
        (0x0001, 5.960_464_477_539_063e-8),
        (0x3555, 0.333_251_953_125),
    ] {
        assert_eq!(half(bits.to_le_bytes()), value);
    }
    assert!(half(0x7c00u16.to_le_bytes()).is_infinite() && half(0x7e00u16.to_le_bytes()).is_nan());
}
