#!/usr/bin/env python3
"""tests/golden/make_frames_samples.py - writes frames_samples.json: samples of depth networks as Pillow and torchvision
make them, and measured depth as NumPy projects it. Needs numpy, pillow, torch and torchvision.

The draws are made here again from the definition of Philox4x32-10 and the layout of worker/kernels/philox.h; pictures
are those of tests/unit/worker/data/read/frames/test_frames.c."""  # SPDX-License-Identifier: Apache-2.0
import json
import os

import numpy as np
from PIL import Image
from torchvision.transforms import functional as tv

W, H, CANVAS, SEED, TARGETS, EPOCHS = 41, 30, (12, 8), 7, 2, 4
JITTER = np.array([0.2, 0.3, 1.4, 0.1], np.float32)


def philox(key, counter):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def purpose(name):
    h = 2166136261
    for byte in name.encode():
        h = ((h ^ byte) * 16777619) & 0xFFFFFFFF
    return (h >> 16 ^ h) & 0xFFFF


def word(epoch, element):
    block = element // 4
    return philox((SEED, 0), (block & 0xFFFFFFFF, purpose("data.frames") << 16 | block >> 32, 0, epoch))[element % 4]


def uniform(epoch, element):
    return np.float32(word(epoch, element) >> 8) * np.float32(2.0**-24)


def picture(i):
    k = np.arange(W * H * 3, dtype=np.int64)
    return Image.fromarray(((k * (i * 2 + 3) + i * 50 + (k >> 4) * 7) & 255).astype(np.uint8).reshape(H, W, 3))


def draw(epoch, sample):
    first = sample * 12
    amount, order = [], [0, 1, 2, 3]
    for k in range(4):
        middle = np.float32(0 if k == 3 else 1)
        lo, hi = middle - JITTER[k], middle + JITTER[k]
        lo = np.float32(0) if k != 3 and lo < 0 else lo
        amount.append(np.float32(lo + np.float32(uniform(epoch, first + 2 + k) * np.float32(hi - lo))))
    for n, k in enumerate((3, 2, 1)):
        other = word(epoch, first + 6 + n) * (k + 1) >> 32
        order[k], order[other] = order[other], order[k]
    return bool(uniform(epoch, first) < np.float32(0.5)), bool(uniform(epoch, first + 1) < np.float32(0.5)), amount, order


def coloured(image, amount, order):
    steps = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)
    for k in order:
        image = steps[k](image, float(amount[k]))
    return image


def sample(epoch, number, frames):
    flip, jitter, amount, order = draw(epoch, number)
    pictures = []
    for i in frames:
        image = picture(i)
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else image
        image = image.resize(CANVAS, Image.Resampling.LANCZOS)
        seen = coloured(image, amount, order) if jitter else image
        pictures += [np.asarray(image).tobytes().hex(), np.asarray(seen).tobytes().hex()]
    return {"epoch": epoch, "sample": number, "flip": flip, "jitter": jitter, "pictures": pictures}


def velodyne():
    """Points through the calibration of a made-up day, as monodepth2's tools project them (specs featdepth section
    4.6), the nearest of a pixel."""
    rng = np.random.default_rng(3)
    w, h = W, H
    p_rect = {s: np.array([[30.0, 0, 20.25, b], [0, 31.0, 14.5, 0.02], [0, 0, 1, 0.003]]) for s, b in (("02", 1.25), ("03", -10.5))}
    angle = 0.01
    r_rect = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    r = np.array([[0.007, -0.9999, -0.0005], [0.0148, 0.0007, -0.9999], [0.9998, 0.0075, 0.0148]])
    t = np.array([-0.004, -0.0763, -0.2718])
    points = np.stack(
        [rng.uniform(-2, 30, 400), rng.uniform(-12, 12, 400),
         rng.uniform(-8, 8, 400), rng.uniform(0, 1, 400)], 1).astype(np.float32)
    rect, velo = np.eye(4), np.eye(4)
    rect[:3, :3], velo[:3, :3], velo[:3, 3] = r_rect, r, t
    maps = {}
    for side, p in p_rect.items():
        ahead = points[points[:, 0] >= 0].copy()
        depth = ahead[:, 0].copy()
        ahead[:, 3] = 1
        q = (p @ rect @ velo @ ahead.T.astype(np.float64)).T
        x, y = np.round(q[:, 0] / q[:, 2]) - 1, np.round(q[:, 1] / q[:, 2]) - 1
        out = np.full((h, w), np.inf, np.float32)
        inside = (x >= 0) & (y >= 0) & (x < w) & (y < h)
        np.minimum.at(out, (y[inside].astype(int), x[inside].astype(int)), depth[inside])
        out[np.isinf(out)] = 0
        maps[side] = [[int(i), float(out.flat[i])] for i in np.flatnonzero(out)]
    rows = lambda a: " ".join("%.12e" % v for v in np.asarray(a).flat)
    cam = "calib_time: 09-Jan-2012 13:57:47\n" + "R_rect_00: %s\n" % rows(r_rect)
    for side, p in p_rect.items():
        cam += "S_rect_%s: %s\nP_rect_%s: %s\n" % (side, rows([w, h]), side, rows(p))
    return {"cam_to_cam": cam, "velo_to_cam": "R: %s\nT: %s\n" % (rows(r), rows(t)), "points": points.tobytes().hex(), "depth": maps}


def main():
    targets = [(1, 0, 2), (3, 2, 4)]
    out = {"samples": [sample(e, n, targets[n]) for e in range(EPOCHS) for n in range(TARGETS)], "velodyne": velodyne()}
    assert {s["flip"] for s in out["samples"]} == {s["jitter"] for s in out["samples"]} == {False, True}
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "frames_samples.json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


main()
