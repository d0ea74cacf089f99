#!/usr/bin/env python3
"""detd beside clients that ask too much: how long the loop is kept, and how long another client waits. A private detd
in a folder of its own.
usage: bench_crowd.py [jobs=1000000] [steps=200000] [clients=60]    DETD_BUILD: the build's folder
Records: lines (clients with lines of a mebibyte), pile (one with 64 slow queries), state (job.list by
state)."""  # SPDX-License-Identifier: Apache-2.0
import json
import multiprocessing
import pathlib
import sqlite3
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from daemon import Client, Daemon  # pylint: disable=wrong-import-position

MANY = (
    b'{"jsonrpc":"2.0","id":1,"method":"job.submit","params":{"token":"t","spec":{"name":[' + b"[]," * 349000 +
    b"[]]}}}\n",  # more values than are parsed
    b'{"jsonrpc":"2.0","id":1,"method":"job.submit","params":{"token":"t","spec":{"name":[' + b"[]," * 16370 + b'[]],"out":"' +
    b"x" * 950000 + b'"}}}\n')


def number(key, otherwise):
    return next((int(word.split("=")[1]) for word in sys.argv[1:] if word.startswith(key + "=")), otherwise)


def fill(d, jobs, steps):
    """Job 1 has a long curve; of all other jobs one in a thousand failed."""
    d.call("daemon.info")
    d.stop()
    with sqlite3.connect(d.state + "/detd.db") as db:
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                   "INSERT INTO jobs (name, user, uid, token, state, tier, device, ranks, steps, submitted) "
                   "SELECT 'n', 'u', 0, 't' || i, iif(i % 1000 = 3, 'failed', 'completed'), 'rerun', 'cpu', 1, 9, 5 FROM n", (jobs,))
        db.execute("INSERT INTO series VALUES (1, 1, 'train', 'total')")
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                   "INSERT INTO point SELECT 1, i, i, 1.0 / i, 1, 1, 5 FROM n", (steps,))
    d.start()


def times(client, count, method, **params):
    """Milliseconds of each call, ascending."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        client.call(method, **params)
        found.append(1e3 * (time.perf_counter() - began))
    return sorted(found)


def lines(d, count):
    other, clients = d.client(), [d.client() for _ in range(count)]
    other.call("daemon.info")  # the longest turn counts from here

    def talk(c):
        for line in MANY:
            c.sock.sendall(line)
            assert "error" in c.read()

    threads = [threading.Thread(target=talk, args=(c,)) for c in clients]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    info = other.call("daemon.info")
    with open("/proc/%d/status" % d.proc.pid, encoding="utf-8") as f:
        peak = int(f.read().split("VmHWM:")[1].split()[0]) / 1024
    print("lines clients=%d loop_max_ms=%.2f loop_cpu_max_ms=%.2f peak_mib=%.1f" %
          (count, info["loop_max_ms"], info["loop_cpu_max_ms"], peak))


def ask_64(path):
    """A process of its own, which shares no interpreter with the client that is timed: leaves when all its slow queries are answered."""
    slow = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "loss.query", "params": {"id": 1, "points": 5000}}).encode() + b"\n"
    hog, answers = Client(path), 0
    hog.sock.sendall(slow * 64)
    while answers < 64:
        got = hog.sock.recv(1 << 20)
        assert got, "detd hung up"
        answers += got.count(b"\n")


def pile(d):
    """The list is of a page that memory does not have: it takes a thread, as the pile does."""
    other = d.client()
    alone = times(other, 200, "job.list", limit=1, cursor=2)
    hog = multiprocessing.Process(target=ask_64, args=(d.path,))
    hog.start()
    beside = times(other, 1, "job.list", limit=1, cursor=2)
    while hog.is_alive():
        beside += times(other, 1, "job.list", limit=1, cursor=2)
    assert hog.exitcode == 0
    beside.sort()
    print("pile calls=%d alone_p99_ms=%.3f beside_p99_ms=%.3f" %
          (len(beside), alone[len(alone) * 99 // 100], beside[len(beside) * 99 // 100]))


def state(d, jobs):
    c = d.client()
    found = times(c, 100, "job.list", state="failed", limit=100)
    none = times(c, 100, "job.list", state="cancelled", limit=100)
    print("state jobs=%d median_ms=%.3f p99_ms=%.3f none_p99_ms=%.3f" % (jobs, found[50], found[98], none[98]))


def main():
    jobs = number("jobs", 1000000)
    with Daemon() as d:
        fill(d, jobs, number("steps", 200000))
        lines(d, number("clients", 60))
        pile(d)
        state(d, jobs)


main()
