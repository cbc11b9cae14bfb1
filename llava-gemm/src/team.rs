//! The threads that compute one thing together, and what they share about it.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::kernel::Kernel;

/// Alignment of the work memory's parts.
pub(crate) const ALIGN: usize = 64;

/// The threads that compute one product together; each calls with its own index.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// Which thread this is, from 0.
    pub index: usize,
    /// How many there are.
    pub threads: usize,
    /// Returns once every thread of the team has called it.
    pub barrier: &'a dyn Fn(),
}

impl std::fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("index", &self.index).field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// First bytes of the work memory: what the threads of a team share.
#[repr(C, align(64))]
pub(crate) struct Head {
    /// The next piece of work that nobody has taken.
    pub(crate) next: AtomicUsize,
    kernel: AtomicU8,
}

impl Head {
    /// Asks `choose` on thread 0 and tells all threads of the team. `None` for all of them where no kernel was named, or one that
    /// is not available.
    ///
    /// # Safety
    /// `work` is aligned for a head and has room for one, is the same on every thread, and nobody but the team uses it while
    /// `'a` lasts.
    pub(crate) unsafe fn agree<'a>(
        choose: impl FnOnce() -> Option<Kernel>,
        team: Team<'_>,
        work: *mut u8,
    ) -> Option<(Kernel, &'a Self)> {
        if team.index == 0 {
            let kernel = choose().filter(|kernel| kernel.available()).map_or(0, |kernel| kernel as u8);
            let head = Self { next: AtomicUsize::new(0), kernel: AtomicU8::new(kernel) };
            // SAFETY: the caller's promise; the others wait at the barrier.
            unsafe { work.cast::<Self>().write(head) };
        }
        (team.barrier)();
        // SAFETY: thread 0 wrote it before the barrier, and it is only changed through atomics from now on.
        let head = unsafe { &*work.cast::<Self>() };
        let kernel = Kernel::from_number(head.kernel.load(Ordering::Relaxed));
        if kernel.is_none() {
            // whoever computes it instead may write to the work memory at once: not before all have read the answer
            (team.barrier)();
        }
        Some((kernel?, head))
    }
}
