//! House rules that a program can check: who may import whom, where `unsafe` may stand, how long a file may be, and that every
//! room has its card. Reads the source as text.

#![expect(clippy::unwrap_used, reason = "helper functions of tests are tests too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 500;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
    out.sort();
}

fn sources(dir: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    rust_files(&root().join(dir), &mut files);
    assert!(!files.is_empty(), "no source under {dir}");
    files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// Code without comments and string literals, line by line; good enough for looking up words.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or("")))
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_ident = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"');
        !is_ident(before) && !is_ident(after)
    })
}

#[test]
fn unsafe_stays_in_its_rooms() {
    let mut faults = Vec::new();
    for (name, text) in sources("src") {
        if name.starts_with("src/llama/") || name.starts_with("src/mtmd/") {
            continue;
        }
        for (line, code) in code_lines(&text) {
            if has_word(code, "unsafe") && !code.contains("unsafe_code") {
                faults.push(format!("{name}:{line}"));
            }
        }
    }
    assert!(faults.is_empty(), "unsafe outside of src/llama and src/mtmd: {faults:?}");
}

#[test]
fn rooms_without_unsafe_forbid_it() {
    for (name, text) in sources("src") {
        // what a room forbids holds for the modules inside it
        let room = name.matches('/').count() == 2 && name.ends_with("/mod.rs") || name.ends_with("/main.rs");
        let allowed = name.starts_with("src/llama/") || name.starts_with("src/mtmd/");
        if room && !allowed {
            assert!(text.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
        }
    }
}

#[test]
fn every_room_has_its_card() {
    for (name, text) in sources("src") {
        if !name.ends_with("/mod.rs") || name.contains("/tests/") {
            continue;
        }
        let card: String =
            text.lines().take_while(|l| l.starts_with("//!")).collect::<Vec<_>>().join(" ").to_lowercase();
        for part in ["does", "never", "who calls it"] {
            assert!(card.contains(part), "{name}: the room card does not say `{part}`");
        }
    }
}

#[test]
fn files_stay_short() {
    for dir in ["src", "tests", "llava-gemm/src", "llava-gemm/tests", "llava-sys/build", "vendor/src"] {
        for (name, text) in sources(dir) {
            let lines = text.lines().count();
            assert!(lines <= MAX_LINES, "{name} has {lines} lines, {MAX_LINES} are the most: split it");
        }
    }
}

/// Kernels compute: what needs a file, a thread, memory of its own or a C function is the caller's business.
#[test]
fn kernels_only_compute() {
    for (name, text) in sources("llava-gemm/src") {
        let code = text.split("#[cfg(test)]").next().unwrap_or("");
        for (line, code) in code_lines(code) {
            for banned in [
                "extern \"C\"",
                "Vec<",
                "Box<",
                "std::fs",
                "std::env",
                "std::thread",
                "llava_sys",
                "panic!(",
                "unwrap()",
            ] {
                assert!(!code.contains(banned), "{name}:{line}: {banned}");
            }
        }
    }
}

#[test]
fn no_room_for_leftovers() {
    for (name, _) in sources("src") {
        for banned in ["utils", "common", "types", "helpers", "misc"] {
            let hit = Path::new(&name).components().any(|c| {
                let part = c.as_os_str().to_string_lossy();
                part == banned || part == format!("{banned}.rs")
            });
            assert!(!hit, "{name}: a name that says nothing");
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for (name, text) in sources("src") {
        for (line, code) in code_lines(&text) {
            for banned in ["todo!(", "unimplemented!(", "#[ignore", "#[allow("] {
                assert!(!code.contains(banned), "{name}:{line}: {banned}");
            }
        }
    }
}

/// Rooms that a room may import from, besides `crate::error` and `crate::units`.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("error", &[][..]),
        ("units", &[]),
        ("gguf", &[]),
        ("image", &[]),
        ("embedding", &[]),
        ("compress", &["gguf", "image", "embedding"]),
        ("demo", &[]),
        ("llama", &["gguf"]),
        ("mtmd", &["gguf", "image", "embedding", "llama"]),
        ("session", &["gguf", "image", "embedding", "compress", "llama", "mtmd"]),
        ("quantize", &["gguf", "image", "embedding", "llama", "mtmd", "session"]),
    ])
}

fn room_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("src/")?;
    if rest == "lib.rs" || rest.starts_with("bin/") {
        return None;
    }
    Some(rest.split('/').next().unwrap_or(rest).trim_end_matches(".rs"))
}

#[test]
fn imports_follow_the_data() {
    let allowed = allowed();
    let mut faults = Vec::new();
    for (name, text) in sources("src") {
        let Some(room) = room_of(&name) else { continue };
        let may =
            allowed.get(room).unwrap_or_else(|| panic!("{name}: `{room}` is no known room; say what it may import"));
        for (line, code) in code_lines(&text) {
            for (at, _) in code.match_indices("crate::") {
                let target: String =
                    code[at + "crate::".len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let own = target == room || target.chars().next().is_some_and(char::is_uppercase);
                if !(own || target == "error" || target == "units" || may.contains(&target.as_str())) {
                    faults.push(format!("{name}:{line}: {room} imports {target}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn raw_bindings_stay_below() {
    let mut faults = Vec::new();
    for (name, text) in sources("src") {
        let below = name.starts_with("src/llama/") || name.starts_with("src/mtmd/");
        for (line, code) in code_lines(&text) {
            if !below && has_word(code, "llava_sys") {
                faults.push(format!("{name}:{line}"));
            }
        }
    }
    assert!(faults.is_empty(), "raw bindings outside of src/llama and src/mtmd: {faults:?}");
}

#[test]
fn the_program_uses_the_public_interface_only() {
    for (name, text) in sources("src/bin") {
        assert!(!text.contains("llava_sys"), "{name} calls raw bindings");
    }
}

#[test]
fn the_library_never_prints_and_never_exits() {
    for (name, text) in sources("src") {
        if name.starts_with("src/bin/") || name.contains("/tests") {
            continue;
        }
        for (line, code) in code_lines(&text) {
            for banned in ["println!(", "print!(", "eprintln!(", "eprint!(", "process::exit", "dbg!("] {
                assert!(!code.contains(banned), "{name}:{line}: {banned}");
            }
        }
    }
}
