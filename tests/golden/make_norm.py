#!/usr/bin/python3
"""Makes tests/golden/norm.safetensors with PyTorch (Debian: python3-torch): running statistics after two steps of batch normalisation over a
batch that is cut into eight shards, in fp64.

Everything that goes in is a formula that tests/device/test_norm.c has too (golden_number()), so only results are stored: [mean of each
channel, variance of each channel].
  even.sync    eight shards of 64 pixels with means of +-.7: BatchNorm2d over all of them as one batch
  even.shards  the same shards, each normalised by itself: the mean over shards of mean and unbiased variance
  uneven.sync  shards of 1 to 40 pixels, four of them a single one: BatchNorm2d over all of them as one batch
Run from the repository root: /usr/bin/python3 tests/golden/make_norm.py"""  # SPDX-License-Identifier: Apache-2.0
import torch

from make_yolov3 import noise
from yolo import write

CHANNELS, STEPS, MOMENTUM = 3, 2, 0.1
EVEN, UNEVEN = [64] * 8, [1, 6, 25, 1, 40, 3, 1, 1]


def number(step, shard, pixel, channel):
    """Uniform in [-1.2, 1.2] around +-.7 (channel 0), so that the variance of the whole is twice that of a shard."""
    u = (noise(((step * 8 + shard) * 64 + pixel) * CHANNELS + channel) >> 8) / 16777216.0
    return float(torch.tensor((u - 0.5) * 2.4 + (0.7 if shard % 2 else -0.7) * (1 + channel), dtype=torch.float32))


def shards_of(step, pixels):
    """[pixels, channels] of each shard."""
    return [torch.tensor([[number(step, v, p, k) for k in range(CHANNELS)] for p in range(n)], dtype=torch.float64)
            for v, n in enumerate(pixels)]


def as_image(x):
    return x.t().reshape(1, CHANNELS, -1, 1)


def sync(pixels):
    norm = torch.nn.BatchNorm2d(CHANNELS, momentum=MOMENTUM).double().train()
    for step in range(STEPS):
        norm(as_image(torch.cat(shards_of(step, pixels))))
    return torch.cat([norm.running_mean, norm.running_var])


def shards(pixels):
    running = torch.cat([torch.zeros(CHANNELS), torch.ones(CHANNELS)]).double()
    for step in range(STEPS):
        found = []
        for x in shards_of(step, pixels):
            norm = torch.nn.BatchNorm2d(CHANNELS, momentum=1.0).double().train()
            norm(as_image(x))
            found.append(torch.cat([norm.running_mean, norm.running_var]))
        running = (1 - MOMENTUM) * running + MOMENTUM * sum(found) / len(found)
    return running


def main():
    torch.set_num_threads(1)
    arrays = {"even.sync": sync(EVEN), "even.shards": shards(EVEN), "uneven.sync": sync(UNEVEN)}
    for name, values in arrays.items():
        print(name, values.tolist())
    write("tests/golden/norm.safetensors", arrays)


if __name__ == "__main__":
    main()
