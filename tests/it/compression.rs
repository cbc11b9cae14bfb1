//! Fewer visual tokens in whole conversations: what stays equal, what adds up, and what has to be computed again.

use std::sync::Arc;

use llava::Error;
use llava::compress::{CompressorSpec, Method, Policy, Reason, VisualTokenSetting};
use llava::llama::{CancelToken, KvType, Model, ModelParams};
use llava::mtmd::{ClipLayout, Projector};
use llava::session::template::UserTemplate;
use llava::session::{
    EncodedPicture, ImagePositions, ImageSource, KvSnapshots, Part, Picture, Restored, Session, SessionParams,
};

use crate::models::{Family, Options, pair_with};
use crate::world::{demo_files, files, open, picture, projector_params, say, session, session_params, show};

const COARSE: &str = "Describe the image.";
const COLOUR: &str = "What colour is the car?";

fn policy(setting: &str) -> Policy {
    Policy::new(setting.parse::<VisualTokenSetting>().unwrap())
}

fn fewer(setting: &str, compressor: &str, positions: ImagePositions) -> SessionParams {
    SessionParams {
        visual_tokens: policy(setting),
        compressor: Some(compressor.parse::<CompressorSpec>().unwrap().build(None).unwrap()),
        image_positions: positions,
        ..session_params()
    }
}

fn start(family: Family, params: SessionParams) -> Session {
    let (model, projector) = open(&files(family));
    Session::new(&model, Some(projector), params).unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Batches are cut elsewhere, so sums are taken in another order.
fn close(a: &[f32], b: &[f32], what: &str) {
    let scale = b.iter().fold(1.0_f32, |m, v| m.max(v.abs()));
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0_f32, f32::max);
    assert!(worst <= 2e-2 * scale, "{what}: logits differ by {worst} of {scale}");
}

#[test]
fn all_rows_through_a_compressor_change_no_bit() {
    for family in Family::ALL {
        let parts = || [show(0), say("and "), show(1), say(COARSE)];
        let (plain, _) = session(family).first_logits(parts()).unwrap();
        for (setting, compressor) in [("3", "full"), ("100000", "div-c"), ("100%", "pool"), ("full", "div-c")] {
            for positions in [ImagePositions::Compact, ImagePositions::Preserve] {
                let mut through = start(family, fewer(setting, compressor, positions));
                let (logits, usage) = through.first_logits(parts()).unwrap();
                assert!(bits(&logits) == bits(&plain), "{family:?} {setting} {compressor} {positions:?}");
                assert!(usage.images.iter().all(|i| i.tokens == i.rows), "{family:?}");
            }
        }
    }
}

/// Two pictures with text between, in turns 1 and 3: after each turn the books, the KV cache and the next position agree.
#[test]
fn history_cells_and_positions_agree_in_every_turn() {
    for family in Family::ALL {
        for (setting, compressor) in
            [("3", "div-c"), ("40%", "pool"), ("auto", "energy:quota=0.25"), ("2", "tome-local")]
        {
            for positions in [ImagePositions::Compact, ImagePositions::Preserve] {
                let what = format!("{family:?} {setting} {compressor} {positions:?}");
                let mut session = start(family, fewer(setting, compressor, positions));
                let turns =
                    [vec![show(0), say(COARSE)], vec![say("And then?")], vec![say("This: "), show(1), say(COARSE)]];
                let mut shown = 0;
                for turn in turns {
                    shown += turn.iter().filter(|p| matches!(p, Part::Picture(_))).count();
                    let (_, usage) = session.ask(turn).unwrap().finish().unwrap();
                    assert_eq!(usage.images.len(), shown, "{what}");
                    assert_eq!(usage.images.iter().map(|i| i.tokens.get()).sum::<usize>(), usage.visual_tokens.get());
                    let fill = session.context_fill();
                    // the last token of an answer is chosen, and decoded when one more is wanted
                    let answered = usage.decode_tokens.get().saturating_sub(1);
                    let cells = usage.text_tokens.get() + usage.visual_tokens.get();
                    assert!((cells + answered..=cells + answered + 1).contains(&fill.tokens.get()), "{what}: {fill:?}");
                    assert_eq!(fill.last_position, Some(fill.next_position.get() as i32 - 1), "{what}");
                    let compact = positions == ImagePositions::Compact && family != Family::Qwen2Vl;
                    assert!(!compact || fill.next_position.get() == fill.tokens.get(), "{what}: {fill:?}");
                    if setting != "auto" {
                        assert!(usage.images.iter().all(|i| i.tokens < i.rows), "{what}: {usage:?}");
                    }
                }
            }
        }
    }
}

