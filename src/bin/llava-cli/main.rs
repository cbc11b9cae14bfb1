//! `llava-cli`: ask GGUF models about pictures from the command line.
//!
//! What this room does: reads arguments, calls the library, prints. Model text goes to stdout, everything else to stderr.
//! What it never does: compute anything about models or pictures itself.
#![forbid(unsafe_code)]

mod args;
mod ask;
mod bench;
mod bitmap;
mod cache;
mod chat;
mod compress_flags;
mod console;
mod doctor;
mod embed;
mod escape;
mod eval;
mod exit;
mod files;
mod inspect;
mod legacy;
mod logging;
mod npy;
mod open;
mod params;
mod pictures;
mod progress;
mod quantize;
mod save;
mod signals;
mod talk;
mod usage;
mod values;
mod version;
mod vision;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

fn main() -> ExitCode {
    let started = Instant::now();
    let result = legacy::translate(std::env::args_os()).and_then(|argv| {
        // clap prints its own usage errors, help and version, and ends with 2 or 0
        run(args::Cli::parse_from(&argv), &argv, started)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}

fn run(cli: args::Cli, argv: &[OsString], started: Instant) -> anyhow::Result<()> {
    let interrupt = signals::Interrupt::install()?;
    match cli.command {
        Some(args::Command::Embed(args)) => {
            logging::start(args.output.verbose, &interrupt);
            embed::run(&args, &interrupt)
        }
        Some(args::Command::Eval(args)) => {
            logging::start(args.output.verbose, &interrupt);
            eval::run(&args, argv, &interrupt)
        }
        Some(args::Command::Bench(args)) => {
            logging::start(args.output.verbose, &interrupt);
            bench::run(&args, &interrupt, started)
        }
        Some(args::Command::Inspect(args)) => {
            logging::start(args.output.verbose, &interrupt);
            inspect::run(&args, &interrupt)
        }
        Some(args::Command::Cache(args)) => cache::run(&args),
        Some(args::Command::Doctor) => doctor::run(),
        Some(args::Command::Quantize(args)) => {
            logging::start(args.output_args.verbose, &interrupt);
            quantize::run(&args, &interrupt)
        }
        None => {
            logging::start(cli.ask.output.verbose, &interrupt);
            ask::run(&cli.ask, &interrupt, started)
        }
    }
}
