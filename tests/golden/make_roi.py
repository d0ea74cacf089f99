#!/usr/bin/python3
"""Makes tests/golden/roi.safetensors with torchvision's roi_align in fp64: outputs, and the gradient of the features,
of boxes of all kinds on one image.

Inputs are a formula that tests/device/test_roi.c has too (golden_number()), and the boxes below, which are repeated
there. Arrays are named after pool, points a bin, and whether it is aligned: fwd.7.0.1 is [boxes, 7, 7, channels],
bwd.7.0.1 [height, width, channels]. Run from the repository root: python3 tests/golden/make_roi.py (needs torchvision)
"""  # SPDX-License-Identifier: Apache-2.0
import torch
from torchvision.ops import roi_align

from make_yolov3 import noise
from yolo import write

CHANNELS, HEIGHT, WIDTH, SCALE = 2, 13, 17, 0.25
BOXES = [(2, 1, 19, 13), (-6, -3, 9, 30), (22.5, 18.25, 24, 20), (10, 10, 10, 10), (0, 0, 68, 52), (-100, -80, 200, 170.5),
         (31.7, 8.3, 66.1, 49.9), (60, 40, 90, 80), (40, 30, 20, 10), (300, 300, 310, 320), (5.1, 6.2, 7.3, 9.4), (67.5, 51.5, 68.5, 52.5),
         (12, -30, 13, 90),]
CASES = [(7, sampling, aligned) for sampling in (0, 1, 2, 3) for aligned in (0, 1)] + [(14, 0, 1), (14, 2, 0), (1, 0, 1), (2, 2, 0)]


def number(of, i):
    """Uniform in [-2, 2]."""
    return float(torch.tensor(((noise(of * 100000 + i) >> 8) / 16777216.0 - 0.5) * 4, dtype=torch.float32))


def numbers(of, *shape):
    count = int(torch.tensor(shape).prod())
    return torch.tensor([number(of, i) for i in range(count)], dtype=torch.float64).reshape(shape)


def main():
    torch.set_num_threads(1)
    arrays = {}
    boxes = torch.tensor([(0, *b) for b in BOXES], dtype=torch.float32).double()
    for pool, sampling, aligned in CASES:
        x = numbers(0, HEIGHT, WIDTH, CHANNELS).permute(2, 0, 1)[None].contiguous().requires_grad_()
        y = roi_align(x, boxes, pool, SCALE, sampling, bool(aligned))
        y.backward(numbers(1, len(BOXES), pool, pool, CHANNELS).permute(0, 3, 1, 2).contiguous())
        arrays["fwd.%d.%d.%d" % (pool, sampling, aligned)] = y.detach().permute(0, 2, 3, 1).contiguous()
        arrays["bwd.%d.%d.%d" % (pool, sampling, aligned)] = x.grad[0].permute(1, 2, 0).contiguous()
    write("tests/golden/roi.safetensors", arrays)


main()
