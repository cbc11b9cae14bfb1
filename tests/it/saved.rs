//! Conversations that are saved and taken up again.

use llava::image::{Limits, RgbImage};
use llava::llama::{CancelToken, KvType};
use llava::mtmd::{ClipLayout, Projector, ProjectorParams};
use llava::session::{EncodedPicture, ImageSource, Message, Part, Picture, Restored, Role, Session, SessionParams};

use crate::models::Family;
use crate::world::{files, open, projector_params, say, session, session_params, show};

fn talk(session: &mut Session) {
    session.set_system("Be brief.");
    session.ask([show(0), say("one?")]).unwrap().finish().unwrap();
    session.ask([say("and "), show(1), say("two?")]).unwrap().finish().unwrap();
}

#[test]
fn a_restored_conversation_answers_as_the_unsaved_one() {
    for family in Family::ALL {
        let mut original = session(family);
        talk(&mut original);
        let bytes = original.save().unwrap();

        let mut restored = session(family);
        restored.ask([say("something else")]).unwrap().finish().unwrap();
        assert_eq!(restored.load(&bytes).unwrap(), Restored::Everything, "{family:?}");
        assert_eq!(restored.messages(), original.messages());

        let (a, _) = original.first_logits([say("three?")]).unwrap();
        let (b, usage) = restored.first_logits([say("three?")]).unwrap();
        assert!(a.iter().map(|v| v.to_bits()).eq(b.iter().map(|v| v.to_bits())), "{family:?}");
        assert!(usage.images.iter().all(|i| i.source == ImageSource::Kv), "{family:?}");
        let (a, _) = original.ask([say("three?")]).unwrap().finish().unwrap();
        let (b, _) = restored.ask([say("three?")]).unwrap().finish().unwrap();
        assert_eq!(a, b, "{family:?}");
    }
}

#[test]
fn another_context_takes_the_messages_and_computes_anew() {
    let (model, projector) = open(&files(Family::Llava15));
    let start = |change: &dyn Fn(&mut SessionParams)| {
        let mut params = session_params();
        change(&mut params);
        Session::new(&model, Some(projector.clone()), params).unwrap()
    };
    let mut original = start(&|_| ());
    talk(&mut original);
    let bytes = original.save().unwrap();
    let mut other = start(&|p| p.context.type_v = KvType::F32);
    assert!(matches!(other.load(&bytes).unwrap(), Restored::Messages { .. }));
    assert_eq!(other.messages(), original.messages());
    let (_, usage) = other.ask([say("three?")]).unwrap().finish().unwrap();
    assert!(usage.images.iter().all(|i| matches!(i.source, ImageSource::Encoded | ImageSource::Memory)));
    assert_eq!(start(&|p| p.context.n_ctx = 512).load(&bytes).unwrap(), Restored::Everything, "as long as it fits");
    // a session that never answered has messages only, or nothing at all
    let empty = start(&|_| ()).save().unwrap();
    assert!(matches!(start(&|_| ()).load(&empty).unwrap(), Restored::Messages { .. }));
    // pictures need somebody who sees
    let mut blind = Session::new(&model, None, session_params()).unwrap();
    assert_eq!(blind.load(&bytes).unwrap_err().code(), "no-vision");
}

#[test]
fn damaged_bytes_change_nothing() {
    let mut original = session(Family::Llava15);
    talk(&mut original);
    let bytes = original.save().unwrap();
    let mut other = session(Family::Llava15);
    other.ask([say("hello")]).unwrap().finish().unwrap();
    let before = other.messages().to_vec();
    let step = bytes.len() / 60;
    for at in (0..bytes.len()).step_by(step) {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        assert_eq!(other.load(&bad).unwrap_err().code(), "state", "byte {at}");
        assert_eq!(other.load(&bytes[..at]).unwrap_err().code(), "state", "cut to {at}");
    }
    assert_eq!(other.messages(), before);
}

/// A file that was made to exhaust memory is refused from its header; a large picture that was meant comes back.
#[test]
fn pictures_of_a_saved_conversation_have_limits() {
    let wide = RgbImage::from_rgb(40_000, 1, vec![7; 120_000]).unwrap();
    let mut original = session(Family::Llava15);
    original.set_messages(vec![Message::new(Role::User, [Part::from(Picture::new(wide))])]);
    let bytes = original.save().unwrap();
    let mut other = session(Family::Llava15);
    assert_eq!(other.load(&bytes).unwrap_err().code(), "picture-too-large");
    assert!(other.messages().is_empty());
    let limits = Limits { max_width_px: 40_000, ..Limits::default() };
    other.load_within(&bytes, &limits).unwrap();
    assert_eq!(other.messages(), original.messages());
}

