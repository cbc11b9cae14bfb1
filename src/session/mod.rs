//! Conversations with pictures: template, prompt, prefill, answer.
//!
//! What this room does: keeps the messages, renders them, finds what the KV cache already holds, checks that the rest fits,
//! has pictures encoded, decodes, streams the answer, reports what it cost.
//! What it never does: call native code (that is `llama` and `mtmd`), read files' bytes as pictures (that is `image`), print.
//! Who calls it: applications, and `llava-cli`.
#![forbid(unsafe_code)]

mod answer;
mod bytes;
mod compression;
mod conversation;
mod encoded;
mod encoder;
mod fit;
mod forced;
mod message;
mod params;
mod prefill;
mod prompt;
mod saved;
mod snapshots;
mod stream;
pub mod template;
mod usage;

pub use answer::Answer;
pub use compression::{ImagePositions, costs};
pub use conversation::Session;
pub use encoded::EncodedPicture;
pub use forced::Forced;
pub use message::{Message, Part, Picture};
pub use params::SessionParams;
pub use prefill::ContextFill;
pub use saved::Restored;
pub use snapshots::{KvSnapshots, SnapshotStats};
pub use template::Role;
pub use usage::{FinishReason, ImageSource, ImageUsage, Usage};
