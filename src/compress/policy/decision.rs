//! What was decided about one picture, and why.

use std::fmt;

use super::super::query::{Demand, Gate};
use super::super::select::energy_curve;
use super::super::tiles::{Tile, share_budget};

/// Arithmetic for one row, by stage, in floating-point operations. Only the ratio counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Vision tower and projector, for each row that they give.
    pub encode: f64,
    /// Text model, for each row that it is given.
    pub prefill: f64,
}

impl Costs {
    /// By what factor encoding and decoding a picture get faster when a share of its rows is kept.
    #[must_use]
    pub fn gain(self, kept: f64) -> f64 {
        let after = self.encode + self.prefill * kept;
        if after > 0.0 { (self.encode + self.prefill) / after } else { 1.0 }
    }
}

/// Why a picture has the budget it has.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The user asked for it.
    Asked,
    /// The picture has no more cells than were asked for.
    Enough {
        /// Its cells.
        cells: usize,
    },
    /// What the question asks for.
    Question {
        /// What was recognised in it.
        gate: Gate,
    },
    /// The picture needs more cells than the budget to be explained.
    Picture {
        /// Share of its energy that has to be kept.
        share: f32,
        /// Cells that keep it.
        cells: usize,
    },
    /// The encoder costs so much that fewer rows save next to nothing.
    NoGain {
        /// By what factor encoding and prefill would get faster.
        gain: f64,
    },
    /// All its rows, or more than would be asked for now, are in the context already.
    InContext,
    /// How its rows lie is not known, or not what the compressor can take.
    UnknownLayout {
        /// What is wrong.
        reason: String,
    },
}

impl Reason {
    /// Its name in usage reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Enough { .. } => "enough",
            Self::Question { .. } => "question",
            Self::Picture { .. } => "picture",
            Self::NoGain { .. } => "no-gain",
            Self::InContext => "in-context",
            Self::UnknownLayout { .. } => "unknown-layout",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("as asked for"),
            Self::Enough { cells } => write!(f, "the picture has {cells} cells"),
            Self::Question { gate } => write!(f, "{gate}"),
            Self::Picture { share, cells } => write!(f, "{cells} cells explain {:.0} % of the picture", share * 100.0),
            Self::NoGain { gain } => {
                write!(f, "the encoder dominates: fewer visual tokens would save a factor of {gain:.2} only")
            }
            Self::InContext => f.write_str("its rows are in the context already"),
            Self::UnknownLayout { reason } => f.write_str(reason),
        }
    }
}

/// What is known about a picture's budget before it is encoded. Equal outlooks on equal rows end in equal decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// Cells at least; `None`: all.
    least: Option<usize>,
    cells: usize,
    /// Share of energy that the picture gate asks for; 0: it is not asked.
    energy: f32,
    reasons: Vec<Reason>,
}

impl Outlook {
    pub(super) fn full(reason: Reason) -> Self {
        Self { least: None, cells: 0, energy: 0.0, reasons: vec![reason] }
    }

    pub(super) fn budget(least: usize, cells: usize, energy: f32, reasons: Vec<Reason>) -> Self {
        Self { least: Some(least), cells, energy, reasons }
    }

    /// Whether all rows stay.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.least.is_none()
    }

    /// Fewest and most cells that will be kept; `None` where all stay.
    #[must_use]
    pub fn range(&self) -> Option<(usize, usize)> {
        self.least.map(|n| (n, if self.energy > 0.0 { self.cells } else { n }))
    }

    /// Share of the picture's energy that has to be kept; 0: the picture is not looked at.
    #[must_use]
    pub fn energy(&self) -> f32 {
        self.energy
    }

    /// All that decides about rows besides the compressor, in one canonical form. Reasons are not in it: two questions that lead
    /// to the same budget can share a KV state.
    #[must_use]
    pub fn recipe(&self) -> String {
        match self.least {
            None => "full".into(),
            Some(n) if self.energy > 0.0 => format!("{n},energy={}", self.energy),
            Some(n) => n.to_string(),
        }
    }

    /// Why.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// Looks at the picture's rows and says what each tile may keep.
    #[must_use]
    pub fn settle(&self, tiles: &[Tile<'_>]) -> Decision {
        let cells: usize = tiles.iter().map(|t| t.rows.layout().cells()).sum();
        let mut reasons = self.reasons.clone();
        let mut budget = self.least.map_or(cells, |n| n.min(cells));
        if self.energy > 0.0 && budget < cells {
            let needed: usize =
                tiles.iter().map(|t| energy_curve(&t.rows, self.energy, usize::MAX).cells_for(self.energy)).sum();
            if needed > budget {
                budget = needed.min(cells);
                reasons.push(Reason::Picture { share: self.energy, cells: needed });
            }
        }
        Decision { budgets: share_budget(tiles, budget), cells, reasons }
    }
}

/// The budget of a picture.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// Cells that each tile may keep.
    pub budgets: Vec<usize>,
    /// Cells of all tiles.
    pub cells: usize,
    /// Why, most important first.
    pub reasons: Vec<Reason>,
}

impl Decision {
    /// Cells that all tiles together may keep.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.budgets.iter().sum()
    }

    /// Whether nothing is left out.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kept() >= self.cells
    }

    /// Whether the question, not the user or the picture, asked for every row.
    #[must_use]
    pub fn question_needs_all(&self) -> bool {
        self.reasons.iter().any(|r| matches!(r, Reason::Question { gate } if gate.demand() == Demand::Full))
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.kept(), self.cells)?;
        for (i, reason) in self.reasons.iter().enumerate() {
            write!(f, "{} {reason}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}
