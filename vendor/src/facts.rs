//! A few facts of a llama.cpp tree that tell whether it is whole and which version it is.

use std::path::Path;

use crate::error::{Error, io};

/// Files without which the build would fail later and less clearly.
const FILES: &[&str] = &[
    "CMakeLists.txt",
    "LICENSE",
    "include/llama.h",
    "include/llama-cpp.h",
    "src/llama-ext.h",
    "ggml/CMakeLists.txt",
    "ggml/include/ggml.h",
    "ggml/include/ggml-cpu.h",
    "ggml/include/gguf.h",
    "tools/mtmd/CMakeLists.txt",
    "tools/mtmd/clip.cpp",
    "tools/mtmd/mtmd.cpp",
    "tools/mtmd/mtmd.h",
    "tools/mtmd/models/llava.cpp",
];

/// What a tree says about itself.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) llama_version: String,
    pub(crate) ggml_version: String,
}

impl Facts {
    /// Fails when the tree is another version than the pin.
    pub(crate) fn expect_pinned(&self, root: &Path) -> Result<(), Error> {
        let pairs = [
            ("CMakeLists.txt", &self.llama_version, crate::LLAMA_VERSION),
            ("ggml/CMakeLists.txt", &self.ggml_version, crate::GGML_VERSION),
        ];
        for (file, found, wanted) in pairs {
            if found != wanted {
                return Err(Error::Version { file: root.join(file), found: Some(found.clone()), wanted });
            }
        }
        Ok(())
    }
}

/// Reads the facts of the tree at `root`.
pub(crate) fn read(root: &Path) -> Result<Facts, Error> {
    if let Some(file) = FILES.iter().find(|file| !root.join(file).is_file()) {
        return Err(Error::Missing { dir: root.to_owned(), file: (*file).to_owned() });
    }
    Ok(Facts {
        llama_version: version(root, "CMakeLists.txt", "LLAMA_VERSION", crate::LLAMA_VERSION)?,
        ggml_version: version(root, "ggml/CMakeLists.txt", "GGML_VERSION", crate::GGML_VERSION)?,
    })
}

/// Joins `set(<name>_MAJOR 1)`, `.._MINOR` and `.._PATCH` of a CMake file.
fn version(root: &Path, file: &str, name: &str, wanted: &'static str) -> Result<String, Error> {
    let path = root.join(file);
    let text = std::fs::read_to_string(&path).map_err(io(&path))?;
    let part = |suffix: &str| {
        let start = format!("set({name}_{suffix}");
        text.lines().find_map(|line| {
            let digits = line.trim().strip_prefix(&start)?.trim().strip_suffix(')')?.trim();
            digits.parse::<u32>().ok()
        })
    };
    match (part("MAJOR"), part("MINOR"), part("PATCH")) {
        (Some(major), Some(minor), Some(patch)) => Ok(format!("{major}.{minor}.{patch}")),
        _ => Err(Error::Version { file: path, found: None, wanted }),
    }
}
