//! Projector files that the generator in `tests/models` does not make: changed copies of its files, and the two other
//! towers whose class token llama.cpp appends.

use std::path::Path;

use llava::gguf::{Array, GgufFile, GgufWriter, TensorType, Value};

/// A tensor to write.
pub struct Tensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub ggml_type: TensorType,
    pub bytes: Vec<u8>,
}

/// Copies a file, with other values for some keys, without some tensors, and with some more.
pub fn copy(from: &Path, to: &Path, keys: &[(&str, Value)], without: &[&str], more: Vec<Tensor>) {
    let old = GgufFile::open(from).unwrap();
    let mut tensors: Vec<Tensor> = old
        .tensors()
        .iter()
        .filter(|t| !without.contains(&t.name.as_str()))
        .map(|t| Tensor {
            name: t.name.clone(),
            dims: t.dims.clone(),
            ggml_type: t.ggml_type,
            bytes: old.read_tensor(&t.name).unwrap(),
        })
        .collect();
    tensors.extend(more);
    let mut writer = GgufWriter::new();
    for (key, value) in old.metadata() {
        let new = keys.iter().find(|(k, _)| *k == key).map(|(_, value)| value);
        writer.set(key, new.unwrap_or(value).clone()).unwrap();
    }
    write(writer, to, &tensors);
}

fn write(mut writer: GgufWriter, to: &Path, tensors: &[Tensor]) {
    for t in tensors {
        writer.declare(&t.name, &t.dims, t.ggml_type).unwrap();
    }
    let mut sink = writer.begin(to).unwrap();
    for t in tensors {
        sink.tensor(|out| out.put(&t.bytes)).unwrap();
    }
    sink.finish().unwrap();
}

/// Random f32 tensors of a seed.
pub struct Maker {
    state: u64,
    tensors: Vec<Tensor>,
}

impl Maker {
    pub fn new(seed: u64) -> Maker {
        Maker { state: seed, tensors: Vec::new() }
    }

    pub fn done(self) -> Vec<Tensor> {
        self.tensors
    }

    /// Uniform numbers around `mean` with this standard deviation.
    pub fn around(&mut self, name: &str, dims: &[u64], mean: f32, deviation: f32) {
        let values = (0..dims.iter().product::<u64>()).map(|_| {
            // Knuth's multiplier; the upper bits are good enough for weights.
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let unit = (self.state >> 40) as f32 / (1u32 << 24) as f32;
            mean + deviation * 12f32.sqrt() * (unit - 0.5)
        });
        let bytes = values.flat_map(f32::to_le_bytes).collect();
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), ggml_type: TensorType::F32, bytes });
    }

    /// A matrix that keeps the size of its input times `gain`.
    pub fn matrix(&mut self, name: &str, rows_in: u64, out: u64, gain: f32) {
        self.around(&format!("{name}.weight"), &[rows_in, out], 0.0, gain / (rows_in as f32).sqrt());
    }

    /// A matrix with bias.
    pub fn linear(&mut self, name: &str, rows_in: u64, out: u64, gain: f32) {
        self.matrix(name, rows_in, out, gain);
        self.around(&format!("{name}.bias"), &[out], 0.0, 0.1);
    }

    /// A norm's weight and bias.
    pub fn norm(&mut self, name: &str, width: u64) {
        self.around(&format!("{name}.weight"), &[width], 1.0, 0.1);
        self.around(&format!("{name}.bias"), &[width], 0.0, 0.1);
    }
}

const WIDTH: u64 = 64;
const HIDDEN: u64 = 96;
const PATCH: u64 = 14;
const LAYERS: u64 = 2;

