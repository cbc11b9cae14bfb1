//! What all vision towers share: keys, patch convolution, positions and layers.

use llava::Result;
use llava::gguf::Array;

use super::Options;
use super::weights::Draft;

/// Width of the tower's rows.
pub const WIDTH: u64 = 64;
/// Side of a patch in pixels.
pub const PATCH: u64 = 14;
const HEADS: u32 = 4;
const HIDDEN: u64 = 96;

/// Mean and deviation of pixels, as CLIP's authors measured them.
pub const CLIP_PIXELS: ([f32; 3], [f32; 3]) =
    ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);
/// Pixels between -1 and 1, as SigLIP has them.
pub const HALF_PIXELS: ([f32; 3], [f32; 3]) = ([0.5; 3], [0.5; 3]);

/// A projector file with the keys that every family needs.
pub fn start(options: &Options, (mean, std): ([f32; 3], [f32; 3])) -> Result<Draft> {
    // Another stream than the text model's.
    let mut d = Draft::new(options.seed ^ 0x7672_6973_696f_6e00, options.matrices);
    d.set("general.architecture", "clip")?;
    d.set("general.type", "mmproj")?;
    d.set("general.name", format!("tiny random {}", options.family.projector_type()))?;
    d.set("clip.has_vision_encoder", true)?;
    d.set("clip.projector_type", options.family.projector_type())?;
    let numbers = [
        ("image_size", options.image_size_px),
        ("patch_size", PATCH as u32),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", HIDDEN as u32),
        ("block_count", options.block_count.unwrap_or(options.stored_layers)),
        ("projection_dim", options.projector_width as u32),
        ("attention.head_count", HEADS),
    ];
    for (name, value) in numbers {
        d.set(&format!("clip.vision.{name}"), value)?;
    }
    d.set("clip.vision.attention.layer_norm_epsilon", 1e-5f32)?;
    d.set("clip.vision.image_mean", Array::from(mean.to_vec()))?;
    d.set("clip.vision.image_std", Array::from(std.to_vec()))?;
    if let Some(layers) = &options.feature_layers {
        d.set("clip.vision.feature_layer", Array::from(layers.clone()))?;
    }
    Ok(d)
}

/// One convolution kernel of `[14, 14, 3, width]`, for pixels of about one.
pub fn patches(d: &mut Draft, name: &str) -> Result<()> {
    d.plain(name, &[PATCH, PATCH, 3, WIDTH], 1.5 / ((PATCH * PATCH * 3) as f32).sqrt())
}

/// Learned positions for a square picture, plus `extra` rows.
pub fn positions(d: &mut Draft, options: &Options, extra: u64) -> Result<()> {
    let side = u64::from(options.image_size_px) / PATCH;
    d.around("v.position_embd.weight", &[WIDTH, side * side + extra], 0.0, 0.5)
}

/// A LayerNorm's weight and bias.
pub fn norm(d: &mut Draft, name: &str) -> Result<()> {
    d.around(&format!("{name}.weight"), &[WIDTH], 1.0, 0.1)?;
    d.around(&format!("{name}.bias"), &[WIDTH], 0.0, 0.1)
}

/// The norms around the layers, if wanted, and all stored layers.
pub fn layers(d: &mut Draft, options: &Options) -> Result<()> {
    if options.pre_norm {
        norm(d, "v.pre_ln")?;
    }
    for layer in 0..options.stored_layers {
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        norm(d, &name("ln1"))?;
        norm(d, &name("ln2"))?;
        let matrices = [
            ("attn_q", WIDTH, WIDTH, 1.5),
            ("attn_k", WIDTH, WIDTH, 1.5),
            ("attn_v", WIDTH, WIDTH, 1.0),
            ("attn_out", WIDTH, WIDTH, 1.0),
            ("ffn_up", WIDTH, HIDDEN, 1.0),
            ("ffn_down", HIDDEN, WIDTH, 1.0),
        ];
        for (part, rows_in, out, gain) in matrices {
            d.matrix(&name(&format!("{part}.weight")), rows_in, out, gain)?;
            if options.biases
                || (matches!(part, "attn_q" | "attn_k" | "attn_v") && options.family == super::Family::Qwen2Vl)
            {
                d.around(&name(&format!("{part}.bias")), &[out], 0.0, 0.1)?;
            }
        }
    }
    if options.post_norm {
        norm(d, "v.post_ln")?;
    }
    Ok(())
}

/// A linear layer with bias.
pub fn linear(d: &mut Draft, name: &str, rows_in: u64, out: u64, gain: f32) -> Result<()> {
    d.matrix(&format!("{name}.weight"), rows_in, out, gain)?;
    d.around(&format!("{name}.bias"), &[out], 0.0, 0.1)
}
