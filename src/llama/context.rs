//! A decoding context: the KV cache of one model, and what computes on it.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use llava_sys as sys;

use super::batch::{Batch, Content};
use super::ffi::{check, construct, slice_or_empty};
use super::log;
use super::model::Model;
use super::params::{ContextParams, KvType};
use super::threads::{Threadpool, physical_cores};
use super::vocab::Token;
use crate::error::{Error, Result};

/// Asks work in progress to stop; clones share one flag. It is looked at between the nodes of a graph on the CPU and
/// between micro-batches elsewhere.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that has not been cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop. Everything that holds a clone answers [`Error::Cancelled`] until [`CancelToken::reset`].
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether stopping was asked for.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Forgets an earlier [`CancelToken::cancel`].
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Callback and user data for native code. The data stays valid as long as `self` (or a clone) lives.
    pub(crate) fn native(&self) -> (sys::ggml_abort_callback, *mut c_void) {
        (Some(is_cancelled), Arc::as_ptr(&self.0).cast_mut().cast())
    }
}

unsafe extern "C" fn is_cancelled(user_data: *mut c_void) -> bool {
    // SAFETY: CancelToken::native handed out a pointer to its AtomicBool, kept alive by the token stored beside the context.
    unsafe { &*user_data.cast::<AtomicBool>() }.load(Ordering::Relaxed)
}

/// Owner of a `llama_context`.
#[derive(Debug)]
struct ContextOwner(NonNull<sys::llama_context>);

impl Drop for ContextOwner {
    fn drop(&mut self) {
        // SAFETY: made by llava_context_new, freed once, before its threadpool and model (field order in Context).
        unsafe { sys::llama_free(self.0.as_ptr()) };
    }
}

/// Owner of a `llama_batch_ext`.
#[derive(Debug)]
struct BatchOwner(NonNull<sys::llama_batch_ext>);

impl Drop for BatchOwner {
    fn drop(&mut self) {
        // SAFETY: made by llava_batch_new, freed once, before the context whose memory it names.
        unsafe { sys::llama_batch_ext_free(self.0.as_ptr()) };
    }
}

/// Entries whose pointers are only set inside [`Context::fill`].
#[derive(Debug)]
struct Entries(Vec<sys::llava_batch_entry>);

// SAFETY: a context has no thread affinity, and its entries hold no pointer between calls. It is not thread-safe, so Sync only
// holds because every native call that computes or changes it takes `&mut Context`.
unsafe impl Send for Context {}
// SAFETY: through a shared reference only getters of constant values and of finished outputs are reachable.
unsafe impl Sync for Context {}

/// A decoding context.
///
/// What it hands out borrows it, so the next computation cannot pull memory away from under it:
///
/// ```compile_fail,E0499
/// # fn f(context: &mut llava::llama::Context, batch: &llava::llama::Batch<'_>) {
/// let logits = context.logits();
/// context.decode(batch).unwrap(); // overwrites them
/// println!("{}", logits[0]);
/// # }
/// ```
#[derive(Debug)]
pub struct Context {
    // drop order: batch, context, threadpool, model
    batch: BatchOwner,
    owner: ContextOwner,
    _threads: Threadpool,
    model: Arc<Model>,
    cancel: CancelToken,
    n_ctx: u32,
    n_batch: u32,
    n_ubatch: u32,
    pub(super) n_seq_max: u32,
    /// Entries of the last decoded batch that asked for logits.
    pub(super) last_outputs: usize,
    /// Positions were moved and keys are yet to be turned, which the next batch does.
    pub(super) unturned: bool,
    params: ContextParams,
    /// Room for the native form of a batch; empty between calls.
    entries: Entries,
}

