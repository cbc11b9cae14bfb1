//! The text model: the hyper-parameters that llama.cpp asserts or divides by, and the shape of its embedding.

use std::collections::BTreeSet;

use super::keys::{self, need_u32, per_layer, u32_in};
use super::vocab;
use crate::error::Result;
use crate::gguf::file::GgufFile;
use crate::gguf::tensor_type::TensorType;
use crate::gguf::value::{Array, Value};

/// Architectures whose graph asserts that keys, values and rotation have one size (`n_embd_head == n_rot`).
const ROTATES_WHOLE_HEADS: &[&str] = &[
    "llama",
    "llama4",
    "qwen2",
    "qwen2vl",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "qwen3vl",
    "qwen3vlmoe",
    "mistral3",
    "granite",
    "olmo2",
    "internlm2",
    "smollm3",
];
/// Matrices of a layer, by the last part of their name.
const MATRICES: &[&str] = &[
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_qkv.weight",
    "attn_output.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
];

/// What a checked text model says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TextFacts {
    /// `general.architecture`; unknown names pass.
    pub architecture: String,
    /// Number of layers.
    pub block_count: u32,
    /// Width of a token's embedding (`n_embd`).
    pub embedding_length: u32,
    /// DeepStack layers that take their own part of a wider input row.
    pub deepstack_layers: u32,
    /// Width of an input row from a projector (`n_embd_inp`): `embedding_length * (1 + deepstack_layers)`.
    pub input_width: u64,
    /// Positions the model was trained for (`n_ctx_train`).
    pub context_length: u32,
    /// Floats of keys and of values that one position takes in the KV cache, all layers together. `None` where the heads do not
    /// say: no attention, keys that are compressed, shared between layers or of several sizes.
    pub kv_floats: Option<(u64, u64)>,
    /// Of models with two sets of rotary factors (LongRoPE): contexts of more positions than this use the long ones.
    pub rope_switch: Option<u32>,
    /// Number of tokens.
    pub vocab_size: usize,
    /// `tokenizer.ggml.model`, for example `llama` (SentencePiece) or `gpt2` (BPE).
    pub tokenizer_model: String,
    /// Whether the tokenizer can express any byte. If not, libllama throws a C++ exception on text it has no token for.
    pub byte_tokens_complete: bool,
    /// The Jinja template, if the file carries one.
    pub chat_template: Option<String>,
}

/// Checks a text model before libllama sees it, and reports what it is. Give it [`GgufFile::open_split`]'s result.
///
/// # Errors
/// [`BadMetadata`](crate::error::Error::BadMetadata) or [`BadTensor`](crate::error::Error::BadTensor), with the value
/// found and what would be right.
pub fn check_text_model(file: &GgufFile) -> Result<TextFacts> {
    let arch = match keys::text(file, "general.architecture")? {
        None => return Err(file.bad_key("general.architecture", "is missing")),
        Some("clip") => {
            return Err(file.bad_key("general.architecture", "is `clip`: this is a projector, give it with --mmproj"));
        }
        Some(a) => a,
    };
    if file.alignment() < 32 {
        return Err(file
            .bad_key("general.alignment", format!("is {}, memory-mapped tensors need 32 or more", file.alignment())));
    }
    let key = |name: &str| format!("{arch}.{name}");
    let layers = need_u32(file, &key("block_count"), 1..=512)?;
    let width = need_u32(file, &key("embedding_length"), 1..=1 << 20)?;
    let context_length = need_u32(file, &key("context_length"), 1..=i32::MAX as u32)?;
    u32_in(file, &key("nextn_predict_layers"), 0..=layers)?;
    for (name, whole) in
        [("rope.freq_base", false), ("attention.layer_norm_rms_epsilon", true), ("attention.layer_norm_epsilon", true)]
    {
        if let Some(v) = file.get::<f32>(&key(name))?.filter(|v| !v.is_finite() || *v < 0.0 || (!whole && *v == 0.0)) {
            return Err(file.bad_key(&key(name), format!("is {v}, must be finite and not negative")));
        }
    }
    check_experts(file, arch, layers)?;
    check_heads(file, arch, layers, width)?;
    check_rope(file, arch, width)?;
    check_windows(file, arch)?;
    let vocabulary = vocab::check(file)?;
    check_tensors(file, width, vocabulary.size)?;
    let deepstack_layers = deepstack(file, arch)?;
    Ok(TextFacts {
        architecture: arch.to_owned(),
        block_count: layers,
        embedding_length: width,
        deepstack_layers,
        input_width: u64::from(width) * (1 + u64::from(deepstack_layers)),
        context_length,
        kv_floats: kv_floats(file, arch, layers, width)?,
        rope_switch: rope_switch(file, arch, context_length)?,
        vocab_size: vocabulary.size,
        tokenizer_model: vocabulary.model,
        byte_tokens_complete: vocabulary.byte_tokens_complete,
        chat_template: file.get::<&str>("tokenizer.chat_template")?.map(str::to_owned),
    })
}

