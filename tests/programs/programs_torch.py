#!/usr/bin/env python3
"""Programs with PyTorch and Lightning as jobs: losses of all ranks, the classic hang of a validation, kills.

usage: programs_torch.py [SCENARIO]     DETD_PROGRAMS_PYTHON is a Python that has both (make deps-programs)
"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../e2e")
from daemon import BUILD, SEED, Daemon, run_scenarios  # noqa: E402

PYTHON = os.environ.get("DETD_PROGRAMS_PYTHON", "")
EXAMPLES, MODULE = HERE + "/../../docs/examples", os.path.abspath(HERE + "/../../python")
EQUAL = 1e-12  # relative


class Node(Daemon):
    """A daemon with the module detd beside its programs, as in a build tree."""

    def __init__(self):
        super().__init__()
        os.symlink(MODULE, self.root + "/python")

    def run(self, program, *options, words=(), python=PYTHON, **env):
        """Queues a program with its words. Returns the job's id."""
        named = [word for name in env for word in ("--env", name)]
        command = [BUILD + "/detctl", "run", *map(str, options), *named, "--", python, program, *words]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False,
                              env=dict(os.environ, DETD_SOCKET=self.path, HOME=self.root, PYTHONPATH="", **env))
        assert done.returncode == 0, (command, done.stderr)
        return int(done.stdout)

    def completed(self, job):
        now = self.wait(job, lambda j: j["state"] in ("completed", "failed", "cancelled"), 600)
        assert now["state"] == "completed", (now["state"], now["reason"], self.log(job, 0)[-2000:])
        return now

    def rows(self, job):
        """Returns {(split, step, term): (numerator, denominator)}; each row is there once."""
        found = self.sql("SELECT split, step, term, num, den FROM loss WHERE job=?", job)
        rows = {tuple(r[:3]): tuple(r[3:]) for r in found}
        assert len(rows) == len(found), "a row is there twice"
        return rows

    def log(self, job, rank):
        with open("%s/jobs/%d/log/rank-%d.log" % (self.state, job, rank), errors="replace") as f:
            return f.read()


def difference(a, b):
    """Returns the largest relative difference between the losses of two jobs with equal rows."""
    assert a.keys() == b.keys() and a, sorted(a.keys() ^ b.keys())[:10]
    assert all(a[k][1] == b[k][1] for k in a), "other denominators"
    return max(abs(a[k][0] - b[k][0]) / abs(b[k][0]) for k in a)


def by_hand(program):
    """Returns the rows of one process without detd."""
    done = subprocess.run([PYTHON, HERE + "/by_hand.py", program], stdout=subprocess.PIPE, check=True)
    return {tuple(row[:3]): tuple(row[3:]) for row in json.loads(done.stdout)}


def equal_on_any_ranks(program, want_rows):
    with Node() as d:
        jobs, want = [d.run(program, "--ranks", ranks) for ranks in (1, 2, 3)], by_hand(program)
        assert len(want) == want_rows, len(want)
        for job in jobs:
            d.completed(job)
            assert difference(d.rows(job), want) <= EQUAL, (job, difference(d.rows(job), want))


def ddp():
    """30 steps, 3 validations of 13 examples on 1, 2 and 3 ranks, 2 terms."""
    equal_on_any_ranks(EXAMPLES + "/ddp.py", 66)


def lightning():
    """5 epochs of 7 steps with a validation each."""
    equal_on_any_ranks(HERE + "/lightning_job.py", 75)


def hang():
    """Rank 0 validates alone: a verdict, the stacks in the logs, and a restart from the checkpoint."""
    with Node() as d:
        job = d.run(HERE + "/hang.py", "--ranks", 2)
        now = d.completed(job)
        assert [a["resume_step"] for a in now["attempts"]] == [10, 0], now["attempts"]
        told = d.events("hang", job)
        assert len(told) == 1 and "rank 0" in told[0] and "validation of step 15" in told[0] and "step 15" in told[0], told
        print("verdict: " + told[0])
        assert "all_reduce" in d.log(job, 0) and "in validate" in d.log(job, 0), d.log(job, 0)
        assert "barrier" in d.log(job, 1), d.log(job, 1)
        assert sorted(step for _, step, _ in d.rows(job)) == list(range(1, 21))
        assert [s for (s, ) in d.sql("SELECT step FROM eval WHERE job=? ORDER BY step", job)] == [5, 10, 15, 20]


def pause():
    """detctl pause and resume, twice: the program saves at one step of all ranks, and goes on from there."""
    with Node() as d:
        job = d.run(EXAMPLES + "/ddp.py", "--ranks", 2, STEPS="2000")
        for n in 1, 2:
            d.wait(job, lambda j, n=n: j["state"] == "running" and j["attempt"] == n and j["step"] >= 100 * n, 300)
            d.until(lambda: d.detctl("pause", job).returncode == 0, "detd does not know that the program asks for the word pause")
            step = d.wait(job, "paused", 300)["step"]
            assert d.detctl("resume", job).returncode == 0
            print("paused at step %d" % step)
        now = d.completed(job)
        assert [a["resume_step"] >= 100 * n for a, n in zip(now["attempts"], (2, 1, 0))] == [True] * 3, now["attempts"]
        undisturbed = d.run(EXAMPLES + "/ddp.py", "--ranks", 2, STEPS="2000")
        d.completed(undisturbed)
        assert difference(d.rows(job), d.rows(undisturbed)) <= EQUAL


def kills():
    """kill -9 of a rank, of detd-job and of detd, twice each at random moments: the rows of an undisturbed run, each once."""
    draw, steps = random.Random(SEED), 300
    with Node() as d:
        job = d.run(EXAMPLES + "/ddp.py", "--ranks", 2, "run.restarts=20", "checkpoint.every=10", STEPS=str(steps))
        for i, victim in enumerate(("rank", "detd-job", "detd") * 2):
            step = int(steps * (i + draw.random()) / 7) + 1
            d.wait(job, lambda j: j["state"] == "completed" or j["state"] == "running" and j["step"] >= step, 600)
            if victim == "detd":
                d.kill()
                d.start()
            elif victim == "detd-job":
                d.signal_supervisor(job, signal.SIGKILL)
            else:
                ranks = [pid for pid in d.members(job) if pid != d.session(job)]
                d.signal(draw.choice(ranks), signal.SIGKILL)
        now = d.completed(job)
        undisturbed = d.run(EXAMPLES + "/ddp.py", "--ranks", 2, STEPS=str(steps))
        d.completed(undisturbed)
        print("%d attempts" % len(now["attempts"]))
        assert len(now["attempts"]) >= 4, now["attempts"]
        assert difference(d.rows(job), d.rows(undisturbed)) <= EQUAL


if __name__ == "__main__":
    if not PYTHON:
        print("skip: no Python with PyTorch and Lightning (DETD_PROGRAMS_PYTHON)")
        sys.exit(77)
    run_scenarios((kills, pause, hang, lightning, ddp), lanes=2)
