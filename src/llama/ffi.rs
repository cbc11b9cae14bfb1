//! Status codes into `Result`, C strings into `&str`, C arrays into slices: each in one function.

use std::ffi::CStr;
use std::ptr::NonNull;

use llava_sys as sys;

use super::log;
use crate::error::{Error, Result};

/// Text of the shim's last failure on this thread.
pub(crate) fn last_error() -> String {
    // SAFETY: takes nothing and cannot fail.
    let text = unsafe { sys::llava_last_error() };
    // SAFETY: llava_shim.h: "never NULL, valid until the next call on this thread"; it is copied before any other call.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Turns a status of the shim into a `Result`, keeping status and text.
pub(crate) fn check(call: &'static str, status: i32) -> Result<()> {
    match status {
        0 => Ok(()),
        s if s == sys::LLAVA_STATUS_CANCELLED as i32 => Err(Error::Cancelled),
        _ => Err(native_error(call)),
    }
}

/// Runs a native constructor: `make` writes the object into the place it is given and returns a status; `own` makes its
/// owner at once, so that it is freed whatever happens next. What went wrong is told by `failed`, from the native words with
/// the log lines of the call behind them.
pub(crate) fn construct<T, O>(
    call: &'static str,
    own: impl FnOnce(NonNull<T>) -> O,
    make: impl FnOnce(*mut *mut T) -> i32,
    failed: impl FnOnce(String) -> Error,
) -> Result<O> {
    let ((status, owner), lines) = log::capture(|| {
        let mut raw = std::ptr::null_mut();
        let status = check(call, make(&raw mut raw));
        (status, NonNull::new(raw).map(own))
    });
    match (status, owner) {
        (Ok(()), Some(owner)) => Ok(owner),
        (Err(Error::Native { reason, .. }), _) => Err(failed(log::with_lines(reason, &lines))),
        (Err(other), _) => Err(other),
        (Ok(()), None) => Err(failed(log::with_lines("nothing was made, and no reason given".into(), &lines))),
    }
}

/// The shim's last failure as an error of `call`.
pub(crate) fn native_error(call: &'static str) -> Error {
    Error::Native { call, reason: last_error() }
}

/// A C array as a slice; null or zero length is the empty slice.
///
/// # Safety
/// Where `len > 0` and `data` is not null, `data` points to `len` initialised values that stay unchanged for `'a`.
pub(crate) unsafe fn slice_or_empty<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: not null here, the rest is the caller's promise.
    #[expect(clippy::disallowed_methods, reason = "this is the one null-tolerant helper the rule asks for")]
    unsafe {
        std::slice::from_raw_parts(data, len)
    }
}

/// A C string as owned text, lossy where it is not UTF-8; `None` for null.
///
/// # Safety
/// `text` is null or points to a NUL-terminated string that lives through the call.
pub(crate) unsafe fn owned_str(text: *const std::ffi::c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null here, the rest is the caller's promise.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// ggml's own Q8_0 blocks of `values`, of which there are a multiple of 32: the oracle of the quantiser's tests.
#[cfg(test)]
pub(crate) fn ggml_q8_0(values: &[f32]) -> Vec<u8> {
    assert!(values.len().is_multiple_of(32), "ggml asserts whole blocks");
    let mut out = vec![0_u8; values.len() / 32 * 34];
    let row = i64::try_from(values.len()).unwrap();
    // SAFETY: one row of whole blocks; the room is 34 bytes for each of them; Q8_0 takes no importance matrix.
    let written = unsafe {
        sys::ggml_quantize_chunk(
            sys::GGML_TYPE_Q8_0,
            values.as_ptr(),
            out.as_mut_ptr().cast(),
            0,
            1,
            row,
            std::ptr::null(),
        )
    };
    assert_eq!(written, out.len());
    out
}
