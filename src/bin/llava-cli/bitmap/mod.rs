//! Pictures of results: drawings and plots as pixels.
//!
//! What this room does: a canvas with rectangles, lines, scaled pictures and one small font; and the same canvas as a back-end of
//! `plotters`, for plots as PNG without system fonts.
//! What it never does: know what is drawn, or write files.
//! Who calls it: `inspect` for its drawing, `eval::report` for its plots.

mod canvas;
mod letters;
mod surface;

pub use canvas::{Canvas, Colour, Rect};
pub use letters::{HEIGHT as LETTER_HEIGHT, WIDTH as LETTER_WIDTH};
pub use surface::Surface;
