#!/usr/bin/env python3
"""detd-job alone, against a stand-in for detd's side of sup.sock: a socket that commits records in order and acks them.

usage: super_job.py [TEST]     all tests, several at a time (most of them wait most of the time); or the one named
"""  # SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import contextlib
import fcntl
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DETD_JOB = os.path.abspath(os.environ.get("DETD_BUILD", "build")) + "/detd-job"
SEED = int(os.environ.get("SEED", "1"))


class Store:
    """The records that detd would have committed, by number, each exactly once."""

    def __init__(self):
        self.records = []
        self.status = []

    def commit(self, seq, rec):
        if seq <= len(self.records):
            assert self.records[seq - 1] == rec, "record %d changed: %s" % (seq, rec)
            return
        assert seq == len(self.records) + 1, "record %d after %d" % (seq, len(self.records))
        if rec["type"] == "attempt":
            self.rewind(rec["resume_step"])
        self.records.append(rec)

    def rewind(self, step):
        for r in self.records:
            if r["type"] in ("loss", "eval") and r["step"] > step:
                r["gone"] = True

    def of(self, kind):
        return [r for r in self.records if r["type"] == kind]

    def rows(self, split):
        return [r["step"] for r in self.of("loss") if r["split"] == split and not r.get("gone")]


class Detd:
    def __init__(self, state, store, ack=True, words=(), store_id="s1"):
        self.path = os.path.join(state, "sup.sock")
        self.store, self.ack, self.words, self.store_id = store, ack, list(words), store_id
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.conn, self.buf, self.hello = None, b"", None
        self.unheard = None  # reports that it has lost since it was told to

    def close(self):
        for s in (self.conn, self.listener):
            if s:
                s.close()

    def send(self, kind, **members):
        try:
            self.conn.sendall((json.dumps(dict(type=kind, **members)) + "\n").encode())
        except (BrokenPipeError, ConnectionResetError):
            pass

    def control(self, word, **members):
        self.send("control", word=word, **members)

    def turn(self, seconds=0.05):
        socks = [self.listener] + ([self.conn] if self.conn else [])
        for s in select.select(socks, [], [], seconds)[0]:
            if s is self.listener:
                self.conn, self.buf = s.accept()[0], b""
                continue
            try:
                got = s.recv(1 << 16)
            except ConnectionResetError:
                got = b""
            if not got:
                s.close()
                self.conn = None
                continue
            *lines, self.buf = (self.buf + got).split(b"\n")
            for line in lines:
                self.take(json.loads(line))

    def take(self, msg):
        if msg["type"] == "hello":
            assert msg["protocol"] == 1 and msg["nonce"] == "n1", msg
            self.hello = msg
            self.send("welcome", last_seq=len(self.store.records), store_id=self.store_id, control=self.words)
        elif msg["type"] == "report" and self.unheard is not None:
            self.unheard += 1
        elif msg["type"] == "report":
            self.store.commit(msg["seq"], msg["rec"])
            if self.ack:
                self.send("ack", seq=msg["seq"])
        elif msg["type"] == "status":
            self.store.status.append(msg)


