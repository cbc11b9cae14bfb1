//! What a projector file's tensor is for, told from its name and extents.

use std::fmt;

/// What a tensor is for, as far as it matters for how it may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// A matrix of a transformer layer of the vision or audio tower: only ever the left side of a product.
    TowerMatrix,
    /// A matrix behind the tower: projector, merger, resampler, adapter.
    ProjectorMatrix,
    /// The convolution that turns pixels into the first rows.
    PatchConvolution,
    /// Learned positions, absolute or relative.
    PositionTable,
    /// Any other convolution.
    Convolution,
    /// Rows that are put among others: class token, separators, queries, code books.
    Embedding,
    /// Norms, biases, scales, single numbers: one number per channel or fewer.
    NormOrBias,
    /// Anything this crate has no rule for.
    Unknown,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Role::TowerMatrix => "tower",
            Role::ProjectorMatrix => "projector",
            Role::PatchConvolution => "patches",
            Role::PositionTable => "positions",
            Role::Convolution => "convolution",
            Role::Embedding => "embedding",
            Role::NormOrBias => "norm or bias",
            Role::Unknown => "unknown",
        })
    }
}

/// Matrices of a layer `v.blk.N.` or `a.blk.N.` that libmtmd's graphs hand to a matrix product and to nothing else. What
/// is not listed here (routers, convolutions of conformers, layers of MobileNet) is left alone.
const LAYER_MATRICES: &[&str] =
    &["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_out", "ffn_up", "ffn_gate", "ffn_down", "ffn_up_1", "ffn_down_1"];
/// The same with one matrix per expert.
const EXPERT_MATRICES: &[&str] = &["ffn_up_exps", "ffn_gate_exps", "ffn_down_exps"];
/// The same of the SAM tower in front of DeepSeek-OCR's.
const SAM_MATRICES: &[&str] = &["attn.qkv", "attn.out", "mlp.lin1", "mlp.lin2"];
/// Beginnings of names behind the tower.
const PROJECTOR: &[&str] = &["mm.", "resampler.", "adapter.", "v.vit_merger.", "v.deepstack.", "v.proj_", "a.proj_"];
/// Parts of names of rows that are looked up or put among others.
const EMBEDDINGS: &[&str] = &["embd", "query", "codebook", "newline", "seperator", "separator", ".boi", ".eoi"];

/// The role of a tensor with this name and these extents (`ne` order).
pub(super) fn role(name: &str, dims: &[u64]) -> Role {
    let rank = dims.iter().rposition(|&d| d != 1).map_or(0, |i| i + 1);
    if rank < 2 {
        // of a 1x1 convolution or a linear layer to one number nothing would be gained
        return Role::NormOrBias;
    }
    let has = |parts: &[&str]| parts.iter().any(|p| name.contains(p));
    if has(&["patch_embd", "patch_embed"]) {
        return Role::PatchConvolution;
    }
    if has(&["position_embd", "pos_embd", "pos_embed", "rel_pos", "attn.pos_", "img_pos", "pos_bias"]) {
        return Role::PositionTable;
    }
    let stem = name.strip_suffix(".weight");
    match stem.and_then(layer_part) {
        Some(("v.blk" | "a.blk", part))
            if (rank == 2 && LAYER_MATRICES.contains(&part)) || (rank == 3 && EXPERT_MATRICES.contains(&part)) =>
        {
            return Role::TowerMatrix;
        }
        Some(("v.sam.blk", part)) if rank == 2 && SAM_MATRICES.contains(&part) => return Role::TowerMatrix,
        _ => {}
    }
    if rank > 2 || has(&["conv", "peg"]) {
        return Role::Convolution;
    }
    if has(EMBEDDINGS) {
        return Role::Embedding;
    }
    if stem.is_none() {
        return Role::Unknown;
    }
    if PROJECTOR.iter().any(|p| name.starts_with(p)) {
        return if has(&["norm", ".ln"]) { Role::NormOrBias } else { Role::ProjectorMatrix };
    }
    Role::Unknown
}

/// `v.blk.7.attn_q` as `("v.blk", "attn_q")`.
fn layer_part(stem: &str) -> Option<(&str, &str)> {
    let at = stem.find(".blk.")?;
    let (prefix, rest) = (&stem[..at + 4], &stem[at + 5..]);
    let (number, part) = rest.split_once('.')?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some((prefix, part))
}
