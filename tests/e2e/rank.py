#!/usr/bin/env python3
"""A trainer in place of detd-worker: it speaks the lines of proto/report.h on descriptor 3 and beats on the progress
page.

It "trains" a number that every rank can compute, keeps checkpoints as files, resumes from the newest, and obeys
commands. Faults for tests lie in the job directory: a file fault-RANK holds one line "WHAT STEP", carried out once when
that step is reached. HOLD in its environment names steps before which it waits until the job directory has a file "go",
or "go-STEP"; it obeys commands meanwhile.
"""  # SPDX-License-Identifier: Apache-2.0
import argparse
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PHASES = ["starting", "wait_go", "check_data", "load_checkpoint", "data", "forward", "backward", "reduce", "sync_bn", "optimizer",
          "report_wait", "validate", "checkpoint", "ending", "plan"]


class Page:
    """struct progress: magic, version, heartbeat, changes, step, phase, (unused,) images, images_total, done, todo, a
    collective of each channel"""

    def __init__(self):
        self.map = mmap.mmap(5, 4096)
        self.put("<I", 4, 2)
        self.phase("starting")
        self.put("<I", 0, 0x64657464)
        threading.Thread(target=self.beat, daemon=True).start()

    def put(self, fmt, at, value):
        struct.pack_into(fmt, self.map, at, value)

    def beat(self):
        n = 0
        while True:
            n += 1
            self.put("<Q", 8, n)
            time.sleep(1)

    def change(self):
        self.put("<Q", 16, struct.unpack_from("<Q", self.map, 16)[0] + 1)

    def phase(self, name):
        self.put("<I", 32, PHASES.index(name))
        self.change()

    def collective(self, number, kind=1):
        self.put("<Q", 80, number << 32 | kind)
        self.change()

    def step(self, step, images):
        self.put("<Q", 24, step)
        self.put("<Q", 48, images)
        self.put("<Q", 56, images)
        self.change()


class Shared:
    """The memfd of all ranks: the step that each has finished, and where rank 0 wants everybody to stop."""
    BYTES, STOP, WHY = 4096, 1024, 1032
    WORDS = ["", "paused", "cancelled"]

    def __init__(self, rank, ranks, page):
        os.ftruncate(4, self.BYTES)
        self.map, self.rank, self.ranks, self.page, self.calls = mmap.mmap(4, self.BYTES), rank, ranks, page, 0

    def get(self, at):
        return struct.unpack_from("<q", self.map, at)[0]

    def put(self, at, value):
        struct.pack_into("<q", self.map, at, value)

    def barrier(self, step):
        self.calls += 1
        self.page.phase("reduce")
        self.page.collective(self.calls)
        self.put(8 * self.rank, step)
        while any(self.get(8 * r) < step for r in range(self.ranks)):
            time.sleep(0.001)

    def stop_at(self, step, outcome):
        self.put(self.WHY, self.WORDS.index(outcome))
        self.put(self.STOP, step)

    def stopped(self, step):
        return self.WORDS[self.get(self.WHY)] if self.get(self.STOP) == step else ""


