//! The folder in which the expensive part (ggml, llama, libmtmd) is built, and its lock.
//!
//! By default that is cargo's `OUT_DIR`, one for every profile and set of features. With `LLAVA_NATIVE_DIR` it is a folder
//! of that one, named after everything that decides the result, so that a debug build, a release build, clippy, the
//! tests' features and `cargo package` share one native build.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
#[cfg(unix)]
use std::process::Command;

use crate::settings::Settings;
use crate::source::Source;

/// A folder that belongs to this build until the value is dropped.
pub struct Workplace {
    pub dir: PathBuf,
    /// What decides the result, as text: the stamp of a finished build.
    pub recipe: String,
    /// The C++ compiler to name instead of the default one: a link to ccache.
    pub compiler: Option<PathBuf>,
    _lock: File,
}

/// Opens the folder for a build with these CMake options and waits while another build has it.
pub fn open(settings: &Settings, source: &Source, options: &[(String, String)]) -> Result<Workplace, String> {
    let recipe = recipe(settings, source, options);
    let dir = match &settings.native_dir {
        None => settings.out_dir.join("native"),
        Some(shared) => {
            let mut hasher = DefaultHasher::new();
            recipe.hash(&mut hasher);
            shared.join(format!("{:016x}", hasher.finish()))
        }
    };
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(&dir).map_err(failed)?;
    let lock = File::create(dir.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    settings.say(&format!("native build in {}", dir.display()));
    let compiler = masquerade(settings, &dir)?;
    Ok(Workplace { dir, recipe, compiler, _lock: lock })
}

/// The source, the options, the folders of headers, and the compilers with their flags.
fn recipe(settings: &Settings, source: &Source, options: &[(String, String)]) -> String {
    let mut text = format!("{}\n{}\n", settings.target, source.tree.root().display());
    for dir in source.include_dirs() {
        text.push_str(&format!("include {}\n", dir.display()));
    }
    for (name, value) in options {
        text.push_str(&format!("{name}={value}\n"));
    }
    text.push_str(&settings.tools());
    for cpp in [false, true] {
        let tool = cc::Build::new().cpp(cpp).cargo_metadata(false).opt_level(3).debug(false).get_compiler();
        text.push_str(&format!("{} {:?}\n", tool.path().display(), tool.args()));
    }
    text
}

/// A link called `c++` that leads to ccache, which then runs the real `c++`. Only where nobody chose a compiler by hand:
/// CMake finds ccache by itself, the `cc` crate does not.
#[cfg(unix)]
fn masquerade(settings: &Settings, dir: &std::path::Path) -> Result<Option<PathBuf>, String> {
    let target = settings.target.replace('-', "_");
    let chosen = ["CXX".to_owned(), "HOST_CXX".to_owned(), format!("CXX_{target}"), format!("CXX_{}", settings.target)];
    if settings.host != settings.target || chosen.iter().any(|name| std::env::var_os(name).is_some()) {
        return Ok(None);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let Some(ccache) = std::env::split_paths(&paths).map(|dir| dir.join("ccache")).find(|file| file.is_file()) else {
        return Ok(None);
    };
    if !Command::new(&ccache).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let dir = dir.join("ccache");
    let link = dir.join("c++");
    if fs::read_link(&link).is_ok_and(|leads_to| leads_to == ccache) {
        return Ok(Some(link));
    }
    let failed = |error: std::io::Error| format!("{}: {error}", link.display());
    fs::create_dir_all(&dir).map_err(failed)?;
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&ccache, &link).map_err(failed)?;
    Ok(Some(link))
}

#[cfg(not(unix))]
fn masquerade(_settings: &Settings, _dir: &std::path::Path) -> Result<Option<PathBuf>, String> {
    Ok(None)
}
