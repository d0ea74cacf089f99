#!/usr/bin/env python3
"""Trains a little on real pictures, then has pycocotools score results.json of the validation split. usage:
pycocotools_reads.py BUILD_FOLDER"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.normpath(os.path.join(ROOT, "..", "shared", "data", "bccd"))
STATS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")


def reference(truth, results):
    """{metric: value}, as COCO's tools have it."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(truth)
        run = COCOeval(truth, truth.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    found, precision = dict(zip(STATS, run.stats)), run.eval["precision"]
    for k, category in enumerate(run.params.catIds):
        name = truth.cats[category]["name"]
        found["AP:" + name], found["AP50:" + name] = precision[:, :, k, 0, 2].mean(), precision[0, :, k, 0, 2].mean()
    return found


def main():
    worker, folder = os.path.join(os.path.abspath(sys.argv[1]), "detd-worker"), tempfile.mkdtemp(prefix="pycocotools-")
    with open(os.path.join(DATA, "val.json"), encoding="utf-8") as f:
        coco = json.load(f)
    coco["annotations"] = [a for a in coco["annotations"] if a["bbox"][2] * a["bbox"][3] > 0]  # as data.on_bad=skip has it
    split = {"annotations": folder + "/val.json", "images": DATA + "/images"}
    with open(split["annotations"], "w", encoding="utf-8") as f:
        json.dump(coco, f)
    spec = {"name": "job", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.125}, "data": {"train": split, "val": split},
            "train": {"steps": 40, "batch": 16, "lr": 0.003}, "val": {"every": 40}, "run": {"device": "cpu"}}
    with open(folder + "/job.json", "w", encoding="utf-8") as f:
        json.dump(spec, f)
    try:
        done = subprocess.run([worker, "--dir", folder + "/job", folder + "/job.json"], stdout=subprocess.PIPE, check=True)
        ours = [r["metrics"] for r in map(json.loads, done.stdout.splitlines()) if r["type"] == "eval"][-1]
        for asked in ("--split", "val"), ("--on", DATA + "/val.json"):
            subprocess.run([worker, "--predict", "--job-dir", folder + "/job", "--out", folder + "/out", "--no-pictures", *asked],
                           stdout=subprocess.DEVNULL, check=True)
            theirs = reference(split["annotations"], folder + "/out/results.json")
            worst = max(theirs, key=lambda name: abs(theirs[name] - ours[name]))
            assert len(theirs) == 18 and ours["AP50"] > 0.001, ours
            assert abs(theirs[worst] - ours[worst]) < 1e-9, (worst, theirs[worst], ours[worst])
        print("18 numbers of %d objects are pycocotools', the farthest apart by %g" %
              (len(coco["annotations"]), abs(theirs[worst] - ours[worst])))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
