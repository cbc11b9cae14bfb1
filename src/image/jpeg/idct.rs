//! The inverse DCT, in the integer steps of upstream's decoder.
//!
//! Method: Loeffler, Ligtenberg, Moschytz, "Practical fast 1-D DCT algorithms with 11 multiplications" (ICASSP 1989),
//! with constants scaled by 4096. Columns first, 2 extra bits kept between the passes, as upstream does: another split
//! of the rounding gives pixels that differ by 1 in luma and by up to 3 in colour.

use std::num::Wrapping;

type Int = Wrapping<i32>;

/// A constant of the transform as a 12-bit fixed-point number. Adding a half and cutting towards zero is what upstream
/// does, for negative constants too.
const fn fixed(value: f64) -> Int {
    Wrapping((value * 4096.0 + 0.5) as i32)
}

const C_0_541: Int = fixed(0.541_196_100);
const C_1_847: Int = fixed(-1.847_759_065);
const C_0_765: Int = fixed(0.765_366_865);
const C_1_175: Int = fixed(1.175_875_602);
const C_0_298: Int = fixed(0.298_631_336);
const C_2_053: Int = fixed(2.053_119_869);
const C_3_072: Int = fixed(3.072_711_026);
const C_1_501: Int = fixed(1.501_321_110);
const C_0_899: Int = fixed(-0.899_976_223);
const C_2_562: Int = fixed(-2.562_915_447);
const C_1_961: Int = fixed(-1.961_570_560);
const C_0_390: Int = fixed(-0.390_180_644);

/// Even part (rotated and scaled by 4096) and odd part of a 1-D transform; output `k` is `even[k] + odd[k]`, output
/// `7 - k` is `even[k] - odd[k]`.
#[inline(always)]
fn halves(s: [Int; 8]) -> ([Int; 4], [Int; 4]) {
    let turn = (s[2] + s[6]) * C_0_541;
    let low = turn + s[6] * C_1_847;
    let high = turn + s[2] * C_0_765;
    let sum = (s[0] + s[4]) << 12;
    let difference = (s[0] - s[4]) << 12;
    let even = [sum + high, difference + low, difference - low, sum - high];

    let (a, b, c, d) = (s[7], s[5], s[3], s[1]);
    let all = (a + c + b + d) * C_1_175;
    let ad = all + (a + d) * C_0_899;
    let bc = all + (b + c) * C_2_562;
    let ac = (a + c) * C_1_961;
    let bd = (b + d) * C_0_390;
    let odd = [d * C_1_501 + ad + bd, c * C_3_072 + bc + ac, b * C_2_053 + bc + bd, a * C_0_298 + ad + ac];
    (even, odd)
}

/// Transforms one block of dequantised coefficients (natural order) into 8 rows of samples at `plane[at..]`.
pub(super) fn transform(coefficients: &[i16; 64], plane: &mut [u8], at: usize, stride: usize) {
    if coefficients[1..].iter().all(|&c| c == 0) {
        // What the general path gives for a flat block.
        let level = Wrapping(i32::from(coefficients[0])) << 2;
        let value = clamp(((level << 12) + FINAL_BIAS) >> 17);
        for row in 0..8 {
            plane[at + row * stride..][..8].fill(value);
        }
        return;
    }
    let mut columns = [Wrapping(0i32); 64];
    for column in 0..8 {
        let s: [Int; 8] = std::array::from_fn(|row| Wrapping(i32::from(coefficients[row * 8 + column])));
        let (even, odd) = halves(s);
        for k in 0..4 {
            let rounded = even[k] + Wrapping(512);
            columns[k * 8 + column] = (rounded + odd[k]) >> 10;
            columns[(7 - k) * 8 + column] = (rounded - odd[k]) >> 10;
        }
    }
    let (rows, _) = columns.as_chunks::<8>();
    for (row, &s) in rows.iter().enumerate() {
        let (even, odd) = halves(s);
        let out = &mut plane[at + row * stride..][..8];
        for k in 0..4 {
            let rounded = even[k] + FINAL_BIAS;
            out[k] = clamp((rounded + odd[k]) >> 17);
            out[7 - k] = clamp((rounded - odd[k]) >> 17);
        }
    }
}

/// Half of the final 17-bit shift, and the level shift of 128.
const FINAL_BIAS: Int = Wrapping(65_536 + (128 << 17));

fn clamp(value: Int) -> u8 {
    value.0.clamp(0, 255) as u8
}
