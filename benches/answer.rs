//! What an answer costs on the demo model, stage by stage: `cargo bench --bench answer`. Medians with the spread of 15 rounds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use llava::TokenCount;
use llava::image::{DecodeOptions, decode};
use llava::llama::{CancelToken, Model, ModelParams, SamplerParams};
use llava::mtmd::{Projector, ProjectorParams};
use llava::session::{Part, Picture, Session, SessionParams};

const ROUNDS: usize = 15;

fn row(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!(
        "{name:<28} {:>9.3} ms   ({:.3} to {:.3})",
        ms(times[times.len() / 2]),
        ms(times[0]),
        ms(times[times.len() - 1])
    );
}

fn measure(name: &str, mut work: impl FnMut() -> Duration) {
    work();
    row(name, (0..ROUNDS).map(|_| work()).collect());
}

fn timed<R>(work: impl FnOnce() -> R) -> Duration {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo");
    let (text, projector_path) = (dir.join("demo-lm-f16.gguf"), dir.join("demo-mmproj-f16.gguf"));
    let bytes = std::fs::read(dir.join("sign.png"))?;

    measure("load model", || timed(|| Model::load(&text, &ModelParams::default()).map(drop)));
    let model = Model::load(&text, &ModelParams::default())?;
    measure("load projector", || {
        timed(|| Projector::load(&projector_path, &model, &ProjectorParams::default()).map(drop))
    });
    let projector = Projector::load(&projector_path, &model, &ProjectorParams::default())?;

    measure("decode PNG 224x224", || timed(|| decode(&bytes, "sign.png", &DecodeOptions::default()).map(drop)));
    let picture = Picture::from_bytes(&bytes)?;
    measure("preprocess", || timed(|| projector.prepare(picture.image(), TokenCount::ZERO, 0).map(drop)));
    let prepared = projector.prepare(picture.image(), TokenCount::ZERO, 0)?;
    measure("encode 196 tokens", || timed(|| projector.encode(&[(&prepared, 0)], &CancelToken::new()).map(drop)));

    let params = SessionParams { sampler: SamplerParams::greedy(), max_tokens: Some(32), ..SessionParams::default() };
    let mut session = Session::new(&model, Some(projector), params)?;
    let parts = || [Part::Picture(picture.clone()), Part::from("What word is written?")];
    let (mut prefill, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        session.clear();
        let (_, usage) = session.ask(parts())?.finish()?;
        let (_, again) = session.ask([Part::from("What word is written?")])?.finish()?;
        if round > 0 {
            prefill.push(usage.prefill);
            first.push(usage.time_to_first_token);
            second.push(again.time_to_first_token);
        }
    }
    row("prefill", prefill);
    row("first token, new picture", first);
    row("first token, same picture", second);
    Ok(())
}
