//! Answers: right ones from the demo model, streaming, stopping, many pictures and turns.

use std::time::Duration;

use llava::llama::SamplerParams;
use llava::session::{FinishReason, Message, Part, Picture, Role, Session};

use crate::models::Family;
use crate::world::{demo_files, files, open, say, session, session_params, show};

fn demo_session() -> Session {
    let (model, projector) = open(&demo_files());
    let mut params = session_params();
    params.max_tokens = Some(72);
    Session::new(&model, Some(projector), params).unwrap()
}

struct Sample {
    picture: Picture,
    question: String,
    answer: String,
}

/// The bundled pictures with their questions and right answers.
fn samples() -> Vec<Sample> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo");
    let list = std::fs::read_to_string(dir.join("samples.jsonl")).unwrap();
    list.lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| value[key].as_str().unwrap().to_owned();
            Sample {
                picture: Picture::from_file(dir.join(text("image"))).unwrap(),
                question: text("question"),
                answer: text("answer"),
            }
        })
        .collect()
}

#[test]
fn the_demo_model_answers_right() {
    let mut session = demo_session();
    let samples = samples();
    assert!(samples.len() >= 3);
    for sample in samples {
        session.clear();
        let parts = [Part::Picture(sample.picture), Part::from(sample.question.as_str())];
        let (text, usage) = session.ask(parts).unwrap().finish().unwrap();
        assert_eq!(text.trim(), sample.answer, "{}", sample.question);
        assert_eq!(usage.finish, FinishReason::EndOfText);
        assert_eq!(usage.visual_tokens.get(), 196);
        assert!(usage.time_to_first_token > Duration::ZERO && usage.encode() > Duration::ZERO);
    }
}

/// llama-mtmd-cli's chat mode can answer the second picture with the first one's embedding.
#[test]
fn four_pictures_in_one_session_are_four_pictures() {
    for family in Family::ALL {
        let mut session = session(family);
        let mut seen: Vec<Vec<u32>> = Vec::new();
        for seed in 0..4 {
            session.clear();
            let (logits, _) = session.first_logits([show(seed), say("What is this?")]).unwrap();
            let bits: Vec<u32> = logits.iter().map(|l| l.to_bits()).collect();
            assert!(!seen.contains(&bits), "{family:?}: picture {seed} gave an earlier picture's logits");
            seen.push(bits);
        }
        // and the same again, in the same session, is the same
        session.clear();
        let (logits, _) = session.first_logits([show(0), say("What is this?")]).unwrap();
        assert_eq!(seen[0], logits.iter().map(|l| l.to_bits()).collect::<Vec<_>>(), "{family:?}");
    }
}

/// llama.cpp#28902: positions of embedding batches were read past their end.
#[test]
fn the_same_prompt_ten_times_gives_the_same_bits() {
    for family in Family::ALL {
        let mut session = session(family);
        let mut first: Option<Vec<f32>> = None;
        for _ in 0..10 {
            session.clear();
            let (logits, _) = session.first_logits([show(1), say("again")]).unwrap();
            let same = first
                .get_or_insert_with(|| logits.clone())
                .iter()
                .zip(&logits)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{family:?}");
        }
    }
}

#[test]
fn pictures_keep_their_order() {
    for family in Family::ALL {
        let mut session = session(family);
        let mut logits = |order: [u32; 2]| {
            session.clear();
            let parts = [show(order[0]), say(" and "), show(order[1]), say("?")];
            let (logits, usage) = session.first_logits(parts).unwrap();
            assert_eq!(usage.images.len(), 2);
            logits
        };
        assert_ne!(logits([0, 1]), logits([1, 0]), "{family:?}");
    }
}

#[test]
fn the_media_marker_in_text_is_text() {
    let mut session = session(Family::Llava15);
    let (_, usage) = session.first_logits([say("what is <__media__> and <image>?"), show(0)]).unwrap();
    assert_eq!(usage.images.len(), 1);
    let (_, usage) = session.first_logits([say("<__media__>")]).unwrap();
    assert_eq!((usage.images.len(), usage.visual_tokens.get()), (0, 0));
}

#[test]
fn pieces_are_the_text_and_the_message() {
    let mut session = demo_session();
    let sample = samples().remove(0);
    let mut answer = session.ask([Part::Picture(sample.picture), Part::from(sample.question.as_str())]).unwrap();
    let pieces: Vec<String> = answer.by_ref().map(Result::unwrap).collect();
    assert!(pieces.iter().all(|p| !p.is_empty()));
    assert!(answer.next().is_none());
    let text = answer.text().to_owned();
    drop(answer);
    assert_eq!(pieces.concat(), text);
    assert_eq!(session.messages().last(), Some(&Message::text(Role::Assistant, text)));
    assert_eq!(session.messages().len(), 2);
}

#[test]
fn a_stop_text_ends_the_answer() {
    let (model, projector) = open(&demo_files());
    let sample = samples().into_iter().find(|s| s.answer.len() >= 3).unwrap();
    let mut params = session_params();
    params.max_tokens = Some(72);
    params.stop = vec![sample.answer[1..3].to_owned()];
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    let parts = [Part::Picture(sample.picture), Part::from(sample.question.as_str())];
    let (text, usage) = session.ask(parts).unwrap().finish().unwrap();
    assert_eq!(text.trim(), &sample.answer[..1]);
    assert_eq!(usage.finish, FinishReason::Stop);
}

