#!/usr/bin/env python3
"""prove.py BUILD [--runs N] [--only WORDS] [--thin K] [--jobs J] [--report FILE] - is a job's result a function of its
spec and data alone?

Every cell of the matrix (cells.py) trains a micro job N times, each time with other seeds for what the cell varies, and
compares every step's evidence, every measured row and every tensor of the last checkpoint with an undisturbed
reference. In each step of the reference, every part of the model has a loss and a gradient. Ranks are run without detd
(micro.py). Prints a table, and writes it to FILE (default BUILD/prove.txt): runs and mismatches of each cell with each
model and with all, and the meaning of N runs without a mismatch: with 95 % confidence a run differs with a probability
below 1 - 0.05^(1/N) (specs determinism section 10.1). WORDS: cells, models, cpu or gpu (all cells
there), separated by commas. With --thin each
cell has only every K-th model, shifted from cell to cell. Status 0: no mismatch."""  # SPDX-License-Identifier: Apache-2.0
import argparse
import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cells
import evidence
import micro
from cells import STEPS, merged

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = {name: os.environ[name]
        for name in ("PATH", "HOME", "TMPDIR", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS") if name in os.environ}


class Bench:
    """The place of the runs. programs: of "cpu", "cuda" and "toy"; a program with a planted fault may replace any of
    them."""

    def __init__(self, root, build, programs=None):
        self.root, self.data = root, root + "/shapes"
        self.programs = programs or {"cpu": build + "/detd-worker", "cuda": build + "/emu/detd-worker", "toy": build + "/prove/detd-worker"}

    def draw(self):
        subprocess.run(
            [sys.executable, HERE + "/../../demo/make_shapes.py", self.data, "--train", "40", "--val", "11", "--size", "96", "--masks"],
            check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, HERE + "/../../demo/as_frames.py", self.data, "96"], check=True)
        with open(self.root + "/net.cfg", "w", encoding="utf-8") as f:
            f.write(cells.CFG)

    def program(self, model, device):
        return self.programs["toy" if model == "toy" else device]

    def spec(self, model, device):
        """All keys of the job, as a worker that runs alone writes them."""
        folder = "%s/fill-%s-%s" % (self.root, model.replace(" ", "-"), device)
        job = merged(merged(cells.base(self.data, model), cells.MODELS[model]), {"run": {"device": device}})
        if not os.path.exists(folder + "/spec.json"):
            with open(folder + ".job", "w", encoding="utf-8") as f:
                json.dump(job, f)
            done = subprocess.run([self.program(model, device), "--dir", folder, folder + ".job"], env=KEPT, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                raise micro.Broken("alone: " + done.stdout[-400:])
        with open(folder + "/spec.json", encoding="utf-8") as f:
            return json.load(f)

    def run(self, name, model, device, how):
        """Trains a run; returns its results, its number of attempts, and messages that should not appear."""
        folder, here = "%s/%s" % (self.root, name), os.getcwd()
        hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() if how.hog else 0)]
        os.mkdir(folder)
        try:
            if how.folder:
                os.chdir(how.folder)
            rows, attempts, errors = micro.train(folder, merged(self.spec(model, device), how.keys), self.program(model, device),
                                                 dict(KEPT, **how.env), how.kills, how.ranks)
        finally:
            os.chdir(here)
            for hog in hogs:
                hog.kill()
                hog.wait()
        return evidence.Left(folder, STEPS, rows), attempts, errors


def device_of(cell):
    return "cuda" if cell in cells.ON_GPU else "cpu"


def one(bench, cell, model, k, reference):
    """Returns (the difference or None, attempts) of run k of a cell."""
    rng = random.Random(int.from_bytes(hashlib.sha256(("%s/%s/%d" % (cell, model, k)).encode()).digest()[:8], "little"))
    name = "%s-%s-%d" % (cell.replace(" ", "-"), model.replace(" ", "-"), k)
    how = cells.CELLS[cell](rng, model)
    try:
        left, attempts, errors = bench.run(name, model, device_of(cell), how)
        return errors[0] if errors else reference.difference(left), attempts
    except micro.Broken as e:
        return "; ".join(filter(None, (reference.broken_off(bench.root + "/" + name), str(e)))), 0
    finally:
        shutil.rmtree(bench.root + "/" + name, ignore_errors=True)


class Idle(micro.Broken):
    """A reference that cannot show anything."""


def reference_of(bench, model, device):
    left = bench.run("reference-%s-%s" % (model.replace(" ", "-"), device), model, device, cells.Run(ranks=[1]))[0]
    idle = left.idle(cells.UNUSED.get(model, ()))
    if idle:
        raise Idle("the reference of %s shows nothing: %s" % (model, idle))
    return left


