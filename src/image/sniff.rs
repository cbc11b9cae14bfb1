//! Which decoder takes a file, by its first bytes.

/// A picture format that this build decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG: baseline, extended and progressive Huffman, 8 bits.
    Jpeg,
    /// PNG and APNG (its default picture).
    Png,
    /// WebP, lossy and lossless, still and animated (first frame).
    WebP,
    /// GIF (first frame).
    Gif,
    /// Windows and OS/2 bitmap.
    Bmp,
    /// TIFF and BigTIFF (first page).
    Tiff,
    /// PBM, PGM, PPM and PAM.
    Pnm,
    /// QOI.
    Qoi,
}

impl Format {
    /// The name used in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
            Self::Tiff => "TIFF",
            Self::Pnm => "PNM",
            Self::Qoi => "QOI",
        }
    }
}

/// The format whose signature the content carries.
pub(super) fn sniff(bytes: &[u8]) -> Option<Format> {
    let at = |offset: usize, magic: &[u8]| bytes.get(offset..).is_some_and(|rest| rest.starts_with(magic));
    if at(0, &[0xFF, 0xD8, 0xFF]) {
        Some(Format::Jpeg)
    } else if at(0, b"\x89PNG\r\n\x1a\n") {
        Some(Format::Png)
    } else if at(0, b"RIFF") && at(8, b"WEBP") {
        Some(Format::WebP)
    } else if at(0, b"GIF87a") || at(0, b"GIF89a") {
        Some(Format::Gif)
    } else if at(0, b"BM") && bytes.get(14..18).is_some_and(is_bmp_header_length) {
        Some(Format::Bmp)
    } else if is_tiff(bytes) && !at(8, b"CR\x02") {
        Some(Format::Tiff)
    } else if at(0, b"qoif") {
        Some(Format::Qoi)
    } else if let [b'P', b'1'..=b'7', b' ' | b'\t' | b'\n' | b'\r' | b'#', ..] = bytes {
        Some(Format::Pnm)
    } else {
        None
    }
}

fn is_tiff(bytes: &[u8]) -> bool {
    [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|magic| bytes.starts_with(*magic))
}

/// "BM" alone could open a letter; the length of the header that follows cannot be mistaken.
fn is_bmp_header_length(raw: &[u8]) -> bool {
    matches!(raw, [12 | 16 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0])
}
