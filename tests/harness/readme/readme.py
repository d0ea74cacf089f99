#!/usr/bin/env python3
"""README.md and docs/*.md as a reader types them: the commands of each page, in their order, in a private detd with
made shapes. The output of each command is compared with the page.
usage: readme.py BUILD_FOLDER [--verbose] [PAGE ...]

The word behind the three ticks of a fence says how the test uses it:

    console     its lines that begin with `$ ` are run; the lines after each are its output
    text        not run, because it takes a GPU, root, Slurm or more than a minute; the test lists its commands
    sql         its statements are asked of detd.db; each column that is called train has a value in each row

A comment, which readers do not see, may stand in the line before a fence:

    <!-- file: shapes.json -->    the text of the fence is that file, in the home of every page
    <!-- run: s/600/60/ 'submit' + train.steps=60 -->
                                  a console fence is run smaller: s/A/B/ changes its commands, 'WORD' + MORE adds to
                                  commands with the word
    <!-- before: COMMAND -->      anywhere in a page: COMMAND is run before the page's first fence

Each page has a detd of its own, whose first job is job 1. Output is compared by its shape: numbers, times and folders
are alike, `...` stands for any lines. Ctrl-C is pressed after the first line of commands that do not end (watch). All
jobs have ended before the next command runs."""  # SPDX-License-Identifier: Apache-2.0
import getpass
import glob
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
MARK = re.compile(r"<!-- (file|run): (.*?) -->$")
BEFORE = re.compile(r"^<!-- before: (.*?) -->$", re.M)
SETS = (("shapes", "--train", "48", "--val", "8"), ("round", "--classes", "2", "--seed", "2", "--train", "40", "--val", "20"),
        ("photos", "--seed", "3", "--train", "48", "--val", "8"), ("video", "--size", "96", "--train", "24", "--val", "1"),
        ("outlines", "--train", "16", "--val", "4", "--size", "160", "--masks"))
SECONDS = 600


class Fence:
    def __init__(self, place, word, mark, lines):
        self.place, self.word, self.lines = place, word, lines
        self.file, self.arg = (mark[2], "") if mark and mark[1] == "file" else (None, mark[2] if mark else "")

    def has_commands(self):
        return any(l.startswith("$ ") for l in self.lines)


def fences(page):
    """All fences of a page, each with the mark in the line before it."""
    with open(ROOT + "/" + page, encoding="utf-8") as f:
        lines, found, at = f.read().split("\n"), [], 0
    while at < len(lines):
        if lines[at].startswith("```"):
            mark = next((MARK.match(l) for l in reversed(lines[max(0, at - 2):at]) if l.strip()), None)
            end = lines.index("```", at + 1)
            found.append(Fence("%s:%d" % (page, at + 1), lines[at][3:].strip(), mark, lines[at + 1:end]))
            at = end
        at += 1
    return found


def commands(fence):
    """Returns (command, output) of each; a line that ends with a backslash continues on the next line."""
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
    """Returns the parts of a line that are the same at any time and place."""
    line = line.replace(home + "/", "~/").replace("/home/ann/", "~/")
    line = re.sub(r"\b(%s|ann)\b" % re.escape(getpass.getuser()), "USER", line)
    line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", line)
    line = re.sub(r"\b\d+(d \d+h|h \d+m|m \d+s| s)\b", "SPAN", line)
    line = re.sub(r"(?<![\w.])-?(\d+(\.\d+)?|\.\d+)(e[-+]?\d+)?(?![\w])", "N", line)
    line = re.sub(r"\bobjects?\b", "objects", line)
    return " ".join(line.split())


