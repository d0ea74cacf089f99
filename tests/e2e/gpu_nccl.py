#!/usr/bin/env python3
"""Jobs of 1, 2 and 4 ranks that share one GPU through the real NCCL (2.30 or newer) instead of the host's memory: equal
rows and models, also with SyncBN and after a killed rank. gpu_nccl.py [NAME=VALUE ...]: more of the ranks' environment,
as NCCL_P2P_DISABLE=1. On the emulated GPU, which has no NCCL, ranks meet in the host's memory, and this shows nothing
but that the program works."""  # SPDX-License-Identifier: Apache-2.0
import random
import sys

from gpu_node import REAL, Node
from ranks import base_spec, compare, draw, finish, merged, struck, submit

ENV = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1", "DETD_TEST_SHARED_LINK": "1", "NCCL_DEBUG": "INFO",
    **dict(word.split("=", 1) for word in sys.argv[1:])
}


def shared(ranks):
    return {"run": {"device": "cuda", "deterministic": "world", "ranks": ranks, "ranks_per_gpu": ranks, "env": ENV}}


def met_on_nccl(d, job):
    """NCCL says in the log of a rank that it is there."""
    with open("%s/jobs/%d/log/rank-0.log" % (d.state, job), encoding="utf-8", errors="replace") as f:
        said = [line for line in f if "NCCL INFO" in line]
    assert bool(said) == REAL, "job %d: %d lines of NCCL" % (job, len(said))
    ways = sorted({line.split(" via ", 1)[1].strip() for line in said if " via " in line})
    print("job %d: %s" % (job, ", ".join(ways) or "no transport named"), flush=True)


def together(d, title, base, ranks):
    jobs = []
    for n in ranks:
        jobs.append(("%d ranks" % n, submit(d, merged(base, shared(n)), "%s, %d ranks" % (title, n))))
        finish(d, jobs[-1][1])  # there is one GPU
        if n > 1:
            met_on_nccl(d, jobs[-1][1])
    compare(d, title, jobs)
    return jobs


def main():
    with Node() as d:
        draw(d.root + "/shapes")
        base = merged(base_spec(d.root + "/shapes"), {"train": {"steps": 5, "batch": 8, "shards": 4, "log_every": 1}, "val": {"every": 5}})
        together(d, "NCCL", base, (1, 2, 4))
        together(d, "NCCL, SyncBN", merged(base, {"model": {"sync_bn": True}}), (1, 2))
        longer = merged(base, {"train": {"steps": 12}, "checkpoint": {"every": 3}, "val": {"every": 6}, "run": {"restarts": 5}})
        calm = submit(d, merged(longer, shared(1)), "undisturbed")
        finish(d, calm)
        compare(d, "NCCL, a killed rank", [("1 rank", calm),
                                           ("2 ranks", struck(d, merged(longer, shared(2)), "killed", 5, random.Random(1)))])


main()
