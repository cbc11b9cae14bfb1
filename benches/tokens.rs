//! Prefill with all visual tokens of a picture and with those that a compressor leaves, by turns in one process, compressor included:
//! `LLAVA_BENCH_MODEL=lm.gguf cargo bench --bench tokens`. Without it: the demo model.
//!
//! `LLAVA_BENCH_COMPRESSOR` (div-c), `LLAVA_BENCH_OTHERS` (32,64,128,181,256): text tokens in front of and behind the picture,
//! `LLAVA_BENCH_ROUNDS` (7). The picture has 14 x 14 rows of random floats: times do not depend on what they are.

mod measured;

use std::time::{Duration, Instant};

use llava::TokenCount;
use llava::compress::{CompressorSpec, Layout, Rows};
use llava::embedding::{Embedding, Grid};
use llava::llama::{Batch, Context, ContextParams, Model, ModelParams, Position, Token};

use measured::{Outcome, file, setting, summary};

const SIDE: u32 = 14;
const KEPT: usize = 64;

fn picture(width: usize) -> Outcome<(Embedding, Layout)> {
    let grid = Grid { columns: SIDE, rows: SIDE, ..Grid::default() };
    let n = (SIDE * SIDE) as usize;
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let values = (0..n * width).map(|_| noise()).collect();
    Ok((Embedding::new(values, n, width, grid)?, Layout::of(grid, TokenCount(n))?))
}

/// Decodes half of the text, the rows, and the rest of the text: time, and bytes of the sequence's state.
fn prefill(context: &mut Context, rows: &Embedding, others: usize) -> Outcome<(Duration, usize)> {
    context.clear()?;
    let start = Instant::now();
    let mut next = 0;
    let text = |context: &mut Context, n: usize, next: &mut i32, last: bool| -> Outcome<()> {
        let mut batch = Batch::new();
        for i in 0..n {
            batch.push_token(Token((*next * 31 + 7) % 300), *next, 0, last && i + 1 == n);
            *next += 1;
        }
        Ok(context.decode(&batch)?)
    };
    text(context, others / 2, &mut next, false)?;
    let mut batch = Batch::new();
    for row in 0..rows.rows().get() {
        batch.push_row(rows.row(row), Position { t: next, ..Position::default() }, 0, false);
        next += 1;
    }
    context.decode(&batch)?;
    text(context, others - others / 2, &mut next, true)?;
    // the logits are there when everything has been computed
    std::hint::black_box(context.logits());
    Ok((start.elapsed(), context.save_sequence(0)?.as_bytes().len()))
}

fn main() -> Outcome<()> {
    let model = Model::load(file("LLAVA_BENCH_MODEL", "demo-lm-f16.gguf"), &ModelParams::default())?;
    let rounds: usize = setting("LLAVA_BENCH_ROUNDS", "7").parse()?;
    let compressor = setting("LLAVA_BENCH_COMPRESSOR", "div-c").parse::<CompressorSpec>()?.build(None)?;
    let params = ContextParams { n_ctx: 1024, n_batch: 1024, n_ubatch: 1024, ..ContextParams::default() };
    let mut context = Context::new(&model, &params)?;
    let (all, layout) = picture(model.n_embd_input())?;
    let plan = compressor.plan(&layout, KEPT)?;
    println!("{} {} -> {KEPT}; ratios by round: median (least to most)", compressor.id(), layout.cells());
    for others in setting("LLAVA_BENCH_OTHERS", "32,64,128,181,256").split(',').map(|n| n.trim().parse::<usize>()) {
        let others = others?;
        let (mut ratios, mut share, mut times, mut saved) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()], 0.0);
        for round in 0..=rounds {
            let (full, full_bytes) = prefill(&mut context, &all, others)?;
            let start = Instant::now();
            let fewer = compressor.apply(&Rows::new(&all, layout, model.n_embd())?, &plan)?;
            let choosing = start.elapsed();
            let (rest, bytes) = prefill(&mut context, fewer.embedding(), others)?;
            if round == 0 {
                continue;
            }
            let ms = |t: Duration| t.as_secs_f64() * 1e3;
            ratios.push(ms(full) / ms(rest + choosing));
            share.push(100.0 * ms(choosing) / (ms(full) - ms(rest)));
            times[0].push(ms(full));
            times[1].push(ms(rest + choosing));
            saved = 100.0 * (1.0 - bytes as f64 / full_bytes as f64);
        }
        let [full, rest] = times.map(summary);
        let (median, least, most) = summary(ratios);
        println!(
            "{others:>4} other tokens: {:>8.1} ms -> {:>8.1} ms, x{median:.2} ({least:.2} to {most:.2}); KV bytes -{saved:.1} %; \
             choosing takes {:.2} % of what it saves",
            full.0,
            rest.0,
            summary(share).0
        );
    }
    Ok(())
}
