//! The layout belongs to one projector: others beside it, and files that need no correction, do not notice.

use std::sync::Arc;

use llava::Error;
use llava::gguf::TensorType;
use llava::mtmd::{ClipLayout, Projector};

use super::files::{self, Tensor};
use super::{Bench, bits, encode, options, params, prepare};
use crate::world::picture;

const LAYOUTS: [ClipLayout; 2] = [ClipLayout::Reference, ClipLayout::Upstream];

/// Bits of the rows of four pictures.
fn four(projector: &Arc<Projector>) -> Vec<Vec<u32>> {
    (0..4).map(|seed| bits(&encode(&prepare(projector, &picture(84, 84, seed))))).collect()
}

#[test]
fn projectors_of_both_layouts_do_not_disturb_each_other() {
    let bench = Bench::new();
    let mut o = options(20);
    o.stored_layers = 11;
    let path = bench.file(&o);
    let alone = LAYOUTS.map(|layout| four(&bench.load(&path, layout)));
    for (a, b) in alone[0].iter().zip(&alone[1]) {
        assert!(a != b, "the layouts give the same rows");
    }

    let both = LAYOUTS.map(|layout| bench.load(&path, layout));
    for seed in 0..4_u32 {
        for (projector, rows) in both.iter().zip(&alone) {
            assert!(bits(&encode(&prepare(projector, &picture(84, 84, seed)))) == rows[seed as usize]);
        }
    }

    std::thread::scope(|scope| {
        for round in 0..6 {
            let (both, alone) = (&both, &alone);
            scope.spawn(move || {
                for i in 0..4 {
                    let which = (round + i) % 2;
                    assert!(four(&both[which]) == alone[which], "thread {round}, round {i}, layout {which}");
                }
            });
        }
    });
}

/// While one projector is loaded (and warmed up) in one layout, another encodes in the other.
#[test]
fn loading_does_not_disturb_either() {
    let bench = Bench::new();
    let path = bench.file(&options(21));
    for (mine, other) in [(ClipLayout::Reference, ClipLayout::Upstream), (ClipLayout::Upstream, ClipLayout::Reference)]
    {
        let projector = bench.load(&path, mine);
        let rows = four(&projector);
        std::thread::scope(|scope| {
            let loads = scope.spawn(|| (0..8).map(|_| four(&bench.load(&path, other))).collect::<Vec<_>>());
            for _ in 0..8 {
                assert!(four(&projector) == rows);
            }
            let loads = loads.join().unwrap();
            assert!(loads.windows(2).all(|pair| pair[0] == pair[1]) && loads[0] != rows);
        });
        // On one thread: the load in between leaves nothing behind.
        drop(bench.load(&path, other));
        assert!(four(&projector) == rows);
    }
}

/// Without the warm-up, the first picture builds the graph that the load otherwise builds.
#[test]
fn the_warm_up_changes_nothing() {
    let bench = Bench::new();
    let mut o = options(22);
    o.stored_layers = 11;
    let path = bench.file(&o);
    for layout in LAYOUTS {
        let mut cold = params(layout);
        cold.no_warmup = true;
        let cold = Projector::load(&path, &bench.model, &cold).unwrap();
        assert!(four(&cold) == four(&bench.load(&path, layout)), "{layout:?}");
    }
}

/// Without a class token and with an explicit feature layer, or with a layer count that says nothing, there is nothing
/// to correct: the two layouts are one, bit for bit.
#[test]
fn files_that_need_no_correction_stay_as_they_are() {
    let bench = Bench::new();
    for (stored, feature_layers) in [(11, Some(vec![11])), (11, Some(vec![10])), (3, None), (12, None)] {
        let mut o = options(23);
        (o.class_token, o.stored_layers, o.feature_layers) = (false, stored, feature_layers);
        let path = bench.file(&o);
        let both = LAYOUTS.map(|layout| bench.load(&path, layout));
        for projector in &both {
            assert!(!projector.info().class_token_moved && !projector.info().depth_corrected);
        }
        let rows = both.each_ref().map(four);
        assert!(rows[0] == rows[1], "{stored} layers");
    }
    // With a class token and an explicit feature layer, the class token alone is corrected.
    let mut o = options(23);
    (o.stored_layers, o.feature_layers) = (11, Some(vec![11]));
    let path = bench.file(&o);
    let projector = bench.load(&path, ClipLayout::Reference);
    assert!(projector.info().class_token_moved && !projector.info().depth_corrected);
}

/// ggml concatenates rows of one type only and asserts it: another one must not get that far.
#[test]
fn a_class_token_of_another_type_or_size_is_refused() {
    let bench = Bench::new();
    let good = bench.file(&options(24));
    let path = bench.path("class.gguf");
    for (ggml_type, dims, len) in [
        (TensorType::F16, vec![64], 128),
        (TensorType::Bf16, vec![64], 128),
        (TensorType::Q8_0, vec![64], 68),
        (TensorType::F32, vec![32], 128),
        (TensorType::F32, vec![64, 2], 512),
        (TensorType::F32, vec![1, 64], 256),
    ] {
        let token = Tensor { name: "v.class_embd".into(), dims: dims.clone(), ggml_type, bytes: vec![0; len] };
        files::copy(&good, &path, &[], &["v.class_embd"], vec![token]);
        let error = bench.load_error(&path);
        assert!(matches!(&error, Error::BadTensor { tensor, .. } if tensor == "v.class_embd"), "{dims:?}: {error}");
    }
    // The same tensor as it should be, with the extents that converters also write.
    let token =
        Tensor { name: "v.class_embd".into(), dims: vec![64, 1, 1], ggml_type: TensorType::F32, bytes: vec![0; 256] };
    files::copy(&good, &path, &[], &["v.class_embd"], vec![token]);
    encode(&prepare(&bench.load(&path, ClipLayout::Reference), &picture(84, 84, 0)));
}