impl Context {
    /// Makes a context of `model`.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for parameters that native code would abort on, [`Error::ContextCreate`] with the native words
    /// where llama.cpp refuses them or memory is short.
    pub fn new(model: &Arc<Model>, params: &ContextParams) -> Result<Self> {
        let threads = params.threads.unwrap_or_else(physical_cores);
        let threads_batch = params.threads_batch.unwrap_or(threads);
        validate(model, params)?;
        let mut pool = Threadpool::new(threads.max(threads_batch))?;
        let cancel = CancelToken::new();

        let n_ctx = if params.n_ctx == 0 { model.n_ctx_train() } else { params.n_ctx };
        // SAFETY: a plain struct by value.
        let mut native = unsafe { sys::llama_context_default_params() };
        native.n_ctx = n_ctx;
        native.n_batch = params.n_batch.min(n_ctx.max(1));
        native.n_ubatch = params.n_ubatch.min(native.n_batch);
        native.n_seq_max = params.n_seq_max;
        native.n_threads = i32::try_from(threads).unwrap_or(1);
        native.n_threads_batch = i32::try_from(threads_batch).unwrap_or(1);
        native.flash_attn_type = params.flash_attention.to_native() as _;
        native.type_k = params.type_k.to_native();
        native.type_v = params.type_v.to_native();
        native.no_perf = true;
        // one sequence's full context is never split among sequences that are not used
        native.kv_unified = params.n_seq_max > 1;
        (native.abort_callback, native.abort_callback_data) = cancel.native();

        let failed = |reason| Error::ContextCreate { n_ctx, reason };
        let owner = construct(
            "llama_init_from_model",
            ContextOwner,
            // SAFETY: the model lives by Arc; parameters live through the call; `raw` is a valid place.
            |raw| unsafe { sys::llava_context_new(model.as_shared_mut_ptr(), &raw const native, raw) },
            failed,
        )?;
        // SAFETY: context and pool live; the pool is dropped after the context.
        let status = unsafe { sys::llava_context_set_threadpool(owner.0.as_ptr(), pool.as_mut_ptr()) };
        check("llama_attach_threadpool", status)?;
        let batch = construct(
            "llama_batch_ext_init",
            BatchOwner,
            // SAFETY: the context lives; `raw` is a valid place.
            |raw| unsafe { sys::llava_batch_new(owner.0.as_ptr(), raw) },
            failed,
        )?;
        let raw = owner.0.as_ptr();
        let mut context = Self {
            batch,
            owner,
            _threads: pool,
            model: Arc::clone(model),
            cancel,
            // SAFETY: the context lives.
            n_ctx: unsafe { sys::llama_n_ctx(raw) },
            // SAFETY: the context lives.
            n_batch: unsafe { sys::llama_n_batch(raw) },
            // SAFETY: the context lives.
            n_ubatch: unsafe { sys::llama_n_ubatch(raw) },
            n_seq_max: params.n_seq_max,
            last_outputs: 0,
            unturned: false,
            params: params.clone(),
            entries: Entries(Vec::new()),
        };
        if params.warmup {
            context.warm_up()?;
        }
        Ok(context)
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut sys::llama_context {
        self.owner.0.as_ptr()
    }

    pub(super) fn as_ptr(&self) -> *const sys::llama_context {
        self.owner.0.as_ptr()
    }

    /// For test oracles that drive the native context beside this handle.
    #[cfg(feature = "parity")]
    pub(crate) fn as_parity_ptr(&mut self) -> *mut sys::llama_context {
        self.as_mut_ptr()
    }

    /// After an oracle has decoded a prompt whose last token asked for logits.
    #[cfg(feature = "parity")]
    pub(crate) fn note_parity_outputs(&mut self) {
        self.last_outputs = 1;
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Positions it holds.
    #[must_use]
    pub fn n_ctx(&self) -> u32 {
        self.n_ctx
    }

    /// Most entries one [`Context::decode`] takes.
    #[must_use]
    pub fn n_batch(&self) -> u32 {
        self.n_batch
    }

    /// Most entries computed at once.
    #[must_use]
    pub fn n_ubatch(&self) -> u32 {
        self.n_ubatch
    }

    /// What it was made with.
    #[must_use]
    pub fn params(&self) -> &ContextParams {
        &self.params
    }

    /// A token that stops [`Context::decode`] from another thread.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Whether later entries may look at earlier ones only (the default), or all at all.
    pub fn set_causal(&mut self, causal: bool) {
        // SAFETY: the context lives and is borrowed mutably.
        unsafe { sys::llama_set_causal_attn(self.as_mut_ptr(), causal) };
    }

    /// Computes a batch and appends it to the KV cache.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for an entry that native code would misread or abort on (nothing was computed then);
    /// [`Error::Cancelled`], [`Error::ContextFull`] and [`Error::Decode`] otherwise. After those, micro-batches that were already
    /// computed are still in the KV cache: trim with [`Context::trim`]. [`Error::Native`] where memory for the batch is short.
    pub fn decode(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.check_batch(batch)?;
        self.fill(batch)?;
        let first = batch.entries[0].position.t;
        let mut ret = 0_i32;
        self.last_outputs = 0;
        let (status, lines) = log::capture(|| {
            // SAFETY: context and batch live; all entries were checked against the limits that native code asserts.
            let status = unsafe { sys::llava_process(self.owner.0.as_ptr(), self.batch.0.as_ptr(), &raw mut ret) };
            check("llama_process", status)
        });
        let failed = |status: i32, reason: String| Error::Decode {
            tokens: batch.len(),
            position: first,
            status,
            reason: log::with_lines(reason, &lines),
        };
        match status {
            Ok(()) => {}
            Err(Error::Native { reason, .. }) => return Err(failed(-3, reason)),
            Err(other) => return Err(other),
        }
        match ret {
            0 => {
                self.unturned = false;
                self.last_outputs = batch.entries.iter().filter(|e| e.logits).count();
                Ok(())
            }
            1 => Err(Error::ContextFull {
                needed: batch.len(),
                available: 0,
                n_ctx: self.n_ctx as usize,
                picture: None,
                advice: "raise -c, or clear the conversation".into(),
            }),
            2 => Err(Error::Cancelled),
            other => Err(failed(other, "llama_process refused the batch".into())),
        }
    }

    /// Checks everything that `llama_process` asserts or reads without checking.
    fn check_batch(&self, batch: &Batch<'_>) -> Result<()> {
        let bad = |name: &'static str, value: String, reason: String| Err(Error::BadParameter { name, value, reason });
        if batch.is_empty() || batch.len() > self.n_batch as usize {
            return bad("batch", batch.len().to_string(), format!("1 to n_batch = {} entries", self.n_batch));
        }
        // SAFETY: the context lives.
        let causal = unsafe { sys::llama_get_causal_attn(self.as_ptr()) };
        if !causal && batch.len() > self.n_ubatch as usize {
            return Err(Error::MicroBatchTooSmall { tokens: batch.len(), n_ubatch: self.n_ubatch as usize });
        }
        let vocab = self.model.vocab();
        let width = self.model.n_embd_input();
        let rows = batch.entries.iter().filter(|e| matches!(e.content, Content::Row(_))).count();
        if rows != 0 && rows != batch.len() {
            return bad(
                "batch",
                format!("{rows} rows among {} entries", batch.len()),
                "rows or tokens, not both".into(),
            );
        }
        for entry in &batch.entries {
            if u32::try_from(entry.sequence).map_or(true, |s| s >= self.n_seq_max) {
                return bad("sequence", entry.sequence.to_string(), format!("0 to {}", self.n_seq_max - 1));
            }
            if entry.position.sections().iter().any(|&p| p < 0) {
                return bad("position", format!("{:?}", entry.position), "not negative".into());
            }
            match entry.content {
                Content::Token(token) if !vocab.contains(token) => {
                    return bad("token", token.0.to_string(), format!("0 to {}", vocab.n_tokens().saturating_sub(1)));
                }
                Content::Row(row) if row.len() != width => {
                    return bad("row width", row.len().to_string(), format!("the model takes rows of {width}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn fill(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.entries.0.clear();
        self.entries.0.extend(batch.entries.iter().map(|entry| {
            let (token, row) = match entry.content {
                Content::Token(token) => (token.0, &[][..]),
                Content::Row(row) => (0, row),
            };
            sys::llava_batch_entry {
                row: if row.is_empty() { std::ptr::null() } else { row.as_ptr() },
                n_embd: row.len(),
                token,
                seq_id: entry.sequence,
                pos: entry.position.sections(),
                logits: entry.logits,
            }
        }));
        // SAFETY: the batch lives and is borrowed mutably through self; the entries were checked, and their rows live as
        // long as `batch`. llava_shim.h: "rows are copied".
        let status =
            unsafe { sys::llava_batch_fill(self.batch.0.as_ptr(), self.entries.0.as_ptr(), self.entries.0.len()) };
        self.entries.0.clear(); // no pointer outlives the rows
        check("llama_batch_ext_add", status)
    }

    /// Logits of the last entry that asked for them in the last [`Context::decode`], one per token of the vocabulary.
    /// Empty where none did.
    #[must_use]
    pub fn logits(&mut self) -> &[f32] {
        if self.last_outputs == 0 {
            return &[];
        }
        let n = self.model.vocab().n_tokens();
        // SAFETY: the context lives; -1 is the last output, of which there is at least one. It also waits for the computation.
        let data = unsafe { sys::llama_get_logits_ith(self.as_mut_ptr(), -1) };
        // SAFETY: llama.h: one row of n_vocab floats, valid until the next decode, which needs `&mut self`.
        unsafe { slice_or_empty(data, n) }
    }

    /// Runs one small batch and forgets it: touches all weights once, as upstream's tools do at start.
    fn warm_up(&mut self) -> Result<()> {
        let vocab = self.model.vocab();
        let tokens: Vec<Token> = [vocab.bos(), vocab.eos()].into_iter().flatten().collect();
        let tokens = if tokens.is_empty() { vec![Token(0)] } else { tokens };
        let mut batch = Batch::new();
        for (i, &token) in tokens.iter().take(self.n_batch as usize).enumerate() {
            batch.push_token(token, i32::try_from(i).unwrap_or(0), 0, true);
        }
        self.decode(&batch)?;
        self.clear()
    }
}

fn validate(model: &Model, params: &ContextParams) -> Result<()> {
    let bad = |name: &'static str, value: u32, reason: &str| {
        Err(Error::BadParameter { name, value: value.to_string(), reason: reason.into() })
    };
    if params.n_batch == 0 || params.n_batch > 1 << 20 {
        return bad("n_batch", params.n_batch, "1 to 1048576");
    }
    if params.n_ubatch == 0 || params.n_ubatch > 1 << 20 {
        return bad("n_ubatch", params.n_ubatch, "1 to 1048576");
    }
    if params.n_ctx > 1 << 28 {
        return bad("n_ctx", params.n_ctx, "0 (from the model) to 268435456");
    }
    if params.n_seq_max == 0 || params.n_seq_max > 256 {
        return bad("n_seq_max", params.n_seq_max, "1 to 256");
    }
    let n_ctx = if params.n_ctx == 0 { model.n_ctx_train() } else { params.n_ctx };
    if params.n_seq_max > params.n_batch.min(n_ctx.max(1)) {
        return bad("n_seq_max", params.n_seq_max, "at most n_batch and n_ctx");
    }
    if params.threads == Some(0) || params.threads_batch == Some(0) {
        return bad("threads", 0, "1 to 512");
    }
    if params.n_ctx == 0 && model.n_ctx_train() == 0 {
        return bad("n_ctx", 0, "the model file names no context length, give one");
    }
    let quantised = !matches!(params.type_v, KvType::F16 | KvType::F32 | KvType::Bf16);
    if quantised && params.flash_attention == super::params::FlashAttention::Off {
        return Err(Error::BadParameter {
            name: "type_v",
            value: params.type_v.name().into(),
            reason: "a quantised V cache needs flash attention".into(),
        });
    }
    if !model.is_decoder() {
        return Err(Error::ModelLoad {
            path: model.path().to_owned(),
            reason: format!("`{}` is an encoder: it cannot generate text", model.architecture()),
        });
    }
    Ok(())
}
