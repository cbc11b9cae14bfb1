//! Fewer visual tokens for the text model.
//!
//! What this room does: says how an encoded picture's rows lie ([`Layout`]), puts fewer rows in their place ([`Compressor`]), keeps
//! account of which cells each row stands for ([`VisualTokens`]), and decides how many rows a question needs ([`Policy`]).
//! What it never does: look at pixels, file names or native handles, mix rows of two tiles, touch separators, or decide by anything
//! that is not in its arguments: the same rows give the same bits, whatever the machine and the number of threads.
//! Who calls it: `session` between the embedding cache and the decoder; the program for flags and drawings.
#![forbid(unsafe_code)]

mod kept;
mod layout;
mod merge;
mod plan;
mod policy;
mod pool;
mod query;
mod resampler;
mod rows;
mod scene;
mod select;
mod spec;
mod tiles;
mod tokens;
mod tome;
mod vector;

#[cfg(test)]
mod tests;

use std::fmt::Debug;

pub use kept::kept_energy;
pub use layout::{Layout, overview};
pub use plan::Plan;
pub use policy::{Costs, Decision, Outlook, Policy, Reason, VisualTokenSetting};
pub use query::{Demand, Gate, Intent};
pub use resampler::{FINGERPRINT_KEY, Resampler, bind_resampler};
pub use rows::Rows;
pub use select::{EnergyCurve, energy_curve};
pub use spec::{CompressorSpec, Method};
pub use tiles::{Tile, compress_tiles, share_budget};
pub use tokens::{Run, VisualTokens};

use crate::error::Result;

/// Puts fewer rows in the place of one tile's rows.
///
/// ```
/// use llava::TokenCount;
/// use llava::compress::{Compressor, CompressorSpec, Layout, Rows};
/// use llava::embedding::{Embedding, Grid};
///
/// let grid = Grid { columns: 4, rows: 4, ..Grid::default() };
/// let values = (0..16 * 8).map(|i| (i as f32 * 0.37).sin()).collect();
/// let embedding = Embedding::new(values, 16, 8, grid)?;
/// let layout = Layout::of(grid, TokenCount(16))?;
///
/// let compressor = "div-c".parse::<CompressorSpec>()?.build(None)?;
/// let plan = compressor.plan(&layout, 6)?;
/// let tokens = compressor.apply(&Rows::new(&embedding, layout, 8)?, &plan)?;
/// assert_eq!(tokens.embedding().rows().get(), 6);
/// assert!(tokens.anchors().is_sorted());
/// # Ok::<(), llava::Error>(())
/// ```
pub trait Compressor: Debug + Send + Sync {
    /// Name and all parameters in one canonical form, for example `div-c:quota=0,merge=0`: whatever decides its rows besides the
    /// plan. Part of the keys of KV states.
    fn id(&self) -> String;

    /// What `budget` cells of this layout will turn into, without looking at rows. A budget of at least all cells gives the plan
    /// that changes nothing.
    ///
    /// # Errors
    /// [`crate::Error::BadParameter`] where the method cannot give so few, or not on this grid.
    fn plan(&self, layout: &Layout, budget: usize) -> Result<Plan>;

    /// Carries out a plan that [`Compressor::plan`] made for the layout of these rows. Rows come out in raster order of their
    /// anchors.
    ///
    /// # Errors
    /// [`crate::Error::BadParameter`] for a plan of another layout; [`crate::Error::NonFinite`] where averaging overflows.
    fn apply(&self, rows: &Rows<'_>, plan: &Plan) -> Result<VisualTokens>;
}
