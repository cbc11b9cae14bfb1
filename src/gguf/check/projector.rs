//! The projector file (`mmproj`): hyper-parameters, tower, and the tensors that decide its output width.

use std::collections::BTreeSet;

use super::keys::{self, need_f32_above, need_u32, u32_in};
use super::tower;
use crate::error::Result;
use crate::gguf::file::GgufFile;

/// Largest image side libmtmd takes (`clip.cpp`: larger ones overflow its patch count).
const MAX_SIDE_PX: u32 = 8192;
/// Most patches of one picture; keeps positions and masks within sane memory.
const MAX_PATCHES: u64 = 1 << 16;

/// Most tiles of one picture.
const MAX_TILES: u64 = 256;

/// Projectors without a transformer tower: head and block counts may be 0.
const NO_TOWER: &[&str] = &["gemma3nv", "gemma4uv", "yasa2"];
/// Projectors that scale every picture or tile to `image_size`.
const FIXED_SIZE: &[&str] = &[
    "mlp",
    "ldp",
    "ldpv2",
    "adapter",
    "cogvlm",
    "janus_pro",
    "gemma3",
    "gemma3nv",
    "idefics3",
    "internvl",
    "nemotron_v2_vl",
    "llama4",
    "resampler",
    "yasa2",
];
/// Projectors whose code merges 2x2 patches whatever the metadata says; another value writes out of bounds.
const MERGE_TWO: &[&str] = &[
    "qwen2vl_merger",
    "qwen2.5vl_merger",
    "qwen3vl_merger",
    "ling3vl",
    "exaone4_5",
    "mimovl",
    "minimax_m3",
    "glm4v",
    "glm5v",
    "youtuvl",
    "muse-glimmer",
];

/// What a checked projector file says about itself.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProjectorFacts {
    /// `clip.projector_type`, or the vision (else audio) encoder's own; unknown names pass.
    pub projector_type: String,
    /// Whether it can see.
    pub has_vision: bool,
    /// Whether it can hear.
    pub has_audio: bool,
    /// Side of the square picture or tile, in pixels; 0 where any size is taken. All fields from here on describe the
    /// vision encoder and are 0 or empty without one.
    pub image_size_px: u32,
    /// Side of a patch, in pixels.
    pub patch_size_px: u32,
    /// Width of the tower's rows.
    pub embedding_length: u32,
    /// Width of the feed-forward layers as the key says; old files say 0.
    pub feed_forward_length: u32,
    /// Layers the key says.
    pub block_count: u32,
    /// Layers the file holds (distinct `v.blk.N`). LLaVA converters drop the last one or not, see llama.cpp#25817.
    pub stored_layers: u32,
    /// Attention heads.
    pub head_count: u32,
    /// Epsilon of the norms.
    pub layer_norm_epsilon: f32,
    /// Patches per side that become one token.
    pub merge: u32,
    /// `clip.vision.projection_dim`; not always the output width.
    pub projection_dim: u32,
    /// Width of the output rows; `None` for projector types this crate has no rule for.
    pub projection_width: Option<u64>,
    /// Explicit `clip.vision.feature_layer` entries that count (negative ones mean "not set" to libmtmd).
    pub feature_layers: Vec<u32>,
    /// Whether there is a class token (`v.class_embd`).
    pub has_class_embedding: bool,
    /// Whether there is a norm before the first layer.
    pub has_pre_norm: bool,
    /// Whether there is a norm after the last layer.
    pub has_post_norm: bool,
}

