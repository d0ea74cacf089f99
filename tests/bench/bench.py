#!/usr/bin/env python3
"""Speed of everything that has a target, as ratios from a single run: the measured value, the value of the peer, and
the target.

    bench.py BUILD [--only PART,...] [--json FILE] [--smoke]

Parts: step, shards, rcnn, depth, sparse, hashes, conv, roi, warp, ranks, loader, coco, evaluate, comm, report, daemon, crowd, floods. A
part and its peer take turns, and the best time of each counts, so that a busy machine does less harm. A part that lacks
something is skipped and says so. If a part dies, the rows of the other parts are still printed. --smoke does all of it
once in its smallest form, for the sake of the table's shape: its numbers mean nothing. Peers need Python packages; the
variable DETD_TORCH_PYTHON names an interpreter that has them:

    python3 -m venv torchenv
    torchenv/bin/pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu
    torchenv/bin/pip install numpy scipy pillow pycocotools
    DETD_TORCH_PYTHON=torchenv/bin/python make bench
"""  # SPDX-License-Identifier: Apache-2.0
import argparse
import json
import math
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

from records import Malformed, record, records

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent.parent.parent / "shared" / "data" / "bccd"
THREADS, SIZE, BATCH = 2, 416, 8
ROUNDS_S = 80  # no further round of a part begins after that: on a busy machine a step of the peer takes many seconds
NO_PEER = "no peer"
HAS_UNIT = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
HOW_TO = "DETD_TORCH_PYTHON names no Python with %s; tests/bench/bench.py says how to make one"

rows, skipped, broken, warnings = [], [], [], []


class Failed(Exception):
    pass


def row(part, what, measured, against, ratio, target="", met=None):
    """A line of the table. measured: (format, number...); ratio: a number, several, or None without a peer; target:
    text; met: whether the target is reached."""
    form, *numbers = measured
    for n in numbers + (ratio if isinstance(ratio, list) else [] if ratio is None else [ratio]):
        if not math.isfinite(n) or n < 0:
            raise Failed("%s: %r was measured" % (what, n))
    rows.append(dict(part=part, what=what, measured=form % tuple(numbers), against=against, ratio=ratio, target=target, met=met))


def at_least(part, what, measured, against, ratio, least, more=""):
    row(part, what, measured, against, ratio, ">= %g%s" % (least, more), ratio >= least)


def at_most(part, what, measured, against, ratio, most):
    row(part, what, measured, against, ratio, "<= %g" % most, ratio <= most)


def skip(part, why):
    skipped.append(dict(part=part, why=why))
    print("skipped: %s: %s" % (part, why), flush=True)


def output(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, check=False,
                          **options)
    if done.returncode != 0:
        raise Failed("%s: exit %d: %s" % (pathlib.Path(command[0]).name, done.returncode, done.stderr.strip()[-400:]))
    return done.stdout


def peer_python(modules):
    """Returns a Python interpreter that imports all of modules, or None."""
    for python in filter(None, (os.environ.get("DETD_TORCH_PYTHON"), sys.executable)):
        if shutil.which(python) and subprocess.run([python, "-c", "import " + modules], stderr=subprocess.DEVNULL,
                                                   check=False).returncode == 0:
            return python
    return None


