//! The table of built-in formats without memory.

use super::builtin::{Around, Format, Kind, Layout, Opening, Turns};

const fn wrap(before: &'static str, after: &'static str) -> Option<Around> {
    Some(Around { before, after, trim: false })
}

const fn trimmed(before: &'static str, after: &'static str) -> Option<Around> {
    Some(Around { before, after, trim: true })
}

/// Turns that spell the role: `named!(wrap, before, between, after)` puts the role's name after `before`.
macro_rules! named {
    ($around:ident, $before:literal, $between:literal, $after:literal) => {
        Turns {
            system: $around(concat!($before, "system", $between), $after),
            user: $around(concat!($before, "user", $between), $after),
            assistant: $around(concat!($before, "assistant", $between), $after),
            tool: $around(concat!($before, "tool", $between), $after),
        }
    };
}

const fn turns(system: Option<Around>, user: Option<Around>, assistant: Option<Around>, tool: Option<Around>) -> Turns {
    Turns { system, user, assistant, tool }
}

const fn layout(name: &'static str, turns: Turns, prompt: &'static str) -> Format {
    opened(name, Opening::Nothing, turns, prompt)
}

const fn opened(name: &'static str, opening: Opening, turns: Turns, prompt: &'static str) -> Format {
    Format { name, kind: Kind::Layout(Layout { opening, joint: "", turns, system_only_first: false, prompt }) }
}

/// Like [`opened`], for formats that take a system message in first place only.
const fn system_first(name: &'static str, opening: Opening, turns: Turns, prompt: &'static str) -> Format {
    Format { name, kind: Kind::Layout(Layout { opening, joint: "", turns, system_only_first: true, prompt }) }
}

const GRANITE: Turns = named!(wrap, "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\n");
const GRANITE_PROMPT: &str = "<|start_of_role|>assistant<|end_of_role|>";

const BAILING: Turns = turns(
    wrap("<role>SYSTEM</role>", ""),
    wrap("<role>HUMAN</role>", ""),
    wrap("<role>ASSISTANT</role>", ""),
    wrap("<role>TOOL</role>", ""),
);

