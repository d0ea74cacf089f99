#!/usr/bin/env python3
"""The peer of bench_step on a GPU: the same YOLOv3 training step (Darknet-53, three heads, SGD with momentum) in
PyTorch at its best settings: channels_last, cudnn.benchmark, autocast, fused SGD; eager and torch.compile, both also as
one CUDA graph of the whole step, so that neither pays for launches. The heads' loss is a cheap stand-in (mean of
squares), which favours the peer. A record "peer" a case and mode, as soon as it is measured: the median step, by events
on the GPU between steps that follow one another without a stop, which favours the peer too.

    peer_gpu.py [--steps 20] [--precisions bf16,...] [--sizes 416,...] [--batches 16,...]
                [--modes eager,graph,compile,compile-graph] [--dry]

Modes: eager, graph, compile, compile-graph, and reduce-overhead, PyTorch's own way to graphs, for where compile-graph does not work.
--dry does all of it once on the CPU with a small network and a compiler that leaves the code as it is: its numbers mean
nothing."""  # SPDX-License-Identifier: Apache-2.0
import argparse
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, OUT = 80, 3 * 85
WARM = 4  # steps before any is timed
MODES = ["eager", "graph", "compile", "compile-graph", "reduce-overhead"]


class Conv(nn.Sequential):
    def __init__(self, cin, cout, size, stride=1):
        super().__init__(nn.Conv2d(cin, cout, size, stride, size // 2, bias=False), nn.BatchNorm2d(cout, momentum=0.03),
                         nn.LeakyReLU(0.1, inplace=True))


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
    def __init__(self, c=32, blocks=(1, 2, 8, 8, 4)):  # c: channels of the first convolution
        super().__init__()
        stages = [stage((2 << i) * c, n) for i, n in enumerate(blocks)]
        self.s8, self.s16, self.s32 = nn.Sequential(Conv(3, c, 3), *stages[:3]), stages[3], stages[4]
        self.n32, self.n16, self.n8 = Neck(32 * c, 16 * c), Neck(24 * c, 8 * c), Neck(12 * c, 4 * c)
        self.l32, self.l16 = Conv(16 * c, 8 * c, 1), Conv(8 * c, 4 * c, 1)

    def forward(self, x):
        a = self.s8(x)
        b = self.s16(a)
        y, h32 = self.n32(self.s32(b))
        y, h16 = self.n16(torch.cat([F.interpolate(self.l32(y), scale_factor=2, mode="nearest"), b], 1))
        _, h8 = self.n8(torch.cat([F.interpolate(self.l16(y), scale_factor=2, mode="nearest"), a], 1))
        return h32, h16, h8


class Case:
    """A network, its optimizer and images."""

    def __init__(self, precision, size, batch, dry):
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
        self.device, self.dry, self.bf16, self.batch = "cpu" if dry else "cuda", dry, precision == "bf16", batch
        self.net = (YoloV3(4, (1, 1, 1, 1, 1)) if dry else YoloV3()).to(self.device).to(memory_format=torch.channels_last)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-6, momentum=0.9, weight_decay=5e-4, fused=True)
        self.x = torch.rand(batch, 3, size, size, device=self.device).to(memory_format=torch.channels_last)

    def step(self, run):
        # A weight is cast once a step, a cache would save nothing and does not go with graphs.
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            heads = run(self.x)
        loss = sum((h.float() ** 2).mean() for h in heads)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()

    def compiled(self, **options):
        torch._dynamo.reset()  # otherwise shapes compiled for an earlier case would make the shapes of this case dynamic
        return torch.compile(self.net, dynamic=False, **({"backend": "aot_eager"} if self.dry else options))

    def graph(self, run):
        """Returns a function that runs the whole step as a single launch. The CPU has no graphs."""
        if self.dry:
            return lambda: self.step(run)
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                self.step(run)
        torch.cuda.current_stream().wait_stream(side)
        self.opt.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.step(run)
        return graph.replay

    def reduce_overhead(self):
        run = self.compiled(mode="reduce-overhead")

        def step():
            torch.compiler.cudagraph_mark_step_begin()
            self.step(run)

        return step

    def seconds(self, step, steps):
        """The median of as many steps."""
        for _ in range(WARM):
            step()
        if self.dry:
            times = [time.perf_counter()]
            for _ in range(steps):
                step()
                times.append(time.perf_counter())
            return statistics.median(b - a for a, b in zip(times, times[1:]))
        events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        torch.cuda.synchronize()
        events[0].record()
        for e in events[1:]:
            step()
            e.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) / 1e3

    def measure(self, modes, steps):
        """Yields a mode with its seconds, or with the reason of its failure: out of memory, or a compiler that does not
        run here."""
        compiled = None
        for mode in modes:
            try:
                if mode == "reduce-overhead":
                    step = self.reduce_overhead()
                else:
                    if mode.startswith("compile"):
                        compiled = self.compiled() if compiled is None else compiled
                    run = compiled if mode.startswith("compile") else self.net
                    step = self.graph(run) if mode.endswith("graph") else lambda: self.step(run)
                yield mode, self.seconds(step, steps), None
            except Exception as e:  # pylint: disable=broad-except # if a compiler fails in any way, the other modes still count
                yield mode, None, "%s: %s" % (type(e).__name__, (str(e).strip() or "no reason").splitlines()[0][:160])
            step = run = None  # a graph keeps its memory as long as a variable refers to it


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--precisions", default="bf16")
    p.add_argument("--sizes", default="416")
    p.add_argument("--batches", default="16")
    p.add_argument("--modes", default="eager,graph,compile,compile-graph")
    p.add_argument("--dry", action="store_true")
    a = p.parse_args()
    modes = a.modes.split(",")
    if not set(modes) <= set(MODES):
        p.error("modes are: " + ", ".join(MODES))
    failed = 0
    for precision in a.precisions.split(","):
        for size in (int(s) for s in a.sizes.split(",")):
            for batch in (int(b) for b in a.batches.split(",")):
                for mode, seconds, why in Case(precision, size, batch, a.dry).measure(modes, a.steps):
                    case = "precision=%s size=%d batch=%d mode=%s" % (precision, size, batch, mode)
                    if why:
                        failed += 1
                        print("peer_gpu.py: %s: %s" % (case, why), file=sys.stderr, flush=True)
                    else:
                        print("peer %s images_per_s=%.2f ms=%.3f" % (case, batch / seconds, 1e3 * seconds), flush=True)
    return 1 if failed else 0


sys.exit(main())
