//! Answers questions about pictures with GGUF models on llama.cpp.
//!
//! Three floors: `llava-sys` (raw), [`llama`] and [`mtmd`] (thin and safe, one file per native object), and on top of them
//! [`session`]: conversations with pictures. Most applications need [`session::Session`] only.

pub mod compress;
#[cfg(feature = "demo")]
pub mod demo;
pub mod embedding;
mod error;
pub mod gguf;
pub mod image;
pub mod llama;
pub mod mtmd;
pub mod quantize;
pub mod session;
mod units;

pub use error::{Error, ErrorKind, Result};
pub use units::{PosCount, TokenCount};

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
