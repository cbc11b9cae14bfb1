//! The native projector: vision tower and projection to the text model's input.

use std::ffi::c_char;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use llava_sys as sys;

use super::params::{ClipLayout, ProjectorParams};
use super::tap::TapCall;
use crate::embedding::has_raster_rows;
use crate::error::{Error, Result};
use crate::gguf::{Fingerprint, GgufFile, ProjectorFacts, check_pair, check_projector, needed_tokens};
use crate::llama::{FlashAttention, Model, ProgressCall, check, construct, path_to_c, physical_cores};

/// Owner of a `llava_projector`.
#[derive(Debug)]
pub(super) struct ProjectorOwner(NonNull<sys::llava_projector>);

impl ProjectorOwner {
    pub(super) fn as_ptr(&self) -> *const sys::llava_projector {
        self.0.as_ptr()
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut sys::llava_projector {
        self.0.as_ptr()
    }
}

impl Drop for ProjectorOwner {
    fn drop(&mut self) {
        // SAFETY: made by llava_projector_load, freed once; prepared pictures keep the Projector alive by Arc.
        unsafe { sys::llava_projector_free(self.0.as_ptr()) };
    }
}

// SAFETY: the native projector has no thread affinity.
unsafe impl Send for ProjectorOwner {}

/// Facts of a loaded projector, as native code sees them.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ProjectorInfo {
    /// `clip.projector_type`, for example `mlp` or `qwen2vl_merger`.
    pub projector_type: String,
    /// Whether it takes pictures.
    pub has_vision: bool,
    /// Whether it takes sound.
    pub has_audio: bool,
    /// Whether rows carry several positions (t, y, x).
    pub m_rope: bool,
    /// Whether a picture's rows attend to each other in both directions in the text model.
    pub non_causal: bool,
    /// Whether several pictures can be encoded in one pass.
    pub batches: bool,
    /// Whether the tower has a class token.
    pub has_class_token: bool,
    /// Whether the class token's place was corrected ([`ClipLayout::Reference`]).
    pub class_token_moved: bool,
    /// Whether the tower's depth was corrected ([`ClipLayout::Reference`]).
    pub depth_corrected: bool,
    /// Floats in an output row.
    pub width: usize,
    /// Floats in a row inside the tower.
    pub tower_width: usize,
    /// Layers stored.
    pub layers: usize,
    /// Layers that are run; `None` where the graph decides for itself.
    pub layers_run: Option<usize>,
    /// Attention heads of the tower.
    pub heads: usize,
    /// Width of the tower's feed-forward layers.
    pub feed_forward: usize,
    /// Side of a fixed-size input, or of the one the positions were trained with, in pixels.
    pub image_size_px: u32,
    /// Side of a patch in pixels.
    pub patch_size_px: u32,
    /// Patches merged per side.
    pub merge: u32,
    /// Most visual tokens of one picture; `None` where the size is fixed.
    pub image_max_tokens: Option<u32>,
    /// Smallest and largest picture in pixels after resizing; `None` where the size is fixed.
    pub pixels_range: Option<(u32, u32)>,
    /// Fused attention in force.
    pub flash_attention: FlashAttention,
}

/// A loaded projector, bound to the text model that its rows go into. It can be shared between sessions: encoding takes
/// turns, preparing does not.
#[derive(Debug)]
pub struct Projector {
    // before the model: native code looks into the model's vocabulary, and calls the tap
    owner: Mutex<ProjectorOwner>,
    pub(super) tap: Option<Box<TapCall>>,
    model: Arc<Model>,
    path: PathBuf,
    info: ProjectorInfo,
    params: ProjectorParams,
    pub(super) fingerprint: Fingerprint,
    /// What encodes, as keys name it.
    pub(super) device: OnceLock<String>,
}

