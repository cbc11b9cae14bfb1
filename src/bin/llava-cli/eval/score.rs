//! Judging an answer.

use std::fmt::{self, Display};
use std::str::FromStr;

/// How answers are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scorer {
    /// Equal but for case, spaces and one full stop at the end.
    Exact,
    /// The first number in it is the right one.
    Numeric,
    /// The right answer stands in it as whole words.
    Contains,
    /// Average normalised Levenshtein similarity (Biten et al., ICCV 2019): partial credit down to half of the characters.
    Anls,
    /// The right one is the likeliest of some choices.
    Choice,
}

impl Scorer {
    pub fn name(self) -> &'static str {
        match self {
            Scorer::Exact => "exact",
            Scorer::Numeric => "numeric",
            Scorer::Contains => "contains",
            Scorer::Anls => "anls",
            Scorer::Choice => "choice",
        }
    }

    /// The credit for an answer, 0 to 1: the best that one of the right answers gives.
    pub fn score(self, answer: &str, right: &[String]) -> f64 {
        right.iter().map(|right| self.against(answer, right)).fold(0.0, f64::max)
    }

    fn against(self, answer: &str, right: &str) -> f64 {
        let holds = match self {
            Scorer::Exact => plain(answer) == plain(right),
            Scorer::Choice => answer == right,
            Scorer::Numeric => match (first_number(answer), first_number(right)) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs().max(1.0),
                _ => false,
            },
            Scorer::Contains => holds_words(&plain(answer), &plain(right)),
            Scorer::Anls => return similarity(&plain(answer), &plain(right)),
        };
        if holds { 1.0 } else { 0.0 }
    }
}

impl FromStr for Scorer {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Scorer::Exact, Scorer::Numeric, Scorer::Contains, Scorer::Anls, Scorer::Choice];
        let found = all.into_iter().find(|s| s.name() == name);
        found.ok_or_else(|| format!("`{name}` is no scorer: exact, numeric, contains, anls or choice"))
    }
}

/// `--scorer`: for all tasks or for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScorerChoice {
    pub task: Option<String>,
    pub scorer: Scorer,
}

impl FromStr for ScorerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((task, name)) => Ok(Self { task: Some(task.to_owned()), scorer: name.parse()? }),
            None => Ok(Self { task: None, scorer: text.parse()? }),
        }
    }
}

impl Display for ScorerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.task {
            Some(task) => write!(f, "{task}={}", self.scorer.name()),
            None => f.write_str(self.scorer.name()),
        }
    }
}

/// Lower case, single spaces, no full stop at the end.
fn plain(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let joined = words.join(" ");
    joined.strip_suffix('.').map_or_else(|| joined.clone(), |rest| rest.trim_end().to_owned())
}

fn holds_words(text: &str, wanted: &str) -> bool {
    if wanted.is_empty() {
        return false;
    }
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    text.match_indices(wanted).any(|(at, _)| {
        let inside = (wanted.chars().next(), wanted.chars().next_back());
        let (before, after) = (text[..at].chars().next_back(), text[at + wanted.len()..].chars().next());
        !(is_word(inside.0) && is_word(before) || is_word(inside.1) && is_word(after))
    })
}

/// The first number, in digits or as an English word up to twelve. Commas between groups of three digits are left out.
fn first_number(text: &str) -> Option<f64> {
    const WORDS: [&str; 13] =
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    let text = text.to_lowercase().replace('\u{2212}', "-");
    for word in text.split(|c: char| c.is_whitespace() || "()[]{}\"'`*:;=$€£%".contains(c)) {
        if let Some(value) = WORDS.iter().position(|w| *w == word.trim_matches(['.', ',', '!', '?'])) {
            return Some(value as f64);
        }
        let Some(digit) = word.find(|c: char| c.is_ascii_digit()) else { continue };
        let start = word[..digit].strip_suffix('.').map_or(digit, str::len);
        let is_negative = word[..start].ends_with('-') && !word[..start - 1].ends_with(char::is_alphanumeric);
        let body: String = word[start..].chars().take_while(|c| c.is_ascii_digit() || *c == '.' || *c == ',').collect();
        let body = without_groups(body.trim_end_matches(['.', ',']));
        // a date or version has more than one point: its first number counts
        let end = body.match_indices('.').nth(1).map_or(body.len(), |(at, _)| at);
        if let Ok(value) = body[..end].parse::<f64>() {
            return Some(if is_negative { -value } else { value });
        }
    }
    None
}

