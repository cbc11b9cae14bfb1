//! Thin, safe handles over `llama.h`: one file per native object, no policy.
//!
//! What this room does: owns every native object of the text side, checks before each call what the native code would
//! abort on, turns status codes into [`crate::Error`], routes the native logs to `tracing`.
//! What it never does: decide anything (no templates, no caching, no defaults beyond upstream's), print, exit.
//! Who calls it: `mtmd`, `session`, and applications that need the floor below a session.

mod backend;
mod batch;
mod context;
mod ffi;
pub mod gemm;
pub(crate) mod log;
mod memory;
mod model;
mod params;
mod sampler;
mod state;
mod threads;
mod vocab;

pub use backend::{Backend, Device};
pub use batch::{Batch, Position};
pub use context::{CancelToken, Context};
pub use model::{Model, RopeKind};
pub use params::{ContextParams, FlashAttention, KvType, LoadMode, ModelParams, Progress, SamplerParams};
pub use sampler::Sampler;
pub use state::SequenceState;
pub use threads::physical_cores;
pub use vocab::{Token, Vocab};

#[cfg(test)]
pub(crate) use ffi::ggml_q8_0;
pub(crate) use ffi::{check, construct, slice_or_empty};
pub(crate) use model::path_to_c;
pub(crate) use params::ProgressCall;
