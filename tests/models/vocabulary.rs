//! A SentencePiece vocabulary without merges, and the special tokens and chat template of each family.

use llava::Result;
use llava::gguf::Array;

use super::Family;
use super::weights::Draft;

const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;
const NORMAL: i32 = 1;

/// Tokens 0..3 are `<unk> <s> </s>`, then 256 bytes, the space mark, printable ASCII, and the family's own.
#[derive(Debug)]
pub struct Vocabulary {
    family: Family,
    tokens: Vec<(String, i32)>,
}

impl Vocabulary {
    /// The vocabulary of a family.
    pub fn new(family: Family) -> Vocabulary {
        let mut tokens = vec![("<unk>".to_owned(), UNKNOWN), ("<s>".to_owned(), CONTROL), ("</s>".to_owned(), CONTROL)];
        tokens.extend((0..=255).map(|b| (format!("<0x{b:02X}>"), BYTE)));
        tokens.push(("\u{2581}".to_owned(), NORMAL));
        tokens.extend(('!'..='~').map(|c| (c.to_string(), NORMAL)));
        let special: &[(&str, i32)] = match family {
            Family::Llava15 => &[],
            Family::Qwen2Vl => &[
                ("<|im_start|>", CONTROL),
                ("<|im_end|>", CONTROL),
                ("<|vision_start|>", CONTROL),
                ("<|vision_end|>", CONTROL),
                ("<|image_pad|>", CONTROL),
            ],
            Family::Gemma3 => &[
                ("<start_of_turn>", CONTROL),
                ("<end_of_turn>", CONTROL),
                ("<start_of_image>", CONTROL),
                ("<end_of_image>", CONTROL),
            ],
            Family::Idefics3 => &[
                ("<|im_start|>", CONTROL),
                ("<end_of_utterance>", CONTROL),
                ("<fake_token_around_image>", USER_DEFINED),
                ("<global-img>", USER_DEFINED),
                ("\n\n", USER_DEFINED),
            ],
        };
        tokens.extend(special.iter().map(|&(t, kind)| (t.to_owned(), kind)));
        if family == Family::Idefics3 {
            for row in 1..=6 {
                tokens.extend((1..=6).map(|column| (format!("<row_{row}_col_{column}>"), USER_DEFINED)));
            }
        }
        Vocabulary { family, tokens }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether a token is one printable ASCII character.
    pub fn is_printable(&self, id: usize) -> bool {
        let (text, kind) = &self.tokens[id];
        *kind == NORMAL && text.is_ascii()
    }

    fn id(&self, text: &str) -> u32 {
        let at = self.tokens.iter().position(|(t, _)| t == text);
        at.expect("token of this family") as u32
    }

    /// Writes all `tokenizer.*` keys.
    pub fn set(&self, draft: &mut Draft, chat_template: bool) -> Result<()> {
        draft.set("tokenizer.ggml.model", "llama")?;
        draft.set("tokenizer.ggml.pre", "default")?;
        let tokens = self.tokens.iter().map(|(t, _)| t.as_bytes().to_vec()).collect::<Vec<_>>();
        draft.set("tokenizer.ggml.tokens", Array::from(tokens))?;
        let scores = (0..self.len()).map(|i| -(i as f32)).collect::<Vec<_>>();
        draft.set("tokenizer.ggml.scores", Array::from(scores))?;
        draft.set("tokenizer.ggml.token_type", Array::from(self.tokens.iter().map(|t| t.1).collect::<Vec<_>>()))?;
        draft.set("tokenizer.ggml.unknown_token_id", 0u32)?;
        draft.set("tokenizer.ggml.bos_token_id", 1u32)?;
        let end = match self.family {
            Family::Llava15 => 2,
            Family::Qwen2Vl => self.id("<|im_end|>"),
            Family::Gemma3 => self.id("<end_of_turn>"),
            Family::Idefics3 => self.id("<end_of_utterance>"),
        };
        draft.set("tokenizer.ggml.eos_token_id", end)?;
        draft.set("tokenizer.ggml.add_bos_token", self.family != Family::Qwen2Vl)?;
        draft.set("tokenizer.ggml.add_eos_token", false)?;
        draft.set("tokenizer.ggml.add_space_prefix", false)?;
        if chat_template {
            draft.set("tokenizer.chat_template", template(self.family))?;
        }
        Ok(())
    }
}

/// A Jinja template in the manner of the family. Content is a string; pictures are marked inside it.
fn template(family: Family) -> &'static str {
    match family {
        Family::Llava15 => {
            "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + ' ' }}\
             {% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\\n' }}\
             {% else %}{{ 'ASSISTANT: ' + m.content + eos_token }}{% endif %}{% endfor %}\
             {% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
        }
        Family::Qwen2Vl => {
            "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
             {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
        }
        Family::Gemma3 => {
            "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else 'user' %}\
             {{ '<start_of_turn>' + role + '\\n' + m.content + '<end_of_turn>\\n' }}{% endfor %}\
             {% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
        }
        Family::Idefics3 => {
            "<|im_start|>{% for m in messages %}{{ m.role | capitalize + ': ' + m.content + '<end_of_utterance>\\n' }}{% endfor %}\
             {% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
        }
    }
}
