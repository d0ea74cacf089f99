#!/usr/bin/env python3
"""Checks that training gives the same bits as an earlier commit: YOLOv3 with momentum, decay, clipping, averaged
weights and changing sizes, once with SyncBN and once in waves, Mask and Sparse R-CNN and depth networks, on 1, 3 and 8
ranks, on every ISA of this CPU and on an emulated GPU (there without TEST_LONG on one rank, and no depth network; with
TEST_LONG=1 on three ranks); the jobs of three ranks are killed and resumed. In bf16 only CPUs are compared, since a
GPU's bf16 bits are its own. bits.json has the expected results: hashes of the last checkpoint's weights and of its
state, and of the rows of each split.

usage: bits.py                         compares
       bits.py write [KIND...]         writes bits.json anew
       bits.py keep FOLDER [KIND...]   compares, and leaves the jobs' folders there, for detctl diff
"""  # SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import random
import re
import shutil
import sys

from daemon import tensors_of
from gpu_node import REAL, Node
from ranks import base_spec, draw, draw_frames, draw_masks, finish, frames_spec, isas, mask_spec, merged, rows, sparse_spec, struck, submit

KNOWN = os.path.dirname(os.path.abspath(__file__)) + "/bits.json"
GPU_ALONE = bool(os.environ.get("BITS_GPU_ALONE"))  # no jobs of the CPU, and fewer ranks: for little time on a GPU
RANKS = (1, 3) if GPU_ALONE else (1, 3, 8)
LONG = 2 if sys.argv[1:2] == ["write"] or REAL else int(os.environ.get("TEST_LONG", "0"))
HALF = {"run": {"precision": "bf16"}}
STEPS, SAVED, KILLED = 10, 3, 3  # steps, steps between checkpoints, ranks of the job that is killed


PARTS = ("weights", "state", "train", "val")
YOUNGER = re.compile(r" (segm_)?(AP|P50|R50|conf|n):")  # metrics that did not exist in the commit of the hashes


def specs_of(root):
    """{kind: spec}"""
    common = {"name": "bits", "train": {"steps": STEPS, "batch": 8, "shards": 8, "log_every": 2, "clip_norm": 30}, "val": {"every": 5},
              "checkpoint": {"every": SAVED}, "run": {"restarts": 5}}
    yolo = merged(merged(base_spec(root + "/shapes"), common),
                  {"data": {"augment": {"multiscale": True, "size_min": 32, "size_max": 64}}, "train": {"ema": 0.9}})
    cut = merged(merged(sparse_spec(root + "/masks"), common), {"train": {"clip_norm": 1}})
    return {
        "sync_bn": merged(yolo, {"model": {"sync_bn": True}}), "waves": merged(yolo, {"train": {"waves": 2}}),
        "masks": merged(mask_spec(root + "/masks"), common), "sparse": cut, "depth": merged(frames_spec(root + "/frames"), common),
        "bf16": merged(yolo, HALF), "masks_bf16": merged(merged(mask_spec(root + "/masks"), common), HALF),
        "sparse_bf16": merged(cut, HALF), "depth_bf16": merged(merged(frames_spec(root + "/frames"), common), HALF)
    }


def short(data):
    return hashlib.sha256(data).hexdigest()[:16]


def tensors(path):
    """{name: hash of its shape and bytes}"""
    return {name: short(repr((kind, shape)).encode() + raw) for name, (kind, shape, raw) in tensors_of(path).items()}


def bits(d, job):
    """{part: hash}: of all tensors of a file, and of the rows of a split, each with its name."""
    found, together = {part: [] for part in PARTS}, {}
    for name, (row, _) in sorted(rows(d, job).items()):
        if YOUNGER.search(name):
            continue
        split, _, step, _ = name.split(" ", 3)
        together.setdefault("%s step %s" % (split, step), []).append(name + " " + row)
    for what, lines in together.items():
        found["train" if what.startswith("train ") else "val"].append("%s %s" % (what, short("\n".join(lines).encode())))
    for part, file in ("weights", "model"), ("state", "state"):
        path = "%s/jobs/%d/checkpoints/step-%d/%s.safetensors" % (d.state, job, STEPS, file)
        found[part] += ["%s %s %s" % (file, name, h) for name, h in tensors(path).items()]
    return {part: short("\n".join(sorted(lines)).encode()) for part, lines in found.items()}


