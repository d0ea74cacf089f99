#!/usr/bin/env python3
"""Writes tests/golden/resize.json: pictures resized by Pillow and PyTorch, and the sizes that detectron2's and
torchvision's rules give. "make_resize.py PART..." writes these parts anew. The part "sizes" needs no package, "fixed"
and "lanczos" need Pillow and numpy, the others also torch.

Pictures are a formula that tests/unit/worker/data/make/test_resize.c has too (pixel()).
  fixed  [h, w, to h, to w, FNV-1a of the bytes]: Image.resize() with BILINEAR, first to the new width and then to the
         new height: versions of Pillow differ in the order if it is cheaper to begin with rows
  lanczos like fixed, with LANCZOS
  float  [h, w, to h, to w, values]: interpolate(mode="bilinear") of the picture between 0 and 1, in levels of a byte
  near   [from, to, ...]: rows that Image.resize() with NEAREST takes (d2); or interpolate(mode="nearest") (tv)
  sizes  [h, w, shorter, longest, h and w of d2, h and w of tv]
Run from the repository root: tests/golden/make_resize.py"""  # SPDX-License-Identifier: Apache-2.0
import json
import math
import pathlib
import random
import sys

if sys.argv[1:] != ["sizes"]:
    import numpy as np
    from PIL import Image
if not sys.argv[1:] or {"float", "near"} & set(sys.argv[1:]):
    import torch

OUT = pathlib.Path("tests/golden/resize.json")
r = random.Random(5)


def pixel(y, x, c):
    """Noise in the low places, a gradient in the high ones, and some columns black and white."""
    v = (y * 2654435761 + x * 40503 + c * 2246822519 + y * x * 97) & 0xffffffff
    v = ((v ^ v >> 15) * 2246822519) & 0xffffffff
    return 255 * (c & 1) if x % 7 == 3 else (v >> 13 & 127) + (y * 3 + x * 5) % 128


def picture(h, w):
    return np.array([[[pixel(y, x, c) for c in range(3)] for x in range(w)] for y in range(h)], dtype=np.uint8)


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = ((h ^ b) * 0x100000001b3) & 0xffffffffffffffff
    return "%016x" % h


def fixed(h, w, th, tw, filter="BILINEAR"):
    by = getattr(Image, filter)
    out = Image.fromarray(picture(h, w)).resize((tw, h), by).resize((tw, th), by)
    return [h, w, th, tw, fnv(np.asarray(out).tobytes())]


def as_float(h, w, th, tw):
    """Resizes in the way of GeneralizedRCNNTransform: the scale is computed again from the sizes."""
    x = torch.from_numpy(picture(h, w)).permute(2, 0, 1)[None].float() / 255
    y = torch.nn.functional.interpolate(x, size=(th, tw), mode="bilinear", align_corners=False)[0].permute(1, 2, 0) * 255
    return [h, w, th, tw, [round(float(v), 3) for v in y.reshape(-1)]]


def near(n, to):
    d2 = np.asarray(Image.fromarray(np.arange(n, dtype=np.int32)[:, None]).resize((1, to), Image.NEAREST))[:, 0]
    x = torch.arange(n, dtype=torch.float32)[None, None]
    tv = torch.nn.functional.interpolate(x, size=to, mode="nearest")[0, 0]
    return [n, to, [int(v) for v in d2], [int(v) for v in tv]]


def sizes(h, w, s, m):
    """tv: _resize_image_and_masks() of torchvision's GeneralizedRCNNTransform since 0.15, then interpolate() with
    recompute_scale_factor."""
    scale = s * 1.0 / min(h, w)
    newh, neww = (s, scale * w) if h < w else (scale * h, s)
    if max(newh, neww) > m:
        scale = m * 1.0 / max(newh, neww)
        newh, neww = newh * scale, neww * scale
    tv = min(s / min(h, w), m / max(h, w))
    return [h, w, s, m, int(newh + 0.5), int(neww + 0.5), math.floor(float(h) * tv), math.floor(float(w) * tv)]


def all_sizes():
    """A range of heights and of widths beside a usual other side, and any."""
    usual = [sizes(h, 640, 800, 1333) for h in range(200, 641)] + [sizes(500, w, 800, 1333) for w in range(200, 641)]
    return usual + [sizes(r.randint(20, 2000), r.randint(20, 2000), r.choice([480, 640, 672, 704, 736, 768, 800]), r.choice([800, 1333]))
                    for _ in range(300)]


def write(rows):
    text = ",\n".join('"%s": [\n%s]' % (k, ",\n".join(json.dumps(row, separators=(",", ":")) for row in v)) for k, v in rows.items())
    OUT.write_text("{%s}\n" % text)


def main():
    some = [(5, 7, 5, 7), (5, 7, 10, 14), (7, 5, 3, 2), (1, 50, 4, 64), (50, 1, 64, 3), (1, 1, 9, 9), (9, 9, 1, 1), (37, 50, 64, 86),
            (40, 30, 21, 16), (3, 100, 40, 9), (100, 3, 9, 40), (64, 64, 64, 31), (64, 64, 31, 64), (1, 5000, 1, 333), (240, 320, 200, 267),
            (33, 77, 800, 13)]
    some += [tuple(r.randint(1, 90) for _ in range(4)) for _ in range(40)]
    parts = {
        "fixed": lambda: [fixed(*z) for z in some],
        "lanczos": lambda:
                   [fixed(*z, "LANCZOS") for z in [(375, 1242, 192, 640), (480, 640, 96, 160), (1080, 1920, 320, 1024), (96, 96, 131, 77)]],
        "float": lambda: [as_float(*z) for z in [(5, 7, 5, 7), (4, 3, 9, 7), (9, 11, 4, 5), (1, 12, 3, 7), (6, 6, 13, 2)]],
        "near": lambda: [near(*z) for z in [(5, 5), (7, 3), (3, 7), (1, 4), (100, 33), (33, 100), (480, 799)]], "sizes": all_sizes
    }
    old = json.loads(OUT.read_text()) if sys.argv[1:] else {}
    write({**old, **{name: parts[name]() for name in sys.argv[1:] or parts}})


main()
