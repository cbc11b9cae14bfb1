//! A text model without attention: `mamba`, two layers.

use llava::Result;

use super::text::WIDTH;
use super::weights::Draft;

const INNER: u64 = 2 * WIDTH;
const STATE: u64 = 8;
const CONV: u64 = 4;
const RANK: u64 = 4;

/// Keys of the architecture.
pub fn keys(d: &mut Draft) -> Result<()> {
    d.set("mamba.ssm.conv_kernel", CONV as u32)?;
    d.set("mamba.ssm.inner_size", INNER as u32)?;
    d.set("mamba.ssm.state_size", STATE as u32)?;
    d.set("mamba.ssm.time_step_rank", RANK as u32)
}

/// Tensors of one layer, norm included.
pub fn layer(d: &mut Draft, layer: u32) -> Result<()> {
    let name = |part: &str| format!("blk.{layer}.{part}");
    d.around(&name("attn_norm.weight"), &[WIDTH], 1.0, 0.1)?;
    d.matrix(&name("ssm_in.weight"), WIDTH, 2 * INNER, 1.0)?;
    d.around(&name("ssm_conv1d.weight"), &[CONV, INNER], 0.3, 0.3)?;
    d.around(&name("ssm_conv1d.bias"), &[INNER], 0.0, 0.1)?;
    d.matrix(&name("ssm_x.weight"), INNER, RANK + 2 * STATE, 1.0)?;
    d.around(&name("ssm_dt.weight"), &[RANK, INNER], 0.0, 0.3)?;
    d.around(&name("ssm_dt.bias"), &[INNER], -2.0, 0.5)?;
    // negative, so that the state forgets
    d.around(&name("ssm_a"), &[STATE, INNER], -1.0, 0.2)?;
    d.around(&name("ssm_d"), &[INNER], 1.0, 0.1)?;
    d.matrix(&name("ssm_out.weight"), INNER, WIDTH, 1.0)
}