/// M-RoPE always, and other models where it is asked for: text stands where it would stand without compression.
#[test]
fn text_positions_are_those_of_the_whole_picture() {
    for family in Family::ALL {
        let parts = || [say("Look: "), show(0), say("and "), show(1), say(COARSE)];
        let whole = {
            let mut session = session(family);
            session.first_logits(parts()).unwrap();
            session.context_fill()
        };
        for compressor in ["div-c", "random:seed=4", "pool", "tome-local", "stratified"] {
            let mut session = start(family, fewer("3", compressor, ImagePositions::Preserve));
            session.first_logits(parts()).unwrap();
            let fill = session.context_fill();
            assert_eq!(fill.next_position, whole.next_position, "{family:?} {compressor}");
            assert_eq!(fill.last_position, whole.last_position, "{family:?} {compressor}");
            assert!(fill.tokens < whole.tokens, "{family:?} {compressor}");
        }
    }
}

/// Moving rows back changes what the text sees, or it would not be worth having.
#[test]
fn restored_positions_are_seen_by_the_text() {
    let logits = |positions| {
        let mut session = start(Family::Llava15, fewer("6", "div-c", positions));
        session.first_logits([show(0), say(COARSE)]).unwrap().0
    };
    let (compact, preserve) = (logits(ImagePositions::Compact), logits(ImagePositions::Preserve));
    assert!(compact.iter().zip(&preserve).any(|(a, b)| (a - b).abs() > 1e-4));
    assert!(bits(&preserve) == bits(&logits(ImagePositions::Preserve)), "twice the same");
}

#[test]
fn a_second_question_finds_the_compressed_picture() {
    for family in Family::ALL {
        for positions in [ImagePositions::Compact, ImagePositions::Preserve] {
            let params = || fewer("3", "div-c", positions);
            let mut warm = start(family, params());
            let (_, first) = warm.ask([show(0), say("one?")]).unwrap().finish().unwrap();
            let messages = warm.messages().to_vec();
            let (a, usage) = warm.first_logits([say("two?")]).unwrap();
            assert_eq!(usage.images[0].source, ImageSource::Kv, "{family:?}");
            assert_eq!(
                (usage.images[0].rows, usage.images[0].tokens),
                (first.images[0].rows, first.images[0].tokens),
                "{family:?}"
            );
            let mut cold = start(family, params());
            cold.set_messages(messages);
            let (b, _) = cold.first_logits([say("two?")]).unwrap();
            close(&a, &b, &format!("{family:?} {positions:?}"));
        }
    }
}

/// Another budget or method is another picture for the KV cache; what stands before it stays.
#[test]
fn back_to_all_tokens_in_the_middle_of_a_conversation() {
    for family in Family::ALL {
        let mut session = start(family, fewer("3", "div-c", ImagePositions::Compact));
        session.set_system("Be brief, whatever is asked.");
        session.ask([show(0), say("one?")]).unwrap().finish().unwrap();
        session.set_visual_tokens(Policy::default());
        let (warm, usage) = session.first_logits([say("two?")]).unwrap();
        assert_eq!(usage.images[0].source, ImageSource::Memory, "{family:?}: the encoder does not run again");
        assert_eq!(usage.images[0].tokens, usage.images[0].rows);
        assert!(usage.reused_tokens.get() > 10, "{family:?}: the text before the picture stays");
        let mut whole = crate::world::session(family);
        whole.set_messages(session.messages().to_vec());
        let (cold, _) = whole.first_logits([say("two?")]).unwrap();
        close(&warm, &cold, &format!("{family:?}"));
        // and to fewer again, by number: exactly what is asked for
        session.set_visual_tokens(policy("3"));
        let (_, usage) = session.first_logits([say("two?")]).unwrap();
        assert!(usage.images[0].tokens < usage.images[0].rows, "{family:?}");
    }
}

