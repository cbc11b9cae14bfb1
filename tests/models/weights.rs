//! Seeded numbers, and a GGUF file put together from them.

use std::path::Path;

use llava::Result;
use llava::gguf::{GgufWriter, TensorType, Value};

/// SplitMix64 (Steele, Lea, Flood 2014): one multiplication-xorshift chain per number, any seed is good.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of one named thing under a seed, so that adding a tensor does not change the others.
    pub fn of(seed: u64, name: &str) -> Random {
        // FNV-1a of the name.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)` with 24 bits.
    pub fn unit(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// About normal with variance 1: the sum of 12 uniform numbers. Only additions, so every machine gets the same bits.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}

/// A model file in the making.
#[derive(Debug)]
pub struct Draft {
    seed: u64,
    matrices: TensorType,
    writer: GgufWriter,
    data: Vec<Vec<u8>>,
}

impl Draft {
    /// An empty file whose tensors follow from `seed`.
    pub fn new(seed: u64, matrices: TensorType) -> Draft {
        Draft { seed, matrices, writer: GgufWriter::new(), data: Vec::new() }
    }

    /// Appends a key.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> Result<()> {
        self.writer.set(key, value).map(drop)
    }

    /// Appends a tensor with given elements.
    pub fn put(&mut self, name: &str, dims: &[u64], ggml_type: TensorType, values: &[f32]) -> Result<()> {
        self.writer.declare(name, dims, ggml_type)?;
        self.data.push(encode(ggml_type, values));
        Ok(())
    }

    /// Normal numbers around `mean`, f32: norms, biases, tables.
    pub fn around(&mut self, name: &str, dims: &[u64], mean: f32, deviation: f32) -> Result<()> {
        let values = self.numbers(name, dims, mean, deviation);
        self.put(name, dims, TensorType::F32, &values)
    }

    /// A matrix `[rows_in, out]` that keeps the size of its input times `gain`.
    pub fn matrix(&mut self, name: &str, rows_in: u64, out: u64, gain: f32) -> Result<()> {
        self.stack(name, &[rows_in, out], gain)
    }

    /// Matrices of the same shape, one behind the other: `dims` are `rows_in`, `out` and their number.
    pub fn stack(&mut self, name: &str, dims: &[u64], gain: f32) -> Result<()> {
        let values = self.numbers(name, dims, 0.0, gain / (dims[0] as f32).sqrt());
        let fits = dims[0].is_multiple_of(self.matrices.block_len());
        self.put(name, dims, if fits { self.matrices } else { TensorType::F16 }, &values)
    }

    /// A tensor that llama.cpp convolves or transposes: never quantised.
    pub fn plain(&mut self, name: &str, dims: &[u64], deviation: f32) -> Result<()> {
        let values = self.numbers(name, dims, 0.0, deviation);
        let stored = if self.matrices == TensorType::F32 { TensorType::F32 } else { TensorType::F16 };
        self.put(name, dims, stored, &values)
    }

    /// The random numbers of one tensor.
    pub fn numbers(&self, name: &str, dims: &[u64], mean: f32, deviation: f32) -> Vec<f32> {
        let mut random = Random::of(self.seed, name);
        (0..dims.iter().product::<u64>()).map(|_| mean + deviation * random.normal()).collect()
    }

    /// How matrices are stored.
    pub fn matrices(&self) -> TensorType {
        self.matrices
    }

    /// Writes the file.
    pub fn write(self, path: &Path) -> Result<()> {
        let mut sink = self.writer.begin(path)?;
        for bytes in &self.data {
            sink.tensor(|out| out.put(bytes))?;
        }
        sink.finish()
    }
}

/// Stores numbers as f32, f16, q4_0 or q8_0.
fn encode(ggml_type: TensorType, values: &[f32]) -> Vec<u8> {
    match ggml_type {
        TensorType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        TensorType::F16 => values.iter().flat_map(|v| half(*v).to_le_bytes()).collect(),
        TensorType::Q8_0 => values
            .chunks(32)
            .flat_map(|block| {
                let largest = block.iter().fold(0f32, |m, v| m.max(v.abs()));
                let scale = largest / 127.0;
                let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                let quants = block.iter().map(move |v| (v * inverse).round() as i8 as u8);
                half(scale).to_le_bytes().into_iter().chain(quants)
            })
            .collect(),
        TensorType::Q4_0 => values
            .chunks(32)
            .flat_map(|block| {
                // sixteen steps, of which the eighth is zero
                let scale = block.iter().fold(0f32, |m, v| m.max(v.abs())) / 7.5;
                let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                let quant = move |v: f32| (v * inverse + 8.0).round().clamp(0.0, 15.0) as u8;
                let pairs: Vec<u8> = (0..16).map(|i| quant(block[i]) | quant(block[i + 16]) << 4).collect();
                half(scale).to_le_bytes().into_iter().chain(pairs)
            })
            .collect(),
        other => panic!("the generator does not write {other}"),
    }
}

/// IEEE half precision, round to nearest even.
pub fn half(v: f32) -> u16 {
    let bits = v.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x4780_0000 {
        // 65536 and above, infinity, NaN.
        return sign | if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    }
    if magnitude < 0x3880_0000 {
        // Below 2^-14: multiples of 2^-24. The product is exact, `round_ties_even` rounds once.
        return sign | (f32::from_bits(magnitude) * 16_777_216.0).round_ties_even() as u16;
    }
    let rounded = magnitude + 0x0fff + ((magnitude >> 13) & 1);
    sign | ((rounded - 0x3800_0000) >> 13) as u16
}
