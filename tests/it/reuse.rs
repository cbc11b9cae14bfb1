//! What a session keeps in its KV cache between turns, and that keeping it never changes what is said.

use llava::session::{ImageSource, Message, Part, Role};

use crate::models::Family;
use crate::world::{say, session, show};

#[test]
fn the_second_question_does_not_encode_again() {
    for family in Family::ALL {
        let mut session = session(family);
        let (_, first) = session.ask([show(0), say("one?")]).unwrap().finish().unwrap();
        assert!(first.images.iter().all(|i| i.source == ImageSource::Encoded));
        let (_, second) = session.ask([say("two?")]).unwrap().finish().unwrap();
        assert_eq!(second.images.len(), 1);
        assert_eq!(second.images[0].source, ImageSource::Kv, "{family:?}");
        assert!(second.reused_tokens >= first.visual_tokens, "{family:?}");
        assert_eq!(second.images[0].rows, first.images[0].rows);
    }
}

#[test]
fn an_edited_turn_and_a_swapped_picture_start_where_they_differ() {
    for family in Family::ALL {
        let mut session = session(family);
        session.ask([show(0), say("one?")]).unwrap().finish().unwrap();
        session.ask([say("two?")]).unwrap().finish().unwrap();
        let messages = session.messages().to_vec();

        // another picture in the first turn: nothing behind it may be reused (vllm-mlx#718)
        let mut swapped = messages.clone();
        swapped[0].parts[0] = show(3);
        swapped.truncate(2);
        session.set_messages(swapped.clone());
        let (warm, usage) = session.first_logits([say("two?")]).unwrap();
        assert_eq!(usage.images[0].source, ImageSource::Encoded, "{family:?}");
        session.clear();
        session.set_messages(swapped);
        let (cold, _) = session.first_logits([say("two?")]).unwrap();
        close(&warm, &cold, family);

        // the text of the last turn only: the picture stays
        session.clear();
        session.set_messages(messages[..2].to_vec());
        session.first_logits([say("two?")]).unwrap();
        let (warm, usage) = session.first_logits([say("three?")]).unwrap();
        assert_eq!(usage.images[0].source, ImageSource::Kv, "{family:?}");
        session.clear();
        session.set_messages(messages[..2].to_vec());
        let (cold, _) = session.first_logits([say("three?")]).unwrap();
        close(&warm, &cold, family);
    }
}

/// Batches are cut elsewhere in a warm run, so sums are taken in another order; the choice must not change.
fn close(warm: &[f32], cold: &[f32], family: Family) {
    let scale = cold.iter().fold(1.0_f32, |m, v| m.max(v.abs()));
    let worst = warm.iter().zip(cold).map(|(a, b)| (a - b).abs()).fold(0.0_f32, f32::max);
    assert!(worst <= 2e-2 * scale, "{family:?}: logits differ by {worst} of {scale}");
    let best = |l: &[f32]| l.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(i, _)| i);
    assert_eq!(best(warm), best(cold), "{family:?}");
}

#[test]
fn regenerating_repeats_a_greedy_answer() {
    for family in Family::ALL {
        let mut session = session(family);
        let (first, _) = session.ask([show(1), say("what?")]).unwrap().finish().unwrap();
        let (again, usage) = session.regenerate().unwrap().finish().unwrap();
        assert_eq!(first, again, "{family:?}");
        assert_eq!(usage.images[0].source, ImageSource::Kv, "{family:?}");
        assert_eq!(session.messages().len(), 2);
    }
}

#[test]
fn a_system_message_stands_first_and_survives_clear() {
    let mut session = session(Family::Idefics3);
    session.set_system("Be brief.");
    session.ask([show(0), say("x")]).unwrap().finish().unwrap();
    session.clear();
    assert_eq!(session.messages(), [Message::text(Role::System, "Be brief.")]);
    session.set_system("");
    assert!(session.messages().is_empty());
}

#[test]
fn counting_costs_nothing_and_is_right() {
    for family in Family::ALL {
        let mut session = session(family);
        let parts = [show(0), say("how many?")];
        let (text, visual) = session.count_tokens(parts.clone()).unwrap();
        assert!(session.messages().is_empty());
        let (_, usage) = session.first_logits(parts).unwrap();
        assert_eq!((usage.text_tokens, usage.visual_tokens), (text, visual), "{family:?}");
    }
}

#[test]
fn answering_needs_a_question() {
    let mut session = session(Family::Llava15);
    assert_eq!(session.answer().map(drop).unwrap_err().code(), "bad-parameter");
    session.set_messages(vec![Message::new(Role::User, [show(0), Part::from("x")])]);
    assert!(session.answer().unwrap().finish().is_ok());
    assert_eq!(session.answer().map(drop).unwrap_err().code(), "bad-parameter");
}
