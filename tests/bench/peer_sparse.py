#!/usr/bin/env python3
"""The peer of Sparse R-CNN: the network of tests/golden/sparse.py, trained on the CPU with PyTorch's own operations and SciPy's matching.

peer_sparse.py [--px 320 --batch 2 --classes 80 --steps N --threads N --layout plain|channels_last --compile]
    a record "peer" of the quickest training step of the small configuration (specs sparse_rcnn section 12.1) and of the
    median, in fp32, and of the most memory that the process held. --compile: backbone and pyramid, which have the same
    shapes in each step

Needs torch, torchvision, SciPy and numpy."""  # SPDX-License-Identifier: Apache-2.0
import argparse
import pathlib
import statistics
import sys
import time

import torch

import made_up

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))
import sparse  # noqa: E402

LIMIT_S = 60


def peak_mib():
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:"))


def shown(a):
    """Pictures and objects of bench_step."""
    mean, std = torch.tensor([123.675, 116.280, 103.530]), torch.tensor([58.395, 57.120, 57.375])
    x, truth = (torch.from_numpy(made_up.pictures(a.batch, a.px, a.px)).float() - mean) / std, []
    for i in range(a.batch):
        boxes = torch.tensor(made_up.boxes(i, a.px, a.px, a.classes))
        truth.append((boxes[:, 4], boxes[:, :4].float()))
    return x.permute(0, 3, 1, 2).contiguous(), truth, [(a.px, a.px)] * a.batch


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("threads", 2), ("px", 320), ("batch", 2), ("classes", 80), ("steps", 5)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--layout", choices=("plain", "channels_last"), default="channels_last")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    net, (x, truth, sizes) = sparse.Sparse(classes=a.classes).begin().train(), shown(a)
    if a.layout == "channels_last":
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if a.compile:
        net.backbone.compile()
    opt, times, began = torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9, fused=True), [], None
    for i in range(a.steps + 2):  # two steps that are not timed: the first ones compile
        start = time.perf_counter()
        loss = sparse.objective(net(x, sizes)[1], truth, sizes)[0]
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1)
        opt.step()
        began = time.perf_counter() if i == 1 else began
        if i >= 2:
            times.append(time.perf_counter() - start)
            if time.perf_counter() - began > LIMIT_S:
                break
    print("peer model=sparse_rcnn_r18_fpn layout=%s compiled=%d images_per_s=%.3f median_images_per_s=%.3f peak_mib=%.0f loss=%.4f" % (
        a.layout, a.compile, a.batch / min(times), a.batch / statistics.median(times), peak_mib(), loss.item()), flush=True)


main()
