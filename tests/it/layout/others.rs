//! The two other towers whose class token llama.cpp appends although their position table has its row first: rows are
//! chosen rightly there, but every patch carries its neighbour's position.

use std::path::Path;

use llava::embedding::Embedding;
use llava::llama::CancelToken;
use llava::mtmd::{ClipLayout, Prepared};

use super::{Bench, Cosine, bits, files, options, prepare};
use crate::reference::{CogVlm, InternVl, Matrix};
use crate::world::picture;

const SIDE_PX: u64 = 56;

type Oracle = dyn Fn(&Path, &[f32], usize, usize) -> Matrix;

/// Rows of every tile, encoded together, with the reference's rows for a shift of the positions.
fn tiles(prepared: &Prepared, path: &Path, oracle: &Oracle, shift: usize) -> Vec<(Embedding, Matrix)> {
    let chunks: Vec<(&Prepared, usize)> = prepared.images().map(|(chunk, _)| (prepared, chunk)).collect();
    let rows = prepared.projector().encode(&chunks, &CancelToken::new()).unwrap();
    rows.into_iter()
        .zip(chunks)
        .map(|((rows, _), (_, chunk))| {
            let tile = prepared.tile(chunk, 0).unwrap();
            (rows, oracle(path, tile.pixels, tile.width_px as usize, shift))
        })
        .collect()
}

fn check(make: fn(&Path, u64, u64, u64), tile_count: usize, oracle: &Oracle) {
    let bench = Bench::new();
    let path = bench.path("tower.gguf");
    for seed in 1..=3 {
        make(&path, seed, SIDE_PX, options(0).projector_width);
        let reference = bench.load(&path, ClipLayout::Reference);
        assert!(reference.info().has_class_token && reference.info().class_token_moved);
        assert!(!reference.info().depth_corrected);
        let prepared = prepare(&reference, &picture(112, 56, 1));
        let encoded = tiles(&prepared, &path, oracle, 0);
        assert_eq!(encoded.len(), tile_count);
        for (rows, authors) in encoded {
            Cosine::of(&rows, &authors).assert_same("positions as trained");
        }
        let upstream = bench.load(&path, ClipLayout::Upstream);
        assert!(!upstream.info().class_token_moved);
        let prepared = prepare(&upstream, &picture(112, 56, 1));
        for (rows, shifted) in tiles(&prepared, &path, oracle, 1) {
            Cosine::of(&rows, &shifted).assert_same("positions one off");
        }
        for (rows, authors) in tiles(&prepared, &path, oracle, 0) {
            let cosine = Cosine::of(&rows, &authors);
            assert!(cosine.mean < 0.99, "{cosine:?}: nothing to tell apart");
        }
        // The correction is in this projector's memory only.
        let again = bench.load(&path, ClipLayout::Upstream);
        let first = |projector| {
            let prepared = prepare(projector, &picture(56, 56, 2));
            bits(&tiles(&prepared, &path, oracle, 1)[0].0)
        };
        assert!(first(&upstream) == first(&again) && first(&upstream) != first(&reference));
    }
}

#[test]
fn internvl_gets_its_positions_back() {
    check(files::internvl, 3, &|path, pixels, side, shift| InternVl::open(path).rows(pixels, side, shift));
}

#[test]
fn cogvlm_gets_its_positions_back() {
    check(files::cogvlm, 1, &|path, pixels, side, shift| CogVlm::open(path).rows(pixels, side, shift));
}
