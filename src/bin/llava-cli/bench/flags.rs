//! Flags of `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint, builder::RangedU64ValueParser};

use super::child::Task;
use crate::args::{ContextArgs, ModelArgs, OutputArgs, PictureArgs};

pub const LONG_ABOUT: &str = "\
Measure what reuse saves, against the path that has none.

Every scenario runs by turns with our side and with the plain path; ratios are taken pair by pair. \
In builds with the feature `parity` the plain path is upstream's helper, which encodes and prefills everything for every \
question, as a caller without state does, on the same handles and threads. \
In other builds it is this library with cache and reuse off.

Times are from the question to its first token; loading models and making contexts are not in them. \
Answers are greedy, and where both sides do the same arithmetic they have to be equal. \
Caches lie in a temporary folder. The result goes to stdout.

Scenarios:
  cold     first answer about a picture; and what a cache that is on and empty adds to it
  second   second question in the same session
  session  same picture in a new session: from the shared cache in memory, and from a kept KV state
  process  same picture in a new process: nothing kept, rows on the disk, a KV state on the disk
  chat     a whole conversation about one picture (--turns)
  text     a question without a picture
  micro    hits as a share of the encoder's time, hashing speed";

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    Cold,
    Second,
    Session,
    Process,
    Chat,
    Text,
    Micro,
}

impl Scenario {
    /// Those that answer questions, in the order they run in.
    pub const ROUNDS: [Self; 6] = [Self::Cold, Self::Second, Self::Session, Self::Process, Self::Chat, Self::Text];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Second => "second",
            Self::Session => "session",
            Self::Process => "process",
            Self::Chat => "chat",
            Self::Text => "text",
            Self::Micro => "micro",
        }
    }
}

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Rounds; each gives one pair of times for every row
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000), help_heading = "Benchmark")]
    pub runs: usize,
    /// What to measure, separated by commas [default: everything]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Benchmark")]
    pub scenario: Vec<Scenario>,
    /// Most tokens of an answer
    #[arg(short = 'n', long, visible_alias = "n-predict", value_name = "N", default_value_t = 8, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000), help_heading = "Benchmark")]
    pub predict: usize,
    /// Questions of the conversation in the scenario `chat`
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000), help_heading = "Benchmark")]
    pub turns: usize,
    /// Write every time, ratio and fact of the machine as one JSON object
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Benchmark")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub picture: PictureArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// What a child process does for its parent.
    #[arg(long, hide = true)]
    pub child: Option<Task>,
    /// Where the child's caches lie.
    #[arg(long, hide = true)]
    pub child_dir: Option<PathBuf>,
}

impl BenchArgs {
    pub fn wants(&self, scenario: Scenario) -> bool {
        self.scenario.is_empty() || self.scenario.contains(&scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
        match Cli::try_parse_from(line.split(' '))?.command {
            Some(Command::Bench(args)) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn everything_is_measured_unless_something_is_named() {
        let all = parse("llava-cli bench").unwrap();
        assert_eq!((all.runs, all.predict, all.turns), (5, 8, 4));
        assert!(Scenario::ROUNDS.into_iter().all(|s| all.wants(s)) && all.wants(Scenario::Micro));
        let some = parse("llava-cli bench --scenario cold,text --runs 2").unwrap();
        assert!(some.wants(Scenario::Cold) && some.wants(Scenario::Text) && !some.wants(Scenario::Micro));
        assert_eq!(some.runs, 2);
    }

    #[test]
    fn nothing_is_not_measured() {
        for line in ["--runs 0", "-n 0", "--turns 0", "--scenario warm"] {
            assert!(parse(&format!("llava-cli bench {line}")).is_err(), "{line}");
        }
    }

    #[test]
    fn names_are_those_that_are_parsed() {
        for scenario in Scenario::value_variants() {
            assert_eq!(Scenario::from_str(scenario.name(), false), Ok(*scenario));
        }
    }
}
