//! What can go wrong while looking for llama.cpp; each message says what to do.

use std::fmt;
use std::path::PathBuf;

/// Why no fitting llama.cpp was found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file that a llama.cpp source or installation must have is not there.
    Missing {
        /// The folder that was searched.
        dir: PathBuf,
        /// What was not found in it.
        file: String,
    },
    /// The source or library is another version than the bindings were made from.
    Version {
        /// The file that names the version.
        file: PathBuf,
        /// The version it names, or `None` where it names none.
        found: Option<String>,
        /// The version wanted.
        wanted: &'static str,
    },
    /// cargo could not provide the pinned package.
    Cargo {
        /// What cargo said.
        message: String,
        /// The written-out pin, which `cargo fetch --manifest-path` takes.
        manifest: PathBuf,
    },
    /// A file could not be read or written.
    Io {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { dir, file } => write!(
                out,
                "`{file}` not found in {}: this is not a complete llama.cpp at the pinned build b{}",
                dir.display(),
                crate::LLAMA_BUILD
            ),
            Self::Version { file, found, wanted } => write!(
                out,
                "{} is of version {} but the bindings were made from version {wanted} (llama.cpp b{}). \
                 Use that build, or enable the feature `bindgen` to make bindings from these headers (needs libclang)",
                file.display(),
                found.as_deref().unwrap_or("unknown"),
                crate::LLAMA_BUILD
            ),
            Self::Cargo { message, manifest } => write!(
                out,
                "the source of llama.cpp b{} is not on this machine and cargo could not get it.\n\
                 Remedy 1: set LLAMA_CPP_DIR to a llama.cpp checkout at tag b{}.\n\
                 Remedy 2: run `cargo fetch --locked --manifest-path {}` (or this build) once with a network; later builds \
                 need none. With `cargo vendor`, add `--sync` and that manifest.\n\
                 cargo said: {message}",
                crate::LLAMA_BUILD,
                crate::LLAMA_BUILD,
                manifest.display()
            ),
            Self::Io { file, source } => write!(out, "{}: {source}", file.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Adds the file's name to an I/O error.
pub(crate) fn io(file: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
    let file = file.into();
    move |source| Error::Io { file, source }
}
