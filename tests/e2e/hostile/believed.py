#!/usr/bin/env python3
"""What detd does not believe: bob's supervisors keep no deadline, and an older database, an account of another user and a
ticket of another job reach nothing."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from launch import ANN, BOB, KILL, KILLED, SEAL, SEALED, START, STARTED, Asker, Node, as_user, blank, main, memory, of_uid  # noqa: E402
from shares import Hostile  # noqa: E402


class Deaf:
    """A supervisor of bob's in the place of detd-job: says that it is well, and does nothing that it is told."""

    def __init__(self, d, job):
        d.until(lambda: d.nonce(job), "its detd-job does not run")
        nonce = d.nonce(job)
        d.signal_supervisor(job, signal.SIGSTOP)
        self.sock, self.lock = socket.socket(socket.AF_UNIX), threading.Lock()
        as_user(BOB, lambda: self.sock.connect(d.state + "/sup.sock"))
        self.say(type="hello", protocol=1, job=job, attempt=1, nonce=nonce, pid=1, beats=True)
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.over = threading.Event()
        self.thread.start()

    def say(self, **message):
        self.sock.sendall(json.dumps(message).encode() + b"\n")

    def live(self):
        try:
            while not self.over.wait(0.5):
                self.say(type="status", attempt=1, step=1, phase="forward", images_per_s=1, cpu_seconds=1, seconds=1, max_rss=1, ranks=[])
        except OSError:
            pass  # it was hung up on

    def end(self):
        self.over.set()
        self.thread.join()
        self.sock.close()


def submit(d, uid, steps, **run):
    return as_user(uid, lambda: d.submit(steps, **run))


def who_does_not_make_room():
    """The slots that bob's job was lent as backfill go to the job ahead, whatever his supervisor says."""
    with Node(conf="leave_deadline = 1\nfair_share = off\n") as d:  # on a slow machine ann has had more, and bob is ahead
        holder = submit(d, ANN, 100000, threads=7)
        d.wait(holder, "running")
        head = submit(d, ANN, 5, threads=8)
        past = submit(d, BOB, 100000, threads=1)
        d.wait(past, lambda now: now["step"] > 3 and now["backfill"])
        deaf = Deaf(d, past)
        try:
            d.of(ANN).call("job.cancel", id=holder)
            d.wait_event("room", past)
            d.wait(head, "completed", 100)
            assert d.events("kill", past)
        finally:
            deaf.end()
        d.wait(past, lambda now: now["state"] == "running" and now["attempt"] >= 2)  # it lost nothing but its slots
        d.of(BOB).call("job.cancel", id=past)
        d.wait(past, "cancelled")


def who_does_not_end_in_time():
    with Node(conf="leave_deadline = 1\n") as d:
        job = submit(d, BOB, 100000, threads=1, time_limit=5)
        deaf = Deaf(d, job)
        try:
            d.wait_event("limit", job, 100)
            assert d.sql("SELECT state, want FROM jobs WHERE id=?", job) == [("stopping", "cancel")]
        finally:
            deaf.end()


def what_is_reported():
    """Times and attempts that bob's supervisor reports are bounded, its paths lead nowhere, and a text that is cut in a
    character is stored whole. The job goes on afterwards."""
    with Node() as d:
        began, job = time.time(), d.submit_as(BOB, 100000, HOLD="15")
        d.held(job, 15)
        d.until(lambda: d.sql("SELECT max(step) FROM loss WHERE job=?", job) == [(14,)], "its own reports are not stored")
        sup = Hostile(d, job)
        for record in ({"type": "attempt", "attempt": 2 ** 31 - 1, "resume_step": 10, "time": 1e12},
                       {"type": "checkpoint", "step": 10, "phase": "published", "path": "../../detd.db", "bytes": 4, "time": -1e12},
                       {"type": "data", "split": "train", "images": 1, "skipped": 1, "bad": ["x" + "\u00e9" * 600], "time": 1e12}):
            sup.sock.sendall(sup.report(record))
        d.until(lambda: d.sql("SELECT last_seq FROM jobs WHERE id=?", job)[0][0] >= sup.seq, "its reports are not stored")
        times = d.sql("SELECT time FROM events WHERE job=? UNION ALL SELECT time FROM checkpoints WHERE job=?", job, job)
        assert all(began - 1 < at < time.time() + 1 for (at,) in times), times
        assert any("\u00e9" in text for (text,) in d.sql("SELECT text FROM events WHERE job=? AND kind='data'", job))
        assert [c["path"] for c in d.job(job)["checkpoints"] if c["step"] == 10] == [d.folder(job) + "/checkpoints/step-10"], d.job(job)
        sup.sock.close()
        d.kill_session(job)
        d.wait(job, lambda now: now["state"] == "running" and now["attempt"] == 2)


