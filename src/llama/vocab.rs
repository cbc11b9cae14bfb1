//! Tokens and text.

use llava_sys as sys;

use super::ffi::check;
use super::model::Model;
use crate::error::{Error, Result};

/// A token id, valid for the vocabulary it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i32);

/// The vocabulary of a model: a view that the model outlives.
///
/// ```compile_fail,E0597
/// use llava::llama::{Model, ModelParams};
/// let vocab = {
///     let model = Model::load("model.gguf", &ModelParams::default())?;
///     model.vocab() // the model is freed here
/// };
/// println!("{}", vocab.n_tokens());
/// # Ok::<(), llava::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Vocab<'m> {
    raw: *const sys::llama_vocab,
    // ties the pointer to the model it points into
    model: &'m Model,
}

// SAFETY: the vocabulary is part of a loaded model and never changes; see Model.
unsafe impl Send for Vocab<'_> {}
// SAFETY: as above.
unsafe impl Sync for Vocab<'_> {}

impl<'m> Vocab<'m> {
    pub(super) fn of(model: &'m Model) -> Self {
        // SAFETY: the model lives at least for 'm, and its vocabulary as long as it.
        let raw = unsafe { sys::llama_model_get_vocab(model.as_ptr()) };
        Self { raw, model }
    }

    pub(super) fn as_ptr(&self) -> *const sys::llama_vocab {
        self.raw
    }

    /// The model it belongs to.
    #[must_use]
    pub fn model(&self) -> &'m Model {
        self.model
    }

    /// Number of tokens.
    #[must_use]
    pub fn n_tokens(&self) -> usize {
        // SAFETY: the vocabulary lives.
        usize::try_from(unsafe { sys::llama_vocab_n_tokens(self.raw) }).unwrap_or(0)
    }

    /// Whether `token` is one of this vocabulary's.
    #[must_use]
    pub fn contains(&self, token: Token) -> bool {
        usize::try_from(token.0).is_ok_and(|id| id < self.n_tokens())
    }

    /// Splits text into tokens.
    ///
    /// `add_special` adds what the model wants at the beginning and end (BOS, EOS); `parse_special` reads the text of control
    /// tokens as those tokens.
    ///
    /// # Errors
    /// [`Error::Tokenize`] where the text is too long to count or the tokenizer fails.
    pub fn tokenize(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<Token>> {
        let failed = |reason: String| Error::Tokenize { bytes: text.len(), reason };
        if i32::try_from(text.len()).is_err() {
            return Err(failed("longer than 2 GiB".into()));
        }
        // one token per byte and two special ones is the most that tokenizers give; they say so when it is not
        let mut tokens: Vec<i32> = vec![0; text.len() + 2];
        for _ in 0..2 {
            let mut n = 0_i32;
            // SAFETY: the vocabulary lives; text and tokens are valid for the lengths given.
            let status = unsafe {
                sys::llava_tokenize(
                    self.raw,
                    text.as_ptr().cast(),
                    text.len(),
                    tokens.as_mut_ptr(),
                    tokens.len(),
                    add_special,
                    parse_special,
                    &raw mut n,
                )
            };
            check("llama_tokenize", status).map_err(|e| failed(e.to_string()))?;
            if let Ok(n) = usize::try_from(n) {
                tokens.truncate(n);
                return Ok(tokens.into_iter().map(Token).collect());
            }
            tokens = vec![0; n.unsigned_abs() as usize];
        }
        Err(failed("the tokenizer asked for more room twice".into()))
    }

    /// Appends the bytes of a token to `out`; they need not be whole UTF-8. `special` writes control tokens as their text,
    /// otherwise they give nothing.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a token that is not of this vocabulary.
    pub fn piece_into(&self, token: Token, special: bool, out: &mut Vec<u8>) -> Result<()> {
        if !self.contains(token) {
            return Err(Error::BadParameter {
                name: "token",
                value: token.0.to_string(),
                reason: format!("0 to {}", self.n_tokens().saturating_sub(1)),
            });
        }
        let mut buf = vec![0_u8; 64];
        for _ in 0..2 {
            let mut n = 0_i32;
            // SAFETY: the vocabulary lives; the buffer is valid for its length.
            let status = unsafe {
                sys::llava_token_to_piece(self.raw, token.0, buf.as_mut_ptr().cast(), buf.len(), special, &raw mut n)
            };
            check("llama_token_to_piece", status)?;
            if let Ok(n) = usize::try_from(n) {
                out.extend_from_slice(&buf[..n.min(buf.len())]);
                return Ok(());
            }
            buf = vec![0; n.unsigned_abs() as usize];
        }
        Ok(())
    }

    /// Text of tokens, lossy where they do not form whole UTF-8.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a token that is not of this vocabulary.
    pub fn text(&self, tokens: &[Token], special: bool) -> Result<String> {
        let mut bytes = Vec::new();
        for &token in tokens {
            self.piece_into(token, special, &mut bytes)?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether generation ends at this token (EOS, EOT, ...).
    #[must_use]
    pub fn is_end_of_generation(&self, token: Token) -> bool {
        // SAFETY: the vocabulary lives; the id is in range.
        self.contains(token) && unsafe { sys::llama_vocab_is_eog(self.raw, token.0) }
    }

    /// Beginning of sequence.
    #[must_use]
    pub fn bos(&self) -> Option<Token> {
        // SAFETY: the vocabulary lives.
        self.known(unsafe { sys::llama_vocab_bos(self.raw) })
    }

    /// End of sequence.
    #[must_use]
    pub fn eos(&self) -> Option<Token> {
        // SAFETY: the vocabulary lives.
        self.known(unsafe { sys::llama_vocab_eos(self.raw) })
    }

    /// Whether prompts begin with [`Vocab::bos`].
    #[must_use]
    pub fn add_bos(&self) -> bool {
        // SAFETY: the vocabulary lives.
        unsafe { sys::llama_vocab_get_add_bos(self.raw) }
    }

    /// Whether prompts end with [`Vocab::eos`].
    #[must_use]
    pub fn add_eos(&self) -> bool {
        // SAFETY: the vocabulary lives.
        unsafe { sys::llama_vocab_get_add_eos(self.raw) }
    }

    /// Tokens that the model's authors forbid in answers.
    #[must_use]
    pub fn suppressed(&self) -> Vec<Token> {
        let mut n = 0_i32;
        // SAFETY: the vocabulary lives; `n` is a valid place.
        let data = unsafe { sys::llama_vocab_get_suppress_tokens(self.raw, &raw mut n) };
        // SAFETY: llama.h: the array holds `n` ids and lives as long as the vocabulary.
        let ids = unsafe { super::ffi::slice_or_empty(data, usize::try_from(n).unwrap_or(0)) };
        ids.iter().map(|&id| Token(id)).filter(|&t| self.contains(t)).collect()
    }

    fn known(&self, id: i32) -> Option<Token> {
        self.contains(Token(id)).then_some(Token(id))
    }
}