#[test]
fn auto_gives_what_the_question_needs_and_takes_nothing_back() {
    let (model, projector) = open(&demo_files());
    let params = SessionParams { visual_tokens: policy("auto"), ..session_params() };
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    let sign = || Part::Picture(Picture::from_file("models/demo/sign.png").unwrap());
    let (_, usage) = session.first_logits([sign(), say(COLOUR)]).unwrap();
    assert_eq!((usage.images[0].tokens.get(), usage.images[0].rows.get()), (64, 196));
    assert!(matches!(usage.images[0].reasons[..], [Reason::Question { .. }]), "{:?}", usage.images[0].reasons);
    let (_, usage) = session.first_logits([sign(), say("How many letters are there?")]).unwrap();
    assert_eq!(usage.images[0].tokens.get(), 196, "{:?}", usage.images[0].reasons);
    session.clear();
    let (_, usage) = session.ask([sign(), say("How many circles are there?")]).unwrap().finish().unwrap();
    assert_eq!(usage.images[0].tokens.get(), 88);
    // a coarse question would do with 64, but 88 are there
    let (_, usage) = session.ask([say(COLOUR)]).unwrap().finish().unwrap();
    assert_eq!((usage.images[0].source, usage.images[0].tokens.get()), (ImageSource::Kv, 88));
    let (_, usage) = session.ask([say("What word is written?")]).unwrap().finish().unwrap();
    assert_eq!(usage.images[0].tokens.get(), 196);
    assert_eq!(usage.images[0].source, ImageSource::Memory);
    let (_, usage) = session.ask([say(COLOUR)]).unwrap().finish().unwrap();
    assert_eq!((usage.images[0].source, usage.images[0].tokens.get()), (ImageSource::Kv, 196));
    assert_eq!(usage.images[0].reasons[0], Reason::InContext);
}

/// States behind compressed pictures are found by those who would compress alike, and by nobody else.
#[test]
fn kept_states_know_the_compressor() {
    for family in Family::ALL {
        let home = tempfile::tempdir().unwrap();
        let snapshots = || KvSnapshots::new(0, Some((home.path(), 64 << 20)));
        let ask = |setting: &str, compressor: &str, snapshots: Option<Arc<KvSnapshots>>| {
            let params = SessionParams { snapshots, ..fewer(setting, compressor, ImagePositions::Compact) };
            let (logits, usage) =
                start(family, params).first_logits([show(0), say("and "), show(1), say(COARSE)]).unwrap();
            (bits(&logits), usage)
        };
        for (setting, compressor) in
            [("3", "div-c"), ("auto", "div-c"), ("3", "random:seed=1"), ("full", "div-c"), ("2", "div-c")]
        {
            let what = format!("{family:?} {setting} {compressor}");
            let (cold, first) = ask(setting, compressor, None);
            let (_, saved) = ask(setting, compressor, Some(snapshots()));
            // where `auto` keeps all rows, their state is that of `full`, and the first who comes saves it
            assert!(saved.images.iter().all(|i| i.source != ImageSource::Snapshot) || setting == "full", "{what}");
            let (warm, usage) = ask(setting, compressor, Some(snapshots()));
            assert!(warm == cold, "{what}");
            assert!(usage.images.iter().all(|i| i.source == ImageSource::Snapshot), "{what}: {usage:?}");
            assert_eq!((usage.visual_tokens, usage.text_tokens), (first.visual_tokens, first.text_tokens), "{what}");
        }
    }
}

/// Rows that are moved after decoding have keys that are yet to be turned: no state is kept there, and answers are right.
#[test]
fn no_state_is_kept_behind_rows_that_were_moved() {
    let snapshots = KvSnapshots::new(64 << 20, None);
    let ask = || {
        let params = fewer("5", "div-c", ImagePositions::Preserve);
        let params = SessionParams { snapshots: Some(Arc::clone(&snapshots)), ..params };
        bits(&start(Family::Llava15, params).first_logits([show(0), say(COARSE)]).unwrap().0)
    };
    assert!(ask() == ask());
    assert_eq!((snapshots.stats().saves, snapshots.stats().memory_hits), (0, 0));
}

