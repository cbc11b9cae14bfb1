//! One font in one size, from a sheet that `scripts/make_letters.py` made from DejaVu Sans Mono.

use std::sync::OnceLock;

/// Grey samples: how much of a pixel a character covers. Printable ASCII from the space on, side by side.
const SHEET: &[u8] = include_bytes!("letters.png");
const FIRST: u32 = 32;
const COUNT: u32 = 95;
/// Advance of a character in pixels.
pub const WIDTH: i32 = 7;
/// Height of a line in pixels.
pub const HEIGHT: i32 = 15;

/// Calls back with the pixels of a line of text and how much of each is covered, 0 to 1. Characters that the sheet lacks are shown
/// as `?`.
pub fn each(text: &str, mut pixel: impl FnMut(i32, i32, f64)) {
    let sheet = sheet();
    let pitch = usize::try_from(WIDTH).unwrap_or(0) * COUNT as usize;
    let mut left = 0;
    for letter in text.chars() {
        let code = u32::from(letter).wrapping_sub(FIRST);
        let code = if code < COUNT { code } else { u32::from('?') - FIRST };
        for y in 0..HEIGHT {
            for x in 0..WIDTH {
                let column = usize::try_from(x).unwrap_or(0) + code as usize * usize::try_from(WIDTH).unwrap_or(0);
                let at = usize::try_from(y).unwrap_or(0) * pitch + column;
                let coverage = sheet.get(at).copied().unwrap_or(0);
                if coverage > 0 {
                    pixel(left + x, y, f64::from(coverage) / 255.0);
                }
            }
        }
        left += WIDTH;
    }
}

/// The decoded sheet. One that does not decode, which a test rules out, is an empty one.
fn sheet() -> &'static [u8] {
    static DECODED: OnceLock<Vec<u8>> = OnceLock::new();
    DECODED.get_or_init(|| decode().unwrap_or_default())
}

fn decode() -> Option<Vec<u8>> {
    let mut reader = png::Decoder::new(std::io::Cursor::new(SHEET)).read_info().ok()?;
    let mut samples = vec![0; reader.output_buffer_size()?];
    let info = reader.next_frame(&mut samples).ok()?;
    let grey = (info.color_type, info.bit_depth) == (png::ColorType::Grayscale, png::BitDepth::Eight);
    grey.then_some(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_has_ink_of_its_own() {
        let ink = |text: &str| {
            let mut pixels = Vec::new();
            each(text, |x, y, coverage| pixels.push((x, y, (coverage * 255.0) as u8)));
            pixels
        };
        assert_eq!(sheet().len(), (WIDTH * HEIGHT) as usize * COUNT as usize);
        let all: Vec<_> = (33..127_u8).map(|c| ink(&char::from(c).to_string())).collect();
        for (i, pixels) in all.iter().enumerate() {
            assert!(pixels.len() >= 4, "{i}");
            assert!(!all[..i].contains(pixels), "{i} looks like another one");
        }
        assert!(ink(" ").is_empty());
        assert_eq!(ink("é"), ink("?"));
        assert!(ink(" a").iter().all(|p| p.0 >= WIDTH));
    }
}
