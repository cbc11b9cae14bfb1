//! Backslash escapes in prompts, by llama.cpp's rules.

/// Replaces `\n \r \t \' \" \\` and `\xNN` (a byte); everything else after a backslash stays, the backslash too.
///
/// Bytes that are no UTF-8 in the end become U+FFFD: a prompt is text.
pub fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (bytes, used) = match (first, tail) {
            (b'\\', [code, after @ ..]) => match simple(*code) {
                Some(byte) => (vec![byte], 2),
                None => match hex(*code, after) {
                    Some(byte) => (vec![byte], 4),
                    None => (vec![b'\\', *code], 2),
                },
            },
            _ => (vec![*first], 1),
        };
        out.extend(bytes);
        rest = &rest[used..];
    }
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

fn simple(code: u8) -> Option<u8> {
    Some(match code {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'\'' | b'"' | b'\\' => code,
        _ => return None,
    })
}

fn hex(code: u8, after: &[u8]) -> Option<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    match (code, after) {
        (b'x', [high, low, ..]) => Some(digit(*high)? * 16 + digit(*low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn known_escapes_are_replaced_and_others_stay() {
        assert_eq!(unescape(r#"a\nb\tc\rd\'e\"f\\n"#), "a\nb\tc\rd'e\"f\\n");
        assert_eq!(unescape(r"C:\data \d \"), "C:\\data \\d \\");
        assert_eq!(unescape(r"\x41\x6a\xZZ\x4"), "Aj\\xZZ\\x4");
        assert_eq!(unescape(r"\xe2\x82\xac"), "€");
        assert_eq!(unescape(r"a\xffb"), "a\u{fffd}b");
        assert_eq!(unescape("ü\\ü€"), "ü\\ü€");
    }

    proptest::proptest! {
        #[test]
        fn escaping_is_undone(text in "\\PC*|[\\\\nrtx\"'a-f0-9]*") {
            let escaped: String = text.chars().map(|c| match c {
                '\\' => r"\\".to_owned(),
                '"' => r#"\""#.to_owned(),
                c => c.to_string(),
            }).collect();
            proptest::prop_assert_eq!(unescape(&escaped), text);
        }
    }
}
