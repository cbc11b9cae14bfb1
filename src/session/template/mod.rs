//! Room: chat templates. Turns a typed conversation into the text a model was trained on, cut where pictures stand.
//!
//! What it does: runs a GGUF's Jinja template the way `transformers` and llama.cpp run it, knows llama.cpp's built-in
//! formats by name and by detection, and guards the places of pictures so that no text can pass for one.
//! What it never does: tokenize, look at pictures or files other than a template file, print, guess a template silently.
//! Who calls it: `session`, and through it the command line.
#![forbid(unsafe_code)]

mod bounds;
mod builtin;
mod choice;
mod detect;
mod engine;
mod layouts;
mod mark;
mod message;
mod probe;
mod python;
mod source;
mod stateful;
mod suggest;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::SystemTime;

use jiff::Zoned;
use minijinja::value::Value;

pub use choice::{ModelTemplate, TemplateEngine, UserTemplate};
pub use message::{ChatMessage, ContentPart, Role, Segment};
pub use suggest::suggest_builtin;

use self::builtin::Format;
use self::engine::Jinja;
use self::mark::Marks;
use self::message::FlatMessage;
use crate::error::{Error, Result};

/// What a template needs to know about the model's tokenizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    /// Text of the begin-of-sequence token, `bos_token` in templates; empty if there is none.
    pub bos: String,
    /// Text of the end-of-sequence token, `eos_token` in templates; empty if there is none.
    pub eos: String,
    /// Whether the tokenizer puts the begin token in front by itself; a leading one is then taken off the rendering.
    pub add_bos: bool,
    /// Whether the tokenizer puts the end token behind by itself; a trailing one is then taken off the rendering.
    pub add_eos: bool,
}

/// The value of a variable that a caller hands to a Jinja template.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TemplateValue {
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(String),
}

/// A chat template, ready to render.
///
/// Two kinds exist. A *Jinja* template is source text that is run. A *built-in* format is one of those compiled into
/// llama.cpp; this is also what llama.cpp's own tools use for a template they recognise when Jinja is off.
///
/// ```
/// use llava::session::template::{ChatMessage, ChatTemplate, ContentPart, Role, Segment};
///
/// let template = ChatTemplate::builtin("vicuna")?;
/// let question = ChatMessage {
///     role: Role::User,
///     content: vec![ContentPart::Picture, ContentPart::Text("What is this?".into())],
/// };
/// assert_eq!(
///     template.render(&[question], true)?,
///     [Segment::Text("USER: ".into()), Segment::Picture(0), Segment::Text("What is this?\nASSISTANT:".into())],
/// );
/// # Ok::<(), llava::Error>(())
/// ```
#[derive(Clone)]
pub struct ChatTemplate {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Builtin { format: &'static Format, named: bool },
    Jinja(Box<Jinja>),
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// All names [`ChatTemplate::builtin`] knows, sorted. They are llama.cpp's.
#[must_use]
pub fn builtin_names() -> &'static [&'static str] {
    builtin::names()
}

impl ChatTemplate {
    /// Compiles a Jinja source and finds out what shape of messages it takes.
    ///
    /// # Errors
    /// [`Error::TemplateFailed`] if the source does not compile, with the line.
    pub fn from_jinja(source: &str, tokens: TemplateTokens) -> Result<Self> {
        let jinja = Jinja::compile(source, tokens, Zoned::now())?;
        Ok(ChatTemplate { kind: Kind::Jinja(Box::new(jinja)) })
    }

    /// The built-in format of this name.
    ///
    /// # Errors
    /// [`Error::TemplateUnknown`] with all known names.
    pub fn builtin(name: &str) -> Result<Self> {
        match builtin::find_by_user(name) {
            Some(format) => Ok(ChatTemplate { kind: Kind::Builtin { format, named: true } }),
            None => Err(Error::TemplateUnknown { name: name.to_owned(), known: builtin_names().join(", ") }),
        }
    }

    /// The built-in format that a Jinja source looks like, by llama.cpp's rules; what its tools use with Jinja off.
    ///
    /// # Errors
    /// [`Error::TemplateFailed`] if no rule fits.
    pub fn detected(source: &str) -> Result<Self> {
        match detect::detect(source) {
            Some(format) => Ok(ChatTemplate { kind: Kind::Builtin { format, named: false } }),
            None => Err(Error::TemplateFailed {
                reason: "the template resembles no built-in format; run it with --jinja, or name a format with --chat-template"
                    .to_owned(),
            }),
        }
    }

