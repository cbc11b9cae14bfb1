//! libmtmd and the shim, compiled together: the shim includes two of libmtmd's source files, which is the only way to see
//! what they keep to themselves without changing them.
//!
//! Both are compiled for the architecture's generic CPU, whatever the baseline of ggml's kernels. Their own arithmetic is
//! the preparation of pictures, where a compiler that may fuse a multiplication and an addition gives other pixels than
//! upstream's build; and inline functions of the C++ library that are emitted here for a newer CPU could be picked by the
//! linker for the whole program, before the start-up check has had its say. The heavy arithmetic all runs inside ggml.

use std::fs;
use std::path::{Path, PathBuf};

use crate::objects::{Extra, Unit, archive};
use crate::settings::Settings;
use crate::source::Source;
use crate::workplace::Workplace;

/// The shim's units and, for two of them, the upstream file they include.
const SHIM: &[(&str, Option<&str>)] = &[
    ("llava_shim.cpp", Some("mtmd.cpp")),
    ("llava_clip.cpp", Some("clip.cpp")),
    ("llava_text.cpp", None),
    ("llava_gemm.cpp", None),
];
/// Its headers.
const SHIM_HEADERS: &[&str] = &["llava_shim.h", "llava_clip.h", "llava_guard.h", "llava_parity.h"];
/// Upstream's helper and what it needs, for tests only.
const HELPER: &[&str] = &["tools/mtmd/mtmd-helper.cpp", "tools/mtmd/mtmd-helper-gen.cpp", "vendor/hash/hash.cpp"];
const HELPER_C: &[&str] = &["vendor/hash/xxhash/xxhash.c", "vendor/hash/sha256/sha256.c"];
const HELPER_C_AS_CPP: &[&str] = &["vendor/hash/sha1/sha1.c"];

/// Static libraries made here, in link order, and their folders.
pub struct Archives {
    pub dirs: Vec<PathBuf>,
    pub names: Vec<&'static str>,
}

/// Compiles what is out of date.
pub fn build(settings: &Settings, source: &Source, workplace: &Workplace) -> Result<Archives, String> {
    let dir = settings.out_dir.join("shim");
    let shim = settings.manifest_dir.join("shim");
    let mtmd = source.tree.root().join("tools/mtmd");
    for file in SHIM.iter().map(|(file, _)| file).chain(SHIM_HEADERS) {
        println!("cargo::rerun-if-changed={}", shim.join(file).display());
    }
    let upstream = headers(settings, source)?;

    let base = compiler(settings, source, workplace);
    let cmake = mtmd.join("CMakeLists.txt");
    let text = fs::read_to_string(&cmake).map_err(|error| format!("{}: {error}", cmake.display()))?;
    let units: Vec<Unit> = mtmd_sources(&text)
        .ok_or_else(|| format!("{}: no list of libmtmd's sources found", cmake.display()))?
        .into_iter()
        .map(|file| mtmd_unit(&mtmd, file))
        .collect();
    let compiled = archive("mtmd", &base, &units, &upstream, &workplace.dir.join("mtmd"))?;
    settings.say(&format!("libmtmd: {compiled} of {} objects compiled", units.len()));

    let mut names = vec!["llava_shim"];
    let mut shim_build = base.clone();
    // ggml/src: the hook sees the CPU back-end's own headers
    shim_build.include(&shim).include(source.tree.root().join("ggml/src"));
    if settings.shared() {
        shim_build.define("LLAVA_NO_GEMM", None);
    }
    for sanitizer in &settings.sanitizers {
        // A fault in the shim ends the test instead of scrolling by.
        shim_build.flag(format!("-fno-sanitize-recover={}", sanitizer.flag()));
    }
    if cfg!(feature = "parity") {
        let compiled = helper(&base, source, &upstream, &dir)?;
        settings.say(&format!("libmtmd's helper (parity): {compiled} objects compiled"));
        names.extend(["llava_parity", "llava_parity_hash"]);
        shim_build.define("LLAVA_PARITY", None);
    }
    names.push("mtmd");

    let mut shared = upstream;
    shared.extend(SHIM_HEADERS.iter().map(|file| shim.join(file)));
    let units: Vec<Unit> = SHIM
        .iter()
        .map(|(file, included)| Unit {
            includes: included.iter().map(|file| mtmd.join(file)).collect(),
            ..Unit::new(shim.join(file))
        })
        .collect();
    let compiled = archive("llava_shim", &shim_build, &units, &shared, &dir)?;
    settings.say(&format!("shim: {compiled} of {} objects compiled", units.len()));
    Ok(Archives { dirs: vec![dir, workplace.dir.join("mtmd")], names })
}

