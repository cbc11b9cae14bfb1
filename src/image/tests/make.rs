//! Writers for test pictures.

use std::io::Cursor;

use image::{ExtendedColorType, ImageEncoder};
use png::{BitDepth, ColorType};

/// An RGB picture in which every pixel is different.
pub(super) fn rgb(width: u32, height: u32) -> Vec<u8> {
    (0..width * height).flat_map(|i| [(i * 7 % 256) as u8, (i * 13 % 251) as u8, (255 - i % 256) as u8]).collect()
}

/// A PNG from packed rows as the format stores them.
pub(super) fn png(width: u32, height: u32, colour: ColorType, depth: BitDepth, rows: &[u8]) -> Vec<u8> {
    png_with(width, height, colour, depth, rows, |_| {})
}

/// [`png`] with a say in the encoder's settings.
pub(super) fn png_with(
    width: u32,
    height: u32,
    colour: ColorType,
    depth: BitDepth,
    rows: &[u8],
    settings: impl FnOnce(&mut png::Encoder<'_, &mut Vec<u8>>),
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(colour);
    encoder.set_depth(depth);
    settings(&mut encoder);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(rows).unwrap();
    writer.finish().unwrap();
    out
}

pub(super) fn png_rgb(width: u32, height: u32) -> Vec<u8> {
    png(width, height, ColorType::Rgb, BitDepth::Eight, &rgb(width, height))
}

/// A PNG chunk with its checksum.
pub(super) fn png_chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let mut body = name.to_vec();
    body.extend_from_slice(content);
    let mut sum = u32::MAX;
    for &byte in &body {
        sum ^= u32::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 };
        }
    }
    [(content.len() as u32).to_be_bytes().as_slice(), &body, &(!sum).to_be_bytes()].concat()
}

/// Puts a chunk behind IHDR, or before IEND.
pub(super) fn png_insert(png: &[u8], name: &[u8; 4], content: &[u8], at_end: bool) -> Vec<u8> {
    let at = if at_end { png.len() - 12 } else { 33 };
    [&png[..at], &png_chunk(name, content), &png[at..]].concat()
}

/// A PNG of a few dozen bytes that declares any size.
pub(super) fn png_declaring(width: u32, height: u32) -> Vec<u8> {
    let header = [width.to_be_bytes().as_slice(), &height.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    let data = [0x78, 0x9C, 0x63, 0x60, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01];
    [
        b"\x89PNG\r\n\x1a\n".as_slice(),
        &png_chunk(b"IHDR", &header),
        &png_chunk(b"IDAT", &data),
        &png_chunk(b"IEND", b""),
    ]
    .concat()
}

/// An APNG of two frames; the still picture is the first of them.
pub(super) fn apng(width: u32, height: u32, first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_animated(2, 0).unwrap();
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(first).unwrap();
    writer.write_image_data(second).unwrap();
    writer.finish().unwrap();
    out
}

pub(super) fn webp_lossless(width: u32, height: u32, samples: &[u8], colour: ExtendedColorType) -> Vec<u8> {
    let mut out = Vec::new();
    image::codecs::webp::WebPEncoder::new_lossless(&mut out).encode(samples, width, height, colour).unwrap();
    out
}

/// Puts a simple WebP into the extended container, with an EXIF chunk.
pub(super) fn webp_with_exif(webp: &[u8], width: u32, height: u32, exif: &[u8]) -> Vec<u8> {
    let side = |px: u32| (px - 1).to_le_bytes()[..3].to_vec();
    let head = [&[0x08, 0, 0, 0][..], &side(width), &side(height)].concat();
    riff(&[riff_chunk(b"VP8X", &head), webp[12..].to_vec(), riff_chunk(b"EXIF", exif)].concat())
}

pub(super) fn riff_chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let padding = vec![0; content.len() % 2];
    [name.as_slice(), &(content.len() as u32).to_le_bytes(), content, &padding].concat()
}

pub(super) fn riff(chunks: &[u8]) -> Vec<u8> {
    [b"RIFF".as_slice(), &(chunks.len() as u32 + 4).to_le_bytes(), b"WEBP", chunks].concat()
}

