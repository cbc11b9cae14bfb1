//! The tasks: their names, and one question of each.

use super::canvas::Canvas;
use super::rng::Rng;
use super::{characters, scene};

/// A question and its right answer.
pub type Asked = (String, String);

/// How to draw what was thought out: with random numbers of its own, so that questions can be had without pictures.
pub type Sketch = Box<dyn FnOnce(&mut Rng) -> Canvas>;

/// What is asked about a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    Attribute,
    Count,
    Relation,
    Grid,
    Word,
    Caption,
    Small,
    Cell,
    Presence,
    Table,
    WordSizes,
    Second,
}

/// All of them. The demo model was trained on the first six.
pub const TASKS: [Task; 12] = [
    Task::Attribute,
    Task::Count,
    Task::Relation,
    Task::Grid,
    Task::Word,
    Task::Caption,
    Task::Small,
    Task::Cell,
    Task::Presence,
    Task::Table,
    Task::WordSizes,
    Task::Second,
];

impl Task {
    /// How many of [`TASKS`] the demo model was trained on.
    pub const OF_DEMO: usize = 6;

    pub fn name(self) -> &'static str {
        match self {
            Task::Attribute => "attr",
            Task::Count => "count",
            Task::Relation => "spatial",
            Task::Grid => "grid",
            Task::Word => "ocr",
            Task::Caption => "caption",
            Task::Small => "small",
            Task::Cell => "cell",
            Task::Presence => "presence",
            Task::Table => "table",
            Task::WordSizes => "ocr-sizes",
            Task::Second => "second",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        TASKS.into_iter().find(|t| t.name() == name)
    }

    /// What the random sequence of a task begins with; never changes, or old results would belong to other pictures.
    fn key(self) -> u64 {
        TASKS.iter().position(|&t| t == self).unwrap_or(0) as u64
    }
}

/// A picture and what is asked about it.
pub struct Question {
    sketch: Sketch,
    paint: Rng,
    /// What was asked and answered before, about the same picture.
    pub before: Vec<Asked>,
    pub question: String,
    pub answer: String,
}

impl Question {
    /// Draws the picture.
    pub fn picture(mut self) -> Canvas {
        (self.sketch)(&mut self.paint)
    }
}

/// The question with this index.
pub fn make(task: Task, seed: u64, index: u64) -> Question {
    let rng = &mut Rng::new(&[seed, task.key(), index]);
    let mut before = Vec::new();
    let (sketch, (question, answer)) = match task {
        Task::Attribute => scene::attribute(rng),
        Task::Count => scene::count(rng),
        Task::Relation => scene::relation(rng),
        Task::Grid => characters::grid(rng),
        Task::Word => characters::word(rng),
        Task::Caption => scene::caption(rng),
        Task::Small => scene::small(rng),
        Task::Cell => scene::cell(rng),
        Task::Presence => {
            // of two questions that follow each other one is answered yes
            let first = Rng::new(&[seed, task.key(), index / 2, 1]).chance(0.5);
            scene::presence(rng, first == index.is_multiple_of(2))
        }
        Task::Table => characters::table(rng),
        Task::WordSizes => characters::word_of_another_size(rng),
        Task::Second => {
            let (sketch, first, second) = scene::second(rng);
            before.push(first);
            (sketch, second)
        }
    };
    Question { sketch, paint: Rng::new(&[seed, task.key(), index, 2]), before, question, answer }
}

#[cfg(test)]
mod tests;
