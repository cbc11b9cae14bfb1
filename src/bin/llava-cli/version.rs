//! What `--version` says. The facts come from the build script.

use std::sync::LazyLock;

use llava::llama::gemm;

static TEXT: LazyLock<String> = LazyLock::new(|| {
    let fact = |value: Option<&'static str>| value.unwrap_or("unknown");
    format!(
        "{}\nllama.cpp: {} (ggml {})\nback-ends: {}\nCPU baseline: {}\nkernels: {}\ntarget: {} ({})\ndemo model: {}",
        env!("CARGO_PKG_VERSION"),
        fact(option_env!("LLAVA_FACT_LLAMA_BUILD")),
        fact(option_env!("LLAVA_FACT_GGML_VERSION")),
        fact(option_env!("LLAVA_FACT_BACKENDS")),
        fact(option_env!("LLAVA_FACT_CPU_BASELINE")),
        kernels(),
        fact(option_env!("LLAVA_FACT_TARGET")),
        fact(option_env!("LLAVA_FACT_PROFILE")),
        if cfg!(feature = "demo") { "built in" } else { "not built in" },
    )
});

pub fn text() -> &'static str {
    &TEXT
}

/// Which kernels a run would use: what `LLAVA_GEMM` and the CPU allow. Nothing native is started for it.
pub fn kernels() -> String {
    match gemm::planned() {
        Ok(kernel) => kernel.to_string(),
        Err(reason) => format!("ggml ({reason})"),
    }
}
