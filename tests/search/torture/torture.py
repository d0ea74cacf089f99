#!/usr/bin/env python3
"""torture.py - disturbs real programs at random for SECONDS (default 30), drawn from SEED (default: from the clock,
printed).

Daemons have jobs at the same time: one trains with detd-worker, on 1 and 2 ranks, another with tests/e2e/rank.py, whose
steps cost nothing. The third is a daemon of the system with a hostile user (hostile.py). detd, detd-job and ranks are
killed and stopped, alone and together; the disk is full for a while, where mounts are possible; the wall clock of detd
jumps; users submit, pause, resume, cancel, change the tier and ask for checkpoints. Seen from outside, all the time: no
report up to a checkpoint that detd reports is missing, and no report is there twice. In the end: every job that was
accepted has ended, with the expected outcome; rows and weights are those of an undisturbed job; no process is left, and
no slot is held."""  # SPDX-License-Identifier: Apache-2.0
import collections
import hashlib
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../../e2e")
from daemon import SANITIZED, Daemon, Refused

SECONDS = float(os.environ.get("SECONDS_OF_TORTURE") or "30")
SEED = int(os.environ.get("SEED") or time.time())
LIVE = 3            # jobs that are to be there at a time
LONG_S = 120        # from so long a torture on, a process may be stopped till it counts as hung
ENDED = ("completed", "failed", "cancelled")
PATIENCE_S = 400    # for all jobs to end when they are left in peace: pauses between starts grow to a minute
DISK_MB = 1000      # 32 for the spool of each job
STEPS, SAVED = 150, 10
INSIDE = os.environ.get("DETD_MOUNTS") == "1"
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]
LOST = (OSError, ConnectionError, ValueError, AttributeError, TypeError)  # of a connection to a daemon that dies


