"""Trains one stage and saves its state so that the same command goes on after a stop.

    python train.py tower      --state tower.npz --steps 3000
    python train.py vlm        --state vlm.npz --from tower.npz --steps 20000
    python train.py vlm        --state head.npz --from vlm.npz --freeze --steps 20000
    python train.py compressor --state compressor.npz --from head.npz --steps 400

`--from-gguf LM MMPROJ` starts from exported files instead of `--from`. The learning rate warms up, stays, and falls to zero over
the last `--decay` steps, or from the moment the file `--decay-file` appears. While the file `--pause-file` exists nothing runs.
"""
import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np

import check
import compressor
import model
import second
from export import import_model
from feed import Feed, TowerFeed
from store import load, save


def update(params, moments, grads, lr, t, rates, decay):
    """AdamW with the gradient's norm clipped to 1; vectors do not decay. `rates`: factors per top-level key."""
    norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, 1.0 / (norm + 1e-9))
    b1, b2 = 0.9, 0.98

    def one(rate, p, m, v, g):
        g = g * scale
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        step = (m / (1 - b1**t)) / (jnp.sqrt(v / (1 - b2**t)) + 1e-8)
        return p - lr * rate * (step + (decay * p if p.ndim > 1 else 0.0)), m, v

    out = {}
    for key, p in params.items():
        out[key] = jax.tree.map(lambda *x, r=rates.get(key, 1.0): one(r, *x), p, moments["m"][key], moments["v"][key], grads[key])
    part = lambda i: jax.tree.map(lambda x: x[i], out, is_leaf=lambda x: isinstance(x, tuple))
    return part(0), {"m": part(1), "v": part(2)}, norm


class Schedule:
    """Warm-up, constant, linear fall to zero over `--decay` steps, or seconds where the end of the time is what is known."""

    def __init__(self, args, began=-1, length=None):
        self.args, self.began, self.length = args, began, length or args.decay

    def rate(self, step):
        """The learning rate of a step; None after the last."""
        a = self.args
        now = time.time() if a.decay_seconds else step
        asked = a.decay_file and os.path.exists(a.decay_file)
        if self.began < 0 and (asked or (not a.decay_seconds and step >= a.steps - self.length)):
            self.began = now
            if asked:
                self.length = int(open(a.decay_file).read().strip() or self.length)
        left = 1.0 if self.began < 0 else 1 - (now - self.began) / self.length
        if step >= a.steps or left <= 0:
            return None
        return a.lr * min(1.0, (step + 1) / a.warm) * left


def tower_notes(right):
    """How often the dense heads name what a patch shows (background left out)."""
    names = ["what", "colour", "row", "column", "count"]
    return {n: right[j] for j, n in enumerate(names)} | {"neighbour": right[6:].mean()}


def tower_stage(args, start):
    params = {"vit": start["vit"], "aux": start["aux"]}

    def loss(p, frozen, b):
        features = args.family.tower(p["vit"], b["x"])
        total, right = model.dense_loss(p["aux"], features, b["labels"], args.weights)
        return total, {"loss": total} | tower_notes(right)

    return params, {}, loss, lambda first: TowerFeed(args, first), {}


def vlm_stage(args, start):
    trained = ("proj", "lm", "aux") if args.freeze else ("vit", "proj", "lm", "aux")
    params = {k: start[k] for k in trained}
    frozen = {} if not args.freeze else {"vit": start["vit"]}

    def loss(p, frozen, b):
        family = args.family if args.freeze else args.family.sized(b["x"])
        features = b["x"].astype(jnp.float32) if args.freeze else family.tower(p["vit"], b["x"])
        dense, right = model.dense_loss(p["aux"], features, b["labels"])
        visual = family.project(p["proj"], features)
        logits, looks = model.decode(p["lm"], visual, b["token"], b["segment"], b["rows"], b["shift"], family)
        answer = model.answer_loss(logits, b["want"], b["valid"])
        pointing, counting = model.pointing_loss(looks, b["owner"], b["point"], family)
        total = answer + args.point * pointing + args.count * counting + args.dense * dense
        notes = {"answer": answer, "pointing": pointing, "counting": counting, "dense": dense} | tower_notes(right)
        return total + 0.02 * model.position_loss(p["aux"], visual, family), notes

    features = jax.jit(lambda u8: args.family.tower(start["vit"], u8)) if args.freeze else None
    rates = {"vit": args.tower_rate, "aux": 0.5}
    return params, frozen, loss, lambda first: Feed(args, first, args.family.dialect, features), rates


