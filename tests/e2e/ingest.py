#!/usr/bin/env python3
"""detd's side of sup.sock. A script replaces detd-job; it holds the job's lock and does nothing. This test speaks as
the supervisor: with a wrong nonce, a gap, a repeated number, over a second connection, as another user.
"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import socket
import time

from daemon import Daemon

IDLE = "#!/bin/sh\necho \"$@\" >args.new\nmv args.new args\nexec sleep 600\n"


class House(Daemon):
    def __init__(self):
        super().__init__()
        with open(self.bin + "/detd-job", "w", encoding="utf-8") as f:
            f.write(IDLE)

    def begin(self):
        """Returns (job, nonce) of a job with a started supervisor."""
        job = self.submit(1000)
        path = "%s/jobs/%d/args" % (self.state, job)
        self.until(lambda: os.path.exists(path), "no supervisor is started")
        with open(path, encoding="utf-8") as f:
            words = f.read().split()
        return job, words[words.index("--nonce") + 1]

    def stored(self, job):
        """(number of the last report, its rows)"""
        rows = self.sql("SELECT step, value FROM loss WHERE job=? ORDER BY step", job)
        return self.sql("SELECT last_seq FROM jobs WHERE id=?", job)[0][0], rows

    def __exit__(self, kind, value, trace):
        if self.proc:
            self.kill()
        for pid in self.idle():
            self.signal(pid, signal.SIGKILL)
        super().__exit__(kind, value, trace)

    def idle(self):
        """Returns the processes of those scripts: their command does not name this daemon, but they work in its folder."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink("/proc/%s/cwd" % pid).startswith(self.state + "/jobs/"):
                    found.append(int(pid))
            except OSError:
                pass
        return found


class Supervisor:
    def __init__(self, d, job, nonce, **more):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(d.state + "/sup.sock")
        self.file = self.sock.makefile("rb")
        self.say(type="hello", protocol=1, job=job, attempt=1, nonce=nonce, pid=os.getpid(), beats=False, **more)

    def say(self, **message):
        self.sock.sendall((json.dumps(message) + "\n").encode())

    def report(self, seq, step, value):
        self.say(type="report", seq=seq, rec={"type": "loss", "split": "train", "step": step, "epoch": 0.5, "tier": "rerun", "time": 1.0,
                                              "images_per_s": 1.0, "terms": {"total": [value, 1]}})

    def hear(self):
        """Returns the next message, or None when detd has closed the connection."""
        try:
            line = self.file.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def acked(self, seq):
        """Reads acks up to that number."""
        while True:
            msg = self.hear()
            assert msg, "detd hung up, and not acked report %d" % seq
            if msg["type"] == "ack" and msg["seq"] >= seq:
                assert msg["seq"] == seq, msg
                return

    def welcomed(self):
        msg = self.hear()
        assert msg and msg["type"] == "welcome", msg
        return msg["last_seq"]


def the_one_that_was_started():
    with House() as d:
        job, nonce = d.begin()
        for wrong in ("", nonce[:-1], nonce + "0", ("1" if nonce[0] == "0" else "0") + nonce[1:]):
            assert Supervisor(d, job, wrong).hear() is None, "a wrong nonce is welcome"
        assert "refused a supervisor of job %d: its nonce is not that of the last start" % job in d.wait_event("supervisor")[0]
        assert len(d.events("supervisor")) == 1, "who comes again and again is told of again and again"
        assert Supervisor(d, job + 1, nonce).hear() is None, "a job that there is not"
        assert Supervisor(d, job, nonce).welcomed() == 0


def gaps_and_repetitions():
    """A gap ends the connection, and the record behind it is not stored. A repeated record is acked again, and the
    first version stays stored."""
    with House() as d:
        job, nonce = d.begin()
        s = Supervisor(d, job, nonce)
        assert s.welcomed() == 0
        s.report(2, 2, 7.0)
        assert [m["seq"] for m in iter(s.hear, None)] == [0], "a report after one that never came"
        assert "report 2 came after 0" in d.wait_event("supervisor", job)[0] and d.stored(job) == (0, [])
        s = Supervisor(d, job, nonce)
        assert s.welcomed() == 0
        for seq in (1, 2, 3):
            s.report(seq, seq, float(seq))
        s.acked(3)
        for seq in (3, 2, 1):
            s.report(seq, seq, 9.0)
            s.acked(3)
        s.report(4, 4, 4.0)
        s.acked(4)
        assert d.stored(job) == (4, [(n, float(n)) for n in (1, 2, 3, 4)]), d.stored(job)
        d.kill()
        d.start()
        assert Supervisor(d, job, nonce).welcomed() == 4


