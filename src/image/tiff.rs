//! TIFF and BigTIFF, first page, through the `tiff` crate; palettes, grey with alpha, premultiplied alpha, YCbCr and few-bit
//! grey are what is added here.

use std::borrow::Cow;
use std::io::Cursor;

use tiff::ColorType;
use tiff::TiffError;
use tiff::decoder::{Decoder, DecodingResult};
use tiff::tags::{SampleFormat, Tag};

use super::composite::{Frame, Layout};
use super::exif::Directory;
use super::jpeg::ycbcr_to_rgb;
use super::limits::Job;
use super::orientation::Orientation;
use super::sniff::Format;
use crate::error::{Error, Result};

const PHOTOMETRIC: u16 = 262;
const SUBFILE_TYPE: u16 = 254;
const SUB_IFDS: u16 = 330;
const DNG_VERSION: u16 = 50_706;
/// Tables of strip offsets and the like; 16 MiB is a table for two million strips.
const MAX_TAG_BYTES: usize = 16 << 20;

pub(super) fn decode(bytes: &[u8], job: Job<'_>) -> Result<(Frame, Orientation)> {
    let fail = |error| explain(error, job);
    refuse_raw_photo(bytes, job)?;
    refuse_endless_text(bytes, job)?;
    let (bytes, has_palette) = palette_as_grey(bytes);
    let mut decoder = Decoder::new(Cursor::new(&*bytes)).map_err(fail)?;
    let (width_px, height_px) = decoder.dimensions().map_err(fail)?;
    job.check_size(Format::Tiff, width_px, height_px)?;

    let colour = decoder.colortype().map_err(fail)?;
    let layout = decoder.image_buffer_layout().map_err(fail)?;
    let pixels = u64::from(width_px) * u64::from(height_px);
    // The decoder's samples and their 8-bit copy.
    job.check_memory((layout.complete_len as u64).saturating_add(pixels * 4))?;
    let mut limits = tiff::decoder::Limits::default();
    // This one bounds tags as well.
    limits.decoding_buffer_size = layout.complete_len.max(MAX_TAG_BYTES);
    limits.intermediate_buffer_size = usize::try_from(job.limits.max_decoder_bytes).unwrap_or(usize::MAX);
    limits.ifd_value_size = MAX_TAG_BYTES;
    let mut decoder = decoder.with_limits(limits);

    let orientation = decoder
        .find_tag_unsigned::<u32>(Tag::Orientation)
        .unwrap_or_default()
        .and_then(Orientation::from_exif)
        .unwrap_or_default();
    let extra_samples = decoder.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).unwrap_or_default().unwrap_or_default();
    let palette = if has_palette { Some(read_palette(&mut decoder, job)?) } else { None };

    let mut samples = DecodingResult::U8(Vec::new());
    let read = decoder.read_image_to_buffer(&mut samples).map_err(fail)?;
    let samples = to_bytes(samples, layout.sample_format, job)?;
    let shape = Shape { width: width_px as usize, height: height_px as usize, bits: colour.bit_depth() };
    let samples = if read.planes > 1 { interleave(&samples, read.planes) } else { samples };
    let frame = assemble(samples, colour, &extra_samples, palette, shape, job)?;
    Ok((frame, orientation))
}

struct Shape {
    width: usize,
    height: usize,
    bits: u8,
}

/// Raw photos are TIFF files whose first page is a thumbnail; decoding that would be a wrong answer.
fn refuse_raw_photo(bytes: &[u8], job: Job<'_>) -> Result<()> {
    let Some(directory) = Directory::first(bytes) else { return Ok(()) };
    let thumbnail_first = directory.number(SUBFILE_TYPE).is_some_and(|kind| kind & 1 != 0);
    if directory.find(DNG_VERSION).is_some() || (thumbnail_first && directory.find(SUB_IFDS).is_some()) {
        return Err(job.unsupported("a camera's raw photo (DNG, NEF, ARW or the like); export it as JPEG or TIFF"));
    }
    Ok(())
}

