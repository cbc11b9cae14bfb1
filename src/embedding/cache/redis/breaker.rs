//! A switch that keeps a server from being asked while it fails.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::embedding::cache::flight::lock;

/// Closed: everybody may ask. After a failure it is open for a pause; then one caller at a time may try, whose failure doubles
/// the pause and whose success closes it.
#[derive(Debug)]
pub(super) struct Breaker {
    first: Duration,
    longest: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Until when nobody may ask; `None` while closed.
    open: Option<Instant>,
    pause: Duration,
    trying: bool,
    /// Counts verdicts that moved the switch: callers who asked before the last one have no say any more.
    era: u64,
}

/// The right to ask once. Dropped without a verdict, it leaves the switch as it was.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    era: u64,
}

impl Breaker {
    pub(super) fn new(first: Duration, longest: Duration) -> Self {
        let state = State { open: None, pause: first, trying: false, era: 0 };
        Self { first, longest: longest.max(first), state: Mutex::new(state) }
    }

    /// `None` while the server is not to be asked.
    pub(super) fn enter(&self, now: Instant) -> Option<Pass<'_>> {
        let mut state = lock(&self.state);
        if let Some(until) = state.open {
            if state.trying || now < until {
                return None;
            }
            state.trying = true;
        }
        Some(Pass { breaker: self, era: state.era })
    }
}

impl Pass<'_> {
    pub(super) fn succeeded(self) {
        let mut state = lock(&self.breaker.state);
        if state.era == self.era && state.open.is_some() {
            state.open = None;
            state.pause = self.breaker.first;
            state.trying = false;
            state.era += 1;
        }
    }

    /// Gives the pause, where this failure is what began it.
    pub(super) fn failed(self, now: Instant) -> Option<Duration> {
        let mut state = lock(&self.breaker.state);
        if state.era != self.era {
            return None;
        }
        let doubled = state.pause.saturating_mul(2).min(self.breaker.longest);
        state.pause = if state.open.is_some() { doubled } else { self.breaker.first };
        state.open = Some(now + state.pause);
        state.trying = false;
        state.era += 1;
        Some(state.pause)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.breaker.state);
        if state.era == self.era {
            state.trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> (Breaker, Instant) {
        (Breaker::new(5 * SECOND, 60 * SECOND), Instant::now())
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_a_success_ends_them() {
        let (breaker, mut now) = breaker();
        for pause in [5, 10, 20, 40, 60, 60] {
            assert_eq!(breaker.enter(now).unwrap().failed(now), Some(pause * SECOND));
            now += pause * SECOND - SECOND;
            assert!(breaker.enter(now).is_none(), "{pause} s are not over");
            now += SECOND;
        }
        breaker.enter(now).unwrap().succeeded();
        let (a, b) = (breaker.enter(now).unwrap(), breaker.enter(now).unwrap());
        a.succeeded();
        assert_eq!(b.failed(now), Some(5 * SECOND));
    }

    #[test]
    fn one_at_a_time_tries() {
        let (breaker, now) = breaker();
        breaker.enter(now).unwrap().failed(now);
        let later = now + 5 * SECOND;
        let probe = breaker.enter(later).unwrap();
        assert!(breaker.enter(later).is_none());
        drop(probe);
        assert!(breaker.enter(later).is_some(), "one that gave up passes the right on");
    }

    #[test]
    fn failures_at_the_same_time_count_once() {
        let (breaker, now) = breaker();
        let passes: Vec<_> = (0..8).map(|_| breaker.enter(now).unwrap()).collect();
        let pauses: Vec<_> = passes.into_iter().map(|p| p.failed(now)).collect();
        assert_eq!(pauses.iter().flatten().count(), 1);
        let later = now + 5 * SECOND;
        assert_eq!(breaker.enter(later).unwrap().failed(later), Some(10 * SECOND));
    }

    #[test]
    fn who_asked_before_has_no_say_after() {
        let (breaker, now) = breaker();
        let (slow, slower) = (breaker.enter(now).unwrap(), breaker.enter(now).unwrap());
        breaker.enter(now).unwrap().failed(now);
        slow.succeeded();
        assert!(breaker.enter(now).is_none(), "an old answer does not close it");
        let later = now + 5 * SECOND;
        breaker.enter(later).unwrap().succeeded();
        assert_eq!(slower.failed(later), None);
        assert!(breaker.enter(later).is_some(), "an old failure does not open it");
    }
}
