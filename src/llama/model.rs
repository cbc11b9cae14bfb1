//! A loaded text model.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use llava_sys as sys;

use super::backend::Backend;
use super::ffi::{construct, owned_str};
use super::params::{LoadMode, ModelParams, ProgressCall};
use super::vocab::Vocab;
use crate::error::{Error, Result};
use crate::gguf::{Fingerprint, GgufFile, TextFacts, check_text_model};

/// How the model rotates positions into queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RopeKind {
    /// No rotation.
    None,
    /// One position per token.
    Plain,
    /// Several positions per token (t, y, x); pictures advance by the larger side of their grid.
    MRope,
}

/// Owner of a `llama_model`.
#[derive(Debug)]
struct ModelOwner(NonNull<sys::llama_model>);

impl Drop for ModelOwner {
    fn drop(&mut self) {
        // SAFETY: made by llava_model_load, freed once; contexts and projectors keep the Model alive by Arc.
        unsafe { sys::llama_model_free(self.0.as_ptr()) };
    }
}

// SAFETY: llama.cpp reads a loaded model from any thread; nothing here changes it after loading.
unsafe impl Send for ModelOwner {}
// SAFETY: as above: every call through a shared reference only reads.
unsafe impl Sync for ModelOwner {}

/// A loaded text model. Contexts and projectors made from it keep it alive.
#[derive(Debug)]
pub struct Model {
    owner: ModelOwner,
    backend: Arc<Backend>,
    path: PathBuf,
    facts: TextFacts,
    fingerprint: Fingerprint,
    gpu_layers: Option<u32>,
}

impl Model {
    /// Loads a GGUF text model (the first file of a split one).
    ///
    /// The file's header is checked in Rust before native code sees it.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotGguf`], [`Error::UnsupportedGguf`], [`Error::DamagedGguf`] or [`Error::BadMetadata`] for what
    /// is wrong with the file, [`Error::ModelLoad`] with the native words where llama.cpp refuses it,
    /// [`Error::Cancelled`] when the progress callback said so, [`Error::CpuTooOld`].
    pub fn load(path: impl AsRef<Path>, params: &ModelParams) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let backend = Backend::start()?;
        let header = GgufFile::open_split(path)?;
        let fingerprint = Fingerprint::new(header.paths())?;
        let facts = check_text_model(&header)?;
        drop(header);

        let c_path = path_to_c(path)?;
        let mut progress = ProgressCall::new(params.progress.clone());
        // SAFETY: a plain struct by value.
        let mut native = unsafe { sys::llama_model_default_params() };
        native.n_gpu_layers = params.gpu_layers.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
        native.load_mode = match params.load_mode {
            LoadMode::Mmap => sys::LLAMA_LOAD_MODE_AUTO,
            LoadMode::Read => sys::LLAMA_LOAD_MODE_NONE,
            LoadMode::MmapLocked => sys::LLAMA_LOAD_MODE_MMAP_MLOCK,
        };
        native.check_tensors = params.check_tensors;
        (native.progress_callback, native.progress_callback_user_data) = progress.native();

