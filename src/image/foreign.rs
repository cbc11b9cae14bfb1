//! Naming what is no picture for us: known formats without a decoder here, and things that are no picture at all.

/// A sentence that says what the bytes are and what to do. Called only when no decoder claims them.
pub(super) fn describe(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "the file is empty".into();
    }
    if let Some(brand) = iso_brand(bytes) {
        return describe_iso(brand);
    }
    for (offset, magic, what) in SIGNATURES {
        if bytes.get(*offset..).is_some_and(|rest| rest.starts_with(magic)) {
            return (*what).into();
        }
    }
    if let Some(what) = describe_text(bytes) {
        return what;
    }
    let head: Vec<String> = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect();
    format!(
        "{} bytes of no known picture format (they begin with {}); JPEG, PNG, WebP, GIF, BMP, TIFF, PNM and QOI are read",
        bytes.len(),
        head.join(" ")
    )
}

/// Signature offset, signature, and the answer. Longer and rarer signatures come before shorter ones.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL picture; convert it to PNG or JPEG first (djxl, or an image viewer)"),
    (0, b"\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 picture; convert it to PNG first"),
    (0, b"\xff\x4f\xff\x51", "a JPEG 2000 codestream; convert it to PNG first"),
    (0, b"\xff\x0a", "a JPEG XL picture; convert it to PNG or JPEG first (djxl, or an image viewer)"),
    (0, b"8BPS", "a Photoshop document; export it as PNG or JPEG"),
    (0, b"gimp xcf", "a GIMP document; export it as PNG or JPEG"),
    (0, b"\0\0\x01\0", "a Windows icon; save it as PNG"),
    (0, b"\0\0\x02\0", "a Windows cursor; save it as PNG"),
    (0, b"\x76\x2f\x31\x01", "an OpenEXR picture; convert it to PNG first"),
    (0, b"#?RADIANCE", "a Radiance HDR picture; convert it to PNG first"),
    (0, b"DDS ", "a DirectDraw texture; convert it to PNG first"),
    (0, b"\xd7\xcd\xc6\x9a", "a Windows metafile; convert it to PNG first"),
    (0, b"II*\0", "a Canon raw photo; export it as JPEG or TIFF"),
    (0, b"FUJIFILMCCD-RAW", "a Fujifilm raw photo; export it as JPEG or TIFF"),
    (0, b"IIRO", "an Olympus raw photo; export it as JPEG or TIFF"),
    (0, b"IIU\0", "a Panasonic raw photo; export it as JPEG or TIFF"),
    (0, b"%PDF", "a PDF document; turn the page into PNG first (pdftoppm -png)"),
    (0, b"%!PS", "a PostScript document; turn the page into PNG first"),
    (0, b"{\\rtf", "a text document, no picture"),
    (0, b"\x1a\x45\xdf\xa3", "a Matroska or WebM video; extract a frame as PNG first"),
    (8, b"AVI ", "an AVI video; extract a frame as PNG first"),
    (8, b"WAVE", "a sound file, no picture"),
    (0, b"ID3", "a sound file, no picture"),
    (0, b"fLaC", "a sound file, no picture"),
    (0, b"OggS", "an Ogg sound or video file, no picture"),
    (0, b"PK\x03\x04", "a ZIP archive or office document; unpack it, or export the page as PNG"),
    (0, b"\x1f\x8b", "a gzip archive; unpack it first"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive; unpack it first"),
    (0, b"Rar!", "a RAR archive; unpack it first"),
    (0, b"\x7fELF", "a program, no picture"),
    (0, b"GGUF", "a GGUF model file, no picture; models are given with -m or --mmproj"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the picture itself; fetch it with `git lfs pull`"),
];

/// The brand of an ISO base media file (HEIF, AVIF, MP4, ...). `mif1` says "some picture"; then the compatible brands
/// tell which codec it is.
fn iso_brand(bytes: &[u8]) -> Option<[u8; 4]> {
    if bytes.get(4..8)? != b"ftyp" {
        return None;
    }
    let major: [u8; 4] = bytes.get(8..12)?.try_into().ok()?;
    let length = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let compatible = bytes.get(16..length.min(bytes.len()).min(256)).unwrap_or_default();
    if matches!(&major, b"mif1" | b"msf1") && compatible.chunks(4).any(|brand| brand == b"avif" || brand == b"avis") {
        return Some(*b"avif");
    }
    Some(major)
}

fn describe_iso(brand: [u8; 4]) -> String {
    match &brand {
        b"heic" | b"heix" | b"heim" | b"heis" | b"hevc" | b"hevx" | b"mif1" | b"msf1" | b"heif" => {
            "a HEIC/HEIF picture, which this build does not decode; convert it to JPEG or PNG first \
             (heif-convert, or `sips -s format jpeg` on macOS; on the phone: camera format \"most compatible\")"
                .into()
        }
        b"avif" | b"avis" => {
            "an AVIF picture, which this build does not decode; convert it to JPEG or PNG first (avifdec, or an image viewer)"
                .into()
        }
        b"crx " => "a Canon raw photo; export it as JPEG or TIFF".into(),
        b"M4A " | b"M4B " => "a sound file, no picture".into(),
        _ => format!(
            "an MPEG-4 family file (brand `{}`), a video; extract a frame as PNG first",
            brand.escape_ascii()
        ),
    }
}

/// Text of any kind, looked at through its first 4 KiB.
fn describe_text(bytes: &[u8]) -> Option<String> {
    let head = &bytes[..bytes.len().min(4096)];
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // A character cut in two by the 4 KiB border is still text.
        Err(e) if e.error_len().is_none() && e.valid_up_to() > 0 => {
            std::str::from_utf8(&head[..e.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\x0c')) {
        return None;
    }
    let lower = text.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    Some(if lower.starts_with("<svg") || (lower.starts_with("<?xml") && lower.contains("<svg")) {
        "an SVG drawing; render it to PNG first (rsvg-convert, or a browser)".into()
    } else if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        "a web page, not a picture; the download probably gave an error page".into()
    } else if lower.starts_with("data:image/") {
        "a data URL; decode the base64 text after the comma first".into()
    } else if lower.starts_with("{") || lower.starts_with("<?xml") {
        "JSON or XML text, no picture".into()
    } else {
        "a text file, no picture".into()
    })
}
