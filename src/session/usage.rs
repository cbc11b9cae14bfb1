//! What an answer cost.

use std::time::Duration;

use crate::compress::Reason;
use crate::units::TokenCount;

/// Where a picture's rows came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageSource {
    /// The vision encoder ran.
    Encoded,
    /// The embedding cache had its rows in memory.
    Memory,
    /// The embedding cache had its rows on the disk.
    Disk,
    /// The embedding cache had its rows in the tier that machines share (`redis` in reports, whatever the store is).
    Shared,
    /// The picture was given with its rows.
    File,
    /// A saved KV state already held the decoded picture: neither encoder nor decoder ran.
    Snapshot,
    /// The KV cache still held the decoded picture: neither encoder nor decoder ran.
    Kv,
}

impl ImageSource {
    /// The one that cost more.
    pub(super) fn farther(self, other: Self) -> Self {
        let cost = |source: Self| match source {
            ImageSource::Kv => 0,
            ImageSource::Snapshot => 1,
            ImageSource::File | ImageSource::Memory => 2,
            ImageSource::Disk => 3,
            ImageSource::Shared => 4,
            ImageSource::Encoded => 5,
        };
        if cost(other) > cost(self) { other } else { self }
    }

    /// Its name in usage reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ImageSource::Encoded => "encoded",
            ImageSource::Memory => "memory",
            ImageSource::Disk => "disk",
            ImageSource::Shared => "redis",
            ImageSource::File => "file",
            ImageSource::Snapshot => "snapshot",
            ImageSource::Kv => "kv",
        }
    }
}

/// What one picture of the prompt cost.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImageUsage {
    /// Where its rows came from.
    pub source: ImageSource,
    /// Time in the vision encoder, zero where it did not run.
    pub encode: Duration,
    /// Time to find its rows in a cache, zero where they were encoded.
    pub fetch: Duration,
    /// Rows the encoder gives for it.
    pub rows: TokenCount,
    /// Rows the text model was given.
    pub tokens: TokenCount,
    /// Time to choose or make them, zero where they are the encoder's.
    pub compress: Duration,
    /// Why it has so many, most important first.
    pub reasons: Vec<Reason>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FinishReason {
    /// It has not ended.
    Running,
    /// The model ended it.
    EndOfText,
    /// One of the stop texts came up.
    Stop,
    /// It reached its greatest length.
    Length,
    /// The context is full.
    ContextFull,
    /// The caller stopped it.
    Cancelled,
    /// Something failed.
    Error,
}

impl FinishReason {
    /// Its name in usage reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FinishReason::Running => "running",
            FinishReason::EndOfText => "end",
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::ContextFull => "context-full",
            FinishReason::Cancelled => "cancelled",
            FinishReason::Error => "error",
        }
    }
}

/// What an answer cost so far.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Usage {
    /// From the request to its first token; zero before there is one.
    pub time_to_first_token: Duration,
    /// Text and pictures through the text model, encoders not included.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
    /// Text tokens of the prompt, markers included.
    pub text_tokens: TokenCount,
    /// Visual tokens of the prompt.
    pub visual_tokens: TokenCount,
    /// Tokens of the prompt, of both kinds, that the KV cache already held.
    pub reused_tokens: TokenCount,
    /// Tokens of the answer.
    pub decode_tokens: TokenCount,
    /// The prompt's pictures in order.
    pub images: Vec<ImageUsage>,
    /// Why it ended.
    pub finish: FinishReason,
}

impl Usage {
    pub(super) fn new() -> Self {
        Self {
            time_to_first_token: Duration::ZERO,
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
            text_tokens: TokenCount::ZERO,
            visual_tokens: TokenCount::ZERO,
            reused_tokens: TokenCount::ZERO,
            decode_tokens: TokenCount::ZERO,
            images: Vec::new(),
            finish: FinishReason::Running,
        }
    }

    /// Tokens of the answer per second, the first one not counted; 0 where there are fewer than two.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        let tokens = self.decode_tokens.get().saturating_sub(1);
        let seconds = self.decode.as_secs_f64();
        if tokens == 0 || seconds <= 0.0 { 0.0 } else { tokens as f64 / seconds }
    }

    /// Time to find rows in caches, all pictures together.
    #[must_use]
    pub fn fetch(&self) -> Duration {
        self.images.iter().map(|i| i.fetch).sum()
    }

    /// Time in the vision encoder, all pictures together.
    #[must_use]
    pub fn encode(&self) -> Duration {
        self.images.iter().map(|i| i.encode).sum()
    }
}
