//! Limits: context, batch and micro-batch. Each is an error with numbers before anything is computed, never an abort.

use llava::Error;
use llava::llama::{Batch, Context, ContextParams, Position, Token};
use llava::session::{FinishReason, Part, Picture, Session};

use crate::models::Family;
use crate::world::{files, open, picture, say, session_params, show};

#[test]
fn a_full_context_is_seen_before_encoding() {
    for family in Family::ALL {
        let (model, projector) = open(&files(family));
        let mut params = session_params();
        params.context.n_ctx = 256;
        let mut session = Session::new(&model, Some(projector), params).unwrap();
        let many: Vec<Part> = (0..80).map(show).chain([say("x")]).collect();
        let started = std::time::Instant::now();
        let error = session.ask(many).map(drop).unwrap_err();
        let Error::ContextFull { needed, available, n_ctx, picture, advice } = &error else {
            panic!("{family:?}: {error}")
        };
        assert!(needed > available && *n_ctx >= 256 && picture.is_some(), "{error}");
        assert!(advice.contains("-c "), "{advice}");
        assert!(session.messages().is_empty());
        assert!(started.elapsed().as_secs() < 30);
        // and the session is as good as new
        assert!(session.ask([say("hello")]).unwrap().finish().is_ok());
    }
}

/// A projector that takes any size can make the picture smaller instead.
#[test]
fn a_large_picture_can_be_made_to_fit() {
    let files = files(Family::Qwen2Vl);
    let (model, projector) = open(&files);
    let mut params = session_params();
    params.context.n_ctx = 512;
    let part = || Part::Picture(Picture::new(picture(1200, 1000, 0)));
    let mut session = Session::new(&model, Some(projector), params.clone()).unwrap();
    let error = session.ask([part(), say("x")]).map(drop).unwrap_err();
    let Error::ContextFull { advice, picture: Some(0), .. } = &error else { panic!("{error}") };
    let (_, most) = advice.split_once("--image-max-tokens ").unwrap_or_else(|| panic!("{advice}"));
    let mut smaller = crate::world::projector_params();
    smaller.image_max_tokens = Some(most.parse().unwrap());
    let projector = llava::mtmd::Projector::load(&files.projector, &model, &smaller).unwrap();
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    assert!(session.ask([part(), say("x")]).is_ok());
}

/// The context size that the advice names is enough.
#[test]
fn the_advice_helps() {
    let (model, projector) = open(&files(Family::Idefics3));
    let mut params = session_params();
    params.context.n_ctx = 256;
    let parts: Vec<Part> = (0..12).map(show).chain([say("x")]).collect();
    let mut session = Session::new(&model, Some(projector.clone()), params.clone()).unwrap();
    let error = session.ask(parts.clone()).map(drop).unwrap_err();
    let Error::ContextFull { advice, .. } = error else { panic!("{error}") };
    let wanted: String = advice.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    params.context.n_ctx = wanted.parse().unwrap();
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    assert!(session.ask(parts).unwrap().finish().is_ok());
}

#[test]
fn an_answer_ends_when_the_context_is_full() {
    let (model, projector) = open(&files(Family::Llava15));
    let mut params = session_params();
    params.context.n_ctx = 256;
    params.max_tokens = None;
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    // the generated model ends its answer only by chance; a grammar that never ends keeps it talking
    let long: String = "word ".repeat(30);
    let (_, usage) = session.ask([show(0), say(&long)]).unwrap().finish().unwrap();
    assert!(matches!(usage.finish, FinishReason::ContextFull | FinishReason::EndOfText), "{usage:?}");
    let total = usage.text_tokens.get() + usage.visual_tokens.get() + usage.decode_tokens.get();
    assert!(total <= session.n_ctx() as usize + 1);
}

/// CrispASR#361: prompts of n_batch - 1, n_batch and n_batch + 1 tokens around a picture.
#[test]
fn prompts_around_the_batch_size_decode() {
    for family in Family::ALL {
        let (model, projector) = open(&files(family));
        let mut params = session_params();
        params.context.n_batch = 64;
        params.context.n_ubatch = 64;
        params.max_tokens = Some(1);
        let mut session = Session::new(&model, Some(projector), params).unwrap();
        let (base, _) = session.count_tokens([show(0), say("")]).unwrap();
        for total in [63_usize, 64, 65, 127, 128, 129] {
            let Some(fill) = total.checked_sub(base.get()) else { continue };
            session.clear();
            let text = "a".repeat(fill);
            let (_, usage) = session.ask([show(0), say(&text)]).unwrap().finish().unwrap();
            assert!(usage.text_tokens.get().abs_diff(total) <= 2, "{family:?}: {usage:?}");
        }
    }
}

/// llama.cpp#18757: an image that attends in both directions must fit one micro-batch.
#[test]
fn the_micro_batch_is_raised_where_pictures_need_it() {
    let (model, projector) = open(&files(Family::Gemma3));
    assert!(projector.info().non_causal);
    let mut params = session_params();
    params.context.n_ubatch = 1;
    params.context.n_batch = 1;
    let mut session = Session::new(&model, Some(projector.clone()), params).unwrap();
    let raised = session.context_params().n_ubatch;
    assert!(raised > 1);
    assert!(session.ask([show(0), say("x")]).unwrap().finish().is_ok());

    // by hand, below the session: an error that names the number
    let mut context =
        Context::new(&model, &ContextParams { n_ctx: 512, n_ubatch: 2, n_batch: 64, ..ContextParams::default() })
            .unwrap();
    context.set_causal(false);
    let row = vec![0.0; model.n_embd_input()];
    let mut batch = Batch::new();
    for i in 0..3 {
        batch.push_row(&row, Position::text(i), 0, false);
    }
    let error = context.decode(&batch).unwrap_err();
    assert!(matches!(error, Error::MicroBatchTooSmall { tokens: 3, n_ubatch: 2 }), "{error}");
    assert!(error.to_string().contains("-ub 3"), "{error}");
}

