#!/usr/bin/env python3
"""Bytes that clients may send to a real detd, and settings with which it refuses to start."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

from daemon import SANITIZED, Client, Daemon, Refused


def refusal(d, method, **params):
    try:
        d.call(method, **params)
    except Refused as e:
        return e.reason, e.field
    raise AssertionError("%s %r was accepted" % (method, params))


def every_refusal_names_its_field():
    with Daemon() as d:
        assert refusal(d, "job.get") == ("INPUT", "id")
        assert refusal(d, "job.get", id="1") == ("INPUT", "id")
        assert refusal(d, "job.get", id=1, colour="red") == ("INPUT", "colour")
        assert refusal(d, "job.get", id=77) == ("NOTFOUND", "id")
        assert refusal(d, "job.cancel", id=77) == ("NOTFOUND", "id")
        assert refusal(d, "loss.query", id=77) == ("NOTFOUND", "id")
        assert refusal(d, "deterministic.set", tier="very") == ("INPUT", "tier")
        assert refusal(d, "job.list", state="asleep") == ("INPUT", "state")
        assert refusal(d, "job.list", limit=0) == ("INPUT", "limit")
        assert refusal(d, "subscribe", topics="jobs,weather") == ("INPUT", "topics")
        assert refusal(d, "job.submit", token="", spec={}) == ("INPUT", "token")
        assert refusal(d, "job.submit", token="x" * 129, spec={}) == ("INPUT", "token")
        assert refusal(d, "job.submit", token="x" * 128, spec={})[1] != "token"
        spec = {
            "model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/a", "images": "/b"}}, "train": {"steps": 1, "batch": 8}
        }
        assert refusal(d, "job.submit", token="t", spec=dict(spec, run={"device": "cuda"})) == ("INPUT", "run.device")
        assert refusal(d, "job.submit", token="t", spec=dict(spec, colour=1)) == ("INPUT", "colour")
        assert refusal(d, "job.submit", token="t", spec=dict(spec, train={"epochs": 2, "batch": 8})) == ("INPUT", "train.epochs")
        spec["data"]["train"]["images"] = "b"
        assert refusal(d, "job.submit", token="t", spec=spec) == ("INPUT", "data.train.images")
        assert d.call("job.list")["jobs"] == []


def lines_that_are_no_requests():
    with Daemon() as d:
        c = d.client()
        cases = [(b"{\n", -32700), (b"[]\n", -32600), (b'[{"jsonrpc":"2.0"}]\n', -32600),
                 (b'{"jsonrpc":"2.0","method":"daemon.info"}\n', -32600), (b'{"jsonrpc":"2.0","id":1.5,"method":"daemon.info"}\n', -32600),
                 (b"\xff\xfe\n", -32700), (b'"x"\n', -32600), (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"daemon.info"}\n', -32700),
                 (b"[" * 60000 + b"\n", -32600), (b'{"jsonrpc":"2.0","id":"a","method":"job.fly","params":{}}\n', -32601)]
        for line, code in cases:
            assert c.raw(line)["error"]["code"] == code, line[:60]
        # Long lines are parsed off the loop. A line over 1 MiB is refused.
        big = {"jsonrpc": "2.0", "id": "big", "method": "job.submit", "params": {"token": "t", "spec": {"name": "x" * 500000}}}
        assert c.raw(json.dumps(big).encode() + b"\n")["error"]["data"]["field"] != ""
        assert c.call("daemon.info")["protocol"] == 1
        try:
            answer = c.raw(b"x" * (2 << 20) + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            answer = None
        assert answer is None or answer["error"]["code"] == -32600
        assert d.call("daemon.info")["protocol"] == 1


def peak_bytes(pid):
    """Returns the most memory the process ever had."""
    status = open("/proc/%d/status" % pid).read()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def read_replies(clients, want):
    """Reads from all sockets until each has `want` lines or is closed. Returns the lines of each."""
    got, open_ = [b""] * len(clients), set(range(len(clients)))
    until = time.time() + 120
    while any(got[i].count(b"\n") < want for i in open_):
        assert time.time() < until, [g.count(b"\n") for g in got]
        for s in select.select([clients[i].sock for i in open_], [], [], 1)[0]:
            i = next(k for k in open_ if clients[k].sock is s)
            data = s.recv(1 << 16)
            got[i] += data
            if not data:
                open_.discard(i)
    return [[json.loads(line) for line in g.splitlines()] for g in got]


def lines_of_many_values():
    """Sixty clients send lines of a mebibyte that would be 350,000 values, or as many as a request may have: all are
    answered, and detd stays small."""
    with Daemon() as d:
        line = b'{"jsonrpc":"2.0","id":%d,"method":"job.submit","params":{"token":"t","spec":{"name":[' + b"[],"
        too_many = [(line % i) + b"[]," * 349000 + b"[]]}}}\n" for i in range(60)]
        allowed = b'{"jsonrpc":"2.0","id":"most","method":"job.submit","params":{"token":"t","spec":{"name":[' + \
            b"[]," * 16370 + b'[]],"out":"' + b"x" * 950000 + b'"}}}\n'
        assert all(len(m) < 1 << 20 for m in too_many + [allowed])
        clients = [d.client() for _ in range(60)]
        for lines, code in ((too_many, -32600), ([allowed] * 60, -32602)):
            threads = [threading.Thread(target=c.sock.sendall, args=(3 * m,)) for c, m in zip(clients, lines)]
            for t in threads:
                t.start()
            for replies in read_replies(clients, 3):
                assert [r["error"]["code"] for r in replies] == [code] * 3, replies
            for t in threads:
                t.join()
        peak = peak_bytes(d.proc.pid)
        print("   peak %d MB" % (peak >> 20))
        assert SANITIZED or peak < 256 << 20, peak


def subscriptions():
    with Daemon() as d:
        c = d.client()
        c.call("subscribe")
        silent = d.client()
        silent.call("subscribe", topics="jobs losses")
        job = d.submit(40)
        seen = {"jobs": [], "losses": [], "events": []}
        while not any(m["state"] == "completed" for m in seen["jobs"]):
            msg = c.read()
            seen[msg["method"]].append(msg["params"])
        assert {m["state"] for m in seen["jobs"]} >= {"queued", "running", "completed"}
        assert [m["step"] for m in seen["losses"] if m["split"] == "train"] == list(range(1, 41))
        assert seen["losses"][0]["terms"]["total"] == 250.0 and seen["losses"][0]["job"] == job
        assert any(e["kind"] == "state" for e in seen["events"])


def a_client_that_does_not_listen():
    """The queue of a slow client is bounded; the client is told how much was dropped."""
    with Daemon(step_s=0) as d:
        c = d.client()
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.call("subscribe", topics="losses jobs")
        job = d.submit(6000, every=100000)
        d.wait(job, "completed", 120)
        again = d.submit(3)
        dropped, kinds = 0, set()
        c.sock.settimeout(3)
        try:
            while True:
                msg = c.read()
                kinds.add(msg["method"])
                dropped += msg["params"]["count"] if msg["method"] == "dropped" else 0
                if msg["method"] == "losses" and msg["params"]["step"] % 500 == 0:
                    again = d.submit(3)
        except TimeoutError:
            pass
        assert again and "losses" in kinds and dropped > 0
        d.check_rows(job, 6000)


def run_detd(d, *args):
    done = subprocess.run([d.bin + "/detd"] + list(args), capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def what_it_does_not_start_with():
    with Daemon() as d:
        code, text = run_detd(d, "--state", d.state, "--socket", d.root + "/other.sock")
        assert code == 1 and "belongs to a detd that is running" in text, text
        code, text = run_detd(d, "--state", d.root + "/s2", "--socket", d.path)
        assert code == 1 and "another daemon serves it" in text, text
        code, text = run_detd(d, "--state", d.root + "/s2", "--socket", "/tmp/" + "x" * 120)
        assert code == 2 and "at most 107" in text, text
        code, text = run_detd(d, "--state", d.root + "/s2", "--socket", d.root + "/conf")
        assert code == 1 and "not a socket" in text, text
        assert "refused" not in open(d.root + "/conf").read() and d.call("daemon.info")["pid"] == d.proc.pid
        for option in ("--help", "--version"):
            assert run_detd(d, option)[0] == 0
        assert run_detd(d, "--state")[0] == 2
        d.stop()
        assert not os.path.exists(d.path), "the socket is left behind"
        keep = d.state + "/detd.db"
        shutil.copy(keep, d.root + "/copy")
        db = sqlite3.connect(keep)
        db.execute("PRAGMA user_version=99")
        db.close()
        code, text = run_detd(d, "--state", d.state, "--socket", d.path)
        assert code == 1 and "schema 99" in text and "--state" in text, text
        with open(keep, "wb") as f:
            f.write(os.urandom(8192))
        before = open(keep, "rb").read()
        code, text = run_detd(d, "--state", d.state, "--socket", d.path)
        assert code == 1 and "damaged" in text and open(keep, "rb").read() == before, text
        shutil.copy(d.root + "/copy", keep)
        d.start()
        mode = os.stat(d.path).st_mode & 0o777, os.stat(os.path.dirname(d.path)).st_mode & 0o777, os.stat(d.state).st_mode & 0o777
        assert mode == (0o600, 0o700, 0o700), mode


def stopped_as_soon_as_it_listens():
    """As soon as the socket accepts a connection, a signal stops detd in order: there is no moment at which a signal
    just kills it."""
    with Daemon() as d:
        for _ in range(20):
            d.stop()
            d.start(wait=False)
            while not os.path.exists(d.path):
                assert d.proc.poll() is None
        d.stop()
        d.start()


def become_nobody(path):
    """Runs in a child: leaves with 0 if the daemon refused."""
    status = 1
    try:
        os.setuid(65534)
        c = Client(path)
        answer = c.read()
        status = 0 if answer["error"]["data"]["reason"] == "DENIED" and c.read() is None else 2
    except Exception as e:
        print(repr(e), flush=True)
    os._exit(status)


def another_user_is_refused():
    """Only root can try this: the socket's mode is opened on purpose, so that the peer check alone stands in the way."""
    if os.geteuid() != 0:
        print("skip: only root may become other users", flush=True)
        return
    with Daemon() as d:
        for path in (d.root, os.path.dirname(d.path), d.path):
            os.chmod(path, 0o777)
        pid = os.fork()
        if pid == 0:
            become_nobody(d.path)
        assert os.waitpid(pid, 0)[1] == 0
        with open(d.root + "/log") as f:
            assert "detd: refused a connection of user 65534: this daemon serves another user" in f.read()