impl Projector {
    /// Loads a projector (mmproj) file for `model`.
    ///
    /// The file's header is checked in Rust before native code sees it, and its output width against the model's input.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::NotGguf`], [`Error::UnsupportedGguf`], [`Error::DamagedGguf`] or [`Error::BadMetadata`] for what is
    /// wrong with the file; [`Error::Mismatch`] where it belongs to another text model; [`Error::ProjectorLoad`] with the native
    /// words where libmtmd refuses it; [`Error::BadParameter`]; [`Error::Cancelled`].
    pub fn load(path: impl AsRef<Path>, model: &Arc<Model>, params: &ProjectorParams) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let fingerprint = Fingerprint::new([path])?;
        let header = GgufFile::open(path)?;
        let facts = check_projector(&header)?;
        check_fit(&header, &facts, model)?;
        drop(header);
        let native_params = native_params(params)?;

        let c_path = path_to_c(path)?;
        let mut progress = ProgressCall::new(params.progress.clone());
        let mut native = native_params;
        (native.progress, native.progress_user_data) = progress.native();
        let tap = params.tap.clone().map(TapCall::new);
        if let Some(tap) = &tap {
            (native.eval, native.eval_user_data) = tap.native();
        }

        let owner = construct(
            "mtmd_init_from_file",
            ProjectorOwner,
            // SAFETY: path, model and parameters live through the call, the tap as long as the projector; `raw` is a valid
            // place for the result.
            |raw| unsafe { sys::llava_projector_load(c_path.as_ptr(), model.as_ptr(), &raw const native, raw) },
            |reason| Error::ProjectorLoad { path: path.to_owned(), reason },
        );
        if progress.finish() {
            return Err(Error::Cancelled);
        }
        if let Some(tap) = &tap {
            tap.resume();
        }
        let owner = owner?;
        let info = read_info(&owner)?;
        if info.class_token_moved || info.depth_corrected {
            tracing::info!(
                projector = %path.display(),
                class_token_moved = info.class_token_moved,
                layers_run = info.layers_run,
                "vision tower corrected to its authors' layout; --clip-layout upstream gives llama.cpp's numbers"
            );
        }
        if !info.has_vision {
            return Err(Error::NoVision { reason: format!("{} has no vision tower", path.display()) });
        }
        Ok(Arc::new(Self {
            owner: Mutex::new(owner),
            tap,
            model: Arc::clone(model),
            path: path.to_owned(),
            info,
            params: params.clone(),
            fingerprint,
            device: OnceLock::new(),
        }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ProjectorOwner> {
        // A panic while the lock was held has left nothing half-changed: what Rust runs inside native calls (logs, progress)
        // keeps its panics until they have returned.
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Facts of the loaded projector.
    #[must_use]
    pub fn info(&self) -> &ProjectorInfo {
        &self.info
    }

    /// What it was loaded with.
    #[must_use]
    pub fn params(&self) -> &ProjectorParams {
        &self.params
    }

    /// Whether a row stands for the place that the grid gives it: not for answers to learned queries, nor where upstream's layout leaves
    /// the class token in the place of the last patch and all others one off.
    pub(super) fn rows_have_places(&self) -> bool {
        let displaced = self.info.has_class_token && self.params.clip_layout == ClipLayout::Upstream;
        has_raster_rows(&self.info.projector_type) && !displaced
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text model its rows go into.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }
}

/// Checks what libmtmd finds out late or asserts on: the rows' width, and the marker tokens that some families need.
fn check_fit(projector: &GgufFile, facts: &ProjectorFacts, model: &Model) -> Result<()> {
    let width = facts.projection_width.map(|w| usize::try_from(w).unwrap_or(usize::MAX));
    if let Some(width) = width.filter(|&w| w != model.n_embd_input()) {
        return Err(Error::Mismatch {
            model_path: model.path().to_owned(),
            architecture: model.architecture().to_owned(),
            model_width: model.n_embd_input(),
            projector_path: projector.path().to_owned(),
            projector_type: facts.projector_type.clone(),
            projector_width: width,
        });
    }
    if !needed_tokens(&facts.projector_type).is_empty() {
        // the token list is read again rather than kept: it is megabytes for a look at a handful of names
        check_pair(&GgufFile::open(model.path())?, model.facts(), projector, facts)?;
    }
    Ok(())
}

fn native_params(params: &ProjectorParams) -> Result<sys::llava_projector_params> {
    let tokens = |name: &'static str, value: Option<u32>| match value {
        None => Ok(-1),
        Some(n) => i32::try_from(n).ok().filter(|n| (1..=1 << 20).contains(n)).ok_or(Error::BadParameter {
            name,
            value: n.to_string(),
            reason: "1 to 1048576".into(),
        }),
    };
    // SAFETY: a plain struct by value.
    let mut native = unsafe { sys::llava_projector_params_default() };
    native.use_gpu = !params.cpu_only;
    native.warmup = !params.no_warmup;
    let threads = params.threads.unwrap_or_else(physical_cores);
    native.n_threads = i32::try_from(threads).ok().filter(|t| (1..=512).contains(t)).ok_or(Error::BadParameter {
        name: "threads",
        value: threads.to_string(),
        reason: "1 to 512".into(),
    })?;
    native.flash_attn = params.flash_attention.to_native();
    native.image_min_tokens = tokens("image_min_tokens", params.image_min_tokens)?;
    native.image_max_tokens = tokens("image_max_tokens", params.image_max_tokens)?;
    if let (Some(min), Some(max)) = (params.image_min_tokens, params.image_max_tokens)
        && min > max
    {
        return Err(Error::BadParameter {
            name: "image_min_tokens",
            value: min.to_string(),
            reason: format!("at most image_max_tokens = {max}"),
        });
    }
    native.batch_max_tokens = tokens("batch_max_tokens", Some(params.batch_max_tokens))?;
    native.clip_layout = match params.clip_layout {
        ClipLayout::Reference => sys::LLAVA_CLIP_LAYOUT_REFERENCE as i32,
        ClipLayout::Upstream => sys::LLAVA_CLIP_LAYOUT_UPSTREAM as i32,
    };
    Ok(native)
}

fn read_info(owner: &ProjectorOwner) -> Result<ProjectorInfo> {
    let mut native = std::mem::MaybeUninit::<sys::llava_projector_info>::zeroed();
    // SAFETY: the projector lives; the place is valid.
    check("llava_projector_get_info", unsafe { sys::llava_projector_get_info(owner.as_ptr(), native.as_mut_ptr()) })?;
    // SAFETY: all-zero is a valid value of the plain struct, and the call filled it.
    let native = unsafe { native.assume_init() };
    let positive = |n: i32| usize::try_from(n).unwrap_or(0);
    let pixels = |n: i32| u32::try_from(n).ok().filter(|&n| n > 0);
    let type_bytes: Vec<u8> = native.type_.iter().take_while(|&&c| c != 0 as c_char).map(|&c| c as u8).collect();
    Ok(ProjectorInfo {
        projector_type: String::from_utf8_lossy(&type_bytes).into_owned(),
        has_vision: native.has_vision,
        has_audio: native.has_audio,
        m_rope: native.use_mrope,
        non_causal: native.use_non_causal,
        batches: native.support_batch,
        has_class_token: native.has_class_token,
        class_token_moved: native.class_token_moved,
        depth_corrected: native.depth_corrected,
        width: positive(native.n_embd_out),
        tower_width: positive(native.n_embd),
        layers: positive(native.n_layer),
        layers_run: usize::try_from(native.n_layer_run).ok(),
        heads: positive(native.n_head),
        feed_forward: positive(native.n_ff),
        image_size_px: u32::try_from(native.image_size).unwrap_or(0),
        patch_size_px: u32::try_from(native.patch_size).unwrap_or(0),
        merge: u32::try_from(native.n_merge).unwrap_or(1),
        image_max_tokens: pixels(native.image_max_tokens),
        pixels_range: pixels(native.image_min_pixels).zip(pixels(native.image_max_pixels)),
        flash_attention: FlashAttention::from_native(native.flash_attn),
    })
}
