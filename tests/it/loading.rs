//! Loading says what is wrong, on which file, with which numbers.

use std::path::Path;

use llava::Error;
use llava::llama::{Model, ModelParams, SamplerParams};
use llava::mtmd::{Projector, ProjectorParams};
use llava::session::Session;
use llava::session::template::UserTemplate;

use crate::models::{Family, Options, pair_with};
use crate::world::{files, open, projector_params, session_params};

fn load(path: &Path) -> Error {
    Model::load(path, &ModelParams::default()).map(drop).unwrap_err()
}

#[test]
fn files_that_are_no_models() {
    let dir = tempfile::tempdir().unwrap();
    let good = std::fs::read(files(Family::Llava15).text).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert_eq!(load(&dir.path().join("missing.gguf")).code(), "io");
    assert_eq!(load(&write("empty.gguf", b"")).code(), "gguf-not");
    assert_eq!(load(&write("text.gguf", b"this is not a model at all, only text")).code(), "gguf-not");
    assert_eq!(load(dir.path()).code(), "io");
    for part in [10, good.len() / 100, good.len() / 10, good.len() / 2, good.len() - 1] {
        let error = load(&write("cut.gguf", &good[..part]));
        assert!(matches!(error.code(), "gguf-not" | "gguf-damaged"), "{part} bytes: {error}");
        assert!(error.to_string().contains("cut.gguf"), "{error}");
    }
}

#[test]
fn a_projector_is_no_text_model_and_the_other_way_round() {
    let llava = files(Family::Llava15);
    let error = load(&llava.projector);
    assert_eq!(error.code(), "gguf-metadata", "{error}");
    let (model, _) = open(&llava);
    let error = Projector::load(&llava.text, &model, &ProjectorParams::default()).map(drop).unwrap_err();
    assert_eq!(error.code(), "gguf-metadata", "{error}");
}

#[test]
fn a_pair_that_does_not_fit_names_both() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(Family::Llava15, 1);
    options.projector_width += 32;
    let pair = pair_with(dir.path(), &options).unwrap();
    let model = Model::load(&pair.text, &ModelParams::default()).unwrap();
    let error = Projector::load(&pair.projector, &model, &projector_params()).map(drop).unwrap_err();
    let Error::Mismatch { model_width, projector_width, .. } = &error else { panic!("{error}") };
    assert_eq!(*projector_width, *model_width + 32);
    let text = error.to_string();
    for part in ["mlp-text.gguf", "mlp-mmproj.gguf", "llama", "mlp"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_missing_template_names_likely_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(Family::Llava15, 1);
    options.chat_template = false;
    let pair = pair_with(dir.path(), &options).unwrap();
    let (model, projector) = open(&pair);
    let error = Session::new(&model, Some(projector.clone()), session_params()).map(drop).unwrap_err();
    assert!(matches!(&error, Error::TemplateMissing { suggestions, .. } if suggestions.contains("vicuna")), "{error}");

    let mut params = session_params();
    params.template = Some(UserTemplate::Text("vicuna".into()));
    assert!(Session::new(&model, Some(projector.clone()), params.clone()).is_ok());
    params.template = Some(UserTemplate::Text("no-such-template".into()));
    assert_eq!(
        Session::new(&model, Some(projector.clone()), params.clone()).map(drop).unwrap_err().code(),
        "template-unknown"
    );
    params.template = Some(UserTemplate::Text("{% for %}".into()));
    assert_eq!(
        Session::new(&model, Some(projector.clone()), params.clone()).map(drop).unwrap_err().code(),
        "template-failed"
    );
    params.template = Some(UserTemplate::File(dir.path().join("none.jinja")));
    assert_eq!(Session::new(&model, Some(projector), params).map(drop).unwrap_err().code(), "io");
}

#[test]
fn grammars_and_samplers_are_checked() {
    let (model, projector) = open(&files(Family::Llava15));
    let code = |sampler: SamplerParams| {
        let mut params = session_params();
        params.sampler = sampler;
        let text = format!("{:?}", params.sampler);
        Session::new(&model, Some(projector.clone()), params).map(drop).expect_err(&text).code()
    };
    let grammar = |text: &str| SamplerParams { grammar: Some(text.into()), ..SamplerParams::greedy() };
    for text in [
        "",
        "root ::= (",
        "root ::= root \"a\"",
        "root ::= missing",
        "not a grammar",
        "other ::= \"x\"",
        "root ::= \"a\0b\"",
    ] {
        assert_eq!(code(grammar(text)), "grammar", "{text:?}");
    }
    // a repetition that ends before it begins, and a chain of rules as deep as the native stack
    assert_eq!(code(grammar("root ::= \"a\"{5,2}")), "grammar");
    let chain: String = (0..5000).map(|i| format!("r{i} ::= r{}\n", i + 1)).collect();
    assert_eq!(code(grammar(&format!("root ::= r0\n{chain}r5000 ::= \"a\"\n"))), "grammar");
    // deep enough to overflow the native parser's stack
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(code(grammar(&deep)), "grammar");
    let bad = |change: &dyn Fn(&mut SamplerParams)| {
        let mut params = SamplerParams::greedy();
        change(&mut params);
        assert_eq!(code(params), "bad-parameter");
    };
    bad(&|p| p.temperature = f32::NAN);
    bad(&|p| p.repeat_penalty = 0.0);
    bad(&|p| p.repeat_penalty = -1.0);
    bad(&|p| p.repeat_penalty = f32::MIN_POSITIVE / 4.0);
    bad(&|p| p.top_p = 1.5);
    bad(&|p| p.min_p = -0.1);
    bad(&|p| p.presence_penalty = f32::INFINITY);
    bad(&|p| p.repeat_last_n = i32::MAX);
}

#[test]
fn projector_parameters_are_checked() {
    let llava = files(Family::Llava15);
    let (model, _) = open(&llava);
    let bad = |change: &dyn Fn(&mut ProjectorParams)| {
        let mut params = projector_params();
        change(&mut params);
        let error = Projector::load(&llava.projector, &model, &params).map(drop).unwrap_err();
        assert_eq!(error.code(), "bad-parameter", "{error}");
    };
    bad(&|p| p.threads = Some(0));
    bad(&|p| p.threads = Some(1_000_000));
    bad(&|p| p.image_max_tokens = Some(0));
    bad(&|p| p.image_min_tokens = Some(u32::MAX));
    bad(&|p| (p.image_min_tokens, p.image_max_tokens) = (Some(100), Some(50)));
    bad(&|p| p.batch_max_tokens = 0);
}

#[test]
fn limits_on_visual_tokens_are_kept() {
    let qwen = files(Family::Qwen2Vl);
    let (model, _) = open(&qwen);
    for most in [16_u32, 64] {
        let mut params = projector_params();
        params.image_max_tokens = Some(most);
        params.image_min_tokens = Some(4);
        let projector = Projector::load(&qwen.projector, &model, &params).unwrap();
        let prepared = projector.prepare(&crate::world::picture(900, 700, 0), llava::TokenCount::ZERO, 0).unwrap();
        assert!(prepared.visual_tokens().get() <= most as usize, "{} of {most}", prepared.visual_tokens());
    }
}
