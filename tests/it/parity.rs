//! The same numbers as upstream, bit for bit: preprocessed and encoded pictures, and logits after whole prompts.

use llava::llama::{CancelToken, Context, Model, ModelParams};
use llava::mtmd::{ClipLayout, Projector, parity};
use llava::session::template::Segment;
use llava::session::{Part, Picture, Session};
use llava::{TokenCount, image};

use crate::models::{Family, Options, pair_with};
use crate::world::{demo_files, files, open, picture, projector_params, session_params};

/// Square, wide, tall, tiny, and larger than any tile.
const SHAPES: [(u32, u32); 7] = [(112, 112), (224, 64), (60, 200), (1, 1), (1, 30), (640, 480), (33, 517)];

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn embeddings_equal_upstreams() {
    for family in Family::ALL {
        let (_model, projector) = open(&files(family));
        for (i, (w, h)) in SHAPES.into_iter().enumerate() {
            let prepared = projector.prepare(&picture(w, h, i as u32), TokenCount(3), 0).unwrap();
            for (chunk, image) in prepared.images() {
                let ours = projector.encode(&[(&prepared, chunk)], &CancelToken::new()).unwrap();
                let theirs = parity::encode_chunk(&projector, &prepared, chunk).unwrap();
                assert_eq!(ours[0].0.rows(), image.tokens);
                assert!(bits(ours[0].0.as_slice()) == bits(&theirs), "{family:?} {w}x{h} chunk {chunk}");
                assert!(theirs.iter().any(|v| v.abs() > 1e-3), "{family:?}: an embedding of nothing");
            }
        }
    }
}

/// Several pictures in one call give the rows that each gives alone, whether or not the projector batches them.
#[test]
fn encoding_together_changes_nothing() {
    for family in Family::ALL {
        let (_model, projector) = open(&files(family));
        let prepared: Vec<_> =
            (0..3).map(|seed| projector.prepare(&picture(112, 112, seed), TokenCount::ZERO, seed).unwrap()).collect();
        let all: Vec<_> = prepared.iter().flat_map(|p| p.images().map(move |(chunk, _)| (p, chunk))).collect();
        let together = projector.encode(&all, &CancelToken::new()).unwrap();
        assert_eq!(together.len(), all.len());
        for ((rows, _), &(p, chunk)) in together.iter().zip(&all) {
            let alone = projector.encode(&[(p, chunk)], &CancelToken::new()).unwrap();
            assert!(bits(rows.as_slice()) == bits(alone[0].0.as_slice()), "{family:?}");
        }
    }
}

/// Logits after our prefill and after `mtmd_helper_eval_chunks`, on the text around the pictures that the template gives.
fn compare_prompt(family: Family, pictures: &[(u32, u32)], n_batch: u32, n_ubatch: u32, question: &str) {
    let (model, projector) = open(&files(family));
    let mut params = session_params();
    params.context.n_ctx = 2048;
    params.context.n_batch = n_batch;
    params.context.n_ubatch = n_ubatch;
    params.max_tokens = Some(0);
    let images: Vec<_> = pictures.iter().enumerate().map(|(i, &(w, h))| picture(w, h, i as u32)).collect();

    let mut session = Session::new(&model, Some(projector.clone()), params.clone()).unwrap();
    let mut parts: Vec<Part> = images.iter().map(|i| Part::Picture(Picture::new(i.clone()))).collect();
    parts.push(Part::from(question));
    let texts = texts_around_pictures(&session.render(parts.clone()).unwrap());
    let (ours, usage) = session.first_logits(parts).unwrap();
    let ours = bits(&ours);

    let context_params = session.context_params().clone();
    let mut oracle = Context::new(&model, &context_params).unwrap();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let refs: Vec<&image::RgbImage> = images.iter().collect();
    parity::eval_prompt(&projector, &mut oracle, &texts, &refs, true).unwrap();
    let theirs = bits(oracle.logits());
    assert!(!ours.is_empty());
    assert!(ours == theirs, "{family:?} {pictures:?} n_batch {n_batch} n_ubatch {n_ubatch}: {usage:?}");
}

