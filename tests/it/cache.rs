//! Encoded once: pictures across sessions and processes, KV states behind them, and that neither ever changes an answer.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use llava::embedding::{CacheConfig, EmbeddingCache};
use llava::llama::Model;
use llava::mtmd::{ClipLayout, Projector, ProjectorParams};
use llava::session::{ImageSource, KvSnapshots, Message, Part, Role, Session, SessionParams, Usage};
use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};
use xxhash_rust::xxh3::xxh3_128;

use crate::models::{Family, Options, pair_with};
use crate::world::{files, open, projector_params, say, session_params, show};

type Caches = (Option<Arc<EmbeddingCache>>, Option<Arc<KvSnapshots>>);

fn start((model, projector): &(Arc<Model>, Arc<Projector>), (cache, snapshots): Caches) -> Session {
    let params = SessionParams { cache, snapshots, ..session_params() };
    Session::new(model, Some(Arc::clone(projector)), params).unwrap()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

fn sources(usage: &Usage) -> Vec<ImageSource> {
    usage.images.iter().map(|i| i.source).collect()
}

fn memory() -> Arc<EmbeddingCache> {
    EmbeddingCache::new(CacheConfig::default())
}

fn disk(dir: &Path) -> Arc<EmbeddingCache> {
    EmbeddingCache::new(CacheConfig::default().memory_bytes(0).disk(dir, 64 << 20))
}

#[test]
fn another_session_finds_what_one_has_encoded() {
    for family in Family::ALL {
        let pair = open(&files(family));
        let home = tempfile::tempdir().unwrap();
        let ask = |caches: Caches| start(&pair, caches).first_logits([show(0), show(1), say("what?")]).unwrap();
        let (cold, usage) = ask((None, None));
        assert_eq!(sources(&usage), [ImageSource::Encoded; 2]);
        let shared = memory();
        for (round, cache, expected) in [
            (0, Arc::clone(&shared), ImageSource::Encoded),
            (1, shared, ImageSource::Memory),
            (2, disk(home.path()), ImageSource::Encoded),
            (3, disk(home.path()), ImageSource::Disk),
        ] {
            let (warm, usage) = ask((Some(cache), None));
            assert_eq!(sources(&usage), [expected; 2], "{family:?} round {round}");
            assert!(bits(&warm) == bits(&cold), "{family:?} round {round}");
        }
    }
}

#[test]
fn a_key_is_everything_that_decides_the_rows() {
    let pair = files(Family::Llava15);
    let model = open(&pair).0;
    let cache = memory();
    let ask = |params: ProjectorParams, salt: &[u8], seed: u32| {
        let projector = Projector::load(&pair.projector, &model, &params).unwrap();
        let image = match show(seed) {
            Part::Picture(picture) => picture,
            _ => unreachable!(),
        };
        let prepared = projector.prepare(image.image(), llava::TokenCount::ZERO, 0).unwrap();
        let (chunk, _) = prepared.images().next().unwrap();
        let wanted = prepared.wanted(chunk, salt).unwrap().unwrap();
        let mut new = false;
        cache
            .get_or_encode(
                &[wanted],
                || false,
                |_| {
                    new = true;
                    projector.encode(&[(&prepared, chunk)], &llava::llama::CancelToken::new())
                },
            )
            .unwrap();
        new
    };
    let upstream = || ProjectorParams { clip_layout: ClipLayout::Upstream, ..projector_params() };
    assert!(ask(projector_params(), b"", 0));
    assert!(!ask(projector_params(), b"", 0));
    assert!(!ask(ProjectorParams { threads: Some(2), ..projector_params() }, b"", 0), "threads do not change it");
    assert!(ask(projector_params(), b"", 1), "another picture");
    assert!(ask(upstream(), b"", 0), "another layout");
    assert!(ask(projector_params(), b"tenant", 0), "another tenant");
    assert!(!ask(projector_params(), b"tenant", 0));
    // the same file under another name is the same projector
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join("copy.gguf");
    std::fs::copy(&pair.projector, &copy).unwrap();
    let prints = [&pair.projector, &copy]
        .map(|p| Projector::load(p, &model, &projector_params()).unwrap().fingerprint().unwrap());
    assert_eq!(prints[0], prints[1]);
}

#[test]
fn a_new_session_takes_up_the_state_behind_the_picture() {
    for family in Family::ALL {
        let pair = open(&files(family));
        let (cold, first) = start(&pair, (None, None)).first_logits([say("Look: "), show(0), say("two?")]).unwrap();
        let home = tempfile::tempdir().unwrap();
        for on_disk in [false, true] {
            let store = || match on_disk {
                false => KvSnapshots::new(64 << 20, None),
                true => KvSnapshots::new(0, Some((home.path(), 64 << 20))),
            };
            let snapshots = store();
            let ask = |snapshots: &Arc<KvSnapshots>, text: &str| {
                let mut session = start(&pair, (None, Some(Arc::clone(snapshots))));
                session.first_logits([say("Look: "), show(0), say(text)]).unwrap()
            };
            let (_, usage) = ask(&snapshots, "one?");
            assert_eq!(sources(&usage), [ImageSource::Encoded], "{family:?}");
            // another process has another store on the same folder
            let snapshots = if on_disk { store() } else { snapshots };
            let (warm, usage) = ask(&snapshots, "two?");
            assert_eq!(sources(&usage), [ImageSource::Snapshot], "{family:?}");
            assert!(usage.reused_tokens >= first.visual_tokens, "{family:?}");
            assert!(bits(&warm) == bits(&cold), "{family:?}: a restored state changes nothing");
            let stats = snapshots.stats();
            assert_eq!((stats.memory_hits + stats.disk_hits, stats.refused), (1, 0));
            // another picture, another text before it: nothing to take up
            let mut session = start(&pair, (None, Some(Arc::clone(&snapshots))));
            let (_, usage) = session.first_logits([say("Look: "), show(5), say("two?")]).unwrap();
            assert_eq!(sources(&usage), [ImageSource::Encoded], "{family:?}");
            let (_, usage) = session.first_logits([say("See: "), show(0), say("two?")]).unwrap();
            assert_eq!(sources(&usage), [ImageSource::Encoded], "{family:?}");
        }
    }
}

/// States of another model or context, and states whose bytes have changed, are not taken.
#[test]
fn a_state_that_does_not_fit_is_refused() {
    let pair = open(&files(Family::Llava15));
    let home = tempfile::tempdir().unwrap();
    let store = || KvSnapshots::new(0, Some((home.path(), 64 << 20)));
    let ask = |change: &dyn Fn(&mut SessionParams)| {
        let snapshots = store();
        let mut params = SessionParams { cache: None, snapshots: Some(Arc::clone(&snapshots)), ..session_params() };
        // a smaller context cuts it, and how a prompt is cut decides the last bits
        params.context.n_batch = 256;
        change(&mut params);
        let mut session = Session::new(&pair.0, Some(Arc::clone(&pair.1)), params).unwrap();
        let (logits, usage) = session.first_logits([show(0), say("what?")]).unwrap();
        (bits(&logits), sources(&usage)[0], snapshots.stats())
    };
    let (cold, _, _) = ask(&|_| ());
    assert_eq!(ask(&|_| ()).1, ImageSource::Snapshot);
    assert_eq!(ask(&|p| p.context.type_k = llava::llama::KvType::F32).1, ImageSource::Encoded);
    assert_eq!(ask(&|p| p.context.n_batch = 16).1, ImageSource::Encoded);
    assert_eq!(ask(&|p| p.context.n_ctx = 512).1, ImageSource::Snapshot, "as long as it fits");

    let mut states = Vec::new();
    for folder in std::fs::read_dir(home.path().join("kv")).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        states.extend(std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()));
    }
    for path in &states {
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let (logits, source, stats) = ask(&|_| ());
    assert_eq!((source, stats.refused), (ImageSource::Encoded, 1));
    assert!(logits == cold);
    assert_eq!(ask(&|_| ()).1, ImageSource::Snapshot, "it was replaced");
}