/// `12,345.6` as `12345.6`; a comma that separates no group of three ends the number.
fn without_groups(text: &str) -> String {
    let mut parts = text.split(',');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let group = part.split('.').next().unwrap_or_default();
        if group.len() != 3 || out.contains('.') || out.is_empty() {
            break;
        }
        out.push_str(part);
    }
    out
}

/// One minus the edit distance by the longer length; 0 below one half.
fn similarity(a: &str, b: &str) -> f64 {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let longest = a.len().max(b.len());
    if longest == 0 {
        return 1.0;
    }
    let similarity = 1.0 - levenshtein(&a, &b) as f64 / longest as f64;
    if similarity < 0.5 { 0.0 } else { similarity }
}

fn levenshtein(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(scorer: Scorer, answer: &str, right: &[&str]) -> f64 {
        scorer.score(answer, &right.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn exact_forgives_form_only() {
        assert_eq!(score(Scorer::Exact, " Red  circle.\n", &["red circle"]), 1.0);
        assert_eq!(score(Scorer::Exact, "a red circle", &["red circle"]), 0.0);
        assert_eq!(score(Scorer::Exact, "grey", &["gray", "grey"]), 1.0);
        assert_eq!(score(Scorer::Exact, "", &["x"]), 0.0);
        assert_eq!(score(Scorer::Exact, "x", &[]), 0.0);
    }

    #[test]
    fn numbers_are_found() {
        for (text, number) in [
            ("There are 4 circles.", Some(4.0)),
            ("four", Some(4.0)),
            ("It is -3.5 degrees", Some(-3.5)),
            ("12,345.6", Some(12345.6)),
            ("3, 4 and 5", Some(3.0)),
            ("1,2", Some(1.0)),
            ("$7.", Some(7.0)),
            ("covid-19", Some(19.0)),
            (".5", Some(0.5)),
            ("v1.2.3", Some(1.2)),
            ("none", None),
            ("someone", None),
            ("", None),
        ] {
            assert_eq!(first_number(text), number, "{text}");
        }
        assert_eq!(score(Scorer::Numeric, "about 7", &["7.0"]), 1.0);
        assert_eq!(score(Scorer::Numeric, "seventy", &["7"]), 0.0);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(score(Scorer::Contains, "It is a Red Circle, I think", &["red circle"]), 1.0);
        assert_eq!(score(Scorer::Contains, "scared", &["red"]), 0.0);
        assert_eq!(score(Scorer::Contains, "red, reddish", &["reddish"]), 1.0);
        assert_eq!(score(Scorer::Contains, "50%", &["%"]), 1.0);
        assert_eq!(score(Scorer::Contains, "anything", &[""]), 0.0);
    }

    #[test]
    fn edit_distances() {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        for (a, b, distance) in [("kitten", "sitting", 3), ("", "abc", 3), ("flaw", "lawn", 2), ("über", "uber", 1)] {
            assert_eq!(levenshtein(&chars(a), &chars(b)), distance, "{a} {b}");
        }
        assert_eq!(score(Scorer::Anls, "EXIT", &["exit"]), 1.0);
        assert_eq!(score(Scorer::Anls, "EXIP", &["EXIT"]), 0.75);
        assert_eq!(score(Scorer::Anls, "EPPP", &["EXIT", "EPIP"]), 0.75);
        // half is kept, less is not
        assert_eq!(score(Scorer::Anls, "EXPP", &["EXIT"]), 0.5);
        assert_eq!(score(Scorer::Anls, "PPPT", &["EXIT"]), 0.0);
    }

    #[test]
    fn names() {
        assert_eq!("anls".parse(), Ok(Scorer::Anls));
        assert!("vqa".parse::<Scorer>().is_err());
        let one: ScorerChoice = "attr=contains".parse().unwrap();
        assert_eq!(one, ScorerChoice { task: Some("attr".into()), scorer: Scorer::Contains });
        assert_eq!(one.to_string(), "attr=contains");
    }
}
