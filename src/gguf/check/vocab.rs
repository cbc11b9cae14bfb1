//! The tokenizer's part of a text model's metadata.

use std::collections::HashSet;

use super::keys;
use crate::error::Result;
use crate::gguf::file::GgufFile;
use crate::gguf::value::{Array, Bytes};

/// What the check found.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) model: String,
    pub(super) size: usize,
    pub(super) byte_tokens_complete: bool,
}

/// Checks tokens, scores, types and the special tokens that the tokenizer asserts to exist.
pub(super) fn check(file: &GgufFile) -> Result<Vocabulary> {
    let key = "tokenizer.ggml.model";
    let model = keys::text(file, key)?.ok_or_else(|| file.bad_key(key, "is missing, must be string"))?.to_owned();
    if matches!(model.as_str(), "none" | "no_vocab") {
        return Err(file.bad_key(key, format!("is `{model}`: without a vocabulary no question can be asked")));
    }
    let tokens = file.require::<&[Bytes]>("tokenizer.ggml.tokens")?;
    if tokens.is_empty() || tokens.len() > i32::MAX as usize {
        return Err(file.bad_key("tokenizer.ggml.tokens", format!("has {} entries", tokens.len())));
    }
    let seen = distinct(file, tokens)?;

    for (key, ints_too) in [("tokenizer.ggml.scores", true), ("tokenizer.ggml.token_type", false)] {
        let Some(list) = file.get::<&Array>(key)? else { continue };
        let fits = match list {
            Array::F32(_) => ints_too,
            Array::I32(_) => true,
            _ => false,
        };
        if !fits {
            let wanted = if ints_too { "f32 or i32" } else { "i32" };
            return Err(file.bad_key(key, format!("is an array of {}, must be of {wanted}", list.element_name())));
        }
        if list.len() < tokens.len() {
            return Err(file.bad_key(key, format!("has {} elements for {} tokens", list.len(), tokens.len())));
        }
    }
    check_byte_tokens(file, &model, tokens)?;
    if model == "gpt2" && file.value("tokenizer.ggml.merges").is_some() {
        file.require::<&[Bytes]>("tokenizer.ggml.merges")?;
    }

    // Only the SentencePiece tokenizer adds a begin token unless told otherwise.
    let spm = model == "llama";
    for (which, default_on, default_id) in [("bos", spm, 1), ("eos", false, 2)] {
        let added = file.get::<bool>(&format!("tokenizer.ggml.add_{which}_token"))?.unwrap_or(default_on);
        let key = format!("tokenizer.ggml.{which}_token_id");
        let default_id = match model.as_str() {
            "llama" => default_id,
            "gpt2" => 11,
            _ => continue,
        };
        // A number outside the vocabulary is replaced by the default, and that may be outside too.
        let id = file.get::<u32>(&key)?.filter(|&id| (id as usize) < tokens.len()).unwrap_or(default_id);
        if added && id as usize >= tokens.len() {
            return Err(file.bad_key(
                &key,
                format!(
                    "leads to token {id} of a vocabulary of {}, but it has to be added to every prompt",
                    tokens.len()
                ),
            ));
        }
    }
    let byte_tokens_complete = !spm
        || (0..=u8::MAX)
            .all(|b| seen.contains(format!("<0x{b:02X}>").as_bytes()) || (b != 0 && seen.contains(&[b][..])));
    Ok(Vocabulary { model, size: tokens.len(), byte_tokens_complete })
}

/// A byte token is cut out of its text `<0xHH>` without a length check, and in a WordPiece vocabulary it is an abort.
fn check_byte_tokens(file: &GgufFile, model: &str, tokens: &[Bytes]) -> Result<()> {
    const BYTE: i32 = 6;
    let key = "tokenizer.ggml.token_type";
    let types = file.get::<&[i32]>(key)?.unwrap_or(&[]);
    for (i, token) in tokens.iter().enumerate().filter(|(i, _)| types.get(*i) == Some(&BYTE)) {
        let form = matches!(token.as_slice(), [b'<', b'0', b'x', a, b, b'>'] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
        let reason = match model {
            "bert" => "which this kind of tokenizer cannot have",
            "llama" | "gpt2" | "t5" if !form => "but its text is not of the form <0xHH>",
            _ => continue,
        };
        return Err(file.bad_key(key, format!("says that token {i} is a byte, {reason}")));
    }
    Ok(())
}

/// No two tokens may be the same to C code, which sees each up to its first NUL and renames empty ones.
fn distinct<'a>(file: &GgufFile, tokens: &'a [Bytes]) -> Result<HashSet<&'a [u8]>> {
    let mut seen: HashSet<&[u8]> = HashSet::with_capacity(tokens.len());
    let mut renamed = HashSet::new();
    for (i, token) in tokens.iter().enumerate() {
        let text = token.split(|&b| b == 0).next().unwrap_or(&[]);
        if text.is_empty() {
            renamed.insert(format!("[EMPTY_{i}]").into_bytes());
        } else if !seen.insert(text) {
            let reason =
                format!("holds \"{}\" twice, the second time at {i}", text[..text.len().min(60)].escape_ascii());
            return Err(file.bad_key("tokenizer.ggml.tokens", reason));
        }
    }
    match renamed.iter().find(|name| seen.contains(name.as_slice())) {
        Some(name) => {
            let reason =
                format!("holds \"{}\" and an empty token that llama.cpp gives the same name", name.escape_ascii());
            Err(file.bad_key("tokenizer.ggml.tokens", reason))
        }
        None => Ok(seen),
    }
}