#[test]
fn a_saved_conversation_remembers_its_compression() {
    for family in Family::ALL {
        for positions in [ImagePositions::Compact, ImagePositions::Preserve] {
            let params = || fewer("3", "div-c:quota=0.25", positions);
            let mut original = start(family, params());
            original.ask([show(0), say("one?")]).unwrap().finish().unwrap();
            original.ask([say("and "), show(1), say("two?")]).unwrap().finish().unwrap();
            let bytes = original.save().unwrap();
            let mut restored = start(family, params());
            assert_eq!(restored.load(&bytes).unwrap(), Restored::Everything, "{family:?}");
            let (a, _) = original.first_logits([say("three?")]).unwrap();
            let (b, usage) = restored.first_logits([say("three?")]).unwrap();
            assert!(bits(&a) == bits(&b), "{family:?} {positions:?}");
            assert!(usage.images.iter().all(|i| i.source == ImageSource::Kv && i.tokens < i.rows), "{family:?}");
            // whoever wants all rows gets them
            let mut whole = session(family);
            assert_eq!(whole.load(&bytes).unwrap(), Restored::Everything, "{family:?}");
            let (_, usage) = whole.first_logits([say("three?")]).unwrap();
            assert!(usage.images.iter().all(|i| i.source == ImageSource::Encoded && i.tokens == i.rows), "{family:?}");
        }
    }
}

#[test]
fn a_picture_that_is_encoded_already_is_compressed_all_the_same() {
    for family in Family::ALL {
        let (model, projector) = open(&files(family));
        let shown = Picture::new(picture(112, 112, 0));
        let encoded = EncodedPicture::encode(&projector, &shown, None, &CancelToken::new()).unwrap();
        let params = || fewer("3", "div-c", ImagePositions::Compact);
        let mut seeing = Session::new(&model, Some(projector), params()).unwrap();
        let (a, _) = seeing.first_logits([Part::Picture(shown), say(COARSE)]).unwrap();
        let mut blind = Session::new(&model, None, params()).unwrap();
        let (b, usage) = blind.first_logits([Part::Encoded(encoded), say(COARSE)]).unwrap();
        assert_eq!(usage.images[0].source, ImageSource::File);
        assert!(usage.images[0].tokens < usage.images[0].rows, "{family:?}");
        // which tile is the overview only the projector knows
        if family != Family::Idefics3 {
            assert!(bits(&a) == bits(&b), "{family:?}");
        }
    }
}

/// Tiles share a budget, and each keeps something.
#[test]
fn tiles_are_compressed_apart() {
    let mut session = start(Family::Idefics3, fewer("30", "div-c", ImagePositions::Compact));
    let wide = Part::Picture(Picture::new(picture(640, 480, 2)));
    let (_, usage) = session.first_logits([wide, say(COARSE)]).unwrap();
    let image = &usage.images[0];
    assert!(image.rows.get() > 40 && image.tokens.get() == 30, "{image:?}");
    assert_eq!(image.reasons, [Reason::Asked]);
}

/// Rows that do not stand for places cannot be chosen by place: an error for a number, all tokens and a reason in `auto`.
#[test]
fn an_unknown_layout_is_an_error_or_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let pair = pair_with(dir.path(), &Options::new(Family::Llava15, 3)).unwrap();
    let model = Model::load(&pair.text, &ModelParams::default()).unwrap();
    let mut layout = projector_params();
    layout.clip_layout = ClipLayout::Upstream;
    let projector = Projector::load(&pair.projector, &model, &layout).unwrap();
    let open = |setting: &str| {
        let params = fewer(setting, "div-c", ImagePositions::Compact);
        Session::new(&model, Some(Arc::clone(&projector)), params).unwrap()
    };
    let mut numbered = open("5");
    let error = numbered.ask([show(0), say(COARSE)]).map(drop).unwrap_err();
    assert_eq!(error.code(), "layout-unknown", "{error}");
    assert!(numbered.messages().is_empty() && numbered.ask([say("hello")]).is_ok());
    let (_, usage) = open("auto").ask([show(0), say(COARSE)]).unwrap().finish().unwrap();
    assert_eq!(usage.images[0].tokens, usage.images[0].rows);
    assert_eq!(usage.images[0].reasons[0].name(), "unknown-layout");
}

