//! The one EXIF tag that matters here, read without trusting any offset or count in it.
//!
//! Source: TIFF 6.0 (image file directories) and EXIF 2.32 (tag 0x0112). Only the first directory is looked at, at most
//! 65,535 entries of it, and nothing is copied, so a gigantic or circular EXIF block costs nothing.

use super::orientation::Orientation;

const TAG_ORIENTATION: u16 = 0x0112;

/// A TIFF structure in memory: byte order and bounds-checked reads.
#[derive(Clone, Copy)]
pub(super) struct Directory<'a> {
    bytes: &'a [u8],
    big_endian: bool,
    first_entry: usize,
    entries: usize,
}

/// One directory entry: type code, count, and where its value field lies.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub kind: u16,
    pub count: u32,
    pub value_at: usize,
}

impl<'a> Directory<'a> {
    /// The first directory of a classic TIFF or EXIF block, or `None` when it is not one.
    pub(super) fn first(bytes: &'a [u8]) -> Option<Self> {
        let big_endian = match bytes.get(..4)? {
            b"II*\0" => false,
            b"MM\0*" => true,
            _ => return None,
        };
        let mut directory = Self { bytes, big_endian, first_entry: 0, entries: 0 };
        let at = directory.u32_at(4)? as usize;
        directory.entries = usize::from(directory.u16_at(at)?);
        directory.first_entry = at.checked_add(2)?;
        Some(directory)
    }

    pub(super) fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// The first entry with this tag.
    pub(super) fn find(&self, tag: u16) -> Option<Entry> {
        for index in 0..self.entries {
            let at = self.first_entry.checked_add(index * 12)?;
            if self.u16_at(at)? == tag {
                return Some(Entry { kind: self.u16_at(at + 2)?, count: self.u32_at(at + 4)?, value_at: at + 8 });
            }
        }
        None
    }

    /// The longest text that an entry claims to hold, in bytes.
    pub(super) fn longest_text(&self) -> u32 {
        const ASCII: u16 = 2;
        let entry = |index: usize| {
            let at = self.first_entry.checked_add(index * 12)?;
            (self.u16_at(at + 2)? == ASCII).then(|| self.u32_at(at + 4)).flatten()
        };
        (0..self.entries).filter_map(entry).max().unwrap_or(0)
    }

    /// The first value of an entry that holds BYTE, SHORT or LONG inline.
    pub(super) fn number(&self, tag: u16) -> Option<u32> {
        let entry = self.find(tag)?;
        match (entry.kind, entry.count) {
            (_, 0) => None,
            (1, _) => self.bytes.get(entry.value_at).map(|&v| u32::from(v)),
            (3, _) => self.u16_at(entry.value_at).map(u32::from),
            (4, _) => self.u32_at(entry.value_at),
            _ => None,
        }
    }

    fn u16_at(&self, at: usize) -> Option<u16> {
        let raw: [u8; 2] = self.bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if self.big_endian { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) })
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        let raw: [u8; 4] = self.bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if self.big_endian { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) })
    }
}

/// The orientation an EXIF block asks for. A missing, broken or meaningless tag means [`Orientation::Upright`].
///
/// The `Exif\0\0` prefix that JPEG requires is accepted everywhere: some writers put it into PNG and WebP as well.
pub(super) fn orientation(block: &[u8]) -> Orientation {
    let block = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
    Directory::first(block)
        .and_then(|directory| directory.number(TAG_ORIENTATION))
        .and_then(Orientation::from_exif)
        .unwrap_or_default()
}
