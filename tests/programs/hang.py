"""The classic hang: rank 0 validates alone and then waits for the others, which wait for it elsewhere. From the second
attempt on all ranks validate."""  # SPDX-License-Identifier: Apache-2.0
import os

import detd
import torch
import torch.distributed as dist

STEPS, HANGS_AT = 20, 15
run = detd.init()
dist.init_process_group("gloo")
rank, ranks, scores = dist.get_rank(), dist.get_world_size(), dist.new_group()
weight = torch.zeros(1, dtype=torch.float64)
if run.resume:
    weight = torch.load(run.resume)


def validate(step, deadline=0):
    with run.phase("validation of step %d" % step, deadline):
        found = weight.clone()
        dist.all_reduce(found, group=scores)  # the metric of all ranks
    return found.item() / ranks


for step in range(run.step + 1, STEPS + 1):
    gradient = torch.full((1, ), float(step + rank), dtype=torch.float64)
    dist.all_reduce(gradient)
    weight += gradient
    run.loss(step, total=(weight, 1))
    if step == HANGS_AT and os.environ["DETD_ATTEMPT"] == "1":
        if rank == 0:
            validate(step, deadline=15)
        dist.barrier()
    elif step % 5 == 0:
        run.metrics(step, score=validate(step))
        path = os.path.join(os.environ["DETD_JOB_DIR"], "step-%d" % step)
        if rank == 0:
            torch.save(weight, path)
        run.checkpoint(step, path if rank == 0 else None)
