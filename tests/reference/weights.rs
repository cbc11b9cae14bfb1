//! Weights of a GGUF file as f64.

use std::path::Path;

use llava::gguf::{GgufFile, TensorType};

use super::numbers::{LayerNorm, Linear, Matrix};

/// An opened projector file.
#[derive(Debug)]
pub struct Weights(GgufFile);

impl Weights {
    pub fn open(path: &Path) -> Weights {
        Weights(GgufFile::open(path).unwrap())
    }

    /// A number of the vision encoder.
    pub fn number(&self, key: &str) -> usize {
        self.0.require::<u32>(&format!("clip.vision.{key}")).unwrap() as usize
    }

    /// Epsilon of the norms, as f32 holds it.
    pub fn epsilon(&self) -> f64 {
        f64::from(self.0.require::<f32>("clip.vision.attention.layer_norm_epsilon").unwrap())
    }

    /// A flag; a missing one is off.
    pub fn flag(&self, key: &str) -> bool {
        self.0.get::<bool>(key).unwrap().unwrap_or(false)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.tensor(name).is_some()
    }

    /// A tensor with its extents in `ne` order; f32, f16 and q8_0 are understood.
    pub fn tensor(&self, name: &str) -> (Vec<usize>, Vec<f64>) {
        let info = self.0.tensor(name).unwrap_or_else(|| panic!("{name} is missing"));
        let bytes = self.0.read_tensor(name).unwrap();
        let values = match info.ggml_type {
            TensorType::F32 => bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
            TensorType::F16 => bytes.as_chunks().0.iter().map(|b| half(*b)).collect(),
            TensorType::Q8_0 => bytes
                .chunks_exact(34)
                .flat_map(|block| {
                    let scale = half([block[0], block[1]]);
                    block[2..].iter().map(move |&q| scale * f64::from(q as i8))
                })
                .collect(),
            other => panic!("{name} is stored as {other}"),
        };
        (info.dims.iter().map(|&d| usize::try_from(d).unwrap()).collect(), values)
    }

    /// All numbers of a tensor.
    pub fn vector(&self, name: &str) -> Vec<f64> {
        self.tensor(name).1
    }

    /// A matrix whose rows lie one after the other in the file.
    pub fn matrix(&self, name: &str) -> Matrix {
        let (dims, values) = self.tensor(name);
        Matrix::new(dims[0], values)
    }

    /// `name.weight` and, if there is one, `name.bias`.
    pub fn linear(&self, name: &str) -> Linear {
        let bias = format!("{name}.bias");
        Linear { weight: self.matrix(&format!("{name}.weight")), bias: self.has(&bias).then(|| self.vector(&bias)) }
    }

    pub fn norm(&self, name: &str, epsilon: f64) -> LayerNorm {
        let weight = self.vector(&format!("{name}.weight"));
        LayerNorm { weight, bias: self.vector(&format!("{name}.bias")), epsilon }
    }

    /// The patches of a picture after the convolution, in raster order. `pixels` is `[height, width, 3]`.
    pub fn patches(&self, pixels: &[f32], width_px: usize, height_px: usize) -> Matrix {
        let (dims, kernel) = self.tensor("v.patch_embd.weight");
        let (patch, channels, out) = (dims[0], dims[2], dims[3]);
        assert_eq!((dims[1], channels, pixels.len()), (patch, 3, width_px * height_px * 3));
        let bias = self.has("v.patch_embd.bias").then(|| self.vector("v.patch_embd.bias"));
        let mut data = Vec::new();
        for top in (0..=height_px - patch).step_by(patch) {
            for left in (0..=width_px - patch).step_by(patch) {
                for o in 0..out {
                    let mut sum = bias.as_ref().map_or(0.0, |b| b[o]);
                    for c in 0..channels {
                        for y in 0..patch {
                            for x in 0..patch {
                                let pixel = pixels[((top + y) * width_px + left + x) * 3 + c];
                                sum += kernel[x + patch * (y + patch * (c + channels * o))] * f64::from(pixel);
                            }
                        }
                    }
                    data.push(sum);
                }
            }
        }
        Matrix::new(out, data)
    }
}

/// IEEE half precision, little-endian.
pub fn half(bytes: [u8; 2]) -> f64 {
    let bits = u16::from_le_bytes(bytes);
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 => {
            if fraction == 0.0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}
