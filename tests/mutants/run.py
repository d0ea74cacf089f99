#!/usr/bin/env python3
"""run.py [ONLY]... - puts the faults of the lists into copies of the tree, one at a time, and runs the tests that cover the place until one fails: how many
of the faults would be noticed? ONLY: folders, files or numbers of faults. Prints a line for every fault and the share of each folder. Status 0: 95 % were
noticed or more.

Four copies are worked on side by side, each in a folder of its own under TMPDIR (default /var/tmp); the folders and every process go at the end, also after
Ctrl-C. Every test that may be needed is first run without a fault, where it must pass, at the second try if not at the first. Programs that are named after
the file come first, then the quickest; scripts follow, the most specific first.
"""
import collections
import itertools
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import covers
import faults

WORKERS, SHARE = 4, 0.95  # scripts wait more than they compute, so more than there may be cores
MEMORY = 8 << 30  # bytes that a process of a test may take; one that runs wild hits no more than itself
BATCHES = (1, 3, 12)  # programs built before the first ones are run
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
    ISA = "avx2" if " avx2 " in cpuinfo.read() else "generic"
# Quick to compile, and the same bits. What a left out call leaves unused is no reason to refuse a fault.
MAKE = ["make", "--no-print-directory", "-s", "B=build", "ISAS=" + ISA, "NVCC=", "WARN=-w", "EMU_WARN=-w", "CPU_OPT=-O2", "EMU_OPT=-O1 -g0"]
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "DETD_", "TEST_"))}
ENV.update(CFLAGS="-g0", PYTHONDONTWRITEBYTECODE="1", TEST_JOBS="1")


# ---- a copy of the tree ----

def tree_of(place):
    return os.path.join(place, "tree")


def copy(source, place):
    shutil.copytree(source, tree_of(place), symlinks=True,
                    ignore=shutil.ignore_patterns(".git", "build-*", "__pycache__", *(["build"] if source == faults.ROOT else [])))
    shared = os.path.join(os.path.dirname(faults.ROOT), "shared")  # data that some tests use where it is there
    if os.path.isdir(shared):
        os.symlink(shared, os.path.join(place, "shared"))
    os.mkdir(os.path.join(place, "tmp"))
    os.chmod(os.path.join(place, "tmp"), 0o711)


def stamps(tree):
    found = {}
    for folder, _, names in os.walk(tree):
        for name in names:
            stat = os.lstat(os.path.join(folder, name))
            found[os.path.relpath(os.path.join(folder, name), tree)] = (stat.st_mtime_ns, stat.st_size)
    return found


class Copy:
    """What a worker puts faults into. plain: the place of the tree that nothing is done to, built."""

    def __init__(self, place, plain):
        self.place, self.plain, self.tree, self.want = place, plain, tree_of(place), stamps(tree_of(plain))
        self.running = None

    def restore(self):
        have = stamps(self.tree)
        for path in have.keys() - self.want.keys():
            os.unlink(os.path.join(self.tree, path))
        for path, stamp in self.want.items():
            if have.get(path) != stamp:
                if path in have:
                    os.unlink(os.path.join(self.tree, path))
                os.makedirs(os.path.dirname(os.path.join(self.tree, path)), exist_ok=True)
                shutil.copy2(os.path.join(tree_of(self.plain), path), os.path.join(self.tree, path), follow_symlinks=False)

    def call(self, command, **env):
        """(status, output) of a command in the tree."""
        self.running = subprocess.Popen(command, cwd=self.tree, env=dict(ENV, TMPDIR=os.path.join(self.place, "tmp"), **env), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)))
        said, _ = self.running.communicate()
        status, self.running = self.running.returncode, None
        return status, said

    def end(self):
        """tests/run.py ends the processes of its test, and removes their files."""
        if self.running:
            os.killpg(self.running.pid, signal.SIGTERM)
            self.running.wait()

    def make(self, *targets):
        """None, or what the compiler said."""
        status, said = self.call(MAKE + list(targets))
        return said if status else None

    def run(self, test, seconds):
        """(PASSED or another, seconds, output). One that takes longer than so many seconds has failed."""
        start = time.monotonic()
        _, said = self.call(["python3", "tests/run.py", "build", test if test.endswith(".sh") else "build/" + test], TEST_SECONDS=str(seconds))
        passed, failed, _ = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", said, re.M)[-1]
        return FAILED if failed != "0" else PASSED if passed != "0" else SKIPPED, time.monotonic() - start, said


