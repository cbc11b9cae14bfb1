//! Choosing the next token: llama-mtmd-cli's chain in its order, and its way of applying a grammar.

use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

use llava_sys as sys;

use super::context::Context;
use super::ffi::{check, construct};
use super::model::Model;
use super::params::SamplerParams;
use super::vocab::Token;
use crate::error::{Error, Result};

/// Deepest nesting of brackets in a grammar.
const MAX_GRAMMAR_DEPTH: usize = 256;

/// Most rules of a grammar.
const MAX_GRAMMAR_RULES: usize = 2048;
/// Most bytes of a grammar's text.
const MAX_GRAMMAR_BYTES: usize = 256 << 10;

/// Owner of a `llama_sampler` (a chain owns the samplers in it).
#[derive(Debug)]
struct SamplerOwner(NonNull<sys::llama_sampler>);

impl Drop for SamplerOwner {
    fn drop(&mut self) {
        // SAFETY: made by an init function, never handed to a chain after that, freed once.
        unsafe { sys::llama_sampler_free(self.0.as_ptr()) };
    }
}

// SAFETY: samplers have no thread affinity; every call that changes one takes `&mut Sampler`.
unsafe impl Send for Sampler {}
// SAFETY: nothing is reachable through a shared reference but the parameters.
unsafe impl Sync for Sampler {}

/// Chooses tokens for one sequence and remembers what it chose.
#[derive(Debug)]
pub struct Sampler {
    // drop order: samplers before the vocabulary they point into
    chain: SamplerOwner,
    grammar: Option<SamplerOwner>,
    model: Arc<Model>,
    params: SamplerParams,
    candidates: Vec<sys::llama_token_data>,
}

impl Sampler {
    /// Builds the chain: suppressed tokens, penalties, top-n-sigma, top-k, typical, top-p, min-p, temperature, choice.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for values that native samplers misread, [`Error::Grammar`] where the grammar does not parse,
    /// [`Error::Native`] where memory is short.
    pub fn new(model: &Arc<Model>, params: &SamplerParams) -> Result<Self> {
        params.validate()?;
        let chain = build_chain(model, params)?;
        let grammar = params.grammar.as_deref().map(|g| build_grammar(model, g)).transpose()?;
        Ok(Self { chain, grammar, model: Arc::clone(model), params: params.clone(), candidates: Vec::new() })
    }

    /// What it was built with.
    #[must_use]
    pub fn params(&self) -> &SamplerParams {
        &self.params
    }

