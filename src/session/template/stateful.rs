//! Built-in formats in which a message depends on the ones before it.

use super::builtin::{Format, Kind, trim};
use super::message::{FlatMessage, Role};

pub(super) enum Stateful {
    /// Mistral v1 and v3: system text shares the user's brackets.
    Mistral { lead: &'static str, trail: &'static str, trim_answer: bool },
    /// Llama 2 and its variants.
    Llama2 { system_tags: bool, reopen: &'static str, trim: bool },
    /// No system role: its text precedes the next message that is not an answer.
    Gemma,
    /// No system role: its text precedes the next user message, which also invites the answer.
    Orion,
    /// A user message in last place invites the answer.
    RwkvWorld,
}

const fn stateful(name: &'static str, family: Stateful) -> Format {
    Format { name, kind: Kind::Stateful(family) }
}

const fn llama2(name: &'static str, system_tags: bool, reopen: &'static str, trim: bool) -> Format {
    stateful(name, Stateful::Llama2 { system_tags, reopen, trim })
}

const fn mistral(name: &'static str, lead: &'static str, trail: &'static str, trim_answer: bool) -> Format {
    stateful(name, Stateful::Mistral { lead, trail, trim_answer })
}

pub(super) static FORMATS: &[Format] = &[
    llama2("llama2", false, "[INST] ", false),
    llama2("llama2-sys", true, "[INST] ", false),
    llama2("llama2-sys-bos", true, "<s>[INST] ", false),
    llama2("llama2-sys-strip", true, "[INST] ", true),
    mistral("mistral-v1", " ", " ", false),
    mistral("mistral-v3", "", " ", true),
    mistral("mistral-v3-tekken", "", "", false),
    stateful("gemma", Stateful::Gemma),
    stateful("orion", Stateful::Orion),
    stateful("rwkv-world", Stateful::RwkvWorld),
];

impl Stateful {
    pub fn render(&self, messages: &[FlatMessage], add_generation_prompt: bool) -> String {
        match *self {
            Stateful::Mistral { lead, trail, trim_answer } => render_mistral(messages, lead, trail, trim_answer),
            Stateful::Llama2 { system_tags, reopen, trim } => render_llama2(messages, system_tags, reopen, trim),
            Stateful::Gemma => render_gemma(messages, add_generation_prompt),
            Stateful::Orion => render_orion(messages),
            Stateful::RwkvWorld => render_rwkv(messages),
        }
    }
}

fn render_mistral(messages: &[FlatMessage], lead: &str, trail: &str, trim_answer: bool) -> String {
    let mut out = String::new();
    let mut open = false;
    for FlatMessage { role, content } in messages {
        if !open {
            out += &format!("{lead}[INST]{trail}");
            open = true;
        }
        match role {
            Role::System => out += &format!("{content}\n\n"),
            Role::User => out += &format!("{content}{lead}[/INST]"),
            Role::Assistant | Role::Tool => {
                let content = if trim_answer { trim(content) } else { content };
                out += &format!("{trail}{content}</s>");
                open = false;
            }
        }
    }
    out
}

fn render_llama2(messages: &[FlatMessage], system_tags: bool, reopen: &str, trimmed: bool) -> String {
    let mut out = String::from("[INST] ");
    let mut open = true;
    for FlatMessage { role, content } in messages {
        let content = if trimmed { trim(content) } else { content };
        if !open {
            out += reopen;
            open = true;
        }
        match role {
            Role::System if system_tags => out += &format!("<<SYS>>\n{content}\n<</SYS>>\n\n"),
            Role::System => out += &format!("{content}\n"),
            Role::User => out += &format!("{content} [/INST]"),
            Role::Assistant | Role::Tool => {
                out += &format!("{content}</s>");
                open = false;
            }
        }
    }
    out
}

fn render_gemma(messages: &[FlatMessage], add_generation_prompt: bool) -> String {
    let mut out = String::new();
    let mut system = String::new();
    for FlatMessage { role, content } in messages {
        let name = match role {
            Role::System => {
                system += trim(content);
                continue;
            }
            Role::Assistant => "model",
            Role::User | Role::Tool => role.as_str(),
        };
        out += &format!("<start_of_turn>{name}\n");
        if !system.is_empty() && *role != Role::Assistant {
            out += &format!("{system}\n\n");
            system.clear();
        }
        out += &format!("{}<end_of_turn>\n", trim(content));
    }
    if add_generation_prompt {
        out += "<start_of_turn>model\n";
    }
    out
}

fn render_orion(messages: &[FlatMessage]) -> String {
    let mut out = String::new();
    let mut system = String::new();
    for FlatMessage { role, content } in messages {
        match role {
            Role::System => system += content,
            Role::User => {
                out += "Human: ";
                if !system.is_empty() {
                    out += &format!("{system}\n\n");
                    system.clear();
                }
                out += &format!("{content}\n\nAssistant: </s>");
            }
            Role::Assistant | Role::Tool => out += &format!("{content}</s>"),
        }
    }
    out
}

fn render_rwkv(messages: &[FlatMessage]) -> String {
    let mut out = String::new();
    for (i, FlatMessage { role, content }) in messages.iter().enumerate() {
        let name = match role {
            Role::System => "System",
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::Tool => continue,
        };
        out += &format!("{name}: {}\n\n", trim(content));
        if *role == Role::User && i + 1 == messages.len() {
            out += "Assistant:";
        }
    }
    out
}
