//! That questions are the same every time and their answers right.

use std::collections::BTreeMap;

use super::*;
use crate::eval::generator::objects::{COLOURS, SHAPES};
use xxhash_rust::xxh3::xxh3_64;

const N: u64 = 120;

fn answers(task: Task) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for i in 0..N {
        *counts.entry(make(task, 3, i).answer).or_insert(0) += 1;
    }
    counts
}

/// Other pixels than these are another test set: results of different versions could not be compared.
#[test]
fn pixels_and_words_never_change() {
    let sums: Vec<String> = TASKS
        .iter()
        .map(|&task| {
            let q = make(task, 1, 0);
            let words = format!("{:?} {} {}", q.before, q.question, q.answer);
            format!("{} {:016x} {words}", task.name(), xxh3_64(q.picture().samples()))
        })
        .collect();
    assert_eq!(sums.join("\n"), include_str!("golden.txt").trim_end());
}

#[test]
fn seeds_tasks_and_indices_give_different_pictures() {
    let base = make(Task::Attribute, 1, 0).picture();
    assert_eq!(base, make(Task::Attribute, 1, 0).picture());
    for other in [make(Task::Attribute, 2, 0), make(Task::Attribute, 1, 1), make(Task::Caption, 1, 0)] {
        assert_ne!(base, other.picture());
    }
}

#[test]
fn names_lead_back() {
    for task in TASKS {
        assert_eq!(Task::from_name(task.name()), Some(task));
    }
    assert_eq!(Task::from_name("nothing"), None);
}

#[test]
fn presence_is_balanced() {
    let counts = answers(Task::Presence);
    assert_eq!(counts["yes"], counts["no"]);
    // and the order does not tell
    let yes_first = (0..N / 2).filter(|i| make(Task::Presence, 3, 2 * i).answer == "yes").count();
    assert!((15..45).contains(&yes_first), "{yes_first}");
}

#[test]
fn no_answer_is_much_more_frequent_than_the_others() {
    for (task, kinds) in [(Task::Count, 6), (Task::Grid, 10), (Task::Small, 8), (Task::Cell, 12)] {
        let counts = answers(task);
        assert!(counts.len() >= kinds, "{task:?}: {counts:?}");
        let most = counts.values().max().copied().unwrap_or(0) as u64;
        assert!(most <= N * 4 / kinds as u64, "{task:?}: {counts:?}");
    }
}

#[test]
fn answers_have_the_form_of_their_task() {
    let is_colour = |text: &str| COLOURS.iter().any(|c| c.0 == text);
    let is_name = |text: &str| text.split_once(' ').is_some_and(|(c, s)| is_colour(c) && SHAPES.contains(&s));
    for task in TASKS {
        for i in 0..40 {
            let q = make(task, 5, i);
            let a = q.answer.as_str();
            let fits = match task {
                Task::Attribute => is_colour(a) || SHAPES.contains(&a),
                Task::Small => is_colour(a),
                Task::Count => a.parse::<u8>().is_ok_and(|n| (1..=6).contains(&n)),
                Task::Grid => a.parse::<u8>().is_ok_and(|n| n < 10),
                Task::Table => a.parse::<u8>().is_ok_and(|n| (10..100).contains(&n)),
                Task::Relation | Task::Second => is_name(a),
                Task::Word | Task::WordSizes => a.len() == 4 && a.bytes().all(|b| b.is_ascii_uppercase()),
                Task::Caption => a.starts_with('a') && SHAPES.iter().any(|s| a.ends_with(s)),
                Task::Cell => a.starts_with("row ") && a.contains(" column "),
                Task::Presence => a == "yes" || a == "no",
            };
            assert!(fits, "{task:?} {i}: {} -> {a}", q.question);
            assert_eq!(q.before.is_empty(), task != Task::Second);
        }
    }
}

/// Whatever colour an answer names, the picture shows it.
#[test]
fn what_is_named_is_there() {
    for task in [Task::Attribute, Task::Relation, Task::Caption, Task::Small, Task::Presence, Task::Second] {
        for i in 0..30 {
            let q = make(task, 8, i);
            if q.answer == "no" {
                continue;
            }
            let text = format!(
                "{} {}",
                q.answer,
                if task == Task::Attribute || task == Task::Presence { &q.question } else { "" }
            );
            let named: Vec<_> =
                COLOURS.iter().filter(|c| text.split([' ', '?', '.']).any(|word| word == c.0)).collect();
            assert!(!named.is_empty(), "{text}");
            let picture = q.picture();
            for (name, colour) in named {
                let near = |pixel: &[u8]| pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(*b) <= 50);
                let count = picture.samples().chunks_exact(3).filter(|p| near(p)).count();
                assert!(count >= 60, "{task:?} {i}: {count} pixels are {name}");
            }
        }
    }
}
