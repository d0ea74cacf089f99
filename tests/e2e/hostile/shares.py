#!/usr/bin/env python3
"""bob fills each bound that users share, as fast as he can. ann and root do not notice."""  # SPDX-License-Identifier: Apache-2.0
import json
import multiprocessing
import os
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from daemon import Client, Refused  # noqa: E402
from launch import ANN, BOB, DETD, Node, as_user, main, refused, status  # noqa: E402

SHARE_ROWS, SHARE_CONNECTS = 5000, 50


class Hostile:
    """bob's own supervisor of his job: it stops the real one, and says what it likes."""

    def __init__(self, d, job):
        nonce = d.nonce(job)
        d.signal(d.session(job), signal.SIGSTOP)
        self.sock = as_user(BOB, lambda: self.connect(d.state))
        self.file = self.sock.makefile("rb")
        self.say({"type": "hello", "protocol": 1, "job": job, "attempt": 1, "nonce": nonce, "pid": 1, "beats": False})
        self.seq = json.loads(self.file.readline())["last_seq"]

    @staticmethod
    def connect(state):
        os.chdir(state)  # the path may be longer than a socket's name
        s = socket.socket(socket.AF_UNIX)
        s.connect("sup.sock")
        os.chdir("/")
        return s

    def say(self, message):
        self.sock.sendall((json.dumps(message) + "\n").encode())

    def report(self, record):
        self.seq += 1
        return (json.dumps({"type": "report", "seq": self.seq, "rec": record}) + "\n").encode()


def flood(sup, lines):
    """Sends without reading acks, in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            sup.sock.sendall(lines)
            while True:
                time.sleep(1)
        finally:
            os._exit(0)
    return pid


def others_go_on(d, hostile):
    """ann submits, looks and cancels; root cancels bob's job."""
    ann = d.of(ANN)
    job = d.submit_as(ANN, 5, STEP_S="0")
    assert job in [j["id"] for j in ann.call("job.list")["jobs"]]
    ann.call("job.cancel", id=job)
    d.call("job.cancel", id=hostile)


def queued_rows():
    """A supervisor of bob's sends rows and attempts faster than the disk takes them: it is read only while few of its
    rows wait."""
    with Node() as d:
        for kind in "losses", "attempts":
            job = d.submit_as(BOB, 100000)
            d.wait(job, lambda now: now["step"] > 3)
            sup = Hostile(d, job)
            terms = {"t%d" % i: [i, 1] for i in range(250)}
            loss = [
                sup.report({"type": "loss", "split": "train", "step": 100 + i, "epoch": 1, "tier": "rerun", "time": 1, "terms": terms})
                for i in range(600)
            ]
            attempts = [sup.report({"type": "attempt", "attempt": 2 + i, "resume_step": 700 - i, "time": 1})
                        for i in range(500)] if kind == "attempts" else []
            pid, most = flood(sup, b"".join(loss + attempts)), 0
            until = time.time() + 3
            while time.time() < until:
                most = max(most, d.call("daemon.info")["backlog"])
            others_go_on(d, job)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            assert most < SHARE_ROWS + 1500, most  # and a record, a piece of a rewind, or rows of others
            d.kill_session(job)


def unread_acks():
    """A supervisor of bob's repeats an old report and reads no ack. detd keeps a single ack for it."""
    with Node() as d:
        job = d.submit_as(BOB, 100000)
        d.wait(job, lambda now: now["step"] > 3)
        sup = Hostile(d, job)

        def resident_mb():
            return int(status(d.proc.pid)["VmRSS"].split()[0]) >> 10
        before = resident_mb()
        for _ in range(30):
            sup.sock.sendall(b'{"type":"report","seq":0}\n' * 40000)
        others_go_on(d, job)
        assert resident_mb() < before + 10, (before, resident_mb())


def knock(path, seconds):
    until = time.time() + seconds
    while time.time() < until:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(path)
        except OSError:
            pass
        s.close()


def queue_up(uid, path):
    """Connects without waiting for room in the queue."""
    s = socket.socket(socket.AF_UNIX)
    s.setblocking(False)
    as_user(uid, lambda: s.connect(path))
    return s


