//! Q8_0, block-exact with ggml's reference (`quantize_row_q8_0_ref` in `ggml-quants.c`): 32 weights share an F16 scale, which is
//! their largest magnitude divided by 127; each weight is its quotient by the unrounded scale, rounded half away from zero.

use half::f16;

/// Weights in a block.
pub(super) const BLOCK: usize = 32;
/// Bytes of a block: scale and weights.
pub(super) const BLOCK_BYTES: usize = 2 + BLOCK;
/// Largest magnitude of a weight whose block's scale is still a finite F16 (halfway to the next one it rounds up).
pub(super) const MAX_MAGNITUDE: f32 = 65_519.996 * 127.0;

/// Adding this to a number below 2^22 in magnitude leaves its integer part, rounded half to even, in the low bits.
const SHIFT: f32 = 12_582_912.0;

/// Appends the blocks of `values`, of which there are a multiple of 32, all finite.
pub(super) fn encode(values: &[f32], out: &mut Vec<u8>) {
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    debug_assert!(rest.is_empty());
    out.reserve(blocks.len() * BLOCK_BYTES);
    for block in blocks {
        out.extend_from_slice(&encode_block(block));
    }
}

fn encode_block(values: &[f32; BLOCK]) -> [u8; BLOCK_BYTES] {
    // magnitudes order as their bits do; integers have no NaN rules that would keep this from being vectorised
    let largest = values.iter().fold(0_i32, |most, v| most.max((v.to_bits() & 0x7fff_ffff) as i32));
    let scale = f32::from_bits(largest as u32) / 127.0;
    let inverse = 1.0 / scale;
    // the inverse of 0 and of the smallest denormals is infinite; the stored scale is 0 then, whatever the weights are
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    let mut out = [0; BLOCK_BYTES];
    out[..2].copy_from_slice(&f16::from_f32(scale).to_bits().to_le_bytes());
    for (q, v) in out[2..].iter_mut().zip(values) {
        *q = round_half_away(v * inverse) as u8;
    }
    out
}

/// `roundf` as C has it, without a library call, for magnitudes below 2^22.
fn round_half_away(value: f32) -> i32 {
    let shifted = value + SHIFT;
    let rounded = shifted.to_bits().wrapping_sub(SHIFT.to_bits()) as i32;
    // exact: both are multiples of the value's last place
    let rest = value - (shifted - SHIFT);
    rounded + i32::from(rest == 0.5 && value > 0.0) - i32::from(rest == -0.5 && value < 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_c_s() {
        for i in -1_300_i16..=1_300 {
            let value = f32::from(i) / 10.0;
            for v in [value, value.next_up(), value.next_down()] {
                assert_eq!(round_half_away(v), v.round() as i32, "{v}");
            }
        }
        for half in -127_i8..127 {
            let v = f32::from(half) + 0.5;
            assert_eq!(round_half_away(v), v.round() as i32, "{v}");
            assert_eq!(round_half_away(v.next_down()), v.next_down().round() as i32, "{v}");
            assert_eq!(round_half_away(v.next_up()), v.next_up().round() as i32, "{v}");
        }
    }

    #[test]
    fn a_block_by_hand() {
        let mut values = [0.0; BLOCK];
        values[0] = -254.0;
        values[1] = 127.0;
        values[2] = 1.0; // half a step: away from zero
        values[3] = -1.0;
        values[31] = 253.0;
        let mut out = Vec::new();
        encode(&values, &mut out);
        assert_eq!(out.len(), BLOCK_BYTES);
        assert_eq!(out[..2], 0x4000_u16.to_le_bytes(), "a scale of 2");
        let q: Vec<i8> = out[2..].iter().map(|&b| b as i8).collect();
        assert_eq!((q[0], q[1], q[2], q[3], q[4], q[31]), (-127, 64, 1, -1, 0, 127));
    }

    #[test]
    fn zeros_and_denormals_are_zero() {
        for value in [0.0, -0.0, f32::from_bits(1), 1e-40] {
            let mut out = Vec::new();
            encode(&[value; BLOCK], &mut out);
            assert_eq!(out, [0; BLOCK_BYTES], "{value:e}");
        }
    }

    #[test]
    fn the_largest_scale() {
        let scale = |v: f32| f16::from_f32(v / 127.0);
        assert!(scale(MAX_MAGNITUDE).is_finite());
        assert!(scale(65_520.0 * 127.0).is_infinite());
    }

    /// Random, tied, tiny and huge blocks.
    fn blocks() -> Vec<f32> {
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let mut out = Vec::new();
        for kind in 0..6_000 {
            let size = 2_f32.powi(draw() as i32 % 40 - 30);
            for _ in 0..BLOCK {
                out.push(match kind % 4 {
                    // whole and half multiples of the step: ties everywhere
                    0 => (draw() % 509) as f32 / 2.0 - 127.0,
                    1 => f32::from_bits(draw()).clamp(-1e30, 1e30) * 1e-25,
                    _ => (draw() as f32 / 2_f32.powi(30) - 1.0) * size,
                });
            }
        }
        out.iter_mut().filter(|v| !v.is_finite()).for_each(|v| *v = 0.25);
        out
    }

    #[test]
    fn blocks_are_ggml_s_byte_for_byte() {
        let values = blocks();
        let mut ours = Vec::new();
        encode(&values, &mut ours);
        let ggmls = crate::llama::ggml_q8_0(&values);
        assert_eq!(ours.len(), ggmls.len());
        for (i, (a, b)) in ours.chunks(BLOCK_BYTES).zip(ggmls.chunks(BLOCK_BYTES)).enumerate() {
            assert_eq!(a, b, "block {i}: {:?}", &values[i * BLOCK..(i + 1) * BLOCK]);
        }
    }
}