def systemd_manners():
    """detd reports readiness to NOTIFY_SOCKET, and serves a socket that systemd opened."""
    with Daemon() as d:
        d.stop()
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(d.root + "/notify")
        notify.settimeout(20)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(d.root + "/given.sock")
        listener.listen()

        def become():
            os.dup2(listener.fileno(), 3)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=d.root + "/notify")
            os.execv(d.bin + "/detd", ["detd", "--state", d.state, "--socket", d.path])

        pid = os.fork()
        if pid == 0:
            become()
        assert notify.recv(100) == b"READY=1"
        assert Client(d.root + "/given.sock").call("daemon.info")["pid"] == pid
        os.kill(pid, signal.SIGTERM)
        assert notify.recv(100) == b"STOPPING=1"
        assert os.waitpid(pid, 0)[1] == 0


SCENARIOS = [every_refusal_names_its_field, lines_that_are_no_requests, lines_of_many_values, subscriptions, a_client_that_does_not_listen,
             what_it_does_not_start_with, stopped_as_soon_as_it_listens, another_user_is_refused, systemd_manners]

for scenario in SCENARIOS:
    if len(sys.argv) < 2 or scenario.__name__ in sys.argv[1:]:
        start = time.time()
        scenario()
        print("ok %s (%.1f s)" % (scenario.__name__, time.time() - start), flush=True)