/// Texts before, between and behind the pictures of a rendered prompt.
fn texts_around_pictures(segments: &[Segment]) -> Vec<String> {
    let mut texts = vec![String::new()];
    for segment in segments {
        match segment {
            Segment::Text(text) => texts.last_mut().unwrap().push_str(text),
            Segment::Picture(_) => texts.push(String::new()),
        }
    }
    texts
}

#[test]
fn logits_equal_upstreams_for_every_shape() {
    for family in Family::ALL {
        for shape in SHAPES {
            compare_prompt(family, &[shape], 512, 512, "What is this?");
        }
    }
}

#[test]
fn logits_equal_upstreams_for_several_pictures() {
    for family in Family::ALL {
        compare_prompt(family, &[(112, 112), (200, 50), (56, 56)], 512, 512, "Compare.");
    }
}

#[test]
fn logits_equal_upstreams_for_every_batch_size() {
    for family in Family::ALL {
        for (n_batch, n_ubatch) in [(2048, 512), (64, 64), (48, 16), (37, 37)] {
            compare_prompt(family, &[(112, 112), (90, 60)], n_batch, n_ubatch, &"long text ".repeat(12));
        }
    }
}

#[test]
fn the_demo_model_gives_upstreams_numbers() {
    let files = demo_files();
    let (_model, projector) = open(&files);
    for seed in 0..4 {
        let prepared = projector.prepare(&picture(224, 224, seed), TokenCount::ZERO, 0).unwrap();
        let ours = projector.encode(&[(&prepared, 0)], &CancelToken::new()).unwrap();
        assert!(bits(ours[0].0.as_slice()) == bits(&parity::encode_chunk(&projector, &prepared, 0).unwrap()));
    }
}

/// `upstream` layout through our call is upstream's number; `reference` differs where there is a class token.
#[test]
fn the_upstream_layout_is_upstreams() {
    let dir = tempfile::tempdir().unwrap();
    let pair = pair_with(dir.path(), &Options::new(Family::Llava15, 3)).unwrap();
    let model = Model::load(&pair.text, &ModelParams::default()).unwrap();
    let rows = |layout: ClipLayout| {
        let mut params = projector_params();
        params.clip_layout = layout;
        let projector = Projector::load(&pair.projector, &model, &params).unwrap();
        assert_eq!(projector.info().class_token_moved, layout == ClipLayout::Reference);
        let prepared = projector.prepare(&picture(84, 84, 1), TokenCount::ZERO, 0).unwrap();
        projector.encode(&[(&prepared, 0)], &CancelToken::new()).unwrap().remove(0).0
    };
    let (reference, upstream) = (rows(ClipLayout::Reference), rows(ClipLayout::Upstream));
    assert_eq!(reference.rows(), upstream.rows());
    assert!(bits(reference.as_slice()) != bits(upstream.as_slice()));
}

/// Pixels of our decoders against upstream's, for the bundled PNGs and for JPEG of every sampling and process.
#[test]
fn decoded_pictures_equal_upstreams() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, extension, least) in [("models/demo", "png", 3), ("src/image/fixtures", "jpg", 10)] {
        let mut seen = 0;
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != extension) {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let ours = image::decode(&bytes, "sample", &image::DecodeOptions::default()).unwrap().image;
            let (w, h, theirs) = parity::decode_picture(&bytes).unwrap();
            assert_eq!((ours.width_px(), ours.height_px()), (w, h), "{}", path.display());
            assert!(ours.pixels() == theirs, "{}", path.display());
            seen += 1;
        }
        assert!(seen >= least, "{seen} pictures in {folder}");
    }
}

/// A warmed-up context computes the same as a cold one.
#[test]
fn warm_up_leaves_no_trace() {
    let (model, projector) = open(&files(Family::Llava15));
    let run = |warmup: bool| {
        let mut params = session_params();
        params.context.warmup = warmup;
        params.max_tokens = Some(0);
        let mut session = Session::new(&model, Some(projector.clone()), params).unwrap();
        let parts = [Part::Picture(Picture::new(picture(84, 84, 2))), Part::from("x")];
        bits(&session.first_logits(parts).unwrap().0)
    };
    assert_eq!(run(true), run(false));
}
