"""What the trained model is worth, and whether llama.cpp gives the same answers.

    python check.py accuracy --state vlm.npz --n 500 [--compressor compressor.npz]
    python check.py samples  --state vlm.npz --n 20 --out DIR
    python check.py cli      --samples DIR --cli llava-cli --lm demo-lm-f16.gguf --mmproj demo-mmproj-f16.gguf
    python check.py untrained --out DIR [--length 16]      the second model, before training
"""
import argparse
import json
import math
import subprocess
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import compressor
import data
import model
import second
import text
from store import load

WIDTH, ANSWER = 112, 72


def items(n, stream):
    """[(task, picture, question)]: n a task."""
    return [(t, *data.held_out(t, i, stream)) for t in data.TASKS for i in range(n)]


@partial(jax.jit, static_argnums=0)
def see(family, params, u8):
    return family.project(params["proj"], family.tower(params["vit"], u8))


@partial(jax.jit, static_argnums=0)
def right(family, lm, visual, token, segment, target):
    """Whether each row's answer, end included, is what greedy decoding gives."""
    at = jnp.argsort(-target, axis=1, stable=True)[:, :ANSWER]
    valid = jnp.take_along_axis(target, at, 1)
    logits, _ = model.decode(lm, visual, token, segment, jnp.maximum(at - 1, 0), family=family)
    return ((logits.argmax(-1) == jnp.take_along_axis(token, at, 1)) | (valid == 0)).all(1)


def variants(family, c=None):
    """Name -> what is done with the visual tokens. The blind one sees the mean of the batch's tokens at every place."""
    out = {"full": lambda v: v, "blind": lambda v: jnp.broadcast_to(v.mean((0, 1)), v.shape)}
    for k in (8, 7, 4) if family is model.LLAVA else ():
        out[f"pool {k}x{k}"] = lambda v, m=compressor.pooling(k): m @ v
    if c is not None:
        out["learned 64"] = lambda v: model.compress(c, v)
    return out


def correct(family, params, n, stream, chosen, size=40):
    """{variant: bool [tasks, n]}."""
    todo = items(n, stream)
    result = {name: [] for name in chosen}
    for i in range(0, len(todo), size):
        part = todo[i : i + size]
        part += [part[-1]] * (size - len(part))  # one shape, one compilation
        visual = see(family, params, np.stack([x[1] for x in part]))
        rows = text.single([x[2] for x in part], family.dialect, WIDTH)
        for name, f in chosen.items():
            result[name].append(np.asarray(right(family, params["lm"], f(visual), *rows)))
    return {k: np.concatenate(v)[: len(todo)].reshape(len(data.TASKS), n) for k, v in result.items()}


def accuracy(family, params, n, stream):
    """One line: percent right per task and their mean."""
    r = correct(family, {k: params[k] for k in ("vit", "proj", "lm")}, n, stream, {"full": lambda v: v})["full"].mean(1) * 100
    return " ".join(f"{t} {v:.1f}" for t, v in zip(data.TASKS, r)) + f" mean {r.mean():.1f} (n = {n})"


def wilson(k, n, z=1.96):
    """95 % interval of a share, in percent."""
    p, d = k / n, 1 + z * z / n
    middle, half = (p + z * z / (2 * n)) / d, z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
    return 100 * (middle - half), 100 * (middle + half)


def print_table(args):
    params = load(args.state)["params"]
    c = load(args.compressor)["params"]["compressor"] if args.compressor else None
    family = second.FAMILIES[args.family]
    result = correct(family, {k: params[k] for k in ("vit", "proj", "lm")}, args.n, args.stream, variants(family, c))
    print(f"Right answers in % (95 % interval), {args.n} held-out pictures a task.\n")
    print("| visual tokens | " + " | ".join(data.TASKS) + " | mean |")
    print("|---" * (len(data.TASKS) + 2) + "|")
    for name, r in result.items():
        cells = [f"{100 * k / args.n:.1f} ({lo:.1f}-{hi:.1f})" for k in r.sum(1) for lo, hi in [wilson(k, args.n)]]
        print(f"| {name} | " + " | ".join(cells) + f" | {100 * r.mean():.1f} |")


