#!/usr/bin/env python3
"""The peer of bench_step: the same yolov3-tiny training step (416 x 416, batch 8, SGD with momentum) in PyTorch at its best CPU settings.
A record "peer" a mode: fp32 channels_last, bf16 autocast channels_last. The head's loss is a cheap stand-in (mean of
squares), which favours the peer.
Usage: peer_torch.py THREADS STEPS [SIZE BATCH]"""  # SPDX-License-Identifier: Apache-2.0
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

THREADS, STEPS = int(sys.argv[1]), int(sys.argv[2])
SIZE, BATCH = (int(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 4 else (416, 8)
CLASSES = 80
LIMIT_S = 15  # of a mode: where other programs have the CPUs, its threads wait for each other for seconds
torch.set_num_threads(THREADS)


def conv(cin, cout, size):
    return nn.Sequential(nn.Conv2d(cin, cout, size, 1, size // 2, bias=False), nn.BatchNorm2d(cout), nn.LeakyReLU(0.1, inplace=True))


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        down = []
        for i, (a, b) in enumerate(((3, 16), (16, 32), (32, 64), (64, 128))):
            down += [conv(a, b, 3), nn.MaxPool2d(2, 2)]
        self.down = nn.Sequential(*down, conv(128, 256, 3))
        self.deep = nn.Sequential(nn.MaxPool2d(2, 2), conv(256, 512, 3), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(2, 1), conv(512, 1024, 3),
                                  conv(1024, 256, 1))
        out = 3 * (5 + CLASSES)
        self.head1 = nn.Sequential(conv(256, 512, 3), nn.Conv2d(512, out, 1))
        self.lateral = conv(256, 128, 1)
        self.head2 = nn.Sequential(conv(384, 256, 3), nn.Conv2d(256, out, 1))

    def forward(self, x):
        mid = self.down(x)
        deep = self.deep(mid)
        up = F.interpolate(self.lateral(deep), scale_factor=2, mode="nearest")
        return self.head1(deep), self.head2(torch.cat([up, mid], 1))


def run(bf16):
    torch.manual_seed(1)
    net = Tiny().to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)
    x = torch.rand(BATCH, 3, SIZE, SIZE).to(memory_format=torch.channels_last)
    best, began = 1e9, time.perf_counter()
    for i in range(STEPS + 2):
        start = time.perf_counter()
        if i > 3 and start - began > LIMIT_S:
            break
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            heads = net(x)
        loss = sum((h.float() ** 2).mean() for h in heads)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if i >= 2:
            best = min(best, time.perf_counter() - start)
    return BATCH / best


print("peer mode=fp32 images_per_s=%.3f" % run(False), flush=True)
print("peer mode=bf16 images_per_s=%.3f" % run(True), flush=True)
