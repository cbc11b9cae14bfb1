//! What a question asks of a picture, by its words: whether fine detail is needed.
//!
//! Careful on purpose: a question that needs detail and is not recognised costs a right answer, one that is recognised without
//! need costs time only. So a question has to be recognised as one without detail, and hold no word that asks for it; all others,
//! those in languages without word lists among them, need every row.
//!
//! What it does: compares a question with word lists in ten languages. What it never does: look at the picture or the
//! conversation, or ask a model. Who calls it: `policy` takes what it found, `session` hands it the question.

mod normal;
mod pattern;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::OnceLock;

use normal::Normal;
use pattern::Pattern;

/// `language, intent, patterns` per line; see [`pattern`] for how they are written.
const WORDS: &str = include_str!("words.tsv");
/// Marks with which models are asked for boxes, points and text, looked for as they are.
const MARKERS: &[(&str, Intent)] = &[
    ("<box", Intent::Coordinates),
    ("<|box", Intent::Coordinates),
    ("<ref", Intent::Coordinates),
    ("<point", Intent::Coordinates),
    ("<|point", Intent::Coordinates),
    ("<loc", Intent::Coordinates),
    ("<od>", Intent::Coordinates),
    ("<grounding", Intent::Coordinates),
    ("<|grounding", Intent::Coordinates),
    ("bbox", Intent::Coordinates),
    ("[x1", Intent::Coordinates),
    ("(x1", Intent::Coordinates),
    ("[x,", Intent::Coordinates),
    ("(x,", Intent::Coordinates),
    ("<ocr", Intent::Read),
];
/// What a question is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Intent {
    /// Text in the picture.
    Read,
    /// Digits: dates, prices, times, plates.
    Number,
    /// Tables, charts, forms.
    Table,
    /// Where something is.
    Where,
    /// Boxes, points, cells of a grid.
    Coordinates,
    /// Small things, differences, comparison.
    Detail,
    /// How many.
    Count,
    /// All that is in the picture, one thing after the other.
    Describe,
    /// The picture as a whole: colours, shapes, what is beside what, what happens.
    Coarse,
    /// Not recognised.
    Unknown,
}

impl Intent {
    /// Its name in word lists and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Number => "number",
            Self::Table => "table",
            Self::Where => "where",
            Self::Coordinates => "coordinates",
            Self::Detail => "detail",
            Self::Count => "count",
            Self::Describe => "describe",
            Self::Coarse => "coarse",
            Self::Unknown => "unknown",
        }
    }

    /// How much it needs.
    #[must_use]
    pub fn demand(self) -> Demand {
        match self {
            Self::Coarse => Demand::Coarse,
            Self::Count | Self::Describe => Demand::Raised,
            _ => Demand::Full,
        }
    }
}

/// How many rows a question needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Demand {
    /// The usual budget.
    Coarse,
    /// More than that.
    Raised,
    /// All of them.
    Full,
}

/// What was recognised in a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    intent: Intent,
    evidence: String,
}

