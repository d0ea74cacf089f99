#!/usr/bin/env python3
"""Makes tests/golden/trainer/beyond.json and beyond_scores.json for tests/golden/test_validate.c: the boxes of
val.json, with boxes at a border of their picture made to reach over it, and pycocotools' scores of the detections of
make_trainer.py's validation against them (VOC's score: scores.py). Run from the repository root with any Python that
has torch and pycocotools, after make_trainer.py: tests/golden/make_beyond.py"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import random

import numpy as np
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import make_trainer as trainer
import scores

OVER = 9  # pixels


def arrays(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    return {name: torch.from_numpy(np.frombuffer(data[slice(*a["data_offsets"])], np.float32).reshape(a["shape"]).copy())
            for name, a in header.items() if name != "__metadata__"}


def beyond(split):
    """A box that begins at a border begins in front of it, and a box that ends near the other border ends behind it;
    the part in the picture stays."""
    size = {i["id"]: (i["width"], i["height"]) for i in split["images"]}
    for a in split["annotations"]:
        box, limits = a["bbox"], size[a["image_id"]]
        for k in range(2):
            if box[k] == 0:
                box[k], box[k + 2] = -OVER, box[k + 2] + OVER
            elif box[k] + box[k + 2] == limits[k]:
                box[k + 2] += OVER
    return split


def detections(pictures):
    text, o = trainer.cfg(), trainer.VALIDATE["val"]
    weights = arrays(trainer.OUT + "trained.safetensors")
    net = trainer.yolo.Net(text, torch.float64, lambda name, shape, fan_in: weights[name])
    images, _, places = trainer.val_batch(pictures)
    with torch.no_grad():
        heads = net.forward(images, False)
    return [(i, k, score, trainer.in_picture(box, rows, places[i]))
            for i, (rows, _) in enumerate(pictures) for k, score, box in trainer.found(heads, i, o)]


def coco_scores(split, dets):
    truth = COCO()
    with contextlib.redirect_stdout(io.StringIO()):
        truth.dataset = split
        truth.createIndex()
        found = truth.loadRes([{"image_id": i + 1, "category_id": trainer.IDS[k], "bbox": list(box), "score": s} for i, k, s, box in dets])
        e = COCOeval(truth, found, "bbox")
        e.evaluate()
        e.accumulate()
        e.summarize()
    values = {name: None if v < 0 else float(v) for name, v in zip(scores.NAMES, e.stats)}
    half = e.eval["precision"][0, :, :, 0, 2]  # at an overlap of .5, by class
    return values, {f"AP50:{name}": float(half[:, k].mean()) for k, name in enumerate("abc")}


def main():
    with open(trainer.OUT + "val.json") as f:
        split = beyond(json.load(f))
    dets = detections(trainer.val_split(random.Random(6)))
    truths = [(a["image_id"] - 1, trainer.IDS.index(a["category_id"]), tuple(a["bbox"])) for a in split["annotations"]]
    trainer.apart([scores.iou(d[3], t[2]) for d in dets for t in truths if d[:2] == t[:2]], scores.THRESHOLDS, "overlaps")
    values, ap50 = coco_scores(split, dets)
    with open(trainer.OUT + "beyond.json", "w") as f:
        json.dump(split, f)
        f.write("\n")
    trainer.write_json("beyond_scores.json", {**values, "voc_AP50": scores.voc(dets, truths, trainer.CLASSES), **ap50})


if __name__ == "__main__":
    main()
