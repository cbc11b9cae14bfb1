//! Build facts for `llava-cli --version`: which llama.cpp, which back-ends, which CPU. Nothing is built here.

use std::env;

/// Facts that llava-sys publishes, and the name under which this crate sees each.
const FACTS: &[(&str, &str)] = &[
    ("DEP_LLAMA_BUILD", "LLAVA_FACT_LLAMA_BUILD"),
    ("DEP_LLAMA_VERSION", "LLAVA_FACT_LLAMA_VERSION"),
    ("DEP_LLAMA_GGML_VERSION", "LLAVA_FACT_GGML_VERSION"),
    ("DEP_LLAMA_BACKENDS", "LLAVA_FACT_BACKENDS"),
    ("DEP_LLAMA_CPU_BASELINE", "LLAVA_FACT_CPU_BASELINE"),
    ("TARGET", "LLAVA_FACT_TARGET"),
    ("PROFILE", "LLAVA_FACT_PROFILE"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for (source, name) in FACTS {
        // Absent where llava-sys built nothing, as on the documentation builder.
        let value = env::var(source).unwrap_or_else(|_| "unknown".to_owned());
        println!("cargo::rustc-env={name}={value}");
    }
    // Shared libraries of `dynamic-backends` are found where they were built; an installer sets its own path.
    println!("cargo::rerun-if-env-changed=DEP_LLAMA_RPATH");
    if let Ok(dir) = env::var("DEP_LLAMA_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
