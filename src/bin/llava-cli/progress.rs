//! Loading: a percentage for whoever watches, and a way to stop.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use llava::llama::Progress;

use crate::console;
use crate::signals::Interrupt;

/// Loads shorter than this say nothing.
const PATIENCE: Duration = Duration::from_millis(700);

/// Shows how far loading is, on a terminal, and stops it on Ctrl-C.
pub fn progress(what: &'static str, interrupt: &Interrupt) -> Progress {
    shown(move |percent| format!("loading {what}: {percent} %"), interrupt)
}

/// Shows how far some work is, likewise.
pub fn working(what: &'static str, interrupt: &Interrupt) -> Progress {
    shown(
        move |percent| {
            let done = percent as usize / 4;
            format!("{what} [{}{}] {percent:>2} %", "#".repeat(done), ".".repeat(25 - done))
        },
        interrupt,
    )
}

fn shown(line: impl Fn(u32) -> String + Send + Sync + 'static, interrupt: &Interrupt) -> Progress {
    let interrupt = interrupt.clone();
    let started = Instant::now();
    let shown = AtomicU32::new(u32::MAX);
    let visible = io::stderr().is_terminal();
    Arc::new(move |fraction| {
        let percent = (fraction.clamp(0.0, 1.0) * 100.0) as u32;
        let before = shown.load(Ordering::Relaxed);
        if visible && percent != before && (before != u32::MAX || started.elapsed() > PATIENCE) {
            shown.store(percent, Ordering::Relaxed);
            // wipes itself out in the end
            let line = if percent < 100 { format!("\r{}", line(percent)) } else { format!("\r{:70}\r", "") };
            console::show(line);
        }
        !interrupt.is_pressed()
    })
}