/// What native code asserts is refused in Rust, and the context still works afterwards.
#[test]
fn batches_that_native_code_would_abort_on_are_refused() {
    let (model, _) = open(&files(Family::Qwen2Vl));
    let params = ContextParams { n_ctx: 64, n_batch: 16, n_ubatch: 16, ..ContextParams::default() };
    let mut context = Context::new(&model, &params).unwrap();
    let good = vec![0.5; model.n_embd_input()];
    let wide = vec![0.5; model.n_embd_input() + 1];
    let last = Token(i32::try_from(model.vocab().n_tokens()).unwrap() - 1);

    let mut refused = |fill: &dyn Fn(&mut Batch<'_>)| {
        let mut batch = Batch::new();
        fill(&mut batch);
        assert_eq!(context.decode(&batch).unwrap_err().code(), "bad-parameter");
    };
    refused(&|_| {});
    refused(&|b| {
        (0..17).for_each(|i| {
            b.push_token(Token(1), i, 0, false);
        })
    });
    refused(&|b| {
        b.push_token(Token(last.0 + 1), 0, 0, true);
    });
    refused(&|b| {
        b.push_token(Token(-1), 0, 0, true);
    });
    refused(&|b| {
        b.push_token(Token(1), -1, 0, true);
    });
    refused(&|b| {
        b.push_token(Token(1), 0, 1, true);
    });
    refused(&|b| {
        b.push_token(Token(1), 0, -1, true);
    });

    let mut batch = Batch::new();
    batch.push_row(&wide, Position::text(0), 0, true);
    assert_eq!(context.decode(&batch).unwrap_err().code(), "bad-parameter");
    let mut batch = Batch::new();
    batch.push_row(&good, Position::text(0), 0, true).push_token(Token(1), 1, 0, true);
    assert_eq!(context.decode(&batch).unwrap_err().code(), "bad-parameter");

    let mut batch = Batch::new();
    batch.push_token(last, 0, 0, true);
    context.decode(&batch).unwrap();
    assert_eq!(context.logits().len(), model.vocab().n_tokens());
    // a position that goes back is native code's to refuse
    let mut batch = Batch::new();
    batch.push_token(last, 0, 0, true);
    assert!(context.decode(&batch).is_err());
    context.trim(0, 1).unwrap();
    let mut batch = Batch::new();
    batch.push_token(last, 1, 0, true);
    context.decode(&batch).unwrap();
}

#[test]
fn more_than_the_context_is_an_error_and_not_an_abort() {
    let (model, _) = open(&files(Family::Llava15));
    let params = ContextParams { n_ctx: 256, n_batch: 256, ..ContextParams::default() };
    let mut context = Context::new(&model, &params).unwrap();
    let n_ctx = i32::try_from(context.n_ctx()).unwrap();
    let mut batch = Batch::new();
    (0..n_ctx).for_each(|i| {
        batch.push_token(Token(5), i, 0, i + 1 == n_ctx);
    });
    context.decode(&batch).unwrap();
    let mut batch = Batch::new();
    batch.push_token(Token(5), n_ctx, 0, true);
    let error = context.decode(&batch).unwrap_err();
    assert_eq!(error.code(), "context-full", "{error}");
}

#[test]
fn parameters_are_checked() {
    let (model, _) = open(&files(Family::Llava15));
    let base = ContextParams { n_ctx: 128, ..ContextParams::default() };
    for params in [
        ContextParams { n_batch: 0, ..base.clone() },
        ContextParams { n_ubatch: 0, ..base.clone() },
        ContextParams { n_seq_max: 0, ..base.clone() },
        ContextParams { n_seq_max: 10_000, ..base.clone() },
        ContextParams { n_seq_max: 4, n_batch: 2, ..base.clone() },
        ContextParams { n_seq_max: 129, ..base.clone() },
        ContextParams { threads_batch: Some(0), ..base.clone() },
        ContextParams { n_ctx: u32::MAX, ..base.clone() },
        ContextParams { n_batch: u32::MAX, ..base.clone() },
        ContextParams { threads: Some(0), ..base.clone() },
        ContextParams { threads: Some(100_000), ..base.clone() },
    ] {
        let error = Context::new(&model, &params).map(drop).unwrap_err();
        assert_eq!(error.code(), "bad-parameter", "{params:?}: {error}");
    }
}

#[test]
fn every_picture_shape_answers() {
    for family in Family::ALL {
        let (model, projector) = open(&files(family));
        let mut params = session_params();
        params.context.n_ctx = 4096;
        params.max_tokens = Some(1);
        let mut session = Session::new(&model, Some(projector), params).unwrap();
        for (w, h) in
            [(1, 1), (1, 64), (64, 1), (1, 1000), (1000, 1), (800, 100), (100, 800), (28, 28), (29, 27), (1024, 768)]
        {
            session.clear();
            let part = Part::Picture(Picture::new(picture(w, h, 0)));
            let result = session.ask([part, say("x")]).map(|a| a.finish());
            match result {
                Ok(finished) => assert!(finished.is_ok(), "{family:?} {w}x{h}: {finished:?}"),
                // upstream's preprocessing may give nothing for a picture of one pixel's width: an error, no abort
                Err(error) => {
                    assert!(matches!(error.code(), "prepare" | "context-full"), "{family:?} {w}x{h}: {error}")
                }
            }
        }
    }
}
