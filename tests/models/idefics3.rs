//! `idefics3`: SigLIP's tower over an overview and tiles, 2x2 patches shuffled into one row, one matrix.

use llava::Result;

use super::weights::Draft;
use super::{Options, tower};

/// The projector file.
pub fn projector(options: &Options) -> Result<Draft> {
    let mut d = tower::start(options, tower::HALF_PIXELS)?;
    d.set("clip.use_gelu", true)?;
    d.set("clip.vision.projector.scale_factor", 2u32)?;
    // The longer side becomes four tiles.
    d.set("clip.vision.preproc_image_size", 4 * options.image_size_px)?;
    tower::patches(&mut d, "v.patch_embd.weight")?;
    d.around("v.patch_embd.bias", &[tower::WIDTH], 0.0, 0.1)?;
    tower::positions(&mut d, options, 0)?;
    tower::layers(&mut d, options)?;
    d.matrix("mm.model.fc.weight", 4 * tower::WIDTH, options.projector_width, 1.0)?;
    Ok(d)
}
