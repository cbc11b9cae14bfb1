//! What a user can ask of a plan.

use std::fmt;

use regex_lite::Regex;

use super::role::Role;
use crate::error::{Error, Result};
use crate::gguf::{TensorInfo, TensorType};

/// How the matrices of the tower are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum TowerPrecision {
    /// Blocks of 32 8-bit numbers with an F16 scale: 8.5 bits a weight.
    #[default]
    Q8_0,
    /// Half precision.
    F16,
}

/// How the matrices behind the tower are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum ProjectorPrecision {
    /// Half precision.
    #[default]
    F16,
    /// As the tower in Q8_0, where rows allow it.
    Q8_0,
    /// Single precision.
    F32,
}

/// What becomes of which tensor. The default is a Q8_0 tower with an F16 projector.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Matrices of the tower.
    pub tower: TowerPrecision,
    /// Matrices behind it.
    pub projector: ProjectorPrecision,
    keep: Vec<Regex>,
}

impl Rules {
    /// Rules that keep no tensor by name.
    #[must_use]
    pub fn new(tower: TowerPrecision, projector: ProjectorPrecision) -> Self {
        Self { tower, projector, keep: Vec::new() }
    }

    /// Leaves every tensor whose name the expression finds as the source has it. Can be called several times.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for an expression that does not parse.
    pub fn keep(&mut self, expression: &str) -> Result<&mut Self> {
        let regex = Regex::new(expression).map_err(|e| Error::BadParameter {
            name: "keep",
            value: expression.to_owned(),
            reason: format!("is no regular expression: {e}"),
        })?;
        self.keep.push(regex);
        Ok(self)
    }

    /// How a tensor of this role will be stored, and why.
    pub(super) fn decide(&self, info: &TensorInfo, role: Role) -> (TensorType, String) {
        let source = info.ggml_type;
        let kept = |why: &str| (source, why.to_owned());
        if let Some(regex) = self.keep.iter().find(|r| r.is_match(&info.name)) {
            return (source, format!("kept by `{regex}`"));
        }
        if !source.is_plain_float() {
            return kept(if source.is_weight() { "quantised already" } else { "no floating-point weights" });
        }
        if info.byte_len == 0 {
            return kept("empty");
        }
        let target = match role {
            Role::TowerMatrix => match self.tower {
                TowerPrecision::F16 => TensorType::F16,
                TowerPrecision::Q8_0 => TensorType::Q8_0,
            },
            Role::ProjectorMatrix => match self.projector {
                ProjectorPrecision::F32 => TensorType::F32,
                ProjectorPrecision::F16 => TensorType::F16,
                // transposed before it is multiplied, which blocks cannot be
                ProjectorPrecision::Q8_0 if info.name == "mm.input_projection.weight" => {
                    return (TensorType::F16, "some graphs transpose it".to_owned());
                }
                ProjectorPrecision::Q8_0 => TensorType::Q8_0,
            },
            Role::PatchConvolution | Role::PositionTable if source == TensorType::Bf16 => {
                return (TensorType::F32, format!("{role}, not below its source"));
            }
            _ => return (source, format!("{role}, as it is")),
        };
        let row = info.dim(0);
        if !row.is_multiple_of(target.block_len()) {
            return (TensorType::F16, format!("rows of {row} are no multiple of {}", target.block_len()));
        }
        (target, format!("{role} matrix"))
    }
}

/// As they are recorded in the metadata of a written file.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tower = match self.tower {
            TowerPrecision::Q8_0 => "q8_0",
            TowerPrecision::F16 => "f16",
        };
        let projector = match self.projector {
            ProjectorPrecision::F16 => "f16",
            ProjectorPrecision::Q8_0 => "q8_0",
            ProjectorPrecision::F32 => "f32",
        };
        write!(f, "tower {tower}, projector {projector}")?;
        self.keep.iter().try_for_each(|regex| write!(f, ", keep `{regex}`"))
    }
}
