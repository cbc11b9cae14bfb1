//! Handles: drop order, progress and cancel, panics in callbacks, states, threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llava::llama::{
    Backend, Batch, Context, ContextParams, KvType, Model, ModelParams, Progress, RopeKind, Sampler, SamplerParams,
    SequenceState, Token,
};
use llava::mtmd::{Projector, ProjectorParams};
use llava::session::Session;
use llava::{Error, TokenCount};

use crate::models::Family;
use crate::world::{files, open, picture, session_params};

fn small() -> ContextParams {
    ContextParams { n_ctx: 256, threads: Some(1), warmup: false, ..ContextParams::default() }
}

/// Model, projector, prepared picture and context, dropped in every order: each keeps alive what it needs.
#[test]
fn any_drop_order_is_fine() {
    let files = files(Family::Llava15);
    for order in 0..24_usize {
        let (model, projector) = open(&files);
        let prepared = projector.prepare(&picture(84, 84, 0), TokenCount::ZERO, 0).unwrap();
        let context = Context::new(&model, &small()).unwrap();
        let mut things: Vec<Option<Box<dyn std::any::Any>>> =
            vec![Some(Box::new(model)), Some(Box::new(projector)), Some(Box::new(prepared)), Some(Box::new(context))];
        let mut left: Vec<usize> = (0..4).collect();
        let mut code = order;
        while !left.is_empty() {
            let next = left.remove(code % left.len());
            code /= left.len() + 1;
            things[next] = None;
        }
    }
}

#[test]
fn a_prepared_picture_outlives_its_makers() {
    let prepared = {
        let (_model, projector) = open(&files(Family::Qwen2Vl));
        projector.prepare(&picture(84, 56, 0), TokenCount::ZERO, 0).unwrap()
    };
    assert!(prepared.visual_tokens().get() > 0);
    assert!(prepared.images().all(|(i, _)| !prepared.tile(i, 0).unwrap().pixels.is_empty()));
    let rows = prepared.projector().encode(&[(&prepared, prepared.images().next().unwrap().0)], &Default::default());
    assert!(rows.is_ok());
}

#[test]
fn loading_reports_progress_and_can_be_stopped() {
    let files = files(Family::Llava15);
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let count: Progress = Arc::new(move |fraction| {
        assert!((0.0..=1.0).contains(&fraction));
        seen.fetch_add(1, Ordering::Relaxed);
        true
    });
    let params = ModelParams { progress: Some(count), ..ModelParams::default() };
    let model = Model::load(&files.text, &params).unwrap();
    assert!(calls.load(Ordering::Relaxed) > 0);

    let stop: Progress = Arc::new(|_| false);
    let params = ModelParams { progress: Some(Arc::clone(&stop)), ..ModelParams::default() };
    assert!(matches!(Model::load(&files.text, &params), Err(Error::Cancelled)));
    let params = ProjectorParams { progress: Some(stop), ..ProjectorParams::default() };
    assert!(matches!(Projector::load(&files.projector, &model, &params), Err(Error::Cancelled)));
}

#[test]
fn a_panic_in_a_callback_comes_back_as_a_panic() {
    let files = files(Family::Llava15);
    let params = ModelParams { progress: Some(Arc::new(|_| panic!("from the callback"))), ..ModelParams::default() };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Model::load(&files.text, &params)));
    let text = caught.unwrap_err();
    assert_eq!(text.downcast_ref::<&str>(), Some(&"from the callback"));
    // and native code is fine
    assert!(Model::load(&files.text, &ModelParams::default()).is_ok());
}

#[test]
fn a_saved_state_says_the_same() {
    for family in Family::ALL {
        let (model, _) = open(&files(family));
        let mut context = Context::new(&model, &small()).unwrap();
        let mut batch = Batch::new();
        (0..20).for_each(|i| {
            batch.push_token(Token(40 + i), i, 0, false);
        });
        context.decode(&batch).unwrap();
        let state = context.save_sequence(0).unwrap();
        let next = |context: &mut Context| {
            let mut batch = Batch::new();
            batch.push_token(Token(33), 20, 0, true);
            context.decode(&batch).unwrap();
            context.logits().to_vec()
        };
        let expected = next(&mut context);

        let stored = SequenceState::from_bytes(state.as_bytes().to_vec()).unwrap();
        let mut other = Context::new(&model, &small()).unwrap();
        other.restore_sequence(0, &stored).unwrap();
        assert_eq!(other.positions(0), Some((0, 19)), "{family:?}");
        assert_eq!(next(&mut other), expected, "{family:?}");
    }
}

