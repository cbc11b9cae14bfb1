//! One question, one answer; and what the chat shares with it.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use llava::Error;
use llava::session::{Answer, FinishReason, Part, Restored, Session, SessionParams, Usage};

use crate::args::AskArgs;
use crate::cache;
use crate::chat;
use crate::console::{self, note};
use crate::exit::{Problem, Stage};
use crate::files::Files;
use crate::open;
use crate::params;
use crate::pictures::{Reader, compose};
use crate::save::{save, save_private};
use crate::signals::Interrupt;
use crate::usage::Facts;

/// Answers the question of the command line, or chats where there is none.
pub fn run(args: &AskArgs, interrupt: &Interrupt, started: Instant) -> Result<()> {
    // everything that can be wrong with the command line first: loading may take minutes
    let question = params::prompt(&args.prompt)?;
    let system = params::system(&args.prompt)?;
    let reader = Reader::new(&args.picture);
    let pictures = reader.read_all(&args.picture)?;
    if question.as_ref().is_some_and(String::is_empty) && pictures.is_empty() {
        return Err(Problem::usage("the question is empty and there is no picture").into());
    }
    let (cache, snapshots) = cache::open(&args.cache)?;
    let settings = params::session(&args.prompt, &args.model, &args.context, &args.sampling)?;
    let settings = SessionParams { cache, snapshots, ..settings };
    let mut files = Files::find(&args.model)?;
    // a chat may be shown pictures of either kind
    let needs_eyes = pictures.iter().any(|p| matches!(p, Part::Picture(_)));
    if needs_eyes {
        files.need_vision()?;
    // a conversation that is taken up may have pictures
    } else if question.is_some() && args.cache.session.is_none() && files.projector.take().is_some() {
        tracing::info!("no picture to encode: the projector is not loaded");
    }

    let model = open::model(&args.model, &files, interrupt)?;
    let projector =
        open::projector(&args.model, &args.picture, &files, args.cache.cache_dir.as_deref(), &model, interrupt)?;
    let mut session = open::session(settings, &model, projector)?;
    if let Some(path) = &args.cache.session {
        take_up(&mut session, path)?;
    }
    if let Some(text) = &system {
        session.set_system(text);
    }
    let facts = Facts::new(started.elapsed(), &files.model, files.projector.as_deref());
    // the files are mapped or read by now
    drop(files);
    interrupt.watch(session.cancel_token())?;

    match question {
        Some(text) => answer(&mut session, Request::Ask(compose(&text, pictures)), args, &facts),
        None => chat::run(&mut session, &reader, pictures, args, &facts, interrupt),
    }
}

/// What to answer.
#[derive(Debug)]
pub enum Request {
    Ask(Vec<Part>),
    Again,
}

/// Answers on stdout and reports what it cost.
pub fn answer(session: &mut Session, request: Request, args: &AskArgs, facts: &Facts) -> Result<()> {
    let n_ctx = session.n_ctx();
    let answer = match request {
        Request::Ask(parts) => session.ask(parts)?,
        Request::Again => session.regenerate()?,
    };
    let usage = stream(answer)?;
    if usage.finish == FinishReason::ContextFull {
        note(format_args!("the answer was cut: the context of {n_ctx} positions is full; -c sets a larger one"));
    }
    if args.output.verbose > 0 {
        facts.lines(&usage).iter().for_each(console::say);
    }
    if let Some(path) = &args.usage_json {
        save(path, format!("{:#}\n", facts.json(&usage)).as_bytes())?;
    }
    if let Some(path) = &args.cache.session {
        save_private(path, &session.save()?)?;
    }
    Ok(())
}

/// Takes up the conversation in a file, where there is one.
fn take_up(session: &mut Session, path: &Path) -> Result<()> {
    let io = |source| Error::Io { action: "read", path: path.to_owned(), source };
    // reading a pipe or a device would not end
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return Err(io(ErrorKind::InvalidInput.into())).context(Stage::Argument);
    }
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        read => read.map_err(io).context(Stage::Argument)?,
    };
    let loaded = session.load(&bytes).map_err(|error| match error {
        Error::State { reason } => Error::State { reason: format!("{}: {reason}", path.display()) },
        other => other,
    });
    match loaded? {
        Restored::Messages { reason } if !session.messages().is_empty() => {
            note(format_args!("{}: only the messages are taken up, they are computed again: {reason}", path.display()));
        }
        _ => {}
    }
    Ok(())
}

/// Prints an answer as it comes, and one line end after it.
fn stream(mut answer: Answer<'_>) -> Result<Usage> {
    let mut printed = false;
    for piece in answer.by_ref() {
        match piece {
            Ok(piece) => {
                console::print(&piece)?;
                printed = true;
            }
            Err(error) => {
                if printed {
                    console::print("\n")?;
                }
                return Err(error.into());
            }
        }
    }
    console::print("\n")?;
    Ok(answer.usage().clone())
}
