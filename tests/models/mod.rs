//! Tiny pairs of text model and projector with random weights, one file per family.
//!
//! Everything follows from the seed: the same options give the same bytes on every machine. The files are complete
//! models for llama.cpp (which answers with nonsense), a few hundred kilobytes large, and small enough for an
//! independent forward pass in plain Rust. Weights are scaled so that every stage keeps values of about one, attention
//! is neither flat nor one-hot, and another picture gives other logits.

mod gemma3;
mod idefics3;
mod llava15;
mod mamba;
mod qwen2vl;
mod text;
mod tower;
mod vocabulary;
mod weights;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use llava::Result;
use llava::gguf::TensorType;

/// The projector families, each with the text architecture that its real models have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `mlp` with `llama`: LLaVA 1.5; one square picture, causal attention.
    Llava15,
    /// `qwen2vl_merger` with `qwen2vl`: any picture size, M-RoPE positions.
    Qwen2Vl,
    /// `gemma3` with `gemma3`: one square picture that attends to itself in both directions, sliding windows.
    Gemma3,
    /// `idefics3` with `llama`: an overview and tiles with row and column tokens.
    Idefics3,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 4] = [Family::Llava15, Family::Qwen2Vl, Family::Gemma3, Family::Idefics3];

    /// `clip.projector_type`.
    pub fn projector_type(self) -> &'static str {
        match self {
            Family::Llava15 => "mlp",
            Family::Qwen2Vl => "qwen2vl_merger",
            Family::Gemma3 => "gemma3",
            Family::Idefics3 => "idefics3",
        }
    }

    /// `general.architecture` of the text model.
    pub fn architecture(self) -> &'static str {
        match self {
            Family::Llava15 | Family::Idefics3 => "llama",
            Family::Qwen2Vl => "qwen2vl",
            Family::Gemma3 => "gemma3",
        }
    }
}

/// How a pair is made. Change fields after [`Options::new`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Which family.
    pub family: Family,
    /// All weights follow from it.
    pub seed: u64,
    /// Side of the square picture or tile; a multiple of the patch size, 14 (idefics3 and gemma3: of 28).
    pub image_size_px: u32,
    /// Vision layers whose tensors are in the file.
    pub stored_layers: u32,
    /// `clip.vision.block_count`; `None` says the truth.
    pub block_count: Option<u32>,
    /// `clip.vision.feature_layer`.
    pub feature_layers: Option<Vec<i32>>,
    /// Class token (`v.class_embd`) and one more position; LLaVA 1.5 only.
    pub class_token: bool,
    /// Norm before the first vision layer.
    pub pre_norm: bool,
    /// Norm after the last vision layer.
    pub post_norm: bool,
    /// Biases of the vision layers' matrices (Qwen2-VL cannot do without those of q, k and v).
    pub biases: bool,
    /// Width of the projector's rows; another one than the text model's gives a pair that does not fit.
    pub projector_width: u64,
    /// How matrices are stored, in both files: f32, f16 (default), q4_0 or q8_0 (rows that are no multiple of 32 and what
    /// llama.cpp cannot use quantised stay f16).
    pub matrices: TensorType,
    /// Whether the text model carries a chat template.
    pub chat_template: bool,
    /// A text model without attention (`mamba`), whose memory cannot be cut; LLaVA 1.5 only.
    pub recurrent: bool,
    /// Experts in the text model's layers, of which each token uses two; 0 for none. LLaVA 1.5 and Idefics3 only.
    pub experts: u32,
    /// Only printable ASCII can win a greedy choice (default), so that answers are text; `false` lets every token.
    pub printable: bool,
}

impl Options {
    /// The usual model of a family.
    pub fn new(family: Family, seed: u64) -> Options {
        Options {
            family,
            seed,
            image_size_px: if family == Family::Llava15 { 84 } else { 56 },
            stored_layers: 3,
            block_count: None,
            feature_layers: None,
            class_token: family == Family::Llava15,
            pre_norm: family == Family::Llava15,
            post_norm: matches!(family, Family::Gemma3 | Family::Idefics3),
            biases: true,
            projector_width: text::WIDTH,
            matrices: TensorType::F16,
            chat_template: true,
            recurrent: false,
            experts: 0,
            printable: true,
        }
    }
}

/// Two files that belong together.
#[derive(Debug, Clone)]
pub struct Pair {
    /// The text model.
    pub text: PathBuf,
    /// The projector (`mmproj`).
    pub projector: PathBuf,
}

/// Writes the usual pair of a family into `dir`.
pub fn pair(dir: &Path, family: Family, seed: u64) -> Result<Pair> {
    pair_with(dir, &Options::new(family, seed))
}

/// Writes a pair into `dir`, as `<projector type>-text.gguf` and `<projector type>-mmproj.gguf`.
pub fn pair_with(dir: &Path, options: &Options) -> Result<Pair> {
    let name = options.family.projector_type();
    let pair = Pair { text: dir.join(format!("{name}-text.gguf")), projector: dir.join(format!("{name}-mmproj.gguf")) };
    text::write(&pair.text, options)?;
    match options.family {
        Family::Llava15 => llava15::projector(options)?,
        Family::Qwen2Vl => qwen2vl::projector(options)?,
        Family::Gemma3 => gemma3::projector(options)?,
        Family::Idefics3 => idefics3::projector(options)?,
    }
    .write(&pair.projector)?;
    Ok(pair)
}
