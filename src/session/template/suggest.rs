//! Which built-in format a model without a chat template probably wants.

/// What a hint (part of a model's name or path) or an architecture suggests, most telling first.
struct Clue {
    /// All of these occur in the lower-cased hint.
    hint: &'static [&'static str],
    /// The architecture starts with this.
    architecture: &'static str,
    names: &'static [&'static str],
}

const fn hint(hint: &'static [&'static str], names: &'static [&'static str]) -> Clue {
    Clue { hint, architecture: "", names }
}

const fn architecture(architecture: &'static str, names: &'static [&'static str]) -> Clue {
    Clue { hint: &[], architecture, names }
}

const CLUES: &[Clue] = &[
    hint(&["mobilevlm"], &["deepseek"]),
    hint(&["smolvlm"], &["smolvlm"]),
    hint(&["llava", "llama-3"], &["llama3"]),
    hint(&["llava", "llama3"], &["llama3"]),
    hint(&["llava", "phi-3"], &["phi3"]),
    hint(&["llava", "qwen"], &["chatml"]),
    hint(&["llava", "34b"], &["chatml"]),
    hint(&["llava"], &["vicuna"]),
    hint(&["moondream"], &["vicuna"]),
    hint(&["vicuna"], &["vicuna"]),
    hint(&["orca"], &["vicuna-orca"]),
    hint(&["glm-edge"], &["glmedge"]),
    hint(&["deepseek-ocr"], &["deepseek-ocr"]),
    hint(&["deepseek-coder"], &["deepseek"]),
    hint(&["mistral-small"], &["mistral-v7", "mistral-v7-tekken"]),
    hint(&["mistral small"], &["mistral-v7", "mistral-v7-tekken"]),
    hint(&["pixtral"], &["mistral-v7-tekken", "mistral-v3-tekken"]),
    hint(&["mistral"], &["mistral-v7", "mistral-v3", "mistral-v1"]),
    hint(&["llama-3"], &["llama3"]),
    hint(&["llama-2"], &["llama2-sys"]),
    hint(&["minicpm", "llama"], &["llama3"]),
    hint(&["minicpm-v"], &["chatml"]),
    architecture("qwen", &["chatml"]),
    architecture("internlm", &["chatml"]),
    architecture("gemma", &["gemma"]),
    architecture("phi3", &["phi3", "phi4"]),
    architecture("phi2", &["vicuna"]),
    architecture("mistral", &["mistral-v7", "mistral-v7-tekken"]),
    architecture("llama4", &["llama4"]),
    architecture("granite", &["granite"]),
    architecture("chatglm", &["chatglm4", "glmedge"]),
    architecture("glm4", &["chatglm4"]),
    architecture("hunyuan", &["hunyuan-vl", "hunyuan-dense"]),
    architecture("deepseek2", &["deepseek3", "deepseek2"]),
    architecture("deepseek", &["deepseek"]),
    architecture("command-r", &["command-r"]),
    architecture("cohere", &["command-r"]),
    architecture("minicpm", &["minicpm"]),
    architecture("exaone4", &["exaone4"]),
    architecture("exaone", &["exaone3"]),
    architecture("falcon", &["falcon3"]),
    architecture("rwkv", &["rwkv-world"]),
    architecture("llama", &["vicuna", "llama3", "llama2"]),
];

/// What to try when nothing else speaks.
const LAST_RESORT: &[&str] = &["chatml", "vicuna"];

/// Likely built-in chat formats for a text model without a template, most likely first.
///
/// `architecture` is the GGUF's `general.architecture`, `name_hint` anything that tells about the model: its name, its
/// file name, both. The answer is a guess to show a person, never one to act upon.
#[must_use]
pub fn suggest_builtin(architecture: &str, name_hint: &str) -> Vec<&'static str> {
    let architecture = architecture.to_lowercase();
    let name_hint = name_hint.to_lowercase().replace('_', "-");
    let mut names = Vec::new();
    let fitting = CLUES.iter().filter(|clue| {
        clue.hint.iter().all(|word| name_hint.contains(word)) && architecture.starts_with(clue.architecture)
    });
    for name in fitting.flat_map(|clue| clue.names).chain(LAST_RESORT) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    names.truncate(4);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_families_come_first() {
        let first = |architecture, hint| suggest_builtin(architecture, hint)[0];
        assert_eq!(first("llama", "ggml-model-q4_k.gguf"), "vicuna");
        assert_eq!(first("llama", "llava-v1.5-7b"), "vicuna");
        assert_eq!(first("llama", "MobileVLM_V2-1.7B"), "deepseek");
        assert_eq!(first("llama", "Mistral-Small-3.1-24B"), "mistral-v7");
        assert_eq!(first("llama", "llava-llama-3-8b"), "llama3");
        assert_eq!(first("qwen2vl", ""), "chatml");
        assert_eq!(first("gemma3", ""), "gemma");
        assert_eq!(first("", ""), "chatml");
    }

    #[test]
    fn every_suggestion_is_a_name_a_user_can_give() {
        for name in CLUES.iter().flat_map(|clue| clue.names).chain(LAST_RESORT) {
            assert!(super::super::builtin_names().contains(name), "{name}");
        }
    }
}
