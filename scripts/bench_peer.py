#!/usr/bin/env python3
"""Times llava-cli and llama-mtmd-cli as whole processes on the same files, in turn, and prints the ratio pair by pair.

    scripts/bench_peer.py --peer PATH/llama-mtmd-cli -m MODEL --mmproj MMPROJ --image PICTURE [--runs 7] [-n 32] [-t 2]

Load, warm-up, encode, prefill and decode are all in it. The two take turns (ours, peer, ours, peer, ...), so that a machine
that slows down slows both; read the median of the ratios and their spread. Both are run once before, uncounted, so that files
are in the page cache. Peak memory is the largest resident set the operating system saw.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def timed(command):
    start = time.monotonic()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - start
    if status != 0:
        sys.exit(f"exit status {os.waitstatus_to_exitcode(status)}: {' '.join(command)}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def row(name, values, unit):
    print(f"| {name} | {statistics.median(values):.3f} | {min(values):.3f} | {max(values):.3f} | {unit} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True)
    parser.add_argument("--ours", default=str(ROOT / "target/release/llava-cli"))
    parser.add_argument("-m", required=True)
    parser.add_argument("--mmproj", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("-p", default="Describe the picture in detail.")
    parser.add_argument("-n", default="32")
    parser.add_argument("-t", default="2")
    parser.add_argument("-c", default="2048")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--ours-extra", nargs="*", default=["--clip-layout", "upstream"], help="flags for llava-cli only")
    args = parser.parse_args()
    # the same work on both sides: upstream's layout runs a layer less where the file lacks the last one
    flags = ["-m", args.m, "--mmproj", args.mmproj, "--image", args.image, "-p", args.p, "-n", args.n, "-t", args.t]
    flags += ["-c", args.c, "--temp", "0"]
    # the peer runs a model's own template only when told to
    ours, peer = [args.ours] + flags + args.ours_extra, [args.peer] + flags + ["--jinja"]
    timed(ours)
    timed(peer)
    a, b = [], []
    for _ in range(args.runs):
        a.append(timed(ours))
        b.append(timed(peer))
    print(f"{args.runs} runs each, in turn\n\n| | median | min | max | |\n|---|--:|--:|--:|---|")
    for i, (name, unit) in enumerate([("wall", "s"), ("cpu", "s"), ("peak memory", "MiB")]):
        row(f"llava-cli {name}", [x[i] for x in a], unit)
        row(f"llama-mtmd-cli {name}", [x[i] for x in b], unit)
        row(f"ratio {name}", [x[i] / y[i] for x, y in zip(a, b)], "x")


if __name__ == "__main__":
    main()