/// A whole entry that speaks of other rows is refused, and what was live before it is forgotten with it.
#[test]
fn a_state_with_other_numbers_of_rows_leaves_no_trace() {
    const CHECKED: usize = 112;
    let pair = open(&files(Family::Llava15));
    let home = tempfile::tempdir().unwrap();
    let store = || Some(KvSnapshots::new(0, Some((home.path(), 64 << 20))));
    let (cold, _) = start(&pair, (None, store())).first_logits([show(0), say("what?")]).unwrap();
    for folder in fs::read_dir(home.path().join("kv")).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            let mut bytes = fs::read(&path).unwrap();
            let count = bytes.len() - 4;
            bytes[count] -= 1;
            let checked = [&bytes[..CHECKED], &bytes[CHECKED + 16..]].concat();
            bytes[CHECKED..CHECKED + 16].copy_from_slice(&xxh3_128(&checked).to_le_bytes());
            fs::write(path, bytes).unwrap();
        }
    }
    let snapshots = store();
    let mut session = start(&pair, (None, snapshots.clone()));
    session.first_logits([say("hello")]).unwrap();
    let (logits, usage) = session.first_logits([show(0), say("what?")]).unwrap();
    assert_eq!((usage.reused_tokens.get(), snapshots.unwrap().stats().refused), (0, 1));
    assert!(bits(&logits) == bits(&cold));
    assert_eq!(session.context_fill().tokens, usage.text_tokens + usage.visual_tokens);
}

