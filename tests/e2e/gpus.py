#!/usr/bin/env python3
"""GPUs under a real detd: grants, foreign use, quarantine, locks, a driver that hangs.
usage: gpus.py [SCENARIO ...]"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import glob
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time

from daemon import BUILD, HERE, SANITIZED, Daemon, Refused, leave_fault, run_scenarios

H100 = "NVIDIA_H100_80GB_HBM3"


class Node(Daemon):
    """A detd with made-up GPUs. A test may change self.lines; write() then makes the driver report the change."""

    def __init__(self, gpus=2, plugin=True, deadline=20, uuids=None, **more):
        super().__init__(**more)
        self.mock = self.root + "/mock"
        name = "%d-%d" % (os.getpid(), random.randrange(1 << 30))
        self.uuids = uuids or ["GPU-%s-%d" % (name, i) for i in range(gpus)]
        self.used, self.extra, self.flags = {u: 0 for u in self.uuids}, [], {u: "" for u in self.uuids}
        self.write()
        with open(self.root + "/conf", "a") as f:
            f.write("gpu_deadline = %d\n" % deadline)
        if plugin:
            open(self.bin + "/libdetd-cuda.so", "w").close()

    def __exit__(self, *what):
        super().__exit__(*what)
        for u in self.uuids:
            for path in glob.glob("/run/lock/detd-%s.lock" % u) + glob.glob("/tmp/detd-%s.lock" % u):
                os.unlink(path)

    def write(self):
        with open(self.mock + ".new", "w") as f:
            for u in self.uuids:
                f.write("gpu %s %s 81559 %d %s\n" % (u, H100, self.used[u], self.flags[u]))
            f.write("".join(line + "\n" for line in self.extra))
        os.rename(self.mock + ".new", self.mock)

    def start(self, wait=True):
        os.environ["MOCK_NVML"] = self.mock
        return super().start(wait)

    def gpus(self):
        """Returns the GPUs by number, at most two seconds old."""
        return self.call("gpu.list")["gpus"]

    def wait_gpu(self, i, test, seconds=120):
        until = time.time() + seconds
        while True:
            now = self.gpus()[i]
            if now["state"] == test if isinstance(test, str) else test(now):
                return now
            assert time.time() < until, now
            time.sleep(0.1)

    def train(self, steps=1000000, **run):
        return self.submit(steps, every=run.pop("every", 20), **dict({"device": "cuda"}, **run))

    def visible(self, job, rank):
        """Returns CUDA_VISIBLE_DEVICES of the rank's newest attempt."""
        until = time.time() + 120
        while True:
            try:
                found = re.findall(r"environment (\{.*\}) descriptors", open("%s/jobs/%d/log/rank-%d.log" % (self.state, job, rank)).read())
            except OSError:
                found = []
            if found:
                return json.loads(found[-1]).get("CUDA_VISIBLE_DEVICES")
            assert time.time() < until, "no environment of rank %d" % rank
            time.sleep(0.05)

    def why(self, job):
        return self.call("job.why", id=job)["text"]

    def ctl(self, *args, code=0):
        done = subprocess.run([BUILD + "/detctl", "--socket", self.path, *args], capture_output=True, text=True)
        assert done.returncode == code, (args, done)
        return done.stdout + done.stderr


def refused(field, words, call):
    try:
        call()
    except Refused as e:
        assert e.field == field and words in str(e), (e.field, str(e))
        return
    assert False, "was not refused"


def documented(method):
    """Members of the first reply to `method` in PROTOCOL.md."""
    text = open(HERE + "/../../proto/PROTOCOL.md").read()
    return json.loads(re.search(r'"method":"%s".*\n← (.*)' % re.escape(method), text).group(1))["result"]