def compressor_stage(args, start):
    features = jax.jit(lambda u8: args.family.tower(start["vit"], u8))
    sample = Feed(args, 0, model.VICUNA).new(384)
    visual = args.family.project(start["proj"], features(np.stack([s.image for s in sample])))
    params = {"compressor": compressor.start(np.asarray(visual))}
    frozen = {k: start[k] for k in ("proj", "lm")}
    return params, frozen, compressor.loss, lambda first: Feed(args, first, args.family.dialect, features), {}


STAGES = {"tower": tower_stage, "vlm": vlm_stage, "compressor": compressor_stage}


def borrow(start, other):
    """`start` with what `other` has under the same name: whole where the shapes agree, the beginning where one has more words."""
    if isinstance(start, dict):
        return {k: borrow(v, other[k]) if k in other else v for k, v in start.items()}
    if start.shape == other.shape:
        return other
    wide = [(a, b) for a, b in zip(start.shape, other.shape) if a != b]
    if start.ndim != other.ndim or len(wide) != 1 or wide[0][0] < wide[0][1]:
        return start
    out = np.array(start)
    out[tuple(slice(n) for n in other.shape)] = other
    return out


def starting_point(args):
    read = import_model if args.family is model.LLAVA else second.import_model
    start = read(*args.from_gguf) if args.from_gguf else args.family.init(args.seed)
    if args.borrow:
        start = borrow(start, second.lend(import_model(*args.borrow)))
    for path in args.start:
        start |= load(path)["params"]
    start["aux"] = model.heads_up(start.get("aux", {}))
    return jax.tree.map(jnp.asarray, start)