/// Checks a projector file before libmtmd sees it, and reports what it is.
///
/// # Errors
/// [`BadMetadata`](crate::error::Error::BadMetadata) or [`BadTensor`](crate::error::Error::BadTensor), with the value
/// found and what would be right.
pub fn check_projector(file: &GgufFile) -> Result<ProjectorFacts> {
    if let Some(arch) = keys::text(file, "general.architecture")?.filter(|&a| a != "clip") {
        return Err(file.bad_key(
            "general.architecture",
            format!("is `{arch}`, a projector file has `clip` (is this the text model?)"),
        ));
    }
    keys::clip_types(file)?;
    let has_vision = file.get::<bool>("clip.has_vision_encoder")?.unwrap_or(false);
    let has_audio = file.get::<bool>("clip.has_audio_encoder")?.unwrap_or(false);
    if !has_vision && !has_audio {
        return Err(file.bad_key("clip.has_vision_encoder", "and clip.has_audio_encoder are both missing or false"));
    }
    if file.get::<bool>("clip.use_gelu")? == Some(true) && file.get::<bool>("clip.use_silu")? == Some(true) {
        return Err(file.bad_key("clip.use_silu", "and clip.use_gelu are both true"));
    }
    if has_audio {
        check_audio(file)?;
    }
    let projector_type = projector_type(file, if has_vision { "vision" } else { "audio" })?.to_owned();
    let mut facts = ProjectorFacts {
        projector_type,
        has_vision,
        has_audio,
        image_size_px: 0,
        patch_size_px: 0,
        embedding_length: 0,
        feed_forward_length: 0,
        block_count: 0,
        stored_layers: 0,
        head_count: 0,
        layer_norm_epsilon: 0.0,
        merge: 1,
        projection_dim: 0,
        projection_width: None,
        feature_layers: Vec::new(),
        has_class_embedding: file.tensor("v.class_embd").is_some(),
        has_pre_norm: file.tensor("v.pre_ln.weight").is_some(),
        has_post_norm: file.tensor("v.post_ln.weight").is_some(),
    };
    if has_vision {
        let family = match facts.projector_type.as_str() {
            "qwen2.5o" => "qwen2.5vl_merger".to_owned(),
            other => other.to_owned(),
        };
        read_vision(file, &family, &mut facts)?;
        check_sizes(file, &family, &facts)?;
        tower::check(file, &family, &facts)?;
        facts.projection_width = tower::output_width(file, &family, &facts)?;
    }
    Ok(facts)
}

fn projector_type<'a>(file: &'a GgufFile, part: &str) -> Result<&'a str> {
    for key in ["clip.projector_type".to_owned(), format!("clip.{part}.projector_type")] {
        if let Some(name) = keys::text(file, &key)?.filter(|n| !n.is_empty()) {
            return Ok(name);
        }
    }
    Err(file.bad_key("clip.projector_type", "is missing"))
}

fn read_vision(file: &GgufFile, family: &str, facts: &mut ProjectorFacts) -> Result<()> {
    let tower = u32::from(!NO_TOWER.contains(&family));
    facts.embedding_length = need_u32(file, "clip.vision.embedding_length", 1..=1 << 16)?;
    facts.feed_forward_length = need_u32(file, "clip.vision.feed_forward_length", 0..=1 << 20)?;
    facts.block_count = need_u32(file, "clip.vision.block_count", tower..=512)?;
    facts.head_count = need_u32(file, "clip.vision.attention.head_count", tower..=1 << 12)?;
    facts.projection_dim = need_u32(file, "clip.vision.projection_dim", 0..=1 << 20)?;
    facts.layer_norm_epsilon = need_f32_above(file, "clip.vision.attention.layer_norm_epsilon", 0.0, true)?;
    let smallest = u32::from(FIXED_SIZE.contains(&family));
    facts.image_size_px = need_u32(file, "clip.vision.image_size", smallest..=MAX_SIDE_PX)?;
    facts.patch_size_px = need_u32(file, "clip.vision.patch_size", 1..=1024)?;
    let head_dim = u32_in(file, "clip.vision.attention.head_dim", 0..=1 << 16)?.unwrap_or(0);
    if facts.head_count > 0 && head_dim == 0 && !facts.embedding_length.is_multiple_of(facts.head_count) {
        let reason =
            format!("is {}, does not divide the embedding length {}", facts.head_count, facts.embedding_length);
        return Err(file.bad_key("clip.vision.attention.head_count", reason));
    }
    for (key, is_std) in [("clip.vision.image_mean", false), ("clip.vision.image_std", true)] {
        let v = file.require::<&[f32]>(key)?;
        if v.len() != 3 || v.iter().any(|x| !x.is_finite() || (is_std && *x == 0.0)) {
            let rule = if is_std { "3 finite numbers that are not 0" } else { "3 finite numbers" };
            return Err(file.bad_key(key, format!("is {:?}, must be {rule}", &v[..v.len().min(8)])));
        }
    }
    for &layer in file.get::<&[i32]>("clip.vision.feature_layer")?.unwrap_or(&[]) {
        if layer > facts.block_count as i32 {
            return Err(file.bad_key(
                "clip.vision.feature_layer",
                format!("holds {layer}, there are {} layers", facts.block_count),
            ));
        }
        facts.feature_layers.extend(u32::try_from(layer));
    }
    facts.stored_layers = stored_layers(file);
    facts.merge = merge(file, family)?;
    Ok(())
}