#[test]
fn a_position_takes_the_bytes_that_the_facts_say() {
    for family in Family::ALL {
        let (model, _) = open(&files(family));
        for type_k in [KvType::F16, KvType::F32] {
            let params = ContextParams { type_k, ..small() };
            let mut context = Context::new(&model, &params).unwrap();
            let mut size = |from: i32, to: i32| {
                let mut batch = Batch::new();
                (from..to).for_each(|i| {
                    batch.push_token(Token(40 + i), i, 0, false);
                });
                context.decode(&batch).unwrap();
                context.save_sequence(0).unwrap().as_bytes().len() as f64
            };
            let grown = (size(0, 4) - size(4, 12)).abs() / 8.0;
            let bytes = params.kv_bytes_per_position(model.facts()).unwrap();
            // a cell of the saved state has a few numbers of its own, once or (beside sliding windows) twice
            assert!((0.0..=64.0).contains(&(grown - bytes)), "{family:?} {type_k:?}: {grown} and {bytes}");
        }
    }
}

#[test]
fn a_state_that_changed_or_belongs_elsewhere_is_refused() {
    let (model, _) = open(&files(Family::Llava15));
    let mut context = Context::new(&model, &small()).unwrap();
    let mut batch = Batch::new();
    (0..8).for_each(|i| {
        batch.push_token(Token(40 + i), i, 0, false);
    });
    context.decode(&batch).unwrap();
    let state = context.save_sequence(0).unwrap();
    let bytes = state.as_bytes();
    for at in (0..bytes.len()).step_by(bytes.len() / 97 + 1) {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x40;
        match SequenceState::from_bytes(changed) {
            Err(e) => assert_eq!(e.code(), "state"),
            // the fingerprint is compared when it is restored
            Ok(state) => assert_eq!(context.restore_sequence(0, &state).unwrap_err().code(), "state", "byte {at}"),
        }
    }
    for len in [0, 7, 51, 52, bytes.len() - 1] {
        assert_eq!(SequenceState::from_bytes(bytes[..len].to_vec()).unwrap_err().code(), "state", "{len} bytes");
    }
    let (other_model, _) = open(&files(Family::Qwen2Vl));
    let mut other = Context::new(&other_model, &small()).unwrap();
    assert_eq!(other.restore_sequence(0, &state).unwrap_err().code(), "state");
    // too small for what was saved
    let mut batch = Batch::new();
    (8..200).for_each(|i| {
        batch.push_token(Token(40), i, 0, false);
    });
    context.decode(&batch).unwrap();
    assert_eq!(context.positions(0), Some((0, 199)));
}

#[test]
fn positions_stay_numbers() {
    let (_model, projector) = open(&files(Family::Qwen2Vl));
    let prepared = projector.prepare(&picture(56, 56, 0), TokenCount::ZERO, 0).unwrap();
    let (chunk, _) = prepared.images().next().unwrap();
    for start in [-1, i32::MIN, i32::MAX, i32::MAX - 1] {
        assert_eq!(prepared.decoder_positions(chunk, start).unwrap_err().code(), "bad-parameter");
    }
    assert!(prepared.decoder_positions(chunk, 5).unwrap().iter().all(|p| p.t == 5 && p.x >= 5 && p.y >= 5));
}

/// Native code aborts when a grammar is told of a token that cannot follow.
#[test]
fn a_grammar_is_told_only_what_can_follow() {
    let (model, _) = open(&files(Family::Llava15));
    let params = SamplerParams { grammar: Some("root ::= \"ab\"".into()), ..SamplerParams::greedy() };
    let mut sampler = Sampler::new(&model, &params).unwrap();
    let vocab = model.vocab();
    let token = |text: &str| vocab.tokenize(text, false, false).unwrap()[0];
    for wrong in [vocab.eos().unwrap(), token("z")] {
        assert_eq!(sampler.accept(wrong).unwrap_err().code(), "grammar");
    }
    let logits = vec![0.0; vocab.n_tokens()];
    // byte tokens and character tokens write the same text
    let mut next = || {
        let chosen = sampler.choose(&logits).unwrap();
        sampler.accept(chosen).unwrap();
        vocab.text(&[chosen], false).unwrap()
    };
    assert_eq!(next() + &next(), "ab", "and it goes on");
    assert_eq!(sampler.choose(&logits[1..]).unwrap_err().code(), "bad-parameter");
    let mut bad = logits;
    bad[3] = f32::NAN;
    assert_eq!(sampler.choose(&bad).unwrap_err().code(), "non-finite");
}

#[test]
fn trimming_goes_back_to_what_was_there() {
    let (model, _) = open(&files(Family::Llava15));
    let mut context = Context::new(&model, &small()).unwrap();
    let step = |context: &mut Context, from: i32, to: i32| {
        let mut batch = Batch::new();
        (from..to).for_each(|i| {
            batch.push_token(Token(40 + i), i, 0, i + 1 == to);
        });
        context.decode(&batch).unwrap();
        context.logits().to_vec()
    };
    step(&mut context, 0, 10);
    let first = step(&mut context, 10, 11);
    context.trim(0, 10).unwrap();
    assert_eq!(context.positions(0), Some((0, 9)));
    assert!(context.logits().is_empty(), "logits of what was cut are gone");
    assert_eq!(step(&mut context, 10, 11), first);
    context.clear().unwrap();
    assert_eq!(context.positions(0), None);
}

