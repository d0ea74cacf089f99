#!/usr/bin/env python3
"""road.py FOLDER: the job of docs/depth.md on the frames of depth_highway, for as many steps as show that it learns:
depth of the lane is in the order of a plane's (tests/bench/depth_road.py), more so than eight bands of depth across the
picture would be (.92)."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys

from daemon import BUILD, Daemon
from depth_road import correlation
from grey16 import grey16
from ranks import submit

FOLDER = os.path.abspath(sys.argv[1])
STEPS, PICTURES, LEAST, PATIENCE_S = 240, (183, 195, 207, 218), 0.96, 1500


def spec():
    split = {name: {"format": "frames", "annotations": "%s/%s.txt" % (FOLDER, name), "images": FOLDER} for name in ("train", "val")}
    return {"name": "road", "model": {"preset": "featdepth_baseline_r18", "size": [128, 64], "smoothness": 0.003}, "data": split,
            "train": {"steps": STEPS, "batch": 4}, "val": {"every": STEPS}, "run": {"device": "cpu", "threads": 1, "ranks": 2}}


def main():
    with open(FOLDER + "/road_plane.json", encoding="utf-8") as f:
        plane = json.load(f)
    with Daemon(foreign=False, slots=2) as d:
        job = submit(d, spec(), "road")
        ended = d.wait(job, lambda j: j["state"] in ("completed", "failed", "cancelled"), PATIENCE_S)
        assert ended["state"] == "completed", ended
        out = d.root + "/out"
        subprocess.run([BUILD + "/detctl", "--socket", d.path, "predict", str(job), "--checkpoint", "last", "-o", out] +
                       ["%s/frames/%06d.jpg" % (FOLDER, i) for i in PICTURES], check=True, stdout=subprocess.DEVNULL)
        found = [correlation(grey16("%s/%06d_depth.png" % (out, i)), plane) for i in PICTURES]
        print("road: rank correlation of depth and plane %s" % ["%.3f" % c for c in found])
        assert min(found) >= LEAST, found


main()
