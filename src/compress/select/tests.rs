//! Selectors against plain models of themselves: no bounds, no laziness, f64 where the model is about numbers.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::tests::{noise, rows_of};
use super::super::vector::{dot, exp_negative};
use super::*;
use crate::embedding::{Embedding, Grid};

/// Farthest point first, every distance computed at every step.
fn plain_max_min(space: &super::super::scene::Matrix, distinct: &[f32], weighed: bool, k: usize) -> Vec<usize> {
    let mut picks = vec![max_min::most(distinct).unwrap()];
    while picks.len() < k {
        let score = |i: usize| {
            let nearest = picks.iter().map(|&s| (1.0 - dot(space.row(i), space.row(s))).max(0.0)).fold(2.0, f32::min);
            nearest * if weighed { distinct[i] } else { 1.0 }
        };
        let free = (0..space.len()).filter(|i| !picks.contains(i));
        picks.push(free.reduce(|best, i| if score(i) > score(best) { i } else { best }).unwrap());
    }
    picks
}

/// Pivoted Cholesky on the whole Gram matrix, in f64: picks and residual energy after each.
fn dense_cholesky(x: &super::super::scene::Matrix, weights: Option<&[f32]>, k: usize) -> (Vec<usize>, Vec<f64>) {
    let n = x.len();
    let product =
        |i: usize, j: usize| -> f64 { x.row(i).iter().zip(x.row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    let mut gram: Vec<Vec<f64>> = (0..n).map(|i| (0..n).map(|j| product(i, j)).collect()).collect();
    let (mut picks, mut left) = (Vec::new(), Vec::new());
    for _ in 0..k {
        let score = |i: usize| gram[i][i] * weights.map_or(1.0, |w| f64::from(w[i]));
        let free = (0..n).filter(|i| !picks.contains(i));
        let p = free.reduce(|best, i| if score(i) > score(best) { i } else { best }).unwrap();
        picks.push(p);
        // Schur complement: what is left when the pick is projected out
        let (column, pivot) = ((0..n).map(|i| gram[i][p]).collect::<Vec<_>>(), gram[p][p]);
        for i in 0..n {
            for j in 0..n {
                gram[i][j] -= column[i] * column[j] / pivot;
            }
        }
        left.push((0..n).map(|i| gram[i][i].max(0.0)).sum());
    }
    (picks, left)
}

/// Facility location with every gain computed at every step.
fn plain_cover(space: &super::super::scene::Matrix, weights: &[f32], tau: f32, k: usize) -> Vec<usize> {
    let n = space.len();
    let affinity: Vec<Vec<f32>> = (0..n)
        .map(|j| {
            let raw: Vec<f32> = (0..n).map(|i| exp_negative((dot(space.row(i), space.row(j)) - 1.0) / tau)).collect();
            let sum: f32 = raw.iter().sum();
            raw.iter().map(|v| v / sum).collect()
        })
        .collect();
    let mut picks: Vec<usize> = Vec::new();
    while picks.len() < k {
        let gain = |i: usize| -> f64 {
            (0..n)
                .map(|j| {
                    let best = picks.iter().map(|&s| affinity[j][s]).fold(0.0, f32::max);
                    f64::from(weights[j]) * f64::from((affinity[j][i] - best).max(0.0))
                })
                .sum()
        };
        let free = (0..n).filter(|i| !picks.contains(i));
        picks.push(free.reduce(|best, i| if gain(i) > gain(best) { i } else { best }).unwrap());
    }
    picks
}

fn scene(columns: u32, rows: u32, width: usize, seed: u64) -> (Embedding, Layout) {
    rows_of(columns, rows, width, |i| noise(seed, i))
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::with_cases(40) })]

    #[test]
    fn lazy_max_min_is_max_min(columns in 2_u32..9, rows in 1_u32..9, seed in any::<u64>(), share in 0.1_f64..0.9) {
        let (embedding, layout) = scene(columns, rows, 24, seed);
        let rows = Rows::new(&embedding, layout, 24).unwrap();
        let k = ((layout.cells() as f64 * share) as usize).max(1);
        let means = Means::new(&rows);
        let distinct = means.distinctiveness(&rows);
        let (plain, centred) = (means.directions(&rows), means.centred_directions(&rows));
        prop_assert_eq!(max_min::pick(&plain, &distinct, false, k, &[]), plain_max_min(&plain, &distinct, false, k));
        prop_assert_eq!(max_min::pick(&centred, &distinct, true, k, &[]), plain_max_min(&centred, &distinct, true, k));
    }

    // two cells tie by symmetry, and the last bits decide
    #[test]
    fn lazy_cholesky_is_dense_cholesky(columns in 3_u32..8, rows in 1_u32..8, seed in any::<u64>(), weighed in any::<bool>()) {
        // wider than there are cells: the factorisation has full rank, so no pivot is rounding
        let (embedding, layout) = scene(columns, rows, 80, seed);
        let rows = Rows::new(&embedding, layout, 80).unwrap();
        let k = layout.cells() / 2;
        let means = Means::new(&rows);
        let distinct = means.distinctiveness(&rows);
        let weights = weighed.then_some(&distinct[..]);
        let x = means.centred(&rows);
        let (picks, left) = dense_cholesky(&x, weights, k);
        prop_assert_eq!(energy::pick(&x, weights, k, &[]), picks);
        if !weighed && k > 0 {
            let curve = energy_curve(&rows, 2.0, k);
            let total: f64 = (0..x.len()).map(|i| f64::from(dot(x.row(i), x.row(i)))).sum();
            for (i, left) in left.iter().enumerate() {
                prop_assert!((f64::from(curve.kept(i + 1)) - (1.0 - left / total)).abs() < 1e-4);
            }
            prop_assert!((curve.residual() / total - left[k - 1] / total).abs() < 1e-4);
        }
    }

    #[test]
    fn lazy_cover_is_greedy_cover(columns in 3_u32..7, rows in 1_u32..7, seed in any::<u64>(), weighed in any::<bool>()) {
        let (embedding, layout) = scene(columns, rows, 16, seed);
        let rows = Rows::new(&embedding, layout, 16).unwrap();
        let means = Means::new(&rows);
        let weights = if weighed { cover::smooth(&layout, &means.distinctiveness(&rows)) } else { vec![1.0; layout.cells()] };
        let space = means.directions(&rows);
        let k = (layout.cells() / 3).max(1);
        prop_assert_eq!(cover::pick(&space, &weights, 0.2, k, &[]), plain_cover(&space, &weights, 0.2, k));
    }
}