#[test]
fn facts_of_models_are_read() {
    for family in Family::ALL {
        let (model, projector) = open(&files(family));
        assert_eq!(model.architecture(), family.architecture());
        assert_eq!(projector.info().projector_type, family.projector_type());
        assert_eq!(projector.info().width, model.n_embd_input());
        assert_eq!(model.rope() == RopeKind::MRope, family == Family::Qwen2Vl);
        assert_eq!(projector.info().m_rope, family == Family::Qwen2Vl);
        assert_eq!(projector.info().non_causal, family == Family::Gemma3);
        assert!(model.is_decoder() && !model.is_recurrent());
        assert!(model.size_bytes() > 0 && model.n_params() > 0 && model.n_layer() > 0 && model.n_ctx_train() > 0);
        assert!(!model.description().is_empty());
        assert_eq!(model.metadata("general.architecture").as_deref(), Some(family.architecture()));
        assert_eq!(model.metadata("no.such.key"), None);
        assert_eq!(model.metadata("with\0nul"), None);
    }
    let backend = Backend::start().unwrap();
    assert!(backend.devices().iter().any(|d| d.is_cpu));
    assert!(!backend.version().is_empty());
}

#[test]
fn text_survives_the_tokenizer() {
    let (model, _) = open(&files(Family::Qwen2Vl));
    let vocab = model.vocab();
    for text in ["", "a", "hello world", "grüße 🦀 漢字", "line\nline", "  two  spaces  "] {
        let tokens = vocab.tokenize(text, false, false).unwrap();
        assert_eq!(vocab.text(&tokens, false).unwrap(), text);
    }
    assert!(vocab.text(&[Token(-1)], true).is_err());
    assert!(vocab.text(&[Token(i32::MAX)], true).is_err());
    assert!(!vocab.is_end_of_generation(Token(i32::MAX)));
}

#[test]
fn placeholders_count_and_cannot_be_encoded() {
    for family in Family::ALL {
        let (_model, projector) = open(&files(family));
        let real = projector.prepare(&picture(100, 60, 0), TokenCount::ZERO, 0).unwrap();
        let counted = projector.prepare_placeholder(100, 60, TokenCount::ZERO, 0).unwrap();
        assert_eq!(real.tokens(), counted.tokens(), "{family:?}");
        assert_eq!(real.positions(), counted.positions());
        assert_eq!(real.chunks(), counted.chunks());
        let (chunk, _) = counted.images().next().unwrap();
        assert!(counted.tile(chunk, 0).unwrap().pixels.is_empty());
        let error = projector.encode(&[(&counted, chunk)], &Default::default()).unwrap_err();
        assert_eq!(error.code(), "bad-parameter");
    }
}

#[test]
fn grids_are_what_the_families_have() {
    let cells = |family: Family, w: u32, h: u32| {
        let (_model, projector) = open(&files(family));
        let prepared = projector.prepare(&picture(w, h, 0), TokenCount::ZERO, 0).unwrap();
        let grids: Vec<_> = prepared.images().map(|(_, i)| (i.grid.columns, i.grid.rows, i.tokens.get())).collect();
        grids
    };
    assert_eq!(cells(Family::Llava15, 84, 84), [(6, 6, 36)]);
    for family in Family::ALL {
        for (columns, rows, tokens) in cells(family, 112, 56) {
            assert_eq!((columns * rows) as usize, tokens, "{family:?}");
        }
    }
    let wide = cells(Family::Qwen2Vl, 224, 56);
    assert!(wide[0].0 > wide[0].1, "{wide:?}");
}

#[test]
fn chunks_of_others_are_refused() {
    let (_a, one) = open(&files(Family::Llava15));
    let (_b, two) = open(&files(Family::Llava15));
    let prepared = one.prepare(&picture(84, 84, 0), TokenCount::ZERO, 0).unwrap();
    let chunk = prepared.images().next().unwrap().0;
    assert_eq!(two.encode(&[(&prepared, chunk)], &Default::default()).unwrap_err().code(), "bad-parameter");
    assert_eq!(one.encode(&[(&prepared, 99)], &Default::default()).unwrap_err().code(), "bad-parameter");
    assert!(one.encode(&[], &Default::default()).unwrap().is_empty());
    let (model, _) = open(&files(Family::Llava15));
    let error = Session::new(&model, Some(one), session_params()).map(drop).unwrap_err();
    assert_eq!(error.code(), "bad-parameter");
}

/// A thread that ends drops its thread-locals in an order nobody chooses; what native code logs then must not end the process.
#[test]
fn a_context_kept_in_a_thread_local_is_dropped_with_its_thread() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<llava::session::Session>> = const { std::cell::RefCell::new(None) };
    }
    let ended = std::thread::spawn(|| {
        KEPT.with_borrow_mut(|kept| {
            let mut session = crate::world::session(Family::Llava15);
            session.ask([crate::world::say("hello")]).unwrap().finish().unwrap();
            *kept = Some(session);
        });
    })
    .join();
    assert!(ended.is_ok());
}
