#!/usr/bin/env python3
"""The peer of bench_roi: torchvision's roi_align of the same boxes over the same four levels, forward and backward,
fp32. Boxes are sorted by level beforehand, which favours the peer. A record "peer" for each head and flavor: best time
of forward and backward together. Usage: peer_roi.py THREADS REPEATS [IMAGES HEIGHT WIDTH CHANNELS]
"""  # SPDX-License-Identifier: Apache-2.0
import sys
import time

import torch
from torchvision.ops import roi_align

from made_up import uniform

THREADS, REPEATS = int(sys.argv[1]), int(sys.argv[2])
IMAGES, HEIGHT, WIDTH, CHANNELS = (int(a) for a in sys.argv[3:7]) if len(sys.argv) > 6 else (2, 480, 640, 256)
LEVELS, HEADS = 4, {"box": (512, 7), "mask": (128, 14)}
LIMIT_S = 20  # of a head and flavor
torch.set_num_threads(THREADS)


def box(r):
    side, shape, x, y, u = 16.0, 0.5 + uniform(4 * r + 1), uniform(4 * r + 2) * WIDTH, uniform(4 * r + 3) * HEIGHT, uniform(4 * r) * 5
    while u > 0:
        side *= 1 + u if u < 1 else 2
        u -= 1
    w, h = side * shape / 2, side / shape / 2
    return [min(max(v, 0), most) for v, most in ((x - w, WIDTH), (y - h, HEIGHT), (x + w, WIDTH), (y + h, HEIGHT))]


def run(head, flavor):
    rows, pool = HEADS[head]
    boxes = torch.tensor([[r // rows, *box(r)] for r in range(rows * IMAGES)], dtype=torch.float32)
    area = ((boxes[:, 3] - boxes[:, 1]) * (boxes[:, 4] - boxes[:, 2])).clamp(min=0)
    level = torch.floor(4 + torch.log2(area.sqrt() / 224 + 1e-8)).clamp(2, 5).long() - 2
    of = [boxes[level == n] for n in range(LEVELS)]
    x = [torch.rand(IMAGES, CHANNELS, HEIGHT >> (2 + n), WIDTH >> (2 + n)).requires_grad_() for n in range(LEVELS)]
    dy = [torch.rand(len(b), CHANNELS, pool, pool) for b in of]
    best, began = 1e9, time.perf_counter()
    for i in range(REPEATS):
        start = time.perf_counter()
        if i > 0 and start - began > LIMIT_S:
            break
        for n in range(LEVELS):
            x[n].grad = None
        y = [roi_align(x[n], of[n], pool, 0.25 / 2 ** n, 0 if flavor == "d2" else 2, flavor == "d2") for n in range(LEVELS)]
        torch.autograd.backward(y, dy)
        best = min(best, time.perf_counter() - start)
    print("peer head=%s flavor=%s ms=%.2f" % (head, flavor, best * 1e3), flush=True)


for name in HEADS:
    for kind in ("d2", "tv"):
        run(name, kind)
