//! Libraries built elsewhere: are they all there, and are they the pinned version?

use std::path::{Path, PathBuf};

use crate::error::{Error, io};

/// Headers that an installation of llama.cpp has in one of its include folders.
const HEADERS: &[&str] =
    &["llama.h", "llama-cpp.h", "ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "gguf.h"];

/// Prebuilt libraries that fit.
#[derive(Debug, Clone)]
pub struct Prebuilt {
    lib_dir: PathBuf,
    include_dirs: Vec<PathBuf>,
}

impl Prebuilt {
    /// The folder of the libraries.
    #[must_use]
    pub fn lib_dir(&self) -> &Path {
        &self.lib_dir
    }

    /// The folders of the headers.
    #[must_use]
    pub fn include_dirs(&self) -> &[PathBuf] {
        &self.include_dirs
    }
}

pub(crate) fn check(
    lib_dir: &Path,
    include_dirs: &[PathBuf],
    libraries: &[&str],
    shared: bool,
) -> Result<Prebuilt, Error> {
    for name in libraries {
        find_library(lib_dir, name, shared)?;
    }
    for header in HEADERS {
        if !include_dirs.iter().any(|dir| dir.join(header).is_file()) {
            let dir = include_dirs.first().cloned().unwrap_or_default();
            return Err(Error::Missing { dir, file: (*header).to_owned() });
        }
    }
    // Headers carry no version; the library that answers `ggml_version()` does.
    let base = find_library(lib_dir, "ggml-base", shared)?;
    let bytes = std::fs::read(&base).map_err(io(&base))?;
    if !contains(&bytes, format!("{}\0", crate::GGML_VERSION).as_bytes()) {
        return Err(Error::Version { file: base, found: None, wanted: crate::GGML_VERSION });
    }
    Ok(Prebuilt { lib_dir: lib_dir.to_owned(), include_dirs: include_dirs.to_vec() })
}

/// The file of a library under any platform's naming.
fn find_library(dir: &Path, name: &str, shared: bool) -> Result<PathBuf, Error> {
    let names = if shared {
        [format!("lib{name}.so"), format!("lib{name}.dylib"), format!("{name}.dll")]
    } else {
        [format!("lib{name}.a"), format!("{name}.lib"), format!("lib{name}.lib")]
    };
    names
        .iter()
        .map(|file| dir.join(file))
        .find(|path| path.is_file())
        .ok_or_else(|| Error::Missing { dir: dir.to_owned(), file: names[0].clone() })
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
