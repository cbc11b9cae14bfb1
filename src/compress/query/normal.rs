//! Text of a question as the gate compares it: small letters without accents, words apart.

/// A question in the two forms that patterns look at.
#[derive(Debug, Clone)]
pub(super) struct Normal {
    /// Words of scripts that put spaces between them.
    pub(super) words: Vec<String>,
    /// Letters of all scripts without anything between them, for scripts that put no spaces.
    pub(super) letters: String,
}

impl Normal {
    pub(super) fn new(text: &str) -> Self {
        let mut folded = String::with_capacity(text.len());
        for c in text.chars().flat_map(char::to_lowercase) {
            fold(c, &mut folded);
        }
        let words = folded.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect();
        Self { words, letters: folded.chars().filter(|c| c.is_alphanumeric()).collect() }
    }
}

/// Whether a letter is written without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30ff | 0x31f0..=0x31ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff)
}

/// Writes a small letter without its accent.
fn fold(c: char, out: &mut String) {
    let plain = match c {
        'à' | 'á' | 'â' | 'ã' | 'ä' | 'å' | 'ā' | 'ă' | 'ą' => "a",
        'ç' | 'ć' | 'č' => "c",
        'è' | 'é' | 'ê' | 'ë' | 'ē' | 'ė' | 'ę' | 'ě' => "e",
        'ì' | 'í' | 'î' | 'ï' | 'ī' | 'ı' => "i",
        'ñ' | 'ń' | 'ň' => "n",
        'ò' | 'ó' | 'ô' | 'õ' | 'ö' | 'ø' | 'ō' | 'ő' => "o",
        'ù' | 'ú' | 'û' | 'ü' | 'ū' | 'ů' | 'ű' => "u",
        'ý' | 'ÿ' => "y",
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'ё' => "е",
        // combining accents: what decomposed text writes behind the letter
        '\u{300}'..='\u{36f}' => "",
        // full-width digits and letters
        '\u{ff10}'..='\u{ff19}' | '\u{ff41}'..='\u{ff5a}' => {
            out.extend(char::from_u32(u32::from(c) - 0xfee0));
            return;
        }
        other => {
            out.push(other);
            return;
        }
    };
    out.push_str(plain);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accents_case_and_width_do_not_matter() {
        let words = |text: &str| Normal::new(text).words;
        assert_eq!(words("Où est l'ÉLÉPHANT?"), ["ou", "est", "l", "elephant"]);
        assert_eq!(words("Cafe\u{301} STRASSE Straße"), ["cafe", "strasse", "strasse"]);
        assert_eq!(words("ＲＯＷ３"), ["row3"]);
        assert_eq!(Normal::new("何が 書いて?").letters, "何が書いて");
    }
}
