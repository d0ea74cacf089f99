#!/usr/bin/env python3
"""The peer of bench_step on a GPU: the same YOLOv3 training step (Darknet-53, three heads, SGD with momentum) in PyTorch at its best settings:
channels_last, cudnn.benchmark, autocast, fused SGD, eager and torch.compile; the better of the two counts. The heads' loss is a cheap stand-in (mean of
squares), which favours the peer. A record "peer" a case.
Usage: peer_gpu.py STEPS PRECISION,... SIZE,... BATCH,... [--no-compile]"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = int(sys.argv[1])
PRECISIONS, SIZES, BATCHES = sys.argv[2].split(","), [int(s) for s in sys.argv[3].split(",")], [int(b) for b in sys.argv[4].split(",")]
MODES = ["eager"] if "--no-compile" in sys.argv else ["eager", "compile"]
CLASSES, OUT = 80, 3 * 85
torch.backends.cudnn.benchmark = True


class Conv(nn.Sequential):
    def __init__(self, cin, cout, size, stride=1):
        super().__init__(nn.Conv2d(cin, cout, size, stride, size // 2, bias=False), nn.BatchNorm2d(cout, momentum=0.03), nn.LeakyReLU(0.1, inplace=True))


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = Conv(c, c // 2, 1), Conv(c // 2, c, 3)

    def forward(self, x):
        return x + self.b(self.a(x))


def stage(c, n):
    return nn.Sequential(Conv(c // 2, c, 3, 2), *[Residual(c) for _ in range(n)])


class Neck(nn.Module):
    """Five convolutions, then the head; gives both."""

    def __init__(self, cin, c):
        super().__init__()
        self.body = nn.Sequential(Conv(cin, c, 1), Conv(c, 2 * c, 3), Conv(2 * c, c, 1), Conv(c, 2 * c, 3), Conv(2 * c, c, 1))
        self.head = nn.Sequential(Conv(c, 2 * c, 3), nn.Conv2d(2 * c, OUT, 1))

    def forward(self, x):
        y = self.body(x)
        return y, self.head(y)


class YoloV3(nn.Module):
    def __init__(self):
        super().__init__()
        self.s8 = nn.Sequential(Conv(3, 32, 3), stage(64, 1), stage(128, 2), stage(256, 8))
        self.s16, self.s32 = stage(512, 8), stage(1024, 4)
        self.n32, self.n16, self.n8 = Neck(1024, 512), Neck(768, 256), Neck(384, 128)
        self.l32, self.l16 = Conv(512, 256, 1), Conv(256, 128, 1)

    def forward(self, x):
        a = self.s8(x)
        b = self.s16(a)
        y, h32 = self.n32(self.s32(b))
        y, h16 = self.n16(torch.cat([F.interpolate(self.l32(y), scale_factor=2, mode="nearest"), b], 1))
        _, h8 = self.n8(torch.cat([F.interpolate(self.l16(y), scale_factor=2, mode="nearest"), a], 1))
        return h32, h16, h8


def images_per_s(precision, size, batch, mode):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    net = YoloV3().cuda().to(memory_format=torch.channels_last)
    run = torch.compile(net) if mode == "compile" else net
    opt = torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9, weight_decay=5e-4, fused=True)
    x = torch.rand(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            heads = run(x)
        loss = sum((h.float() ** 2).mean() for h in heads)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / STEPS)
    return batch / best


for precision in PRECISIONS:
    for size in SIZES:
        for batch in BATCHES:
            found = {}
            for mode in MODES:
                try:
                    found[mode] = images_per_s(precision, size, batch, mode)
                except RuntimeError as e:  # out of memory, or a compiler that does not run here: the other mode counts
                    print("%s %d %d %s failed: %s" % (precision, size, batch, mode, str(e).splitlines()[0][:120]), file=sys.stderr)
                torch.cuda.empty_cache()
            if found:
                mode = max(found, key=found.get)
                print("peer precision=%s size=%d batch=%d images_per_s=%.2f mode=%s" % (precision, size, batch, found[mode], mode), flush=True)
