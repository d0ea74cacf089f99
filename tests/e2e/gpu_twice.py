#!/usr/bin/env python3
"""Mask R-CNN, ResNet-50 and FPN at its usual size in bf16, trained twice from scratch by one job file in tier `rerun`
on this machine's GPU: every row and every weight of the two is the same. gpu_twice.py [STEPS]: 1,000 take an H200 about
40 s, so 100 s hold both. On the emulated GPU it is a network of few channels."""  # SPDX-License-Identifier: Apache-2.0
import sys
import time

from daemon import make_shapes
from gpu_node import REAL, Node
from ranks import finish, mask_spec, merged, rows, same, submit

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000 if REAL else 4


def spec_of(data):
    make_shapes(data, 32, 4, 128 if REAL else 64, "--masks")
    small = merged(mask_spec(data),
                   {"train": {"steps": STEPS}, "val": {"every": STEPS}, "run": {"device": "cuda", "deterministic": "rerun"}})
    if not REAL:
        return small
    return merged({k: v
                   for k, v in small.items() if k != "model"}, {
                       "model": {"preset": "mask_rcnn_r50_fpn"}, "train": {"batch": 8, "shards": 2, "burn_in": STEPS // 4, "lr": 0.002},
                       "run": {"precision": "bf16"}
                   })


def main():
    with Node() as d:
        spec, jobs = spec_of(d.root + "/masks"), []
        for what in ("once", "again"):
            began = time.monotonic()
            jobs.append(submit(d, spec, what))
            finish(d, jobs[-1])
            print("%s: %.0f s" % (what, time.monotonic() - began), flush=True)
        same(d, jobs[0], jobs[1], "again")
        print("Mask R-CNN twice, %d steps: %d rows and all weights equal to the last bit" % (STEPS, len(rows(d, jobs[0]))))


main()