pub(super) static LAYOUTS: &[Format] = &[
    layout("chatml", named!(wrap, "<|im_start|>", "\n", "<|im_end|>\n"), "<|im_start|>assistant\n"),
    layout(
        "mistral-v7",
        turns(
            wrap("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"),
            wrap("[INST] ", "[/INST]"),
            wrap(" ", "</s>"),
            wrap(" ", "</s>"),
        ),
        "",
    ),
    layout(
        "mistral-v7-tekken",
        turns(
            wrap("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            wrap("[INST]", "[/INST]"),
            wrap("", "</s>"),
            wrap("", "</s>"),
        ),
        "",
    ),
    layout("phi3", named!(wrap, "<|", "|>\n", "<|end|>\n"), "<|assistant|>\n"),
    layout("phi4", named!(wrap, "<|im_start|>", "<|im_sep|>", "<|im_end|>"), "<|im_start|>assistant<|im_sep|>"),
    layout("falcon3", named!(wrap, "<|", "|>\n", "\n"), "<|assistant|>\n"),
    layout("zephyr", named!(wrap, "<|", "|>\n", "<|endoftext|>\n"), "<|assistant|>\n"),
    Format {
        name: "monarch",
        kind: Kind::Layout(Layout {
            opening: Opening::Nothing,
            joint: "<s>",
            turns: named!(wrap, "", "\n", "</s>\n"),
            system_only_first: false,
            prompt: "<s>assistant\n",
        }),
    },
    layout(
        "openchat",
        turns(
            wrap("", "<|end_of_turn|>"),
            wrap("GPT4 Correct User: ", "<|end_of_turn|>"),
            wrap("GPT4 Correct Assistant: ", "<|end_of_turn|>"),
            wrap("GPT4 Correct Tool: ", "<|end_of_turn|>"),
        ),
        "GPT4 Correct Assistant:",
    ),
    layout("vicuna", turns(wrap("", "\n\n"), wrap("USER: ", "\n"), wrap("ASSISTANT: ", "</s>\n"), None), "ASSISTANT:"),
    layout(
        "vicuna-orca",
        turns(wrap("SYSTEM: ", "\n"), wrap("USER: ", "\n"), wrap("ASSISTANT: ", "</s>\n"), None),
        "ASSISTANT:",
    ),
    layout(
        "deepseek",
        turns(wrap("", ""), wrap("### Instruction:\n", "\n"), wrap("### Response:\n", "\n<|EOT|>\n"), None),
        "### Response:\n",
    ),
    layout(
        "deepseek2",
        turns(wrap("", "\n\n"), wrap("User: ", "\n\n"), wrap("Assistant: ", "<｜end▁of▁sentence｜>"), None),
        "Assistant:",
    ),
    layout(
        "deepseek3",
        turns(wrap("", "\n\n"), wrap("<｜User｜>", ""), wrap("<｜Assistant｜>", "<｜end▁of▁sentence｜>"), None),
        "<｜Assistant｜>",
    ),
    layout("deepseek-ocr", turns(wrap("", ""), wrap("", ""), wrap("", ""), wrap("", "")), ""),
    layout(
        "command-r",
        turns(
            trimmed("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            trimmed("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            trimmed("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
            None,
        ),
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    ),
    layout(
        "llama3",
        named!(trimmed, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    layout(
        "llama4",
        named!(trimmed, "<|header_start|>", "<|header_end|>\n\n", "<|eot|>"),
        "<|header_start|>assistant<|header_end|>\n\n",
    ),
    opened("chatglm3", Opening::Always("[gMASK]sop"), named!(wrap, "<|", "|>\n ", ""), "<|assistant|>"),
    opened("chatglm4", Opening::Always("[gMASK]<sop>"), named!(wrap, "<|", "|>\n", ""), "<|assistant|>\n"),
    layout("glmedge", named!(wrap, "<|", "|>\n", ""), "<|assistant|>"),
    layout("minicpm", turns(trimmed("", ""), trimmed("<用户>", "<AI>"), trimmed("", ""), trimmed("", "")), ""),
    layout(
        "exaone3",
        turns(
            trimmed("[|system|]", "[|endofturn|]\n"),
            trimmed("[|user|]", "\n"),
            trimmed("[|assistant|]", "[|endofturn|]\n"),
            None,
        ),
        "[|assistant|]",
    ),
    layout(
        "exaone4",
        turns(
            trimmed("[|system|]", "[|endofturn|]\n"),
            trimmed("[|user|]", "\n"),
            trimmed("[|assistant|]", "[|endofturn|]\n"),
            trimmed("[|tool|]", "[|endofturn|]\n"),
        ),
        "[|assistant|]",
    ),
    layout("exaone-moe", named!(trimmed, "<|", "|>\n", "<|endofturn|>\n"), "<|assistant|>\n"),
    layout("granite", GRANITE, GRANITE_PROMPT),
    layout("granite-4.0", GRANITE, GRANITE_PROMPT),
    layout("granite-4.1", GRANITE, GRANITE_PROMPT),
    system_first(
        "gigachat",
        Opening::Always("<s>"),
        turns(
            wrap("", "<|message_sep|>"),
            wrap("user<|role_sep|>", "<|message_sep|>available functions<|role_sep|>[]<|message_sep|>"),
            wrap("assistant<|role_sep|>", "<|message_sep|>"),
            None,
        ),
        "assistant<|role_sep|>",
    ),
    layout(
        "megrez",
        named!(wrap, "<|role_start|>", "<|role_end|>", "<|turn_end|>"),
        "<|role_start|>assistant<|role_end|>",
    ),
    layout(
        "yandex",
        turns(None, wrap(" Пользователь: ", "\n\n"), wrap(" Ассистент: ", "\n\n"), None),
        " Ассистент:[SEP]",
    ),
    layout("bailing", BAILING, "<role>ASSISTANT</role>"),
    layout("bailing-think", BAILING, "<role>ASSISTANT</role><think>"),
    opened(
        "bailing2",
        Opening::WithoutSystem("<role>SYSTEM</role>detailed thinking off<|role_end|>"),
        turns(
            wrap("<role>SYSTEM</role>", "<|role_end|>"),
            wrap("<role>HUMAN</role>", "<|role_end|>"),
            wrap("<role>ASSISTANT</role>", "<|role_end|>"),
            wrap("<role>TOOL</role>", "<|role_end|>"),
        ),
        "<role>ASSISTANT</role>",
    ),
    opened(
        "smolvlm",
        Opening::Always("<|im_start|>"),
        turns(
            wrap("", "\n\n"),
            wrap("User: ", "<end_of_utterance>\n"),
            wrap("Assistant: ", "<end_of_utterance>\n"),
            wrap("Assistant: ", "<end_of_utterance>\n"),
        ),
        "Assistant:",
    ),
    layout(
        "dots1",
        turns(
            wrap("<|system|>", "<|endofsystem|>"),
            wrap("<|userprompt|>", "<|endofuserprompt|>"),
            wrap("<|response|>", "<|endofresponse|>"),
            wrap("<|response|>", "<|endofresponse|>"),
        ),
        "<|response|>",
    ),
    layout(
        "hunyuan-moe",
        turns(
            wrap("<|startoftext|>", "<|extra_4|>"),
            wrap("<|startoftext|>", "<|extra_0|>"),
            wrap("", "<|eos|>"),
            wrap("<|startoftext|>", "<|extra_0|>"),
        ),
        "",
    ),
    layout(
        "gpt-oss",
        turns(
            wrap("<|start|>system<|message|>", "<|end|>"),
            wrap("<|start|>user<|message|>", "<|end|>"),
            wrap("<|start|>assistant<|message|>", "<|return|>"),
            wrap("<|start|>tool<|message|>", "<|end|>"),
        ),
        "<|start|>assistant",
    ),
    system_first(
        "hunyuan-dense",
        Opening::Nothing,
        turns(
            wrap("", "<｜hy_place▁holder▁no▁3｜>"),
            wrap("<｜hy_User｜>", "<｜hy_Assistant｜>"),
            wrap("<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁2｜>"),
            None,
        ),
        "",
    ),
    system_first(
        "hunyuan-vl",
        Opening::Always("<｜hy_begin▁of▁sentence｜>"),
        turns(wrap("", "<｜hy_place▁holder▁no▁3｜>"), wrap("", "<｜hy_User｜>"), wrap("", "<｜hy_Assistant｜>"), None),
        "",
    ),
    layout(
        "kimi-k2",
        turns(
            wrap("<|im_system|>system<|im_middle|>", "<|im_end|>"),
            wrap("<|im_user|>user<|im_middle|>", "<|im_end|>"),
            wrap("<|im_assistant|>assistant<|im_middle|>", "<|im_end|>"),
            wrap("<|im_system|>tool<|im_middle|>", "<|im_end|>"),
        ),
        "<|im_assistant|>assistant<|im_middle|>",
    ),
    layout(
        "seed_oss",
        turns(
            wrap("<seed:bos>system\n", "<seed:eos>"),
            wrap("<seed:bos>user\n", "<seed:eos>"),
            trimmed("<seed:bos>assistant\n", "<seed:eos>"),
            wrap("<seed:bos>tool\n", "<seed:eos>"),
        ),
        "<seed:bos>assistant\n",
    ),
    layout(
        "grok-2",
        turns(
            trimmed("System: ", "<|separator|>\n\n"),
            trimmed("Human: ", "<|separator|>\n\n"),
            wrap("Assistant: ", "<|separator|>\n\n"),
            None,
        ),
        "Assistant:",
    ),
    opened(
        "pangu-embedded",
        Opening::BeforeOther("[unused9]系统：[unused10]"),
        turns(
            wrap("[unused9]系统：", "[unused10]"),
            wrap("[unused9]用户：", "[unused10]"),
            wrap("[unused9]助手：", "[unused10]"),
            wrap("[unused9]工具：", "[unused10]"),
        ),
        "[unused9]助手：",
    ),
    layout("solar-open", named!(wrap, "<|begin|>", "<|content|>", "<|end|>"), "<|begin|>assistant"),
];
