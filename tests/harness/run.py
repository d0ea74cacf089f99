#!/usr/bin/env python3
"""Runs tests side by side, prints what failed and what was skipped, and closes with "N passed, N failed, N skipped".

    run.py BUILD TEST...

A test is a cmocka program, or a script (*.sh, *.py: status 0 passed, 77 skipped, its last line says why; a line "skip:
REASON" before a 0 is a part that was skipped), or TEST=skip:REASON for one that cannot even be built here. They are
started in the order given, so the longest stand first.

Each has a TMPDIR of its own and fails when it leaves a file in it, a process, or an object of shared memory; these are
named, then removed. Its processes are its descendants, in any session or environment: a keeper between run.py and the
test adopts orphans. DETD_BUILD tells tests the folder of the build. Its file test-seconds.json has the seconds of each
test that passed last time, for make mutants.

Reasons to skip stand in tests/skips. With STRICT=1 or CI=true a skip with an unlisted reason is a failure; a skip
without a reason always is.

TEST_JOBS: the number of tests at once (default: one more than there are CPUs, since scripts also wait). TEST_SECONDS:
the limit of each (default 2400). TEST_GRACE: the seconds that its processes have after its end (default 20).
TEST_SKIPS: another list than tests/skips. TEST_SHM: another folder than /dev/shm."""  # SPDX-License-Identifier: Apache-2.0
import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = float(os.environ.get("TEST_SECONDS", "2400"))  # the limit for hanging tests: ten times the longest test on a busy machine
GRACE_S = float(os.environ.get("TEST_GRACE", "20"))  # for processes that are on their way out when their test ends
STRICT = os.environ.get("STRICT") == "1" or os.environ.get("CI") == "true"
SLOWEST = 10
LOG_LINES = 60
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SHARED_MEMORY = os.environ.get("TEST_SHM", "/dev/shm")


# ---- a keeper: one process for each test, its only child and the new parent of all orphans ----

def prctl(option, value):
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def parents():
    """Returns {pid: (parent, command line)} of all processes except zombies."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as f:
                stat = f.read()
            with open("/proc/%s/cmdline" % pid, encoding="utf-8", errors="replace") as f:
                command = f.read().replace("\0", " ").strip()
        except OSError:
            continue
        state, parent = stat[stat.rindex(")") + 2:].split()[:2]
        if state not in "ZX":
            found[int(pid)] = (int(parent), command or stat[stat.index("("):stat.rindex(")") + 1])
    return found


def descendants():
    """Returns {pid: command line} of this process's children, their children, ..."""
    table, found, grown = parents(), {os.getpid(): ""}, True
    while grown:
        more = {pid: command for pid, (parent, command) in table.items() if parent in found and pid not in found}
        found.update(more)
        grown = bool(more)
    del found[os.getpid()]
    return found


def reap(until, alone=None):
    """Waits for children until all have ended, or `alone` has ended, or the time has come. Returns the status of
    `alone`, if it was seen."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid and pid == alone:
            return status
        if pid == 0:
            left = until - time.monotonic()
            if left <= 0:
                return None
            signal.sigtimedwait({signal.SIGCHLD}, left)


def kill_all():
    """Kills all descendants; repeats this, since a process may start another before it dies."""
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until:
        found = descendants()
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        reap(time.monotonic() + 0.2)


def shared_memory():
    """Returns {name: (inode, bytes)} of this user's objects that have the project's name."""
    found = {}
    for name in os.listdir(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else []:
        try:
            s = os.stat(os.path.join(SHARED_MEMORY, name))
        except OSError:
            continue
        if s.st_uid == os.getuid() and re.match(r"detd|sem\.detd", name):
            found[name] = (s.st_ino, s.st_size)
    return found


def in_use(path):
    """Returns whether a process has the file open or mapped: then it is not left over by a test without processes."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/maps" % pid, encoding="utf-8", errors="replace") as f:
                if any(line.rstrip().endswith(path) for line in f):
                    return True
            if any(os.readlink("/proc/%s/fd/%s" % (pid, fd)) == path for fd in os.listdir("/proc/%s/fd" % pid)):
                return True
        except OSError:
            continue
    return False


def files_below(folder):
    found = []
    for where, folders, files in os.walk(folder):
        found += [os.path.relpath(os.path.join(where, n), folder) for n in sorted(files)]
        found += [os.path.relpath(os.path.join(where, n), folder) + "/" for n in sorted(folders) if not os.listdir(os.path.join(where, n))]
    return found


