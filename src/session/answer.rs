//! An answer while it is being generated.

use std::time::Instant;

use super::conversation::Session;
use super::message::Message;
use super::stream::TextStream;
use super::template::Role;
use super::usage::{FinishReason, Usage};
use crate::error::{Error, Result};
use crate::llama::Token;
use crate::units::TokenCount;

/// An answer in progress: an iterator over pieces of text, each whole UTF-8 and never empty.
///
/// It ends with `None`; after an `Err` it has ended too. What was generated until then is the assistant's message of the
/// session, also when the answer is dropped early. The pieces together are that message's text.
#[derive(Debug)]
pub struct Answer<'s> {
    session: &'s mut Session,
    usage: Usage,
    received: Instant,
    first: Option<Instant>,
    stream: TextStream,
    text: String,
    tokens: Vec<Token>,
    /// Chosen, given out, but not in the KV cache yet: only decoded when one more is wanted.
    pending: Option<Token>,
    recorded: bool,
}

impl<'s> Answer<'s> {
    pub(super) fn new(session: &'s mut Session, (usage, received): (Usage, Instant)) -> Self {
        let stream = TextStream::new(&session.params.stop);
        Self {
            session,
            usage,
            received,
            first: None,
            stream,
            text: String::new(),
            tokens: Vec::new(),
            pending: None,
            recorded: false,
        }
    }

    /// What it cost so far.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The text so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tokens chosen so far, without the one that ends the answer.
    #[must_use]
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Runs to the end and returns the whole text with what it cost.
    ///
    /// # Errors
    /// The first error of the iterator.
    pub fn finish(mut self) -> Result<(String, Usage)> {
        for piece in self.by_ref() {
            piece?;
        }
        Ok((std::mem::take(&mut self.text), self.usage.clone()))
    }

    fn step(&mut self) -> Result<Option<String>> {
        loop {
            if self.usage.finish != FinishReason::Running {
                return Ok(None);
            }
            let Some(token) = self.next_token()? else { continue };
            let mut bytes = Vec::new();
            let special = self.session.params.show_special;
            self.session.model().vocab().piece_into(token, special, &mut bytes)?;
            let mut piece = self.stream.push(&bytes);
            self.pending = Some(token);
            if self.stream.stopped() {
                self.usage.finish = FinishReason::Stop;
            } else if self.session.params.max_tokens.is_some_and(|most| self.usage.decode_tokens.get() >= most) {
                self.end(FinishReason::Length, &mut piece);
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }

    /// Decodes the pending token and chooses the next one; `None` where the answer ended instead. What the stream still held
    /// then comes as the last piece.
    fn next_token(&mut self) -> Result<Option<Token>> {
        if self.session.cancel_token().is_cancelled() {
            return Err(Error::Cancelled);
        }
        if self.session.params.max_tokens == Some(0) {
            self.usage.finish = FinishReason::Length;
            return Ok(None);
        }
        if let Some(token) = self.pending.take() {
            if self.session.memory.free() == 0 {
                self.usage.finish = FinishReason::ContextFull;
                return Ok(None);
            }
            self.session.memory.decode_token(token)?;
        }
        let token = self.session.sampler.sample(&mut self.session.memory.context)?;
        self.session.sampler.accept(token)?;
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        if self.usage.decode_tokens == TokenCount::ZERO {
            self.usage.time_to_first_token = now - self.received;
        }
        self.usage.decode = now - first;
        if self.session.model().vocab().is_end_of_generation(token) {
            self.usage.finish = FinishReason::EndOfText;
            return Ok(None);
        }
        self.usage.decode_tokens += TokenCount(1);
        self.tokens.push(token);
        Ok(Some(token))
    }

    fn end(&mut self, reason: FinishReason, piece: &mut String) {
        self.usage.finish = reason;
        piece.push_str(&self.stream.finish());
    }

    /// Makes what was generated the assistant's message.
    fn record(&mut self) {
        if !std::mem::replace(&mut self.recorded, true) {
            let text = self.text.clone();
            self.session.messages.push(Message::text(Role::Assistant, text));
        }
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.recorded {
            return None;
        }
        match self.step() {
            Ok(Some(piece)) => {
                self.text.push_str(&piece);
                Some(Ok(piece))
            }
            Ok(None) => {
                let rest = self.stream.finish();
                self.text.push_str(&rest);
                self.record();
                (!rest.is_empty()).then_some(Ok(rest))
            }
            Err(error) => {
                self.usage.finish =
                    if matches!(error, Error::Cancelled) { FinishReason::Cancelled } else { FinishReason::Error };
                self.record();
                Some(Err(error))
            }
        }
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        self.record();
    }
}