    /// Name of the built-in format, or `jinja`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Builtin { format, .. } => format.name,
            Kind::Jinja(_) => "jinja",
        }
    }

    /// Text that ends an answer of models that were trained without an end-of-turn token. Like llama.cpp's, only formats
    /// chosen by name have one, not detected ones.
    #[must_use]
    pub fn antiprompt(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Builtin { format, named: true } => match format.name {
                "vicuna" => Some("ASSISTANT:"),
                "deepseek" => Some("###"),
                _ => None,
            },
            _ => None,
        }
    }

    /// Gives a Jinja template one more variable, for example `enable_thinking`. Built-in formats have none and ignore it.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for the names that carry the conversation itself.
    pub fn with_variable(mut self, name: &str, value: TemplateValue) -> Result<Self> {
        if matches!(name, "messages" | "add_generation_prompt") {
            let reason = "the conversation itself sets this variable".to_owned();
            return Err(Error::BadParameter { name: "template variable", value: name.to_owned(), reason });
        }
        if let Kind::Jinja(jinja) = &mut self.kind {
            let value = match value {
                TemplateValue::Bool(value) => Value::from(value),
                TemplateValue::Int(value) => Value::from(value),
                TemplateValue::Float(value) => Value::from(value),
                TemplateValue::Text(value) => Value::from(value),
            };
            jinja.variables.insert(name.to_owned(), value);
            jinja.shape = jinja.probe();
        }
        Ok(self)
    }

    /// Sets the time that templates see. It is the moment of construction otherwise, and stands still on purpose: a
    /// prompt whose date changes between two turns loses the KV state of everything behind the date.
    ///
    /// # Errors
    /// [`Error::BadParameter`] if the time lies outside of the years -9999 to 9999.
    pub fn at(mut self, time: SystemTime) -> Result<Self> {
        let now = Zoned::try_from(time).map_err(|e| Error::BadParameter {
            name: "time",
            value: format!("{time:?}"),
            reason: e.to_string(),
        })?;
        if let Kind::Jinja(jinja) = &mut self.kind {
            jinja.set_now(now);
        }
        Ok(self)
    }

    /// Renders a whole conversation. With `add_generation_prompt` it ends by inviting the model's answer.
    ///
    /// # Errors
    /// [`Error::TemplateFailed`] with the template's own words and line if it refuses the conversation, does not end, or
    /// writes without bound; and if it drops, repeats or reorders a picture.
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<Vec<Segment>> {
        let marks = self.draw_marks(messages);
        let text = self.render_flat(&marks.flatten(messages), add_generation_prompt)?;
        marks.split(self.name(), &text, 0, pictures(messages))
    }

    /// Renders only what `new` adds to a conversation whose rendering the model has already read up to the end of its
    /// last answer, exactly as llama-mtmd-cli feeds its turns.
    ///
    /// The answer's end-of-turn token was sampled but never read by the model there. If the rendering of `past` ends in a
    /// line break and an answer is invited, the addition therefore begins with one. Picture indices go on counting from
    /// `past`. `None` means that the template renders `past` differently once `new` follows (it drops old reasoning, for
    /// example): render the whole conversation then.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_next(
        &self,
        past: &[ChatMessage],
        new: &ChatMessage,
        add_generation_prompt: bool,
    ) -> Result<Option<Vec<Segment>>> {
        let messages = [past, std::slice::from_ref(new)].concat();
        let marks = self.draw_marks(&messages);
        let flat = marks.flatten(&messages);
        let before = match past.len() {
            0 => String::new(),
            length => self.render_flat(&flat[..length], false)?,
        };
        let whole = self.render_flat(&flat, add_generation_prompt)?;
        let Some(added) = whole.strip_prefix(&before) else { return Ok(None) };
        let line_break = if add_generation_prompt && before.ends_with('\n') { "\n" } else { "" };
        let (first, end) = (pictures(past), pictures(&messages));
        marks.split(self.name(), &format!("{line_break}{added}"), first, end).map(Some)
    }

    fn draw_marks(&self, messages: &[ChatMessage]) -> Marks {
        match &self.kind {
            Kind::Builtin { .. } => Marks::draw(messages, &[]),
            Kind::Jinja(jinja) => {
                let variables = jinja.variables.values().filter_map(Value::as_str);
                Marks::draw(messages, &variables.chain([jinja.source.as_str()]).collect::<Vec<_>>())
            }
        }
    }

    fn render_flat(&self, messages: &[FlatMessage], add_generation_prompt: bool) -> Result<String> {
        match &self.kind {
            Kind::Builtin { format, .. } => Ok(format.render(messages, add_generation_prompt)),
            Kind::Jinja(jinja) => jinja.render(messages, add_generation_prompt),
        }
    }
}

fn pictures(messages: &[ChatMessage]) -> usize {
    messages.iter().map(ChatMessage::pictures).sum()
}