def greedy(family, params, pictures, questions, steps=ANSWER):
    """Greedy answers, spaces around them removed."""
    visual = see(family, params, np.stack(pictures))
    prompts = [family.dialect.prompt(q.text) for q in questions]
    token, n = np.zeros((len(prompts), WIDTH), np.int32), np.array([len(p) for p in prompts])
    for row, p in zip(token, prompts):
        row[: len(p)] = p
    start, done, each = n.copy(), np.zeros(len(n), bool), np.arange(len(n))
    ask = jax.jit(lambda lm, v, t, one, at: model.decode(lm, v, t, one, at, family=family)[0][:, 0].argmax(-1))
    for _ in range(steps):
        best = np.asarray(ask(params["lm"], visual, token, np.ones_like(token), (n - 1)[:, None]))
        done |= (best == family.dialect.end) | (n >= WIDTH - 1)
        if done.all():
            break
        token[each[~done], n[~done]] = best[~done]
        n += ~done
    return [text.decode(t[a:b]).strip() for t, a, b in zip(token, start, n)]


def write_samples(args):
    params = load(args.state)["params"]
    params = {k: params[k] for k in ("vit", "proj", "lm")}
    args.out.mkdir(parents=True, exist_ok=True)
    todo, lines, family = items(args.n, args.stream), [], second.FAMILIES[args.family]
    for i in range(0, len(todo), 20):
        part = todo[i : i + 20]
        answers = greedy(family, params, [x[1] for x in part], [x[2] for x in part])
        for j, ((task, picture, q), got) in enumerate(zip(part, answers), i):
            name = f"{task}-{j % args.n:03d}.png"
            Image.fromarray(picture).save(args.out / name)
            lines.append({"image": name, "task": task, "question": q.text, "answer": q.answer, "greedy": got})
    (args.out / "samples.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    print(f"{sum(x['greedy'] == x['answer'] for x in lines)} of {len(lines)} right")


def write_untrained(args):
    """An untrained second model with pictures of three forms, to compare arithmetic with llama.cpp before any training."""
    family = second.FAMILIES["qwen2vl"]
    params, ascii_ = family.init(), [i for i, t in enumerate(text.VOCAB) if len(t) == 1 and t.isascii()]
    params["lm"]["out"][:, np.setdiff1d(np.arange(len(second.VOCAB)), ascii_)] = 0  # else it says tokens that have no text
    args.out.mkdir(parents=True, exist_ok=True)
    second.write(args.out, params, half=False)
    square, other = (data.held_out("grid", i, data.SAMPLES)[0] for i in (0, 1))
    pictures = {"square": square, "wide": np.concatenate([square, other[:, :96]], 1)}
    pictures["tall"] = np.concatenate([square, other[:96]])
    question = data.Question("any", "What is this?", "")
    with open(args.out / "samples.jsonl", "w") as file:
        for name, picture in pictures.items():
            Image.fromarray(picture).save(args.out / f"{name}.png")
            sized = second.Qwen2vl(picture.shape[0] // data.PATCH, picture.shape[1] // data.PATCH)
            got = greedy(sized, params, [picture], [question], args.length)[0]
            line = {"image": f"{name}.png", "task": "any", "question": question.text, "answer": "", "greedy": got}
            file.write(json.dumps(line) + "\n")


def compare_cli(args):
    """The program's answers against the recorded ones."""
    samples = [json.loads(line) for line in (args.samples / "samples.jsonl").read_text().splitlines()]
    same = right = 0
    for x in samples:
        command = [args.cli, "-m", args.lm, "--mmproj", args.mmproj, "--image", args.samples / x["image"], "-p", x["question"],
                   "--temp", "0", "-n", str(args.length)]
        got = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        same += got == x["greedy"]
        right += got == x["answer"]
        if got != x["greedy"]:
            print(x["image"], x["question"], "| here:", x["greedy"], "| there:", got, "| truth:", x["answer"])
    print(f"same answer {same} of {len(samples)}, right {right}")
    return same / len(samples)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["accuracy", "samples", "cli", "untrained"])
    ap.add_argument("--state")
    ap.add_argument("--compressor")
    ap.add_argument("--family", choices=second.FAMILIES, default="llava")
    ap.add_argument("--n", type=int, default=200)
    ap.add_argument("--stream", type=int, help="seed stream; default: held-out, for samples bundled")
    ap.add_argument("--out", type=Path)
    ap.add_argument("--samples", type=Path)
    ap.add_argument("--cli", default="llava-cli")
    ap.add_argument("--length", type=int, default=ANSWER, help="cli, untrained: tokens of an answer, at most")
    ap.add_argument("--lm")
    ap.add_argument("--mmproj")
    args = ap.parse_args()
    if args.stream is None:
        args.stream = data.SAMPLES if args.what == "samples" else data.HELD_OUT
    if args.what == "cli":
        raise SystemExit(compare_cli(args) < 0.99)
    {"accuracy": print_table, "samples": write_samples, "untrained": write_untrained}[args.what](args)


if __name__ == "__main__":
    main()