fn pixels(part: &Part) -> &Picture {
    match part {
        Part::Picture(picture) => picture,
        other => panic!("{other:?}"),
    }
}

/// The file alone, without a projector, gives the logits that the picture gives, to the last bit.
#[test]
fn an_encoded_picture_needs_no_projector() {
    for family in Family::ALL {
        let (model, projector) = open(&files(family));
        let look = show(2);
        let encoded = EncodedPicture::encode(&projector, pixels(&look), None, &CancelToken::new()).unwrap();
        let read = EncodedPicture::from_bytes(&encoded.to_bytes()).unwrap();
        assert!(read == encoded);

        let mut params = session_params();
        params.cache = None;
        let mut seeing = Session::new(&model, Some(projector), params.clone()).unwrap();
        let (seen, usage) = seeing.first_logits([say("Look: "), look.clone(), show(3), say("what?")]).unwrap();
        // a family that decodes a picture in one piece raises this by itself where it has the projector
        params.context = seeing.context_params().clone();
        let other = EncodedPicture::encode(seeing.projector().unwrap(), pixels(&show(3)), None, &CancelToken::new());
        let mut blind = Session::new(&model, None, params).unwrap();
        let parts = [say("Look: "), read.clone().into(), other.unwrap().into(), say("what?")];
        let (read_back, blind_usage) = blind.first_logits(parts.clone()).unwrap();
        assert!(seen.iter().map(|v| v.to_bits()).eq(read_back.iter().map(|v| v.to_bits())), "{family:?}");
        assert_eq!(blind_usage.images[0].source, ImageSource::File);
        assert_eq!(blind_usage.visual_tokens, usage.visual_tokens);

        // a conversation with such pictures is saved and taken up like any other
        let (answer, _) = blind.ask(parts).unwrap().finish().unwrap();
        let bytes = blind.save().unwrap();
        let mut again = Session::new(&model, None, blind_params(&blind)).unwrap();
        assert_eq!(again.load(&bytes).unwrap(), Restored::Everything, "{family:?}");
        assert_eq!(again.messages(), blind.messages());
        assert!(!answer.is_empty());
    }
}

fn blind_params(session: &Session) -> SessionParams {
    let mut params = session_params();
    params.context = session.context_params().clone();
    params
}

#[test]
fn an_encoded_picture_belongs_to_its_model_and_is_whole() {
    let (_, projector) = open(&files(Family::Llava15));
    let encoded = EncodedPicture::encode(&projector, pixels(&show(2)), None, &CancelToken::new()).unwrap();
    let (other, _) = open(&files(Family::Qwen2Vl));
    let mut blind = Session::new(&other, None, session_params()).unwrap();
    let error = blind.ask([encoded.clone().into(), say("what?")]).unwrap_err();
    assert_eq!(error.code(), "state");
    assert!(error.to_string().contains("qwen2vl"), "{error}");
    let bytes = encoded.to_bytes();
    for at in (0..bytes.len()).step_by(bytes.len() / 200) {
        let mut bad = bytes.clone();
        bad[at] ^= 16;
        assert_eq!(EncodedPicture::from_bytes(&bad).unwrap_err().code(), "state", "byte {at}");
        assert_eq!(EncodedPicture::from_bytes(&bytes[..at]).unwrap_err().code(), "state", "cut to {at}");
    }
}

/// What the KV cache holds was made of other rows: the messages come back, the cache does not.
#[test]
fn another_projector_or_an_edited_conversation_does_not_take_the_kv_cache() {
    let pair = files(Family::Llava15);
    let mut original = session(Family::Llava15);
    talk(&mut original);
    let bytes = original.save().unwrap();
    let model = original.model().clone();
    let params = ProjectorParams { clip_layout: ClipLayout::Upstream, ..projector_params() };
    let other = Projector::load(&pair.projector, &model, &params).unwrap();
    let mut session = Session::new(&model, Some(other), session_params()).unwrap();
    assert!(matches!(session.load(&bytes).unwrap(), Restored::Messages { .. }));

    // the first picture is swapped after its rows went into the KV cache
    let mut messages = original.messages().to_vec();
    messages[1].parts[0] = show(5);
    original.set_messages(messages);
    let edited = original.save().unwrap();
    let mut restored = crate::world::session(Family::Llava15);
    assert!(matches!(restored.load(&edited).unwrap(), Restored::Messages { .. }));
    let (a, _) = restored.first_logits([say("three?")]).unwrap();
    let mut fresh = crate::world::session(Family::Llava15);
    fresh.set_messages(original.messages().to_vec());
    let (b, _) = fresh.first_logits([say("three?")]).unwrap();
    assert!(a.iter().map(|v| v.to_bits()).eq(b.iter().map(|v| v.to_bits())));
}
