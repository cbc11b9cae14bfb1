//! Recognises one of the built-in formats in a Jinja source by tell-tale strings, as llama.cpp does without its Jinja
//! engine. The rules are tried in order; the first that fits wins.

use super::builtin::{Format, find, find_by_user};

struct Rule {
    /// All of these occur ...
    all: &'static [&'static str],
    /// ... and, unless this is empty, one of these does.
    any: &'static [&'static str],
    name: &'static str,
}

const fn all(all: &'static [&'static str], name: &'static str) -> Rule {
    Rule { all, any: &[], name }
}

const fn all_any(all: &'static [&'static str], any: &'static [&'static str], name: &'static str) -> Rule {
    Rule { all, any, name }
}

/// Before Mistral's and Llama 2's brackets are looked at.
const CHATML: &[Rule] = &[
    all(&["<|im_start|>", "<|im_sep|>"], "phi4"),
    all(&["<|im_start|>", "<end_of_utterance>"], "smolvlm"),
    all(&["<|im_start|>"], "chatml"),
];

const BRACKETS: &[Rule] = &[
    all(&["[SYSTEM_PROMPT]"], "mistral-v7"),
    all_any(&[" [INST]"], MISTRAL_OFFICIAL, "mistral-v1"),
    all_any(&["\"[INST]\""], MISTRAL_OFFICIAL, "mistral-v3-tekken"),
    all_any(&[], MISTRAL_OFFICIAL, "mistral-v3"),
    all(&["content.strip()"], "llama2-sys-strip"),
    all(&["bos_token + '[INST]"], "llama2-sys-bos"),
    all(&["<<SYS>>"], "llama2-sys"),
    all(&[], "llama2"),
];

const MISTRAL_OFFICIAL: &[&str] = &["' [INST] ' + system_message", "[AVAILABLE_TOOLS]"];

const OTHERS: &[Rule] = &[
    all(&["<|assistant|>", "<|end|>"], "phi3"),
    all(&["[gMASK]<sop>"], "chatglm4"),
    all(&["<|assistant|>", "<|user|>", "<|tool_declare|>"], "exaone-moe"),
    all(&["<|assistant|>", "<|user|>", "</s>"], "falcon3"),
    all(&["<|assistant|>", "<|user|>"], "glmedge"),
    all(&["<|{{ item['role'] }}|>", "<|begin_of_image|>"], "glmedge"),
    all(&["<|user|>", "<|endoftext|>"], "zephyr"),
    all(&["bos_token + message['role']"], "monarch"),
    all(&["<start_of_turn>"], "gemma"),
    all(&["'\\n\\nAssistant: ' + eos_token"], "orion"),
    all(&["GPT4 Correct "], "openchat"),
    all(&["USER: ", "ASSISTANT: ", "SYSTEM: "], "vicuna-orca"),
    all(&["USER: ", "ASSISTANT: "], "vicuna"),
    all(&["### Instruction:", "<|EOT|>"], "deepseek"),
    all(&["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"], "command-r"),
    all(&["<|start_header_id|>", "<|end_header_id|>"], "llama3"),
    all(&["[gMASK]sop"], "chatglm3"),
    all(&["<用户>"], "minicpm"),
    all(&["'Assistant: ' + message['content'] + eos_token"], "deepseek2"),
    all(&["<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>"], "deepseek3"),
    all(&["[|system|]", "[|assistant|]", "[|endofturn|]", "[|tool|]"], "exaone4"),
    all(&["[|system|]", "[|assistant|]", "[|endofturn|]"], "exaone3"),
    all_any(&[], &["rwkv-world", "{{- 'User: ' + message['content']|trim + '\\n\\n' -}}"], "rwkv-world"),
    all_any(&["<|start_of_role|>", "g4_default_system_message"], &["<tool_call>", "<tools>"], "granite-4.0"),
    all_any(&["<|start_of_role|>"], &["<tool_call>", "<tools>"], "granite-4.1"),
    all(&["<|start_of_role|>"], "granite"),
    all(
        &["message['role'] + additional_special_tokens[0] + message['content'] + additional_special_tokens[1]"],
        "gigachat",
    ),
    all(&["<|role_start|>"], "megrez"),
    all(&[" Ассистент:"], "yandex"),
    all(&["<role>ASSISTANT</role>", "'HUMAN'"], "bailing"),
    all(&["<role>ASSISTANT</role>", "\"HUMAN\"", "<think>"], "bailing-think"),
    all(&["<role>ASSISTANT</role>", "<role>HUMAN</role>", "<|role_end|>"], "bailing2"),
    all(&["<|header_start|>", "<|header_end|>"], "llama4"),
    all(&["<|endofuserprompt|>"], "dots1"),
    all(&["<|extra_0|>", "<|extra_4|>"], "hunyuan-moe"),
    all(&["<|start|>", "<|channel|>"], "gpt-oss"),
    all(&["<｜hy_Assistant｜>", "<｜hy_begin▁of▁sentence｜>"], "hunyuan-vl"),
    all(&["<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁3｜>"], "hunyuan-dense"),
    all(&["<|im_assistant|>assistant<|im_middle|>"], "kimi-k2"),
    all(&["<seed:bos>"], "seed_oss"),
    all(&["'Assistant: '  + message['content'] + '<|separator|>"], "grok-2"),
    all(&["[unused9]系统：[unused10]"], "pangu-embedded"),
    all(&["<|begin|>", "<|end|>", "<|content|>"], "solar-open"),
];

/// The format a template source (or a plain name) stands for.
pub(super) fn detect(source: &str) -> Option<&'static Format> {
    if let Some(format) = find_by_user(source) {
        return Some(format);
    }
    let first = |rules: &[Rule]| rules.iter().find(|rule| rule.fits(source)).map(|rule| rule.name);
    let name = first(CHATML).or_else(|| {
        let brackets = source.starts_with("mistral") || source.contains("[INST]");
        first(if brackets { BRACKETS } else { OTHERS })
    })?;
    find(name)
}

impl Rule {
    fn fits(&self, source: &str) -> bool {
        self.all.iter().all(|text| source.contains(text))
            && (self.any.is_empty() || self.any.iter().any(|text| source.contains(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_a_format() {
        for rule in CHATML.iter().chain(BRACKETS).chain(OTHERS) {
            assert!(find(rule.name).is_some(), "{}", rule.name);
        }
    }

    #[test]
    fn plain_text_is_no_format() {
        assert!(detect("{{ messages[0].content }}").is_none());
        assert!(detect("").is_none());
        assert_eq!(detect("mistral").map(|format| format.name), Some("llama2"), "as llama.cpp answers");
    }
}
