//! What tests share: a folder of generated models, pictures, and short ways to open them.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use llava::image::RgbImage;
use llava::llama::{ContextParams, Model, ModelParams, SamplerParams};
use llava::mtmd::{Projector, ProjectorParams};
use llava::session::{Part, Picture, Session, SessionParams};
use tempfile::TempDir;

use crate::models::{Family, Pair, pair};

/// A generated pair of a family, made once for all tests.
pub fn files(family: Family) -> Pair {
    static WORLD: OnceLock<(TempDir, Vec<(Family, Pair)>)> = OnceLock::new();
    let (_, pairs) = WORLD.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let pairs = Family::ALL
            .into_iter()
            .map(|family| {
                let home = dir.path().join(family.projector_type());
                std::fs::create_dir(&home).unwrap();
                (family, pair(&home, family, 7).unwrap())
            })
            .collect();
        (dir, pairs)
    });
    pairs.iter().find(|(f, _)| *f == family).unwrap().1.clone()
}

/// The two files of the demo model.
pub fn demo_files() -> Pair {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/demo");
    Pair { text: dir.join("demo-lm-f16.gguf"), projector: dir.join("demo-mmproj-f16.gguf") }
}

/// One thread everywhere: tests run side by side, and pools that wait for each other on two cores only lose time.
pub fn projector_params() -> ProjectorParams {
    ProjectorParams { threads: Some(1), ..ProjectorParams::default() }
}

pub fn session_params() -> SessionParams {
    let context = ContextParams { n_ctx: 1024, threads: Some(1), warmup: false, ..ContextParams::default() };
    SessionParams { context, sampler: SamplerParams::greedy(), max_tokens: Some(6), ..SessionParams::default() }
}

pub fn open(files: &Pair) -> (Arc<Model>, Arc<Projector>) {
    let model = Model::load(&files.text, &ModelParams::default()).unwrap();
    let projector = Projector::load(&files.projector, &model, &projector_params()).unwrap();
    (model, projector)
}

pub fn session(family: Family) -> Session {
    let (model, projector) = open(&files(family));
    Session::new(&model, Some(projector), session_params()).unwrap()
}

/// A picture that differs for every seed: smooth colours with blocks on them, so that towers see something.
pub fn picture(width_px: u32, height_px: u32, seed: u32) -> RgbImage {
    let mut pixels = Vec::with_capacity(width_px as usize * height_px as usize * 3);
    for y in 0..height_px {
        for x in 0..width_px {
            let block = (x / 9 + y / 7 * 5 + seed * 3) % 7;
            for channel in 0..3_u32 {
                let wave = (x * (channel + 1) + y * (3 - channel) + seed * 40) % 256;
                pixels.push(u8::try_from((wave / 2 + block * 18 + seed * 11 * channel) % 256).unwrap());
            }
        }
    }
    RgbImage::from_rgb(width_px, height_px, pixels).unwrap()
}

pub fn show(seed: u32) -> Part {
    Part::Picture(Picture::new(picture(112, 112, seed)))
}

pub fn say(text: &str) -> Part {
    Part::Text(text.into())
}
