//! Which llama.cpp, exactly, and where it lies on this machine.
//!
//! This crate is a build dependency of `llava-sys`. It knows the pin (`llama.cpp/pin.toml` and `pin.lock`), asks cargo for
//! the source it names, and checks that a source or a prebuilt library given by hand is the one the bindings were made
//! from. It never builds anything, never downloads anything by itself (cargo does), and reads no environment variable:
//! the caller passes what it has read, so that every variable is registered with cargo in one place.
#![forbid(unsafe_code)]

mod error;
mod facts;
mod pin;
mod prebuilt;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub use error::Error;
pub use prebuilt::Prebuilt;

/// Build number of the pinned llama.cpp, as in its release tag `b11434`.
pub const LLAMA_BUILD: u32 = 11434;
/// Version that the pinned llama.cpp gives itself.
pub const LLAMA_VERSION: &str = "0.6.0";
/// Version that the pinned ggml gives itself.
pub const GGML_VERSION: &str = "0.26.0";
/// Upstream's licence text, which has to travel with every copy of the program.
pub const LLAMA_LICENSE: &str = include_str!("../LICENSE-llama.cpp");

/// What to look for.
#[derive(Debug, Clone)]
pub struct Request {
    /// A llama.cpp checkout given by hand (`LLAMA_CPP_DIR`); wins over the pin.
    pub llama_cpp_dir: Option<PathBuf>,
    /// Accept another version than the pinned one: right only where the bindings are made anew from its headers.
    pub any_version: bool,
    /// Where the pin may be written out for cargo; a folder `pin` is made inside.
    pub work_dir: PathBuf,
    /// The cargo to ask.
    pub cargo: PathBuf,
    /// Target triple of the build machine, so that cargo fetches no other platform's crates; `None` fetches all.
    pub host: Option<String>,
    /// Variables set for that cargo on top of the inherited ones.
    pub cargo_env: Vec<(OsString, OsString)>,
}

impl Request {
    /// A request for the pin, with `cargo` from `PATH`.
    #[must_use]
    pub fn new(work_dir: impl Into<PathBuf>) -> Self {
        Self {
            llama_cpp_dir: None,
            any_version: false,
            work_dir: work_dir.into(),
            cargo: PathBuf::from("cargo"),
            host: None,
            cargo_env: Vec::new(),
        }
    }
}

/// Where a source came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The pin, through cargo: checked against its SHA-256 and never edited.
    Pin,
    /// A folder given by hand: may be edited between two builds.
    Dir,
}

/// A llama.cpp source tree that fits.
#[derive(Debug, Clone)]
pub struct Source {
    root: PathBuf,
    origin: Origin,
    llama_version: String,
    ggml_version: String,
}

impl Source {
    /// The folder that holds `CMakeLists.txt`, `ggml/`, `src/` and `tools/mtmd/`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the source came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Version that this llama.cpp gives itself.
    #[must_use]
    pub fn llama_version(&self) -> &str {
        &self.llama_version
    }

    /// Version that this ggml gives itself.
    #[must_use]
    pub fn ggml_version(&self) -> &str {
        &self.ggml_version
    }

    /// The build in words: `b11434` for the pin, `local` for a folder given by hand.
    #[must_use]
    pub fn build(&self) -> String {
        match self.origin {
            Origin::Pin => format!("b{LLAMA_BUILD}"),
            Origin::Dir => "local".to_owned(),
        }
    }

    /// Folders of the public headers, libmtmd's included.
    #[must_use]
    pub fn include_dirs(&self) -> Vec<PathBuf> {
        ["include", "ggml/include", "tools/mtmd"].iter().map(|dir| self.root.join(dir)).collect()
    }
}

/// Finds the llama.cpp source: the folder given by hand if there is one, the pin otherwise.
///
/// # Errors
/// The folder does not look like the pinned llama.cpp; or cargo could not provide the pin, in which case the message names
/// both remedies (`LLAMA_CPP_DIR`, or fetching once with a network).
pub fn locate(request: &Request) -> Result<Source, Error> {
    let (root, origin) = match &request.llama_cpp_dir {
        Some(dir) => (dir.clone(), Origin::Dir),
        None => (pin::locate(request)?, Origin::Pin),
    };
    let facts = facts::read(&root)?;
    if !request.any_version {
        facts.expect_pinned(&root)?;
    }
    Ok(Source { root, origin, llama_version: facts.llama_version, ggml_version: facts.ggml_version })
}

/// Checks libraries built elsewhere (`LLAMA_CPP_LIB_DIR`, `LLAMA_CPP_INCLUDE_DIR`).
///
/// `libraries` are the names without prefix and suffix (`ggml-base`, `llama`, ..); `shared` says which kind is wanted.
///
/// # Errors
/// A library or header is missing, or `ggml-base` does not carry the pinned version.
pub fn prebuilt(lib_dir: &Path, include_dirs: &[PathBuf], libraries: &[&str], shared: bool) -> Result<Prebuilt, Error> {
    prebuilt::check(lib_dir, include_dirs, libraries, shared)
}

#[cfg(test)]
mod tests;
