#!/usr/bin/env python3
"""How well predicted depth knows that a road is flat: Spearman's rank correlation of depth with 1 / (row - horizon) inside a polygon on the road, where both are
the same but for a scale; 0 of a depth that is one.

depth_road.py PLANE PREDICTED...
    PLANE      road_plane.json of the frames: horizon_row, own_lane_polygon_xy, in pixels of a frame
    PREDICTED  NAME_depth.png of `detctl predict` of whole frames
Prints a record for each picture and one for their mean. Needs numpy and Pillow."""
import json
import os
import sys

import numpy as np
from PIL import Image, ImageDraw


def ranks(x):
    """From 0; of equal values all have their mean rank."""
    _, where, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[where]


def correlation(depth, plane):
    mask = Image.new("1", depth.shape[::-1])
    ImageDraw.Draw(mask).polygon([tuple(p) for p in plane["own_lane_polygon_xy"]], fill=1)
    inside = np.asarray(mask)
    row = np.nonzero(inside)[0]
    if max(y for _, y in plane["own_lane_polygon_xy"]) >= depth.shape[0] or row.min() <= plane["horizon_row"]:
        sys.exit("the polygon is not below the horizon and in the picture of %d x %d" % depth.shape[::-1])
    if np.ptp(depth[inside]) == 0:
        return 0.0
    return np.corrcoef(ranks(depth[inside]), ranks(1 / (row - plane["horizon_row"])))[0, 1]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        plane = json.load(f)
    found = []
    for path in sys.argv[2:]:
        with Image.open(path) as f:
            found.append(correlation(np.asarray(f).astype(float), plane))
        print("road picture=%s correlation=%.3f" % (os.path.basename(path), found[-1]))
    print("road pictures=%d mean=%.3f least=%.3f" % (len(found), np.mean(found), min(found)))


main()
