//! ggml and llama, built by upstream's own CMake files: always optimised (a debug build of ggml is unusable), static, without
//! OpenMP, tools, tests or anything that talks to a network. Only the library target is built; nothing is installed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::cpu::Cpu;
use crate::headers;
use crate::link;
use crate::settings::{Sanitizer, Settings};
use crate::source::Source;
use crate::workplace::{self, Workplace};

/// Where the built libraries lie.
pub struct Native {
    /// Folders for the linker.
    pub lib_dirs: Vec<PathBuf>,
    /// Folder of the loadable back-ends, for builds that have them.
    pub backend_dir: Option<PathBuf>,
}

/// Builds the libraries, or takes the prebuilt ones.
pub fn provide(settings: &Settings, source: &Source, cpu: &Cpu) -> Result<(Native, Workplace), String> {
    let mut options = options(settings, cpu);
    let workplace = workplace::open(settings, source, &options)?;
    if let Some(prebuilt) = &source.prebuilt {
        let dir = prebuilt.lib_dir().to_owned();
        let backend_dir = settings.shared().then(|| dir.clone());
        return Ok((Native { lib_dirs: vec![dir], backend_dir }, workplace));
    }
    let lib = workplace.dir.join("lib");
    let bin = workplace.dir.join("build/bin");
    let made = if settings.shared() { &bin } else { &lib };
    let native = Native {
        // The second form is that of generators with several configurations (Visual Studio, Xcode).
        lib_dirs: vec![made.clone(), made.join("Release")],
        backend_dir: settings.shared().then(|| bin.clone()),
    };
    if up_to_date(settings, source, &workplace, &native) {
        settings.say("ggml and llama are up to date");
        return Ok((native, workplace));
    }
    require_cmake()?;
    let stamp = workplace.dir.join("stamp");
    let _ = fs::remove_file(&stamp);
    options.push(("CMAKE_ARCHIVE_OUTPUT_DIRECTORY".to_owned(), lib.display().to_string()));
    if settings.shared() {
        options.push(("GGML_BACKEND_DIR".to_owned(), bin.display().to_string()));
    }
    let mut config = cmake::Config::new(source.tree.root());
    config.profile("Release").out_dir(&workplace.dir).build_target("llama");
    if relaxed(settings) {
        let header = settings.manifest_dir.join("shim/llava_relax.h");
        // quoted: the flags become one line of text
        config.cflag("-include").cflag(format!("\"{}\"", header.display()));
    }
    for flag in &cpu.flags {
        config.cflag(flag).cxxflag(flag);
    }
    for (name, value) in &options {
        config.define(name, value);
    }
    config.build();
    if let Some(missing) = missing(settings, &native) {
        return Err(format!("CMake went through without making {missing}; its folder is {}", workplace.dir.display()));
    }
    fs::write(&stamp, &workplace.recipe).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok((native, workplace))
}

