//! Image intake: the bytes people have become upright, opaque RGB.
//!
//! **What this room does.** Tells the format from the content (never from a file name), refuses what the limits forbid
//! from the header alone, decodes, applies the EXIF orientation, blends transparency onto a background, and hands out
//! an [`RgbImage`]. Formats: JPEG (baseline, progressive, grey, CMYK, YCCK), PNG and APNG (first picture), WebP, GIF
//! (first frame), BMP, TIFF (first page), PNM and QOI. Everything else that is recognised (HEIC, AVIF, PDF, video, a
//! web page saved as `.jpg`, ...) is named in the error together with what to do about it.
//!
//! **What it never does.** It never resizes, never converts colour profiles, never opens a network connection, never
//! trusts a declared size, and knows nothing of models, projectors or caches.
//!
//! **Who calls it.** `session` and the binaries; `mtmd` takes the [`RgbImage`].
//!
//! Opaque pixels are those of upstream's decoder (`vendor/stb/stb_image.h` of llama.cpp): equal for PNG, and for JPEG
//! equal too, because the JPEG decoder in `jpeg/` does its arithmetic with the same integer steps. Where upstream drops
//! an alpha channel and shows whatever colour lies beneath, this room blends on purpose.
#![forbid(unsafe_code)]

mod composite;
mod exif;
mod foreign;
mod gif;
mod intake;
mod jpeg;
mod limits;
mod orientation;
mod png;
mod rgb;
mod sniff;
mod tiff;
mod via_image;
mod webp;

#[cfg(test)]
mod tests;

pub use composite::Background;
pub use intake::{DecodeOptions, Decoded, decode, load};
pub use limits::Limits;
pub use orientation::Orientation;
pub use rgb::RgbImage;
pub use sniff::Format;
