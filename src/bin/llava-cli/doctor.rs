//! `llava-cli doctor`: what this machine and this build offer, one fact a line, for a person and for a bug report.

use anyhow::Result;
use llava::llama::{Backend, gemm, physical_cores};

use crate::console::print;
use crate::{cache, version};

/// Starts the native library, as a question would, and prints what came of it.
pub fn run() -> Result<()> {
    print(&format!("llava-cli {}\n", version::text()))?;
    print(&format!("CPU features: {}\n", features().join(" ")))?;
    print(&format!("physical cores: {}\n", physical_cores()))?;
    let backend = Backend::start()?;
    for device in backend.devices() {
        print(&format!("device: {} ({})\n", device.name, device.description))?;
    }
    let kernels = match gemm::kernel() {
        Some(kernel) => format!("{kernel}: quantised weights and the tower's attention, in llava-gemm"),
        None => format!("ggml's own ({})", gemm::why_not().unwrap_or_default()),
    };
    print(&format!("kernels in use: {kernels}\n"))?;
    let available: Vec<&str> =
        gemm::Kernel::ALL.into_iter().filter(|kernel| kernel.available()).map(gemm::Kernel::name).collect();
    print(&format!("LLAVA_GEMM takes: auto, off, {}\n", available.join(", ")))?;
    let folder = cache::folder(None).map_or_else(|error| error.to_string(), |folder| folder.display().to_string());
    print(&format!("cache folder: {folder}\n"))
}

/// The CPU features that the kernels ask for.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    macro_rules! present {
        ($($name:tt)*) => { [$(($name, std::arch::is_x86_feature_detected!($name))),*] };
    }
    let all = present!("avx2" "fma" "f16c" "avxvnni" "avx512f" "avx512bw" "avx512vl" "avx512vnni" "avx512bf16");
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<&'static str> {
    vec!["(llava-gemm has no kernels for this architecture: ggml's are in charge)"]
}
