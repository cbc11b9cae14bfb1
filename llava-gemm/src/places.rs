//! Which row of activations stands where: six to a tile, and with experts the rows of each in tiles of their own.

use crate::TILE_ROWS;

/// No row: fills up the last tile of an expert.
const NOBODY: u32 = u32::MAX;

/// Tiles that `rows` rows take at most when they are shared out among `experts`.
pub(crate) fn most_tiles(rows: usize, experts: usize) -> Option<usize> {
    let lost = experts.min(rows).checked_mul(TILE_ROWS - 1)?;
    if experts == 1 { Some(rows.div_ceil(TILE_ROWS)) } else { Some(rows.checked_add(lost)? / TILE_ROWS) }
}

/// Rows in their places.
#[derive(Clone, Copy)]
pub(crate) enum Places<'a> {
    /// All rows one after the other.
    Plain(usize),
    /// First tiles of the experts and the end, and the row of each place.
    Grouped { starts: &'a [u32], order: &'a [u32] },
}

impl Places<'_> {
    /// The row that stands there.
    pub(crate) fn row(&self, place: usize) -> Option<usize> {
        match self {
            Self::Plain(rows) => (place < *rows).then_some(place),
            Self::Grouped { order, .. } => order.get(place).filter(|row| **row != NOBODY).map(|row| *row as usize),
        }
    }

    /// Tiles of one expert.
    pub(crate) fn tiles(&self, expert: usize) -> std::ops::Range<usize> {
        match self {
            Self::Plain(rows) => 0..rows.div_ceil(TILE_ROWS),
            Self::Grouped { starts, .. } => starts[expert] as usize..starts[expert + 1] as usize,
        }
    }

    /// Tiles of all.
    pub(crate) fn all_tiles(&self) -> usize {
        match self {
            Self::Plain(rows) => rows.div_ceil(TILE_ROWS),
            Self::Grouped { starts, .. } => starts.last().map_or(0, |end| *end as usize),
        }
    }
}

/// Sorts rows by expert, in their order. `starts` gets the first tile of each expert and the end; `used` has a number for each
/// expert, `order` a place for each row of [`most_tiles`]. False where a row names an expert that does not exist.
pub(crate) fn group(
    expert_of: impl Fn(usize) -> i32,
    rows: usize,
    starts: &mut [u32],
    used: &mut [u32],
    order: &mut [u32],
) -> bool {
    used.fill(0);
    for row in 0..rows {
        let Some(count) = usize::try_from(expert_of(row)).ok().and_then(|expert| used.get_mut(expert)) else {
            return false;
        };
        *count += 1;
    }
    let mut tile = 0;
    for (start, count) in starts.iter_mut().zip(used.iter()) {
        *start = tile;
        tile += count.div_ceil(TILE_ROWS as u32);
    }
    if let Some(end) = starts.last_mut() {
        *end = tile;
    }
    order.fill(NOBODY);
    used.fill(0);
    for row in 0..rows {
        let expert = expert_of(row) as usize;
        order[starts[expert] as usize * TILE_ROWS + used[expert] as usize] = row as u32;
        used[expert] += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_keep_their_order() {
        let ids = [2, 0, 2, 2, 0, 2, 2, 2, 2, 4];
        let (mut starts, mut used) = ([9; 6], [9; 5]);
        let mut order = vec![7; most_tiles(ids.len(), 5).unwrap() * TILE_ROWS];
        assert!(group(|row| ids[row], ids.len(), &mut starts, &mut used, &mut order));
        assert_eq!(starts, [0, 1, 1, 3, 3, 4]);
        let places = Places::Grouped { starts: &starts, order: &order };
        let of = |expert| places.tiles(expert).flat_map(|t| t * 6..t * 6 + 6).filter_map(|p| places.row(p));
        let found: Vec<Vec<usize>> = (0..5).map(|expert| of(expert).collect()).collect();
        assert_eq!(found, [vec![1, 4], vec![], vec![0, 2, 3, 5, 6, 7, 8], vec![], vec![9]]);
        assert_eq!(places.all_tiles(), 4);
        for bad in [-1, 5, i32::MIN, i32::MAX] {
            assert!(!group(|row| if row == 3 { bad } else { 0 }, 6, &mut starts, &mut used, &mut order));
        }
    }

    #[test]
    fn the_bound_on_tiles_holds() {
        for rows in 1..40 {
            for experts in 1..12 {
                let most = most_tiles(rows, experts).unwrap();
                // as many experts as can be get one row, the first gets the rest
                let alone = (experts - 1).min(rows - 1);
                assert!(most >= alone + (rows - alone).div_ceil(TILE_ROWS), "{rows} {experts}");
            }
        }
        assert_eq!(most_tiles(usize::MAX, 2), None);
    }
}
