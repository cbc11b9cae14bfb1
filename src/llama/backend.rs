//! The native library as a whole: start it once, ask what it can do.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use llava_sys as sys;

use super::ffi::{check, owned_str};
use crate::error::{Error, Result};

/// The started native library. There is one per process; every model keeps a reference.
#[derive(Debug)]
pub struct Backend(());

/// Loads the back-ends that are files of their own, from the program's folder only: ggml's own search looks into the current
/// folder too, where anybody may have put a library.
#[cfg(feature = "dynamic-backends")]
fn load_backends() {
    let folder = std::env::current_exe().ok().and_then(|exe| exe.parent().map(std::path::Path::to_owned));
    let Some(path) = folder.and_then(|folder| super::model::path_to_c(&folder).ok()) else { return };
    // SAFETY: the path lives through the call.
    unsafe { sys::ggml_backend_load_all_from_path(path.as_ptr()) };
}

/// A device that ggml can compute on.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// Short name, for example `CPU` or `CUDA0`.
    pub name: String,
    /// Its maker's words.
    pub description: String,
    /// Free memory in bytes, 0 where unknown.
    pub free_bytes: u64,
    /// Total memory in bytes, 0 where unknown.
    pub total_bytes: u64,
    /// Whether it is the CPU.
    pub is_cpu: bool,
}

static STARTING: Mutex<()> = Mutex::new(());
static BACKEND: OnceLock<Arc<Backend>> = OnceLock::new();

impl Backend {
    /// Starts the native library, or returns the one already started.
    ///
    /// # Errors
    /// [`Error::CpuTooOld`] where the processor lacks instructions that the native code was compiled for; nothing native
    /// has run then. [`Error::Native`] where memory is short.
    pub fn start() -> Result<Arc<Self>> {
        if let Some(backend) = BACKEND.get() {
            return Ok(Arc::clone(backend));
        }
        let missing = sys::missing_cpu_features();
        if !missing.is_empty() {
            return Err(Error::CpuTooOld { baseline: sys::CPU_BASELINE, missing: missing.join(", ") });
        }
        // one at a time, and whoever waited finds it started
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(backend) = BACKEND.get() {
            return Ok(Arc::clone(backend));
        }
        super::log::install();
        // SAFETY: llama.h: "Call once at the start of the program"; the lock makes it once.
        check("llama_backend_init", unsafe { sys::llava_backend_init() })?;
        #[cfg(feature = "dynamic-backends")]
        load_backends();
        super::gemm::install();
        Ok(Arc::clone(BACKEND.get_or_init(|| Arc::new(Backend(())))))
    }

    /// Version of llama.cpp, for example `b11434`.
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: returns a static string.
        let text = unsafe { sys::llama_version() };
        // SAFETY: static and NUL-terminated.
        unsafe { owned_str(text) }.unwrap_or_default()
    }

    /// Devices in the order that ggml lists them.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        // SAFETY: the registry is filled by `start`.
        let count = unsafe { sys::ggml_backend_dev_count() };
        (0..count)
            .filter_map(|i| {
                // SAFETY: `i` is below the count.
                let device = unsafe { sys::ggml_backend_dev_get(i) };
                (!device.is_null()).then(|| describe(device))
            })
            .collect()
    }

    /// Whether layers can be put on a GPU.
    #[must_use]
    pub fn supports_gpu(&self) -> bool {
        // SAFETY: a question without arguments.
        unsafe { sys::llama_supports_gpu_offload() }
    }
}

fn describe(device: sys::ggml_backend_dev_t) -> Device {
    let (mut free, mut total) = (0_usize, 0_usize);
    // SAFETY: `device` is a live entry of the registry, which only grows; the two places are valid.
    unsafe { sys::ggml_backend_dev_memory(device, &raw mut free, &raw mut total) };
    // SAFETY: as above; the string lives as long as the device.
    let name = unsafe { sys::ggml_backend_dev_name(device) };
    // SAFETY: NUL-terminated.
    let name = unsafe { owned_str(name) }.unwrap_or_default();
    // SAFETY: as above.
    let description = unsafe { sys::ggml_backend_dev_description(device) };
    // SAFETY: NUL-terminated.
    let description = unsafe { owned_str(description) }.unwrap_or_default();
    // SAFETY: as above.
    let kind = unsafe { sys::ggml_backend_dev_type(device) };
    Device {
        name,
        description,
        free_bytes: free as u64,
        total_bytes: total as u64,
        is_cpu: kind == sys::GGML_BACKEND_DEVICE_TYPE_CPU,
    }
}
