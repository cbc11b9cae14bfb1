//! Encoding one picture with each kernel and with ggml's own code, in turn, in one process:
//! `LLAVA_BENCH_MODEL=lm.gguf LLAVA_BENCH_MMPROJ=mmproj.gguf cargo bench --bench encode`. Without them: the demo model. Settings:
//! see `side_by_side`.

mod measured;
mod side_by_side;

use std::sync::Arc;

use llava::TokenCount;
use llava::image::RgbImage;
use llava::llama::{CancelToken, Model, ModelParams};
use llava::mtmd::{Projector, ProjectorParams};

use measured::{Outcome, file};
use side_by_side::{compare, kernels, threads, timed};

fn picture(side: u32) -> Outcome<RgbImage> {
    let pixel = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
    Ok(RgbImage::from_rgb(side, side, (0..side * side * 3).map(pixel).collect())?)
}

fn main() -> Outcome<()> {
    let model: Arc<Model> = Model::load(file("LLAVA_BENCH_MODEL", "demo-lm-f16.gguf"), &ModelParams::default())?;
    let projector = file("LLAVA_BENCH_MMPROJ", "demo-mmproj-f16.gguf");
    let params = ProjectorParams { threads: threads(), ..ProjectorParams::default() };
    let projector = Projector::load(&projector, &model, &params)?;
    let prepared = projector.prepare(&picture(336)?, TokenCount::ZERO, 0)?;
    compare("encode", &kernels()?, || {
        timed(|| Ok(projector.encode(&[(&prepared, 0)], &CancelToken::new()).map(drop)?))
    })
}
