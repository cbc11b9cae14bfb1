//! What all scenarios stand on: models, picture, caches that are warm, and the plain path.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use llava::Error;
use llava::embedding::{CacheConfig, EmbeddingCache};
use llava::llama::{Model, SamplerParams};
use llava::mtmd::Projector;
use llava::session::{KvSnapshots, Part, Picture, Session, SessionParams};

use super::Plain;
use super::child::{self, Task};
use super::flags::{BenchArgs, Scenario};
use super::off::Off;
use super::picture;
use super::sample::{Sample, ask};
use crate::exit::Problem;
use crate::files::Files;
use crate::signals::Interrupt;
use crate::{open, params};

/// Room for everything that a benchmark keeps: nothing is evicted.
const BUDGET_BYTES: u64 = 4 << 30;

/// The questions of a conversation, again from the first one where it has more turns.
pub const QUESTIONS: [&str; 4] =
    ["Describe the image.", "What is in the middle?", "Which colours are there?", "What is on the left?"];

/// The question without a picture.
pub const TEXT_QUESTION: &str = "Name three colours.";

/// Loaded models and what they are asked.
#[derive(Debug)]
pub struct Opened {
    pub model: Arc<Model>,
    pub projector: Arc<Projector>,
    /// Greedy, without cache and snapshots.
    pub params: SessionParams,
    pub picture: Picture,
    /// Keeps the demo model's files where a projector's content can be read.
    pub files: Files,
}

impl Opened {
    pub fn new(args: &BenchArgs, interrupt: &Interrupt) -> Result<Self> {
        let picture = picture::choose(args)?;
        let files = Files::find(&args.model)?;
        let (model, projector) = open::seeing(&args.model, &args.picture, &files, interrupt)?;
        let params = SessionParams {
            context: params::context_params(&args.model, &args.context),
            sampler: SamplerParams::greedy(),
            max_tokens: Some(args.predict),
            cache: None,
            snapshots: None,
            ..SessionParams::default()
        };
        Ok(Self { model, projector, params, picture, files })
    }

    /// A new conversation with these caches.
    pub fn session(&self, caches: Caches) -> Result<Session> {
        let params = SessionParams { cache: caches.rows, snapshots: caches.states, ..self.params.clone() };
        Ok(Session::new(&self.model, Some(Arc::clone(&self.projector)), params)?)
    }

    /// The plain path, in a context of its own.
    pub fn plain(&self) -> Result<Plain> {
        Plain::new(&self.model, &self.projector, self.params.clone())
    }

    /// This library with everything off, in a context of its own.
    pub fn off(&self) -> Result<Off> {
        Off::new(&self.model, &self.projector, self.params.clone())
    }

    /// The question of a conversation's turn, counted from 0. The picture is shown in the first one.
    pub fn question(&self, turn: usize) -> Vec<Part> {
        let text = Part::from(QUESTIONS[turn % QUESTIONS.len()]);
        if turn == 0 { vec![Part::Picture(self.picture.clone()), text] } else { vec![text] }
    }
}

/// What a session may reuse.
#[derive(Debug, Clone, Default)]
pub struct Caches {
    pub rows: Option<Arc<EmbeddingCache>>,
    pub states: Option<Arc<KvSnapshots>>,
}

impl Caches {
    /// Rows in memory, nothing there yet.
    pub fn memory() -> Self {
        Self { rows: Some(EmbeddingCache::new(CacheConfig::default())), states: None }
    }

    /// Rows in memory and in a folder.
    pub fn disk(dir: &Path) -> Self {
        Self { rows: Some(EmbeddingCache::new(CacheConfig::default().disk(dir, BUDGET_BYTES))), states: None }
    }

    /// As well as KV states, in memory and in the folder.
    pub fn states(dir: &Path) -> Self {
        Self { states: Some(KvSnapshots::new(BUDGET_BYTES, Some((dir, BUDGET_BYTES)))), ..Self::disk(dir) }
    }
}

/// Everything a round needs.
#[derive(Debug)]
pub struct Stage<'a> {
    pub opened: Opened,
    pub plain: Plain,
    pub interrupt: &'a Interrupt,
    pub turns: usize,
    /// From the start of loading to here.
    pub load: Duration,
    /// Caches that know the picture.
    pub warm: Caches,
    text: Option<Session>,
    home: TemporaryFolder,
    folders: u32,
}

impl<'a> Stage<'a> {
    pub fn open(args: &BenchArgs, interrupt: &'a Interrupt) -> Result<Self> {
        let home = TemporaryFolder::new()?;
        let started = Instant::now();
        let opened = Opened::new(args, interrupt)?;
        let plain = opened.plain()?;
        Ok(Self {
            load: started.elapsed(),
            opened,
            plain,
            interrupt,
            turns: args.turns,
            warm: Caches { rows: Caches::memory().rows, states: Some(KvSnapshots::new(BUDGET_BYTES, None)) },
            text: None,
            home,
            folders: 0,
        })
    }

    /// Answers once on each side, unmeasured, and fills the warm caches.
    pub fn warm_up(&mut self, scenarios: &[Scenario]) -> Result<()> {
        let question = self.opened.question(0);
        let ours = ask(&mut self.opened.session(self.warm.clone())?, &question, self.interrupt)?;
        let plain = self.plain.answer(&[], &question, self.interrupt)?;
        if !ours.agrees(&plain) {
            return Err(differ("the first answer", &ours, &plain));
        }
        if scenarios.contains(&Scenario::Process) {
            child::ask(Task::Disk, &self.known(Task::Disk), self.interrupt)?;
            child::ask(Task::States, &self.known(Task::States), self.interrupt)?;
        }
        Ok(())
    }

    /// The folder in which child processes find the picture.
    pub fn known(&self, task: Task) -> PathBuf {
        self.folder(&format!("known-{}", task.name()))
    }

    /// A folder by name; it is not made.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.home.0.join(name)
    }

    /// A folder that nobody used yet.
    pub fn fresh_folder(&mut self) -> PathBuf {
        self.folders += 1;
        self.folder(&format!("fresh-{}", self.folders))
    }

    /// A conversation for questions without pictures.
    pub fn text_session(&mut self) -> Result<&mut Session> {
        let session = match self.text.take() {
            Some(session) => session,
            None => self.opened.session(Caches::default())?,
        };
        Ok(self.text.insert(session))
    }
}

/// Two answers that had to be equal.
pub fn differ(what: &str, ours: &Sample, plain: &Sample) -> anyhow::Error {
    let message = format!("{what}: the two sides answered differently: {:?} and {:?}", ours.text, plain.text);
    Problem::failed("answers-differ", message).into()
}

/// A folder of our own, gone when this is dropped.
#[derive(Debug)]
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> Result<Self> {
        let base = std::env::temp_dir();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let path = base.join(format!("llava-bench-{}-{now:x}", std::process::id()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        // fails where it is there already: it would be somebody else's
        builder.create(&path).map_err(|source| Error::Io { action: "create", path: path.clone(), source })?;
        Ok(Self(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // what cannot be removed lies where the system cleans up
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_is_new_and_goes_away() {
        let (a, b) = (TemporaryFolder::new().unwrap(), TemporaryFolder::new().unwrap());
        assert_ne!(a.0, b.0);
        std::fs::write(a.0.join("x"), "x").unwrap();
        let path = a.0.clone();
        drop(a);
        assert!(!path.exists() && b.0.exists());
    }
}
