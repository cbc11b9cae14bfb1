//! The vision tower's tensors, and those of the last stage that decide the output width.

use std::collections::BTreeSet;

use super::keys::u32_in;
use super::projector::ProjectorFacts;
use super::shapes::{self, Layer, Qkv, Use};
use crate::error::Result;
use crate::gguf::file::GgufFile;

/// Projectors whose graph is the plain tower of CLIP/SigLIP/Qwen-VL, so that every tensor can be checked.
const PLAIN_TOWERS: &[&str] = &[
    "mlp",
    "ldp",
    "ldpv2",
    "adapter",
    "gemma3",
    "idefics3",
    "lfm2",
    "janus_pro",
    "phi4",
    "internvl",
    "pixtral",
    "kimivl",
    "qwen2vl_merger",
    "qwen2.5vl_merger",
    "qwen3vl_merger",
];

/// Checks every tensor of the families whose graph this crate knows; others pass.
pub(super) fn check(file: &GgufFile, family: &str, facts: &ProjectorFacts) -> Result<()> {
    check_class_token(file, family, facts)?;
    if !PLAIN_TOWERS.contains(&family) {
        return Ok(());
    }
    let width = u64::from(facts.embedding_length);
    let patch = u64::from(facts.patch_size_px);
    let heads = u64::from(facts.head_count);
    let qwen2 = matches!(family, "qwen2vl_merger" | "qwen2.5vl_merger");
    let qwen = qwen2 || family == "qwen3vl_merger";
    let llava = matches!(family, "mlp" | "ldp" | "ldpv2" | "adapter");
    let head_dim = match u32_in(file, "clip.vision.attention.head_dim", 0..=1 << 16)?.unwrap_or(0) {
        0 => width / heads,
        d => u64::from(d),
    };
    let kv_heads =
        u64::from(u32_in(file, "clip.vision.attention.head_count_kv", 1..=1 << 12)?.unwrap_or(facts.head_count));
    if (llava || qwen) && kv_heads != heads || !heads.is_multiple_of(kv_heads) {
        return Err(
            file.bad_key("clip.vision.attention.head_count_kv", format!("is {kv_heads}, does not fit {heads} heads"))
        );
    }
    if (qwen || matches!(family, "pixtral" | "kimivl")) && !head_dim.is_multiple_of(4) {
        return Err(file.bad_key(
            "clip.vision.attention.head_count",
            format!("is {heads}: heads of {head_dim}, must be a multiple of 4"),
        ));
    }

    shapes::required(file, "v.patch_embd.weight", &[patch, patch, 3, width], Use::Plain)?;
    if qwen {
        shapes::required(file, "v.patch_embd.weight.1", &[patch, patch, 3, width], Use::Plain)?;
        if let Some(t) = file.tensor("v.class_embd") {
            return Err(file.bad_tensor(&t.name, format!("must not be in a {family} file")));
        }
    }
    match (qwen2, family, file.tensor("v.patch_embd.bias")) {
        (true, _, Some(t)) => return Err(file.bad_tensor(&t.name, format!("must not be in a {family} file"))),
        (_, "qwen3vl_merger", None) => return Err(file.bad_tensor("v.patch_embd.bias", "is missing")),
        _ => shapes::optional(file, "v.patch_embd.bias", &[width], Use::Elementwise)?,
    };
    for norm in ["v.pre_ln", "v.post_ln"] {
        shapes::optional(file, &format!("{norm}.weight"), &[width], Use::Elementwise)?;
        shapes::optional(file, &format!("{norm}.bias"), &[width], Use::Elementwise)?;
    }
    check_positions(file, family, facts, llava)?;

    if facts.stored_layers < facts.block_count {
        let reason = format!("is {}, the file holds {} layers", facts.block_count, facts.stored_layers);
        return Err(file.bad_key("clip.vision.block_count", reason));
    }
    let qkv = match family {
        _ if llava => Qkv::Separate,
        _ if qwen2 => Qkv::SeparateWithBias,
        "qwen3vl_merger" => Qkv::Fused,
        _ => Qkv::Either,
    };
    let swaps = llava || qwen2 || matches!(family, "gemma3" | "idefics3");
    let layer = Layer { width, heads, kv_heads, head_dim, qkv, swaps, prefix: "v" };
    (0..facts.block_count).try_for_each(|i| layer.check(file, i))
}

/// What the graphs that join a class token to the patches assert: rows of f32, and a position for every one of them.
fn check_class_token(file: &GgufFile, family: &str, facts: &ProjectorFacts) -> Result<()> {
    let width = u64::from(facts.embedding_length);
    let side = u64::from(facts.image_size_px / facts.patch_size_px.max(1));
    let patches = side * side;
    match family {
        "internvl" | "cogvlm" | "llama4" => {
            shapes::required(file, "v.class_embd", &[width], Use::Elementwise)?;
            shapes::required(file, "v.position_embd.weight", &[width, patches + 1], Use::Elementwise)?;
        }
        "nemotron_v2_vl" => {
            let registers = shapes::any(file, "v.class_embd", Use::Elementwise)?;
            if registers.dim(0) != width || registers.dim(2) * registers.dim(3) != 1 {
                let reason = format!("has extents {:?}, must be [{width}, registers]", registers.dims);
                return Err(file.bad_tensor(&registers.name, reason));
            }
            shapes::required(file, "v.position_embd.weight", &[width, patches], Use::Elementwise)?;
        }
        // the adapter folds the rows into a square
        "adapter" => {
            if let Some(t) = file.tensor("v.class_embd") {
                return Err(file.bad_tensor(&t.name, format!("must not be in a {family} file")));
            }
        }
        // the graph is written for the 24 x 24 patches of MobileVLM's tower
        "ldp" | "ldpv2" if patches != 24 * 24 => {
            let reason = format!("gives {side} x {side} patches, a {family} projector takes 24 x 24");
            return Err(file.bad_key("clip.vision.image_size", reason));
        }
        _ => {}
    }
    Ok(())
}

