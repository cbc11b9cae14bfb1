//! The questions of a run.

use std::path::PathBuf;

use anyhow::Result;
use llava::session::Picture;

use super::args::WhatArgs;
use super::data;
use super::generator::{self, TASKS, Task};
use super::score::{Scorer, ScorerChoice};
use crate::exit::Problem;
use crate::pictures::Reader;

/// Questions of each task where `--n` says nothing.
const DEFAULT_N: u64 = 100;

/// Where a picture comes from; it is only made or read when it is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Generated { task: Task, seed: u64, index: u64 },
    File(PathBuf),
}

/// A question with its right answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Names it within its set: `attr-17`, or `line-3` of a file.
    pub id: String,
    pub task: String,
    pub source: Source,
    /// Earlier questions about the same picture, with their answers.
    pub before: Vec<(String, String)>,
    pub question: String,
    /// At least one.
    pub answers: Vec<String>,
    /// What [`Scorer::Choice`] chooses from; empty for the others.
    pub choices: Vec<String>,
    pub scorer: Scorer,
}

impl Item {
    pub fn picture(&self, reader: &Reader) -> Result<Picture> {
        match &self.source {
            Source::Generated { task, seed, index } => {
                Ok(Picture::new(generator::make(*task, *seed, *index).picture().into_image()?))
            }
            Source::File(path) => reader.pixels(path),
        }
    }
}

/// A set of questions.
#[derive(Debug)]
pub struct Items {
    pub list: Vec<Item>,
    /// Names of the tasks, in the order in which they first come up.
    pub tasks: Vec<String>,
    /// What the set is, so that results of another one are told apart.
    pub origin: String,
}

impl Items {
    fn new(list: Vec<Item>, origin: String) -> Self {
        let mut tasks: Vec<String> = Vec::new();
        for item in &list {
            if !tasks.contains(&item.task) {
                tasks.push(item.task.clone());
            }
        }
        Self { list, tasks, origin }
    }
}

/// The questions that the command line asks for. `demo`: the built-in model is to answer.
pub fn select(args: &WhatArgs, seed: u64, demo: bool) -> Result<Items> {
    let mut items = match &args.data {
        Some(path) => {
            let (mut list, origin) = data::read(path)?;
            let n = args.n.and_then(|n| usize::try_from(n).ok());
            list.truncate(n.unwrap_or(usize::MAX));
            Items::new(list, origin)
        }
        None => {
            let tasks = tasks(&args.tasks, demo)?;
            let n = args.n.unwrap_or(DEFAULT_N);
            let list = tasks.into_iter().flat_map(|task| (0..n).map(move |i| generated(task, seed, i))).collect();
            Items::new(list, format!("built-in, seed {seed}"))
        }
    };
    apply(&args.scorer, &mut items)?;
    Ok(items)
}

fn tasks(names: &[String], demo: bool) -> Result<Vec<Task>> {
    if names.is_empty() {
        return Ok(TASKS[..if demo { Task::OF_DEMO } else { TASKS.len() }].to_vec());
    }
    let mut tasks = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if name == "all" {
            return Ok(TASKS.to_vec());
        }
        let task = Task::from_name(name).ok_or_else(|| {
            let known: Vec<&str> = TASKS.iter().map(|t| t.name()).collect();
            Problem::usage(format!("--tasks: there is no task `{name}`"))
                .hint(format!("all, or some of {}", known.join(",")))
        })?;
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    Ok(tasks)
}

fn generated(task: Task, seed: u64, index: u64) -> Item {
    let question = generator::make(task, seed, index);
    let scorer = match task {
        Task::Count | Task::Grid | Task::Table => Scorer::Numeric,
        Task::Word | Task::WordSizes => Scorer::Anls,
        _ => Scorer::Exact,
    };
    Item {
        id: format!("{}-{index}", task.name()),
        task: task.name().to_owned(),
        source: Source::Generated { task, seed, index },
        before: question.before,
        question: question.question,
        answers: vec![question.answer],
        choices: Vec::new(),
        scorer,
    }
}

/// Puts the scorers of the command line in place.
fn apply(choices: &[ScorerChoice], items: &mut Items) -> Result<()> {
    for choice in choices {
        if let Some(task) = choice.task.as_ref().filter(|t| !items.tasks.contains(t)) {
            let problem = Problem::usage(format!("--scorer {task}=..: no question is of this task"));
            return Err(problem.hint(format!("the tasks are {}", items.tasks.join(", "))).into());
        }
        for item in items.list.iter_mut().filter(|i| choice.task.as_ref().is_none_or(|t| *t == i.task)) {
            if choice.scorer == Scorer::Choice && item.choices.is_empty() {
                return Err(Problem::usage(format!("--scorer choice: {} has no choices", item.id)).into());
            }
            item.scorer = choice.scorer;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(tasks: &[&str], n: u64, scorer: &[&str]) -> WhatArgs {
        WhatArgs {
            tasks: tasks.iter().map(|t| (*t).to_owned()).collect(),
            n: Some(n),
            data: None,
            variant: Vec::new(),
            scorer: scorer.iter().map(|s| s.parse().unwrap()).collect(),
            out: None,
            write_data: None,
        }
    }

    #[test]
    fn defaults_follow_the_model() {
        let names = |demo| select(&args(&[], 1, &[]), 1, demo).unwrap().tasks;
        assert_eq!(names(true), ["attr", "count", "spatial", "grid", "ocr", "caption"]);
        assert_eq!(names(false).len(), 12);
        let all = select(&args(&["all"], 2, &[]), 1, true).unwrap();
        assert_eq!((all.list.len(), all.tasks.len()), (24, 12));
        assert!(select(&args(&["attr", "sudoku"], 1, &[]), 1, true).is_err());
        // a task named twice is asked once
        assert_eq!(select(&args(&["ocr", " ocr"], 3, &[]), 1, true).unwrap().list.len(), 3);
    }

    #[test]
    fn scorers_can_be_changed() {
        let items = select(&args(&["attr", "ocr"], 1, &["contains", "ocr=exact"]), 1, true).unwrap();
        let scorers: Vec<Scorer> = items.list.iter().map(|i| i.scorer).collect();
        assert_eq!(scorers, [Scorer::Contains, Scorer::Exact]);
        assert!(select(&args(&["attr"], 1, &["ocr=exact"]), 1, true).is_err());
        assert!(select(&args(&["attr"], 1, &["choice"]), 1, true).is_err());
    }
}
