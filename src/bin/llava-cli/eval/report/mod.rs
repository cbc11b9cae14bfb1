//! Results for people and for programs.
//!
//! What this room does: turns a summary into a table of text, JSON, Markdown and a page of HTML with plots inside; where budgets were compared,
//! into plots over them as SVG and PNG too.
//! What it never does: compute a statistic, or load anything from elsewhere: the page is one file.
//! Who calls it: `eval::run`, at the end.

mod budget;
mod html;
mod json;
mod markdown;
mod plots;
mod table;

use std::path::Path;

use anyhow::Result;

use super::plan::Plan;
use super::summary::Summary;
use crate::console::note;
use crate::save::save;

pub use table::text as table;

/// Writes `report.json`, `report.md` and `report.html`, and `budget-*.svg` and `.png` where budgets were compared.
pub fn write(folder: &Path, plan: &Plan<'_>, summary: &Summary) -> Result<()> {
    save(&folder.join("report.json"), json::report(plan, summary).as_bytes())?;
    save(&folder.join("report.md"), markdown::report(plan, summary).as_bytes())?;
    save(&folder.join("report.html"), html::report(plan, summary)?.as_bytes())?;
    if budget::is_sweep(summary) {
        for figure in budget::Figure::ALL {
            save(&folder.join(format!("{}.svg", figure.file())), figure.svg(summary)?.as_bytes())?;
            save(&folder.join(format!("{}.png", figure.file())), &figure.png(summary)?)?;
        }
    }
    note(format_args!("reports: {}", folder.join("report.{json,md,html}").display()));
    Ok(())
}
