#!/usr/bin/env python3
"""README as somebody types it: the commands of its chapters, in their order, in a private detd with made shapes, and what they print held against what stands
there. usage: readme.py BUILD_FOLDER [--verbose]

A comment before a fence says what it is for this test; readers do not see it:

    <!-- file: shapes.json -->         its text is that file
    <!-- run -->                       its lines that begin with `$ ` are run; what follows each is what it prints
    <!-- run: s/600/60/ 'submit' + train.steps=60 -->
                                       likewise, smaller: s/A/B/ changes the lines that are run, 'WORD' + MORE adds to those that have the word
    <!-- sql -->                       its statements are asked of detd.db; each column has a value in each row of losses
    <!-- not run: why -->

Fences with a line `$ detctl` that have none of them are counted. What is printed is compared by its shape: numbers, times and folders are alike, `...` stands for any lines. Of
commands that go on (watch) Ctrl-C is pressed after their first line; before the next command all jobs have ended."""  # SPDX-License-Identifier: Apache-2.0
import getpass
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MARK = re.compile(r"<!-- (file|run|sql|not run)(?:: (.*?))? -->$")
SECONDS = 600


class Fence:
    def __init__(self, line, mark, lines):
        self.line, self.lines = line, lines
        self.kind, self.arg = mark if mark else (None, "")


def fences(path):
    """All of the document, each with the mark in the line before it."""
    lines, found, at = open(path, encoding="utf-8").read().split("\n"), [], 0
    while at < len(lines):
        if lines[at].startswith("```"):
            mark = next((MARK.match(l) for l in reversed(lines[max(0, at - 2):at]) if l.strip()), None)
            end = lines.index("```", at + 1)
            found.append(Fence(at + 1, (mark[1], mark[2] or "") if mark else None, lines[at + 1:end]))
            at = end
        at += 1
    return found


def commands(fence):
    """(command, what it prints) of each; a line that ends with a backslash goes on."""
    all_of_them = []
    for line in fence.lines:
        if line.startswith("$ "):
            all_of_them.append([line[2:], []])
        elif all_of_them and all_of_them[-1][0].endswith("\\"):
            all_of_them[-1][0] = all_of_them[-1][0][:-1] + line
        elif all_of_them:
            all_of_them[-1][1].append(line)
    return all_of_them


def smaller(command, arg):
    words = shlex.split(arg)
    at = 0
    while at < len(words):
        if words[at].startswith("s/"):
            _, old, new, _ = words[at].split("/")
            command = command.replace(old, new)
            at += 1
        else:
            assert words[at + 1] == "+", "'%s' is no change" % arg
            more = words[at + 2:]
            more = more[:next((i for i, w in enumerate(more) if w.startswith("s/") or more[i + 1:i + 2] == ["+"]), len(more))]
            if words[at] in command.split():
                command += " " + " ".join(more)
            at += 2 + len(more)
    return command


def shape(line, home):
    """What stays the same wherever and whenever it is printed."""
    line = line.replace(home + "/", "~/").replace("/home/ann/", "~/")
    line = re.sub(r"\b(%s|ann)\b" % re.escape(getpass.getuser()), "USER", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"\b\d+(d \d+h|h \d+m|m \d+s| s)\b", "SPAN", line)
    line = re.sub(r"(?<![\w.])-?(\d+(\.\d+)?|\.\d+)(e[-+]?\d+)?(?![\w])", "N", line)
    line = re.sub(r"\bobjects?\b", "objects", line)
    return " ".join(line.split())


