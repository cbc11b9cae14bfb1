//! WebP: lossy, lossless, with alpha, and the first frame of animations.
//!
//! The container may declare one size and the codec data inside another; the decoder allocates by the inner one before
//! it compares. So both are read here first.

use std::io::Cursor;

use image::codecs::webp::WebPDecoder;

use super::composite::Frame;
use super::exif;
use super::limits::Job;
use super::orientation::Orientation;
use super::sniff::Format;
use super::via_image::{explain, read};
use crate::error::Result;

pub(super) fn decode(bytes: &[u8], job: Job<'_>) -> Result<(Frame, Orientation)> {
    let mut orientation = None;
    for chunk in (Chunks { bytes, at: 12 }) {
        match &chunk.name {
            b"EXIF" if orientation.is_none() => orientation = Some(exif::orientation(chunk.content)),
            b"ANMF" => {
                // 16 bytes of frame header, then chunks.
                for inner in (Chunks { bytes: chunk.content, at: 16 }) {
                    check_inner_size(&inner, job)?;
                }
            }
            _ => check_inner_size(&chunk, job)?,
        }
    }
    let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| explain(error, Format::WebP, job))?;
    Ok((read(decoder, Format::WebP, job)?, orientation.unwrap_or_default()))
}

struct Chunk<'a> {
    name: [u8; 4],
    content: &'a [u8],
}

/// RIFF chunks from `at` on; the last one may be cut off.
struct Chunks<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        let (head, body) = self.bytes.get(self.at..)?.split_first_chunk::<8>()?;
        let [n0, n1, n2, n3, l0, l1, l2, l3] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let content = &body[..length.min(body.len())];
        // Chunks begin at even positions.
        self.at = self.at.saturating_add(8).saturating_add(length).saturating_add(length % 2);
        Some(Chunk { name: [n0, n1, n2, n3], content })
    }
}

/// Checks the size that a `VP8 `, `VP8L` or `VP8X` header declares.
fn check_inner_size(chunk: &Chunk<'_>, job: Job<'_>) -> Result<()> {
    let (width_px, height_px) = match (&chunk.name, chunk.content) {
        // Frame tag (3 bytes), start code (3), then 14 bits each (RFC 6386, section 9.1).
        (b"VP8 ", &[_, _, _, 0x9D, 0x01, 0x2A, w0, w1, h0, h1, ..]) => {
            let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3FFF);
            (side(w0, w1), side(h0, h1))
        }
        // Signature byte, then 14 bits each, minus one.
        (b"VP8L", &[0x2F, b0, b1, b2, b3, ..]) => {
            let packed = u32::from_le_bytes([b0, b1, b2, b3]);
            ((packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1)
        }
        // Flags and reserved (4 bytes), then 24 bits each, minus one.
        (b"VP8X", &[_, _, _, _, w0, w1, w2, h0, h1, h2, ..]) => {
            (u32::from_le_bytes([w0, w1, w2, 0]) + 1, u32::from_le_bytes([h0, h1, h2, 0]) + 1)
        }
        _ => return Ok(()),
    };
    job.check_size(Format::WebP, width_px, height_px)
}
