//! How far a run is, for whoever watches.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::console;

/// A bar is drawn at most this often.
const PAUSE: Duration = Duration::from_millis(200);
const WIDTH: usize = 30;

/// A bar on a terminal; nothing elsewhere.
#[derive(Debug)]
pub struct Bar {
    total: usize,
    done: usize,
    /// Done in this run.
    new: usize,
    started: Instant,
    drawn: Option<Instant>,
    visible: bool,
}

impl Bar {
    pub fn new(total: usize, done: usize) -> Self {
        Self { total, done, new: 0, started: Instant::now(), drawn: None, visible: io::stderr().is_terminal() }
    }

    pub fn step(&mut self) {
        self.done += 1;
        self.new += 1;
        let due = self.drawn.is_none_or(|at| at.elapsed() > PAUSE) || self.done == self.total;
        if self.visible && due {
            self.drawn = Some(Instant::now());
            console::show(format_args!("\r{}", self.line()));
        }
    }

    fn line(&self) -> String {
        let full = (WIDTH * self.done).checked_div(self.total).unwrap_or(WIDTH);
        let rate = self.new as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        let left = (self.total - self.done) as f64 / rate.max(1e-6);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(WIDTH - full));
        format!("[{bar}] {}/{}  {rate:.1}/s  {} left   ", self.done, self.total, duration(left))
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            console::show(format_args!("\r{:78}\r", ""));
        }
    }
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let mut bar = Bar::new(3, 1);
        bar.visible = false;
        assert!(bar.line().starts_with("[##########....................] 1/3"), "{}", bar.line());
        bar.step();
        bar.step();
        assert!(bar.line().starts_with("[##############################] 3/3"), "{}", bar.line());
        let texts: Vec<String> = [0.0, 119.0, 119.2, 7260.0].into_iter().map(duration).collect();
        assert_eq!(texts, ["0 s", "119 s", "2 min", "2 h 1 min"]);
    }
}