def numbers_of_an_older_database():
    """ann's new job has a number of its own, though the database has forgotten bob's job, which still runs."""
    with Node() as d:
        d.wait(submit(d, ANN, 3), "completed")
        d.stop()
        shutil.copytree(d.state, d.root + "/copy", ignore=lambda at, names: [n for n in names if not n.startswith("detd.db")])
        d.start()
        forgotten = submit(d, BOB, 100000, threads=1)
        d.wait(forgotten, lambda now: now["step"] > 3)
        own = d.processes(forgotten)
        d.stop()
        for name in os.listdir(d.state):
            if name.startswith("detd.db"):
                os.unlink(d.state + "/" + name)
        for name in os.listdir(d.root + "/copy"):
            shutil.copy(d.root + "/copy/" + name, d.state)
            shutil.chown(d.state + "/" + name, "detd", "detd")
        d.start()
        job = submit(d, ANN, 100000, threads=1)
        assert job > forgotten, (job, forgotten)
        d.wait(job, lambda now: now["step"] > 3)
        d.of(ANN).call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: not of_uid(ANN), "it does not leave")
        assert set(of_uid(BOB)) == set(own), "bob's job was killed"


def a_ticket_of_that_number():
    """A ticket reaches only what it has started, not the job of another ticket with that number."""
    with Node() as d:
        os.kill(d.proc.pid, signal.SIGSTOP)  # its connection is taken over
        asker, spec, tickets = Asker(d), json.dumps({"run": {}}).encode(), []
        server = socket.socket(socket.AF_UNIX)
        server.bind(d.root + "/run/server")
        server.listen(8)
        os.chmod(d.root + "/run/server", 0o666)
        for uid, name in ((ANN, b"ann"), (BOB, b"bob")):
            client = socket.socket(socket.AF_UNIX)
            as_user(uid, lambda c=client: c.connect(d.root + "/run/server"))
            accepted = server.accept()[0]
            kind, why, ticket = asker.ask(SEAL, blank(77, spec, user=name), [accepted.fileno()])
            assert kind == SEALED, why
            tickets.append(ticket)
        lock = os.open(d.root + "/lock", os.O_RDWR | os.O_CREAT)
        assert asker.ask(START, tickets[0], [lock, memory(spec)])[0] == STARTED
        d.until(lambda: of_uid(ANN), "it does not start")
        os.kill(of_uid(ANN)[0], signal.SIGSTOP)  # else it ends by itself: there is no such job
        assert asker.ask(KILL, tickets[1])[0] == KILLED and of_uid(ANN)
        assert asker.ask(KILL, tickets[0])[0] == KILLED
        d.until(lambda: not of_uid(ANN), "it lives")
        os.kill(d.proc.pid, signal.SIGCONT)


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def an_account_of_another():
    """Jobs of an account that is expired, or whose number has gone to another account, wait without slots."""
    entry = "ann:!:19000:0:99999:7::%s:\n"  # its password is locked, which is no reason
    write("/run/shadow", entry % "")
    subprocess.run(["mount", "--bind", "/run/shadow", "/etc/shadow"], check=True)
    with Node() as d:
        ann = d.of(ANN)
        job = submit(d, ANN, 100000, threads=1, on_end="touch $HOME/ended")
        d.wait(job, lambda now: now["step"] > 3)
        for pid in d.processes(job) if os.path.exists("/proc/self/loginuid") else ():
            with open("/proc/%d/loginuid" % pid) as f, open("/proc/self/loginuid") as own:
                assert f.read() == str(ANN) or own.read() != str(2 ** 32 - 1)

        def waits(why):
            d.until(lambda: why in d.call("job.why", id=job)["text"], "it starts")
            d.until(lambda: d.call("daemon.info")["cpu_free"] == 8 and d.job(job)["state"] == "queued", "it holds its slots")
            assert why in d.job(job)["reason"] and not of_uid(ANN), d.job(job)
        ann.call("job.pause", id=job)
        d.wait(job, "paused")
        write("/run/shadow", entry % "1")
        ann.call("job.resume", id=job)
        waits("the account of ann is expired")
        write("/run/shadow", entry % "")
        ann.call("job.resume", id=job)
        d.wait(job, "running")
        ann.call("job.pause", id=job)
        d.wait(job, "paused")
        os.path.exists("/home/ann/ended") and os.unlink("/home/ann/ended")
        with open("/etc/passwd") as f:
            users = f.read()
        write("/run/passwd", users.replace("ann:x:", "eve:x:"))
        d.call("job.resume", id=job)
        waits("user %d is eve now, and the job belongs to ann" % ANN)
        assert not os.path.exists("/home/ann/ended")
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.call("job.rm", id=job)
        d.until(lambda: not os.path.exists(d.folder(job)), "its folder stays")


if __name__ == "__main__":
    main([
        who_does_not_end_in_time, who_does_not_make_room, what_is_reported, numbers_of_an_older_database, a_ticket_of_that_number,
        an_account_of_another
    ])
