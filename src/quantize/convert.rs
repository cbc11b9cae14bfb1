//! From one storage type to another, a piece of a tensor at a time.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::q8_0;
use crate::gguf::TensorType;

/// Elements converted at once: 32 KiB of F32 stay in the first cache between reading and writing them.
const STRIDE: usize = 8192;

/// Bytes of a piece of a tensor, aligned for every element type.
#[derive(Debug, Default)]
pub(super) struct Raw {
    words: Vec<u32>,
    len: usize,
}

impl Raw {
    /// Room for so many bytes.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        self.words.resize(len.div_ceil(4), 0);
        self.len = len;
        &mut bytemuck::cast_slice_mut(&mut self.words)[..len]
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    fn halves(&self) -> &[u16] {
        &bytemuck::cast_slice(&self.words)[..self.len / 2]
    }
}

/// Why a piece cannot be converted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Refusal {
    /// The first NaN or infinity.
    NotFinite(f32),
    /// A magnitude that the target cannot hold.
    TooLarge(f32),
}

/// Converts `raw`, stored as `from` (a plain float), to `to`, and appends the bytes. The number of elements is a multiple of
/// `to`'s block.
pub(super) fn convert(raw: &Raw, from: TensorType, to: TensorType, out: &mut Vec<u8>) -> Result<(), Refusal> {
    if from == to {
        out.extend_from_slice(raw.bytes());
        return Ok(());
    }
    let mut stride = [0_f32; STRIDE];
    let limit = match to {
        TensorType::Q8_0 => q8_0::MAX_MAGNITUDE,
        TensorType::F16 => 65_519.996,
        _ => f32::MAX,
    };
    let mut done = 0;
    loop {
        let values = decode(raw, from, done, &mut stride);
        if values.is_empty() {
            return Ok(());
        }
        check(values, limit)?;
        done += values.len();
        match to {
            TensorType::Q8_0 => q8_0::encode(values, out),
            TensorType::F16 => {
                let mut halves = [f16::ZERO; STRIDE];
                halves[..values.len()].convert_from_f32_slice(values);
                out.extend(halves[..values.len()].iter().flat_map(|h| h.to_bits().to_le_bytes()));
            }
            // the only other target of a plan
            _ => out.extend(values.iter().flat_map(|v| v.to_le_bytes())),
        }
    }
}

/// The elements from `start` on, as many as fit.
fn decode<'a>(raw: &Raw, from: TensorType, start: usize, stride: &'a mut [f32; STRIDE]) -> &'a [f32] {
    if from == TensorType::F32 {
        let numbers = &raw.words[..raw.len / 4];
        let part = &numbers[start.min(numbers.len())..(start + STRIDE).min(numbers.len())];
        for (to, bits) in stride.iter_mut().zip(part) {
            *to = f32::from_bits(u32::from_le(*bits));
        }
        return &stride[..part.len()];
    }
    let numbers = raw.halves();
    let part = &numbers[start.min(numbers.len())..(start + STRIDE).min(numbers.len())];
    let swapped: Vec<u16>;
    let part = if cfg!(target_endian = "big") {
        swapped = part.iter().map(|&n| u16::from_le(n)).collect();
        &swapped
    } else {
        part
    };
    let values = &mut stride[..part.len()];
    if from == TensorType::Bf16 {
        part.reinterpret_cast::<bf16>().convert_to_f32_slice(values);
    } else {
        part.reinterpret_cast::<f16>().convert_to_f32_slice(values);
    }
    values
}

/// Refuses what the target cannot hold.
fn check(values: &[f32], limit: f32) -> Result<(), Refusal> {
    let largest = values.iter().fold(0_i32, |most, v| most.max((v.to_bits() & 0x7fff_ffff) as i32));
    if largest <= limit.to_bits() as i32 {
        return Ok(());
    }
    match values.iter().find(|v| !v.is_finite()) {
        Some(v) => Err(Refusal::NotFinite(*v)),
        None => Err(Refusal::TooLarge(f32::from_bits(largest as u32))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(bytes: &[u8]) -> Raw {
        let mut raw = Raw::default();
        raw.room(bytes.len()).copy_from_slice(bytes);
        raw
    }

    fn floats(values: &[f32]) -> Raw {
        raw(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn more_than_one_stride() {
        let values: Vec<f32> = (0..STRIDE as i32 * 2 + 64).map(|i| (i % 501) as f32 / 8.0 - 30.0).collect();
        let mut halves = Vec::new();
        convert(&floats(&values), TensorType::F32, TensorType::F16, &mut halves).unwrap();
        let expected: Vec<u8> = values.iter().flat_map(|&v| f16::from_f32(v).to_bits().to_le_bytes()).collect();
        assert_eq!(halves, expected);
        let mut back = Vec::new();
        convert(&raw(&halves), TensorType::F16, TensorType::F32, &mut back).unwrap();
        assert_eq!(back, values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(), "eighths are exact");

        let (mut from_f32, mut from_f16) = (Vec::new(), Vec::new());
        convert(&floats(&values), TensorType::F32, TensorType::Q8_0, &mut from_f32).unwrap();
        convert(&raw(&halves), TensorType::F16, TensorType::Q8_0, &mut from_f16).unwrap();
        assert_eq!(from_f32, from_f16);
        assert_eq!(from_f32, crate::llama::ggml_q8_0(&values));
    }

    #[test]
    fn bf16_is_the_upper_half_of_f32() {
        let mut out = Vec::new();
        convert(&raw(&[0x80, 0x3f, 0x20, 0xc1]), TensorType::Bf16, TensorType::F32, &mut out).unwrap();
        assert_eq!(out, [1.0_f32, -10.0].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn what_a_target_cannot_hold_is_refused() {
        let mut block = [0.5_f32; 32];
        for (value, to, refused) in [
            (65_519.0, TensorType::F16, None),
            (65_520.0, TensorType::F16, Some(Refusal::TooLarge(65_520.0))),
            (-8.3e6, TensorType::Q8_0, None),
            (-8.4e6, TensorType::Q8_0, Some(Refusal::TooLarge(8.4e6))),
            (f32::INFINITY, TensorType::F16, Some(Refusal::NotFinite(f32::INFINITY))),
        ] {
            block[7] = value;
            assert_eq!(convert(&floats(&block), TensorType::F32, to, &mut Vec::new()).err(), refused, "{value}");
        }
        block[7] = f32::NAN;
        let refused = convert(&floats(&block), TensorType::F32, TensorType::Q8_0, &mut Vec::new());
        assert!(matches!(refused, Err(Refusal::NotFinite(v)) if v.is_nan()));
    }
}
