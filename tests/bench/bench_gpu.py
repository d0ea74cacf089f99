#!/usr/bin/env python3
"""Speed of the CUDA device on this machine's GPU, as ratios from one run: a training step of YOLOv3 against PyTorch's best setting, the deterministic tiers
against `off`, the step beside what the GPU can do at most, and the sum of gradients between GPUs beside NCCL's own all-reduce.

    bench_gpu.py BUILD [--sizes 416,608] [--batches 16,64] [--precisions bf16,tf32,fp32] [--steps 20] [--no-compile]

The peer needs a Python with PyTorch for CUDA: this interpreter, or the one that DETD_TORCH_PYTHON names. Without it the peer's columns are empty."""
import argparse
import os
import shutil
import subprocess
import sys

from records import Malformed, records

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET, GOAL, RERUN_MAX = 1.2, 1.5, 1.03


def run(*command, seconds=600):
    try:
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:  # what comes after it may still be measured
        print("%s: no end after %d s" % (os.path.basename(str(command[0])), seconds))
        return ""
    if done.returncode != 0:
        print("%s: exit %d: %s" % (os.path.basename(str(command[0])), done.returncode, done.stderr.strip()[-600:]))
    return done.stdout


def has_torch(python):
    return shutil.which(python) and subprocess.run([python, "-c", "import torch; assert torch.cuda.is_available()"], stderr=subprocess.DEVNULL,
                                                   check=False).returncode == 0


def ours(build, precision, size, batch, steps, shards, tiers):
    """{tier: images per second}"""
    text = run(build + "/tests/bench/bench_step", "device=cuda", "model=yolov3", "precision=" + precision, "size=%d" % size, "batch=%d" % batch,
               "shards=%d" % shards, "steps=%d" % steps, "tier=" + ",".join(tiers))
    try:
        return {r.word("tier"): r.number("images_per_s") for r in records(text, "step")}
    except Malformed as e:
        print("bench_step: %s" % e)
        return {}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--sizes", default="416,608")
    p.add_argument("--batches", default="16,64")
    p.add_argument("--precisions", default="bf16,tf32,fp32")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--no-compile", action="store_true")
    a = p.parse_args()
    python = next((c for c in filter(None, (os.environ.get("DETD_TORCH_PYTHON"), sys.executable)) if has_torch(c)), None)
    peer = {}
    if python:
        more = ["--no-compile"] if a.no_compile else []
        try:
            for r in records(run(python, HERE + "/peer_gpu.py", a.steps, a.precisions, a.sizes, a.batches, *more, seconds=1500), "peer"):
                peer[r.word("precision"), int(r.word("size")), int(r.word("batch"))] = (r.number("images_per_s"), r.word("mode"))
        except Malformed as e:
            print("peer_gpu.py: %s" % e)
    else:
        print("no Python with PyTorch for CUDA: no peer (DETD_TORCH_PYTHON)")
    print("%-5s %4s %5s %6s %10s %10s %7s %7s %7s" % ("", "size", "batch", "shards", "detd off", "peer", "ratio", "rerun", "world"))
    met = []
    for precision in a.precisions.split(","):
        for size in (int(s) for s in a.sizes.split(",")):
            for batch in (int(b) for b in a.batches.split(",")):
                shards = max(v for v in (1, 2, 4, 8) if batch % v == 0 and batch // v >= 4)  # as jobs have by default
                got = ours(a.build, precision, size, batch, a.steps, shards, ("off", "rerun", "world"))
                if "off" not in got:
                    continue
                speed, mode = peer.get((precision, size, batch), (0, "no peer"))
                ratio = got["off"] / speed if speed else 0
                print("%-5s %4d %5d %6d %10.1f %10.1f %7.2f %7.3f %7.3f   %s" % (
                    precision, size, batch, shards, got["off"], speed, ratio, got["off"] / got.get("rerun", 1), got["off"] / got.get("world", 1), mode),
                    flush=True)
                if (precision, size) == ("bf16", 416) and speed:
                    met.append("bf16 416 batch %d: %.2f x the peer (target %.1f, goal %.1f), rerun costs %.3f (at most %.2f)" % (
                        batch, ratio, TARGET, GOAL, got["off"] / got.get("rerun", 1), RERUN_MAX))
    for line in met:
        print(line)
    for precision in a.precisions.split(","):
        print(run(a.build + "/tests/bench/bench_layers", "device=cuda", "precision=" + precision, "size=416", "batch=16"), end="")
    print(run(a.build + "/tests/bench/bench_link"), end="")


main()
