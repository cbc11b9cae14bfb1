//! The memory of a context: what its sequences hold, cut and moved.

use llava_sys as sys;

use super::context::Context;
use super::ffi::check;
use super::model::RopeKind;
use super::params::KvType;
use crate::error::{Error, Result};

impl Context {
    /// Removes everything at `from` and behind it from a sequence.
    ///
    /// # Errors
    /// [`Error::State`] where the memory cannot be cut there (recurrent models): it is unchanged then. [`Error::Native`] for a
    /// sequence that does not exist.
    pub fn trim(&mut self, sequence: i32, from: i32) -> Result<()> {
        let mut removed = false;
        // SAFETY: the context lives; the shim checks the sequence.
        let status = unsafe { sys::llava_memory_seq_rm(self.as_mut_ptr(), sequence, from, -1, &raw mut removed) };
        check("llama_memory_seq_rm", status)?;
        self.last_outputs = 0;
        if removed {
            return Ok(());
        }
        Err(Error::State { reason: format!("this model's memory cannot be cut at position {from}") })
    }

    /// Whether positions in this memory can be moved: not under M-RoPE, not in recurrent models, and only keys of F16 or F32. The graph
    /// that turns others reads what is not there (quantised keys) or has no code for them (BF16): either ends the process.
    #[must_use]
    pub fn can_shift(&self) -> bool {
        let plain = matches!(self.params().type_k, KvType::F16 | KvType::F32);
        if !plain || self.model().is_recurrent() || self.model().rope() == RopeKind::MRope {
            return false;
        }
        // SAFETY: the memory belongs to the context.
        self.memory().is_some_and(|memory| unsafe { sys::llama_memory_can_shift(memory) })
    }

    /// The native memory; `None` where the model has none.
    fn memory(&self) -> Option<sys::llama_memory_t> {
        // SAFETY: the context lives; the getter does not change it.
        let memory = unsafe { sys::llama_get_memory(self.as_ptr()) };
        (!memory.is_null()).then_some(memory)
    }

    /// Moves the positions `from` up to `to` of a sequence by `by`. Keys are turned when the next batch is decoded: until then the
    /// sequence cannot be saved.
    ///
    /// # Errors
    /// [`Error::State`] where positions cannot be moved ([`Context::can_shift`]); [`Error::BadParameter`] for a sequence that does
    /// not exist, or positions that are none.
    pub fn shift(&mut self, sequence: i32, from: i32, to: i32, by: i32) -> Result<()> {
        let Some(memory) = self.memory().filter(|_| self.can_shift()) else {
            return Err(Error::State { reason: "positions in this model's memory cannot be moved".into() });
        };
        let known = u32::try_from(sequence).is_ok_and(|s| s < self.n_seq_max);
        let ends = from.checked_add(by).zip(to.checked_add(by));
        if !known || from < 0 || to < from || ends.is_none_or(|(from, _)| from < 0) {
            return Err(Error::BadParameter {
                name: "shift",
                value: format!("{from}..{to} by {by} in sequence {sequence}"),
                reason: "a range of positions of an existing sequence, before and after".into(),
            });
        }
        // SAFETY: llama.h: adds to the positions in [from, to); the context is borrowed mutably, sequence and memory were checked, and
        // seq_add's assertion on one position a token holds where the memory can shift.
        unsafe { sys::llama_memory_seq_add(memory, sequence, from, to, by) };
        // outputs are computed and do not change
        self.unturned = true;
        Ok(())
    }

    /// Whether positions were moved and keys are yet to be turned, which the next batch does. Until then nothing can be saved.
    #[must_use]
    pub fn shift_pending(&self) -> bool {
        self.unturned
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// [`Error::Native`] where native code ran out of memory on the way.
    pub fn clear(&mut self) -> Result<()> {
        self.last_outputs = 0;
        self.unturned = false;
        // SAFETY: the context lives and is borrowed mutably.
        check("llama_memory_clear", unsafe { sys::llava_memory_clear(self.as_mut_ptr()) })
    }

    /// Smallest and largest position that a sequence holds; `None` where it is empty.
    #[must_use]
    pub fn positions(&self, sequence: i32) -> Option<(i32, i32)> {
        if u32::try_from(sequence).map_or(true, |s| s >= self.n_seq_max) {
            return None;
        }
        let memory = self.memory()?;
        // SAFETY: the memory belongs to the context; the sequence is in range.
        let min = unsafe { sys::llama_memory_seq_pos_min(memory, sequence) };
        // SAFETY: as above.
        let max = unsafe { sys::llama_memory_seq_pos_max(memory, sequence) };
        (min >= 0 && max >= 0).then_some((min, max))
    }
}
