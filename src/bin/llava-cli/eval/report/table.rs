//! The table that all reports show.

use crate::eval::summary::{Cell, Summary};

/// Column heads, and the rows below them: for each task the variants, then all tasks together.
pub fn cells(summary: &Summary) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let compared = summary.rows.len() > 1;
    let mut heads = vec!["task"];
    if compared {
        heads.push("variant");
    }
    heads.extend(["n", "right %", "95 %", "score %"]);
    if compared {
        heads.extend(["-/+", "p", "KL first", "top-1 %", "KL", "of first %"]);
    }
    heads.extend(["encode ms", "prefill ms", "first ms", "decode ms", "visual", "kept %", "text", "answer", "KV KiB"]);
    let mut rows = Vec::new();
    let all = (summary.tasks.len() > 1).then_some("all");
    let tasks = summary.tasks.iter().map(String::as_str).enumerate().map(|(i, t)| (Some(i), t));
    for (task, name) in tasks.chain(all.map(|name| (None, name))) {
        for row in &summary.rows {
            let cell = task.and_then(|i| row.tasks.get(i)).unwrap_or(&row.all);
            let mut line = vec![name.to_owned()];
            if compared {
                line.push(row.variant.clone());
            }
            line.extend(quality(cell));
            if compared {
                line.extend(comparison(cell));
            }
            line.extend(cost(cell));
            rows.push(line);
        }
    }
    (heads, rows)
}

fn percent(value: f64) -> String {
    if value.is_nan() { "-".into() } else { format!("{:.1}", value * 100.0) }
}

fn quality(cell: &Cell) -> [String; 4] {
    let interval = format!("{} to {}", percent(cell.share.low), percent(cell.share.high));
    [cell.n.to_string(), percent(cell.share.value), interval, percent(cell.score)]
}

fn comparison(cell: &Cell) -> [String; 6] {
    let none = || "-".to_owned();
    let (counts, p) = cell.paired.map_or_else(
        || (none(), none()),
        |p| (format!("{}/{}", p.lost, p.gained), if p.p < 0.001 { "<0.001".into() } else { format!("{:.3}", p.p) }),
    );
    let kl = |value: Option<f64>| value.map_or_else(none, nats);
    let share = |value: Option<f64>| value.map_or_else(none, percent);
    [counts, p, kl(cell.kl_first), share(cell.same_first), kl(cell.kl_mean), share(cell.retained)]
}

/// Four places, or the order of magnitude where they would all be zero.
fn nats(value: f64) -> String {
    if value == 0.0 || value >= 1e-3 { format!("{value:.4}") } else { format!("{value:.0e}") }
}

fn cost(cell: &Cell) -> [String; 9] {
    let ms = |value: f64| format!("{value:.1}");
    let tokens = |value: f64| format!("{value:.1}");
    [
        ms(cell.encode_ms),
        ms(cell.prefill_ms),
        ms(cell.ttft_ms),
        ms(cell.decode_ms),
        tokens(cell.visual_tokens),
        cell.kept.map_or_else(|| "-".into(), percent),
        tokens(cell.text_tokens),
        tokens(cell.decode_tokens),
        cell.kv_bytes.map_or_else(|| "-".into(), |bytes| format!("{:.1}", bytes / 1024.0)),
    ]
}

/// What the columns mean, in one paragraph.
pub const LEGEND: &str = "right: share of questions with full credit and its 95 % Wilson interval; score: mean credit; -/+: questions that \
    the first variant alone and this variant alone answered right; p: exact McNemar test of these; KL first: mean divergence from the first \
    variant's distribution at the first token of its answer that is not blank (nats); top-1: share of equal likeliest tokens there; KL: mean divergence per token along the \
    first variant's answer; of first: right answers as a share of the first variant's; times are medians, first: until the first token; visual, \
    text, answer: mean numbers of tokens; kept: mean share of the encoder's rows that the text model got; KV: mean size of prompt and \
    answer in the KV cache.";

/// Aligned with spaces: names to the left, numbers to the right.
pub fn text(summary: &Summary) -> String {
    let (heads, rows) = cells(summary);
    let names = if summary.rows.len() > 1 { 2 } else { 1 };
    let width = |column: usize| {
        let cells = rows.iter().map(|r| r[column].chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded =
            cells.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
                if i < names { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let heads: Vec<String> = heads.iter().map(|h| (*h).to_owned()).collect();
    std::iter::once(&heads).chain(&rows).map(|cells| line(cells)).collect()
}
