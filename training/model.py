"""The networks in JAX: vision tower, projector, text decoder, compressor. Matrices are stored [in, out].

Arithmetic follows what llama.cpp does with the exported files: same normalisation, GELU kinds, RoPE order, masks.
"""
import math

import jax
import jax.numpy as jnp
import numpy as np

from data import GRID, LABELS, PATCH, PATCHES
from text import COUNTS, VICUNA, VOCAB

TOWER = {"width": 128, "heads": 4, "layers": 4, "inner": 512, "eps": 1e-5}
LM = {"width": 160, "heads": 5, "layers": 4, "inner": 416, "eps": 1e-5, "theta": 10000.0, "context": 2048}
HEAD = LM["width"] // LM["heads"]
QUERIES = {"count": 64, "side": 8, "heads": 8, "eps": 1e-5}
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
SINK, OBJECTS = 6.0, 16  # parts of attention on `<s>` when counting; most objects, letters or cells of a picture


def heads_up(params):
    """Linear heads used in training only: dense targets on the tower, a position probe on projected tokens."""
    r = np.random.default_rng(1)
    n, d, e = sum(LABELS), TOWER["width"], LM["width"]
    return {"w": matrix(r, d, n, 0.3), "b": np.zeros(n, np.float32),
            "pw": matrix(r, e, 2 * GRID, 0.3), "pb": np.zeros(2 * GRID, np.float32)} | params


def matrix(r, i, o, scale=1.0):
    return (r.normal(0, 1, (i, o)) * scale / math.sqrt(i)).astype(np.float32)


def init(seed=0):
    """Parameters before any training."""
    r = np.random.default_rng(seed)
    zeros, ones = (lambda *n: np.zeros(n, np.float32)), (lambda *n: np.ones(n, np.float32))
    d, f, e, h, v = TOWER["width"], TOWER["inner"], LM["width"], LM["inner"], len(VOCAB)
    vit = {"patch": matrix(r, 3 * PATCH * PATCH, d), "pos": r.normal(0, 0.3, (PATCHES, d)).astype(np.float32),
           "pre_w": ones(d), "pre_b": zeros(d)}
    for i in range(TOWER["layers"]):
        block = {"ln1_w": ones(d), "ln1_b": zeros(d), "ln2_w": ones(d), "ln2_b": zeros(d)}
        for n, a, b, s in (("q", d, d, 1), ("k", d, d, 1), ("v", d, d, 1), ("o", d, d, 0.5),
                           ("up", d, f, 1), ("down", f, d, 0.5)):
            block |= {n: matrix(r, a, b, s), n + "b": zeros(b)}
        vit[f"blk{i}"] = block
    tower_prior(vit, r)
    proj = {"w0": matrix(r, d, e), "b0": zeros(e), "w2": matrix(r, e, e), "b2": zeros(e)}
    lm = {"emb": r.normal(0, 0.5, (v, e)).astype(np.float32), "norm": ones(e), "out": matrix(r, e, v)}
    for i in range(LM["layers"]):
        lm[f"blk{i}"] = {"n1": ones(e), "n2": ones(e)} | {
            n: matrix(r, a, b, s) for n, a, b, s in (("q", e, e, 1), ("k", e, e, 1), ("v", e, e, 1), ("o", e, e, 0.5),
                                                     ("gate", e, h, 1), ("up", e, h, 1), ("down", h, e, 0.5))}
    return {"vit": vit, "proj": proj, "lm": lm, "aux": heads_up({})}


