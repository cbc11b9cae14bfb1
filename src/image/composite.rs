//! From what decoders give (grey or colour, with or without alpha) to opaque RGB.

/// The colour that shows where a picture is transparent. White by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Background {
    /// Red, 0 to 255.
    pub red: u8,
    /// Green, 0 to 255.
    pub green: u8,
    /// Blue, 0 to 255.
    pub blue: u8,
}

impl Background {
    /// White, the default: what a page or a chat window shows behind a picture.
    pub const WHITE: Self = Self { red: 255, green: 255, blue: 255 };
    /// Black.
    pub const BLACK: Self = Self { red: 0, green: 0, blue: 0 };

    fn channels(self) -> [u8; 3] {
        [self.red, self.green, self.blue]
    }
}

impl Default for Background {
    fn default() -> Self {
        Self::WHITE
    }
}

/// How the samples of a [`Frame`] are laid out; always 8 bits, interleaved, no padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Grey,
    GreyAlpha,
    Rgb,
    Rgba,
}

/// A decoded picture before orientation and blending.
pub(super) struct Frame {
    pub width_px: u32,
    pub height_px: u32,
    pub layout: Layout,
    /// Colour is already multiplied by alpha (TIFF's "associated alpha").
    pub premultiplied: bool,
    pub samples: Vec<u8>,
}

impl Frame {
    pub(super) fn new(width_px: u32, height_px: u32, layout: Layout, samples: Vec<u8>) -> Self {
        Self { width_px, height_px, layout, premultiplied: false, samples }
    }

    /// Opaque RGB, and whether any pixel let the background through.
    pub(super) fn into_rgb(self, background: Background) -> (Vec<u8>, bool) {
        match self.layout {
            Layout::Rgb => (self.samples, false),
            Layout::Grey => (self.samples.iter().flat_map(|&v| [v; 3]).collect(), false),
            Layout::Rgba if self.premultiplied => {
                let (pixels, _) = self.samples.as_chunks::<4>();
                blend(pixels.iter().map(|&[r, g, b, a]| ([r, g, b], a)), pixels.len(), background, over_premultiplied)
            }
            Layout::Rgba => blend_rgba(&self.samples, background),
            Layout::GreyAlpha => {
                let (pixels, _) = self.samples.as_chunks::<2>();
                let rule = if self.premultiplied { over_premultiplied } else { over };
                blend(pixels.iter().map(|&[v, a]| ([v; 3], a)), pixels.len(), background, rule)
            }
        }
    }
}

/// Blends straight-alpha RGBA; the flag says whether any alpha was below 255.
pub(super) fn blend_rgba(rgba: &[u8], background: Background) -> (Vec<u8>, bool) {
    let (pixels, _) = rgba.as_chunks::<4>();
    blend(pixels.iter().map(|&[r, g, b, a]| ([r, g, b], a)), pixels.len(), background, over)
}

fn blend(
    pixels: impl Iterator<Item = ([u8; 3], u8)>,
    count: usize,
    background: Background,
    rule: fn(u8, u8, u8) -> u8,
) -> (Vec<u8>, bool) {
    let behind = background.channels();
    let mut rgb = Vec::with_capacity(count * 3);
    let mut showed = false;
    for (colour, alpha) in pixels {
        if alpha == 255 {
            rgb.extend_from_slice(&colour);
        } else {
            showed = true;
            rgb.extend(colour.iter().zip(behind).map(|(&front, back)| rule(front, back, alpha)));
        }
    }
    (rgb, showed)
}

/// `front * a + back * (1 - a)`, rounded to nearest. There are no ties: 255 is odd.
fn over(front: u8, back: u8, alpha: u8) -> u8 {
    let (front, back, alpha) = (u32::from(front), u32::from(back), u32::from(alpha));
    ((front * alpha + back * (255 - alpha) + 127) / 255) as u8
}

/// `front + back * (1 - a)` for colour that is multiplied already; a colour above its alpha saturates.
fn over_premultiplied(front: u8, back: u8, alpha: u8) -> u8 {
    let shine = (u32::from(back) * (255 - u32::from(alpha)) + 127) / 255;
    front.saturating_add(shine as u8)
}
