#!/usr/bin/env python3
"""detd as a user of its own, detd-launch as root, and two users of the node: ann, and bob, an attacker. All users are
made here, in a mount namespace."""  # SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import ctypes
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time

from daemon import BUILD, SANITIZED, Daemon, Refused

DETD, ANN, BOB, LAB = 4242, 2001, 2002, 3001
INSIDE = os.environ.get("DETD_USERS")
PASSWD = "detd:x:%d:%d::/nonexistent:/bin/false\nann:x:%d:%d::/home/ann:/bin/sh\nbob:x:%d:%d::/home/bob:/bin/sh\n" % (DETD, DETD, ANN, ANN,
                                                                                                                      BOB, BOB)
GROUP = "detd:x:%d:\nann:x:%d:\nbob:x:%d:\nlab:x:%d:ann\n" % (DETD, ANN, BOB, LAB)
TICKET = 16 + 8 + 40 + 40 + 64
ASK = 4 + 4 + 8 + TICKET + 24 + 32 + 40 + 1024 + 256
SEAL, START, KILL, SEALED, STARTED, EXITED, KILLED, REFUSED, CLEAR = range(1, 10)


def hierarchy():
    for line in open("/proc/self/mounts"):
        _, where, kind = line.split()[:3]
        if kind == "cgroup2" and os.access(where, os.W_OK):
            return where
    return None


MEMORY = 512 << 20  # of a job


def has_limits(*controllers):
    """Returns whether groups below the hierarchy's root have these controllers, which limit their processes."""
    try:
        with open(hierarchy() + "/cgroup.controllers") as f:
            if not set(controllers) <= set(f.read().split()):
                return False
        with open(hierarchy() + "/cgroup.subtree_control", "w") as f:
            f.write(" ".join("+" + c for c in controllers))
        return True
    except (OSError, TypeError):
        return False


def as_user(uid, what, groups=()):
    """Calls what() as that user: connections and opened files count as the user's."""
    os.setgroups(list(groups))
    os.setegid(uid)
    os.seteuid(uid)
    try:
        return what()
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups([])


def listens(path):
    """Returns whether a program listens there: the file exists a moment before it does."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
        rows = [line.split() for line in f]
    return any(row[-1] == path and int(row[3], 16) & 0x10000 for row in rows if len(row) == 8 and row[3] != "Flags")


class Node(Daemon):
    """A system daemon that is not root, with detd-launch beside it."""

    def __init__(self, scopes=True, helper=True, **more):
        super().__init__(system=True, slots=8, **more)
        self.socket, self.helper, self.group, self.wants = self.root + "/launch/sock", None, None, helper
        if scopes:
            self.use_scopes()
        self.memory = str(MEMORY)
        subprocess.run(["cp", BUILD + "/detd-launch", self.bin + "/detd-launch"], check=True)
        os.mkdir(self.root + "/launch")
        for folder in (self.bin, self.root + "/launch"):
            os.chmod(folder, 0o755)
        for folder in (self.state, self.root + "/run"):
            os.makedirs(folder, exist_ok=True)
            os.chown(folder, DETD, DETD)
        for name in os.listdir(self.bin):
            os.chmod(self.bin + "/" + name, 0o755)
        with open(self.root + "/conf", "a") as f:
            f.write("launch = %s\n" % self.socket)
        for user in ("ann", "bob"):
            shutil.rmtree("/home/" + user, ignore_errors=True)
            os.mkdir("/home/" + user, 0o700)
            os.chown("/home/" + user, *[{"ann": ANN, "bob": BOB}[user]] * 2)

    def use_scopes(self):
        self.group = hierarchy() and "%s/detd-e2e-%s" % (hierarchy(), INSIDE)

    def start(self, wait=True):
        if self.wants and not self.helper:
            self.start_helper()
        with open(self.root + "/log", "a") as log:
            self.proc = subprocess.Popen(
                [self.bin + "/detd", "--system", "--state", self.state, "--socket", self.path, "--config", self.root + "/conf"], stdout=log,
                stderr=log, stdin=subprocess.DEVNULL, user=DETD, group=DETD, extra_groups=[], umask=0o022)
        return self.client() if wait else None

    def start_helper(self):
        if self.group:
            os.makedirs(self.group, exist_ok=True)
        command = [
            self.bin + "/detd-launch", "--socket", self.socket, "--state", self.state, "--key", self.root + "/launch/key", "--tasks", "200",
            "--memory", self.memory
        ]
        # as the unit's ExecStopPost does: a group that limits those below it takes no process
        join = "echo -pids -memory >%s/cgroup.subtree_control; echo $$ >%s/cgroup.procs" % (self.group, self.group) if self.group else \
            "mount -t tmpfs none /sys/fs/cgroup"
        with open(self.root + "/log", "a") as log:
            self.helper = subprocess.Popen(["unshare", "--mount", "sh", "-c", join + ' && exec "$@"', "sh"] +
                                           (os.environ.get("WRAP", "").split()) + command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.until(lambda: listens(self.socket) or self.helper.poll() is not None, "detd-launch does not come up")
        assert self.helper.poll() is None

    def stop_helper(self, number=signal.SIGKILL):
        self.helper.send_signal(number)
        self.helper.wait()
        self.helper = None
        os.unlink(self.socket)

    def __exit__(self, kind, value, trace):
        if kind:
            for folder in os.listdir(self.state + "/jobs"):
                print(folder, os.listdir(self.state + "/jobs/" + folder))
        if self.helper:
            self.stop_helper()
        for folder, _, _ in os.walk(self.group or "/nonexistent", topdown=False):
            if folder != self.group and "cgroup.kill" in os.listdir(folder):
                open(folder + "/cgroup.kill", "w").write("1")
        super().__exit__(kind, value, trace)
        for folder, _, _ in os.walk(self.group or "/nonexistent", topdown=False):
            self.until(lambda f=folder: removed(f), "processes stay in " + folder)

    def found(self, what):
        """Returns the doctor's rows of that name, as (level, text)."""
        done = subprocess.run([BUILD + "/detctl", "--socket", self.path, "doctor", "--json"], capture_output=True, text=True, check=False)
        return [(row["level"], row["text"]) for row in json.loads(done.stdout) if row["what"] == what]

    def of(self, uid, **more):
        return as_user(uid, self.client, **more)

    def submit_as(self, uid, steps, groups=(), device="cpu", ranks=1, on_end=None, **run):
        spec = {"name": "j", "model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/a", "images": "/b"}},
                "train": {"steps": steps, "batch": 8, "shards": 4, "log_every": 1}, "checkpoint": {"every": 10},
                "run": {"device": device, "ranks": ranks, "threads": 1, "env": dict({"STEP_S": "0.02"}, **run)}}
        if on_end:
            spec["run"]["on_end"] = on_end
        return self.of(uid, groups=groups).call("job.submit", spec=spec, token=str(time.monotonic()))["id"]

    def folder(self, job):
        return "%s/jobs/%d" % (self.state, job)

    def session(self, job):
        try:
            return int(open("%s/held/%s/lock" % (self.state, job)).read() or 0)
        except (OSError, ValueError):
            return super().session(job)

    def scope(self, job):
        """Returns the processes in the job's scope, or None if there is no scope."""
        name = [n for n in os.listdir(self.group) if n.startswith("job-") and n.endswith("-%d" % job)]
        try:
            return [int(p) for p in open("%s/%s/cgroup.procs" % (self.group, name[0])).read().split()] if name else None
        except OSError:
            return None

    def nonce(self, job):
        """Returns the nonce of the running supervisor, or None."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid) as f:
                    words = f.read().split("\0")
                if words[0] == self.bin + "/detd-job" and "--nonce" in words and words[words.index("--job") + 1] == str(job):
                    return words[words.index("--nonce") + 1]
            except (OSError, ValueError, IndexError):
                pass
        return None

    def processes(self, job):
        """Returns the processes of the job's session or, after they have left the session, of its scope."""
        return set(self.members(job)) | set((self.scope(job) or []) if self.group else [])


def removed(folder):
    try:
        os.rmdir(folder)
        return True
    except FileNotFoundError:
        return True
    except OSError:
        return False


def status(pid):
    return dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/%d/status" % pid) if ":\t" in line)


