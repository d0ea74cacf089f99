#!/usr/bin/env python3
"""Writes tests/golden/max_dets_ap.json: a picture with more objects of a class than COCO's 100, and the scores of
COCO's own tools when more detections count (maxDets [1, 10, 200] and [1, 10, 300]), by boxes and by masks.

    pip install pycocotools && tests/golden/make_max_dets.py
"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import copy
import io
import json
import pathlib
import random

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

r = random.Random(11)
W, H, SIDE = 640, 480, 18


def outline(x, y, w, h):
    return [[x, y, x, y + h, x + w, y + h, x + w, y]]


def scene():
    gt = dict(images=[dict(id=3, width=W, height=H, file_name="a"), dict(id=8, width=W, height=H, file_name="b")],
              categories=[dict(id=1, name="x"), dict(id=5, name="y")], annotations=[])
    dets = []
    for image, objects in ((3, 170), (8, 12)):
        for k in range(objects):
            box = [k % 30 * 21, k // 30 * 40, SIDE + r.randrange(3), SIDE + r.randrange(20)]
            gt["annotations"].append(dict(id=len(gt["annotations"]) + 1, image_id=image, category_id=1 if k % 8 else 5, iscrowd=int(k == 5),
                                          area=box[2] * box[3], bbox=box))
            for _ in range(r.choice([1, 1, 1, 2])):
                near = [v + r.choice([0, 0, 0, 1, 2]) for v in box]
                dets.append(dict(image_id=image, category_id=1 if k % 8 or r.random() < .1 else 5, bbox=near, score=round(r.random(), 3)))
    return gt, dets


def scored(gt, dets, counted, kind):
    whole = copy.deepcopy(gt)
    for a in whole["annotations"]:
        a["segmentation"] = outline(*a["bbox"])
    with contextlib.redirect_stdout(io.StringIO()):
        truths = COCO()
        truths.dataset = whole
        truths.createIndex()
        e = COCOeval(truths, truths.loadRes(copy.deepcopy(dets)), kind)
        e.params.maxDets = [1, 10, counted]
        e.evaluate()
        e.accumulate()
    precision, recall = e.eval["precision"], e.eval["recall"]  # [T, R, K, A, M], [T, K, A, M]
    mean = lambda v: float(v[v > -1].mean()) if (v > -1).any() else -1.0
    ap = [mean(precision[:, :, :, 0, 2]), mean(precision[0, :, :, 0, 2]), mean(precision[5, :, :, 0, 2])]
    stats = ap + [mean(precision[:, :, :, a, 2]) for a in (1, 2, 3)]
    stats += [mean(recall[:, :, 0, m]) for m in (0, 1, 2)] + [mean(recall[:, :, a, 2]) for a in (1, 2, 3)]
    at = {"%.2f" % t: mean(precision[i, :, :, 0, 2]) for i, t in enumerate(e.params.iouThrs)}
    each = [dict(category_id=int(c), AP=mean(precision[:, :, k, 0, 2]), AP50=mean(precision[0, :, k, 0, 2]), AR100=mean(recall[:, k, 0, 2]))
            for k, c in enumerate(e.params.catIds)]
    return dict(name="%s, %d count" % (kind, counted), iou_type=kind, counted=counted, gt=gt, detections=dets, stats=stats, ap_at_iou=at,
                per_category=each)


def main():
    gt, dets = scene()
    cases = [scored(gt, dets, *of) for of in ((100, "bbox"), (200, "bbox"), (300, "bbox"), (200, "segm"))]
    assert cases[0]["stats"][0] < cases[1]["stats"][0] - .05, cases[0]["stats"]
    same = dict(gt=gt, detections=dets)
    for c in cases:
        del c["gt"], c["detections"]
    path = pathlib.Path(__file__).with_name("max_dets_ap.json")
    path.write_text('{"same": %s,\n"cases": [\n%s\n]}\n' %
                    (json.dumps(same, separators=(",", ":")), ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)))


main()