def tower_prior(vit, r):
    """A convolution-like start: DCT patch filters in 96 channels, sine and cosine position codes in the other 32, and heads of
    the first three layers that look at a fixed neighbouring patch. Only a start; everything is trained."""
    n = np.arange(PATCH)

    def wave(k):
        return np.cos(math.pi * (n + 0.5) * k / PATCH) * math.sqrt((2 if k else 1) / PATCH)

    filters = []
    mixes = [0.577] * 3, [0.707, -0.707, 0], [0.408, 0.408, -0.816]  # brightness, red-green, yellow-blue
    for mix, k in zip(mixes, (8, 4, 4)):
        filters += [np.einsum("c,y,x->cyx", mix, wave(i), wave(j)).ravel() * (0.1 if i + j == 0 else 0.6)
                    for i in range(k) for j in range(k)]
    patch = np.concatenate([np.zeros((32, 768)), filters]).T
    rate = math.pi * (np.arange(8) + 0.5) / 8
    phase = np.arange(GRID)[:, None] * rate
    code = np.stack([np.cos(phase), np.sin(phase)], -1).reshape(GRID, 16)  # code(a) . code(b) is near 8 for a = b, else small
    pos = np.zeros((PATCHES, TOWER["width"]))
    pos[:, :16], pos[:, 16:32] = np.repeat(code, GRID, 0), np.tile(code, (GRID, 1))
    vit["patch"] = (patch + r.normal(0, 0.002, patch.shape)).astype(np.float32)
    vit["pos"] = (pos + r.normal(0, 0.02, pos.shape)).astype(np.float32)
    steps = [[(-1, 0), (1, 0), (0, -1), (0, 1)], [(-1, -1), (-1, 1), (1, -1), (1, 1)], [(0, -1), (0, 1)]]
    for i, offsets in enumerate(steps):
        for h, offset in enumerate(offsets):
            turn, columns = np.zeros((32, 32)), slice(32 * h, 32 * h + 32)
            for axis in (0, 1):
                for k in range(8):
                    t, b = rate[k] * offset[axis], 16 * axis + 2 * k
                    turn[b : b + 2, b : b + 2] = [[math.cos(t), math.sin(t)], [-math.sin(t), math.cos(t)]]
            for m, start in (("q", turn), ("k", np.eye(32))):
                vit[f"blk{i}"][m][:, columns] *= 0.25
                vit[f"blk{i}"][m][:32, columns] = 1.25 * start


def layer_norm(x, w, b, eps):
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + eps) * w + b


def rms_norm(x, w):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + LM["eps"]) * w


def attend(q, k, v, mask=None, weights=False):
    """Softmax attention of [B, T, heads, size]; `mask` broadcasts to [B, 1, Tq, Tk]. With `weights` also [B, heads, Tq, Tk].

    The normaliser is applied after the product with the values, which is faster on a CPU than a softmax before it."""
    q, k, v = (x.transpose(0, 2, 1, 3) for x in (q * q.shape[-1] ** -0.5, k, v))
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k)
    if mask is not None:
        s = s + jnp.where(mask, 0.0, -1e9)
    e = jnp.exp(s - jax.lax.stop_gradient(s.max(-1, keepdims=True)))
    total = e.sum(-1, keepdims=True)
    out = (jnp.einsum("bhqk,bhkd->bhqd", e, v) / total).transpose(0, 2, 1, 3)
    return (out, e / total) if weights else out


def pixels(u8):
    """uint8 [B, 224, 224, 3] -> patch rows [B, 196, 768] in channel, y, x order."""
    x = (u8.astype(jnp.float32) / 255.0 - MEAN) / STD
    x = x.reshape(-1, GRID, PATCH, GRID, PATCH, 3).transpose(0, 1, 3, 5, 2, 4)
    return x.reshape(-1, PATCHES, 3 * PATCH * PATCH)


