#!/usr/bin/env python3
"""road.py FOLDER: README's depth job on the frames of depth_highway, for as many steps as show that it learns. Inside the polygon of road_plane.json depth is that
of a row but for a scale: asked for is a rank correlation with 1 / (row - horizon), as tests/bench/depth_road.py has it, that eight bands of depth across the picture do not have (.92)."""
import json
import os
import subprocess
import sys

from daemon import BUILD, Daemon
from depth import grey16
from ranks import submit

FOLDER = os.path.abspath(sys.argv[1])
STEPS, PICTURES, LEAST, PATIENCE_S = 240, (183, 195, 207, 218), 0.96, 1500


def spec():
    split = {name: {"format": "frames", "annotations": "%s/%s.txt" % (FOLDER, name), "images": FOLDER} for name in ("train", "val")}
    return {"name": "road", "model": {"preset": "featdepth_baseline_r18", "size": [128, 64], "smoothness": 0.003}, "data": split,
            "train": {"steps": STEPS, "batch": 4}, "val": {"every": STEPS}, "run": {"device": "cpu", "threads": 1, "ranks": 2}}


def inside(polygon, y):
    """Columns of a row whose middle is inside."""
    cuts = []
    for (x1, y1), (x2, y2) in zip(polygon, polygon[1:] + polygon[:1]):
        if (y1 <= y) != (y2 <= y):
            cuts.append(x1 + (y - y1) * (x2 - x1) / (y2 - y1))
    cuts.sort()
    return [x for left, right in zip(cuts[::2], cuts[1::2]) for x in range(int(left) + 1, int(right) + 1)]


def ranks_of(values):
    """From 0; of equal values all have their mean rank."""
    order, found, first = sorted(range(len(values)), key=values.__getitem__), [0.0] * len(values), 0
    while first < len(order):
        end = first
        while end < len(order) and values[order[end]] == values[order[first]]:
            end += 1
        for i in order[first:end]:
            found[i] = (first + end - 1) / 2
        first = end
    return found


def correlation(depth, plane):
    polygon, horizon = plane["own_lane_polygon_xy"], plane["horizon_row"]
    said, rows = [], []
    for y in range(int(horizon) + 1, len(depth), 2):  # every other row and column do
        for x in inside(polygon, y)[::2]:
            said.append(depth[y][x])
            rows.append(-y)
    a, b = ranks_of(said), ranks_of(rows)
    middle = (len(a) - 1) / 2
    spread = sum((x - middle) ** 2 for x in a) * sum((x - middle) ** 2 for x in b)
    return sum((x - middle) * (y - middle) for x, y in zip(a, b)) / spread ** 0.5 if spread else 0.0


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
