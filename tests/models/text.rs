//! The text models: `llama`, `qwen2vl`, `gemma3` and (without attention) `mamba`, two layers each.

use std::path::Path;

use llava::Result;
use llava::gguf::Array;

use super::vocabulary::Vocabulary;
use super::weights::Draft;
use super::{Family, Options, mamba};

/// Width of a token's embedding.
pub const WIDTH: u64 = 64;
const LAYERS: u32 = 2;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD: u64 = 16;
const HIDDEN: u64 = 128;
const EXPERTS_USED: u32 = 2;

/// Writes the text model of a family.
pub fn write(path: &Path, options: &Options) -> Result<()> {
    let arch = if options.recurrent { "mamba" } else { options.family.architecture() };
    let vocabulary = Vocabulary::new(options.family);
    let mut d = Draft::new(options.seed, options.matrices);
    d.set("general.architecture", arch)?;
    d.set("general.type", "model")?;
    d.set("general.name", format!("tiny random {arch}"))?;
    let key = |name: &str| format!("{arch}.{name}");
    d.set(&key("vocab_size"), vocabulary.len() as u32)?;
    d.set(&key("context_length"), 8192u32)?;
    d.set(&key("embedding_length"), WIDTH as u32)?;
    d.set(&key("block_count"), LAYERS)?;
    d.set(&key("feed_forward_length"), HIDDEN as u32)?;
    d.set(&key("attention.layer_norm_rms_epsilon"), 1e-5f32)?;
    if options.recurrent {
        mamba::keys(&mut d)?;
    } else {
        d.set(&key("attention.head_count"), HEADS as u32)?;
        d.set(&key("attention.head_count_kv"), KV_HEADS as u32)?;
        d.set(&key("rope.freq_base"), 10_000f32)?;
        d.set(&key("rope.dimension_count"), HEAD as u32)?;
    }
    if options.experts > 0 {
        d.set(&key("expert_count"), options.experts)?;
        d.set(&key("expert_used_count"), EXPERTS_USED)?;
    }
    match options.family {
        Family::Llava15 | Family::Idefics3 => {}
        // Half a head, split over time, rows and columns.
        Family::Qwen2Vl => d.set(&key("rope.dimension_sections"), Array::from(vec![2i32, 3, 3, 0]))?,
        Family::Gemma3 => {
            d.set(&key("attention.key_length"), HEAD as u32)?;
            d.set(&key("attention.value_length"), HEAD as u32)?;
            // One layer with a window, one without.
            d.set(&key("attention.sliding_window"), 96u32)?;
            d.set(&key("attention.sliding_window_pattern"), 2u32)?;
        }
    }
    vocabulary.set(&mut d, options.chat_template)?;
    tensors(&mut d, options, &vocabulary)?;
    d.write(path)
}

fn tensors(d: &mut Draft, options: &Options, vocabulary: &Vocabulary) -> Result<()> {
    let tokens = vocabulary.len() as u64;
    let gemma = options.family == Family::Gemma3;
    // Gemma multiplies token embeddings (not pictures) by the root of the width; both end at about one.
    let size = if gemma { 1.0 } else { (WIDTH as f32).sqrt() };
    d.matrix("token_embd.weight", WIDTH, tokens, size)?;
    d.around("output_norm.weight", &[WIDTH], 1.0, 0.1)?;

    // Normed rows give logits of deviation 3. Rows of zeros give the logit 0, which never is the largest.
    let mut output = d.numbers("output.weight", &[WIDTH, tokens], 0.0, 3.0 / (WIDTH as f32).sqrt());
    if options.printable {
        for (id, row) in output.chunks_mut(WIDTH as usize).enumerate() {
            if !vocabulary.is_printable(id) {
                row.fill(0.0);
            }
        }
    }
    d.put("output.weight", &[WIDTH, tokens], d.matrices(), &output)?;

    for layer in 0..LAYERS {
        if options.recurrent {
            mamba::layer(d, layer)?;
            continue;
        }
        let name = |part: &str| format!("blk.{layer}.{part}");
        d.around(&name("attn_norm.weight"), &[WIDTH], 1.0, 0.1)?;
        d.around(&name("ffn_norm.weight"), &[WIDTH], 1.0, 0.1)?;
        for (part, out, gain) in
            [("attn_q", HEADS * HEAD, 2.0), ("attn_k", KV_HEADS * HEAD, 2.0), ("attn_v", KV_HEADS * HEAD, 1.5)]
        {
            d.matrix(&name(&format!("{part}.weight")), WIDTH, out, gain)?;
            if options.family == Family::Qwen2Vl {
                d.around(&name(&format!("{part}.bias")), &[out], 0.0, 0.2)?;
            }
        }
        d.matrix(&name("attn_output.weight"), HEADS * HEAD, WIDTH, 2.5)?;
        let ffn = [("gate", WIDTH, HIDDEN), ("up", WIDTH, HIDDEN), ("down", HIDDEN, WIDTH)];
        if options.experts > 0 {
            // rows so different that rounding hardly ever changes which experts a token uses
            d.around(&name("ffn_gate_inp.weight"), &[WIDTH, u64::from(options.experts)], 0.0, 1.0)?;
        }
        for (part, rows_in, out) in ffn {
            match u64::from(options.experts) {
                0 => d.matrix(&name(&format!("ffn_{part}.weight")), rows_in, out, 1.0)?,
                n => d.stack(&name(&format!("ffn_{part}_exps.weight")), &[rows_in, out, n], 1.0)?,
            }
        }
        if gemma {
            for part in ["attn_q_norm", "attn_k_norm"] {
                d.around(&name(&format!("{part}.weight")), &[HEAD], 1.8, 0.1)?;
            }
            for (part, size) in [("post_attention_norm", 2.0), ("post_ffw_norm", 0.5)] {
                d.around(&name(&format!("{part}.weight")), &[WIDTH], size, 0.1)?;
            }
        }
    }
    Ok(())
}
