//! The command line of `eval`: what is asked, and the settings that a variant may change.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueHint};

use super::score::ScorerChoice;
use crate::args::{ContextArgs, ModelArgs, OutputArgs, PictureArgs, PromptArgs, SamplingArgs};
use crate::compress_flags::VisualTokenArgs;
use crate::exit::Problem;

pub const ABOUT: &str = "\
Ask questions whose right answers are known, and say how good the answers are.

Questions come from built-in tasks (--tasks, --n, --seed) or from a file of your own (--data). All variants (--variant, \
repeatable) answer the same questions; the first one is what the others are compared with. Only the table of results goes to \
stdout; --out DIR keeps every answer and writes report.json, report.md and report.html. A run that was interrupted goes on \
where it stopped when it is started again with the same --out.";

pub const AFTER: &str = "\
Tasks. The built-in demo model was trained on the first six, the default where no -m is given:
  attr       colour or shape of an object
  count      how many of a shape
  spatial    what is left of, above, ... what
  grid       the digit at a row and a column
  ocr        a word of four letters
  caption    everything, from left to right
The default for other models is all:
  small      colour of a small object
  cell       place of an object in a grid of 4 x 4
  presence   whether something is there, balanced
  table      number at a named row and column
  ocr-sizes  words in smaller and larger letters
  second     a second question about the same picture

A line of --data is a JSON object: image (path, from the file's folder), question, answer (text) or answers (list); \
optional task, scorer, choices (list), before (list of {question, answer}: earlier turns about the same picture).

Scorers: exact (but for case, spaces and a full stop at the end), numeric (the first number), contains (as whole words), \
anls (edit distance, for written text), choice (the most likely of the choices; nothing is generated).

Examples:
  llava-cli eval --n 100                          the demo model at its tasks
  llava-cli eval --out runs/blind --variant \"full:\" --variant \"blind: --blind\"
  llava-cli eval -m f16.gguf --mmproj mm-f16.gguf --data mine.jsonl --out runs/q8 \\
      --variant \"f16:\" --variant \"q8: -m q8_0.gguf --mmproj mm-q8_0.gguf\"
  llava-cli eval --tasks attr,count --n 5000 --seed 9 --write-data train/

All variants are in memory together; those with equal model flags share the weights. Answers are greedy (--temp 0) and at \
most 128 tokens long unless flags say otherwise.";

#[derive(Debug, Args)]
#[command(
    mut_arg("image", |a| a.hide(true)),
    mut_arg("prompt", |a| a.hide(true)),
    mut_arg("file", |a| a.hide(true)),
    mut_arg("temp", |a| a.default_value("0")),
    mut_arg("predict", |a| a.default_value("128")),
    mut_arg("seed", |a| a.default_value("1").help("Seed of the questions, and of the random choice where --temp is not 0"))
)]
pub struct EvalArgs {
    #[command(flatten)]
    pub what: WhatArgs,
    #[command(flatten)]
    pub setup: SetupArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Evaluation")]
pub struct WhatArgs {
    /// Built-in tasks, separated by commas; all: every one
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tasks: Vec<String>,
    /// Questions of each task [default: 100]; of --data, the first N in all [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub n: Option<u64>,
    /// Questions of your own, one JSON object a line
    #[arg(long, value_name = "FILE.jsonl", value_hint = ValueHint::FilePath, conflicts_with = "tasks")]
    pub data: Option<PathBuf>,
    /// Settings to compare, "name: flags", on top of those outside; repeat it for several
    #[arg(long, value_name = "NAME: FLAGS", allow_hyphen_values = true)]
    pub variant: Vec<String>,
    /// Judge answers with NAME: exact, numeric, contains, anls or choice; with TASK=NAME those of one task
    #[arg(long, value_name = "[TASK=]NAME")]
    pub scorer: Vec<ScorerChoice>,
    /// Folder for every answer and the reports; a started run goes on
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Write the questions as PNG and data.jsonl into a folder, and end
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["out", "variant"])]
    pub write_data: Option<PathBuf>,
}

/// What a variant may change.
#[derive(Debug, Clone, Args)]
pub struct SetupArgs {
    #[command(flatten)]
    pub prompt: PromptArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub picture: PictureArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub visual: VisualTokenArgs,
    /// Ask without showing the picture: what can be guessed from the question alone
    #[arg(long, help_heading = "Pictures")]
    pub blind: bool,
}

impl EvalArgs {
    /// Refuses flags that have no meaning here.
    pub fn check(&self) -> Result<()> {
        self.setup.check()
    }
}

impl WhatArgs {
    /// The scorers asked for, as they were asked for.
    pub fn scorers(&self) -> String {
        self.scorer.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

impl SetupArgs {
    pub fn check(&self) -> Result<()> {
        if self.prompt.prompt.is_some() || self.prompt.file.is_some() || !self.picture.image.is_empty() {
            let problem =
                Problem::usage("eval has its own questions and pictures: -p, -f and --image have no meaning here");
            return Err(problem.hint("questions of your own: --data FILE.jsonl").into());
        }
        Ok(())
    }

    /// The seed of the questions.
    pub fn seed(&self) -> u64 {
        self.sampling.seed.and_then(|s| s.0).map_or(1, u64::from)
    }
}
