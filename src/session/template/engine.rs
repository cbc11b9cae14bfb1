//! Jinja templates: compiled once, run with the variables and helpers that `transformers` and llama.cpp give them,
//! bounded in steps and in bytes.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Zoned;
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, Error as JinjaError, ErrorKind as JinjaErrorKind, Output, State};

use super::bounds::{self, Capped};
use super::message::{FlatMessage, Role};
use super::{TemplateTokens, python, source};
use crate::error::{Error, Result};

const NAME: &str = "chat";

/// How messages reach the template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// `content` is a list of `{"type": "text", "text": ..}` instead of a string.
    pub typed: bool,
    /// The template knows the role `system`.
    pub system: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Jinja {
    environment: Environment<'static>,
    pub source: String,
    tokens: TemplateTokens,
    pub variables: BTreeMap<String, Value>,
    now: Zoned,
    pub shape: Shape,
}

impl Jinja {
    pub fn compile(source: &str, tokens: TemplateTokens, now: Zoned) -> Result<Self> {
        bounds::check_source(source)?;
        let source = source::prepared(source);
        let environment = bounds::on_deep_stack(|| {
            let mut environment = environment();
            environment.add_template_owned(NAME, source.clone()).map(|()| environment)
        })?;
        let environment = environment.map_err(|e| failed("does not compile", &e))?;
        let shape = Shape { typed: false, system: true };
        let mut jinja = Jinja { environment, source, tokens, variables: BTreeMap::new(), now: now.clone(), shape };
        jinja.set_now(now);
        jinja.shape = jinja.probe();
        Ok(jinja)
    }

    pub fn set_now(&mut self, now: Zoned) {
        let moment = now.clone();
        self.environment.add_function("strftime_now", move |format: &str| {
            jiff::fmt::strtime::format(format, &moment)
                .map_err(|e| JinjaError::new(JinjaErrorKind::InvalidOperation, format!("strftime_now: {e}")))
        });
        self.now = now;
    }

    /// Renders messages in the shape this template takes, without the begin and end tokens that the tokenizer adds.
    pub fn render(&self, messages: &[FlatMessage], add_generation_prompt: bool) -> Result<String> {
        let mut messages = messages.to_vec();
        if !self.shape.system && messages.first().is_some_and(|message| message.role == Role::System) {
            let system = messages.remove(0);
            match messages.first_mut() {
                Some(next) => next.content = format!("{}\n{}", system.content, next.content),
                // Nothing is left that the template could take.
                None => return Ok(String::new()),
            }
        }
        let mut text = self.run(&messages, self.shape.typed, add_generation_prompt)?;
        if self.tokens.add_bos && text.starts_with(&self.tokens.bos) {
            text.drain(..self.tokens.bos.len());
        }
        if self.tokens.add_eos && text.ends_with(&self.tokens.eos) {
            text.truncate(text.len() - self.tokens.eos.len());
        }
        if !add_generation_prompt && self.source.contains("<|channel|>") {
            source::reopen_harmony(&mut text);
        }
        Ok(text)
    }

    /// Runs the template on messages exactly as they are.
    pub fn run(&self, messages: &[FlatMessage], typed: bool, add_generation_prompt: bool) -> Result<String> {
        bounds::on_deep_stack(|| {
            self.run_here(messages, typed, add_generation_prompt).map_err(|e| failed("failed", &e))
        })?
    }

    fn run_here(
        &self,
        messages: &[FlatMessage],
        typed: bool,
        add_generation_prompt: bool,
    ) -> Result<String, JinjaError> {
        let list: Vec<Value> = messages.iter().map(|message| message_value(message, typed)).collect();
        let date = |format: &str| self.now.strftime(format).to_string();
        let mut context: BTreeMap<&str, Value> = BTreeMap::from([
            ("messages", Value::from(list)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("bos_token", Value::from(self.tokens.bos.as_str())),
            ("eos_token", Value::from(self.tokens.eos.as_str())),
            ("enable_thinking", Value::from(true)),
            ("datetime", Value::from(date("%b %d %Y"))),
            ("date_string", Value::from(date("%d %b %Y"))),
        ]);
        context.extend(self.variables.iter().map(|(name, value)| (name.as_str(), value.clone())));

        let input: usize = messages.iter().map(|message| message.content.len()).sum();
        let mut out = Capped::new(input);
        let mut environment = self.environment.clone();
        bounds::apply(&mut environment, messages.len());
        environment.get_template(NAME)?.render_captured_to(context, &mut out)?;
        String::from_utf8(out.bytes).map_err(|e| JinjaError::new(JinjaErrorKind::WriteFailure, e.to_string()))
    }
}

fn message_value(message: &FlatMessage, typed: bool) -> Value {
    let text = Value::from(message.content.as_str());
    let content = match typed {
        true => Value::from(vec![Value::from_iter([("type", Value::from("text")), ("text", text)])]),
        false => text,
    };
    Value::from_iter([("role", Value::from(message.role.as_str())), ("content", content)])
}

/// Words a template refused a conversation with.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(write_value);
    environment.add_function("raise_exception", |words: &Value| -> Result<Value, JinjaError> {
        let words = python::str_of(words)?;
        let error = JinjaError::new(JinjaErrorKind::InvalidOperation, words.clone());
        Err(error.with_source(Raised(words)))
    });
    environment.add_test("iterable", python::is_iterable);
    environment.add_test("sequence", python::is_sequence);
    environment.add_filter("tojson", |value: &Value, kwargs: Kwargs| python::tojson(value, kwargs));
    environment.add_filter("string", |value: &Value| python::str_of(value));
    environment
}

fn write_value(out: &mut Output<'_>, state: &State<'_, '_>, value: &Value) -> Result<(), JinjaError> {
    let owned;
    let text = match value.as_str() {
        Some(text) => text,
        None => {
            owned = python::str_of(value)?;
            &owned
        }
    };
    bounds::spend(state, text.len())?;
    out.write_str(text).map_err(JinjaError::from)
}

/// One error of ours with the template's or the engine's words and the line.
fn failed(what: &str, error: &JinjaError) -> Error {
    let line = error.line().map_or_else(String::new, |line| format!(" (line {line})"));
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(Raised(words)) = inner.downcast_ref() {
            return Error::TemplateFailed { reason: format!("the template refuses the conversation: {words}{line}") };
        }
        cause = inner.source();
    }
    let words = match error.kind() {
        JinjaErrorKind::OutOfFuel => "it runs on and on, or far too long".to_owned(),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    let source = std::error::Error::source(error).map_or_else(String::new, |source| format!(": {source}"));
    Error::TemplateFailed { reason: format!("the template {what}: {words}{source}{line}") }
}
