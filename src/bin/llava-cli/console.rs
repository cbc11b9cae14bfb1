//! The two outputs. A reader that goes away is no reason to panic.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Result;

use crate::exit::Problem;

/// The reader of stdout closed it: nobody is left to answer.
#[derive(Debug)]
pub struct ReaderGone;

impl Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of stdout went away")
    }
}

impl std::error::Error for ReaderGone {}

/// Writes model text to stdout at once.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        Err(error) => Err(Problem::failed("io", format!("cannot write to stdout: {error}")).into()),
    }
}

/// Writes a line to stderr. Where that fails there is no place left to say so.
pub fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A line that a person should see but need not act on.
pub fn note(line: impl Display) {
    say(format_args!("note: {line}"));
}

/// Writes to stderr without ending the line.
pub fn show(text: impl Display) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "{text}").and_then(|()| err.flush());
}

/// Whether a person types.
pub fn is_interactive() -> bool {
    io::stdin().is_terminal()
}
