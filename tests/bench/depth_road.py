#!/usr/bin/env python3
"""How well predicted depth knows that a road is flat: Spearman's rank correlation of depth with 1 / (row - horizon)
inside a polygon on the road, where both are the same but for a scale; 0 of a depth that is one.

depth_road.py PLANE PREDICTED...
    PLANE      road_plane.json of the frames: horizon_row, own_lane_polygon_xy, in pixels of a frame
    PREDICTED  NAME_depth.png of `detctl predict` of whole frames
Prints a record for each picture and one for their mean."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../e2e")
from grey16 import grey16  # noqa: E402


def inside(polygon, y):
    """Returns the columns of a row that are inside."""
    cuts = []
    for (x1, y1), (x2, y2) in zip(polygon, polygon[1:] + polygon[:1]):
        if (y1 <= y) != (y2 <= y):
            cuts.append(x1 + (y - y1) * (x2 - x1) / (y2 - y1))
    cuts.sort()
    return [x for left, right in zip(cuts[::2], cuts[1::2]) for x in range(int(left) + 1, int(right) + 1)]


def ranks(values):
    """Returns ranks from 0; equal values all have their mean rank."""
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
    """depth: rows of numbers, which are proportional to it."""
    polygon, horizon = plane["own_lane_polygon_xy"], plane["horizon_row"]
    top, bottom = min(y for _, y in polygon), max(y for _, y in polygon)
    if bottom >= len(depth) or max(x for x, _ in polygon) >= len(depth[0]) or top <= horizon:
        sys.exit("the polygon is not below the horizon and in the picture of %d x %d" % (len(depth[0]), len(depth)))
    pixels = [(depth[y][x], -y) for y in range(int(top), int(bottom) + 1) for x in inside(polygon, y)]
    a, b = ranks([d for d, _ in pixels]), ranks([y for _, y in pixels])  # 1 / (row - horizon) falls from row to row
    middle = (len(pixels) - 1) / 2
    spread = sum((x - middle) ** 2 for x in a) * sum((x - middle) ** 2 for x in b)
    return sum((x - middle) * (y - middle) for x, y in zip(a, b)) / spread ** 0.5 if spread else 0.0


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        plane = json.load(f)
    found = []
    for path in sys.argv[2:]:
        found.append(correlation(grey16(path), plane))
        print("road picture=%s correlation=%.3f" % (os.path.basename(path), found[-1]))
    print("road pictures=%d mean=%.3f least=%.3f" % (len(found), sum(found) / len(found), min(found)))


if __name__ == "__main__":
    main()
