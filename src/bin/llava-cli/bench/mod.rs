//! `llava-cli bench`: what reuse saves, measured against the path that has none.
//!
//! What this room does: runs each scenario by turns with our side and with the plain path, compares their answers, prints a table,
//! writes JSON.
//! What it never does: touch the user's cache, or report a ratio whose two sides were not measured in the same round.
//! Who calls it: `main`; and itself, as child processes, for what only a new process shows.

mod child;
mod figures;
mod flags;
mod off;
mod picture;
mod report;
mod rows;
mod sample;
mod scenarios;
mod stage;
mod stats;
mod table;
#[cfg(feature = "parity")]
mod upstream;

use std::time::Instant;

use anyhow::Result;

pub use flags::{BenchArgs, LONG_ABOUT};
#[cfg(not(feature = "parity"))]
use off::Off as Plain;
#[cfg(feature = "parity")]
use upstream::Upstream as Plain;

use crate::console;
use crate::save::save;
use crate::signals::Interrupt;
use figures::Figure;
use flags::Scenario;
use rows::Rows;
use stage::Stage;

/// Measures and prints, or, as a child, answers once and reports to its parent.
pub fn run(args: &BenchArgs, interrupt: &Interrupt, started: Instant) -> Result<()> {
    if let Some(task) = args.child {
        return child::serve(task, args, interrupt, started);
    }
    if cfg!(debug_assertions) {
        console::note(
            "this program was built without --release: what is Rust in these times is slower than it has to be",
        );
    }
    let mut stage = Stage::open(args, interrupt)?;
    let mut rows = Rows::default();
    let mut figures = Vec::new();
    if args.wants(Scenario::Micro) {
        figures = Figure::all(&stage, args.runs)?;
    }
    let scenarios: Vec<Scenario> = Scenario::ROUNDS.into_iter().filter(|s| args.wants(*s)).collect();
    if !scenarios.is_empty() {
        stage.warm_up(&scenarios)?;
    }
    for round in 0..args.runs {
        for scenario in &scenarios {
            tracing::info!(round = round + 1, of = args.runs, scenario = scenario.name(), "measuring");
            scenarios::round(*scenario, &mut stage, round, &mut rows)?;
        }
    }
    console::print(&table::text(&rows, &figures, args.turns))?;
    if let Some(path) = &args.json {
        let report = report::json(args, &stage, &rows, &figures);
        save(path, format!("{report:#}\n").as_bytes())?;
    }
    Ok(())
}
