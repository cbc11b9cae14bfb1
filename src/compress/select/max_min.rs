//! Farthest point first: each pick is the cell that is least like the picks so far.
//!
//! Gonzalez, "Clustering to minimize the maximum intercluster distance", 1985. The score of a cell only falls as picks are
//! added, so an old score is an upper bound: only cells that still lead with theirs are compared with the newest picks. The
//! picks are those of the plain algorithm, ties included.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::super::scene::Matrix;
use super::super::vector::{dot, dot_pair};

/// The largest distance, 1 minus a cosine.
const FARTHEST: f32 = 2.0;
/// Floating-point operations below which handing work to another thread costs more than it saves.
const WORTH_A_THREAD: usize = 1 << 18;

/// A cell and an upper bound of its score; the largest comes first, of equal ones the lower index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) score: f32,
    pub(super) cell: Reverse<usize>,
    /// Picks that the score accounts for.
    pub(super) seen: usize,
}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(self.cell.cmp(&other.cell))
    }
}
impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Bound {}

/// `k` rows of `directions` (unit length or zero), `first` among them. The first free pick of all is the most distinct one;
/// `weighed`: distances count as much as a row is distinct.
pub(super) fn pick(directions: &Matrix, distinct: &[f32], weighed: bool, k: usize, first: &[usize]) -> Vec<usize> {
    let n = directions.len();
    let mut picks: Vec<usize> = Vec::with_capacity(k);
    picks.extend_from_slice(first);
    if picks.is_empty() && k > 0 {
        picks.extend(most(distinct));
    }
    let weight = |cell: usize| if weighed { distinct[cell] } else { 1.0 };
    let mut near = vec![FARTHEST; n];
    let mut heap: BinaryHeap<Bound> = (0..n)
        .filter(|cell| !picks.contains(cell))
        .map(|cell| Bound { score: weight(cell) * FARTHEST, cell: Reverse(cell), seen: 0 })
        .collect();
    let threads = rayon::current_num_threads();
    let width = directions.row(0).len();
    let mut stale: Vec<Bound> = Vec::new();
    while picks.len() < k {
        let Some(top) = heap.pop() else { break };
        if top.seen == picks.len() {
            picks.push(top.cell.0);
            continue;
        }
        // refreshing more than the leader is work that may prove needless: only other threads do it
        stale.push(top);
        let worth = 2 * width * (picks.len() - top.seen) * threads >= WORTH_A_THREAD;
        while worth && stale.len() < threads && heap.peek().is_some_and(|b| b.seen < picks.len()) {
            stale.extend(heap.pop());
        }
        let refresh = |bound: &Bound| nearest(directions, bound.cell.0, &picks[bound.seen..], near[bound.cell.0]);
        let fresh: Vec<f32> =
            if stale.len() > 1 { stale.par_iter().map(refresh).collect() } else { stale.iter().map(refresh).collect() };
        for (bound, distance) in stale.drain(..).zip(fresh) {
            let cell = bound.cell.0;
            near[cell] = distance;
            heap.push(Bound { score: weight(cell) * distance, seen: picks.len(), ..bound });
        }
    }
    picks
}

/// The lowest index of the largest value.
pub(super) fn most(values: &[f32]) -> Option<usize> {
    (0..values.len()).reduce(|best, i| if values[i] > values[best] { i } else { best })
}

fn nearest(directions: &Matrix, cell: usize, picks: &[usize], so_far: f32) -> f32 {
    let mine = directions.row(cell);
    let distance = |cosine: f32| (1.0 - cosine).max(0.0);
    let (pairs, rest) = picks.as_chunks::<2>();
    let mut least = so_far;
    for &[a, b] in pairs {
        let (first, second) = dot_pair(mine, directions.row(a), directions.row(b));
        least = least.min(distance(first)).min(distance(second));
    }
    for &a in rest {
        least = least.min(distance(dot(mine, directions.row(a))));
    }
    least
}
