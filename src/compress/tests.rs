//! Promises that every compressor keeps, on every kind of layout.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::select::energy_curve;
use super::*;
use crate::embedding::{Embedding, Grid};
use crate::units::TokenCount;

/// A number between -1 and 1 that follows from both.
pub(super) fn noise(seed: u64, index: usize) -> f32 {
    let mut z = (seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z >> 40) as f32 / (1 << 23) as f32) - 1.0
}

/// A plain grid whose floats are given by their index.
pub(super) fn rows_of(columns: u32, rows: u32, width: usize, value: impl Fn(usize) -> f32) -> (Embedding, Layout) {
    let grid = Grid { columns, rows, ..Grid::default() };
    filled(grid, (columns * rows) as usize, width, value)
}

fn filled(grid: Grid, n: usize, width: usize, value: impl Fn(usize) -> f32) -> (Embedding, Layout) {
    let embedding = Embedding::new((0..n * width).map(value).collect(), n, width, grid).unwrap();
    (embedding, Layout::of(grid, TokenCount(n)).unwrap())
}

/// How the chunks of the families lie that `tests/models` makes, and of further ones that libmtmd knows.
fn layouts() -> Vec<(Grid, usize)> {
    let grid = |columns, rows, row_breaks, lead, trail| Grid { columns, rows, row_breaks, lead, trail };
    vec![
        (grid(6, 6, 0, 0, 0), 36),
        // Qwen2-VL, any shape
        (grid(7, 3, 0, 0, 0), 21),
        // Gemma 3, Idefics 3 tile
        (grid(4, 4, 0, 0, 0), 16),
        // Pixtral: breaks between grid rows
        (grid(5, 4, 1, 0, 0), 23),
        // LLaVA-NeXT: a break after each
        (grid(5, 4, 1, 0, 0), 24),
        // Hunyuan: begin and end too
        (grid(5, 4, 1, 1, 1), 26),
        // a single row, a single column
        (grid(9, 1, 0, 0, 0), 9),
        (grid(1, 9, 1, 2, 0), 20),
    ]
}

const SPECS: [&str; 14] = [
    "full",
    "pool",
    "pool:norm=1",
    "stratified",
    "stratified:merge=0.5",
    "random:seed=3",
    "div",
    "div-c",
    "div-c:quota=0.25,merge=0.5",
    "energy",
    "energy:weight=1,quota=0.5",
    "cover",
    "cover:weight=1,merge=1",
    "tome-local",
];

fn built(spec: &str) -> std::sync::Arc<dyn Compressor> {
    spec.parse::<CompressorSpec>().unwrap().build(None).unwrap()
}

