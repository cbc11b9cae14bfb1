#!/usr/bin/env python3
"""Compares llava-cli's answers with llama-mtmd-cli's, greedy, text for text.

    scripts/compare_with_peer.py --peer PATH/llama-mtmd-cli [--ours target/release/llava-cli]
                                 [--samples DIR] [--pairs DIR] [--runs N]

--samples: a folder with samples.jsonl (image, question) for the demo model; the bundled one by default.
--pairs: generated model pairs (`cargo run --example tiny_models -- DIR`), each asked about pictures of several shapes.
--runs N: asks llava-cli N times the same and wants the same bytes every time (it must not lose output).

llama-mtmd-cli loses the end of a piped stdout now and then, more often on a busy machine. So a difference counts only when
its answer is the same in three runs in a row.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import zlib
import struct

# llava-cli runs a model's own template; llama-mtmd-cli only when told to
JINJA = ["--jinja"]
ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def peer_answer(command, wanted):
    """The peer's text; asked again while it differs from ours, because it may have been cut short."""
    seen = {}
    for _ in range(12):
        code, out, err = run(command)
        text = out.strip()
        if code == 0 and text == wanted:
            return text
        seen[text] = seen.get(text, 0) + 1
        if code == 0 and text and seen[text] >= 3:
            return text
    return max(seen, key=seen.get) if code == 0 else f"peer failed: {err[-300:]}"


def png(path, width, height, seed):
    rows = b""
    for y in range(height):
        row = bytearray([0])
        for x in range(width):
            block = (x // 9 + y // 7 * 5 + seed * 3) % 7
            row += bytes((((x * (c + 1) + y * (3 - c) + seed * 40) % 256) // 2 + block * 18) % 256 for c in range(3))
        rows += bytes(row)

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def compare(name, ours, peer):
    code, out, err = run(ours)
    if code != 0:
        print(f"FAIL {name}: llava-cli exit {code}: {err[-300:]}")
        return False
    text = out.strip()
    theirs = peer_answer(peer, text)
    if text != theirs:
        print(f"FAIL {name}\n  ours:   {text!r}\n  theirs: {theirs!r}")
        return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True)
    parser.add_argument("--ours", default=str(ROOT / "target/release/llava-cli"))
    parser.add_argument("--samples", default=str(ROOT / "models/demo"))
    parser.add_argument("--pairs")
    parser.add_argument("--runs", type=int, default=0)
    args = parser.parse_args()

    demo = ROOT / "models/demo"
    model = ["-m", str(demo / "demo-lm-f16.gguf"), "--mmproj", str(demo / "demo-mmproj-f16.gguf")]
    good = total = 0
    samples = pathlib.Path(args.samples)
    for line in (samples / "samples.jsonl").read_text().splitlines():
        item = json.loads(line)
        flags = model + ["--image", str(samples / item["image"]), "-p", item["question"], "--temp", "0", "-n", "72", "-c", "512"]
        total += 1
        good += compare(item["image"], [args.ours] + flags, [args.peer] + flags + JINJA)
    print(f"demo model: {good} of {total} answers equal")

    failed = good != total
    if args.pairs:
        good = total = 0
        with tempfile.TemporaryDirectory() as folder:
            shapes = [(112, 112), (224, 64), (60, 200), (640, 480), (33, 517), (1, 30)]
            pictures = []
            for i, (w, h) in enumerate(shapes):
                path = pathlib.Path(folder) / f"{w}x{h}.png"
                png(path, w, h, i)
                pictures.append(path)
            for text in sorted(pathlib.Path(args.pairs).glob("**/*-text.gguf")):
                proj = text.with_name(text.name.replace("-text", "-mmproj"))
                base = ["-m", str(text), "--mmproj", str(proj), "--temp", "0", "-n", "16", "-c", "4096", "-p", "What is this?"]
                cases = [(p.name, ["--image", str(p)]) for p in pictures]
                cases.append(("three", [x for p in pictures[:3] for x in ("--image", str(p))]))
                for name, images in cases:
                    total += 1
                    ours = [args.ours] + base + images + ["--clip-layout", "upstream"]
                    good += compare(f"{text.name} {name}", ours, [args.peer] + base + images + JINJA)
        print(f"generated pairs: {good} of {total} answers equal")
        failed |= good != total

    if args.runs:
        item = json.loads((samples / "samples.jsonl").read_text().splitlines()[0])
        flags = model + ["--image", str(samples / item["image"]), "-p", item["question"], "--temp", "0", "-n", "72", "-c", "512"]
        answers = {}
        for _ in range(args.runs):
            code, out, _ = run([args.ours] + flags)
            answers[(code, out)] = answers.get((code, out), 0) + 1
        print(f"{args.runs} runs of llava-cli: {len(answers)} different outputs")
        failed |= len(answers) != 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