#[test]
fn max_tokens_is_kept_and_zero_is_nothing() {
    let (model, projector) = open(&files(Family::Llava15));
    for most in [0, 1, 5] {
        let mut params = session_params();
        params.max_tokens = Some(most);
        let mut session = Session::new(&model, Some(projector.clone()), params).unwrap();
        let (text, usage) = session.ask([show(0), say("x")]).unwrap().finish().unwrap();
        assert_eq!(usage.decode_tokens.get(), most);
        assert_eq!(text.is_empty(), most == 0);
        assert_eq!(usage.finish, FinishReason::Length);
    }
}

#[test]
fn text_alone_needs_no_projector() {
    let (model, _) = open(&demo_files());
    let mut session = Session::new(&model, None, session_params()).unwrap();
    let (_, usage) = session.ask([say("Hello.")]).unwrap().finish().unwrap();
    assert_eq!(usage.visual_tokens.get(), 0);
    let error = session.ask([show(0), say("What?")]).map(drop).unwrap_err();
    assert_eq!(error.code(), "no-vision");
    assert_eq!(session.messages().len(), 2, "the refused message was taken back");
}

#[test]
fn a_prompt_may_end_in_a_picture() {
    for family in Family::ALL {
        let (model, projector) = open(&files(family));
        let mut params = session_params();
        // a template that writes nothing behind the last part
        params.template = Some(llava::session::template::UserTemplate::Text(
            "{% for m in messages %}{{ m.content }}{% endfor %}".into(),
        ));
        let mut session = Session::new(&model, Some(projector), params).unwrap();
        let (text, usage) = session.ask([say("look: "), show(0)]).unwrap().finish().unwrap();
        assert!(usage.decode_tokens.get() > 0, "{family:?}: {text}");
    }
}

#[test]
fn a_seed_makes_chance_repeatable() {
    let (model, projector) = open(&files(Family::Llava15));
    let run = |seed: u32| {
        let mut params = session_params();
        params.sampler = SamplerParams {
            seed: Some(seed),
            temperature: 1.5,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..SamplerParams::default()
        };
        params.max_tokens = Some(12);
        let mut session = Session::new(&model, Some(projector.clone()), params).unwrap();
        let first = session.ask([show(0), say("x")]).unwrap().finish().unwrap().0;
        let again = session.regenerate().unwrap().finish().unwrap().0;
        assert_eq!(first, again, "the seed starts every answer");
        first
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_grammar_is_obeyed() {
    let (model, projector) = open(&files(Family::Llava15));
    let mut params = session_params();
    params.sampler.grammar = Some("root ::= (\"yes\" | \"no\") \"!\"".into());
    params.max_tokens = Some(20);
    let mut session = Session::new(&model, Some(projector), params).unwrap();
    for seed in 0..3 {
        session.clear();
        let (text, usage) = session.ask([show(seed), say("x")]).unwrap().finish().unwrap();
        assert!(text == "yes!" || text == "no!", "{text:?}");
        assert_eq!(usage.finish, FinishReason::EndOfText);
    }
}

#[test]
fn cancelling_stops_and_the_session_goes_on() {
    let mut session = session(Family::Qwen2Vl);
    let token = session.cancel_token();
    token.cancel();
    let error = session.ask([show(0), say("x")]).map(drop).unwrap_err();
    assert_eq!(error.code(), "cancelled");
    assert!(session.messages().is_empty());
    token.reset();

    let mut answer = session.ask([show(0), say("x")]).unwrap();
    answer.next().unwrap().unwrap();
    token.cancel();
    assert_eq!(answer.next().unwrap().unwrap_err().code(), "cancelled");
    assert!(answer.next().is_none());
    assert_eq!(answer.usage().finish, FinishReason::Cancelled);
    drop(answer);
    token.reset();
    assert_eq!(session.messages().len(), 2, "what was said stays");
    assert!(session.ask([say("go on")]).unwrap().finish().is_ok());
}

#[test]
fn a_session_can_live_in_a_thread() {
    fn assert_send<T: Send + 'static>() {}
    assert_send::<Session>();
    let mut session = session(Family::Llava15);
    let here = session.first_logits([show(2), say("x")]).unwrap().0;
    session.clear();
    let there = std::thread::spawn(move || session.first_logits([show(2), say("x")]).unwrap().0).join().unwrap();
    assert_eq!(here, there);
}

#[test]
fn sessions_share_model_and_projector() {
    let (model, projector) = open(&files(Family::Idefics3));
    let answers: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let (model, projector) = (model.clone(), projector.clone());
                scope.spawn(move || {
                    let mut session = Session::new(&model, Some(projector), session_params()).unwrap();
                    session.first_logits([show(i % 2), say("x")]).unwrap().0
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(answers[0], answers[2]);
    assert_ne!(answers[0], answers[1]);
}
