//! Patterns of the word lists.
//!
//! A pattern is words with spaces between them: `how many`. A word that ends in `*` stands for all that begin with it; one that
//! begins with `*`, for all that end with it. `..` stands for up to six words, a leading `^` for the beginning. A pattern in a script without spaces is looked for
//! anywhere, and its `..` stands for up to twelve letters.

use super::normal::{Normal, is_unspaced};

/// Words that `..` may stand for.
const GAP_WORDS: usize = 6;
/// Letters that `..` may stand for.
const GAP_LETTERS: usize = 12;

/// A word of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Is(String),
    Begins(String),
    Ends(String),
    Gap,
    Start,
}

/// One pattern, ready to be looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pattern {
    Words(Vec<Word>),
    /// Pieces that follow each other.
    Letters(Vec<String>),
}

impl Word {
    fn fits(&self, word: &str) -> bool {
        match self {
            Self::Is(w) => word == w,
            Self::Begins(w) => word.starts_with(w.as_str()),
            Self::Ends(w) => word.ends_with(w.as_str()),
            Self::Gap | Self::Start => false,
        }
    }
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let text = text.trim();
        if text.chars().any(is_unspaced) {
            let pieces = text.split("..").map(|p| Normal::new(p).letters).filter(|p| !p.is_empty()).collect();
            return Self::Letters(pieces);
        }
        let plain = |w: &str| Normal::new(w).letters;
        let words = text.split_whitespace().map(|w| match (w, w.strip_suffix('*'), w.strip_prefix('*')) {
            ("..", _, _) => Word::Gap,
            ("^", _, _) => Word::Start,
            (_, Some(stem), _) => Word::Begins(plain(stem)),
            (_, _, Some(end)) => Word::Ends(plain(end)),
            _ => Word::Is(plain(w)),
        });
        Self::Words(words.collect())
    }

    /// The words or letters of the question that fit, from and to.
    pub(super) fn find(&self, question: &Normal) -> Option<(usize, usize)> {
        match self {
            Self::Words(pattern) => (0..question.words.len())
                .find_map(|from| words_from(pattern, &question.words, from).map(|to| (from, to))),
            Self::Letters(pieces) => {
                let first = pieces.first()?;
                question.letters.match_indices(first.as_str()).find_map(|(from, _)| {
                    letters_from(&pieces[1..], &question.letters, from + first.len()).map(|to| (from, to))
                })
            }
        }
    }

    /// Takes what fits out of the question, as often as it does.
    pub(super) fn remove(&self, question: &mut Normal) {
        while let Some((from, to)) = self.find(question) {
            match self {
                Self::Words(_) => {
                    question.words.drain(from..to);
                }
                Self::Letters(_) => question.letters.replace_range(from..to, ""),
            }
        }
    }
}

fn words_from(pattern: &[Word], words: &[String], at: usize) -> Option<usize> {
    match pattern {
        [] => Some(at),
        [Word::Start, rest @ ..] => words_from(rest, words, at).filter(|_| at == 0),
        [Word::Gap, rest @ ..] => {
            (at..words.len().min(at + GAP_WORDS + 1)).find_map(|next| words_from(rest, words, next))
        }
        [first, rest @ ..] => words.get(at).filter(|w| first.fits(w)).and_then(|_| words_from(rest, words, at + 1)),
    }
}

fn letters_from(pieces: &[String], letters: &str, at: usize) -> Option<usize> {
    let Some((first, rest)) = pieces.split_first() else { return Some(at) };
    let tail = &letters[at..];
    tail.match_indices(first.as_str())
        .take_while(|(gap, _)| tail[..*gap].chars().count() <= GAP_LETTERS)
        .find_map(|(gap, _)| letters_from(rest, letters, at + gap + first.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).find(&Normal::new(text)).is_some()
    }

    #[test]
    fn patterns_fit_words_not_parts_of_them() {
        assert!(finds("read", "Please READ it") && !finds("read", "a loaf of bread"));
        assert!(finds("read*", "reading it") && !finds("read*", "bread"));
        assert!(finds("*nummer", "Welche Hausnummer?") && !finds("*nummer", "nummern"));
        assert!(finds("^ is the", "Is the cat in?") && !finds("^ is the", "What is the cat?"));
        assert!(finds("how many", "How  many?") && !finds("how many", "how so many"));
        assert!(finds("what .. say", "What does the big sign say?"));
        assert!(!finds("what .. say", "what a b c d e f g say") && finds("what .. say", "what say"));
        assert!(finds("何..書いて", "看板には何と書いてありますか") && !finds("何..書いて", "書いて何"));
        let mut question = Normal::new("left of and left of it");
        Pattern::new("left of").remove(&mut question);
        assert_eq!(question.words, ["and", "it"]);
    }
}