#[test]
fn positions_are_moved_only_where_that_is_possible() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { recurrent: true, ..Options::new(Family::Llava15, 3) };
    let (model, projector) = open(&pair_with(dir.path(), &options).unwrap());
    let refused = Session::new(&model, Some(projector), fewer("5", "div-c", ImagePositions::Preserve)).unwrap_err();
    assert!(refused.code() == "bad-parameter" && refused.to_string().contains("use compact"), "{refused}");

    let (model, _) = open(&files(Family::Qwen2Vl));
    let mut context = llava::llama::Context::new(&model, &session_params().context).unwrap();
    assert!(!context.can_shift());
    assert_eq!(context.shift(0, 0, 1, 1).unwrap_err().code(), "state");
    let (model, _) = open(&files(Family::Llava15));
    let mut context = llava::llama::Context::new(&model, &session_params().context).unwrap();
    assert!(context.can_shift());
    assert!(!context.shift_pending());
    context.shift(0, 0, 4, 3).unwrap();
    assert!(context.shift_pending());
    assert_eq!(context.save_sequence(0).unwrap_err().code(), "state");
    for (sequence, from, to, by) in
        [(1, 0, 1, 1), (-1, 0, 1, 1), (0, -1, 1, 1), (0, 3, 1, 1), (0, 1, 2, -2), (0, 1, i32::MAX, 1)]
    {
        let error = context.shift(sequence, from, to, by).unwrap_err();
        assert_eq!(error.code(), "bad-parameter", "{sequence} {from} {to} {by}");
    }
}

/// What `auto` keeps in the end is known only after encoding: a context that the least would have fitted is refused then, and the
/// conversation goes on.
#[test]
fn a_picture_that_needs_more_than_the_context_has() {
    let (model, projector) = open(&demo_files());
    let mut params = session_params();
    params.context.n_ctx = 256;
    params.visual_tokens = Policy { energy: 1.0, ..policy("auto") };
    params.visual_tokens.coarse = 0.1;
    params.visual_tokens.raised = 0.1;
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    let shown = || Part::Picture(Picture::from_file("models/demo/shapes.png").unwrap());
    let long = format!("{COARSE} {}", "Describe. ".repeat(9));
    let error = session.ask([shown(), say(&long)]).map(drop).unwrap_err();
    assert!(matches!(error, Error::ContextFull { .. }), "{error}");
    assert!(session.messages().is_empty());
    session.set_visual_tokens(policy("20"));
    assert!(session.ask([shown(), say(&long)]).unwrap().finish().is_ok());
}

/// The demo model's answers about shapes survive a third of the tokens.
#[test]
fn the_demo_model_describes_from_a_third() {
    let (model, projector) = open(&demo_files());
    for method in [Method::DivC, Method::Cover, Method::Energy, Method::Div] {
        let params = SessionParams { max_tokens: None, ..fewer("64", method.name(), ImagePositions::Compact) };
        let mut session = Session::new(&model, Some(Arc::clone(&projector)), params).unwrap();
        let shown = Part::Picture(Picture::from_file("models/demo/shapes.png").unwrap());
        let (answer, usage) = session.ask([shown, say(COARSE)]).unwrap().finish().unwrap();
        assert_eq!(answer.trim(), "a black square, a white triangle and a red circle", "{method:?}");
        assert_eq!(usage.visual_tokens.get(), 64);
    }
}

/// Keys of other types than F16 and F32 cannot be turned: native code reads what is not there, or ends the process.
#[test]
fn positions_are_moved_only_with_keys_that_can_be_turned() {
    let (model, projector) = open(&demo_files());
    for name in KvType::NAMES {
        let mut params = fewer("64", "div-c", ImagePositions::Preserve);
        params.context.type_k = KvType::from_name(name).unwrap();
        let can = matches!(params.context.type_k, KvType::F16 | KvType::F32);
        let shown = || Part::Picture(Picture::from_file("models/demo/shapes.png").unwrap());
        match Session::new(&model, Some(Arc::clone(&projector)), params.clone()) {
            Ok(mut session) => {
                assert!(can, "{name}");
                session.ask([shown(), say(COARSE)]).unwrap().finish().unwrap();
            }
            Err(error) => assert!(!can && error.to_string().contains("-ctk f16"), "{name}: {error}"),
        }
        params.image_positions = ImagePositions::Compact;
        let mut session = Session::new(&model, Some(Arc::clone(&projector)), params).unwrap();
        session.ask([shown(), say(COARSE)]).unwrap().finish().unwrap();
    }
}

