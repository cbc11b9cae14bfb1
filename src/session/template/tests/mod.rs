//! Renderings against llama.cpp's and Jinja2's own, and everything that may go wrong.

mod behaviour;
mod goldens;
mod pictures;

use super::*;

fn says(role: Role, text: &str) -> ChatMessage {
    ChatMessage::text(role, text)
}

fn tokens() -> TemplateTokens {
    TemplateTokens { bos: "<s>".into(), eos: "</s>".into(), add_bos: false, add_eos: false }
}

fn jinja(source: &str) -> ChatTemplate {
    ChatTemplate::from_jinja(source, tokens()).expect("the template compiles")
}

/// The text of a rendering without pictures.
fn text(segments: Vec<Segment>) -> String {
    match &segments[..] {
        [] => String::new(),
        [Segment::Text(text)] => text.clone(),
        other => panic!("expected one text, got {other:?}"),
    }
}

fn reason(result: Result<impl fmt::Debug>) -> String {
    match result {
        Err(Error::TemplateFailed { reason }) => reason,
        other => panic!("expected a failed template, got {other:?}"),
    }
}
