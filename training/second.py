"""The second model, Qwen2-VL-shaped: 2x2 merger, M-RoPE, `qwen2vl` text architecture. Forward pass and export; not trained yet.

    python second.py --out DIR    writes an untrained model, a picture, and what greedy decoding must give for it

`check.py cli` compares those answers with llama.cpp, so that training it later starts from arithmetic known to be the same.
"""
import argparse
import json
from pathlib import Path

import gguf
import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import data
import text
from export import LM_NAMES, LM_NORMS, TOWER_NAMES, TOWER_NORMS, write
from model import LM, MEAN, STD, TOWER, attend, init, layer_norm, matrix, rms_norm

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
SIDE = data.GRID // MERGE  # 7: a 224 x 224 picture gives 49 visual tokens


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


def patches(u8):
    """uint8 [B, H, W, 3], sides divisible by 32 -> patch rows [B, N, 768] and their (row, column) [N, 2].

    The four patches of a 2x2 block are neighbours in the sequence: block row, block column, row within, column within."""
    b, h, w = u8.shape[0], u8.shape[1] // data.PATCH, u8.shape[2] // data.PATCH
    x = (u8.astype(jnp.float32) / 255.0 - MEAN) / STD
    x = x.reshape(b, h // MERGE, MERGE, data.PATCH, w // MERGE, MERGE, data.PATCH, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
    row, column = np.meshgrid(np.arange(h), np.arange(w), indexing="ij")
    blocks = np.stack([row, column], -1).reshape(h // MERGE, MERGE, w // MERGE, MERGE, 2).transpose(0, 2, 1, 3, 4)
    return x.reshape(b, h * w, 3 * data.PATCH**2), blocks.reshape(-1, 2)


def turn(x, angles):
    """Rotates the pairs (i, i + half) of [B, T, heads, size] by `angles` [.., T, half]."""
    c, s = jnp.cos(angles)[..., None, :], jnp.sin(angles)[..., None, :]
    x0, x1 = jnp.split(x, 2, -1)
    return jnp.concatenate([x0 * c - x1 * s, x0 * s + x1 * c], -1)


def see(p, u8):
    """Pictures -> visual tokens [B, N / 4, 160]: rotary positions, pre-norm blocks with quick GELU, norm, merger."""
    x, place = patches(u8)
    vit, size = p["vit"], TOWER["width"] // TOWER["heads"]
    rate = 10000.0 ** (-np.arange(size // 4) / (size // 4))
    angles = jnp.asarray((place[:, :, None] * rate).reshape(len(place), -1), jnp.float32)  # rows, then columns
    x = 2 * (x @ vit["patch"])
    split = x.shape[:2] + (TOWER["heads"], size)
    for i in range(TOWER["layers"]):
        b = vit[f"blk{i}"]
        y = layer_norm(x, b["ln1_w"], b["ln1_b"], TOWER["eps"])
        q, k, v = ((y @ b[n] + b[n + "b"]).reshape(split) for n in "qkv")
        x = x + attend(turn(q, angles), turn(k, angles), v).reshape(x.shape) @ b["o"] + b["ob"]
        y = layer_norm(x, b["ln2_w"], b["ln2_b"], TOWER["eps"]) @ b["up"] + b["upb"]
        x = x + (y * jax.nn.sigmoid(1.702 * y)) @ b["down"] + b["downb"]
    x = layer_norm(x, vit["post_w"], vit["post_b"], TOWER["eps"])
    x = x.reshape(x.shape[0], -1, MERGE * MERGE * TOWER["width"])
    return jax.nn.gelu(x @ p["proj"]["w0"] + p["proj"]["b0"], approximate=True) @ p["proj"]["w2"] + p["proj"]["b2"]


def positions(before, rows, columns, after):
    """M-RoPE positions [T, 3] (time, row, column) of text, a picture of rows x columns tokens, text.

    The picture stands still in time and takes as many positions as its longer side."""
    grid = np.stack([np.zeros(rows * columns), np.repeat(np.arange(rows), columns), np.tile(np.arange(columns), rows)], 1)
    tail = before + max(rows, columns) + np.arange(after)
    return np.concatenate([np.tile(np.arange(before)[:, None], 3), before + grid, np.tile(tail[:, None], 3)]).astype(np.float32)


def decode(p, h, pos):
    """Logits [B, T, vocabulary] of embeddings [B, T, 160] at positions [T, 3], causal."""
    rate = LM["theta"] ** (-np.arange(HEAD // 2) * 2 / HEAD)
    axis = np.repeat(np.arange(4), SECTIONS)
    angles = jnp.asarray(pos[:, axis] * rate, jnp.float32)
    mask = jnp.tril(jnp.ones((h.shape[1], h.shape[1]), bool))[None, None]
    for i in range(LM["layers"]):
        b = p[f"blk{i}"]
        y = rms_norm(h, b["n1"])
        q, k, v = ((y @ b[n] + b[n + "b"]).reshape(h.shape[:2] + (LM["heads"], HEAD)) for n in "qkv")
        h = h + attend(turn(q, angles), turn(k, angles), v, mask).reshape(h.shape) @ b["o"]
        y = rms_norm(h, b["n2"])
        h = h + (jax.nn.silu(y @ b["gate"]) * (y @ b["up"])) @ b["down"]
    return rms_norm(h, p["norm"]) @ p["out"]


def greedy(p, picture, question, steps):
    """Token ids of the greedy answer; special tokens other than the end count as text does."""
    visual = see(p, picture[None])[0]
    head = [START] + text.encode("user\n") + [VISION_START]
    tail = [VISION_END] + text.encode(question) + [END] + text.encode("\n") + [START] + text.encode("assistant\n")
    rows, columns = picture.shape[0] // (data.PATCH * MERGE), picture.shape[1] // (data.PATCH * MERGE)
    answer = []
    while len(answer) < steps:
        ids = tail + answer
        h = jnp.concatenate([p["lm"]["emb"][np.array(head)], visual, p["lm"]["emb"][np.array(ids)]])[None]
        best = int(decode(p["lm"], h, positions(len(head), rows, columns, len(ids)))[0, -1].argmax())
        if best == END:
            break
        answer.append(best)
    return answer


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
    write(w, tensors, half)


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
    write(w, tensors, half)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--type", choices=["f16", "f32"], default="f32")
    ap.add_argument("--steps", type=int, default=16, help="length of the answers")
    args = ap.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    p, half = start(), args.type == "f16"
    hide = np.setdiff1d(np.arange(len(VOCAB)), [i for i, t in enumerate(text.VOCAB) if len(t) == 1 and t.isascii()])
    p["lm"]["out"][:, hide] = 0  # an untrained model would mostly say bytes and special tokens, which have no text to compare
    write_lm(args.out / f"demo-qwen2vl-lm-{args.type}.gguf", p["lm"], half)
    write_projector(args.out / f"demo-qwen2vl-mmproj-{args.type}.gguf", p["vit"], p["proj"], half)
    square, other = (data.held_out("grid", i, data.SAMPLES)[0] for i in (0, 1))
    pictures = {"square": square, "wide": np.concatenate([square, other[:, :96]], 1)}
    pictures["tall"] = np.concatenate([square, other[:96]])
    with open(args.out / "samples.jsonl", "w") as file:
        for name, picture in pictures.items():
            Image.fromarray(picture).save(args.out / f"{name}.png")
            got = text.decode(greedy(p, picture, "What is this?", args.steps))
            line = {"image": f"{name}.png", "task": "any", "question": "What is this?", "answer": "", "greedy": got}
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
