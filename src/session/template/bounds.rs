//! Bounds on what a template can cost. A template comes with a model file that somebody else made, and neither its
//! compiler nor its values mind how deep they nest: without bounds a few lines of Jinja end the process.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use minijinja::value::Object;
use minijinja::{Environment, Error as JinjaError, ErrorKind as JinjaErrorKind, State};

use crate::error::{Error, Result};

/// Instructions a rendering may run, and how many more for every message. Published templates take some hundreds, and at
/// most some hundreds more per message. One level of a nested value takes about eight, and [`STACK_BYTES`] must hold what
/// dropping or comparing it recurses.
const FUEL: u64 = 100_000;
const FUEL_PER_MESSAGE: u64 = 1_000;
const MAX_FUEL: u64 = 2_000_000;

/// Stack of the thread that compiles and runs templates; only what is touched is ever backed by memory.
const STACK_BYTES: usize = if cfg!(target_pointer_width = "64") { 512 << 20 } else { 128 << 20 };

/// Nested calls of macros.
const RECURSION: usize = 200;

/// Templates longer than this are refused unread; the largest known one has about 30 KB. The compiler recurses once for
/// every link of a chain of operators, filters or `elif` tags, which costs up to 1 KB of stack per byte of source in a
/// debug build.
const MAX_SOURCE_BYTES: usize = STACK_BYTES / 2048;

/// Longest run of digits in a source. Real templates hold dates at most.
const MAX_DIGITS: usize = 8;

/// What one rendering may write, as a floor; four times the conversation if that is more.
const MIN_OUTPUT_BYTES: usize = 16 << 20;

/// What all `{{ .. }}` of one rendering together may print, as a multiple of what it may write.
const PRINTED_PER_OUTPUT: usize = 4;

const BUDGET: &str = "llava.budget";

/// Bounds the next rendering of so many messages.
pub(super) fn apply(environment: &mut Environment<'_>, messages: usize) {
    let fuel = FUEL.saturating_add(FUEL_PER_MESSAGE.saturating_mul(messages as u64)).min(MAX_FUEL);
    environment.set_recursion_limit(RECURSION);
    environment.set_fuel(Some(fuel));
}

/// Runs `work` on a thread with a deep stack. A panic of the engine in there becomes an error.
pub(super) fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    let failed = |what: &str| Error::TemplateFailed { reason: format!("the template could not be run: {what}") };
    thread::scope(|scope| {
        let thread =
            thread::Builder::new().name("template".to_owned()).stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(|e| failed(&format!("no thread for it: {e}")))?;
        thread.join().map_err(|_| failed("the engine broke down"))
    })
}

/// Refuses sources that could nest deeper than the compiler's stack.
pub(super) fn check_source(source: &str) -> Result<()> {
    if source.len() > MAX_SOURCE_BYTES {
        let reason = format!("the template has {} bytes, the limit is {MAX_SOURCE_BYTES}", source.len());
        return Err(Error::TemplateFailed { reason });
    }
    // widths of `format` and `indent`, factors of lists and strings: the engine allocates for them before anything is counted
    let runs = source.split(|c: char| !c.is_ascii_digit());
    // templates that tell digits from letters hold this one
    let longest = runs.filter(|&run| run != "0123456789").map(str::len).max().unwrap_or(0);
    if longest > MAX_DIGITS {
        let reason = format!("a number of {longest} digits stands in the template, {MAX_DIGITS} are the most");
        return Err(Error::TemplateFailed { reason });
    }
    Ok(())
}

/// Bytes printed so far, inside `{% set %}` blocks and macros too, where the writer's cap does not reach.
#[derive(Debug, Default)]
struct Printed(AtomicUsize);

impl Object for Printed {}

/// Takes `bytes` from what a rendering may print.
pub(super) fn spend(state: &State<'_, '_>, bytes: usize) -> std::result::Result<(), JinjaError> {
    const LIMIT: usize = PRINTED_PER_OUTPUT * MIN_OUTPUT_BYTES;
    let printed = state.get_or_set_temp_object(BUDGET, Printed::default);
    let before = printed.0.fetch_add(bytes, Ordering::Relaxed);
    if before.saturating_add(bytes) <= LIMIT {
        return Ok(());
    }
    Err(JinjaError::new(JinjaErrorKind::InvalidOperation, format!("more than {LIMIT} bytes printed")))
}

/// A writer that refuses to grow without end.
pub(super) struct Capped {
    pub bytes: Vec<u8>,
    limit: usize,
}

impl Capped {
    /// For a rendering of so many bytes of conversation.
    pub fn new(input_bytes: usize) -> Self {
        Capped { bytes: Vec::new(), limit: MIN_OUTPUT_BYTES.max(input_bytes.saturating_mul(4)) }
    }
}

impl io::Write for Capped {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + buffer.len() > self.limit {
            return Err(io::Error::other(format!("more than {} bytes of output", self.limit)));
        }
        self.bytes.extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        assert!(matches!(on_deep_stack(|| panic!("on purpose")), Err::<(), _>(Error::TemplateFailed { .. })));
        assert!(matches!(on_deep_stack(|| 1), Ok(1)));
    }
}
