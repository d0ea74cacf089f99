#!/usr/bin/env python3
"""hostile.py - torture.py's daemon of the system: ann's jobs are disturbed as on a private daemon, and bob's jobs run
liar.py. ann loses no job and no row. Once root has cancelled bob's jobs, they hold no slot, and no process of bob's
is left."""  # SPDX-License-Identifier: Apache-2.0
import os
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, HERE + "/../../e2e"]
from daemon import Refused  # noqa: E402
from launch import ANN, BOB, Node, hierarchy, main, of_uid, status  # noqa: E402
from torture import DISK_MB, ENDED, LONG_S, LOST, PATIENCE_S, SECONDS, SEED, House  # noqa: E402

LIES = 3  # jobs of bob's at a time
MEMORY_MB = 400  # of detd: it has bounds for each thing that it keeps


class Shared(House):
    def __init__(self, name):
        conf = "user_running = 3\nuser_stored = 256\nleave_deadline = 5\n"
        super().__init__(name, Node(disk_mb=DISK_MB, conf=conf), True, has_disk=True)
        shutil.copy(HERE + "/liar.py", "/home/bob/sitecustomize.py")  # Python runs it before each program
        os.chmod("/home/bob/sitecustomize.py", 0o644)
        self.lies = []

    ACTIONS = dict(House.ACTIONS, kill_launch=3, stop_lie=12)

    def call(self, method, **params):
        return self.d.of(ANN).call(method, **params)

    def programs(self):
        return sorted((self.d.proc.pid, self.d.helper.pid))

    def kill_launch(self):
        self.d.stop_helper()
        time.sleep(self.rng.uniform(0, 0.8))
        self.d.start_helper()
        return True

    # ---- bob ----

    def lie(self):
        """bob submits a job."""
        run = {"device": "cpu", "ranks": 1, "threads": self.rng.randrange(1, 3), "restarts": self.rng.choice((0, 3, 1000)),
               "priority": self.rng.choice((-1, 0)), "env": {"PYTHONPATH": "/home/bob", "LIAR": str(self.rng.random())}}
        if self.rng.randrange(2):
            run["time_limit"] = self.rng.randrange(5, 60)
        try:
            self.lies.append(self.d.of(BOB).call("job.submit", spec=dict(self.spec(), run=run), token=str(self.rng.random()))["id"])
            self.counts["hostile_job"] += 1
        except (AssertionError, Refused, *LOST):
            self.up()

    def stop_lie(self):
        """root or bob cancels, pauses or resumes a job of bob's."""
        if not self.lies:
            return False
        uid, method = self.rng.choice((0, BOB)), self.rng.choice(("job.cancel", "job.pause", "job.resume", "job.resume"))
        try:
            self.d.of(uid).call(method, id=self.rng.choice(self.lies))
            return True
        except (AssertionError, Refused, *LOST):
            return False

    def look_at_lies(self):
        """Ended jobs of bob's make room for others."""
        for job in list(self.lies):
            try:
                if self.d.job(job)["state"] in ENDED:
                    self.lies.remove(job)
                    self.d.call("job.rm", id=job)
            except (AssertionError, Refused, *LOST):
                continue

    def check_memory(self):
        try:
            used = int(status(self.d.proc.pid)["VmRSS"].split()[0]) >> 10
        except (OSError, KeyError):  # it was killed
            return
        assert used < MEMORY_MB, "detd uses %d MiB" % used
        self.counts["MiB_of_detd"] = max(used, self.counts["MiB_of_detd"])

    def disturb(self):
        self.look_at_lies()
        self.check_memory()
        while len(self.lies) < LIES and self.rng.randrange(4):
            self.lie()
        super().disturb()

    def leave_in_peace(self):
        until = time.time() + PATIENCE_S
        while self.lies:
            assert time.time() < until, "bob's jobs do not end: %s" % [(job, self.d.job(job)["state"]) for job in self.lies]
            self.up()
            for job in self.lies:
                self.end_lie(job)
            self.look_at_lies()
            time.sleep(0.5)
        super().leave_in_peace()
        self.d.until(lambda: not of_uid(BOB) or not hierarchy(), "processes of bob's are left: %s" % of_uid(BOB))
        self.counts["welcome_to_a_liar"] = os.path.exists("/home/bob/welcomes") and os.path.getsize("/home/bob/welcomes")
        assert SECONDS < LONG_S or self.counts["welcome_to_a_liar"], "no process of bob's has spoken as a supervisor"

    def end_lie(self, job):
        try:
            self.d.call("job.cancel", id=job)
        except (AssertionError, Refused, *LOST):
            pass


def two_users():
    failed = []
    Shared("two users").run(failed)
    assert not failed, failed[0]


if __name__ == "__main__":
    os.environ.setdefault("SEED", str(SEED))
    main([two_users])
