//! The kernels of `llava-gemm` in place of ggml's own on the CPU: which one is in use, and the functions that the hook calls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use llava_gemm::{Attention, Experts, Floats, Layout, Multiply, Selection, Team, WeightType};
use llava_sys as sys;

use super::ffi::check;
use crate::error::{Error, Result};

pub use llava_gemm::Kernel;

/// Raised when the arithmetic of the kernels changes.
const GENERATION: u64 = 2;

/// Fewer rows than this stay with ggml. Two threads, times ggml's speed, with AVX2 and AVX-512: Q8_0 0.85 and 1.6 at 8 rows, 1.1 and
/// 2.2 at 12; Q4_K_M 0.9 and 1.2 at 8, 0.9 and 1.3 at 16, 1.3 and 1.9 at 24; F16 pays from 16 on. One number for all kernels, or
/// else their results would differ.
const LEAST_ROWS: i64 = 16;
/// Likewise queries of attention.
const LEAST_QUERIES: i64 = 16;

/// The kernel in use as a number, 0 for none.
static IN_USE: AtomicU8 = AtomicU8::new(0);
/// Why ggml's own code is in charge, or that the hook is in place.
static HOOK: OnceLock<std::result::Result<(), String>> = OnceLock::new();

const TABLE: sys::llava_gemm_table = sys::llava_gemm_table {
    wants_product: Some(wants_product),
    product_work: Some(product_work),
    product: Some(product),
    wants_attention: Some(wants_attention),
    attention_work: Some(attention_work),
    attention: Some(attention),
};

