//! `qwen2vl_merger`: rotary positions, two patch kernels (for two frames), 2x2 patches to one token.

use llava::Result;

use super::weights::Draft;
use super::{Options, tower};

/// The projector file.
pub fn projector(options: &Options) -> Result<Draft> {
    let mut d = tower::start(options, tower::CLIP_PIXELS)?;
    d.set("clip.use_silu", false)?;
    d.set("clip.use_gelu", false)?;
    d.set("clip.vision.spatial_merge_size", 2u32)?;
    tower::patches(&mut d, "v.patch_embd.weight")?;
    tower::patches(&mut d, "v.patch_embd.weight.1")?;
    tower::layers(&mut d, options)?;
    // The real files always have this norm.
    if !options.post_norm {
        tower::norm(&mut d, "v.post_ln")?;
    }
    tower::linear(&mut d, "mm.0", 4 * tower::WIDTH, 2 * tower::WIDTH, 1.0)?;
    tower::linear(&mut d, "mm.2", 2 * tower::WIDTH, options.projector_width, 1.5)?;
    Ok(d)
}
