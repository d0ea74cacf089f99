#!/usr/bin/env python3
"""Limits of a user of the node, and the order of users in the queue: bob floods the node, and ann comes
later."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from daemon import BUILD, Daemon, Refused  # noqa: E402
from launch import ANN, BOB, DETD, Node, as_user, main, refused  # noqa: E402


def ctl(d, uid, *words):
    return subprocess.run([BUILD + "/detctl", "--socket", d.path] + list(words), user=uid, group=uid, extra_groups=[], capture_output=True,
                          text=True, timeout=60, check=True)


def spec(**run):
    return {
        "model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/dev/null", "images": "/tmp"}},
        "train": {"steps": 100000, "batch": 8, "shards": 4, "log_every": 1}, "run": dict({"device": "cpu", "ranks": 1, "threads": 1}, **run)
    }


def submit(client, token=None, **run):
    return client.call("job.submit", spec=spec(**run), token=token or str(time.monotonic()))["id"]


def a_user_has_limits():
    """A job over a limit waits, and does not make other jobs wait. A job too many in the queue is refused, but not a repetition of an
    accepted submission. Admins have no limits."""
    with Node(conf="user_running = 1\nuser_queued = 2\nuser_gpus = 1\nuser_priority = 3\ntime_limit_max = 3600\n") as d:
        bob, admin = d.of(BOB), d.of(ANN, groups=[DETD])
        first = submit(bob)
        d.wait(first, "running")
        second, third = submit(bob), submit(bob, "again")
        e = refused(lambda: submit(bob))
        assert e.reason == "STATE" and "bob has 2 jobs that wait or are paused" in str(e) and "user_queued" in str(e), e
        assert submit(bob, "again") == third
        why = bob.call("job.why", id=second)["text"]
        assert "bob's 1 running jobs" in why and "user_running" in why, why
        # ann is an admin here
        for _ in range(3):
            d.wait(submit(admin, priority=9, time_limit=7200), "running")
        # each limit is refused by its key
        for field, run in (("run.priority", {"priority": 4}), ("run.time_limit", {"time_limit": 3601})):
            e = refused(lambda r=run: submit(d.of(ANN), **r))
            assert e.field == field and "on this node" in str(e), e
        assert refused(lambda: bob.call("job.priority", id=second, priority=4)).field == "priority"
        admin.call("job.priority", id=third, priority=9)
        bob.call("job.cancel", id=second)
        d.wait(second, "cancelled")
        told = ctl(d, BOB, "show", str(first), "--json")
        assert json.loads(told.stdout)["spec"]["run"]["time_limit"] == 3600, told.stdout
        bob.call("job.cancel", id=first)
        d.wait(third, "running")
        theirs = submit(admin, priority=9)
        cloned = ctl(d, BOB, "clone", str(theirs), "--no-check")
        assert "run.priority, which was 9, is 3" in cloned.stderr, cloned.stderr
        assert d.job(int(cloned.stdout))["priority"] == 3


def who_was_granted_less_goes_first():
    """ann comes after a flood of bob's, and gets the next slots. It stays so after a restart of detd."""
    with Node(conf="slots = 2\n") as d:
        bob, ann = d.of(BOB), d.of(ANN)
        flood = [submit(bob, ranks=2) for _ in range(6)]
        d.wait(flood[0], "running")
        ours = submit(ann, ranks=2)
        time.sleep(3)
        why = bob.call("job.why", id=flood[1])["text"]
        assert "waits behind job %d: in the last 7 days ann was granted 0.0 CPU slot hours, and bob" % ours in why, why
        assert "fair_share" in why, why
        assert "needs 2 CPU slots" in ann.call("job.why", id=ours)["text"]
        queue = ctl(d, ANN, "queue").stdout.splitlines()
        assert [int(line.split()[0]) for line in queue[1:]] == [ours] + flood[1:] and "fair_share" in queue[2], queue
        d.stop()
        d.start()
        bob, ann = d.of(BOB), d.of(ANN)
        rows = json.loads(ctl(d, ANN, "usage", "--by", "user", "--since", "30d", "--json").stdout)
        assert [r["user"] for r in rows] == ["bob"] and rows[0]["cpu_slot_hours"] * 3600 > 1 and rows[0]["gpu_hours"] == 0, rows
        assert "bob" in ctl(d, ANN, "usage", "--by", "user").stdout
        assert ctl(d, ANN, "queue").stdout.splitlines()[1].split()[0] == str(ours)
        bob.call("job.cancel", id=flood[0])
        d.wait(ours, "running")
        assert all(d.job(job)["state"] == "queued" for job in flood[1:])


def a_private_daemon_has_no_limits():
    with Daemon(slots=4, conf="user_running = 1\nuser_queued = 1\ntime_limit_max = 60\n") as d:
        jobs = [submit(d.client(), priority=9, time_limit=61) for _ in range(5)]
        for job in jobs[:4]:
            d.wait(job, "running")
        try:
            submit(d.client())
        except Refused as e:
            raise AssertionError(e) from e


if __name__ == "__main__":
    main([a_user_has_limits, who_was_granted_less_goes_first, a_private_daemon_has_no_limits])
