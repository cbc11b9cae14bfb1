//! Thread counts and the persistent native threadpool.

use std::ptr::NonNull;

use llava_sys as sys;

use super::ffi::check;
use crate::error::{Error, Result};

/// Cores that compute independently, bounded by what this process may use. At least 1.
///
/// Two hyper-threads of one core share its multipliers: using both makes matrix kernels slower, not faster.
#[must_use]
pub fn physical_cores() -> u32 {
    let allowed = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(num_cpus::get_physical().clamp(1, allowed)).unwrap_or(1)
}

/// Owner of a native threadpool. Without one, ggml starts threads anew for every graph.
#[derive(Debug)]
pub(crate) struct Threadpool(NonNull<sys::llava_threadpool>);

// SAFETY: the pool has no thread affinity; ggml only asks that one graph at a time runs on it, which the owner of the
// context that it is attached to guarantees by taking `&mut`.
unsafe impl Send for Threadpool {}
// SAFETY: a shared reference gives access to the thread count only, which never changes.
unsafe impl Sync for Threadpool {}

impl Threadpool {
    pub(crate) fn new(threads: u32) -> Result<Self> {
        let threads = i32::try_from(threads).ok().filter(|t| (1..=512).contains(t)).ok_or(Error::BadParameter {
            name: "threads",
            value: threads.to_string(),
            reason: "1 to 512".into(),
        })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is a valid place for the result.
        check("llava_threadpool_new", unsafe { sys::llava_threadpool_new(threads, &raw mut raw) })?;
        NonNull::new(raw).map(Self).ok_or_else(|| super::ffi::native_error("llava_threadpool_new"))
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut sys::llava_threadpool {
        self.0.as_ptr()
    }
}

impl Drop for Threadpool {
    fn drop(&mut self) {
        // SAFETY: made by llava_threadpool_new, freed once; what it was attached to is gone or detached by then.
        unsafe { sys::llava_threadpool_free(self.0.as_ptr()) };
    }
}
