//! The result for programs, with the facts that its numbers depend on.

use std::path::Path;

use llava::TokenCount;
use llava::llama::physical_cores;
use serde_json::{Value, json};

use super::Plain;
use super::figures::Figure;
use super::flags::BenchArgs;
use super::rows::{Row, Rows};
use super::stage::{QUESTIONS, Stage};
use super::stats::{Stats, ms};
use super::table;
use crate::version;

/// The object of `--json`. All times are in milliseconds; ratios say how many times shorter ours was.
pub fn json(args: &BenchArgs, stage: &Stage<'_>, rows: &Rows, figures: &[Figure]) -> Value {
    let opened = &stage.opened;
    let picture = opened.picture.image();
    let visual = opened
        .projector
        .prepare_placeholder(picture.width_px(), picture.height_px(), TokenCount::ZERO, 0)
        .map(|p| p.visual_tokens().get())
        .ok();
    let context = &opened.params.context;
    let threads = context.threads.unwrap_or_else(physical_cores);
    json!({
        "build": build(),
        "machine": machine(stage),
        "model": file(&opened.files.model),
        "projector": opened.files.projector.as_deref().map(file),
        "picture": { "width_px": picture.width_px(), "height_px": picture.height_px(), "visual_tokens": visual },
        "settings": {
            "rounds": args.runs,
            "answer_tokens": args.predict,
            "turns": args.turns,
            "questions": QUESTIONS,
            "threads": threads,
            "threads_batch": context.threads_batch.unwrap_or(threads),
            "n_ctx": context.n_ctx,
            "n_batch": context.n_batch,
            "n_ubatch": context.n_ubatch,
        },
        "plain": { "name": Plain::SHORT, "about": Plain::NAME },
        "load_ms": ms(stage.load),
        "scenarios": rows.0.iter().map(scenario).collect::<Vec<_>>(),
        "parts": figures.iter().map(part).collect::<Vec<_>>(),
    })
}

fn scenario(row: &Row) -> Value {
    let [ours_first, other_first] = row.first_token_ms();
    let [ours_whole, other_whole] = row.whole_ms();
    let encoded = row.most(|s| s.encoded);
    let visual = row.most(|s| s.visual_prefilled);
    let loads = row.load_ms();
    let side = |which: usize, first: &[f64], whole: &[f64]| {
        json!({
            "first_token_ms": spread(first),
            "whole_ms": spread(whole),
            "encoder_calls": encoded[which],
            "visual_tokens_prefilled": visual[which],
            "load_ms": loads.map(|l| stats(l[which])),
        })
    };
    json!({
        "name": row.kind.id,
        "about": row.kind.about.trim(),
        "against": table::against(row.kind.against),
        "ours": side(0, &ours_first, &ours_whole),
        "other": side(1, &other_first, &other_whole),
        "first_token_ratio": spread(&row.first_token_ratios()),
        "whole_ratio": spread(&row.whole_ratios()),
        "answers_have_to_be_equal": row.kind.exact,
        "answers_equal": row.equal(),
        "rounds": row.pairs.len(),
    })
}

fn part(figure: &Figure) -> Value {
    json!({
        "name": figure.id,
        "about": figure.about,
        "unit": figure.unit.name(),
        "value": spread(&figure.values),
        "share_of_encoding": figure.share().map(|_| spread(&figure.shares)),
    })
}

fn stats(stats: Stats) -> Value {
    json!({ "median": stats.median, "min": stats.min, "max": stats.max })
}

fn spread(values: &[f64]) -> Value {
    let mut object = stats(Stats::of(values.iter().copied()));
    object["all"] = json!(values);
    object
}

/// What `--version` says, by name.
fn build() -> Value {
    let mut lines = version::text().lines();
    let mut facts = serde_json::Map::new();
    facts.insert("version".into(), lines.next().into());
    for (name, fact) in lines.filter_map(|l| l.split_once(": ")) {
        facts.insert(name.to_owned(), fact.into());
    }
    Value::Object(facts)
}

fn machine(stage: &Stage<'_>) -> Value {
    let devices: Vec<String> = stage.opened.model.backend().devices().into_iter().map(|d| d.description).collect();
    json!({
        "os": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "cpu": cpu(),
        "logical_cores": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "physical_cores": physical_cores(),
        "devices": devices,
    })
}

/// The CPU's own name, where the system tells it.
fn cpu() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn file(path: &Path) -> Value {
    json!({
        "file": path.file_name().unwrap_or_default().to_string_lossy(),
        "bytes": std::fs::metadata(path).map(|m| m.len()).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_told_by_name() {
        let build = build();
        for name in ["version", "llama.cpp", "back-ends", "CPU baseline", "target"] {
            assert!(build[name].as_str().is_some_and(|s| !s.is_empty()), "{name}: {build}");
        }
    }

    #[test]
    fn a_spread_keeps_every_value() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), json!({"median": 2.0, "min": 1.0, "max": 3.0, "all": [3.0, 1.0, 2.0]}));
    }
}
