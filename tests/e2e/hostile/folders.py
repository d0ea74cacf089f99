#!/usr/bin/env python3
"""bob leads each path of his jobs' folders to a file system that never answers, as a user of FUSE can. ann and root do
not notice: detd and detd-launch look at no path of bob's, and neither does detctl for others."""  # SPDX-License-Identifier: Apache-2.0
import ctypes
import errno
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from daemon import BUILD  # noqa: E402
from launch import ANN, BOB, Node, as_user, main, of_uid, refused  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
INIT, FORGET, BATCH_FORGET = 26, 2, 42
SOON_S = 15  # on a busy machine; a process that waits for bob waits for ever


class Dead:
    """A mount of a folder, or of a file that is there. Its server takes requests and never answers, so not even SIGKILL
    ends a process with a request. With `error` it answers each request with that error."""

    def __init__(self, where, error=0):
        self.where, self.fd, self.over = where, os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK), False
        self.error = error
        if not os.path.exists(where):
            os.makedirs(where)
        options = b"fd=%d,rootmode=%o,user_id=%d,group_id=%d,allow_other" % (self.fd, os.stat(where).st_mode & 0o170000, BOB, BOB)
        assert LIBC.mount(b"dead", where.encode(), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while not self.over:
            if select.select([self.fd], [], [], 0.1)[0]:
                _, operation, unique = struct.unpack_from("<IIQ", os.read(self.fd, 1 << 17))
                if operation == INIT:
                    os.write(self.fd, struct.pack("<IiQIIIIHHIIHHI28x", 80, 0, unique, 7, 31, 0, 0, 12, 9, 4096, 1, 1, 0, 0))
                elif self.error and operation not in (FORGET, BATCH_FORGET):
                    os.write(self.fd, struct.pack("<IiQ", 16, -self.error, unique))

    def close(self):
        self.over = True
        self.thread.join()
        os.close(self.fd)  # ends the mount, and each wait for it
        LIBC.umount2(self.where.encode(), 2)


def lead_away(folder, dead):
    """Replaces everything in the folder, and what detd might look for there, by links to the mount."""
    os.chmod(folder, 0o711)
    for name in set(os.listdir(folder)) | {"spool.0", "spool.1", "checkpoints", "evidence.json", "lock", "store", "end"}:
        if os.path.lexists(folder + "/" + name):
            os.rename(folder + "/" + name, folder + "/was-" + name)
        os.symlink(dead + "/x", folder + "/" + name)


def silent_job(d, uid=BOB, home="/home/bob"):
    """A job that has reported nothing yet: its rank sleeps before its first line."""
    with open(home + "/sitecustomize.py", "w") as f:
        f.write("import time\ntime.sleep(1000)\n")
    os.chmod(home + "/sitecustomize.py", 0o644)
    job = d.submit_as(uid, 20, STEP_S="0", PYTHONPATH=home)
    d.until(lambda: len(d.members(job)) == 2 and d.job(job)["phase"], "it does not start")
    return job


def soon(what):
    began = time.monotonic()
    result = what()
    assert time.monotonic() - began < SOON_S, "%.0f s" % (time.monotonic() - began)
    return result


def shown(d, uid, job):
    return subprocess.run([BUILD + "/detctl", "--socket", d.path, "show", str(job)], user=uid, group=uid, extra_groups=[],
                          stdout=subprocess.PIPE, text=True, timeout=SOON_S, check=True).stdout


def others_work(d, theirs):
    """ann and root look at each job, and ann's jobs come and go."""
    for uid in (ANN, 0):
        client = d.of(uid)
        for job in theirs:
            for method in ("job.get", "job.why", "job.logs", "loss.query", "event.query"):
                soon(lambda m=method, j=job, c=client: c.call(m, id=j))
            assert "bob" in shown(d, uid, job)
        soon(lambda c=client: c.call("job.list"))
    ended, killed = soon(lambda: d.submit_as(ANN, 10, STEP_S="0")), d.submit_as(ANN, 100000)
    soon(lambda: d.wait(ended, "completed"))
    soon(lambda: d.wait(killed, lambda now: now["step"] > 3))
    soon(lambda: d.of(ANN).call("job.cancel", id=killed))
    soon(lambda: d.wait(killed, "cancelled"))


def a_disk_that_does_not_answer():
    if not os.access("/dev/fuse", os.W_OK):
        print("skip: no /dev/fuse", flush=True)
        return
    with Node(conf="user_running = 9\n") as d:
        bob, dead = d.of(BOB), [Dead("/run/dead")]
        try:
            done, rests, mute = d.submit_as(BOB, 20, STEP_S="0"), d.submit_as(BOB, 100000), silent_job(d)
            d.wait(done, "completed")
            d.wait(rests, lambda now: now["step"] > 12)
            bob.call("job.pause", id=rests)
            d.wait(rests, "paused")
            d.until(lambda: set(of_uid(BOB)) == set(d.members(mute)), "they do not leave")
            # what detd-launch finds in the place of a folder: a mount, which it has seen since its start
            dead.append(Dead(d.folder(rests)))
            d.stop_helper()
            d.start_helper()
            as_user(BOB, lambda: lead_away(d.folder(done), "/run/dead"))
            bob.call("job.resume", id=rests)
            # a job that is cancelled before its first report
            own = d.members(mute)
            for pid in own:
                os.kill(pid, signal.SIGSTOP)
            as_user(BOB, lambda: lead_away(d.folder(mute), "/run/dead"))
            bob.call("job.cancel", id=mute)
            for pid in own:
                d.signal(pid, signal.SIGKILL)
            many = [d.of(BOB) for _ in range(8)]  # more than detd has threads
            for client in many:
                client.sock.sendall(b'{"jsonrpc":"2.0","id":1,"method":"job.get","params":{"id":%d}}\n' % done)
            others_work(d, (done, rests, mute))
            soon(lambda: bob.call("job.extend", id=done, steps=60))
            assert "run.diff" in str(refused(lambda: bob.call("run.diff", a=done, b=rests)))  # detd parses no evidence
            others_work(d, (done, rests, mute))
            d.kill()
            soon(d.start)
            others_work(d, (done, rests, mute))
        finally:
            for each in dead:
                each.close()
        for job in (done, rests):
            d.call("job.cancel", id=job)


def a_disk_that_fails():
    """The disk of ann's folder fails before her job has reported anything: its job file cannot be written. The job waits
    without slots, and runs when the disk works again."""
    if not os.access("/dev/fuse", os.W_OK):
        print("skip: no /dev/fuse", flush=True)
        return
    with Node() as d:
        job = silent_job(d, ANN, "/home/ann")
        new = d.folder(job) + "/spec.json.new"
        as_user(ANN, lambda: os.close(os.open(new, os.O_CREAT | os.O_WRONLY, 0o600)))
        broken = Dead(new, errno.EIO)
        try:
            d.stop_helper()
            d.start_helper()  # which sees the mount from its start
            os.unlink("/home/ann/sitecustomize.py")
            d.kill_session(job)
            d.wait(job, lambda now: now["state"] == "queued" and "Input/output error" in now["reason"])
            assert d.call("daemon.info")["cpu_free"] == 8
        finally:
            broken.close()
        d.stop_helper()
        d.start_helper()
        d.wait(job, "completed")


def waits_in_the_kernel(d, job):
    """Whether a process of the job waits so that not even SIGKILL ends it: for FUSE, or behind one that waits for
    FUSE."""
    for pid in d.members(job):
        with open("/proc/%d/stat" % pid) as stat, open("/proc/%d/wchan" % pid) as where:
            if stat.read().rpartition(")")[2].split()[0] == "D" or where.read() == "request_wait_answer":
                return True
    return False


def killed_ranks_that_do_not_end():
    """Killed ranks wait for a mount of bob's that is served from outside of their jobs. Others get their slots. The jobs
    are not started again and not removed before the ranks have ended."""
    if not os.access("/dev/fuse", os.W_OK):
        print("skip: no /dev/fuse", flush=True)
        return
    dead = Dead("/run/dead")
    with Node(conf="user_running = 9\n") as d:
        try:
            with open("/home/bob/sitecustomize.py", "w") as f:
                f.write("import os\nos.stat('/run/dead/x')\n")
            os.chmod("/home/bob/sitecustomize.py", 0o644)
            cancelled, lost = (d.submit_as(BOB, 20, STEP_S="0", PYTHONPATH="/home/bob") for _ in range(2))
            for job in (cancelled, lost):
                d.until(lambda j=job: waits_in_the_kernel(d, j), "no rank waits")
            assert d.call("daemon.info")["cpu_free"] == 6
            d.of(BOB).call("job.cancel", id=cancelled)
            for job in (cancelled, lost):
                d.signal(d.session(job), signal.SIGKILL)
            d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "slots are held", 120)
            for job in (cancelled, lost):
                assert waits_in_the_kernel(d, job) and "do not end" in d.call("job.why", id=job)["text"], d.call("job.why", id=job)
                assert d.job(job)["state"] in ("running", "starting", "stopping"), d.job(job)
                refused(lambda j=job: d.of(BOB).call("job.rm", id=j))
            refused(lambda: d.of(BOB).call("job.resume", id=cancelled))
            left = [d.members(job) for job in (cancelled, lost)]
            d.wait(d.submit_as(ANN, 5, STEP_S="0"), "completed")
            assert left == [d.members(job) for job in (cancelled, lost)]
            os.unlink("/home/bob/sitecustomize.py")
        finally:
            dead.close()
        d.wait(cancelled, "cancelled")
        d.wait(lost, "completed")
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 8, "slots are held")


def what_is_no_longer_there():
    """detd tells each checkpoint of a user's job to be there; detctl looks itself, for the job's user."""
    with Node() as d:
        job = d.submit_as(ANN, 20, STEP_S="0")
        d.wait(job, "completed")
        d.until(lambda: not of_uid(ANN), "it does not leave")
        steps = [c["step"] for c in d.job(job)["checkpoints"]]
        as_user(ANN, lambda: os.rename("%s/checkpoints/step-%d" % (d.folder(job), steps[0]), d.folder(job) + "/away"))
        assert len(steps) == 2 and all(c["there"] for c in d.of(ANN).call("job.get", id=job)["checkpoints"]), d.job(job)
        for uid, seen in ((ANN, steps[1:]), (BOB, steps)):
            told = [line.split()[2] for line in shown(d, uid, job).splitlines() if line.startswith("checkpoint ")]
            assert told == ["%d," % step for step in seen], (uid, told)


if __name__ == "__main__":
    main([a_disk_that_does_not_answer, a_disk_that_fails, killed_ranks_that_do_not_end, what_is_no_longer_there])