/// Number of distinct `N` in `v.blk.N.*`.
fn stored_layers(file: &GgufFile) -> u32 {
    let numbers: BTreeSet<u32> =
        file.tensors().iter().filter_map(|t| t.name.strip_prefix("v.blk.")?.split('.').next()?.parse().ok()).collect();
    numbers.len() as u32
}

/// Patches per side that become one token; the key and the default depend on the projector.
fn merge(file: &GgufFile, family: &str) -> Result<u32> {
    let (key, default, least) = match family {
        "idefics3" | "lfm2" | "kimivl" => ("projector.scale_factor", 1, 2),
        "gemma3" | "step3vl" | "minicpmv4_6" => ("projector.scale_factor", 4, 1),
        "gemma4v" | "gemma4uv" => ("projector.scale_factor", 3, 1),
        "internvl" | "nemotron_v2_vl" | "dots_ocr" | "kimik25" | "deepseek4v" | "gemma3nv" | "llama4" => {
            ("projector.scale_factor", 1, 1)
        }
        "pixtral" | "lightonocr" | "dots3note_v" => ("spatial_merge_size", 1, 1),
        "hunyuanvl" => ("spatial_merge_size", 2, 1),
        _ if MERGE_TWO.contains(&family) => ("spatial_merge_size", 2, 2),
        _ => return Ok(1),
    };
    let most = if MERGE_TWO.contains(&family) { 2 } else { 64 };
    let key = format!("clip.vision.{key}");
    match u32_in(file, &key, least..=most)? {
        Some(v) => Ok(v),
        None if default < least => Err(file.bad_key(&key, format!("is missing, must be {least} to {most}"))),
        None => Ok(default),
    }
}

