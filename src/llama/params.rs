//! Parameters of models, contexts and samplers, as plain Rust values that are checked before native code sees them.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use llava_sys as sys;

use crate::error::{Error, Result};
use crate::gguf::{TensorType, TextFacts};

/// Called with the loaded fraction, 0.0 to 1.0; returning `false` stops the load with [`Error::Cancelled`].
///
/// It runs on the thread that loads. A panic in it is resumed after the native call has returned.
pub type Progress = Arc<dyn Fn(f32) -> bool + Send + Sync>;

/// How weights come into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LoadMode {
    /// Memory-map the file where the platform can.
    #[default]
    Mmap,
    /// Read the file into private memory.
    Read,
    /// Memory-map and lock the pages.
    MmapLocked,
}

/// When fused attention is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum FlashAttention {
    /// Where the device supports it.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always; making the context fails where the device cannot.
    On,
}

impl FlashAttention {
    pub(crate) fn to_native(self) -> i32 {
        match self {
            FlashAttention::Auto => sys::LLAMA_FLASH_ATTN_TYPE_AUTO,
            FlashAttention::Off => sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
            FlashAttention::On => sys::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        }
    }

    pub(crate) fn from_native(value: i32) -> Self {
        match value {
            v if v == sys::LLAMA_FLASH_ATTN_TYPE_DISABLED => FlashAttention::Off,
            v if v == sys::LLAMA_FLASH_ATTN_TYPE_ENABLED => FlashAttention::On,
            _ => FlashAttention::Auto,
        }
    }
}

macro_rules! kv_types {
    ($($variant:ident = $name:literal => $native:ident, $doc:literal;)*) => {
        /// Element type of the K or V cache.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
        #[non_exhaustive]
        pub enum KvType {
            $(#[doc = $doc] $variant,)*
            /// 16-bit floats.
            #[default]
            F16,
        }

        impl KvType {
            /// All names that [`KvType::from_name`] takes.
            pub const NAMES: &'static [&'static str] = &[$($name,)* "f16"];

            /// The type of a name as upstream's `-ctk` takes it.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(KvType::$variant),)*
                    "f16" => Some(KvType::F16),
                    _ => None,
                }
            }

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(KvType::$variant => $name,)*
                    KvType::F16 => "f16",
                }
            }

            /// Bytes of an element.
            #[must_use]
            pub fn bytes(self) -> f64 {
                TensorType::from_id(self.to_native() as u32).map_or(0.0, |t| t.block_bytes() as f64 / t.block_len() as f64)
            }

            pub(crate) fn to_native(self) -> sys::ggml_type {
                match self {
                    $(KvType::$variant => sys::$native,)*
                    KvType::F16 => sys::GGML_TYPE_F16,
                }
            }
        }
    };
}

kv_types! {
    F32 = "f32" => GGML_TYPE_F32, "32-bit floats.";
    Bf16 = "bf16" => GGML_TYPE_BF16, "Brain floats.";
    Q8_0 = "q8_0" => GGML_TYPE_Q8_0, "8-bit blocks of 32.";
    Q4_0 = "q4_0" => GGML_TYPE_Q4_0, "4-bit blocks of 32.";
    Q4_1 = "q4_1" => GGML_TYPE_Q4_1, "4-bit blocks of 32 with minimum.";
    Iq4Nl = "iq4_nl" => GGML_TYPE_IQ4_NL, "4-bit non-linear blocks of 32.";
    Q5_0 = "q5_0" => GGML_TYPE_Q5_0, "5-bit blocks of 32.";
    Q5_1 = "q5_1" => GGML_TYPE_Q5_1, "5-bit blocks of 32 with minimum.";
}

/// How to load a text model.
#[derive(Clone, Default)]
pub struct ModelParams {
    /// Layers to put on a GPU; `None` means all that fit where there is one.
    pub gpu_layers: Option<u32>,
    /// How weights come into memory.
    pub load_mode: LoadMode,
    /// Check every tensor's values while loading (slow).
    pub check_tensors: bool,
    /// Progress and cancel.
    pub progress: Option<Progress>,
}

impl std::fmt::Debug for ModelParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelParams")
            .field("gpu_layers", &self.gpu_layers)
            .field("load_mode", &self.load_mode)
            .field("check_tensors", &self.check_tensors)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}

/// How to make a context.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextParams {
    /// Positions the context holds; 0 takes the length that the model was trained with.
    pub n_ctx: u32,
    /// Most tokens submitted at once.
    pub n_batch: u32,
    /// Most tokens computed at once (micro-batch).
    pub n_ubatch: u32,
    /// Threads for single tokens; `None` takes [`super::physical_cores`].
    pub threads: Option<u32>,
    /// Threads for prompts; `None` takes `threads`.
    pub threads_batch: Option<u32>,
    /// Element type of the K cache.
    pub type_k: KvType,
    /// Element type of the V cache; a quantised one needs flash attention.
    pub type_v: KvType,
    /// When fused attention is used.
    pub flash_attention: FlashAttention,
    /// Independent sequences the KV cache can hold.
    pub n_seq_max: u32,
    /// Run one batch at creation, so that the first real one does not pay for page faults.
    pub warmup: bool,
}

