//! The start-up check: an older CPU gets an answer in words instead of an illegal instruction.

/// The CPU that ggml's kernels were compiled for: `x86-64-v3`, `armv8.2-a+dotprod`, `native (..)`, `dynamic`, ..
pub const CPU_BASELINE: &str = env!("LLAVA_SYS_CPU_BASELINE");

/// What that CPU must offer, separated by commas.
const NEEDED: &str = env!("LLAVA_SYS_CPU_FEATURES");

/// Features that the native code was compiled for and this CPU lacks; empty on a CPU that can run it.
///
/// Detection only: nothing native is called. A name that this function does not know how to detect counts as missing, so
/// that a baseline added to the build without a check added here is noticed at once.
///
/// ```
/// assert_eq!(llava_sys::missing_cpu_features(), Vec::<&str>::new(), "tests run on a CPU of the baseline");
/// ```
#[must_use]
pub fn missing_cpu_features() -> Vec<&'static str> {
    missing(NEEDED, detected)
}

/// The names in `needed` for which `has` does not say yes.
fn missing(needed: &'static str, has: impl Fn(&str) -> Option<bool>) -> Vec<&'static str> {
    needed.split(',').filter(|name| !name.is_empty() && has(name) != Some(true)).collect()
}

#[cfg(target_arch = "x86_64")]
fn detected(name: &str) -> Option<bool> {
    macro_rules! table {
        ($($feature:tt),*) => { match name { $($feature => Some(std::arch::is_x86_feature_detected!($feature)),)* _ => None } };
    }
    table!(
        "sse4.2",
        "avx",
        "avx2",
        "bmi2",
        "fma",
        "f16c",
        "avxvnni",
        "avx512f",
        "avx512cd",
        "avx512bw",
        "avx512dq",
        "avx512vl",
        "avx512vbmi",
        "avx512vnni",
        "avx512bf16"
    )
}

#[cfg(target_arch = "aarch64")]
fn detected(name: &str) -> Option<bool> {
    macro_rules! table {
        ($($feature:tt),*) => { match name { $($feature => Some(std::arch::is_aarch64_feature_detected!($feature)),)* _ => None } };
    }
    table!("lse", "dotprod", "fp16", "i8mm", "sve", "sve2")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detected(_name: &str) -> Option<bool> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_absent_is_listed() {
        let has = |name: &str| match name {
            "avx" | "fma" => Some(true),
            "avx2" => Some(false),
            _ => None,
        };
        assert_eq!(missing("avx,avx2,fma", has), ["avx2"]);
        assert_eq!(missing("avx,unheard-of", has), ["unheard-of"]);
        assert_eq!(missing("", has), Vec::<&str>::new());
    }

    #[test]
    fn every_feature_of_the_baseline_can_be_detected() {
        for name in NEEDED.split(',').filter(|name| !name.is_empty()) {
            assert!(detected(name).is_some(), "{name} has no detection on this architecture");
        }
    }
}
