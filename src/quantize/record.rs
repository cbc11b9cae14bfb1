//! What a quantised file says about itself: where it comes from, what was done to it, and whether anybody has looked at it.

use super::plan::Plan;
use crate::gguf::{Array, GgufFile, Value};

/// Raised when the rules give another file for the same source.
pub(super) const RULES_VERSION: u32 = 1;

/// Beginning of the keys that this room writes.
const OWN_KEYS: &str = "llava.quantize.";
pub(super) const KEY_VERSION: &str = "llava.quantize.version";
pub(super) const KEY_SOURCE: &str = "llava.quantize.source_xxh3";
pub(super) const KEY_ORIGINAL: &str = "llava.quantize.original_xxh3";
pub(super) const KEY_DATA: &str = "llava.quantize.data_xxh3";
pub(super) const KEY_CHECKED: &str = "llava.quantize.checked";
pub(super) const KEY_BELOW_FLOOR: &str = "llava.quantize.below_floor";

/// Whether a file was written although it is below a floor. What is made from it is no better.
pub(super) fn is_below_floor(file: &GgufFile) -> bool {
    // a mark that cannot be read is none that can be trusted to be unset
    file.value(KEY_BELOW_FLOOR).is_some_and(|v| *v != Value::Bool(false))
}

/// The source's metadata in its order, with what has changed, and where the file comes from.
pub(super) fn metadata(source: &GgufFile, source_hash: u128, plan: &Plan) -> Vec<(String, Value)> {
    let mut changed = Vec::new();
    changed.extend(plan.file_type().map(|n| ("general.file_type", Value::U32(n))));
    if plan.tensors().iter().any(|t| !t.target.is_plain_float() && t.target.is_weight()) {
        // GGML_QNT_VERSION of every llama.cpp that reads Q8_0 as written here
        changed.push(("general.quantization_version", Value::U32(2)));
    }
    let mut out: Vec<(String, Value)> = Vec::new();
    for (key, value) in source.metadata() {
        // a split model becomes one file
        if key.starts_with("split.") || key.starts_with(OWN_KEYS) {
            continue;
        }
        let new = changed.iter().position(|(name, _)| *name == key).map(|at| changed.remove(at).1);
        out.push((key.to_owned(), new.unwrap_or_else(|| value.clone())));
    }
    out.extend(changed.into_iter().map(|(key, value)| (key.to_owned(), value)));

    let lines = plan.tensors().iter().filter(|t| t.changes());
    let lines: Vec<Vec<u8>> =
        lines.map(|t| format!("{} {} -> {}: {}", t.name, t.source, t.target, t.reason).into_bytes()).collect();
    let own = [
        (KEY_VERSION.to_owned(), Value::U32(RULES_VERSION)),
        (format!("{OWN_KEYS}rules"), plan.rules().to_string().into()),
        (format!("{OWN_KEYS}plan"), Array::from(lines).into()),
        (KEY_SOURCE.to_owned(), format!("{source_hash:032x}").into()),
    ];
    out.extend(own);
    // a source that was written here says itself where it comes from
    if let Some(first) = source.value(KEY_ORIGINAL).or_else(|| source.value(KEY_SOURCE)) {
        out.push((KEY_ORIGINAL.to_owned(), first.clone()));
    }
    // replaced by the same number of bytes once they are known
    out.push((KEY_DATA.to_owned(), "0".repeat(32).into()));
    out.push((KEY_CHECKED.to_owned(), false.into()));
    out.push((KEY_BELOW_FLOOR.to_owned(), is_below_floor(source).into()));
    out
}
