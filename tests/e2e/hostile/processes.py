#!/usr/bin/env python3
"""What bob's processes do to those that serve all users: they trace a job's, bear children for detd-launch, and hand out
descriptors that take long to close."""  # SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import os
import signal
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from launch import ANN, BOB, Node, as_user, main, of_uid  # noqa: E402
from shares import Hostile  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
SEIZE, TRACE_EXIT, SET_PTRACER = 0x4206, 0x40, 0x59616d61


def tracer(pid):
    """A process of bob's, outside of the job, that traces a process and never waits for it: when that is killed, it
    stops in the middle of its exit."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(BOB)
        os.setuid(BOB)
        os.write(theirs, b"%d" % LIBC.ptrace(SEIZE, pid, None, ctypes.c_long(TRACE_EXIT)))
        while True:
            signal.pause()
    os.close(theirs)
    said = os.read(ours, 9)
    os.close(ours)
    return child if said == b"0" else None


def a_traced_job_keeps_no_slots():
    """A job with a traced rank, and one with a traced detd-job, give their slots back after a cancel."""
    with Node(conf="user_running = 9\n") as d:
        jobs = [d.submit_as(BOB, 100000) for _ in range(2)]
        for job in jobs:
            d.wait(job, lambda now: now["step"] > 3)
        traced = [d.session(jobs[0]), next(p for p in d.members(jobs[1]) if p != d.session(jobs[1]))]
        tracers = [tracer(pid) for pid in traced]
        if None in tracers:
            print("skip: no process may trace another one here", flush=True)
            return
        for job in jobs:
            d.of(BOB).call("job.cancel", id=job)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "a slot is held", 240)
        for job in jobs:
            d.wait(job, "cancelled")
            d.of(BOB).call("job.rm", id=job)
        d.until(lambda: not any(os.path.exists(d.folder(job)) for job in jobs), "a folder stays")
        for pid in tracers:
            os.waitpid(pid, 0)
        d.until(lambda: not of_uid(BOB), "processes stay")
        d.wait(d.submit_as(ANN, 10, STEP_S="0"), "completed")


class Lingering:
    """A TCP socket whose last close waits for its data to be read, which nobody does. It is passed to detd."""

    def __init__(self):
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        server.bind(("127.0.0.1", 0))
        server.listen()
        self.sock = socket.create_connection(server.getsockname())
        self.other = server.accept()[0]
        server.close()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1000))
        try:
            while True:
                self.sock.send(bytes(1 << 16))
        except BlockingIOError:
            pass

    def passed(self, way, text=b"x"):
        """Sends it with the text. The message then has its last reference."""
        socket.send_fds(way, [text], [self.sock.fileno()])
        self.sock.close()


def held(process, what):
    """Calls what() while the process is stopped."""
    process.send_signal(signal.SIGSTOP)
    try:
        return what()
    finally:
        process.send_signal(signal.SIGCONT)


def descriptors_that_linger():
    """bob passes descriptors with his requests. Their last close does not keep detd, nor detd-launch."""
    with Node(conf="user_running = 9\n") as d:
        job, ann = d.submit_as(BOB, 100000), d.of(ANN)
        d.wait(job, lambda now: now["step"] > 3)
        spec = ann.call("job.get", id=job)["spec"]
        spec["run"]["env"] = {}
        submit = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "job.submit", "params": {"token": "t", "spec": spec}}).encode() + b"\n"
        sup = as_user(BOB, lambda: Hostile.connect(d.state))
        for way, before in ((d.of(BOB).sock, b""), (d.of(BOB).sock, b"no request\n" * 4000), (sup, b"no hello\n" * 4000)):
            bomb = Lingering()

            def send(w=way, b=before, it=bomb):
                w.sendall(b)
                it.passed(w)
            held(d.proc, send)
            ann.call("daemon.info")
            way.close()
            ann.call("daemon.info")
        full = [d.of(BOB) for _ in range(128)]  # the next one is refused, and never read
        for client in full:
            client.call("subscribe")
        bomb = Lingering()
        held(d.proc, lambda: bomb.passed(d.of(BOB).sock))
        ann.call("daemon.info")
        for client in full:
            client.close()
        # detd leaves the client while detd-launch has its connection, too
        bob, bomb, number = d.of(BOB), Lingering(), d.sql("SELECT seq FROM sqlite_sequence WHERE name='jobs'")

        def left():
            try:
                return not bob.sock.send(b"\n")
            except BrokenPipeError:
                return True

        def seal():
            bob.sock.sendall(submit)
            d.until(lambda: d.sql("SELECT seq FROM sqlite_sequence WHERE name='jobs'") != number, "it gets no number")
            ann.call("daemon.info")
            bomb.passed(bob.sock)
            d.until(left, "it is not left")
        held(d.helper, seal)
        d.wait(d.submit_as(ANN, 10, STEP_S="0"), "completed")
        d.of(BOB).call("job.cancel", id=job)


if __name__ == "__main__":
    main([a_traced_job_keeps_no_slots, descriptors_that_linger])
