//! The way of one picture: file, format, header check, pixels, upright, opaque.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::composite::{Background, Frame};
use super::limits::{Job, Limits};
use super::orientation::Orientation;
use super::rgb::RgbImage;
use super::sniff::{Format, sniff};
use super::{foreign, gif, jpeg, png, tiff, via_image, webp};
use crate::error::{Error, Result};

/// How to take a picture in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Bounds that are enforced before pixels are allocated.
    pub limits: Limits,
    /// What shows through transparent pixels. Part of the pixels, so part of every key made from them.
    pub background: Background,
    /// Whether the EXIF (or TIFF) orientation is applied. Default `true`.
    pub apply_orientation: bool,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { limits: Limits::default(), background: Background::WHITE, apply_orientation: true }
    }
}

/// A picture and what was found on the way to it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Decoded {
    /// Upright, opaque pixels.
    pub image: RgbImage,
    /// The format found in the content.
    pub format: Format,
    /// The orientation that was applied; [`Orientation::Upright`] when none was stored or it was not to be applied.
    pub orientation: Orientation,
    /// Whether the background shows through at least one pixel.
    pub had_alpha: bool,
}

/// Decodes a picture held in memory. `name` is what errors call it: a file name, or `<memory>`.
///
/// # Errors
/// - [`Error::PictureFormat`]: empty, no picture, or a format or variant that this build does not decode (named).
/// - [`Error::PictureDamaged`]: truncated or contradicting itself.
/// - [`Error::PictureTooLarge`]: longer or larger than [`Limits`] allow; refused before any pixel was decoded.
///
/// # Example
/// ```
/// use llava::image::{DecodeOptions, decode};
///
/// let picture = decode(b"P6 2 1 255 \xff\0\0\0\0\xff", "two.ppm", &DecodeOptions::default())?;
/// assert_eq!((picture.image.width_px(), picture.image.height_px()), (2, 1));
/// assert_eq!(picture.image.pixel(1, 0), Some([0, 0, 255]));
/// # Ok::<(), llava::Error>(())
/// ```
pub fn decode(bytes: &[u8], name: &str, options: &DecodeOptions) -> Result<Decoded> {
    // Every decoder answers with `Err` on bad input, and tests mutate thousands of files to hold them to it. Should
    // a codec crate panic all the same, the panic ends here as a damaged picture and not in the caller's thread.
    match catch_unwind(AssertUnwindSafe(|| decode_unguarded(bytes, name, options))) {
        Ok(result) => result,
        Err(_) => Err(Error::PictureDamaged {
            name: name.into(),
            format: sniff(bytes).map_or("picture", Format::name),
            reason: "the decoder gave up on it".into(),
        }),
    }
}

/// [`decode`] without the safety net, so that tests see a panic as a panic.
pub(super) fn decode_unguarded(bytes: &[u8], name: &str, options: &DecodeOptions) -> Result<Decoded> {
    let job = Job { name, limits: &options.limits };
    job.check("file bytes", bytes.len() as u64, options.limits.max_file_bytes)?;
    let Some(format) = sniff(bytes) else {
        return Err(job.unsupported(foreign::describe(bytes)));
    };
    let (frame, stored) = match format {
        Format::Jpeg => jpeg::decode(bytes, job)?,
        Format::Png => png::decode(bytes, job)?,
        Format::WebP => webp::decode(bytes, job)?,
        Format::Gif => (gif::decode(bytes, job)?, Orientation::Upright),
        Format::Tiff => tiff::decode(bytes, job)?,
        Format::Bmp => (via_image::bmp(bytes, job)?, Orientation::Upright),
        Format::Pnm => (via_image::pnm(bytes, job)?, Orientation::Upright),
        Format::Qoi => (via_image::qoi(bytes, job)?, Orientation::Upright),
    };
    let orientation = if options.apply_orientation { stored } else { Orientation::Upright };
    finish(frame, format, orientation, options.background)
}

fn finish(frame: Frame, format: Format, orientation: Orientation, background: Background) -> Result<Decoded> {
    let (width_px, height_px) = (frame.width_px, frame.height_px);
    let (rgb, had_alpha) = frame.into_rgb(background);
    let (width_px, height_px, rgb) = orientation.apply(width_px, height_px, rgb);
    Ok(Decoded { image: RgbImage::from_rgb(width_px, height_px, rgb)?, format, orientation, had_alpha })
}

/// Reads and decodes a picture file; pipes work too. The file's name plays no part in what it is taken for.
///
/// # Errors
/// [`Error::Io`] when it cannot be opened or read (a folder included), otherwise those of [`decode`], with the path.
pub fn load(path: impl AsRef<Path>, options: &DecodeOptions) -> Result<Decoded> {
    let path = path.as_ref();
    let bytes = read(path, &options.limits)?;
    decode(&bytes, &path.display().to_string(), options)
}

fn read(path: &Path, limits: &Limits) -> Result<Vec<u8>> {
    let io = |action, source| Error::Io { action, path: path.into(), source };
    let file = File::open(path).map_err(|source| io("open", source))?;
    let metadata = file.metadata().map_err(|source| io("open", source))?;
    if metadata.is_dir() {
        return Err(io("read", ErrorKind::IsADirectory.into()));
    }
    let too_large = |value| Error::PictureTooLarge {
        name: path.display().to_string(),
        what: "file bytes",
        value,
        limit: limits.max_file_bytes,
    };
    if metadata.is_file() && metadata.len() > limits.max_file_bytes {
        return Err(too_large(metadata.len()));
    }
    // One byte more than allowed tells "too long" for pipes and growing files, whose length nobody knows beforehand.
    let mut bytes = Vec::new();
    file.take(limits.max_file_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(|source| io("read", source))?;
    if bytes.len() as u64 > limits.max_file_bytes {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}
