#!/usr/bin/env python3
"""Writes tests/golden/depth_scores.json: NumPy's scores of depth maps against truths, by the formulas of the field's
evaluations. Needs numpy.

Maps are a formula that tests/unit/worker/eval/depth/test_depth_eval.c has too (maps()).
  one   [h, w, seed, crop, least, most, factor or null, pixels, ratio, the seven numbers]
  crop  [h, w, crop, top, bottom, left, right]
  many  of pictures of one rule: [seeds, crop, most, factor or null, the seven means, median ratio, its deviation]
Run from the repository root: tests/golden/make_depth_scores.py"""  # SPDX-License-Identifier: Apache-2.0
import json
import pathlib

import numpy as np


def maps(h, w, seed):
    """Truth in steps of 1/128 up to 128 m, a third of it unknown; prediction like a tenth of it, with noise; both exact in fp32."""
    i = np.arange(h * w, dtype=np.uint64) + np.uint64(seed * 1000003)
    v = (i * np.uint64(2654435761)) & np.uint64(0xffffffff)
    v = ((v ^ v >> np.uint64(15)) * np.uint64(2246822519)) & np.uint64(0xffffffff)
    far, noise = v >> np.uint64(8) & np.uint64(0x3fff), v >> np.uint64(22) & np.uint64(0x3ff)
    truth = np.where(v % np.uint64(3) == 0, 0, far / 128)
    return truth.reshape(h, w), ((far + noise * np.uint64(seed) + np.uint64(1)) / 1024).reshape(h, w)


def crop_of(h, w, crop):
    part = {"none": [0, 1, 0, 1], "garg": [0.40810811, 0.99189189, 0.03594771, 0.96405229],
            "eigen": [0.3324324, 0.91351351, 0.0359477, 0.96405229]}[crop]
    return (np.array(part) * [h, h, w, w]).astype(np.int32)


def score(h, w, seed, crop, least, most, factor):
    gt, pred = maps(h, w, seed)
    mask = np.logical_and(gt > least, gt < most)
    t, b, l, r = crop_of(h, w, crop)
    window = np.zeros(mask.shape)
    window[t:b, l:r] = 1
    mask = np.logical_and(mask, window)
    gt, pred = gt[mask], pred[mask]
    ratio = np.median(gt) / np.median(pred)
    pred = np.clip(pred * (ratio if factor is None else factor), least, most)
    worse = np.maximum(gt / pred, pred / gt)
    return int(mask.sum()), float(ratio), [float(x) for x in (
        np.mean(np.abs(gt - pred) / gt), np.mean((gt - pred) ** 2 / gt), np.sqrt(np.mean((gt - pred) ** 2)),
        np.sqrt(np.mean((np.log(gt) - np.log(pred)) ** 2)), np.mean(worse < 1.25), np.mean(worse < 1.25 ** 2), np.mean(worse < 1.25 ** 3))]


one = []
for seed, (h, w) in enumerate([(40, 64), (41, 63), (375, 1242), (7, 5), (1, 30)]):
    for crop in ("none", "garg", "eigen"):
        for least, most, factor in ((1e-3, 80, None), (1e-3, 50, None), (1e-3, 80, 7.5), (2, 50, 1), (90, 200, 8)):
            gt, _ = maps(h, w, seed)
            t, b, l, r = crop_of(h, w, crop)
            seen = gt[t:b, l:r]
            if np.logical_and(seen > least, seen < most).any():
                n, ratio, values = score(h, w, seed, crop, least, most, factor)
                one.append([h, w, seed, crop, least, most, factor, n, ratio, *values])
many = []
for seeds, crop, most, factor in (([1, 2, 3, 4, 5], "garg", 80, None), ([6, 7, 8, 9], "eigen", 50, 9.5), ([3], "none", 80, None)):
    rows = [score(24, 40, s, crop, 1e-3, most, factor) for s in seeds]
    ratios = np.array([r[1] for r in rows])
    med = np.median(ratios)
    many.append([seeds, crop, most, factor, *np.array([r[2] for r in rows]).mean(0).tolist(), float(med), float(np.std(ratios / med))])
crops = [[h, w, c, *(int(x) for x in crop_of(h, w, c))] for h, w in ((375, 1242), (370, 1226), (192, 640), (480, 640), (1, 1))
         for c in ("none", "garg", "eigen")]
rows = ",\n".join('"%s": [\n%s\n]' % (k, ",\n".join(json.dumps(r) for r in v)) for k, v in (("one", one), ("crop", crops), ("many", many)))
pathlib.Path("tests/golden/depth_scores.json").write_text("{\n%s\n}\n" % rows)