def inventory():
    with Node(3) as d:
        gpu, mig = d.uuids[1], d.uuids[2].replace("GPU", "MIG")
        d.used[gpu], d.flags[gpu], d.flags[d.uuids[2]] = 4000, "ecc=2", "mig"
        d.extra = ["mig %s %s %s 9856 12 7" % (mig, d.uuids[2], H100 + "_MIG_1g.10gb")]
        d.write()
        try:
            d.call("gpu.list")
            got = d.gpus()
            assert [g["index"] for g in got] == [0, 1, 2, 2] and [g["uuid"] for g in got] == d.uuids + [mig], got
            assert [g["state"] for g in got] == ["free", "foreign", "divided", "free"], got
            assert got[3]["name"] == "NVIDIA H100 80GB HBM3 MIG 1g.10gb" and got[3]["utilisation"] is None
            assert (got[1]["memory_used"], got[1]["memory_bytes"]) == (4000 << 20, 81559 << 20)
            assert (got[1]["utilisation"], got[1]["temperature"], got[1]["power_w"], got[1]["ecc_errors"]) == (97, 41, 123, 2)
            assert got[1]["driver"] == "580.65.06" and "no process is listed" in got[1]["reason"], got[1]
            want = documented("gpu.list")
            assert want.keys() == d.call(
                "gpu.list").keys() and want["gpus"][0].keys() == got[0].keys(), got[0].keys() ^ want["gpus"][0].keys()
            info = d.call("daemon.info")
            assert (info["gpus"], info["gpus_free"], info["gpu_trouble"]) == (3, 2, ""), info
            table = d.ctl("gpus")
            assert "MIG 1g.10gb" in table and "97 %" in table and "3.9 GiB / 80 GiB" in table and "quarantined" not in table, table
            assert [g["uuid"] for g in json.loads(d.ctl("gpus", "--json"))] == d.uuids + [mig]
            jobs = [d.train() for _ in range(2)]
            for j in jobs:
                d.wait(j, "running")
            assert [d.visible(j, 0) for j in jobs] == [d.uuids[0], mig]
            d.stop()
            os.environ["CUDA_VISIBLE_DEVICES"] = "2," + d.uuids[0]
            d.start()
            assert [g["uuid"] for g in d.gpus()] == [d.uuids[0], d.uuids[2], mig]
        finally:
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            d.uuids.append(mig)
            d.used[mig], d.flags[mig] = 0, ""


def lock_holder(uuid, how=fcntl.LOCK_EX):
    """Returns the open lock file of the GPU, locked in this way, or None if another process holds it."""
    path = max(glob.glob("/run/lock/detd-%s.lock" % uuid) + glob.glob("/tmp/detd-%s.lock" % uuid), default=None)
    f = open(path)
    try:
        fcntl.flock(f, how | fcntl.LOCK_NB)
        return f
    except OSError:
        return None


def grants_and_locks():
    with Node(2) as d:
        job = d.train(ranks=2)
        d.wait(job, "running")
        assert [d.visible(job, r) for r in range(2)] == d.uuids
        assert [(g["state"], g["job"]) for g in d.gpus()] == [("granted", job)] * 2
        assert all(lock_holder(u) is None for u in d.uuids)
        assert d.job(job)["gpus"] == ",".join(d.uuids) and d.uuids[1] in d.ctl("show", str(job))
        waiting = d.train()
        assert d.why(waiting) == "needs 1 GPUs at once, 0 of 2 are free", d.why(waiting)
        refused("run.ranks", "asks for 3 GPUs, this node has 2", lambda: d.train(ranks=3))
        d.kill()  # the job continues, and the next daemon knows which GPUs it holds
        d.start()
        assert [(g["state"], g["job"]) for g in d.gpus()] == [("granted", job)] * 2
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.wait(waiting, "running")
        d.wait_gpu(1, "free")
        assert lock_holder(d.uuids[1]) is not None and d.job(job)["gpus"] == ""


def ranks_share_a_gpu():
    with Node(2) as d:
        job = d.train(60, ranks=3, ranks_per_gpu=2, env={"CUDA_VISIBLE_DEVICES": "7", "STEP_S": "0.02"})
        assert [d.visible(job, r) for r in range(3)] == [d.uuids[0]] * 2 + [d.uuids[1]]
        assert d.wait(job, "completed")["step"] == 60
        job = d.train(30, ranks=4, ranks_per_gpu=8)
        other = d.train(30)
        assert {d.visible(job, r) for r in range(4)} == {d.visible(job, 0)}
        assert d.visible(other, 0) != d.visible(job, 0)
        d.wait(job, "completed")
        d.wait(other, "completed")