/// Keys and embedding tensors of a square tower with a class token.
fn tower(kind: &str, seed: u64, side_px: u64, width_out: u64) -> (GgufWriter, Maker) {
    let mut writer = GgufWriter::new();
    for (key, value) in [("general.architecture", "clip"), ("general.type", "mmproj"), ("clip.projector_type", kind)] {
        writer.set(key, value).unwrap();
    }
    writer.set("clip.has_vision_encoder", true).unwrap();
    for (key, value) in [
        ("image_size", side_px),
        ("patch_size", PATCH),
        ("embedding_length", WIDTH),
        ("feed_forward_length", HIDDEN),
        ("block_count", LAYERS),
        ("projection_dim", width_out),
        ("attention.head_count", 4),
    ] {
        writer.set(&format!("clip.vision.{key}"), u32::try_from(value).unwrap()).unwrap();
    }
    writer.set("clip.vision.attention.layer_norm_epsilon", 1e-6f32).unwrap();
    writer.set("clip.vision.image_mean", Array::from(vec![0.485f32, 0.456, 0.406])).unwrap();
    writer.set("clip.vision.image_std", Array::from(vec![0.229f32, 0.224, 0.225])).unwrap();
    let mut maker = Maker::new(seed);
    let patches = (side_px / PATCH) * (side_px / PATCH);
    maker.around("v.patch_embd.weight", &[PATCH, PATCH, 3, WIDTH], 0.0, 1.5 / ((PATCH * PATCH * 3) as f32).sqrt());
    maker.around("v.patch_embd.bias", &[WIDTH], 0.0, 0.1);
    maker.around("v.class_embd", &[WIDTH, 1, 1], 0.0, 1.0);
    maker.around("v.position_embd.weight", &[WIDTH, patches + 1, 1], 0.0, 0.5);
    (writer, maker)
}

/// A tiny InternVL projector: 2x2 patches become one row.
pub fn internvl(to: &Path, seed: u64, side_px: u64, width_out: u64) {
    let (mut writer, mut m) = tower("internvl", seed, side_px, width_out);
    writer.set("clip.use_gelu", true).unwrap();
    writer.set("clip.vision.projector.scale_factor", 2u32).unwrap();
    for layer in 0..LAYERS {
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        m.norm(&name("ln1"), WIDTH);
        m.norm(&name("ln2"), WIDTH);
        for (part, gain) in [("attn_q", 1.5), ("attn_k", 1.5), ("attn_v", 1.0), ("attn_out", 1.0)] {
            m.linear(&name(part), WIDTH, WIDTH, gain);
        }
        m.linear(&name("ffn_up"), WIDTH, HIDDEN, 1.0);
        m.linear(&name("ffn_down"), HIDDEN, WIDTH, 1.0);
        m.around(&name("ls1.weight"), &[WIDTH], 0.8, 0.2);
        m.around(&name("ls2.weight"), &[WIDTH], 0.8, 0.2);
    }
    m.norm("mm.model.mlp.0", 4 * WIDTH);
    m.linear("mm.model.mlp.1", 4 * WIDTH, width_out, 1.0);
    m.linear("mm.model.mlp.3", width_out, width_out, 1.5);
    write(writer, to, &m.done());
}

/// A tiny CogVLM projector: one row per patch and one more at each end.
pub fn cogvlm(to: &Path, seed: u64, side_px: u64, width_out: u64) {
    let (writer, mut m) = tower("cogvlm", seed, side_px, width_out);
    for layer in 0..LAYERS {
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        m.linear(&name("attn_qkv"), WIDTH, 3 * WIDTH, 1.0);
        m.linear(&name("attn_out"), WIDTH, WIDTH, 1.0);
        m.norm(&name("ln1"), WIDTH);
        m.norm(&name("ln2"), WIDTH);
        m.linear(&name("ffn_up"), WIDTH, HIDDEN, 1.0);
        m.linear(&name("ffn_down"), HIDDEN, WIDTH, 1.0);
    }
    m.matrix("mm.model.fc", WIDTH, width_out, 1.0);
    m.norm("mm.post_fc_norm", width_out);
    m.matrix("mm.up", width_out, HIDDEN, 1.5);
    m.matrix("mm.gate", width_out, HIDDEN, 1.5);
    m.matrix("mm.down", HIDDEN, width_out, 1.5);
    m.around("v.boi", &[width_out, 1, 1], 0.0, 1.0);
    m.around("v.eoi", &[width_out, 1, 1], 0.0, 1.0);
    write(writer, to, &m.done());
}
