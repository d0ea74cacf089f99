#!/usr/bin/env python3
"""How long ann and root wait while bob floods detd. For each flood of the table in daemon/base/bounds.h, two processes
of his do what they can at full speed. Needs root; the users and the node are made in namespaces, as by launch.py.
usage: bench_floods.py [FLOOD...]    DETD_BUILD: the build's folder; FLOOD_S: seconds of each flood (10)
Records: flood, with the times of whole commands: `detctl ls` of ann's before the flood (alone) and during it, her `detctl submit`,
and root's `detctl cancel`; start: her `detctl --version`, which asks detd nothing, so this part is the kernel's, which
shares the CPUs among processes. weights=no: the kernel has no controller cpu of control groups of version 2 here, so
detd gets no share of the CPUs of its own, which its unit gives it."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import pathlib
import signal
import socket
import sqlite3
import subprocess
import sys
import time

E2E = pathlib.Path(__file__).resolve().parent.parent / "e2e"
sys.path[:0] = [str(E2E), str(E2E / "hostile")]
from daemon import BUILD  # pylint: disable=wrong-import-position
from launch import ANN, BOB, DETD, INSIDE, Node, apart, has_limits, removed, unable  # pylint: disable=wrong-import-position
from shares import Hostile, knock  # pylint: disable=wrong-import-position

SECONDS = float(os.environ.get("FLOOD_S", "10"))
TERMS = {"t%d" % i: [i, 1] for i in range(250)}
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "


def spec(**env):
    return {"model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/dev/null", "images": "/tmp"}},
            "train": {"steps": 100000, "batch": 8}, "run": {"device": "cpu", "threads": 1, "env": env}}


class Flooded(Node):
    """A node with jobs of bob's: two run, and root has some to cancel. No further job starts. Enough is stored for queries
    that take long."""

    def __enter__(self):
        super().__enter__()
        self.fill()
        self.supers = [self.submit_as(BOB, 100000) for _ in range(2)]
        for job in self.supers:
            self.wait(job, lambda now: now["step"] > 3)
        self.call("daemon.drain", reason="flood")
        client = self.of(BOB)
        self.waiting = [client.call("job.submit", spec=spec(), token="w%d" % i)["id"] for i in range(20)]
        with open("/home/ann/job.json", "w", encoding="utf-8") as f:
            json.dump(spec(), f)
        os.chown("/home/ann/job.json", ANN, ANN)
        self.weighs = has_limits("cpu")
        if self.weighs:
            self.join("detd", self.proc.pid)
        self.floods = []
        return self

    def __exit__(self, kind, value, trace):
        for pid in self.floods:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        super().__exit__(kind, value, trace)
        for name in ("detd", "bob"):
            self.until(lambda n=name: removed("%s-%s" % (self.group, n)), "processes of the flood stay")

    def fill(self):
        """Bob's job 1 has a long curve and many events, as have others of his."""
        self.call("daemon.info")
        self.stop()
        with sqlite3.connect(self.state + "/detd.db") as db:
            db.execute(NUMBERS % 5000 + "INSERT INTO jobs (name, user, uid, token, state, tier, device, ranks, steps, submitted) "
                       "SELECT 'n', 'bob', ?, 't' || i, 'completed', 'rerun', 'cpu', 1, 9, 5 FROM n", (BOB,))
            db.execute("INSERT INTO series VALUES (1, 1, 'train', 'total')")
            db.execute(NUMBERS % 100000 + "INSERT INTO point SELECT 1, i, i, 1.0 / i, 1, 1, 5 FROM n")
        for name in os.listdir(self.state):
            os.chown(self.state + "/" + name, DETD, DETD)
        self.start()

    def join(self, name, pid):
        """Gives the process a group with the default weight: on a node these are system.slice and user.slice."""
        folder = "%s-%s" % (self.group, name)
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/cgroup.procs", "w", encoding="utf-8") as f:
            f.write(str(pid))

    def flood(self, what, *args):
        """Calls what(*args) as bob, in a process of its own, until the end."""
        pid = os.fork()
        if pid:
            self.floods.append(pid)
            return
        try:
            if self.weighs:
                self.join("bob", os.getpid())
            os.setgroups([])
            os.setgid(BOB)
            os.setuid(BOB)
            what(*args)
        finally:
            os._exit(1)

    def ctl(self, uid, *words):
        """Seconds that the command takes."""
        began = time.monotonic()
        done = subprocess.run([BUILD + "/detctl", "--socket", self.path, *map(str, words)], user=uid, group=uid, extra_groups=[], cwd="/",
                              env={"HOME": "/home/ann" if uid else "/"}, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=60, check=False)
        assert done.returncode == 0, (words, done)
        return time.monotonic() - began

    def measure(self, name):
        alone = [self.ctl(ANN, "ls") for _ in range(int(min(30, 5 + 3 * SECONDS)))]
        self.call("daemon.info")  # its longest turn is counted anew
        yield  # now the flood begins
        time.sleep(min(2, SECONDS / 2))
        ls, start, submit, cancel, until = [], [], [], [], time.monotonic() + SECONDS
        while time.monotonic() < until or not submit:
            for _ in range(10):
                ls.append(self.ctl(ANN, "ls"))
                start.append(self.ctl(ANN, "--version"))
            submit.append(self.ctl(ANN, "submit", "/home/ann/job.json", "--no-check"))
            cancel += [self.ctl(0, "cancel", self.waiting.pop())] if self.waiting else []
        assert all(os.waitpid(pid, os.WNOHANG) == (0, 0) for pid in self.floods), "a flood has ended"
        cancel += [self.ctl(0, "cancel", job) for job in self.supers]
        ls.sort()
        start.sort()
        info = self.call("daemon.info")
        print("flood name=%s weights=%s calls=%d alone_max_ms=%.1f start_p99_ms=%.1f ls_median_ms=%.1f ls_p99_ms=%.1f submit_max_ms=%.1f "
              "cancel_max_ms=%.1f loop_max_ms=%.1f loop_cpu_max_ms=%.1f rss_mb=%.1f" %
              (name, "yes" if self.weighs else "no", len(ls), 1e3 * max(alone), 1e3 * start[len(ls) * 99 // 100],
               1e3 * ls[len(ls) // 2], 1e3 * ls[len(ls) * 99 // 100], 1e3 * max(submit), 1e3 * max(cancel), info["loop_max_ms"],
               info["loop_cpu_max_ms"], 1e-6 * info["rss_bytes"]), flush=True)


def run(start):
    """Measures beside what start(node) has begun."""
    with Flooded() as d:
        for _ in d.measure(start.__name__):
            start(d)


# ---- what a process of bob's does ----

def hold(path):
    """Connects, sends half a request, and keeps so many that he has his share."""
    kept = []
    while True:
        try:
            s = socket.socket(socket.AF_UNIX)
            s.connect(path)
            s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"job.li')
            kept = kept[-150:] + [s]
        except OSError:
            pass


def ask(client, lines):
    """Sends these requests again and again, and reads what comes."""
    lines = b"".join(json.dumps(dict(jsonrpc="2.0", id=1, method=method, params=params)).encode() + b"\n" for method, params in lines)
    client.sock.settimeout(None)
    if os.fork() == 0:
        try:
            while client.sock.recv(1 << 20):
                pass
        finally:
            os._exit(0)
    while True:
        client.sock.sendall(lines)


def send(client, method, **params):
    client.sock.sendall(json.dumps(dict(jsonrpc="2.0", id=1, method=method, params=params)).encode() + b"\n")


def submit(client, count, of):
    """Submits without end, so many at a time, and cancels what was granted."""
    tokens, client.next_id = 0, 0
    while True:
        for _ in range(count):
            tokens += 1
            send(client, "job.submit", spec=of, token="%d-%d" % (os.getpid(), tokens))
        granted = [m["result"]["id"] for m in (client.read() for _ in range(count)) if "result" in m]
        for job in granted if count == 1 else []:
            send(client, "job.cancel", id=job)
            client.read()


def report(sup, records):
    """Sends these records again and again, each with the next number. A loss has the next step, an attempt the next number."""
    texts, step, attempt = [json.dumps(r)[1:] for r in records], 1000, 1
    while True:
        lines = []
        for record, text in zip(records, texts):
            step, attempt, sup.seq = step + 1, attempt + (record["type"] == "attempt"), sup.seq + 1
            own = {"loss": '"step":%d,' % step, "attempt": '"attempt":%d,' % attempt}.get(record["type"], "")
            lines.append('{"type":"report","seq":%d,"rec":{%s%s}\n' % (sup.seq, own, text))
        sup.sock.sendall("".join(lines).encode())


LOSS = {"type": "loss", "split": "train", "epoch": 1, "tier": "rerun", "time": 1, "terms": TERMS}
EVENT = {"type": "event", "level": "error", "kind": "x", "text": "y" * 600, "time": 1}


# ---- floods ----

def connections(d):
    d.flood(knock, d.path, 1e9)
    d.flood(hold, d.path)


def requests(d):
    d.flood(ask, d.of(BOB), [("job.list", {"limit": 1000, "cursor": i}) for i in range(1000, 5000, 100)])
    d.flood(ask, d.of(BOB), [("loss.query", {"id": 1, "points": 5000}), ("event.query", {"limit": 1000})])


def submissions(d):
    d.flood(submit, d.of(BOB), 50, spec())
    d.flood(submit, d.of(BOB), 1, spec(**{"E%d" % i: "x" * 4000 for i in range(60)}))


def rows(d):
    for job, record in zip(d.supers, (LOSS, EVENT)):
        d.flood(report, Hostile(d, job), [record] * 20)


def labels(d):
    d.flood(ask, d.of(BOB), [("job.label", {"id": d.waiting[0], "note": "n%d " % i + "x" * 390}) for i in range(50)])
    d.flood(ask, d.of(BOB), [("job.priority", {"id": d.waiting[0], "priority": -i}) for i in range(50)])


def rewinds(d):
    for job in d.supers:
        d.flood(report, Hostile(d, job), [LOSS] * 4 + [{"type": "attempt", "resume_step": 0, "time": 1}])


FLOODS = [connections, requests, submissions, rows, labels, rewinds]


def main():
    if unable():
        print("skip: " + unable())
    elif INSIDE:
        run(next(f for f in FLOODS if f.__name__ == sys.argv[1]))
    else:
        chosen = [f for f in FLOODS if len(sys.argv) < 2 or f.__name__ in sys.argv[1:]]
        failed = [f.__name__ for f in chosen if not apart(f)]
        sys.exit("failed: " + ", ".join(failed) if failed else 0)


main()
