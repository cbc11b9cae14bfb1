//! Synthetic pictures with questions whose right answers are known.
//!
//! What this room does: draws pictures of 224 x 224 pixels for a task, a seed and an index, and asks about them. The same three
//! give the same pixels on every machine: only operations that IEEE 754 defines exactly are used.
//! What it never does: read fonts or files, call a model, score an answer.
//! Who calls it: `items`, and through `--write-data` whoever trains or tests elsewhere.
//!
//! Six tasks have the look and the wording that the demo model was trained on; a model that has not been trained on the others is
//! not expected to know them.

mod background;
mod canvas;
mod characters;
mod glyphs;
mod objects;
mod rng;
mod scene;
mod tasks;

pub use tasks::{TASKS, Task, make};
