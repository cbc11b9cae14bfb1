//! Kernels in place of ggml's own, through the hook, with a whole model around them. Other tests run beside these in one process: a
//! kernel changes none of their answers, because all give the same bits. ggml's own arithmetic does not, so what compares with it
//! runs in a process of its own (`cli::embed`).

use std::sync::Mutex;

use llava::TokenCount;
use llava::gguf::TensorType;
use llava::llama::gemm::{self, Kernel};
use llava::llama::{Batch, CancelToken, Context, ContextParams, Model, ModelParams, Token};
use llava::mtmd::{Projector, ProjectorParams};

use crate::models::{Family, Options, pair_with};
use crate::world::picture;

static ONE: Mutex<()> = Mutex::new(());

/// Runs `work` once with each kernel of this CPU, then puts back what was in use.
fn with_each<R>(mut work: impl FnMut() -> R) -> Vec<(Kernel, R)> {
    let _one = ONE.lock().unwrap();
    let before = gemm::kernel();
    let kernels = Kernel::ALL.into_iter().filter(|kernel| kernel.available());
    let all = kernels
        .map(|kernel| {
            gemm::set_kernel(Some(kernel)).unwrap();
            (kernel, work())
        })
        .collect();
    gemm::set_kernel(before).unwrap();
    all
}

fn q8_0(dir: &tempfile::TempDir) -> crate::models::Pair {
    let options = Options { matrices: TensorType::Q8_0, ..Options::new(Family::Llava15, 5) };
    pair_with(dir.path(), &options).unwrap()
}

#[test]
fn a_quantised_pair_gives_the_same_bits_with_every_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let files = q8_0(&dir);
    let model = Model::load(&files.text, &ModelParams::default()).unwrap();
    if gemm::why_not().is_some() {
        // the hook is switched off for this run: `set_kernel` has to say so
        assert!(gemm::set_kernel(Some(Kernel::Scalar)).is_err());
        return;
    }
    let mut seen = Vec::new();
    for threads in [1, 3] {
        let params = ProjectorParams { threads: Some(threads), ..ProjectorParams::default() };
        let projector = Projector::load(&files.projector, &model, &params).unwrap();
        let prepared = projector.prepare(&picture(84, 84, 3), TokenCount::ZERO, 0).unwrap();
        let params = ContextParams { n_ctx: 256, threads: Some(threads), ..ContextParams::default() };
        let mut context = Context::new(&model, &params).unwrap();
        let all = with_each(|| {
            let rows = projector.encode(&[(&prepared, 0)], &CancelToken::new()).unwrap();
            context.clear().unwrap();
            let mut batch = Batch::new();
            (0..40).for_each(|i| {
                batch.push_token(Token(3 + i % 50), i, 0, i == 39);
            });
            context.decode(&batch).unwrap();
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
            (bits(rows[0].0.as_slice()), bits(context.logits()))
        });
        seen.extend(all.into_iter().map(|(kernel, bits)| (kernel, threads, bits)));
    }
    for (kernel, threads, bits) in &seen[1..] {
        assert!(*bits == seen[0].2, "{kernel} with {threads} threads differs from {}", seen[0].0);
    }
}