impl ContextParams {
    /// Bytes that one position takes in the KV cache of a model. `None` where its facts do not say. Layers with a sliding window
    /// hold no more positions than the window has.
    #[must_use]
    pub fn kv_bytes_per_position(&self, facts: &TextFacts) -> Option<f64> {
        let (keys, values) = facts.kv_floats?;
        Some(keys as f64 * self.type_k.bytes() + values as f64 * self.type_v.bytes())
    }
}

impl Default for ContextParams {
    fn default() -> Self {
        Self {
            n_ctx: 0,
            n_batch: 2048,
            n_ubatch: 512,
            threads: None,
            threads_batch: None,
            type_k: KvType::F16,
            type_v: KvType::F16,
            flash_attention: FlashAttention::Auto,
            n_seq_max: 1,
            warmup: true,
        }
    }
}

/// How the next token is chosen: llama-mtmd-cli's chain, in its order, with its defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplerParams {
    /// 0 or below: always the most likely token.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 or below: all.
    pub top_k: i32,
    /// Keep the most likely tokens that together have this probability; 1: all.
    pub top_p: f32,
    /// Keep tokens at least this times as likely as the most likely one; 0: all.
    pub min_p: f32,
    /// Keep tokens near the typical surprise; 1: all.
    pub typical_p: f32,
    /// Keep tokens within this many standard deviations of the best logit; below 0: all.
    pub top_n_sigma: f32,
    /// Tokens looked back at for the penalties; 0: none.
    pub repeat_last_n: i32,
    /// Divides the logits of tokens seen lately; 1: none.
    pub repeat_penalty: f32,
    /// Subtracted per occurrence; 0: none.
    pub frequency_penalty: f32,
    /// Subtracted once; 0: none.
    pub presence_penalty: f32,
    /// Seed of the random choice; `None` draws one.
    pub seed: Option<u32>,
    /// A GBNF grammar whose rule `root` the answer has to follow.
    pub grammar: Option<String>,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self {
            temperature: 0.2,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
            grammar: None,
        }
    }
}

impl SamplerParams {
    /// The most likely token, always.
    #[must_use]
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Refuses what the native samplers would loop on, divide by or silently misread.
    pub(crate) fn validate(&self) -> Result<()> {
        let finite = [
            ("temp", self.temperature),
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("typical_p", self.typical_p),
            ("top_n_sigma", self.top_n_sigma),
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
        ];
        for (name, value) in finite {
            if !value.is_finite() {
                return Err(bad(name, value, "a finite number"));
            }
        }
        if !(self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0 && (1.0 / self.repeat_penalty).is_finite()) {
            return Err(bad("repeat_penalty", self.repeat_penalty, "finite and above 0"));
        }
        for (name, value) in [("top_p", self.top_p), ("min_p", self.min_p), ("typical_p", self.typical_p)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(bad(name, value, "0 to 1"));
            }
        }
        if !(-1..=1 << 20).contains(&self.repeat_last_n) {
            return Err(bad("repeat_last_n", self.repeat_last_n, "-1 (as many as 64) to 1048576"));
        }
        Ok(())
    }
}

fn bad(name: &'static str, value: impl ToString, reason: &str) -> Error {
    Error::BadParameter { name, value: value.to_string(), reason: reason.into() }
}

/// A [`Progress`] on its way through C: keeps a panic until the native call is over.
pub(crate) struct ProgressCall {
    progress: Option<Progress>,
    panic: Option<Box<dyn std::any::Any + Send>>,
    stopped: bool,
}

impl ProgressCall {
    pub(crate) fn new(progress: Option<Progress>) -> Self {
        Self { progress, panic: None, stopped: false }
    }

    /// Function and user data for the native parameter block; the data points at `self`.
    pub(crate) fn native(&mut self) -> (sys::llama_progress_callback, *mut c_void) {
        if self.progress.is_none() {
            return (None, std::ptr::null_mut());
        }
        (Some(on_progress), std::ptr::from_mut(self).cast())
    }

    /// After the native call: resumes a panic, and says whether the load was stopped on purpose.
    pub(crate) fn finish(self) -> bool {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
        self.stopped
    }
}

unsafe extern "C" fn on_progress(fraction: f32, user_data: *mut c_void) -> bool {
    // SAFETY: `native` handed out a pointer to a ProgressCall that outlives the native call and is used by it alone.
    let call = unsafe { &mut *user_data.cast::<ProgressCall>() };
    let Some(progress) = call.progress.clone() else { return true };
    match catch_unwind(AssertUnwindSafe(|| progress(fraction))) {
        Ok(true) => true,
        Ok(false) => {
            call.stopped = true;
            false
        }
        Err(panic) => {
            call.panic = Some(panic);
            false
        }
    }
}
