//! What is changed in a template's source before it is compiled, and in a rendering after.

/// Refusals in published templates that would reject conversations which are fine: a text that must all be present, and
/// the condition (a whole `{%- if .. %}` tag) that then counts as false. llama.cpp neutralises the same two.
const FALSE_ALARMS: [(&str, &str); 2] = [
    (
        "<|channel|>",
        "{%- if \"<|channel|>analysis<|message|>\" in message.content or \"<|channel|>final<|message|>\" in message.content %}",
    ),
    (
        "[TOOL_CALLS]",
        "{%- if (message['content'] is none or message['content'] == '' or message['content']|length == 0) and (message['tool_calls'] is not defined or message['tool_calls'] is none or message['tool_calls']|length == 0) %}",
    ),
];

/// The source with Unix line ends, without the tags that only mark text for training, and without false alarms.
pub(super) fn prepared(source: &str) -> String {
    let mut source = without_generation_tags(&source.replace("\r\n", "\n").replace('\r', "\n"));
    for (sign, condition) in FALSE_ALARMS {
        if source.contains(sign) {
            source = source.replace(condition, "{%- if false %}");
        }
    }
    source
}

/// `{% generation %}` .. `{% endgeneration %}` become an `if` that always holds, with the same white-space control.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        out.push_str(before);
        let Some(length) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let inner = &tag[..length];
        let word = inner.trim_matches(['-', '+']).trim();
        match word {
            "generation" => out.push_str(&inner.replacen(word, "if true", 1)),
            "endgeneration" => out.push_str(&inner.replacen(word, "endif", 1)),
            _ => out.push_str(inner),
        }
        rest = &tag[length..];
    }
    out.push_str(rest);
    out
}

/// Harmony templates close the last answer with the token that ends a generation; in a history it must be the token that
/// ends a message.
pub(super) fn reopen_harmony(text: &mut String) {
    if let Some(body) = text.strip_suffix("<|return|>") {
        *text = format!("{body}<|end|>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_keep_their_white_space_control() {
        assert_eq!(
            prepared("a{%- generation %}b{% endgeneration -%}c{% if x %}d{% endif %}"),
            "a{%- if true %}b{% endif -%}c{% if x %}d{% endif %}"
        );
        assert_eq!(prepared("a {% b"), "a {% b");
        assert_eq!(prepared("a\r\nb\rc"), "a\nb\nc");
    }

    #[test]
    fn the_last_return_becomes_an_end() {
        let mut text = String::from("x<|return|>y<|return|>");
        reopen_harmony(&mut text);
        assert_eq!(text, "x<|return|>y<|end|>");
    }
}
