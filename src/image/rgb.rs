//! The picture type that the rest of the crate works with.

use std::fmt;
use std::sync::Arc;

use super::composite::{Background, blend_rgba};
use crate::error::{Error, Result};

/// An opaque picture: 8-bit RGB, rows top to bottom, no padding; never zero-sized.
///
/// Cloning copies a pointer, not pixels. Shape of [`pixels`](Self::pixels): `[height_px, width_px, 3]`, range 0 to 255.
#[derive(Clone, PartialEq, Eq)]
pub struct RgbImage {
    width_px: u32,
    height_px: u32,
    pixels: Arc<Vec<u8>>,
}

impl RgbImage {
    /// Takes tightly packed RGB bytes, `width_px * height_px * 3` of them.
    ///
    /// # Errors
    /// [`Error::BadParameter`] when a side is zero or the number of bytes is not exactly that.
    pub fn from_rgb(width_px: u32, height_px: u32, pixels: Vec<u8>) -> Result<Self> {
        check_shape(width_px, height_px, 3, pixels.len())?;
        Ok(Self { width_px, height_px, pixels: Arc::new(pixels) })
    }

    /// Takes tightly packed RGBA bytes with straight alpha, `width_px * height_px * 4` of them, and blends them onto
    /// `background` (rounded to nearest; alpha 255 keeps the colour, alpha 0 gives the background).
    ///
    /// # Errors
    /// [`Error::BadParameter`] when a side is zero or the number of bytes is not exactly that.
    pub fn from_rgba(width_px: u32, height_px: u32, rgba: &[u8], background: Background) -> Result<Self> {
        check_shape(width_px, height_px, 4, rgba.len())?;
        let (pixels, _) = blend_rgba(rgba, background);
        Ok(Self { width_px, height_px, pixels: Arc::new(pixels) })
    }

    /// Columns, at least 1.
    #[must_use]
    pub fn width_px(&self) -> u32 {
        self.width_px
    }

    /// Rows, at least 1.
    #[must_use]
    pub fn height_px(&self) -> u32 {
        self.height_px
    }

    /// All samples, row-major `[height_px, width_px, 3]`.
    #[must_use]
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The picture as a PNG file, lossless; written fast rather than small.
    ///
    /// # Errors
    /// [`Error::State`] where the format cannot hold it.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let failed =
            |e: png::EncodingError| Error::State { reason: format!("a picture cannot be written as PNG: {e}") };
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width_px, self.height_px);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        let mut writer = encoder.write_header().map_err(failed)?;
        writer.write_image_data(&self.pixels).map_err(failed)?;
        writer.finish().map_err(failed)?;
        Ok(bytes)
    }

    /// Red, green and blue of one pixel, or `None` outside of the picture.
    #[must_use]
    pub fn pixel(&self, x: u32, y: u32) -> Option<[u8; 3]> {
        if x >= self.width_px || y >= self.height_px {
            return None;
        }
        let at = (y as usize * self.width_px as usize + x as usize) * 3;
        Some([self.pixels[at], self.pixels[at + 1], self.pixels[at + 2]])
    }
}

impl fmt::Debug for RgbImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RgbImage({}x{} px)", self.width_px, self.height_px)
    }
}

fn check_shape(width_px: u32, height_px: u32, channels: u128, bytes: usize) -> Result<()> {
    if width_px == 0 || height_px == 0 {
        return Err(Error::BadParameter {
            name: "picture size",
            value: format!("{width_px}x{height_px}"),
            reason: "both sides must be at least 1 px".into(),
        });
    }
    let wanted = u128::from(width_px) * u128::from(height_px) * channels;
    if wanted != bytes as u128 {
        return Err(Error::BadParameter {
            name: "pixels",
            value: format!("{bytes} bytes"),
            reason: format!("{width_px}x{height_px} px with {channels} bytes each are {wanted} bytes"),
        });
    }
    Ok(())
}
