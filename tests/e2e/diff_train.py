#!/usr/bin/env python3
"""Runs of the real trainer that differ in one thing, which detctl diff names: seed, learning rate at a later step,
batch; and runs that do not differ."""  # SPDX-License-Identifier: Apache-2.0
import os
import subprocess

from daemon import BUILD, Daemon, make_shapes
from ranks import merged

STEPS = 12


def submit(d, data, change):
    spec = {"model": {"preset": "yolov3_tiny", "size": 64, "width": 0.01},
            "data": {"train": {"annotations": data + "/train.json", "images": data + "/images"},
                     "val": {"annotations": data + "/val.json", "images": data + "/images"}},
            "train": {"steps": STEPS, "batch": 8, "shards": 4, "log_every": 5, "burn_in": 2, "lr_steps": [9]}, "val": {"every": 6},
            "run": {"device": "cpu", "threads": 1}}
    return d.call("job.submit", spec=merged(spec, change), token=os.urandom(8).hex())["id"]


def check(d, a, b, code, said):
    done = d.detctl("diff", a, b)
    assert done.returncode == code and not done.stderr and said in done.stdout, (said, done.returncode, done.stdout, done.stderr)
    print("ok ", done.stdout.strip().split("\n")[-1], flush=True)
    return done.stdout


def again(d, *jobs):
    """Removes the detailed records of the step, first for one job and then for both, as if the step were long ago. The
    step is trained again."""
    for n, job in enumerate(jobs):
        for name in ("ring", "tensors"):
            os.truncate("%s/jobs/%d/evidence.%s" % (d.state, job, name), 0)
        check(d, *jobs, 6, "step 1: update; data, losses, gradients and learning rate are equal; ")
        done = d.detctl("diff", "--rerun", *jobs)
        assert done.returncode == 6 and done.stderr.count(" trains step 1 of job ") == n + 1, done
        assert "step 1: update of module_list.0.conv_0.weight (13 of 59 tensors); " in done.stdout, done.stdout
        assert "verify" not in done.stdout, done.stdout
        print("ok  again:", done.stderr.strip().split("\n"), flush=True)
    assert "equal: steps 1 .. %d" % STEPS in d.detctl("diff", "--rerun", jobs[0], jobs[0]).stdout  # nothing to train again


def main():
    changes = {"first": {}, "again": {}, "ranks": {"run": {"ranks": 3, "deterministic": "world"}}, "seed": {"train": {"seed": 2}},
               "rate": {"train": {"lr_steps": [7]}}, "decay": {"train": {"weight_decay": 0.001}}, "losses": {"run": {"evidence": "losses"}},
               "off": {"run": {"evidence": "off"}}}
    with Daemon(foreign=False) as d:
        data = d.root + "/shapes"
        make_shapes(data, 16, 2, 32)
        jobs = {name: submit(d, data, change) for name, change in changes.items()}
        for name, job in jobs.items():
            done = d.wait(job, lambda j: j["state"] in ("completed", "failed"))
            assert done["state"] == "completed", (name, done["reason"])
        first = jobs["first"]
        check(d, first, jobs["again"], 0, "equal: steps 1 .. %d\n" % STEPS)
        said = check(d, first, jobs["ranks"], 0, "equal: steps 1 .. %d\n" % STEPS)
        assert "run.ranks" in said and "train." not in said and "identity" not in said, said
        said = check(d, first, jobs["seed"], 6, "step 1: data of shard 0 (of rank 0 | 0); tier rerun | rerun; ranks 1 | 1\n")
        assert "train.seed  1      2" in said, said
        check(d, first, jobs["rate"], 6, "step 7: learning rate 0.001 | 0.0001; data, losses and gradients are equal; ")
        check(d, first, jobs["decay"], 6, "step 1: update of ")
        check(d, first, jobs["losses"], 0, "equal: steps 1 .. %d\n" % STEPS)
        assert subprocess.run([BUILD + "/detctl", "--socket", d.path, "evidence", "export",
                               str(first), d.root + "/for-ann"], check=False).returncode == 0
        check(d, d.root + "/for-ann", jobs["ranks"], 0, "equal: steps 1 .. %d\n" % STEPS)
        check(d, d.root + "/for-ann", jobs["decay"], 6, "step 1: update of module_list.0.conv_0.weight (13 of 59 tensors); ")
        again(d, first, jobs["decay"])
        done = d.detctl("diff", first, jobs["off"])
        assert done.returncode == 1 and "job %d: no evidence in" % jobs["off"] in done.stderr, done


if __name__ == "__main__":
    main()
