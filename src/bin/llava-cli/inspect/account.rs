//! What was decided about the picture, in words and as JSON.

use std::path::Path;

use llava::compress::{Decision, Outlook, Reason, VisualTokenSetting};
use serde_json::{Value, json};

use super::drawing;
use super::look::{Cut, Seen, places};
use crate::usage::{self, ms};

/// Everything there is to say.
#[derive(Debug)]
pub struct Account<'a> {
    pub image: &'a Path,
    pub setting: VisualTokenSetting,
    pub compressor: String,
    pub seen: &'a Seen,
    pub outlook: &'a Outlook,
    /// `None` where it is not known how the rows lie; then all stay.
    pub decision: Option<&'a Decision>,
    pub cut: Option<&'a Cut>,
    /// Fewest cells of each tile that explain 90 % of it; `None` likewise.
    pub k90: Option<Vec<usize>>,
}

impl Account<'_> {
    /// One line.
    pub fn headline(&self) -> String {
        let rows = self.seen.rows();
        let kept = self.cut.map_or(rows, Cut::rows);
        format!("{}, {}: {kept} of {rows} visual tokens", self.seen.projector_type, self.compressor)
    }

    pub fn reasons(&self) -> &[Reason] {
        self.decision.map_or(self.outlook.reasons(), |d| &d.reasons)
    }

    /// Aligned lines.
    pub fn text(&self) -> String {
        let seen = self.seen;
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, text: String| lines.push((name.to_owned(), text));
        add("picture", format!("{}, {} x {} pixels", self.image.display(), seen.width_px, seen.height_px));
        let width = seen.tiles.first().map_or(0, |tile| tile.rows.width());
        let count = if seen.tiles.len() == 1 { "1 tile".into() } else { format!("{} tiles", seen.tiles.len()) };
        add("projector", format!("{}, {count}, rows of {width}, {:.1} ms", seen.projector_type, ms(seen.encode)));
        for (index, tile) in seen.tiles.iter().enumerate() {
            let what = if tile.overview { " (whole picture)" } else { "" };
            let Some((cut, tokens)) = self.cut.and_then(|cut| Some((cut, cut.tokens.get(index)?))) else {
                add(&format!("tile {}", index + 1), format!("{} rows{what}, layout unknown", tile.rows.rows()));
                continue;
            };
            let layout = tokens.source();
            add(
                &format!("tile {}", index + 1),
                format!(
                    "{} of {} x {} cells kept{what}, {:.1} % of its energy; {} rows of {}",
                    tokens.cells(),
                    layout.columns(),
                    layout.rows(),
                    f64::from(cut.energy[index]) * 100.0,
                    tokens.embedding().rows(),
                    layout.total()
                ),
            );
        }
        if let Some(needed) = &self.k90 {
            let cells: usize = self.decision.map_or(0, |d| d.cells);
            add("k90", format!("{} of {cells} cells explain 90 %", needed.iter().sum::<usize>()));
        }
        let kept = self.cut.map_or(seen.rows(), Cut::rows);
        add("tokens", format!("{kept} of {} ({:.1} %)", seen.rows(), share(kept, seen.rows()) * 100.0));
        for reason in self.reasons() {
            add("because", format!("{reason} [{}]", reason.name()));
        }
        if let Some(cut) = self.cut {
            add("compressor", format!("{}, {:.2} ms", self.compressor, ms(cut.took)));
        }
        let names = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        lines.iter().map(|(name, text)| format!("{name:<names$}  {text}\n")).collect()
    }

    pub fn json(&self) -> Value {
        let seen = self.seen;
        let tiles: Vec<Value> = (0..seen.tiles.len()).map(|index| self.tile(index)).collect();
        let rows = seen.rows();
        let kept = self.cut.map_or(rows, Cut::rows);
        let reasons: Vec<Value> = self.reasons().iter().map(usage::reason).collect();
        json!({
            "format": 1,
            "picture": self.image.to_string_lossy(),
            "width_px": seen.width_px,
            "height_px": seen.height_px,
            "projector": seen.projector_type,
            "row_width": seen.tiles.first().map(|tile| tile.rows.width()),
            "encode_ms": ms(seen.encode),
            "compressor": self.compressor,
            "compressor_ms": self.cut.map(|cut| ms(cut.took)),
            "setting": self.setting.to_string(),
            "reasons": reasons,
            "rows": rows,
            "tokens": kept,
            "kept_ratio": share(kept, rows),
            "cells": self.decision.map(|d| d.cells),
            "kept_cells": self.cut.map(Cut::kept),
            "kept_energy": self.cut.map(Cut::mean_energy),
            "k90": self.k90.as_ref().map(|n| n.iter().sum::<usize>()),
            "tiles": tiles,
        })
    }

    fn tile(&self, index: usize) -> Value {
        let tile = &self.seen.tiles[index];
        let place = drawing::place(self.seen, index);
        let tokens = self.cut.and_then(|cut| cut.tokens.get(index));
        json!({
            "overview": tile.overview,
            "width_px": tile.image.width_px(),
            "height_px": tile.image.height_px(),
            "columns": tokens.map(|t| t.source().columns()),
            "rows": tokens.map(|t| t.source().rows()),
            "rows_before": tile.rows.rows().get(),
            "rows_after": tokens.map_or(tile.rows.rows().get(), |t| t.embedding().rows().get()),
            "budget": self.cut.and_then(|cut| cut.budgets.get(index)),
            "kept_energy": self.cut.and_then(|cut| cut.energy.get(index)),
            "k90": self.k90.as_ref().and_then(|n| n.get(index)),
            "survivors": tokens.map(|t| places(t).iter().map(|p| p.0).collect::<Vec<_>>()),
            "drawn_at_px": [place.x, place.y, place.width, place.height],
        })
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}