        let owner = construct(
            "llama_model_load_from_file",
            ModelOwner,
            // SAFETY: path and parameters live through the call; `raw` is a valid place for the result.
            |raw| unsafe { sys::llava_model_load(c_path.as_ptr(), &raw const native, raw) },
            |reason| Error::ModelLoad { path: path.to_owned(), reason },
        );
        if progress.finish() {
            return Err(Error::Cancelled);
        }
        let gpu_layers = params.gpu_layers;
        Ok(Arc::new(Self { owner: owner?, backend, path: path.to_owned(), facts, fingerprint, gpu_layers }))
    }

    pub(crate) fn as_ptr(&self) -> *const sys::llama_model {
        self.owner.0.as_ptr()
    }

    /// For native calls that take a model they only read as a mutable pointer.
    pub(crate) fn as_shared_mut_ptr(&self) -> *mut sys::llama_model {
        self.owner.0.as_ptr()
    }

    /// Tells this model from others: [`crate::gguf::content_hash`] of its file, or of all files of a split one. The first call
    /// reads them.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::State`] where a file has changed since it was loaded.
    pub fn fingerprint(&self) -> Result<u128> {
        self.fingerprint.get()
    }

    /// Has [`Model::fingerprint`] computed on a thread of its own. `notes`: a folder that nobody else can write, where it is kept for
    /// the next process.
    pub fn fingerprint_ahead(&self, notes: Option<PathBuf>) {
        self.fingerprint.ahead(notes);
    }

    /// Layers that were asked to be on a GPU; `None` is all that fit.
    pub(super) fn gpu_layers(&self) -> Option<u32> {
        self.gpu_layers
    }

    /// What the checked header says.
    #[must_use]
    pub fn facts(&self) -> &TextFacts {
        &self.facts
    }

    /// The vocabulary.
    #[must_use]
    pub fn vocab(&self) -> Vocab<'_> {
        Vocab::of(self)
    }

    /// The native library this model lives in.
    #[must_use]
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }

    /// The file it was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `general.architecture` of the file, for example `qwen2vl`.
    #[must_use]
    pub fn architecture(&self) -> &str {
        &self.facts.architecture
    }

    /// One line about architecture, size and quantisation.
    #[must_use]
    pub fn description(&self) -> String {
        self.read_text(256, |buf, len| {
            // SAFETY: the model lives; `buf` has room for `len` bytes.
            unsafe { sys::llama_model_desc(self.as_ptr(), buf, len) }
        })
        .unwrap_or_default()
    }

    /// Value of a scalar metadata key as text; `None` where the key is missing or holds an array.
    #[must_use]
    pub fn metadata(&self, key: &str) -> Option<String> {
        let key = CString::new(key).ok()?;
        self.read_text(4096, |buf, len| {
            // SAFETY: the model and the key live; `buf` has room for `len` bytes.
            unsafe { sys::llama_model_meta_val_str(self.as_ptr(), key.as_ptr(), buf, len) }
        })
    }

    /// The Jinja chat template stored in the file.
    #[must_use]
    pub fn chat_template(&self) -> Option<String> {
        // SAFETY: the model lives; a null name asks for the default template; the string lives as long as the model.
        let text = unsafe { sys::llama_model_chat_template(self.as_ptr(), std::ptr::null()) };
        // SAFETY: null or NUL-terminated.
        unsafe { owned_str(text) }
    }

    /// Width of one input row: what an embedding handed to the decoder must have. At least [`Model::n_embd`].
    #[must_use]
    pub fn n_embd_input(&self) -> usize {
        // SAFETY: the model lives.
        count(unsafe { sys::llama_model_n_embd_inp(self.as_ptr()) })
    }

    /// Width of the hidden state.
    #[must_use]
    pub fn n_embd(&self) -> usize {
        // SAFETY: the model lives.
        count(unsafe { sys::llama_model_n_embd(self.as_ptr()) })
    }

    /// Layers.
    #[must_use]
    pub fn n_layer(&self) -> usize {
        // SAFETY: the model lives.
        count(unsafe { sys::llama_model_n_layer(self.as_ptr()) })
    }

    /// Context length it was trained with.
    #[must_use]
    pub fn n_ctx_train(&self) -> u32 {
        // SAFETY: the model lives.
        u32::try_from(unsafe { sys::llama_model_n_ctx_train(self.as_ptr()) }).unwrap_or(0)
    }

    /// Sliding attention window in positions, 0 for none.
    #[must_use]
    pub fn n_swa(&self) -> usize {
        // SAFETY: the model lives.
        count(unsafe { sys::llama_model_n_swa(self.as_ptr()) })
    }

    /// Size of all tensors in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        // SAFETY: the model lives.
        unsafe { sys::llama_model_size(self.as_ptr()) }
    }

    /// Number of weights.
    #[must_use]
    pub fn n_params(&self) -> u64 {
        // SAFETY: the model lives.
        unsafe { sys::llama_model_n_params(self.as_ptr()) }
    }

    /// How positions are rotated in.
    #[must_use]
    pub fn rope(&self) -> RopeKind {
        // SAFETY: the model lives.
        match unsafe { sys::llama_model_rope_type(self.as_ptr()) } {
            r if r == sys::LLAMA_ROPE_TYPE_NONE => RopeKind::None,
            r if r == sys::LLAMA_ROPE_TYPE_MROPE || r == sys::LLAMA_ROPE_TYPE_IMROPE => RopeKind::MRope,
            _ => RopeKind::Plain,
        }
    }

    /// Whether its memory is a running state (Mamba, RWKV, hybrids), which cannot be cut at an arbitrary position.
    #[must_use]
    pub fn is_recurrent(&self) -> bool {
        // SAFETY: the model lives.
        let recurrent = unsafe { sys::llama_model_is_recurrent(self.as_ptr()) };
        // SAFETY: the model lives.
        recurrent || unsafe { sys::llama_model_is_hybrid(self.as_ptr()) }
    }

    /// Whether it can generate text token by token; encoders and embedding models cannot.
    #[must_use]
    pub fn is_decoder(&self) -> bool {
        // SAFETY: the model lives.
        let decoder = unsafe { sys::llama_model_has_decoder(self.as_ptr()) };
        // SAFETY: the model lives.
        let encoder = unsafe { sys::llama_model_has_encoder(self.as_ptr()) };
        decoder && !encoder
    }

    /// Calls a `snprintf`-like native function, growing the buffer once if it was too small.
    fn read_text(&self, room: usize, call: impl Fn(*mut std::ffi::c_char, usize) -> i32) -> Option<String> {
        let mut buf = vec![0_u8; room];
        let len = usize::try_from(call(buf.as_mut_ptr().cast(), buf.len())).ok()?;
        if len >= buf.len() {
            buf = vec![0_u8; len + 1];
            call(buf.as_mut_ptr().cast(), buf.len());
        }
        buf.truncate(len);
        Some(String::from_utf8_lossy(&buf).into_owned())
    }
}

fn count(native: i32) -> usize {
    usize::try_from(native).unwrap_or(0)
}

/// A path as native code takes it.
pub(crate) fn path_to_c(path: &Path) -> Result<CString> {
    let bad =
        |reason: &str| Error::BadParameter { name: "path", value: path.display().to_string(), reason: reason.into() };
    #[cfg(unix)]
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec();
    #[cfg(not(unix))]
    let bytes = path.to_str().ok_or_else(|| bad("the path has to be valid Unicode"))?.as_bytes().to_vec();
    CString::new(bytes).map_err(|_| bad("the path holds a NUL byte"))
}
