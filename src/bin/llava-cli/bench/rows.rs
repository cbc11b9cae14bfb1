//! What was measured, row by row: pairs of answers.

use anyhow::Result;

use super::sample::Sample;
use super::stage::differ;
use super::stats::{Stats, ms, ratio};

/// What ours is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// The plain path.
    Plain,
    /// This library with cache and reuse off.
    Off,
}

/// A row: what is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name in JSON.
    pub id: &'static str,
    pub about: &'static str,
    pub against: Against,
    /// Both sides do the same arithmetic, so that their answers have to be equal. Where a prompt's tail is decoded alone, sums
    /// are taken in another order, and a close choice may fall otherwise.
    pub exact: bool,
}

const fn plain(id: &'static str, about: &'static str) -> Kind {
    Kind { id, about, against: Against::Plain, exact: true }
}

const fn cost(id: &'static str, about: &'static str) -> Kind {
    Kind { id, about, against: Against::Off, exact: true }
}

const fn reuse(id: &'static str, about: &'static str) -> Kind {
    Kind { id, about, against: Against::Plain, exact: false }
}

pub const COLD: Kind = plain("cold", "first answer, cache on and empty");
pub const COST_MEMORY: Kind = cost("cost-memory", "  the same against cache off");
pub const COST_DISK: Kind = cost("cost-disk", "  and a disk tier, against cache off");
pub const COST_STATES: Kind = cost("cost-states", "  and KV states kept, against cache off");
pub const SECOND: Kind = reuse("second", "second question, same session");
pub const SESSION_MEMORY: Kind = plain("session-memory", "new session, rows in memory");
pub const SESSION_STATES: Kind = plain("session-states", "new session, KV state in memory");
pub const PROCESS_EMPTY: Kind = plain("process-empty", "new process, disk tier on and empty");
pub const PROCESS_DISK: Kind = plain("process-disk", "new process, rows on the disk");
pub const PROCESS_STATES: Kind = plain("process-states", "new process, KV state on the disk");
pub const CHAT: Kind = reuse("chat", "whole chat, all turns");
pub const TEXT: Kind = plain("text", "text only");

/// A row and its pairs, one for each round.
#[derive(Debug, Clone)]
pub struct Row {
    pub kind: Kind,
    pub pairs: Vec<(Sample, Sample)>,
}

impl Row {
    /// Milliseconds to the first token: ours, and the other side's.
    pub fn first_token_ms(&self) -> [Vec<f64>; 2] {
        self.both(|s| ms(s.first_token))
    }

    /// Milliseconds to the end of the answer.
    pub fn whole_ms(&self) -> [Vec<f64>; 2] {
        self.both(|s| ms(s.whole))
    }

    /// How many times shorter ours was to the first token, pair by pair.
    pub fn first_token_ratios(&self) -> Vec<f64> {
        self.pairs.iter().map(|(ours, other)| ratio(ms(other.first_token), ms(ours.first_token))).collect()
    }

    /// The same for whole answers.
    pub fn whole_ratios(&self) -> Vec<f64> {
        self.pairs.iter().map(|(ours, other)| ratio(ms(other.whole), ms(ours.whole))).collect()
    }

    /// The largest number of any round: it is the same in all of them, unless something was evicted.
    pub fn most(&self, of: impl Fn(&Sample) -> usize) -> [usize; 2] {
        let most = |values: &mut dyn Iterator<Item = usize>| values.max().unwrap_or(0);
        [most(&mut self.pairs.iter().map(|p| of(&p.0))), most(&mut self.pairs.iter().map(|p| of(&p.1)))]
    }

    /// Rounds in which both sides said the same.
    pub fn equal(&self) -> usize {
        self.pairs.iter().filter(|(ours, other)| ours.agrees(other)).count()
    }

    /// Milliseconds of loading, where processes of their own answered.
    pub fn load_ms(&self) -> Option<[Stats; 2]> {
        let loads: Option<Vec<(f64, f64)>> = self.pairs.iter().map(|(a, b)| Some((ms(a.load?), ms(b.load?)))).collect();
        let loads = loads.filter(|l| !l.is_empty())?;
        Some([Stats::of(loads.iter().map(|l| l.0)), Stats::of(loads.iter().map(|l| l.1))])
    }

    fn both(&self, of: impl Fn(&Sample) -> f64) -> [Vec<f64>; 2] {
        [self.pairs.iter().map(|p| of(&p.0)).collect(), self.pairs.iter().map(|p| of(&p.1)).collect()]
    }
}

/// All rows, in the order in which they were first measured.
#[derive(Debug, Default)]
pub struct Rows(pub Vec<Row>);

impl Rows {
    /// Adds a pair, ours first.
    ///
    /// Fails where the two had to say the same and did not: then the times compare different work.
    pub fn push(&mut self, kind: Kind, ours: Sample, other: Sample) -> Result<()> {
        if kind.exact && !ours.agrees(&other) {
            return Err(differ(kind.about.trim(), &ours, &other));
        }
        match self.0.iter_mut().find(|r| r.kind.id == kind.id) {
            Some(row) => row.pairs.push((ours, other)),
            None => self.0.push(Row { kind, pairs: vec![(ours, other)] }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(first_ms: u64, text: &str) -> Sample {
        let first_token = Duration::from_millis(first_ms);
        Sample { first_token, whole: first_token * 2, text: text.into(), ..Sample::default() }
    }

    #[test]
    fn pairs_are_kept_by_row_and_compared_one_by_one() {
        let mut rows = Rows::default();
        rows.push(COLD, sample(10, "a"), sample(20, "a")).unwrap();
        rows.push(TEXT, sample(1, "b"), sample(1, "b")).unwrap();
        rows.push(COLD, sample(20, "a"), sample(10, "a")).unwrap();
        assert_eq!(rows.0.iter().map(|r| (r.kind.id, r.pairs.len())).collect::<Vec<_>>(), [("cold", 2), ("text", 1)]);
        assert_eq!(rows.0[0].first_token_ratios(), [2.0, 0.5]);
        assert_eq!(rows.0[0].whole_ms(), [[20.0, 40.0], [40.0, 20.0]]);
        assert_eq!((rows.0[0].equal(), rows.0[0].load_ms()), (2, None));
    }

    /// A machine that slows down between two rounds changes both times of a pair, not their ratio.
    #[test]
    fn ratios_are_not_those_of_medians() {
        let mut rows = Rows::default();
        for (ours, other) in [(10, 100), (100, 1000), (3, 30)] {
            rows.push(COLD, sample(ours, "a"), sample(other, "a")).unwrap();
        }
        assert_eq!(rows.0[0].first_token_ratios(), [10.0; 3]);
    }

    #[test]
    fn different_answers_are_an_error_where_the_arithmetic_is_the_same() {
        let mut rows = Rows::default();
        let error = rows.push(COLD, sample(1, "a"), sample(1, "b")).unwrap_err();
        assert!(error.to_string().contains("first answer") && rows.0.is_empty(), "{error}");
        rows.push(SECOND, sample(1, "a"), sample(1, "b")).unwrap();
        assert_eq!(rows.0[0].equal(), 0);
    }

    #[test]
    fn loading_is_told_where_processes_answered() {
        let mut rows = Rows::default();
        let with = |ms| Sample { load: Some(Duration::from_millis(ms)), ..sample(1, "a") };
        rows.push(PROCESS_DISK, with(5), with(7)).unwrap();
        assert_eq!(rows.0[0].load_ms().map(|[a, b]| (a.median, b.median)), Some((5.0, 7.0)));
    }
}
