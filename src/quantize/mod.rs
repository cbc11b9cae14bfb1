//! Quantisation room: a projector file with an INT8 (Q8_0) vision tower from an F32, F16 or BF16 one.
//!
//! What this room does: decides tensor by tensor what a smaller file stores ([`Plan`], from the header alone), writes it
//! ([`quantize`], or [`Candidate`] for a file that has to prove itself first), compares what both files see ([`Gate`]), and
//! keeps quantised files for loading ([`VisionFolder`], [`VisionPrecision`]).
//!
//! What it never does: quantise a text model, change a norm, a bias, a position table or a patch convolution for the worse,
//! touch the output's path before a whole file is there, or call native code itself.
//!
//! Who calls it: `llava-cli quantize` and `--vision`, and applications.
#![forbid(unsafe_code)]

mod compare;
mod convert;
mod folder;
mod gate;
mod pictures;
mod plan;
mod q8_0;
mod record;
mod report;
mod role;
mod rules;
mod stand_in;
mod write;

#[cfg(test)]
mod tests;

pub use compare::Distance;
pub use folder::{VisionEntry, VisionFolder, VisionPrecision};
pub use gate::{Floor, Gate, GateImage, GatePicture};
pub use pictures::builtin_pictures;
pub use plan::{Plan, PlannedTensor};
pub use report::{AnswerDistance, GateReport, LayerReport, PictureReport};
pub use role::Role;
pub use rules::{ProjectorPrecision, Rules, TowerPrecision};
pub use write::{Candidate, QuantizeParams, Summary, quantize};
