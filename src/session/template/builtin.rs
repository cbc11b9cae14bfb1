//! llama.cpp's built-in chat formats, by their names there (llama-chat.cpp of b11434), rendered without Jinja.
//!
//! Most are a table row: what stands before and after a message of each role, and what invites the answer. The families
//! that carry state from one message to the next are in [`super::stateful`].

use super::layouts::LAYOUTS;
use super::message::{FlatMessage, Role};
use super::stateful::{self, Stateful};

/// Text around a message.
#[derive(Clone, Copy)]
pub(super) struct Around {
    pub before: &'static str,
    pub after: &'static str,
    /// Whether white space around the content is dropped.
    pub trim: bool,
}

/// What stands around a message of each role; `None` leaves the message out.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    pub system: Option<Around>,
    pub user: Option<Around>,
    pub assistant: Option<Around>,
    pub tool: Option<Around>,
}

/// What the whole conversation opens with.
#[derive(Clone, Copy)]
pub(super) enum Opening {
    Nothing,
    Always(&'static str),
    /// Only if no system message comes first.
    WithoutSystem(&'static str),
    /// Only if a message other than a system message comes first.
    BeforeOther(&'static str),
}

/// A format without memory.
pub(super) struct Layout {
    pub opening: Opening,
    /// Before every message but the first.
    pub joint: &'static str,
    pub turns: Turns,
    /// Whether a system message counts only as the first message.
    pub system_only_first: bool,
    /// Invites the answer.
    pub prompt: &'static str,
}

pub(super) enum Kind {
    Layout(Layout),
    Stateful(Stateful),
}

/// One built-in format.
pub(super) struct Format {
    pub name: &'static str,
    pub kind: Kind,
}

/// The format that is known by detection only and has no name a user can give.
const NAMELESS: &str = "dots1";

/// White space as C's `isspace` sees it, which is what the formats were defined with.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r'])
}

/// The format of this name, including the one that only detection finds.
pub(super) fn find(name: &str) -> Option<&'static Format> {
    LAYOUTS.iter().chain(stateful::FORMATS).find(|format| format.name == name)
}

/// The format a user means by this name.
pub(super) fn find_by_user(name: &str) -> Option<&'static Format> {
    find(name).filter(|format| format.name != NAMELESS)
}

/// All names a user can give, sorted.
pub(super) fn names() -> &'static [&'static str] {
    static NAMES: std::sync::OnceLock<Vec<&'static str>> = std::sync::OnceLock::new();
    NAMES.get_or_init(|| {
        let all = LAYOUTS.iter().chain(stateful::FORMATS).map(|format| format.name);
        let mut names: Vec<_> = all.filter(|name| *name != NAMELESS).collect();
        names.sort_unstable();
        names
    })
}

impl Format {
    pub fn render(&self, messages: &[FlatMessage], add_generation_prompt: bool) -> String {
        match &self.kind {
            Kind::Layout(layout) => layout.render(messages, add_generation_prompt),
            Kind::Stateful(family) => family.render(messages, add_generation_prompt),
        }
    }
}

impl Layout {
    fn render(&self, messages: &[FlatMessage], add_generation_prompt: bool) -> String {
        let first = messages.first().map(|message| message.role);
        let mut out = String::from(match self.opening {
            Opening::Always(text) => text,
            Opening::WithoutSystem(text) if first != Some(Role::System) => text,
            Opening::BeforeOther(text) if first.is_some_and(|role| role != Role::System) => text,
            _ => "",
        });
        for (i, message) in messages.iter().enumerate() {
            let around = match message.role {
                Role::System if self.system_only_first && i > 0 => None,
                Role::System => self.turns.system,
                Role::User => self.turns.user,
                Role::Assistant => self.turns.assistant,
                Role::Tool => self.turns.tool,
            };
            if i > 0 {
                out.push_str(self.joint);
            }
            if let Some(around) = around {
                out.push_str(around.before);
                out.push_str(if around.trim { trim(&message.content) } else { &message.content });
                out.push_str(around.after);
            }
        }
        if add_generation_prompt {
            out.push_str(self.prompt);
        }
        out
    }
}
