//! What was asked for. Every environment variable is read here, and so registered with cargo and reported in one place;
//! the table in README.md lists the same names.

use std::env;
use std::path::PathBuf;

/// Variables that change the build and are read here.
const VARIABLES: &[&str] = &[
    "LLAMA_CPP_DIR",
    "LLAMA_CPP_LIB_DIR",
    "LLAMA_CPP_INCLUDE_DIR",
    "LLAVA_NATIVE_DIR",
    "LLAVA_BUILD_VERBOSE",
    "LLAVA_SANITIZE",
    "LLAVA_BINDINGS",
    "LLAVA_BLAS_VENDOR",
    "LLAVA_CUDA_ARCHITECTURES",
    "CUDA_PATH",
    "VULKAN_SDK",
    "CXXSTDLIB",
    "CARGO_NET_OFFLINE",
    "DOCS_RS",
];

/// Variables that CMake or the crates `cc` and `cmake` read; with `_<target>` behind as well.
const TOOLS: &[&str] =
    &["CC", "CXX", "AR", "CFLAGS", "CXXFLAGS", "CMAKE", "CMAKE_GENERATOR", "CMAKE_TOOLCHAIN_FILE", "CMAKE_PREFIX_PATH"];

/// A sanitizer of the C++ compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sanitizer {
    Address,
    Undefined,
    Thread,
}

impl Sanitizer {
    /// The name that `-fsanitize=` takes.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Undefined => "undefined",
            Self::Thread => "thread",
        }
    }
}

/// What `LLAVA_BINDINGS` asks for instead of a build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BindingsTask {
    /// Rewrite the committed files.
    Write,
    /// Fail when they are not what bindgen makes now.
    Check,
}

/// Features, target and environment of this build.
pub struct Settings {
    pub out_dir: PathBuf,
    pub manifest_dir: PathBuf,
    pub cargo: PathBuf,
    pub host: String,
    pub target: String,
    pub target_os: String,
    pub target_arch: String,
    pub target_env: String,
    pub llama_cpp_dir: Option<PathBuf>,
    pub lib_dir: Option<PathBuf>,
    pub include_dirs: Vec<PathBuf>,
    pub native_dir: Option<PathBuf>,
    pub sanitizers: Vec<Sanitizer>,
    pub bindings_task: Option<BindingsTask>,
    pub blas_vendor: Option<String>,
    pub cuda_architectures: Option<String>,
    pub cuda_path: Option<PathBuf>,
    pub vulkan_sdk: Option<PathBuf>,
    pub cxx_stdlib: Option<String>,
    pub verbose: bool,
    pub docs_rs: bool,
}

impl Settings {
    /// Reads everything, registers every variable, and refuses what has no meaning.
    pub fn read() -> Result<Self, String> {
        let target = from_cargo("TARGET")?;
        for name in VARIABLES {
            println!("cargo::rerun-if-env-changed={name}");
        }
        for name in tool_variables(&target) {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let settings = Self {
            out_dir: from_cargo("OUT_DIR")?.into(),
            manifest_dir: from_cargo("CARGO_MANIFEST_DIR")?.into(),
            cargo: env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from),
            host: from_cargo("HOST")?,
            target,
            target_os: from_cargo("CARGO_CFG_TARGET_OS")?,
            target_arch: from_cargo("CARGO_CFG_TARGET_ARCH")?,
            target_env: env::var("CARGO_CFG_TARGET_ENV").unwrap_or_default(),
            llama_cpp_dir: path("LLAMA_CPP_DIR")?,
            lib_dir: path("LLAMA_CPP_LIB_DIR")?,
            include_dirs: paths("LLAMA_CPP_INCLUDE_DIR")?,
            native_dir: path("LLAVA_NATIVE_DIR")?,
            sanitizers: sanitizers(&text("LLAVA_SANITIZE")?.unwrap_or_default())?,
            bindings_task: bindings_task(text("LLAVA_BINDINGS")?.as_deref())?,
            blas_vendor: text("LLAVA_BLAS_VENDOR")?,
            cuda_architectures: text("LLAVA_CUDA_ARCHITECTURES")?,
            cuda_path: path("CUDA_PATH")?,
            vulkan_sdk: path("VULKAN_SDK")?,
            cxx_stdlib: text("CXXSTDLIB")?,
            verbose: text("LLAVA_BUILD_VERBOSE")?.is_some_and(|value| value != "0"),
            docs_rs: text("DOCS_RS")?.is_some(),
        };
        settings.refuse_nonsense()?;
        Ok(settings)
    }