/// Where a memory cannot be cut, pictures that were live are decoded again: by what is asked now, not by what was live.
#[test]
fn a_memory_that_cannot_be_cut_is_filled_by_what_is_asked_now() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { recurrent: true, ..Options::new(Family::Llava15, 3) };
    let (model, projector) = open(&pair_with(dir.path(), &options).unwrap());
    let snapshots = KvSnapshots::new(64 << 20, None);
    let start = |snapshots| {
        let params = SessionParams { visual_tokens: policy("auto"), snapshots, ..session_params() };
        Session::new(&model, Some(Arc::clone(&projector)), params).unwrap()
    };
    for (first, then) in
        [("What word is written?", COLOUR), ("How many shapes are there?", COLOUR), (COLOUR, "Read it.")]
    {
        let mut session = start(None);
        session.ask([show(0), say(first)]).unwrap().finish().unwrap();
        let mut cold = start(None);
        cold.set_messages(session.messages().to_vec());
        let mut kept = start(Some(Arc::clone(&snapshots)));
        kept.set_messages(session.messages().to_vec());
        let (expected, usage) = cold.first_logits([say(then)]).unwrap();
        let detail = then != COLOUR;
        assert_eq!(usage.images[0].tokens == usage.images[0].rows, detail, "{first} {then}: {usage:?}");
        for session in [&mut session, &mut kept] {
            let (logits, found) = session.first_logits([say(then)]).unwrap();
            assert!(bits(&logits) == bits(&expected), "{first} {then}");
            assert_eq!(found.images[0].tokens, usage.images[0].tokens, "{first} {then}");
            let fill = session.context_fill();
            let last = fill.last_position.map(|last| usize::try_from(last).unwrap() + 1);
            assert_eq!(last, Some(fill.next_position.get()), "{first} {then}");
        }
    }
}

/// Only a projector knows which tile is the overview, so states with and without one are not each other's.
#[test]
fn states_know_which_tile_is_the_overview() {
    let (model, projector) = open(&files(Family::Idefics3));
    let wide = Picture::new(picture(640, 480, 2));
    let encoded = EncodedPicture::encode(&projector, &wide, None, &CancelToken::new()).unwrap();
    let snapshots = KvSnapshots::new(64 << 20, None);
    let ask = |projector: Option<&Arc<Projector>>, snapshots: Option<&Arc<KvSnapshots>>| {
        let mut params = fewer("30", "div-c", ImagePositions::Compact);
        params.snapshots = snapshots.map(Arc::clone);
        let mut session = Session::new(&model, projector.map(Arc::clone), params).unwrap();
        session.first_logits([Part::Encoded(encoded.clone()), say(COARSE)]).unwrap()
    };
    ask(Some(&projector), Some(&snapshots));
    let (logits, usage) = ask(None, Some(&snapshots));
    assert_eq!(usage.images[0].source, ImageSource::File);
    assert!(bits(&logits) == bits(&ask(None, None).0));
    assert_eq!(ask(None, Some(&snapshots)).1.images[0].source, ImageSource::Snapshot);
}

/// A picture that ends the prompt: logits are there although its rows were moved, and the conversation can be saved.
#[test]
fn a_picture_at_the_end_of_the_prompt_is_moved_too() {
    let (model, projector) = open(&demo_files());
    let mut params = fewer("64", "div-c", ImagePositions::Preserve);
    params.template = Some(UserTemplate::Text("{% for m in messages %}{{ m.content }}{% endfor %}".into()));
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    let shown = Part::Picture(Picture::from_file("models/demo/shapes.png").unwrap());
    let (logits, usage) = session.first_logits([say("What is this?"), shown.clone()]).unwrap();
    assert!(usage.visual_tokens.get() == 64 && !logits.is_empty());
    session.save().unwrap();
    session.ask([say("What is this?"), shown]).unwrap().finish().unwrap();
    session.save().unwrap();
}

/// Rows that are left out keep their positions, which must not run past what the model was trained for.
#[test]
fn preserved_positions_end_where_the_model_does() {
    let (model, projector) = open(&demo_files());
    let mut params = fewer("5", "div-c", ImagePositions::Preserve);
    params.context.n_ctx = 2048;
    let pictures = |n: usize| {
        let shown = Part::Picture(Picture::from_file("models/demo/shapes.png").unwrap());
        (0..n).map(|_| shown.clone()).chain([say(COARSE)]).collect::<Vec<_>>()
    };
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    let error = session.ask(pictures(12)).map(drop).unwrap_err();
    assert!(error.code() == "context-full" && error.to_string().contains("--image-positions compact"), "{error}");
    session.ask(pictures(9)).unwrap().finish().unwrap();
}