/// Any conversation says the same, to the last bit, with everything kept and with nothing kept.
#[test]
fn random_conversations_are_the_same_with_and_without_a_cache() {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for family in [Family::Llava15, Family::Qwen2Vl, Family::Gemma3] {
        let pair = open(&files(family));
        // room for two pictures of four, shared by all conversations
        let probe = memory();
        start(&pair, (Some(Arc::clone(&probe)), None)).first_logits([show(0)]).unwrap();
        let cache = EmbeddingCache::new(CacheConfig::default().memory_bytes(probe.stats().memory_bytes * 5 / 2));
        for _ in 0..6 {
            let (mut on, mut off) = (start(&pair, (Some(Arc::clone(&cache)), None)), start(&pair, (None, None)));
            for turn in 0..6 {
                let mut pick = |n: u32| random.random_range(0..n);
                if turn > 0 && pick(3) == 0 {
                    // an edit of an earlier turn, or back to it
                    let mut messages: Vec<Message> = on.messages().to_vec();
                    messages.truncate(pick(messages.len() as u32 / 2 + 1) as usize * 2);
                    if let Some(first) = messages.first_mut().filter(|_| pick(2) == 0) {
                        first.parts[0] = show(pick(4));
                    }
                    on.set_messages(messages.clone());
                    off.set_messages(messages);
                }
                let pictures = on.messages().iter().flat_map(Message::pictures).count();
                let mut parts = Vec::new();
                if pictures < 4 && pick(2) == 0 {
                    parts.push(show(pick(4)));
                }
                parts.push(say(["what?", "and now?", "a longer question about it"][pick(3) as usize]));
                let (a, _) = on.first_logits(parts.clone()).unwrap();
                let (b, _) = off.first_logits(parts.clone()).unwrap();
                assert!(bits(&a) == bits(&b), "{family:?} turn {turn}");
                let (a, _) = on.ask(parts.clone()).unwrap().finish().unwrap();
                let (b, _) = off.ask(parts).unwrap().finish().unwrap();
                assert_eq!(a, b, "{family:?} turn {turn}");
            }
        }
        let stats = cache.stats();
        assert!(stats.memory_hits > 0 && stats.memory_evictions > 0 && stats.misses > 0, "{stats:?}");
    }
}

/// A new session that begins with states others have kept says, to the last bit, what one without any says: over random
/// conversations whose beginnings meet, kept by sessions that were new or in the middle of something else.
#[test]
fn states_of_random_conversations_are_those_of_a_cold_start() {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    for family in [Family::Llava15, Family::Qwen2Vl, Family::Gemma3] {
        let pair = open(&files(family));
        let home = tempfile::tempdir().unwrap();
        let (cache, snapshots) = (memory(), KvSnapshots::new(1 << 20, Some((home.path(), 64 << 20))));
        let mut busy = start(&pair, (Some(Arc::clone(&cache)), Some(Arc::clone(&snapshots))));
        let mut restored = 0;
        for round in 0..14 {
            let mut pick = |n: u32| random.random_range(0..n);
            // few choices, so that beginnings repeat
            let mut messages = Vec::new();
            for _ in 0..pick(3) {
                let mut parts = vec![say(["what?", "and now?"][pick(2) as usize])];
                if pick(3) > 0 {
                    parts.insert(pick(2) as usize, show(pick(2)));
                }
                messages.push(Message::new(Role::User, parts));
                messages.push(Message::text(Role::Assistant, ["yes", "no, not at all"][pick(2) as usize]));
            }
            let parts = [show(pick(2)), say("what?")];
            let mut new = start(&pair, (Some(Arc::clone(&cache)), Some(Arc::clone(&snapshots))));
            let mut cold = start(&pair, (None, None));
            for session in [&mut new, &mut cold, &mut busy] {
                session.set_messages(messages.clone());
            }
            let (expected, _) = cold.first_logits(parts.clone()).unwrap();
            let (logits, usage) = new.first_logits(parts.clone()).unwrap();
            assert!(bits(&logits) == bits(&expected), "{family:?} round {round}");
            restored += usize::from(sources(&usage).contains(&ImageSource::Snapshot));
            busy.ask(parts).unwrap().finish().unwrap();
        }
        assert!(restored > 3, "{family:?}: {:?}", snapshots.stats());
    }
}

