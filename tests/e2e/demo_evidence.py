#!/usr/bin/env python3
"""The first steps of the demo's job leave the evidence that tests/demo/evidence holds, on this machine too, with other
ranks and another ISA. A commit that changes it says why, and writes it anew
(write)."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys

from daemon import HERE, Daemon
from ranks import PATIENCE_S, SLOTS, isas, merged, submit

DEMO = os.path.abspath(HERE + "/../demo")
KNOWN = DEMO + "/evidence"
STEPS, RECORD = 8, 128


def spec_of(data):
    with open(DEMO + "/job.json", encoding="utf-8") as f:
        spec = json.load(f)
    for split in spec["data"].values():
        for key in ("annotations", "images"):
            if key in split:
                split[key] = "%s/%s" % (data, split[key])
    return merged(spec, {"run": {"device": "cpu"}})


def draw(data):
    subprocess.run([sys.executable, DEMO + "/make_shapes.py", data, "--train", "400", "--val", "80", "--seed", "1"], check=True,
                   stdout=subprocess.DEVNULL)


def write(d, spec):
    """Writes the head and the first records, without the details, since these are long."""
    job = submit(d, spec, "demo")
    d.wait(job, lambda j: j["step"] > STEPS, PATIENCE_S)
    d.call("job.cancel", id=job)
    d.wait(job, "cancelled", PATIENCE_S)
    for name in ("evidence.json", "evidence.log"):
        with open("%s/jobs/%d/%s" % (d.state, job, name), "rb") as f:
            content = f.read()
        with open("%s/%s" % (KNOWN, name), "wb") as f:
            f.write(content[:STEPS * RECORD] if name.endswith(".log") else content)


def main():
    with Daemon(foreign=False, slots=SLOTS) as d:
        draw(d.root + "/shapes")
        spec = spec_of(d.root)
        if sys.argv[1:] == ["write"]:
            write(d, spec)
        verify = merged(spec, {"errand": {"evidence": KNOWN, "to": STEPS}})
        for run in ({"ranks": 2}, {"ranks": 1, "isa": isas()[:2][-1]}):
            job = submit(d, merged(verify, {"run": run}), str(run))
            ended = d.wait(job, lambda j: j["state"] in ("completed", "failed"), PATIENCE_S)
            print("%s: %s: %s" % (run, ended["state"], ended["reason"]))
            assert ended["reason"] == "equal: steps 1 .. %d" % STEPS, "the bits of the demo have changed since %s was written" % KNOWN


main()
