//! What fewer visual tokens cost: `cargo bench --bench compress [-- PART-OF-A-NAME]`. Medians with the spread of 15
//! rounds, on one thread and on all.

use std::time::{Duration, Instant};

use llava::TokenCount;
use llava::compress::{CompressorSpec, Layout, Rows, energy_curve};
use llava::embedding::{Embedding, Grid};

const ROUNDS: usize = 15;
/// Columns, rows, width, budget: LLaVA-1.5-7B, a Qwen2-VL picture, the demo model.
const SIZES: [(u32, u32, usize, usize); 4] =
    [(24, 24, 4096, 64), (24, 24, 2048, 64), (32, 32, 2048, 341), (14, 14, 160, 64)];
const SPECS: [&str; 10] = [
    "pool",
    "stratified",
    "random",
    "div",
    "div-c",
    "div-c:quota=0.25,merge=0.5",
    "energy",
    "cover",
    "tome-local",
    "full",
];

/// Rows as projectors give them: a mean that all share, smooth change over the picture, and noise of their own.
fn picture(columns: u32, rows: u32, width: usize) -> (Embedding, Layout) {
    let n = (columns * rows) as usize;
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let mean: Vec<f32> = (0..width).map(|_| noise()).collect();
    let waves: Vec<(f32, f32, f32)> = (0..width).map(|_| (noise(), noise(), 3.0 * noise())).collect();
    let mut values = Vec::with_capacity(n * width);
    for cell in 0..n {
        let (x, y) = ((cell % columns as usize) as f32, (cell / columns as usize) as f32);
        values.extend(mean.iter().zip(&waves).map(|(m, (a, b, c))| m + (a * x + b * y + c).sin() + 0.5 * noise()));
    }
    let grid = Grid { columns, rows, ..Grid::default() };
    let embedding = Embedding::new(values, n, width, grid).expect("finite");
    (embedding, Layout::of(grid, TokenCount(n)).expect("a plain grid"))
}

fn measure(name: &str, mut work: impl FnMut()) {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if !wanted.is_empty() && !wanted.iter().any(|w| name.contains(w.as_str())) {
        return;
    }
    work();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!("{name:<44} {:>9.3} ms   ({:.3} to {:.3})", ms(times[ROUNDS / 2]), ms(times[0]), ms(times[ROUNDS - 1]));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for threads in if all > 1 { vec![1, all] } else { vec![1] } {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        println!("-- {threads} thread(s)");
        for (columns, rows, width, budget) in SIZES {
            let (embedding, layout) = picture(columns, rows, width);
            let view = Rows::new(&embedding, layout, width)?;
            let size = format!("{} x {width} -> {budget}", layout.cells());
            for spec in SPECS {
                let compressor = spec.parse::<CompressorSpec>()?.build(None)?;
                let plan = compressor.plan(&layout, budget)?;
                measure(&format!("{size} {spec}"), || {
                    pool.install(|| std::hint::black_box(compressor.apply(&view, &plan).is_ok()));
                });
            }
            measure(&format!("{size} k90"), || {
                pool.install(|| std::hint::black_box(energy_curve(&view, 0.9, usize::MAX).len()));
            });
        }
    }
    Ok(())
}
