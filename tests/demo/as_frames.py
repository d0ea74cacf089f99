#!/usr/bin/env python3
"""as_frames.py FOLDER SIDE: the pictures of make_shapes.py (SIDE x SIDE pixels) as the frames of a video, with a
made-up camera, as training data for depth networks. Writes intrinsics.json, train.txt and val.txt into the folder.
"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import sys


def main():
    data, side = sys.argv[1], int(sys.argv[2])
    frames = sum(name.startswith("train-") for name in os.listdir(data + "/images"))
    with open(data + "/intrinsics.json", "w", encoding="ascii") as f:
        json.dump({"fx": side * 0.9, "fy": side * 0.95, "cx": side * 0.52, "cy": side * 0.49, "width": side, "height": side,
                   "frame_pattern": "images/train-%04d.png", "first": 1, "last": frames}, f)
    val = 5  # targets; an odd number, so that the last shard of two is short
    for name, numbers in ("train", range(2, frames - val - 2)), ("val", range(frames - val, frames)):
        with open("%s/%s.txt" % (data, name), "w", encoding="ascii") as f:
            f.writelines("%d\n" % n for n in numbers)


main()
