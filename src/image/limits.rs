//! What a picture may ask for before anything is decoded.

use super::sniff::Format;
use crate::error::{Error, Result};

/// Upper bounds, checked against the file's length and header before pixels are allocated.
///
/// The defaults let through what cameras, phones, scanners and screens make (a 108-megapixel phone photo, a 30,000 px
/// wide panorama) and bound the memory of one decode to about 1.5 GiB. A projector scales every picture down to
/// a few megapixels at most, so larger pictures bring no better answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest file, in bytes. Default 256 MiB.
    pub max_file_bytes: u64,
    /// Most columns, in pixels. Default 32,768; llama.cpp aborts the process above 46,000.
    pub max_width_px: u32,
    /// Most rows, in pixels. Default 32,768; llama.cpp aborts the process above 46,000.
    pub max_height_px: u32,
    /// Most pixels (columns times rows). Default 2^27, which is 134 megapixels or 384 MiB of RGB.
    pub max_pixels: u64,
    /// Most memory a decoder may ask for besides the file itself, in bytes. Default 1 GiB.
    pub max_decoder_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_file_bytes: 256 << 20,
            max_width_px: 32_768,
            max_height_px: 32_768,
            max_pixels: 1 << 27,
            max_decoder_bytes: 1 << 30,
        }
    }
}

/// The name and limits of the picture being decoded, and the errors that carry them.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub name: &'a str,
    pub limits: &'a Limits,
}

impl Job<'_> {
    /// Refuses a declared size that is empty or over a limit. Call it before any allocation that depends on it.
    pub(super) fn check_size(&self, format: Format, width_px: u32, height_px: u32) -> Result<()> {
        if width_px == 0 || height_px == 0 {
            return Err(self.damaged(format, format!("the header declares {width_px}x{height_px} px")));
        }
        self.check("width_px", u64::from(width_px), u64::from(self.limits.max_width_px))?;
        self.check("height_px", u64::from(height_px), u64::from(self.limits.max_height_px))?;
        self.check("pixels", u64::from(width_px) * u64::from(height_px), self.limits.max_pixels)
    }

    /// Refuses a decoder that would need more memory than allowed.
    pub(super) fn check_memory(&self, bytes: u64) -> Result<()> {
        self.check("decoder memory in bytes", bytes, self.limits.max_decoder_bytes)
    }

    pub(super) fn check(&self, what: &'static str, value: u64, limit: u64) -> Result<()> {
        if value <= limit {
            return Ok(());
        }
        Err(Error::PictureTooLarge { name: self.name.into(), what, value, limit })
    }

    pub(super) fn damaged(&self, format: Format, reason: impl Into<String>) -> Error {
        Error::PictureDamaged { name: self.name.into(), format: format.name(), reason: reason.into() }
    }

    pub(super) fn unsupported(&self, detail: impl Into<String>) -> Error {
        Error::PictureFormat { name: self.name.into(), detail: detail.into() }
    }
}
