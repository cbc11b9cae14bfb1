//! Running the vision tower.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use llava_sys as sys;

use super::prepared::{Chunk, ImageChunk, Prepared};
use super::projector::{Projector, ProjectorOwner};
use crate::embedding::Embedding;
use crate::error::{Error, Result};
use crate::llama::{CancelToken, check, log};

/// A chunk to encode, and what it has to give.
struct Request<'a> {
    prepared: &'a Prepared,
    index: usize,
    image: &'a ImageChunk,
}

impl Projector {
    /// Encodes image chunks, as many in one pass as the projector can take together, in the order given.
    ///
    /// Each element of `chunks` is a prepared picture and the index of one of its image chunks. Rows come back with the time
    /// their pass took, shared out by rows. Rows that are not finite are computed once more without flash attention, which
    /// accumulates in F32.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a chunk of another projector, without pixels, or that is no image; [`Error::Cancelled`];
    /// [`Error::Encode`] with the native words; [`Error::NonFinite`] where the second pass is not finite either.
    pub fn encode(&self, chunks: &[(&Prepared, usize)], cancel: &CancelToken) -> Result<Vec<(Embedding, Duration)>> {
        let requests =
            chunks.iter().map(|&(prepared, index)| self.request(prepared, index)).collect::<Result<Vec<_>>>()?;
        let mut done = Vec::with_capacity(requests.len());
        let mut owner = self.lock();
        while done.len() < requests.len() {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let todo = self.that_fit_together(&requests[done.len()..]);
            let start = Instant::now();
            let (rows, taken) = self.pass(&mut owner, todo, cancel)?;
            let took = start.elapsed();
            let total: usize = todo[..taken].iter().map(|r| r.image.tokens.get()).sum();
            let mut rest = rows.as_slice();
            for request in &todo[..taken] {
                let n = request.image.tokens.get();
                let (mine, others) = rest.split_at(n * self.info().width);
                rest = others;
                let embedding = match Embedding::new(mine.to_vec(), n, self.info().width, request.image.grid) {
                    Err(Error::NonFinite { .. }) => self.retry_in_f32(&mut owner, request, cancel)?,
                    other => other?,
                };
                let share = took.mul_f64(n as f64 / total.max(1) as f64);
                done.push((embedding, share));
            }
        }
        Ok(done)
    }

    /// The first requests that may go into one pass; memory is only taken for these.
    fn that_fit_together<'r, 'a>(&self, requests: &'r [Request<'a>]) -> &'r [Request<'a>] {
        let most = self.params().batch_max_tokens as usize;
        let mut total = 0;
        let fit = requests.iter().take_while(|r| {
            total += r.image.tokens.get();
            total <= most
        });
        let n = if self.info().batches { fit.count().max(1) } else { 1 };
        &requests[..n.min(requests.len())]
    }

    fn request<'a>(&self, prepared: &'a Prepared, index: usize) -> Result<Request<'a>> {
        let bad =
            |reason: &str| Err(Error::BadParameter { name: "chunk", value: index.to_string(), reason: reason.into() });
        if !std::ptr::eq(prepared.projector().as_ref(), self) {
            return bad("prepared by another projector");
        }
        if prepared.is_placeholder() {
            return bad("a placeholder has no pixels to encode");
        }
        match prepared.chunks().get(index) {
            Some(Chunk::Image(image)) => Ok(Request { prepared, index, image }),
            _ => bad("no image chunk"),
        }
    }

    /// One pass over the first few requests; returns their rows and how many they were.
    fn pass(
        &self,
        owner: &mut ProjectorOwner,
        todo: &[Request<'_>],
        cancel: &CancelToken,
    ) -> Result<(Vec<f32>, usize)> {
        let refs: Vec<sys::llava_chunk_ref> =
            todo.iter().map(|r| sys::llava_chunk_ref { prepared: r.prepared.as_ptr(), chunk: r.index }).collect();
        let room: usize = todo.iter().map(|r| r.image.tokens.get()).sum::<usize>() * self.info().width;
        let mut rows = vec![0.0_f32; room];
        let mut taken = 0_usize;
        let (abort, user_data) = cancel.native();
        let (status, lines) = log::capture(|| {
            // SAFETY: the projector is locked and lives; the chunks live by reference and belong to it (checked in
            // `request`); the room is what all of them need; the cancel token outlives the call.
            let status = unsafe {
                sys::llava_encode(
                    owner.as_mut_ptr(),
                    refs.as_ptr(),
                    refs.len(),
                    rows.as_mut_ptr(),
                    rows.len(),
                    abort,
                    user_data,
                    &raw mut taken,
                )
            };
            check("mtmd_batch_encode", status)
        });
        if let Some(tap) = &self.tap {
            tap.resume();
        }
        match status {
            Ok(()) if (1..=todo.len()).contains(&taken) => Ok((rows, taken)),
            Ok(()) => Err(Error::Encode { reason: format!("{taken} of {} chunks encoded", todo.len()) }),
            Err(Error::Cancelled) => Err(Error::Cancelled),
            Err(e) => Err(Error::Encode { reason: log::with_lines(e.to_string(), &lines) }),
        }
    }

    fn retry_in_f32(
        &self,
        owner: &mut ProjectorOwner,
        request: &Request<'_>,
        cancel: &CancelToken,
    ) -> Result<Embedding> {
        tracing::warn!("the encoder's rows are not finite; trying once more without flash attention");
        let mut previous = 0_i32;
        // SAFETY: the projector is locked and lives; the place is valid.
        let status = unsafe {
            sys::llava_projector_set_flash_attn(
                owner.as_mut_ptr(),
                sys::LLAMA_FLASH_ATTN_TYPE_DISABLED,
                &raw mut previous,
            )
        };
        check("llava_projector_set_flash_attn", status)?;
        // a panic of the application's (its `tracing` subscriber) must not leave the tower without flash attention
        let again = catch_unwind(AssertUnwindSafe(|| self.pass(owner, std::slice::from_ref(request), cancel)));
        let mut ignored = 0_i32;
        // SAFETY: as above.
        let status = unsafe { sys::llava_projector_set_flash_attn(owner.as_mut_ptr(), previous, &raw mut ignored) };
        check("llava_projector_set_flash_attn", status)?;
        let (rows, _) = again.unwrap_or_else(|panic| resume_unwind(panic))?;
        let n = request.image.tokens.get();
        Embedding::new(rows, n, self.info().width, request.image.grid).map_err(|e| match e {
            Error::NonFinite { count, rows, width, .. } => {
                Error::NonFinite { count, rows, width, retried_in_f32: true }
            }
            other => other,
        })
    }
}
