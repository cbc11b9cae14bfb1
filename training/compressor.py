"""The compressor's start and loss: 64 learned queries read 196 visual tokens of the frozen model."""
import math

import jax
import jax.numpy as jnp
import numpy as np

import model
from data import GRID, PATCHES


def pooling(k):
    """[k * k, 196]: the mean over cells of a k x k grid, cells overlap where 14 / k is not whole (adaptive average pooling)."""
    m = np.zeros((k, GRID), np.float32)
    for i in range(k):
        lo, hi = i * GRID // k, -(-(i + 1) * GRID // k)
        m[i, lo:hi] = 1 / (hi - lo)
    return np.kron(m, m)


def start(visual, sigma=0.9, small=0.05):
    """Query i starts as a Gaussian window (`sigma` patches) at its cell of an 8 x 8 grid; values pass through.

    A ridge probe reads row, column and their squares off the tokens [N, 196, 160]; key and query are set so that the logit is
    minus the squared distance, up to a constant. The LayerNorm is fitted to the pooled tokens, whose norms it would erase."""
    d, heads = model.LM["width"], model.QUERIES["heads"]
    size, side, n = d // heads, model.QUERIES["side"], model.QUERIES["count"]
    x = visual.reshape(-1, d).astype(np.float64)
    mean = x.mean(0)
    middle = (GRID - 1) / 2
    place = np.tile(np.stack(np.divmod(np.arange(PATCHES), GRID), 1), (len(visual), 1)) - middle
    aim = np.concatenate([place, (place**2).sum(1, keepdims=True) - 32.5], 1) / [4.0, 4.0, 20.0]
    c = x - mean
    probe = np.linalg.solve(c.T @ c + 1e-3 * len(x) * np.eye(d) * c.var(), c.T @ aim)
    print("position probe, R2 of row, column, square:", (1 - ((c @ probe - aim) ** 2).mean(0) / aim.var(0)).round(3), flush=True)
    r = np.random.default_rng(5)
    p = {k: np.zeros(d) for k in ("qb", "kb", "vb", "ob", "nb")} | {"nw": np.ones(d), "v": np.eye(d), "o": np.eye(d)}
    p |= {"query": r.normal(0, 0.01, (n, d)), "q": r.normal(0, 0.01, (d, d)), "k": r.normal(0, 0.01, (d, d))}
    line = (np.arange(side) + 0.5) * GRID / side - 0.5 - middle
    p["query"][:, :2] = small * np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2) / 4
    s = math.sqrt(size) / sigma**2  # undoes the attention's scale
    for b in range(0, d, size):
        p["k"][:, b : b + 3], p["kb"][b : b + 3] = probe, -(mean @ probe)
        p["q"][0, b], p["q"][1, b + 1], p["qb"][b + 2] = s * 16 / small, s * 16 / small, -s * 10.0
    pooled = pooling(side) @ visual
    normal = (pooled - pooled.mean(-1, keepdims=True)) / pooled.std(-1, keepdims=True)
    f, g = normal.reshape(-1, d), pooled.reshape(-1, d)
    p["nw"] = ((f - f.mean(0)) * (g - g.mean(0))).mean(0) / f.var(0)
    p["nb"] = g.mean(0) - p["nw"] * f.mean(0)
    return {k: v.astype(np.float32) for k, v in p.items()}


def loss(p, frozen, b):
    """Cross-entropy of the answer plus the divergence from the answer distribution at all tokens."""
    visual = model.project(frozen["proj"], b["x"].astype(jnp.float32))
    ask = lambda v: model.decode(frozen["lm"], v, b["token"], b["segment"], b["rows"])[0]
    full = jax.lax.stop_gradient(jax.nn.log_softmax(ask(visual)))
    logits = ask(model.compress(p["compressor"], visual))
    answer = model.answer_loss(logits, b["want"], b["valid"])
    kl = (jnp.exp(full) * (full - jax.nn.log_softmax(logits))).sum(-1)
    kl = (kl * b["valid"]).sum() / b["valid"].sum()
    return answer + kl, {"answer": answer, "kl": kl}
