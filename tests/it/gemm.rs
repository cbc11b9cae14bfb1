//! Kernels in place of ggml's own, through the hook, with a whole model around them. Other tests run beside these in one process: a
//! kernel changes none of their answers, because all give the same bits. ggml's own arithmetic does not, so what compares with it
//! runs in a process of its own (here and in `cli::embed`).

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

/// Logits behind a prompt of 40 tokens, of a text model without a picture.
fn logits(model: &std::sync::Arc<Model>, threads: u32) -> Vec<f32> {
    let params = ContextParams { n_ctx: 256, threads: Some(threads), ..ContextParams::default() };
    let mut context = Context::new(model, &params).unwrap();
    let mut batch = Batch::new();
    (0..40).for_each(|i| {
        batch.push_token(Token(3 + i * 7 % 50), i, 0, i == 39);
    });
    context.decode(&batch).unwrap();
    context.logits().to_vec()
}

/// Experts' weights through the hook. The test calls itself once more with ggml's own arithmetic.
#[test]
fn experts_give_the_same_bits_with_every_kernel_and_are_close_to_ggmls_own() {
    const CHILD: &str = "LLAVA_TEST_EXPERTS_OUT";
    // Q4_0 comes repacked, the others as they are; 40 tokens of two experts each are 20 rows for each of four
    for matrices in [TensorType::Q8_0, TensorType::Q4_0, TensorType::F16] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { matrices, experts: 4, ..Options::new(Family::Llava15, 11) };
        let files = pair_with(dir.path(), &options).unwrap();
        let model = Model::load(&files.text, &ModelParams::default()).unwrap();
        if let Ok(out) = std::env::var(CHILD) {
            let bytes: Vec<u8> = logits(&model, 2).iter().flat_map(|value| value.to_le_bytes()).collect();
            std::fs::write(format!("{out}-{matrices}"), bytes).unwrap();
            continue;
        }
        let out = dir.path().join("logits");
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "gemm::experts_give_the_same_bits_with_every_kernel_and_are_close_to_ggmls_own"]);
        let status = again.env(CHILD, &out).env("LLAVA_GEMM", "off").output().unwrap();
        assert!(status.status.success(), "{status:?}");
        let bytes = std::fs::read(format!("{}-{matrices}", out.display())).unwrap();
        let own: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();

        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let mut first = None;
        for threads in [1, 2, 4] {
            if gemm::why_not().is_some() {
                // the hook is switched off for this run
                assert!(bits(&logits(&model, threads)) == bits(&own));
                continue;
            }
            for (kernel, ours) in with_each(|| logits(&model, threads)) {
                let first = first.get_or_insert_with(|| bits(&ours));
                assert!(*first == bits(&ours), "{matrices} {kernel} with {threads} threads");
                assert!(bits(&own) != bits(&ours), "{matrices}: the hook was not asked");
                let size = own.iter().map(|own| f64::from(*own).powi(2)).sum::<f64>();
                let error = own.iter().zip(&ours).map(|(own, ours)| f64::from(own - ours).powi(2)).sum::<f64>();
                assert!((error / size).sqrt() < 0.03, "{matrices} {kernel}: {}", (error / size).sqrt());
            }
        }
    }
}