def machines(kind, spec):
    """Yields (place, keys of run) for several numbers of ranks, each number with another ISA. Jobs in bf16 run on CPUs
    only, where run.isa auto may choose a unit for bf16."""
    gpu = spec["run"].get("precision") != "bf16"
    have = isas() if gpu else ["auto"] + isas()
    for i, ranks in enumerate(() if GPU_ALONE else RANKS):
        yield "cpu", {"ranks": ranks, "isa": have[i % len(have)], "deterministic": ("rerun", "world", "off")[i]}
    for ranks in () if not gpu else RANKS if LONG > 1 else RANKS[1:2] if LONG else RANKS[:1] if kind != "depth" else ():
        env = {"EMU_SEED": str(random.getrandbits(30))}
        yield "cuda", {"ranks": ranks, "device": "cuda", "ranks_per_gpu": ranks, "deterministic": "world", "env": env}


def train(d, base, kind):
    """Returns {place: [(name, bits)]}. Jobs of a place must be the same, and every loss must be there."""
    found, jobs = {}, []
    for where, run in machines(kind, base):
        what = "%s, %s, %d ranks" % (where + (" " + run["isa"] if "isa" in run else ""), kind, run["ranks"])
        spec = merged(base, {"run": run})
        job = struck(d, spec, what, SAVED + 1, random.Random(1)) if run["ranks"] == KILLED else submit(d, spec, what)
        jobs.append((where, what, job))
        if where == "cuda":
            finish(d, job)  # there is one GPU
    for where, what, job in jobs:
        ended = finish(d, job)
        # a job that made room for another has more
        assert "3 ranks" not in what or ended["attempt"] > 1, "%s: %d attempts" % (what, ended["attempt"])
        slow = [e for e in d.events("device", job) if e.startswith("run.precision bf16: slower than fp32")]
        assert bool(slow) == (base["run"].get("precision") == "bf16") or "auto" in what, "%s: %s" % (what, d.events("device", job))
        nothing = d.sql("SELECT split, term FROM loss WHERE job=? AND term NOT LIKE 'recall%' GROUP BY split, term HAVING max(num) <= 0",
                        job)
        assert not nothing, "%s: losses of nothing: %s" % (what, nothing)
        found.setdefault(where, []).append((what, bits(d, job)))
    return found


def main():
    with open(KNOWN, encoding="utf-8") as f:
        known = json.load(f)
    write, kept, failed = sys.argv[1:2] == ["write"], sys.argv[2] if sys.argv[1:2] == ["keep"] else None, False
    only = sys.argv[3 if kept else 2:]
    with Node() as d:
        draw(d.root + "/shapes")
        draw_masks(d.root + "/masks")
        draw_frames(d.root + "/frames")
        for kind, spec in specs_of(d.root).items():
            if only and kind not in only:
                continue
            for where, jobs in train(d, spec, kind).items():
                key = "%s %s" % (where, kind)
                if write:
                    known[key] = jobs[0][1]
                if REAL and where == "cuda":
                    known[key] = jobs[0][1]  # another GPU's bits are its own; ranks must agree all the same
                for what, have in jobs:
                    wrong = [part for part in PARTS if known.get(key, {}).get(part) != have[part]]
                    failed = failed or bool(wrong)
                    print("%s: %s" % (what, "these differ: " + ", ".join(wrong) if wrong else "equal"))
            if kept:
                shutil.copytree(d.state + "/jobs", "%s/%s" % (kept, kind))
    if failed:
        print("Where they part: `tests/e2e/bits.py keep FOLDER KIND` here and, into another folder, in a build of the commit before; "
              "then `detctl diff` of the two folders of a job")
    if write:
        with open(KNOWN, "w", encoding="utf-8") as f:
            f.write("{\n%s\n}\n" % ",\n".join(" %s: %s" % (json.dumps(key), json.dumps(known[key])) for key in sorted(known)))
    sys.exit(failed)


main()