def of_uid(uid):
    """Returns the processes of the user, except zombies."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            s = status(int(pid))
            if int(s["Uid"].split()[0]) == uid and s["State"][0] != "Z":
                found.append(int(pid))
        except (OSError, KeyError):
            pass
    return found


def open_files(pid):
    """{descriptor: path}"""
    found = {}
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            found[int(fd)] = os.readlink("/proc/%d/fd/%d" % (pid, int(fd)))
        except OSError:
            pass
    return found


def taken(pid, fd):
    """A descriptor of another process, as one of the same user may have it."""
    pid_fd = os.pidfd_open(pid)
    got = ctypes.CDLL(None, use_errno=True).syscall(438, pid_fd, fd, 0)  # pidfd_getfd
    assert got >= 0, os.strerror(ctypes.get_errno())
    os.close(pid_fd)
    return got


def refused(what):
    try:
        what()
    except Refused as e:
        return e
    raise AssertionError("was not refused")


# ---- scenarios ----

def jobs_run_as_their_submitters():
    with Node(conf="user_running = 5\n") as d:
        job = d.submit_as(ANN, 100000, groups=[ANN])
        theirs = d.submit_as(BOB, 100000)
        for j in (job, theirs):
            d.wait(j, lambda now: now["step"] > 3)
        own = d.processes(job)
        assert len(own) == 2, own
        for pid in own:
            s = status(pid)
            assert s["Uid"].split() == ["2001"] * 4 and s["Gid"].split() == ["2001"] * 4 and sorted(
                s["Groups"].split()) == ["2001", "3001"], s
            assert all(int(s[c], 16) == 0 for c in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")) and s["NoNewPrivs"] == "1", s
            assert s["Umask"] == "0077" and os.path.samefile("/proc/%d/cwd" % pid, d.folder(job)), s
            env = dict(e.split("=", 1) for e in open("/proc/%d/environ" % pid).read().split("\0") if e)
            assert env["HOME"] == "/home/ann" and env["USER"] == "ann" and "TMPDIR" not in env and "DETD_USERS" not in env, env
            files = {os.readlink("/proc/%d/fd/%s" % (pid, f)) for f in os.listdir("/proc/%d/fd" % pid)}
            assert not any("cgroup" in f or f.endswith("/key") or f.endswith("/jobs") for f in files), files
        assert not {int(s) for s in d.processes(theirs)} & set(own) and status(min(d.processes(theirs)))["Uid"].split()[0] == "2002"
        st = os.stat(d.folder(job))
        assert (st.st_uid, st.st_mode & 0o777) == (ANN, 0o700), st
        assert os.stat(d.state + "/held/%d/lock" % job).st_uid == DETD and os.stat(d.state + "/held").st_mode & 0o77 == 0
        for uid, path in ((BOB, d.folder(job)), (DETD, d.folder(job)), (ANN, d.state + "/held"), (ANN, d.state + "/detd.db")):
            try:
                as_user(uid, lambda p=path: os.listdir(p) if os.path.isdir(p) else open(p))
                raise AssertionError("%d reads %s" % (uid, path))
            except PermissionError:
                pass
        # every user sees all jobs, and each changes only their own
        bob, ann = d.of(BOB), d.of(ANN)
        assert {j["id"]: j["user"] for j in bob.call("job.list")["jobs"]} == {job: "ann", theirs: "bob"}
        assert refused(lambda: bob.call("job.cancel", id=job)).reason == "DENIED"
        ann.call("job.pause", id=job)
        d.wait(job, "paused")
        ann.call("job.resume", id=job)
        d.wait(job, lambda now: now["state"] == "running" and now["attempt"] == 2)
        d.call("job.cancel", id=theirs)  # root is an admin
        d.wait(theirs, "cancelled")
        # an end leaves no spool, no process and no scope
        short = d.submit_as(ANN, 30, STEP_S="0")
        d.wait(short, "completed")
        d.until(lambda: not d.processes(short) and (not d.group or d.scope(short) is None), "something stays")
        d.until(lambda: not os.path.exists(d.folder(short) + "/spool.0") and os.path.exists(d.state + "/held/%d/end" % short),
                "the spool stays")
        d.check_rows(short, 30)
        assert as_user(ANN, lambda: open(ann.call("job.logs", id=short)["logs"][0]["path"]).read() is not None)
        # only its submitter may give it more steps, and gets a new ticket for them; the spool was removed at its end,
        # which is not a loss
        for client in (bob, d):
            assert refused(lambda c=client: c.call("job.extend", id=short, steps=60)).reason == "DENIED"
        with open(d.state + "/held/%d/ticket" % short) as f:
            ticket = f.read()
        ann.call("job.extend", id=short, steps=60)
        d.wait(short, lambda now: now["state"] == "completed" and now["step"] == 60)
        d.check_rows(short, 60)
        d.until(lambda: not os.path.exists(d.folder(short) + "/spool.0") and json.load(open(d.state + "/held/%d/end" % short))["seq"]
                == d.sql("SELECT last_seq FROM jobs WHERE id=?", short)[0][0], "the spool stays, or it is not written down how it ended")
        with open(d.state + "/held/%d/ticket" % short) as f:
            assert f.read() != ticket
        # a removed job leaves no folder, though detd itself may not empty it
        assert refused(lambda: bob.call("job.rm", id=short)).reason == "DENIED"
        ann.call("job.rm", id=short)
        d.until(lambda: not os.path.exists(d.folder(short)) and not os.path.exists(d.state + "/held/%d" % short), "its folder stays")
        # nothing runs as root or as detd's user
        for uid, words in ((0, "--as NAME"), (DETD, "the daemon's own user")):
            e = refused(lambda u=uid: d.submit_as(u, 10))
            assert e.reason == "DENIED" and words in str(e), e
        ann.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: not of_uid(ANN) and not of_uid(BOB), "processes stay: %s" % of_uid(ANN))
        audit = [e for e in d.events("audit") if "ann (uid 2001)" in e]
        assert {"submitted by ann (uid 2001)", "pause by ann (uid 2001)", "cancel by ann (uid 2001)"} <= set(audit), audit


def the_last_word():
    """run.on_end runs as the submitter, to its end, though nothing of the job outlives that."""
    with Node() as d:
        job = d.submit_as(ANN, 10, on_end="sleep 3; exec >$HOME/new; id -u; cat; sleep 1000 & echo $!; mv $HOME/new $HOME/told")
        d.wait(job, "completed")
        d.until(lambda: os.path.exists("/home/ann/told"), "the command was not told, or killed")
        with open("/home/ann/told") as f:
            uid, message, left = f.read().splitlines()
        assert uid == str(ANN) and json.loads(message)["outcome"] == "completed" and json.loads(message)["job"] == job, message
        d.until(lambda: not os.path.exists("/proc/" + left) and not of_uid(ANN), "what it left behind lives")


def a_doctor_sees_them():
    """The doctor reports folders that detd keeps without a job, and processes of users that belong to no running job."""
    with Node() as d:
        def found(what):
            (row,) = d.found(what)
            return row

        job = d.submit_as(ANN, 100000)
        d.wait(job, lambda now: now["step"] > 3)
        supervisor = [p for p, name in d.members(job).items() if name == "detd-job"][0]
        command = open("/proc/%d/cmdline" % supervisor).read().split("\0")[:-1]
        assert found("folders")[0] == found("processes")[0] == "ok", (found("folders"), found("processes"))
        with open(d.folder(job) + "/large", "wb") as f:
            os.fchown(f.fileno(), ANN, ANN)
            f.write(bytes(20 << 20))
        other = d.submit_as(BOB, 10)
        d.wait(other, "completed")
        level, text = found("users")
        # spools count, and detd owns the folder of all
        rows = r"/jobs: ann [0-9]+ MiB, bob [0-9.]+ [KM]iB, detd [0-9.]+ (KiB|B|bytes)"
        assert level == "ok" and re.fullmatch(re.escape(d.state) + rows, text), text
        as_detd = subprocess.run([BUILD + "/detctl", "--socket", d.path, "doctor"], capture_output=True, text=True, check=False,
                                 user=DETD, group=DETD, extra_groups=[]).stdout
        assert "unknown  users " in as_detd, as_detd
        os.mkdir(d.state + "/held/999")
        assert found("folders") == ("warning", "1 in %s belong to no job: held/999" % d.state), found("folders")
        # a supervisor's command line, in the folder of an ended job
        done = d.submit_as(BOB, 10, STEP_S="0")
        d.wait(done, "completed")
        d.until(lambda: not of_uid(BOB), "it does not leave")
        command[command.index("--job") + 1] = str(done)
        stray = subprocess.Popen(command[:1] + ["-c", "import time; time.sleep(600)"] + command[1:], executable="/usr/bin/python3",
                                 cwd=d.folder(done), user=BOB, group=BOB, extra_groups=[])
        # and a command line in the folder of another daemon of the node, which is not ours
        other = subprocess.Popen(command[:1] + ["-c", "import time; time.sleep(600)"] + command[1:], executable="/usr/bin/python3", cwd="/",
                                 user=BOB, group=BOB, extra_groups=[])
        try:
            assert found("processes") == ("warning", "1 belong to no job that runs: %d" % stray.pid), found("processes")
        finally:
            for p in (stray, other):
                p.kill()
                p.wait()
        os.rmdir(d.state + "/held/999")
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: found("folders")[0] == found("processes")[0] == "ok", "what is there is taken for what is not")


def restarts():
    """detd, detd-launch and detd-job are killed: the job continues, and the next detd-launch can kill it."""
    with Node() as d:
        job = d.submit_as(ANN, 100000)
        d.wait(job, lambda now: now["step"] > 3)
        before = d.processes(job)
        d.stop_helper()
        d.start_helper()
        at = d.job(job)["step"]
        d.wait(job, lambda now: now["step"] > at + 400)  # longer than detd waits for a supervisor that has left
        assert d.processes(job) == before
        d.stop_helper()
        d.kill()
        d.start()
        at = d.wait(job, lambda now: now["state"] == "running" and now["phase"] != "")["step"]
        d.wait(job, lambda now: now["step"] > at)
        assert d.processes(job) == before
        waits = d.submit_as(BOB, 100000)
        supervisor = [p for p, name in d.members(job).items() if name == "detd-job"][0]
        os.kill(supervisor, signal.SIGKILL)
        d.wait(job, lambda now: now["state"] == "running" and now["attempt"] == 2, 90)
        d.wait(waits, "running")
        d.stop_helper(signal.SIGTERM)
        e = refused(lambda: d.submit_as(BOB, 10))
        assert e.reason == "DENIED" and "detd-launch" in str(e), e
        d.start_helper()
        for j in (job, waits):
            d.call("job.cancel", id=j)
            d.wait(j, "cancelled")
        d.until(lambda: not of_uid(ANN) and not of_uid(BOB), "processes stay")


# A module of a trainer's Python, with everything that bob's program may try. It writes its successes to a file of its
# own.
EVIL = r'''
import fcntl, json, os, signal, socket, time
if "RAN" not in os.environ:
    os.environ["RAN"] = "1"
    told = {}
    def tried(name, what):
        try:
            told[name] = str(what())
        except OSError as e:
            told[name] = type(e).__name__
    state, victim, detd, helper = os.environ["STATE"], os.environ["VICTIM"], int(os.environ["DETD"]), int(os.environ["HELPER"])
    tried("db", lambda: open(state + "/detd.db", "rb").read(1))
    tried("held", lambda: os.listdir(state + "/held"))
    tried("jobs", lambda: os.listdir(state + "/jobs"))
    tried("victim", lambda: os.listdir(state + "/jobs/" + victim))
    tried("rename", lambda: os.rename(state + "/jobs/" + victim, state + "/jobs/x"))
    tried("make", lambda: os.mkdir(state + "/jobs/9999"))
    tried("ann", lambda: os.listdir("/home/ann"))
    tried("ask", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(os.environ["ASK"]))
    tried("kill", lambda: os.kill(detd, signal.SIGKILL))
    tried("kill root", lambda: os.kill(helper, signal.SIGKILL))
    tried("memory", lambda: open("/proc/%d/mem" % helper, "rb").read(1))
    tried("root", lambda: os.setuid(0))
    tried("nice", lambda: os.nice(-5))
    locks = 0
    for fd in range(3, 64):
        try:
            if os.readlink("/proc/self/fd/%d" % fd).endswith("/lock"):
                tried("write the lock", lambda: os.write(fd, b"1\n"))
                fcntl.flock(fd, fcntl.LOCK_UN)
                locks += 1
        except OSError:
            pass
    told["locks"] = locks
    nonce = ""  # as everybody can see it
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid) as f:
                words = f.read().split("\0")
        except OSError:
            continue
        if words[0] == os.path.dirname(state) + "/bin/detd-job" and "--nonce" in words and words[words.index("--job") + 1] == victim:
            nonce = words[words.index("--nonce") + 1]
    told["nonce"] = len(nonce)
    s = socket.socket(socket.AF_UNIX)
    s.connect(state + "/sup.sock")
    s.sendall(json.dumps({"type": "hello", "protocol": 1, "job": int(victim), "attempt": 1, "nonce": nonce}).encode() + b"\n")
    told["hello"] = s.recv(100).decode()
    json.dump(told, open("/home/bob/told.new", "w"))
    os.rename("/home/bob/told.new", "/home/bob/told")
    for i in range(3):  # out of the session, deaf, and without the lock
        if os.fork() == 0:
            os.setsid()
            for n in range(1, 65):
                if n not in (9, 19, 32, 33):
                    signal.signal(n, signal.SIG_IGN)
            if os.fork() == 0:
                os.closerange(0, 256)
                while True:
                    time.sleep(1)
            os._exit(0)
'''


def a_hostile_job():
    with Node() as d:
        victim = d.submit_as(ANN, 100000)
        d.wait(victim, lambda now: now["step"] > 3)
        with open("/home/bob/sitecustomize.py", "w") as f:
            f.write(EVIL)
        os.chmod("/home/bob/sitecustomize.py", 0o644)
        job = d.submit_as(BOB, 100000, PYTHONPATH="/home/bob", STATE=d.state, VICTIM=str(victim), DETD=str(d.proc.pid),
                          HELPER=str(d.helper.pid), ASK=d.socket)
        d.until(lambda: os.path.exists("/home/bob/told"), "the hostile job does not run")
        told = json.load(open("/home/bob/told"))
        assert told.pop("locks") == 1 and told.pop("nonce") == 32 and told.pop("hello") == "", told
        assert d.wait_event("supervisor") == [
            "a process of uid %d connected as supervisor of job %d, which belongs to another user" % (BOB, victim)
        ], d.events("supervisor")
        assert told.pop("write the lock") == "OSError", told
        assert set(told.values()) == {"PermissionError"}, told
        d.wait(job, lambda now: now["step"] > 3)
        d.until(lambda: len(of_uid(BOB)) == 5, "its daemons do not run: %s" % of_uid(BOB))
        assert not d.group or set(d.scope(job)) == set(of_uid(BOB))
        d.of(BOB).call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: not of_uid(BOB) or not d.group, "processes of a cancelled job live: %s" % of_uid(BOB))
        # and if its supervisor is killed, all processes of the attempt end before the next one starts
        again = d.submit_as(BOB, 100000, PYTHONPATH="/home/bob", STATE=d.state, VICTIM=str(victim), DETD=str(d.proc.pid),
                            HELPER=str(d.helper.pid), ASK=d.socket)
        d.until(lambda: len(of_uid(BOB)) == 5, "its daemons do not run: %s" % of_uid(BOB))
        first = set(of_uid(BOB))
        os.kill(next(p for p in first if open("/proc/%d/comm" % p).read() == "detd-job\n"), signal.SIGKILL)
        d.until(lambda: not first & set(of_uid(BOB)), "processes of the attempt before live", 60)
        d.wait(again, lambda now: now["attempt"] == 2 and now["state"] == "running", 60)
        d.call("job.cancel", id=again)
        d.wait(again, "cancelled")
        d.until(lambda: not of_uid(BOB), "processes live: %s" % of_uid(BOB))
        # an end that is refused: it stops its supervisor, and is deaf
        deaf = d.submit_as(BOB, 100000)
        d.wait(deaf, lambda now: now["step"] > 3)
        at = d.job(victim)["step"]
        d.wait(victim, lambda now: now["step"] > at)
        assert d.job(victim)["attempt"] == 1 and not d.events("supervisor_lost", victim)
        for pid in of_uid(BOB):
            os.kill(pid, signal.SIGSTOP)
        d.until(lambda: not d.group or d.scope(deaf), "it is gone")
        d.call("job.cancel", id=deaf)
        d.until(lambda: not of_uid(BOB), "who is stopped is not killed", 120)
        d.wait(deaf, "cancelled", 60)


def who_fills_the_disk():
    """A running job fills the disk of the database. Root ends it all the same, and a kill of detd does not bring it back."""
    with Node(disk_mb=200) as d:
        job, other = d.submit_as(BOB, 1000000), d.submit_as(ANN, 1000000)
        for each in (job, other):
            d.wait(each, lambda now: now["step"] > 3)
        ranks = of_uid(BOB)
        full = as_user(BOB, lambda: d.fill(folder=d.folder(job)))
        d.until(lambda: "full" in d.call("daemon.info")["trouble"], "detd has room")
        for pid in ranks:  # they are told nothing
            os.kill(pid, signal.SIGSTOP)
        assert "unstored" in d.call("job.cancel", id=job) and "unstored" in d.of(ANN).call("job.pause", id=other)
        assert "unstored" in d.call("daemon.drain", reason="look at it")
        d.kill()
        d.start()
        assert d.job(job)["state"] == "stopping", d.job(job)
        for pid in ranks:
            os.kill(pid, signal.SIGCONT)
        d.until(lambda: not of_uid(BOB) and not of_uid(ANN), "they run on")
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "they keep their slots")
        assert d.call("daemon.info")["drained"] == "look at it"
        os.unlink(full)
        d.wait(job, "cancelled", 60)
        d.wait(other, "paused", 60)
        d.until(lambda: not d.call("daemon.info")["trouble"], "it is not seen that there is room")


def taken_locks(d, job):
    """Takes the locks of a job's supervisor, as descriptors of this program, which is outside of its scope."""
    supervisor = next(p for p, name in d.members(job).items() if name == "detd-job")
    return [taken(supervisor, fd) for fd, path in open_files(supervisor).items() if path.endswith(("/lock", ".lock"))]


