"""liar.py - what bob's jobs run in torture, as Python's sitecustomize: beside the rank a process that stops or kills
detd-job, or leaves it alone, and speaks with detd in its place. By chance it says what proto/report.h allows and what it
forbids, and obeys nothing. tests/stand/sim/hostile.c does the same in the simulator."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import signal
import socket
import time

FAR = (0, 1, -1, 2 ** 31 - 1, 2 ** 53, 2 ** 63 - 1, -2 ** 63, 1000000, 1000001)
GARBAGE = (b"", b"{", b"[]", b"null", b'{"type":7}', b'{"type":"report","seq":"1"}', b"\xff\xfe", b'{"type":"status","type":"end"}',
           b"[" * 99)


def option(pid, name):
    with open("/proc/%d/cmdline" % pid, encoding="utf-8") as f:
        words = f.read().split("\0")
    return words[words.index(name) + 1]


class Liar:
    def __init__(self, supervisor):
        self.job, self.nonce = int(option(supervisor, "--job")), option(supervisor, "--nonce")
        self.rng = random.Random(os.environ["LIAR"] + self.nonce)
        self.socks, self.seq, self.attempt, self.heard = [None] * 3, 0, 1, b""
        self.habits = [deed for deed in self.DEEDS if deed == "come" or self.rng.randrange(2)]

    # ---- words ----

    def count(self, near):
        return near + self.rng.randrange(-1, 3) if self.rng.randrange(10) < 7 else self.rng.choice(FAR)

    def time(self):
        return self.rng.choice((0, -1e300, 1e300, 1e12, time.time(), None, "noon", -7e9, 2 ** 63))

    def terms(self, most):
        return {"t%d" % (self.rng.randrange(3) + i): [i, self.rng.randrange(3)] for i in range(self.rng.randrange(1, most + 1))}

    def record(self):
        step, attempt = self.count(self.rng.randrange(20)), self.count(self.attempt)
        return dict(self.rng.choice((
            {"type": "loss", "split": "train", "step": step, "epoch": 1e300, "tier": "rerun", "images_per_s": attempt,
             "terms": self.terms(4)},
            {"type": "checkpoint", "step": step, "phase": "published", "path": "../../../%d" % step, "bytes": -1, "best": True},
            {"type": "tier", "step": step, "tier": "world"},
            {"type": "event", "level": "error", "kind": "waits", "text": "\x1b[2J\u202e%d" % step},
            {"type": "eval", "step": step, "metrics": {"AP": 1e308, "B": None}},
            {"type": "ended", "attempt": attempt, "outcome": "won", "cpu_seconds": -1e300, "seconds": 1e300, "max_rss": step},
            {"type": "data", "split": "train", "images": step, "boxes": -1, "skipped": 2 ** 62, "bad": ["\x07"]},
            {"type": "identity", "attempt": attempt, "identity": {"hash": step}})), time=self.time())

    # ---- deeds ----

    def put(self, data, sock=None):
        sock = sock or self.rng.choice(self.socks)
        try:
            if sock:
                sock.sendall(data)
        except (BlockingIOError, TimeoutError):  # it takes no more
            pass
        except OSError:
            self.drop(sock)

    def drop(self, sock):
        sock.close()
        self.socks = [None if s is sock else s for s in self.socks]

    def say(self, **message):
        self.put(json.dumps(message).encode() + b"\n")

    def report(self, record, seq=None):
        self.say(type="report", seq=self.seq + 1 if seq is None else seq, rec=record)
        self.seq += seq is None

    def come(self):
        at = self.rng.randrange(3)
        if self.socks[at]:
            return
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(self.rng.choice((0, 0.1)))
        try:
            sock.connect("../../sup.sock")
        except OSError:
            sock.close()
            return
        self.socks[at] = sock
        self.greet(sock)

    def greet(self, sock=None):
        job, nonce = self.rng.choice(self.others()) if not self.rng.randrange(9) else (self.job, self.nonce)
        hello = {"type": "hello", "protocol": 1, "job": job, "attempt": self.count(self.attempt), "nonce": nonce, "pid": -1,
                 "beats": bool(self.rng.randrange(2)), "first": 0 if self.rng.randrange(20) else self.count(self.seq)}
        self.put(json.dumps(hello).encode() + b"\n", sock)

    def others(self):
        """Numbers and nonces of all jobs: command lines are public."""
        found = [(self.job, self.nonce)]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                found.append((int(option(int(pid), "--job")), option(int(pid), "--nonce")))
            except (OSError, ValueError, IndexError):
                continue
        return found

    def hear(self):
        sock = self.rng.choice(self.socks)
        try:
            got = sock.recv(65536) if sock else b""
            if sock and not got:
                self.drop(sock)
            with open("/home/bob/welcomes", "a", encoding="utf-8") as f:
                f.write("x" * got.count(b'"welcome"'))
            self.heard = (self.heard + got)[-1000:]
            self.seq = int(self.heard.split(b'seq":')[-1].split(b"}")[0].split(b",")[0])
        except (OSError, ValueError):
            pass

    def next(self):
        self.report(self.record())

    def jump(self):
        self.report(self.record(), self.count(self.seq))

    def again(self):
        for _ in range(2000):
            self.say(type="report", seq=0)

    def begin(self):
        self.attempt += 1
        self.report({"type": "attempt", "attempt": self.count(self.attempt), "resume_step": self.rng.randrange(20), "first": True,
                     "time": self.time()})

    def flood(self):
        for _ in range(200):
            self.report({"type": "loss", "split": "val", "step": self.rng.randrange(100000), "epoch": 1, "tier": "off", "time": self.time(),
                         "images_per_s": 1, "terms": self.terms(250)})

    def status(self):
        self.say(type="status", attempt=self.count(self.attempt), step=self.count(5), phase="forward", images_per_s=1e308,
                 cpu_seconds=-1e308, max_rss=self.count(9), rss=self.count(9), seconds=1e308, trouble="\x1b[2J")

    def end(self):
        outcome = self.rng.choice(("completed", "failed", "paused", "won"))
        self.report({"type": "end", "attempt": self.count(self.attempt), "outcome": outcome, "reason": "", "class": "fault",
                     "time": self.time()})

    def garbage(self):
        self.put(self.rng.choice(GARBAGE) + b"\n"[:self.rng.randrange(2)])

    def babble(self):
        self.put(b"x" * 300000)

    def hang_up(self):
        sock = self.rng.choice(self.socks)
        if sock:
            self.drop(sock)

    def rest(self):
        time.sleep(self.rng.choice((1, 5, 90)))

    def leave(self):
        os._exit(self.rng.randrange(128))

    DEEDS = {"come": 12, "hear": 12, "next": 12, "status": 4, "begin": 3, "flood": 4, "again": 2, "jump": 2, "greet": 1, "end": 1,
             "garbage": 1, "babble": 1, "hang_up": 2, "rest": 1, "leave": 1}

    def live(self, supervisor):
        what = self.rng.choice((signal.SIGSTOP, signal.SIGSTOP, signal.SIGKILL, None))
        if what:
            os.kill(supervisor, what)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        while True:
            getattr(self, self.rng.choices(self.habits, [self.DEEDS[deed] for deed in self.habits])[0])()
            time.sleep(self.rng.uniform(0, 0.1))


parent = os.getppid()
if "LIAR" in os.environ and os.fork() == 0:
    Liar(parent).live(parent)
