//! Merging of like neighbours, pair by pair, until few enough are left.
//!
//! Token merging (Bolya et al., "Token Merging: Your ViT But Faster", 2023), limited to neighbours on the grid. They merge the best
//! pairs of a bipartite matching at a time, which suits a GPU; here the most similar pair of all is merged each time. A
//! merged row is the mean of its cells. For pictures full of text and at most half of the tokens.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::layout::Layout;
use super::merge::mean_of;
use super::plan::{Plan, at_least_one};
use super::rows::Rows;
use super::tokens::{Made, VisualTokens, to_u32};
use super::vector::{dot, inverse, norm};
use super::{Compressor, Result};

/// Farthest that a cell may lie from the one whose place it is drawn to.
const REACH: usize = 2;

/// The compressor.
#[derive(Debug, Clone, Copy)]
pub(super) struct TomeLocal;

impl Compressor for TomeLocal {
    fn id(&self) -> String {
        "tome-local".into()
    }

    fn plan(&self, layout: &Layout, budget: usize) -> Result<Plan> {
        at_least_one(budget)?;
        if budget >= layout.cells() { Ok(Plan::full(layout)) } else { Ok(Plan::scattered(layout, budget)) }
    }

    fn apply(&self, rows: &Rows<'_>, plan: &Plan) -> Result<VisualTokens> {
        plan.check(rows.layout())?;
        if plan.is_full() {
            return Ok(VisualTokens::full(rows.embedding(), *rows.layout()));
        }
        let mut map = Map::new(rows);
        while map.alive > plan.cells() && map.merge_best() {}
        // clusters may grow no farther: what a neighbour says as well is left out
        while map.alive > plan.cells() {
            map.drop_least();
        }
        let made = map.clusters.into_iter().flatten().map(|mut cluster| {
            cluster.cells.sort_unstable();
            let members: Vec<u32> = cluster.cells.iter().map(|&c| to_u32(c)).collect();
            let values = (members.len() > 1).then(|| mean_of(rows, &members));
            Made { anchor: cluster.anchor, members, values }
        });
        VisualTokens::assemble(rows, made.collect(), None)
    }
}

#[derive(Debug, Clone)]
struct Cluster {
    anchor: usize,
    cells: Vec<usize>,
    /// Sum of the features of its cells.
    sum: Vec<f32>,
    length: f32,
}

/// Two neighbours; the most similar come first, of equal ones those with the lower indices. How many cells each had tells
/// whether the pair is still what it was.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    cosine: f32,
    of: [usize; 2],
    sizes: [usize; 2],
}

impl Eq for Pair {}
impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |p: &Self| (Reverse(p.of), Reverse(p.sizes));
        self.cosine.total_cmp(&other.cosine).then_with(|| key(self).cmp(&key(other)))
    }
}
impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Map {
    layout: Layout,
    clusters: Vec<Option<Cluster>>,
    /// Which cluster a cell is in; none where it was left out.
    of: Vec<Option<usize>>,
    alive: usize,
    pairs: BinaryHeap<Pair>,
}

impl Map {
    fn new(rows: &Rows<'_>) -> Self {
        let layout = *rows.layout();
        let cluster = |cell| {
            let sum = rows.features(cell).to_vec();
            Some(Cluster { anchor: cell, cells: vec![cell], length: norm(&sum), sum })
        };
        let n = layout.cells();
        let mut map = Self {
            layout,
            clusters: (0..n).map(cluster).collect(),
            of: (0..n).map(Some).collect(),
            alive: n,
            pairs: BinaryHeap::new(),
        };
        for cell in 0..n {
            map.push_pairs(cell, |other| other > cell);
        }
        map
    }

    fn cosine(a: &Cluster, b: &Cluster) -> f32 {
        dot(&a.sum, &b.sum) * inverse(a.length) * inverse(b.length)
    }

    /// Clusters that share an edge with a cluster, ascending.
    fn neighbours(&self, index: usize) -> Vec<usize> {
        let mut out = Vec::new();
        let w = self.layout.columns();
        for &cell in self.clusters[index].iter().flat_map(|c| &c.cells) {
            let (x, y) = self.layout.place(cell);
            let around = [
                (y > 0).then(|| cell - w),
                (x > 0).then(|| cell - 1),
                (x + 1 < w).then_some(cell + 1),
                (y + 1 < self.layout.rows()).then_some(cell + w),
            ];
            out.extend(around.into_iter().flatten().filter_map(|c| self.of[c]).filter(|&other| other != index));
        }
        out.sort_unstable();
        out.dedup();
        out
    }

    fn push_pairs(&mut self, index: usize, wanted: impl Fn(usize) -> bool) {
        for other in self.neighbours(index).into_iter().filter(|&o| wanted(o)) {
            let of = [index.min(other), index.max(other)];
            if let [Some(a), Some(b)] = of.map(|i| self.clusters[i].as_ref())
                && self.joint_anchor(a, b).is_some()
            {
                self.pairs.push(Pair { cosine: Self::cosine(a, b), of, sizes: [a.cells.len(), b.cells.len()] });
            }
        }
    }

    /// The place of two clusters merged: the larger one's, if no cell is too far from it, or else the other one's.
    fn joint_anchor(&self, a: &Cluster, b: &Cluster) -> Option<usize> {
        let (first, second) = if b.cells.len() > a.cells.len() { (b, a) } else { (a, b) };
        let fits = |anchor: usize| {
            first.cells.iter().chain(&second.cells).all(|&cell| self.layout.distance(cell, anchor) <= REACH)
        };
        [first.anchor, second.anchor].into_iter().find(|&anchor| fits(anchor))
    }

    /// Merges the most similar neighbours into the one with the lower index; false where none are left that may merge.
    fn merge_best(&mut self) -> bool {
        while let Some(Pair { of: [i, j], sizes, .. }) = self.pairs.pop() {
            let (Some(a), Some(b)) = (&self.clusters[i], &self.clusters[j]) else { continue };
            let Some(anchor) = self.joint_anchor(a, b).filter(|_| sizes == [a.cells.len(), b.cells.len()]) else {
                continue;
            };
            let cells: Vec<usize> = a.cells.iter().chain(&b.cells).copied().collect();
            let sum: Vec<f32> = a.sum.iter().zip(&b.sum).map(|(x, y)| x + y).collect();
            for &cell in &b.cells {
                self.of[cell] = Some(i);
            }
            self.clusters[i] = Some(Cluster { anchor, cells, length: norm(&sum), sum });
            self.clusters[j] = None;
            self.alive -= 1;
            self.push_pairs(i, |_| true);
            return true;
        }
        false
    }

    /// Leaves out the smallest cluster; of equal ones, the one most like a neighbour.
    fn drop_least(&mut self) {
        let mut least: Option<(usize, f32, usize)> = None;
        for (i, cluster) in self.clusters.iter().enumerate().filter_map(|(i, c)| c.as_ref().map(|c| (i, c))) {
            let neighbours = self.neighbours(i);
            let others = neighbours.iter().filter_map(|&j| self.clusters[j].as_ref());
            let cosine = others.map(|other| Self::cosine(cluster, other)).fold(f32::NEG_INFINITY, f32::max);
            let size = cluster.cells.len();
            if least.is_none_or(|(s, c, _)| size < s || (size == s && cosine > c)) {
                least = Some((size, cosine, i));
            }
        }
        if let Some(cluster) = least.and_then(|(_, _, i)| self.clusters[i].take()) {
            for cell in cluster.cells {
                self.of[cell] = None;
            }
            self.alive -= 1;
        }
    }
}
