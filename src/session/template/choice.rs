//! Which template a session uses: the user's if there is one, the model's otherwise, never a guess.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{ChatTemplate, TemplateTokens, builtin, suggest_builtin};
use crate::error::{Error, Result};

/// Template files longer than this are refused.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// How a template source is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TemplateEngine {
    /// It is run (`--jinja`).
    Jinja,
    /// The built-in format it resembles is used instead (`--no-jinja`; llama-mtmd-cli's default).
    Builtin,
}

/// What a user asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserTemplate {
    /// `--chat-template`: the name of a built-in format, or a Jinja source.
    Text(String),
    /// `--chat-template-file`: a file with either.
    File(PathBuf),
}

/// What the text model's file says about its template.
#[derive(Debug, Clone, Copy)]
pub struct ModelTemplate<'a> {
    /// The file, for messages.
    pub path: &'a Path,
    /// `tokenizer.chat_template`, if the file has it.
    pub source: Option<&'a str>,
    /// `general.architecture`.
    pub architecture: &'a str,
    /// `general.name`, or empty.
    pub name: &'a str,
}

impl ChatTemplate {
    /// The user's template if one is given, the model's otherwise.
    ///
    /// # Errors
    /// [`Error::TemplateMissing`] with likely built-in names if neither exists, and the errors of
    /// [`from_user`](Self::from_user), [`from_file`](Self::from_file), [`from_jinja`](Self::from_jinja) and
    /// [`detected`](Self::detected).
    pub fn choose(
        user: Option<&UserTemplate>,
        model: &ModelTemplate<'_>,
        engine: TemplateEngine,
        tokens: TemplateTokens,
    ) -> Result<Self> {
        match (user, model.source) {
            (Some(UserTemplate::Text(text)), _) => Self::from_user(text, engine, tokens),
            (Some(UserTemplate::File(path)), _) => Self::from_file(path, engine, tokens),
            (None, Some(source)) if !source.trim().is_empty() => Self::from_source(source, engine, tokens),
            (None, _) => {
                let file = model.path.file_name().unwrap_or_default().to_string_lossy();
                let suggestions = suggest_builtin(model.architecture, &format!("{} {file}", model.name)).join(", ");
                Err(Error::TemplateMissing { path: model.path.to_owned(), suggestions })
            }
        }
    }

    /// A built-in format's name, or a Jinja source. A name means the format under either engine; llama.cpp, with Jinja
    /// on, would print the name itself as the prompt.
    ///
    /// # Errors
    /// [`Error::TemplateUnknown`] if the text is neither a known name nor has Jinja tags, otherwise those of
    /// [`from_jinja`](Self::from_jinja) or [`detected`](Self::detected).
    pub fn from_user(text: &str, engine: TemplateEngine, tokens: TemplateTokens) -> Result<Self> {
        let name = text.trim();
        let is_source = ["{{", "{%", "{#"].iter().any(|tag| text.contains(tag));
        if builtin::find_by_user(name).is_some() || !is_source {
            return Self::builtin(name);
        }
        Self::from_source(text, engine, tokens)
    }

    /// As [`from_user`](Self::from_user), from a file.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::TemplateFailed`] if it is longer than 1 MiB or not UTF-8, and
    /// those of [`from_user`](Self::from_user).
    pub fn from_file(path: &Path, engine: TemplateEngine, tokens: TemplateTokens) -> Result<Self> {
        let io = |action| move |source| Error::Io { action, path: path.to_owned(), source };
        let failed = |what: &str| Error::TemplateFailed { reason: format!("{} {what}", path.display()) };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(io("open"))?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io("read"))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(failed(&format!("is longer than {MAX_FILE_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed("is not UTF-8"))?;
        Self::from_user(&text, engine, tokens)
    }

    fn from_source(source: &str, engine: TemplateEngine, tokens: TemplateTokens) -> Result<Self> {
        match engine {
            TemplateEngine::Jinja => Self::from_jinja(source, tokens),
            TemplateEngine::Builtin => Self::detected(source),
        }
    }
}