class Rank:
    def __init__(self):
        p = argparse.ArgumentParser()
        for name in ("job-dir", "rank", "ranks", "local-rank", "attempt"):
            p.add_argument("--" + name, required=True)
        a = p.parse_args()
        self.rank, self.ranks, self.attempt = int(a.rank), int(a.ranks), int(a.attempt)
        assert os.path.realpath(a.job_dir) == os.getcwd()
        self.spec = json.load(open("spec.json"))
        self.sock = socket.socket(fileno=3)
        self.buf, self.inbox, self.words = b"", [], []
        self.unsaid = ""
        self.page = Page()
        self.shared = Shared(self.rank, self.ranks, self.page)

    def say(self, type_, **members):
        self.sock.sendall((json.dumps(dict(type=type_, **members)) + "\n").encode())

    def hear(self, wait):
        while wait or select.select([self.sock], [], [], 0)[0]:
            got = self.sock.recv(4096)
            if not got:
                sys.exit(1)
            *lines, self.buf = (self.buf + got).split(b"\n")
            for line in lines:
                msg = json.loads(line)
                (self.words if msg["type"] == "control" else self.inbox).append(msg)
            if lines:
                wait = False

    def await_msg(self, kind):
        while True:
            for msg in self.inbox:
                if msg["type"] == kind:
                    self.inbox.remove(msg)
                    return msg
            self.hear(True)

    def hold(self, step):
        while str(step) in os.environ.get("HOLD", "").split() and not os.path.exists("go") and not os.path.exists("go-%d" % step):
            self.page.phase("report_wait")  # which has no deadline
            if self.rank == 0:
                self.obey(step - 1)
            time.sleep(0.01)

    def fault(self, step):
        name = "fault-%d" % self.rank
        if not os.path.exists(name):
            return
        what, at = open(name).read().split()
        if step < int(at):
            return
        if not what.startswith("always"):
            os.unlink(name)
        self.carry_out(what.removeprefix("always-"))

    def carry_out(self, what):
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif what == "flood":
            # like a rank that waits for room for its reports: it has no deadline, however slow the machine is
            self.page.phase("report_wait")
            for _ in range(800):
                self.say("event", level="info", kind="flood", text="x" * 60000)
        elif what == "burst":
            self.burst()
        elif what == "close":
            os.close(3)
            time.sleep(600)
        elif what == "rest":
            self.page.phase("report_wait")  # which has no deadline
            time.sleep(23)
        elif what == "hold":
            self.page.phase("report_wait")
            time.sleep(600)
        elif what == "helper":  # of a session of its own, with all descriptors
            subprocess.Popen(["sleep", "600"], close_fds=False, start_new_session=True)
        elif what == "exit":
            os._exit(3)
        elif what == "endless":
            self.sock.sendall(b"x" * 100000)
            time.sleep(60)
        elif what in ("unsaid", "unsaid-by-all"):
            self.unsaid = what
        elif what == "data":
            self.end("failed", "annotation 7 of image 12: zero area", "data")
        elif what == "missing":
            self.end("failed", "read 'a.png': Input/output error", "missing")
        elif what == "fault":
            self.end("failed", "device gave up", "fault")
        elif what == "deaf":
            self.page.phase("data")
            while True:
                self.page.step(0, 0)
                time.sleep(0.5)

    def burst(self):
        """Stops its supervisor, reports as much as fits and dies."""
        os.kill(os.getppid(), signal.SIGSTOP)
        line, said = json.dumps({"type": "event", "level": "info", "kind": "burst", "text": "x" * 30000}).encode() + b"\n", 0
        self.sock.setblocking(False)
        try:
            while self.sock.send(line) == len(line):
                said += 1
        except BlockingIOError:
            pass
        with open("burst.new", "w", encoding="utf-8") as f:
            f.write(str(said))
        os.rename("burst.new", "burst")
        os._exit(3)

    def end(self, outcome, reason="", cls=""):
        self.page.phase("ending")
        self.say("end", outcome=outcome, reason=reason, **{"class": cls})
        sys.exit(0)

    def resume(self):
        done = [int(n[5:]) for n in os.listdir("checkpoints") if n.startswith("step-")] if os.path.isdir("checkpoints") else []
        step = max(done, default=0)
        if self.rank == 0:
            self.say("start", resume_step=step, checkpoint="checkpoints/step-%d" % step if step else None)
            self.tell_identity()
            if step:  # the attempt before may have died between publishing and reporting
                self.published(step)
        return step

    def published(self, step):
        self.say("checkpoint", step=step, phase="published", path="checkpoints/step-%d" % step, bytes=4, val_loss=None, best=False)

    def tell_identity(self):
        """Each attempt has a library of its own version. It first reports an identity without the library, then one
        with it."""
        told = {"hash": "%032x" % self.attempt, "device": "made up", "precision": "fp32", "files": {"worker": {"version": "0.1.0"}},
                "versions": {"math": "1.%d" % self.attempt}}
        self.say("identity", identity=dict(told, hash="f" * 32, versions={}))
        self.say("identity", identity=told)

    def checkpoint(self, step):
        if self.rank != 0:
            return
        self.page.phase("checkpoint")
        os.makedirs("checkpoints", exist_ok=True)
        tmp, path = "checkpoints/.tmp-step-%d" % step, "checkpoints/step-%d" % step
        open(tmp, "w").write(str(step))
        self.say("checkpoint", step=step, phase="ready", path=tmp)
        assert self.await_msg("publish")["step"] == step
        os.rename(tmp, path)
        if self.unsaid:  # dies before it reports, alone or with detd-job and all other processes
            os.kill(os.getpid(), signal.SIGKILL) if self.unsaid == "unsaid" else os.killpg(0, signal.SIGKILL)
        self.published(step)

    def loss(self, step, split):
        self.say("loss", split=split, step=step, epoch=step / 10, tier=[t for at, t in self.tiers if at <= step][-1], time=time.time(),
                 images_per_s=100.0, terms={"total": [1000.0 / step, 4.0], "box": [0.1 * step, 1]})

    def obey(self, step):
        """Commands that came to rank 0; all ranks act on a stop after the next barrier."""
        self.hear(False)
        while self.words:
            msg = self.words.pop(0)
            if msg["word"] == "tier" and msg["tier"] == os.environ.get("REFUSE"):
                self.say("event", level="warning", kind="tier", text="not that", tier=msg["tier"])
            elif msg["word"] == "tier":
                self.say("tier", step=step + 2, tier=msg["tier"])
                ok = self.await_msg("tier_ok")
                assert ok["step"] == step + 2 and ok["tier"] == msg["tier"]
                self.tiers.append((step + 2, msg["tier"]))
            elif msg["word"] == "checkpoint":
                self.checkpoint(step)
            elif msg["word"] == "eval":
                self.say("eval", step=step, time=time.time(), metrics={"ap50": 0.5, "bad": None})
            else:
                self.shared.stop_at(step + 1, "paused" if msg["word"] == "pause" else "cancelled")

    @staticmethod
    def gpu():
        """Returns the report of a rank on a GPU; a test may make it see another GPU, or several."""
        visible = os.environ.get("SEE_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
        return {"uuid": visible.split(",")[0], "devices": len(visible.split(","))} if visible else {"uuid": None}

    def run(self):
        self.say("hello", rank=self.rank, local_rank=self.rank, nranks=self.ranks, pid=os.getpid(), device="test", memory_bytes=1,
                 versions={"python": sys.version.split()[0]}, **self.gpu())
        self.page.phase("wait_go")
        go = self.await_msg("go")
        assert go["attempt"] == self.attempt
        print("attempt", self.attempt, "environment", json.dumps(dict(os.environ)), "descriptors", sorted(os.listdir("/proc/self/fd")),
              flush=True)
        if "DETD_PLUGIN_FD" in os.environ:
            print("plugin", repr(open("/proc/self/fd/" + os.environ["DETD_PLUGIN_FD"]).read()), flush=True)
        step = self.resume()
        self.tiers = [(t["step"], t["tier"]) for t in go["tiers"]] or [(1, self.spec["run"].get("deterministic") or "off")]
        if self.rank == 0:
            self.say("data", split="train", images=10, boxes=20, skipped=0, bad=[])
            self.say("event", level="info", kind="test", text="attempt %d" % self.attempt)
        self.train(step)

    def train(self, step):
        steps, every, pause = self.spec["train"]["steps"], self.spec["checkpoint"]["every"], float(os.environ.get("STEP_S", "0.02"))
        while step < steps:
            step += 1
            self.page.phase("forward")
            self.hold(step)
            self.fault(step)
            time.sleep(pause)
            self.shared.barrier(step)
            self.page.step(step, step * self.spec["train"]["batch"])
            outcome = self.shared.stopped(step)
            if self.rank == 0:
                self.loss(step, "train")
                self.obey(step)
            if outcome:
                if outcome == "paused":
                    self.checkpoint(step)
                self.end(outcome)
            if step % every == 0 or step == steps:
                if self.rank == 0:
                    self.loss(step, "val")
                self.checkpoint(step)
        self.end("completed")


Rank().run()
