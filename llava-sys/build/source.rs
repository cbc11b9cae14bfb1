//! Where llama.cpp lies, in this order: `LLAMA_CPP_DIR`, the pin; and, for libraries built elsewhere, `LLAMA_CPP_LIB_DIR`
//! with `LLAMA_CPP_INCLUDE_DIR`. libmtmd is always compiled here, because the shim is one program with it.

use std::path::PathBuf;

use crate::headers;
use crate::settings::Settings;

/// The source, and the prebuilt libraries if there are any.
pub struct Source {
    /// llama.cpp's source tree.
    pub tree: llava_src::Source,
    /// ggml and llama built elsewhere.
    pub prebuilt: Option<llava_src::Prebuilt>,
}

impl Source {
    /// Include folders for libmtmd and the shim. Headers of prebuilt libraries come first: they describe what is linked.
    pub fn include_dirs(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = self.prebuilt.iter().flat_map(|found| found.include_dirs().to_vec()).collect();
        dirs.extend(self.tree.include_dirs());
        dirs
    }
}

/// Finds and checks both.
pub fn find(settings: &Settings) -> Result<Source, String> {
    let mut request = llava_src::Request::new(&settings.out_dir);
    request.llama_cpp_dir = settings.llama_cpp_dir.clone();
    request.any_version = cfg!(feature = "bindgen");
    request.cargo = settings.cargo.clone();
    request.host = Some(settings.host.clone());
    let tree = llava_src::locate(&request).map_err(|error| error.to_string())?;
    settings.say(&format!("llama.cpp {} ({}) in {}", tree.build(), tree.llama_version(), tree.root().display()));

    if tree.origin() == llava_src::Origin::Dir {
        for part in ["CMakeLists.txt", "cmake", "include", "src", "ggml", "tools/mtmd", "vendor"] {
            println!("cargo::rerun-if-changed={}", tree.root().join(part).display());
        }
    }
    let prebuilt = match &settings.lib_dir {
        None => None,
        Some(dir) => {
            println!("cargo::rerun-if-changed={}", dir.display());
            let libraries = crate::link::libraries(settings);
            let libraries: Vec<&str> = libraries.iter().map(String::as_str).collect();
            let found = llava_src::prebuilt(dir, &settings.include_dirs, &libraries, settings.shared());
            let found = found.map_err(|error| format!("LLAMA_CPP_LIB_DIR/LLAMA_CPP_INCLUDE_DIR: {error}"))?;
            settings.say(&format!("ggml and llama from {}", dir.display()));
            Some(found)
        }
    };
    Ok(Source { tree, prebuilt })
}

/// Whether the build goes on after the bindings.
pub enum Next {
    Build,
    /// Only the bindings were asked for.
    #[cfg(feature = "bindgen")]
    Stop,
}

/// Makes sure that bindings and headers agree. Without bindgen: the committed files must have been made from these headers.
#[cfg(not(feature = "bindgen"))]
pub fn bindings(settings: &Settings, source: &Source) -> Result<Next, String> {
    for set in headers::SETS.iter().filter(|set| set.wanted()) {
        let committed = settings.manifest_dir.join("src").join(set.file);
        println!("cargo::rerun-if-changed={}", committed.display());
        headers::check(set, &committed, &headers::search_path(settings, source))?;
    }
    Ok(Next::Build)
}

/// Makes sure that bindings and headers agree. With bindgen: makes them, or rewrites or checks the committed ones.
#[cfg(feature = "bindgen")]
pub fn bindings(settings: &Settings, source: &Source) -> Result<Next, String> {
    use crate::bindings;
    use crate::settings::BindingsTask;

    let dirs = headers::search_path(settings, source);
    for set in headers::SETS {
        let committed = settings.manifest_dir.join("src").join(set.file);
        let text = bindings::generate(set, &dirs)?;
        match settings.bindings_task {
            None => write(&settings.out_dir.join(set.file), &text)?,
            Some(BindingsTask::Write) => write(&committed, &text)?,
            Some(BindingsTask::Check) => bindings::check(&text, &committed)?,
        }
    }
    if settings.bindings_task.is_none() {
        return Ok(Next::Build);
    }
    // A task is done every time it is asked for: a path that never exists makes cargo run this script again.
    println!("cargo::rerun-if-changed={}", settings.out_dir.join("never").display());
    for set in headers::SETS {
        // The crate is still compiled after this, with bindings that need not be linked.
        let text = std::fs::read_to_string(settings.manifest_dir.join("src").join(set.file));
        write(&settings.out_dir.join(set.file), &text.map_err(|error| error.to_string())?)?;
    }
    Ok(Next::Stop)
}

#[cfg(feature = "bindgen")]
fn write(file: &std::path::Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
