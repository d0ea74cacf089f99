#!/usr/bin/env python3
"""Peer of bench_loader.c: JPEG file to augmented network input with Pillow and NumPy, images per second and core.

The same work: decode, bilinear resize to a jittered size, placement on grey, hue, saturation and brightness in HSV, flip, float / 255.
usage: pillow_loader.py ANNOTATIONS IMAGES [SIZE [REPEATS]]
"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import sys
import time

import numpy as np
from PIL import Image


def place(img, size, rng):
    w, h = img.size
    aspect = w * (1 + rng.uniform(-0.3, 0.3)) / (h * (1 + rng.uniform(-0.3, 0.3)))
    nw, nh = (max(1, round(size * aspect)), size) if aspect < 1 else (size, max(1, round(size / aspect)))
    canvas = Image.new("RGB", (size, size), (128, 128, 128))
    canvas.paste(img.resize((nw, nh), Image.BILINEAR, reducing_gap=None), (rng.randint(0, size - nw), rng.randint(0, size - nh)))
    return canvas


def colour(img, rng):
    hue, sat, val = (np.asarray(c) for c in img.convert("HSV").split())
    pick = lambda: rng.uniform(1, 1.5) if rng.random() < 0.5 else 1 / rng.uniform(1, 1.5)
    hue = (hue.astype(np.int16) + int(255 * rng.uniform(-0.1, 0.1))) % 256
    sat = np.clip(sat * np.float32(pick()), 0, 255)
    val = np.clip(val * np.float32(pick()), 0, 255)
    bands = [Image.fromarray(c.astype(np.uint8)) for c in (hue, sat, val)]
    return Image.merge("HSV", bands).convert("RGB")


def rate(paths, size, with_place, with_colour):
    rng = random.Random(1)
    start = time.process_time()
    for path in paths:
        img = Image.open(path).convert("RGB")
        img.load()
        if with_place:
            img = place(img, size, rng)
            if with_colour:
                img = colour(img, rng)
            if rng.random() < 0.5:
                img = img.transpose(Image.FLIP_LEFT_RIGHT)
            np.asarray(img).astype(np.float32) * np.float32(1 / 255)
    return len(paths) / (time.process_time() - start)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 416
    repeats = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    with open(sys.argv[1], encoding="utf-8") as f:
        paths = [os.path.join(sys.argv[2], i["file_name"]) for i in json.load(f)["images"]] * repeats
    print(f"loader work=decode images_per_s={rate(paths, size, False, False):.1f} pillow={Image.__version__}")
    print(f"loader work=decode+place images_per_s={rate(paths, size, True, False):.1f}")
    print(f"loader work=decode+place+colour images_per_s={rate(paths, size, True, True):.1f}")


main()
