//! Letters and digits, from a sheet that `scripts/make_glyphs.py` made from the DejaVu fonts.

use std::sync::OnceLock;

use super::canvas::{Canvas, Colour};

/// Grey samples: how much of a pixel a glyph covers. A column for each of [`LETTERS`], a row for each face.
const SHEET: &[u8] = include_bytes!("glyphs.png");
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// Width and height of a glyph's cell in the sheet; its middle is the point that text is placed by.
const CELL: i32 = 56;

/// A font in one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Face {
    row: i32,
    pub size_px: u32,
}

/// DejaVu Sans Bold, DejaVu Serif Bold and DejaVu Sans Mono Bold.
pub const FONTS: usize = 3;

impl Face {
    pub const SMALL: Self = Self { row: 6, size_px: 16 };
    pub const LARGE: Self = Self { row: 7, size_px: 48 };

    /// A font at 24 pixels.
    pub fn medium(font: usize) -> Self {
        Self { row: i32::try_from(font % FONTS).unwrap_or(0), size_px: 24 }
    }

    /// A font at 32 pixels.
    pub fn big(font: usize) -> Self {
        Self { row: i32::try_from(FONTS + font % FONTS).unwrap_or(0), size_px: 32 }
    }
}

/// Draws a letter or digit with its middle at a point. Other characters leave no ink.
pub fn draw(canvas: &mut Canvas, face: Face, letter: char, (x, y): (i32, i32), ink: Colour) {
    let Some(column) = LETTERS.find(letter) else { return };
    let column = i32::try_from(column).unwrap_or(0);
    let (sheet, width) = sheet();
    for dy in 0..CELL {
        for dx in 0..CELL {
            let at = (face.row * CELL + dy) * width + column * CELL + dx;
            let coverage = usize::try_from(at).ok().and_then(|at| sheet.get(at)).copied().unwrap_or(0);
            if coverage > 0 {
                canvas.blend(x + dx - CELL / 2, y + dy - CELL / 2, ink, coverage);
            }
        }
    }
}

/// The decoded sheet and its width. A sheet that does not decode, which a test rules out, is an empty one.
fn sheet() -> (&'static [u8], i32) {
    static DECODED: OnceLock<(Vec<u8>, i32)> = OnceLock::new();
    let (samples, width) = DECODED.get_or_init(|| decode().unwrap_or_default());
    (samples, *width)
}

fn decode() -> Option<(Vec<u8>, i32)> {
    let mut reader = png::Decoder::new(std::io::Cursor::new(SHEET)).read_info().ok()?;
    let mut samples = vec![0; reader.output_buffer_size()?];
    let info = reader.next_frame(&mut samples).ok()?;
    let grey = (info.color_type, info.bit_depth) == (png::ColorType::Grayscale, png::BitDepth::Eight);
    grey.then_some((samples, i32::try_from(info.width).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_glyph_is_there_and_inside_its_cell() {
        let (sheet, width) = sheet();
        assert_eq!(width, CELL * 36);
        assert_eq!(sheet.len(), usize::try_from(width * CELL * 8).unwrap());
        let faces = (0..FONTS).flat_map(|f| [Face::medium(f), Face::big(f)]).chain([Face::SMALL, Face::LARGE]);
        for face in faces {
            for letter in LETTERS.chars() {
                let mut canvas = Canvas::from_fn(|_, _, _| 0);
                draw(&mut canvas, face, letter, (100, 100), [255; 3]);
                let inked = |x: i32, y: i32| canvas.samples()[usize::try_from((y * 224 + x) * 3).unwrap()] > 0;
                let count = (0..224).flat_map(|y| (0..224).map(move |x| (x, y))).filter(|&(x, y)| inked(x, y)).count();
                assert!(count > 20, "{face:?} {letter}: {count} pixels");
                let edge = (72..128).any(|i| inked(72, i) || inked(127, i) || inked(i, 72) || inked(i, 127));
                assert!(!edge, "{face:?} {letter} is cut off");
            }
        }
    }
}
