"""The second model, Qwen2-VL-shaped: 2x2 merger, M-RoPE, `qwen2vl` text architecture. Forward pass and export.

`train.py --family qwen2vl` trains it, `export.py --family qwen2vl` writes its files. What an untrained one says must be what
llama.cpp says already: `check.py untrained`.
"""
import gguf
import jax
import jax.numpy as jnp
import numpy as np

import data
import text
from export import LM_NAMES, LM_NORMS, TOWER_NAMES, TOWER_NORMS, import_lm, import_projector, read, write as write_file
from model import LLAVA, LM, MEAN, STD, TOWER, attend, init, layer_norm, matrix

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
VOCAB = text.VOCAB + SPECIAL
START, END, VISION_START, VISION_END, _ = range(len(text.VOCAB), len(VOCAB))
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
HEAD = LM["width"] // LM["heads"]
SECTIONS = [4, 6, 6, 0]  # of half a head: turned by time, row, column
MERGE = 2


def start(seed=0):
    """Parameters before training: `model.init` without position table and pre-norm, with what this family has instead."""
    p, r = init(seed), np.random.default_rng(seed + 1)
    d, e = TOWER["width"], LM["width"]
    vit, lm = p["vit"], p["lm"]
    for k in ("pos", "pre_w", "pre_b"):
        del vit[k]
    vit |= {"post_w": np.ones(d, np.float32), "post_b": np.zeros(d, np.float32)}
    vit["patch"] /= 2  # each of the two kernels sees the same still picture
    lm["emb"] = r.normal(0, 0.5, (len(VOCAB), e)).astype(np.float32)
    lm["out"] = matrix(r, e, len(VOCAB))
    for i in range(LM["layers"]):
        lm[f"blk{i}"] |= {k: np.zeros(e, np.float32) for k in ("qb", "kb", "vb")}
    wide = MERGE * MERGE * d
    zeros = lambda n: np.zeros(n, np.float32)
    proj = {"w0": matrix(r, wide, wide), "b0": zeros(wide), "w2": matrix(r, wide, e), "b2": zeros(e)}
    return {"vit": vit, "proj": proj, "lm": lm}


def lend(first):
    """Parameters of the first model as this one can take them over. It turns neighbouring numbers of a head, this one turns halves."""
    order = np.concatenate([np.arange(0, HEAD, 2), np.arange(1, HEAD, 2)])
    columns = (np.arange(LM["heads"])[:, None] * HEAD + order).reshape(-1)
    lm = {k: v | {n: v[n][:, columns] for n in "qk"} if k.startswith("blk") else v for k, v in first["lm"].items()}
    return {"vit": first["vit"], "lm": lm}


def pixels(u8):
    """uint8 [B, H, W, 3], sides divisible by 32 -> patch rows [B, rows, columns, 768] in channel, y, x order."""
    b, h, w = u8.shape[0], u8.shape[1] // data.PATCH, u8.shape[2] // data.PATCH
    x = (u8.astype(jnp.float32) / 255.0 - MEAN) / STD
    return x.reshape(b, h, data.PATCH, w, data.PATCH, 3).transpose(0, 1, 3, 5, 2, 4).reshape(b, h, w, 3 * data.PATCH**2)


def turn(x, angles):
    """Rotates the pairs (i, i + half) of [B, T, heads, size] by `angles` [.., T, half]."""
    c, s = jnp.cos(angles)[..., None, :], jnp.sin(angles)[..., None, :]
    x0, x1 = jnp.split(x, 2, -1)
    return jnp.concatenate([x0 * c - x1 * s, x0 * s + x1 * c], -1)


