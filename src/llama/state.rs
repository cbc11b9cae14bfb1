//! Saving and restoring what a sequence holds in the KV cache.
//!
//! The native reader trusts its input, so a saved state carries what it belongs to and a checksum, and is refused in Rust
//! before native code sees a byte that has changed.

use llava_sys as sys;
use xxhash_rust::xxh3::xxh3_128;

use super::context::Context;
use super::ffi::check;
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"LLAVAKV\0";
const VERSION: u32 = 1;
/// magic, version, fingerprint of model and context, checksum of the body, length of the body
const HEADER: usize = 8 + 4 + 16 + 16 + 8;

/// What one sequence held, as bytes that can be stored. Only the context it came from, or one made alike, takes it back.
#[derive(Clone, PartialEq, Eq)]
pub struct SequenceState(Vec<u8>);

impl std::fmt::Debug for SequenceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SequenceState").field(&format_args!("{} bytes", self.0.len())).finish()
    }
}

impl SequenceState {
    /// The bytes to store.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes to store, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Reads back stored bytes.
    ///
    /// The checksum finds damage, not malice: native code trusts the layout of what it reads, so take states only from where
    /// nobody else can write.
    ///
    /// # Errors
    /// [`Error::State`] where they are not what [`SequenceState::as_bytes`] gave: other magic or version, cut short, changed.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let refuse = |reason: &str| Err(Error::State { reason: reason.into() });
        if bytes.len() < HEADER || &bytes[..8] != MAGIC {
            return refuse("not a saved state");
        }
        if bytes[8..12] != VERSION.to_le_bytes() {
            return refuse("saved by another version");
        }
        let body = &bytes[HEADER..];
        if bytes[44..52] != (body.len() as u64).to_le_bytes() {
            return refuse("cut short");
        }
        if bytes[28..44] != xxh3_128(body).to_le_bytes() {
            return refuse("the checksum does not match");
        }
        Ok(Self(bytes))
    }

    /// What [`SequenceState::into_bytes`] gave in this process: no checksum over what may be hundreds of megabytes.
    pub(crate) fn unchecked(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    fn fingerprint(&self) -> &[u8] {
        &self.0[12..28]
    }

    fn body(&self) -> &[u8] {
        &self.0[HEADER..]
    }
}

impl Context {
    /// Everything that decides what the bytes of a state mean: weights, layout, arithmetic.
    ///
    /// # Errors
    /// Those of [`Model::fingerprint`](super::Model::fingerprint).
    pub(crate) fn state_fingerprint(&self) -> Result<u128> {
        let model = self.model();
        let params = self.params();
        let devices = model.backend().devices();
        // LongRoPE models turn positions otherwise in a context that is longer than what they began with
        let long = model.facts().rope_switch.is_some_and(|most| self.n_ctx() / params.n_seq_max.max(1) > most);
        let text = format!(
            "{:032x}|{}|gemm {}|{:?}|{:?}|{long}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{:?}",
            model.fingerprint()?,
            sys::CPU_BASELINE,
            super::gemm::class(),
            devices.iter().map(|d| (d.name.as_str(), d.description.as_str())).collect::<Vec<_>>(),
            // where the layers run
            model.gpu_layers().filter(|_| devices.iter().any(|d| !d.is_cpu)),
            model.backend().version(),
            model.architecture(),
            model.description(),
            model.size_bytes(),
            model.n_params(),
            model.n_layer(),
            model.n_embd(),
            params.type_k.name(),
            params.type_v.name(),
            params.n_seq_max,
            params.flash_attention,
        );
        Ok(xxh3_128(text.as_bytes()))
    }

    /// Copies what a sequence holds.
    ///
    /// # Errors
    /// [`Error::Native`] where the sequence does not exist or native code fails; [`Error::Io`] where the model's file is gone;
    /// [`Error::State`] after [`Context::shift`], as long as no batch was decoded.
    pub fn save_sequence(&mut self, sequence: i32) -> Result<SequenceState> {
        if self.unturned {
            return Err(Error::State { reason: "positions were moved and nothing was decoded since".into() });
        }
        let mut size = 0_usize;
        // SAFETY: the context lives and is borrowed mutably; the shim checks the sequence.
        let status = unsafe { sys::llava_state_seq_size(self.as_mut_ptr(), sequence, &raw mut size) };
        check("llama_state_seq_get_size", status)?;
        let mut bytes = vec![0_u8; HEADER + size];
        let mut written = 0_usize;
        let body = &mut bytes[HEADER..];
        // SAFETY: as above; the body has room for `size` bytes.
        let status = unsafe {
            sys::llava_state_seq_get(self.as_mut_ptr(), sequence, body.as_mut_ptr(), body.len(), &raw mut written)
        };
        check("llama_state_seq_get_data", status)?;
        bytes.truncate(HEADER + written);
        let checksum = xxh3_128(&bytes[HEADER..]).to_le_bytes();
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.state_fingerprint()?.to_le_bytes());
        bytes[28..44].copy_from_slice(&checksum);
        bytes[44..52].copy_from_slice(&(written as u64).to_le_bytes());
        Ok(SequenceState(bytes))
    }

    /// Puts a saved state in place of what a sequence holds.
    ///
    /// # Errors
    /// [`Error::State`] where it belongs to another model or to a context made otherwise, or does not fit: the sequence is then
    /// unchanged in the first two cases and empty in the last. [`Error::Io`] where the model's file is gone.
    pub fn restore_sequence(&mut self, sequence: i32, state: &SequenceState) -> Result<()> {
        if state.fingerprint() != self.state_fingerprint()?.to_le_bytes() {
            return Err(Error::State { reason: "it belongs to another model, or to a context made otherwise".into() });
        }
        let body = state.body();
        let mut read = 0_usize;
        // SAFETY: the context lives and is borrowed mutably; the bytes are undamaged (checksum), and the
        // reader checks its sizes; a state forged by hand is outside of what `from_bytes` promises.
        let status =
            unsafe { sys::llava_state_seq_set(self.as_mut_ptr(), sequence, body.as_ptr(), body.len(), &raw mut read) };
        if let Err(e) = check("llama_state_seq_set_data", status) {
            // a sequence that does not exist has nothing to empty
            let _ = self.trim(sequence, 0);
            return Err(Error::State { reason: format!("it does not fit into this context: {e}") });
        }
        Ok(())
    }
}
