//! Every function of the shim, called with hostile arguments: a status comes back, and the process lives.

#![expect(clippy::multiple_unsafe_ops_per_block, reason = "a test of the raw floor, where every line is a native call")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "that the arguments break the contract is the point")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use llava_sys as sys;

const ARGUMENT: i32 = sys::LLAVA_STATUS_ARGUMENT as i32;
const EXCEPTION: i32 = sys::LLAVA_STATUS_EXCEPTION as i32;
const FAILED: i32 = sys::LLAVA_STATUS_FAILED as i32;

fn last_error() -> String {
    unsafe { CStr::from_ptr(sys::llava_last_error()) }.to_string_lossy().into_owned()
}

/// The status is ARGUMENT and the text says which check failed.
#[track_caller]
fn refused(status: i32) {
    assert_eq!(status, ARGUMENT, "{}", last_error());
    assert!(last_error().contains("argument check"), "{}", last_error());
}

#[test]
fn nothing_thrown_crosses_the_border() {
    assert_eq!(unsafe { sys::llava_test_throw(0) }, EXCEPTION);
    assert_eq!(last_error(), "thrown on purpose");
    assert_eq!(unsafe { sys::llava_test_throw(1) }, EXCEPTION);
    assert!(last_error().contains("no std::exception"));
    assert_eq!(unsafe { sys::llava_test_throw(2) }, EXCEPTION);
    assert_eq!(last_error(), "out of memory");
    assert_eq!(unsafe { sys::llava_test_throw(3) }, 0);
}

#[test]
fn errors_belong_to_their_thread() {
    assert_eq!(unsafe { sys::llava_test_throw(0) }, EXCEPTION);
    let other = std::thread::spawn(|| {
        let before = last_error();
        unsafe { sys::llava_test_throw(2) };
        (before, last_error())
    })
    .join()
    .unwrap();
    assert_eq!(other, (String::new(), "out of memory".to_owned()));
    assert_eq!(last_error(), "thrown on purpose");
}

#[test]
fn a_table_with_holes_is_refused() {
    let empty: sys::llava_gemm_table = unsafe { std::mem::zeroed() };
    unsafe {
        refused(sys::llava_gemm_install(null()));
        if !sys::CPU_BASELINE.starts_with("dynamic") {
            refused(sys::llava_gemm_install(&raw const empty));
        }
    }
}

#[test]
fn text_side_takes_no_null() {
    let model_params = unsafe { sys::llama_model_default_params() };
    let context_params = unsafe { sys::llama_context_default_params() };
    let mut model = null_mut();
    let mut context = null_mut();
    let mut sampler = null_mut();
    let mut batch = null_mut();
    let (mut n, mut size, mut flag) = (0_i32, 0_usize, false);
    let mut token = 0_i32;
    let mut byte = 0_u8;
    let text = c"text";
    unsafe {
        refused(sys::llava_model_load(null(), &raw const model_params, &raw mut model));
        refused(sys::llava_model_load(text.as_ptr(), null(), &raw mut model));
        refused(sys::llava_model_load(text.as_ptr(), &raw const model_params, null_mut()));
        refused(sys::llava_context_new(null_mut(), &raw const context_params, &raw mut context));
        refused(sys::llava_process(null_mut(), null_mut(), &raw mut n));
        refused(sys::llava_tokenize(null(), text.as_ptr(), 4, &raw mut token, 1, true, true, &raw mut n));
        refused(sys::llava_token_to_piece(null(), 0, (&raw mut byte).cast::<c_char>(), 1, true, &raw mut n));
        refused(sys::llava_grammar_new(null(), text.as_ptr(), text.as_ptr(), &raw mut sampler));
        refused(sys::llava_batch_new(null_mut(), &raw mut batch));
        refused(sys::llava_batch_fill(null_mut(), null(), 0));
        refused(sys::llava_sampler_chain_new(null(), &raw mut sampler));
        refused(sys::llava_sampler_reset(null_mut()));
        refused(sys::llava_memory_clear(null_mut()));
        refused(sys::llava_sampler_apply(null_mut(), null_mut()));
        refused(sys::llava_sampler_accept(null_mut(), 0));
        refused(sys::llava_memory_seq_rm(null_mut(), 0, 0, -1, &raw mut flag));
        refused(sys::llava_state_seq_size(null_mut(), 0, &raw mut size));
        refused(sys::llava_state_seq_get(null_mut(), 0, &raw mut byte, 1, &raw mut size));
        refused(sys::llava_state_seq_set(null_mut(), 0, &raw const byte, 1, &raw mut size));
        refused(sys::llava_context_set_threadpool(null_mut(), null_mut()));
    }
    assert!(model.is_null() && context.is_null() && sampler.is_null() && batch.is_null());
}

