//! Marks that stand for pictures while a template runs over plain strings.
//!
//! A mark holds 64 random bits drawn for one rendering, so no text written beforehand can contain it; that it does not
//! is checked all the same. It is made of digits and brackets only: case changes, trimming, JSON and HTML escaping, and
//! the string methods that templates use leave it alone.

use std::hash::{BuildHasher, Hasher, RandomState};

use super::message::{ChatMessage, ContentPart, FlatMessage, Segment};
use crate::error::{Error, Result};

/// The marks of one rendering.
pub(super) struct Marks {
    /// What every mark begins with, `[#<nonce>:`.
    head: String,
}

const TAIL: &str = "#]";

impl Marks {
    /// Draws marks that occur neither in a message nor in any of `others` (the template, its variables).
    pub fn draw(messages: &[ChatMessage], others: &[&str]) -> Self {
        Self::draw_from(messages, others, || RandomState::new().build_hasher().finish())
    }

    fn draw_from(messages: &[ChatMessage], others: &[&str], mut random: impl FnMut() -> u64) -> Self {
        loop {
            let head = format!("[#{:020}:", random());
            let in_messages = messages.iter().flat_map(|message| &message.content).any(|part| match part {
                ContentPart::Text(text) => text.contains(&head),
                ContentPart::Picture => false,
            });
            if !in_messages && !others.iter().any(|text| text.contains(&head)) {
                return Marks { head };
            }
        }
    }

    fn mark(&self, index: usize) -> String {
        format!("{}{index}{TAIL}", self.head)
    }

    /// Joins the parts of every message into one string, with marks where pictures stand.
    pub fn flatten(&self, messages: &[ChatMessage]) -> Vec<FlatMessage> {
        let mut next = 0;
        messages
            .iter()
            .map(|message| {
                let mut content = String::new();
                for part in &message.content {
                    match part {
                        ContentPart::Text(text) => content.push_str(text),
                        ContentPart::Picture => {
                            content.push_str(&self.mark(next));
                            next += 1;
                        }
                    }
                }
                FlatMessage { role: message.role, content }
            })
            .collect()
    }

    /// Cuts `rendered` at its marks, which must be those of the pictures `first..end`, each once and in order.
    pub fn split(&self, template: &str, rendered: &str, first: usize, end: usize) -> Result<Vec<Segment>> {
        let failed = |what: String| Error::TemplateFailed { reason: format!("template `{template}` {what}") };
        let mut segments = Vec::new();
        let mut rest = rendered;
        let mut expected = first;
        while let Some(at) = rest.find(&self.head) {
            push_text(&mut segments, &rest[..at]);
            let after = &rest[at + self.head.len()..];
            let (index, tail) = after
                .split_once(TAIL)
                .and_then(|(digits, tail)| digits.parse::<usize>().ok().map(|index| (index, tail)))
                .ok_or_else(|| failed(format!("cuts picture {} apart", expected + 1)))?;
            if index < expected {
                return Err(failed(format!("gives picture {} twice or out of order", index + 1)));
            }
            if index >= end {
                return Err(failed(format!("gives picture {} of {end}", index + 1)));
            }
            if index > expected {
                return Err(failed(format!("left out picture {} of {end}", expected + 1)));
            }
            segments.push(Segment::Picture(index));
            expected += 1;
            rest = tail;
        }
        push_text(&mut segments, rest);
        if expected < end {
            return Err(failed(format!("left out picture {} of {end}", expected + 1)));
        }
        Ok(segments)
    }
}

fn push_text(segments: &mut Vec<Segment>, text: &str) {
    if !text.is_empty() {
        segments.push(Segment::Text(text.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::template::Role;

    fn picture_between(before: &str, after: &str) -> Vec<ChatMessage> {
        let content = vec![ContentPart::Text(before.into()), ContentPart::Picture, ContentPart::Text(after.into())];
        vec![ChatMessage { role: Role::User, content }]
    }

    #[test]
    fn a_nonce_that_occurs_somewhere_is_drawn_again() {
        let mut draws = [1, 2, 3].into_iter();
        let messages = picture_between("[#00000000000000000001:0#]", "");
        let marks = Marks::draw_from(&messages, &["x[#00000000000000000002:"], || draws.next().expect("three draws"));
        assert_eq!(marks.head, "[#00000000000000000003:");
        let flat = marks.flatten(&messages);
        assert_eq!(
            marks.split("t", &flat[0].content, 0, 1).expect("one picture"),
            [Segment::Text("[#00000000000000000001:0#]".into()), Segment::Picture(0)]
        );
    }

    #[test]
    fn two_renderings_have_different_marks() {
        assert_ne!(Marks::draw(&[], &[]).head, Marks::draw(&[], &[]).head);
    }

    #[test]
    fn dropped_doubled_swapped_and_cut_marks_are_errors() {
        let marks = Marks::draw(&[], &[]);
        let (a, b) = (marks.mark(0), marks.mark(1));
        let fails = |text: String, end: usize| match marks.split("t", &text, 0, end) {
            Err(Error::TemplateFailed { reason }) => reason,
            other => panic!("expected a failed template, got {other:?}"),
        };
        assert!(fails("x".into(), 1).contains("left out picture 1 of 1"));
        assert!(fails(a.clone(), 2).contains("left out picture 2 of 2"));
        assert!(fails(format!("{a}{a}"), 1).contains("picture 1 twice"));
        assert!(fails(format!("{b}{a}"), 2).contains("left out picture 1"));
        assert!(fails(format!("{a}{b}"), 1).contains("gives picture 2 of 1"));
        assert!(fails(a[..a.len() - 1].to_owned(), 1).contains("apart"));
        assert!(marks.split("t", &format!("{a}{b}"), 0, 2).is_ok());
    }
}