/// What holds for whatever comes out.
fn check(
    compressor: &dyn Compressor,
    embedding: &Embedding,
    layout: Layout,
    main: usize,
    budget: usize,
) -> VisualTokens {
    let id = compressor.id();
    let rows = Rows::new(embedding, layout, main).unwrap();
    let plan = compressor.plan(&layout, budget).unwrap();
    let tokens = compressor.apply(&rows, &plan).unwrap();
    let out = tokens.embedding();
    assert_eq!(tokens.cells(), plan.cells(), "{id}: what the plan says");
    assert!(plan.cells() <= budget.max(1) || id == "full", "{id}");
    assert!(out.rows().get() <= plan.rows_at_most(), "{id}");
    if layout.row_breaks() == 0 {
        assert_eq!(out.rows().get(), plan.rows_at_most(), "{id}: known ahead");
    }
    assert_eq!(out.width(), embedding.width());
    assert_eq!(tokens.anchors().len(), out.rows().get());
    assert!(tokens.anchors().windows(2).all(|w| w[0] < w[1]), "{id}: raster order {:?}", tokens.anchors());
    // separators are untouched, and every grid row that is left has its own
    for (row, &anchor) in tokens.anchors().iter().enumerate() {
        let members = tokens.members(row);
        let cell = (0..layout.cells()).find(|&c| layout.row_of(c) == anchor as usize);
        assert_eq!(cell.is_none(), members.is_empty(), "{id}");
        if let Some(cell) = cell {
            assert!(members.windows(2).all(|w| w[0] < w[1]), "{id}");
            assert!(members.contains(&(cell as u32)), "{id}: an anchor is one of its own");
        }
        if members.len() <= 1 {
            assert_eq!(
                bits(out.row(row)),
                bits(embedding.row(anchor as usize)),
                "{id}: a row of its own is not changed"
            );
        }
    }
    let separators = tokens.anchors().iter().filter(|&&a| (0..layout.cells()).all(|c| layout.row_of(c) != a as usize));
    let mut grid_rows: Vec<usize> = (0..tokens.anchors().len())
        .filter_map(|row| (0..layout.cells()).find(|&c| layout.row_of(c) == tokens.anchors()[row] as usize))
        .map(|cell| layout.place(cell).1)
        .collect();
    grid_rows.dedup();
    let breaks = grid_rows.len() - usize::from(!layout.breaks_after_last());
    assert_eq!(separators.count(), layout.lead() + layout.trail() + breaks * layout.row_breaks(), "{id}");
    tokens
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_method_keeps_its_promises_on_every_layout() {
    for (grid, n) in layouts() {
        let (embedding, layout) = filled(grid, n, 24, |i| noise(7, i));
        for spec in SPECS {
            for budget in [1, 2, 5, layout.cells() / 2, layout.cells() - 1, layout.cells(), 1000] {
                check(built(spec).as_ref(), &embedding, layout, 24, budget);
            }
        }
    }
}

#[test]
fn full_is_the_same_bytes() {
    for (grid, n) in layouts() {
        let (embedding, layout) = filled(grid, n, 8, |i| noise(9, i));
        for (spec, budget) in SPECS.iter().map(|s| (*s, layout.cells())).chain([("full", 1)]) {
            let tokens = check(built(spec).as_ref(), &embedding, layout, 8, budget);
            assert_eq!(bits(tokens.embedding().as_slice()), bits(embedding.as_slice()), "{spec}");
            assert_eq!(tokens.embedding().grid(), embedding.grid());
            assert_eq!(tokens.anchors(), (0..n as u32).collect::<Vec<_>>());
            assert_eq!(tokens.runs(), [Run { rows: 0..n, shift: 0 }]);
        }
    }
}

#[test]
fn deepstack_features_move_with_their_row_and_decide_nothing() {
    let (main, parts) = (16, 3);
    let (wide, layout) = rows_of(6, 6, main * parts, |i| noise(1, i));
    // the same main features, others behind them
    let (other, _) = rows_of(6, 6, main * parts, |i| if i % (main * parts) < main { noise(1, i) } else { noise(2, i) });
    for spec in SPECS {
        let compressor = built(spec);
        let (a, b) =
            (check(compressor.as_ref(), &wide, layout, main, 12), check(compressor.as_ref(), &other, layout, main, 12));
        assert_eq!(a.anchors(), b.anchors(), "{spec}");
        for row in 0..a.anchors().len() {
            assert_eq!(a.members(row), b.members(row), "{spec}");
            let (x, y) = (a.embedding().row(row), b.embedding().row(row));
            assert_eq!(bits(&x[..main]), bits(&y[..main]), "{spec}: the main part does not depend on the others");
        }
    }
    let rows = Rows::new(&wide, layout, 7).unwrap_err();
    assert_eq!(rows.code(), "bad-parameter");
}

#[test]
fn pooling_is_adaptive_average_pooling() {
    let (embedding, layout) = rows_of(14, 14, 3, |i| noise(4, i));
    let tokens = check(built("pool").as_ref(), &embedding, layout, 3, 64);
    assert_eq!((tokens.embedding().grid().columns, tokens.embedding().grid().rows), (8, 8));
    for row in 0..64 {
        let bounds = |i: usize| (i * 14 / 8, ((i + 1) * 14).div_ceil(8));
        let ((x0, x1), (y0, y1)) = (bounds(row % 8), bounds(row / 8));
        for part in 0..3 {
            let mut sum = 0.0_f64;
            for y in y0..y1 {
                for x in x0..x1 {
                    sum += f64::from(embedding.row(y * 14 + x)[part]);
                }
            }
            let mean = sum / ((x1 - x0) * (y1 - y0)) as f64;
            assert!((f64::from(tokens.embedding().row(row)[part]) - mean).abs() < 1e-6);
        }
        assert_eq!(tokens.members(row).len(), (x1 - x0) * (y1 - y0));
    }
    let asked = check(built("pool:grid=7x7").as_ref(), &embedding, layout, 3, 64);
    assert_eq!(asked.cells(), 49);
    assert_eq!(built("pool:grid=9x9").plan(&layout, 64).unwrap_err().code(), "bad-parameter");
    assert_eq!(built("pool").plan(&layout, 0).unwrap_err().code(), "bad-parameter");
}

#[test]
fn merging_stays_near_and_beta_zero_is_the_selector() {
    // smooth, so that neighbours are alike
    let (embedding, layout) = rows_of(14, 14, 32, |i| {
        let (cell, part) = (i / 32, i % 32);
        ((cell % 14) as f32 * 0.15 + (cell / 14) as f32 * 0.11 + part as f32).sin() + 0.02 * noise(3, i)
    });
    let plain = check(built("div-c").as_ref(), &embedding, layout, 32, 64);
    assert_eq!(check(built("div-c:merge=0").as_ref(), &embedding, layout, 32, 64), plain);
    let merged = check(built("div-c:merge=0.5").as_ref(), &embedding, layout, 32, 64);
    assert_eq!(merged.anchors(), plain.anchors());
    let mut taken = 0;
    for row in 0..64 {
        let anchor = merged.anchors()[row] as usize;
        taken += merged.members(row).len() - 1;
        for &member in merged.members(row) {
            assert!(layout.distance(anchor, member as usize) <= 2);
            assert!(member as usize == anchor || !plain.anchors().contains(&member), "a survivor is nobody's tail");
        }
        let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
        let members = merged.members(row);
        let mean = members.iter().map(|&m| length(embedding.row(m as usize))).sum::<f32>() / members.len() as f32;
        assert!((length(merged.embedding().row(row)) / mean - 1.0).abs() < 1e-4);
    }
    assert!(taken > 60, "{taken} of 132 cells were taken in");
}

#[test]
fn clusters_stay_near_their_anchor_and_lose_no_cell_without_need() {
    let (embedding, layout) = rows_of(12, 12, 16, |i| {
        let cell = i / 16;
        ((cell % 12 / 2 * 7 + cell / 24 * 3 + i % 16) as f32).sin() + 0.01 * noise(3, i)
    });
    for budget in [140, 100, 72, 36, 10] {
        let tokens = check(built("tome-local").as_ref(), &embedding, layout, 16, budget);
        let mut members: Vec<u32> = (0..budget).flat_map(|row| tokens.members(row).to_vec()).collect();
        members.sort_unstable();
        let n = members.len();
        members.dedup();
        assert_eq!(members.len(), n, "a cell is in one cluster");
        if budget >= 36 {
            assert_eq!(n, 144, "{budget}: all cells are in one");
        }
        for row in 0..budget {
            for &member in tokens.members(row) {
                assert!(layout.distance(tokens.anchors()[row] as usize, member as usize) <= 2);
            }
        }
    }
    // blocks of 2 x 2 are alike: at a quarter of the tokens, each cluster is one block
    let tokens = check(built("tome-local").as_ref(), &embedding, layout, 16, 36);
    for row in 0..36 {
        let blocks: Vec<_> = tokens.members(row).iter().map(|&m| (m % 12 / 2, m / 24)).collect();
        assert!(blocks.windows(2).all(|w| w[0] == w[1]), "{blocks:?}");
    }
}

#[test]
fn runs_move_rows_back_to_where_they_stood() {
    let (embedding, layout) = rows_of(6, 6, 24, |i| noise(5, i));
    let tokens = check(built("div-c").as_ref(), &embedding, layout, 24, 14);
    let mut positions: Vec<usize> = (0..14).collect();
    for run in tokens.runs().iter().rev() {
        positions[run.rows.clone()].iter_mut().for_each(|p| *p += run.shift);
        assert!(positions.windows(2).all(|w| w[0] < w[1]), "no run passes another: {positions:?}");
    }
    assert_eq!(positions, tokens.anchors().iter().map(|&a| a as usize).collect::<Vec<_>>());
}

#[test]
fn a_plan_fits_its_layout_only() {
    let (small, small_layout) = rows_of(4, 4, 8, |i| noise(5, i));
    let (_, other) = rows_of(8, 2, 8, |i| noise(5, i));
    for spec in SPECS {
        let compressor = built(spec);
        let plan = compressor.plan(&other, 4).unwrap();
        let rows = Rows::new(&small, small_layout, 8).unwrap();
        assert_eq!(compressor.apply(&rows, &plan).unwrap_err().code(), "bad-parameter", "{spec}");
    }
    assert_eq!(
        Rows::new(&small, Layout::of(Grid { columns: 3, rows: 3, ..Grid::default() }, TokenCount(9)).unwrap(), 8)
            .unwrap_err()
            .code(),
        "layout-unknown"
    );
    let (_, large) = rows_of(40, 40, 1, |_| 0.0);
    assert_eq!(built("cover").plan(&large, 64).unwrap_err().code(), "bad-parameter");
}

#[test]
fn the_number_of_threads_does_not_show() {
    let (embedding, layout) = rows_of(16, 16, 512, |i| noise(11, i));
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let rows = Rows::new(&embedding, layout, 512).unwrap();
            let tokens: Vec<_> =
                SPECS.iter().map(|spec| check(built(spec).as_ref(), &embedding, layout, 512, 96)).collect();
            (tokens, energy_curve(&rows, 0.9, usize::MAX))
        })
    };
    let one = run(1);
    for threads in [2, 5] {
        let more = run(threads);
        assert_eq!(one.1, more.1);
        for (a, b) in one.0.iter().zip(&more.0) {
            assert_eq!((a.anchors(), bits(a.embedding().as_slice())), (b.anchors(), bits(b.embedding().as_slice())));
        }
    }
}

