//! From errors to exit codes, messages and hints.

use std::fmt::{self, Display};
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use llava::Error;

use crate::console::{self, ReaderGone};

pub const FAILED: u8 = 1;
pub const USAGE: u8 = 2;
pub const MODEL: u8 = 3;
pub const PICTURE: u8 = 4;
pub const CAPACITY: u8 = 5;
pub const INTERRUPTED: u8 = 130;

/// What the program was busy with; decides what an unreadable file means. Goes with an error as its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Model,
    Picture,
    /// Prompt, instructions, grammar and template files.
    Argument,
}

impl Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Model => "while loading models",
            Stage::Picture => "while reading a picture",
            Stage::Argument => "while reading a file named on the command line",
        })
    }
}

/// An error of this program's own.
#[derive(Debug)]
pub struct Problem {
    exit: u8,
    code: &'static str,
    message: String,
    hint: Option<String>,
}

impl Problem {
    pub fn new(exit: u8, code: &'static str, message: impl Into<String>) -> Self {
        Self { exit, code, message: message.into(), hint: None }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, "usage", message)
    }

    pub fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(FAILED, code, message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// Names the file that saved data came from, which the library does not know.
pub fn in_file(path: &Path) -> impl FnOnce(Error) -> Error + '_ {
    move |error| match error {
        Error::State { reason } => Error::State { reason: format!("{}: {reason}", path.display()) },
        other => other,
    }
}

/// Errors that were reported when they happened; only the exit code is left.
#[derive(Debug)]
pub struct Reported(pub u8);

impl Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reported, exit {}", self.0)
    }
}

impl std::error::Error for Reported {}

/// Prints an error that ends the program.
pub fn report(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(print(error))
}

/// Prints an error and returns the exit code that stands for it.
pub fn print(error: &anyhow::Error) -> u8 {
    if error.is::<ReaderGone>() {
        return 0;
    }
    if let Some(Reported(exit)) = error.downcast_ref() {
        return *exit;
    }
    if let Some(problem) = error.downcast_ref::<Problem>() {
        write(problem.code, &problem.message, problem.hint.as_deref());
        return problem.exit;
    }
    let Some(known) = error.downcast_ref::<Error>() else {
        write("failed", &format!("{error:#}"), None);
        return FAILED;
    };
    if matches!(known, Error::Cancelled) {
        console::say("interrupted");
        return INTERRUPTED;
    }
    let stage = error.downcast_ref::<Stage>().copied();
    write(known.code(), &known.to_string(), hint(known, stage));
    exit_code(known, stage)
}

fn write(code: &str, message: &str, hint: Option<&str>) {
    console::say(format_args!("error[{code}]: {message}"));
    if let Some(hint) = hint {
        console::say(format_args!("  hint: {hint}"));
    }
}

fn exit_code(error: &Error, stage: Option<Stage>) -> u8 {
    match error {
        Error::NotGguf { .. }
        | Error::UnsupportedGguf { .. }
        | Error::DamagedGguf { .. }
        | Error::BadMetadata { .. }
        | Error::BadTensor { .. }
        | Error::ModelLoad { .. }
        | Error::ProjectorLoad { .. }
        | Error::Mismatch { .. }
        | Error::CompressorMismatch { .. }
        | Error::NoVision { .. }
        | Error::Ambiguous { .. }
        | Error::NonFinite { .. }
        | Error::TemplateMissing { .. }
        | Error::TemplateFailed { .. } => MODEL,
        Error::PictureFormat { .. }
        | Error::PictureDamaged { .. }
        | Error::PictureTooLarge { .. }
        | Error::Prepare { .. } => PICTURE,
        Error::ContextFull { .. } | Error::MicroBatchTooSmall { .. } | Error::ContextCreate { .. } => CAPACITY,
        Error::BadParameter { .. } | Error::TemplateUnknown { .. } | Error::Grammar { .. } => USAGE,
        Error::Cancelled => INTERRUPTED,
        Error::State { .. } if stage == Some(Stage::Picture) => PICTURE,
        Error::Io { .. } => match stage {
            Some(Stage::Model) => MODEL,
            Some(Stage::Picture) => PICTURE,
            Some(Stage::Argument) => USAGE,
            None => FAILED,
        },
        _ => FAILED,
    }
}

fn hint(error: &Error, stage: Option<Stage>) -> Option<&'static str> {
    Some(match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => match stage? {
            Stage::Model => "check the path (-m, --mmproj)",
            Stage::Picture => "check the path of the picture",
            Stage::Argument => return None,
        },
        Error::NotGguf { .. } => "-m and --mmproj take GGUF files; a tiny file may be a web page or a Git LFS pointer",
        Error::DamagedGguf { .. } => "an interrupted download looks like this; compare the file's size with its source",
        Error::ProjectorLoad { .. } => "--mmproj takes the mmproj file of the model given with -m",
        Error::Mismatch { .. } => "take both files from the same release of the same model",
        Error::NoVision { .. } => "give the projector with --mmproj FILE, or a folder with both files as -m",
        Error::Ambiguous { .. } => "name the files: -m MODEL.gguf --mmproj PROJECTOR.gguf",
        Error::PictureTooLarge { .. } => "scale the picture down; projectors look at a few megapixels at most",
        Error::BelowFloor { .. } => {
            "lose less with --keep REGEX or --type f16; --force writes the file anyway, and marks it"
        }
        Error::ContextCreate { .. } => "ask for less: -c 4096, or a smaller cache with -ctk q8_0 -ctv q8_0",
        Error::TemplateFailed { .. } => "choose another one with --chat-template NAME",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    fn io_error() -> Error {
        Error::Io { action: "open", path: "x".into(), source: ErrorKind::NotFound.into() }
    }

    #[test]
    fn an_unreadable_file_means_what_was_being_done() {
        for (stage, exit) in [(Stage::Model, MODEL), (Stage::Picture, PICTURE), (Stage::Argument, USAGE)] {
            let error = Err::<(), _>(io_error()).context(stage).unwrap_err();
            assert_eq!(print(&error), exit);
        }
        assert_eq!(print(&io_error().into()), FAILED);
    }

    #[test]
    fn what_was_reported_is_not_reported_again() {
        assert_eq!(print(&Reported(4).into()), 4);
        assert_eq!(print(&ReaderGone.into()), 0);
        assert_eq!(print(&Error::Cancelled.into()), INTERRUPTED);
        assert_eq!(print(&Problem::usage("x").hint("y").into()), USAGE);
    }
}