/// A GIF of the given RGBA frames, all of the same size.
pub(super) fn gif(width: u32, height: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    {
        let mut encoder = image::codecs::gif::GifEncoder::new(&mut out);
        for frame in frames {
            encoder.encode(frame, width, height, ExtendedColorType::Rgba8).unwrap();
        }
    }
    out
}

pub(super) fn bmp(width: u32, height: u32, samples: &[u8], colour: ExtendedColorType) -> Vec<u8> {
    let mut out = Vec::new();
    image::codecs::bmp::BmpEncoder::new(&mut out).encode(samples, width, height, colour).unwrap();
    out
}

pub(super) fn qoi(width: u32, height: u32, samples: &[u8], colour: ExtendedColorType) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image::codecs::qoi::QoiEncoder::new(&mut out).write_image(samples, width, height, colour).unwrap();
    out.into_inner()
}

pub(super) fn ppm(width: u32, height: u32, samples: &[u8]) -> Vec<u8> {
    [format!("P6\n{width} {height}\n255\n").as_bytes(), samples].concat()
}

/// An EXIF block (TIFF structure) that holds nothing but the orientation.
pub(super) fn exif(orientation: u16, big_endian: bool) -> Vec<u8> {
    tiff(big_endian, &[(274, 3, vec![orientation.into()])], &[])
}

/// A TIFF of one directory. Entries: tag, type (1 byte, 3 short, 4 long), values; they must come in order of tags. Data
/// follow the header at byte 8, where a strip offset may point.
pub(super) fn tiff(big_endian: bool, entries: &[(u16, u16, Vec<u32>)], data: &[u8]) -> Vec<u8> {
    let u16_bytes = |v: u32| if big_endian { (v as u16).to_be_bytes() } else { (v as u16).to_le_bytes() };
    let u32_bytes = |v: u32| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() };
    let data_length = data.len().next_multiple_of(2);
    let directory_at = 8 + data_length;
    let mut spill_at = directory_at + 2 + entries.len() * 12 + 4;
    let mut out = if big_endian { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
    out.extend(u32_bytes(directory_at as u32));
    out.extend_from_slice(data);
    out.resize(directory_at, 0);
    out.extend(u16_bytes(entries.len() as u32));
    let mut spill = Vec::new();
    for (tag, kind, values) in entries {
        let mut raw: Vec<u8> = values
            .iter()
            .flat_map(|&v| match kind {
                1 => vec![v as u8],
                3 => u16_bytes(v).to_vec(),
                _ => u32_bytes(v).to_vec(),
            })
            .collect();
        out.extend(u16_bytes((*tag).into()));
        out.extend(u16_bytes((*kind).into()));
        out.extend(u32_bytes(values.len() as u32));
        if raw.len() <= 4 {
            raw.resize(4, 0);
            out.extend(raw);
        } else {
            out.extend(u32_bytes(spill_at as u32));
            raw.resize(raw.len().next_multiple_of(2), 0);
            spill_at += raw.len();
            spill.extend(raw);
        }
    }
    out.extend(u32_bytes(0));
    out.extend(spill);
    out
}

/// An uncompressed TIFF of one strip.
pub(super) fn tiff_picture(
    (width, height): (u32, u32),
    photometric: u32,
    bits: &[u32],
    extra: &[(u16, u16, Vec<u32>)],
    data: &[u8],
) -> Vec<u8> {
    let mut entries = vec![
        (256, 4, vec![width]),
        (257, 4, vec![height]),
        (258, 3, bits.to_vec()),
        (259, 3, vec![1]),
        (262, 3, vec![photometric]),
        (273, 4, vec![8]),
        (277, 3, vec![bits.len() as u32]),
        (278, 4, vec![height]),
        (279, 4, vec![data.len() as u32]),
    ];
    entries.extend_from_slice(extra);
    entries.sort_by_key(|entry| entry.0);
    tiff(false, &entries, data)
}

/// Puts an APP1 segment behind the start of a JPEG.
pub(super) fn jpeg_with_exif(jpeg: &[u8], exif: &[u8]) -> Vec<u8> {
    jpeg_with_segment(jpeg, 0xE1, &[b"Exif\0\0", exif].concat())
}

pub(super) fn jpeg_with_segment(jpeg: &[u8], marker: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xFF, marker], &length, content, &jpeg[2..]].concat()
}
