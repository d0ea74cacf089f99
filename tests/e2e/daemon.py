"""A private detd in a folder of its own, and a client of its control socket. Shared by the daemon's end-to-end
tests."""  # SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time

SEED = int(os.environ.get("SEED", "1"))  # of the moments of kills

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(os.environ.get("DETD_BUILD", "build"))


with open(BUILD + "/detd", "rb") as program:
    SANITIZED = b"__asan_init" in program.read()


INSIDE = os.environ.get("DETD_MOUNTS") == "1"
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


def in_private(scenario):
    """Runs a scenario in a namespace of mounts, so that other processes do not see its disk."""
    if INSIDE:
        scenario()
    elif subprocess.run(UNSHARE + ["sh", "-c", "mount -t tmpfs detd-e2e /mnt"], capture_output=True, check=False).returncode != 0:
        print("skip: no mounts in a user namespace", flush=True)
    else:
        subprocess.run(UNSHARE + [sys.executable, sys.argv[0], scenario.__name__], check=True, env=dict(os.environ, DETD_MOUNTS="1"))


def run_one(scenario, private):
    began = time.time()
    if scenario in private and not INSIDE:
        in_private(scenario)
    else:
        scenario()
        print("ok %s (%.1f s)" % (scenario.__name__, time.time() - began), flush=True)


