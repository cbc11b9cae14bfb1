//! Weights asked for before they are needed: unpacking waits for memory, multiplying does not.
//!
//! What is read next are 32 or 64 short pieces of the tensor, too short for the CPU to see a stream in them. So while the rows pass
//! over one slice, the lines of the next are asked for a few at a time.

use std::ops::Range;

use crate::format::{Layout, WeightType};
use crate::scheme::Weights;
use crate::{BLOCK, TILE_COLUMNS};

/// Bytes that memory gives at once.
const LINE: usize = 64;

/// The lines of one slice that are still to be asked for.
pub(crate) struct Ahead {
    /// The next line. May lie anywhere: asking for one that cannot be read does nothing.
    at: *const u8,
    /// Lines left of the piece that it lies in.
    lines: usize,
    /// Pieces behind that one.
    pieces: usize,
    /// Lines of a piece.
    length: usize,
    /// Bytes from the line behind one piece to the first of the next.
    gap: usize,
    /// How many to ask for in one step.
    share: usize,
}

impl Ahead {
    const NOTHING: Self = Self { at: std::ptr::null(), lines: 0, pieces: 0, length: 0, gap: 0, share: 0 };

    /// The lines of `blocks` of columns `first..first + panels * 32`, to be asked for in `steps` steps.
    pub(crate) fn of(
        kind: WeightType,
        weights: &Weights,
        first: usize,
        panels: usize,
        blocks: Range<usize>,
        steps: usize,
    ) -> Self {
        if first >= weights.columns {
            return Self::NOTHING;
        }
        let columns = (panels * TILE_COLUMNS).min(weights.columns - first);
        let bytes = |blocks: usize| kind.bytes(blocks * BLOCK);
        // woven columns lie eight together
        let (together, stride) = match weights.layout {
            Layout::Rows => (1, weights.stride),
            Layout::Woven8 => (8, kind.bytes(weights.k) * 8),
        };
        let start = weights.data.wrapping_add(first / together * stride + bytes(blocks.start) * together);
        let lead = start.addr() % LINE;
        let length = (lead + bytes(blocks.len()) * together).div_ceil(LINE);
        let pieces = columns.div_ceil(together);
        Self {
            at: start.wrapping_sub(lead),
            lines: length,
            pieces: pieces - 1,
            length,
            gap: stride.wrapping_sub(length * LINE),
            share: (pieces * length).div_ceil(steps.max(1)),
        }
    }

    /// The next line.
    #[inline(always)]
    fn next(&mut self) -> Option<*const u8> {
        if self.lines == 0 {
            self.pieces = self.pieces.checked_sub(1)?;
            self.at = self.at.wrapping_add(self.gap);
            self.lines = self.length;
        }
        let at = self.at;
        self.at = at.wrapping_add(LINE);
        self.lines -= 1;
        Some(at)
    }

    /// Asks for one step's lines.
    #[inline(always)]
    pub(crate) fn step(&mut self) {
        for _ in 0..self.share {
            let Some(at) = self.next() else { return };
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch reads nothing that the program sees, and does not fault wherever it points.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                // to the second level: the first holds the panels
                _mm_prefetch::<_MM_HINT_T1>(at.cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of the slice lies on a line that is asked for, and no line is far from it.
    #[test]
    fn a_slice_is_asked_for_and_little_else() {
        for (kind, layout, k, stride) in [
            (WeightType::Q8_0, Layout::Rows, 2048, 2176),
            (WeightType::Q4K, Layout::Rows, 512, 300),
            (WeightType::Q4K, Layout::Woven8, 512, 288),
            (WeightType::F16, Layout::Rows, 96, 192),
        ] {
            let data = std::ptr::without_provenance::<u8>(0x10_0014);
            let weights = Weights { data, stride, columns: 72, k, layout };
            let row = k / kind.unit() * kind.unit_bytes();
            for (first, panels, blocks) in [(0, 2, 0..2), (32, 2, 8..16), (64, 1, 0..3)] {
                if blocks.end * BLOCK > k || !(blocks.len() * BLOCK).is_multiple_of(kind.unit()) {
                    continue;
                }
                let mut ahead = Ahead::of(kind, &weights, first, panels, blocks.clone(), 1);
                let asked: Vec<usize> = std::iter::from_fn(|| ahead.next()).map(|at| at.addr()).collect();
                let bytes = |n: usize| n * BLOCK / kind.unit() * kind.unit_bytes();
                let mut needed = Vec::new();
                for column in first..72.min(first + panels * TILE_COLUMNS) {
                    let (start, from, to) = match layout {
                        Layout::Rows => (column * stride, bytes(blocks.start), bytes(blocks.end)),
                        Layout::Woven8 => (column / 8 * 8 * row, 8 * bytes(blocks.start), 8 * bytes(blocks.end)),
                    };
                    needed.extend((from..to).map(|byte| (data.addr() + start + byte) / LINE * LINE));
                }
                for line in &needed {
                    assert!(asked.iter().any(|at| at.abs_diff(*line) < LINE), "{kind:?} {first} {blocks:?}");
                }
                for at in &asked {
                    assert!(needed.iter().any(|line| at.abs_diff(*line) <= LINE), "{kind:?} {first} {blocks:?}");
                }
            }
        }
        let weights = Weights { data: std::ptr::null(), stride: 34, columns: 8, k: 32, layout: Layout::Rows };
        assert!(Ahead::of(WeightType::Q8_0, &weights, 32, 2, 0..1, 1).next().is_none());
    }

    #[test]
    fn lines_are_asked_for_once() {
        let bytes = [0_u8; 34 * 8];
        let weights = Weights { data: bytes.as_ptr(), stride: 34, columns: 8, k: 32, layout: Layout::Rows };
        let left = |steps: usize| {
            let mut ahead = Ahead::of(WeightType::Q8_0, &weights, 0, 1, 0..1, 5);
            (0..steps).for_each(|_| ahead.step());
            std::iter::from_fn(|| ahead.next()).count()
        };
        assert!((8..=16).contains(&left(0)));
        assert_eq!(left(1), left(0) - left(0).div_ceil(5));
        assert_eq!((left(5), left(9)), (0, 0));
    }
}
