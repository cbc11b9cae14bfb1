//! Thin, safe handles over libmtmd through the shim: the projector, prepared pictures, encoding.
//!
//! What this room does: owns the native projector and the chunks a picture turns into; gives out pixels, grid, positions and
//! embedding rows, and nodes of the graph to who taps it; checks before each call what native code would abort on.
//! What it never does: decode into a context, cache, choose between pictures.
//! Who calls it: `session`, and applications that work with embeddings themselves.

mod encode;
mod key;
mod params;
#[cfg(feature = "parity")]
pub mod parity;
mod prepared;
mod projector;
mod tap;

pub use params::{ClipLayout, ProjectorParams};
pub use prepared::{Chunk, ImageChunk, Prepared, Tile};
pub use projector::{Projector, ProjectorInfo};
pub use tap::GraphTap;