#[test]
fn distinctiveness_is_minus_the_mean_cosine_to_the_others() {
    let (embedding, layout) = scene(5, 4, 12, 3);
    let rows = Rows::new(&embedding, layout, 12).unwrap();
    let n = layout.cells();
    let unit = |i: usize| -> Vec<f64> {
        let row: Vec<f64> = rows.cell(i).iter().map(|&v| f64::from(v)).collect();
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        row.iter().map(|v| v / length).collect()
    };
    let mean_cosine = |i: usize| -> f64 {
        let others = (0..n).filter(|&j| j != i);
        others.map(|j| unit(i).iter().zip(unit(j)).map(|(a, b)| a * b).sum::<f64>()).sum::<f64>() / (n - 1) as f64
    };
    let raw: Vec<f64> = (0..n).map(|i| -mean_cosine(i)).collect();
    let (low, high) = raw.iter().fold((f64::MAX, f64::MIN), |(l, h), &v| (l.min(v), h.max(v)));
    for (i, g) in Means::new(&rows).distinctiveness(&rows).into_iter().enumerate() {
        assert!((f64::from(g) - (raw[i] - low) / (high - low)).abs() < 1e-4, "{i}");
    }
}

#[test]
fn a_picture_of_one_colour_is_no_trouble() {
    for value in [0.0, 1.0, -3.5] {
        let (embedding, layout) = rows_of(6, 5, 8, |_| value);
        let rows = Rows::new(&embedding, layout, 8).unwrap();
        let curve = energy_curve(&rows, 0.9, usize::MAX);
        assert_eq!(curve.cells_for(0.9), 1, "one cell explains it");
        for choice in [
            Choice::Div,
            Choice::DivCentred,
            Choice::Energy { weighed: false },
            Choice::Cover { tau: 0.2, weighed: true },
        ] {
            let selector = Selector { choice, quota: 0.0, merge: MergeTail { beta: 0.0 } };
            let plan = selector.plan(&layout, 4).unwrap();
            let tokens = selector.apply(&rows, &plan).unwrap();
            // ties go to the lower index
            assert_eq!(tokens.anchors(), [0, 1, 2, 3], "{}", selector.id());
        }
    }
}