/// What default methods choose is part of stored states: a change of the arithmetic has to change an id.
#[test]
fn choices_are_pinned() {
    let (embedding, layout) = rows_of(8, 8, 40, |i| noise(1, i));
    let picks = |spec: &str| check(built(spec).as_ref(), &embedding, layout, 40, 8).anchors().to_vec();
    let found: Vec<(&str, Vec<u32>)> = PINNED.iter().map(|(spec, _)| (*spec, picks(spec))).collect();
    let pinned: Vec<(&str, Vec<u32>)> = PINNED.iter().map(|(spec, cells)| (*spec, cells.to_vec())).collect();
    assert_eq!(found, pinned);
}

const PINNED: [(&str, [u32; 8]); 6] = [
    ("random", [3, 10, 16, 24, 28, 50, 56, 62]),
    ("stratified", [5, 11, 17, 21, 41, 44, 56, 60]),
    ("div", [9, 19, 22, 23, 38, 45, 53, 62]),
    ("div-c", [7, 10, 12, 19, 33, 36, 47, 63]),
    ("energy", [3, 7, 14, 25, 31, 38, 47, 57]),
    ("cover", [4, 5, 7, 10, 19, 36, 37, 63]),
];

#[test]
fn tiles_share_by_what_is_in_them() {
    let plain = |seed: u64, loud: f32| rows_of(8, 8, 80, move |i| 1.0 + loud * noise(seed, i));
    let parts = [plain(1, 0.9), plain(2, 0.01), plain(3, 0.9), plain(4, 0.5)];
    let tiles: Vec<Tile<'_>> = parts
        .iter()
        .enumerate()
        .map(|(i, (e, l))| Tile { rows: Rows::new(e, *l, 80).unwrap(), overview: i == 3 })
        .collect();
    let shares = share_budget(&tiles, 64);
    assert_eq!(shares.iter().sum::<usize>(), 64);
    assert_eq!(shares[3], 32, "the overview is compressed half as much: {shares:?}");
    assert!(shares[1] >= 8 && shares[0] > shares[1] && shares[0].abs_diff(shares[2]) <= 1, "{shares:?}");
    for budget in [1, 3, 4, 31, 32, 33, 100, 200, 255, 256, 900] {
        let shares = share_budget(&tiles, budget);
        assert_eq!(shares.iter().sum::<usize>(), budget.clamp(4, 256), "{budget}: {shares:?}");
        assert!(shares.iter().all(|s| (1..=64).contains(s)));
        let least = 8.min(budget / 4).max(1);
        assert!(shares.iter().all(|&s| s >= least), "{budget}: {shares:?}");
    }
    assert_eq!(share_budget(&tiles[..1], 10), [10]);
    // one tile's rows do not depend on its neighbours'
    let together = compress_tiles(built("div-c").as_ref(), &tiles, &[10, 11, 12, 13]).unwrap();
    for (i, (tokens, (embedding, layout))) in together.iter().zip(&parts).enumerate() {
        assert_eq!(*tokens, check(built("div-c").as_ref(), embedding, *layout, 80, 10 + i));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(7), ..ProptestConfig::with_cases(60) })]

    #[test]
    fn any_rows_any_budget(
        columns in 1_u32..9, rows in 1_u32..9, breaks in 0_u32..2, lead in 0_u32..2, trail in 0_u32..2,
        last in any::<bool>(), seed in any::<u64>(), budget in 1_usize..80, spec in 0..SPECS.len(), flat in any::<bool>(),
    ) {
        let grid = Grid { columns, rows, row_breaks: breaks, lead, trail };
        let n = columns * rows + rows * breaks - if last { 0 } else { breaks } + lead + trail;
        let value = |i: usize| if flat { (noise(seed, i) * 2.0).round() } else { noise(seed, i) };
        let (embedding, layout) = filled(grid, n as usize, 8, value);
        check(built(SPECS[spec]).as_ref(), &embedding, layout, 8, budget);
    }
}
