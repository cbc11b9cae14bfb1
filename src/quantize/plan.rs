//! The plan: what becomes of each tensor, from the header alone.

use std::collections::BTreeMap;
use std::fmt;

use super::role::{Role, role};
use super::rules::Rules;
use crate::error::Result;
use crate::gguf::{GgufFile, TensorType};

/// What becomes of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedTensor {
    /// Its name.
    pub name: String,
    /// Extents in `ne` order: row length first.
    pub dims: Vec<u64>,
    /// What it is for.
    pub role: Role,
    /// How the source stores it.
    pub source: TensorType,
    /// How the result will.
    pub target: TensorType,
    /// Why.
    pub reason: String,
    /// Bytes in the source, without padding.
    pub source_bytes: u64,
    /// Bytes in the result, likewise.
    pub target_bytes: u64,
}

impl PlannedTensor {
    /// Whether the result stores it in another way than the source.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.source != self.target
    }
}

/// What becomes of every tensor of a projector file, in file order. A pure function of header and rules.
#[derive(Debug, Clone)]
pub struct Plan {
    tensors: Vec<PlannedTensor>,
    rules: Rules,
}

/// Numbers of `enum llama_ftype`, which `general.file_type` holds.
const FILE_TYPES: &[(TensorType, u32)] =
    &[(TensorType::F32, 0), (TensorType::F16, 1), (TensorType::Q8_0, 7), (TensorType::Bf16, 32)];

impl Plan {
    /// Plans for a header.
    ///
    /// # Errors
    /// [`Error::BadTensor`](crate::Error::BadTensor) for a tensor whose size would overflow.
    pub fn new(file: &GgufFile, rules: &Rules) -> Result<Self> {
        let plan_one = |info: &crate::gguf::TensorInfo| {
            let role = role(&info.name, &info.dims);
            let (target, reason) = rules.decide(info, role);
            let target_bytes = target
                .byte_len(&info.dims)
                .ok_or_else(|| file.bad_tensor(&info.name, format!("overflows 63 bits as {target}")))?;
            Ok(PlannedTensor {
                name: info.name.clone(),
                dims: info.dims.clone(),
                role,
                source: info.ggml_type,
                target,
                reason,
                source_bytes: info.byte_len,
                target_bytes,
            })
        };
        let tensors = file.tensors().iter().map(plan_one).collect::<Result<Vec<_>>>()?;
        Ok(Self { tensors, rules: rules.clone() })
    }

    /// All tensors in file order.
    #[must_use]
    pub fn tensors(&self) -> &[PlannedTensor] {
        &self.tensors
    }

    /// The rules it follows.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Bytes of all tensors in the source, without padding.
    #[must_use]
    pub fn source_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.source_bytes).sum()
    }

    /// Bytes of all tensors in the result, without padding.
    #[must_use]
    pub fn target_bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.target_bytes).sum()
    }

    /// Whether any tensor will be stored in another way.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.tensors.iter().any(PlannedTensor::changes)
    }

    /// The first tensor whose weights the source stores quantised: with one, it is not what a result can be measured by.
    #[must_use]
    pub fn quantized_already(&self) -> Option<&PlannedTensor> {
        self.tensors.iter().find(|t| t.source.is_weight() && !t.source.is_plain_float())
    }

    /// How many tensors of which role go from which type to which, with their bytes: one line each.
    #[must_use]
    pub fn sums(&self) -> String {
        let mut groups: BTreeMap<(Role, TensorType, TensorType), (u64, u64, u64)> = BTreeMap::new();
        for t in &self.tensors {
            let sum = groups.entry((t.role, t.source, t.target)).or_default();
            *sum = (sum.0 + 1, sum.1 + t.source_bytes, sum.2 + t.target_bytes);
        }
        let lines = groups.into_iter().map(|((role, source, target), (n, before, after))| {
            format!("{n:>5} {role:<12} {source:>4} -> {target:<4}  {before} -> {after} bytes")
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// `general.file_type` of the result: the type of most elements of its matrices. `None` where that type has no number.
    #[must_use]
    pub fn file_type(&self) -> Option<u32> {
        let mut elements = BTreeMap::new();
        for t in self.tensors.iter().filter(|t| matches!(t.role, Role::TowerMatrix | Role::ProjectorMatrix)) {
            *elements.entry(t.target).or_insert(0) += t.dims.iter().product::<u64>();
        }
        let (most, _) = elements.into_iter().max_by_key(|&(_, n)| n)?;
        FILE_TYPES.iter().find(|(kind, _)| *kind == most).map(|&(_, number)| number)
    }
}

/// A table, one line per tensor, and the sums.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widest = self.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0).max(6);
        writeln!(
            f,
            "{:<widest$}  {:>20}  {:>5} -> {:<5} {:>12} {:>12}  why",
            "tensor", "extents", "from", "to", "bytes", "new"
        )?;
        for t in &self.tensors {
            let dims = t.dims.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
            writeln!(
                f,
                "{:<widest$}  {dims:>20}  {:>5} -> {:<5} {:>12} {:>12}  {}",
                t.name,
                t.source.name(),
                t.target.name(),
                t.source_bytes,
                t.target_bytes,
                t.reason
            )?;
        }
        writeln!(f, "{}", self.sums())?;
        let (before, after) = (self.source_bytes(), self.target_bytes());
        let percent = 100.0 * (after as f64 / before.max(1) as f64 - 1.0);
        write!(f, "{before} -> {after} bytes ({percent:+.1} %)")
    }
}
