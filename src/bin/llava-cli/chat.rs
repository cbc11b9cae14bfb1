//! A conversation, one message a line, with commands for pictures and for starting over.

use std::io::{self, BufRead};
use std::path::PathBuf;

use anyhow::Result;
use llava::Error;
use llava::compress::Policy;
use llava::session::{Part, Role, Session};

use crate::args::AskArgs;
use crate::ask::{Request, answer};
use crate::compress_flags::setting;
use crate::console::{self, ReaderGone, note, say};
use crate::exit::{self, Reported};
use crate::pictures::{Reader, compose};
use crate::signals::Interrupt;
use crate::talk::Talk;
use crate::usage::Facts;

const HELP: &str = "\
Each line is a message, or one of:
  /image PATH   show a picture with the next message; several are shown in order
  /tokens HOW   visual tokens of a picture from now on: full, auto, a number, or a share such as 33%;
                without HOW: what it is now
  /clear        forget the conversation and pictures not shown yet
  /regen        answer the last message again
  /help         this list
  /quit, /exit  end (so does the end of input)
Start a message with a space if it begins with a slash.";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Image(&'a str),
    Tokens(&'a str),
    Clear,
    Again,
    Help,
    Quit,
    Unknown(&'a str),
    Message(&'a str),
}

/// Chats until the input ends. Errors are reported and the chat goes on; if nobody types, the first one decides the exit code.
pub fn run(
    session: &mut Session,
    reader: &Reader,
    pictures: Vec<Part>,
    args: &AskArgs,
    facts: &Facts,
    talk: Option<Talk>,
    interrupt: &Interrupt,
) -> Result<()> {
    let interactive = console::is_interactive();
    if interactive {
        say(format_args!("{HELP}\n"));
    }
    let mut chat = Chat { session, reader, waiting: pictures, args, facts, talk };
    let mut failed = None;
    let mut input = io::stdin().lock();
    loop {
        if interactive {
            console::show("> ");
        }
        interrupt.idle();
        if !interactive {
            // pressed while a command was being handled: nobody is there to press again
            interrupt.check()?;
        }
        let Some(line) = read_line(&mut input)? else { break };
        interrupt.busy();
        let result = match line {
            Ok(line) => match parse(&line) {
                Line::Quit => break,
                request => chat.handle(request),
            },
            Err(problem) => Err(problem),
        };
        if let Err(error) = result {
            let stopped = matches!(error.downcast_ref(), Some(Error::Cancelled));
            if error.is::<ReaderGone>() || (stopped && !interactive) {
                return Err(error);
            }
            let code = exit::print(&error);
            if !stopped {
                failed = failed.or(Some(code));
            }
        }
    }
    match failed {
        Some(code) if !interactive => Err(Reported(code).into()),
        _ => Ok(()),
    }
}

struct Chat<'a> {
    session: &'a mut Session,
    reader: &'a Reader,
    /// Pictures for the next message.
    waiting: Vec<Part>,
    args: &'a AskArgs,
    facts: &'a Facts,
    talk: Option<Talk>,
}

impl Chat<'_> {
    fn handle(&mut self, line: Line<'_>) -> Result<()> {
        match line {
            Line::Nothing | Line::Quit => {}
            Line::Help => say(HELP),
            Line::Clear => {
                self.session.clear();
                self.waiting.clear();
                if let Some(talk) = &mut self.talk {
                    talk.keep(self.session)?;
                }
                say("conversation cleared");
            }
            Line::Tokens("") => say(format_args!("visual tokens: {}", self.session.visual_tokens().setting)),
            Line::Tokens(how) => {
                let setting = setting(how).map_err(|what| exit::Problem::usage(format!("/tokens `{how}`: {what}")))?;
                let policy = self.session.visual_tokens().clone();
                self.session.set_visual_tokens(Policy { setting, ..policy });
                say(format_args!("visual tokens: {setting}"));
            }
            Line::Image("") => return Err(exit::Problem::usage("/image needs the path of a picture").into()),
            Line::Image(path) => {
                let path = unquote(path);
                let picture = self.reader.read(&path)?;
                let size = match &picture {
                    Part::Picture(picture) => {
                        self.can_see()?;
                        format!("{}x{}", picture.image().width_px(), picture.image().height_px())
                    }
                    _ => "encoded".to_owned(),
                };
                self.waiting.push(picture);
                say(format_args!("{} ({size}) goes with the next message", path.display()));
            }
            Line::Unknown(command) => {
                let problem = exit::Problem::usage(format!("there is no command {command}"));
                return Err(problem.hint("/help lists them; a message may begin with a space").into());
            }
            Line::Again if self.session.messages().iter().all(|m| m.role == Role::System) => {
                note("there is nothing to answer again");
            }
            Line::Again => return answer(self.session, Request::Again, self.args, self.facts, self.talk.as_mut()),
            Line::Message(text) => {
                let pictures = std::mem::take(&mut self.waiting);
                let before = self.session.messages().len();
                let parts = compose(text, pictures.clone());
                let result = answer(self.session, Request::Ask(parts), self.args, self.facts, self.talk.as_mut());
                // the message was taken back: its pictures wait for another one
                if result.is_err() && self.session.messages().len() == before && !pictures.is_empty() {
                    self.waiting = pictures;
                    note("the message was not taken; its pictures go with the next one, /clear drops them");
                }
                return result;
            }
        }
        Ok(())
    }

    fn can_see(&self) -> llava::Result<()> {
        if self.session.projector().is_some() {
            return Ok(());
        }
        Err(Error::NoVision { reason: format!("no projector was given for {}", self.facts.model) })
    }
}