    /// Forgets the tokens chosen so far and starts the random sequence and the grammar anew.
    ///
    /// # Errors
    /// [`Error::Grammar`] as for [`Sampler::new`], [`Error::Native`] where memory is short.
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: the chain lives and is borrowed mutably.
        check("llama_sampler_reset", unsafe { sys::llava_sampler_reset(self.chain.0.as_ptr()) })?;
        if let Some(text) = self.params.grammar.as_deref() {
            self.grammar = Some(build_grammar(&self.model, text)?);
        }
        Ok(())
    }

    /// Chooses a token from the logits of the context's last output.
    ///
    /// # Errors
    /// [`Error::Native`] where the last batch asked for no logits, [`Error::NonFinite`] where one is NaN,
    /// [`Error::Grammar`] where the grammar leaves no token.
    pub fn sample(&mut self, context: &mut Context) -> Result<Token> {
        let logits = context.logits();
        if logits.is_empty() {
            return Err(Error::Native {
                call: "llama_get_logits_ith",
                reason: "the last batch asked for no logits".into(),
            });
        }
        self.choose(logits)
    }

    /// Chooses a token from `logits`, one per token of the vocabulary.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub fn choose(&mut self, logits: &[f32]) -> Result<Token> {
        let n_vocab = self.model.vocab().n_tokens();
        if logits.len() != n_vocab {
            return Err(Error::BadParameter {
                name: "logits",
                value: logits.len().to_string(),
                reason: format!("one for each of {n_vocab} tokens"),
            });
        }
        let nan = logits.iter().filter(|l| l.is_nan()).count();
        if nan > 0 {
            return Err(Error::NonFinite { count: nan, rows: 1, width: logits.len(), retried_in_f32: false });
        }
        self.set_candidates(logits);
        let chosen = apply(&mut self.chain, &mut self.candidates)?;
        let Some(grammar) = &mut self.grammar else { return Ok(chosen) };

        // Most choices fit the grammar, and checking one token is much cheaper than checking all of them.
        let mut single = [sys::llama_token_data { id: chosen.0, logit: 1.0, p: 0.0 }];
        apply_only(grammar, &mut single)?;
        if single[0].logit != f32::NEG_INFINITY {
            return Ok(chosen);
        }
        self.set_candidates(logits);
        let Some(grammar) = &mut self.grammar else { return Ok(chosen) };
        apply_only(grammar, &mut self.candidates)?;
        self.candidates.retain(|c| c.logit != f32::NEG_INFINITY);
        if self.candidates.is_empty() {
            return Err(Error::Grammar {
                reason: "no token of this model's vocabulary can follow what was written".into(),
            });
        }
        apply(&mut self.chain, &mut self.candidates)
    }

    /// Tells the chain (penalties) and the grammar that `token` was taken.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a token that is not of the vocabulary, [`Error::Grammar`] where the grammar cannot go on,
    /// [`Error::Native`] where memory is short.
    pub fn accept(&mut self, token: Token) -> Result<()> {
        let vocab = self.model.vocab();
        if !vocab.contains(token) {
            return Err(Error::BadParameter {
                name: "token",
                value: token.0.to_string(),
                reason: format!("0 to {}", vocab.n_tokens().saturating_sub(1)),
            });
        }
        if let Some(grammar) = &mut self.grammar {
            // native code aborts on a token that cannot follow, so it is asked first
            let mut single = [sys::llama_token_data { id: token.0, logit: 1.0, p: 0.0 }];
            apply_only(grammar, &mut single)?;
            if single[0].logit == f32::NEG_INFINITY {
                return Err(Error::Grammar { reason: format!("token {} cannot follow what was written", token.0) });
            }
            // SAFETY: the grammar lives and is borrowed mutably.
            let status = unsafe { sys::llava_sampler_accept(grammar.0.as_ptr(), token.0) };
            check("llama_sampler_accept", status).map_err(|e| Error::Grammar { reason: e.to_string() })?;
        }
        // SAFETY: the chain lives and is borrowed mutably.
        check("llama_sampler_accept", unsafe { sys::llava_sampler_accept(self.chain.0.as_ptr(), token.0) })
    }

    fn set_candidates(&mut self, logits: &[f32]) {
        self.candidates.clear();
        self.candidates.extend((0_i32..).zip(logits).map(|(id, &logit)| sys::llama_token_data { id, logit, p: 0.0 }));
    }
}

fn apply_only(sampler: &mut SamplerOwner, candidates: &mut [sys::llama_token_data]) -> Result<()> {
    let mut array = sys::llama_token_data_array {
        data: candidates.as_mut_ptr(),
        size: candidates.len(),
        selected: -1,
        sorted: false,
    };
    // SAFETY: the sampler lives; the array describes `candidates`, which outlives the call.
    check("llama_sampler_apply", unsafe { sys::llava_sampler_apply(sampler.0.as_ptr(), &raw mut array) })
}

/// Applies a chain that ends in a choice; the candidates are left in the chain's order.
fn apply(chain: &mut SamplerOwner, candidates: &mut [sys::llama_token_data]) -> Result<Token> {
    let mut array = sys::llama_token_data_array {
        data: candidates.as_mut_ptr(),
        size: candidates.len(),
        selected: -1,
        sorted: false,
    };
    // SAFETY: the sampler lives; the array describes `candidates`, which outlives the call.
    check("llama_sampler_apply", unsafe { sys::llava_sampler_apply(chain.0.as_ptr(), &raw mut array) })?;
    // llama.h: "NOTE: this pointer can be modified by the samplers", so the result is read through the array.
    let len = array.size;
    // SAFETY: the array is what the samplers left: `size` entries at `data`.
    let left = unsafe { super::ffi::slice_or_empty(array.data, len) };
    usize::try_from(array.selected)
        .ok()
        .and_then(|i| left.get(i))
        .map(|c| Token(c.id))
        .ok_or_else(|| Error::Native { call: "llama_sampler_apply", reason: "the chain chose no token".into() })
}

