//! GIF: the first frame on the logical screen; what it leaves uncovered is transparent.

use std::io::Cursor;

use image::codecs::gif::GifDecoder;

use super::composite::Frame;
use super::limits::Job;
use super::sniff::Format;
use super::via_image::{explain, read};
use crate::error::Result;

pub(super) fn decode(bytes: &[u8], job: Job<'_>) -> Result<Frame> {
    // The screen's size is checked by `read`; the frame has one of its own and the decoder buffers it.
    match first_frame_size(bytes) {
        Some((width_px, height_px)) => job.check_size(Format::Gif, width_px.into(), height_px.into())?,
        None => return Err(job.damaged(Format::Gif, "there is no frame in it; the file is cut off")),
    }
    let decoder = GifDecoder::new(Cursor::new(bytes)).map_err(|error| explain(error, Format::Gif, job))?;
    read(decoder, Format::Gif, job)
}

/// Width and height of the first image descriptor.
fn first_frame_size(bytes: &[u8]) -> Option<(u16, u16)> {
    let flags = *bytes.get(10)?;
    // Header and screen descriptor, then the global palette if flagged.
    let mut at = 13 + if flags & 0x80 != 0 { 3 << ((flags & 7) + 1) } else { 0 };
    loop {
        match *bytes.get(at)? {
            0x21 => {
                at += 2;
                // Sub-blocks: a length byte and as many bytes, ended by length 0.
                loop {
                    let length = usize::from(*bytes.get(at)?);
                    at += 1 + length;
                    if length == 0 {
                        break;
                    }
                }
            }
            0x2C => {
                let &[w0, w1, h0, h1] = bytes.get(at + 5..at + 9)? else { return None };
                return Some((u16::from_le_bytes([w0, w1]), u16::from_le_bytes([h0, h1])));
            }
            _ => return None,
        }
    }
}