def a_lock_that_is_taken_away():
    """A process outside of the job's scope that holds the job's lock does not hold its slots."""
    with Node() as d:
        job = d.submit_as(BOB, 100000)
        d.wait(job, lambda now: now["step"] > 3)
        kept = taken_locks(d, job)
        assert len(kept) == 1, kept
        if d.group:  # nor does it hold up the next attempt
            d.signal_supervisor(job, signal.SIGKILL)
            d.wait(job, lambda now: now["attempt"] == 2 and now["state"] == "running", 60)
            kept += taken_locks(d, job)
        d.call("job.cancel", id=job)
        if not d.group:  # without a scope it is unknown which processes live
            d.until(lambda: "its slots are held" in d.call("job.why", id=job)["text"], "it does not say who holds its slots", 180)
            os.close(kept.pop())
        d.wait(job, "cancelled", 60)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "its slots are held", 60)
        d.call("job.rm", id=job)
        d.until(lambda: not os.path.exists(d.folder(job)) and not os.path.exists(d.state + "/held/%d" % job), "its folder stays")
        for fd in kept:
            os.close(fd)


def what_is_taken_away_while_nobody_looks():
    """A process outside the scope holds a job's lock and speaks as its supervisor, and detd and detd-launch are killed
    together with the job: the process holds up nothing."""
    with GpuNode() as d:
        if not d.group:
            return
        job = d.submit_as(BOB, 100000, device="cuda")
        d.wait(job, lambda now: now["step"] > 3)
        nonce, kept = d.nonce(job), taken_locks(d, job)
        assert len(kept) == 2, kept
        d.stop_helper()
        d.kill()
        for pid in of_uid(BOB):
            d.signal(pid, signal.SIGKILL)  # ranks go with detd-job
        d.until(lambda: not of_uid(BOB), "they live")
        (scope,) = [f.path for f in os.scandir(d.group) if f.name.startswith("job-") and f.name != "job-test"]
        d.until(lambda: removed(scope), "something is in it")  # as systemd does when the service stops
        d.start()

        def speaks():
            s = socket.socket(socket.AF_UNIX)
            s.connect(d.state + "/sup.sock")
            s.sendall(
                json.dumps({"type": "hello", "protocol": 1, "job": job, "attempt": 1, "nonce": nonce, "pid": 1, "beats": False}).encode() +
                b"\n")
            return s
        false = as_user(BOB, speaks)
        assert b"welcome" in false.recv(4096)
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled", 180)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "its slots are held")
        assert not d.events("kill", job), d.events("kill", job)  # there was no process to kill
        d.wait(d.submit_as(ANN, 10, device="cuda", ranks=2), "completed")
        assert false.recv(4096)[-1:] in (b"", b"\n")
        for fd in kept:
            os.close(fd)


