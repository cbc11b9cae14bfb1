//! The gate on labelled questions: those its lists were written with, and those written after them.

use super::*;

const QUESTIONS: &str = include_str!("questions.tsv");
const HELD_OUT: &str = include_str!("held_out.tsv");

fn questions(text: &str) -> Vec<(&str, &str, &str)> {
    text.lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
        .map(|line| {
            let fields: Vec<_> = line.split('\t').collect();
            let [language, need, question] = fields[..] else { panic!("{line}") };
            assert!(["fine", "count", "coarse"].contains(&need), "{line}");
            (language, need, question)
        })
        .collect()
}

/// Share of questions with this need that the gate asks at least `demand` for, and those that it does not.
fn share<'a>(list: &[(&str, &str, &'a str)], need: &str, demand: Demand) -> (f64, Vec<&'a str>) {
    let all: Vec<_> = list.iter().filter(|q| q.1 == need).collect();
    let missed: Vec<_> = all.iter().filter(|q| Gate::of(q.2).demand() < demand).map(|q| q.2).collect();
    (1.0 - missed.len() as f64 / all.len() as f64, missed)
}

/// Fails where fewer questions of detail are recognised, or more others taken for them, than given. Descriptions are coarse: they need
/// somewhat more rows than others, and not all.
fn judge(list: &[(&str, &str, &str)], least: f64, most: f64) {
    let (recall, missed) = share(list, "fine", Demand::Full);
    let (counts, uncounted) = share(list, "count", Demand::Raised);
    let (alarms, _) = share(list, "coarse", Demand::Full);
    println!("{} questions: fine {recall:.3}, count {counts:.3}, false alarms {alarms:.3}", list.len());
    let alarmed: Vec<_> = list
        .iter()
        .map(|q| (q, Gate::of(q.2)))
        .filter(|(q, g)| q.1 == "coarse" && g.demand() == Demand::Full)
        .collect();
    assert!(recall >= least, "fine detail recognised: {recall:.3}, missed {missed:#?}");
    assert!(counts >= 0.95, "counting recognised: {counts:.3}, missed {uncounted:#?}");
    assert!(alarms <= most, "false alarms: {alarms:.3}: {alarmed:#?}");
}

#[test]
fn questions_are_recognised() {
    let mut all = questions(QUESTIONS);
    all.extend(questions(HELD_OUT));
    judge(&all, 0.99, 0.15);
}

/// What to expect of questions that nobody thought of: these were written after the lists, and the lists left alone. Detail is
/// missed in one of twenty, and three of ten others get more rows than they need.
#[test]
fn questions_that_were_held_out_are_mostly_recognised() {
    judge(&questions(HELD_OUT), 0.94, 0.33);
}

#[test]
fn the_lists_are_large_enough_to_mean_something() {
    let (seen, held_out) = (questions(QUESTIONS), questions(HELD_OUT));
    assert!(seen.len() + held_out.len() >= 400 && held_out.len() >= 150);
    let mut languages: Vec<_> = seen.iter().map(|q| q.0).collect();
    languages.dedup();
    assert!(languages.len() >= 5, "{languages:?}");
    for language in languages {
        for need in ["fine", "count", "coarse"] {
            assert!(seen.iter().any(|q| q.0 == language && q.1 == need), "{language} {need}");
        }
    }
    let mut all: Vec<_> = seen.iter().chain(&held_out).map(|q| q.2).collect();
    let n = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), n, "a question stands twice");
}

#[test]
fn lists_name_known_intents() {
    for line in WORDS.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let fields: Vec<_> = line.split('\t').collect();
        assert_eq!(fields.len(), 3, "{line}");
        assert!(["ignore", "coarse"].contains(&fields[1]) || intent_named(fields[1]) != Intent::Unknown, "{line}");
        assert!(!fields[2].split('|').any(|p| p.trim().is_empty()), "{line}");
    }
}

#[test]
fn what_is_not_understood_gets_every_row() {
    for (text, intent) in [
        ("ماذا مكتوب على اللافتة؟", Intent::Unknown),
        ("이 이미지를 설명해 주세요.", Intent::Unknown),
        ("Mitä merkissä lukee?", Intent::Unknown),
        ("<box>dog</box>", Intent::Coordinates),
        ("Answer as [x1, y1, x2, y2]: the cup", Intent::Coordinates),
        ("<OCR>", Intent::Read),
    ] {
        let gate = Gate::of(text);
        assert_eq!((gate.intent(), gate.demand()), (intent, Demand::Full), "{text}");
    }
    for text in ["", " \n", "?!"] {
        assert_eq!(Gate::of(text).demand(), Demand::Raised, "{text:?}");
    }
    assert_eq!(Gate::of("What is the word on the sign?").to_string(), "the question asks to read (`word`)");
}
