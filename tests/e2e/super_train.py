#!/usr/bin/env python3
"""Two ranks of detd-worker under detd and detd-job: whichever process is killed or stopped, the losses and the model
are those of an undisturbed run."""  # SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import signal
import time

from daemon import Daemon, make_shapes

STEPS = 90
PATIENCE_S = 240


def spec(data):
    def split(name):
        return {"annotations": "%s/%s.json" % (data, name), "images": data + "/images"}

    return {
        "name": "shapes", "model": {"preset": "yolov3_tiny", "size": 96,
                                    "width": 0.25}, "data": {"train": split("train"), "val": split("val")},
        "train": {"steps": STEPS, "batch": 8, "shards": 2, "log_every": 3,
                  "lr": 0.002}, "val": {"every": 20}, "checkpoint": {"every": 5}, "run": {"ranks": 2, "device": "cpu", "restarts": 8}
    }


def rows(d, job):
    return d.sql("SELECT split, term, step, epoch, num, den, tier FROM loss WHERE job=? ORDER BY 1, 2, 3", job)


def model(d, job):
    path = "%s/jobs/%d/checkpoints/step-%d/model.safetensors" % (d.state, job, STEPS)
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def at_step(d, job, step):
    """Waits until a checkpoint of at least that step is published, so that there is something to go on from."""
    return d.wait(job, lambda j: any(c["step"] >= step for c in j["checkpoints"]), PATIENCE_S)


def disturb(d, job):
    at_step(d, job, 5)
    os.kill(d.rank_pid(job, 1), signal.SIGKILL)
    d.wait(job, lambda j: j["attempt"] >= 2, PATIENCE_S)
    at_step(d, job, 15)
    d.signal_supervisor(job, signal.SIGKILL)
    d.wait(job, lambda j: j["attempt"] >= 3, PATIENCE_S)
    at_step(d, job, 25)
    d.kill()
    before = d.newest_checkpoint(job)
    d.until(lambda: d.newest_checkpoint(job) > before, "the job stands still without detd")
    os.kill(d.rank_pid(job, 0), signal.SIGSTOP)  # while detd is away: a quick machine trains to the end before it is back
    stopped = time.time()
    d.start()
    now = d.wait(job, lambda j: any("rank 0 hangs in phase" in a["reason"] for a in j["attempts"]), PATIENCE_S)
    print("verdict after %.0f s: %s" % (time.time() - stopped, [a["reason"] for a in now["attempts"] if "hangs" in a["reason"]][0]))


def main():
    with Daemon(foreign=False) as d:
        data = d.root + "/shapes"
        make_shapes(data, 48, 12, 96)
        calm = d.call("job.submit", spec=spec(data), token="calm")["id"]
        d.wait(calm, "completed", PATIENCE_S)
        wild = d.call("job.submit", spec=spec(data), token="wild")["id"]
        disturb(d, wild)
        done = d.wait(wild, "completed", PATIENCE_S)
        print(json.dumps([(a["attempt"], a["resume_step"], a["reason"]) for a in done["attempts"]], indent=1))
        assert done["attempt"] == 4, done["attempts"]
        assert len(rows(d, calm)) > 100 and rows(d, calm) == rows(d, wild)
        assert model(d, calm) == model(d, wild)
        d.wait_left(wild)


main()