/// Refuses what the native parser would run out of stack, memory or patience on: many rules that lead to each other, and
/// repetitions whose greatest count is below the least.
fn check_size(text: &str) -> Result<()> {
    let refuse = |reason: String| Err(Error::Grammar { reason });
    if text.len() > MAX_GRAMMAR_BYTES {
        return refuse(format!("{} bytes, {MAX_GRAMMAR_BYTES} are the most", text.len()));
    }
    let rules = text.matches("::=").count();
    if rules > MAX_GRAMMAR_RULES {
        return refuse(format!("{rules} rules, {MAX_GRAMMAR_RULES} are the most"));
    }
    for open in text.split('{').skip(1) {
        let inside = open.split('}').next().unwrap_or("");
        if let Some((least, most)) = inside.split_once(',')
            && let (Ok(least), Ok(most)) = (least.trim().parse::<u64>(), most.trim().parse::<u64>())
            && most < least
        {
            return refuse(format!("the repetition {{{inside}}} ends before it begins"));
        }
    }
    Ok(())
}

/// Deepest nesting of brackets, those in literals and character classes counted too: an upper bound is enough.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn build_grammar(model: &Arc<Model>, text: &str) -> Result<SamplerOwner> {
    let c_text = CString::new(text).map_err(|_| Error::Grammar { reason: "the text holds a NUL byte".into() })?;
    if text.trim().is_empty() {
        return Err(Error::Grammar { reason: "the text is empty".into() });
    }
    check_size(text)?;
    // the native parser calls itself for every bracket
    let depth = nesting(text);
    if depth > MAX_GRAMMAR_DEPTH {
        let reason = format!("brackets are nested {depth} deep, {MAX_GRAMMAR_DEPTH} are the most");
        return Err(Error::Grammar { reason });
    }
    construct(
        "llama_sampler_init_grammar",
        SamplerOwner,
        // SAFETY: the vocabulary lives by the model, the texts through the call, and `raw` is a valid place.
        |raw| unsafe { sys::llava_grammar_new(model.vocab().as_ptr(), c_text.as_ptr(), c"root".as_ptr(), raw) },
        |reason| Error::Grammar { reason },
    )
}

fn build_chain(model: &Arc<Model>, params: &SamplerParams) -> Result<SamplerOwner> {
    let vocab = model.vocab();
    let biases: Vec<_> =
        vocab.suppressed().iter().map(|t| sys::llama_logit_bias { token: t.0, bias: f32::NEG_INFINITY }).collect();
    let native = sys::llava_sampler_params {
        biases: biases.as_ptr(),
        n_biases: biases.len(),
        n_vocab: i32::try_from(vocab.n_tokens()).unwrap_or(i32::MAX),
        penalty_last_n: if params.repeat_last_n < 0 { 64 } else { params.repeat_last_n },
        penalty_repeat: params.repeat_penalty,
        penalty_freq: params.frequency_penalty,
        penalty_present: params.presence_penalty,
        top_n_sigma: params.top_n_sigma,
        top_k: params.top_k,
        typ_p: params.typical_p,
        top_p: params.top_p,
        min_p: params.min_p,
        temp: params.temperature,
        // the native default seed draws one
        seed: params.seed.unwrap_or(sys::LLAMA_DEFAULT_SEED),
    };
    construct(
        "llama_sampler_chain_init",
        SamplerOwner,
        // SAFETY: plain numbers, checked by SamplerParams::validate; the biases live through the call, which copies them.
        |raw| unsafe { sys::llava_sampler_chain_new(&raw const native, raw) },
        |reason| Error::Native { call: "llama_sampler_chain_init", reason },
    )
}
