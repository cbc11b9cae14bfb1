//! Upstream's own ways, as oracles for tests and as the other side of benchmarks: its picture decoder, its encoder call, its
//! decoding helper.
//!
//! Compiled only under the feature `parity`, never in a release: upstream's helper embeds two libraries whose symbols clash
//! with other copies of them.

use std::ffi::CString;

use llava_sys as sys;

use super::prepared::{Chunk, Prepared};
use super::projector::Projector;
use crate::error::{Error, Result};
use crate::image::RgbImage;
use crate::llama::{Context, check, slice_or_empty};

/// Decodes a picture with upstream's decoder: width, height, RGB bytes.
///
/// # Errors
/// [`Error::Native`] where upstream cannot decode it.
pub fn decode_picture(bytes: &[u8]) -> Result<(u32, u32, Vec<u8>)> {
    let (mut rgb, mut nx, mut ny) = (std::ptr::null_mut(), 0_u32, 0_u32);
    // SAFETY: the bytes are valid for their length; the three places are valid.
    let status =
        unsafe { sys::llava_parity_decode(bytes.as_ptr(), bytes.len(), &raw mut rgb, &raw mut nx, &raw mut ny) };
    check("mtmd_helper_bitmap_init_from_buf", status)?;
    // SAFETY: llava_shim.h: nx * ny RGB pixels, ours until freed.
    let pixels = unsafe { slice_or_empty(rgb, nx as usize * ny as usize * 3) }.to_vec();
    // SAFETY: handed out by llava_parity_decode, freed once.
    unsafe { sys::llava_parity_free(rgb.cast()) };
    Ok((nx, ny, pixels))
}

/// Rows of one image chunk by `mtmd_encode_chunk`.
///
/// # Errors
/// [`Error::BadParameter`] where `chunk` is no image chunk, [`Error::Native`] where upstream fails.
pub fn encode_chunk(projector: &Projector, prepared: &Prepared, chunk: usize) -> Result<Vec<f32>> {
    let Some(Chunk::Image(image)) = prepared.chunks().get(chunk) else {
        return Err(Error::BadParameter { name: "chunk", value: chunk.to_string(), reason: "no image chunk".into() });
    };
    let mut rows = vec![0.0_f32; image.tokens.get() * projector.info().width];
    let mut owner = projector.lock();
    // SAFETY: projector and chunks live; the room is what the chunk gives, and the shim checks it.
    let status = unsafe {
        sys::llava_parity_encode(owner.as_mut_ptr(), prepared.as_ptr(), chunk, rows.as_mut_ptr(), rows.len())
    };
    check("mtmd_encode_chunk", status)?;
    Ok(rows)
}

/// Tokenizes, encodes and decodes `texts[0] images[0] texts[1] ...` with upstream's `mtmd_helper_eval_chunks`, from an empty
/// sequence 0, and returns the next position. The logits are those of the context afterwards.
///
/// # Errors
/// [`Error::Native`] where upstream fails, [`Error::BadParameter`] where there is not one text more than images.
pub fn eval_prompt(
    projector: &Projector,
    context: &mut Context,
    texts: &[&str],
    images: &[&RgbImage],
    add_special: bool,
) -> Result<i32> {
    context.clear()?;
    eval_into(projector, context, texts, images, add_special)
}

/// As [`eval_prompt`], into a context that the caller has emptied: emptying overwrites the whole KV cache, which does not belong
/// into a measured time.
///
/// # Errors
/// As [`eval_prompt`].
pub fn eval_into(
    projector: &Projector,
    context: &mut Context,
    texts: &[&str],
    images: &[&RgbImage],
    add_special: bool,
) -> Result<i32> {
    let bad =
        |reason: &str| Error::BadParameter { name: "texts", value: texts.len().to_string(), reason: reason.into() };
    if texts.len() != images.len() + 1 {
        return Err(bad("one more than images"));
    }
    let texts: Vec<CString> = texts
        .iter()
        .map(|t| CString::new(*t))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| bad("no NUL bytes"))?;
    let text_ptrs: Vec<_> = texts.iter().map(|t| t.as_ptr()).collect();
    let rgbs: Vec<_> = images.iter().map(|i| i.pixels().as_ptr()).collect();
    let nx: Vec<u32> = images.iter().map(|i| i.width_px()).collect();
    let ny: Vec<u32> = images.iter().map(|i| i.height_px()).collect();
    let n_batch = i32::try_from(context.n_batch()).unwrap_or(i32::MAX);
    let mut n_past = 0_i32;
    let mut owner = projector.lock();
    // SAFETY: projector and context live and are borrowed; every array is as long as the counts say and outlives the call.
    let status = unsafe {
        sys::llava_parity_eval(
            owner.as_mut_ptr(),
            context.as_parity_ptr(),
            text_ptrs.as_ptr(),
            rgbs.as_ptr(),
            nx.as_ptr(),
            ny.as_ptr(),
            images.len(),
            add_special,
            n_batch,
            &raw mut n_past,
        )
    };
    drop(owner);
    context.note_parity_outputs();
    check("mtmd_helper_eval_chunks", status)?;
    Ok(n_past)
}
