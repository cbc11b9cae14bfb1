//! Answers given by processes of their own: what a cold start costs shows nowhere else.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;
use llava::Error;

use super::flags::BenchArgs;
use super::sample::{self, Sample};
use super::stage::{Caches, Opened};
use crate::console;
use crate::exit::Problem;
use crate::signals::Interrupt;

/// How a child answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// On the plain path.
    Plain,
    /// With rows in a folder.
    Disk,
    /// With rows and KV states in a folder.
    States,
}

impl Task {
    pub fn name(self) -> &'static str {
        match self {
            Task::Plain => "plain",
            Task::Disk => "disk",
            Task::States => "states",
        }
    }
}

/// Starts this program again with the same flags and has it answer the first question.
pub fn ask(task: Task, folder: &Path, interrupt: &Interrupt) -> Result<Sample> {
    let program =
        std::env::current_exe().map_err(|source| Error::Io { action: "find", path: "llava-cli".into(), source })?;
    let output = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .args(["--child", task.name(), "--child-dir"])
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Io { action: "start", path: program, source })?;
    // Ctrl-C on a terminal reaches the child too
    interrupt.check()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let message = format!("a child process failed ({}): {}", output.status, words.trim_end());
        return Err(Problem::failed("failed", message).into());
    }
    let value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Problem::failed("failed", format!("a child process reported no JSON: {error}")))?;
    Sample::from_json(&value)
}

/// Answers the first question once and reports to the parent, in one line on stdout.
pub fn serve(task: Task, args: &BenchArgs, interrupt: &Interrupt, started: Instant) -> Result<()> {
    let folder = args.child_dir.as_deref().ok_or_else(|| Problem::usage("--child needs --child-dir"))?;
    let opened = Opened::new(args, interrupt)?;
    let question = opened.question(0);
    let sample = match task {
        Task::Plain => {
            let mut plain = opened.plain()?;
            let load = started.elapsed();
            Sample { load: Some(load), ..plain.answer(&[], &question, interrupt)? }
        }
        Task::Disk | Task::States => {
            let caches = if task == Task::Disk { Caches::disk(folder) } else { Caches::states(folder) };
            let mut session = opened.session(caches)?;
            let load = started.elapsed();
            Sample { load: Some(load), ..sample::ask(&mut session, &question, interrupt)? }
        }
    };
    console::print(&format!("{}\n", sample.to_json()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_parsed() {
        for task in Task::value_variants() {
            assert_eq!(Task::from_str(task.name(), false), Ok(*task));
        }
    }
}