/// The next line without its end; `None` at the end of input.
fn read_line(input: &mut impl BufRead) -> Result<Option<Result<String>>> {
    let mut bytes = Vec::new();
    let read = input.read_until(b'\n', &mut bytes);
    let read = read.map_err(|error| exit::Problem::failed("io", format!("cannot read from stdin: {error}")))?;
    if read == 0 {
        return Ok(None);
    }
    Ok(Some(String::from_utf8(bytes).map_err(|_| exit::Problem::usage("this line is not UTF-8").into())))
}

fn parse(line: &str) -> Line<'_> {
    let text = line.trim();
    if text.is_empty() {
        return Line::Nothing;
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let is_command = line.starts_with('/') && word.len() > 1 && word[1..].bytes().all(|b| b.is_ascii_lowercase());
    if !is_command {
        return Line::Message(text);
    }
    match (word, rest.trim()) {
        ("/image", path) => Line::Image(path),
        ("/tokens", how) => Line::Tokens(how),
        ("/clear", "") => Line::Clear,
        ("/regen", "") => Line::Again,
        ("/help", "") => Line::Help,
        ("/quit" | "/exit", "") => Line::Quit,
        _ => Line::Unknown(word),
    }
}

/// Terminals put quotes around a file that is dropped on them.
fn unquote(path: &str) -> PathBuf {
    let plain = PathBuf::from(path);
    let inside = ['"', '\''].iter().find_map(|&q| path.strip_prefix(q)?.strip_suffix(q));
    match inside {
        Some(inside) if !plain.exists() => PathBuf::from(inside),
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_messages() {
        assert_eq!(parse("/image  a b.png \n"), Line::Image("a b.png"));
        assert_eq!(parse("/image\n"), Line::Image(""));
        assert_eq!(parse("/quit\r\n"), Line::Quit);
        assert_eq!(parse("/exit"), Line::Quit);
        assert_eq!(parse("/tokens 33%\n"), Line::Tokens("33%"));
        assert_eq!(parse("/clear\n"), Line::Clear);
        assert_eq!(parse("/regen\n"), Line::Again);
        assert_eq!(parse("/imgae x\n"), Line::Unknown("/imgae"));
        assert_eq!(parse("/etc/passwd is what?\n"), Line::Message("/etc/passwd is what?"));
        assert_eq!(parse(" /image x\n"), Line::Message("/image x"));
        assert_eq!(parse("/ or \\?"), Line::Message("/ or \\?"));
        assert_eq!(parse("   \n"), Line::Nothing);
        assert_eq!(parse("hello"), Line::Message("hello"));
    }

    #[test]
    fn lines_end_with_the_input() {
        let mut input = &b"one\n\xff\ntwo"[..];
        assert_eq!(read_line(&mut input).unwrap().unwrap().unwrap(), "one\n");
        assert!(read_line(&mut input).unwrap().unwrap().is_err());
        assert_eq!(read_line(&mut input).unwrap().unwrap().unwrap(), "two");
        assert!(read_line(&mut input).unwrap().is_none());
    }

    #[test]
    fn quotes_of_a_dropped_file() {
        assert_eq!(unquote("'a b.png'"), PathBuf::from("a b.png"));
        assert_eq!(unquote("\"a.png\""), PathBuf::from("a.png"));
        assert_eq!(unquote("a'b.png"), PathBuf::from("a'b.png"));
    }
}