impl Gate {
    /// Looks at what a user writes about a picture. Text without words is taken for the wish to have it described.
    ///
    /// ```
    /// use llava::compress::{Demand, Gate, Intent};
    ///
    /// assert_eq!(Gate::of("What does the sign say?").intent(), Intent::Read);
    /// assert_eq!(Gate::of("Wo ist der Hund?").demand(), Demand::Full);
    /// assert_eq!(Gate::of("How many cups are there?").demand(), Demand::Raised);
    /// assert_eq!(Gate::of("Describe the image.").demand(), Demand::Raised);
    /// assert_eq!(Gate::of("What colour is the car?").demand(), Demand::Coarse);
    /// ```
    #[must_use]
    pub fn of(question: &str) -> Self {
        let found = |intent, evidence: &str| Self { intent, evidence: evidence.to_owned() };
        let lower = question.to_lowercase();
        if let Some((marker, intent)) = MARKERS.iter().find(|(marker, _)| lower.contains(marker)) {
            return found(*intent, marker);
        }
        let lists = lists();
        let whole = Normal::new(question);
        let mut rest = whole.clone();
        for rule in &lists.ignored {
            rule.pattern.remove(&mut rest);
        }
        // what needs most decides; among equals, the first in the lists
        let hit = |demand, question| {
            lists.wanted.iter().find(|r| r.intent.demand() == demand && r.pattern.find(question).is_some())
        };
        if let Some(rule) = hit(Demand::Full, &rest) {
            return found(rule.intent, &rule.text);
        }
        // what asks for no detail can still ask for a number of things
        if let Some(rule) = hit(Demand::Raised, &whole) {
            return found(rule.intent, &rule.text);
        }
        if whole.letters.is_empty() {
            return found(Intent::Describe, "");
        }
        match lists.coarse.iter().find(|r| r.pattern.find(&whole).is_some()) {
            Some(rule) => found(Intent::Coarse, &rule.text),
            None => found(Intent::Unknown, ""),
        }
    }

    /// What the question is after.
    #[must_use]
    pub fn intent(&self) -> Intent {
        self.intent
    }

    /// How many rows that needs.
    #[must_use]
    pub fn demand(&self) -> Demand {
        self.intent.demand()
    }

    /// The pattern that fitted.
    #[must_use]
    pub fn evidence(&self) -> &str {
        &self.evidence
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.intent, self.evidence.as_str()) {
            (Intent::Coarse, _) => f.write_str("the question asks for no detail"),
            (Intent::Unknown, _) => f.write_str("the question is of no known kind"),
            (intent, "") => write!(f, "the question asks to {}", doing(intent)),
            (intent, evidence) => write!(f, "the question asks to {} (`{evidence}`)", doing(intent)),
        }
    }
}

fn doing(intent: Intent) -> &'static str {
    match intent {
        Intent::Read => "read",
        Intent::Number => "read a number",
        Intent::Table => "read a table or chart",
        Intent::Where => "find something",
        Intent::Coordinates => "give coordinates",
        Intent::Detail => "look at details",
        Intent::Count => "count",
        Intent::Describe => "describe",
        Intent::Coarse | Intent::Unknown => "look",
    }
}

#[derive(Debug)]
struct Rule {
    intent: Intent,
    text: String,
    pattern: Pattern,
}

#[derive(Debug, Default)]
struct Lists {
    /// What is taken out of a question before it is looked at.
    ignored: Vec<Rule>,
    /// What needs more than the usual.
    wanted: Vec<Rule>,
    /// What shows that no detail is asked for.
    coarse: Vec<Rule>,
}

fn lists() -> &'static Lists {
    static LISTS: OnceLock<Lists> = OnceLock::new();
    LISTS.get_or_init(|| {
        let mut lists = Lists::default();
        for line in WORDS.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
            let mut fields = line.split('\t').skip(1);
            let (Some(name), Some(patterns)) = (fields.next(), fields.next()) else { continue };
            let (list, intent) = match name {
                "ignore" => (&mut lists.ignored, Intent::Coarse),
                "coarse" => (&mut lists.coarse, Intent::Coarse),
                _ => (&mut lists.wanted, intent_named(name)),
            };
            for text in patterns.split('|') {
                list.push(Rule { intent, text: text.trim().to_owned(), pattern: Pattern::new(text) });
            }
        }
        lists
    })
}

/// An unknown name in the lists asks for all rows, as every unknown thing does; a test keeps the lists free of them.
fn intent_named(name: &str) -> Intent {
    let all = [
        Intent::Read,
        Intent::Number,
        Intent::Table,
        Intent::Where,
        Intent::Coordinates,
        Intent::Detail,
        Intent::Count,
        Intent::Describe,
    ];
    all.into_iter().find(|i| i.name() == name).unwrap_or(Intent::Unknown)
}