/// The compiler with the flags that libmtmd and the shim share.
fn compiler(settings: &Settings, source: &Source, workplace: &Workplace) -> cc::Build {
    let mut build = cc::Build::new();
    // CMake's Release, whatever cargo's profile: the preparation of pictures is on the way of every request.
    build.cpp(true).std("c++17").pic(true).opt_level(3).debug(false).warnings(false).cargo_metadata(false);
    build.define("NDEBUG", None).includes(source.include_dirs());
    if settings.shared() {
        build.define("LLAMA_SHARED", None).define("GGML_SHARED", None).define("GGML_BACKEND_SHARED", None);
    }
    if settings.target_os == "windows" {
        build.define("_CRT_SECURE_NO_WARNINGS", None).flag_if_supported("/bigobj").flag_if_supported("/utf-8");
    }
    if !settings.sanitizers.is_empty() {
        let names: Vec<&str> = settings.sanitizers.iter().map(|sanitizer| sanitizer.flag()).collect();
        build.opt_level(1).debug(true).flag(format!("-fsanitize={}", names.join(","))).flag("-fno-omit-frame-pointer");
    }
    if let Some(compiler) = &workplace.compiler {
        build.compiler(compiler);
    }
    build
}

/// Source files of upstream's `add_library(mtmd ..)`, less those that the shim includes and the helper.
fn mtmd_sources(cmake: &str) -> Option<Vec<&str>> {
    let list = cmake.split_once("add_library(mtmd")?.1.split_once(')')?.0;
    let files = list.split_whitespace().filter(|file| file.ends_with(".cpp"));
    let files: Vec<&str> = files
        .filter(|file| !file.starts_with("mtmd-helper") && !SHIM.iter().any(|(_, included)| Some(*file) == *included))
        .collect();
    files.contains(&"models/llava.cpp").then_some(files)
}

fn mtmd_unit(mtmd: &Path, file: &str) -> Unit {
    let mut unit = Unit::new(mtmd.join(file));
    if file == "models/llava.cpp" {
        // The shim's concatenation puts the class token where the authors of LLaVA had it; this file alone asks for it.
        unit.extra = Extra::Define("ggml_concat", "llava_ggml_concat");
    }
    unit
}

/// libmtmd's helper, the oracle of the parity tests, without video.
fn helper(base: &cc::Build, source: &Source, shared: &[PathBuf], dir: &Path) -> Result<usize, String> {
    let root = source.tree.root();
    let mut build = base.clone();
    build.include(root.join("vendor")).include(root.join("vendor/hash"));
    let mut units: Vec<Unit> = HELPER.iter().map(|file| Unit::new(root.join(file))).collect();
    units.extend(HELPER_C_AS_CPP.iter().map(|file| Unit { extra: Extra::AsCpp, ..Unit::new(root.join(file)) }));
    let compiled = archive("llava_parity", &build, &units, shared, dir)?;

    let mut c = cc::Build::new();
    c.pic(true).opt_level(3).warnings(false).cargo_metadata(false).include(root.join("vendor/hash"));
    let units: Vec<Unit> = HELPER_C.iter().map(|file| Unit::new(root.join(file))).collect();
    Ok(compiled + archive("llava_parity_hash", &c, &units, shared, dir)?)
}

/// Upstream's headers, whose change means compiling again.
fn headers(settings: &Settings, source: &Source) -> Result<Vec<PathBuf>, String> {
    let mut dirs = source.include_dirs();
    dirs.extend(["tools/mtmd/models", "tools/mtmd/debug"].map(|dir| source.tree.root().join(dir)));
    let mut files = Vec::new();
    for dir in dirs {
        let entries = fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "h") {
                files.push(path);
            }
        }
    }
    files.sort();
    settings.say(&format!("{} upstream headers", files.len()));
    Ok(files)
}
