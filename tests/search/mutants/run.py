#!/usr/bin/env python3
"""run.py [--n N] [--seed SEED] [ONLY]... - draws N one-line faults (60) in the product and puts them into copies of the
tree, one at a time: does a test fail? ONLY: folders or files to draw in. SEED: a number printed by an earlier run, to
draw the same faults again, as long as the code is the same.

For each fault the test programs that reach its line (gcov) run until a program fails, those named after the file first,
then the quickest; then the scripts that test a program with that line (covers.py): the script of its folder, and the
quickest, four minutes of them, by BUILD/test-seconds.json of an earlier `make check`. A script must fail twice with the
fault, and pass without it. Prints a line for every fault, the text of each that survives, and the share of each folder.
Status 0: 90 % were noticed or more.

Four copies are worked on side by side, each in a folder of its own under TMPDIR (default /var/tmp); the folders and
every process go at the end, also after Ctrl-C.
"""  # SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import multiprocessing
import json
import os
import re
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import covers
import draw
import faults
import reach

WORKERS, SHARE = 4, 0.9  # scripts wait more than they compute, so more than there may be cores
MEMORY = 8 << 30  # limit in bytes for a process of a test, so that a runaway process harms only itself
BATCHES = (1, 3, 12)  # programs built before the first ones are run
SCRIPT_SECONDS = 120  # for a script without a known duration from an earlier run
SCRIPTS_SECONDS = 240  # of all scripts that meet a fault; that of its folder comes on top
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
    ISA = "avx2" if " avx2 " in cpuinfo.read() else "generic"
