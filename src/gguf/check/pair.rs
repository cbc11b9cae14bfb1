//! Whether a checked text model and a checked projector belong together.

use super::projector::ProjectorFacts;
use super::text::TextFacts;
use crate::error::{Error, Result};
use crate::gguf::file::GgufFile;
use crate::gguf::value::Bytes;

/// Tokens that libmtmd looks up by text when it cuts pictures into tiles, and puts between the tiles even if it has
/// not found them; `llama_batch_ext_add_token` refuses those and `mtmd-helper.cpp` asserts.
pub(crate) fn needed_tokens(projector_type: &str) -> &'static [&'static str] {
    match projector_type {
        "idefics3" => &["<fake_token_around_image>", "<global-img>"],
        "resampler" | "minicpmv4_6" => &["<image>", "</image>", "<slice>", "</slice>"],
        "lfm2" => &["<|img_thumbnail|>"],
        "step3vl" => &["<im_start>", "<im_end>", "<patch_start>", "<patch_end>", "<patch_newline>"],
        _ => &[],
    }
}

/// Checks that the projector's rows are as wide as the text model takes them, and that its vocabulary has the tokens
/// that this projector's tiles need.
///
/// # Errors
/// [`Error::Mismatch`] with both widths and both files; [`Error::BadMetadata`] for the text model's token list.
pub fn check_pair(text: &GgufFile, text_facts: &TextFacts, projector: &GgufFile, facts: &ProjectorFacts) -> Result<()> {
    if let Some(width) = facts.projection_width.filter(|&w| w != text_facts.input_width) {
        return Err(Error::Mismatch {
            model_path: text.path().to_path_buf(),
            architecture: text_facts.architecture.clone(),
            model_width: usize::try_from(text_facts.input_width).unwrap_or(usize::MAX),
            projector_path: projector.path().to_path_buf(),
            projector_type: facts.projector_type.clone(),
            projector_width: usize::try_from(width).unwrap_or(usize::MAX),
        });
    }
    let key = "tokenizer.ggml.tokens";
    let needed = needed_tokens(&facts.projector_type);
    if needed.is_empty() {
        return Ok(());
    }
    let tokens = text.require::<&[Bytes]>(key)?;
    let kinds = text.get::<&[i32]>("tokenizer.ggml.token_type")?.unwrap_or(&[]);
    // A token of another kind than normal, control or user-defined has no text to be found by.
    let findable = |i: usize| kinds.get(i).is_none_or(|k| matches!(k, 1 | 3 | 4));
    for name in needed {
        if !tokens.iter().enumerate().any(|(i, t)| t == name.as_bytes() && findable(i)) {
            let reason = format!("lacks `{name}`, which a `{}` projector needs between tiles", facts.projector_type);
            return Err(text.bad_key(key, reason));
        }
    }
    Ok(())
}
