//! What a model thinks of an answer that is given to it: logits at every token, for likelihoods and for comparing models.

use super::conversation::Session;
use super::message::Part;
use super::usage::Usage;
use crate::error::{Error, Result};
use crate::llama::Token;

/// Logits along given tokens (teacher forcing).
#[derive(Debug, Clone, PartialEq)]
pub struct Forced {
    tokens: Vec<Token>,
    /// Row-major `[tokens + 1, n_vocab]`.
    logits: Vec<f32>,
}

impl Forced {
    /// The tokens that were given.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Logits, one per token of the vocabulary: row `i` is what the model expects in place of token `i`, and one row more is what
    /// it expects after the last token.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        let n_vocab = (self.logits.len() / (self.tokens.len() + 1)).max(1);
        self.logits.chunks_exact(n_vocab)
    }

    /// Natural logarithm of the probability of each token, given the prompt and the tokens before it.
    #[must_use]
    pub fn log_probabilities(&self) -> Vec<f64> {
        let of = |(token, row): (&Token, &[f32])| {
            let logit = usize::try_from(token.0).ok().and_then(|i| row.get(i)).copied();
            logit.map_or(f64::NEG_INFINITY, |logit| f64::from(logit) - log_sum_exp(row))
        };
        self.tokens.iter().zip(self.rows()).map(of).collect()
    }
}

/// Logarithm of the sum of the exponentials.
fn log_sum_exp(row: &[f32]) -> f64 {
    let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + row.iter().map(|&l| (f64::from(l) - most).exp()).sum::<f64>().ln()
}

impl Session {
    /// Asks, and instead of letting the model answer leads it along `tokens`. The conversation stays as it is; the KV cache keeps the
    /// prompt and the tokens for whoever asks the same next.
    ///
    /// Each token is decoded on its own, as while answering. The first row is the one that [`Session::first_logits`] gives.
    ///
    /// ```
    /// # #[cfg(feature = "demo")] {
    /// # use llava::demo::DemoModel;
    /// # use llava::llama::{Model, ModelParams};
    /// # use llava::mtmd::{Projector, ProjectorParams};
    /// # use llava::session::{Part, Picture, Session, SessionParams};
    /// # let demo = DemoModel::unpack()?;
    /// # let model = Model::load(demo.model(), &ModelParams::default())?;
    /// # let projector = Projector::load(demo.projector(), &model, &ProjectorParams::default())?;
    /// # let mut session = Session::new(&model, Some(projector), SessionParams::default())?;
    /// let sign = Picture::from_file("models/demo/sign.png")?;
    /// let parts = [Part::from(sign), Part::from("What word is written?")];
    /// let mut likelihood = |word: &str| -> llava::Result<f64> {
    ///     let tokens = model.vocab().tokenize(word, false, false)?;
    ///     Ok(session.force(parts.clone(), &tokens)?.0.log_probabilities().iter().sum())
    /// };
    /// assert!(likelihood(" EXIT")? > likelihood(" LAMP")?);
    /// # }
    /// # Ok::<(), llava::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Session::ask`]; [`Error::ContextFull`] also, before anything is encoded, where prompt and tokens together do not fit;
    /// [`Error::BadParameter`] for a token that is not of this model.
    pub fn force(&mut self, parts: impl IntoIterator<Item = Part>, tokens: &[Token]) -> Result<(Forced, Usage)> {
        let parts: Vec<Part> = parts.into_iter().collect();
        let vocab = self.model().vocab();
        if let Some(stranger) = tokens.iter().find(|t| !vocab.contains(**t)) {
            return Err(Error::BadParameter {
                name: "tokens",
                value: stranger.0.to_string(),
                reason: format!("0 to {}", vocab.n_tokens().saturating_sub(1)),
            });
        }
        let (text, visual) = self.count_tokens(parts.iter().cloned())?;
        let (needed, n_ctx) = ((text + visual).get() + tokens.len(), self.n_ctx() as usize);
        if needed > n_ctx {
            let advice = format!("use -c {} or more", needed.next_multiple_of(256));
            return Err(Error::ContextFull { needed, available: n_ctx, n_ctx, picture: None, advice });
        }
        let (mut logits, usage) = self.first_logits(parts)?;
        for &token in tokens {
            self.memory.decode_token(token)?;
            logits.extend_from_slice(self.memory.context.logits());
        }
        Ok((Forced { tokens: tokens.to_vec(), logits }, usage))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_a_row_add_up_to_one() {
        let logits = vec![0.0, 1.0, 2.0, 1000.0, 0.0, -1000.0];
        let of = |token: i32| Forced { tokens: vec![Token(token)], logits: logits.clone() }.log_probabilities()[0];
        let sum: f64 = (0..3).map(|t| of(t).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        assert!((of(2) - of(0) - 2.0).abs() < 1e-12);
        assert_eq!(of(7), f64::NEG_INFINITY);
        let forced = Forced { tokens: vec![Token(0)], logits };
        assert_eq!(forced.rows().len(), 2);
        assert_eq!(forced.rows().nth(1), Some(&[1000.0, 0.0, -1000.0][..]));
    }
}