# ---- what a worker does ----

def noticed(work, test, seconds):
    """A script has to fail twice: on a busy machine one may fail without a fault."""
    status, _, said = work.run(test, 60 + 4 * seconds)
    if status == FAILED and test.endswith(".sh"):
        status, _, said = work.run(test, 60 + 4 * seconds)
    return ("noticed", test + (" (endless)" if "no end after" in said else "")) if status == FAILED else None


def try_programs(work, programs, seconds):
    for size in BATCHES + (len(programs),):
        batch, programs = programs[:size], programs[size:]
        said = work.make(*("build/" + test for test in batch)) if batch else None
        if said is not None:
            return "INVALID", said
        for test in batch:
            answer = noticed(work, test, seconds[test])
            if answer:
                return answer
    return None


def try_scripts(work, scripts, seconds):
    said = work.make("check-parts") if scripts else None
    if said is not None:
        return "INVALID", said
    for test in scripts:
        answer = noticed(work, test, seconds[test])
        if answer:
            return answer
    return None


def worker(place, plain, listed, tasks, results):
    """Tasks are ("test", name), ("fault", number, programs, scripts, seconds of each) and None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    copy(tree_of(plain), place)
    work = Copy(place, plain)
    try:
        for task in iter(tasks.get, None):
            start = time.monotonic()
            if task[0] == "test":
                results.put((task, work.run(task[1], 900)))
            else:
                fault = listed[task[1]]
                fault.put_in(work.tree)
                verdict = try_programs(work, task[2], task[4]) or try_scripts(work, task[3], task[4]) or ("SURVIVED", "")
                results.put((task, verdict + (time.monotonic() - start,)))
            work.restore()
    finally:
        work.end()


# ---- the whole ----

class Crew:
    def __init__(self, scratch, listed):
        self.fork = multiprocessing.get_context("fork")
        self.tasks, self.results, self.crew = self.fork.SimpleQueue(), self.fork.SimpleQueue(), []
        for i in range(WORKERS):
            place = os.path.join(scratch, str(i))
            os.mkdir(place)
            self.crew.append(self.fork.Process(target=worker, args=(place, os.path.join(scratch, "plain"), listed, self.tasks, self.results)))
            self.crew[-1].start()

    def each(self, tasks):
        """Results of tasks, as they come. Few tasks wait at a time: the queue is a pipe, and who fills it reads no results meanwhile."""
        waiting, left = iter(tasks), len(tasks)
        for task in itertools.islice(waiting, 2 * WORKERS):
            self.tasks.put(task)
        for _ in range(left):
            while self.results.empty():
                if not all(p.is_alive() for p in self.crew):
                    raise SystemExit("a worker of the run has died")
                time.sleep(0.05)
            for task in itertools.islice(waiting, 1):
                self.tasks.put(task)
            yield self.results.get()

    def end(self):
        for p in self.crew:
            p.terminate()
        for p in self.crew:
            p.join()


def chosen(listed, only):
    if not only:
        return listed
    found = [f for f in listed if any(str(f.number) == o or f.path == o or f.path.startswith(o.rstrip("/") + "/") for o in only)]
    if not found:
        raise SystemExit("no fault is in %s" % " ".join(only))
    return found


def baseline(crew, tests):
    """Seconds of each test without a fault; one that does not run here has none."""
    seconds, again = {}, []
    for last, tried in ((False, tests), (True, again)):
        for (_, test), (status, took, said) in crew.each([("test", t) for t in tried]):
            failed = status == FAILED or (status == SKIPPED and not test.endswith(".sh"))
            if failed and last:
                raise SystemExit("%s\n%s: %s without any fault, twice" % (said, test, status))
            if failed:
                again.append(test)
            elif status == PASSED:
                seconds[test] = took
    return seconds


def task_of(fault, tests, seconds):
    tests = [t for t in tests if t in seconds]
    programs = sorted((t for t in tests if not t.endswith(".sh")), key=lambda t: (not covers.is_named_after(t, fault.path), seconds[t]))
    return "fault", fault.number, programs, [t for t in tests if t.endswith(".sh")], {t: seconds[t] for t in tests}


def summary(verdicts, took):
    """Prints the shares; returns that of all."""
    folders, bad = collections.OrderedDict(), 0
    for fault, verdict in verdicts:
        row = folders.setdefault(os.path.dirname(fault.path), [0, 0])
        row[0] += verdict == "noticed"
        row[1] += 1
        bad += verdict == "INVALID"
    print()
    for folder, (noticed, of) in sorted(folders.items()):
        print("%-16s %3d of %3d noticed" % (folder, noticed, of))
    noticed = sum(verdict == "noticed" for _, verdict in verdicts)
    print("%d of %d noticed, %.1f %%, in %d min %d s%s" % (noticed, len(verdicts), 100 * noticed / len(verdicts), took // 60, took % 60,
                                                           "; %d do not compile: draw or write others" % bad if bad else ""))
    return noticed / len(verdicts)


def tell(fault, line, verdict, by, took):
    print("%3d %s:%d %s: %s%s, %.1f s" % (fault.number, fault.path, line, fault.what, verdict, " by " + by if verdict == "noticed" else "", took))
    if verdict == "SURVIVED":
        print(fault.text().split("\n", 1)[1], end="")
    if verdict == "INVALID":
        print(by, end="")


def work_through(wanted, scratch):
    plain, start = os.path.join(scratch, "plain"), time.monotonic()
    os.mkdir(plain)
    copy(faults.ROOT, plain)
    said = Copy(plain, plain).make("-j%d" % WORKERS, "check-parts")
    if said is not None:
        raise SystemExit(said)
    cover = covers.Covers(tree_of(plain), "build")
    for fault in wanted:
        if not cover.of(fault.path):
            raise SystemExit("fault %d: no test is built from %s" % (fault.number, fault.path))
    listed, verdicts = {fault.number: fault for fault in wanted}, []
    crew = Crew(scratch, listed)
    try:
        tests = {t for fault in wanted for t in cover.of(fault.path)}
        seconds = baseline(crew, sorted(tests, key=lambda t: (not t.endswith(".sh"), t)))  # the longest first
        print("%d tests pass without a fault, after %d s; now %d faults" % (len(seconds), time.monotonic() - start, len(wanted)))
        for task, (verdict, by, took) in crew.each([task_of(f, cover.of(f.path), seconds) for f in wanted]):
            tell(listed[task[1]], listed[task[1]].line(tree_of(plain)), verdict, by, took)
            verdicts.append((listed[task[1]], verdict))
        share = summary(verdicts, time.monotonic() - start)
        return 0 if share >= SHARE and all(verdict != "INVALID" for _, verdict in verdicts) else 1
    finally:
        crew.end()


def main():
    if any(a.startswith("-") for a in sys.argv[1:]):
        sys.exit(__doc__)
    listed = faults.load_all()
    stale = faults.problems(listed)
    if stale:
        sys.exit("\n".join(stale))
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch = tempfile.mkdtemp(prefix="detd-mutants-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    os.chmod(scratch, 0o711)  # for tests of other users
    try:
        sys.exit(work_through(chosen(listed, [o for a in sys.argv[1:] for o in a.replace(",", " ").split()]), scratch))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
