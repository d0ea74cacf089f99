#!/usr/bin/env python3
"""Speed of the CUDA device on this machine's GPU, as ratios from a single run: a training step of YOLOv3 against
PyTorch's best setting, the deterministic tiers against `off`, steps of Mask R-CNN against torchvision's and of
FeatDepth against PyTorch's, the step beside what the GPU can do at most, and the sum of gradients between GPUs beside
NCCL's own all-reduce. Medians on both sides.

    bench_gpu.py BUILD [--only ours,peer,models,layers,link] [--seconds N] [--sizes 416,608] [--batches 16,64]
                 [--precisions bf16,tf32,fp32] [--steps 20]
                 [--modes eager,graph,compile,compile-graph] [--models mask_rcnn_r50_fpn,featdepth_r18] [--dry]

Every case of either side is a process with a limit of its own, and its row is printed as soon as both have ended.
--seconds limits the whole run: cases that do not fit are named at the end. If this program is ended early (Ctrl-C,
TERM), it prints the rows so far, and a row of the current case with the values known so far. The peer needs a Python
with PyTorch 2.4 or newer for CUDA: this interpreter, or the interpreter that DETD_TORCH_PYTHON names. Without it the
peer's columns are empty. --sizes, --batches and --modes are YOLOv3's, --modes peer_gpu.py's. --dry: the smallest form
of everything, with the plugin of the emulated GPU and PyTorch on the CPU; its numbers mean nothing.
"""  # SPDX-License-Identifier: Apache-2.0
import argparse
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from records import Malformed, record

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ["ours", "peer", "models", "layers", "link"]


class Network(NamedTuple):
    ours: tuple   # keys of bench_step
    peer: tuple   # a program beside this one, and its words
    small: tuple  # the same for --dry
    ways: tuple  # further words; the best of these variants counts


MODELS = {
    "mask_rcnn_r50_fpn": Network(("size=1088x800", "batch=8", "shards=2", "freeze=1"),
                                 ("peer_rcnn.py", "step", "--frozen", "--px", "800", "--batch", "8", "--seed", "5"),
                                 ("peer_rcnn.py", "step", "--px", "96", "--batch", "1", "--backbone", "resnet18"),
                                 ("--layout channels_last", "--layout channels_last --no-search", "--layout plain")),
    "featdepth_r18": Network(
        ("size=640x192", "batch=12", "shards=4"), ("peer_depth.py", "step", "--width", "640", "--height", "192", "--batch", "12"),
        ("peer_depth.py", "step", "--width", "96", "--height", "96", "--batch", "1"), ("--layout channels_last", "--layout plain")),
}
TIERS = ["off", "rerun", "world"]
TARGET, GOAL, RERUN_MAX = 1.2, 1.5, 1.03
LIMIT_S = {"ours": 240, "peer": 420, "models": 120, "layers": 300, "link": 180}  # of one process
DRY_LIMIT_S = 900  # a limit for the emulated GPU, even on a busy machine
ROW = "%-5s %4s %5s %6s %10s %10s %7s %7s %7s   %s"
LEAST_S = 5  # with less time left nothing is begun


