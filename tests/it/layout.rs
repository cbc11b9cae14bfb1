//! LLaVA's tower as its authors meant it: the class token's place and the depth, against an independent forward pass in
//! f64 (`tests/reference`). What is compared starts at the preprocessed pixels, so that only the tower is judged.

mod depth;
mod files;
mod others;
mod side_by_side;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use llava::embedding::Embedding;
use llava::gguf::{GgufFile, TensorType, check_projector};
use llava::image::RgbImage;
use llava::llama::{CancelToken, Model, ModelParams};
use llava::mtmd::{ClipLayout, Prepared, Projector, ProjectorParams};
use llava::{Error, TokenCount};
use tempfile::TempDir;

use crate::models::{Family, Options, pair_with};
use crate::reference::{ClassToken, Clip, Matrix};
use crate::world::{self, picture, projector_params};

/// A folder, and the text model that all projectors of a test are loaded for.
struct Bench {
    dir: TempDir,
    model: Arc<Model>,
}

impl Bench {
    fn new() -> Bench {
        let model = Model::load(world::files(Family::Llava15).text, &ModelParams::default()).unwrap();
        Bench { dir: tempfile::tempdir().unwrap(), model }
    }

    /// The projector file of a pair with these options.
    fn file(&self, options: &Options) -> PathBuf {
        pair_with(self.dir.path(), options).unwrap().projector
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn load(&self, path: &Path, layout: ClipLayout) -> Arc<Projector> {
        Projector::load(path, &self.model, &params(layout)).unwrap()
    }

    fn load_error(&self, path: &Path) -> Error {
        Projector::load(path, &self.model, &params(ClipLayout::Reference)).map(drop).unwrap_err()
    }
}

fn params(layout: ClipLayout) -> ProjectorParams {
    let mut params = projector_params();
    // Hundreds of tiny graphs: two threads would spend their time waiting for each other on a busy machine.
    params.threads = Some(1);
    params.clip_layout = layout;
    params
}

fn options(seed: u64) -> Options {
    Options::new(Family::Llava15, seed)
}

fn prepare(projector: &Arc<Projector>, image: &RgbImage) -> Prepared {
    projector.prepare(image, TokenCount::ZERO, 0).unwrap()
}

/// The rows of a picture's only tile.
fn encode(prepared: &Prepared) -> Embedding {
    let chunks: Vec<usize> = prepared.images().map(|(chunk, _)| chunk).collect();
    assert_eq!(chunks.len(), 1, "one tile");
    prepared.projector().encode(&[(prepared, chunks[0])], &CancelToken::new()).unwrap().remove(0).0
}

/// Preprocessed pixels of a picture's only tile, and its side.
fn pixels(prepared: &Prepared) -> (&[f32], usize) {
    let (chunk, _) = prepared.images().next().unwrap();
    let tile = prepared.tile(chunk, 0).unwrap();
    assert_eq!(tile.width_px, tile.height_px);
    (tile.pixels, tile.width_px as usize)
}

fn bits(rows: &Embedding) -> Vec<u32> {
    rows.as_slice().iter().map(|v| v.to_bits()).collect()
}

/// Cosine of each row to the reference's row.
#[derive(Debug, Clone, Copy)]
struct Cosine {
    mean: f64,
    worst: f64,
}

impl Cosine {
    fn of(rows: &Embedding, reference: &Matrix) -> Cosine {
        assert_eq!((rows.rows().get(), rows.width()), (reference.len(), reference.width()));
        let cosines: Vec<f64> = (0..reference.len())
            .map(|i| {
                let ours: Vec<f64> = rows.row(i).iter().map(|&v| f64::from(v)).collect();
                let theirs = reference.row(i);
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
                dot(&ours, theirs) / (dot(&ours, &ours) * dot(theirs, theirs)).sqrt()
            })
            .collect();
        let worst = cosines.iter().copied().fold(1.0, f64::min);
        Cosine { mean: cosines.iter().sum::<f64>() / cosines.len() as f64, worst }
    }