/// The table of learned positions and the class token.
fn check_positions(file: &GgufFile, family: &str, facts: &ProjectorFacts, llava: bool) -> Result<()> {
    let width = u64::from(facts.embedding_length);
    let side = u64::from(facts.image_size_px / facts.patch_size_px);
    let patches = side * side;
    if llava {
        // Looked up row by row, so it may be longer; the class token is f32 because it is concatenated to f32 rows.
        let class = u64::from(shapes::optional(file, "v.class_embd", &[width], Use::Elementwise)?.is_some());
        let table = shapes::any(file, "v.position_embd.weight", Use::Weight)?;
        if table.dim(0) != width || table.dim(1) < patches + class || table.dim(2) * table.dim(3) != 1 {
            let reason = format!(
                "has extents {:?}, {patches} patches and {class} class token need [{width}, {}]",
                table.dims,
                patches + class
            );
            return Err(file.bad_tensor(&table.name, reason));
        }
    } else if matches!(family, "gemma3" | "idefics3" | "janus_pro") {
        shapes::optional(file, "v.position_embd.weight", &[width, patches], Use::Elementwise)?;
    } else if matches!(family, "lfm2" | "phi4" | "qwen3vl_merger") {
        // Interpolated from a square table.
        let table = shapes::any(file, "v.position_embd.weight", Use::Elementwise)?;
        let root = table.dim(1).isqrt();
        if table.dim(0) != width || root * root != table.dim(1) {
            return Err(file
                .bad_tensor(&table.name, format!("has extents {:?}, must be [{width}, a square number]", table.dims)));
        }
    }
    Ok(())
}

/// Output width after checking the last stages where this crate knows them.
pub(super) fn output_width(file: &GgufFile, family: &str, facts: &ProjectorFacts) -> Result<Option<u64>> {
    let width = u64::from(facts.embedding_length);
    let merged = width * u64::from(facts.merge) * u64::from(facts.merge);
    let last = |name: &str, dim: usize| Ok(Some(shapes::any(file, name, Use::Weight)?.dim(dim)));
    match family {
        "mlp" => {
            // Several feature layers are laid side by side.
            let stacked = facts.feature_layers.iter().collect::<BTreeSet<_>>().len().max(1) as u64;
            let hidden = shapes::linear(file, "mm.0", width * stacked, true)?;
            if file.tensor("mm.3.weight").is_some() {
                // Yi-VL: linear, norm, GELU, linear, norm.
                let out = shapes::linear(file, "mm.3", hidden, true)?;
                for (norm, n) in [("mm.1", hidden), ("mm.4", out)] {
                    shapes::required(file, &format!("{norm}.weight"), &[n], Use::Elementwise)?;
                    shapes::required(file, &format!("{norm}.bias"), &[n], Use::Elementwise)?;
                }
                return Ok(Some(out));
            }
            // Never absent: the loader reads its width without a null check.
            shapes::linear(file, "mm.2", hidden, true).map(Some)
        }
        "qwen2vl_merger" | "qwen2.5vl_merger" => {
            let hidden = shapes::linear(file, "mm.0", merged, true)?;
            shapes::linear(file, "mm.2", hidden, true).map(Some)
        }
        "qwen3vl_merger" => {
            let hidden = shapes::linear(file, "mm.0", merged, true)?;
            let out = shapes::linear(file, "mm.2", hidden, true)?;
            let deep = (0..facts.block_count)
                .filter(|i| file.tensor(&format!("v.deepstack.{i}.fc1.weight")).is_some())
                .count();
            Ok(Some(out * (1 + deep as u64)))
        }
        "gemma3" => {
            shapes::required(file, "mm.soft_emb_norm.weight", &[width], Use::Elementwise)?;
            let out = shapes::any(file, "mm.input_projection.weight", Use::Plain)?.dim(0);
            shapes::required(file, "mm.input_projection.weight", &[out, width], Use::Plain)?;
            Ok(Some(out))
        }
        "idefics3" => shapes::linear(file, "mm.model.fc", merged, false).map(Some),
        "ldp" => last("mm.model.mb_block.1.block.2.1.bias", 0),
        "ldpv2" => last("mm.model.peg.0.bias", 0),
        "phi4" | "pixtral" | "lightonocr" | "dots_ocr" | "kimivl" | "lfm2" | "kimik25" | "paddleocr" | "yasa2" => {
            last("mm.2.weight", 1)
        }
        "internvl" | "nemotron_v2_vl" => last("mm.model.mlp.3.weight", 1),
        "llama4" | "hunyuanvl" | "deepseekocr" | "deepseekocr2" => last("mm.model.fc.weight", 1),
        "janus_pro" => last("mm.1.bias", 0),
        "exaone4_5" | "ling3vl" | "youtuvl" => last("mm.2.bias", 0),
        "gemma3nv" => last("mm.input_projection.weight", 0),
        "gemma4v" | "gemma4uv" => last("mm.input_projection.weight", 1),
        _ => Ok(None),
    }
}
