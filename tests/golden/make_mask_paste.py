#!/usr/bin/env python3
"""Writes tests/golden/mask_paste.json: maps of probabilities laid over boxes in pictures by PyTorch's grid_sample (how
the "d2" flavour does it: half-pixel middles, zeros outside, at least one half) and by torchvision's
paste_masks_in_image ("tv": more than one half). Needs torch and torchvision.

    python3 -m venv torchenv && torchenv/bin/pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu
    torchenv/bin/python tests/golden/make_mask_paste.py
"""  # SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import random

import torch
from torchvision.models.detection.roi_heads import paste_masks_in_image

r = random.Random(7)
NEAR = 2e-4  # no pixel may come so close to one half: which side it falls on would hang on the order of operations


def half_pixel(m, box, h, w):
    x1, y1, x2, y2 = (torch.tensor(v, dtype=torch.float64) for v in box)
    gx = (torch.arange(w, dtype=torch.float64) + 0.5 - x1) / (x2 - x1) * 2 - 1
    gy = (torch.arange(h, dtype=torch.float64) + 0.5 - y1) / (y2 - y1) * 2 - 1
    grid = torch.stack([gx[None, :].expand(h, w), gy[:, None].expand(h, w)], dim=2)[None]
    return torch.nn.functional.grid_sample(m.double()[None, None], grid, align_corners=False)[0, 0]


def resized(m, box, h, w):
    return paste_masks_in_image(m[None, None], torch.tensor([box]), (h, w))[0, 0]


def case(how, side, box, h, w):
    for _ in range(1000):
        shape = [[r.uniform(-.3, .3) + (.9 if (x - side / 2) ** 2 + (y - side / 2) ** 2 < side * side / 6 else .1) for x in range(side)]
                 for y in range(side)]
        milli = [[min(1000, max(0, round(1000 * v))) for v in row] for row in shape]
        values = {"d2": half_pixel, "tv": resized}[how](torch.tensor(milli, dtype=torch.float32) / 1000, box, h, w)
        if (values - 0.5).abs().min() > NEAR:
            break
    else:
        raise SystemExit("no map for %s %s" % (how, box))
    rows = ["".join("#" if v > 0.5 else "." for v in row) for row in values.tolist()]
    return dict(how=how, box=box, map=milli, rows=rows)


BOXES = [  # box, height, width
    ([2.25, 1.5, 7.75, 6.25], 8, 10), ([-6.5, -3.25, 9.5, 12.0], 20, 24), ([10.0, 8.0, 33.5, 31.25], 24, 26),
    ([-20.0, -20.0, 60.0, 50.0], 30, 40), ([3.0, 4.0, 4.0, 5.0], 9, 9), ([0.0, 0.0, 17.0, 11.0], 11, 17), ([5.125, 2.0, 5.5, 30.0], 32, 12),
    ([1.0, 7.25, 31.0, 7.5], 12, 33), ([40.0, 3.0, 60.0, 9.0], 12, 30), ([0.5, 0.5, 69.25, 40.5], 41, 70),
]


def main():
    # that function accepts no box outside the picture
    cases = [case(how, side, box, h, w) for how in ("d2", "tv") for side in (1, 4, 7) for box, h, w in BOXES if how == "d2" or box[0] < w]
    cases += [case(how, 28, [3.5, 2.25, 20.0, 27.5], 30, 24) for how in ("d2", "tv")]
    pathlib.Path(__file__).with_name("mask_paste.json").write_text("[\n%s\n]\n" %
                                                                   ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))


main()
