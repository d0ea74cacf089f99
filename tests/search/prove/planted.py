#!/usr/bin/env python3
"""planted.py --check             does the text of each fault of planted.txt stand in its file exactly once?
planted.py BUILD [--runs N] [--only NAMES] [--report FILE]

Plants each fault of the list into a copy of the tree, builds the worker, and has a control caught by make prove
(prove.py) in a cell named for it, within N runs, and any other fault named by the first difference to a run without it.
Prints a line for each: the cell and run that caught it, or the message. Status 0: all were caught.
"""  # SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cells
import micro
import prove
from cells import STEPS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, HERE + "/../mutants")
from faults import Fault, read  # noqa: E402


class Planted:
    def __init__(self, kind, name, what):
        self.kind, self.name, self.what, self.patches, self.cells, self.says, self.run = kind, name, what, [], [], None, {}

    def put_in(self, root):
        for patch in self.patches:
            patch.put_in(root)


def load():
    listed = []
    for number, line in enumerate(read(HERE, "planted.txt"), 1):
        head = re.fullmatch(r"(control|fault) (\w+): (.+)", line)
        word, _, rest = line.partition(": ")
        if not line or line.startswith("#"):
            continue
        if head:
            listed.append(Planted(*head.groups()))
        elif line.startswith("in "):
            listed[-1].patches.append(Fault(number, line[3:], listed[-1].name))
        elif line[0] in " -+":
            listed[-1].patches[-1].lines.append((line[0], line[1:]))
        elif word == "cells":
            listed[-1].cells = rest.split(", ")
        elif word == "says":
            listed[-1].says = re.compile(rest)
        elif word == "run":
            listed[-1].run = json.loads(rest)
        else:
            raise SystemExit("planted.txt:%d: neither a fault nor a line of one" % number)
    return listed


def problems(listed):
    """Patches of one file may follow each other's text, so they are put in one after the other."""
    bad = []
    for planted in listed:
        with tempfile.TemporaryDirectory(prefix="detd-planted-") as root:
            try:
                for path in {p.path for p in planted.patches}:
                    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                    shutil.copy(os.path.join(ROOT, path), os.path.join(root, path))
                planted.put_in(root)
            except (OSError, ValueError) as e:
                bad.append("planted.txt, %s, line %s" % (planted.name, str(e).removeprefix("fault ")))
        if (planted.kind == "control") != bool(planted.cells) or (planted.kind == "fault") != bool(planted.says):
            bad.append("planted.txt, %s: a control has cells, another fault what is said of it" % planted.name)
        known = {*cells.CELLS, "avx2", "generic", "reference"}
        bad += ["planted.txt, %s: there is no cell '%s'" % (planted.name, c) for c in planted.cells if c not in known]
    return bad


# ---- a worker with a fault ----

class Tree:
    """A copy of the tree with the build's objects, so that little must be compiled for a fault."""

    def __init__(self, place, build):
        self.root = place + "/tree"
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=shutil.ignore_patterns(".git", "build", "build-*", "__pycache__"))
        for name in os.listdir(build):
            if os.path.isdir(build + "/" + name) and (name in ("worker", "proto") or name.startswith("cpu-")):
                shutil.copytree(build + "/" + name, self.root + "/build/" + name)
            elif name.startswith("cpu-"):
                shutil.copy2(build + "/" + name, self.root + "/build/" + name)
        self.make()

    def make(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(
            ["make", "-s", "-j%d" % os.cpu_count(), "B=build", "SAN=", "NVCC=", "WARN=-w", "build/detd-worker"], cwd=self.root, env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise SystemExit("%s\nplanted.py: the worker cannot be built" % done.stdout)

    def worker(self, planted, to):
        """Returns the programs of a Bench, built with the fault (None: without)."""
        paths = {p.path for p in planted.patches} if planted else set()
        if planted:
            planted.put_in(self.root)
            self.make()
        os.makedirs(to)
        shutil.copy(self.root + "/build/detd-worker", to + "/detd-worker")
        for path in paths:
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.root, path))
            os.utime(os.path.join(self.root, path))  # newer than the objects built from it
        return {"cpu": to + "/detd-worker"}


# ---- controls ----

def control(planted, bench, runs):
    """Returns (whether it was caught, by which cell)."""
    model, reference = planted.run.get("model", "tiny sgd"), None
    try:
        reference = prove.reference_of(bench, model, "cpu")
        for k in range(runs):
            for cell in [c for c in planted.cells if c in cells.CELLS]:
                said, _ = prove.one(bench, cell, model, k, reference)
                if said:
                    return True, "cell '%s', run %d: %s" % (cell, k, said)
    except micro.Broken as e:
        return planted.cells == ["reference"] and isinstance(e, prove.Idle), str(e)
    return False, "not by %d runs each of %s" % (runs, ", ".join(planted.cells))


# ---- faults ----

def trained(planted, bench, name):
    """Returns the results of a run, or the message with which it failed."""
    how = cells.Run(ranks=[planted.run.get("ranks", 1)], kills=[micro.Kill(k + 2, None, 0) for k in planted.run.get("kills", [])])
    try:
        return bench.run(name, planted.run.get("model", "tiny sgd"), "cpu", how)[0]
    except micro.Broken as e:
        return str(e)


def diff(build, a, b):
    """Returns detctl's comparison of two job folders."""
    done = subprocess.run([build + "/detctl", "diff", "--json", a, b], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    if done.returncode not in (0, 6):  # nothing to compare
        return done.stdout.strip()
    said = json.loads(done.stdout)["run"]
    return None if said["equal"] else said["text"]


def fault(planted, true, bench, build):
    good, bad = trained(planted, true, "true-" + planted.name), trained(planted, bench, "planted-" + planted.name)
    if isinstance(good, str):
        return False, "without the fault: " + good
    said = bad if isinstance(bad, str) else diff(build, good.folder, bad.folder)
    return bool(said and planted.says.search(said)), said or "no difference in %d steps" % STEPS


def work(listed, build, root, runs):
    """Returns [(planted, whether the result is as it should be, the message)]."""
    tree, found = Tree(root, build), []
    true = prove.Bench(root, None, tree.worker(None, root + "/programs/true"))
    true.draw()
    for planted in listed:
        began = time.monotonic()
        os.mkdir(root + "/" + planted.name)
        bench = prove.Bench(root + "/" + planted.name, None, tree.worker(planted, root + "/programs/" + planted.name))
        bench.draw()
        good, said = control(planted, bench, runs) if planted.kind == "control" else fault(planted, true, bench, build)
        found.append((planted, good, said))
        verdict = {
            True: "caught by" if planted.kind == "control" else "named", False: "NOT CAUGHT" if planted.kind == "control" else "MISNAMED"
        }[good]
        print("%s (%s): %s %s, %.0f s" % (planted.name, planted.what, verdict, said, time.monotonic() - began))
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?")
    p.add_argument("--check", action="store_true")
    p.add_argument("--runs", type=int, default=12)
    p.add_argument("--only")
    a = p.parse_args()
    listed = load()
    bad = problems(listed)
    if bad or a.check:
        print("\n".join(bad) or "%d planted faults, each with its places" % len(listed))
        sys.exit(1 if bad else 0)
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = [x for x in listed if not a.only or x.name in a.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="detd-planted-") as root:
        found = work(wanted, os.path.abspath(a.build), root, a.runs)
    good = sum(ok for _, ok, _ in found)
    print("%d of %d caught or named" % (good, len(found)))
    sys.exit(0 if good == len(found) and found else 1)


if __name__ == "__main__":
    main()
