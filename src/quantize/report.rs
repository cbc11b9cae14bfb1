//! What a comparison found, as numbers and as Markdown.

use std::fmt::Write;
use std::path::PathBuf;

use super::compare::Distance;
use super::gate::Floor;

/// What one picture showed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PictureReport {
    /// The picture's name.
    pub name: String,
    /// Distance of the projector's rows.
    pub rows: Distance,
    /// Distance behind every layer of the tower whose graph names its layers.
    pub layers: Vec<LayerReport>,
    /// Distance of the text model's answer, where there was a text model.
    pub answer: Option<AnswerDistance>,
}

/// Distance of the rows that a layer gives.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LayerReport {
    /// The node's name in libmtmd's graph, for example `layer_out-7`.
    pub name: String,
    /// Over all rows and pictures so far.
    pub rows: Distance,
}

/// How far apart two text models' first tokens are.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct AnswerDistance {
    /// Kullback-Leibler divergence from the source's distribution, in nats.
    pub kl: f64,
    /// Whether both find the same token likeliest.
    pub same_top: bool,
}

impl AnswerDistance {
    pub(super) fn new((kl, same_top): (f64, bool)) -> Self {
        Self { kl, same_top }
    }
}

/// What a [`Gate`](super::Gate) found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GateReport {
    /// The file that was quantised.
    pub source: PathBuf,
    /// The text model; `None` where a stand-in only made loading possible.
    pub text_model: Option<PathBuf>,
    /// One for each picture, in order.
    pub pictures: Vec<PictureReport>,
    /// The projector's rows over all pictures: what the floor is for.
    pub rows: Distance,
    /// The layers over all pictures, first to last.
    pub layers: Vec<LayerReport>,
    /// What was asked for.
    pub floor: Floor,
}

impl GateReport {
    /// Whether the rows are above the floor.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.mean_cosine >= self.floor.mean_cosine && self.rows.worst_cosine >= self.floor.worst_cosine
    }

    /// Mean KL of the first token in nats over pictures; `None` without a text model.
    #[must_use]
    pub fn kl(&self) -> Option<f64> {
        self.mean(|a| a.kl)
    }

    /// Share of pictures with the same likeliest first token, 0 to 1; `None` without a text model.
    #[must_use]
    pub fn top1(&self) -> Option<f64> {
        self.mean(|a| f64::from(u8::from(a.same_top)))
    }

    fn mean(&self, of: impl Fn(&AnswerDistance) -> f64) -> Option<f64> {
        let answers: Vec<f64> = self.pictures.iter().filter_map(|p| p.answer.as_ref()).map(of).collect();
        (!answers.is_empty()).then(|| answers.iter().sum::<f64>() / answers.len() as f64)
    }

    /// Figures beside their floor, for an error.
    #[must_use]
    pub fn why_not(&self) -> String {
        format!(
            "cosine of the projector's rows over {} pictures: mean {:.6} (floor {}), worst row {:.6} (floor {})",
            self.pictures.len(),
            self.rows.mean_cosine,
            self.floor.mean_cosine,
            self.rows.worst_cosine,
            self.floor.worst_cosine
        )
    }

    /// The report as Markdown tables.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        // writing to a string cannot fail
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "# Quality of a quantised projector\n")?;
        writeln!(out, "Source: `{}`\n", self.source.display())?;
        writeln!(out, "{}: {}.\n", if self.passed() { "Passed" } else { "Below the floor" }, self.why_not())?;
        if let (Some(kl), Some(top1), Some(model)) = (self.kl(), self.top1(), &self.text_model) {
            let same = 100.0 * top1;
            writeln!(
                out,
                "Text model `{}`: KL of the first token {kl:.2e} nats, top-1 agreement {same:.1} %.\n",
                model.display()
            )?;
        }
        writeln!(out, "| picture | rows | mean cosine | worst row | relative L2 | KL | same first token |")?;
        writeln!(out, "|---|--:|--:|--:|--:|--:|---|")?;
        for p in &self.pictures {
            let (kl, same) = match p.answer {
                Some(a) => (format!("{:.2e}", a.kl), if a.same_top { "yes" } else { "no" }),
                None => ("-".to_owned(), "-"),
            };
            writeln!(out, "| {} | {} | {kl} | {same} |", p.name.replace('|', "/"), cells(&p.rows))?;
        }
        writeln!(out, "| all | {} | | |", cells(&self.rows))?;
        if !self.layers.is_empty() {
            writeln!(out, "\n| layer | rows | mean cosine | worst row | relative L2 |\n|---|--:|--:|--:|--:|")?;
            for layer in &self.layers {
                writeln!(out, "| {} | {} |", layer.name, cells(&layer.rows))?;
            }
        }
        Ok(())
    }
}

fn cells(d: &Distance) -> String {
    format!("{} | {:.6} | {:.6} (row {}) | {:.5}", d.rows, d.mean_cosine, d.worst_cosine, d.worst_row, d.relative_l2)
}
