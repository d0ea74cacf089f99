#!/usr/bin/env python3
"""mask_cells.py ANNOTATIONS [SIDE]... - the best that a mask head of SIDE x SIDE cells (default: 28 and 56) can score
on the objects of a COCO file: true boxes, with exactly the masks that the head is taught, pasted back and scored by
COCO's own tools. Flavor d2: outlines drawn on the cells, each pixel's middle looked up; flavor tv: bitmaps of pictures
whose shorter side is 256, 480 or 800 sampled, boxes of whole pixels (specs rcnn sections 5.2 and 6.3). Needs numpy and
pycocotools."""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import math
import sys

import numpy as np
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def drawn(polygons, box, side):
    """Polygons on the cells of a box."""
    x1, y1, x2, y2 = box
    scale = (side / max(x2 - x1, 0.1), side / max(y2 - y1, 0.1))
    moved = [[(v - (x1, y1)[k % 2]) * scale[k % 2] for k, v in enumerate(p)] for p in polygons]
    return np.any(coco_mask.decode(coco_mask.frPyObjects(moved, side, side)), 2).astype(float)


def band(lo, hi, side, cells):
    """RoIAlign along one axis at scale 1, not aligned, as many points a bin as it has pixels: [side, cells]."""
    size = max(hi - lo, 1)
    points, ret = math.ceil(size / side), np.zeros((side, cells))
    for p in range(side):
        for t in (lo + (p + (i + 0.5) / points) * size / side for i in range(points)):
            if -1 <= t <= cells:
                at = min(int(max(t, 0)), cells - 1)
                part = max(t, 0) - at if at < cells - 1 else 0
                ret[p, at] += (1 - part) / points
                ret[p, min(at + 1, cells - 1)] += part / points
    return ret


def sampled(bitmap, box, side, short):
    """A bitmap resized to the nearest pixels, then sampled in a box."""
    height, width = bitmap.shape
    scale = short / min(height, width)
    h, w = int(height * scale), int(width * scale)
    small = bitmap[np.minimum(np.arange(h) * height // h, height - 1)][:, np.minimum(np.arange(w) * width // w, width - 1)]
    return band(box[1] * h / height, box[3] * h / height, side, h) @ small @ band(box[0] * w / width, box[2] * w / width, side, w).T


def lookup(rim, y, x):
    """Bilinear samples of a map with a rim of zeros. Coordinates are cells; cell 0 is the first cell of the rim."""
    last = len(rim) - 1
    (iy, fy), (ix, fx) = ((np.minimum(t.astype(int), last), t - np.minimum(t.astype(int), last))
                          for t in (np.clip(y, 0, last), np.clip(x, 0, last)))
    rows = rim[iy] * (1 - fy)[:, None] + rim[np.minimum(iy + 1, last)] * fy[:, None]
    return rows[:, ix] * (1 - fx) + rows[:, np.minimum(ix + 1, last)] * fx


def pasted_d2(cells, box, height, width):
    x1, y1, x2, y2 = box
    side = len(cells)
    y, x = (np.arange(height) + 0.5 - y1) / (y2 - y1) * side + 0.5, (np.arange(width) + 0.5 - x1) / (x2 - x1) * side + 0.5
    return lookup(np.pad(cells, 1), y, x) >= 0.5


def pasted_tv(cells, box, height, width):
    side, ret = len(cells), np.zeros((height, width), bool)
    middle, half = np.array([box[0] + box[2], box[1] + box[3]]) / 2, np.array([box[2] - box[0], box[3] - box[1]]) / 2 * (side + 2) / side
    (x1, y1), (x2, y2) = np.trunc(middle - half).astype(int), np.trunc(middle + half).astype(int)
    w, h = max(x2 - x1 + 1, 1), max(y2 - y1 + 1, 1)
    values = lookup(np.pad(cells, 1), (np.arange(h) + 0.5) * (side + 2) / h - 0.5, (np.arange(w) + 0.5) * (side + 2) / w - 0.5)
    top, left, end, right = max(y1, 0), max(x1, 0), min(y1 + h, height), min(x1 + w, width)
    ret[top:end, left:right] = values[top - y1:end - y1, left - x1:right - x1] > 0.5
    return ret


def score(path, mask_of):
    """AP and AP@.5 of the masks that mask_of(truth, annotation, height, width) gives."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth, found = COCO(path), []
        for a in truth.anns.values():
            if a.get("iscrowd"):
                continue
            picture = truth.imgs[a["image_id"]]
            mask = mask_of(truth, a, picture["height"], picture["width"])
            found.append({"image_id": a["image_id"], "category_id": a["category_id"], "score": 1,
                          "segmentation": coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))})
        result = COCOeval(truth, truth.loadRes(found), "segm")
        result.evaluate()
        result.accumulate()
        result.summarize()
    return "AP %.3f, AP@.5 %.3f" % tuple(result.stats[:2])


def box_of(a):
    x, y, w, h = a["bbox"]
    return x, y, x + w, y + h


def main():
    for side in [int(s) for s in sys.argv[2:]] or [28, 56]:
        print(f"{side} x {side}, d2:",
              score(sys.argv[1], lambda t, a, h, w, side=side: pasted_d2(drawn(a["segmentation"], box_of(a), side), box_of(a), h, w)))
        for short in (256, 480, 800):
            print(
                f"{side} x {side}, tv, {short} px:",
                score(
                    sys.argv[1],
                    lambda t, a, h, w, s=side, n=short: pasted_tv(sampled(t.annToMask(a).astype(float), box_of(a), s, n), box_of(a), h, w)))


main()
