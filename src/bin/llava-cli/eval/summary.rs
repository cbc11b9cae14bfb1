//! All answers of a variant to a task, in a few numbers.

use llava::compress::VisualTokenSetting;

use super::plan::Plan;
use super::record::Record;
use super::results::Results;
use super::stats::{Share, mcnemar, mean, median, wilson};
use super::variants::Variant;

/// One variant at one task, or at all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub n: usize,
    pub right: usize,
    /// Share of right answers.
    pub share: Share,
    /// Mean credit: more than `share.value` where scorers give parts.
    pub score: f64,
    /// Against the first variant; `None` for the first variant itself.
    pub paired: Option<Paired>,
    /// Right answers as a share of the first variant's.
    pub retained: Option<f64>,
    pub kl_first: Option<f64>,
    pub same_first: Option<f64>,
    pub kl_mean: Option<f64>,
    /// Medians, in milliseconds.
    pub encode_ms: f64,
    pub prefill_ms: f64,
    pub decode_ms: f64,
    pub ttft_ms: f64,
    /// Means.
    pub text_tokens: f64,
    pub visual_tokens: f64,
    pub decode_tokens: f64,
    /// Share of the encoder's rows that the text model got, question by question.
    pub kept: Option<f64>,
    /// What prompt and answer take in the KV cache.
    pub kv_bytes: Option<f64>,
}

/// Two variants on the same questions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paired {
    /// Right with the first variant, wrong with this one.
    pub lost: usize,
    /// The other way round.
    pub gained: usize,
    pub p: f64,
}

/// A variant's results.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub variant: String,
    /// The compressor, where it had something to do.
    pub compressor: Option<String>,
    /// As many as there are tasks, in their order.
    pub tasks: Vec<Cell>,
    /// All questions together.
    pub all: Cell,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub tasks: Vec<String>,
    pub rows: Vec<Row>,
}

impl Summary {
    pub fn new(plan: &Plan<'_>, results: &Results) -> Self {
        let of = |variant: &str, task: Option<&str>| -> Vec<&Record> {
            let items = plan.items.list.iter().filter(|i| task.is_none_or(|t| t == i.task));
            items.filter_map(|i| results.get(variant, &i.id)).collect()
        };
        let first = plan.variants.first().map_or("", |v| v.name.as_str());
        let cell = |variant: &str, task: Option<&str>| {
            let reference = (variant != first).then(|| of(first, task));
            Cell::new(&of(variant, task), reference.as_deref())
        };
        let rows = plan.variants.iter().map(|variant| Row {
            variant: variant.name.clone(),
            compressor: compressor(variant),
            tasks: plan.items.tasks.iter().map(|task| cell(&variant.name, Some(task))).collect(),
            all: cell(&variant.name, None),
        });
        Self { tasks: plan.items.tasks.clone(), rows: rows.collect() }
    }
}

fn compressor(variant: &Variant) -> Option<String> {
    let flags = &variant.setup.compress;
    (flags.visual_tokens != VisualTokenSetting::Full).then(|| flags.compressor.to_string())
}

impl Cell {
    /// `reference`: the first variant's answers to the same questions, in the same order.
    fn new(records: &[&Record], reference: Option<&[&Record]>) -> Self {
        let right = records.iter().filter(|r| r.is_right()).count();
        let middle = |value: fn(&Record) -> f64| median(records.iter().map(|r| value(r)).collect()).unwrap_or(0.0);
        let average = |value: fn(&Record) -> f64| mean(records.iter().map(|r| value(r))).unwrap_or(0.0);
        let shown = || records.iter().filter(|r| r.image_rows > 0);
        let distances = || records.iter().filter_map(|r| r.distance);
        Self {
            n: records.len(),
            right,
            share: wilson(right, records.len()),
            score: average(|r| r.score),
            paired: reference.map(|first| Paired::new(first, records)),
            retained: reference.and_then(|first| {
                let all = first.iter().filter(|r| r.is_right()).count();
                (all > 0).then(|| right as f64 / all as f64)
            }),
            kl_first: mean(distances().map(|d| d.first)),
            same_first: mean(distances().map(|d| if d.same_first { 1.0 } else { 0.0 })),
            kl_mean: mean(distances().map(|d| d.mean)),
            encode_ms: middle(|r| r.encode_ms),
            prefill_ms: middle(|r| r.prefill_ms),
            decode_ms: middle(|r| r.decode_ms),
            ttft_ms: middle(|r| r.ttft_ms),
            text_tokens: average(|r| r.text_tokens as f64),
            visual_tokens: average(|r| r.visual_tokens as f64),
            decode_tokens: average(|r| r.decode_tokens as f64),
            kept: mean(shown().map(|r| r.image_tokens as f64 / r.image_rows as f64)),
            kv_bytes: mean(records.iter().filter_map(|r| r.kv_bytes)),
        }
    }
}

impl Paired {
    fn new(first: &[&Record], this: &[&Record]) -> Self {
        let count =
            |a: bool, b: bool| first.iter().zip(this).filter(|(x, y)| (x.is_right(), y.is_right()) == (a, b)).count();
        let (lost, gained) = (count(true, false), count(false, true));
        Self { lost, gained, p: mcnemar(lost, gained) }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::eval::record::Distance;
    use crate::eval::record::tests::record;

    /// So many right answers.
    pub fn cell(right: usize, n: usize) -> Cell {
        let records: Vec<_> = (0..n).map(|i| record(if i < right { 1.0 } else { 0.0 })).collect();
        Cell::new(&records.iter().collect::<Vec<_>>(), None)
    }

    #[test]
    fn numbers_of_a_cell() {
        let records = [record(1.0), record(0.75), Record { distance: None, encode_ms: 9.0, ..record(1.0) }];
        let first = [record(0.0), record(1.0), record(1.0)];
        let cell = Cell::new(&records.each_ref(), Some(&first.each_ref()));
        assert_eq!((cell.n, cell.right), (3, 2));
        assert!((cell.score - 2.75 / 3.0).abs() < 1e-12);
        assert_eq!(cell.paired, Some(Paired { lost: 1, gained: 1, p: 1.0 }));
        assert_eq!((cell.kl_first, cell.same_first), (Some(0.25), Some(0.0)));
        assert_eq!((cell.encode_ms, cell.visual_tokens), (1.5, 49.0));
        assert_eq!((cell.kept, cell.kv_bytes, cell.retained), (Some(0.25), Some(1024.0), Some(1.0)));
        let alone = Cell::new(&[&Record { distance: None::<Distance>, ..record(0.0) }], None);
        assert_eq!((alone.paired, alone.kl_mean, alone.retained), (None, None, None));
        let blind = Cell::new(&[&Record { image_rows: 0, image_tokens: 0, kv_bytes: None, ..record(0.0) }], None);
        assert_eq!((blind.kept, blind.kv_bytes), (None, None));
    }
}
