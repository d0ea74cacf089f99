"""Which tests cover a file. For programs the build says it: their "uses:" line and the compiler's .d files. For scripts
the table below says it."""  # SPDX-License-Identifier: Apache-2.0
import glob
import os
import re

FLOORS = {"worker/" + floor for floor in "train evidence checkpoint report models optim layers data eval mask gradients comm core".split()}
TRAINER = {"worker", "worker/modes", "worker/predict", "worker/backend", "cpu"} | FLOORS

SIMULATOR = "tests/stand/sim/sim"  # a program of several files, which runs the daemon
DETD = {"daemon", "supervisor"}
# The folders that a script tests, besides proto. A script that is not listed tests all of them, and the CUDA device if
# it names the emulated one.
SCRIPTS = {
    "backfill.py": DETD,
    "background.py": TRAINER,
    "bits.py": {"cuda"} | TRAINER,
    "bundle.sh": None,  # how programs are packed
    "cfg.py": TRAINER,
    "check.py": TRAINER,
    "cuda_train.py": {"cuda"} | TRAINER,
    "daemon_crowd.py": {"daemon"},
    "daemon_jobs.py": DETD,
    "daemon_rights.py": {"client"} | DETD,
    "daemon_socket.py": {"daemon"},
    "demo_evidence.py": TRAINER,
    "depth.py": TRAINER,
    "detctl.py": {"client", "daemon"},
    "detctl_node.py": {"client", "daemon"},
    "diff.py": {"client"},
    "diff_train.py": {"client"} | TRAINER,
    "eval.py": {"client", "daemon"} | TRAINER,
    "export.py": {"client"} | TRAINER,
    "extend.py": {"client"} | DETD | TRAINER,
    "forms.py": TRAINER,
    "gpu_quarter.sh": None,  # scripts for a real GPU, as cuda_train.sh is one
    "gpus.sh": {"client"} | DETD,
    "habits.py": {"client"} | TRAINER,
    "ingest.py": {"daemon"},
    "init.py": {"client"} | TRAINER,
    "launch.sh": {"launch"} | DETD,
    "month.py": DETD,
    "odd_masks.py": TRAINER,
    "order.py": DETD | TRAINER,
    "predict.py": {"client"} | TRAINER,
    "protocol_examples.py": {"daemon"},
    "ranks.py": TRAINER,
    "rcnn.py": TRAINER,
    "recorder.py": TRAINER,
    "remove.py": DETD,
    "sparse.py": TRAINER,
    "stress.sh": {"cuda"} | TRAINER,
    "super_job.py": {"supervisor"},
    "super_train.py": {"supervisor"} | TRAINER,
    "systemd.sh": None,  # the installed files, of a whole build
    "worker.py": TRAINER,
}
# The script that is made for a folder.
FIRST = {"launch": "launch.sh", "client": "detctl.py", "daemon": "daemon_jobs.py", "supervisor": "super_job.py", "cuda": "cuda_train.py"}


def parts_of(d_file):
    """The words of a "uses:" line that bring in the object of this .d file: its folder and the folders around it; a test's own name."""
    folder = os.path.dirname(d_file)
    if folder.startswith("cpu-"):
        return {"cpu"}
    if folder.startswith(("emu/cuda", "shared")):
        return {"cuda"}
    if folder.startswith("tests/"):
        return {d_file[:-2]}
    words = folder.split("/")
    return {"/".join(words[:n]) for n in range(2 if words[0] == "worker" and len(words) > 1 else 1, len(words) + 1)}


class Covers:
    """tree: a built copy; build: its build folder."""

    def __init__(self, tree, build):
        self.parts, self.tests = {}, {}
        for path in glob.glob("**/*.d", root_dir=os.path.join(tree, build), recursive=True):
            with open(os.path.join(tree, build, path), encoding="utf-8") as f:
                for name in f.read().split("\n\n")[0].replace("\\\n", " ").split()[1:]:
                    self.parts.setdefault(os.path.normpath(name), set()).update(parts_of(path))
        for path in sorted(glob.glob("tests/**/test_*.c", root_dir=tree, recursive=True)):
            program = path[:-2]
            if not os.path.exists(os.path.join(tree, build, program)):
                continue
            with open(os.path.join(tree, path), encoding="utf-8") as f:
                uses = re.search(r"uses: ([a-z_/ ]*)", "".join(f.readlines()[:3]))
            words = set(uses[1].split() if uses else ())
            self.tests[program] = words | (FLOORS if "trainer" in words else set()) | {program}
        if os.path.exists(os.path.join(tree, build, SIMULATOR)):
            self.tests[SIMULATOR] = {"daemon", SIMULATOR}
        for path in sorted(p for p in glob.glob("tests/e2e/*.??", root_dir=tree) if is_script(tree, p)):
            runs = SCRIPTS.get(os.path.basename(path),
                               TRAINER | {"daemon", "supervisor", "client"} | ({"cuda"} if names_emulator(tree, path) else set()))
            if runs is not None:
                self.tests[path] = runs | {"proto"}

    def of(self, path):
        """The tests that cover a file, the most specific first. The list is empty if nothing was compiled from the
        file."""
        found = [test for test, runs in self.tests.items() if runs & self.parts.get(path, set())]
        return sorted(found, key=lambda test: (not is_named_after(test, path), len(self.tests[test])))


def is_script(tree, path):
    """Other .py files there are not executable: they are parts of tests."""
    return os.access(os.path.join(tree, path), os.X_OK) and os.path.basename(path) != "rank.py"


def names_emulator(tree, script):
    for path in (script, script[:-3] + ".py"):
        if os.path.exists(os.path.join(tree, path)):
            with open(os.path.join(tree, path), encoding="utf-8") as f:
                if re.search(r"\bemu/", f.read()):
                    return True
    return False


def is_named_after(test, path):
    if test.endswith((".sh", ".py")):
        return os.path.basename(test) == FIRST.get(path.split("/")[0])
    stem, name = os.path.splitext(os.path.basename(path))[0], os.path.basename(test)
    return name == "test_" + stem or name.startswith("test_" + stem + "_")