def what_is_taken_away_while_detd_is_another():
    """A detd that did not start the job learns that no process of it lives; a process that holds its lock holds up
    nothing."""
    with Node() as d:
        if not d.group:
            return
        job = d.submit_as(BOB, 100000)
        d.wait(job, lambda now: now["step"] > 3)
        kept = taken_locks(d, job)
        assert len(kept) == 1, kept
        d.kill()
        d.start()
        at = d.job(job)["step"]
        d.wait(job, lambda now: now["step"] > at + 50)
        assert d.found("detd-launch") == [("ok", "it is there")], d.found("detd-launch")  # and it learns which job ends
        for pid in of_uid(BOB):
            d.signal(pid, signal.SIGKILL)
        d.wait(job, lambda now: now["attempt"] == 2 and now["state"] == "running", 180)
        os.close(kept[0])
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: not any(name.startswith("job-") and name != "job-test" for name in os.listdir(d.group)), "its scope stays")


def who_speaks_for_a_job_that_has_left():
    """After all processes of a job have ended, no connection is accepted as its supervisor, with any nonce."""
    with Node(conf="user_running = 9\n") as d:
        if not d.group:
            return
        job, other = d.submit_as(BOB, 100000), d.submit_as(BOB, 100000)  # a connection of a user without a running job is not read at all
        for each in (job, other):
            d.wait(each, lambda now: now["step"] > 3)
        hello = json.dumps({"type": "hello", "protocol": 1, "job": job, "attempt": 1, "nonce": d.nonce(job), "pid": 1, "beats": False
                            }).encode() + b"\n"

        def speaks():
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(60)
                s.connect(d.state + "/sup.sock")
                try:
                    s.sendall(hello)
                    return s.recv(4096)
                except (BrokenPipeError, ConnectionResetError):
                    return b""
        assert b"welcome" in as_user(BOB, speaks)  # in the place of the true one
        d.call("job.pause", id=job)
        d.wait(job, "paused", 180)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 7, "its slots are held")
        assert b"welcome" not in as_user(BOB, speaks)
        assert d.call("daemon.info")["cpu_free"] == 7
        d.call("job.resume", id=job)
        d.wait(job, "running")


def who_says_hello_again_and_again():
    """A process outside of the scope that speaks as the supervisor, with its nonce, holds no slot longer than the job
    lives."""
    with Node(conf="user_running = 9\n") as d:
        said, stop = [0], threading.Event()

        def speak(job, text):
            """Starts a process of bob, which root has made, that says hello again and again; it prints how often it was
            welcome."""
            command = "import json, socket, sys, time\nwhile True:\n s = socket.socket(socket.AF_UNIX)\n s.settimeout(2)\n try:\n" \
                "  s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode() + b'\\n'); print(int(b'welcome' in s.recv(4096)), flush=True)\n" \
                " except OSError: pass\n time.sleep(0.2)\n"
            hello = json.dumps({"type": "hello", "protocol": 1, "job": job, "attempt": 1, "nonce": text, "pid": 1, "beats": False})
            return subprocess.Popen(["/usr/bin/python3", "-c", command, d.state + "/sup.sock", hello], user=BOB, group=BOB, extra_groups=[],
                                    stdout=subprocess.PIPE, cwd="/")

        def follow(job):
            """Collects the nonce of each supervisor as it comes."""
            last, process = None, None
            while not stop.is_set():
                now = d.nonce(job)
                if now and now != last:
                    if process:
                        process.kill()
                        said[0] += process.communicate()[0].count(b"1")
                    process, last = speak(job, now), now
                time.sleep(0.05)
            if process:
                process.kill()
                said[0] += process.communicate()[0].count(b"1")
        # it is cancelled while its processes stand still
        job = d.submit_as(BOB, 100000)
        d.wait(job, lambda now: now["step"] > 3)
        own, bob = d.processes(job), d.of(BOB)  # this program is root again before its thread begins
        thread = threading.Thread(target=follow, args=(job,))
        thread.start()
        try:
            for pid in own:
                os.kill(pid, signal.SIGSTOP)
            bob.call("job.cancel", id=job)
            d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "it holds its slots", 150)
            d.until(lambda: not any(os.path.exists("/proc/%d" % p) for p in own) or not d.group, "who is stopped is not killed")
        finally:
            stop.set()
            thread.join()
        assert said[0] > 3, said
        assert d.wait(job, "cancelled", 150)["state"] == "cancelled"
        d.wait(d.submit_as(ANN, 10), "completed")


FORKS = r'''
import os, time
if "RAN" not in os.environ:
    os.environ["RAN"] = "1"
    count = 0
    try:
        while count < 1000:
            if os.fork() == 0:
                while True:
                    time.sleep(1)
            count += 1
    except OSError:
        pass
    with open("/home/bob/count.new", "w") as f:
        f.write(str(count))
    os.rename("/home/bob/count.new", "/home/bob/count")
'''


def limits():
    """A job has no more processes and memory than detd-launch was told, also after that was restarted."""
    if not has_limits("pids", "memory"):
        print("skip: the controllers pids and memory are not control group version 2's here", flush=True)
        return
    with Node() as d:
        with open("/home/bob/sitecustomize.py", "w") as f:
            f.write(FORKS)
        os.chmod("/home/bob/sitecustomize.py", 0o644)
        job = d.submit_as(BOB, 100000, PYTHONPATH="/home/bob")
        d.until(lambda: os.path.exists("/home/bob/count"), "it forks for ever")
        assert 100 < int(open("/home/bob/count").read()) < 200

        def limit(name):
            scope = [n for n in os.listdir(d.group) if n.startswith("job-") and n.endswith("-%d" % job)]
            with open("%s/%s/%s" % (d.group, scope[0], name)) as f:
                return f.read().strip()
        assert (limit("pids.max"), limit("memory.max")) == ("200", str(MEMORY))
        d.stop_helper()
        with open(d.group + "/cgroup.subtree_control", "w") as f:  # as detd-launch.service does
            f.write("-pids -memory")
        d.start_helper()
        d.until(lambda: (limit("pids.max"), limit("memory.max")) == ("200", str(MEMORY)), "it has no limits any more")
        d.memory = "50%"
        d.stop_helper()
        d.start_helper()
        half = d.submit_as(ANN, 100000)
        d.wait(half, lambda now: now["step"] > 0)
        with open("%s/%s/memory.max" %
                  (d.group, [n for n in os.listdir(d.group) if n.startswith("job-") and n.endswith("-%d" % half)][0])) as f:
            assert abs(int(f.read()) / (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) - 0.5) < 0.01
        d.call("job.cancel", id=half)
        d.wait(half, "cancelled")
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: not of_uid(BOB), "processes live")


def links_in_its_own_folder():
    """Links that bob puts in place of his job's files reach no file that bob may not reach himself."""
    with Node() as d:
        job = d.submit_as(BOB, 100000)
        d.wait(job, lambda now: now["step"] > 12)
        bob = d.of(BOB)
        bob.call("job.pause", id=job)
        d.wait(job, "paused")
        d.until(lambda: not of_uid(BOB), "it does not leave")
        precious = d.root + "/precious"
        with open(precious, "w") as f:
            f.write("precious")
        os.chmod(precious, 0o644)
        database = d.state + "/detd.db"
        before = os.stat(database).st_ino, os.stat(precious).st_mtime_ns
        held = sorted(os.listdir(d.state + "/held/%d" % job))

        def plant():
            os.chdir(d.folder(job))
            for name, to in (("log/supervisor.log", precious), ("spec.json", database), ("spec.json.new", precious),
                             ("log/rank-0.log", precious), ("lock", precious), ("end", precious), ("store", precious)):
                if os.path.lexists(name):
                    os.unlink(name)
                os.symlink(to, name)
            os.chdir("/")
        as_user(BOB, plant)
        bob.call("job.resume", id=job)
        d.until(lambda: "supervisor.log" in d.job(job).get("reason", "") + bob.call("job.why", id=job)["text"],
                "it does not say why it waits")

        def mend():
            os.unlink(d.folder(job) + "/log/supervisor.log")
            os.unlink(d.folder(job) + "/spec.json.new")
            os.mkfifo(d.folder(job) + "/log/supervisor.log", 0o600)
        as_user(BOB, mend)  # a pipe without a reader blocks no program
        time.sleep(0)
        d.call("daemon.info")
        as_user(BOB, lambda: (os.unlink(d.folder(job) + "/log/supervisor.log"), os.unlink(d.folder(job) + "/log/rank-0.log")))
        d.wait(job, lambda now: now["state"] == "running" and now["attempt"] >= 2, 120)
        assert open(precious).read() == "precious" and os.stat(precious).st_mtime_ns == before[1] and os.stat(database).st_ino == before[0]
        assert sorted(os.listdir(d.state + "/held/%d" % job)) == held
        # bob cannot replace the folder itself, and a folder of another user is not given to him
        try:
            as_user(BOB, lambda: os.rename(d.folder(job), d.folder(job) + "x"))
            raise AssertionError("bob renames what lies in jobs/")
        except PermissionError:
            pass
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: not of_uid(BOB), "it does not leave")
        # his spool is gone: he does not begin anew
        job = d.submit_as(BOB, 100000)
        d.wait(job, lambda now: now["step"] > 12)
        bob.call("job.pause", id=job)
        d.wait(job, "paused")
        d.until(lambda: not of_uid(BOB), "it does not leave")
        as_user(BOB, lambda: [os.unlink(d.folder(job) + "/spool.%d" % i) for i in (0, 1)])
        bob.call("job.resume", id=job)
        assert "spool lost" in d.wait(job, "failed", 60)["reason"]
        # nor do his links mislead root, who looks at his job
        os.chmod(precious, 0o600)

        def plant_more():
            for name in ("evidence.json", "identity.json"):
                os.symlink(precious, d.folder(job) + "/" + name)
        as_user(BOB, plant_more)

        def ctl(*words):
            return subprocess.run([BUILD + "/detctl", "--socket", d.path, *words], capture_output=True, text=True, cwd=d.root, check=False)
        done = ctl("evidence", "export", str(job), d.root + "/copy")
        assert done.returncode == 1 and "symbolic links" in done.stderr and not os.path.exists(d.root + "/copy"), done


