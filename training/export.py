"""Parameters <-> GGUF files that llama.cpp loads unmodified.

    python export.py --from state.npz --out DIR [--type f16|f32] [--family qwen2vl]
    python export.py --from compressor.npz --out DIR --projector DIR/demo-mmproj-f16.gguf
"""
import argparse
from pathlib import Path

import gguf
import numpy as np
import xxhash

import text
from data import PATCH, PATCHES, SIDE
from model import LM, MEAN, QUERIES, STD, TOWER
from store import load

LM_NAMES = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o",
            "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down"}
LM_NORMS = {"attn_norm": "n1", "ffn_norm": "n2"}
TOWER_NAMES = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_out": "o", "ffn_up": "up", "ffn_down": "down"}
TOWER_NORMS = {"ln1": "ln1", "ln2": "ln2"}
COMPRESSOR_NAMES = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_out": "o"}


def lm_tensors(p):
    """(GGUF name, array in GGUF's [out, in] order) of the text model."""
    yield "token_embd.weight", p["emb"]
    yield "output_norm.weight", p["norm"]
    yield "output.weight", p["out"].T
    for i in range(LM["layers"]):
        b = p[f"blk{i}"]
        yield from ((f"blk.{i}.{n}.weight", b[k]) for n, k in LM_NORMS.items())
        yield from ((f"blk.{i}.{n}.weight", b[k].T) for n, k in LM_NAMES.items())


def projector_tensors(vit, proj):
    yield "v.patch_embd.weight", vit["patch"].T.reshape(TOWER["width"], 3, PATCH, PATCH)
    yield "v.position_embd.weight", vit["pos"]
    yield "v.pre_ln.weight", vit["pre_w"]
    yield "v.pre_ln.bias", vit["pre_b"]
    for i in range(TOWER["layers"]):
        b = vit[f"blk{i}"]
        for n, k in TOWER_NORMS.items():
            yield f"v.blk.{i}.{n}.weight", b[k + "_w"]
            yield f"v.blk.{i}.{n}.bias", b[k + "_b"]
        for n, k in TOWER_NAMES.items():
            yield f"v.blk.{i}.{n}.weight", b[k].T
            yield f"v.blk.{i}.{n}.bias", b[k + "b"]
    for j in (0, 2):
        yield f"mm.{j}.weight", proj[f"w{j}"].T
        yield f"mm.{j}.bias", proj[f"b{j}"]


