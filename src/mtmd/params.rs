//! Parameters of a projector.

use std::sync::Arc;

use super::tap::GraphTap;
use crate::llama::{FlashAttention, Progress};

/// Which numbers a vision tower with a class token gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum ClipLayout {
    /// As the model's authors defined it: class token first, the second to last layer's output.
    ///
    /// llama.cpp b11434 appends the class token after the patches although positions and row selection assume it first
    /// (llama.cpp#25814), and runs files of the usual converter one layer short (llama.cpp#25817). InternVL and CogVLM towers,
    /// whose class token is likewise appended, get their positions back. Files without a class token and with an explicit
    /// `clip.vision.feature_layer` give the same numbers either way. `docs/clip-layout.md` has the reasoning.
    #[default]
    Reference,
    /// Whatever libmtmd computes, for comparisons with upstream's tools.
    Upstream,
}

/// How to load a projector (mmproj) file.
#[derive(Clone)]
pub struct ProjectorParams {
    /// Encode on the CPU even where there is a GPU.
    pub cpu_only: bool,
    /// Threads of the encoder; `None` takes [`crate::llama::physical_cores`].
    pub threads: Option<u32>,
    /// When fused attention is used in the tower.
    pub flash_attention: FlashAttention,
    /// Skip the encoding of one blank picture at load. The first picture pays for it then.
    pub no_warmup: bool,
    /// Fewest visual tokens of a picture, where the projector takes any size; `None`: from the file.
    pub image_min_tokens: Option<u32>,
    /// Most visual tokens of a picture, likewise.
    pub image_max_tokens: Option<u32>,
    /// Most visual tokens encoded together, at least 1; a picture that has more goes alone.
    pub batch_max_tokens: u32,
    /// Which numbers a LLaVA tower gives.
    pub clip_layout: ClipLayout,
    /// Progress and cancel.
    pub progress: Option<Progress>,
    /// Somebody who looks into the graph while it is computed.
    pub tap: Option<Arc<dyn GraphTap>>,
}

impl Default for ProjectorParams {
    fn default() -> Self {
        Self {
            cpu_only: false,
            threads: None,
            flash_attention: FlashAttention::default(),
            no_warmup: false,
            image_min_tokens: None,
            image_max_tokens: None,
            batch_max_tokens: 1024, // upstream's
            clip_layout: ClipLayout::default(),
            progress: None,
            tap: None,
        }
    }
}

impl std::fmt::Debug for ProjectorParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProjectorParams")
            .field("cpu_only", &self.cpu_only)
            .field("threads", &self.threads)
            .field("flash_attention", &self.flash_attention)
            .field("no_warmup", &self.no_warmup)
            .field("image_min_tokens", &self.image_min_tokens)
            .field("image_max_tokens", &self.image_max_tokens)
            .field("batch_max_tokens", &self.batch_max_tokens)
            .field("clip_layout", &self.clip_layout)
            .field("progress", &self.progress.is_some())
            .field("tap", &self.tap.is_some())
            .finish()
    }
}
