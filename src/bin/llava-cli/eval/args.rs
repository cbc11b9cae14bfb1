//! The command line of `eval`: what is asked, and the settings that a variant may change.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use clap::{Args, ValueHint};
use llava::compress::{CompressorSpec, Method, VisualTokenSetting};

use super::score::ScorerChoice;
use crate::args::{ContextArgs, ModelArgs, OutputArgs, PictureArgs, PromptArgs, SamplingArgs};
use crate::compress_flags::{self, CompressFlags, PositionArgs, VisualTokenArgs};
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
  llava-cli eval --out runs/budgets --visual-tokens 16,32,64,98,auto --compressor div-c,pool,random
  llava-cli eval --tasks attr,count --n 5000 --seed 9 --write-data train/

--visual-tokens and --compressor with lists stand for variants: one with all tokens, which the others are compared with, and one \
for each budget with each compressor. With --variant they are flags like others, one value each.

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
    pub sweep: SweepArgs,
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

/// Budgets and compressors: a list stands for variants.
#[derive(Debug, Args)]
#[command(next_help_heading = "Visual tokens")]
pub struct SweepArgs {
    /// How many visual tokens of a picture the text model gets: full, auto, numbers, or shares such as 33%; several, separated by
    /// commas, are compared with full
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = compress_flags::setting)]
    pub visual_tokens: Vec<VisualTokenSetting>,
    /// How they become fewer, NAME[:K=V,...]; several, separated by commas, are compared [default: div-c]
    #[arg(long, value_name = "LIST")]
    pub compressor: Vec<CompressorList>,
}

/// Compressors separated by commas. Options hold commas too: a part that names no method belongs to the one before it.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressorList(pub Vec<CompressorSpec>);

impl FromStr for CompressorList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names_method = |part: &str| {
            let name = part.split(':').next().unwrap_or_default();
            Method::ALL.iter().any(|method| method.name() == name)
        };
        let mut specs: Vec<String> = Vec::new();
        for part in text.split(',') {
            match specs.last_mut() {
                Some(last) if !names_method(part) && last.contains(':') => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => specs.push(part.to_owned()),
            }
        }
        let is_list = specs.len() > 1;
        // clap names the whole list
        let named = |spec: &String, why: String| if is_list { format!("`{spec}`: {why}") } else { why };
        let read = |spec: &String| compress_flags::compressor(spec).map_err(|why| named(spec, why));
        specs.iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl SweepArgs {
    /// All compressors of all lists.
    pub fn compressors(&self) -> Vec<CompressorSpec> {
        self.compressor.iter().flat_map(|list| list.0.iter().cloned()).collect()
    }
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
    /// From the command line's lists or the variant's own flags.
    #[arg(skip)]
    pub compress: CompressFlags,
    #[command(flatten)]
    pub positions: PositionArgs,
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

    /// What a session is told about visual tokens.
    pub fn visual(&self) -> VisualTokenArgs {
        VisualTokenArgs { flags: self.compress.clone(), positions: self.positions }
    }

    /// The seed of the questions.
    pub fn seed(&self) -> u64 {
        self.sampling.seed.and_then(|s| s.0).map_or(1, u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_compressors_keep_their_options() {
        let of = |text: &str| {
            text.parse::<CompressorList>().map(|l| l.0.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of("div-c"), Ok(vec!["div-c".to_owned()]));
        let many = of("div-c:quota=0.25,merge=0.5,pool,random:seed=2,resampler:file=a,b.gguf").unwrap();
        assert_eq!(many, ["div-c:quota=0.25,merge=0.5", "pool", "random:seed=2", "resampler:file=a,b.gguf"]);
        for (text, words) in
            [("pool,diff", "`diff`: known"), ("div-c:quota=2,pool", "quota=2: 0 to 1"), ("pool,", "known: full")]
        {
            let said = of(text).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
