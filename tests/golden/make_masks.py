#!/usr/bin/env python3
"""Writes tests/golden/masks.json: results of COCO's own tools for random and odd polygons, masks and pairs of masks.
Needs pycocotools and numpy.

    pip install pycocotools && tests/golden/make_masks.py
"""  # SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import random

import numpy as np
from pycocotools import mask as coco

r = random.Random(12)


def runs(counts):
    """Run lengths of a compressed string, by the description of the format."""
    out, v, shift = [], 0, 0
    for c in counts:
        c = ord(c) - 48
        v |= (c & 31) << shift
        shift += 5
        if not c & 32:
            if c & 16:
                v -= 1 << shift
            out.append(v + out[-2] if len(out) > 2 else v)
            v = shift = 0
    return out


def described(rle, **more):
    counts = rle["counts"].decode()
    return dict(more, size=rle["size"], counts=counts, runs=runs(counts), area=int(coco.area(rle)),
                bbox=[float(v) for v in coco.toBbox(rle)])


def polygon(h, w, kind):
    n = r.randint(3, 12)
    at = {
        "fine": lambda s: round(r.uniform(-0.2 * s, 1.2 * s), 2), "fifths": lambda s: r.randint(-5, 5 * s + 5) / 5,
        "whole": lambda s: r.randint(-2, s + 2), "half": lambda s: r.randint(-4, 2 * s + 4) / 2,
        "far": lambda s: r.uniform(-40 * s, 40 * s), "tiny": lambda s: s / 2 + r.uniform(-1, 1)
    }[kind]
    return [v for _ in range(n) for v in (at(w), at(h))]


def polygons():
    for kind in ("fine", "fifths", "whole", "half", "far", "tiny"):
        for k in range(14):
            h, w = r.choice([(8, 8), (28, 28), (1, 40), (40, 1), (1, 1), (37, 53), (64, 48)])
            parts = [polygon(h, w, kind) for _ in range(1 if k < 8 else r.randint(2, 4))]
            yield "%s %d" % (kind, k), h, w, parts
    for name, h, w, part in (("a point", 5, 5, [2, 2, 2, 2, 2,
                                                2]), ("a line", 5, 5, [0, 2, 5, 2, 0,
                                                                       2]), ("twice around", 6, 6, [1, 1, 4, 1, 4, 4, 1, 4] * 2),
                             ("a bow", 9, 9, [0, 0, 9, 9, 9, 0, 0, 9]), ("all borders", 7, 11, [0, 0, 11, 0, 11, 7, 0, 7]),
                             ("one pixel", 7, 11, [10, 6, 11, 6, 11, 7, 10,
                                                   7]), ("beyond all borders", 7, 11, [-9, -9, 99, -9, 99, 99, -9, 99])):
        yield name, h, w, [[float(v) for v in part]]


def mask(h, w, density):
    m = np.zeros((h, w), np.uint8)
    for _ in range(r.randint(0, 4)):
        y, x = r.randrange(h), r.randrange(w)
        m[y:y + r.randint(1, h), x:x + r.randint(1, w)] = 1
    noise = np.array([[r.random() < density for _ in range(w)] for _ in range(h)])
    return coco.encode(np.asfortranarray(m ^ noise.astype(np.uint8)))


def main():
    out = {"polygons": [], "rle": [], "mask_iou": []}
    for name, h, w, parts in polygons():
        out["polygons"].append(described(coco.merge(coco.frPyObjects(parts, h, w)), source=name, polygons=parts))
    for k in range(12):
        out["rle"].append(described(mask(r.randint(1, 30), r.randint(1, 30), 0.1 * (k % 4)), name="mask %d" % k))
    for k in range(6):
        h, w = r.randint(4, 30), r.randint(4, 30)
        dets, truths = [mask(h, w, 0.05) for _ in range(4)], [mask(h, w, 0.05) for _ in range(3)]
        crowd = [0, 1, k % 2]
        text = lambda all: [dict(size=m["size"], counts=m["counts"].decode()) for m in all]
        out["mask_iou"].append(
            dict(detections=text(dets), ground_truth=text(truths), iscrowd=crowd, iou=coco.iou(dets, truths, crowd).tolist()))
    lines = ",\n".join('"%s": [\n%s\n]' % (k, ",\n".join(json.dumps(c, separators=(",", ":")) for c in v)) for k, v in out.items())
    pathlib.Path(__file__).with_name("masks.json").write_text("{\n%s\n}\n" % lines)


main()
