//! Finds out what shape of messages a template takes, by showing it some.
//!
//! llama.cpp traces which operations a template applies to a message's content; here the rendered text decides. The
//! answers are the same for templates that print what they are given: content as a string if that comes out, as a list
//! of typed text otherwise; a system message merged into the next one if the template refuses or ignores it.

use super::engine::{Jinja, Shape};
use super::message::{FlatMessage, Role};

/// Digits, so that a change of case does not hide it.
const QUESTION: &str = "7190264853";
const RULE: &str = "6402917385";

impl Jinja {
    pub(super) fn probe(&self) -> Shape {
        let says = |role, text: &str| FlatMessage { role, content: text.to_owned() };
        let shows = |messages: &[FlatMessage], typed, text: &str| {
            self.run(messages, typed, true).is_ok_and(|rendered| rendered.contains(text))
        };
        let question = [says(Role::User, QUESTION)];
        let typed = !shows(&question, false, QUESTION) && shows(&question, true, QUESTION);
        let [question] = question;
        let system = shows(&[says(Role::System, RULE), question], typed, RULE);
        Shape { typed, system }
    }
}
