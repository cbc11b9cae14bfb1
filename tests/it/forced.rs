//! Leading a model along given tokens.

use llava::llama::Token;
use llava::session::{Part, Picture, Session};

use crate::models::Family;
use crate::world::{demo_files, open, say, session, session_params, show};

fn sign() -> [Part; 2] {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo/sign.png");
    [Picture::from_file(path).unwrap().into(), say("What word is written?")]
}

fn demo_session() -> Session {
    let (model, projector) = open(&demo_files());
    let mut params = session_params();
    params.max_tokens = Some(20);
    Session::new(&model, Some(projector), params).unwrap()
}

fn likeliest(row: &[f32]) -> i32 {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    i32::try_from(best.unwrap()).unwrap()
}

#[test]
fn along_its_own_answer_every_token_is_the_likeliest() {
    let mut session = demo_session();
    let mut answer = session.ask(sign()).unwrap();
    answer.by_ref().for_each(|piece| drop(piece.unwrap()));
    let tokens = answer.tokens().to_vec();
    assert_eq!((answer.text(), tokens.len()), (" EXIT", answer.usage().decode_tokens.get()));
    drop(answer);
    session.clear();

    let (forced, usage) = session.force(sign(), &tokens).unwrap();
    assert_eq!(usage.visual_tokens.get(), 196);
    assert_eq!(forced.tokens(), tokens);
    let best: Vec<i32> = forced.rows().map(likeliest).collect();
    let wanted: Vec<i32> = tokens.iter().map(|t| t.0).chain(session.model().vocab().eos().map(|t| t.0)).collect();
    assert_eq!(best, wanted);
    assert!(forced.log_probabilities().iter().all(|p| (-0.7..=0.0).contains(p)), "{:?}", forced.log_probabilities());
    assert!(session.messages().is_empty(), "the conversation is as it was");

    // the first row is what an answer would begin with, and no tokens are a prompt's logits
    session.clear();
    let first = session.first_logits(sign()).unwrap().0;
    assert_eq!(forced.rows().next(), Some(first.as_slice()));
    session.clear();
    let (nothing, _) = session.force(sign(), &[]).unwrap();
    assert_eq!((nothing.rows().len(), nothing.rows().next()), (1, Some(first.as_slice())));
}

/// Positions behind a picture are each family's own.
#[test]
fn every_family_is_led_along_its_own_answer() {
    for family in Family::ALL {
        let mut session = session(family);
        let mut answer = session.ask([show(3), say("x")]).unwrap();
        answer.by_ref().for_each(|piece| drop(piece.unwrap()));
        let tokens = answer.tokens().to_vec();
        drop(answer);
        session.clear();
        let (forced, _) = session.force([show(3), say("x")], &tokens).unwrap();
        let best: Vec<i32> = forced.rows().take(tokens.len()).map(likeliest).collect();
        assert_eq!(best, tokens.iter().map(|t| t.0).collect::<Vec<_>>(), "{family:?}");
    }
}

#[test]
fn the_right_word_is_likelier_than_others() {
    let mut session = demo_session();
    let mut likelihood = |word: &str| {
        let tokens = session.model().vocab().tokenize(word, false, false).unwrap();
        let (forced, _) = session.force(sign(), &tokens).unwrap();
        forced.log_probabilities().iter().sum::<f64>()
    };
    let right = likelihood(" EXIT");
    for wrong in [" EXIN", " LAMP", " red circle"] {
        assert!(likelihood(wrong) < right - 1.0, "{wrong}");
    }
}

#[test]
fn what_cannot_be_led_along_is_refused_before_anything_is_computed() {
    let mut session = session(Family::Llava15);
    let stranger = Token(i32::MAX);
    assert_eq!(session.force([say("x")], &[stranger]).unwrap_err().code(), "bad-parameter");
    let many = vec![session.model().vocab().eos().unwrap(); session.n_ctx() as usize];
    assert_eq!(session.force([show(0), say("x")], &many).unwrap_err().code(), "context-full");
    assert!(session.messages().is_empty());
    let (_, usage) = session.ask([show(0), say("x")]).unwrap().finish().unwrap();
    assert_eq!(usage.reused_tokens.get(), 0);
}