def an_unusable_folder():
    """A job with a folder that its submitter made useless holds no slots: it is queued until he mends the folder, ends
    if he does not, and can be cancelled at once."""
    with GpuNode(conf="user_running = 9\n") as d:
        def put(job, name, how):
            path = d.folder(job) + "/" + name
            if os.path.isdir(path):
                os.rename(path, path + ".old")
            elif os.path.lexists(path):
                os.unlink(path)
            how(path)
        ways = [(lambda job: os.chmod(d.folder(job), 0), lambda job: os.chmod(d.folder(job), 0o700), "Permission denied"),
                (lambda job: put(job, "log", lambda p: os.symlink("/nowhere/at/all", p)),
                 lambda job: put(job, "log", lambda p: os.rename(p + ".old", p)), "No such file"),
                (lambda job: put(job, "log/supervisor.log", lambda p: os.mkfifo(p, 0o600)),
                 lambda job: os.unlink(d.folder(job) + "/log/supervisor.log"), "No such device"),
                (lambda job: put(job, "log", lambda p: open(p, "w").close()), None, "Not a directory")]

        def spoil(job, how):
            """Ends all processes of the job, and makes its folder unusable, so that it cannot be started."""
            supervisor = d.supervisor(job)
            as_user(BOB, lambda: how(job))
            os.kill(supervisor, signal.SIGKILL)
        jobs = []
        for how, _, _ in ways:
            job = d.submit_as(BOB, 100000, device="cuda" if not jobs else "cpu")
            d.wait(job, lambda now: now["step"] > 3)
            jobs.append(job)
            spoil(job, how)
        for job, (_, _, what) in zip(jobs, ways):
            reason = d.wait(job, lambda now: now["state"] == "queued" and now["reason"])["reason"]
            assert what in reason and "unread: jobs/%d " % job in reason, reason
            d.until(lambda j=job: "unread: jobs/%d " % j in d.call("job.why", id=j)["text"], "it does not say why it waits")
        # other users keep their slots and GPUs
        d.wait(d.submit_as(ANN, 10, device="cuda", ranks=2), "completed")
        # a job that is cancelled while it waits, and a job that is cancelled while its supervisor does not answer
        d.of(BOB).call("job.cancel", id=jobs[0])
        d.wait(jobs[0], "cancelled", 10)
        deaf = d.submit_as(BOB, 100000, device="cuda")
        d.wait(deaf, lambda now: now["step"] > 3)
        for pid in d.processes(deaf):
            os.kill(pid, signal.SIGSTOP)
        d.of(BOB).call("job.cancel", id=deaf)
        spoil(deaf, ways[0][0])
        d.until(lambda: d.job(deaf)["state"] == "stopping" and not d.job(deaf)["gpus"], "who reads what is left holds a GPU")
        assert "unread" in d.wait(deaf, "cancelled", 30)["reason"]
        # a job continues where it was if its submitter mends the folder; otherwise it ends after a minute
        for job, (_, mend, _) in list(zip(jobs, ways))[1:3]:
            as_user(BOB, lambda j=job, m=mend: m(j))
            assert d.wait(job, lambda now: now["state"] == "running" and now["phase"] != "starting", 90)["step"] > 0
            d.call("job.cancel", id=job)
        failed = d.wait(jobs[3], "failed", 150)
        assert failed["reason"].startswith("spool unread: jobs/%d " % jobs[3]) and "Not a directory" in failed["reason"], failed
        d.until(lambda: not of_uid(BOB) and d.call("daemon.info")["cpu_free"] == 8, "something is held")
        os.rename(d.folder(jobs[3]) + "/log", d.folder(jobs[3]) + "/nolog")
        d.call("job.rm", id=jobs[3])
        d.until(lambda: not os.path.exists(d.folder(jobs[3])), "its folder stays")


def a_start_that_is_refused_and_tried_again():
    """detd listens to the next supervisor, though each refused start has left its scope empty; such a supervisor also
    obeys a cancel."""
    with Node(conf="user_running = 9\n") as d:
        def name(job, old, new):
            for i in (0, 1):
                os.rename("%s/%s.%d" % (d.folder(job), old, i), "%s/%s.%d" % (d.folder(job), new, i))

        jobs = [d.submit_as(ANN, 100000) for _ in range(2)]
        for job in jobs:
            d.wait(job, lambda now: now["step"] > 12)
            d.of(ANN).call("job.pause", id=job)
            d.wait(job, "paused")
            d.until(lambda j=job: not d.processes(j), "it does not leave")
            name(job, "spool", "away")
            d.of(ANN).call("job.resume", id=job)
            d.until(lambda j=job: "the spool is missing" in d.call("job.why", id=j)["text"], "it does not say why it waits")
        d.of(ANN).call("job.cancel", id=jobs[1])
        for job in jobs:
            name(job, "away", "spool")
        d.wait(jobs[0], lambda now: now["state"] == "running" and now["step"] > 40)
        d.wait(jobs[1], "cancelled")
        assert not d.events("supervisor"), d.events("supervisor")


def who_cancels_what_cannot_be_started():
    """A submitter makes the spool of a cancelled job unreadable. The job holds no slots meanwhile, and it ends; also
    under the next detd."""
    os.makedirs("/home/full")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777,nr_inodes=1", "none", "/home/full"],
                   check=True)  # nothing can be created there, as beyond a quota
    with GpuNode(conf="user_running = 9\n") as d:
        def spoil(job):
            supervisor, log = d.supervisor(job), d.folder(job) + "/log"
            as_user(BOB, lambda: os.rename(log, log + ".old"))
            as_user(BOB, lambda: os.symlink("/home/full", log))
            os.kill(supervisor, signal.SIGKILL)
        jobs = [d.submit_as(BOB, 100000, device=device) for device in ("cuda", "cpu")]
        for job in jobs:
            d.wait(job, lambda now: now["step"] > 3)
            spoil(job)
            d.until(lambda j=job: "No space left" in d.call("job.why", id=j)["text"] or d.job(j)["state"] == "queued", "it is started")
            d.of(BOB).call("job.cancel", id=job)
        assert all(d.job(job)["state"] == "stopping" for job in jobs), [d.job(job) for job in jobs]

        def nothing_is_held():
            return d.call("daemon.info")["cpu_free"] == 8 and not any(d.job(job)["gpus"] for job in jobs) and \
                all(g["state"] == "free" for g in d.call("gpu.list")["gpus"])
        d.until(nothing_is_held, "who is cancelled holds its slots", 40)
        assert "No space left" in d.call("job.why", id=jobs[0])["text"], d.call("job.why", id=jobs[0])
        d.kill()
        d.start()
        for job in jobs:
            reason = d.wait(job, "cancelled", 180)["reason"]
            assert reason.startswith("spool unread: ") and "jobs/%d" % job in reason and "No space left" in reason, reason
        d.until(nothing_is_held, "something is held")


def a_launch_that_does_not_answer():
    """Requests to submit or extend get an error, and no refused job runs later. No event says that a job was killed.
    Folders of removed jobs are removed at last."""
    with Node(conf="user_running = 9\n") as d:
        done, gone, too, lives = [d.submit_as(ANN, steps) for steps in (30, 10, 10, 100000)]
        for job in (done, gone, too):
            d.wait(job, "completed")
        d.wait(lives, lambda now: now["step"] > 3)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 7, "the first one's processes stay")
        os.kill(d.helper.pid, signal.SIGSTOP)
        for job in (gone, too):
            d.of(ANN).call("job.rm", id=job)
        d.of(ANN).call("job.cancel", id=lives)  # which is its supervisor's to do
        d.wait(lives, "cancelled")
        extender = d.of(ANN)
        extender.sock.settimeout(90)
        for what in (lambda: d.submit_as(ANN, 10), lambda: extender.call("job.extend", id=done, steps=60)):
            assert "does not answer" in str(refused(what)), refused(what)
        d.until(lambda: "detd-launch" in d.call("job.why", id=lives)["text"], "it does not say who holds its slots", 200)
        assert "does not answer" in d.call("job.why", id=lives)["text"] and d.call("daemon.info")["cpu_free"] == 7, d.call(
            "job.why", id=lives)
        assert not any("were killed" in text for text in d.events("kill", lives)), d.events("kill", lives)
        for job in (gone, too):
            d.until(lambda: "job %d was removed, but its folder cannot be removed yet: detd-launch" % job in open(d.root + "/log").read(),
                    "removals wait for ever", 90)
        d.until(lambda: d.found("removals"), "the doctor sees no removal that waits", 60)
        d.until(lambda: d.found("removals") == [("warning", "folders of 2 removed jobs wait, of job %d among them" % gone)],
                d.found("removals"), 60)
        assert d.found("detd-launch")[0][0] == "wrong" and "does not answer" in d.found("detd-launch")[0][1], d.found("detd-launch")
        os.kill(d.helper.pid, signal.SIGCONT)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "its slots are held")
        d.until(lambda: not os.path.exists(d.folder(gone)) and not os.path.exists(d.folder(too)), "its folder stays", 300)
        d.wait(d.submit_as(ANN, 10), "completed")
        jobs = {j["id"]: (j["state"], j["steps"]) for j in d.call("job.list")["jobs"]}
        assert jobs[done] == ("completed", 30) and len(jobs) == 3, jobs  # the third came last
        d.until(lambda: not d.found("removals"), d.found("removals"))
        assert all(
            open(d.root + "/log").read().count("job %d was removed, but its folder cannot be removed yet" % job) <= 2
            for job in (gone, too)), "it is told again and again"
        assert d.found("detd-launch") == [("ok", "it is there")], d.found("detd-launch")
        d.stop_helper()
        assert not d.found("detd-launch"), d.found("detd-launch")  # no job needs it
        d.of(ANN).call("job.rm", id=done)
        d.until(lambda: d.found("detd-launch"), "the doctor does not see that it is gone")
        assert d.found("detd-launch")[0][0] == "wrong" and "No such file" in d.found("detd-launch")[0][1], d.found("detd-launch")
        d.start_helper()
        d.until(lambda: d.found("detd-launch") == [("ok", "it is there")], "it is not seen to be there again")
        d.until(lambda: not os.path.exists(d.folder(done)), "its folder stays", 60)


