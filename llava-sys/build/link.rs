//! What the linker and dependants are told.

use crate::cpu::Cpu;
use crate::native::Native;
use crate::settings::Settings;
use crate::shim::Archives;
use crate::source::Source;

/// Libraries of ggml and llama that the program is linked with, users before the used.
pub fn libraries(settings: &Settings) -> Vec<String> {
    let mut names = vec!["llama".to_owned(), "ggml".to_owned()];
    if !settings.shared() {
        // Loadable back-ends are opened at run time and not linked.
        names.extend(settings.backends().iter().map(|backend| format!("ggml-{backend}")));
    }
    names.push("ggml-base".to_owned());
    names
}

/// Which BLAS is asked for: Apple's own there, OpenBLAS elsewhere.
pub fn blas_vendor(settings: &Settings) -> String {
    let default = if settings.apple() { "Apple" } else { "OpenBLAS" };
    settings.blas_vendor.clone().unwrap_or_else(|| default.to_owned())
}

/// Constants of the crate itself; needed even where nothing is built.
pub fn constants(settings: &Settings, cpu: &Cpu) {
    let constant = |name: &str, value: &str| println!("cargo::rustc-env={name}={value}");
    constant("LLAVA_SYS_CPU_BASELINE", &cpu.name);
    constant("LLAVA_SYS_CPU_FEATURES", &cpu.features.join(","));
    constant("LLAVA_SYS_BACKENDS", &settings.backends().join(","));
}

/// Link lines, and metadata that dependants see as `DEP_LLAMA_*`.
pub fn emit(settings: &Settings, source: &Source, native: &Native, archives: &Archives, cpu: &Cpu) {
    archives.dirs.iter().for_each(|dir| search(dir));
    for name in &archives.names {
        println!("cargo::rustc-link-lib=static={name}");
    }
    for dir in &native.lib_dirs {
        search(dir);
    }
    let kind = if settings.shared() { "dylib" } else { "static" };
    for name in libraries(settings) {
        println!("cargo::rustc-link-lib={kind}={name}");
    }
    system(settings);
    if settings.shared() {
        for dir in &native.lib_dirs {
            // For this package's own tests; dependants read DEP_LLAMA_RPATH.
            println!("cargo::rustc-link-arg=-Wl,-rpath,{}", dir.display());
        }
    }
    metadata(settings, source, native, cpu);
}

fn metadata(settings: &Settings, source: &Source, native: &Native, cpu: &Cpu) {
    let say = |name: &str, value: &str| println!("cargo::metadata={name}={value}");
    let include: Vec<_> = source.include_dirs().into_iter().chain([settings.manifest_dir.join("shim")]).collect();
    let include = std::env::join_paths(include).unwrap_or_default();
    say("ROOT", &settings.out_dir.display().to_string());
    say("SOURCE", &source.tree.root().display().to_string());
    say("INCLUDE", &include.to_string_lossy());
    say("VERSION", source.tree.llama_version());
    say("GGML_VERSION", source.tree.ggml_version());
    say("BUILD", &source.tree.build());
    say("BACKENDS", &settings.backends().join(","));
    say("CPU_BASELINE", &cpu.name);
    if let Some(dir) = &native.backend_dir {
        say("RPATH", &dir.display().to_string());
    }
    println!("cargo::rustc-env=LLAVA_SYS_LLAMA_BUILD={}", source.tree.build());
    println!("cargo::rustc-env=LLAVA_SYS_LLAMA_VERSION={}", source.tree.llama_version());
    println!("cargo::rustc-env=LLAVA_SYS_GGML_VERSION={}", source.tree.ggml_version());
}

fn search(dir: &std::path::Path) {
    println!("cargo::rustc-link-search=native={}", dir.display());
}

/// What the C++ code needs of the system.
fn system(settings: &Settings) {
    let library = |name: &str| println!("cargo::rustc-link-lib={name}");
    let framework = |name: &str| println!("cargo::rustc-link-lib=framework={name}");
    if cfg!(feature = "cuda") && !settings.shared() {
        cuda(settings);
    }
    if cfg!(feature = "vulkan") && !settings.shared() {
        if let Some(sdk) = &settings.vulkan_sdk {
            search(&sdk.join(if settings.target_os == "windows" { "Lib" } else { "lib" }));
        }
        library(if settings.target_os == "windows" { "vulkan-1" } else { "vulkan" });
    }
    if cfg!(feature = "blas") && !settings.shared() && !settings.apple() {
        library(match blas_vendor(settings).as_str() {
            "OpenBLAS" => "openblas",
            "FLAME" => "blis",
            "FlexiBLAS" => "flexiblas",
            "Intel10_64lp" | "Intel10_64_dyn" => "mkl_rt",
            _ => "blas",
        });
    }
    if settings.apple() {
        framework("Accelerate");
        if cfg!(feature = "metal") {
            ["Foundation", "Metal", "MetalKit"].into_iter().for_each(framework);
        }
    }
    match settings.target_os.as_str() {
        "windows" => {
            library("advapi32");
            if cfg!(feature = "rpc") {
                library("ws2_32");
            }
        }
        "linux" => ["dl", "pthread", "m"].into_iter().for_each(library),
        "android" => ["dl", "m", "log"].into_iter().for_each(library),
        _ => {}
    }
    for sanitizer in &settings.sanitizers {
        library(match sanitizer.flag() {
            "address" => "asan",
            "undefined" => "ubsan",
            _ => "tsan",
        });
    }
    let stdlib = match (&settings.cxx_stdlib, settings.target_os.as_str(), settings.target_env.as_str()) {
        (Some(name), ..) => Some(name.as_str()),
        (None, _, "msvc") => None,
        (None, "android", _) => Some("c++_static"),
        (None, "macos" | "ios" | "tvos" | "visionos" | "freebsd" | "openbsd", _) => Some("c++"),
        _ => Some("stdc++"),
    };
    if let Some(name) = stdlib {
        library(name);
    }
}

/// CUDA's run time and cuBLAS are linked dynamically: they are part of the driver stack that a GPU machine has anyway.
fn cuda(settings: &Settings) {
    let root = settings.cuda_path.clone().unwrap_or_else(|| "/usr/local/cuda".into());
    for dir in ["lib64", "lib64/stubs", "lib/x64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"] {
        let dir = root.join(dir);
        if dir.is_dir() {
            search(&dir);
        }
    }
    for name in ["cudart", "cublas", "cublasLt"] {
        println!("cargo::rustc-link-lib={name}");
    }
    if !cfg!(feature = "cuda-no-vmm") {
        println!("cargo::rustc-link-lib=cuda");
    }
}