/// The kernel that `LLAVA_GEMM` and the CPU ask for, whether or not the native library has been started.
///
/// # Errors
/// Why ggml's own code does all of it, in words.
pub fn planned() -> std::result::Result<Kernel, String> {
    if cfg!(feature = "dynamic-backends") {
        return Err("its CPU code is loaded at run time and has no hook".to_owned());
    }
    let asked = std::env::var("LLAVA_GEMM").ok();
    match Selection::parse(asked.as_deref()).and_then(Selection::kernel) {
        Ok(Some(kernel)) => Ok(kernel),
        Ok(None) if Kernel::best().is_some() => Err("LLAVA_GEMM=off".to_owned()),
        Ok(None) => Err("no kernels for this CPU".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Puts the hook in place and chooses the kernel. Called once, when the native library starts.
pub(super) fn install() {
    HOOK.get_or_init(|| {
        let kernel = planned().inspect_err(|reason| {
            // asked for in vain is worth a warning, switched off is not
            if reason.contains("LLAVA_GEMM=") && !reason.ends_with("=off") {
                tracing::warn!("{reason}; ggml's own kernels are used");
            }
        })?;
        let table = TABLE;
        // SAFETY: the table is copied; its functions live as long as the program and do not unwind.
        let status = unsafe { sys::llava_gemm_install(&raw const table) };
        check("llava_gemm_install", status).map_err(|error| error.to_string())?;
        IN_USE.store(kernel as u8, Ordering::Relaxed);
        Ok(())
    });
}

/// Which arithmetic is in use, 0 for ggml alone: part of every key under which its results are kept. Not which kernel: all give
/// the same bits.
pub(crate) fn class() -> u64 {
    kernel().map_or(0, |_| GENERATION)
}

/// The kernel in use; `None` where ggml's own code does all of it.
#[must_use]
pub fn kernel() -> Option<Kernel> {
    Kernel::from_number(IN_USE.load(Ordering::Relaxed))
}

/// Why ggml's own code does all of it; `None` where a kernel is in use or could be, and before the native library has started.
#[must_use]
pub fn why_not() -> Option<String> {
    HOOK.get().and_then(|hook| hook.as_ref().err().cloned())
}

/// Uses another kernel from now on, or with `None` ggml's own code: for comparisons in one process. Products that are being
/// computed end with the kernel that they began with. Embeddings and states of ggml's arithmetic and of the kernels' are kept
/// apart by the caches; the kernels among each other give the same bits.
///
/// # Errors
/// [`Error::BadParameter`] where the hook is not in place or this CPU does not have the instructions.
pub fn set_kernel(kernel: Option<Kernel>) -> Result<()> {
    let bad = |reason: String| Error::BadParameter {
        name: "kernel",
        value: kernel.map_or("none", Kernel::name).to_owned(),
        reason,
    };
    match HOOK.get() {
        None => return Err(bad("the native library has not been started".to_owned())),
        Some(Err(reason)) if kernel.is_some() => return Err(bad(reason.clone())),
        Some(_) => {}
    }
    if kernel.is_some_and(|kernel| !kernel.available()) {
        return Err(bad("this CPU does not have the instructions".to_owned()));
    }
    IN_USE.store(kernel.map_or(0, |kernel| kernel as u8), Ordering::Relaxed);
    Ok(())
}

/// What a native product asks for; `None` for a type or sizes that the kernels do not know.
fn multiply(product: &sys::llava_gemm_product) -> Option<Multiply> {
    let size = |value: i64| usize::try_from(value).ok();
    let multiply = Multiply {
        weight: WeightType::from_gguf(u32::try_from(product.type_).ok()?)?,
        layout: if product.woven { Layout::Woven8 } else { Layout::Rows },
        weights: product.weights.cast(),
        weight_stride: product.weight_stride,
        input: product.input,
        input_stride: product.input_stride,
        output: product.output,
        output_stride: product.output_stride,
        k: size(product.k)?,
        columns: size(product.columns)?,
        rows: size(product.rows)?,
        experts: match product.n_experts {
            0 => None,
            count => Some(Experts {
                count: usize::try_from(count).ok()?,
                weight_stride: product.expert_stride,
                slots: usize::try_from(product.n_slots).ok()?,
                ids: product.ids,
                ids_stride: product.ids_stride,
                input_stride: product.slot_input_stride,
                output_stride: product.slot_output_stride,
            }),
        },
    };
    multiply.fits().then_some(multiply)
}

/// Whether there are rows enough for it to pay.
fn pays(product: &sys::llava_gemm_product) -> bool {
    match i64::from(product.n_experts) {
        0 => product.rows >= LEAST_ROWS,
        // the time of both sides is so much for each expert and so much for each row: the mean decides
        experts => product.rows.saturating_mul(i64::from(product.n_slots)) >= LEAST_ROWS.saturating_mul(experts),
    }
}

/// Calls `job` with the team that the native struct describes.
///
/// # Safety
/// The barrier is ggml's, and its data lives through the call.
unsafe fn with_team(team: &sys::llava_gemm_team, job: impl FnOnce(Team<'_>) -> bool) -> bool {
    let (Ok(index), Ok(threads), Some(barrier)) =
        (usize::try_from(team.index), usize::try_from(team.threads), team.barrier)
    else {
        return false;
    };
    // SAFETY: the caller's promise.
    let wait = || unsafe { barrier(team.barrier_data) };
    job(Team { index, threads, barrier: &wait })
}

/// # Safety
/// `product` is null or points to a product.
unsafe extern "C" fn wants_product(product: *const sys::llava_gemm_product) -> bool {
    // SAFETY: the caller's promise. Addresses in it are not followed: they may not be known yet while a graph is planned.
    unsafe { product.as_ref() }.is_some_and(|product| pays(product) && multiply(product).is_some())
}

/// # Safety
/// As [`wants_product`].
unsafe extern "C" fn product_work(product: *const sys::llava_gemm_product, threads: i32) -> usize {
    // SAFETY: the caller's promise.
    let product = unsafe { product.as_ref() };
    let bytes = |threads: usize| product.and_then(multiply)?.work_bytes(threads);
    usize::try_from(threads).ok().and_then(bytes).unwrap_or(0)
}

/// # Safety
/// `product` is null or describes a node that ggml computes right now, `team` is null or this thread's place in it.
unsafe extern "C" fn product(product: *const sys::llava_gemm_product, team: *const sys::llava_gemm_team) -> bool {
    // SAFETY: the caller's promise.
    let product = unsafe { product.as_ref() };
    // SAFETY: as above.
    let team = unsafe { team.as_ref() };
    let (Some(multiply), Some(native)) = (product.and_then(multiply), team) else { return false };
    let run = |team: Team<'_>| {
        // SAFETY: ggml holds the tensors for the time of the node, orders it behind what it depends on, and gives all
        // threads the same work memory.
        unsafe { multiply.run(kernel, team, native.work.cast(), native.work_bytes) }
    };
    // SAFETY: ggml's barrier for the threads that compute this node.
    unsafe { with_team(native, run) }
}

/// What a native attention node asks for; `None` for sizes that the kernels do not know.
fn attend(attention: &sys::llava_gemm_attention) -> Option<Attention> {
    let size = |value: i64| usize::try_from(value).ok();
    let floats = |start: *const std::ffi::c_void| {
        if attention.half_kv { Floats::Half(start.cast()) } else { Floats::Single(start.cast()) }
    };
    let attend = Attention {
        scale: attention.scale,
        size: size(attention.size)?,
        queries: size(attention.queries)?,
        keys: size(attention.keys)?,
        heads: size(attention.heads)?,
        batch: size(attention.batch)?,
        q: attention.q,
        q_stride: attention.q_stride,
        k: floats(attention.k),
        k_stride: attention.k_stride,
        v: floats(attention.v),
        v_stride: attention.v_stride,
        output: attention.output,
        output_stride: attention.output_stride,
    };
    attend.fits().then_some(attend)
}

/// # Safety
/// `attention` is null or points to an attention node.
unsafe extern "C" fn wants_attention(attention: *const sys::llava_gemm_attention) -> bool {
    // SAFETY: the caller's promise. Addresses in it are not followed.
    unsafe { attention.as_ref() }.is_some_and(|node| node.queries >= LEAST_QUERIES && attend(node).is_some())
}

/// # Safety
/// As [`wants_attention`].
unsafe extern "C" fn attention_work(attention: *const sys::llava_gemm_attention, threads: i32) -> usize {
    // SAFETY: the caller's promise.
    let attention = unsafe { attention.as_ref() };
    let bytes = |threads: usize| attention.and_then(attend)?.work_bytes(threads);
    usize::try_from(threads).ok().and_then(bytes).unwrap_or(0)
}

/// # Safety
/// As [`product`].
unsafe extern "C" fn attention(attention: *const sys::llava_gemm_attention, team: *const sys::llava_gemm_team) -> bool {
    // SAFETY: the caller's promise.
    let attention = unsafe { attention.as_ref() };
    // SAFETY: as above.
    let team = unsafe { team.as_ref() };
    let (Some(attend), Some(native)) = (attention.and_then(attend), team) else { return false };
    let run = |team: Team<'_>| {
        // SAFETY: as in `product`.
        unsafe { attend.run(kernel, team, native.work.cast(), native.work_bytes) }
    };
    // SAFETY: ggml's barrier for the threads that compute this node.
    unsafe { with_team(native, run) }
}