class Bench:
    def __init__(self, args, python):
        self.args, self.python = args, python
        self.ends = time.monotonic() + args.seconds
        self.left_out, self.met = [], []
        self.env, self.fds = dict(os.environ), ()
        if args.dry:
            plugin = os.open(args.build + "/emu/libdetd-cuda.so", os.O_RDONLY)
            self.env["DETD_PLUGIN_FD"], self.fds = str(plugin), (plugin,)

    # ---- processes ----

    def program(self, part, name, command, take):
        """Gives the lines of a program to take() as they come. Ends the program at its limit, or when this program is
        ended. Reports a failure. Returns whether the program ended by itself."""
        seconds = min(DRY_LIMIT_S if self.args.dry else LIMIT_S[part], self.ends - time.monotonic())
        if seconds < LEAST_S:
            self.left_out.append(name)
            return False
        with tempfile.TemporaryFile("w+") as errors, \
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=self.env, pass_fds=self.fds,
                                 start_new_session=True) as p:
            try:
                for line in lines_of(p, time.monotonic() + seconds):
                    take(line)
                ended = p.poll() is not None
            finally:  # the program and its children, compilers among them
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            errors.seek(0)
            said = errors.read().strip()[-600:]
        if not ended:
            print("  %s: no end after %.0f s: %s" % (name, seconds, said), flush=True)
        elif p.returncode != 0:
            print("  %s: exit %d: %s" % (name, p.returncode, said), flush=True)
        return ended

    def show(self, part, program, *words):
        self.program(part, " ".join((program,) + words), ("%s/tests/bench/%s" % (self.args.build, program),) + words,
                     lambda line: print(line, flush=True))

    # ---- a training step ----

    def rates(self, part, key, command, ret):
        """Fills ret, {the records' word `key`: images per second}, as records come. Returns whether the program ended
        by itself."""
        kind, name = {"ours": "step", "peer": "peer"}[part], " ".join(os.path.basename(word) for word in command)

        def take(line):
            if not line.startswith(kind + " "):
                return
            print("  " + line, flush=True)
            try:
                r = record(line, kind)
                ret[r.word(key)] = r.number("images_per_s")
            except Malformed as e:
                print("  %s: %s" % (name, e), flush=True)

        return self.program(part, name, command, take)

    def ours(self, case, tiers, ret):
        command = [
            self.args.build + "/tests/bench/bench_step", "device=cuda", "model=" + ("yolov3_tiny" if self.args.dry else "yolov3"),
            "precision=%s" % case[0],
            "size=%d" % case[1],
            "batch=%d" % case[2],
            "shards=%d" % shards_of(case[2]),
            "steps=%d" % self.args.steps, "tier=" + ",".join(tiers)
        ]
        return self.rates("ours", "tier", command, ret)

    def peer(self, case, ret):
        command = [self.python, "-u", HERE + "/peer_gpu.py", "--precisions", case[0], "--sizes", str(case[1]), "--batches", str(case[2]),
                   "--steps", str(self.args.steps), "--modes", self.args.modes]
        self.rates("peer", "mode", command + ["--dry"] * self.args.dry, ret)

    def case(self, case):
        tiers, modes = {}, {}
        try:
            if "ours" in self.args.only and self.ours(case, TIERS, tiers) and not tiers:
                for tier in TIERS:  # they take turns in one process; if memory is too small for all, each runs by itself
                    self.ours(case, [tier], tiers)
            if self.python and "peer" in self.args.only:
                self.peer(case, modes)
        finally:
            if tiers or modes:
                self.row(case, tiers, modes)

    def row(self, case, tiers, modes):
        mode = max(modes, key=modes.get) if modes else "no peer"
        off, peer = tiers.get("off"), modes.get(mode)
        ratio, *costs = [off / other if off and other else None for other in (peer, tiers.get("rerun"), tiers.get("world"))]
        cells = zip(("%.1f", "%.1f", "%.2f", "%.3f", "%.3f"), [off, peer, ratio] + costs)
        print(ROW % (*case, shards_of(case[2]), *(form % v if v else "-" for form, v in cells), mode), flush=True)
        if case[:2] == ("bf16", 416) and ratio:
            self.met.append("bf16 416 batch %d: %.2f x the peer (target %.1f, goal %.1f), rerun costs %s (at most %.2f)" % (
                case[2], ratio, TARGET, GOAL, "%.3f" % costs[0] if costs[0] else "?", RERUN_MAX))

    def steps(self):
        print(ROW % ("", "size", "batch", "shards", "detd off", "peer", "ratio", "rerun", "world", "images/s; the peer's best mode"),
              flush=True)
        for precision in self.args.precisions.split(","):
            for size in self.args.sizes.split(","):
                for batch in self.args.batches.split(","):
                    self.case((precision, int(size), int(batch)))

    # ---- a training step of the other networks ----

    def one_record(self, name, kind, key, command):
        """Returns the number `key` of the record that a program prints, or None without such a record."""
        found = []

        def take(line):
            if line.startswith(kind + " "):
                print("  " + line, flush=True)
                try:
                    found.append(record(line, kind).number(key))
                except Malformed as e:
                    print("  %s: %s" % (name, e), flush=True)

        self.program("models", name, command, take)
        return found[-1] if found else None

    def model(self, model, precision):
        network, small, name = MODELS[model], self.args.dry, "%s %s" % (model, precision)
        command = [
            self.args.build + "/tests/bench/bench_step", "device=cuda", "model=" + model, "precision=" + precision,
            "steps=%d" % self.args.steps
        ]
        ours = self.one_record(name, "step", "images_per_s", command + list(("size=96x96", "batch=1") if small else network.ours))
        peers = {}
        program, *words = network.small if small else network.peer
        words += ["--steps", str(self.args.steps)] + ["--cuda"] * (not small) + ["--" + precision] * (precision != "fp32" and not small)
        for way in network.ways if self.python else ():
            rate = self.one_record("%s, peer %s" % (name, way), "peer", "median_images_per_s",
                                   [self.python, "-u", HERE + "/" + program, *words, *way.split()])
            if rate:
                peers[way] = rate
        best = max(peers, key=peers.get) if peers else "no peer"
        cells = zip(("%.1f", "%.1f", "%.2f"), (ours, peers.get(best), ours / peers[best] if ours and peers else None))
        print("%-20s %5s %10s %10s %7s   %s" % (model, precision, *(form % v if v else "-" for form, v in cells), best), flush=True)

    def models(self):
        print("%-20s %5s %10s %10s %7s   %s" % ("", "", "detd off", "peer", "ratio", "images/s; the peer's best way"), flush=True)
        for model in self.args.models.split(","):
            for precision in self.args.precisions.split(","):
                self.model(model, precision)

    # ---- everything ----

    def everything(self):
        if {"peer", "models"} & set(self.args.only) and not self.python:
            print("no Python with PyTorch 2.4 or newer for CUDA: no peer (DETD_TORCH_PYTHON)")
        if {"ours", "peer"} & set(self.args.only):
            self.steps()
        if "models" in self.args.only:
            self.models()
        if "layers" in self.args.only:
            for precision in self.args.precisions.split(","):
                small = ["model=yolov3_tiny", "size=32", "batch=1", "repeats=3", "ceiling=64"
                         ] if self.args.dry else ["size=416", "batch=16"]
                self.show("layers", "bench_layers", "device=cuda", "precision=" + precision, *small)
        if "link" in self.args.only:
            self.show("link", "bench_link", *(["sizes=1", "repeats=1"] if self.args.dry else ["seconds=60"]))

    def sum_up(self):
        for line in self.met:
            print(line)
        for name in self.left_out:
            print("no time left for: " + name)
        sys.stdout.flush()


