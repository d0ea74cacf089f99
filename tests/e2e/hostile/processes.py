#!/usr/bin/env python3
"""What bob's processes do to those that serve all users: they trace a job's, bear children for detd-launch, and hand out
descriptors that take long to close."""  # SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from launch import ANN, BOB, Node, main, of_uid  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
SEIZE, TRACE_EXIT, SET_PTRACER = 0x4206, 0x40, 0x59616d61


def tracer(pid):
    """A process of bob's, outside of the job, that traces a process and never waits for it: when that is killed, it
    stops in the middle of its exit."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(BOB)
        os.setuid(BOB)
        os.write(theirs, b"%d" % LIBC.ptrace(SEIZE, pid, None, ctypes.c_long(TRACE_EXIT)))
        while True:
            signal.pause()
    os.close(theirs)
    said = os.read(ours, 9)
    os.close(ours)
    return child if said == b"0" else None


def a_traced_job_keeps_no_slots():
    """A job with a traced rank, and one with a traced detd-job, give their slots back after a cancel."""
    with Node(conf="user_running = 9\n") as d:
        jobs = [d.submit_as(BOB, 100000) for _ in range(2)]
        for job in jobs:
            d.wait(job, lambda now: now["step"] > 3)
        traced = [d.session(jobs[0]), next(p for p in d.members(jobs[1]) if p != d.session(jobs[1]))]
        tracers = [tracer(pid) for pid in traced]
        if None in tracers:
            print("skip: no process may trace another one here", flush=True)
            return
        for job in jobs:
            d.of(BOB).call("job.cancel", id=job)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "a slot is held", 240)
        for job in jobs:
            d.wait(job, "cancelled")
            d.of(BOB).call("job.rm", id=job)
        d.until(lambda: not any(os.path.exists(d.folder(job)) for job in jobs), "a folder stays")
        for pid in tracers:
            os.waitpid(pid, 0)
        d.until(lambda: not of_uid(BOB), "processes stay")
        d.wait(d.submit_as(ANN, 10, STEP_S="0"), "completed")


if __name__ == "__main__":
    main([a_traced_job_keeps_no_slots])
