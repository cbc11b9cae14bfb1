//! Native log lines into `tracing`, and the last error lines of a call into its error.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use llava_sys as sys;

/// How many warning and error lines an error message quotes.
const KEPT_LINES: usize = 6;

#[derive(Default)]
struct ThreadLog {
    /// Text of a line that has not seen its newline yet, and its level.
    partial: String,
    level: u32,
    /// Warnings and errors since `capture` began; `None` outside of a capture.
    captured: Option<Vec<String>>,
    /// What a subscriber panicked with while native code was running.
    panic: Option<Box<dyn Any + Send>>,
}

thread_local! {
    static LOG: RefCell<ThreadLog> = RefCell::default();
}

/// Routes ggml, llama and libmtmd to this module. Called once, when the back-end is made.
pub(crate) fn install() {
    // SAFETY: the callback is a plain function that lives forever and takes no user data.
    unsafe { sys::llava_log_set(Some(on_line), std::ptr::null_mut()) };
}

/// Runs `f` and returns with its value the warnings and errors that native code logged on this thread meanwhile. Where a
/// subscriber of the application panicked on one of its lines, the panic goes on when `f` has returned.
pub(crate) fn capture<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    let outer = LOG.with_borrow_mut(|log| log.captured.replace(Vec::new()));
    let result = f();
    let (lines, panic) = LOG.with_borrow_mut(|log| (std::mem::replace(&mut log.captured, outer), log.panic.take()));
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    (result, lines.unwrap_or_default())
}

/// A reason with the last captured lines behind it.
pub(crate) fn with_lines(reason: String, lines: &[String]) -> String {
    let from = lines.len().saturating_sub(KEPT_LINES);
    let mut text = reason;
    for line in &lines[from..] {
        text.push_str("\n  native log: ");
        text.push_str(line);
    }
    text
}

unsafe extern "C" fn on_line(level: sys::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: ggml hands a NUL-terminated string that lives through the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    // A subscriber of the application may panic; that must not unwind into C. On threads of native code's own, and outside of
    // a capture, there is nobody to hand it to.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| accept(level, &text))) {
        // a thread that ends may have dropped its log before a handle that it kept
        let _ = LOG.try_with(|log| {
            if let Ok(mut log) = log.try_borrow_mut()
                && log.captured.is_some()
            {
                log.panic.get_or_insert(panic);
            }
        });
    }
}

fn accept(level: u32, text: &str) {
    let mut done = Vec::new();
    // a thread that ends may have dropped its log before a handle that it kept
    let _ = LOG.try_with(|log| {
        let Ok(mut log) = log.try_borrow_mut() else { return };
        for piece in text.split_inclusive('\n') {
            if level != sys::GGML_LOG_LEVEL_CONT {
                log.level = level;
            }
            log.partial.push_str(piece);
            if log.partial.ends_with('\n') {
                let line = std::mem::take(&mut log.partial).trim_end().to_owned();
                if line.is_empty() {
                    continue;
                }
                let level = log.level;
                let serious = level == sys::GGML_LOG_LEVEL_WARN || level == sys::GGML_LOG_LEVEL_ERROR;
                if let Some(captured) = log.captured.as_mut().filter(|_| serious) {
                    captured.push(line.clone());
                }
                done.push((level, line));
            }
        }
    });
    for (level, line) in done {
        emit(level, &line);
    }
}

fn emit(level: u32, line: &str) {
    const TARGET: &str = "llama_cpp";
    if level == sys::GGML_LOG_LEVEL_ERROR {
        tracing::error!(target: TARGET, "{line}");
    } else if level == sys::GGML_LOG_LEVEL_WARN {
        tracing::warn!(target: TARGET, "{line}");
    } else if level == sys::GGML_LOG_LEVEL_INFO {
        // upstream's "info" is a page of text for every load
        tracing::debug!(target: TARGET, "{line}");
    } else {
        tracing::trace!(target: TARGET, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl tracing::Subscriber for Panics {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            panic!("a subscriber's own");
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    fn native_line() {
        // SAFETY: the text is NUL-terminated and lives through the call.
        unsafe { on_line(sys::GGML_LOG_LEVEL_WARN, c"odd weights\n".as_ptr(), std::ptr::null_mut()) };
    }

    #[test]
    fn a_subscribers_panic_waits_until_native_code_has_returned() {
        let mut returned = false;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            tracing::subscriber::with_default(Panics, || {
                capture(|| {
                    native_line();
                    returned = true;
                })
            })
        }));
        let message = caught.map(|_| ()).unwrap_err();
        assert_eq!(message.downcast_ref::<&str>(), Some(&"a subscriber's own"));
        assert!(returned);
        let ((), lines) = capture(native_line);
        assert_eq!(lines, ["odd weights"], "the next capture begins anew");
    }
}
