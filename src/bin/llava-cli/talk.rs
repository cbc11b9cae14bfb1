//! The file of `--session`: taken up at the start, written after every answer, held by one process at a time.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use llava::Error;
use llava::session::{Restored, Session};

use crate::console::note;
use crate::exit::{Problem, Stage, in_file};
use crate::save::{read_open, rehearse, save_locked};

/// Largest conversation that is read: its KV cache is most of it.
const MAX_BYTES: u64 = 64 << 30;

/// A conversation's file. While it lives, no other process can take up the conversation, whose answers would be lost.
#[derive(Debug)]
pub struct Talk {
    path: PathBuf,
    /// Locked. An empty one stands for a conversation without messages.
    file: File,
    /// Whether it was not there before.
    made: bool,
}

impl Talk {
    /// Opens and locks the file, and makes it where it is missing: a folder that is missing or read-only shows before the first
    /// answer, not after it.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { action: "open", path: path.to_owned(), source };
        // reading a pipe or a device would not end
        if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(io(io::Error::new(ErrorKind::InvalidInput, "not a regular file"))).context(Stage::Argument);
        }
        loop {
            let (file, made) = open_or_make(path).map_err(io).context(Stage::Argument)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let problem = format!("{}: another process has this conversation open", path.display());
                    return Err(Problem::failed("session-in-use", problem)
                        .hint("wait for it, or name another file")
                        .into());
                }
                // a file system without locks
                Err(TryLockError::Error(error)) => tracing::debug!(%error, path = %path.display(), "not locked"),
            }
            // whoever held it may have put another file in its place between opening and locking
            if is_at(&file, path) {
                let talk = Self { path: path.to_owned(), file, made };
                rehearse(path).map_err(io).context(Stage::Argument)?;
                return Ok(talk);
            }
        }
    }

    /// Takes the conversation up.
    pub fn take_up(&mut self, session: &mut Session) -> Result<()> {
        let io = |source| Error::Io { action: "read", path: self.path.clone(), source };
        let size = self.file.metadata().map_err(io).context(Stage::Argument)?.len();
        if size == 0 {
            return Ok(());
        }
        let bytes = read_open(&self.file, &self.path, MAX_BYTES).context(Stage::Argument)?;
        match session.load(&bytes).map_err(in_file(&self.path))? {
            Restored::Messages { reason } if !session.messages().is_empty() => note(format_args!(
                "{}: only the messages are taken up, they are computed again: {reason}",
                self.path.display()
            )),
            _ => {}
        }
        Ok(())
    }

    /// Writes the conversation, whole or not at all.
    pub fn keep(&mut self, session: &mut Session) -> Result<()> {
        // the new file is locked before it takes the old one's place
        self.file = save_locked(&self.path, &session.save()?)?;
        Ok(())
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // nothing was said: what was made at the start goes again
        if self.made && self.file.metadata().is_ok_and(|m| m.len() == 0) && is_at(&self.file, &self.path) {
            // a folder that became read-only keeps an empty file, which is taken up as a new conversation
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a file, and says whether it had to be made.
fn open_or_make(path: &Path) -> io::Result<(File, bool)> {
    let mut options = File::options();
    options.read(true).write(true);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened.map(|file| (file, false)),
    }
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // two processes may come here together: one of them makes it, the lock decides
    options.create(true).truncate(false).open(path).map(|file| (file, true))
}

/// Whether a path leads to an open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

/// Where files have no number, an open one cannot be replaced either.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.is_file()
}