class House:
    """A daemon, its jobs, and their disturbances."""

    def __init__(self, name, daemon, foreign, clock=None, has_disk=INSIDE):
        self.name, self.rng, self.foreign = name, random.Random("%d %s" % (SEED, name)), foreign
        self.d, self.has_disk = daemon, has_disk
        self.done, self.counts, self.checked = {}, collections.Counter(), 0
        self.jobs, self.cancelled, self.removed, self.stopped, self.rows = {}, set(), set(), [], 0
        self.clock = self.d.root + "/clock"
        with open(self.clock, "wb") as f:
            f.write(bytes(8))
        if clock:
            self.d.env = {"LD_PRELOAD": clock, "CLOCK_MOVED": self.clock}

    # ---- jobs ----

    def spec(self):
        if self.foreign:
            steps, ranks = self.rng.randrange(100, 500), self.rng.randrange(1, 3)
            return {"name": "fast", "model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/a", "images": "/b"}},
                    "train": {"steps": steps, "batch": 8, "shards": 4, "log_every": 1}, "checkpoint": {"every": self.rng.randrange(3, 30)},
                    "run": {"device": "cpu", "ranks": ranks, "restarts": 1000, "threads": 1, "env": {"STEP_S": "0.01"}}}
        split = {
            s: {"annotations": "%s/shapes/%s.json" % (self.d.root, s), "images": self.d.root + "/shapes/images"}
            for s in ("train", "val")
        }
        return {
            "name": "real", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.125}, "data": split,
            "train": {"steps": STEPS, "batch": 4, "shards": 2, "log_every": 1, "lr": 0.002}, "val": {"every": 10},
            "checkpoint": {"every": SAVED}, "run": {"device": "cpu", "ranks": self.rng.randrange(1, 3), "restarts": 1000, "threads": 1}
        }

    def submit(self):
        """Repeats its token till there is an answer."""
        spec, token = self.spec(), str(self.rng.random())
        while True:
            try:
                job = self.call("job.submit", spec=spec, token=token)["id"]
                break
            except (Refused, *LOST):
                self.up()
        self.jobs[job] = dict(spec=spec, token=token)
        return job

    def call(self, method, **params):
        return self.d.client().call(method, **params)

    def up(self):
        """Waits until detd runs; starts it again if it could not run, for want of room on the disk."""
        until = time.time() + 60
        while True:
            assert time.time() < until, "detd does not come up"
            if self.d.proc is None or self.d.proc.poll() is not None:
                self.d.start(wait=False)
            try:
                self.call("daemon.info")
                return
            except (AssertionError, Refused, *LOST):
                time.sleep(0.02)

    def calm(self):
        """Trains an undisturbed job, and keeps its results for comparison."""
        if not self.foreign:
            subprocess.run([
                sys.executable, HERE + "/../../demo/make_shapes.py", self.d.root + "/shapes", "--train", "8", "--val", "3", "--size", "64"
            ], check=True, stdout=subprocess.DEVNULL)
            job = self.submit()
            assert self.d.wait(job, lambda j: j["state"] in ENDED, PATIENCE_S)["state"] == "completed"
            self.done = self.left(job)
            self.jobs.clear()
            assert len(self.done["rows"]) > STEPS

    def left(self, job):
        with open("%s/jobs/%d/checkpoints/step-%d/model.safetensors" % (self.d.state, job, STEPS), "rb") as f:
            model = hashlib.sha256(f.read()).hexdigest()
        return {"rows": self.d.sql("SELECT split, term, step, epoch, num, den FROM loss WHERE job=? ORDER BY 1, 2, 3", job),
                "scores": self.d.sql("SELECT metric, step, value FROM eval WHERE job=? AND step%10=0 ORDER BY 1, 2", job), "model": model}

    # ---- disturbances ----

    def live(self):
        return [j for j in self.jobs if "state" not in self.jobs[j]]

    def victim(self, name):
        """A process of a random job."""
        job = self.rng.choice(self.live())
        found = [
            pid for pid, command in sorted(self.d.members(job).items()) if command == name or (name == "rank" and command != "detd-job")
        ]
        return self.rng.choice(found) if found else None

    def kill_one(self, name):
        pid = self.victim(name)
        if pid:
            self.d.signal(pid, signal.SIGKILL)
        return pid

    def stop_one(self, name):
        pid = self.victim(name)
        if pid:
            self.d.signal(pid, signal.SIGSTOP)
            seconds = self.rng.uniform(0.05, 2) if SECONDS < LONG_S or self.rng.randrange(10) else self.rng.uniform(20, 70)
            self.stopped.append((time.time() + seconds, pid))
        return pid

    def kill_rank(self):
        return self.kill_one("rank")

    def kill_supervisor(self):
        return self.kill_one("detd-job")

    def stop_rank(self):
        return self.stop_one("rank")

    def stop_supervisor(self):
        return self.stop_one("detd-job")

    def kill_detd(self):
        self.d.kill()
        time.sleep(self.rng.uniform(0, 0.8))
        self.d.start(wait=False)
        return True

    def stop_detd(self):
        self.d.proc.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.05, 0.7))
        self.d.proc.send_signal(signal.SIGCONT)
        return True

    def end_detd(self):
        self.up()  # before that it has no handler
        self.d.stop()
        time.sleep(self.rng.uniform(0, 0.3))
        self.d.start(wait=False)
        return True

    def kill_all(self):
        job = self.rng.choice(self.live())
        self.d.kill()
        self.d.kill_session(job)
        self.d.start(wait=False)
        return True

    def fill_disk(self):
        if not self.has_disk:
            return False
        full = self.d.fill()
        if self.rng.randrange(2):
            self.rng.choice((self.kill_rank, self.kill_supervisor, self.kill_all))()
        time.sleep(self.rng.uniform(0.1, 1.5))
        os.unlink(full)
        return True

    def turn_clock(self):
        if not self.d.env:
            return False
        off = self.rng.choice((0, -5, 5, -3600, 3600, -30 * 86400, 30 * 86400))
        with open(self.clock, "r+b") as f:
            f.write(struct.pack("=d", off))
        return True

    def ask(self, method, **params):
        """Returns whether the request was granted, or None if the connection was lost."""
        try:
            self.call(method, **params)
            return True
        except Refused:
            return False
        except (AssertionError, *LOST):
            return None

    def pause(self):
        return self.ask("job.pause", id=self.rng.choice(self.live()))

    def resume(self):
        return [self.ask("job.resume", id=job) for job in self.live()][0]

    def cancel(self):
        job = self.rng.choice(self.live())
        granted = self.ask("job.cancel", id=job)
        if granted is not False:
            self.cancelled.add(job)
        return granted

    def change_tier(self):
        return self.ask("deterministic.set", id=self.rng.choice(self.live()), tier=self.rng.choice(("off", "rerun", "world")))

    def checkpoint(self):
        return self.ask("job.checkpoint", id=self.rng.choice(self.live()))

    def remove(self):
        """An ended job; those of ten minutes on a fast machine fill the disk for good."""
        ended = [j for j in self.jobs if j not in self.removed and "state" in self.jobs[j]]
        if not ended:
            return False
        job = self.rng.choice(ended)
        granted = self.ask("job.rm", id=job)
        if granted is not False:
            self.removed.add(job)
        return granted

    ACTIONS = {
        "kill_rank": 6, "kill_supervisor": 5, "kill_detd": 5, "kill_all": 2, "stop_rank": 4, "stop_supervisor": 4, "stop_detd": 3,
        "end_detd": 1, "fill_disk": 2, "turn_clock": 3, "pause": 2, "resume": 4, "cancel": 1, "change_tier": 2, "checkpoint": 2, "remove": 8
    }

    def disturb(self):
        while len(self.live()) < LIVE:
            self.submit()
        what = self.rng.choices(list(self.ACTIONS), list(self.ACTIONS.values()))[0]
        if getattr(self, what)():
            self.counts[what] += 1
        for until, pid in [s for s in self.stopped if s[0] < time.time()]:
            self.d.signal(pid, signal.SIGCONT)
            self.stopped.remove((until, pid))

    # ---- invariants ----

    def check_reported(self):
        """All in one query: each job has a loss for every step up to the newest checkpoint that detd knows."""
        try:
            found = self.d.sql("SELECT job, s, (SELECT count(*) FROM loss l WHERE l.job=c.job AND split='train' AND term='total' AND "
                               "step<=s) "
                               "FROM (SELECT job, max(step) s FROM checkpoints WHERE job IN (%s) GROUP BY job) c"
                               % ",".join(map(str, self.jobs)))
        except sqlite3.OperationalError:  # while detd is being started, or the disk is full
            return
        for job, step, count in found:
            assert step == count or job in self.removed, "job %d: %d rows up to its checkpoint of step %d" % (job, count, step)
        self.checked += len(found)

    def look(self):
        """Jobs that have ended are as they should be."""
        try:
            for job in self.live():
                now = self.d.job(job)
                if now["state"] in ENDED:
                    self.check_ended(job, now)
        except (Refused, *LOST):
            self.up()

    def check_ended(self, job, now):
        asked = job in self.cancelled
        assert now["state"] == "completed" or (now["state"] == "cancelled" and
                                               asked), "job %d is %s: %s" % (job, now["state"], now["reason"])
        spec = self.jobs[job]["spec"]
        if now["state"] == "cancelled":
            steps = [s for (s,) in self.d.sql("SELECT step FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", job)]
            assert steps == list(range(
                1,
                len(steps) + 1)) and len(steps) >= self.d.newest_checkpoint(job), "job %d: cancelled, with steps %s" % (job, steps)
        elif self.foreign:
            self.d.check_rows(job, spec["train"]["steps"])
            vals = [s for (s,) in self.d.sql("SELECT step FROM loss WHERE job=? AND split='val' AND term='total' ORDER BY step", job)]
            steps, every = spec["train"]["steps"], spec["checkpoint"]["every"]
            assert set(vals) <= {*range(every, steps + 1, every), steps}, (job, vals)  # rank.py validates at no step at which it is paused
        else:
            left = self.left(job)
            for what, want in self.done.items():
                assert left[what] == want, "job %d: its %s are not those of an undisturbed job" % (job, what)
        self.rows += self.d.sql("SELECT count(*) FROM loss WHERE job=?", job)[0][0]
        self.d.wait_left(job)
        self.jobs[job].update(state=now["state"], attempts=len(now["attempts"]))

    def leave_in_peace(self):
        for _, pid in self.stopped:
            self.d.signal(pid, signal.SIGCONT)
        until = time.time() + PATIENCE_S
        while self.live():
            assert time.time() < until, "do not end: %s" % [(j, self.d.job(j)["state"], self.call("job.why", id=j)["text"])
                                                            for j in self.live()]
            self.up()
            for job in self.live():
                self.ask("job.resume", id=job)
            self.look()
            self.check_reported()
            time.sleep(0.2)
        stored = dict(self.d.sql("SELECT token, id FROM jobs"))
        assert all(stored[j["token"]] == job for job, j in self.jobs.items() if job not in self.removed), "an accepted job is lost"
        told = self.d.sql("SELECT job, kind, text FROM events WHERE kind IN ('conflict', 'spool_damaged', 'determinism')")
        assert not [row for row in told if row[0] in self.jobs], told
        self.d.until(lambda: self.call("daemon.info")["cpu_free"] == self.d.slots, "slots are held")
        self.d.until(lambda: sorted(self.d.own()) == self.programs(), "processes are left")

    def programs(self):
        """Returns the processes that stay when all jobs have ended, in order."""
        return [self.d.proc.pid]

    def report(self):
        ended = collections.Counter(j["state"] for j in self.jobs.values())
        kills = sum(n for what, n in self.counts.items() if what.startswith("kill"))
        print("%s: %d kills, %d jobs (%s) in %d attempts, %d rows, %d checkpoints looked at\n   %s" % (
            self.name, kills, len(self.jobs), ", ".join("%d %s" % (n, state) for state, n in sorted(ended.items())),
            sum(j["attempts"] for j in self.jobs.values()), self.rows, self.checked,
            ", ".join("%s %d" % (what.replace("_", " "), n) for what, n in sorted(self.counts.items()))), flush=True)

    def run(self, failed):
        try:
            with self.d:
                self.up()
                self.calm()
                until = time.time() + SECONDS
                while time.time() < until and not failed:
                    self.disturb()
                    self.check_reported()
                    time.sleep(self.rng.uniform(0, 0.4))
                    self.look()
                if not failed:
                    self.leave_in_peace()
                    self.report()
        except Exception:
            failed.append("%s, seed %d: %s" % (self.name, SEED, traceback.format_exc()))


