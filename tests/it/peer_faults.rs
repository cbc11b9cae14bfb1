//! The five faults of the peer crate that safe code could reach there, and the lifetime and ownership rules that rule them out here.
//! Compile-time halves are `compile_fail` examples in the library's documentation.

use llava::TokenCount;
use llava::gguf::GgufFile;
use llava::image::RgbImage;
use llava::llama::{Batch, Context, ContextParams, Token};

use crate::models::Family;
use crate::world::{files, open, picture};

/// There: `chat_template(Some(..))` handed C a string that was freed already. Here there is no name to pass, and what comes back is
/// owned: it outlives the model.
#[test]
fn a_chat_template_is_owned() {
    let template = {
        let (model, _) = open(&files(Family::Llava15));
        model.chat_template().unwrap()
    };
    assert!(template.contains("{"));
}

/// There: adding a token to more sequences than the batch was made for wrote past the heap. Here the sequence is checked.
#[test]
fn sequences_beyond_the_context_are_refused() {
    let (model, _) = open(&files(Family::Llava15));
    let params = ContextParams { n_ctx: 64, n_seq_max: 2, warmup: false, ..ContextParams::default() };
    let mut context = Context::new(&model, &params).unwrap();
    for sequence in [2, 3, 64, i32::MAX, -1, i32::MIN] {
        let mut batch = Batch::new();
        batch.push_token(Token(1), 0, sequence, true);
        assert_eq!(context.decode(&batch).unwrap_err().code(), "bad-parameter");
        assert!(context.trim(sequence, 0).is_err());
        assert!(context.save_sequence(sequence).is_err());
        assert_eq!(context.positions(sequence), None);
    }
    let mut batch = Batch::new();
    batch.push_token(Token(1), 0, 1, true);
    context.decode(&batch).unwrap();
}

/// There: `from_image_data(65536, 65536, &[])` read 12 GiB behind an empty slice. Here the bytes have to be as many as the size says.
#[test]
fn pixels_have_to_match_the_size() {
    assert!(RgbImage::from_rgb(65_536, 65_536, Vec::new()).is_err());
    assert!(RgbImage::from_rgb(u32::MAX, u32::MAX, Vec::new()).is_err());
    assert!(RgbImage::from_rgb(0, 0, Vec::new()).is_err());
    assert!(RgbImage::from_rgb(2, 2, vec![0; 11]).is_err());
    assert!(RgbImage::from_rgb(2, 2, vec![0; 13]).is_err());
    let (_model, projector) = open(&files(Family::Llava15));
    for (w, h) in [(65_536, 65_536), (46_001, 1), (1, 46_001), (u32::MAX, 1), (0, 5), (5, 0), (46_000, 46_000)] {
        let error = projector.prepare_placeholder(w, h, TokenCount::ZERO, 0).map(drop).unwrap_err();
        assert!(matches!(error.code(), "picture-too-large" | "prepare"), "{w}x{h}: {error}");
    }
}

/// There: `GgufContext::key_at(-1)` aborted. Here keys are an iterator and a map.
#[test]
fn metadata_is_looked_up_by_name() {
    let file = GgufFile::open(&files(Family::Llava15).text).unwrap();
    assert!(file.metadata().count() > 5);
    assert!(file.value("").is_none());
    assert!(file.value("no.such.key").is_none());
}

/// There: two contexts of one model could be made in parallel while making one changed the model. Here models are shared on purpose:
/// many threads make and use contexts of one model.
#[test]
fn contexts_of_one_model_are_made_in_parallel() {
    let (model, _) = open(&files(Family::Llava15));
    let logits: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let params = ContextParams { n_ctx: 64, threads: Some(1), ..ContextParams::default() };
                    let mut context = Context::new(&model, &params).unwrap();
                    let mut batch = Batch::new();
                    (0..8).for_each(|i| {
                        batch.push_token(Token(40 + i), i, 0, i == 7);
                    });
                    context.decode(&batch).unwrap();
                    context.logits().to_vec()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(logits.iter().all(|l| l == &logits[0]));
}

/// There: a projector could outlive its model. Here it keeps it alive.
#[test]
fn a_projector_keeps_its_model() {
    let projector = open(&files(Family::Idefics3)).1;
    let prepared = projector.prepare(&picture(100, 100, 0), TokenCount::ZERO, 0).unwrap();
    assert!(prepared.tokens() > prepared.visual_tokens(), "markers were looked up in the model's vocabulary");
    assert!(projector.model().vocab().n_tokens() > 0);
}