fn rope_switch(file: &GgufFile, arch: &str, context_length: u32) -> Result<Option<u32>> {
    if !file.tensors().iter().any(|t| t.name.contains("rope_factors_long")) {
        return Ok(None);
    }
    let original = u32_in(file, &format!("{arch}.rope.scaling.original_context_length"), 0..=i32::MAX as u32)?;
    Ok(Some(original.unwrap_or(context_length)))
}

fn check_experts(file: &GgufFile, arch: &str, layers: u32) -> Result<()> {
    let key = |name: &str| format!("{arch}.{name}");
    let experts = u32_in(file, &key("expert_count"), 0..=1024)?.unwrap_or(0);
    let groups = file.get::<u32>(&key("expert_group_count"))?.unwrap_or(0);
    let groups_used = file.get::<u32>(&key("expert_group_used_count"))?.unwrap_or(0);
    let used = per_layer(file, &key("expert_used_count"), layers)?.unwrap_or_default();
    let used = used.into_iter().max().unwrap_or(0);
    if arch.starts_with("hunyuan") && experts <= 1 {
        // llama.cpp treats these as dense whatever else the file says.
        return Ok(());
    }
    if used > experts || (experts > 0 && used == 0) {
        return Err(file.bad_key(&key("expert_used_count"), format!("is {used} of {experts} experts")));
    }
    let grouped = groups > 1
        && (groups >= experts || !experts.is_multiple_of(groups) || groups_used == 0 || groups_used >= groups);
    if grouped || (groups > 0 && groups >= experts) {
        return Err(
            file.bad_key(&key("expert_group_count"), format!("is {groups} ({groups_used} used) for {experts} experts"))
        );
    }
    Ok(())
}

fn check_heads(file: &GgufFile, arch: &str, layers: u32, width: u32) -> Result<()> {
    let key = |name: &str| format!("{arch}.{name}");
    per_layer(file, &key("feed_forward_length"), layers)?;
    let heads = per_layer(file, &key("attention.head_count"), layers)?.unwrap_or_default();
    let first = heads.first().copied().unwrap_or(0);
    let kv = per_layer(file, &key("attention.head_count_kv"), layers)?;
    if first == 0 {
        // A model without attention in its first layer; llama.cpp derives no head size from it.
        return Ok(());
    }
    for (layer, (&h, k)) in heads.iter().zip(kv.iter().flatten()).enumerate() {
        if *k > 0 && !h.is_multiple_of(*k) {
            return Err(file.bad_key(
                &key("attention.head_count_kv"),
                format!("is {k} in layer {layer}, does not divide {h} heads"),
            ));
        }
    }
    if matches!(file.value(&key("attention.head_count_kv")), Some(Value::U32(0))) {
        return Err(file.bad_key(&key("attention.head_count_kv"), "is 0"));
    }
    let k_len = u32_in(file, &key("attention.key_length"), 1..=1 << 16)?.unwrap_or(width / first);
    let v_len = u32_in(file, &key("attention.value_length"), 1..=1 << 16)?.unwrap_or(width / first);
    let rot = file.get::<u32>(&key("rope.dimension_count"))?.unwrap_or(k_len);
    if k_len == 0 || v_len == 0 {
        return Err(
            file.bad_key(&key("attention.head_count"), format!("is {first}, more than the embedding length {width}"))
        );
    }
    if rot == 0 || !rot.is_multiple_of(2) || rot > k_len {
        return Err(file.bad_key(
            &key("rope.dimension_count"),
            format!("is {rot}, must be even, above 0 and at most the head size {k_len}"),
        ));
    }
    if ROTATES_WHOLE_HEADS.contains(&arch) && (rot != k_len || v_len != k_len) {
        let reason =
            format!("is {rot}, keys have {k_len} and values {v_len} dimensions; {arch} needs all three to be equal");
        return Err(file.bad_key(&key("rope.dimension_count"), reason));
    }
    Ok(())
}

fn kv_floats(file: &GgufFile, arch: &str, layers: u32, width: u32) -> Result<Option<(u64, u64)>> {
    let key = |name: &str| format!("{arch}.attention.{name}");
    let otherwise = ["kv_lora_rank", "shared_kv_layers", "key_length_swa", "value_length_swa"];
    let heads = per_layer(file, &key("head_count"), layers)?.unwrap_or_default();
    let first = heads.first().copied().unwrap_or(0);
    if first == 0 || otherwise.iter().any(|name| file.value(&key(name)).is_some()) {
        return Ok(None);
    }
    let kv = per_layer(file, &key("head_count_kv"), layers)?.unwrap_or(heads);
    let all: u64 = kv.into_iter().map(u64::from).sum();
    let length = |name: &str| Ok(u64::from(file.get::<u32>(&key(name))?.unwrap_or(width / first)));
    Ok(Some((all * length("key_length")?, all * length("value_length")?)))
}