def connections():
    """While two processes of bob's connect and leave at full speed, root has a queue of his own, and ann is served.
    Whoever connects too often waits, and is answered."""
    with Node() as d:
        d.call("daemon.info")
        admin = os.path.dirname(d.path) + "/admin.sock"
        assert os.stat(admin).st_mode & 0o777 in (0o600, 0o660)
        with open("/proc/sys/net/core/somaxconn") as f:
            room = min(128, int(f.read())) - 10
        os.rename(d.path, d.path + ".away")
        assert d.detctl("ls").returncode == 0, "root's detctl does not try admin.sock"
        assert as_user(ANN, lambda: d.detctl("ls")).returncode != 0
        os.rename(d.path + ".away", d.path)
        d.proc.send_signal(signal.SIGSTOP)
        queued = [queue_up(BOB, d.path) for _ in range(room)]
        d.proc.send_signal(signal.SIGCONT)
        for s in queued:
            s.close()
        procs = []
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                os.setgid(BOB)
                os.setuid(BOB)
                knock(d.path, 6)
                os._exit(0)
            procs.append(pid)
        for _ in range(40):
            queue_up(0, admin).close()
            time.sleep(0.03)
        for _ in range(10):
            assert d.of(ANN).call("job.list")["jobs"] == [] and Client(admin).call("job.list")["jobs"] == []
        for pid in procs:
            os.waitpid(pid, 0)
        began = time.monotonic()
        many = [d.of(BOB) for _ in range(2 * SHARE_CONNECTS)]
        assert all(c.call("daemon.info")["protocol"] == 1 for c in many)
        assert time.monotonic() - began > 0.9, "bob has not waited"


def ask(c, count, request):
    """Sends so many requests, many at a time. Returns the number of granted ones and the messages of the others."""
    granted, refusals = 0, set()
    for first in range(0, count, 50):
        for i in range(first, min(count, first + 50)):
            method, params = request(i)
            c.sock.sendall((json.dumps({"jsonrpc": "2.0", "id": i, "method": method, "params": params}) + "\n").encode())
        for _ in range(first, min(count, first + 50)):
            answer = c.read()
            granted += "result" in answer
            refusals |= {answer["error"]["message"]} if "error" in answer else set()
    return granted, refusals


def changes():
    """bob labels his job, and changes its place in the queue, as fast as he can: what that leaves in the database and in
    the journal is bounded. ann and root change theirs, and bob still ends his."""
    with Node(conf="user_running = 1\n") as d:
        d.submit_as(BOB, 100000)
        job, bob = d.submit_as(BOB, 100), d.of(BOB)
        first = time.monotonic()
        for what, request in (("changes of notes and tags", lambda i: ("job.label", {"id": job, "note": "n%d" % i})),
                              ("changes of jobs", lambda i: ("job.priority", {"id": job, "priority": -(i % 100)}))):
            began = time.monotonic()
            granted, refusals = ask(bob, 1200, request)
            assert granted <= 1000 + 5 * (time.monotonic() - began) + 1 and any(what in r for r in refusals), (granted, refusals)
        theirs = d.submit_as(ANN, 100000)
        d.of(ANN).call("job.label", id=theirs, note="x")
        d.call("job.label", id=job, note="root's")
        assert bob.call("job.cancel", id=job)
        d.until(lambda: "job %d: audit: label by root" % job in open(d.root + "/log").read(), "the journal does not tell of root")
        lines = [line for line in open(d.root + "/log") if "job %d:" % job in line]
        assert len(lines) < 200 + 5 * (time.monotonic() - first) + 60, len(lines)


def queue():
    """bob submits until he is refused. ann and root still submit, and bob ends his jobs."""
    with Node(conf="user_running = 1\n") as d:
        first = d.submit_as(BOB, 100000)
        spec = json.loads(d.sql("SELECT spec FROM specs WHERE job=?", first)[0][0])
        granted, refusals = ask(d.of(BOB), 1200, lambda i: ("job.submit", {"spec": spec, "token": "t%d" % i}))
        assert granted <= 1001 and any("user_queued" in r for r in refusals), (granted, refusals)
        d.wait(d.submit_as(ANN, 5, STEP_S="0"), "completed")
        d.submit_as(ANN, 5, groups=[DETD])
        d.of(BOB).call("job.cancel", id=first)


def database():
    """bob's jobs fill his share of the database: he submits no more, the rows of his running job are stored to the last,
    and others submit. A removal makes room. The next detd knows it all."""
    with Node(conf="user_stored = 1\n") as d:
        runs, ids, bob = d.submit_as(BOB, 200, STEP_S="0.01"), [], d.of(BOB)
        full = None
        while not full and len(ids) < 40:
            try:
                ids.append(d.submit_as(BOB, 10, **{"E%d" % i: "x" * 4000 for i in range(25)}))
                bob.call("job.cancel", id=ids[-1])
            except Refused as e:
                full = str(e)
        assert full and "user_stored" in full and 5 < len(ids) < 12, (full, len(ids))
        theirs = d.submit_as(ANN, 5, STEP_S="0")
        d.submit_as(BOB, 5, groups=[DETD], STEP_S="0")  # no limit holds for admins
        d.wait(runs, "completed")
        d.check_rows(runs, 200)
        d.wait(theirs, "completed")
        d.kill()
        d.start()
        bob = d.of(BOB)
        assert "user_stored" in str(refused(lambda: d.submit_as(BOB, 10)))
        for job in ids[:2]:
            bob.call("job.rm", id=job)
        d.of(BOB).call("job.cancel", id=d.submit_as(BOB, 10))


if __name__ == "__main__":
    main([database, changes, queue, queued_rows, unread_acks, connections])