def write(writer, tensors, half):
    """As llama.cpp's converters do: vectors and the position table stay F32."""
    for name, x in tensors:
        keep = not half or x.ndim == 1 or name == "v.position_embd.weight"
        writer.add_tensor(name, np.ascontiguousarray(x, np.float32 if keep else np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_lm(path, p, half):
    w = gguf.GGUFWriter(path, "llama")
    w.add_type("model")
    w.add_name("demo-llava-lm")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    w.add_vocab_size(len(text.VOCAB))
    w.add_context_length(LM["context"])
    w.add_embedding_length(LM["width"])
    w.add_block_count(LM["layers"])
    w.add_feed_forward_length(LM["inner"])
    w.add_head_count(LM["heads"])
    w.add_head_count_kv(LM["heads"])
    w.add_layer_norm_rms_eps(LM["eps"])
    w.add_rope_dimension_count(LM["width"] // LM["heads"])
    w.add_rope_freq_base(LM["theta"])
    w.add_tokenizer_model("llama")  # the SPM kind
    w.add_tokenizer_pre("default")
    w.add_token_list(text.VOCAB)
    w.add_token_scores([0.0] * text.BYTES.stop + [-float(i + 1) for i in range(len(text.VOCAB) - text.BYTES.stop)])
    kind = gguf.TokenType
    normal = len(text.VOCAB) - text.BYTES.stop
    w.add_token_types([kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256 + [kind.NORMAL] * normal)
    w.add_unk_token_id(text.UNK)
    w.add_bos_token_id(text.BOS)
    w.add_eos_token_id(text.EOS)
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(False)  # otherwise every stretch of text gets a space in front
    w.add_chat_template(text.TEMPLATE)
    write(w, lm_tensors(p), half)


def write_projector(path, vit, proj, half):
    w = gguf.GGUFWriter(path, "clip")
    w.add_type("mmproj")
    w.add_name("demo-llava-mmproj")
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    w.add_bool("clip.has_vision_encoder", True)
    w.add_bool("clip.has_llava_projector", True)
    w.add_string("clip.projector_type", "mlp")
    w.add_bool("clip.use_gelu", False)  # quick GELU in the tower
    sizes = {"image_size": SIDE, "patch_size": PATCH, "embedding_length": TOWER["width"], "feed_forward_length": TOWER["inner"],
             "block_count": TOWER["layers"], "projection_dim": LM["width"], "attention.head_count": TOWER["heads"]}
    for k, v in sizes.items():
        w.add_uint32(f"clip.vision.{k}", v)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", TOWER["eps"])
    w.add_array("clip.vision.feature_layer", [TOWER["layers"]])  # without it llama.cpp leaves out the last layer
    w.add_array("clip.vision.image_mean", [float(x) for x in MEAN])
    w.add_array("clip.vision.image_std", [float(x) for x in STD])
    write(w, projector_tensors(vit, proj), half)


def write_compressor(path, p, projector):
    """`projector`: the file whose tokens it was trained on; its XXH3-128 is written down, so that no other is used with it."""
    kind = "llava-compressor"
    w = gguf.GGUFWriter(path, kind)
    w.add_name("demo-llava-compressor")
    sizes = {"n_queries": QUERIES["count"], "n_heads": QUERIES["heads"], "n_embd": LM["width"], "n_input_tokens": PATCHES}
    for k, v in sizes.items():
        w.add_uint32(f"{kind}.{k}", v)
    w.add_float32(f"{kind}.layer_norm_eps", QUERIES["eps"])
    w.add_string("compressor.projector.fingerprint", xxhash.xxh3_128_hexdigest(projector.read_bytes()))
    tensors = [("query", p["query"]), ("norm.weight", p["nw"]), ("norm.bias", p["nb"])]
    for n, k in COMPRESSOR_NAMES.items():
        tensors += [(n + ".weight", p[k].T), (n + ".bias", p[k + "b"])]
    write(w, tensors, half=False)


def read(path):
    """{tensor name: float32 array} of an F16 or F32 GGUF file."""
    return {t.name: np.array(t.data, np.float32) for t in gguf.GGUFReader(path).tensors}


def import_lm(t):
    lm = {"emb": t["token_embd.weight"], "norm": t["output_norm.weight"], "out": t["output.weight"].T}
    for i in range(LM["layers"]):
        b = {k: t[f"blk.{i}.{n}.weight"] for n, k in LM_NORMS.items()}
        lm[f"blk{i}"] = b | {k: t[f"blk.{i}.{n}.weight"].T for n, k in LM_NAMES.items()}
    return lm


def import_projector(u):
    """The tower's patch filters and blocks, and the two matrices behind it."""
    vit = {"patch": u["v.patch_embd.weight"].reshape(TOWER["width"], -1).T}
    for i in range(TOWER["layers"]):
        b = {}
        for n, k in TOWER_NORMS.items():
            b |= {k + "_w": u[f"v.blk.{i}.{n}.weight"], k + "_b": u[f"v.blk.{i}.{n}.bias"]}
        for n, k in TOWER_NAMES.items():
            b |= {k: u[f"v.blk.{i}.{n}.weight"].T, k + "b": u[f"v.blk.{i}.{n}.bias"]}
        vit[f"blk{i}"] = b
    proj = {}
    for j in (0, 2):
        proj |= {f"w{j}": u[f"mm.{j}.weight"].T, f"b{j}": u[f"mm.{j}.bias"]}
    return {"vit": vit, "proj": proj}


def import_model(lm_path, projector_path):
    """The parameters in the two GGUF files, to train on from. The heads used in training only are not among them."""
    u = read(projector_path)
    p = import_projector(u) | {"lm": import_lm(read(lm_path))}
    p["vit"] |= {"pos": u["v.position_embd.weight"], "pre_w": u["v.pre_ln.weight"], "pre_b": u["v.pre_ln.bias"]}
    return p


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--from", dest="state", required=True, help="what train.py saved")
    ap.add_argument("--out", type=Path, required=True, help="folder of the GGUF files")
    ap.add_argument("--type", choices=["f16", "f32"], default="f16")
    ap.add_argument("--projector", type=Path, help="of a compressor: the projector file it is for")
    ap.add_argument("--family", choices=["llava", "qwen2vl"], default="llava")
    args = ap.parse_args()
    params = load(args.state)["params"]
    args.out.mkdir(parents=True, exist_ok=True)
    if "compressor" in params:
        write_compressor(args.out / "demo-compressor-f32.gguf", params["compressor"], args.projector)
    elif args.family == "qwen2vl":
        import second  # it takes its tensor names from here

        second.write(args.out, params, args.type == "f16")
    else:
        half = args.type == "f16"
        write_lm(args.out / f"demo-lm-{args.type}.gguf", params["lm"], half)
        write_projector(args.out / f"demo-mmproj-{args.type}.gguf", params["vit"], params["proj"], half)
    for f in sorted(args.out.glob("*.gguf")):
        print(f.name, f.stat().st_size)


if __name__ == "__main__":
    main()