def what_a_spool_has_lost():
    """A supervisor that says its spool begins later than detd's last record is believed. A spool that begins earlier,
    or names no record, changes nothing."""
    with House() as d:
        job, nonce = d.begin()
        for first, last in (1, 0), (0, 0), (-5, 0), (1 << 62, 0), (8, 7), (3, 7), ("9", 7):
            s = Supervisor(d, job, nonce, first=first)
            assert s.welcomed() == last, (first, last)
        assert d.wait_event("reports_lost", job) == ["reports 1 to 7 of the job are lost: its spool begins after them"]
        d.kill()
        d.start()
        ((counted,),) = d.sql("SELECT reported FROM jobs WHERE id=?", job)
        assert counted > 0, "who says that again and again fills the database"
        s = Supervisor(d, job, nonce, first=8)
        assert s.welcomed() == 7
        s.report(8, 3, 3.0)
        s.acked(8)
        assert d.stored(job) == (8, [(3, 3.0)]), d.stored(job)


def what_is_no_report():
    """An invalid report is left out, an event says so, and later reports are stored."""
    with House() as d:
        job, nonce = d.begin()
        s = Supervisor(d, job, nonce)
        assert s.welcomed() == 0
        wrong = [
            None, {}, {"type": "loss", "split": "test", "step": 1}, {"type": "loss", "split": "train", "step": 1 << 62, "tier": "off"},
            {"type": "end"}
        ]
        for seq, rec in enumerate(wrong, 1):
            s.say(type="report", seq=seq, rec=rec)
        s.report(len(wrong) + 1, 3, 3.0)
        s.acked(len(wrong) + 1)
        assert d.stored(job) == (len(wrong) + 1, [(3, 3.0)]), d.stored(job)
        told = sorted(d.events("supervisor", job))
        assert len(told) == len(wrong) and told[0].startswith("report 1 is left out: record: type: "), told


def the_second_connection_counts():
    """A supervisor connects again before detd has seen that its first connection is lost: the job stays connected when
    the first one ends."""
    with House() as d:
        job, nonce = d.begin()
        first = Supervisor(d, job, nonce)
        first.welcomed()
        second = Supervisor(d, job, nonce)
        second.welcomed()
        assert [m["type"] for m in iter(first.hear, None)] == ["ack"], "the first one is not hung up on"
        second.report(1, 1, 1.0)
        second.acked(1)
        d.call("job.cancel", id=job)
        assert second.hear() == {"type": "control", "word": "cancel"}, "a wish does not reach the second one"


def what_a_supervisor_waits_for():
    """`why` repeats the supervisor's trouble as long as the supervisor reports it."""
    with House() as d:
        job, nonce = d.begin()
        status = dict(type="status", attempt=1, step=0, phase="data", images_per_s=0, cpu_seconds=0, max_rss=1, ranks=[])
        trouble = "rank 0 was killed and does not end: process 12 (name, state D)"
        told = lambda: d.call("job.why", id=job)["text"] == "attempt 1: " + trouble
        s = Supervisor(d, job, nonce)
        s.say(**status, trouble=trouble)
        d.until(told, "it is not told")
        s.say(**status)
        d.until(lambda: not told(), "it is told though it is over")
        s.say(**status, trouble=trouble)
        d.until(told, "it is not told again")
        s.file.close()
        s.sock.close()
        d.until(lambda: not told(), "it is told though nobody says so")


def of_another_user():
    """Refused, even if the folder's rights would let the user in."""
    if os.getuid() != 0:
        print("skip: only root may become other users")
        return
    with House() as d:
        job, nonce = d.begin()
        for path in (d.root, d.state):
            os.chmod(path, 0o711)
        os.chmod(d.state + "/sup.sock", 0o666)
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                try:
                    heard = Supervisor(d, job, nonce).hear()
                except BrokenPipeError:  # detd was quicker
                    heard = None
                os._exit(0 if heard is None else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "another user speaks for a job"
        assert d.wait_event("supervisor")[0] == "refused a connection to sup.sock: its process belongs to another user"
        assert Supervisor(d, job, nonce).welcomed() == 0


for scenario in (the_one_that_was_started, gaps_and_repetitions, what_a_spool_has_lost, what_is_no_report, the_second_connection_counts,
                 what_a_supervisor_waits_for, of_another_user):
    began = time.time()
    scenario()
    print("ok %s (%.1f s)" % (scenario.__name__, time.time() - began), flush=True)
