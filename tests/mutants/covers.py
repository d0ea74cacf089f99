"""Which tests cover a file. Of programs the build says it: their "uses:" line and the compiler's .d files. Of scripts the table below."""  # SPDX-License-Identifier: Apache-2.0
import glob
import os
import re

FLOORS = {"worker/" + floor for floor in "train evidence checkpoint report models optim layers data eval mask gradients comm core".split()}
FLOORS |= {folder.rstrip("/") for floor in ("models", "data") for folder in glob.glob("worker/%s/*/" % floor)}
TRAINER = {"worker", "worker/predict", "worker/backend", "cpu"} | FLOORS

SIMULATOR = "tests/sim/sim"  # a program of several files, which runs the daemon
DETD = {"daemon", "supervisor"}
# What a script is there to look at, besides proto; one that is not listed looks at all of ours, and at the CUDA device where it names the emulated one.
SCRIPTS = {
    "backfill.sh": DETD,
    "background.sh": TRAINER,
    "bits.sh": {"cuda"} | TRAINER,
    "bundle.sh": None,  # how programs are packed
    "cfg.sh": TRAINER,
    "check.sh": TRAINER,
    "cuda_train.sh": {"cuda"} | TRAINER,
    "daemon_crowd.sh": {"daemon"},
    "daemon_jobs.sh": DETD,
    "daemon_rights.sh": {"client"} | DETD,
    "daemon_socket.sh": {"daemon"},
    "demo_evidence.sh": TRAINER,
    "depth.sh": TRAINER,
    "detctl.sh": {"client", "daemon"},
    "detctl_node.sh": {"client", "daemon"},
    "diff.sh": {"client"},
    "diff_train.sh": {"client"} | TRAINER,
    "eval.sh": {"client", "daemon"} | TRAINER,
    "export.sh": {"client"} | TRAINER,
    "extend.sh": {"client"} | DETD | TRAINER,
    "forms.sh": TRAINER,
    "gpu_quarter.sh": None,  # scripts for a real GPU, as cuda_train.sh is one
    "gpus.sh": {"client"} | DETD,
    "habits.sh": {"client"} | TRAINER,
    "ingest.sh": {"daemon"},
    "init.sh": {"client"} | TRAINER,
    "launch.sh": {"launch"} | DETD,
    "month.sh": DETD,
    "odd_masks.sh": TRAINER,
    "order.sh": DETD | TRAINER,
    "predict.sh": {"client"} | TRAINER,
    "protocol_examples.sh": {"daemon"},
    "ranks.sh": TRAINER,
    "rcnn.sh": TRAINER,
    "recorder.sh": TRAINER,
    "remove.sh": DETD,
    "stress.sh": {"cuda"} | TRAINER,
    "super_job.sh": {"supervisor"},
    "super_train.sh": {"supervisor"} | TRAINER,
    "systemd.sh": None,  # what is installed, of a whole build
    "worker.sh": TRAINER,
}
# The script that is made for a folder.
FIRST = {"launch": "launch.sh", "client": "detctl.sh", "daemon": "daemon_jobs.sh", "supervisor": "super_job.sh", "cuda": "cuda_train.sh"}


def part_of(d_file):
    """The word of a "uses:" line that brings in what was compiled with this .d file; of a test it is the test."""
    folder = os.path.dirname(d_file)
    if folder.startswith("cpu-"):
        return "cpu"
    if folder.startswith(("emu/cuda", "shared")):
        return "cuda"
    return d_file[:-2] if folder.startswith("tests/") else folder


class Covers:
    """tree: a built copy, build its build folder."""

    def __init__(self, tree, build):
        self.parts, self.tests = {}, {}
        for path in glob.glob("**/*.d", root_dir=os.path.join(tree, build), recursive=True):
            with open(os.path.join(tree, build, path), encoding="utf-8") as f:
                for name in f.read().split("\n\n")[0].replace("\\\n", " ").split()[1:]:
                    self.parts.setdefault(os.path.normpath(name), set()).add(part_of(path))
        for path in sorted(glob.glob("tests/*/test_*.c", root_dir=tree)):
            program = path[:-2]
            if not os.path.exists(os.path.join(tree, build, program)):
                continue
            with open(os.path.join(tree, path), encoding="utf-8") as f:
                uses = re.search(r"uses: ([a-z_/ ]*)", "".join(f.readlines()[:3]))
            words = set(uses[1].split() if uses else ())
            self.tests[program] = words | (FLOORS if "trainer" in words else set()) | {program}
        if os.path.exists(os.path.join(tree, build, SIMULATOR)):
            self.tests[SIMULATOR] = {"daemon", SIMULATOR}
        for path in sorted(glob.glob("tests/e2e/*.sh", root_dir=tree)):
            runs = SCRIPTS.get(os.path.basename(path), TRAINER | {"daemon", "supervisor", "client"} | ({"cuda"} if names_emulator(tree, path) else set()))
            if runs is not None:
                self.tests[path] = runs | {"proto"}

    def of(self, path):
        """The tests that cover a file, the most specific first; none where nothing was compiled from it."""
        found = [test for test, runs in self.tests.items() if runs & self.parts.get(path, set())]
        return sorted(found, key=lambda test: (not is_named_after(test, path), len(self.tests[test])))


def names_emulator(tree, script):
    for path in (script, script[:-3] + ".py"):
        if os.path.exists(os.path.join(tree, path)):
            with open(os.path.join(tree, path), encoding="utf-8") as f:
                if re.search(r"\bemu/", f.read()):
                    return True
    return False


def is_named_after(test, path):
    if test.endswith(".sh"):
        return os.path.basename(test) == FIRST.get(path.split("/")[0])
    stem, name = os.path.splitext(os.path.basename(path))[0], os.path.basename(test)
    return name == "test_" + stem or name.startswith("test_" + stem + "_")
