//! `report.md`.

use super::budget;
use super::table::{LEGEND, cells};
use crate::eval::plan::Plan;
use crate::eval::summary::Summary;

pub fn report(plan: &Plan<'_>, summary: &Summary) -> String {
    let mut out = format!("# Evaluation\n\n{}\n\n", about(plan));
    for settings in &plan.settings {
        let text = |key: &str| settings[key].as_str().unwrap_or("none");
        out.push_str(&format!("- `{}`: {}; projector {}\n", text("variant"), text("model"), text("projector")));
    }
    let (heads, rows) = cells(summary);
    let names = if summary.rows.len() > 1 { 2 } else { 1 };
    out.push_str(&format!("\n| {} |\n|", heads.join(" | ")));
    for column in 0..heads.len() {
        out.push_str(if column < names { "---|" } else { "--:|" });
    }
    out.push('\n');
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out.push_str(&format!("\n{LEGEND}\n"));
    if budget::is_sweep(summary) {
        for figure in budget::Figure::ALL {
            out.push_str(&format!("\n![{}]({}.png)\n", figure.title(), figure.file()));
        }
    }
    out
}

/// What was asked, in one line.
pub fn about(plan: &Plan<'_>) -> String {
    let run = |key: &str| plan.run[key].as_str().unwrap_or_default().to_owned();
    let scorers = run("scorers");
    let scorers = if scorers.is_empty() { String::new() } else { format!("; scorers {scorers}") };
    format!("llava-cli {}; {} questions ({}){scorers}.", run("program"), plan.items.list.len(), run("questions"))
}