# Quick to compile, with the same bits. Unused code after a left out call is no reason to refuse a fault.
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
    """A copy of the tree into which a worker puts faults. plain: the folder of the unchanged tree, built."""

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
        """Returns (status, output) of a command in the tree."""
        self.running = subprocess.Popen(command, cwd=self.tree, env=dict(ENV, TMPDIR=os.path.join(self.place, "tmp"),
                                                                         **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY)))
        said, _ = self.running.communicate()
        status, self.running = self.running.returncode, None
        return status, said

    def end(self):
        """tests/harness/run.py ends the processes of its test, and removes their files."""
        if self.running:
            os.killpg(self.running.pid, signal.SIGTERM)
            self.running.wait()

    def make(self, *targets, **env):
        """Returns None, or the compiler's message."""
        status, said = self.call(MAKE + list(targets), **env)
        return said if status else None

    def run(self, test, seconds, **env):
        """Returns (PASSED or another status, seconds, output). A test that takes longer than so many seconds has
        failed."""
        start = time.monotonic()
        _, said = self.call(["python3", "tests/harness/run.py", "build", test if test.endswith((".sh", ".py")) else "build/" + test],
                            TEST_SECONDS=str(seconds), **env)
        passed, failed, _ = re.findall(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", said, re.M)[-1]
        return FAILED if failed != "0" else PASSED if passed != "0" else SKIPPED, time.monotonic() - start, said


# ---- tasks of a worker: functions with a copy as their first argument ----

def fails_twice(work, test, seconds):
    """On a busy machine a script may fail without a fault."""
    return all(work.run(test, seconds)[0] == FAILED for _ in range(2))


def try_programs(work, programs, seconds):
    for size in BATCHES + (len(programs),):
        batch, programs = programs[:size], programs[size:]
        said = work.make(*("build/" + test for test in batch)) if batch else None
        if said is not None:
            return "INVALID", said
        for test in batch:
            status, _, said = work.run(test, 60 + 4 * seconds[test])
            if status == FAILED:
                return "noticed", test + (" (endless)" if "no end after" in said else "")
    return None


def try_scripts(work, fault, scripts, seconds, plain_fails):
    """plain_fails: {script: whether it fails without any fault}, shared by the workers."""
    said = work.make("check-parts") if scripts else None
    for test in scripts:
        if said is not None:
            return "INVALID", said
        limit = 60 + 4 * seconds.get(test, SCRIPT_SECONDS)
        if plain_fails.get(test) or not fails_twice(work, test, limit):
            continue
        if test not in plain_fails:
            work.restore()
            plain_fails[test] = work.run(test, limit)[0] == FAILED
        if not plain_fails[test]:
            return "noticed", test
        fault.put_in(work.tree)
        said = work.make("check-parts")
    return None


def try_fault(work, fault, programs, scripts, seconds, plain_fails):
    start = time.monotonic()
    fault.put_in(work.tree)
    verdict = try_programs(work, programs, seconds) or try_scripts(work, fault, scripts, seconds, plain_fails) or ("SURVIVED", "")
    return verdict + (time.monotonic() - start,)


def run_plain(work, test):
    """Returns (status, seconds, output, counts of gcov)."""
    left = os.path.join(work.place, "gcov")
    result = work.run(test, 900, GCOV_PREFIX=left)
    counts = reach.lines_of(left, os.path.join(tree_of(work.plain), "build"))
    shutil.rmtree(left, ignore_errors=True)
    return result + (counts,)


def worker(place, plain, tasks, results):
    """A task is a function with its arguments after the copy; None is the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    copy(tree_of(plain), place)
    work = Copy(place, plain)
    try:
        for number, function, arguments in iter(tasks.get, None):
            results.put((number, function(work, *arguments)))
            work.restore()
    finally:
        work.end()


# ---- the whole ----

class Crew:
    """Workers, each with a copy of the tree at `plain`, in folders NAME-0, NAME-1 ... of scratch."""

    def __init__(self, scratch, plain, name):
        fork = multiprocessing.get_context("fork")
        self.tasks, self.results, self.crew = fork.SimpleQueue(), fork.SimpleQueue(), []
        for i in range(WORKERS):
            place = os.path.join(scratch, "%s-%d" % (name, i))
            os.mkdir(place)
            os.chmod(place, 0o711)
            self.crew.append(fork.Process(target=worker, args=(place, plain, self.tasks, self.results)))
            self.crew[-1].start()

    def each(self, tasks):
        """Yields (task, result) of (function, arguments) as they come. Few tasks wait at a time, since the queue is a
        pipe, which is not read meanwhile."""
        waiting = enumerate(tasks)
        for number, task in itertools.islice(waiting, 2 * WORKERS):
            self.tasks.put((number,) + task)
        for _ in range(len(tasks)):
            while self.results.empty():
                if not all(p.is_alive() for p in self.crew):
                    raise SystemExit("a worker of the run has died")
                time.sleep(0.05)
            for number, task in itertools.islice(waiting, 1):
                self.tasks.put((number,) + task)
            number, result = self.results.get()
            yield tasks[number], result

    def end(self):
        for p in self.crew:
            p.terminate()
        for p in self.crew:
            p.join()


def drawn(seed, count, only, scratch):
    """Returns the faults; two processes compile."""
    def part(first, results):
        where = os.path.join(scratch, "draw%d" % first)
        os.mkdir(where)
        drawing = draw.Drawing(where, only)
        for number in range(1 + first, count + 1, 2):
            results.put(drawing.one(number, seed, count))

    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    drawers = [fork.Process(target=part, args=(first, results), daemon=True) for first in range(2)]
    for p in drawers:
        p.start()
    found = []
    while len(found) < count:
        if results.empty() and any(p.exitcode for p in drawers):
            raise SystemExit("the faults could not be drawn")
        while not results.empty():
            found.append(results.get())
        time.sleep(0.05)
    return sorted(found, key=lambda fault: fault.number)


def with_gcov(listed, tests, scratch, plain):
    """Runs the test programs without a fault. Returns ({test: seconds}, {fault number: programs that reach it}); a
    failing program is reported and left out."""
    place = os.path.join(scratch, "gcov")
    os.mkdir(place)
    copy(tree_of(plain), place)
    build = os.path.join(tree_of(place), "build")
    objects = reach.objects_of(build, {fault.path for fault in listed})
    for name in objects:
        os.unlink(os.path.join(build, name))
    said = Copy(place, place).make("-j%d" % WORKERS, *("build/" + t for t in tests), CFLAGS="-g0 --coverage -fprofile-update=atomic",
                                   LDFLAGS="--coverage")
    if said is not None:
        raise SystemExit(said)
    seconds, counts, again = {}, {}, []
    crew = Crew(scratch, place, "gcov")
    try:
        for last, tried in ((False, tests), (True, again)):
            for (_, (test,)), (status, took, said, lines) in crew.each([(run_plain, (t,)) for t in tried]):
                if status == PASSED:
                    seconds[test], counts[test] = took, lines
                elif not last:
                    again.append(test)
                elif status == FAILED:
                    print("%s\n%s fails without any fault and is left out" % (said, test))
    finally:
        crew.end()
    cover, reaching = covers.Covers(tree_of(plain), "build"), {}
    for fault in listed:
        line = fault.line(tree_of(plain))
        known = {t: reach.reached(counts[t], fault.path, line) for t in seconds}
        of = [t for t in cover.of(fault.path) if t in seconds]
        looked = any(answer is not None for answer in known.values())
        reaching[fault.number] = sorted((t for t in of if known[t] or not looked or covers.is_named_after(t, fault.path)),
                                        key=lambda t: (not covers.is_named_after(t, fault.path), seconds[t]))
    return seconds, reaching


def share_of(rows, folders):
    noticed, of = (sum(row[i] for folder, row in rows.items() if folder.split("/")[0] in folders) for i in (0, 1))
    return "%d of %d noticed%s" % (noticed, of, ", %.1f %%" % (100 * noticed / of) if of else "")


def summary(verdicts, took):
    """Prints the shares; returns the share of all."""
    rows, bad = {}, 0
    for fault, verdict in verdicts:
        row = rows.setdefault(os.path.dirname(fault.path), [0, 0])
        row[0] += verdict == "noticed"
        row[1] += 1
        bad += verdict == "INVALID"
    print()
    for folder, (noticed, of) in sorted(rows.items()):
        print("%-22s %3d of %3d noticed" % (folder, noticed, of))
    print("daemon, launch, client, proto and supervisor: " + share_of(rows, ("daemon", "launch", "client", "proto", "supervisor")))
    noticed = sum(verdict == "noticed" for _, verdict in verdicts)
    print("%d of %d noticed, %.1f %%, in %d min %d s%s" % (noticed, len(verdicts), 100 * noticed / len(verdicts), took // 60, took % 60,
                                                           "; %d do not compile" % bad if bad else ""))
    return noticed / len(verdicts)


def tell(fault, line, verdict, by, took):
    print("%3d %s:%d %s: %s%s, %.1f s" %
          (fault.number, fault.path, line, fault.what, verdict, " by " + by if verdict == "noticed" else "", took))
    if verdict == "SURVIVED":
        print(fault.text(), end="")
    if verdict == "INVALID":
        print(by, end="")


def earlier_seconds():
    """Returns {script: seconds} of the last run of tests/harness/run.py on the build of this tree, or {} if it never
    ran."""
    try:
        with open(os.path.join(faults.ROOT, "build", "test-seconds.json"), encoding="utf-8") as f:
            return json.load(f)
    except (OSError, ValueError):
        return {}


def chosen(fault, scripts, known):
    """Returns the scripts that run with a fault, in their order."""
    first = [t for t in scripts if covers.is_named_after(t, fault.path)]
    left, more = SCRIPTS_SECONDS, []
    for script in sorted((t for t in scripts if t not in first), key=lambda t: known.get(t, SCRIPT_SECONDS)):
        left -= known.get(script, SCRIPT_SECONDS)
        if left >= 0:
            more.append(script)
    return first + more


def work_through(listed, scratch, start):
    plain = os.path.join(scratch, "plain")
    os.mkdir(plain)
    copy(faults.ROOT, plain)
    said = Copy(plain, plain).make("-j%d" % WORKERS, "check-parts")
    if said is not None:
        raise SystemExit(said)
    cover = covers.Covers(tree_of(plain), "build")
    tests = {t for fault in listed for t in cover.of(fault.path)}
    seconds, reaching = with_gcov(listed, sorted(t for t in tests if not t.endswith((".sh", ".py"))), scratch, plain)
    print("%d test programs pass without a fault, after %d s; now %d faults" % (len(seconds), time.monotonic() - start, len(listed)))
    known = earlier_seconds()
    scripts = {f.number: chosen(f, [t for t in cover.of(f.path) if t.endswith((".sh", ".py"))], known) for f in listed}
    verdicts, plain_fails = [], multiprocessing.Manager().dict()
    crew = Crew(scratch, plain, "copy")
    try:
        tasks = [(try_fault, (f, reaching[f.number], scripts[f.number], dict(known, **seconds), plain_fails)) for f in listed]
        for (_, (fault, *_)), (verdict, by, took) in crew.each(tasks):
            tell(fault, fault.line(tree_of(plain)), verdict, by, took)
            verdicts.append((fault, verdict))
    finally:
        crew.end()
    return summary(verdicts, time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10 ** 8))
    parser.add_argument("only", nargs="*", metavar="ONLY")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scratch, start = tempfile.mkdtemp(prefix="detd-mutants-", dir=os.environ.get("TMPDIR", "/var/tmp")), time.monotonic()
    os.chmod(scratch, 0o711)  # for tests of other users
    print("SEED=%d N=%d" % (args.seed, args.n))
    try:
        listed = drawn(args.seed, args.n, [o for a in args.only for o in a.replace(",", " ").split()], scratch)
        sys.exit(0 if work_through(listed, scratch, start) >= SHARE else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
