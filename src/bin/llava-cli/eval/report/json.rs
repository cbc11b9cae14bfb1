//! `report.json`.

use serde_json::{Value, json};

use crate::eval::plan::Plan;
use crate::eval::summary::{Cell, Summary};

pub fn report(plan: &Plan<'_>, summary: &Summary) -> String {
    let variants: Vec<Value> = summary
        .rows
        .iter()
        .zip(&plan.settings)
        .map(|(row, settings)| {
            let tasks: serde_json::Map<String, Value> =
                summary.tasks.iter().cloned().zip(row.tasks.iter().map(cell)).collect();
            json!({
                "name": row.variant,
                "compressor": row.compressor,
                "model": settings["model"],
                "projector": settings["projector"],
                "settings": settings["settings"],
                "tasks": tasks,
                "all": cell(&row.all),
            })
        })
        .collect();
    let report = json!({
        "format": 1,
        "program": plan.run["program"],
        "questions": plan.run["questions"],
        "scorers": plan.run["scorers"],
        "reference": plan.run["reference"],
        "tasks": summary.tasks,
        "variants": variants,
    });
    format!("{report:#}\n")
}

fn cell(cell: &Cell) -> Value {
    json!({
        "n": cell.n,
        "right": cell.right,
        "accuracy": cell.share.value,
        "accuracy_low": cell.share.low,
        "accuracy_high": cell.share.high,
        "score": cell.score,
        "lost": cell.paired.map(|p| p.lost),
        "gained": cell.paired.map(|p| p.gained),
        "mcnemar_p": cell.paired.map(|p| p.p),
        "retained": cell.retained,
        "kl_first": cell.kl_first,
        "same_first": cell.same_first,
        "kl_mean": cell.kl_mean,
        "encode_ms": cell.encode_ms,
        "prefill_ms": cell.prefill_ms,
        "decode_ms": cell.decode_ms,
        "ttft_ms": cell.ttft_ms,
        "text_tokens": cell.text_tokens,
        "visual_tokens": cell.visual_tokens,
        "decode_tokens": cell.decode_tokens,
        "kept_ratio": cell.kept,
        "kv_bytes": cell.kv_bytes,
    })
}
