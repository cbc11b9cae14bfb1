//! Looking into the tower's graph while it is computed.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use llava_sys as sys;

/// Sees nodes of a projector's graph: set it as [`ProjectorParams::tap`](super::ProjectorParams::tap).
///
/// Names are libmtmd's: `layer_out-7` is what layer 7 gives, `pos_embed` what enters the first one. Called on the thread that
/// encodes. A graph that is looked into is computed in more steps; its numbers stay the same.
pub trait GraphTap: Send + Sync {
    /// Whether a node of this name is wanted.
    fn wants(&self, node: &str) -> bool;

    /// A wanted node: `values` holds `shape[0]` numbers a row, then rows; other nodes than contiguous F32 ones are never shown.
    fn see(&self, node: &str, shape: [usize; 4], values: &[f32]);
}

/// A tap on its way through C: native code holds its address as long as the projector lives.
pub(super) struct TapCall {
    tap: Arc<dyn GraphTap>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for TapCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TapCall")
    }
}

impl TapCall {
    pub(super) fn new(tap: Arc<dyn GraphTap>) -> Box<Self> {
        Box::new(Self { tap, panic: Mutex::new(None) })
    }

    /// Function and user data for the native parameter block; the data points at `self`, which must not move.
    pub(super) fn native(&self) -> (sys::ggml_backend_sched_eval_callback, *mut c_void) {
        (Some(on_node), std::ptr::from_ref(self).cast_mut().cast())
    }

    /// After a native call: resumes a panic of the tap's.
    pub(super) fn resume(&self) {
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    fn wants(&self, tensor: &sys::ggml_tensor) -> bool {
        // SAFETY: the tensor lives by reference.
        let contiguous = unsafe { sys::ggml_is_contiguous(tensor) };
        tensor.type_ == sys::GGML_TYPE_F32 && contiguous && self.tap.wants(&name(tensor))
    }

    fn show(&self, tensor: &sys::ggml_tensor) {
        let shape = tensor.ne.map(|n| usize::try_from(n).unwrap_or(0));
        let mut values = vec![0.0_f32; shape.iter().product()];
        // SAFETY: the tensor is F32 and contiguous, 4 bytes an element (both checked when it was asked for), and computed; the
        // room is its size.
        unsafe { sys::ggml_backend_tensor_get(tensor, values.as_mut_ptr().cast(), 0, values.len() * 4) };
        self.tap.see(&name(tensor), shape, &values);
    }
}

fn name(tensor: &sys::ggml_tensor) -> String {
    // SAFETY: the tensor lives by reference; the name is a part of it.
    let text = unsafe { sys::ggml_get_name(tensor) };
    // SAFETY: ggml keeps names NUL-terminated; it is copied while the tensor lives.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// ggml-backend.h: "when ask == true, the scheduler wants to know if the user wants to observe this node"; when false, it
/// passes the computed node, and a return value of false ends the computation.
unsafe extern "C" fn on_node(tensor: *mut sys::ggml_tensor, ask: bool, user_data: *mut c_void) -> bool {
    // SAFETY: `native` handed out a pointer to a TapCall that the projector keeps in its place until native code is gone;
    // it is only read.
    let call = unsafe { &*user_data.cast::<TapCall>() };
    // SAFETY: the scheduler hands a node of the graph, which lives and stays unchanged through the callback.
    let tensor = unsafe { &*tensor };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if ask {
            return call.wants(tensor);
        }
        call.show(tensor);
        true
    }));
    outcome.unwrap_or_else(|panic| {
        call.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        false
    })
}