/// The `tiff` crate writes to standard error when a number is given as an endless text; it must not come so far.
fn refuse_endless_text(bytes: &[u8], job: Job<'_>) -> Result<()> {
    let longest = Directory::first(bytes).map_or(0, |directory| directory.longest_text()) as usize;
    if longest > bytes.len().min(MAX_TAG_BYTES) {
        return Err(job.damaged(Format::Tiff, format!("a tag claims a text of {longest} bytes")));
    }
    Ok(())
}

/// The `tiff` crate refuses palettes, but reads their indices when the file calls them grey. So it is told so.
fn palette_as_grey(bytes: &[u8]) -> (Cow<'_, [u8]>, bool) {
    const PALETTE: u32 = 3;
    const BLACK_IS_ZERO: u8 = 1;
    let Some(directory) = Directory::first(bytes) else { return (Cow::Borrowed(bytes), false) };
    let entry = directory.find(PHOTOMETRIC).filter(|entry| entry.kind == 3 && entry.count == 1);
    match (entry, directory.number(PHOTOMETRIC)) {
        (Some(entry), Some(PALETTE)) => {
            let mut copy = bytes.to_vec();
            copy[entry.value_at + usize::from(directory.is_big_endian())] = BLACK_IS_ZERO;
            (Cow::Owned(copy), true)
        }
        _ => (Cow::Borrowed(bytes), false),
    }
}

/// The colour map: all reds, all greens, all blues, 16 bits each; some writers left the high byte empty.
fn read_palette<R: std::io::BufRead + std::io::Seek>(decoder: &mut Decoder<R>, job: Job<'_>) -> Result<Vec<[u8; 3]>> {
    let map = decoder
        .find_tag_unsigned_vec::<u16>(Tag::ColorMap)
        .map_err(|error| explain(error, job))?
        .filter(|map| !map.is_empty() && map.len() % 3 == 0)
        .ok_or_else(|| job.damaged(Format::Tiff, "its palette is missing"))?;
    let shift = if map.iter().all(|&value| value < 256) { 0 } else { 8 };
    let size = map.len() / 3;
    let channel = |value: u16| (value >> shift) as u8;
    Ok((0..size).map(|i| [channel(map[i]), channel(map[size + i]), channel(map[2 * size + i])]).collect())
}

/// Every sample type to 8 bits: integers keep their high byte, floats are taken as 0 to 1.
fn to_bytes(samples: DecodingResult, format: SampleFormat, job: Job<'_>) -> Result<Vec<u8>> {
    Ok(match samples {
        DecodingResult::U8(v) => v,
        DecodingResult::U16(v) => v.into_iter().map(|s| (s >> 8) as u8).collect(),
        DecodingResult::U32(v) => v.into_iter().map(|s| (s >> 24) as u8).collect(),
        DecodingResult::U64(v) => v.into_iter().map(|s| (s >> 56) as u8).collect(),
        // A float cast saturates, and NaN becomes 0.
        DecodingResult::F32(v) => v.into_iter().map(|s| (s * 255.0).round() as u8).collect(),
        DecodingResult::F64(v) => v.into_iter().map(|s| (s * 255.0).round() as u8).collect(),
        _ => return Err(job.unsupported(format!("a TIFF with {format:?} samples; save it as PNG first"))),
    })
}

/// Plane after plane to sample after sample.
fn interleave(samples: &[u8], planes: usize) -> Vec<u8> {
    let plane_length = samples.len() / planes;
    (0..plane_length).flat_map(|i| (0..planes).map(move |plane| samples[plane * plane_length + i])).collect()
}

