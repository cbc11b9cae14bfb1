//! Raw bindings to llama.cpp, ggml and libmtmd, and to a C++ shim that guards their calls.
//!
//! This is the lowest of three floors: names, types and constants as C has them, nothing safe about them. The safe layer
//! is the crate `llava`; use this one only to add to it. Upstream's headers document each function; the shim's header
//! (`shim/llava_shim.h`) documents its own.
//!
//! Enumerations are plain integer constants, because C may return a value that these headers do not know yet.
//!
//! Two things here are not bindings: [`CPU_BASELINE`] says for which CPU the native code was compiled, and
//! [`missing_cpu_features`] what the CPU at hand lacks for it. Call the latter before anything native.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("llava-sys supports 64-bit targets only: the committed bindings hold 64-bit layouts");

mod cpu;

pub use cpu::{CPU_BASELINE, missing_cpu_features};

/// Names of ggml's back-ends in this build, separated by commas, CPU last.
pub const BACKENDS: &str = env!("LLAVA_SYS_BACKENDS");

/// Build of llama.cpp: `b11434` for the pin, `local` for a source given by hand, `none` where nothing was built.
pub const LLAMA_BUILD: &str = match option_env!("LLAVA_SYS_LLAMA_BUILD") {
    Some(build) => build,
    None => "none",
};

/// What bindgen made of the headers.
#[expect(
    missing_docs,
    non_camel_case_types,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated from C headers, which hold the names and the documentation"
)]
mod ffi {
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("bindings.rs");

    /// Upstream's helper and the shim's oracles, for tests.
    #[cfg(feature = "parity")]
    mod parity {
        #[cfg(feature = "bindgen")]
        include!(concat!(env!("OUT_DIR"), "/bindings_parity.rs"));
        #[cfg(not(feature = "bindgen"))]
        include!("bindings_parity.rs");
    }
    #[cfg(feature = "parity")]
    pub use parity::*;
}

pub use ffi::*;
