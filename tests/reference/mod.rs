//! Vision towers as their authors defined them: an independent forward pass in f64, plain Rust, one loop after the other.
//!
//! What it does: reads the weights of a projector file through `llava::gguf` and computes the rows that the text model
//! should get, from preprocessed pixels. [`Clip`] is CLIP's tower with LLaVA's projector, [`InternVl`] and [`CogVlm`] are
//! the two other towers whose class token llama.cpp b11434 misplaces.
//! What it never does: call native code, share a line with the code under test, or be fast.
//! Who calls it: the tests of the tower's layout.
//!
//! Sources: the CLIP, LLaVA, InternVL and CogVLM papers and their published PyTorch code; `docs/clip-layout.md` tells
//! what was read where.

mod clip;
mod cogvlm;
mod internvl;
mod numbers;
mod weights;

#[cfg(test)]
mod tests;

pub use clip::{ClassToken, Clip};
pub use cogvlm::CogVlm;
pub use internvl::InternVl;
pub use numbers::Matrix;