def tower(p, u8):
    """Pictures -> features [B, 196, 128]: pre-norm blocks, quick GELU, no class token, no norm at the end."""
    x = layer_norm(pixels(u8) @ p["patch"] + p["pos"], p["pre_w"], p["pre_b"], TOWER["eps"])
    split = x.shape[:2] + (TOWER["heads"], TOWER["width"] // TOWER["heads"])
    for i in range(TOWER["layers"]):
        b = p[f"blk{i}"]
        y = layer_norm(x, b["ln1_w"], b["ln1_b"], TOWER["eps"])
        q, k, v = ((y @ b[n] + b[n + "b"]).reshape(split) for n in "qkv")
        x = x + attend(q, k, v).reshape(x.shape) @ b["o"] + b["ob"]
        y = layer_norm(x, b["ln2_w"], b["ln2_b"], TOWER["eps"]) @ b["up"] + b["upb"]
        x = x + (y * jax.nn.sigmoid(1.702 * y)) @ b["down"] + b["downb"]
    return x


def project(p, x):
    return jax.nn.gelu(x @ p["w0"] + p["b0"], approximate=True) @ p["w2"] + p["b2"]


def rope(x, pos):
    """Rotates the adjacent pairs (0, 1), (2, 3), ... by positions [B, T, 1]: the kind `llama` uses in GGUF."""
    a = pos * (LM["theta"] ** (-np.arange(0, HEAD, 2) / HEAD)).astype(np.float32)
    c, s = jnp.cos(a)[..., None, :], jnp.sin(a)[..., None, :]
    x = x.reshape(x.shape[:-1] + (-1, 2))
    x0, x1 = x[..., 0], x[..., 1]
    return jnp.stack([x0 * c - x1 * s, x0 * s + x1 * c], -1).reshape(x.shape[:-2] + (-1,))


def decode(p, visual, token, segment, rows, shift=0, family=None):
    """Logits [B, A, vocabulary] at the text positions `rows` [B, A], and the last layer's attention [B, heads, A, prefix].

    `visual` [B, N, 160] is followed by packed text segments [B, T]; each sees the prefix and its own past, and its positions
    restart behind the picture (plus `shift`). The picture is causal, as in llama.cpp. `family`: see `Llava`."""
    family, (batch, n), t = family or LLAVA, visual.shape[:2], token.shape[1]
    ids, rotate = np.array(family.dialect.prefix), family.rotate
    place, behind = family.places(n)
    prefix = len(place)
    start = jnp.broadcast_to(p["emb"][ids], (batch, len(ids), LM["width"]))
    index = jnp.arange(t)
    same = segment[:, :, None] == segment[:, None, :]
    pos_text = (behind + index - same.argmax(-1) + shift).astype(jnp.float32)[..., None]
    pos_text = jnp.broadcast_to(pos_text, pos_text.shape[:2] + place.shape[1:])
    pos = jnp.concatenate([jnp.broadcast_to(jnp.asarray(place, jnp.float32), (batch,) + place.shape), pos_text], 1)
    own = same & (index[None, :, None] >= index[None, None, :])
    mask_text = jnp.concatenate([jnp.ones((batch, t, prefix), bool), own], -1)[:, None]
    mask_prefix = jnp.tril(jnp.ones((prefix, prefix), bool))[None, None]
    h = jnp.concatenate([start, visual, p["emb"][token]], 1)

    def split(y, b, name):
        y = (y.reshape(-1, LM["width"]) @ b[name]).reshape(y.shape[:2] + (-1,)) + b.get(name + "b", 0.0)
        return y.reshape(y.shape[:2] + (LM["heads"], HEAD))

    for i in range(LM["layers"]):
        b = p[f"blk{i}"]
        y = rms_norm(h, b["n1"])
        k, v = rotate(split(y, b, "k"), pos), split(y, b, "v")
        if i < LM["layers"] - 1:
            q = rotate(split(y, b, "q"), pos)
            a = jnp.concatenate([attend(q[:, :prefix], k[:, :prefix], v[:, :prefix], mask_prefix),
                                 attend(q[:, prefix:], k, v, mask_text)], 1)
        else:  # only the asked-for rows are needed from here on
            pick = lambda x: jnp.take_along_axis(x, rows.reshape(rows.shape + (1,) * (x.ndim - 2)), 1)
            h, q = pick(h[:, prefix:]), rotate(split(pick(y[:, prefix:]), b, "q"), pick(pos[:, prefix:]))
            a, looks = attend(q, k, v, jnp.take_along_axis(mask_text, rows[:, None, :, None], 2), weights=True)
        h = h + a.reshape(a.shape[:2] + (-1,)) @ b["o"]
        y = rms_norm(h, b["n2"]).reshape(-1, LM["width"])  # as one matrix: its gradient is a third cheaper on a CPU
        h = h + ((jax.nn.silu(y @ b["gate"]) * (y @ b["up"])) @ b["down"]).reshape(h.shape)
    return rms_norm(h, p["norm"]) @ p["out"], looks[..., :prefix]


class Llava:
    """What differs between the models: tower and projector, template, positions. `second.Qwen2vl` is the other one."""
    dialect, init, across = VICUNA, staticmethod(init), GRID
    tower, project, rotate = staticmethod(tower), staticmethod(project), staticmethod(rope)

    @staticmethod
    def places(n):
        """Positions [T, axes] of template and `n` visual tokens, and the position of the first token behind them."""
        end = len(VICUNA.prefix) + n
        return np.arange(end)[:, None], end

    def sized(self, u8):
        """The family for pictures of this size; there is one size here."""
        return self

    @staticmethod
    def pool(owners):
        """Shares of objects in patches [B, 196, objects] -> in visual tokens."""
        return owners


LLAVA = Llava()


def compress(p, visual):
    """[B, 196, 160] -> [B, 64, 160]: LayerNorm(query + attention(query, visual)), heads as in torch's MultiheadAttention."""
    split = lambda x: x.reshape(x.shape[:-1] + (QUERIES["heads"], LM["width"] // QUERIES["heads"]))
    q = split(jnp.broadcast_to(p["query"] @ p["q"] + p["qb"], (visual.shape[0], QUERIES["count"], LM["width"])))
    a = attend(q, split(visual @ p["k"] + p["kb"]), split(visual @ p["v"] + p["vb"]))
    out = a.reshape(a.shape[:2] + (-1,)) @ p["o"] + p["ob"]
    return layer_norm(p["query"] + out, p["nw"], p["nb"], QUERIES["eps"])


def cross_entropy(logits, label):
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, label[..., None], -1)[..., 0]


def dense_loss(p, features, labels, weights=(2.0, 2.0, 0.5, 1.0)):
    """Per-patch targets; `weights` of what is here, the count, the neighbours, the others. Returns loss and accuracies."""
    out, loss, at, right = features @ p["w"] + p["b"], 0.0, 0, []
    for j, n in enumerate(LABELS):
        label = labels[:, :, j].astype(jnp.int32)
        logits = out[..., at : at + n]
        w = (label >= 0) * jnp.where(label > 0, 1.0, 0.12 if j < 6 else 1.0)  # most of a picture is background
        ce = cross_entropy(logits, jnp.maximum(label, 0))
        loss += (ce * w).sum() / (w.sum() + 1.0) * weights[0 if j == 0 else 1 if j == 4 else 2 if j > 5 else 3]
        asked = label > 0
        right.append(((logits.argmax(-1) == label) & asked).sum() / (asked.sum() + 1e-9))
        at += n
    return loss, jnp.stack(right)


def position_loss(p, visual, family):
    """Keeps a token's row and column linearly readable, which the compressor's start needs."""
    out = (visual @ p["pw"] + p["pb"]).reshape(visual.shape[:2] + (2, GRID))
    where = np.stack(np.divmod(np.arange(visual.shape[1]), family.across), -1)
    return cross_entropy(out, jnp.broadcast_to(where, visual.shape[:2] + (2,))).mean()


def answer_loss(logits, want, valid):
    return (cross_entropy(logits, want) * valid).sum() / valid.sum()


def pointing_loss(looks, owner, point, family):
    """Supervised attention of the last layer, at answer tokens that speak of objects (`point` bits).

    They shall look at the objects' patches. For a count every head shall give each object one part, spread over its patches as it
    likes, and `<s>` `SINK` parts, so that the share on the picture tells the number.
    `looks` [B, heads, A, prefix] from `decode`; `owner` [B, 196]; `point` [B, A]. Returns both losses."""
    bits = 1 << jnp.arange(OBJECTS)
    tokens = family.pool((owner[..., None] == 1 + jnp.arange(OBJECTS)).astype(jnp.float32))
    asked = ((point[..., None] & bits) != 0)[:, None]  # [B, 1, A, objects]
    mass = jnp.einsum("bhap,bpo->bhao", looks[..., -tokens.shape[1] :], tokens)
    counts = (point & COUNTS) != 0
    speaks = asked.any(-1)[:, 0] & ~counts
    pointing = (-jnp.log((mass * asked).sum(-1).mean(1) + 1e-4) * speaks).sum() / (speaks.sum() + 1e-9)
    n, sink, log = asked.sum(-1), jnp.log(looks[..., 0] + 1e-6), jnp.log(mass + 1e-6)
    entropy = (SINK * jnp.log(SINK + n) - SINK * math.log(SINK) + n * jnp.log(SINK + n)) / (SINK + n)
    gap = -(SINK * sink + (log * asked).sum(-1)) / (SINK + n) - entropy
    total = jnp.log((mass * asked).sum(-1) + 1e-6)
    off = jnp.abs(n * (total - sink - jnp.log(jnp.maximum(n, 1) / SINK)))  # about how far the number is from right
    counting = (gap + jnp.where(off < 1, 0.5 * off * off, off - 0.5)).mean(1)
    return pointing, (counting * counts).sum() / (counts.sum() + 1e-9)
