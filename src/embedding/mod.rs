//! What the vision encoder gives: rows of floats, and how they lie on the picture.
//!
//! What this room does: holds embeddings as data (and, with the encode-once work, their keys and caches).
//! What it never does: compute them, or know of native handles.
//! Who calls it: `mtmd` fills it, `session` decodes from it, compressors read it.
#![forbid(unsafe_code)]

mod rows;

pub use rows::{Embedding, Grid};