def tower(p, u8):
    """Pictures -> features [B, rows * columns, 128] in raster order: rotary positions, pre-norm blocks, quick GELU, norm.

    llama.cpp orders the patches by 2 x 2 blocks; since places are in the rotation alone, order makes no difference here."""
    x, size = pixels(u8), TOWER["width"] // TOWER["heads"]
    place = np.stack(np.meshgrid(np.arange(x.shape[1]), np.arange(x.shape[2]), indexing="ij"), -1).reshape(-1, 2)
    rate = 10000.0 ** (-np.arange(size // 4) / (size // 4))
    angles = jnp.asarray((place[:, :, None] * rate).reshape(len(place), -1), jnp.float32)  # rows, then columns
    x = 2 * (x.reshape(x.shape[0], len(place), -1) @ p["patch"])
    split = x.shape[:2] + (TOWER["heads"], size)
    for i in range(TOWER["layers"]):
        b = p[f"blk{i}"]
        y = layer_norm(x, b["ln1_w"], b["ln1_b"], TOWER["eps"])
        q, k, v = ((y @ b[n] + b[n + "b"]).reshape(split) for n in "qkv")
        x = x + attend(turn(q, angles), turn(k, angles), v).reshape(x.shape) @ b["o"] + b["ob"]
        y = layer_norm(x, b["ln2_w"], b["ln2_b"], TOWER["eps"]) @ b["up"] + b["upb"]
        x = x + (y * jax.nn.sigmoid(1.702 * y)) @ b["down"] + b["downb"]
    return layer_norm(x, p["post_w"], p["post_b"], TOWER["eps"])


def blocks(x, rows, columns):
    """[B, rows * columns, d] in raster order -> [B, N / 4, 4, d]: the four patches of each 2 x 2 block."""
    x = x.reshape(x.shape[0], rows // MERGE, MERGE, columns // MERGE, MERGE, -1).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(x.shape[0], rows * columns // MERGE**2, MERGE**2, -1)


def project(p, x, rows=data.GRID, columns=data.GRID):
    """The merger: features -> visual tokens [B, N / 4, 160]."""
    x = blocks(x, rows, columns).reshape(x.shape[0], -1, MERGE**2 * TOWER["width"])
    return jax.nn.gelu(x @ p["w0"] + p["b0"], approximate=True) @ p["w2"] + p["b2"]


def rotate(x, pos):
    """M-RoPE of [B, T, heads, size] at positions [B, T, 3]."""
    rate = (LM["theta"] ** (-np.arange(HEAD // 2) * 2 / HEAD)).astype(np.float32)
    return turn(x, pos[..., np.repeat(np.arange(4), SECTIONS)] * rate)


class Qwen2vl:
    """This model in the place of `model.Llava`, for pictures of `rows` x `columns` patches."""
    dialect = text.Dialect([START] + text.encode("user\n") + [VISION_START], [VISION_END],
                           [END] + text.encode("\n") + [START] + text.encode("assistant\n"), [], END)
    init, tower, rotate = staticmethod(start), staticmethod(tower), staticmethod(rotate)

    def __init__(self, rows=data.GRID, columns=data.GRID):
        self.rows, self.columns, self.across = rows, columns, columns // MERGE

    def sized(self, u8):
        return Qwen2vl(u8.shape[1] // data.PATCH, u8.shape[2] // data.PATCH)

    def project(self, p, x):
        return project(p, x, self.rows, self.columns)

    def places(self, n):
        """Time, row and column of template and visual tokens. A picture stands still in time and takes as many positions as
        its longer side."""
        before, rows, columns = len(self.dialect.prefix), self.rows // MERGE, self.columns // MERGE
        assert n == rows * columns
        grid = np.stack([np.zeros(n, int), np.repeat(np.arange(rows), columns), np.tile(np.arange(columns), rows)], 1)
        return np.concatenate([np.tile(np.arange(before)[:, None], 3), before + grid]), before + max(rows, columns)

    def pool(self, owners):
        """A token that covers several objects speaks of each with its share of the covered patches."""
        covered = blocks(owners, self.rows, self.columns).sum(2)
        return covered / jnp.maximum(covered.sum(-1, keepdims=True), 1)


FAMILIES = {"llava": LLAVA, "qwen2vl": Qwen2vl()}


def write_lm(path, p, half):
    w = gguf.GGUFWriter(path, "qwen2vl")
    w.add_type("model")
    w.add_name("demo-qwen2vl-lm")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    w.add_vocab_size(len(VOCAB))
    w.add_context_length(LM["context"])
    w.add_embedding_length(LM["width"])
    w.add_block_count(LM["layers"])
    w.add_feed_forward_length(LM["inner"])
    w.add_head_count(LM["heads"])
    w.add_head_count_kv(LM["heads"])
    w.add_layer_norm_rms_eps(LM["eps"])
    w.add_rope_dimension_count(HEAD)
    w.add_rope_freq_base(LM["theta"])
    w.add_rope_dimension_sections(SECTIONS)
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(VOCAB)
    kind, last = gguf.TokenType, text.BYTES.stop
    w.add_token_scores([0.0] * last + [-float(i + 1) for i in range(len(VOCAB) - last)])
    w.add_token_types([kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256
                      + [kind.NORMAL] * (len(text.VOCAB) - last) + [kind.CONTROL] * len(SPECIAL))
    w.add_unk_token_id(text.UNK)
    w.add_bos_token_id(text.BOS)
    w.add_eos_token_id(END)
    w.add_add_bos_token(False)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(False)
    w.add_chat_template(TEMPLATE)
    tensors = [("token_embd.weight", p["emb"]), ("output_norm.weight", p["norm"]), ("output.weight", p["out"].T)]
    for i in range(LM["layers"]):
        b = p[f"blk{i}"]
        tensors += [(f"blk.{i}.{n}.weight", b[k]) for n, k in LM_NORMS.items()]
        tensors += [(f"blk.{i}.{n}.weight", b[k].T) for n, k in LM_NAMES.items()]
        tensors += [(f"blk.{i}.attn_{k}.bias", b[k + "b"]) for k in "qkv"]
    write_file(w, tensors, half)


def write_projector(path, vit, proj, half):
    w = gguf.GGUFWriter(path, "clip")
    w.add_type("mmproj")
    w.add_name("demo-qwen2vl-mmproj")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "qwen2vl_merger")
    w.add_bool("clip.use_gelu", False)
    w.add_bool("clip.use_silu", False)
    sizes = {"image_size": data.SIDE, "patch_size": data.PATCH, "embedding_length": TOWER["width"], "projection_dim": LM["width"],
             "feed_forward_length": TOWER["inner"], "block_count": TOWER["layers"], "attention.head_count": TOWER["heads"],
             "spatial_merge_size": MERGE}
    for k, v in sizes.items():
        w.add_uint32(f"clip.vision.{k}", v)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", TOWER["eps"])
    w.add_array("clip.vision.image_mean", [float(x) for x in MEAN])
    w.add_array("clip.vision.image_std", [float(x) for x in STD])
    kernel = vit["patch"].T.reshape(TOWER["width"], 3, data.PATCH, data.PATCH)
    tensors = [("v.patch_embd.weight", kernel), ("v.patch_embd.weight.1", kernel)]
    tensors += [("v.post_ln.weight", vit["post_w"]), ("v.post_ln.bias", vit["post_b"])]
    for i in range(TOWER["layers"]):
        b = vit[f"blk{i}"]
        for n, k in TOWER_NORMS.items():
            tensors += [(f"v.blk.{i}.{n}.weight", b[k + "_w"]), (f"v.blk.{i}.{n}.bias", b[k + "_b"])]
        for n, k in TOWER_NAMES.items():
            tensors += [(f"v.blk.{i}.{n}.weight", b[k].T), (f"v.blk.{i}.{n}.bias", b[k + "b"])]
    for j in (0, 2):
        tensors += [(f"mm.{j}.weight", proj[f"w{j}"].T), (f"mm.{j}.bias", proj[f"b{j}"])]
    write_file(w, tensors, half)


def write(out, params, half):
    kind = "f16" if half else "f32"
    write_lm(out / f"demo-qwen2vl-lm-{kind}.gguf", params["lm"], half)
    write_projector(out / f"demo-qwen2vl-mmproj-{kind}.gguf", params["vit"], params["proj"], half)


def import_model(lm_path, projector_path):
    """As `export.import_model`."""
    t, u = read(lm_path), read(projector_path)
    p = import_projector(u) | {"lm": import_lm(t)}
    p["vit"] |= {"post_w": u["v.post_ln.weight"], "post_b": u["v.post_ln.bias"]}
    for i in range(LM["layers"]):
        p["lm"][f"blk{i}"] |= {k + "b": t[f"blk.{i}.attn_{k}.bias"] for k in "qkv"}
    return p
