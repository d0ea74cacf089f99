#!/usr/bin/env python3
"""Writes tests/golden/segm_ap.json: small scenes with masks, and their scores by COCO's own tools. Polygons, run
lengths as numbers and as text; crowds; equal scores; objects of one pixel, at every border, without a pixel; areas that
differ from the mask's; detections that are empty.

    pip install pycocotools && tests/golden/make_segm_ap.py
"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import copy
import io
import json
import pathlib
import random

import numpy as np
from pycocotools import mask as coco
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

r = random.Random(5)
SIZES = [(40, 60), (120, 200), (1, 300), (300, 1), (7, 7), (64, 64), (128, 65)]


def shape(h, w):
    """A bitmap: a box or an ellipse that may reach over the borders, with a bite taken out."""
    y, x = np.mgrid[:h, :w]
    cy, cx, ry, rx = r.uniform(0, h), r.uniform(0, w), r.uniform(.5, .6 * h), r.uniform(.5, .6 * w)
    m = (abs(y - cy) < ry) & (abs(x - cx) < rx) if r.random() < .4 else ((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1
    if r.random() < .3:
        m &= ~((abs(y - cy) < ry / 3) & (abs(x - cx) < rx / 2))
    return m


def near(m):
    """A bitmap like it."""
    m = np.roll(m, (r.randint(-3, 3), r.randint(-6, 6)), (0, 1))
    return m & (np.array([[r.random() for _ in range(m.shape[1])] for _ in range(m.shape[0])]) > .05)


def encode(m):
    e = coco.encode(np.asfortranarray(m.astype(np.uint8)))
    return dict(size=e["size"], counts=e["counts"].decode())


def numbers(m):
    flat, out, v = m.flatten(order="F"), [], 0
    while len(flat):
        n = int(np.argmax(flat != v)) if (flat != v).any() else len(flat)
        out.append(n)
        flat, v = flat[n:], 1 - v
    return dict(size=list(m.shape), counts=out)


def scene(name, objects, found):
    gt = dict(images=[dict(id=3 * i + 1, height=h, width=w, file_name="%d.png" % i) for i, (h, w) in enumerate(SIZES)],
              categories=[dict(id=c, name="class %d" % c) for c in (2, 3, 7)], annotations=[])
    dets = []
    for im in gt["images"]:
        h, w = im["height"], im["width"]
        for k in range(objects):
            m, crowd = shape(h, w), int(r.random() < .12)
            if k == 0:
                m = np.zeros((h, w), bool)
                m[r.randrange(h), r.randrange(w)] = True
            if k == 1:
                m = np.ones((h, w), bool)
            x, y, bw, bh = r.uniform(0, w), r.uniform(0, h), r.uniform(1, w), r.uniform(1, h)
            segm = r.choice(
                [encode(m),
                 numbers(m), [[x, y, x + bw, y, x + bw, y + bh, x, y + bh]] + [[x / 2, y / 2, x, y / 2, x / 3, y]] * (k % 2)])
            if crowd and isinstance(segm, list):
                segm = numbers(m)  # that is how crowds come
            bitmap = m if isinstance(segm, dict) else coco.decode(coco.merge(coco.frPyObjects(segm, h, w))).astype(bool)
            area = float(bitmap.sum()) if r.random() < .8 else r.choice([1024.0, 9216.0, 12345.0])
            gt["annotations"].append(
                dict(id=len(gt["annotations"]) + 1, image_id=im["id"], category_id=r.choice([2, 2, 3]), iscrowd=crowd, area=area,
                     bbox=[float(v) for v in coco.toBbox(coco.encode(np.asfortranarray(bitmap.astype(np.uint8))))], segmentation=segm))
            for _ in range(r.randint(0, found)):
                mask = near(bitmap) if r.random() < .8 else shape(h, w)
                if r.random() < .05:
                    mask = np.zeros((h, w), bool)
                dets.append(
                    dict(image_id=im["id"], category_id=r.choice([2, 2, 3, 7]), segmentation=encode(mask),
                         score=round(r.random(), r.choice([1, 6]))))
    return dict(name=name, iou_type="segm", gt=gt, detections=dets)


def scored(case):
    with contextlib.redirect_stdout(io.StringIO()):
        truths = COCO()
        truths.dataset = copy.deepcopy(case["gt"])
        truths.createIndex()
        e = COCOeval(truths, truths.loadRes(copy.deepcopy(case["detections"])), "segm")
        e.evaluate()
        e.accumulate()
        e.summarize()
    precision, recall = e.eval["precision"], e.eval["recall"]  # [T, R, K, A, M], [T, K, A, M]
    mean = lambda v: float(v[v > -1].mean()) if (v > -1).any() else -1.0
    at = {"%.2f" % t: mean(precision[i, :, :, 0, 2]) for i, t in enumerate(e.params.iouThrs)}
    each = [dict(category_id=int(c), AP=mean(precision[:, :, k, 0, 2]), AP50=mean(precision[0, :, k, 0, 2]), AR100=mean(recall[:, k, 0, 2]))
            for k, c in enumerate(e.params.catIds)]
    return dict(case, stats=[float(v) for v in e.stats], ap_at_iou=at, per_category=each)


def main():
    cases = [scored(scene("few", 3, 2)), scored(scene("many", 9, 4)), scored(scene("none found", 2, 0) | {"detections": [
        dict(image_id=1, category_id=7, segmentation=encode(np.zeros(SIZES[0], bool)), score=.5)]})]
    path = pathlib.Path(__file__).with_name("segm_ap.json")
    path.write_text('{"cases": [\n%s\n]}\n' % ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))


main()
