//! JPEG: baseline, extended sequential and progressive, Huffman coded, 8 bits; grey, RGB, YCbCr, CMYK and YCCK.
//!
//! **What this room does.** It decodes JPEG with the same integer arithmetic as upstream's decoder, so that a photo gives
//! the same pixels, and with them the same tokens, as `llama-mtmd-cli`. The pure-Rust decoders on the registry differ
//! from upstream by up to 3 steps per channel (other inverse DCT), by 16 on the borders of 4:2:0 pictures and by more
//! than 150 in the last column of 4:2:2 pictures, which is why this room exists.
//!
//! **What it never does.** It never guesses: a scan that ends early, a table that is missing, a component without data
//! is an error, where upstream shows grey or garbage. It allocates nothing before the size limits were checked.
//!
//! **Who calls it.** `image::intake`, and `image::tiff` for colour conversion.
//!
//! Sources: ITU-T T.81 (the format), T.871 (JFIF colour), Adobe technical note 5116 (the Adobe marker), and
//! `vendor/stb/stb_image.h` of llama.cpp for the order of rounding steps.

mod bits;
mod colour;
mod frame;
mod huffman;
mod idct;
mod scan;
mod segments;
mod upsample;

pub(super) use colour::ycbcr_to_rgb;

use super::composite::Frame;
use super::limits::Job;
use super::orientation::Orientation;
use super::sniff::Format;
use crate::error::Error;

/// What goes wrong inside: the format is known, so only the reason varies.
pub(super) enum Fault {
    /// The file contradicts itself or ends too early.
    Damaged(String),
    /// A kind of JPEG nobody decodes here.
    Unsupported(String),
    /// An error that is complete already (limits).
    Complete(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Complete(error)
    }
}

fn damaged(reason: impl Into<String>) -> Fault {
    Fault::Damaged(reason.into())
}

/// Decodes the picture and reads its EXIF orientation.
pub(super) fn decode(bytes: &[u8], job: Job<'_>) -> Result<(Frame, Orientation), Error> {
    segments::decode(bytes, job).map_err(|fault| match fault {
        Fault::Damaged(reason) => job.damaged(Format::Jpeg, reason),
        Fault::Unsupported(what) => job.unsupported(format!("{what}; save it as an ordinary JPEG or PNG first")),
        Fault::Complete(error) => error,
    })
}