def leftovers(folder, memory):
    """Names the test's leftovers, and removes them."""
    reap(time.monotonic() + GRACE_S)
    left = ["process %d: %s" % (pid, command) for pid, command in sorted(descendants().items())]
    kill_all()
    for name, known in shared_memory().items():
        path = os.path.join(SHARED_MEMORY, name)
        if memory.get(name) != known and not in_use(path):
            try:
                os.unlink(path)
            except OSError:
                continue  # a test that ended at the same time has named it
            left.append("shared memory %s (%d bytes), by this test or one that ran beside it" % (path, known[1]))
    files = files_below(folder)
    left += ["file %s" % f for f in files[:10]] + (["... %d files in all" % len(files)] if len(files) > 10 else [])
    shutil.rmtree(folder, ignore_errors=True)
    return left


def keep(test, folder, log, result):
    """Runs the test and writes its outcome to `result`. Never returns."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: (kill_all(), os._exit(1)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the runner, which ends its keepers
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    os.mkdir(folder)
    os.chmod(folder, 0o711)  # root's tests become other users, which must be able to enter
    memory, began = shared_memory(), time.monotonic()
    command = ["bash", test] if test.endswith(".sh") else ["python3", test] if test.endswith(".py") else [test]
    inductor = os.path.join(os.path.dirname(folder), "inductor")  # PyTorch makes a folder as soon as it is imported
    with open(log, "wb") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env=dict(os.environ, TMPDIR=folder, DETD_BUILD=os.path.abspath(os.environ["DETD_BUILD"]), PYTHONDONTWRITEBYTECODE="1",
                     TORCHINDUCTOR_CACHE_DIR=inductor), preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD}))
    status = reap(began + LIMIT_S, child.pid)
    seconds = time.monotonic() - began
    if status is None:
        kill_all()
    left = leftovers(folder, memory)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(result, "w", encoding="utf-8") as f:
        json.dump(
            dict(status=None if status is None else os.waitstatus_to_exitcode(status), seconds=seconds, cpu=usage.ru_utime + usage.ru_stime,
                 left=left), f)
    os._exit(0)


# ---- the outcome of a test ----

class Skips:
    """tests/skips: permitted skips, each with the reason why it is harmless."""

    def __init__(self, path):
        self.rows = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                fields = [f.strip() for f in line.split(" | ")]
                if len(fields) != 3 or not all(fields):
                    sys.exit("%s:%d: not 'test | reason | why it is no harm'" % (path, number))
                self.rows.append(tuple(re.compile(f) for f in fields[:2]))

    def listed(self, test, reason):
        return any(t.fullmatch(test) and r.fullmatch(reason) for t, r in self.rows)


class Outcome:
    def __init__(self, test):
        """Programs are named without the folder of the build."""
        build = os.environ["DETD_BUILD"].rstrip("/") + "/"
        self.test = test[len(build):] if test.startswith(build) else test
        self.passed, self.failed, self.skips, self.notes = 0, 0, [], []
        self.seconds, self.cpu, self.log = 0.0, 0.0, None

    def fail(self, note):
        self.failed += 1
        self.notes.append(note)

    def text(self):
        return open(self.log, encoding="utf-8", errors="replace").read() if self.log else ""


def read_program(o, status):
    """Counts of cmocka's summary, where newer ones name the group; a skipped test's reason stands between its RUN and SKIPPED lines."""
    counts = {word: int(n) for word, n in re.findall(r"^\[  (PASSED |FAILED |SKIPPED)  ?\] (?:\w+: )?(\d+) test", o.text(), re.M)}
    o.passed, o.failed = counts.get("PASSED ", 0), counts.get("FAILED ", 0)
    reason = ""
    for line in o.text().splitlines():
        if line.startswith("[ RUN"):
            reason = ""
        elif line.startswith("skip: "):
            reason = line[6:].strip()
        elif re.match(r"\[  SKIPPED \] [A-Za-z_]\w*$", line) and "listed below" not in line:
            if len(o.skips) < counts.get("SKIPPED", 0):
                o.skips.append((line.split()[-1], reason))
    if status != 0 and o.failed == 0:
        o.fail("ended with status %s" % status)
    elif status == 0 and o.passed + len(o.skips) == 0:
        o.fail("ran no test")


def read_script(o, status):
    reasons = [line[6:].strip() for line in o.text().splitlines() if line.startswith("skip: ")]
    if status == 77:
        last = o.text().strip().splitlines()[-1:] or [""]
        o.skips.append(("", re.sub(r"^skip: ", "", last[0]).strip()))
    elif status == 0:
        o.passed = 1
        o.skips += [("a part", reason) for reason in reasons]
    else:
        o.fail("ended with status %s" % status)


def read_outcome(test, result, log):
    o = Outcome(test)
    o.log = log if os.path.exists(log) else None
    try:
        with open(result, encoding="utf-8") as f:
            told = json.load(f)
    except (OSError, ValueError):
        o.fail("its keeper died")
        return o
    o.seconds, o.cpu = told["seconds"], told["cpu"]
    if told["status"] is None:
        o.fail("no end after %.0f s" % LIMIT_S)
    else:
        (read_script if test.endswith((".sh", ".py")) else read_program)(o, told["status"])
    if told["left"]:
        o.fail("left behind:\n" + "\n".join("    " + line for line in told["left"]))
    return o


def judge_skips(o, skips):
    for part, reason in o.skips:
        what = "skipped%s" % (" (%s)" % part if part else "")
        if not reason:
            o.fail("%s without a reason" % what)
        elif STRICT and not skips.listed(o.test, reason):
            o.fail("%s, and tests/skips has no row for that: %s" % (what, reason))


def tell(o):
    if o.failed:
        print("FAIL  %s" % o.test, flush=True)
    elif o.passed:
        more = ", %d skipped" % len(o.skips) if o.skips else ""
        print("ok    %s (%s%.0f s%s)" % (o.test, "" if o.test.endswith((".sh", ".py")) else "%d, " % o.passed, o.seconds, more), flush=True)
    else:
        print("skip  %s: %s" % (o.test, o.skips[0][1]), flush=True)


# ---- all of them ----

def start(test, number, folder):
    paths = ["%s/%d" % (folder, number), "%s/%d.log" % (folder, number), "%s/%d.json" % (folder, number)]
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            keep(test, *paths)
        except BaseException:  # pylint: disable=broad-except # a fork must never go on as the runner
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid, (test, paths[2], paths[1])


def run_all(tests, jobs, folder, skips):
    outcomes, running, waiting = [], {}, []
    for test in tests:
        name, _, reason = test.partition("=skip:")
        if reason:
            outcomes.append(Outcome(name))
            outcomes[-1].skips.append(("", reason))
            judge_skips(outcomes[-1], skips)
            tell(outcomes[-1])
        else:
            waiting.append(test)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                pid, what = start(waiting[0], len(tests) - len(waiting), folder)
                running[pid] = what
                waiting.pop(0)
            pid, _ = os.wait()
            if pid in running:
                outcomes.append(read_outcome(*running.pop(pid)))
                judge_skips(outcomes[-1], skips)
                tell(outcomes[-1])
    finally:
        for pid in running:
            os.kill(pid, signal.SIGTERM)
        for pid in running:
            os.waitpid(pid, 0)
    return outcomes


def summary(outcomes, skips):
    for o in outcomes:
        if o.failed:
            print("---- %s" % o.test)
            print("\n".join(o.text().splitlines()[-LOG_LINES:]))
            print("\n".join("%s: %s" % (o.test, note) for note in o.notes))
    for o in outcomes:
        for part, reason in o.skips:
            print("skipped: %s%s: %s%s" % (o.test, " " + part if part else "", reason or "no reason given",
                                           "" if skips.listed(o.test, reason) else " (not listed in tests/skips)"))
    print("slowest: " + ", ".join("%s %.0f s (CPU %.0f s)" % (o.test, o.seconds, o.cpu)
                                  for o in sorted(outcomes, key=lambda o: -o.seconds)[:SLOWEST]))
    print("CPU time of all tests: %.0f s" % sum(o.cpu for o in outcomes))


def remember_seconds(outcomes, path):
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    known.update((o.test, round(o.seconds, 1)) for o in outcomes if o.passed and not o.failed)
    path.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build, tests = sys.argv[1], sys.argv[2:]
    os.environ["DETD_BUILD"] = build
    os.environ.pop("MAKEFLAGS", None)  # a test that runs make has no part in the jobs of the make that runs it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    skips = Skips(pathlib.Path(os.environ.get("TEST_SKIPS", HERE.parent / "skips")))
    with tempfile.TemporaryDirectory(prefix="detd-check-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)
        outcomes = run_all(tests, int(os.environ.get("TEST_JOBS", (os.cpu_count() or 1) + 1)), folder, skips)
        summary(outcomes, skips)
    if os.path.isdir(build):
        remember_seconds(outcomes, pathlib.Path(build) / "test-seconds.json")
    passed, failed = sum(o.passed for o in outcomes), sum(o.failed for o in outcomes)
    print("%d passed, %d failed, %d skipped" % (passed, failed, sum(len(o.skips) for o in outcomes)))
    return 0 if failed == 0 and passed > 0 else 1


sys.exit(main())