    /// Half precision in attention and activations leaves about 1e-6 of `1 - cosine`; a wrong activation 2e-5 and more.
    #[track_caller]
    fn assert_same(self, what: &str) {
        assert!(self.mean >= 0.99999 && self.worst >= 0.9999, "{what}: {self:?}");
    }

    #[track_caller]
    fn assert_other(self, what: &str) {
        assert!(self.mean < 0.99 && self.worst < 0.95, "{what}: {self:?}, nothing to tell apart");
    }
}

#[test]
fn towers_agree_with_their_authors() {
    let bench = Bench::new();
    for seed in 1..=3 {
        for case in 0..16_u32 {
            let mut o = options(seed);
            (o.class_token, o.pre_norm, o.biases) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
            o.matrices = if case & 8 > 0 { TensorType::F16 } else { TensorType::F32 };
            let path = bench.file(&o);
            let projector = bench.load(&path, ClipLayout::Reference);
            assert_eq!(projector.info().class_token_moved, o.class_token);
            let prepared = prepare(&projector, &picture(100, 70, case));
            let (pixels, side) = pixels(&prepared);
            let reference = Clip::open(&path).authors(pixels, side, 3);
            let what = format!(
                "seed {seed}, class token {}, pre-norm {}, biases {}, {}",
                o.class_token, o.pre_norm, o.biases, o.matrices
            );
            Cosine::of(&encode(&prepared), &reference).assert_same(&what);
        }
    }
}

/// Eight bits per weight and, in ggml's products, per activation: close, and for the right reason.
#[test]
fn quantised_towers_stay_close() {
    let bench = Bench::new();
    let mut o = options(4);
    o.matrices = TensorType::Q8_0;
    let path = bench.file(&o);
    let prepared = prepare(&bench.load(&path, ClipLayout::Reference), &picture(84, 84, 1));
    let (pixels, side) = pixels(&prepared);
    let cosine = Cosine::of(&encode(&prepared), &Clip::open(&path).authors(pixels, side, 3));
    assert!(cosine.worst > 0.999, "{cosine:?}");
}

#[test]
fn upstreams_layout_is_upstreams_and_another_one() {
    let bench = Bench::new();
    for seed in 5..=7 {
        let path = bench.file(&options(seed));
        let projector = bench.load(&path, ClipLayout::Upstream);
        assert!(projector.info().has_class_token && !projector.info().class_token_moved);
        assert!(!projector.info().depth_corrected);
        let prepared = prepare(&projector, &picture(84, 84, 0));
        let rows = encode(&prepared);
        let (pixels, side) = pixels(&prepared);
        let clip = Clip::open(&path);
        Cosine::of(&rows, &clip.authors(pixels, side, 3)).assert_other("class token appended");
        let upstream = clip.rows(pixels, side, ClassToken::AppendedYetReadAsFirst, &[2]);
        Cosine::of(&rows, &upstream).assert_same("class token appended");
    }
}

/// `--clip-layout upstream` is libmtmd's own call on libmtmd's own graph.
#[cfg(feature = "parity")]
#[test]
fn upstreams_layout_equals_mtmd_encode_chunk() {
    let bench = Bench::new();
    for stored in [3, 11] {
        let mut o = options(8);
        o.stored_layers = stored;
        let prepared = prepare(&bench.load(&bench.file(&o), ClipLayout::Upstream), &picture(84, 84, 3));
        let (chunk, _) = prepared.images().next().unwrap();
        let theirs = llava::mtmd::parity::encode_chunk(prepared.projector(), &prepared, chunk).unwrap();
        assert!(bits(&encode(&prepared)) == theirs.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    }
}

/// A tower trained with GELU instead of quick-GELU says so in a key.
#[test]
fn the_activation_key_counts() {
    let bench = Bench::new();
    let plain = bench.file(&options(9));
    let path = bench.path("gelu.gguf");
    files::copy(&plain, &path, &[("clip.use_gelu", true.into())], &[], Vec::new());
    let prepared = prepare(&bench.load(&path, ClipLayout::Reference), &picture(84, 84, 2));
    let rows = encode(&prepared);
    let (pixels, side) = pixels(&prepared);
    let right = Cosine::of(&rows, &Clip::open(&path).authors(pixels, side, 3));
    right.assert_same("GELU");
    // The two are close relatives: less than the usual threshold apart, yet far more than what rounding does.
    let quick = Cosine::of(&rows, &Clip::open(&plain).authors(pixels, side, 3));
    assert!(1.0 - quick.mean > 20.0 * (1.0 - right.mean), "GELU {right:?}, quick-GELU {quick:?}");
}

/// Yi-VL's projector (`mm.3`, `mm.4`) hangs on the same graph, so its class token is corrected too.
#[test]
fn the_projector_with_norms_is_corrected_too() {
    let bench = Bench::new();
    let o = options(10);
    let path = bench.path("yi.gguf");
    let mut more = files::Maker::new(10);
    more.norm("mm.1", o.projector_width);
    more.linear("mm.3", o.projector_width, o.projector_width, 1.5);
    more.norm("mm.4", o.projector_width);
    files::copy(&bench.file(&o), &path, &[], &["mm.2.weight", "mm.2.bias"], more.done());
    for (layout, place) in
        [(ClipLayout::Reference, ClassToken::First), (ClipLayout::Upstream, ClassToken::AppendedYetReadAsFirst)]
    {
        let prepared = prepare(&bench.load(&path, layout), &picture(84, 84, 4));
        let (pixels, side) = pixels(&prepared);
        Cosine::of(&encode(&prepared), &Clip::open(&path).rows(pixels, side, place, &[2])).assert_same("Yi-VL");
    }
}

/// A norm that the file holds for the end of the tower is applied in both layouts: LLaVA's converter drops it, so a file
/// that has one was made by somebody who wants it.
#[test]
fn a_stored_post_norm_is_applied() {
    let bench = Bench::new();
    let mut o = options(11);
    (o.class_token, o.post_norm) = (false, true);
    let path = bench.file(&o);
    let rows: Vec<Embedding> = [ClipLayout::Reference, ClipLayout::Upstream]
        .map(|layout| {
            let prepared = prepare(&bench.load(&path, layout), &picture(84, 84, 5));
            let (pixels, side) = pixels(&prepared);
            let rows = encode(&prepared);
            Cosine::of(&rows, &Clip::open(&path).authors(pixels, side, 3)).assert_same("post-norm");
            rows
        })
        .into();
    assert!(bits(&rows[0]) == bits(&rows[1]));
}

/// The same on weights that were trained, not drawn: the demo model, which says itself how many layers to run.
#[test]
fn the_demo_model_agrees() {
    let files = world::demo_files();
    let model = Model::load(&files.text, &ModelParams::default()).unwrap();
    let projector = Projector::load(&files.projector, &model, &params(ClipLayout::Reference)).unwrap();
    let layers = projector.info().layers_run.unwrap();
    assert_eq!(check_projector(&GgufFile::open(&files.projector).unwrap()).unwrap().feature_layers, [layers as u32]);
    let prepared = prepare(&projector, &picture(224, 224, 7));
    let (pixels, side) = pixels(&prepared);
    let reference = Clip::open(&files.projector).rows(pixels, side, ClassToken::First, &[layers]);
    Cosine::of(&encode(&prepared), &reference).assert_same("demo model");
}

/// A picture of exactly the tower's size is only scaled to numbers: no pixel moves.
#[test]
fn an_exact_picture_is_only_normalised() {
    let bench = Bench::new();
    let projector = bench.load(&bench.file(&options(12)), ClipLayout::Reference);
    let image = picture(84, 84, 6);
    let prepared = prepare(&projector, &image);
    let (pixels, side) = pixels(&prepared);
    assert_eq!((side, pixels.len()), (84, image.pixels().len()));
    // CLIP's mean and deviation.
    let mean = [0.481_454_66, 0.457_827_5, 0.408_210_73];
    let deviation = [0.268_629_54, 0.261_302_58, 0.275_777_11];
    for (i, (&value, &byte)) in pixels.iter().zip(image.pixels()).enumerate() {
        let wanted = (f64::from(byte) / 255.0 - mean[i % 3]) / deviation[i % 3];
        assert!((f64::from(value) - wanted).abs() < 1e-6, "number {i}: {value}, should be {wanted}");
    }
}