def run_apart(scenario):
    """Runs a scenario as a process of its own, so that its output is not mixed with that of others."""
    done = subprocess.run([sys.executable, sys.argv[0], scenario.__name__], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    print(done.stdout, end="", flush=True)
    return done.returncode == 0


def run_scenarios(scenarios, private=(), lanes=6):
    """Runs the scenarios that the command line names, or all, up to `lanes` at a time, since each waits most of its
    time. They start in the given order: put the longest first. private: scenarios with disks of their own."""
    named = [s for s in scenarios if s.__name__ in sys.argv[1:]]
    assert len(named) == len(sys.argv) - 1, "no such scenario"
    for scenario in named:
        run_one(scenario, private)
    if not named:
        with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
            failed = [s.__name__ for s, well in zip(scenarios, pool.map(run_apart, scenarios)) if not well]
        assert not failed, failed


def make_shapes(data, train, val, size, *more):
    """Writes pictures of shapes and their annotations into the folder, so many in each split."""
    words = map(str, ("--train", train, "--val", val, "--size", size, *more))
    subprocess.run([sys.executable, HERE + "/../demo/make_shapes.py", data, *words], check=True, stdout=subprocess.DEVNULL)


def tensors_of(path):
    """Returns {name: (type, shape, bytes)} of a safetensors file."""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    return {name: (a["dtype"], a["shape"], data[slice(*a["data_offsets"])]) for name, a in header.items() if name != "__metadata__"}


class Refused(Exception):
    def __init__(self, error):
        super().__init__(error["message"])
        self.code, self.field, self.reason = error["code"], error["data"]["field"], error["data"]["reason"]


class Client:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")
        self.next_id, self.told = 0, []

    def close(self):
        self.file.close()  # it holds the socket, too
        self.sock.close()

    def served_by(self):
        """Returns the pid of the process that listened on the socket."""
        return struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def raw(self, line):
        """Sends bytes, returns the next line as an object, or None at the end."""
        self.sock.sendall(line)
        return self.read()

    def read(self):
        line = self.file.readline()
        return json.loads(line) if line else None

    def call(self, method, **params):
        self.next_id += 1
        self.sock.sendall((json.dumps({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}) + "\n").encode())
        while True:
            msg = self.read()
            if msg is None:
                raise ConnectionError(method)
            if "id" not in msg:
                self.told.append(msg)
            elif msg["id"] == self.next_id:
                if "error" in msg:
                    raise Refused(msg["error"])
                return msg["result"]


class Relay:
    """Stands between a client and detd, and keeps the messages of both in their order. It calls instead(message) before
    it forwards a message; a reply from it is sent instead, None forwards the message."""

    def __init__(self, path, to, instead=lambda msg: None):
        self.path, self.to, self.said, self.ends, self.instead = path, to, [], [], instead
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, far = self.server.accept()[0], socket.socket(socket.AF_UNIX)
            far.connect(self.to)
            self.ends += [near, far]
            for a, b in (near, far), (far, near):
                threading.Thread(target=self.copy, args=(a, b), daemon=True).start()

    def copy(self, a, b):
        with contextlib.suppress(OSError), a.makefile("rb") as lines:
            for line in lines:
                msg = json.loads(line)
                self.said.append(msg.get("method", "answer"))
                answer = self.instead(msg)
                if answer:
                    a.sendall(json.dumps(answer).encode() + b"\n")
                else:
                    b.sendall(line)

    def cut(self):
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Daemon:
    """detd and detd-job of the build. The trainer is detd-worker, or rank.py in its place, with steps of step_s
    seconds."""

    def __init__(self, foreign=True, step_s=0.02, slots=4, disk_mb=0, system=False, read="everyone", conf=""):
        self.root = tempfile.mkdtemp(prefix="detd-e2e-")
        self.state, self.path, self.bin = self.root + "/state", self.root + "/run/detd.sock", self.root + "/bin"
        self.slots, self.step_s, self.proc, self.env, self.under = slots, step_s, None, {}, []
        self.killed = 0  # pid of the detd before
        # prepare is called in detd's process before detd starts; log_to is a descriptor in place of the log
        self.prepare, self.log_to = None, None
        self.options = ["--system"] if system else []
        if system:  # other users can reach the socket
            os.mkdir(self.root + "/run")
            for folder in (self.root, self.root + "/run"):
                os.chmod(folder, 0o755)
        if disk_mb:
            os.mkdir(self.state)
            self.resize(disk_mb)
        os.mkdir(self.bin)
        for name in ("detd", "detd-job", "detd-worker"):
            source = HERE + "/rank.py" if name == "detd-worker" and foreign else BUILD + "/" + name
            # copied by a process of its own, so that processes which other threads start meanwhile do not inherit the
            # copy open for writing
            subprocess.run(["cp", source, self.bin + "/" + name], check=True)
        with open(self.root + "/conf", "w") as f:
            f.write("slots = %d   # not those of the machine\nread = %s\n%s" % (slots, read, conf))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            print(open(self.root + "/log").read())
            for folder, _, files in os.walk(self.state + "/jobs"):
                for name in files:
                    if name.endswith(".log") and os.path.isfile(os.path.join(folder, name)):
                        print(folder + "/" + name, ":\n", open(os.path.join(folder, name), errors="replace").read()[-2000:])
        if self.proc:
            self.kill()
        until = time.time() + 60
        while True:
            for job in os.listdir(self.state + "/jobs") if os.path.isdir(self.state + "/jobs") else []:
                self.kill_session(job)
            left = self.own()  # a process that detd started a moment ago has no session yet
            if not left:
                break
            assert time.time() < until, "do not end: %s" % left
            for pid in left:
                self.signal(pid, signal.SIGKILL)
            time.sleep(0.01)
        if os.path.ismount(self.state):
            subprocess.run(["umount", "--lazy", self.state], check=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def resize(self, disk_mb):
        """The state folder is a disk of its own; only in a mount namespace (see in_private)."""
        again = ["-o", "remount,size=%dm" %
                 disk_mb] if os.path.ismount(self.state) else ["-o", "size=%dm" % disk_mb, "-t", "tmpfs", "detd-e2e"]
        subprocess.run(["mount", *again, self.state], check=True)

    def fill(self, cut_log=False, folder=None):
        """Fills the disk of the folder (None: the state folder) to the last byte. cut_log: truncates the log of detd.db
        first, since detd could otherwise write into its free part. Returns the file that fills the disk."""
        path = (folder or self.state) + "/filler"
        if cut_log:
            with sqlite3.connect(self.state + "/detd.db", timeout=60) as db:
                self.until(lambda: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, "the log of detd.db cannot be cut")
        with open(path, "ab", buffering=0) as f:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        f.write(b"x" * size)
                except OSError:
                    continue
        return path

    def preload(self, name):
        """From its next start on detd runs with tests/stand/mock/NAME.c preloaded. Returns the folder from which it
        reads its faults."""
        shim, faults = "%s/%s.so" % (self.root, name), self.root + "/faults"
        subprocess.run(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", shim, "%s/../stand/mock/%s.c" % (HERE, name)], check=True)
        os.mkdir(faults)
        self.env = dict(LD_PRELOAD=shim, FAULTS=faults, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
        return faults

    def start(self, wait=True, stdin=subprocess.DEVNULL):
        log = self.log_to if self.log_to is not None else open(self.root + "/log", "a")
        self.proc = subprocess.Popen(
            self.under + [self.bin + "/detd", "--state", self.state, "--socket", self.path, "--config", self.root + "/conf"] + self.options,
            stdout=log, stderr=log, stdin=stdin, preexec_fn=self.prepare, env=dict(os.environ, **self.env))
        return self.client() if wait else None

    def client(self):
        until = time.time() + 60
        while True:
            try:
                client = Client(self.path)
                if client.served_by() != self.killed:  # a child that it was starting has the socket open until it executes
                    return client
            except OSError:
                pass
            assert time.time() < until and self.proc.poll() is None, "detd does not come up"
            time.sleep(0.005)

    def call(self, method, **params):
        return self.client().call(method, **params)

    def kill(self):
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait()
        self.proc, self.killed = None, self.proc.pid

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        assert self.proc.wait(60) == 0, "detd left with %d" % self.proc.returncode
        self.proc = None

    def session(self, job):
        try:
            return int(open("%s/jobs/%s/lock" % (self.state, job)).read() or 0)
        except (OSError, ValueError):  # nothing, or zeros, where the power went away
            return 0

    def members(self, job):
        """Returns the processes of the job: {pid: command}."""
        found, session = {}, self.session(job)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = open("/proc/%s/stat" % pid).read()
                fields = stat[stat.rindex(")") + 2:].split()
                if session > 1 and int(fields[3]) == session and fields[0] != "Z":
                    found[int(pid)] = stat[stat.index("(") + 1:stat.rindex(")")]
            except (OSError, ValueError):
                pass
        return found

    def rank_pid(self, job, rank):
        for pid in self.members(job):
            try:
                with open("/proc/%d/cmdline" % pid, "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if b"--rank" in words and words[words.index(b"--rank") + 1] == b"%d" % rank:
                return pid
        raise AssertionError("job %d has no rank %d" % (job, rank))

    def own(self):
        """Returns the processes that have this daemon's folder in their command."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if (self.root + "/").encode() in open("/proc/%s/cmdline" % pid, "rb").read():
                    found.append(int(pid))
            except OSError:
                pass
        return found

    @staticmethod
    def signal(pid, number):
        try:
            os.kill(pid, number)
        except OSError:
            pass

    def signal_supervisor(self, job, number):
        """Signals the job's present supervisor. For a moment after a start there is no supervisor yet; this waits for
        it."""
        self.until(lambda: self.session(job) in self.members(job), "no supervisor")
        self.signal(self.session(job), number)

    def signal_session(self, job, number):
        for pid in self.members(job):
            self.signal(pid, number)

    def kill_session(self, job):
        self.signal_session(job, signal.SIGKILL)

    def submit(self, steps, every=10, ranks=1, token=None, **run):
        spec = {"name": "j", "model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/a", "images": "/b"}},
                "train": {"steps": steps, "batch": 8, "shards": 4, "log_every": 1}, "checkpoint": {"every": every},
                "run": dict({"device": "cpu", "ranks": ranks, "env": {"STEP_S": str(self.step_s)}}, **run)}
        return self.call("job.submit", spec=spec, token=token or str(random.random()))["id"]

    def job(self, job):
        return self.call("job.get", id=job)

    def detctl(self, *words, **variables):
        """Runs the command in the daemon's folder. Returns its status and output."""
        return subprocess.run([BUILD + "/detctl", *map(str, words)], cwd=self.root, capture_output=True, text=True, check=False,
                              env=dict(os.environ, DETD_SOCKET=self.path, HOME=self.root, **variables))

    def wait(self, job, test, seconds=120):
        """Waits until test(job object) holds; test may be the name of a state."""
        until = time.time() + seconds
        while True:
            try:
                now = self.job(job)
                if now["state"] == test if isinstance(test, str) else test(now):
                    return now
            except (ConnectionError, AssertionError, AttributeError):
                now = None
            assert time.time() < until, "job %d: %s" % (job, now and (now["state"], now["reason"], now["step"]))
            time.sleep(0.05)

    def held(self, job, step):
        """Waits until the job's ranks are held before that step, which HOLD in its run.env names (see rank.py), and
        detd has the loss of the step before. Returns the job."""
        return self.wait(
            job, lambda j: j["state"] == "running" and abs(j["losses"].get("train", {}).get("total", 0) - 250.0 / (step - 1)) < 1e-9)

    def go(self, job, step=None):
        """Releases ranks held at that step, or at any step."""
        open("%s/jobs/%d/%s" % (self.state, job, "go-%d" % step if step else "go"), "w").close()

    @staticmethod
    def until(test, what, seconds=120):
        """Waits until test() holds. `what` names the missing event in the message of a failure."""
        until = time.time() + seconds
        while not test():
            assert time.time() < until, what
            time.sleep(0.02)

    def wait_left(self, job):
        """Waits until no process of the job lives."""
        self.until(lambda: not self.members(job), "the job's processes are still there")

    def newest_checkpoint(self, job):
        """Returns the step of the newest published checkpoint, whether detd knows it or not."""
        folder = "%s/jobs/%d/checkpoints" % (self.state, job)
        return max([int(n[5:]) for n in os.listdir(folder) if n.startswith("step-")], default=0) if os.path.isdir(folder) else 0

    def events(self, kind, job=None):
        found = self.call("event.query", limit=1000, **({"id": job} if job else {}))["events"]
        return [e["text"] for e in found if e["kind"] == kind]

    def wait_event(self, kind, job=None, seconds=120):
        self.until(lambda: self.events(kind, job), "no event " + kind, seconds)
        return self.events(kind, job)

    def sql(self, query, *args):
        with sqlite3.connect("file:%s/detd.db?mode=ro" % self.state, uri=True) as db:
            return db.execute(query, args).fetchall()

    def check_rows(self, job, steps):
        """Checks that the training split has every step exactly once, with the newest value of each."""
        rows = self.sql("SELECT step, value FROM loss WHERE job=? AND split='train' AND term='total'", job)
        assert [r[0] for r in rows] == list(range(1, steps + 1)), (len(rows), steps, rows[:3], rows[-3:])
        assert all(abs(v - 250.0 / s) < 1e-9 for s, v in rows)


class MovedClock:
    """Moves detd's wall clock by `hours`, and no other clock."""

    def __init__(self, d):
        self.path = d.root + "/moved"
        shim = d.root + "/clock.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", shim, HERE + "/../stand/mock/clock.c"], check=True)
        self.move(0)
        d.env = dict(os.environ, LD_PRELOAD=shim, CLOCK_MOVED=self.path,
                     ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")

    def move(self, hours):
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as f:  # one write: it is mapped
            f.write(struct.pack("d", hours * 3600.0))

    @staticmethod
    def shows(hours, time_s):
        return abs(time_s - time.time() - hours * 3600) < 120


def leave_fault(d, job, fault):
    """It lies there whole or not at all, however soon the rank looks; and before it begins, if the job is still to be submitted."""
    path = "%s/jobs/%d/fault-0" % (d.state, job)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(fault)
    os.rename(path + ".new", path)