def fits(want, got):
    """Returns whether lines have these shapes; `...` stands for any lines."""
    if not want:
        return not got
    if want[0] == "...":
        return any(fits(want[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and want[0] == got[0] and fits(want[1:], got[1:])


class Reader:
    """A reader of one page: a home with the data sets and job files of all pages, and a private detd."""

    def __init__(self, build, verbose, sets, files):
        self.build, self.verbose = os.path.abspath(build), verbose
        self.home = os.path.realpath(tempfile.mkdtemp(prefix="readme-"))
        shutil.copytree(sets, self.home, dirs_exist_ok=True)
        for fence in files:
            with open(self.home + "/" + fence.file, "w", encoding="utf-8") as f:
                f.write("\n".join(fence.lines) + "\n")
        self.env = dict(os.environ, HOME=self.home, DETD_SOCKET=self.home + "/detd/detd.sock", LC_ALL="C.UTF-8",
                        PATH=self.build + ":" + os.environ["PATH"])
        self.log = open(self.home + "/log", "wb")
        self.detd = subprocess.Popen(["detd", "--state", self.home + "/detd", "--socket", self.env["DETD_SOCKET"]], env=self.env,
                                     cwd=self.home, stdout=self.log, stderr=self.log)
        self.until(lambda: self.ask("info", "--json") is not None, "detd does not answer")

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
        with subprocess.Popen(["bash", "-c", "exec 2>&1; " + command], cwd=self.home, env=self.env, stdout=subprocess.PIPE, text=True,
                              start_new_session=True) as p:
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
    """The commands that print something else, as texts."""
    wrong = []
    for command, printed in commands(fence):
        if not command.startswith("detctl watch"):
            reader.until(reader.all_ended, "a job does not end")
        said = reader.run(smaller(command, fence.arg))
        want, got = [shape(l, reader.home) for l in printed], [shape(l, reader.home) for l in said]
        if not fits([w for w in want if w], [g for g in got if g]):
            wrong.append("%s: $ %s\n  the page says:\n    %s\n  it says:\n    %s" %
                         (fence.place, command, "\n    ".join(want), "\n    ".join(got)))
    return wrong


def ask_all(reader, fence):
    """Statements that are refused or leave a loss empty, as texts."""
    reader.until(reader.all_ended, "a job does not end")
    wrong, text = [], "\n".join(l for l in fence.lines if not l.startswith("--"))
    for statement in filter(str.strip, text.split(";")):
        try:
            with sqlite3.connect("file:%s/detd/detd.db?mode=ro" % reader.home, uri=True) as db:
                asked = db.execute(statement)
                names, rows = [c[0] for c in asked.description], asked.fetchall()
        except sqlite3.Error as e:
            wrong.append("%s: %s: %s" % (fence.place, e, statement))
            continue
        if "train" in names and (not rows or any(None in row for row in rows)):
            wrong.append("%s: empty: %s: %s" % (fence.place, rows, statement))
    return wrong


def read_page(page, reader):
    """Returns (number of commands, list of faults) of a page."""
    count, wrong = 0, []
    with open(ROOT + "/" + page, encoding="utf-8") as f:
        before = BEFORE.findall(f.read())
    for command in before:
        reader.run(command)
    for fence in fences(page):
        if fence.word == "console":
            wrong += check(reader, fence)
            count += len(commands(fence))
        elif fence.word == "sql":
            wrong += ask_all(reader, fence)
    return count, wrong


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if not shutil.which("sqlite3"):
        print("skip: sqlite3 is not installed")
        return 77
    pages = ["README.md"] + sorted(os.path.relpath(p, ROOT) for p in glob.glob(ROOT + "/docs/*.md"))
    found = {page: fences(page) for page in pages}
    files = [f for page in pages for f in found[page] if f.file]
    wrong = ["%s: a fence with commands is neither console nor text" % f.place for page in pages for f in found[page]
             if f.has_commands() and f.word not in ("console", "text")]
    count, chosen = 0, [a for a in sys.argv[2:] if a != "--verbose"] or pages
    with tempfile.TemporaryDirectory(prefix="readme-sets-") as sets:
        for words in SETS:
            subprocess.run([sys.executable, ROOT + "/tests/demo/make_shapes.py", *words], cwd=sets, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, ROOT + "/tests/demo/as_frames.py", sets + "/video", "96"], check=True)
        for page in [p for p in chosen if any(f.word in ("console", "sql") for f in found[p])]:
            began, reader = time.time(), Reader(sys.argv[1], "--verbose" in sys.argv, sets, files)
            try:
                ran, faults = read_page(page, reader)
            finally:
                reader.close()
            print("%s: %d commands, %d faults, %.0f s" % (page, ran, len(faults), time.time() - began), flush=True)
            count, wrong = count + ran, wrong + faults
    for fence in [f for page in chosen for f in found[page] if f.word == "text" and f.has_commands()]:
        print("not run: %s: %s" % (fence.place, next(l for l in fence.lines if l.startswith("$ "))))
    for text in wrong:
        print(text)
    print("%d commands of %d pages, %d faults" % (count, len(chosen), len(wrong)))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