def chosen(only, thin=1):
    """[(cell, model)]"""
    groups = {"cpu": list(cells.ON_CPU), "gpu": list(cells.ON_GPU)}
    words = [name for w in (only or "").split(",") if w for name in groups.get(w, [w])]
    unknown = [w for w in words if w not in cells.CELLS and w not in cells.MODELS]
    if unknown:
        raise SystemExit("neither a cell nor a model: %s\ncells: %s\nmodels: %s" %
                         (", ".join(unknown), ", ".join(cells.CELLS), ", ".join(cells.MODELS)))
    some, models = [w for w in words if w in cells.CELLS], [w for w in words if w in cells.MODELS]
    return [(c, m) for i, m in enumerate(models or cells.MODELS) for k, c in enumerate(some or cells.CELLS)
            if cells.fits(c, m) and (i + k) % thin == 0]


def bound(n):
    return 1 - 0.05 ** (1 / n)


class Table:
    def __init__(self):
        self.rows, self.wrong = {}, []

    def add(self, cell, model, k, said, attempts):
        row = self.rows.setdefault((cell, model), [0, 0, 0])
        row[0] += 1
        row[1] += said is not None
        row[2] += max(attempts - 1, 0)
        if said is not None:
            self.wrong.append("%s, %s, run %d: %s" % (cell, model, k, said))

    def over_models(self):
        """{cell: [runs, wrong, kills]}"""
        found = {}
        for (cell, _), row in self.rows.items():
            found[cell] = [a + b for a, b in zip(found.get(cell, (0, 0, 0)), row)]
        return found

    @staticmethod
    def line(cell, model, row):
        n, wrong, kills = row
        bits = "p < %4.1f %%" % (100 * bound(n)) if wrong == 0 else "differs"
        return "%-22s %-14s %4d %6d %6s   %s" % (cell, model, n, wrong, kills or "-", bits)

    def text(self, heads, seconds):
        head = "%-22s %-14s %4s %6s %6s   %s" % ("CELL", "MODEL", "RUNS", "WRONG", "KILLS", "a run differs with")
        n, wrong = sum(r[0] for r in self.rows.values()), len(self.wrong)
        end = "%d runs of %d steps in %d s: %s" % (n, STEPS, seconds,
                                                   "%d differ" % wrong if wrong else "every step, row and tensor the same")
        return "\n".join(heads + [head] + [self.line(c, m, row) for (c, m), row in self.rows.items()]
                         + [self.line(c, "all", row) for c, row in self.over_models().items()] + self.wrong + [end]) + "\n"


def compared(reference):
    if reference.records is not None:
        return "evidence of every step, rows, last checkpoint"
    return "rows, last checkpoint; there is no evidence"


def prove(bench, pairs, runs, jobs, say=lambda text: None):
    """A table, and the references."""
    table, references = Table(), {}
    for cell, model in pairs:
        key = model, device_of(cell)
        if key not in references:
            references[key] = reference_of(bench, *key)
    pool = concurrent.futures.ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), initializer=signal.signal,
                                                  initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        for cell, model in pairs:
            tasks = [pool.submit(one, bench, cell, model, k, references[model, device_of(cell)]) for k in range(runs)]
            for k, task in enumerate(tasks):
                table.add(cell, model, k, *task.result())
            say(table.line(cell, model, table.rows[cell, model]))
    finally:
        pool.shutdown(cancel_futures=True)
    return table, references


PROGRAMS = "detd-worker", "emu/detd-worker", "emu/libdetd-cuda.so", "prove/detd-worker"


def copy_programs(build, to):
    """Copies the programs, so that a build in the meantime changes nothing."""
    for name in PROGRAMS:
        if os.path.exists(build + "/" + name):
            os.makedirs(os.path.dirname(to + "/" + name), exist_ok=True)
            shutil.copy(build + "/" + name, to + "/" + name)
    return to


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--runs", type=int, default=59)
    p.add_argument("--only")
    p.add_argument("--thin", type=int, default=1)
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--report")
    a = p.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    build, began = os.path.abspath(a.build), time.monotonic()
    missing = [name for name in PROGRAMS if not os.path.exists(build + "/" + name)]
    if missing:
        sys.exit("%s: %s is not built; `make prove` builds all that is needed" % (build, missing[0]))
    with tempfile.TemporaryDirectory(prefix="detd-prove-") as root:
        bench = Bench(root, copy_programs(build, root + "/programs"))
        bench.draw()
        table, references = prove(bench, chosen(a.only, a.thin), a.runs, a.jobs, print)
    heads = ["compared: %s" % compared(next(iter(references.values()))), "locales: %s; builds of the CPU device: %s" % (
        " ".join(cells.languages()), " ".join(cells.isas()))]
    text = table.text(heads, time.monotonic() - began)
    with open(a.report or build + "/prove.txt", "w", encoding="utf-8") as f:
        f.write(text)
    print("\n".join(table.wrong + [text.splitlines()[-1]]))
    sys.exit(1 if table.wrong else 0)


if __name__ == "__main__":
    main()
