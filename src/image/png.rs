//! PNG and APNG through the `png` crate, which can leave colour profiles and texts packed; the `image` crate's wrapper
//! around it unpacks them into memory.
//!
//! An APNG's default picture is what is decoded: the first frame, or the still that its author chose for programs
//! without animation. Upstream sees the same one.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Transformations};

use super::composite::{Frame, Layout};
use super::exif;
use super::limits::Job;
use super::orientation::Orientation;
use super::sniff::Format;
use crate::error::{Error, Result};

pub(super) fn decode(bytes: &[u8], job: Job<'_>) -> Result<(Frame, Orientation)> {
    if bytes.get(12..16) == Some(b"CgBI") {
        return Err(job.unsupported("a PNG in Apple's private iOS form; save it as an ordinary PNG first"));
    }
    let fail = |error| explain(error, job);
    let max_bytes = usize::try_from(job.limits.max_decoder_bytes).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: max_bytes });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    // Palettes become colours, 1, 2 and 4 bits become 8, tRNS becomes alpha; 16 bits stay for now.
    decoder.set_transformations(Transformations::EXPAND);
    let header = decoder.read_header_info().map_err(fail)?;
    job.check_size(Format::Png, header.width, header.height)?;
    let (width_px, height_px) = (header.width, header.height);

    let mut reader = decoder.read_info().map_err(fail)?;
    let (colour, depth) = reader.output_color_type();
    let layout = match colour {
        ColorType::Grayscale => Layout::Grey,
        ColorType::GrayscaleAlpha => Layout::GreyAlpha,
        ColorType::Rgb => Layout::Rgb,
        ColorType::Rgba => Layout::Rgba,
        ColorType::Indexed => return Err(job.damaged(Format::Png, "the palette is missing")),
    };
    let size = reader.output_buffer_size().ok_or_else(|| job.damaged(Format::Png, "its size overflows"))?;
    job.check_memory(size as u64)?;
    let mut samples = vec![0; size];
    reader.next_frame(&mut samples).map_err(fail)?;
    if depth == BitDepth::Sixteen {
        keep_high_bytes(&mut samples);
    }
    Ok((Frame::new(width_px, height_px, layout, samples), orientation(bytes)))
}

/// 16-bit big-endian samples to 8 bits by cutting, as upstream's decoder does.
fn keep_high_bytes(samples: &mut Vec<u8>) {
    let half = samples.len() / 2;
    for i in 0..half {
        samples[i] = samples[2 * i];
    }
    samples.truncate(half);
}

fn explain(error: DecodingError, job: Job<'_>) -> Error {
    match error {
        DecodingError::LimitsExceeded => Error::PictureTooLarge {
            name: job.name.into(),
            what: "decoder memory in bytes",
            value: job.limits.max_decoder_bytes.saturating_add(1),
            limit: job.limits.max_decoder_bytes,
        },
        DecodingError::IoError(_) => job.damaged(Format::Png, "the file is cut off"),
        other => job.damaged(Format::Png, other.to_string()),
    }
}

/// The eXIf chunk may stand before or behind the picture data, so the chunks are walked here.
fn orientation(bytes: &[u8]) -> Orientation {
    let mut at = 8;
    while let Some((head, body)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some(content) = body.get(..length) else { break };
        if &head[4..] == b"eXIf" {
            return exif::orientation(content);
        }
        // Length, type, content, checksum.
        at += 12 + length;
    }
    Orientation::Upright
}
