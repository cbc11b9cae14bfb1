//! Whether a prompt fits, and what would make it.

use super::compression::count_visual;
use super::prompt::{Item, count_positions, count_tokens};
use crate::error::{Error, Result};
use crate::llama::Context;
use crate::mtmd::Projector;

/// Refuses a prompt that cannot be decoded, before anything is encoded for it.
pub(super) fn check(context: &Context, projector: Option<&Projector>, wanted: &[Item], keep: usize) -> Result<()> {
    let n_ctx = context.n_ctx() as usize;
    let n_ubatch = context.n_ubatch() as usize;
    let mut used = 0_usize;
    let mut over = None;
    for (i, item) in wanted.iter().enumerate() {
        used += item.tokens().get();
        if let Item::Image(image) = item {
            let tokens = image.tokens().get();
            if i >= keep && image.image.non_causal && tokens > n_ubatch {
                return Err(Error::MicroBatchTooSmall { tokens, n_ubatch });
            }
            if used >= n_ctx && over.is_none() {
                over = Some(image.index);
            }
        }
    }
    // rows that keep their places can reach further than they are many
    let reach = count_positions(wanted).get() + 1;
    let trained = context.model().n_ctx_train() as usize;
    if reach > used + 1 && reach > n_ctx.max(trained) {
        let kept = count_positions(&wanted[..keep]).get();
        return Err(Error::ContextFull {
            needed: reach - kept,
            available: n_ctx.max(trained).saturating_sub(kept),
            n_ctx,
            picture: None,
            advice: "rows that are left out keep their positions: show fewer pictures, or use --image-positions compact (not under M-RoPE)"
                .into(),
        });
    }
    // one cell more, for the first token of the answer
    let needed = used + 1;
    if needed <= n_ctx {
        return Ok(());
    }
    let kept = count_tokens(&wanted[..keep]).get();
    Err(Error::ContextFull {
        needed: needed - kept,
        available: n_ctx.saturating_sub(kept),
        n_ctx,
        picture: over,
        advice: advice(projector, wanted, needed, n_ctx),
    })
}

/// Flags that would make a prompt of `needed` cells fit.
fn advice(projector: Option<&Projector>, wanted: &[Item], needed: usize, n_ctx: usize) -> String {
    // a multiple of 256, as llama.cpp pads, and some room for the answer
    let mut advice = format!("use -c {} or more", (needed + 256).next_multiple_of(256));
    let visual = count_visual(wanted).get();
    let pictures = wanted.iter().filter(|i| matches!(i, Item::Image(_))).count();
    let text = needed - visual;
    if visual > pictures && text < n_ctx {
        advice.push_str(", or fewer --visual-tokens");
    }
    let dynamic = projector.is_some_and(|p| p.info().image_max_tokens.is_some());
    if dynamic && pictures > 0 && n_ctx > text {
        let each = (n_ctx - text) / pictures;
        if each >= 4 {
            advice.push_str(&format!(", or --image-max-tokens {each}"));
        }
    }
    advice
}
