//! Prefilling a prompt and generating single tokens with each kernel and with ggml's own code, in turn, in one process:
//! `LLAVA_BENCH_MODEL=lm.gguf cargo bench --bench prefill`. Without it: the demo model.
//!
//! `LLAVA_BENCH_TOKENS` (576,64) are the lengths of prompts, `LLAVA_BENCH_GENERATE` (16) how many single tokens; a length of 0
//! leaves a part out. More settings: see `side_by_side`.

mod measured;
mod side_by_side;

use std::sync::Arc;
use std::time::Duration;

use llava::llama::{Batch, Context, ContextParams, Model, ModelParams, Token};

use measured::{Outcome, file, setting};
use side_by_side::{compare, kernels, threads, timed};

fn numbers(name: &str, default: &str) -> Vec<usize> {
    setting(name, default).split(',').filter_map(|word| word.trim().parse().ok()).filter(|n| *n > 0).collect()
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
    let model: Arc<Model> = Model::load(file("LLAVA_BENCH_MODEL", "demo-lm-f16.gguf"), &ModelParams::default())?;
    let kernels = kernels()?;
    let params =
        ContextParams { n_ctx: 1024, n_batch: 1024, n_ubatch: 1024, threads: threads(), ..ContextParams::default() };
    let mut context = Context::new(&model, &params)?;
    for tokens in numbers("LLAVA_BENCH_TOKENS", "576,64") {
        compare(&format!("prefill {tokens}"), &kernels, || prefill(&mut context, &model, tokens))?;
    }
    for tokens in numbers("LLAVA_BENCH_GENERATE", "16") {
        compare(&format!("generate {tokens}"), &kernels, || generate(&mut context, &model, tokens))?;
    }
    Ok(())
}
