//! Views of the caller's memory: the only places where an address becomes a slice.

/// `len` values at `data` as a slice; the empty slice where `len` is 0.
///
/// # Safety
/// Where `len > 0`, `data` points to `len` initialised, aligned values that nobody writes for `'a`.
#[inline(always)]
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    #[expect(clippy::disallowed_methods, reason = "the helper that the rule asks for: an empty view needs no address")]
    unsafe {
        std::slice::from_raw_parts(data, len)
    }
}

/// `len` values at `data` as a mutable slice; the empty slice where `len` is 0.
///
/// # Safety
/// Where `len > 0`, `data` points to `len` initialised, aligned values that nobody else reads or writes for `'a`.
#[inline(always)]
pub(crate) unsafe fn slice_mut<'a, T>(data: *mut T, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    #[expect(clippy::disallowed_methods, reason = "the helper that the rule asks for: an empty view needs no address")]
    unsafe {
        std::slice::from_raw_parts_mut(data, len)
    }
}
