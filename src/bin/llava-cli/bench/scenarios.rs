//! One round of each scenario. Who comes first changes from round to round: whatever drifts (clock, heat) hits both sides.

use anyhow::Result;
use llava::session::Part;

use super::child::{self, Task};
use super::flags::Scenario;
use super::rows::{
    CHAT, COLD, COST_DISK, COST_MEMORY, COST_STATES, PROCESS_DISK, PROCESS_EMPTY, PROCESS_STATES, Rows, SECOND,
    SESSION_MEMORY, SESSION_STATES, TEXT,
};
use super::sample::{Sample, ask};
use super::stage::{Caches, Stage, TEXT_QUESTION};

pub fn round(scenario: Scenario, stage: &mut Stage<'_>, round: usize, rows: &mut Rows) -> Result<()> {
    match scenario {
        Scenario::Cold => cold(stage, round, rows),
        Scenario::Second => second(stage, round, rows),
        Scenario::Session => session(stage, round, rows),
        Scenario::Process => process(stage, round, rows),
        Scenario::Chat => chat(stage, round, rows),
        Scenario::Text => text(stage, round, rows),
        // measured before the rounds
        Scenario::Micro => Ok(()),
    }
}

/// Runs `N` sides in order or, every other round, in reverse, and gives their samples in order.
fn by_turns<const N: usize>(round: usize, mut side: impl FnMut(usize) -> Result<Sample>) -> Result<[Sample; N]> {
    let mut samples = [(); N].map(|()| Sample::default());
    for turn in 0..N {
        let which = if round.is_multiple_of(2) { turn } else { N - 1 - turn };
        samples[which] = side(which)?;
    }
    Ok(samples)
}

/// New contexts on every side: memory that was used before is faster.
fn cold(stage: &mut Stage<'_>, round: usize, rows: &mut Rows) -> Result<()> {
    let question = stage.opened.question(0);
    let interrupt = stage.interrupt;
    // those that are compared stand side by side
    let [plain, memory, off, disk, states] = by_turns(round, |side| {
        let caches = match side {
            0 => return stage.opened.plain()?.answer(&[], &question, interrupt),
            1 => Caches::memory(),
            2 => return stage.opened.off()?.answer(&[], &question, interrupt),
            3 => Caches::disk(&stage.fresh_folder()),
            _ => Caches::states(&stage.fresh_folder()),
        };
        ask(&mut stage.opened.session(caches)?, &question, interrupt)
    })?;
    rows.push(COLD, memory.clone(), plain)?;
    rows.push(COST_MEMORY, memory, off.clone())?;
    rows.push(COST_DISK, disk, off.clone())?;
    rows.push(COST_STATES, states, off)
}

fn second(stage: &mut Stage<'_>, round: usize, rows: &mut Rows) -> Result<()> {
    let interrupt = stage.interrupt;
    // rows from the warm cache: how the first question was answered makes no difference to the second
    let caches = Caches { states: None, ..stage.warm.clone() };
    let mut session = stage.opened.session(caches)?;
    ask(&mut session, &stage.opened.question(0), interrupt)?;
    let history = session.messages().to_vec();
    let question = stage.opened.question(1);
    let [ours, plain] = by_turns(round, |side| match side {
        0 => ask(&mut session, &question, interrupt),
        _ => stage.plain.answer(&history, &question, interrupt),
    })?;
    rows.push(SECOND, ours, plain)
}

fn session(stage: &mut Stage<'_>, round: usize, rows: &mut Rows) -> Result<()> {
    let question = stage.opened.question(0);
    let interrupt = stage.interrupt;
    let [memory, states, plain] = by_turns(round, |side| {
        let caches = match side {
            0 => Caches { states: None, ..stage.warm.clone() },
            1 => stage.warm.clone(),
            _ => return stage.opened.plain()?.answer(&[], &question, interrupt),
        };
        ask(&mut stage.opened.session(caches)?, &question, interrupt)
    })?;
    rows.push(SESSION_MEMORY, memory, plain.clone())?;
    rows.push(SESSION_STATES, states, plain)
}

fn process(stage: &mut Stage<'_>, round: usize, rows: &mut Rows) -> Result<()> {
    let [disk, states, empty, plain] = by_turns(round, |side| {
        let (task, folder) = match side {
            0 => (Task::Disk, stage.known(Task::Disk)),
            1 => (Task::States, stage.known(Task::States)),
            2 => (Task::Disk, stage.fresh_folder()),
            _ => (Task::Plain, stage.fresh_folder()),
        };
        child::ask(task, &folder, stage.interrupt)
    })?;
    rows.push(PROCESS_EMPTY, empty, plain.clone())?;
    rows.push(PROCESS_DISK, disk, plain.clone())?;
    rows.push(PROCESS_STATES, states, plain)
}

/// Turn by turn. The plain side gets our answers as its history, so that both are asked the same.
fn chat(stage: &mut Stage<'_>, round: usize, rows: &mut Rows) -> Result<()> {
    let interrupt = stage.interrupt;
    let mut session = stage.opened.session(Caches::memory())?;
    let (mut ours, mut plain) = (Sample::default(), Sample::default());
    for turn in 0..stage.turns {
        let history = session.messages().to_vec();
        let question = stage.opened.question(turn);
        let [mine, theirs] = by_turns(round + turn, |side| match side {
            0 => ask(&mut session, &question, interrupt),
            _ => stage.plain.answer(&history, &question, interrupt),
        })?;
        ours.add(&mine);
        plain.add(&theirs);
    }
    rows.push(CHAT, ours, plain)
}

fn text(stage: &mut Stage<'_>, round: usize, rows: &mut Rows) -> Result<()> {
    let question = [Part::from(TEXT_QUESTION)];
    let interrupt = stage.interrupt;
    let [ours, plain] = by_turns(round, |side| match side {
        0 => {
            let session = stage.text_session()?;
            session.clear();
            ask(session, &question, interrupt)
        }
        _ => stage.plain.answer(&[], &question, interrupt),
    })?;
    rows.push(TEXT, ours, plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_turns_around_and_the_samples_do_not() {
        for (round, order) in [(0, [0, 1, 2]), (1, [2, 1, 0]), (2, [0, 1, 2])] {
            let mut seen = Vec::new();
            let samples = by_turns::<3>(round, |side| {
                seen.push(side);
                Ok(Sample { encoded: side, ..Sample::default() })
            });
            assert_eq!(seen, order);
            assert_eq!(samples.unwrap().map(|s| s.encoded), [0, 1, 2]);
        }
    }
}
