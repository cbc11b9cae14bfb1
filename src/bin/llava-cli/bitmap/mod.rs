//! Pictures of results: drawings as pixels.
//!
//! What this room does: a canvas with rectangles, lines, scaled pictures and one small font.
//! What it never does: know what is drawn, or write files.
//! Who calls it: `inspect` for its drawing.

mod canvas;
mod letters;

pub use canvas::{Canvas, Colour, Rect};
pub use letters::{HEIGHT as LETTER_HEIGHT, WIDTH as LETTER_WIDTH};
