//! Weights of a resampler: reading them, and binding a file to a projector.

use std::path::Path;

use crate::error::{Error, Result};
use crate::gguf::{GgufFile, GgufWriter, TensorType, content_hash};

/// The key that names the projector a compressor was trained for: XXH3-128 of its file, 32 hexadecimal digits.
pub const FINGERPRINT_KEY: &str = "compressor.projector.fingerprint";

const ARCHITECTURE: &str = "llava-compressor";
/// Larger files are none of ours: refused before memory is taken.
const MOST: u64 = 1 << 16;

/// A matrix `[out, in]` and a bias.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

/// All tensors, and the numbers that give them shape.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) hash: u128,
    pub(super) queries: usize,
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) input: usize,
    pub(super) eps: f32,
    pub(super) query: Vec<f32>,
    pub(super) q: Linear,
    pub(super) k: Linear,
    pub(super) v: Linear,
    pub(super) out: Linear,
    pub(super) norm_weight: Vec<f32>,
    pub(super) norm_bias: Vec<f32>,
}

impl Weights {
    pub(super) fn read(path: &Path, projector: u128) -> Result<Self> {
        let hash = content_hash(path)?;
        let file = GgufFile::open(path)?;
        let architecture: &str = file.require("general.architecture")?;
        if architecture != ARCHITECTURE {
            return Err(file.bad_key("general.architecture", format!("is `{architecture}`, must be `{ARCHITECTURE}`")));
        }
        check_binding(&file, projector)?;
        let count = |name: &str| -> Result<u64> {
            let key = format!("{ARCHITECTURE}.{name}");
            let n = u64::from(file.require::<u32>(&key)?);
            if (1..=MOST).contains(&n) {
                Ok(n)
            } else {
                Err(file.bad_key(&key, format!("is {n}, must be 1 to {MOST}")))
            }
        };
        let (queries, heads, width, input) =
            (count("n_queries")?, count("n_heads")?, count("n_embd")?, count("n_input_tokens")?);
        if width % heads != 0 {
            let key = format!("{ARCHITECTURE}.n_heads");
            return Err(file.bad_key(&key, format!("is {heads}, must divide n_embd = {width}")));
        }
        if queries >= input {
            let key = format!("{ARCHITECTURE}.n_queries");
            return Err(file.bad_key(&key, format!("is {queries}, must be fewer than n_input_tokens = {input}")));
        }
        let eps_key = format!("{ARCHITECTURE}.layer_norm_eps");
        let eps: f32 = file.require(&eps_key)?;
        if !(eps > 0.0 && eps < 1.0) {
            return Err(file.bad_key(&eps_key, format!("is {eps}, must be between 0 and 1")));
        }
        let linear = |name: &str| -> Result<Linear> {
            Ok(Linear {
                weight: floats(&file, &format!("{name}.weight"), &[width, width])?,
                bias: floats(&file, &format!("{name}.bias"), &[width])?,
            })
        };
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Ok(Self {
            hash,
            queries: size(queries),
            heads: size(heads),
            width: size(width),
            input: size(input),
            eps,
            query: floats(&file, "query", &[width, queries])?,
            q: linear("attn_q")?,
            k: linear("attn_k")?,
            v: linear("attn_v")?,
            out: linear("attn_out")?,
            norm_weight: floats(&file, "norm.weight", &[width])?,
            norm_bias: floats(&file, "norm.bias", &[width])?,
        })
    }
}

fn check_binding(file: &GgufFile, projector: u128) -> Result<()> {
    let wanted = format!("{projector:032x}");
    let found: Option<&str> = file.get(FINGERPRINT_KEY)?;
    if found == Some(wanted.as_str()) {
        return Ok(());
    }
    Err(Error::CompressorMismatch {
        path: file.path().to_owned(),
        found: found.map_or_else(|| "none".into(), |f| f.chars().take(40).collect()),
        wanted,
    })
}

/// A tensor of this shape (in ggml's order) as finite floats.
fn floats(file: &GgufFile, name: &str, shape: &[u64]) -> Result<Vec<f32>> {
    let info = file.tensor(name).ok_or_else(|| file.bad_tensor(name, "is missing"))?;
    let fits = info.dims.len() <= 4 && (0..4).all(|i| info.dim(i) == shape.get(i).copied().unwrap_or(1));
    if !fits || info.ggml_type != TensorType::F32 {
        let reason = format!("is {:?} of {}, must be {shape:?} of f32", info.dims, info.ggml_type.name());
        return Err(file.bad_tensor(name, reason));
    }
    let bytes = file.read_tensor(name)?;
    let (words, _) = bytes.as_chunks::<4>();
    let values: Vec<f32> = words.iter().map(|&w| f32::from_le_bytes(w)).collect();
    if values.iter().any(|v| !v.is_finite()) {
        return Err(file.bad_tensor(name, "holds values that are not finite"));
    }
    Ok(values)
}

/// Copies a resampler's file to `out` and writes into it which projector it was trained for. That the weights really fit the
/// projector is for the caller to know.
///
/// # Errors
/// Those of [`GgufFile::open`], [`content_hash`] and [`GgufWriter::begin`]; [`Error::BadMetadata`] for a file of another
/// architecture.
pub fn bind_resampler(weights: impl AsRef<Path>, projector: impl AsRef<Path>, out: impl AsRef<Path>) -> Result<()> {
    let fingerprint = content_hash(projector)?;
    let file = GgufFile::open(weights)?;
    let architecture: &str = file.require("general.architecture")?;
    if architecture != ARCHITECTURE {
        return Err(file.bad_key("general.architecture", format!("is `{architecture}`, must be `{ARCHITECTURE}`")));
    }
    let mut writer = GgufWriter::new();
    for (key, value) in file.metadata().filter(|(key, _)| *key != FINGERPRINT_KEY) {
        writer.set(key, value.clone())?;
    }
    writer.set(FINGERPRINT_KEY, format!("{fingerprint:032x}").as_str())?;
    for tensor in file.tensors() {
        writer.declare(&tensor.name, &tensor.dims, tensor.ggml_type)?;
    }
    let out = out.as_ref();
    let mut sink = writer.begin(out)?;
    for tensor in file.tensors() {
        let bytes = file.read_tensor(&tensor.name)?;
        sink.tensor(|to| to.put(&bytes))?;
    }
    sink.finish()?;
    Ok(())
}
