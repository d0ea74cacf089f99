#!/usr/bin/env python3
"""detctl diff on evidence that evidence.py writes as the description of the files says.
usage: diff.py [TEST ...]"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from daemon import BUILD, Daemon
from evidence import Parting, Run

LAST = 420


class Bench:
    """A daemon with two ended jobs. The tests put evidence into the jobs' folders."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.jobs = [daemon.submit(5), daemon.submit(5, priority=7)]
        for job in self.jobs:
            daemon.wait(job, lambda j: j["state"] == "completed")
        self.folders = [f"{daemon.state}/jobs/{job}" for job in self.jobs]

    def put(self, a, b, last=(LAST, LAST), first=1):
        for run, folder, steps in zip((a, b), self.folders, last):
            run.write(folder, steps, first)

    def detctl(self, *args):
        return subprocess.run([BUILD + "/detctl", "--socket", self.daemon.path, "diff", *map(str, args)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=60, check=False)

    def diff(self):
        return json.loads(self.detctl(*self.jobs, "--json").stdout)["run"]

    def check(self, code, *said):
        """By ids, by folders, and one of each."""
        for operands in (self.jobs, self.folders, (self.jobs[0], self.folders[1])):
            done = self.detctl(*operands)
            assert done.returncode == code and not done.stderr, (done.returncode, done.stdout, done.stderr)
            for text in said:
                assert text in done.stdout, (text, done.stdout)


def test_equal(bench):
    bench.put(Run(), Run(ranks=2, tier=2))
    bench.check(0, f"equal: steps 1 .. {LAST}\n")
    assert "run.priority  0" in bench.detctl(*bench.jobs).stdout, bench.detctl(*bench.jobs).stdout
    bench.put(Run(), Run(), last=(LAST, 300))
    bench.check(0, "equal: steps 1 .. 300\n")


def test_each_part(bench):
    ends = "tier rerun | world; ranks 1 | 2\n"
    for part, which, said in (("data", 2, "data of shard 2 (of rank 0 | 1); "),
                              ("loss", 1, "loss of shard 1 (of rank 0 | 0), then gradient of head.bias (3 of 3 tensors); data are equal; "),
                              ("gradient", 0, "gradient of conv.weight (1 of 3 tensors); data and losses are equal; "),
                              ("rate", 0, "learning rate 0.5 | 0.25; data, losses and gradients are equal; "),
                              ("update", 1,
                               "update of bn.running_mean (1 of 3 tensors); data, losses, gradients and learning rate are equal; "),
                              ("state", 2, "number of skipped steps; data, losses, gradients, learning rate and updates are equal; ")):
        bench.put(Run(), Parting(LAST - 9, part, which, ranks=2, tier=2))
        bench.check(6, f"step {LAST - 9}: {said}{ends}")
        found = bench.diff()
        assert found["difference"]["part"] == part and found["difference"]["located"] and not found["equal"], found


def test_tensor_is_not_kept(bench):
    """The step is neither among the last steps nor a multiple of a hundred."""
    bench.put(Run(), Parting(150, "gradient"))
    bench.check(6, "step 150: gradient; data and losses are equal; ", "keeps no hashes of single tensors and shards of step 150")
    said = bench.detctl(*bench.jobs).stdout
    for job in bench.jobs:
        assert f"detctl verify {job} --from 149 --steps 1 " in said, said
    bench.put(Run(), Parting(200, "gradient"))
    bench.check(6, "step 200: gradient of conv.weight (1 of 3 tensors); ")


def test_other_starts(bench):
    """Other keys, other data, another network: the steps are compared all the same."""
    bench.put(Run(), Parting(150, "loss", spec="other keys"))
    bench.check(6, "step 150: loss; data are equal; ")
    bench.put(Run(), Parting(150, "loss", data="other data"))
    bench.check(6, "the data differ", "step 150: loss; ")
    bench.put(Run(), Parting(LAST, "gradient", tensors=(("conv.weight", 432, True),)))
    bench.check(6, "the networks differ")
    bench.put(Run(level="losses"), Parting(LAST, "gradient"))
    bench.check(6, "one of them keeps no hashes of gradients and weights",
                f"step {LAST}: state; data, losses and learning rate are equal; ")


def damage(folder, *steps):
    with open(folder + "/evidence.log", "r+b") as f:
        for step in steps:
            f.seek((step - 1) * 128 + 50)
            f.write(b"damaged!")


def test_holes(bench):
    """Records behind a missing record are compared. If there are no records behind it, diff does not mention them."""
    bench.put(Run(), Parting(400, "gradient", spec="other keys"))
    damage(bench.folders[0], 289)
    bench.check(6, "step 400: ", "; steps 289 .. 289 have no record in A\n")
    found = bench.diff()
    assert (found["missing"], found["missing_to"], found["lacking"]) == (289, 289, 1) and [s["lacks"]
                                                                                           for s in found["sides"]] == [True, False]
    bench.put(Run(), Run(spec="other keys"))
    damage(bench.folders[1], *range(289, LAST + 1))
    bench.check(1, f"not shown to be equal: steps 1 .. 288 are, nothing after them can be compared; steps 289 .. {LAST} have no record "
                   f"in B\n")
    assert bench.diff()["cut"] and not bench.diff()["equal"], bench.diff()
    bench.put(Run(), Run(), last=(100, 200), first=1)
    damage(bench.folders[0], *range(1, 101))
    bench.check(1, "no step has a record in both\n")


def test_json(bench):
    bench.put(Run(), Parting(LAST, "update", 2))
    done = bench.detctl("--json", *bench.jobs)
    found = json.loads(done.stdout)
    assert done.returncode == 6 and found["run"] == bench.diff(), found
    assert found["run"]["difference"] == {
        "step": LAST, "part": "update", "located": True, "shard": None, "tensor": "head.bias", "tensors": 1, "state": None
    }, found
    assert [found[k]["job"] for k in "ab"] == bench.jobs and [found[k]["dir"] for k in "ab"] == bench.folders
    assert {"key": "run.priority", "a": 0, "b": 7} in found["keys"], found
    assert json.loads(bench.detctl("--json", *bench.folders).stdout)["run"] == found["run"]


def test_identities(bench):
    bench.put(Run(), Run())
    for folder, driver in zip(bench.folders, ("580.1", "580.2")):
        with open(folder + "/identity.json", "w", encoding="utf-8") as f:
            json.dump({"device": "A GPU", "versions": {"driver": driver}, "hash": driver, "plans": [driver]}, f)
    said = bench.detctl(*bench.folders).stdout
    assert "identity.versions.driver  580.1" in said and said.count("identity.") == 1, said


def test_refused(bench):
    bench.put(Run(), Run())
    shutil.copytree(bench.folders[0], bench.daemon.root + "/copy", ignore=shutil.ignore_patterns("*.log"))  # without a log
    for operands, code, said in ((bench.jobs[:1], 2, "two jobs or folders"), (("1", "0"), 2, "not a job id"), ((1, 99), 1, "no job 99"),
                                 ((1, "/nowhere"), 1, "'/nowhere'"), ((1, bench.daemon.root), 1, "spec.json': No such file"),
                                 ((1, bench.daemon.root + "/copy"), 1, "evidence.log': No such file")):
        done = bench.detctl(*operands)
        assert done.returncode == code and said in done.stderr and not done.stdout, (operands, done)
    with open(bench.folders[1] + "/evidence.json", "r+", encoding="utf-8") as f:
        f.write("[")
    done = bench.detctl(1, 2)
    assert done.returncode == 1 and "evidence.json" in done.stderr and not done.stdout, done
    os.unlink(bench.folders[1] + "/evidence.json")
    done = bench.detctl(1, 2)
    assert done.returncode == 1 and "job 2: no evidence in" in done.stderr, done


def catches(pid):
    """Whether the program has a handler of SIGINT by now."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(next(line for line in f if line.startswith("SigCgt")).split()[1], 16) >> signal.SIGINT - 1 & 1


def test_interrupt(bench):
    """Ctrl-C ends diff while detd does not answer."""
    bench.daemon.proc.send_signal(signal.SIGSTOP)
    try:
        with subprocess.Popen([BUILD + "/detctl", "--socket", bench.daemon.path, "diff", "1", "2"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as running:
            while not catches(running.pid):
                time.sleep(0.01)
            while running.poll() is None:
                running.send_signal(signal.SIGINT)
                time.sleep(0.05)
            assert running.returncode == 130 and running.communicate() == (b"", b""), running.returncode
    finally:
        bench.daemon.proc.send_signal(signal.SIGCONT)


def main():
    tests = {name[5:]: fn for name, fn in globals().items() if name.startswith("test_")}
    with Daemon() as daemon:
        bench = Bench(daemon)
        for name in sys.argv[1:] or tests:
            tests[name](bench)
            print("ok", name, flush=True)


if __name__ == "__main__":
    main()