def lines_of(p, deadline):
    """Yields lines until the process has closed its output or has ended (its children may hold the pipe for longer), or
    until the deadline."""
    rest = b""
    with selectors.DefaultSelector() as s:
        s.register(p.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if not s.select(min(1, deadline - time.monotonic())):
                if p.poll() is not None:
                    return
                continue
            data = os.read(p.stdout.fileno(), 65536)
            if not data:
                try:
                    p.wait(max(0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    pass
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")


def shards_of(batch):
    return max(v for v in (1, 2, 4, 8) if v == 1 or (batch % v == 0 and batch // v >= 4))  # as jobs have by default


def find_python(dry):
    """Returns the first interpreter with a usable PyTorch."""
    what = "import torch; v = torch.__version__.split('.'); " \
        "assert (int(v[0]), int(v[1])) >= (2, 4) and (%s or torch.cuda.is_available())" % dry
    for python in filter(None, (os.environ.get("DETD_TORCH_PYTHON"), sys.executable)):
        if shutil.which(python) and subprocess.run([python, "-c", what], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    return None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=os.path.abspath)
    p.add_argument("--only", default=",".join(PARTS))
    p.add_argument("--seconds", type=float, default=float("inf"))
    p.add_argument("--sizes")
    p.add_argument("--batches")
    p.add_argument("--precisions")
    p.add_argument("--steps", type=int)
    p.add_argument("--modes", default="eager,graph,compile,compile-graph")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--dry", action="store_true")
    a = p.parse_args()
    if not set(a.models.split(",")) <= set(MODELS):
        p.error("models are: " + ", ".join(MODELS))
    a.only = a.only.split(",")
    if not set(a.only) <= set(PARTS):
        p.error("parts are: " + ", ".join(PARTS))
    usual = {"sizes": "32", "batches": "2", "precisions": "bf16", "steps": 1} if a.dry else \
            {"sizes": "416,608", "batches": "16,64", "precisions": "bf16,tf32,fp32", "steps": 20}
    for key, value in usual.items():
        if getattr(a, key) is None:
            setattr(a, key, value)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(a, find_python(a.dry) if {"peer", "models"} & set(a.only) else None)
    try:
        bench.everything()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        bench.sum_up()


main()