fn assemble(
    samples: Vec<u8>,
    colour: ColorType,
    extra_samples: &[u16],
    palette: Option<Vec<[u8; 3]>>,
    shape: Shape,
    job: Job<'_>,
) -> Result<Frame> {
    const ASSOCIATED: u16 = 1;
    const UNASSOCIATED: u16 = 2;
    let first_extra = extra_samples.first().copied();
    let has_alpha = matches!(first_extra, Some(ASSOCIATED | UNASSOCIATED));
    let pixels = shape.width * shape.height;
    let (layout, channels, samples) = match (colour, palette) {
        (ColorType::Gray(bits @ (1 | 2 | 4 | 8)), Some(palette)) => {
            let indices = unpack(samples, bits, shape.width);
            let colours =
                indices.iter().flat_map(|&index| palette.get(usize::from(index)).copied().unwrap_or_default());
            (Layout::Rgb, 3, colours.collect())
        }
        (ColorType::Gray(bits @ (1 | 2 | 4)), None) => {
            let scale = 255 / ((1u8 << bits) - 1);
            (Layout::Grey, 1, unpack(samples, bits, shape.width).into_iter().map(|v| v * scale).collect())
        }
        (ColorType::Gray(8..), None) => (Layout::Grey, 1, samples),
        (ColorType::Multiband { num_samples: 2, .. } | ColorType::GrayA(8..), None) if shape.bits >= 8 => {
            (Layout::GreyAlpha, 2, samples)
        }
        (ColorType::RGB(8..), None) => (Layout::Rgb, 3, samples),
        (ColorType::RGBA(8..), None) => (Layout::Rgba, 4, samples),
        (ColorType::CMYK(8..), None) => {
            // Here 255 is full ink, other than in JPEG.
            let light = |ink: u8, k: u8| ((u32::from(255 - ink) * u32::from(255 - k) + 127) / 255) as u8;
            let (inks, _) = samples.as_chunks::<4>();
            (Layout::Rgb, 3, inks.iter().flat_map(|&[c, m, y, k]| [light(c, k), light(m, k), light(y, k)]).collect())
        }
        (ColorType::YCbCr(8), None) => {
            let (triples, _) = samples.as_chunks::<3>();
            (Layout::Rgb, 3, triples.iter().flat_map(|&[y, cb, cr]| ycbcr_to_rgb(y, cb, cr)).collect())
        }
        (other, _) => return Err(job.unsupported(format!("a TIFF with {other:?} pixels; save it as PNG first"))),
    };
    if samples.len() != pixels * channels {
        return Err(job.damaged(Format::Tiff, format!("{} samples where {} belong", samples.len(), pixels * channels)));
    }
    let mut frame = Frame::new(shape.width as u32, shape.height as u32, layout, samples);
    match (layout, has_alpha) {
        (Layout::Rgba | Layout::GreyAlpha, true) => frame.premultiplied = first_extra == Some(ASSOCIATED),
        // A fourth sample that nobody calls alpha is not one.
        (Layout::Rgba, false) => frame.samples.as_chunks_mut::<4>().0.iter_mut().for_each(|pixel| pixel[3] = 255),
        (Layout::GreyAlpha, false) => frame.samples.as_chunks_mut::<2>().0.iter_mut().for_each(|pixel| pixel[1] = 255),
        _ => {}
    }
    Ok(frame)
}

/// Values of 1, 2, 4 or 8 bits, most significant first, rows filled up to whole bytes.
fn unpack(packed: Vec<u8>, bits: u8, width: usize) -> Vec<u8> {
    if bits == 8 {
        return packed;
    }
    let per_byte = usize::from(8 / bits);
    let mask = (1u8 << bits) - 1;
    let row_bytes = width.div_ceil(per_byte).max(1);
    packed
        .chunks_exact(row_bytes)
        .flat_map(|row| (0..width).map(move |x| row[x / per_byte] >> (8 - bits - bits * (x % per_byte) as u8) & mask))
        .collect()
}

fn explain(error: TiffError, job: Job<'_>) -> Error {
    match error {
        TiffError::UnsupportedError(what) => {
            job.unsupported(format!("a TIFF that this build does not decode ({what}); save it as PNG first"))
        }
        TiffError::LimitsExceeded => Error::PictureTooLarge {
            name: job.name.into(),
            what: "decoder memory in bytes",
            value: job.limits.max_decoder_bytes.saturating_add(1),
            limit: job.limits.max_decoder_bytes,
        },
        TiffError::IoError(_) => job.damaged(Format::Tiff, "the file is cut off"),
        other => job.damaged(Format::Tiff, other.to_string()),
    }
}
