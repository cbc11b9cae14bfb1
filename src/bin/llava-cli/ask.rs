//! One question, one answer; and what the chat shares with it.

use std::time::Instant;

use anyhow::Result;
use llava::session::{Answer, FinishReason, Part, Session, SessionParams, Usage};

use crate::args::AskArgs;
use crate::cache;
use crate::chat;
use crate::console::{self, note};
use crate::exit::{self, Problem};
use crate::files::Files;
use crate::open;
use crate::params;
use crate::pictures::{Reader, compose};
use crate::save::save;
use crate::signals::Interrupt;
use crate::talk::Talk;
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
    let mut talk = args.cache.session.as_deref().map(Talk::open).transpose()?;
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
    let mut session = open::session(settings, &args.visual, &model, projector)?;
    if let Some(talk) = &mut talk {
        talk.take_up(&mut session)?;
    }
    if let Some(text) = &system {
        session.set_system(text);
    }
    let facts = Facts::new(started.elapsed(), &files.model, files.projector.as_deref());
    // the files are mapped or read by now
    drop(files);
    interrupt.watch(session.cancel_token())?;

    match question {
        Some(text) => answer(&mut session, Request::Ask(compose(&text, pictures)), args, &facts, talk.as_mut()),
        None => chat::run(&mut session, &reader, pictures, args, &facts, talk, interrupt),
    }
}

/// What to answer.
#[derive(Debug)]
pub enum Request {
    Ask(Vec<Part>),
    Again,
}

/// Answers on stdout and reports what it cost.
pub fn answer(
    session: &mut Session,
    request: Request,
    args: &AskArgs,
    facts: &Facts,
    talk: Option<&mut Talk>,
) -> Result<()> {
    let n_ctx = session.n_ctx();
    let answer = match request {
        Request::Ask(parts) => session.ask(parts)?,
        Request::Again => session.regenerate()?,
    };
    let streamed = stream(answer);
    // what was said is kept, also where the answer was stopped or nobody reads it any more
    let kept = talk.map_or(Ok(()), |talk| talk.keep(session));
    let usage = match (streamed, kept) {
        (Ok(usage), Ok(())) => usage,
        (Ok(_), Err(error)) => return Err(error),
        (Err(error), kept) => {
            if let Err(lost) = kept {
                exit::print(&lost);
            }
            return Err(error);
        }
    };
    if usage.finish == FinishReason::ContextFull {
        note(format_args!("the answer was cut: the context of {n_ctx} positions is full; -c sets a larger one"));
    }
    if args.output.verbose > 0 {
        facts.lines(&usage).iter().for_each(console::say);
    }
    if let Some(path) = &args.usage_json {
        save(path, format!("{:#}\n", facts.json(&usage)).as_bytes())?;
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