    fn refuse_nonsense(&self) -> Result<(), String> {
        if self.lib_dir.is_some() == self.include_dirs.is_empty() {
            return Err("LLAMA_CPP_LIB_DIR and LLAMA_CPP_INCLUDE_DIR belong together: set both or none".to_owned());
        }
        if self.bindings_task.is_some() && !cfg!(feature = "bindgen") {
            return Err("LLAVA_BINDINGS needs the feature `bindgen`".to_owned());
        }
        if cfg!(feature = "metal") && !self.apple() {
            return Err(format!("the feature `metal` needs an Apple target, not {}", self.target));
        }
        if cfg!(feature = "cuda") && self.apple() {
            return Err("the feature `cuda` is not available on Apple targets: use `metal`".to_owned());
        }
        if self.sanitizers.contains(&Sanitizer::Thread) && self.sanitizers.contains(&Sanitizer::Address) {
            return Err("LLAVA_SANITIZE: address and thread cannot be combined".to_owned());
        }
        if self.sanitizers.is_empty() || self.target_env != "msvc" {
            return Ok(());
        }
        Err("LLAVA_SANITIZE is not supported with MSVC".to_owned())
    }

    /// True for shared libraries and loadable back-ends.
    pub fn shared(&self) -> bool {
        cfg!(feature = "dynamic-backends")
    }

    pub fn apple(&self) -> bool {
        matches!(self.target_os.as_str(), "macos" | "ios" | "tvos" | "visionos")
    }

    /// ggml's back-ends in this build, CPU last; the names are those of ggml's libraries without `ggml-`.
    pub fn backends(&self) -> Vec<&'static str> {
        let all = [
            ("cuda", cfg!(feature = "cuda")),
            ("metal", cfg!(feature = "metal")),
            ("vulkan", cfg!(feature = "vulkan")),
            ("blas", cfg!(feature = "blas")),
            ("rpc", cfg!(feature = "rpc")),
            ("cpu", true),
        ];
        all.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect()
    }

    /// Says something when `LLAVA_BUILD_VERBOSE` is set. A warning is the only line cargo shows of a successful build.
    pub fn say(&self, message: &str) {
        if self.verbose {
            println!("cargo::warning={message}");
        }
    }

    /// The variables of compilers and CMake that are set, as lines of a recipe.
    pub fn tools(&self) -> String {
        let set = tool_variables(&self.target).into_iter().filter_map(|name| {
            let value = env::var_os(&name)?;
            Some(format!("{name}={}\n", value.to_string_lossy()))
        });
        set.collect()
    }

    /// Prints every registered variable that is set.
    pub fn report(&self) {
        for name in VARIABLES.iter().map(ToString::to_string).chain(tool_variables(&self.target)) {
            if let Ok(value) = env::var(&name) {
                self.say(&format!("{name}={value}"));
            }
        }
        self.say(&format!("back-ends: {}", self.backends().join(", ")));
    }
}

/// Every form of the tools' variables.
fn tool_variables(target: &str) -> Vec<String> {
    let underscored = target.replace('-', "_");
    TOOLS
        .iter()
        .flat_map(|name| [name.to_string(), format!("{name}_{target}"), format!("{name}_{underscored}")])
        .collect()
}

/// A variable that cargo always sets for build scripts.
fn from_cargo(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} is not set: this is a build script, to be run by cargo"))
}

/// An optional variable; empty counts as not set.
fn text(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is not valid Unicode")),
    }
}

fn path(name: &str) -> Result<Option<PathBuf>, String> {
    let Some(value) = text(name)? else { return Ok(None) };
    absolute(name, &PathBuf::from(value)).map(Some)
}

/// Several folders, separated as in `PATH`.
fn paths(name: &str) -> Result<Vec<PathBuf>, String> {
    let value = text(name)?.unwrap_or_default();
    env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).map(|path| absolute(name, &path)).collect()
}

/// Build scripts run in the package's folder, which is not where the user typed the path: relative ones would mislead.
fn absolute(name: &str, path: &std::path::Path) -> Result<PathBuf, String> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    Err(format!("{name}={}: give an absolute path", path.display()))
}

fn sanitizers(value: &str) -> Result<Vec<Sanitizer>, String> {
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            [Sanitizer::Address, Sanitizer::Undefined, Sanitizer::Thread]
                .into_iter()
                .find(|sanitizer| sanitizer.flag() == word)
                .ok_or_else(|| format!("LLAVA_SANITIZE={value}: `{word}` is none of address, undefined, thread"))
        })
        .collect()
}

fn bindings_task(value: Option<&str>) -> Result<Option<BindingsTask>, String> {
    match value {
        None => Ok(None),
        Some("write") => Ok(Some(BindingsTask::Write)),
        Some("check") => Ok(Some(BindingsTask::Check)),
        Some(other) => Err(format!("LLAVA_BINDINGS={other}: only `write` and `check` have a meaning")),
    }
}
