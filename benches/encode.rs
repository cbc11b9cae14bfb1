//! Encoding one picture and prefilling a prompt with each kernel and with ggml's own code, in turn, in one process:
//! `LLAVA_BENCH_MODEL=lm.gguf LLAVA_BENCH_MMPROJ=mmproj.gguf cargo bench --bench encode`. Without them: the demo model.
//!
//! `LLAVA_BENCH_KERNELS` (default: the one in use) names the kernels, `LLAVA_BENCH_ROUNDS` (7) how often, `LLAVA_BENCH_TOKENS`
//! (576,64) the lengths of prompts, `LLAVA_BENCH_GENERATE` (16) how many single tokens; a length of 0 leaves a part out.
//! `LLAVA_BENCH_CLOCK=cpu` (Linux) uses one thread and counts its time on the CPU: for machines that have other work.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llava::TokenCount;
use llava::image::RgbImage;
use llava::llama::gemm::{self, Kernel};
use llava::llama::{Batch, CancelToken, Context, ContextParams, Model, ModelParams, Token};
use llava::mtmd::{Projector, ProjectorParams};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn numbers(name: &str, default: &str) -> Vec<usize> {
    setting(name, default).split(',').filter_map(|word| word.trim().parse().ok()).filter(|n| *n > 0).collect()
}

/// On one thread, in time on the CPU.
fn on_cpu() -> bool {
    setting("LLAVA_BENCH_CLOCK", "wall") == "cpu"
}

fn threads() -> Option<u32> {
    on_cpu().then_some(1)
}

/// Seconds that `work` takes.
fn timed(work: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    if !on_cpu() {
        let start = Instant::now();
        work()?;
        return Ok(start.elapsed());
    }
    let used = || -> Outcome<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    };
    let start = used()?;
    work()?;
    Ok(Duration::from_nanos(used()? - start))
}

/// Median, least and most.
fn summary(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Times `work` with ggml's own code and with each kernel, one after the other in every round, and prints ratios by round.
fn compare(name: &str, kernels: &[Kernel], rounds: usize, mut work: impl FnMut() -> Outcome<Duration>) -> Outcome<()> {
    let mut own = Vec::new();
    let mut ours = vec![Vec::new(); kernels.len()];
    for round in 0..=rounds {
        gemm::set_kernel(None)?;
        let base = work()?.as_secs_f64();
        let mut times = Vec::new();
        for kernel in kernels {
            gemm::set_kernel(Some(*kernel))?;
            times.push(work()?.as_secs_f64());
        }
        if round > 0 {
            own.push(base);
            ours.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
        }
    }
    let ms = |(median, least, most): (f64, f64, f64)| {
        format!("{:>9.2} ms ({:.2} to {:.2})", median * 1e3, least * 1e3, most * 1e3)
    };
    println!("{name:<22} {:<11} {}", "ggml", ms(summary(own.clone())));
    for (kernel, times) in kernels.iter().zip(ours) {
        let (median, least, most) = summary(own.iter().zip(&times).map(|(own, ours)| own / ours).collect());
        println!("{name:<22} {kernel:<11} {}  x{median:.2} ({least:.2} to {most:.2})", ms(summary(times)));
    }
    Ok(())
}

fn picture(side: u32) -> Outcome<RgbImage> {
    let pixel = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
    Ok(RgbImage::from_rgb(side, side, (0..side * side * 3).map(pixel).collect())?)
}

fn prefill(context: &mut Context, model: &Model, tokens: usize) -> Outcome<Duration> {
    let vocab = model.vocab().n_tokens() as i32;
    context.clear()?;
    let mut batch = Batch::new();
    for i in 0..tokens {
        batch.push_token(Token((i as i32 * 7919 + 11) % vocab), i as i32, 0, i + 1 == tokens);
    }
    timed(|| Ok(context.decode(&batch)?))
}

/// Single tokens after a short prompt.
fn generate(context: &mut Context, model: &Model, tokens: usize) -> Outcome<Duration> {
    prefill(context, model, 16)?;
    timed(|| {
        for i in 0..tokens {
            let mut batch = Batch::new();
            batch.push_token(Token((i as i32 * 31 + 5) % 1000), 16 + i as i32, 0, true);
            context.decode(&batch)?;
        }
        Ok(())
    })
}

fn main() -> Outcome<()> {
    let demo = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo");
    let text = setting("LLAVA_BENCH_MODEL", &demo.join("demo-lm-f16.gguf").to_string_lossy());
    let projector = setting("LLAVA_BENCH_MMPROJ", &demo.join("demo-mmproj-f16.gguf").to_string_lossy());
    let rounds: usize = setting("LLAVA_BENCH_ROUNDS", "7").parse()?;
    let model: Arc<Model> = Model::load(&text, &ModelParams::default())?;
    if let Some(reason) = gemm::why_not() {
        return Err(format!("nothing to compare: {reason}").into());
    }
    let names = setting("LLAVA_BENCH_KERNELS", gemm::kernel().map_or("", Kernel::name));
    let kernels: Vec<Kernel> =
        Kernel::ALL.into_iter().filter(|kernel| names.split(',').any(|name| name == kernel.name())).collect();

    if projector != "none" {
        let projector =
            Projector::load(&projector, &model, &ProjectorParams { threads: threads(), ..ProjectorParams::default() })?;
        let prepared = projector.prepare(&picture(336)?, TokenCount::ZERO, 0)?;
        compare("encode", &kernels, rounds, || {
            timed(|| Ok(projector.encode(&[(&prepared, 0)], &CancelToken::new()).map(drop)?))
        })?;
    }
    let params =
        ContextParams { n_ctx: 1024, n_batch: 1024, n_ubatch: 1024, threads: threads(), ..ContextParams::default() };
    let mut context = Context::new(&model, &params)?;
    for tokens in numbers("LLAVA_BENCH_TOKENS", "576,64") {
        compare(&format!("prefill {tokens}"), &kernels, rounds, || prefill(&mut context, &model, tokens))?;
    }
    for tokens in numbers("LLAVA_BENCH_GENERATE", "16") {
        compare(&format!("generate {tokens}"), &kernels, rounds, || generate(&mut context, &model, tokens))?;
    }
    Ok(())
}
