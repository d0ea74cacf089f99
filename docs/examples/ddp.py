#!/usr/bin/env python3
"""PyTorch with DistributedDataParallel under detd. The lines with `run` are the ones that detd needs; without detd they
do nothing.

    detctl run --ranks 2 checkpoint.every=10 -- python3 ddp.py
    torchrun --nproc-per-node 2 ddp.py"""  # SPDX-License-Identifier: Apache-2.0
import os

import detd
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, VAL_EVERY = int(os.environ.get("STEPS", "30")), 12, 10  # BATCH: of all ranks together
run = detd.init()
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()

torch.manual_seed(1)
x = torch.randn(97, 8, dtype=torch.float64)
y = x[:, :2].square() + 0.1 * torch.randn(97, 2, dtype=torch.float64)
train, val = range(0, 84), range(84, 97)  # 13 examples for the validation: other numbers on each rank
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
if run.resume:
    saved = torch.load(run.resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
parallel = DistributedDataParallel(model)


def losses(net, examples):
    """Returns the sums of both losses over the examples, and their number."""
    error = net(x[examples]) - y[examples]
    return error.square().sum(), error.abs().sum(), len(examples)


def save(step):
    """Rank 0 writes the checkpoint of a step. Returns its path."""
    path = os.path.join(os.environ["DETD_JOB_DIR"], "checkpoints", "step-%d.pt" % step)
    if rank == 0:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".tmp")
        os.replace(path + ".tmp", path)
    return path


for step in range(run.step, STEPS):
    batch = [train[(step * BATCH + i) % len(train)] for i in range(rank, BATCH, ranks)]
    square, absolute, n = losses(parallel, batch)
    optimizer.zero_grad()
    (square / n).backward()
    optimizer.step()
    run.loss(step + 1, total=(square, n), absolute=(absolute, n), images=n)
    if (step + 1) % VAL_EVERY == 0:
        with torch.no_grad(), run.validation(step + 1) as found:  # `model`, not `parallel`: ranks must not wait for each other
            for i in range(rank, len(val), ranks):
                square, absolute, n = losses(model, [val[i]])
                found.add(total=(square, n), absolute=(absolute, n))
    pause = run.wants(step + 1, "pause")
    if run.wants(step + 1, "checkpoint") or pause:
        run.checkpoint(step + 1, save(step + 1))
    if pause:
        break
run.finish()
