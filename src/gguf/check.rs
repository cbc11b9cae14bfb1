//! What llama.cpp would answer with an abort, a crash or endless memory, answered here with an error.
//!
//! `gguf_get_val_u32` ends the process on a key of another type, divisions by `patch_size` or `head_count` trap, a
//! missing tensor is a null pointer in the graph, a wrong extent is a failed assertion. Every rule below names such a
//! route in `tools/mtmd/clip.cpp`, `src/llama-model.cpp` or `src/llama-vocab.cpp` of b11434. What those files answer
//! with an exception is left to them, unless a better message costs nothing.

mod keys;
mod pair;
mod projector;
mod shapes;
mod text;
mod tower;
mod vocab;

pub use pair::check_pair;
pub(crate) use pair::needed_tokens;
pub use projector::{ProjectorFacts, check_projector};
pub use text::{TextFacts, check_text_model};