#[test]
fn a_picture_of_two_colours_needs_one_cell() {
    // centred, both colours lie on one line
    let (embedding, layout) = rows_of(8, 8, 16, |i| if (i / 16) % 8 < 3 { (i % 16) as f32 } else { 1.0 });
    let rows = Rows::new(&embedding, layout, 16).unwrap();
    assert_eq!(energy_curve(&rows, 0.9, usize::MAX).cells_for(0.9), 1);
    // noise needs nearly all
    let (embedding, layout) = scene(8, 8, 256, 5);
    let rows = Rows::new(&embedding, layout, 256).unwrap();
    let curve = energy_curve(&rows, 0.9, usize::MAX);
    assert!(curve.cells_for(0.9) > 45, "{}", curve.cells_for(0.9));
    assert!(curve.kept(0) == 0.0 && curve.kept(usize::MAX) >= 0.9 && !curve.is_empty());
    assert_eq!(energy_curve(&rows, 0.9, 10).len(), 10);
    assert_eq!(energy_curve(&rows, 0.9, 10).cells_for(0.9), 64, "not reached: all");
}

#[test]
fn a_quota_leaves_no_region_empty() {
    // all that stands out is in one corner
    let (embedding, layout) = rows_of(12, 12, 32, |i| {
        let (x, y) = ((i / 32) % 12, (i / 32) / 12);
        if x < 4 && y < 4 { noise(1, i) } else { 1.0 + 0.01 * noise(2, i) }
    });
    let rows = Rows::new(&embedding, layout, 32).unwrap();
    let regions = |quota: f32| {
        let selector = Selector { choice: Choice::DivCentred, quota, merge: MergeTail { beta: 0.0 } };
        let tokens = selector.apply(&rows, &selector.plan(&layout, 36).unwrap()).unwrap();
        assert_eq!(tokens.cells(), 36);
        let mut hit = [false; 9];
        for &anchor in tokens.anchors() {
            let (x, y) = layout.place(anchor as usize);
            hit[y / 4 * 3 + x / 4] = true;
        }
        hit.iter().filter(|h| **h).count()
    };
    assert_eq!(regions(0.25), 9);
    let shape = Grid { columns: 12, rows: 12, ..Grid::default() };
    assert_eq!(layout.grid(), shape);
    // a quota of everything is allowed, and chooses as many
    assert_eq!(regions(1.0), 9);
}

#[test]
fn random_cells_follow_their_seed() {
    let pick = |seed| baseline::random(196, 64, seed);
    assert_eq!(pick(1), pick(1));
    assert_ne!(pick(1), pick(2));
    let mut counts = vec![0_u32; 196];
    for seed in 0..2000 {
        let mut cells = pick(seed);
        cells.sort_unstable();
        cells.dedup();
        assert_eq!(cells.len(), 64);
        cells.into_iter().for_each(|c| counts[c] += 1);
    }
    // 653 expected, standard deviation 21
    assert!(counts.iter().all(|c| (540..770).contains(c)), "{counts:?}");
    assert_eq!(baseline::random(3, 9, 0).len(), 3);
}