def a_removal_that_is_held_up():
    """A user who stops the program that empties his folder delays only his own removals, and not for long."""
    with Node() as d:
        jobs = {}
        for uid in (BOB, ANN):
            jobs[uid] = d.submit_as(uid, 10, STEP_S="0")
            d.wait(jobs[uid], "completed")
        d.until(lambda: not of_uid(BOB) and not of_uid(ANN), "they do not leave")

        def litter():
            os.mkdir(d.folder(jobs[BOB]) + "/litter")
            for i in range(100000):
                os.close(os.open(d.folder(jobs[BOB]) + "/litter/%d" % i, os.O_CREAT | os.O_WRONLY))
        as_user(BOB, litter)
        d.of(BOB).call("job.rm", id=jobs[BOB])
        stopped = []

        def stop():
            for pid in of_uid(BOB):
                d.signal(pid, signal.SIGSTOP)
                stopped.append(pid)
            return stopped
        d.until(stop, "nobody empties it")
        assert os.path.exists(d.folder(jobs[BOB])), "it was too fast to be stopped"
        d.of(ANN).call("job.rm", id=jobs[ANN])
        d.until(lambda: not os.path.exists(d.folder(jobs[ANN])) and not os.path.exists(d.state + "/held/%d" % jobs[ANN]),
                "it waits for bob's", 60)
        d.until(lambda: not os.path.exists(d.folder(jobs[BOB])), "his own stays", 90)


# ---- detd-launch itself, with a client that speaks as detd ----

class Asker:
    def __init__(self, d):
        self.d, self.sock, self.number = d, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), 0
        self.sock.settimeout(60)
        as_user(DETD, lambda: self.sock.connect(d.socket))

    def ask(self, kind, ticket, fds=(), version=1, nonce=b"n", gpus=b"", reason=b"", attempt=1, log_max=0, cut=0):
        self.number += 1
        text = struct.pack("<IIq", version, kind, self.number) + ticket + struct.pack("<iiiiiiqqqq", attempt, 1, 1, 0, 1, 0, 0, 0, log_max,
                                                                                      0)
        text += struct.pack("40s1024s256s", nonce, gpus, reason)
        assert len(text) == ASK
        socket.send_fds(self.sock, [text[:len(text) - cut]], list(fds))
        while True:
            got = self.sock.recv(4096)
            if not got:
                return None, "", b""
            _, kind, number, _, _, _, _, _ = struct.unpack_from("<IIqqiiii", got)
            if kind != EXITED:
                return kind, got[40:40 + 256].split(b"\0")[0].decode(), got[40 + 256:]

    def left(self):
        """Waits for the exit of the newest start. Returns its status and its message."""
        while True:
            got = self.sock.recv(4096)
            _, kind, number, _, status, _, _, _ = struct.unpack_from("<IIqqiiii", got)
            if kind == EXITED and number == self.number:
                return status, got[40:40 + 256].split(b"\0")[0].decode()


def blank(job, spec, store=b"s", user=b"ann"):
    return struct.pack("<IIIIq40s40s", 0, 0, 0, 0, job, store, user) + hashlib.sha256(spec).digest() + bytes(32)


def memory(text, sealed=True):
    fd = os.memfd_create("spec", os.MFD_ALLOW_SEALING)
    os.write(fd, text)
    if sealed:
        fcntl.fcntl(fd, 1033, 1 | 2 | 4 | 8)
    return fd


def a_forged_ticket():
    with Node() as d:
        spec = json.dumps({"run": {}}).encode()
        for uid in (ANN, BOB):
            try:
                as_user(uid, lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(d.socket))
                raise AssertionError("%d speaks to detd-launch" % uid)
            except PermissionError:
                pass
        os.chmod(d.socket, 0o666)  # on purpose, so that only the check of the caller protects the socket
        other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        as_user(BOB, lambda: other.connect(d.socket))
        try:
            other.sendall(bytes(ASK))
            assert other.recv(100) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass
        os.kill(d.proc.pid, signal.SIGSTOP)  # its connection is taken over
        asker = Asker(d)

        # the ticket's user is the peer that connected to a socket of ours; a listening socket, root and a socket pair
        # are refused
        server = socket.socket(socket.AF_UNIX)
        server.bind(d.root + "/run/server")
        server.listen(8)
        os.chmod(d.root + "/run/server", 0o666)

        def connected(uid):
            client = socket.socket(socket.AF_UNIX)
            as_user(uid, lambda: client.connect(d.root + "/run/server"))
            return client, server.accept()[0]
        ann, accepted = connected(ANN)
        kind, why, ticket = asker.ask(SEAL, blank(77, spec), [accepted.fileno()])
        assert kind == SEALED and struct.unpack_from("<IIII", ticket) == (1, ANN, ANN, 0), (kind, why, ticket)
        listens = socket.socket(socket.AF_UNIX)
        as_user(ANN, lambda: (listens.bind("/home/ann/agent"), listens.listen(1)))
        for name in (None, d.root + "/run/named"):
            calls = socket.socket(socket.AF_UNIX)
            if name:
                calls.bind(name)
            calls.connect("/home/ann/agent")
            calls.getpeername()
            assert asker.ask(SEAL, blank(77, spec), [calls.fileno()])[0] == REFUSED, "a ticket for who was called"
            as_user(ANN, listens.accept)
        roots = connected(0)
        assert asker.ask(SEAL, blank(77, spec), [roots[1].fileno()])[:2] == (REFUSED, "no job runs as root")
        for fd in (listens.fileno(), memory(b"x"), os.open("/dev/null", os.O_RDONLY)):
            assert asker.ask(SEAL, blank(77, spec), [fd])[0] == REFUSED
        assert asker.ask(SEAL, blank(77, spec))[0] == asker.ask(SEAL, blank(0, spec), [accepted.fileno()])[0] == REFUSED
        assert asker.ask(SEAL, blank(7, spec, b"../../x"), [accepted.fileno()])[0] == asker.ask(SEAL, blank(7, spec, user=b""),
                                                                                                [accepted.fileno()])[0] == REFUSED

        # the uses of a ticket
        lock, text = os.open(d.root + "/lock", os.O_RDWR | os.O_CREAT), memory(spec)

        def start(ticket=ticket, fds=None, **more):
            return asker.ask(START, ticket, [lock, text] if fds is None else fds, **more)[:2]
        for at in range(len(ticket)):
            forged = ticket[:at] + bytes([ticket[at] ^ 1]) + ticket[at + 1:]
            assert start(forged)[0] == REFUSED and "not sealed" in start(forged)[1], at
            assert asker.ask(KILL, forged)[0] == asker.ask(CLEAR, forged, [lock])[0] == REFUSED
        assert start(bytes(TICKET))[0] == REFUSED
        assert "not the one that was submitted" in start(fds=[lock, memory(spec + b" ")])[1]
        assert "no sealed file" in start(fds=[lock, memory(spec, sealed=False)])[1]
        assert "no sealed file" in start(fds=[lock, os.open("/etc/passwd", os.O_RDONLY)])[1]
        pipe = os.pipe()
        assert "no sealed file" in start(fds=[lock, pipe[0]])[1]
        assert start(fds=[lock])[0] == start(fds=[])[0] == REFUSED
        as_user(DETD, lambda: (os.rename(d.state + "/jobs", d.state + "/away"), os.symlink("/etc", d.state + "/jobs")))
        assert start()[0] == REFUSED
        os.unlink(d.state + "/jobs")
        os.mkdir(d.state + "/jobs")
        assert "does not belong to detd's user" in start()[1]
        os.rmdir(d.state + "/jobs")
        os.rename(d.state + "/away", d.state + "/jobs")
        for more in ({"nonce": b"a b"}, {"nonce": b"n" * 40}, {"gpus": b"--worker"[:3] + b" /x"}, {"reason": b"a\nb"}, {"attempt": 0},
                     {"attempt": -5}, {"log_max": -1}):
            assert "no detd sends" in start(**more)[1], more
        assert asker.ask(99, ticket)[0] == asker.ask(START, ticket, version=2)[0] == REFUSED
        # a link, or a folder of another, in the place of the job's
        as_user(DETD, lambda: os.symlink("/home/bob", d.state + "/jobs/77"))
        assert start()[0] == STARTED and asker.left() == (73, "open it: Not a directory")
        os.unlink(d.state + "/jobs/77")
        os.makedirs(d.state + "/jobs/77/x")
        os.chown(d.state + "/jobs/77", BOB, BOB)
        assert start()[0] == STARTED and asker.left() == (75, "the folder of job 77 is not its submitter's")
        os.rmdir(d.state + "/jobs/77/x")
        os.chown(d.state + "/jobs/77", 0, 0)  # as a detd-launch that was killed leaves it
        assert start()[0] == STARTED and os.stat(d.state + "/jobs/77").st_uid == ANN
        assert asker.ask(KILL, ticket)[0] == KILLED
        d.until(lambda: not of_uid(ANN), "it lives")
        assert not of_uid(ANN) and not of_uid(BOB) and os.stat("/home/bob").st_uid == BOB
        # the real one, again and again: one job of ann at a time
        for _ in range(3):
            kind, why = start()
            assert kind == STARTED or "are still ending" in why, why
            assert len([p for p in of_uid(ANN) if open("/proc/%d/comm" % p).read() == "detd-job\n"]) <= 1
        assert asker.ask(KILL, ticket)[0] == KILLED
        d.until(lambda: not of_uid(ANN), "it lives")
        # malformed lines and surplus descriptors: detd-launch closes all descriptors
        assert asker.ask(START, ticket, [lock, text], cut=1)[0] is None
        asker = Asker(d)
        d.until(lambda: asker.ask(KILL, ticket)[0] == KILLED, "it is not taken")
        before = len(os.listdir("/proc/%d/fd" % d.helper.pid))
        for many in (19, 20, 40):
            assert asker.ask(START, ticket, ([lock, text] * 20)[:many])[0] is None
            asker = Asker(d)
            assert asker.ask(KILL, ticket)[0] == KILLED
        for many in (3, 4, 18):
            assert "has %d descriptors" % many in asker.ask(START, ticket, ([lock, text] * 9)[:many], gpus=b"GPU-1"[:5 * (many > 3)])[1]
        d.until(lambda: len(os.listdir("/proc/%d/fd" % d.helper.pid)) <= before, "descriptors are left open")
        assert asker.ask(KILL, ticket, [lock])[0] == REFUSED
        # another key: every ticket is void
        d.stop_helper()
        os.unlink(d.root + "/launch/key")
        d.start_helper()
        asker = Asker(d)
        assert "not sealed" in asker.ask(START, ticket, [lock, text])[1]
        os.kill(d.proc.pid, signal.SIGCONT)