/// Sizes that would make the warm-up picture, the tiles or the position table absurd.
fn check_sizes(file: &GgufFile, family: &str, facts: &ProjectorFacts) -> Result<()> {
    let fixed = FIXED_SIZE.contains(&family);
    let (image, patch, merge) = (facts.image_size_px, facts.patch_size_px, facts.merge);
    if fixed && image < patch {
        return Err(file.bad_key("clip.vision.image_size", format!("is {image}, smaller than the patch size {patch}")));
    }
    let side = u64::from(image / patch);
    if fixed && side * side > MAX_PATCHES {
        return Err(file.bad_key(
            "clip.vision.patch_size",
            format!("is {patch}: {side}x{side} patches, the limit is {MAX_PATCHES}"),
        ));
    }
    if matches!(family, "gemma3" | "idefics3") && !side.is_multiple_of(u64::from(merge)) {
        let reason = format!("is {merge}, does not divide the {side} patches of a side");
        return Err(file.bad_key("clip.vision.projector.scale_factor", reason));
    }
    // Pictures of free size are warmed up with 46x46 tokens.
    if !fixed && u64::from(patch) * u64::from(merge) * 46 > u64::from(MAX_SIDE_PX) {
        return Err(file.bad_key(
            "clip.vision.patch_size",
            format!("is {patch}: 46 tokens of {merge} patches are wider than {MAX_SIDE_PX} pixels"),
        ));
    }
    if family == "qwen2.5vl_merger" {
        need_u32(file, "clip.vision.n_wa_pattern", 1..=512)?;
        // The attention window is a fixed 112 pixels; no window holds less than one merged patch.
        if patch * merge > 112 {
            return Err(
                file.bad_key("clip.vision.patch_size", format!("is {patch}, more than half of the 112 pixel window"))
            );
        }
    }
    let pixels = 1..=MAX_SIDE_PX * MAX_SIDE_PX;
    let least = u32_in(file, "clip.vision.image_min_pixels", pixels.clone())?;
    let most = u32_in(file, "clip.vision.image_max_pixels", pixels)?;
    if let (Some(a), Some(b)) = (least, most)
        && a > b
    {
        return Err(file.bad_key("clip.vision.image_min_pixels", format!("is {a}, more than image_max_pixels {b}")));
    }
    u32_in(file, "clip.vision.preproc_image_size", 1..=2 * MAX_SIDE_PX)?;
    u32_in(file, "clip.vision.window_size", 0..=4096)?;
    let tiles = u32_in(file, "clip.vision.preproc_max_tiles", 0..=256)?.unwrap_or(256);
    u32_in(file, "clip.vision.preproc_min_tiles", 0..=tiles)?;
    check_pinpoints(file, image)
}

/// Sizes that a picture may be scaled to before it is cut into tiles: pairs of width and height.
fn check_pinpoints(file: &GgufFile, tile: u32) -> Result<()> {
    let key = "clip.vision.image_grid_pinpoints";
    let list = file.get::<&[i32]>(key)?.unwrap_or(&[]);
    let (pairs, rest) = list.as_chunks::<2>();
    if !rest.is_empty() || pairs.len() > 1024 {
        return Err(file.bad_key(key, format!("has {} numbers, must be pairs, 1024 at most", list.len())));
    }
    for [w, h] in pairs {
        let tiles = |side: i32| u64::try_from(side).unwrap_or(0) / u64::from(tile.max(1));
        if !(1..=MAX_TILES).contains(&(tiles(*w).saturating_mul(tiles(*h)))) {
            return Err(file.bad_key(key, format!("holds {w}x{h}, must be 1 to {MAX_TILES} tiles of {tile}x{tile}")));
        }
    }
    Ok(())
}

fn check_audio(file: &GgufFile) -> Result<()> {
    let family = projector_type(file, "audio")?.to_owned();
    need_u32(file, "clip.audio.embedding_length", 1..=1 << 16)?;
    need_u32(file, "clip.audio.feed_forward_length", 0..=1 << 20)?;
    need_u32(file, "clip.audio.block_count", 0..=512)?;
    need_u32(file, "clip.audio.attention.head_count", 0..=1 << 12)?;
    need_u32(file, "clip.audio.projection_dim", 0..=1 << 20)?;
    need_f32_above(file, "clip.audio.attention.layer_norm_epsilon", 0.0, false)?;
    let fft = !matches!(family.as_str(), "gemma4ua" | "pockettts_spkenc");
    need_u32(file, "clip.audio.num_mel_bins", 1..=if fft { 256 } else { 1 << 20 })?;
    u32_in(file, "clip.audio.projector.stack_factor", 1..=1 << 12)?;
    match family.as_str() {
        "parakeet" => {
            need_u32(file, "clip.audio.subsampling_factor", 8..=8)?;
            let kernel = need_u32(file, "clip.audio.conv_kernel_size", 1..=1 << 12)?;
            if kernel.is_multiple_of(2) {
                return Err(file.bad_key("clip.audio.conv_kernel_size", format!("is {kernel}, must be odd")));
            }
        }
        "granite_speech" => {
            need_u32(file, "clip.audio.chunk_size", 1..=8192)?;
        }
        _ => {}
    }
    Ok(())
}