@contextlib.contextmanager
def stranger():
    """A process that belongs to no job."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def foreign_use():
    with Node(1) as d, stranger() as other:
        d.extra, d.used[d.uuids[0]] = ["process %s %d 9000" % (d.uuids[0], other.pid)], 9000
        d.write()
        d.wait_gpu(0, "foreign")
        job = d.train(30)
        assert "GPU 0 is foreign: used by process %d (sleep) with 9.4 GB" % other.pid in d.why(job), d.why(job)
        assert ", and 0 more" not in d.why(job), d.why(job)
        assert d.gpus()[0]["processes"] == [{"pid": other.pid, "name": "sleep", "memory_bytes": 9000 << 20}]
        assert "(sleep)" in d.ctl("gpus") and d.job(job)["state"] == "queued"
        d.extra = []  # of another container: it is not listed, and its memory is gone all the same
        d.write()
        d.wait_gpu(0, lambda g: not g["processes"])
        assert "GPU 0 is foreign: 9.4 GB are in use and no process is listed" in d.why(job), d.why(job)
        d.used[d.uuids[0]] = 0
        d.write()
        d.wait(job, "completed")
        assert len(d.events("gpu_foreign")) == 2, d.events("gpu_foreign")


def foreign_use_beside_a_job():
    with Node(1) as d, stranger() as other:
        job = d.train()
        d.wait(job, "running")
        own = next(p for p, name in d.members(job).items() if name != "detd-job")
        d.extra = ["process %s %d 9000" % (d.uuids[0], own)]
        d.write()
        now = d.wait_gpu(0, lambda g: g["processes"])
        assert (now["state"], now["foreign"], now["processes"][0]["pid"]) == ("granted", "", own), now
        d.extra.append("process %s %d 100" % (d.uuids[0], other.pid))
        d.write()
        assert str(other.pid) in d.wait_event("gpu_foreign", job)[0]
        assert d.gpus()[0]["state"] == "granted" and d.job(job)["state"] == "running"


def errors_move_the_job():
    with Node(2) as d:
        job = d.train(every=5)
        d.wait(job, lambda j: j["step"] > 10)
        d.extra = ["xid %s 31" % d.uuids[0]]
        d.write()
        d.wait_event("gpu_xid", job)
        assert d.gpus()[0]["state"] == "granted"
        d.extra.append("xid %s 79" % d.uuids[0])
        d.write()
        assert "Xid 79" in d.wait_event("gpu_quarantined", job)[0]
        moved = d.wait(job, lambda j: j["state"] == "running" and len(j["attempts"]) == 2)
        assert d.visible(job, 0) == d.uuids[1] and moved["attempts"][0]["resume_step"] > 0, moved["attempts"]
        sick = d.gpus()[0]
        assert (sick["state"], sick["job"]) == ("quarantined", None) and sick["reason"].startswith("Xid 79: "), sick
        assert d.sql("SELECT quarantine FROM gpus WHERE quarantined IS NOT NULL") == [(sick["reason"],)]
        wide = d.train(ranks=2)  # needs both GPUs, and must not block other jobs until both are healthy
        waiting = d.train()
        assert "GPU 0 is quarantined: Xid 79" in d.why(waiting), d.why(waiting)
        assert d.why(wide).startswith("needs 2 GPUs at once, 0 of 2 are free"), d.why(wide)
        d.call("job.cancel", id=wide)
        d.kill()
        d.extra = []  # or the next look's driver would tell of it once more, maybe after the release
        d.write()
        d.start()
        assert d.gpus()[0]["state"] == "quarantined" and d.job(waiting)["state"] == "queued"
        refused("uuid", "not quarantined", lambda: d.call("gpu.release", uuid=d.uuids[1]))
        refused("uuid", "no GPU", lambda: d.call("gpu.release", uuid="GPU-nobody"))
        assert "no GPU 'GPU-x'" in d.ctl("gpus", "--release", "GPU-x", code=1)
        assert "quarantine lifted" in d.ctl("gpus", "--release", d.uuids[0])
        d.wait(waiting, "running")
        assert d.visible(waiting, 0) == d.uuids[0]


def errors_of_an_instance():
    with Node(1) as d:
        d.flags[d.uuids[0]], migs = "mig", ["MIG-%s-%d" % (d.uuids[0], i) for i in range(2)]
        d.extra = ["mig %s %s %s 9856 12 %d" % (m, d.uuids[0], H100 + "_MIG_1g.10gb", 7 + i) for i, m in enumerate(migs)]
        d.write()
        d.wait_gpu(-1, lambda g: g["uuid"] == migs[1])  # else the job may still get the GPU that was there at first
        job = d.train()
        d.wait(job, "running")
        d.extra.append("xid %s 94 8" % d.uuids[0])
        d.write()
        d.wait_gpu(0, "quarantined")
        d.wait_gpu(2, "quarantined")
        assert [g["state"] for g in d.gpus()] == ["quarantined", "granted", "quarantined"], d.gpus()
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.uuids += migs
        d.used.update({m: 0 for m in migs})


def left_memory(d):
    """A job leaves memory in use. Returns the reason that the next job gives meanwhile."""
    job = d.train(20, env={"HOLD": "5"})
    d.held(job, 5)
    d.used[d.uuids[0]] = 5000
    d.write()
    d.go(job)
    d.wait(job, "completed")
    d.wait_gpu(0, lambda g: g["state"] in ("checking", "quarantined"))  # once its supervisor has left too
    waiting = d.train(20)
    why = d.why(waiting)
    sick = d.wait_gpu(0, "quarantined")
    assert "5.2 GB are still in use" in sick["reason"] and "after job %d left" % job in sick["reason"], sick
    assert d.job(waiting)["state"] == "queued"
    d.used[d.uuids[0]] = 0
    d.write()
    d.ctl("gpus", "--release", d.uuids[0])
    d.wait(waiting, "completed")
    return why


def leftover_memory():
    with Node(1) as d:  # a test that is delayed for as long as detd checks comes too late
        assert any("is checking" in left_memory(d) for _ in range(4))


def lost_and_worn():
    """A GPU that is not listed any more, and one with new memory errors, also when those came while no detd ran."""
    with Node(3) as d:
        d.gpus()
        d.flags[d.uuids[1]] = "lost"
        d.write()
        assert "disappeared" in d.wait_gpu(1, "quarantined")["reason"]
        d.flags[d.uuids[1]], d.used[d.uuids[1]] = "", 7
        d.write()
        assert d.wait_gpu(1, lambda g: g["memory_used"] == 7 << 20)["state"] == "quarantined"
        d.used[d.uuids[1]] = 0
        d.stop()
        d.flags[d.uuids[2]] = "ecc=3"
        d.write()
        d.start()
        assert [g["state"] for g in d.gpus()] == ["free", "quarantined", "quarantined"]
        assert "3 uncorrected memory errors" in d.gpus()[2]["reason"], d.gpus()[2]


def lock_lost_in_a_race():
    """detd saw the lock free, and detd-job finds it taken: the job is queued again, as often as it takes, and nothing
    counts as a failure."""
    with Node(1) as d:
        d.wait(d.train(5), "completed")
        d.wait_gpu(0, "free")
        lock = lock_holder(d.uuids[0], fcntl.LOCK_SH)
        job = d.train(20, restarts=0)
        d.wait(job, lambda j: j["attempt"] >= 2)
        back = d.wait(job, "queued")
        assert "is locked by a job of another daemon" in back["reason"] and not d.events("attempt_ended", job), back
        lock.close()
        done = d.wait(job, "completed")
        assert done["step"] == 20 and done["attempt"] >= 3


def a_rank_on_the_wrong_gpu():
    with Node(2) as d:
        for see, words in ((d.uuids[1], "rank 0 is on GPU %s and was granted %s" % (d.uuids[1], d.uuids[0])),
                           (",".join(d.uuids), "rank 0 sees 2 GPUs and was granted one, " + d.uuids[0])):
            job = d.train(20, restarts=0, env={"SEE_GPUS": see})
            assert d.wait(job, "failed")["reason"] == words, d.job(job)["reason"]
            d.wait_gpu(0, "free")
        job = d.train(20, env={"SEE_GPUS": d.uuids[0].upper(), "STEP_S": "0"})
        d.wait(job, "completed")


def the_driver_hangs():
    deadline = 5  # starting a process that asks the driver takes a while, too
    silent = "has not answered for %d s" % deadline
    with Node(1, deadline=deadline) as d:
        d.extra = ["sleep 300"]
        d.write()
        d.kill()
        d.start()
        assert d.call("daemon.info")["pid"] == d.proc.pid  # before the driver's deadline
        job = d.submit(20, device="auto")
        assert d.wait(job, "completed")["device"] == "cpu"
        assert silent in d.events("device", job)[0], d.events("device", job)
        info = d.call("daemon.info")
        assert silent in info["gpu_trouble"], info
        assert "has not answered" in d.call("gpu.list")["trouble"] and "has not answered" in d.ctl("gpus")
        assert len(d.events("gpus")) == 1, d.events("gpus")
        d.extra = []
        d.write()
        d.until(lambda: d.events("gpus")[0] == "the GPU driver answers again",
                "it is not asked again")  # which is ten seconds after the failure
        assert not d.call("daemon.info")["gpu_trouble"]
        job = d.train(20, env={"HOLD": "5"})
        d.held(job, 5)
        d.extra = ["sleep 300"]
        d.write()
        waiting = d.train(20)
        d.until(lambda: d.call("daemon.info")["gpu_trouble"], "nobody sees that it hangs")
        d.go(job)
        d.wait(job, "completed")  # a driver that cannot be asked holds up nothing that runs
        assert "no GPU is granted now: the GPU driver has not answered" in d.why(waiting), d.why(waiting)
        d.until(lambda: not children(d.proc.pid), "the hung child was not killed")
        d.call("job.cancel", id=waiting)


def children(pid):
    found = []
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = open(stat).read()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2:].split()
        if int(fields[1]) == pid and fields[0] != "Z" and "detd-job" not in text:
            found.append(int(text.split()[0]))
    return found


def nobody_stays_in_an_idle_driver():
    """A process of the driver would keep it from being unloaded; such a process is there while a client looks or jobs
    need GPUs."""
    with Node(1) as d:
        d.until(lambda: d.sql("SELECT uuid FROM gpus"), "no first look")
        d.until(lambda: not children(d.proc.pid), "somebody stays in the driver")
        d.used[d.uuids[0]] = 7
        d.write()
        assert d.wait_gpu(0, lambda g: g["memory_used"] == 7 << 20)["state"] == "free"  # only a fresh look tells
        (looks,) = children(d.proc.pid)
        d.used[d.uuids[0]] = 8
        d.write()
        d.wait_gpu(0, lambda g: g["memory_used"] == 8 << 20)
        assert children(d.proc.pid) == [looks], "one process a look"
        assert d.call("daemon.info")["rss_bytes"] < 12 << 20 or SANITIZED


def the_driver_is_broken():
    with Node(1) as d:
        d.kill()
        d.extra = ["fail 18"]
        d.write()
        d.start()
        got = d.call("gpu.list")
        assert got["gpus"] == [] and "version mismatch" in got["trouble"], got
        refused("run.device", "version mismatch", lambda: d.train(5))


def without_a_driver():
    """LD_LIBRARY_PATH knows the mock; a detd that lacks it is on a node without a driver, unless that has a real one."""
    if os.path.exists("/dev/nvidiactl"):
        return
    with Node(1) as d:
        d.kill()
        known = os.environ.pop("LD_LIBRARY_PATH")
        try:
            d.start()
            got = d.call("gpu.list")
            assert got["gpus"] == [] and got["absent"].startswith("this machine has no NVIDIA driver: libnvidia-ml.so.1: "), got
            refused("run.device", got["absent"], lambda: d.train(5))
        finally:
            os.environ["LD_LIBRARY_PATH"] = known


def the_probe_dies():
    """Killed by hand in the middle: noticed, said, and asked again."""
    with Node(1) as d:
        d.gpus()
        for pid in children(d.proc.pid):
            os.kill(pid, signal.SIGKILL)
        assert "has ended" in d.wait_event("gpus")[0]
        assert d.gpus()[0]["state"] == "free"  # the last known state
        assert d.call("daemon.info")["gpus_free"] == 0
    assert not children(os.getpid()), "left behind"


def errors_beside_a_pause():
    """A pause that the job's owner asks for has no deadline; leaving a GPU that must not be trained on has one."""
    with Node(1, conf="leave_deadline = 1\n") as d:
        job = d.train(60, env={"HOLD": "25"})
        d.held(job, 25)
        leave_fault(d, job, "deaf 25")
        d.go(job, 25)
        d.wait(job, lambda j: j["phase"] == "data")
        d.call("job.pause", id=job)
        d.wait(job, "stopping")
        d.extra = ["xid %s 79" % d.uuids[0]]
        d.write()
        d.wait(job, "paused")
        assert d.events("gpu", job) == ["leaves GPU %s, which is quarantined, and is paused" % d.uuids[0]], d.events("gpu", job)
        assert d.events("stop", job) == ["the ranks did not obey pause in time and were killed"] and not d.events("kill"), d.events("stop")
        d.wait_gpu(0, "quarantined")