/// Sessions in several threads that show the same picture have it encoded once.
#[test]
fn threads_share_one_encoding() {
    let pair = open(&files(Family::Llava15));
    let cache = memory();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (pair, cache) = (&pair, Arc::clone(&cache));
            scope.spawn(move || {
                start(pair, (Some(cache), None)).ask([show(0), say("what?")]).unwrap().finish().unwrap();
            });
        }
    });
    assert_eq!(cache.stats().misses, 1);
}

/// A memory without positions cannot be cut: a changed turn starts anew, or from a saved state, and says the same.
#[test]
fn recurrent_models_go_back_to_saved_states_only() {
    let home = tempfile::tempdir().unwrap();
    let options = Options { recurrent: true, ..Options::new(Family::Llava15, 7) };
    let pair = open(&pair_with(home.path(), &options).unwrap());
    assert_eq!(pair.0.architecture(), "mamba");
    let first = || [say("Look: "), show(0), say("one?")];
    let second = || [say("Look: "), show(0), say("two?")];
    let (cold, _) = start(&pair, (None, None)).first_logits(second()).unwrap();

    // without states the edited question is computed from the beginning
    let mut session = start(&pair, (Some(memory()), None));
    session.first_logits(first()).unwrap();
    let (anew, usage) = session.first_logits(second()).unwrap();
    assert_eq!((sources(&usage), usage.reused_tokens.get()), (vec![ImageSource::Memory], 0));
    assert!(bits(&anew) == bits(&cold));

    // with them, in the same session and in another one, from behind the picture
    let snapshots = KvSnapshots::new(64 << 20, None);
    let mut session = start(&pair, (None, Some(Arc::clone(&snapshots))));
    session.first_logits(first()).unwrap();
    for mut session in [session, start(&pair, (None, Some(snapshots)))] {
        let (warm, usage) = session.first_logits(second()).unwrap();
        assert_eq!(sources(&usage), [ImageSource::Snapshot]);
        assert!(bits(&warm) == bits(&cold));
        let (answer, _) = session.ask(second()).unwrap().finish().unwrap();
        let (expected, _) = start(&pair, (None, None)).ask(second()).unwrap().finish().unwrap();
        assert_eq!(answer, expected);
        // the conversation goes on where it is
        let (_, usage) = session.ask([say("and?")]).unwrap().finish().unwrap();
        assert!(usage.finish != llava::session::FinishReason::Error);
    }
}

/// A projector that is replaced on disk while it is loaded: its rows are not kept under the new file's name.
#[test]
fn a_replaced_projector_file_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let pair = files(Family::Llava15);
    let path = home.path().join("mmproj.gguf");
    std::fs::copy(&pair.projector, &path).unwrap();
    let model = Model::load(&pair.text, &Default::default()).unwrap();
    let projector = Projector::load(&path, &model, &projector_params()).unwrap();
    let other = home.path().join("other.gguf");
    std::fs::copy(&pair.projector, &other).unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert_eq!(projector.fingerprint().unwrap_err().code(), "state");
    let cache = memory();
    let mut session = start(&(model, projector), (Some(Arc::clone(&cache)), None));
    let (_, usage) = session.first_logits([show(0)]).unwrap();
    assert_eq!((sources(&usage), cache.stats().memory_inserts), (vec![ImageSource::Encoded], 0));
}