#[test]
fn a_chain_is_made_from_checked_numbers() {
    // SAFETY of zeroed: plain numbers and a pointer that may be null
    let mut params = unsafe { std::mem::MaybeUninit::<sys::llava_sampler_params>::zeroed().assume_init() };
    let mut chain = null_mut();
    refused(unsafe { sys::llava_sampler_chain_new(&raw const params, &raw mut chain) });
    params.n_vocab = 4;
    params.n_biases = 1;
    refused(unsafe { sys::llava_sampler_chain_new(&raw const params, &raw mut chain) });
    params.n_biases = 0;
    refused(unsafe { sys::llava_sampler_chain_new(&raw const params, null_mut()) });
    assert!(chain.is_null());
    params.penalty_repeat = 1.0;
    params.typ_p = 1.0;
    params.top_p = 1.0;
    assert_eq!(unsafe { sys::llava_sampler_chain_new(&raw const params, &raw mut chain) }, 0, "{}", last_error());
    let mut tokens =
        [0, 1, 2, 3].map(|id| sys::llama_token_data { id, logit: if id == 2 { 5.0 } else { 0.0 }, p: 0.0 });
    let mut array =
        sys::llama_token_data_array { data: tokens.as_mut_ptr(), size: tokens.len(), selected: -1, sorted: false };
    assert_eq!(unsafe { sys::llava_sampler_apply(chain, &raw mut array) }, 0);
    let chosen = usize::try_from(array.selected).unwrap();
    assert_eq!(unsafe { *array.data.add(chosen) }.id, 2, "temperature 0 takes the largest logit");
    assert_eq!(unsafe { sys::llava_sampler_reset(chain) }, 0);
    unsafe { sys::llama_sampler_free(chain) };
}

#[test]
fn a_sampler_is_given_candidates() {
    let greedy = unsafe { sys::llama_sampler_init_greedy() };
    let mut empty = sys::llama_token_data_array { data: null_mut(), size: 0, selected: -1, sorted: false };
    refused(unsafe { sys::llava_sampler_apply(greedy, &raw mut empty) });
    let mut one = sys::llama_token_data { id: 7, logit: 1.0, p: 0.0 };
    let mut none = sys::llama_token_data_array { data: &raw mut one, size: 0, selected: -1, sorted: false };
    refused(unsafe { sys::llava_sampler_apply(greedy, &raw mut none) });
    let mut array = sys::llama_token_data_array { data: &raw mut one, size: 1, selected: -1, sorted: false };
    assert_eq!(unsafe { sys::llava_sampler_apply(greedy, &raw mut array) }, 0);
    assert_eq!(array.selected, 0);
    refused(unsafe { sys::llava_sampler_accept(greedy, -1) });
    unsafe { sys::llama_sampler_free(greedy) };
}

#[test]
fn files_that_are_not_there_are_a_status() {
    let path = c"no/such/file.gguf";
    let model_params = unsafe { sys::llama_model_default_params() };
    let mut model = null_mut();
    assert_eq!(unsafe { sys::llava_model_load(path.as_ptr(), &raw const model_params, &raw mut model) }, FAILED);
    let params = unsafe { sys::llava_projector_params_default() };
    let mut projector = null_mut();
    let status = unsafe { sys::llava_projector_load(path.as_ptr(), null(), &raw const params, &raw mut projector) };
    assert_eq!(status, FAILED);
    assert!(model.is_null() && projector.is_null());
}