/// Every option, in order. Nothing is left to upstream's defaults that would depend on the machine.
fn options(settings: &Settings, cpu: &Cpu) -> Vec<(String, String)> {
    let on = |value: bool| if value { "ON" } else { "OFF" }.to_owned();
    let mut options: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: String| options.push((name.to_owned(), value));

    set("BUILD_SHARED_LIBS", on(settings.shared()));
    set("CMAKE_POSITION_INDEPENDENT_CODE", on(true));
    set("CMAKE_EXPORT_COMPILE_COMMANDS", on(true));
    for part in ["COMMON", "TOOLS", "TESTS", "EXAMPLES", "SERVER", "APP", "MTMD", "UI"] {
        set(&format!("LLAMA_BUILD_{part}"), on(false));
    }
    set("LLAMA_OPENSSL", on(false));
    set("LLAMA_BUILD_NUMBER", llava_src::LLAMA_BUILD.to_string());
    // Named here, or CMake would ask git for the state of whatever repository the source happens to lie in.
    set("LLAMA_BUILD_COMMIT", format!("b{}", llava_src::LLAMA_BUILD));
    set("LLAMA_ALL_WARNINGS", on(false));
    set("GGML_ALL_WARNINGS", on(false));
    set("GGML_OPENMP", on(false));
    set("GGML_CCACHE", on(true));

    set("GGML_CUDA", on(cfg!(feature = "cuda")));
    if cfg!(feature = "cuda") {
        set("GGML_CUDA_NO_VMM", on(cfg!(feature = "cuda-no-vmm")));
        set("GGML_CUDA_NCCL", on(false));
        if let Some(list) = &settings.cuda_architectures {
            set("CMAKE_CUDA_ARCHITECTURES", list.clone());
        }
        if let Some(path) = &settings.cuda_path {
            set("CUDAToolkit_ROOT", path.display().to_string());
        }
    }
    set("GGML_METAL", on(cfg!(feature = "metal")));
    set("GGML_METAL_EMBED_LIBRARY", on(cfg!(feature = "metal")));
    set("GGML_VULKAN", on(cfg!(feature = "vulkan")));
    set("GGML_BLAS", on(cfg!(feature = "blas")));
    if cfg!(feature = "blas") {
        set("GGML_BLAS_VENDOR", link::blas_vendor(settings));
    }
    set("GGML_RPC", on(cfg!(feature = "rpc")));
    // Otherwise found or not found by what else is installed on the build machine.
    set("GGML_RPC_RDMA", on(false));
    set("GGML_BACKEND_DL", on(settings.shared()));
    for sanitizer in [Sanitizer::Address, Sanitizer::Undefined, Sanitizer::Thread] {
        for prefix in ["LLAMA", "GGML"] {
            let name = format!("{prefix}_SANITIZE_{}", sanitizer.flag().to_uppercase());
            set(&name, on(settings.sanitizers.contains(&sanitizer)));
        }
    }
    if !settings.sanitizers.is_empty() {
        // Instrumented at -O3, ggml's kernels take minutes a file to compile.
        for language in ["C", "CXX"] {
            set(&format!("CMAKE_{language}_FLAGS_RELEASE"), "-O1 -g1 -DNDEBUG -fno-omit-frame-pointer".to_owned());
        }
    }
    if relaxed(settings) {
        let header = settings.manifest_dir.join("shim/llava_relax.h");
        println!("cargo::rerun-if-changed={}", header.display());
        // no option of CMake's: part of the recipe, so that a build with another header is not taken for this one
        let text = fs::read_to_string(&header).unwrap_or_default();
        set("LLAVA_RELAX", format!("{:016x}", headers::fingerprint(&text)));
    }
    for (name, value) in &cpu.options {
        set(name, value.clone());
    }
    options
}

/// Whether waiting threads give way to others, see `shim/llava_relax.h`: where the compiler takes `-include`.
fn relaxed(settings: &Settings) -> bool {
    settings.target_arch == "x86_64" && settings.target_os != "windows"
}

/// True when the same recipe has already made all libraries. A folder given by hand may have been edited: CMake decides.
fn up_to_date(settings: &Settings, source: &Source, workplace: &Workplace, native: &Native) -> bool {
    source.tree.origin() == llava_src::Origin::Pin
        && fs::read_to_string(workplace.dir.join("stamp")).is_ok_and(|old| old == workplace.recipe)
        && missing(settings, native).is_none()
}

/// The first library that is not there.
fn missing(settings: &Settings, native: &Native) -> Option<String> {
    let prefix = if settings.target_env == "msvc" { "" } else { "lib" };
    let suffix = match (settings.shared(), settings.target_env.as_str(), settings.apple()) {
        (false, "msvc", _) | (true, "msvc", _) => ".lib",
        (false, ..) => ".a",
        (true, _, true) => ".dylib",
        (true, ..) => ".so",
    };
    link::libraries(settings)
        .into_iter()
        .map(|name| format!("{prefix}{name}{suffix}"))
        .find(|file| !native.lib_dirs.iter().any(|dir| dir.join(file).is_file()))
}

/// The cmake crate would panic; a person wants to know what to install.
fn require_cmake() -> Result<(), String> {
    let cmake = std::env::var_os("CMAKE").unwrap_or_else(|| "cmake".into());
    match Command::new(&cmake).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(format!(
            "{} does not run: building llama.cpp needs CMake 3.14 or newer.\n\
             Debian and Ubuntu: `make deps` or `apt-get install cmake`; macOS: `brew install cmake`; or set CMAKE to its path.\n\
             Without CMake, LLAMA_CPP_LIB_DIR and LLAMA_CPP_INCLUDE_DIR take libraries built elsewhere.",
            cmake.display()
        )),
    }
}