class Job:
    def __init__(self, steps=30, ranks=2, every=10, env=None, **run):
        self.state = tempfile.mkdtemp(prefix="detd-super-")
        self.dir = os.path.join(self.state, "jobs", "7")
        os.makedirs(self.dir)
        data = {"annotations": "/nowhere/a.json", "images": "/nowhere"}
        spec = {"name": "test", "model": {"preset": "yolov3_tiny"}, "data": {"train": data},
                "train": {"steps": steps, "batch": 8, "shards": 2}, "checkpoint": {"every": every},
                "run": dict({"ranks": ranks, "restarts": 3, "env": env or {}}, **run)}
        json.dump(spec, open(os.path.join(self.dir, "spec.json"), "w"))
        self.store, self.attempt, self.proc, self.detd, self.env = Store(), 0, None, None, {}

    def start(self, detd=True, worker=HERE + "/rank.py", options=(), **kw):
        if detd:
            self.detd = Detd(self.state, self.store, **kw)
        lock = os.open(os.path.join(self.dir, "lock"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.attempt += 1
        os.makedirs(os.path.join(self.dir, "log"), exist_ok=True)
        log = open(os.path.join(self.dir, "log", "supervisor.log"), "a")
        self.proc = subprocess.Popen([DETD_JOB, "--job-dir", self.dir, "--job", "7", "--attempt", str(self.attempt), "--lock-fd", str(lock),
                                      "--last-seq", str(len(self.store.records)), "--nonce", "n1", "--worker", worker, *options],
                                     pass_fds=[lock], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=log, env=dict(os.environ, **self.env))
        os.close(lock)
        log.close()

    def until(self, what, seconds=120):
        end = time.monotonic() + seconds
        while not what():
            assert what == self.exited or not self.exited(), "detd-job left: %s" % self.log()
            assert time.monotonic() < end, "waited %d s; records: %s\n%s" % (seconds, self.store.records[-5:], self.log())
            self.detd.turn() if self.detd else time.sleep(0.05)
        if what == self.exited and self.detd:
            for _ in range(20):
                self.detd.turn(0)

    def fault(self, rank, what, step):
        path = os.path.join(self.dir, "fault-%d" % rank)
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.write("%s %d" % (what, step))
        os.rename(path + ".new", path)  # there whole or not at all, however soon the rank looks

    def held(self, step):
        """Waits until the ranks are held before that step, which HOLD of their environment names, and all their reports
        are stored."""
        self.until(lambda: self.store.rows("train")[-1:] == [step - 1])

    def go(self, step=None):
        """Releases ranks held at that step, or at any step."""
        open(os.path.join(self.dir, "go-%d" % step if step else "go"), "w").close()

    def hear(self):
        """Waits until rank 0, which is held, has read all commands so far: it answers this command, and commands come
        in order."""
        had = len(self.store.of("eval"))
        self.detd.control("eval")
        self.until(lambda: len(self.store.of("eval")) > had)

    def exited(self):
        return self.proc.poll() is not None

    def log(self, name="supervisor"):
        path = os.path.join(self.dir, "log", name + ".log")
        return open(path).read() if os.path.exists(path) else ""

    def finish(self, outcome, seconds=120):
        self.until(self.exited, seconds)
        assert self.proc.returncode == 0, (self.proc.returncode, self.log())
        end = self.store.of("end")
        assert len(end) == 1 and self.store.records[-1] == end[0] and end[0]["outcome"] == outcome, (end, self.log())
        self.lock_is_free()
        return end[0]

    def lock_is_free(self):
        fd = os.open(os.path.join(self.dir, "lock"), os.O_RDWR)
        end = time.monotonic() + 60
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < end, "a process of the job still lives"
                time.sleep(0.02)
        os.close(fd)
        while session_members(self.proc.pid):  # a process that has closed its files may take a moment to end
            assert time.monotonic() < end, "left behind: %s" % session_members(self.proc.pid)
            time.sleep(0.02)

    def close(self):
        if self.detd:
            self.detd.close()
        for pid in session_members(self.proc.pid) if self.proc else []:
            kill(pid)
        if self.proc:
            self.proc.wait()
        shutil.rmtree(self.state)


class Faults:
    """Faults in the calls of detd-job, but not of its ranks: those of tests/stand/mock/NAME.c, each while it is set."""

    def __init__(self, job, name):
        self.folder, shim = job.state + "/faults", "%s/%s.so" % (job.state, name)
        os.mkdir(self.folder)
        subprocess.run(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", shim, "%s/../stand/mock/%s.c" % (HERE, name)], check=True)
        job.env = dict(LD_PRELOAD=shim, FAULTS=self.folder, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")

    def set(self, name):
        open(os.path.join(self.folder, name), "w").close()

    def clear(self, name):
        os.unlink(os.path.join(self.folder, name))

    def has(self, name):
        return os.path.exists(os.path.join(self.folder, name))


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited %d s" % seconds
        time.sleep(0.05)


def kill(pid, number=signal.SIGKILL):
    """A process that may just have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def session_of(pid):
    """Returns the session of the process, or None if it has ended."""
    try:
        with open("/proc/%s/stat" % pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[3])


def session_members(session):
    """Returns the processes of a session that is our child's: never of ourselves."""
    return [int(name) for name in filter(str.isdigit, os.listdir("/proc")) if session_of(name) == session]


def helpers_of(job):
    """Returns processes that work in the job's folder and are not in its session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink("/proc/%s/cwd" % pid) == job.dir and session_of(pid) not in (None, job.proc.pid):
                found.append(int(pid))
        except OSError:
            pass
    return found


def ranks_of(job):
    return [pid for pid in session_members(job.proc.pid) if pid != job.proc.pid]


def test_runs_to_the_end(job):
    job.start()
    job.held(20)
    lock = open(os.path.join(job.dir, "lock")).read()
    assert int(lock) == job.proc.pid, lock
    assert len(ranks_of(job)) == 2
    for rank in ranks_of(job):  # the first to go when memory runs out
        assert open("/proc/%d/oom_score_adj" % rank).read() == "500\n"
    job.go()
    end = job.finish("completed")
    assert end["cpu_seconds"] > 0 and end["max_rss"] > 1 << 20 and end["attempt"] == 1
    assert job.store.rows("train") == list(range(1, 31)) and job.store.rows("val") == [10, 20, 30]
    assert [c["step"] for c in job.store.of("checkpoint")] == [10, 20, 30]
    assert [a["resume_step"] for a in job.store.of("attempt")] == [0] and not job.store.of("ended")
    last = job.store.status[-1]
    assert last["ranks"][1]["rank"] == 1 and last["step"] == last["ranks"][0]["step"] == 30, last
    text = open(os.path.join(job.dir, "log", "rank-1.log")).read()
    assert "attempt 1, rank 1 of 2" in text and "SECRET" not in text and '"FOO": "bar"' in text and "PCI_BUS_ID" in text, text
    assert "descriptors ['0', '1', '2', '3', '4', '5', '6'" in text, text


test_runs_to_the_end.job = dict(env={"FOO": "bar", "HOLD": "20"})


def test_logs_are_bounded(job):
    """A growing log keeps its end, at the same offset; a program that has it open writes on behind it. Other files of
    the same name stay untouched."""
    job.start(options=["--log-max", str(256 << 10)])
    job.until(lambda: job.store.of("loss"))
    path, other = job.dir + "/log/rank-0.log", job.dir + "/other"
    first, again = os.path.getsize(path), 0
    with open(other, "w", encoding="utf-8") as f:
        f.write("x" * (1 << 20))
    os.unlink(job.dir + "/log/rank-1.log")
    os.symlink(other, job.dir + "/log/rank-1.log")
    with open(path, "a", buffering=1, encoding="utf-8") as f:
        for i in range(40000):
            f.write("line %08d of many\n" % i)
        job.until(lambda: os.stat(path).st_blocks * 512 <= 256 << 10)
        f.write("the last line\n")
    size = os.path.getsize(path)
    assert size == first + 40000 * 22 + 14, (size, first)
    with open(path, "rb") as f:
        again = os.lseek(f.fileno(), 0, os.SEEK_DATA)
        f.seek(again)
        rest = f.read()
    assert size - (256 << 10) - 8192 < again < size - (64 << 10), (again, size)
    lines = rest.split(b"\n")
    assert lines[1].startswith(b"line ") and lines[-3:] == [b"line 00039999 of many", b"the last line", b""], lines[-3:]
    assert os.stat(other).st_blocks * 512 >= 1 << 20 and "cannot" not in job.log(), job.log()
    with open(path, "a", encoding="utf-8") as f:  # between the last look of each second and the end
        f.write("more of it\n" * 100000)
    job.detd.control("cancel")
    job.finish("cancelled")
    assert os.stat(path).st_blocks * 512 <= 256 << 10


test_logs_are_bounded.job = dict(steps=1000000)


def test_started_by_hand(job):
    """Without a descriptor of the lock, detd-job makes the file and takes the lock; a second detd-job finds it taken."""
    command = [DETD_JOB, "--job-dir", job.dir, "--job", "7", "--attempt", "1", "--nonce", "n1", "--worker", HERE + "/rank.py"]
    job.detd = Detd(job.state, job.store)
    with open(job.dir + "/by-hand", "w") as log:
        job.proc = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
    job.until(lambda: job.store.of("loss"))
    lock = job.dir + "/lock"
    assert int(open(lock).read()) == job.proc.pid and os.stat(lock).st_mode & 0o777 == 0o600
    other = subprocess.run(command, start_new_session=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                           check=False)
    assert other.returncode == 1 and "job 7 is supervised by another process" in other.stderr, other
    job.detd.control("cancel")
    job.finish("cancelled")


test_started_by_hand.job = dict(steps=1000000)


def test_plugin_is_opened_once(job):
    """Every attempt uses the plugin beside the trainer as it was when the supervisor started, even if an upgrade
    replaces it."""
    plugin, worker = os.path.join(job.state, "libdetd-cuda.so"), os.path.join(job.state, "rank.py")
    open(plugin, "w").write("the first")
    shutil.copy(HERE + "/rank.py", worker)
    job.fault(1, "kill", 15)
    job.start(worker=worker)
    job.held(10)
    open(plugin + ".new", "w").write("the second")
    os.rename(plugin + ".new", plugin)
    job.go()
    job.finish("completed")
    text = open(os.path.join(job.dir, "log", "rank-0.log")).read()
    assert text.count("plugin 'the first'") == 2 and "the second" not in text, text


test_plugin_is_opened_once.job = dict(env={"HOLD": "10"})


def crash(job, what, expect, finish="completed"):
    job.fault(1, what, 15)
    job.start()
    job.finish(finish)
    ended = job.store.of("ended")
    assert len(ended) == 1 and expect in ended[0]["reason"] and "rank 1" in ended[0]["reason"], ended
    assert job.store.rows("train") == list(range(1, 31)), job.store.rows("train")
    assert [a["resume_step"] for a in job.store.of("attempt")] == [0, 10]
    assert [a["attempt"] for a in job.store.of("attempt")] == [1, 2]


def test_rank_is_killed(job):
    crash(job, "kill", "SIGKILL")


def test_a_dead_rank_is_heard_to_its_end(job):
    """Its last reports are read, also if the rank has reported more than is read at a time, while its supervisor was
    stopped."""
    job.fault(1, "burst", 15)
    job.start()
    path = os.path.join(job.dir, "burst")
    job.until(lambda: os.path.exists(path))
    job.until(lambda: len(ranks_of(job)) == 1)
    os.kill(job.proc.pid, signal.SIGCONT)
    job.finish("completed")
    with open(path, encoding="utf-8") as f:
        said = int(f.read())
    assert said > 1 and len([e for e in job.store.of("event") if e["kind"] == "burst"]) == said, said


def test_rank_that_cannot_be_heard(job):
    crash(job, "close", "closed its descriptor 3")


def test_endless_line(job):
    crash(job, "endless", "malformed report")


def test_data_error_ends_the_job(job):
    job.fault(1, "data", 15)
    job.start()
    end = job.finish("failed")
    assert end["class"] == "data" and end["reason"] == "annotation 7 of image 12: zero area", end
    assert len(job.store.of("attempt")) == 1


def test_budget_counts_failures_in_a_row(job):
    job.fault(1, "always-exit", 15)
    job.start()
    end = job.finish("failed")
    assert "rank 1" in end["reason"] and "failure 2 in a row" in end["reason"], end
    assert len(job.store.of("attempt")) == 2


test_budget_counts_failures_in_a_row.job = dict(restarts=1)


def test_a_file_that_is_away_at_the_same_step(job):
    """A file that only training reads is missing, like a picture on a bad sector: the job gives its slots back instead
    of restarting forever, and tries once later."""
    job.fault(1, "always-missing", 15)
    job.start()
    end = job.finish("paused")
    assert end["class"] == "missing" and "waits for a file that is missing: read 'a.png'" in end["reason"], end
    assert [a["resume_step"] for a in job.store.of("attempt")] == [0, 10, 10, 10], job.store.of("attempt")
    job.detd.close()
    job.start()
    job.until(job.exited)
    assert len(job.store.of("attempt")) == 5, job.store.of("attempt")
    os.unlink(os.path.join(job.dir, "fault-1"))
    job.detd.close()
    job.start()
    job.until(job.exited)
    assert [e["outcome"] for e in job.store.of("end")] == ["paused", "paused", "completed"], job.log()


test_a_file_that_is_away_at_the_same_step.job = dict(restarts=0)


def test_a_checkpoint_starts_the_count_anew(job):
    """Two failures, and a checkpoint between them: neither is the second in a row."""
    job.fault(1, "kill", 5)
    job.fault(0, "kill", 15)
    job.start()
    job.finish("completed")
    assert [a["resume_step"] for a in job.store.of("attempt")] == [0, 0, 10] and len(job.store.of("ended")) == 2
    assert job.store.rows("train") == list(range(1, 31))


test_a_checkpoint_starts_the_count_anew.job = dict(restarts=1)


def test_a_checkpoint_that_nobody_told_of_counts(job):
    """The second failure comes between a checkpoint and its report: it is the first since that checkpoint."""
    job.fault(1, "kill", 5)
    job.fault(0, "unsaid", 6)
    job.start()
    job.finish("completed")
    assert [a["resume_step"] for a in job.store.of("attempt")] == [0, 0, 10], job.store.of("attempt")
    assert [c["step"] for c in job.store.of("checkpoint")] == [10, 20, 30], job.store.of("checkpoint")


test_a_checkpoint_that_nobody_told_of_counts.job = dict(restarts=1)


def test_hang_may_end_the_job(job):
    job.fault(0, "stop", 15)
    job.start()
    end = job.finish("failed", 180)
    assert "rank 0 hangs in phase forward" in end["reason"], end


test_hang_may_end_the_job.job = dict(on_hang="fail")


def test_time_that_ran_before_counts(job):
    """A supervisor that follows an earlier one counts its seconds, too."""
    job.start(options=["--ran", "100000"])
    end = job.finish("cancelled")
    assert end["reason"].startswith("it ran for 100000 s, its run.time_limit"), end
    assert 0 < end["seconds"] < 50000, end


test_time_that_ran_before_counts.job = dict(steps=10 ** 6, time_limit=100000)


def test_the_time_limit_of_a_job_that_cannot_start(job):
    """The time counts while the job waits for something that the system refuses: its slots are taken all the while."""
    os.mkdir(os.path.join(job.dir, "tiers"))
    job.start(options=["--ran", "100000"])
    end = job.finish("cancelled")
    assert end["reason"].startswith("it ran for 100000 s, its run.time_limit"), end
    assert [e["kind"] for e in job.store.of("event")] == ["waits", "limit"], job.store.of("event")


test_the_time_limit_of_a_job_that_cannot_start.job = dict(time_limit=100000)


def test_a_cancel_after_the_time_limit(job):
    """A job that saves its last checkpoint because its time is over is cancelled: its end says cancelled, also if it
    dies on the way."""
    job.start()
    job.held(6)
    job.until(lambda: any(e["kind"] == "limit" for e in job.store.of("event")))
    job.detd.control("cancel")
    job.hear()
    kill(ranks_of(job)[0])
    end = job.finish("cancelled")
    assert "time_limit" not in end["reason"], end


test_a_cancel_after_the_time_limit.job = dict(env={"HOLD": "6"}, time_limit=20)


def test_commands_reach_rank_0(job):
    job.start(words=[{"word": "eval"}, {"word": "tier", "tier": "rerun"}])
    job.held(8)
    job.until(lambda: job.store.of("tier") and job.store.of("eval"))
    job.detd.control("checkpoint")
    job.hear()
    job.go()
    tier = job.store.of("tier")[0]
    assert tier["tier"] == "rerun"
    job.finish("completed")
    assert job.store.of("eval")[0]["metrics"]["bad"] is None
    assert open(os.path.join(job.dir, "tiers")).read() == "1 off\n%d rerun\n" % tier["step"]
    assert len(job.store.of("checkpoint")) == 4, job.store.of("checkpoint")
    assert {r["tier"] for r in job.store.of("loss")} == {"off", "rerun"}


test_commands_reach_rank_0.job = dict(env={"HOLD": "8"})


def test_a_tier_that_is_asked_for_twice_is_changed_once(job):
    """The second request comes before the ranks have agreed, like after a reconnect."""
    job.start()
    job.held(8)
    job.detd.conn.sendall(b'{"type":"control","word":"tier","tier":"world"}\n' * 2)
    job.hear()
    job.go()
    job.finish("completed")
    assert [t["tier"] for t in job.store.of("tier")] == ["world"], job.store.of("tier")


test_a_tier_that_is_asked_for_twice_is_changed_once.job = dict(env={"HOLD": "8"})


def test_a_refused_tier_has_its_name(job):
    """By then detd may want another tier. A refused tier may be requested again, and is refused again."""
    job.start(words=[{"word": "tier", "tier": "world"}])
    refused = lambda: [e for e in job.store.of("event") if e["kind"] == "tier"]
    job.until(lambda: len(refused()) == 1)
    job.detd.conn.sendall(b'{"type":"control","word":"tier","tier":"world"}\n{"type":"control","word":"tier","tier":"rerun"}\n')
    job.until(lambda: len(refused()) == 2)
    job.go()
    job.finish("completed")
    assert [e["tier"] for e in refused()] == ["world", "world"] and [t["tier"] for t in job.store.of("tier")] == ["rerun"], refused()


test_a_refused_tier_has_its_name.job = dict(env={"HOLD": "8", "REFUSE": "world"})


def test_a_later_spec_changes_no_step(job):
    """detd writes the present tier into spec.json when it starts a job again; steps before the change keep theirs."""
    job.start(words=[{"word": "tier", "tier": "world"}])
    job.held(8)
    job.until(lambda: job.store.of("tier"))
    kill_supervisor(job)
    job.go()
    path = os.path.join(job.dir, "spec.json")
    spec = json.load(open(path))
    spec["run"]["deterministic"] = "world"
    json.dump(spec, open(path, "w"))
    job.start()
    job.finish("completed")
    change = job.store.of("tier")[0]["step"]
    assert change > 1 and job.store.of("attempt")[-1]["resume_step"] == 0
    assert all(r["tier"] == ("world" if r["step"] >= change else "off") for r in job.store.of("loss") if not r.get("gone"))


test_a_later_spec_changes_no_step.job = dict(env={"HOLD": "8"})


def test_a_bad_spec_is_the_outcome(job):
    spec = json.load(open(os.path.join(job.dir, "spec.json")))
    spec["train"]["lr"] = -1
    json.dump(spec, open(os.path.join(job.dir, "spec.json"), "w"))
    job.start()
    end = job.finish("failed")
    assert end["class"] == "user" and end["reason"].startswith("spec.json: train.lr: "), end


def test_a_trainer_that_cannot_be_executed(job):
    job.start(worker="/etc/hostname")
    end = job.finish("failed")
    assert "execute '/etc/hostname': Permission denied" in end["reason"] or "Exec format" in end["reason"], end


test_a_trainer_that_cannot_be_executed.job = dict(restarts=0)


# The command writes its result only after the job is gone: it was not killed on the way.
PATIENT = "line=$(cat); until test -e release; do sleep 0.05; done; echo \"$line\" >> told; echo $PWD $WORD >> after"


def told(job):
    path = os.path.join(job.dir, "told")
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def release(job, n):
    """Waits until `n` patient commands have written their result."""
    assert not told(job)
    open(os.path.join(job.dir, "release"), "w").close()
    wait_for(lambda: len(told(job)) == n)
    return sorted(told(job), key=lambda t: t["time"])


def test_a_command_hears_of_failures_and_of_the_end(job):
    job.fault(1, "exit", 15)
    job.start()
    job.finish("completed")
    one, two = release(job, 2)
    assert (one["event"], one["outcome"], one["attempt"], one["step"]) == ("failure", "failed", 1, 10), one
    assert "rank 1" in one["reason"], one
    assert (two["event"], two["outcome"], two["attempt"], two["job"], two["name"]) == ("end", "completed", 2, 7, "test"), two
    assert two["host"] == socket.gethostname() and abs(two["time"] - time.time()) < 3600, two
    wait_for(lambda: open(os.path.join(job.dir, "after")).read() == ("%s spoken\n" % job.dir) * 2)


test_a_command_hears_of_failures_and_of_the_end.job = dict(on_end=PATIENT, env={"WORD": "spoken"})


def test_a_command_hears_of_a_hang_once(job):
    job.fault(0, "stop", 15)
    job.start()
    job.finish("completed", 180)
    heard = release(job, 2)
    assert [t["event"] for t in heard] == ["hang", "end"] and "rank 0 hangs" in heard[0]["reason"], heard
    hang = [e for e in job.store.of("event") if e["kind"] == "hang"]
    assert [(e["rank"], e["phase"]) for e in hang] == [(0, "forward")], hang


test_a_command_hears_of_a_hang_once.job = dict(on_end=PATIENT)


def test_a_pause_is_no_end(job):
    job.start()
    job.until(lambda: job.store.of("loss"))
    job.detd.control("pause")
    job.finish("paused")
    assert "run.on_end" not in job.log() and not told(job)


test_a_pause_is_no_end.job = dict(steps=1000000, on_end="cat >> told")


def test_a_command_hears_of_a_job_that_only_ends(job):
    job.start(options=["--drain", "cancelled", "--reason", "why not"])
    job.finish("cancelled")
    wait_for(lambda: told(job))
    assert [(t["event"], t["outcome"], t["reason"]) for t in told(job)] == [("end", "cancelled", "why not")], told(job)


test_a_command_hears_of_a_job_that_only_ends.job = dict(on_end="cat >> told")


def test_cancel_that_nobody_obeys(job):
    job.fault(0, "deaf", 5)
    job.start()
    job.until(lambda: any(s["phase"] == "data" for s in job.store.status))  # nothing else of rank.py has that phase
    job.detd.control("cancel", deadline=1)
    job.finish("cancelled")


def test_what_was_not_acked_is_sent_again(job):
    """The report goes to a detd that has died between reading and storing it."""
    job.start()
    job.held(8)
    job.detd.unheard = 0
    job.go()
    job.until(lambda: job.detd.unheard >= 5)
    job.detd.close()
    job.detd = Detd(job.state, job.store)
    job.finish("completed")
    assert job.store.rows("train") == list(range(1, 61)), job.store.rows("train")


test_what_was_not_acked_is_sent_again.job = dict(steps=60, env={"HOLD": "8"})


def test_detd_is_away(job):
    job.start()
    job.held(6)
    job.detd.close()
    job.detd = None
    job.go(6)
    job.until(lambda: os.path.exists(os.path.join(job.dir, "checkpoints", "step-10")))
    had = len(job.store.records)
    job.detd = Detd(job.state, job.store)
    job.until(lambda: len(job.store.records) > had)
    job.detd.ack = False
    job.detd.close()
    job.detd = Detd(job.state, job.store)
    job.go()
    job.finish("completed")
    assert job.store.rows("train") == list(range(1, 31)) and len(job.store.of("attempt")) == 1


test_detd_is_away.job = dict(env={"HOLD": "6 15"})


def test_an_ack_of_what_was_never_sent(job):
    """detd gets an error, and the connection is closed; records that detd has not received are kept."""
    job.start(ack=False)
    job.held(6)
    job.detd.send("ack", seq=len(job.store.records) + 1000)
    job.until(lambda: "which was not sent" in job.log())
    job.detd.ack = True
    job.go()
    job.finish("completed")
    assert job.store.rows("train") == list(range(1, 31)) and len(job.store.of("attempt")) == 1


test_an_ack_of_what_was_never_sent.job = dict(env={"HOLD": "6"})


def test_end_without_detd_is_found_later(job):
    job.start()
    job.held(6)
    job.detd.close()
    job.detd = None
    job.go()
    job.until(job.exited)
    assert job.proc.returncode == 0 and not job.store.of("end")
    job.start()
    job.finish("completed")
    assert job.store.rows("train") == list(range(1, 31)) and len(job.store.of("attempt")) == 1


test_end_without_detd_is_found_later.job = dict(env={"HOLD": "6"})


def test_another_store_is_refused(job):
    job.start()
    job.held(6)
    job.detd.close()
    job.detd = Detd(job.state, Store(), store_id="other")
    job.until(lambda: "another database" in job.log())
    assert not job.detd.store.records
    job.detd.close()
    job.detd = Detd(job.state, job.store)
    job.go()
    job.finish("completed")


test_another_store_is_refused.job = dict(env={"HOLD": "6"})


def kill_supervisor(job):
    os.kill(job.proc.pid, signal.SIGKILL)
    job.proc.wait()
    job.lock_is_free()
    if job.detd:
        job.detd.close()


def test_a_lost_supervisor_is_a_failure(job):
    for attempt in (1, 2):
        job.start()
        job.until(lambda n=attempt: [a for a in job.store.of("attempt") if a["attempt"] == n])
        kill_supervisor(job)
    job.start()
    end = job.finish("failed")
    assert end["reason"] == "detd-job was lost (failure 2 in a row without a newer checkpoint)", end
    assert [a["attempt"] for a in job.store.of("attempt")] == [1, 2]


test_a_lost_supervisor_is_a_failure.job = dict(steps=100000, every=100000, restarts=1)


def test_numbers_of_attempts_are_not_used_again(job):
    """Also numbers of attempts that detd has not heard of are used only once: detd calls the next attempt 2."""
    job.fault(1, "kill", 5)
    job.start(detd=False)
    job.until(lambda: "attempt 2 starts" in job.log())
    kill_supervisor(job)
    job.go()
    job.start()
    job.finish("completed")
    assert [a["attempt"] for a in job.store.of("attempt")] == [1, 2, 3]
    assert [e["attempt"] for e in job.store.of("ended")] == [1, 2]


test_numbers_of_attempts_are_not_used_again.job = dict(env={"HOLD": "20"})


def drain_failed(job, saved):
    """The spool no longer tells of attempts and checkpoints: later reports took their place, and those were acked."""
    os.makedirs(job.dir + "/checkpoints/step-5")
    job.attempt = 2
    job.start(options=["--drain", "failed", "--reason", "lost too often", "--saved", str(saved)])


def test_a_checkpoint_that_detd_knows_ends_what_is_spent(job):
    drain_failed(job, 5)
    end = job.finish("failed")
    assert end["reason"] == "lost too often" and not job.store.of("attempt"), (end, job.store.records)


def test_a_checkpoint_that_detd_does_not_know_lets_it_go_on(job):
    """Under a number of its own: detd calls it as the attempt that was lost."""
    drain_failed(job, 4)
    job.finish("completed")
    assert [a["attempt"] for a in job.store.of("attempt")] == [4], job.store.of("attempt")
    assert [e["attempt"] for e in job.store.of("ended")] == [3], job.store.of("ended")


def test_everything_is_killed_at_random(job):
    """Each step is stored exactly once, whichever process dies at whichever moment."""
    rng = random.Random(SEED)
    job.start()
    for i in range(5):
        goal = len(job.store.records) + rng.randrange(1, 16)
        job.until(lambda: len(job.store.records) >= goal or job.store.of("end"))
        if job.store.of("end"):
            break
        victims = ranks_of(job)
        victim = rng.choice(victims) if i % 3 and victims else job.proc.pid
        kill(victim)
        if victim == job.proc.pid:
            job.proc.wait()
            job.lock_is_free()
            job.detd.close()
            job.start()
    job.finish("completed")
    assert job.store.rows("train") == list(range(1, 31)), job.store.rows("train")


test_everything_is_killed_at_random.job = dict(every=2, restarts=100)


def test_told_to_stop(job):
    job.start()
    job.held(6)
    for pid in session_members(job.proc.pid):  # as when a node shuts down
        kill(pid, signal.SIGTERM)
    job.until(lambda: "told to stop" in job.log())
    job.hear()
    job.go()
    job.until(job.exited)
    end, saved = job.store.of("end")[0], job.store.rows("train")[-1]
    assert (end["outcome"], end["reason"]) == ("paused", "detd-job was told to stop") and not job.store.of("ended"), end
    assert job.store.of("checkpoint")[-1]["step"] == saved
    job.detd.close()
    job.start()
    job.until(job.exited)
    assert [e["outcome"] for e in job.store.of("end")] == ["paused", "completed"]
    assert job.store.of("attempt")[-1]["resume_step"] == saved and job.store.rows("train") == list(range(1, 31))


test_told_to_stop.job = dict(env={"HOLD": "6"})


def test_a_terminal_that_closes(job):
    """Like the terminal of a user who started it by hand: no process of the job ends."""
    job.start()
    job.held(6)
    for pid in session_members(job.proc.pid):
        kill(pid, signal.SIGHUP)
    job.go()
    job.finish("completed")
    assert len(job.store.of("attempt")) == 1 and job.store.rows("train") == list(range(1, 31))


test_a_terminal_that_closes.job = dict(env={"HOLD": "6"})


def test_told_to_stop_at_once(job):
    """The stop arrives while the spool is opened and read. It is obeyed afterwards, and no attempt counts as a death."""
    lock = os.path.join(job.dir, "lock")
    for n in range(5):
        job.start()
        while not os.path.getsize(lock):
            assert not job.exited(), job.log()
        job.proc.send_signal(signal.SIGTERM)
        job.until(job.exited)
        assert job.proc.returncode == 0, (n, job.proc.returncode, job.log())
        job.detd.close()
        os.truncate(lock, 0)
    while [e["outcome"] for e in job.store.of("end")][-1:] != ["completed"]:
        job.start()  # a supervisor that finds an end that detd has not heard of only reports it
        job.until(job.exited)
        job.detd.close()
    *paused, last = [e["outcome"] for e in job.store.of("end")]
    assert set(paused) == {"paused"} and last == "completed", paused
    assert job.store.rows("train") == list(range(1, 31))


def test_nothing_is_left_behind(job):
    """A process that a rank started, of another session, holds the lock: it ends before the next attempt begins, and before the job."""
    job.fault(0, "helper", 5)
    job.fault(1, "kill", 15)
    job.start()
    job.held(10)
    helpers = helpers_of(job)
    assert len(helpers) == 1, helpers
    job.go(10)
    job.until(lambda: len(job.store.of("attempt")) == 2)
    assert not helpers_of(job), "it outlived the attempt"
    job.held(20)
    job.fault(1, "helper", 1)
    job.go()
    job.finish("completed")
    assert not os.path.exists(os.path.join(job.dir, "fault-1")) and not helpers_of(job), "it outlived the job"


test_nothing_is_left_behind.job = dict(env={"HOLD": "10 20"})


def test_full_spool_holds_the_ranks(job):
    """detd does not ack: reports stop when the spool is full, no rank is called hung, and later everything arrives."""
    job.fault(0, "flood", 15)
    job.start(ack=False)
    job.until(lambda: sum(len(r.get("text", "")) for r in job.store.records) > 25 << 20)
    seen = -1
    while seen != len(job.store.records):
        seen = len(job.store.records)
        for _ in range(40):
            job.detd.turn()
    assert not job.exited() and sum(len(r.get("text", "")) for r in job.store.records) < 33 << 20
    job.detd.ack = True
    job.detd.send("ack", seq=seen)
    job.finish("completed")
    assert job.store.rows("train") == list(range(1, 31)) and len(job.store.of("attempt")) == 1
    assert len([e for e in job.store.of("event") if e["kind"] == "flood"]) == 800


def test_a_rank_that_does_not_die(job):
    """A process does not end after SIGKILL, as in an uninterruptible wait: it is named, and when it has ended at last
    the next attempt begins."""
    faults = Faults(job, "kill")
    faults.set("kill")
    job.start()
    job.held(15)
    job.until(lambda: job.store.status)
    first, other = (r["pid"] for r in job.store.status[-1]["ranks"])
    kill(first)
    job.until(lambda: "trouble" in job.store.status[-1])
    text = job.store.status[-1]["trouble"]
    assert re.fullmatch(r"rank 1 was killed and does not end: process %d \(.+, state [A-Z]\)" % other, text), text
    told = [e for e in job.store.of("event") if e["kind"] == "stuck"]
    assert [(e["rank"], e["attempt"], e["text"]) for e in told] == [(1, 1, text)] and not job.store.of("ended"), told
    kill(other)
    faults.clear("kill")
    job.go()
    job.finish("completed")
    assert len(job.store.of("attempt")) == 2 and "trouble" not in job.store.status[-1], job.store.status[-1]


test_a_rank_that_does_not_die.job = dict(env={"HOLD": "15"})


def test_a_disk_without_room_for_reports(job):
    """Like a disk on which overwriting needs room: the ranks are held, no rank is called hung, one event says so, and
    all reports are stored later."""
    faults = Faults(job, "spool")
    job.start()
    job.held(6)
    job.until(lambda: job.store.status)
    ranks = set(ranks_of(job))
    faults.set("full")
    job.go()
    job.until(lambda: "trouble" in job.store.status[-1])
    assert "wait for room on the disk" in job.store.status[-1]["trouble"] and "No space left" in job.store.status[-1]["trouble"]
    assert "its reports wait for room on the disk" in job.log()
    job.until(lambda: job.store.status[-1]["step"] == 10)  # its checkpoint waits for the records before it
    had = len(job.store.records)
    for _ in range(60):  # its tries among them
        job.detd.turn()
    assert len(job.store.records) == had and set(ranks_of(job)) == ranks and not job.exited()
    assert not os.path.exists(os.path.join(job.dir, "checkpoints", "step-10")), "a checkpoint is published before its reports are durable"
    faults.clear("full")
    job.finish("completed")
    assert job.store.rows("train") == list(range(1, 31)) and len(job.store.of("attempt")) == 1
    assert [e["kind"] for e in job.store.of("event")].count("no_room") == 1 and "trouble" not in job.store.status[-1]


test_a_disk_without_room_for_reports.job = dict(env={"HOLD": "6"})


def rank_killed_without_room(job, said):
    """Waits until detd-job has logged that the disk is full, and has had time to try again."""
    faults = Faults(job, "spool")
    job.start()
    job.held(6)
    job.until(lambda: job.store.status)
    faults.set("full")
    kill(job.store.status[-1]["ranks"][1]["pid"])
    job.until(lambda: said in job.log() and "trouble" in job.store.status[-1])
    for _ in range(60):
        job.detd.turn()
    return faults


def test_an_attempt_that_fails_without_room(job):
    """The next attempt begins when that is written."""
    faults = rank_killed_without_room(job, "attempt 1 failed")
    assert not ranks_of(job) and not job.store.of("ended")
    faults.clear("full")
    job.go()
    job.finish("completed")
    assert [a["attempt"] for a in job.store.of("attempt")] == [1, 2] and len(job.store.of("ended")) == 1
    assert job.store.rows("train") == list(range(1, 31))


test_an_attempt_that_fails_without_room.job = dict(env={"HOLD": "6"})


def test_an_end_without_room(job):
    """The report waits, and is recorded and sent when there is memory again."""
    faults = rank_killed_without_room(job, "job failed")
    assert not job.exited() and not job.store.of("end")
    faults.clear("full")
    job.finish("failed")


test_an_end_without_room.job = dict(restarts=0, env={"HOLD": "6"})


def has_ranks(job):
    """Returns whether detd-job holds memory that it shared with the ranks of an attempt."""
    for fd in os.listdir("/proc/%d/fd" % job.proc.pid):
        with contextlib.suppress(FileNotFoundError):
            if "detd-comm" in os.readlink("/proc/%d/fd/%s" % (job.proc.pid, fd)):
                return True
    return False


def test_a_sync_that_ends_too_late(job):
    """The spool cannot be written any more while a checkpoint waits for it: when the report is durable there is no rank
    to answer."""
    faults = Faults(job, "spool")
    faults.set("slow")
    job.fault(1, "flood", 11)
    job.start()
    job.until(lambda: faults.has("syncing"))
    assert has_ranks(job)
    faults.set("broken")
    job.go()
    job.until(lambda: not has_ranks(job))
    faults.clear("slow")
    job.until(job.exited)
    assert job.proc.returncode == 1 and "write to the spool: Input/output error" in job.log(), (job.proc.returncode, job.log())
    assert "Sanitizer" not in job.log(), job.log()


test_a_sync_that_ends_too_late.job = dict(env={"HOLD": "11"})


def test_a_disk_that_fails_before_the_first_report(job):
    """Nothing is lost: it may be started again, as after any shortage of the node."""
    faults = Faults(job, "spool")
    silent = os.path.join(job.state, "silent")
    with open(silent, "w", encoding="utf-8") as f:
        f.write("#!/usr/bin/python3\nimport time\ntime.sleep(1000)\n")
    os.chmod(silent, 0o755)
    job.start(worker=silent)
    job.until(lambda: "connected to detd" in job.log() and len(ranks_of(job)) == 2)
    faults.set("broken")
    kill(ranks_of(job)[0])
    job.until(job.exited)
    assert job.proc.returncode == 75 and "write to the spool: Input/output error" in job.log(), (job.proc.returncode, job.log())
    assert not job.store.records, job.store.records


def run_one(name, test):
    job, began = Job(**getattr(test, "job", {})), time.monotonic()
    try:
        test(job)
    except BaseException:
        print(job.log(), job.log("rank-0"), file=sys.stderr)
        raise
    finally:
        job.close()
    print("ok  %-45s %5.1f s" % (name, time.monotonic() - began), flush=True)


def run_all(names):
    def run(name):
        return name, subprocess.run([sys.executable, __file__, name], capture_output=True, text=True)

    failed = []
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for name, done in pool.map(run, names):
            print(done.stdout, end="", flush=True)
            if done.returncode != 0:
                failed.append(name)
                print("FAILED %s\n%s" % (name, done.stderr), file=sys.stderr)
    return failed


def main():
    os.environ["SECRET"] = "not for ranks"
    tests = {name: fn for name, fn in globals().items() if name.startswith("test_")}
    if len(sys.argv) > 1:
        run_one(sys.argv[1], tests[sys.argv[1]])
    elif run_all(sorted(tests, key=lambda name: name not in SLOW)):
        sys.exit(1)


SLOW = {"test_everything_is_killed_at_random", "test_hang_may_end_the_job", "test_a_command_hears_of_a_hang_once"}
if __name__ == "__main__":
    main()
