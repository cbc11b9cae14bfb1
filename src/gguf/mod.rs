//! GGUF room.
//!
//! What it does: reads, checks and writes GGUF files in pure Rust. [`GgufFile`] is a header with an index, tensor
//! bytes are read only when asked for; [`GgufWriter`] streams tensors to a temporary file and renames it, at once or when
//! somebody has looked at it ([`SealedGguf`]);
//! [`check_projector`], [`check_text_model`] and [`check_pair`]
//! refuse what llama.cpp would answer with an abort or a crash.
//!
//! What it never does: trust a number in a file before comparing it with the file's size, hold a whole file in
//! memory, call native code, or guess a missing value.
//!
//! Who calls it: `llama` and `mtmd` before they hand a path to native code; `compress` and `quantize` for their own
//! files; `session` for chat templates; the model generator in the test tree.
#![forbid(unsafe_code)]

pub mod check;
mod cursor;
mod file;
mod fingerprint;
mod read;
mod seal;
mod split;
mod tensor_type;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub(crate) use check::needed_tokens;
pub use check::{ProjectorFacts, TextFacts, check_pair, check_projector, check_text_model};
pub use file::{GgufFile, TensorInfo};
pub use fingerprint::content_hash;
pub(crate) use fingerprint::{Fingerprint, hash_all};
pub use read::{MAX_HEADER_BYTES, MAX_KEYS, MAX_TENSORS};
pub use seal::SealedGguf;
pub use tensor_type::TensorType;
pub use value::{Array, Bytes, FromValue, Value};
pub use write::{GgufSink, GgufWriter, TensorSink};
