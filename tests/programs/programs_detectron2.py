#!/usr/bin/env python3
"""detectron2 with DetectronHook as a job. DETD_DETECTRON2_PYTHON is a Python that has detectron2; DETD_DETECTRON2 is the
folder with its configs/."""  # SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../e2e")
from daemon import make_shapes, run_scenarios  # noqa: E402
from programs_torch import Node  # noqa: E402

PYTHON = os.environ.get("DETD_DETECTRON2_PYTHON", "python3")
CONFIG = os.environ.get("DETD_DETECTRON2", "") + "/configs/COCO-Detection/faster_rcnn_R_50_FPN_1x.yaml"


def detectron2():
    """7 pictures of validation on 2 ranks: each counts once; scores, and a checkpoint of step 4."""
    with Node() as d:
        shapes = d.root + "/shapes"
        make_shapes(shapes, 24, 7, 64)
        job = d.run(HERE + "/detectron2_job.py", "--ranks", 2, "checkpoint.every=4", words=(CONFIG, shapes), python=PYTHON)
        d.completed(job)
        rows = d.rows(job)
        assert {(split, step) for split, step, _ in rows} == {("train", 6), ("val", 6)}, rows
        terms = {"total", "loss_cls", "loss_box_reg", "loss_rpn_cls", "loss_rpn_loc"}
        assert {term for _, _, term in rows} == terms, rows
        assert {rows["train", 6, t][1] for t in terms} == {24.0} and {rows["val", 6, t][1] for t in terms} == {7.0}, rows
        assert ("bbox/AP", ) in d.sql("SELECT DISTINCT metric FROM eval WHERE job=?", job)
        assert [c["step"] for c in d.job(job)["checkpoints"]] == [4]


if __name__ == "__main__":
    found = subprocess.run([PYTHON, "-c", "import detectron2.engine"], capture_output=True, check=False)
    if found.returncode != 0 or not os.path.exists(CONFIG):
        print("skip: no Python with detectron2 (DETD_DETECTRON2_PYTHON, DETD_DETECTRON2)")
        sys.exit(77)
    run_scenarios((detectron2, ))
