#!/usr/bin/env python3
"""Speed of everything that has a target, as ratios from one run: what was measured, against what, and the target.

    bench.py BUILD [--only PART,...] [--json FILE]

Parts: step, shards, conv, ranks, loader, comm, report, daemon. Whatever a part is compared with takes turns with it, and the best of each side
counts, so that a busy machine does less harm. A part that lacks something is skipped and says so. Peers need Python packages; the variable
DETD_TORCH_PYTHON names an interpreter that has them:

    python3 -m venv torchenv && torchenv/bin/pip install torch --index-url https://download.pytorch.org/whl/cpu && torchenv/bin/pip install numpy pillow
    DETD_TORCH_PYTHON=torchenv/bin/python make bench
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent.parent.parent / "shared" / "data" / "bccd"
THREADS, SIZE, BATCH = 2, 416, 8
ROUNDS_S = 80  # no further round of a part begins after that: on a busy machine a step of the peer takes many seconds
HOW_TO = "DETD_TORCH_PYTHON names no Python with %s; tests/bench/bench.py says how to make one"

rows, skipped, broken, warnings = [], [], [], []


def row(part, what, measured, against, ratio, target="", met=None):
    """One line of the table; target as text, met: whether it is."""
    rows.append(dict(part=part, what=what, measured=measured, against=against, ratio=ratio, target=target, met=met))


def at_least(part, what, measured, against, ratio, least, more=""):
    row(part, what, measured, against, ratio, ">= %g%s" % (least, more), ratio >= least)


def at_most(part, what, measured, against, ratio, most):
    row(part, what, measured, against, ratio, "<= %g" % most, ratio <= most)


def skip(part, why):
    skipped.append(dict(part=part, why=why))
    print("skipped: %s: %s" % (part, why), flush=True)


class Failed(Exception):
    pass


def output(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, check=False, **options)
    if done.returncode != 0:
        raise Failed("%s: exit %d: %s" % (pathlib.Path(command[0]).name, done.returncode, done.stderr.strip()[-400:]))
    return done.stdout


def number(text, pattern):
    found = re.search(pattern, text)
    if not found:
        raise Failed("no '%s' in: %s" % (pattern, text[:200]))
    return float(found.group(1))


def peer_python(modules):
    """An interpreter that imports all of modules, or None."""
    for python in filter(None, (os.environ.get("DETD_TORCH_PYTHON"), sys.executable)):
        if shutil.which(python) and subprocess.run([python, "-c", "import " + modules], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return python
    return None


def rounds(most, least=1):
    """Numbers 0, 1, ... for the turns of a part."""
    began = time.monotonic()
    for i in range(most):
        if i < least or time.monotonic() - began < ROUNDS_S:
            yield i


class Bench:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder

    def program(self, name, *args):
        return output(self.build / "tests" / "bench" / name, *args, env=dict(os.environ, DETD_BUILD=str(self.build)))

    # ---- training step ----

    def step(self):
        python, ours, outside, peer = peer_python("torch"), 0, [], {}
        if not python:
            skip("step against PyTorch", HOW_TO % "torch")
        for _ in rounds(4 if python else 2):
            text = self.program("bench_step", "threads=%d" % THREADS, "size=%d" % SIZE, "batch=%d" % BATCH, "steps=6")
            ours = max(ours, number(text, r"images_per_s ([\d.]+)"))
            outside.append(1 - number(text, r"conv_share ([\d.]+)"))
            for mode, rate in re.findall(r"(\w+) ([\d.]+)", output(python, HERE / "peer_torch.py", THREADS, 6) if python else ""):
                peer[mode] = max(peer.get(mode, 0), float(rate))
        what, measured = "training step, yolov3-tiny %d, batch %d, fp32, %d threads" % (SIZE, BATCH, THREADS), "%.1f images/s" % ours
        targets = {"fp32": (1.8, " (goal 2.5)"), "bf16": (1.4, "")}
        modes = {"fp32": "fp32 channels_last", "bf16": "bf16 autocast"}
        for mode, rate in peer.items():
            at_least("step", what, measured, "%.1f: PyTorch %s*" % (rate, modes[mode]), ours / rate, *targets[mode])
        if not peer:
            row("step", what, measured, "no peer", None)
        at_most("step", "time outside convolutions", "%.1f %%" % (100 * min(outside)), "the step", min(outside), 0.3)

    def shards(self):
        text = self.program("bench_step", "threads=%d" % THREADS, "size=%d" % SIZE, "batch=%d" % BATCH, "shards=1,4,8", "freeze=1", "steps=14")
        ms = {int(v): float(t) for v, t in re.findall(r"shards (\d+): images_per_s [\d.]+  step ([\d.]+) ms", text)}
        for v, most in ((4, 1.08), (8, 1.2)):
            at_most("shards", "step of one rank, V = %d, BN frozen" % v, "%.0f ms" % ms[v], "%.0f ms: V = 1" % ms[1], ms[v] / ms[1], most)

    # ---- convolutions ----

    def conv(self):
        table, peak, count, one = self.program("bench_conv"), 1.0, 1, 0.0
        for line in table.splitlines():
            head = re.search(r"(\d+) threads?: FMA peak (\d+)", line)
            groups = re.findall(r" (\d+) \((\d\.\d+)\) +([\d.]+)", line[20:])
            if head:
                count, peak = int(head.group(1)), float(head.group(2))
                one = peak if count == 1 else one
                if peak < 0.75 * count * one:
                    warnings.append("conv: %d threads peak at %.1f x one thread: other programs had the CPUs, ratios of %d threads mean nothing"
                                    % (count, peak / one, count))
            if groups:
                row("conv", "%s, %d thread%s: forward / [data] / weights" % (line[:20].strip(), count, "s" * (count > 1)),
                    " / ".join(g[0] for g in groups) + " GF/s", "%.0f GF/s: FMA peak" % peak, [float(g[0]) / peak for g in groups])

    # ---- jobs ----

    def images(self, count):
        """Generated images with annotations: (annotations, folder)."""
        shapes = self.folder / ("shapes-%d" % count)
        if not shapes.exists():
            output(sys.executable, HERE.parent / "demo" / "make_shapes.py", shapes, "--train", count, "--val", 1, "--size", SIZE)
        return shapes / "train.json", shapes / "images"

    def ranks(self):
        detctl, state, best = self.build / "detctl", self.folder / "state", {1: 0, 2: 0}
        annotations, folder = self.images(48)
        spec = self.folder / "job.json"
        spec.write_text(json.dumps({"name": "bench", "model": {"preset": "yolov3_tiny", "size": SIZE},
                                    "data": {"train": {"format": "coco", "annotations": str(annotations), "images": str(folder)}},
                                    "train": {"steps": 16, "batch": BATCH, "shards": 2, "lr": 1e-4, "log_every": 1}}))
        env = dict(os.environ, DETD_SOCKET=str(self.folder / "sock"))
        with open(self.folder / "detd.log", "w", encoding="utf-8") as log, \
                subprocess.Popen([self.build / "detd", "--state", state, "--socket", env["DETD_SOCKET"]], stdout=log, stderr=log,
                                 start_new_session=True) as daemon:  # Ctrl-C is for this program: the daemon must outlive the jobs
            try:
                for _ in range(100):
                    if subprocess.run([detctl, "info"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0:
                        break
                    time.sleep(0.1)
                for ranks in (1 + i % 2 for i in rounds(6, 2)):
                    job = output(detctl, "submit", spec, "run.ranks=%d" % ranks, "run.threads=%d" % (2 // ranks), "--wait", env=env).split()[0]
                    best[ranks] = max(best[ranks], self.job_rate(state / "detd.db", int(job)))
            finally:
                self.stop_jobs(detctl, env)  # a stopped daemon would leave them running
                daemon.send_signal(signal.SIGTERM)
        row("ranks", "real jobs, %d px, V = 2: two ranks of one thread" % SIZE, "%.1f images/s" % best[2], "%.1f: one rank of two threads" % best[1], best[2] / best[1])

    @staticmethod
    def stop_jobs(detctl, env):
        for _ in range(50):
            found = subprocess.run([detctl, "ls", "--json"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
            live = [j["id"] for j in json.loads(found.stdout or "[]") if j["state"] not in ("completed", "failed", "cancelled")]
            if not live:
                break
            for job in live:
                subprocess.run([detctl, "cancel", str(job)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            time.sleep(0.2)

    @staticmethod
    def job_rate(path, job):
        """Images per second of the job's best four steps in a row, by the times of its loss rows."""
        with sqlite3.connect(str(path)) as db:
            times = [t for (t,) in db.execute("SELECT time FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", (job,))]
        if len(times) < 10:
            raise Failed("job %d reported %d steps" % (job, len(times)))
        return max(4 * BATCH / (times[i + 4] - times[i]) for i in range(2, len(times) - 4))

    # ---- data ----

    def loader(self):
        annotations, folder, repeats = DATA / "test.json", DATA / "images", 3
        if not annotations.exists():
            print("loader: BCCD is not there; generated PNG images take its place", flush=True)
            (annotations, folder), repeats = self.images(48), 4
        python, ours, peer = peer_python("PIL, numpy"), {}, {}
        if not python:
            skip("loader against Pillow", HOW_TO % "numpy and pillow")
        for _ in range(3):
            texts = [(ours, self.program("bench_loader", annotations, folder, SIZE, repeats))]
            if python:
                texts.append((peer, output(python, HERE / "pillow_loader.py", annotations, folder, SIZE, 1)))
            for side, text in texts:
                for what, rate in re.findall(r"^(\w\S+(?: \S+)?) +(\d+)", text, re.M):
                    side[what] = max(side.get(what, 0), float(rate))
        for what, rate in ours.items():
            if what in peer:
                row("loader", "image file to input, %d px: %s" % (SIZE, what), "%.0f images/s per core" % rate, "%.0f: Pillow" % peer[what], rate / peer[what])
            else:
                row("loader", "image file to input, %d px: %s" % (SIZE, what), "%.0f images/s per core" % rate, "no peer", None)

    # ---- between ranks ----

    def comm(self):
        found = re.findall(r"(\d+) rank\(s\), (\d+) shards, (\d+) wave\(s\): reduction ([\d.]+) ms = ([\d.]+) x", self.program("bench_comm"))
        for p, v, w, ms, ratio in found:
            row("comm", "reduction of 35 MB of gradients: P = %s, V = %s, W = %s" % (p, v, w), "%s ms" % ms, "one memcpy", float(ratio))

    # ---- the daemon ----

    def report(self):
        best = min((number(self.program("bench_report"), r"median ([\d.]+) us") for _ in range(3)))
        at_most("report", "reporting a step's losses, in the step", "%.1f us" % best, "20 us", best / 20, 1)

    def daemon(self):
        best = {}
        for _ in range(2):
            text = self.program("bench_daemon")
            now = {
                "idle": number(text, r"idle RSS ([\d.]+)"),
                "after": number(text, r"idle RSS after that ([\d.]+)"),
                "start": number(text, r"reply ([\d.]+) ms"),
                "restart": number(text, r"([\d.]+) ms after kill"),
                "list": -number(text, r"in flight: (\d+)"),
                "p99": number(text, r"p99 ([\d.]+)"),
                "rows": -number(text, r"(\d+) rows/s"),
                "turn": number(text, r"meanwhile ([\d.]+)"),
            }
            best = {k: min(v, best.get(k, v)) for k, v in now.items()}
        at_most("daemon", "idle memory", "%.1f MB" % best["idle"], "12 MB", best["idle"] / 12, 1)
        at_most("daemon", "idle memory after 480,000 rows and 65,000 requests", "%.1f MB" % best["after"], "12 MB", best["after"] / 12, 1)
        at_most("daemon", "exec to first daemon.info reply", "%.1f ms" % best["start"], "100 ms", best["start"] / 100, 1)
        at_most("daemon", "the same after kill -9, 480,000 rows", "%.1f ms" % best["restart"], "100 ms", best["restart"] / 100, 1)
        at_least("daemon", "job.list {limit:1}, 64 in flight", "%.0f/s" % -best["list"], "30000/s", -best["list"] / 30000, 1)
        at_most("daemon", "job.list {limit:1}, one client, p99", "%.3f ms" % best["p99"], "0.3 ms", best["p99"] / 0.3, 1)
        at_least("daemon", "report ingest, committed", "%.0f rows/s" % -best["rows"], "100000 rows/s", -best["rows"] / 100000, 1)
        at_most("daemon", "longest turn of the loop meanwhile", "%.1f ms" % best["turn"], "5 ms", best["turn"] / 5, 1)


