//! `mlp`: CLIP's tower, two linear layers with GELU.

use llava::Result;

use super::weights::Draft;
use super::{Options, tower};

/// The projector file.
pub fn projector(options: &Options) -> Result<Draft> {
    let mut d = tower::start(options, tower::CLIP_PIXELS)?;
    d.set("clip.has_llava_projector", true)?;
    d.set("clip.use_gelu", false)?;
    tower::patches(&mut d, "v.patch_embd.weight")?;
    if options.class_token {
        d.around("v.class_embd", &[tower::WIDTH], 0.0, 1.0)?;
    }
    tower::positions(&mut d, options, u64::from(options.class_token))?;
    tower::layers(&mut d, options)?;
    // Several feature layers lie side by side in the rows that the first linear layer takes.
    let mut stacked = options.feature_layers.clone().unwrap_or_default();
    stacked.retain(|&l| l >= 0);
    stacked.sort_unstable();
    stacked.dedup();
    let rows_in = tower::WIDTH * stacked.len().max(1) as u64;
    tower::linear(&mut d, "mm.0", rows_in, options.projector_width, 0.5)?;
    tower::linear(&mut d, "mm.2", options.projector_width, options.projector_width, 1.5)?;
    Ok(d)
}
