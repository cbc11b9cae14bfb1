//! The marker segments around the picture data, in the order they come.

use super::super::composite::Frame;
use super::super::exif;
use super::super::limits::Job;
use super::super::orientation::Orientation;
use super::bits::find_marker;
use super::frame::JpegFrame;
use super::huffman::Huffman;
use super::{Fault, colour, damaged, scan};

/// Zigzag position to natural (row-major) position (T.81 figure A.6).
pub(super) const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// More scans than any encoder writes; bounds the time a small hostile file can take.
const MAX_SCANS: u32 = 256;

/// What segments have defined so far.
#[derive(Default)]
pub(super) struct Tables {
    /// Quantisation steps in natural order.
    pub quant: [Option<[u16; 64]>; 4],
    pub dc: [Option<Huffman>; 4],
    pub ac: [Option<Huffman>; 4],
    /// MCUs between restart markers, 0 for none.
    pub restart_interval: u32,
    pub jfif: bool,
    /// The colour transform of the Adobe marker, if there is one.
    pub adobe_transform: Option<u8>,
}

/// Walks through the file and gives the picture in stored orientation, with the orientation.
pub(super) fn decode(bytes: &[u8], job: Job<'_>) -> Result<(Frame, Orientation), Fault> {
    let mut tables = Tables::default();
    let mut frame: Option<JpegFrame> = None;
    let mut orientation = None;
    let mut scans = 0;
    let mut at = 2;
    let mut has_end = false;
    while let Some((marker, after)) = find_marker(bytes, at) {
        at = after;
        match marker {
            0xD9 => {
                has_end = true;
                break;
            }
            // Markers without a segment: restart markers, start of image, TEM.
            0x01 | 0xD0..=0xD8 => continue,
            _ => {}
        }
        let segment = match segment_at(bytes, at) {
            Some(segment) => segment,
            // Junk behind the last scan is not worth a refusal; before it, the file is cut off.
            None if scans > 0 => break,
            None => {
                return Err(damaged(format!("a segment at byte {at} is longer than the file; the file is cut off")));
            }
        };
        at += 2 + segment.len();
        match marker {
            0xC0..=0xC2 => {
                if frame.is_some() {
                    return Err(damaged("there are two frame headers"));
                }
                frame = Some(JpegFrame::parse(segment, marker == 0xC2, bytes.len() - at, job)?);
            }
            0xC4 => huffman_tables(segment, &mut tables)?,
            0xC3 | 0xC7 | 0xCB | 0xCF => return Err(Fault::Unsupported("a lossless JPEG".into())),
            0xC5 | 0xC6 | 0xCD | 0xCE => return Err(Fault::Unsupported("a hierarchical JPEG".into())),
            0xC9 | 0xCA | 0xCC => return Err(Fault::Unsupported("a JPEG with arithmetic coding".into())),
            0xF7 => return Err(Fault::Unsupported("a JPEG-LS picture".into())),
            0xDB => quantisation_tables(segment, &mut tables)?,
            0xDD => match *segment {
                [high, low] => tables.restart_interval = u32::from(u16::from_be_bytes([high, low])),
                _ => return Err(damaged("the restart interval segment has a wrong length")),
            },
            0xE0 if segment.starts_with(b"JFIF\0") => tables.jfif = true,
            0xE1 if segment.starts_with(b"Exif\0\0") && orientation.is_none() => {
                orientation = Some(exif::orientation(segment));
            }
            0xEE if segment.starts_with(b"Adobe") && segment.len() >= 12 => tables.adobe_transform = Some(segment[11]),
            0xDA => {
                let frame = frame.as_mut().ok_or_else(|| damaged("picture data come before the frame header"))?;
                scans += 1;
                if scans > MAX_SCANS {
                    return Err(damaged(format!("there are more than {MAX_SCANS} scans")));
                }
                at = scan::decode(bytes, at, segment, frame, &tables)?;
            }
            _ => {}
        }
    }
    let mut frame = frame.ok_or_else(|| damaged("there is no frame header; the file is cut off"))?;
    if let Some(missing) = frame.components.iter().find(|component| component.quant.is_none()) {
        return Err(damaged(format!("component {} has no data; the file is cut off", missing.id)));
    }
    // A progressive picture may stop at a lower quality on purpose, but then it says that it ends.
    if frame.progressive && !has_end && frame.components.iter().any(|component| component.finished != u64::MAX) {
        return Err(damaged("scans are missing; the file is cut off"));
    }
    scan::finish(&mut frame);
    Ok((colour::render(&frame, &tables), orientation.unwrap_or_default()))
}

/// The content of the segment whose length field is at `at`.
fn segment_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let length = usize::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    bytes.get(at + 2..at + length.max(2))
}

fn quantisation_tables(mut segment: &[u8], tables: &mut Tables) -> Result<(), Fault> {
    while let [head, rest @ ..] = segment {
        let (wide, index) = (head >> 4, usize::from(head & 15));
        let length = if wide == 0 { 64 } else { 128 };
        if wide > 1 || index > 3 || rest.len() < length {
            return Err(damaged("a quantisation table is malformed"));
        }
        let mut table = [0; 64];
        for (k, &position) in ZIGZAG.iter().enumerate() {
            table[usize::from(position)] =
                if wide == 0 { u16::from(rest[k]) } else { u16::from_be_bytes([rest[2 * k], rest[2 * k + 1]]) };
        }
        tables.quant[index] = Some(table);
        segment = &rest[length..];
    }
    Ok(())
}

fn huffman_tables(mut segment: &[u8], tables: &mut Tables) -> Result<(), Fault> {
    while let [head, rest @ ..] = segment {
        let (class, index) = (head >> 4, usize::from(head & 15));
        let Some((counts, rest)) = rest.split_first_chunk::<16>() else {
            return Err(damaged("a Huffman table is cut off"));
        };
        let length: usize = counts.iter().map(|&count| usize::from(count)).sum();
        if class > 1 || index > 3 || length > 256 || rest.len() < length {
            return Err(damaged("a Huffman table is malformed"));
        }
        let table = Huffman::new(counts, &rest[..length])?;
        if class == 0 {
            tables.dc[index] = Some(table);
        } else {
            tables.ac[index] = Some(table);
        }
        segment = &rest[length..];
    }
    Ok(())
}