PARTS = ("step", "shards", "ranks", "conv", "loader", "comm", "report", "daemon")


def run(bench, part):
    print("%s ..." % part, flush=True)
    began = time.monotonic()
    try:
        getattr(bench, part)()
        print("%s: %.0f s" % (part, time.monotonic() - began), flush=True)
    except (Failed, OSError, subprocess.TimeoutExpired, sqlite3.Error) as e:
        broken.append(dict(part=part, why=str(e)))
        print("FAILED: %s: %s" % (part, e), flush=True)


def ratio_text(ratio):
    if ratio is None:
        return "-"
    return " / ".join("%.2f" % r for r in (ratio if isinstance(ratio, list) else [ratio]))


def print_table():
    head = ("what", "measured", "against", "ratio", "target", "")
    lines = [head] + [(r["what"], r["measured"], r["against"], ratio_text(r["ratio"]), r["target"],
                       {None: "", True: "met", False: "MISSED"}[r["met"]]) for r in rows]
    width = [max(len(line[k]) for line in lines) for k in range(len(head))]
    print()
    for line in lines:
        print("  ".join(cell.rjust(w) if k == 3 else cell.ljust(w) for k, (cell, w) in enumerate(zip(line, width))).rstrip())
    if any("PyTorch" in r["against"] for r in rows):
        print("* the peer's loss is a cheap stand-in (mean of squares) and nothing is summed over shards, both of which favour it; its best step counts")
    for w in warnings:
        print("warning: " + w)
    for s in skipped:
        print("skipped: %(part)s: %(why)s" % s)
    for b in broken:
        print("FAILED: %(part)s: %(why)s" % b)
    print("%d of %d targets met" % (sum(r["met"] is True for r in rows), sum(r["met"] is not None for r in rows)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", help="parts, with commas between them")
    parser.add_argument("--json", type=pathlib.Path, help="the table goes to this file too")
    args = parser.parse_args()
    parts = args.only.split(",") if args.only else PARTS
    for part in parts:
        if part not in PARTS:
            parser.error("no part '%s'; there are: %s" % (part, ", ".join(PARTS)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is stopped on the way out
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="detd-bench-", ignore_cleanup_errors=True) as folder:
        bench = Bench(args.build.resolve(), pathlib.Path(folder))
        for part in parts:
            run(bench, part)
    print_table()
    print("%.0f s, %d CPUs, load %.1f" % (time.monotonic() - began, os.cpu_count(), os.getloadavg()[0]))
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "skipped": skipped, "broken": broken, "warnings": warnings, "load": os.getloadavg()[0]}, indent=1) + "\n", encoding="utf-8")
    return 1 if broken else 0


sys.exit(main())