def private_daemons():
    with tempfile.TemporaryDirectory(prefix="detd-e2e-") as folder:
        clock = folder + "/clock.so"
        subprocess.run(
            ["gcc", "-std=c17", "-O1", "-Wall", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", clock, HERE + "/../../stand/mock/clock.c"],
            check=True)
        failed = []
        houses = [
            House(name, Daemon(foreign=name == "rank.py", step_s=0.01, slots=4, disk_mb=DISK_MB if INSIDE else 0), name == "rank.py",
                  None if SANITIZED else clock) for name in ("detd-worker", "rank.py")
        ]
        threads = [threading.Thread(target=h.run, args=(failed,)) for h in houses]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    if failed:
        sys.exit("\n".join(failed))


def main():
    if INSIDE:
        private_daemons()
        return
    print("torture of %g s, seed %d" % (SECONDS, SEED), flush=True)
    with subprocess.Popen([sys.executable, HERE + "/hostile.py"], env=dict(os.environ, SEED=str(SEED))) as users:
        if subprocess.run(UNSHARE + ["sh", "-c", "mount -t tmpfs detd-e2e /mnt"], capture_output=True, check=False).returncode == 0:
            failed = subprocess.run(UNSHARE + [sys.executable, __file__], check=False, env=dict(os.environ, DETD_MOUNTS="1",
                                                                                                SEED=str(SEED))).returncode
        else:
            print("skip: no mounts in a user namespace", flush=True)
            failed = False
            private_daemons()
    sys.exit(failed or users.returncode)


if __name__ == "__main__":
    main()