def programs_of_others():
    """detd-launch executes no file that another user than root could have written, and accepts no key that other users
    know."""
    with Node() as d:
        d.stop_helper()
        command = [d.bin + "/detd-launch", "--socket", d.socket, "--state", d.state, "--key", d.root + "/launch/key"]

        def says():
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 1 and not os.path.exists(d.socket), done
            return done.stderr
        for path in (d.root, d.bin, d.bin + "/detd-job"):
            os.chown(path, DETD, DETD)
            assert "'%s' must belong to root and be writable by root alone" % path in says()
            os.chown(path, 0, 0)
            os.chmod(path, 0o775)
            assert "'%s' must belong to root and be writable by root alone" % path in says()
            os.chmod(path, 0o755)
        os.chmod(d.root + "/launch/key", 0o640)
        assert "must be a file that belongs to root and that root alone may access" in says()
        os.chmod(d.root + "/launch/key", 0o600)
        command[0] = "setpriv"
        command[1:1] = ["--reuid", "ann", "--regid", "ann", "--clear-groups", d.bin + "/detd-launch"]
        assert "only root" in says()
        # each start looks again; others cannot replace what root has in a folder with the sticky bit
        os.chmod(d.root, 0o1777)
        d.start_helper()
        d.wait(d.submit_as(ANN, 10), "completed")
        os.chmod(d.bin, 0o775)
        job = d.submit_as(ANN, 10)
        d.until(lambda: "'%s' must belong to root" % d.bin in d.call("job.why", id=job)["text"], "it is started")
        os.chmod(d.bin, 0o755)
        d.wait(job, "completed")


class GpuNode(Node):
    """A node with two made-up GPUs, with their locks in a folder of detd's own."""

    def __init__(self, conf="", **more):
        self.locks = "/run/gpus-%d" % os.getpid()
        super().__init__(conf="gpu_locks = %s\n" % self.locks + conf, **more)
        os.mkdir(self.locks)
        os.chown(self.locks, DETD, DETD)
        os.makedirs("/run/lock", exist_ok=True)
        os.chmod("/run/lock", 0o1777)
        self.uuids = ["GPU-%d-%d" % (os.getpid(), i) for i in (0, 1)]
        with open(self.root + "/mock", "w") as f:
            f.writelines("gpu %s NVIDIA_H100_80GB_HBM3 81559 0\n" % u for u in self.uuids)
        os.environ["MOCK_NVML"] = self.root + "/mock"
        open(self.bin + "/libdetd-cuda.so", "w").close()

    def __exit__(self, *what):
        super().__exit__(*what)
        shutil.rmtree(self.locks)

    def lock(self, gpu):
        return "%s/%s.lock" % (self.locks, self.uuids[gpu])

    def holders(self, gpu):
        """{pid: its descriptors of the GPU's lock}"""
        found = {}
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            try:
                found[pid] = [fd for fd, path in open_files(pid).items() if path == self.lock(gpu)]
            except OSError:
                pass
        return {pid: fds for pid, fds in found.items() if fds}

    def supervisor(self, job):
        return next(p for p, name in self.members(job).items() if name == "detd-job")

    def is_locked(self, gpu):
        with open(self.lock(gpu)) as f:
            try:
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except OSError:
                return True

    def listed(self, gpu):
        """Returns the holders of the lock, as the kernel's list of locks has them."""
        ino = os.stat(self.lock(gpu)).st_ino
        with open("/proc/locks") as f:
            return [int(w[4]) for w in map(str.split, f) if w[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and int(w[5].split(":")[2]) == ino]


def locks_of_gpus():
    """Only detd takes the locks, and only its jobs hold them, whichever process is killed. The locks are free when the
    job's processes are gone."""
    with GpuNode() as d:
        job = d.submit_as(ANN, 100000, device="cuda")
        d.wait(job, lambda now: now["step"] > 3)

        def only_the_job_holds():
            holders, own = d.holders(0), d.supervisor(job)
            assert list(holders) == [own] and len(holders[own]) == 1 and d.listed(0) == [own], (holders, own, d.listed(0))
            assert status(own)["Uid"].split()[0] == str(ANN) and d.is_locked(0)
            return own
        assert d.job(job)["gpus"] == d.uuids[0]
        supervisor = only_the_job_holds()
        try:
            as_user(ANN, lambda: open(d.lock(0)))
            raise AssertionError("ann opens the lock")
        except PermissionError:
            pass
        # daemons of users see it, and two jobs of the node share no GPU
        other = Daemon(conf="gpu_locks = %s\n" % d.locks)
        open(other.bin + "/libdetd-cuda.so", "w").close()
        with other:
            other.until(lambda: other.call("gpu.list")["gpus"], "no GPUs")
            waits = other.submit(10, device="cuda", ranks=2)
            other.until(lambda: "GPU 0 is foreign: a job of another daemon has its lock" in other.call("job.why", id=waits)["text"],
                        "it does not wait")
        theirs = d.submit_as(BOB, 100000, device="cuda")
        d.wait(theirs, lambda now: now["step"] > 3)
        assert d.job(theirs)["gpus"] == d.uuids[1] and list(d.holders(1)) == [d.supervisor(theirs)]
        third = d.submit_as(BOB, 10, device="cuda")
        d.until(lambda: "GPU" in d.call("job.why", id=third)["text"], "it does not wait for a GPU")
        d.call("job.cancel", id=third)
        # detd is killed, and detd-launch
        d.kill()
        assert only_the_job_holds() == supervisor
        d.stop_helper()
        assert only_the_job_holds() == supervisor
        d.start()
        at = d.wait(job, lambda now: now["state"] == "running" and now["phase"] != "")["step"]
        d.wait(job, lambda now: now["step"] > at)
        assert only_the_job_holds() == supervisor
        # detd-job is killed: the next attempt has it
        os.kill(supervisor, signal.SIGKILL)
        d.wait(job, lambda now: now["attempt"] == 2 and now["state"] == "running" and now["phase"] != "starting", 90)
        assert only_the_job_holds() != supervisor
        for j in (job, theirs):
            d.call("job.cancel", id=j)
            d.wait(j, "cancelled")
        d.until(lambda: not d.is_locked(0) and not d.is_locked(1) and not d.holders(0) and not d.holders(1), "a lock is held")


def a_gpu_that_is_busy():
    """If the GPU was taken in the meantime, the job is given back and queued, and no process keeps a lock."""
    with GpuNode() as d:
        job = d.submit_as(ANN, 10, device="cuda", ranks=2)
        d.wait(job, "completed")
        d.until(lambda: all(g["state"] == "free" for g in d.call("gpu.list")["gpus"]), "no free GPUs")
        with open(d.lock(1)) as f:
            fcntl.flock(f, fcntl.LOCK_SH)  # no process sees that
            job = d.submit_as(ANN, 30, device="cuda", ranks=2)
            d.wait(job, lambda now: now["attempt"] >= 2)
            back = d.wait(job, "queued")
            words = "GPU %s is locked by a job of another daemon ('%s')" % (d.uuids[1], d.lock(1))
            assert back["reason"] == words and not d.events("attempt_ended", job), (back, words)
            assert d.proc.pid not in d.holders(0) and d.helper.pid not in d.holders(0) and d.proc.pid not in d.holders(1)
        done = d.wait(job, "completed")
        assert done["step"] == 30 and done["attempt"] >= 3 and len(d.events("attempt_ended", job)) == 0, done
        # a start that fails leaves nothing open with detd
        os.chmod(d.locks, 0o777)
        job = d.submit_as(ANN, 10, device="cuda")
        d.until(lambda: "is no folder that only detd may write" in d.call("job.why", id=job)["text"], "it does not say why it waits")
        d.until(lambda: not any("/held/" in path for path in open_files(d.proc.pid).values()),
                "detd holds the lock of a job that it could not start")
        os.chmod(d.locks, 0o755)
        d.wait(job, "completed")
        # a file that bob locks as a daemon of his does
        path = "/run/lock/detd-%s.lock" % d.uuids[0]
        as_user(BOB, lambda: open(path, "w").close())
        with open(path) as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            job = d.submit_as(ANN, 10, device="cuda")
            assert d.wait(job, "completed")["gpus"] in ("", d.uuids[1])
        d.until(lambda: not d.holders(0) and not d.holders(1), "a lock is held")


def a_lock_of_a_gpu_that_is_taken_away():
    """A process that takes the lock out of the job's scope holds no GPU."""
    with GpuNode() as d:
        job = d.submit_as(BOB, 100000, device="cuda")
        d.wait(job, lambda now: now["step"] > 3)
        supervisor = d.supervisor(job)
        kept = taken(supervisor, d.holders(0)[supervisor][0])
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: not of_uid(BOB), "it does not leave")
        if d.group:
            d.until(lambda: d.call("gpu.list")["gpus"][0]["state"] == "free", "it is not free")
            job = d.submit_as(ANN, 10, device="cuda", ranks=2)
            d.wait(job, "completed")
        else:
            d.until(lambda: d.is_locked(0), "nobody knows then what lives")
        os.close(kept)


