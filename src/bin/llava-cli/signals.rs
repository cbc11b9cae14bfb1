//! Ctrl-C: the first one stops what is being done, the second one ends the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use llava::Error;
use llava::llama::CancelToken;

#[derive(Debug, Default)]
struct State {
    /// Nothing is being done: a person sits at the prompt.
    idle: AtomicBool,
    pressed: AtomicBool,
    token: Mutex<Option<CancelToken>>,
}

/// Whether and how the user wants to stop.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<State>);

impl Interrupt {
    /// Takes Ctrl-C over. Where the platform has no such signal the program ends as it always does.
    pub fn install() -> Result<Self> {
        let interrupt = Self(Arc::default());
        #[cfg(unix)]
        interrupt.listen()?;
        Ok(interrupt)
    }

    #[cfg(unix)]
    fn listen(&self) -> Result<()> {
        let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT])?;
        let state = Arc::clone(&self.0);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                if state.press() {
                    // without exit handlers: native threads may be in the middle of anything
                    signal_hook::low_level::exit(i32::from(crate::exit::INTERRUPTED));
                }
            }
        })?;
        Ok(())
    }

    /// Whether stopping was asked for since the last [`busy`](Self::busy).
    pub fn is_pressed(&self) -> bool {
        self.0.pressed.load(Ordering::SeqCst)
    }

    /// [`Error::Cancelled`] if stopping was asked for.
    pub fn check(&self) -> llava::Result<()> {
        if self.is_pressed() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// From now on Ctrl-C cancels this token.
    pub fn watch(&self, token: CancelToken) -> llava::Result<()> {
        *self.0.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        // pressed before the token was there
        self.check()
    }

    /// A new piece of work begins; what was asked for before is forgotten.
    pub fn busy(&self) {
        let token = self.0.token.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.pressed.store(false, Ordering::SeqCst);
        if let Some(token) = token.as_ref() {
            token.reset();
        }
        self.0.idle.store(false, Ordering::SeqCst);
    }

    /// Nothing is being done: Ctrl-C ends the program.
    pub fn idle(&self) {
        self.0.idle.store(true, Ordering::SeqCst);
    }
}

impl State {
    /// A Ctrl-C. Returns whether the program has to end at once.
    #[cfg(unix)]
    fn press(&self) -> bool {
        // the lock keeps `busy` from forgetting half of a press
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if self.idle.load(Ordering::SeqCst) || self.pressed.swap(true, Ordering::SeqCst) {
            return true;
        }
        if let Some(token) = token.as_ref() {
            token.cancel();
        }
        false
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_first_press_cancels_and_the_second_ends() {
        let interrupt = Interrupt(Arc::default());
        let token = CancelToken::new();
        assert!(interrupt.watch(token.clone()).is_ok());
        assert!(!interrupt.0.press());
        assert!(token.is_cancelled() && interrupt.check().is_err());
        assert!(interrupt.0.press());

        interrupt.busy();
        assert!(!token.is_cancelled() && interrupt.check().is_ok());
        assert!(!interrupt.0.press());
        interrupt.busy();
        interrupt.idle();
        assert!(interrupt.0.press(), "at the prompt the first press ends the program");
    }

    #[test]
    fn a_press_before_the_token_is_not_lost() {
        let interrupt = Interrupt(Arc::default());
        assert!(!interrupt.0.press());
        assert!(interrupt.watch(CancelToken::new()).is_err());
    }
}