class Bench:
    def __init__(self, build, folder, smoke):
        self.build, self.folder, self.smoke = build, folder, smoke
        self.size, self.batch = (64, 2) if smoke else (SIZE, BATCH)

    def program(self, name, **args):
        words = ["%s=%s" % (key, value) for key, value in args.items() if value is not None]
        return output(self.build / "tests" / "bench" / name, *words, env=dict(os.environ, DETD_BUILD=str(self.build)))

    def rounds(self, most, least=1):
        """Yields the turns 0, 1, ... of a part."""
        began = time.monotonic()
        for i in range(least if self.smoke else most):
            if i < least or time.monotonic() - began < ROUNDS_S:
                yield i

    # ---- training step ----

    def precisions(self, part):
        """fp32, and bf16 where the CPU has a unit for it."""
        if HAS_UNIT or self.smoke:
            return ("fp32", "bf16")
        if not any(x["part"] == part + " in bf16" for x in skipped):
            skip(part + " in bf16", "this CPU has no unit for bf16 (AMX)")
        return ("fp32",)

    def bench_step(self, **args):
        return self.program("bench_step", threads=THREADS, size=self.size, batch=self.batch, **args)

    def step(self):
        python, ours, outside, peer, steps = peer_python("torch"), {}, [], {}, 1 if self.smoke else 6
        if not python:
            skip("step against PyTorch", HOW_TO % "torch")
        for _ in self.rounds(4 if python else 2):
            for precision in self.precisions("step"):
                mine = record(self.bench_step(steps=steps, precision=precision), "step")
                ours[precision] = max(ours.get(precision, 0), self.batch * 1e3 / mine.number("best_ms"))
                if precision == "fp32":
                    outside.append(1 - mine.number("conv_share"))
            for r in records(output(python, HERE / "peer_torch.py", THREADS, steps, self.size, self.batch), "peer") if python else []:
                peer[r.word("mode")] = max(peer.get(r.word("mode"), 0), r.number("images_per_s"))
        targets = {("fp32", "fp32"): (2.7, ""), ("bf16", "bf16"): (2, " (goal 3)")}
        modes = {"fp32": "fp32 channels_last", "bf16": "bf16 autocast"}
        for precision, rate in ours.items():
            what, measured = "training step, yolov3-tiny %d, batch %d, %s, %d threads" % (self.size, self.batch, precision, THREADS), (
                "%.1f images/s", rate)
            for mode, theirs in peer.items():
                against = "%.1f: PyTorch %s*" % (theirs, modes[mode])
                if (precision, mode) in targets:
                    at_least("step", what, measured, against, rate / theirs, *targets[precision, mode])
                else:
                    row("step", what, measured, against, rate / theirs)
            if not peer:
                row("step", what, measured, NO_PEER, None)
        at_most("step", "time outside convolutions, fp32", ("%.1f %%", 100 * min(outside)), "the step", min(outside), 0.3)

    def shards(self):
        batch = max(8, self.batch)
        text = self.program("bench_step", threads=THREADS, size=self.size, batch=batch, shards="1,4,8", freeze=1,
                            steps=1 if self.smoke else 14)
        ms = {int(r.word("shards")): r.number("best_ms") for r in records(text, "step")}
        for v, most in ((4, 1.08), (8, 1.2)):
            at_most("shards", "step of one rank, V = %d, BN frozen" % v, ("%.0f ms", ms[v]), "%.0f ms: V = 1" % ms[1], ms[v] / ms[1], most)

    def rcnn(self):
        """A step of Mask R-CNN beside torchvision's: the same pictures, frozen statistics and two frozen stages on both
        sides. The number of proposals on objects, and so of regions in the mask head, depends on the random weights:
        few seeds of the peer give enough."""
        depth, px, batch, steps = (18, 96, 1, 1) if self.smoke else (50, 480, 2, 3)
        python, ours, peer = peer_python("torchvision, numpy"), {}, {}
        if not python:
            skip("rcnn against torchvision", HOW_TO % "torch, torchvision and numpy")
        cases = [("fp32", "d2"), ("fp32", "tv")] + [("bf16", "d2")] * ("bf16" in self.precisions("rcnn"))
        for _ in self.rounds(2):
            for precision, flavor in cases:
                text = self.program("bench_step", threads=THREADS, model="mask_rcnn_r%d_fpn" % depth, flavor=flavor, freeze=1, steps=steps,
                                    batch=batch, size="%dx%d" % (px * 4 // 3, px), precision=precision)
                r = record(text, "step")
                ours[precision, flavor] = max(ours.get((precision, flavor), (0,)),
                                              (batch * 1e3 / r.number("best_ms"), r.number("peak_mib"), r.number("masks")))
            for precision, layout in [(p, x) for p in dict(cases) for x in ("plain", "channels_last")] if python else ():
                r = record(
                    output(python, HERE / "peer_rcnn.py", "step", "--frozen", "--layout", layout, "--threads", THREADS, "--backbone",
                           "resnet%d" % depth, "--px", px, "--batch", batch, "--steps", steps, "--seed", 5,
                           *["--bf16"] * (precision == "bf16")), "peer")
                peer[precision, layout] = max(peer.get((precision, layout), (0,)),
                                              (r.number("images_per_s"), r.number("peak_mib"), r.number("masks")))
        for (precision, flavor), mine in ours.items():
            what = "training step, mask_rcnn_r%d_fpn %d px, batch %d, %s, %d threads, flavor %s" % (depth, px, batch, precision, THREADS,
                                                                                                    flavor)
            measured = ("%.2f images/s, %.0f MiB, %d masks", *mine)
            if not peer:
                row("rcnn", what, measured, NO_PEER, None)
                continue
            (_, layout), best = max((p for p in peer.items() if p[0][0] == precision), key=lambda p: p[1])
            if mine[2] < 0.7 * best[2]:
                warnings.append("rcnn: %s, flavor %s had %d regions in the mask head, the peer %d: the peer had more work" %
                                (precision, flavor, mine[2], best[2]))
            least, more = {"fp32": (1.7, " (goal 2.2)"), "bf16": (1.5, "")}[precision]
            at_least("rcnn", what, measured, "%.2f, %.0f MiB, %d masks: torchvision %s, %s" % (*best, precision, layout), mine[0] / best[0],
                     least, more)

    def depth(self):
        """A step of FeatDepth with its extractor frozen, beside PyTorch's."""
        width, height, batch, steps = (64, 64, 1, 1) if self.smoke else (320, 192, 4, 4)
        self.beside("depth", "featdepth_r18 %d x %d" % (width, height), "torchvision, numpy", 1.7,
                    dict(model="featdepth_r18", steps=steps, batch=batch, size="%dx%d" % (width, height)),
                    ("peer_depth.py", "step", "--width", width, "--height", height, "--batch", batch, "--steps", steps))

    def sparse(self):
        """A step of the small Sparse R-CNN of specs sparse_rcnn section 12.1, beside PyTorch's."""
        px, batch, steps = (64, 1, 1) if self.smoke else (320, 2, 8)
        self.beside("sparse", "sparse_rcnn_r18_fpn x 0.25, %d px" % px, "torchvision, scipy, numpy", 2,
                    dict(model="sparse_rcnn_r18_fpn", steps=steps, batch=batch, size=px),
                    ("peer_sparse.py", "--px", px, "--batch", batch, "--steps", steps))

    def beside(self, part, network, modules, least, args, command):
        """A training step of bench_step with `args`, beside the best of the peer's."""
        python, ours, peer, ways = peer_python(modules), (0, 0), {}, [(), ("--layout", "plain"), ("--compile",)][:1 if self.smoke else 3]
        if not python:
            skip("%s against PyTorch" % part, HOW_TO % ("torch, " + modules))
        for _ in self.rounds(2):
            r = record(self.program("bench_step", threads=THREADS, **args), "step")
            ours = max(ours, (args["batch"] * 1e3 / r.number("best_ms"), r.number("peak_mib")))
            for how in list(ways) if python else ():
                try:
                    r = record(output(python, HERE / command[0], *command[1:], "--threads", THREADS, *how), "peer")
                except subprocess.TimeoutExpired as late:
                    if "--compile" not in how:
                        raise
                    # Its compiler takes minutes, and on a busy machine more than there are.
                    skip("%s against PyTorch compiled" % part, "it did not end within %d s" % late.timeout)
                    ways.remove(how)
                    continue
                name = r.word("layout") + (" compiled" if r.number("compiled") else "")
                peer[name] = max(peer.get(name, (0,)), (r.number("images_per_s"), r.number("peak_mib")))
        what, measured = "training step, %s, batch %d, fp32, %d threads" % (network, args["batch"], THREADS), ("%.2f images/s, %.0f MiB",
                                                                                                               *ours)
        if not peer:
            row(part, what, measured, NO_PEER, None)
            return
        name, best = max(peer.items(), key=lambda p: p[1])
        at_least(part, what, measured, "%.2f, %.0f MiB: PyTorch %s" % (*best, name), ours[0] / best[0], least)

    # ---- evidence ----

    def hashes(self):
        step, ms = math.inf, {}
        for _ in self.rounds(3):
            step = min(step, record(self.bench_step(steps=1 if self.smoke else 3), "step").number("best_ms"))
            for r in records(self.program("bench_hash", threads=THREADS, repeats=1 if self.smoke else None), "hash"):
                mine = r.number("plain_ms"), r.number("hashed_ms")
                ms[r.word("op")] = [min(pair) for pair in zip(mine, ms.get(r.word("op"), mine))]
        more = {op: max(0, hashed - plain) for op, (plain, hashed) in ms.items()}
        total = sum(more[op] for op in ("sgd", "sum_squares", "hash_tensors"))
        for op, (plain, hashed) in ms.items():
            row("hashes", "%s of yolov3-tiny's parameters, hashed" % op if plain else op + " of yolov3-tiny's parameters",
                ("%.2f ms", hashed), "%.2f ms: without" % plain if plain else NO_PEER, hashed / plain if plain else None)
        at_most("hashes", "hashes of all weights and gradients", ("%.2f ms", total), "%.2f ms: 1 %% of the step" % (step / 100),
                100 * total / step, 1)

    # ---- convolutions ----

    def conv(self):
        for precision in self.precisions("conv"):
            self.convolutions(precision, {"fp32": "FMA peak", "bf16": "the unit's peak"}[precision])

    def convolutions(self, precision, limit):
        text, groups = self.program("bench_conv", precision=precision, **({"layer": "512->255", "seconds": 0} if self.smoke else {})), {}
        if text.startswith("bench_conv: skipped"):
            return skip("conv", text.strip())
        peaks = {int(r.word("threads")): r.number("gflops") for r in records(text, "peak")}
        for count, peak in peaks.items():
            if peak < 0.75 * count * peaks[1]:
                warnings.append("conv: %d threads peak at %.1f x one thread: other programs had the CPUs, ratios of %d threads mean nothing"
                                % (count, peak / peaks[1], count))
        for r in records(text, "conv"):
            groups.setdefault((int(r.word("threads")), r.word("layer")), []).append(r)
        for (count, layer), passes in groups.items():
            row("conv", "%s, %s, %d thread%s: %s" % (layer, precision, count, "s" * (count > 1), " / ".join(r.word("pass")
                                                                                                            for r in passes)),
                (" / ".join(["%.0f"] * len(passes)) + " GF/s", *(r.number("gflops") for r in passes)),
                "%.0f GF/s: %s" % (peaks[count], limit), [r.number("of_peak") for r in passes])

    # ---- RoIAlign ----

    def roi(self):
        images, height, width, channels = (1, 64, 96, 16) if self.smoke else (2, 480, 640, 256)
        python, ours, peer, repeats = peer_python("torchvision"), {}, {}, 1 if self.smoke else 5
        if not python:
            skip("roi against torchvision", HOW_TO % "torch and torchvision")
        for _ in self.rounds(3):
            text = self.program("bench_roi", threads=THREADS, images=images, height=height, width=width, channels=channels, repeats=repeats)
            found = [(ours, (r.word("head"), r.word("flavor")), r.number("fwd_ms") + r.number("bwd_ms")) for r in records(text, "roi")]
            if python:
                text = output(python, HERE / "peer_roi.py", THREADS, repeats, images, height, width, channels)
                found += [(peer, (r.word("head"), r.word("flavor")), r.number("ms")) for r in records(text, "peer")]
            for side, key, ms in found:
                side[key] = min(side.get(key, math.inf), ms)
        for (head, flavor), ms in ours.items():
            what, measured = "RoIAlign there and back, %d px, %s head, %s" % (height, head, flavor), ("%.1f ms", ms)
            if (head, flavor) in peer:
                at_least("roi", what, measured, "%.0f ms: torchvision" % peer[head, flavor], peer[head, flavor] / ms, 2)
            else:
                row("roi", what, measured, NO_PEER, None)

    def warp(self):
        """A picture seen from another camera, forward and backward. Our operation takes depth and motion; PyTorch's
        grid_sample takes precomputed places."""
        images, height, width = (1, 32, 64) if self.smoke else (4, 192, 320)
        python, ours, peer, repeats = peer_python("torchvision"), {}, {}, 1 if self.smoke else 9
        if not python:
            skip("warp against PyTorch", HOW_TO % "torch and torchvision")
        for _ in self.rounds(3):
            for r in records(self.program("bench_warp", threads=THREADS, images=images, height=height, width=width, repeats=repeats),
                             "warp"):
                ours[r.word("what")] = min(ours.get(r.word("what"), math.inf), r.number("ms"))
            for r in records(
                    output(python, HERE / "peer_depth.py", "warp", "--threads", THREADS, "--batch", images, "--height", height, "--width",
                           width, "--steps", repeats), "warp") if python else ():
                whole, alone = peer.get(r.word("what"), (math.inf, math.inf))
                peer[r.word("what")] = (min(whole, r.number("ms")), min(alone, r.number("sampling_ms")))
        for kind, ms in ours.items():
            what, measured = "warp there and back, %s" % kind, ("%.2f ms", ms)
            if kind in peer:
                at_least("warp", what, measured, "%.1f ms: PyTorch, of it grid_sample %.1f" % peer[kind], peer[kind][0] / ms, 2)
            else:
                row("warp", what, measured, NO_PEER, None)

    # ---- jobs ----

    def images(self, count):
        """Generated images with annotations: (annotations, folder)."""
        shapes = self.folder / ("shapes-%d" % count)
        if not shapes.exists():
            output(sys.executable, HERE.parent / "demo" / "make_shapes.py", shapes, "--train", count, "--val", 1, "--size", self.size)
        return shapes / "train.json", shapes / "images"

    def ranks(self):
        detctl, state, best, cpu = self.build / "detctl", self.folder / "state", {1: 0, 2: 0}, {}
        annotations, folder = self.images(16 if self.smoke else 48)
        data = {"train": {"format": "coco", "annotations": str(annotations), "images": str(folder)}}
        speed, larger, conf = (self.folder / n for n in ("speed.json", "larger.json", "detd.conf"))
        speed.write_text(
            json.dumps({
                "name": "speed", "model": {"preset": "yolov3_tiny", "size": self.size, "width": 0.125 if self.smoke else 1}, "data": data,
                "train": {"steps": 10 if self.smoke else 16, "batch": self.batch, "shards": 2, "lr": 1e-4,
                          "log_every": 1}, "checkpoint": {"every": 0}
            }))  # with so few steps the default is a checkpoint after every step
        # Four images a shard, the default of jobs. Each rank itself pays for its start and for the transforms of the
        # weights.
        larger.write_text(
            json.dumps({
                "name": "cpu", "model": {"preset": "yolov3_tiny", "size": 64 if self.smoke else 160, "width": 0.5}, "data": data,
                "train": {"steps": 2 if self.smoke else 20, "batch": 32, "shards": 8, "lr": 1e-3}
            }))
        conf.write_text("slots = 4\n")
        env = dict(os.environ, DETD_SOCKET=str(self.folder / "sock"))

        def train(spec, ranks, threads):
            return int(output(detctl, "submit", spec, "run.ranks=%d" % ranks, "run.threads=%d" % threads, "--wait", env=env).split()[0])

        with open(self.folder / "detd.log", "w", encoding="utf-8") as log, \
                subprocess.Popen([self.build / "detd", "--state", state, "--socket", env["DETD_SOCKET"], "--config", conf],
                                 stdout=log, stderr=log,
                                 start_new_session=True) as daemon:  # Ctrl-C is for this program: the daemon must outlive the jobs
            try:
                for _ in range(600):
                    if subprocess.run([detctl, "info"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      check=False).returncode == 0:
                        break
                    time.sleep(0.1)
                for ranks in (1 + i % 2 for i in self.rounds(6, 2)):
                    best[ranks] = max(best[ranks], self.job_rate(state / "detd.db", train(speed, ranks, 2 // ranks)))
                for ranks in (1, 4):
                    cpu[ranks] = json.loads(output(detctl, "show", train(larger, ranks, 1), "--json", env=env))["cpu_seconds"]
            finally:
                self.stop_jobs(detctl, env)  # a stopped daemon would leave them running
                daemon.send_signal(signal.SIGTERM)
        row("ranks", "real jobs, %d px, V = 2: two ranks of one thread" % self.size, ("%.1f images/s", best[2]),
            "%.1f: one rank of two threads" % best[1], best[2] / best[1])
        at_most("ranks", "CPU time of four ranks together, V = 8", ("%.1f s", cpu[4]), "%.1f s: one rank" % cpu[1], cpu[4] / cpu[1], 1.6)

    @staticmethod
    def stop_jobs(detctl, env):
        for _ in range(50):
            found = subprocess.run([detctl, "ls", "--json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   check=False)
            live = [j["id"] for j in json.loads(found.stdout or "[]") if j["state"] not in ("completed", "failed", "cancelled")]
            if not live:
                break
            for job in live:
                subprocess.run([detctl, "cancel", str(job)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            time.sleep(0.2)

    def job_rate(self, path, job):
        """Returns images per second of the job's best four steps in a row, by the times of its loss rows."""
        with sqlite3.connect(str(path)) as db:
            times = [t for (t,) in db.execute("SELECT time FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", (job,))]
        if len(times) < 10:
            raise Failed("job %d reported %d steps" % (job, len(times)))
        return max(4 * self.batch / (times[i + 4] - times[i]) for i in range(2, len(times) - 4))

    # ---- data ----

    def loader(self):
        annotations, folder, repeats = DATA / "test.json", DATA / "images", 3
        if self.smoke:
            (annotations, folder), repeats = self.images(16), 1
        elif not annotations.exists():
            print("loader: BCCD is not there; generated PNG images take its place", flush=True)
            (annotations, folder), repeats = self.images(48), 4
        python, ours, peer = peer_python("PIL, numpy"), {}, {}
        if not python:
            skip("loader against Pillow", HOW_TO % "numpy and pillow")
        for _ in self.rounds(3):
            texts = [(ours, self.program("bench_loader", annotations=annotations, images=folder, size=self.size, repeats=repeats))]
            if python:
                texts.append((peer, output(python, HERE / "pillow_loader.py", annotations, folder, self.size, 1)))
            for side, text in texts:
                for r in records(text, "loader"):
                    side[r.word("work")] = max(side.get(r.word("work"), 0), r.number("images_per_s"))
        for work, rate in ours.items():
            row("loader", "image file to input, %d px: %s" % (self.size, work), ("%.0f images/s per core", rate),
                "%.0f: Pillow" % peer[work] if work in peer else NO_PEER, rate / peer[work] if work in peer else None)

    def coco(self):
        """A large annotation file: seconds, beside Python's own JSON, and memory, beside the file's size."""
        file, mb, seconds, peak = self.folder / "large.json", 1 if self.smoke else 500, {}, {}
        peer = "import json, resource, sys, time; t = time.time(); json.load(open(sys.argv[1])); " \
            "print('json seconds=%.4f' % (time.time() - t))"
        for _ in self.rounds(2):
            for masks in (0, 1):
                r = record(self.program("bench_coco", file=file, mb=mb, masks=masks), "coco")
                seconds[masks] = min(seconds.get(masks, math.inf), r.number("seconds"))
                peak[masks], mib = r.number("peak_mib"), r.number("mib")
            seconds["json"] = min(seconds.get("json", math.inf), record(output(sys.executable, "-c", peer, file), "json").number("seconds"))
        file.unlink()
        for masks, what in ((0, "boxes"), (1, "boxes and outlines")):
            name = "COCO file of %.0f MiB: %s" % (mib, what)
            row("coco", name, ("%.1f s", seconds[masks]), "%.1f: Python's json" % seconds["json"], seconds["json"] / seconds[masks])
            at_most("coco", name + ", memory", ("%.0f MiB", peak[masks]), "the file's size", peak[masks] / mib, 1.6 if masks == 0 else 4)

    # ---- evaluation ----

    def evaluate(self):
        images, python, seconds, ap = 30 if self.smoke else 5000, peer_python("pycocotools, numpy"), {}, {}
        if not python:
            skip("evaluation against pycocotools", HOW_TO % "pycocotools")
        for i in self.rounds(3):
            text = self.program("bench_eval", images=images, out=self.folder if i == 0 and python else None)
            for r in records(text, "eval"):
                kind = r.word("kind")
                seconds[kind], ap[kind] = min(seconds.get(kind, math.inf), r.number("seconds")), r.number("ap")
        for kind, best in seconds.items():
            what, measured = "COCO evaluation of %d images: %s" % (images, kind), ("%.2f s", best)
            if not python:
                row("evaluate", what, measured, NO_PEER, None)
                continue
            peer = record(output(python, HERE / "peer_eval.py", self.folder, kind), "peer")
            if abs(peer.number("ap") - ap[kind]) > 1e-6:
                raise Failed("AP of %s is %.9f, pycocotools says %.9f" % (kind, ap[kind], peer.number("ap")))
            at_least("evaluate", what, measured, "%.1f s: pycocotools" % peer.number("seconds"), peer.number("seconds") / best, 10)

    # ---- between ranks ----

    def comm(self):
        text = self.program("bench_comm", **({"count": 4096, "repeats": 1, "rounds": 10} if self.smoke else {}))
        mb = record(text, "memcpy").number("mb")
        for r in records(text, "reduction"):
            row("comm",
                "reduction of %.0f MB of gradients: P = %s, V = %s, W = %s" % (mb, r.word("ranks"), r.word("shards"), r.word("waves")),
                ("%.2f ms", r.number("ms")), "one memcpy", r.number("of_memcpy"))

    # ---- the daemon ----

    def report(self):
        best = min(
            record(self.program("bench_report", reports=100 if self.smoke else None), "report").number("median_us") for _ in self.rounds(3))
        at_most("report", "reporting a step's losses, in the step", ("%.1f us", best), "20 us", best / 20, 1)
        text = output(sys.executable, HERE / "bench_python.py", *(["calls=100"] if self.smoke else []))
        for r in records(text, "loss"):
            limit = {3: 20, 20: 60}[r.number("terms")]
            at_most("report", "run.loss() in Python, %d terms" % r.number("terms"), ("%.1f us", r.number("median_us")), "%d us" % limit,
                    r.number("median_us") / limit, 1)

    def daemon(self):
        best = {}
        for _ in self.rounds(2):
            text = self.program("bench_daemon", **({"records": 100, "requests": 200, "idle_s": 0} if self.smoke else {}))
            rest, ingest, start = {r.word("after"): r.number("rss_mb")
                                   for r in records(text, "rest")}, record(text, "ingest"), record(text, "start")
            now = {
                "idle": rest["start"],
                "after": rest["load"],
                "start": start.number("empty_ms"),
                "restart": start.number("after_kill_ms"),
                "list": -record(text, "list").number("requests_per_s"),
                "p99": record(text, "latency").number("p99_ms"),
                "rows": -ingest.number("rows_per_s"),
                "turn": ingest.number("loop_max_ms"),
            }
            best = {k: min(v, best.get(k, v)) for k, v in now.items()}
            stored = "{:,.0f}".format(start.number("rows"))
        at_most("daemon", "idle memory", ("%.1f MB", best["idle"]), "12 MB", best["idle"] / 12, 1)
        at_most("daemon", "idle memory after %s rows" % stored, ("%.1f MB", best["after"]), "12 MB", best["after"] / 12, 1)
        at_most("daemon", "exec to first daemon.info reply", ("%.1f ms", best["start"]), "100 ms", best["start"] / 100, 1)
        at_most("daemon", "the same after kill -9, %s rows" % stored, ("%.1f ms", best["restart"]), "100 ms", best["restart"] / 100, 1)
        at_least("daemon", "job.list {limit:1}, 64 in flight", ("%.0f/s", -best["list"]), "30000/s", -best["list"] / 30000, 1)
        at_most("daemon", "job.list {limit:1}, one client, p99", ("%.3f ms", best["p99"]), "0.3 ms", best["p99"] / 0.3, 1)
        at_least("daemon", "report ingest, committed", ("%.0f rows/s", -best["rows"]), "100000 rows/s", -best["rows"] / 100000, 1)
        at_most("daemon", "longest turn of the loop meanwhile", ("%.1f ms", best["turn"]), "5 ms", best["turn"] / 5, 1)

    def crowd(self):
        words, best = ["jobs=3000", "steps=6000", "clients=3"] if self.smoke else [], {}
        for _ in self.rounds(2):
            text = output(sys.executable, HERE / "bench_crowd.py", *words, env=dict(os.environ, DETD_BUILD=str(self.build)))
            lines, pile, state = record(text, "lines"), record(text, "pile"), record(text, "state")
            now = {
                "turn": lines.number("loop_max_ms"),
                "memory": lines.number("peak_mib"),
                "beside": pile.number("beside_p99_ms"),
                "state": state.number("median_ms"),
            }
            best = {k: min(v, best.get(k, v)) for k, v in now.items()}
        crowd, jobs = "%s clients with lines of 1 MiB" % lines.word("clients"), "{:,.0f}".format(state.number("jobs"))
        at_most("crowd", crowd + ": longest turn of the loop", ("%.1f ms", best["turn"]), "20 ms", best["turn"] / 20, 1)
        at_most("crowd", crowd + ": memory", ("%.0f MiB", best["memory"]), "256 MiB", best["memory"] / 256, 1)
        at_most("crowd", "job.list beside a client with 64 slow queries, p99", ("%.2f ms", best["beside"]), "5 ms", best["beside"] / 5, 1)
        at_most("crowd", "job.list by state of %s jobs, median" % jobs, ("%.2f ms", best["state"]), "5 ms", best["state"] / 5, 1)

    def floods(self):
        """Whole commands of ann's and of root's while two processes of bob's flood detd; bench_floods.py says with what."""
        short = {"FLOOD_S": "0.1"} if self.smoke else {}
        text = output(sys.executable, HERE / "bench_floods.py", env=dict(os.environ, DETD_BUILD=str(self.build), **short))
        if text.startswith("skip: "):
            skip("floods", text[6:].strip())
            return
        found = records(text, "flood")
        names = " ".join(r.word("name") + " %.0f," for r in found)[:-1] + " ms"
        more = "" if found[0].word("weights") == "yes" else "; no controller cpu of cgroup version 2, so no weights"
        start = max(r.number("start_p99_ms") for r in found)
        for what, key, most_ms in (("another user's ls, p99", "ls_p99_ms", 50), ("another user's submit, longest", "submit_max_ms", 500),
                                   ("root's cancel, longest", "cancel_max_ms", 1000)):
            ms = [r.number(key) for r in found]
            part = "; start of a program that asks nothing, p99: up to %.0f ms" % start if key == "ls_p99_ms" else ""
            against = "%d ms%s" % (most_ms, part)
            at_most("floods", "floods by one user: %s%s" % (what, more), (names, *ms), against, max(ms) / most_ms, 1)


# Each part, and its least number of rows.
PARTS = {
    "step": 2, "shards": 2, "rcnn": 2, "depth": 1, "sparse": 1, "hashes": 6, "ranks": 2, "conv": 2, "roi": 4, "warp": 2, "loader": 4,
    "coco": 4, "evaluate": 2, "comm": 7, "report": 1, "daemon": 8, "crowd": 4, "floods": 3
}


def run(bench, part):
    print("%s ..." % part, flush=True)
    began, before = time.monotonic(), len(rows)
    try:
        getattr(bench, part)()
        if len(rows) - before < PARTS[part] and not any(s["part"] == part for s in skipped):
            raise Failed("%d rows instead of %d" % (len(rows) - before, PARTS[part]))
        print("%s: %.0f s" % (part, time.monotonic() - began), flush=True)
    except Exception as e:  # pylint: disable=broad-except # after any failure, the other parts still have their rows
        why = str(e) if isinstance(e, (Failed, Malformed)) else "%s: %s" % (type(e).__name__, e)
        broken.append(dict(part=part, why=why))
        print("FAILED: %s: %s" % (part, why), flush=True)


def ratio_text(ratio):
    if ratio is None:
        return "-"
    return " / ".join("%.2f" % r for r in (ratio if isinstance(ratio, list) else [ratio]))


def print_table(smoke):
    head = ("what", "measured", "against", "ratio", "target", "")
    lines = [head] + [(r["what"], r["measured"], r["against"], ratio_text(r["ratio"]), r["target"],
                       "" if smoke else {None: "", True: "met", False: "MISSED"}[r["met"]]) for r in rows]
    width = [max(len(line[k]) for line in lines) for k in range(len(head))]
    print()
    for line in lines:
        print("  ".join(cell.rjust(w) if k == 3 else cell.ljust(w) for k, (cell, w) in enumerate(zip(line, width))).rstrip())
    if any("PyTorch" in r["against"] for r in rows):
        print("* the peer's loss is a cheap stand-in (mean of squares) and nothing is summed over shards, both of which favour it; its "
              "best step counts")
    for w in warnings:
        print("warning: " + w)
    for s in skipped:
        print("skipped: %(part)s: %(why)s" % s)
    for b in broken:
        print("FAILED: %(part)s: %(why)s" % b)
    print("a smoke test: no number is judged" if smoke else "%d of %d targets met" %
          (sum(r["met"] is True for r in rows), sum(r["met"] is not None for r in rows)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", help="parts, with commas between them")
    parser.add_argument("--smoke", action="store_true", help="everything once, in its smallest form")
    parser.add_argument("--json", type=pathlib.Path, help="the table goes to this file too")
    args = parser.parse_args()
    parts = args.only.split(",") if args.only else list(PARTS)
    for part in parts:
        if part not in PARTS:
            parser.error("no part '%s'; there are: %s" % (part, ", ".join(PARTS)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # started processes are stopped on the way out
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="detd-bench-", ignore_cleanup_errors=True) as folder:
        bench = Bench(args.build.resolve(), pathlib.Path(folder), args.smoke)
        for part in parts:
            run(bench, part)
    print_table(args.smoke)
    print("%.0f s, %d CPUs, load %.1f" % (time.monotonic() - began, os.cpu_count(), os.getloadavg()[0]))
    if args.json:
        args.json.write_text(
            json.dumps({"rows": rows, "skipped": skipped, "broken": broken, "warnings": warnings, "load": os.getloadavg()[0]}, indent=1) +
            "\n", encoding="utf-8")
    return 1 if broken else 0


sys.exit(main())