fn check_rope(file: &GgufFile, arch: &str, width: u32) -> Result<()> {
    let kind = format!("{arch}.rope.scaling.type");
    if let Some(name) = keys::text(file, &kind)?.filter(|n| !matches!(*n, "none" | "linear" | "yarn" | "longrope")) {
        return Err(file.bad_key(&kind, format!("is `{name}`, known are none, linear, yarn and longrope")));
    }
    let sections = format!("{arch}.rope.dimension_sections");
    // Read as four numbers; the rotation divides by their sum and asserts that it is at most the size of a head.
    let heads = match file.value(&format!("{arch}.attention.head_count")) {
        Some(Value::U32(n)) if *n > 0 => *n,
        _ => 1,
    };
    let head = u64::from(file.get::<u32>(&format!("{arch}.attention.key_length"))?.unwrap_or(width / heads));
    if let Some(s) = per_layer(file, &sections, 4)?
        && (s.iter().map(|&x| u64::from(x)).sum::<u64>() > head || s[..3].iter().all(|&x| x == 0))
    {
        let reason = format!("is {s:?}; one of the first three must be above 0, the sum at most {head}");
        return Err(file.bad_key(&sections, reason));
    }
    Ok(())
}

/// Sliding windows: their cache is sized by the window, and a pattern without any windowed layer is an assertion.
fn check_windows(file: &GgufFile, arch: &str) -> Result<()> {
    let window = u32_in(file, &format!("{arch}.attention.sliding_window"), 0..=1 << 20)?.unwrap_or(0);
    let key = format!("{arch}.attention.sliding_window_pattern");
    let none = match file.value(&key) {
        // The last layer of every group of that many sees everything.
        Some(Value::U32(n)) => *n == 1,
        Some(Value::Array(Array::Bool(list))) => !list.contains(&true),
        Some(Value::Array(Array::U32(list))) => list.iter().all(|&x| x == 0),
        Some(Value::Array(Array::I32(list))) => list.iter().all(|&x| x == 0),
        _ => false,
    };
    if window > 0 && none {
        return Err(file.bad_key(&key, format!("leaves no layer with the sliding window of {window}")));
    }
    Ok(())
}

fn check_tensors(file: &GgufFile, width: u32, vocab_size: usize) -> Result<()> {
    let name = "token_embd.weight";
    let table = file.tensor(name).ok_or_else(|| file.bad_tensor(name, "is missing"))?;
    if table.dim(0) != u64::from(width) || table.dim(1) != vocab_size as u64 {
        return Err(file.bad_tensor(
            name,
            format!("has extents {:?}, by the metadata it needs [{width}, {vocab_size}]", table.dims),
        ));
    }
    for t in file.tensors() {
        let part =
            t.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(t.name.as_str(), |(_, part)| part);
        let matrix = MATRICES.contains(&part) || matches!(part, "token_embd.weight" | "output.weight");
        if matrix && !t.ggml_type.is_weight() {
            return Err(
                file.bad_tensor(&t.name, format!("is stored as {}, must be a float or quantised type", t.ggml_type))
            );
        }
        if (part.ends_with("norm.weight") || part.ends_with(".bias")) && t.ggml_type != TensorType::F32 {
            return Err(file.bad_tensor(&t.name, format!("is stored as {}, norms and biases must be f32", t.ggml_type)));
        }
    }
    Ok(())
}

/// How many parts a wide input row has beyond the first.
fn deepstack(file: &GgufFile, arch: &str) -> Result<u32> {
    match arch {
        "qwen3vl" | "qwen3vlmoe" => Ok(u32_in(file, &format!("{arch}.n_deepstack_layers"), 0..=512)?.unwrap_or(0)),
        "granite" | "granite-swa" => {
            let key = format!("{arch}.deepstack_mapping");
            match file.value(&key) {
                Some(Value::Array(Array::I32(map))) => {
                    Ok(map.iter().filter(|&&v| v >= 0).collect::<BTreeSet<_>>().len() as u32)
                }
                Some(Value::Array(Array::U32(map))) => {
                    Ok(map.iter().filter(|&&v| v as i32 >= 0).collect::<BTreeSet<_>>().len() as u32)
                }
                _ => Ok(0),
            }
        }
        _ => Ok(0),
    }
}