#[test]
fn projector_side_takes_no_null() {
    let params = unsafe { sys::llava_projector_params_default() };
    let mut projector = null_mut();
    let mut prepared = null_mut();
    let mut taken = 0_usize;
    let mut n = 0_i32;
    let mut float = 0.0_f32;
    let rgb = [0_u8; 3];
    let path = c"x.gguf";
    let reference = sys::llava_chunk_ref { prepared: null(), chunk: 0 };
    let mut info = std::mem::MaybeUninit::<sys::llava_projector_info>::zeroed();
    let mut chunk = std::mem::MaybeUninit::<sys::llava_chunk_info>::zeroed();
    let mut tile = std::mem::MaybeUninit::<sys::llava_tile_info>::zeroed();
    unsafe {
        refused(sys::llava_projector_load(null(), null(), &raw const params, &raw mut projector));
        refused(sys::llava_projector_load(path.as_ptr(), null(), null(), &raw mut projector));
        refused(sys::llava_projector_load(path.as_ptr(), null(), &raw const params, null_mut()));
        for threads in [0, -1, i32::MIN, 513, i32::MAX] {
            let bad = sys::llava_projector_params { n_threads: threads, ..params };
            refused(sys::llava_projector_load(path.as_ptr(), null(), &raw const bad, &raw mut projector));
        }
        let bad = sys::llava_projector_params { batch_max_tokens: 0, ..params };
        refused(sys::llava_projector_load(path.as_ptr(), null(), &raw const bad, &raw mut projector));
        refused(sys::llava_projector_get_info(null(), info.as_mut_ptr()));
        refused(sys::llava_projector_set_flash_attn(null_mut(), 0, &raw mut n));
        refused(sys::llava_prepare(null(), rgb.as_ptr(), 1, 1, 0, 0, &raw mut prepared));
        refused(sys::llava_prepared_chunk(null(), 0, chunk.as_mut_ptr()));
        refused(sys::llava_prepared_tile(null(), 0, 0, tile.as_mut_ptr()));
        refused(sys::llava_prepared_positions(null(), 0, 0, &raw mut n, 4));
        refused(sys::llava_encode(
            null_mut(),
            &raw const reference,
            1,
            &raw mut float,
            1,
            None,
            null_mut(),
            &raw mut taken,
        ));
        assert_eq!(sys::llava_prepared_n_chunks(null()), 0);
    }
    assert!(projector.is_null() && prepared.is_null());
}

#[test]
fn freeing_nothing_is_allowed() {
    unsafe {
        sys::llava_projector_free(null_mut());
        sys::llava_prepared_free(null_mut());
        sys::llava_threadpool_free(null_mut());
    }
}

#[test]
fn threadpools_have_a_size() {
    let mut pool = null_mut();
    for threads in [0, -1, i32::MIN, 513, i32::MAX] {
        refused(unsafe { sys::llava_threadpool_new(threads, &raw mut pool) });
    }
    refused(unsafe { sys::llava_threadpool_new(1, null_mut()) });
    assert!(pool.is_null());
    assert_eq!(unsafe { sys::llava_threadpool_n_threads(null()) }, 0);
    for threads in [1, 2, 3] {
        assert_eq!(unsafe { sys::llava_threadpool_new(threads, &raw mut pool) }, 0, "{}", last_error());
        assert_eq!(unsafe { sys::llava_threadpool_n_threads(pool) }, threads);
        unsafe { sys::llava_threadpool_free(pool) };
    }
}

unsafe extern "C" fn count_lines(_: sys::ggml_log_level, _: *const c_char, user_data: *mut c_void) {
    let counter = user_data.cast::<std::sync::atomic::AtomicUsize>();
    unsafe { &*counter }.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(feature = "parity")]
#[test]
fn oracles_take_no_null() {
    let (mut rgb, mut nx, mut ny, mut n_past) = (null_mut(), 0, 0, 0);
    let mut float = 0.0_f32;
    unsafe {
        refused(sys::llava_parity_decode(null(), 0, &raw mut rgb, &raw mut nx, &raw mut ny));
        refused(sys::llava_parity_encode(null_mut(), null(), 0, &raw mut float, 1));
        refused(sys::llava_parity_eval(
            null_mut(),
            null_mut(),
            null(),
            null(),
            null(),
            null(),
            0,
            true,
            1,
            &raw mut n_past,
        ));
        sys::llava_parity_free(null_mut());
    }
}

/// The callback is one for the whole process, so this test sets it for good; the others do not depend on it.
#[test]
fn logs_reach_the_callback() {
    static LINES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    unsafe { sys::llava_log_set(Some(count_lines), (&raw const LINES).cast_mut().cast()) };
    let before = LINES.load(std::sync::atomic::Ordering::Relaxed);
    let model_params = unsafe { sys::llama_model_default_params() };
    let mut model = null_mut();
    unsafe { sys::llava_model_load(c"no/such/file.gguf".as_ptr(), &raw const model_params, &raw mut model) };
    assert!(LINES.load(std::sync::atomic::Ordering::Relaxed) > before);
}