def run(args):
    params, frozen, loss, make_feed, rates = STAGES[args.stage](args, starting_point(args))
    moments = {k: jax.tree.map(jnp.zeros_like, params) for k in "mv"}
    step, seen, schedule = 0, args.first, Schedule(args)
    if os.path.exists(args.state):
        state = load(args.state)
        params, moments = (jax.tree.map(jnp.asarray, state[k]) for k in ("params", "moments"))
        frozen = {k: params.pop(k) for k in frozen}
        step, seen, began, length = (int(v) for v in state["progress"])
        schedule = Schedule(args, began, length)

    @jax.jit
    def train_step(params, moments, frozen, batch, lr, t):
        (_, notes), grads = jax.value_and_grad(loss, has_aux=True)(params, frozen, batch)
        params, moments, norm = update(params, moments, grads, lr, t, rates, 0.0 if args.stage == "compressor" else 0.05)
        return params, moments, notes | {"norm": norm}

    def keep():
        progress = np.array([step, feed.next, int(schedule.began), schedule.length])
        save(args.state, {"params": params | frozen, "moments": moments, "progress": progress})

    feed = make_feed(seen)
    notes, began, saved, tried = [], time.time(), time.time(), time.time() if step else 0
    while True:
        while args.pause_file and os.path.exists(args.pause_file):
            time.sleep(1)
            schedule.began += args.decay_seconds and schedule.began >= 0  # a pause is not training time
        lr = schedule.rate(step)
        if lr is None:
            break
        params, moments, note = train_step(params, moments, frozen, feed.batch(), lr, step + 1.0)
        notes.append(note)
        step += 1
        if step % args.log == 0:
            mean = {k: np.mean([float(n[k]) for n in notes]) for k in notes[0]}
            print(f"{step} {time.time() - began:.0f}s lr {lr:.2e}", *(f"{k} {v:.4f}" for k, v in mean.items()), flush=True)
            notes = []
        if time.time() - saved > args.save_every:
            keep()
            saved = time.time()
        if args.stage == "vlm" and time.time() - tried > args.try_every:
            print(step, "held out", check.accuracy(args.family, params | frozen, args.n, args.eval_stream), flush=True)
            tried = time.time()
    keep()
    if args.stage == "vlm":
        print(step, "held out", check.accuracy(args.family, params | frozen, args.n, args.eval_stream), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("stage", choices=STAGES)
    ap.add_argument("--state", required=True, help="file to save to, and to go on from where it exists")
    ap.add_argument("--from", dest="start", nargs="+", default=[], help="states of earlier stages, the last one wins")
    ap.add_argument("--from-gguf", nargs=2, metavar=("LM", "MMPROJ"))
    ap.add_argument("--borrow", nargs=2, metavar=("LM", "MMPROJ"),
                    help="files of the first model: the second one takes over what fits, all but places and projector")
    ap.add_argument("--family", choices=second.FAMILIES, default="llava")
    ap.add_argument("--freeze", action="store_true", help="vlm: leave the tower as it is")
    ap.add_argument("--steps", type=int, required=True)
    ap.add_argument("--decay", type=int, default=600, help="steps over which the learning rate falls to zero")
    ap.add_argument("--decay-seconds", action="store_true", help="--decay and --decay-file speak of seconds")
    ap.add_argument("--warm", type=int, default=100)
    ap.add_argument("--batch", type=int, default=16, help="pictures a step")
    ap.add_argument("--lr", type=float, default=1.5e-3)
    ap.add_argument("--mix", type=lambda s: [float(v) for v in s.split(",")], default=[0.35, 0.25, 0.28, 0.12],
                    help="shares of scenes, counting pictures, tables, words")
    ap.add_argument("--soup", type=float, default=0.5, help="tower: share of soup pictures")
    ap.add_argument("--weights", type=lambda s: [float(v) for v in s.split(",")], default=[2.0, 4.0, 0.5, 1.0],
                    help="tower: weights of what is here, the count, the neighbours, the other labels")
    ap.add_argument("--point", type=float, default=0.1, help="vlm: weight of the supervised attention")
    ap.add_argument("--count", type=float, default=0.5, help="vlm: the same for counts")
    ap.add_argument("--tower-rate", type=float, default=0.35, help="vlm: factor on the learning rate of the tower")
    ap.add_argument("--dense", type=float, default=0.06, help="vlm: weight of the dense targets where the tower is trained")
    ap.add_argument("--jitter", type=float, default=0.5, help="vlm: share of questions with shifted positions")
    ap.add_argument("--widen", type=float, default=0.0, help="qwen2vl: share of steps with wide or tall canvases")
    ap.add_argument("--keep", type=int, default=6000, help="pictures in the replay store")
    ap.add_argument("--fresh", type=int, default=4, help="new pictures a step once the store is full")
    ap.add_argument("--first", type=int, default=0, help="number of the first training picture")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--log", type=int, default=50)
    ap.add_argument("--save-every", type=float, default=180, metavar="SECONDS")
    ap.add_argument("--try-every", type=float, default=900, metavar="SECONDS", help="vlm: accuracy on held-out pictures")
    ap.add_argument("--n", type=int, default=60, help="held-out pictures a task")
    ap.add_argument("--eval-stream", type=int, default=98, help="seed stream of these; the reported results use another")
    ap.add_argument("--pause-file")
    ap.add_argument("--decay-file", help="starts the decay; may hold its length")
    args = ap.parse_args()
    args.family = second.FAMILIES[args.family]
    run(args)


if __name__ == "__main__":
    main()
