//! The eight ways a stored picture can lie, and how to set it upright.

/// How the stored rows have to be turned to stand upright (EXIF tag 0x0112).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Orientation {
    /// 1: as stored.
    #[default]
    Upright,
    /// 2: mirrored left to right.
    MirrorHorizontal,
    /// 3: turned by half a turn.
    Rotate180,
    /// 4: mirrored top to bottom.
    MirrorVertical,
    /// 5: rows and columns swapped.
    Transpose,
    /// 6: needs a quarter turn clockwise (the usual portrait photo).
    Rotate90,
    /// 7: rows and columns swapped along the other diagonal.
    Transverse,
    /// 8: needs a quarter turn counter-clockwise.
    Rotate270,
}

impl Orientation {
    /// From the EXIF value; values outside of 1 to 8 mean nothing and give `None`.
    #[must_use]
    pub fn from_exif(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::Upright,
            2 => Self::MirrorHorizontal,
            3 => Self::Rotate180,
            4 => Self::MirrorVertical,
            5 => Self::Transpose,
            6 => Self::Rotate90,
            7 => Self::Transverse,
            8 => Self::Rotate270,
            _ => return None,
        })
    }

    /// The EXIF value, 1 to 8.
    #[must_use]
    pub fn to_exif(self) -> u32 {
        match self {
            Self::Upright => 1,
            Self::MirrorHorizontal => 2,
            Self::Rotate180 => 3,
            Self::MirrorVertical => 4,
            Self::Transpose => 5,
            Self::Rotate90 => 6,
            Self::Transverse => 7,
            Self::Rotate270 => 8,
        }
    }

    /// Whether columns and rows change places.
    #[must_use]
    pub fn swaps_sides(self) -> bool {
        matches!(self, Self::Transpose | Self::Rotate90 | Self::Transverse | Self::Rotate270)
    }

    /// Sets packed RGB upright: `(width_px, height_px, pixels)` of the result. No pixel value changes.
    pub(super) fn apply(self, width_px: u32, height_px: u32, rgb: Vec<u8>) -> (u32, u32, Vec<u8>) {
        if self == Self::Upright {
            return (width_px, height_px, rgb);
        }
        let (source, _) = rgb.as_chunks::<3>();
        let (width, height) = (width_px as usize, height_px as usize);
        // Where the upright pixel (column, row) lies in the stored picture.
        let stored = |column: usize, row: usize| match self {
            Self::Upright => (column, row),
            Self::MirrorHorizontal => (width - 1 - column, row),
            Self::Rotate180 => (width - 1 - column, height - 1 - row),
            Self::MirrorVertical => (column, height - 1 - row),
            Self::Transpose => (row, column),
            Self::Rotate90 => (row, height - 1 - column),
            Self::Transverse => (width - 1 - row, height - 1 - column),
            Self::Rotate270 => (width - 1 - row, column),
        };
        let (columns, rows) = if self.swaps_sides() { (height, width) } else { (width, height) };
        let mut upright = vec![0; rgb.len()];
        let (target, _) = upright.as_chunks_mut::<3>();
        // Square tiles keep both the read and the write side inside the cache when sides are swapped.
        const TILE: usize = 32;
        for top in (0..rows).step_by(TILE) {
            for left in (0..columns).step_by(TILE) {
                for row in top..(top + TILE).min(rows) {
                    for column in left..(left + TILE).min(columns) {
                        let (x, y) = stored(column, row);
                        target[row * columns + column] = source[y * width + x];
                    }
                }
            }
        }
        (columns as u32, rows as u32, upright)
    }
}
