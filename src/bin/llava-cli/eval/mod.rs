//! `llava-cli eval`: how good a model is at questions whose right answers are known, and how much a change of settings costs.
//!
//! What this room does: makes or reads questions, has every variant of the settings answer each of them, scores the answers, compares
//! the variants item by item, writes reports. Each result is on disk before the next question is asked.
//! What it never does: change how an answer is made; it asks through the same `Session` as everybody.
//! Who calls it: `main`, for the command of this name.

mod answering;
mod args;
mod data;
mod generator;
mod items;
mod plan;
mod progress;
mod record;
mod report;
mod results;
mod score;
mod stats;
mod summary;
mod variants;

use std::ffi::OsString;

use anyhow::Result;

pub use args::{ABOUT, AFTER, EvalArgs};

use crate::console;
use crate::pictures::Reader;
use crate::signals::Interrupt;

/// Evaluates. `argv` is the translated command line, from which variants differ.
pub fn run(args: &EvalArgs, argv: &[OsString], interrupt: &Interrupt) -> Result<()> {
    // everything that can be wrong with the command line first: loading may take minutes
    args.check()?;
    let items = items::select(&args.what, args.setup.seed(), args.setup.model.model.is_none())?;
    if let Some(folder) = &args.what.write_data {
        return data::write(folder, &items, &Reader::new(&args.setup.picture));
    }
    let variants = variants::parse(args, argv)?;
    let plan = plan::Plan::new(&items, &args.what.scorers(), &variants)?;
    let mut results = results::Results::open(args.what.out.as_deref(), &plan)?;
    let answered = answering::run(&plan, &mut results, interrupt);
    if answered.is_err() && args.what.out.is_some() {
        console::note("what was answered is kept: the same command goes on from there");
    }
    answered?;
    let summary = summary::Summary::new(&plan, &results);
    if let Some(folder) = &args.what.out {
        report::write(folder, &plan, &summary)?;
    }
    console::print(&report::table(&summary))
}
