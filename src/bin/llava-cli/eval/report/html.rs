//! `report.html`: one file that needs no other.

use anyhow::Result;

use super::markdown::about;
use super::table::{LEGEND, cells};
use super::{budget, plots};
use crate::eval::plan::Plan;
use crate::eval::summary::Summary;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1100px;padding:0 1em;color:#222}\
    table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}th,td{padding:.25em .7em;border-bottom:1px solid #ddd;\
    text-align:right;white-space:nowrap}th:first-child,td:first-child,.named th:nth-child(2),.named td:nth-child(2){text-align:left}\
    svg{max-width:100%;height:auto}code{background:#f2f2f2;padding:0 .2em;overflow-wrap:anywhere}";

pub fn report(plan: &Plan<'_>, summary: &Summary) -> Result<String> {
    let mut body = format!("<h1>Evaluation</h1>\n<p>{}</p>\n", escape(&about(plan)));
    for (title, plot) in [
        ("Right answers", plots::accuracy(summary)?),
        ("Time", plots::time(summary)?),
        ("Right answers and time", plots::tradeoff(summary)?),
    ] {
        body.push_str(&format!("<h2>{title}</h2>\n{plot}\n"));
    }
    if budget::is_sweep(summary) {
        for figure in budget::Figure::ALL {
            body.push_str(&format!("<h2>{}</h2>\n{}\n", figure.title(), figure.svg(summary)?));
        }
    }
    body.push_str("<h2>All numbers</h2>\n");
    body.push_str(&table(summary));
    body.push_str(&format!("<p>{}</p>\n<h2>Variants</h2>\n<ul>\n", escape(LEGEND)));
    for settings in &plan.settings {
        let text = |key: &str| escape(settings[key].as_str().unwrap_or("none"));
        body.push_str(&format!(
            "<li><b>{}</b>: {}; projector {}<br><code>{}</code></li>\n",
            text("variant"),
            text("model"),
            text("projector"),
            text("settings")
        ));
    }
    body.push_str("</ul>\n");
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>llava-cli eval</title><style>{STYLE}</style></head>\n\
         <body>\n{body}</body></html>\n"
    ))
}

fn table(summary: &Summary) -> String {
    let (heads, rows) = cells(summary);
    let class = if summary.rows.len() > 1 { " class=\"named\"" } else { "" };
    let line = |tag: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escape(c))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = line("th", heads.iter().map(|h| (*h).to_owned()).collect());
    let body: String = rows.into_iter().map(|row| line("td", row)).collect();
    format!("<table{class}>\n{head}{body}</table>\n")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
