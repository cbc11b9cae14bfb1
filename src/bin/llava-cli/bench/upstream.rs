//! Upstream's path: libmtmd's helper tokenizes, encodes and prefills the whole prompt for every question.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use llava::TokenCount;
use llava::image::RgbImage;
use llava::llama::{Batch, Context, ContextParams, Model, Sampler};
use llava::mtmd::{Projector, parity};
use llava::session::template::Segment;
use llava::session::{Message, Part, Picture, Session, SessionParams};

use super::sample::{Sample, settle};
use crate::signals::Interrupt;

/// Its own context on the same model, projector and threads, and the same chat template.
#[derive(Debug)]
pub struct Upstream {
    /// Renders prompts and nothing else.
    template: Session,
    projector: Arc<Projector>,
    context: Context,
    sampler: Sampler,
    max_tokens: usize,
}

impl Upstream {
    pub const NAME: &str = "upstream's helper (libmtmd), which encodes and prefills everything for every question";
    pub const SHORT: &str = "upstream";

    pub fn new(model: &Arc<Model>, projector: &Arc<Projector>, params: SessionParams) -> Result<Self> {
        let max_tokens = params.max_tokens.unwrap_or(usize::MAX);
        let sampler = Sampler::new(model, &params.sampler)?;
        // the adjustments that a session makes for the projector's pictures hold for upstream too
        let mut wide = params.clone();
        wide.context.warmup = false;
        let adjusted = Session::new(model, Some(Arc::clone(projector)), wide)?.context_params().clone();
        let context = Context::new(model, &ContextParams { warmup: params.context.warmup, ..adjusted.clone() })?;
        let small = ContextParams { n_ctx: 256, n_batch: 64, n_ubatch: 64, ..adjusted };
        let template = Session::new(model, None, SessionParams { context: small, ..params })?;
        Ok(Self { template, projector: Arc::clone(projector), context, sampler, max_tokens })
    }

    /// Answers `parts` after what was said before, from nothing.
    pub fn answer(&mut self, history: &[Message], parts: &[Part], interrupt: &Interrupt) -> Result<Sample> {
        interrupt.watch(self.context.cancel_token())?;
        self.context.clear()?;
        self.sampler.reset()?;
        self.template.set_messages(history.to_vec());
        let pictures = pictures(history, parts);
        let visual_prefilled = self.visual_tokens(&pictures)?;
        let parts = parts.to_vec();
        settle();

        let start = Instant::now();
        let (texts, images) = split(&self.template.render(parts)?, &pictures);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let add_special = !self.begins_with_bos(texts.first().copied().unwrap_or(""))?;
        let mut position = parity::eval_into(&self.projector, &mut self.context, &texts, &images, add_special)?;
        let mut token = self.sampler.sample(&mut self.context)?;
        let first_token = start.elapsed();

        let model = Arc::clone(self.context.model());
        let vocab = model.vocab();
        let mut bytes = Vec::new();
        let mut count = 0;
        loop {
            self.sampler.accept(token)?;
            if vocab.is_end_of_generation(token) {
                break;
            }
            vocab.piece_into(token, true, &mut bytes)?;
            count += 1;
            if count >= self.max_tokens {
                break;
            }
            let mut batch = Batch::new();
            batch.push_token(token, position, 0, true);
            self.context.decode(&batch)?;
            position += 1;
            token = self.sampler.sample(&mut self.context)?;
        }
        Ok(Sample {
            first_token,
            whole: start.elapsed(),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            encoded: images.len(),
            visual_prefilled,
            ..Sample::default()
        })
    }

    fn visual_tokens(&self, pictures: &[Picture]) -> Result<usize> {
        let mut tokens = TokenCount::ZERO;
        for (picture, index) in pictures.iter().zip(0..) {
            let (width, height) = (picture.image().width_px(), picture.image().height_px());
            tokens += self.projector.prepare_placeholder(width, height, TokenCount::ZERO, index)?.visual_tokens();
        }
        Ok(tokens.get())
    }

    /// Whether the template writes the BOS token itself: models see it once.
    fn begins_with_bos(&self, text: &str) -> Result<bool> {
        let vocab = self.context.model().vocab();
        let Some(bos) = vocab.bos() else { return Ok(false) };
        let written = vocab.text(&[bos], true)?;
        Ok(!written.is_empty() && text.starts_with(&written))
    }
}

fn pictures(history: &[Message], parts: &[Part]) -> Vec<Picture> {
    let new = parts.iter().filter_map(|p| if let Part::Picture(picture) = p { Some(picture) } else { None });
    history.iter().flat_map(Message::pictures).chain(new).cloned().collect()
}

/// Texts before, between and behind the pictures of a rendered prompt, and the pictures in the order it shows them in.
fn split<'p>(segments: &[Segment], pictures: &'p [Picture]) -> (Vec<String>, Vec<&'p RgbImage>) {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    let mut text = String::new();
    for segment in segments {
        match segment {
            Segment::Text(more) => text.push_str(more),
            Segment::Picture(index) => {
                texts.push(std::mem::take(&mut text));
                images.push(pictures[*index].image());
            }
        }
    }
    texts.push(text);
    (texts, images)
}
