//! `gemma3`: SigLIP's tower, average of 2x2 patches, one norm, one matrix.

use llava::Result;

use super::weights::Draft;
use super::{Options, tower};

/// The projector file.
pub fn projector(options: &Options) -> Result<Draft> {
    let mut d = tower::start(options, tower::HALF_PIXELS)?;
    d.set("clip.use_gelu", true)?;
    d.set("clip.vision.projector.scale_factor", 2u32)?;
    tower::patches(&mut d, "v.patch_embd.weight")?;
    d.around("v.patch_embd.bias", &[tower::WIDTH], 0.0, 0.1)?;
    tower::positions(&mut d, options, 0)?;
    tower::layers(&mut d, options)?;
    d.around("mm.soft_emb_norm.weight", &[tower::WIDTH], 1.0, 0.1)?;
    // Stored the other way round than all other matrices: a row is one output wide.
    d.plain(
        "mm.input_projection.weight",
        &[options.projector_width, tower::WIDTH],
        1.0 / (tower::WIDTH as f32).sqrt(),
    )?;
    Ok(d)
}
