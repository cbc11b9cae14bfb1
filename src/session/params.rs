//! Parameters of a session.

use std::sync::Arc;

use super::compression::ImagePositions;
use super::snapshots::KvSnapshots;
use super::template::{TemplateEngine, UserTemplate};
use crate::compress::{Compressor, Policy};
use crate::embedding::{CacheConfig, EmbeddingCache};
use crate::llama::{ContextParams, SamplerParams};

/// How a session computes, chooses and stops.
#[derive(Debug, Clone)]
pub struct SessionParams {
    /// The context. Its micro-batch is raised where the projector's pictures need it.
    pub context: ContextParams,
    /// How tokens are chosen.
    pub sampler: SamplerParams,
    /// The chat template; `None` takes the model file's.
    pub template: Option<UserTemplate>,
    /// How a template's source is used.
    pub template_engine: TemplateEngine,
    /// Most tokens of an answer; `None`: until the model ends it or the context is full.
    pub max_tokens: Option<usize>,
    /// Texts that end an answer; they are not part of it.
    pub stop: Vec<String>,
    /// Where encoded pictures are kept; `None` encodes every picture that the KV cache does not hold. Clones of these parameters
    /// share it; keys keep projectors apart.
    pub cache: Option<Arc<EmbeddingCache>>,
    /// Where the KV cache's state behind pictures is kept, so that another session with the same beginning needs neither
    /// encoder nor prefill; `None` keeps none. States are large: some megabytes for each picture.
    pub snapshots: Option<Arc<KvSnapshots>>,
    /// How many visual tokens each picture keeps; by default all, and answers are what they are without compression.
    pub visual_tokens: Policy,
    /// How the others are left out; `None`: [`Method::DivC`](crate::compress::Method::DivC) with its default options.
    pub compressor: Option<Arc<dyn Compressor>>,
    /// Where rows of compressed pictures stand.
    pub image_positions: ImagePositions,
    /// Write control tokens that do not end the answer as their text, as upstream's tools do.
    pub show_special: bool,
}

impl Default for SessionParams {
    fn default() -> Self {
        Self {
            context: ContextParams::default(),
            sampler: SamplerParams::default(),
            template: None,
            template_engine: TemplateEngine::Jinja,
            max_tokens: None,
            stop: Vec::new(),
            cache: Some(EmbeddingCache::new(CacheConfig::default())),
            snapshots: None,
            visual_tokens: Policy::default(),
            compressor: None,
            image_positions: ImagePositions::default(),
            show_special: true,
        }
    }
}
