//! Log lines on stderr.

use std::io;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets, dynamic_filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::signals::Interrupt;

/// Where the library sends llama.cpp's own lines.
const NATIVE: &str = "llama_cpp";

/// Shows this crate's lines from warnings on and llama.cpp's from errors on; each `-v` shows more of both.
///
/// While an answer is being stopped, llama.cpp calls its unfinished work an error. That is no news to who pressed Ctrl-C.
pub fn start(verbose: u8, interrupt: &Interrupt) {
    let (ours, native) = match verbose {
        0 => (LevelFilter::WARN, LevelFilter::ERROR),
        1 => (LevelFilter::INFO, LevelFilter::WARN),
        2 => (LevelFilter::DEBUG, LevelFilter::DEBUG),
        _ => (LevelFilter::TRACE, LevelFilter::TRACE),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(verbose >= 2)
        // it would print with a macro that panics where stderr is closed
        .log_internal_errors(false);
    let interrupt = interrupt.clone();
    let wanted = dynamic_filter_fn(move |line, _| verbose >= 2 || line.target() != NATIVE || !interrupt.is_pressed());
    let filter = Targets::new().with_default(ours).with_target(NATIVE, native);
    // a second start, as in tests, keeps the first
    let _ = tracing_subscriber::registry().with(filter).with(lines.with_filter(wanted)).try_init();
}
