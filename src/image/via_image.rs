//! The formats that the `image` crate decodes as they are: BMP, PNM, QOI, and the last step of GIF and WebP.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::pnm::PnmDecoder;
use image::codecs::qoi::QoiDecoder;
use image::error::{ImageError, LimitErrorKind};
use image::{ColorType, ImageDecoder};

use super::composite::{Frame, Layout};
use super::limits::Job;
use super::sniff::Format;
use crate::error::{Error, Result};

/// BMP. Files whose alpha channel is zero everywhere mean "no alpha" (upstream reads them so, too).
pub(super) fn bmp(bytes: &[u8], job: Job<'_>) -> Result<Frame> {
    // The crate's own answers to odd sizes speak of missing features, so sizes are looked at here first.
    let side = |at: usize| bytes.get(at..at + 4).and_then(|raw| Some(i32::from_le_bytes(raw.try_into().ok()?)));
    if bytes.get(14) != Some(&12)
        && let (Some(width), Some(height)) = (side(18), side(22))
    {
        // Rows from top to bottom are marked by a negative height.
        job.check_size(Format::Bmp, width.max(0).cast_unsigned(), height.unsigned_abs())?;
    }
    let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(|error| explain(error, Format::Bmp, job))?;
    let mut frame = read(decoder, Format::Bmp, job)?;
    if frame.layout == Layout::Rgba {
        let (pixels, _) = frame.samples.as_chunks_mut::<4>();
        if pixels.iter().all(|pixel| pixel[3] == 0) {
            pixels.iter_mut().for_each(|pixel| pixel[3] = 255);
        }
    }
    Ok(frame)
}

/// PBM, PGM, PPM and PAM, binary and text.
pub(super) fn pnm(bytes: &[u8], job: Job<'_>) -> Result<Frame> {
    let decoder = PnmDecoder::new(Cursor::new(bytes)).map_err(|error| explain(error, Format::Pnm, job))?;
    read(decoder, Format::Pnm, job)
}

/// QOI.
pub(super) fn qoi(bytes: &[u8], job: Job<'_>) -> Result<Frame> {
    if let Some(&[w3, w2, w1, w0, h3, h2, h1, h0]) = bytes.get(4..12) {
        job.check_size(Format::Qoi, u32::from_be_bytes([w3, w2, w1, w0]), u32::from_be_bytes([h3, h2, h1, h0]))?;
    }
    let decoder = QoiDecoder::new(Cursor::new(bytes)).map_err(|error| explain(error, Format::Qoi, job))?;
    read(decoder, Format::Qoi, job)
}

/// Checks what the decoder's header says, then decodes to 8 bits per sample.
pub(super) fn read(mut decoder: impl ImageDecoder, format: Format, job: Job<'_>) -> Result<Frame> {
    let (width_px, height_px) = decoder.dimensions();
    job.check_size(format, width_px, height_px)?;
    let bytes = decoder.total_bytes();
    job.check_memory(bytes)?;
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(job.limits.max_decoder_bytes);
    decoder.set_limits(limits).map_err(|error| explain(error, format, job))?;

    let (layout, sample_bytes) = match decoder.color_type() {
        ColorType::L8 => (Layout::Grey, 1),
        ColorType::La8 => (Layout::GreyAlpha, 1),
        ColorType::Rgb8 => (Layout::Rgb, 1),
        ColorType::Rgba8 => (Layout::Rgba, 1),
        ColorType::L16 => (Layout::Grey, 2),
        ColorType::La16 => (Layout::GreyAlpha, 2),
        ColorType::Rgb16 => (Layout::Rgb, 2),
        ColorType::Rgba16 => (Layout::Rgba, 2),
        other => {
            return Err(job.unsupported(format!("a {} with {other:?} samples; save it as PNG first", format.name())));
        }
    };
    let size = usize::try_from(bytes).map_err(|_| job.damaged(format, "its size overflows"))?;
    let mut samples = vec![0; size];
    decoder.read_image(&mut samples).map_err(|error| explain(error, format, job))?;
    if sample_bytes == 2 {
        samples = samples.as_chunks::<2>().0.iter().map(|&pair| (u16::from_ne_bytes(pair) >> 8) as u8).collect();
    }
    Ok(Frame::new(width_px, height_px, layout, samples))
}

/// The `image` crate's errors in this crate's terms.
pub(super) fn explain(error: ImageError, format: Format, job: Job<'_>) -> Error {
    match error {
        ImageError::Limits(limit) if matches!(limit.kind(), LimitErrorKind::InsufficientMemory) => {
            Error::PictureTooLarge {
                name: job.name.into(),
                what: "decoder memory in bytes",
                value: job.limits.max_decoder_bytes.saturating_add(1),
                limit: job.limits.max_decoder_bytes,
            }
        }
        ImageError::Unsupported(what) => job
            .unsupported(format!("a {} that this build does not decode ({what}); save it as PNG first", format.name())),
        ImageError::IoError(_) => job.damaged(format, "the file is cut off"),
        other => job.damaged(format, other.to_string()),
    }
}
