//! Which headers the bindings come from, and a fingerprint of each that tells whether the committed bindings still fit.
//!
//! The fingerprint covers the code of a header without comments and spacing. It stands at the top of the bindings; a header
//! whose code differs could have moved a struct's field, which the Rust side would not notice before it reads rubbish.

#[cfg(not(feature = "bindgen"))]
use std::path::Path;
use std::path::PathBuf;

use crate::settings::Settings;
use crate::source::Source;

/// One file of bindings.
pub struct Set {
    /// Its name, in `src/` and `OUT_DIR` alike.
    pub file: &'static str,
    /// Its headers, in include order.
    pub headers: &'static [&'static str],
    /// The helper of libmtmd: an oracle for tests, never part of a release build.
    pub parity: bool,
}

/// Every file of bindings.
pub const SETS: &[Set] = &[
    Set {
        file: "bindings.rs",
        headers: &["ggml.h", "ggml-backend.h", "ggml-cpu.h", "gguf.h", "llama.h", "mtmd.h", "llava_shim.h"],
        parity: false,
    },
    Set { file: "bindings_parity.rs", headers: &["mtmd-helper.h", "llava_shim.h"], parity: true },
];

/// What stands before each fingerprint in the bindings.
const MARK: &str = "// header ";

impl Set {
    /// Whether this build uses the set.
    #[cfg(not(feature = "bindgen"))]
    pub fn wanted(&self) -> bool {
        !self.parity || cfg!(feature = "parity")
    }

    /// The lines for the top of the bindings.
    #[cfg(feature = "bindgen")]
    pub fn fingerprints(&self, dirs: &[PathBuf]) -> Result<String, String> {
        let line = |header: &&str| Ok(format!("{MARK}{header} {:016x}\n", fingerprint(&read(header, dirs)?)));
        self.headers.iter().map(line).collect()
    }
}

/// Folders that headers are looked for in: the shim's own first.
pub fn search_path(settings: &Settings, source: &Source) -> Vec<PathBuf> {
    let mut dirs = vec![settings.manifest_dir.join("shim")];
    dirs.extend(source.include_dirs());
    dirs
}

/// Fails when a header is not the one the committed bindings were made from.
#[cfg(not(feature = "bindgen"))]
pub fn check(set: &Set, committed: &Path, dirs: &[PathBuf]) -> Result<(), String> {
    let text = std::fs::read_to_string(committed).map_err(|error| format!("{}: {error}", committed.display()))?;
    for header in set.headers {
        let line = format!("{MARK}{header} {:016x}", fingerprint(&read(header, dirs)?));
        if text.lines().take_while(|line| line.starts_with("//")).any(|known| known == line) {
            continue;
        }
        return Err(format!(
            "{header} differs from the header that the committed bindings ({}) were made from.\n\
             A llama.cpp given by hand must have the interface of b{}; otherwise enable the feature `bindgen` (needs \
             libclang).\nAfter editing the shim's header run `make bindings`.",
            set.file,
            llava_src::LLAMA_BUILD
        ));
    }
    Ok(())
}

fn read(header: &str, dirs: &[PathBuf]) -> Result<String, String> {
    let Some(path) = dirs.iter().map(|dir| dir.join(header)).find(|path| path.is_file()) else {
        return Err(format!("header {header} not found in {dirs:?}"));
    };
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// FNV-1a over the code: comments count as one space, runs of space as one.
pub fn fingerprint(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut space = true;
    for byte in without_comments(text).bytes() {
        let byte = if byte.is_ascii_whitespace() { b' ' } else { byte };
        if byte == b' ' && space {
            continue;
        }
        space = byte == b' ';
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

/// Replaces comments by spaces. Upstream's headers have no comment mark inside a string.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("//").into_iter().chain(rest.find("/*")).min() {
        code.push_str(&rest[..start]);
        code.push(' ');
        let end = if rest[start..].starts_with("//") { "\n" } else { "*/" };
        rest = rest[start + 2..].split_once(end).map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    code.push(' ');
    code
}