def auto_decides():
    def device(d, **run):
        job = d.submit(5, device="auto", **run)
        d.wait(job, "completed")
        return d.job(job)["device"], d.events("device", job)[0]

    with Node(2, plugin=False) as d:
        assert device(d) == ("cpu", "run.device auto: runs on the CPU: libdetd-cuda.so does not lie beside detd")
        refused("run.device", "cuda needs libdetd-cuda.so", lambda: d.train(5))
    with Node(2) as d:
        assert device(d, ranks=2) == ("cuda", "run.device auto: runs on GPUs: needs 2, this node has 2")
        d.flags[d.uuids[0]] = "lost"
        d.write()
        d.wait_gpu(0, "quarantined")
        got = device(d, ranks=2)
        assert got[0] == "cpu" and "and 1 of them are quarantined" in got[1], got


def first_word_waits_for_the_driver():
    """A job that comes before the driver has answered is decided after the answer."""
    with Node(1) as d:
        d.kill()
        d.extra = ["sleep 1"]
        d.write()
        d.start()
        job = d.submit(5, device="auto")
        assert d.job(job)["device"] == "cuda"
        d.call("job.cancel", id=job)


def programs():
    """Each rank of a program sees all GPUs of the job. A program that finds none free waits, and why says so."""
    with Node(2, plugin=False) as d:
        def run(*words):
            return int(d.ctl("run", *words))

        holds = run("--gpus", "2", "--", "sh", "-c", "echo sees $CUDA_VISIBLE_DEVICES; sleep 600")
        d.wait(holds, "running")
        for rank in range(2):
            d.until(lambda rank=rank: "sees %s,%s\n" % tuple(d.uuids) in d.ctl("logs", str(holds), "--rank", str(rank)), "no line")
        waits = run("--gpus", "1", "--", "true")
        assert "0 of 2 are free" in d.why(waits), d.why(waits)
        assert "program.gpus: asks for 3 GPUs, this node has 2" in d.ctl("run", "--gpus", "3", "--", "true", code=1)
        d.call("job.cancel", id=holds)
        d.wait(waits, "completed")


SCENARIOS = [
    the_driver_hangs, inventory, grants_and_locks, ranks_share_a_gpu, foreign_use, foreign_use_beside_a_job, errors_move_the_job,
    errors_beside_a_pause, errors_of_an_instance, leftover_memory, lost_and_worn, lock_lost_in_a_race, a_rank_on_the_wrong_gpu,
    nobody_stays_in_an_idle_driver, the_driver_is_broken, without_a_driver, the_probe_dies, auto_decides, first_word_waits_for_the_driver,
    programs
]

run_scenarios(SCENARIOS)