def daemons_of_both_kinds():
    """The node's daemon and a user's daemon never share a GPU. Files in the folder where users' daemons lock take no
    GPU from the node's daemon."""
    with GpuNode() as node:
        user = Daemon(conf="gpu_locks = %s\n" % node.locks)
        open(user.bin + "/libdetd-cuda.so", "w").close()

        def free(d):
            d.until(lambda: [g["state"] for g in d.call("gpu.list")["gpus"]] == ["free"] * 2, "no free GPUs")

        def why(d, job):
            return d.call("job.why", id=job)["text"]
        with user:
            train = {
                node: lambda steps: node.submit_as(ANN, steps, device="cuda", ranks=2),
                user: lambda steps: user.submit(steps, device="cuda", ranks=2)
            }
            held = "GPU 0 is foreign: a job of another daemon has its lock"
            for one, other in ((user, node), (node, user)):
                free(one)
                first = train[one](100000)
                one.wait(first, "running")
                second = train[other](30)
                other.until(lambda d=other, j=second: held in why(d, j), "it does not wait")
                one.call("job.cancel", id=first)
                assert other.wait(second, "completed")["attempt"] == 1
                free(other)
            path = "/run/lock/detd-%s.lock" % node.uuids[0]
            os.unlink(path)
            for plant, remove, what in ((lambda: os.symlink("/etc/passwd", path), os.unlink, "a symbolic link"),
                                        (lambda: os.mkdir(path), os.rmdir, "no plain file")):
                plant()
                waits = train[user](5)
                node.wait(train[node](5), "completed")
                free(node)
                user.until(lambda w=what, j=waits: "'%s' is %s" % (path, w) in why(user, j) and user.job(j)["state"] == "queued",
                           "it does not wait")
                remove(path)
                user.wait(waits, "completed")
                free(user)
                os.unlink(path)
            os.unlink(node.lock(0))
            os.mkdir(node.lock(0))
            waits = train[node](5)  # in a lock's own place a folder is busy, and no failure of the job
            node.until(lambda: "GPU 0 is foreign: " in why(node, waits) and "'%s' is no plain file" % node.lock(0) in why(node, waits),
                       "it does not wait")
            os.rmdir(node.lock(0))
            node.wait(waits, "completed")


def options_of_the_helper():
    for value, why in (("0%", "must be 1% to 100%, is '0%'"), ("101%", "must be 1% to 100%, is '101%'"),
                       ("9x", "must be a number from 1, is '9x'"), ("-5", "must be a number from 1")):
        done = subprocess.run([BUILD + "/detd-launch", "--memory", value], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0 and "--memory: " + why in done.stderr, done


def without_scopes():
    """No cgroup: sessions stand for scopes, as they do without detd-launch, and that is said."""
    with Node(scopes=False) as d:
        d.until(lambda: "no scopes here" in open(d.root + "/log").read(), "it is not said")
        job, early = d.submit_as(ANN, 100000), d.submit_as(BOB, 100000)
        for each in (job, early):
            d.wait(each, lambda now: now["step"] > 3)
        assert status(min(d.processes(job)))["Uid"].split()[0] == "2001"
        for pid in of_uid(ANN):
            os.kill(pid, signal.SIGSTOP)
        d.call("job.cancel", id=job)
        d.until(lambda: not of_uid(ANN), "it lives", 120)
        d.wait(job, "cancelled", 60)
        assert any("its session" in text for text in d.events("kill", job)), d.events("kill", job)
        # the earlier detd-launch started these processes, so they are in no scope and in no known session of this
        # detd-launch: an empty scope does not prove that all have ended
        other = subprocess.Popen(["sleep", "1000"], user=BOB, group=BOB, extra_groups=[])
        for pid in of_uid(BOB):
            os.kill(pid, signal.SIGSTOP)
        d.stop_helper()
        d.use_scopes()
        d.start_helper()
        d.call("job.cancel", id=early)
        d.until(lambda: set(of_uid(BOB)) == {other.pid}, "it lives", 120)
        d.wait(early, "cancelled", 60)
        assert any("the processes that hold its lock" in text for text in d.events("kill", early)), d.events("kill", early)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "its slots are held")
        other.kill()
        other.wait()


def without_launch():
    """Without detd-launch detd answers and takes no job. Stored jobs wait; a job without a ticket, as earlier versions
    stored root's, waits for ever, in whatever state it was stored."""
    with Node() as d:
        done = d.submit_as(ANN, 30)
        d.wait(done, "completed")
        d.call("daemon.drain", reason="none starts")
        old = [d.submit_as(ANN, 100000) for _ in range(3)]
        d.stop_helper()
        d.call("daemon.undrain")
        for uid in (ANN, 0, DETD):
            e = refused(lambda u=uid: d.submit_as(u, 10))
            assert e.reason == "DENIED" and "detd-launch.socket" in str(e) and "detd --state DIR" in str(e), e
        assert d.call("daemon.info")["launch"] is False and d.job(done)["state"] == "completed"
        d.until(lambda: "detd-launch" in d.call("job.why", id=old[0])["text"], "it does not say why it waits")
        assert not of_uid(ANN), of_uid(ANN)
        d.kill()
        with sqlite3.connect(d.state + "/detd.db") as db:
            db.execute("UPDATE jobs SET ticket='', state='queued', attempt=0 WHERE id>1")
            db.execute("UPDATE jobs SET state='running', attempt=1, nonce='x' WHERE id>2")
            db.execute("UPDATE jobs SET state='stopping', want='cancel' WHERE id>3")
        d.wants = False
        d.start()
        assert "no detd-launch at" in open(d.root + "/log").read()
        d.start_helper()
        d.wait(old[2], "cancelled")
        d.wait(d.submit_as(ANN, 10), "completed")
        for job in old[:2]:
            why = d.call("job.why", id=job)["text"]
            assert d.job(job)["state"] == "queued" and "`detctl clone %d --as NAME`" % job in why, why
            d.of(ANN).call("job.cancel", id=job)
            d.wait(job, "cancelled")
        assert not any(d.members(job) for job in old)


SCENARIOS = [
    a_launch_that_does_not_answer, a_start_that_is_refused_and_tried_again, who_cancels_what_cannot_be_started, an_unusable_folder,
    a_hostile_job, who_says_hello_again_and_again, what_is_taken_away_while_nobody_looks, what_is_taken_away_while_detd_is_another,
    without_scopes, who_fills_the_disk, a_removal_that_is_held_up, jobs_run_as_their_submitters, who_speaks_for_a_job_that_has_left,
    the_last_word, a_doctor_sees_them, restarts, a_lock_that_is_taken_away, locks_of_gpus, a_gpu_that_is_busy,
    a_lock_of_a_gpu_that_is_taken_away, daemons_of_both_kinds, limits, links_in_its_own_folder, a_forged_ticket, programs_of_others,
    options_of_the_helper, without_launch
]


def apart(scenario):
    """Runs a scenario in namespaces of its own: its users, homes and processes are separate from others. The shell is
    the first process there, and waits for the remaining processes."""
    def lines(path, more):
        names = [line.split(":")[0] for line in more.splitlines()]
        return "".join(line for line in open(path) if line.split(":")[0] not in names) + more

    command = 'mount -t proc proc /proc && mount -t tmpfs -o mode=755 detd-e2e /run && ' \
        'printf %s "$0" >/run/passwd && printf %s "$1" >/run/group && shift && ' \
        'mount --bind /run/passwd /etc/passwd && mount --bind /run/group /etc/group && ' \
        'mount -t tmpfs -o mode=755 detd-e2e /home && { "$@"; exit $?; }'
    done = subprocess.run([
        "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", command,
        lines("/etc/passwd", PASSWD),
        lines("/etc/group", GROUP), sys.executable, sys.argv[0], scenario.__name__
    ], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          env=dict(os.environ, DETD_USERS="%d-%s" % (os.getpid(), scenario.__name__)), check=False)
    print(done.stdout, end="", flush=True)
    return done.returncode == 0


def run_here(scenario):
    start = time.time()
    scenario()
    print("ok %s (%.1f s)" % (scenario.__name__, time.time() - start), flush=True)


def unable():
    """Returns why scenarios cannot run here, or None."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True,
                                           check=False).returncode != 0:
        return "only root may become other users"
    return "sanitizers need what a job's user has not" if SANITIZED else None


def main(scenarios):
    if unable():
        print("skip: " + unable(), flush=True)
    elif INSIDE:
        run_here(next(s for s in scenarios if s.__name__ == sys.argv[1]))
    else:
        chosen = [s for s in scenarios if len(sys.argv) < 2 or s.__name__ in sys.argv[1:]]
        with concurrent.futures.ThreadPoolExecutor(5) as pool:  # each waits most of its time
            failed = [s.__name__ for s, well in zip(chosen, pool.map(apart, chosen)) if not well]
        assert not failed, failed
        if not hierarchy():
            print("skip: no control groups of version 2 can be made here", flush=True)


if __name__ == "__main__":
    main(SCENARIOS)
