//! Metadata keys with the type and range the native code needs.

use std::ops::RangeInclusive;

use crate::error::Result;
use crate::gguf::file::GgufFile;
use crate::gguf::value::{Array, FromValue, Value};

/// Last parts of `clip.*` keys that are read as `u32`, and must then be at most `i32::MAX`.
const U32: &[&str] = &[
    "attention.head_count",
    "attention.head_count_kv",
    "attention.head_dim",
    "block_count",
    "chunk_size",
    "conv_kernel_size",
    "embedding_length",
    "expert_used_count",
    "feed_forward_length",
    "image_max_pixels",
    "image_min_pixels",
    "image_size",
    "local_block_count",
    "local_group_size",
    "max_pos_emb",
    "minicpmv_query_num",
    "n_wa_pattern",
    "num_mel_bins",
    "patch_size",
    "preproc_image_size",
    "preproc_max_tiles",
    "preproc_min_tiles",
    "projection_dim",
    "projector.downsample_rate",
    "projector.head_count",
    "projector.query_side",
    "projector.scale_factor",
    "projector.stack_factor",
    "projector.window_side",
    "projector.window_size",
    "rvq.num_quantizers",
    "sam.block_count",
    "sam.embedding_length",
    "sam.head_count",
    "spatial_merge_size",
    "subsampling_factor",
    "window_size",
];
const I32: &[&str] = &["minicpmv_version"];
const F32: &[&str] = &["attention.layer_norm_epsilon", "swiglu_clamp"];
const BOOL: &[&str] = &["has_vision_encoder", "has_audio_encoder", "has_gen_audio_encoder", "use_gelu", "use_silu"];
const STRING: &[&str] = &["projector_type", "mm_patch_merge_type", "model_variant"];
const I32_ARRAY: &[&str] = &[
    "feature_layer",
    "image_grid_pinpoints",
    "projector.spatial_offsets",
    "rvq.codebook_size",
    "wa_layer_indexes",
    "wa_pattern_mode",
];
const F32_ARRAY: &[&str] = &["image_mean", "image_std"];

/// Checks the type of every `clip.*` key (and of the two general ones) that `clip_model_loader` reads.
pub(super) fn clip_types(file: &GgufFile) -> Result<()> {
    for (key, value) in file.metadata() {
        if matches!(key, "general.name" | "general.description") {
            typed::<Vec<u8>>(file, key, value)?;
        }
        let Some(rest) = key.strip_prefix("clip.") else { continue };
        let part = ["vision.", "audio.", "gen.audio."].iter().find_map(|p| rest.strip_prefix(p)).unwrap_or(rest);
        if U32.contains(&part) {
            typed::<u32>(file, key, value)?;
            u32_in(file, key, 0..=i32::MAX as u32)?;
        } else if I32.contains(&part) {
            typed::<i32>(file, key, value)?;
        } else if F32.contains(&part) {
            typed::<f32>(file, key, value)?;
        } else if BOOL.contains(&part) {
            typed::<bool>(file, key, value)?;
        } else if STRING.contains(&part) {
            text(file, key)?;
        } else if I32_ARRAY.contains(&part) {
            typed::<&[i32]>(file, key, value)?;
        } else if F32_ARRAY.contains(&part) {
            typed::<&[f32]>(file, key, value)?;
        }
    }
    Ok(())
}

fn typed<'a, T: FromValue<'a>>(file: &GgufFile, key: &str, value: &'a Value) -> Result<()> {
    match T::from_value(value) {
        Some(_) => Ok(()),
        None => Err(file.bad_key(key, format!("has type {} ({value}), must be {}", value.type_name(), T::WANTED))),
    }
}

/// A string that C code and Rust see alike: UTF-8 without NUL.
pub(super) fn text<'a>(file: &'a GgufFile, key: &str) -> Result<Option<&'a str>> {
    let found = file.get::<&str>(key)?;
    if found.is_some_and(|s| s.contains('\0')) {
        return Err(file.bad_key(key, "contains a NUL character"));
    }
    Ok(found)
}

/// A `u32` in a range, or `None` if the key is missing.
pub(super) fn u32_in(file: &GgufFile, key: &str, range: RangeInclusive<u32>) -> Result<Option<u32>> {
    let found = file.get::<u32>(key)?;
    match found {
        Some(v) if !range.contains(&v) => {
            Err(file.bad_key(key, format!("is {v}, must be {} to {}", range.start(), range.end())))
        }
        _ => Ok(found),
    }
}

/// A `u32` in a range that has to be there.
pub(super) fn need_u32(file: &GgufFile, key: &str, range: RangeInclusive<u32>) -> Result<u32> {
    u32_in(file, key, range)?.ok_or_else(|| file.bad_key(key, "is missing, must be u32"))
}

/// A finite `f32` of at least `low` (or above it, if `open`) that has to be there.
pub(super) fn need_f32_above(file: &GgufFile, key: &str, low: f32, open: bool) -> Result<f32> {
    let v = file.require::<f32>(key)?;
    let fits = v.is_finite() && (v > low || (!open && v == low));
    if fits {
        Ok(v)
    } else {
        Err(file.bad_key(key, format!("is {v}, must be finite and {} {low}", if open { ">" } else { ">=" })))
    }
}

/// A value that may be given once for all layers or once per layer; always `layers` long in the answer.
pub(super) fn per_layer(file: &GgufFile, key: &str, layers: u32) -> Result<Option<Vec<u32>>> {
    let list: Vec<u32> = match file.value(key) {
        None => return Ok(None),
        Some(Value::U32(v)) => return Ok(Some(vec![*v; layers as usize])),
        Some(Value::Array(Array::U32(v))) => v.clone(),
        Some(Value::Array(Array::I32(v))) => match v.iter().map(|&x| u32::try_from(x)).collect() {
            Ok(list) => list,
            Err(_) => return Err(file.bad_key(key, "holds a negative number")),
        },
        Some(other) => {
            return Err(
                file.bad_key(key, format!("has type {}, must be u32 or an array of u32 or i32", other.type_name()))
            );
        }
    };
    if list.len() != layers as usize {
        return Err(file.bad_key(key, format!("has {} elements, there are {layers} layers", list.len())));
    }
    Ok(Some(list))
}
