//! How many visual tokens a question about a picture gets, and why.
//!
//! Three gates in `auto`: the question (fine detail needs every row), the picture (k90: how many cells explain 90 % of it), and the
//! model (where the encoder costs most, fewer rows save nothing). What the user asks for always wins.
//!
//! What it does: turns a setting, a question, a model's costs and a picture's rows into a budget for each tile, with reasons.
//! What it never does: compress, or decide by what is in a cache: equal arguments give equal budgets.
//! Who calls it: `session`.

mod decision;
mod setting;

#[cfg(test)]
mod tests;

pub use decision::{Costs, Decision, Outlook, Reason};
pub use setting::VisualTokenSetting;

use super::layout::Layout;
use super::query::{Demand, Gate};
use super::{Compressor, Result};

/// How rows are budgeted.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// What the user wants.
    pub setting: VisualTokenSetting,
    /// In `auto`: share of the cells for questions about the picture as a whole. 64 of 196.
    pub coarse: f64,
    /// In `auto`: share of the cells for questions that need every thing in the picture: counting, describing.
    pub raised: f64,
    /// In `auto`: share of the picture's energy that has to be kept, 0 to 1; 0 does not look at the picture.
    pub energy: f32,
    /// In `auto`: least factor by which encoding and prefill together have to get faster.
    pub least_gain: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(VisualTokenSetting::Full)
    }
}

impl Policy {
    /// The usual policy with this setting.
    #[must_use]
    pub fn new(setting: VisualTokenSetting) -> Self {
        Self { setting, coarse: 64.0 / 196.0, raised: 0.45, energy: 0.9, least_gain: 1.1 }
    }

    /// What is known before the picture is encoded. `layouts`: those of its tiles; `costs`: of the model, where they are known.
    ///
    /// # Errors
    /// [`crate::Error::UnknownLayout`] where `layouts` is that and a number of tokens was asked for; in `auto`, such a picture keeps
    /// all tokens and the outlook says so. Those of [`Compressor::plan`] for a number that it cannot give.
    pub fn outlook(
        &self,
        gate: &Gate,
        costs: Option<Costs>,
        layouts: Result<&[Layout]>,
        compressor: &dyn Compressor,
    ) -> Result<Outlook> {
        let all = |layouts: &[Layout]| layouts.iter().map(Layout::cells).sum::<usize>();
        let share = |cells: usize, share: f64| ((cells as f64 * share).round() as usize).clamp(1, cells.max(1));
        let layouts = match (self.setting, layouts) {
            (VisualTokenSetting::Full, _) => return Ok(Outlook::full(Reason::Asked)),
            (VisualTokenSetting::Auto, Err(error)) => {
                return Ok(Outlook::full(Reason::UnknownLayout { reason: error.to_string() }));
            }
            (_, layouts) => layouts?,
        };
        let cells = all(layouts);
        let asked = |n: usize| -> Result<Outlook> {
            if n >= cells {
                return Ok(Outlook::full(Reason::Enough { cells }));
            }
            if let [layout] = layouts {
                compressor.plan(layout, n)?;
            }
            Ok(Outlook::budget(n, cells, 0.0, vec![Reason::Asked]))
        };
        match self.setting {
            VisualTokenSetting::Full => Ok(Outlook::full(Reason::Asked)),
            VisualTokenSetting::Count(n) => asked(n),
            VisualTokenSetting::Share(_) => asked(share(cells, self.setting.share())),
            VisualTokenSetting::Auto => Ok(self.auto(gate, costs, layouts, cells, compressor, &share)),
        }
    }

    fn auto(
        &self,
        gate: &Gate,
        costs: Option<Costs>,
        layouts: &[Layout],
        cells: usize,
        compressor: &dyn Compressor,
        share: &dyn Fn(usize, f64) -> usize,
    ) -> Outlook {
        let question = Reason::Question { gate: gate.clone() };
        if gate.demand() == Demand::Full {
            return Outlook::full(question);
        }
        let wanted = if gate.demand() == Demand::Raised { self.raised.max(self.coarse) } else { self.coarse };
        let budget = share(cells, wanted);
        if budget >= cells {
            return Outlook::full(Reason::Enough { cells });
        }
        let kept = budget as f64 / cells as f64;
        if let Some(gain) = costs.map(|c| c.gain(kept)).filter(|&gain| gain < self.least_gain) {
            return Outlook::full(Reason::NoGain { gain });
        }
        // what one tile of its share cannot be compressed to is left alone
        for layout in layouts {
            let least = (layout.cells() as f64 * kept) as usize;
            if let Err(error) = compressor.plan(layout, least.max(1)) {
                return Outlook::full(Reason::UnknownLayout { reason: error.to_string() });
            }
        }
        Outlook::budget(budget, cells, self.energy, vec![question])
    }
}
