//! How many layers are run: LLaVA takes what enters the last layer of the tower that was trained.

use llava::gguf::TensorType;
use llava::mtmd::ClipLayout;

use super::{Bench, Cosine, encode, options, pixels, prepare};
use crate::models::Options;
use crate::reference::{ClassToken, Clip};
use crate::world::picture;

fn small(stored_layers: u32) -> Options {
    let mut o = options(u64::from(stored_layers));
    (o.stored_layers, o.image_size_px, o.matrices) = (stored_layers, 56, TensorType::F32);
    o
}

/// Layers stored, and layers of the tower that was trained: all that CLIP and SigLIP come with, complete and without the
/// last layer.
const KNOWN: [(u32, usize); 10] =
    [(11, 12), (12, 12), (23, 24), (24, 24), (26, 27), (27, 27), (31, 32), (32, 32), (47, 48), (48, 48)];

#[test]
fn known_towers_stop_before_their_last_layer() {
    let bench = Bench::new();
    for (stored, trained) in KNOWN {
        let path = bench.file(&small(stored));
        let projector = bench.load(&path, ClipLayout::Reference);
        let info = projector.info();
        assert_eq!((info.layers, info.layers_run), (stored as usize, Some(trained - 1)), "{stored} stored");
        assert_eq!(info.depth_corrected, (stored as usize) < trained, "{stored} stored");
        let prepared = prepare(&projector, &picture(56, 56, stored));
        let rows = encode(&prepared);
        let (pixels, side) = pixels(&prepared);
        let clip = Clip::open(&path);
        assert_eq!(clip.stored_layers(), stored as usize);
        Cosine::of(&rows, &clip.authors(pixels, side, trained)).assert_same(&format!("{stored} layers stored"));
    }
}

/// One layer less is clearly another result, with the class token in its place.
#[test]
fn one_layer_short_is_seen() {
    let bench = Bench::new();
    for stored in [11, 23] {
        let mut o = small(stored);
        o.class_token = false;
        let path = bench.file(&o);
        let projector = bench.load(&path, ClipLayout::Upstream);
        assert_eq!((projector.info().layers_run, projector.info().depth_corrected), (Some(stored as usize - 1), false));
        let prepared = prepare(&projector, &picture(56, 56, 0));
        let rows = encode(&prepared);
        let (pixels, side) = pixels(&prepared);
        let clip = Clip::open(&path);
        let missing = Cosine::of(&rows, &clip.authors(pixels, side, stored as usize + 1));
        assert!(missing.mean < 0.999, "{stored}: {missing:?}");
        let upstream = clip.rows(pixels, side, ClassToken::First, &[stored as usize - 1]);
        Cosine::of(&rows, &upstream).assert_same("upstream's depth");
    }
}

#[test]
fn both_mistakes_together_are_upstreams_numbers() {
    let bench = Bench::new();
    let path = bench.file(&small(11));
    let prepared = prepare(&bench.load(&path, ClipLayout::Upstream), &picture(56, 56, 1));
    let rows = encode(&prepared);
    let (pixels, side) = pixels(&prepared);
    let clip = Clip::open(&path);
    Cosine::of(&rows, &clip.authors(pixels, side, 12)).assert_other("both mistakes");
    let upstream = clip.rows(pixels, side, ClassToken::AppendedYetReadAsFirst, &[10]);
    Cosine::of(&rows, &upstream).assert_same("both mistakes");
}

/// A count that no CLIP or SigLIP tower has tells nothing: upstream's rule holds.
#[test]
fn other_counts_run_as_upstream_does() {
    let bench = Bench::new();
    for stored in [2, 10, 13, 22, 25, 28] {
        let path = bench.file(&small(stored));
        let projector = bench.load(&path, ClipLayout::Reference);
        assert_eq!(projector.info().layers_run, Some(stored as usize - 1), "{stored} stored");
        assert!(!projector.info().depth_corrected && projector.info().class_token_moved);
        let prepared = prepare(&projector, &picture(56, 56, 2));
        let (pixels, side) = pixels(&prepared);
        let reference = Clip::open(&path).rows(pixels, side, ClassToken::First, &[stored as usize - 1]);
        Cosine::of(&encode(&prepared), &reference).assert_same(&format!("{stored} layers stored"));
    }
}

/// What the file says about its feature layers wins over its number of layers, one or several, in any order.
#[test]
fn an_explicit_feature_layer_wins() {
    let bench = Bench::new();
    for (stored, keys, run) in [
        (11, vec![5], vec![5]),
        (11, vec![10], vec![10]),
        (11, vec![11], vec![11]),
        (12, vec![12], vec![12]),
        (11, vec![7, 3, 0], vec![0, 3, 7]),
        (11, vec![-1, 4], vec![4]),
    ] {
        let mut o = small(stored);
        o.feature_layers = Some(keys.clone());
        let path = bench.file(&o);
        let projector = bench.load(&path, ClipLayout::Reference);
        assert_eq!(projector.info().layers_run, run.iter().copied().max(), "{keys:?}");
        assert!(!projector.info().depth_corrected, "{keys:?}");
        let prepared = prepare(&projector, &picture(56, 56, 3));
        let (pixels, side) = pixels(&prepared);
        let reference = Clip::open(&path).rows(pixels, side, ClassToken::First, &run);
        Cosine::of(&encode(&prepared), &reference).assert_same(&format!("{stored} layers stored, {keys:?}"));
    }
}

/// A negative feature layer is no feature layer, to libmtmd as to us.
#[test]
fn a_negative_feature_layer_says_nothing() {
    let bench = Bench::new();
    for (layout, run) in [(ClipLayout::Reference, 11), (ClipLayout::Upstream, 10)] {
        let mut o = small(11);
        (o.feature_layers, o.class_token) = (Some(vec![-2]), false);
        let path = bench.file(&o);
        let projector = bench.load(&path, layout);
        assert_eq!(projector.info().layers_run, Some(run));
        let prepared = prepare(&projector, &picture(56, 56, 4));
        let (pixels, side) = pixels(&prepared);
        let reference = Clip::open(&path).rows(pixels, side, ClassToken::First, &[run]);
        Cosine::of(&encode(&prepared), &reference).assert_same("feature layer -2");
    }
}

/// The block count is what counts, not the tensors that lie in the file besides.
#[test]
fn tensors_beyond_the_block_count_are_not_counted() {
    let bench = Bench::new();
    let mut o = small(12);
    o.block_count = Some(11);
    let path = bench.file(&o);
    let projector = bench.load(&path, ClipLayout::Reference);
    assert_eq!((projector.info().layers, projector.info().layers_run), (11, Some(11)));
    let prepared = prepare(&projector, &picture(56, 56, 5));
    let (pixels, side) = pixels(&prepared);
    Cosine::of(&encode(&prepared), &Clip::open(&path).authors(pixels, side, 12)).assert_same("11 of 12 stored layers");
}