def fits(want, got):
    """Whether lines have these shapes, where `...` stands for any."""
    if not want:
        return not got
    if want[0] == "...":
        return any(fits(want[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and want[0] == got[0] and fits(want[1:], got[1:])


class Reader:
    """Somebody with an empty home, and a checkout."""

    def __init__(self, build, verbose):
        self.build, self.verbose = os.path.abspath(build), verbose
        self.home = os.path.realpath(tempfile.mkdtemp(prefix="readme-"))
        self.env = dict(os.environ, HOME=self.home, DETD_SOCKET=self.home + "/detd/detd.sock", LC_ALL="C.UTF-8", PATH=self.build + ":" + os.environ["PATH"])
        self.log = open(self.home + "/log", "wb")
        self.detd = subprocess.Popen(["detd", "--state", self.home + "/detd", "--socket", self.env["DETD_SOCKET"]], env=self.env, cwd=self.home,
                                     stdout=self.log, stderr=self.log)
        self.until(lambda: self.ask("info", "--json") is not None, "detd does not answer")
        for words in (("shapes", "--train", "48", "--val", "8"), ("round", "--classes", "2", "--seed", "2", "--train", "40", "--val", "20"),
                      ("outlines", "--train", "16", "--val", "4", "--size", "160", "--masks")):
            subprocess.run([sys.executable, ROOT + "/tests/demo/make_shapes.py", *words], cwd=self.home, check=True, stdout=subprocess.DEVNULL)

    def ask(self, *words):
        done = subprocess.run(["detctl", *words], env=self.env, cwd=self.home, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def until(self, test, what):
        deadline = time.time() + SECONDS
        while not test():
            assert time.time() < deadline and self.detd.poll() is None, what
            time.sleep(0.1)

    def all_ended(self):
        return all(j["state"] in ("completed", "failed", "cancelled") for j in self.ask("ls", "--json") or [])

    def run(self, command):
        goes_on = command.split()[:2] == ["detctl", "watch"]
        if self.verbose:
            print("$ " + command, flush=True)
        with subprocess.Popen(["bash", "-c", "exec 2>&1; " + command], cwd=self.home, env=self.env, stdout=subprocess.PIPE, text=True, start_new_session=True) as p:
            said = p.stdout.readline()
            if goes_on:
                os.killpg(p.pid, signal.SIGINT)
            said += p.stdout.read()
        if self.verbose:
            print(said, end="", flush=True)
        return said.splitlines()

    def close(self):
        for job in self.ask("ls", "--json") or []:
            if job["state"] not in ("completed", "failed", "cancelled"):
                self.ask("cancel", str(job["id"]))
        self.until(self.all_ended, "jobs do not end")
        self.detd.terminate()
        self.detd.wait(60)
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)


def check(reader, fence):
    """What does not fit, as texts."""
    wrong = []
    for command, printed in commands(fence):
        if not command.startswith("detctl watch"):
            reader.until(reader.all_ended, "a job does not end")
        said = reader.run(smaller(command, fence.arg))
        want, got = [shape(l, reader.home) for l in printed], [shape(l, reader.home) for l in said]
        if not fits([w for w in want if w], [g for g in got if g]):
            wrong.append("README.md:%d: $ %s\n  README says:\n    %s\n  it says:\n    %s" % (fence.line, command, "\n    ".join(want), "\n    ".join(got)))
    return wrong


def ask_all(reader, fence):
    """What does not fit, as texts: a statement that is refused, or that leaves a loss empty."""
    wrong, text = [], "\n".join(l for l in fence.lines if not l.startswith("--"))
    for statement in filter(str.strip, text.split(";")):
        try:
            with sqlite3.connect("file:%s/detd/detd.db?mode=ro" % reader.home, uri=True) as db:
                asked = db.execute(statement)
                names, rows = [c[0] for c in asked.description], asked.fetchall()
        except sqlite3.Error as e:
            wrong.append("README.md:%d: %s: %s" % (fence.line, e, statement))
            continue
        if "train" in names and (not rows or any(None in row for row in rows)):
            wrong.append("README.md:%d: empty: %s: %s" % (fence.line, rows, statement))
    return wrong


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if not shutil.which("sqlite3"):
        print("skip: sqlite3 is not installed")
        return 77
    all_of_them = fences(ROOT + "/README.md")
    unmarked = [f.line for f in all_of_them if not f.kind and any(l.startswith("$ detctl") for l in f.lines)]
    wrong = []
    count, reader = 0, Reader(sys.argv[1], "--verbose" in sys.argv)
    try:
        for fence in all_of_them:
            if fence.kind == "file":
                with open(reader.home + "/" + fence.arg, "w", encoding="utf-8") as f:
                    f.write("\n".join(fence.lines) + "\n")
            elif fence.kind == "run":
                wrong += check(reader, fence)
                count += len(commands(fence))
            elif fence.kind == "sql":
                reader.until(reader.all_ended, "a job does not end")
                wrong += ask_all(reader, fence)
    finally:
        reader.close()
    for text in wrong:
        print(text)
    if unmarked:
        print("fences that nobody runs, and no <!-- not run: why --> says why: lines %s" % ", ".join(map(str, unmarked)))
    print("%d commands of README, %d faults" % (count, len(wrong)))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
