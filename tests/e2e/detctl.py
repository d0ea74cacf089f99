#!/usr/bin/env python3
"""detctl as users and scripts meet it, against a real detd and real jobs: exit codes, what goes to stdout, JSON, CSV
against SQL, Ctrl-C, a daemon or a supervisor that is killed while a client waits.
usage: detctl.py BUILD_FOLDER [TEST ...]"""  # SPDX-License-Identifier: Apache-2.0
import fcntl
import json
import os
import pty
import pwd
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import on_pty

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.normpath(os.path.join(ROOT, "..", "shared", "data", "bccd"))
DETCTL = DETD = ""
LONG = ["train.steps=1000000"]


def fails(function, *args):
    try:
        function(*args)
    except OSError:
        return True
    return False


class Node:
    """A private detd in a folder of its own, with a job file."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="detctl-")
        self.socket = os.path.join(self.folder, "s")
        self.daemon = None
        os.mkdir(os.path.join(self.folder, "cache"))
        spec = {"name": "tiny", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.125},
                "data": {"train": {"annotations": "d/train.json", "images": "d/images"},
                         "val": {"annotations": "d/val.json", "images": "d/images"}, "on_bad": "skip"},
                "train": {"steps": 8, "batch": 8, "log_every": 2}, "val": {"every": 4}, "run": {"device": "cpu", "ranks": 2}}
        with open(os.path.join(self.folder, "job.json"), "w", encoding="utf-8") as f:
            json.dump(spec, f)
        os.symlink(DATA, os.path.join(self.folder, "d"))
        self.start()

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.daemon = subprocess.Popen([DETD, "--state", os.path.join(self.folder, "state"), "--socket", self.socket],
                                           stdout=log, stderr=log)
        deadline = time.time() + 60
        while self.ctl("info").returncode == 3:
            assert time.time() < deadline and self.daemon.poll() is None, "detd did not start"
            time.sleep(0.05)

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()

    def environment(self):
        return dict(os.environ, DETD_SOCKET=self.socket, LC_ALL="C.UTF-8", XDG_CACHE_HOME=self.folder + "/cache")

    def ctl(self, *args, **more):
        return subprocess.run([DETCTL, *args], cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, timeout=120, check=False, **more)

    def begin(self, *args):
        return subprocess.Popen([DETCTL, *args], cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, universal_newlines=True)

    def submit(self, *args):
        """For tests that do not test the check, which takes a second on a busy machine."""
        done = self.ctl("submit", "job", "--no-check", *args)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number):
        return json.loads(self.ctl("show", number, "--json").stdout)

    def until(self, number, what, seconds=120):
        deadline = time.time() + seconds
        while not what(self.job(number)):
            assert time.time() < deadline, self.job(number)
            time.sleep(0.1)

    def close(self):
        for job in json.loads(self.ctl("ls", "--json").stdout or "[]"):
            if job["state"] not in ("completed", "failed", "cancelled"):
                self.ctl("cancel", str(job["id"]))
                self.until(str(job["id"]), lambda j: j["state"] in ("completed", "failed", "cancelled"))
        self.daemon.terminate()
        self.daemon.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


class NoTerminal(Exception):
    """This root has no /dev/ptmx."""


def terminal():
    try:
        return pty.openpty()
    except OSError as e:
        raise NoTerminal from e


def on_terminal(node, rows, columns, *args, term="xterm"):
    """Returns the output of a command on a terminal of that size and kind."""
    env = {k: v for k, v in node.environment().items() if k != "TERM"}
    env.update({} if term is None else {"TERM": term})
    try:
        return on_pty.shown([DETCTL, *args], rows, columns, cwd=node.folder, env=env, stderr=subprocess.DEVNULL).decode()
    except OSError as e:
        raise NoTerminal from e


def expect(done, code, stderr=None):
    assert done.returncode == code, f"exit code {done.returncode}, expected {code}: {done.stdout}{done.stderr}"
    assert stderr is None or re.search(stderr, done.stderr), f"stderr has no '{stderr}': {done.stderr}"


def commands(node):
    return re.findall(r"^  (\w+) +\S", node.ctl("--help").stdout.split("exit codes")[0], re.M)


def test_usage(node):
    expect(node.ctl(), 2)
    expect(node.ctl("fly"), 2, "no command 'fly'")
    for word, command in {
            "train": "submit", "squeue": "queue", "lss": "ls", "predct": "predict", "hold": "pause", "release": "resume",
            "retry": "clone", "repro": "clone", "scancel": "cancel", "sbatch": "submit"
    }.items():
        expect(node.ctl(word, "job"), 2, r"no command '%s'; did you mean %s\?" % (word, command))
    for word in "drai", "brain", "undrai", "drains":  # no command that acts on the whole node is offered
        expect(node.ctl(word), 2, r"no command '%s'(; did you mean (?!drain|undrain)\w+\?)?; see detctl --help\n$" % word)
    expect(node.ctl("ls", "--colour"), 2, r"^detctl ls: unrecognized option '--colour'\ndetctl ls --help lists the options\n$")
    expect(node.ctl("submit", "job", "--wathc"), 2, r"detctl submit: did you mean --watch\? detctl submit --help lists the options\n$")
    expect(node.ctl("eval", "--metrics=AP"), 2, r"did you mean --metric\?")
    expect(node.ctl("eval", "--checkpoint"), 2, r"option '--checkpoint' requires an argument\ndetctl eval --help lists")
    expect(node.ctl("ls", "--state", "done"), 1, r"'done' is not a state of a job; the states are queued, starting, .*, completed, "
                                                 r"failed, cancelled")
    assert node.ctl("help", "submit").stdout == node.ctl("submit", "--help").stdout != ""
    assert node.ctl("help").stdout == node.ctl("--help").stdout
    for word in [("export", "1", "-f", "safetensors", "-o", ""), ("export", "--sqlite", ""), ("predict", "1", "-o", "", "a.png"),
                 ("sample", "job", "--out="), ("eval", "1", "--checkpoint", ""), ("predict", "1", "-o", "p", "--on", ""),
                 ("submit", "job", "--init", ""), ("prune", "--older", "1d", "--user", "")]:
        expect(node.ctl(*word), 2, r"^detctl %s: the value of --\w+ is empty\ndetctl %s --help lists the options\n$" % (word[0], word[0]))
    for word in [("submit", ""), ("check", ""), ("layers", ""), ("anchors", ""), ("sample", "", "-o", "s"), ("predict", "1", "-o", "p", ""),
                 ("evidence", "export", "1", "")]:
        expect(node.ctl(*word), 2, r"^detctl %s: an empty name, '', is given; see detctl %s --help\n$" % (word[0], word[0]))
    expect(node.ctl("help", "sbmit"), 2, r"no command 'sbmit'; did you mean submit\?")
    expect(node.ctl("show", "first"), 2, "not a job id")
    expect(node.ctl("--help"), 0)
    assert len(commands(node)) == 42 and re.search(r"^steer:\n  cancel +Ends jobs", node.ctl("--help").stdout, re.M), commands(node)
    for command in commands(node):
        expect(node.ctl(command, "--help"), 0)
    expect(node.ctl("--socket", node.folder + "/none", "ls"), 3, "no detd answers at")
    expect(node.ctl("ls", "--socket"), 2, "--socket needs a path")
    expect(node.ctl("ls", "--socket="), 2, "--socket needs a path")


def test_refused_before_anything_is_queued(node):
    expect(node.ctl("submit", "nothing"), 1, "job file 'nothing'")
    os.mkdir(node.folder + "/job")  # hides no job.json
    expect(node.ctl("submit", "job", "train.lr=-1"), 1, r"train\.lr: must be > 0, is -1")
    expect(node.ctl("submit", "job", "train.lrx=1"), 1, r"did you mean train\.lr\?")
    expect(node.ctl("submit", "job", "data.train.annotations=x.json"), 1, r"data\.train\.annotations: open '/.*/x\.json': No such file")
    expect(node.ctl("submit", "job", "data.train.images=d/train.json"), 1, "not a folder")
    expect(node.ctl("cancel", "77"), 1, "no job 77")
    assert json.loads(node.ctl("ls", "--json").stdout) == []
    expect(node.ctl("show"), 1, "you have no jobs yet")


def keys_of(node, *words):
    """Returns the keys that --help-keys lists."""
    done = node.ctl("submit", "--help-keys", *words)
    expect(done, 0)
    return {line.split()[0] for line in done.stdout.splitlines() if line[:1].strip()}


def test_keys_of_a_preset(node):
    mask = keys_of(node, "mask_rcnn_r18_fpn")
    assert mask == keys_of(node, "model.preset=mask_rcnn_r18_fpn") and "model.rpn_nms" in mask and "model.size" not in mask, mask
    yolo = keys_of(node, "mask_rcnn_r18_fpn", "model.preset=yolov3")
    assert "model.rpn_nms" not in yolo and "model.size" in yolo and yolo | mask <= keys_of(node), yolo
    expect(node.ctl("submit", "--help-keys", "mask_rcnn_r1"), 1, r"job file 'mask_rcnn_r1': No such file .*; nor is it a preset \(yolov3\|")


def shown_to_users(node, job):
    """Tables, and a screen with lines that fit the terminal: a character counts once, however many bytes it has."""
    head, row = node.ctl("ls").stdout.splitlines()
    assert head.split() == ["ID", "NAME", "STATE", "STEP", "TRAIN", "VAL", "BEST", "TIME", "IMG/S", "DEVICE", "USER", "SUBMITTED"], head
    best = max(row["value"] for row in json.loads(node.ctl("eval", "--metric", "AP", "--json").stdout))
    assert re.fullmatch(r" *1  tiny  completed  +8/8  +[0-9.]+  +[0-9.]+  AP %s  +[0-9smh ]+  +-  2 cpu +%s +[0-9-]+ [0-9:]+"
                        % (re.escape("%.4g" % best), job["user"]), row), row
    narrow = on_terminal(node, 30, 64, "ls").split("\r\n")
    assert max(map(len, narrow)) <= 64 and narrow[0].split()[:4] == ["ID", "NAME", "STATE", "STEP"
                                                                     ] and "VAL" in narrow[0] and "BEST" in narrow[0], narrow
    assert len(on_terminal(node, 30, 200, "ls").split("\r\n")[0]) == len(head)
    shown = dict(re.findall(r"^(\w+) +(.*)$", node.ctl("show").stdout, re.M))
    assert (shown["id"], shown["name"], shown["state"], shown["step"]) == ("1", "tiny", "completed", "8/8"), shown
    assert shown["run"] == "2 ranks on cpu, tier rerun" and "phase" not in shown, shown
    (attempt,) = job["attempts"]
    told = attempt["identity"]
    assert re.fullmatch("[0-9a-f]{32}", told["data"]["train"]) and told["data"]["train"] != told["data"]["val"], told
    assert shown["identity"] == "cpu, fp32, worker %s, %s" % (told["files"]["worker"]["version"], told["hash"][:8]), shown
    with open(node.folder + "/state/jobs/1/identity.json", encoding="utf-8") as f:
        kept = json.load(f)
    assert told == {name: value for name, value in kept.items() if name != "plans"} and kept["plans"] == [], (told, kept)
    assert shown["folder"] == os.path.join(node.folder, "state/jobs/1"), shown
    screen = on_terminal(node, 30, 60, "watch", "1")
    lines = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", screen).split("\r\n")
    assert re.sub(" [0-9.]+ images/s$", "", lines[1]) == "[" + "\u2588" * 30 + "] 8/8 ", lines[1]
    assert max(map(len, lines)) == 60 and lines[0] == "job 1  tiny  completed  2 ranks on cpu  attempt 1", lines[0]
    assert sorted(len(line) for line in lines if "\u2500" in line) == [60], lines  # the axis
    narrow = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", on_terminal(node, 30, 36, "watch", "1")).split("\r\n")
    assert re.fullmatch("\\[\u2588{5,29}\\] 8/8  [0-9.]+ images/s", narrow[1]) and narrow[0] == "job 1  tiny  completed  attempt 1", narrow
    for term in "", "dumb", "unknown", "nonsense", None:  # nothing is sent that they do not know
        said = on_terminal(node, 30, 60, "watch", "1", term=term)
        assert "\033" not in said and "step 8/8  train  total  " in said, (term, said)
    console = on_terminal(node, 30, 60, "loss", "1", "--plot", term="linux")
    assert "*" in console and not re.search("[\u2800-\u28ff]", console), console
    (local,), (utc,) = (re.findall(r"^submitted +(.*)$", node.ctl("show", *more).stdout, re.M) for more in ((), ("--utc",)))
    assert re.fullmatch(r"[0-9-]{10} [0-9:]{8}Z", utc) and re.fullmatch(r"[0-9-]{10} [0-9:]{8}", local), (local, utc)


def test_a_job_that_completes(node):
    done = node.ctl("submit", "job", "--wait")
    expect(done, 0, "job 1 completed")
    assert done.stdout == "1\n", done.stdout
    job = node.job("1")
    for name in ("id", "name", "state", "reason", "attempt", "step", "steps", "cpu_seconds", "max_rss"):
        assert name in job, name
    assert (job["state"], job["step"], job["cpu_seconds"] > 0) == ("completed", 8, True), job
    assert [j["id"] for j in json.loads(node.ctl("ls", "--json").stdout)] == [1]
    lines = node.ctl("loss", "--split", "val", "--term", "total", "--csv").stdout.splitlines()
    assert lines[0] == "job,split,term,step,epoch,value,tier,time"
    rows = [(int(line.split(",")[3]), float(line.split(",")[5])) for line in lines[1:]]
    sql = "select step, value from loss where job=1 and split='val' and term='total' order by step"
    assert rows == sqlite3.connect(node.folder + "/state/detd.db").execute(sql).fetchall()
    assert [step for step, _ in rows] == [4, 8]
    watched = node.ctl("watch", "1")
    expect(watched, 0)
    assert "\033" not in watched.stdout and re.search(r"^step 8/8  train  total  ", watched.stdout, re.M), watched.stdout
    shown_to_users(node, job)
    assert len(node.ctl("loss", "--plot").stdout.splitlines()) == 20
    assert {row["term"] for row in json.loads(node.ctl("loss", "--json").stdout)} >= {"total", "box"}
    assert "AP50" in {row["metric"] for row in json.loads(node.ctl("eval", "--json").stdout)}
    expect(node.ctl("eval", "--metric", "nothing"), 1, "metric: job 1 has no .nothing.; it has AP, AP50, ")
    assert min(row["value"] for row in json.loads(node.ctl("eval", "--json").stdout) if row["value"] is not None) >= 0
    steps = re.findall(r"^ *([0-9]+)  AP50 ", node.ctl("eval").stdout, re.M)
    assert steps == ["8"], steps  # the newest evaluation of all metrics, and the history of one
    assert re.findall(r"^ *([0-9]+)  AP50 ", node.ctl("eval", "--metric", "AP50").stdout, re.M) == ["4", "8"]
    picture = node.folder + "/d/images/" + sorted(os.listdir(node.folder + "/d/images"))[0]
    expect(node.ctl("predict", "1", picture, "-o", node.folder + "/out", "--checkpoint", "77"), 1,
           "no checkpoint of step 77; the newest is .* 8")
    assert not os.path.exists(node.folder + "/out")
    expect(node.ctl("predict", "1", picture, "-o", node.folder + "/out"), 0)
    with open(node.folder + "/out/results.json", encoding="utf-8") as f:
        assert {r["file_name"] for r in json.load(f)} <= {picture}
    expect(node.ctl("predict", "1", picture, "-o", node.folder + "/out", "--conf", "1.5"), 2, "a score between 0 and 1, not '1.5'")
    expect(node.ctl("predict", "1", picture, "-o", node.folder + "/out", "--conf", "0"), 0)
    with open(node.folder + "/out/results.json", encoding="utf-8") as f:
        assert {r["file_name"] for r in json.load(f)} == {picture}
    expect(node.ctl("logs", "1", "--rank", "1"), 0)
    expect(node.ctl("logs", "1", "--rank", "9"), 1, "no log of rank 9")
    expect(node.ctl("why"), 0)


def audits(node, number):
    """Returns the requests made for the job, oldest first, without the users' names, which are looked up after the
    answer."""
    told = json.loads(node.ctl("events", number, "--json").stdout)
    return [e["text"].split()[0] for e in reversed(told) if e["kind"] == "audit"]


def test_labels_and_comparisons(node):
    """Labels of jobs, and jobs side by side."""
    for lr in "0.001", "0.002":
        expect(node.ctl("submit", "job", "train.lr=" + lr, "--wait"), 0)
    assert node.ctl("note", "1", "with", "the old cameras").stdout == "job 1: with the old cameras\n"
    assert node.ctl("tag", "1", "+night", "base").stdout == "job 1: base night\n"
    assert node.ctl("tag", "1", "-base").stdout == "job 1: night\n"
    expect(node.ctl("tag", "2", "night,day"), 1, "'night,day' is not a tag")
    expect(node.ctl("tag", "2"), 2, "a job id and tags are needed")
    expect(node.ctl("note", "9", "x"), 1, "no job 9")
    assert [j["id"] for j in json.loads(node.ctl("ls", "--tag", "night", "--json").stdout)] == [1]
    assert json.loads(node.ctl("ls", "--tag", "base", "--json").stdout) == []
    head, _, row = node.ctl("ls").stdout.splitlines()
    assert head.split()[-1] == "TAGS" and row.split()[-1] == "night", (head, row)
    shown = dict(re.findall(r"^(\w+) +(.*)$", node.ctl("show", "1").stdout, re.M))
    assert (shown["note"], shown["tags"]) == ("with the old cameras", "night"), shown
    node.until("1", lambda _: audits(node, "1").count("label") == 3)
    node.kill()
    node.start()
    assert (node.job("1")["note"], node.job("1")["tags"], node.job("2")["tags"]) == ("with the old cameras", ["night"], [])
    assert node.ctl("note", "1", "").stdout == "job 1: no note\n"
    said = node.ctl("compare", "1", "2")
    expect(said, 0)
    lines = said.stdout.splitlines()
    assert [line.split()
            for line in lines[:2]] == [["KEY", "JOB", "1", "JOB", "2"], ["train.lr", "0.001", "0.002"]] and lines[2] == "", lines
    told = json.loads(node.ctl("compare", "1", "2", "--json").stdout)
    assert told["keys"] == [{"key": "train.lr", "values": [0.001, 0.002]}], told["keys"]
    for job in told["jobs"]:
        rows = [r for r in json.loads(node.ctl("loss", str(job["id"]), "--split", "val", "--term", "total", "--json").stdout)]
        assert job["curve"] == [{"step": r["step"], "value": r["value"]} for r in rows] and len(rows) == 2, job
        best = min(rows, key=lambda r: r["value"])
        assert (job["best_loss"]["value"], job["best_loss"]["step"]) == (best["value"], best["step"]), job
        assert job["best_metric"]["metric"] == "AP", job
    node.kill()
    with sqlite3.connect(node.folder + "/state/detd.db") as db:
        db.execute("UPDATE eval SET value=0.5 WHERE job=2 AND metric='AP'")
    node.start()
    steps = [r["step"] for r in json.loads(node.ctl("eval", "2", "--metric", "AP", "--json").stdout)]
    best = json.loads(node.ctl("compare", "1", "2", "--json").stdout)["jobs"][1]["best_metric"]
    assert len(steps) == 2 and (best["value"], best["step"]) == (0.5, min(steps)), (steps, best)  # of equal ones the first
    csv = node.ctl("compare", "1", "2", "--csv", "--split", "train").stdout.splitlines()
    assert csv[0] == "job,split,term,step,value" and [line.split(",")[:4] for line in csv[1:]] == [[j, "train", "total", s] for j in "12"
                                                                                                   for s in "2468"], csv
    drawn = node.ctl("compare", "1", "2", "--plot").stdout
    assert "val total" in drawn and "job 1 " in drawn and "job 2 " in drawn, drawn
    expect(node.ctl("compare", "1"), 2, "2 to 6 jobs")
    expect(node.ctl("compare", "1", "9"), 1, "no job 9")


def test_keys_in_the_place_of_files(node):
    """Keys of a job are refused by name, and not taken for a picture, a folder or a job file."""
    for words in (["predict", "1", "val.conf=0.1", "-o", "o"], ["predict", "1", "d/images", "val.conf=0.1", "-o",
                                                                "o"], ["predict", "1", "--split", "val", "val.conf=0.1", "-o",
                                                                       "o"], ["submit", "val.conf=0.1"], ["check", "val.conf=0.1", "job"],
                  ["layers", "val.conf=0.1"], ["anchors", "val.conf=0.1", "job"], ["sample", "val.conf=0.1", "-o",
                                                                                   "o"], ["evidence", "export", "1", "val.conf=0.1"]):
        expect(node.ctl(*words), 2, r"^detctl %s: 'val\.conf=0\.1' is a key of a job and its value: " % words[0])
    for words in ["resume", "1", "val.conf=0.1"], ["extend", "1", "--steps", "9", "val.conf=0.1"]:
        done = node.ctl(*words)
        assert done.returncode in (1, 2) and re.search(r"val\.conf=0\.1|clone changes them", done.stderr), done
    shutil.copy(node.folder + "/job.json", node.folder + "/a.b=c")
    expect(node.ctl("check", "a.b=c"), 0)  # a file may be called so
    assert not os.path.exists(node.folder + "/o"), "a folder for nothing"


def test_edges(node):
    """Commands that newcomers type."""
    os.makedirs(node.folder + "/elsewhere")
    shutil.copy(node.folder + "/job.json", node.folder + "/elsewhere/other.json")
    there = [
        "data.train.annotations=d/train.json", "data.train.images=d/images", "data.val.annotations=d/val.json", "data.val.images=~/d/images"
    ]
    home = dict(node.environment(), HOME=node.folder)
    done = subprocess.run([DETCTL, "submit", "elsewhere/other", *there, "train.steps=1000000", "val.every=0"], cwd=node.folder, env=home,
                          capture_output=True, text=True, timeout=120, check=False)
    expect(done, 0)
    paths = node.job("1")["spec"]["data"]
    assert (paths["train"]["images"], paths["val"]["images"]) == (node.folder + "/d/images",) * 2, paths
    done = node.ctl("submit", "elsewhere/other")
    expect(done, 1, "open '%s/elsewhere/d/train.json'" % node.folder)
    done = node.ctl("check", "job", "data.on_bad=error")
    assert "detd-worker:" not in done.stdout + done.stderr and done.returncode == 1, done
    node.until("1", lambda j: j["step"] > 0)
    expect(node.ctl("checkpoint", "1"), 0)
    expect(node.ctl("pause", "1"), 0)
    node.until("1", lambda j: j["state"] == "paused")
    assert node.ctl("checkpoint",
                    "1").stdout == "job 1 is paused: a checkpoint is kept in mind till it runs again; `detctl resume 1` queues it\n"
    expect(node.ctl("eval", "1"), 0, "job 1 has no evaluation yet; a validation makes one where the set has ")
    assert "is paused: an evaluation is kept in mind" in node.ctl("eval", "1", "--now").stdout
    for _ in range(2):
        expect(node.ctl("cancel", "1"), 0)
    node.until("1", lambda j: j["state"] == "cancelled")
    node.until("1", lambda _: "cancel" in audits(node, "1"))
    node.ctl("note", "1", "and its event comes later")
    node.until("1", lambda _: "label" in audits(node, "1"))
    assert audits(node, "1").count("cancel") == 1 and audits(node, "1").count("pause") == 1, audits(node, "1")
    with open(node.folder + "/log", encoding="utf-8") as f:
        first = f.readline()
    assert node.socket in first and node.folder + "/state" in first and re.search(r"\d+ CPU slots", first), first
    lines = [line.split() for line in node.ctl("watch", node.submit("--wait")).stdout.splitlines() if line.startswith("step ")]
    assert [(line[1], line[2]) for line in lines] == [("2/8", "train"), ("4/8", "train"), ("4/8", "val"), ("6/8", "train"),
                                                      ("8/8", "train"), ("8/8", "val")], lines


def test_a_job_that_fails(node):
    with open(node.folder + "/empty.json", "w", encoding="utf-8") as f:
        f.write("{}")
    done = node.ctl("submit", "job", "data.train.annotations=empty.json", "--watch", "--no-check")
    expect(done, 4)
    assert "job 1 failed: " in done.stdout and "empty.json" in done.stdout, done.stdout
    expect(node.ctl("predict", "1", "d/images/none.png", "-o", "out"), 1, "holds no checkpoint yet")
    assert not os.path.exists(node.folder + "/out")
    expect(node.ctl("check", "job", "data.train.annotations=empty.json"), 1, "empty.json")
    expect(node.ctl("check", "job"), 0)


def some_images(folder, empty):
    """Five pictures of the data set in folder/e, the first `empty` of them without a byte; annotations name no others, each with a box."""
    os.makedirs(folder + "/e/images", exist_ok=True)
    with open(DATA + "/train.json", encoding="utf-8") as f:
        truth = json.load(f)
    truth["images"] = truth["images"][:5]
    truth["annotations"] = [{"id": i + 1, "image_id": image["id"], "category_id": truth["categories"][0]["id"], "bbox": [1, 1, 8, 8]}
                            for i, image in enumerate(truth["images"])]
    for i, image in enumerate(truth["images"]):
        with open(DATA + "/images/" + image["file_name"], "rb") as f, open(folder + "/e/images/" + image["file_name"], "wb") as g:
            g.write(b"" if i < empty else f.read())
    with open(folder + "/e/some.json", "w", encoding="utf-8") as f:
        json.dump(truth, f)
    return "data.train.annotations=e/some.json", "data.train.images=e/images"


def test_epochs_become_steps(node):
    epochs = ["train.steps=null", "train.epochs=3"]
    data = some_images(node.folder, 1)
    expect(node.ctl("submit", "job", "train.epochs=3", *data), 1, r"job\.json: train\.epochs: cannot be combined with train\.steps")
    expect(node.ctl("submit", "job", "train.epochs=.9"), 1, r"train\.epochs: '\.9' is not how JSON writes a number; 0\.9 is")
    done = node.ctl("submit", "job", *epochs, *data, "--wait")  # of a picture that cannot be read no step is made: ceil(3 * 4 / 8)
    expect(done, 0, "^train.epochs 3 of 4 images, batch 8: 2 steps\n(.*\n)*job 1 completed")
    job = node.job("1")
    assert (done.stdout, job["steps"], job["spec"]["train"]["steps"]) == ("1\n", 2, 2) and "epochs" not in job["spec"]["train"], job
    strict = node.ctl("check", "job", *epochs, *data,
                      "data.on_bad=error")  # the annotations are good, all five count; then the picture is found
    expect(strict, 1, "^train.epochs 3 of 5 images, batch 8: 2 steps\n.*1 problem")
    assert "file is empty" in strict.stdout, strict.stdout
    expect(node.ctl("check", "job", *epochs, *data), 0, "3 of 4 images")


def jobs(node):
    return len(json.loads(node.ctl("ls", "--json").stdout))


def refused_first(node, said, *args):
    """No job is queued, and the check's words say why."""
    before = jobs(node)
    done = node.ctl(*args)
    expect(done, 1, said + r"(.|\n)*detctl: nothing is queued; --no-check queues a job unchecked\n$")
    assert done.stdout == "" and jobs(node) == before, done


def test_data_is_checked_first(node):
    """Each command that queues a job checks its data first, like `check`."""
    bad, good = some_images(node.folder, 2), ["data.val.annotations=null", "data.val.images=null", "val.every=null"]
    strict = ["data.on_bad=error", *good]
    refused_first(node, r"train: image \d+: .*file is empty\n(.|\n)*detctl: .*some.json: 2 problems", "submit", "job", *bad, *strict)
    with open(node.folder + "/weights.py", "w", encoding="utf-8") as f:
        f.write("import torch\n")
    refused_first(node, r"detctl: model.init: .*weights\.py: .*weights file; it is text", "submit", "job", "--init", "weights.py", *good)
    done = node.ctl("submit", "job", *bad, *strict, "--no-check", "--wait")
    expect(done, 4, r"^job 1 failed: .*some.json: 2 problems")
    refused_first(node, "some.json: 2 problems", "clone", "1")
    refused_first(node, "some.json: 2 problems", "clone", "1", "train.lr=0.01")
    done = node.ctl("clone", "1", "--no-check", "--wait")
    expect(done, 4, r"^job 2 failed: ")
    done = node.ctl("submit", "job", *bad, *good, "--wait")  # possible mistakes are reported in short, and the job is queued
    expect(done, 0, r"(?m)^train: image \d+: .*file is empty\ntrain: image \d+: .*file is empty\njob 3 completed")
    assert done.stdout == "3\n", done
    expect(node.ctl("clone", "3", "--same-data"), 0)
    with open(node.folder + "/e/some.json", "w", encoding="utf-8") as f:
        f.write("{}")
    refused_first(node, "some.json", "clone", "3", "--same-data")


def test_a_check_is_remembered(node):
    """As long as the label files are unchanged, no later check reads them again, even by another command."""
    data = [*some_images(node.folder, 0), "data.val.annotations=null", "data.val.images=null", "val.every=null", "data.on_bad=error"]
    kept = node.folder + "/cache/detd/checks"
    os.makedirs(kept)
    for i in range(80):
        with open("%s/old-%d" % (kept, i), "w", encoding="utf-8") as f:
            f.write("x")
        os.utime(f.name, (i, i))
    several = [node.begin("submit", "job", "--wait", *data) for _ in range(4)]
    for one in several:
        said, told = one.communicate(timeout=120)
        assert one.returncode == 0, (said, told)
    left = os.listdir(kept)
    assert len(left) <= 64 and "old-16" not in left and "old-21" in left and not [name for name in left if "tmp" in name], sorted(left)
    picture = node.folder + "/e/images/" + sorted(os.listdir(node.folder + "/e/images"))[0]
    with open(picture, "r+b") as f:
        f.truncate(0)
    expect(node.ctl("submit", "job", *data, "train.lr=0.01", "--wait"), 4,
           "^job 5 failed: ")  # it is not looked for: the job itself will see
    refused_first(node, "file is empty", "submit", "job", *data, "model.width=0.25")  # another network is another check
    os.utime(node.folder + "/e/some.json")
    refused_first(node, "file is empty", "submit", "job", *data)
    refused_first(node, "file is empty", "submit", "job", *data)  # a bad one is made again
    with open(picture, "wb") as f, open(DATA + "/images/" + os.path.basename(picture), "rb") as g:
        f.write(g.read())
    expect(node.ctl("check", "job", *data), 0)
    with open(picture, "r+b") as f:
        f.truncate(0)
    expect(node.ctl("submit", "job", *data), 0)


def test_a_new_file_of_labels_is_checked(node):
    """Labels appear for a picture that had no labels; and a new picture appears, in a folder that no key names."""
    some_images(node.folder, 0)
    pictures = sorted(os.listdir(node.folder + "/e/images"))
    labels = [node.folder + "/e/labels/a/%s.txt" % os.path.splitext(name)[0] for name in pictures]
    os.makedirs(node.folder + "/e/labels/a")
    os.rename(node.folder + "/e/images", node.folder + "/e/a")
    os.makedirs(node.folder + "/e/images")
    os.rename(node.folder + "/e/a", node.folder + "/e/images/a")
    for path in labels[1:]:
        with open(path, "w", encoding="utf-8") as f:
            f.write("0 .5 .5 .2 .2\n")
    with open(node.folder + "/e/data.yaml", "w", encoding="utf-8") as f:
        f.write("train: images\nnames: [cell]\n")
    data = ["data.train.annotations=e/data.yaml", "data.train.images=null", "data.train.format=yolo", "data.val.annotations=null",
            "data.val.images=null", "val.every=null", "data.on_bad=error", *LONG]
    expect(node.ctl("submit", "job", *data), 0)
    assert len(os.listdir(node.folder + "/cache/detd/checks")) == 1
    with open(labels[0], "w", encoding="utf-8") as f:
        f.write("0 .5 .5\n")
    refused_first(node, r"line 1: should be a class and 4 numbers", "submit", "job", *data)
    os.remove(labels[0])
    expect(node.ctl("submit", "job", *data), 0)
    with open(node.folder + "/e/images/a/new.png", "wb"):
        pass
    refused_first(node, "new.png: file is empty", "submit", "job", *data)


def test_where_nothing_can_be_checked(node):
    """Without detd-worker, or without a folder to remember checks in, detctl says so and queues the job."""
    shutil.copy(DETCTL, node.folder + "/detctl")
    done = subprocess.run([node.folder + "/detctl", "submit", "job", *LONG], cwd=node.folder, env=node.environment(), capture_output=True,
                          text=True, timeout=60, check=False)
    expect(done, 0, "^detctl: data and weights are not checked: detd-worker is not beside detctl")
    for homeless in {"XDG_CACHE_HOME": "/proc/none", "HOME": "/proc/none"}, {"XDG_CACHE_HOME": "", "HOME": ""}:
        done = subprocess.run([DETCTL, "submit", "job", *LONG], cwd=node.folder, env={**node.environment(), **homeless},
                              capture_output=True, text=True, timeout=60, check=False)
        expect(done, 0, "(?m)^train: annotation")  # perhaps after a line of progress
    assert not os.path.exists(node.folder + "/cache/detd/checks/none") and not os.path.exists(node.folder + "/.cache")


def test_root_runs_nothing_on_a_job_file_of_another(node):
    """A private daemon of root takes it: the job runs as root in any case."""
    if os.geteuid() != 0:
        return
    data, theirs = some_images(node.folder, 2), pwd.getpwuid(1).pw_name
    os.chown(node.folder + "/job.json", 1, 1)
    for words in (["check"], ["sample", "-o", "seen"], ["layers"], ["anchors"]):
        expect(node.ctl(*words, "job", *data), 1,
               "belongs to user %s, and root runs nothing on it: use sudo -u %s detctl %s ..." % (theirs, theirs, words[0]))
    expect(node.ctl("submit", "job", *data, *LONG), 0)
    # root of a user namespace has no rights over files of users outside the namespace, and runs as its own user
    unshare = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
        done = subprocess.run([*unshare, DETCTL, "layers", "job", "--classes", "2"], cwd=node.folder, env=node.environment(),
                              capture_output=True, text=True, timeout=60, check=False)
        expect(done, 0)


def test_ctrl_c_while_data_is_checked(node):
    """Nothing is queued then."""
    shutil.copy(DETCTL, node.folder + "/detctl")
    with open(node.folder + "/detd-worker", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n>begun && exec sleep 60\n")
    os.chmod(node.folder + "/detd-worker", 0o755)
    with subprocess.Popen([node.folder + "/detctl", "submit", "job"], cwd=node.folder, env=node.environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, start_new_session=True) as checking:
        while not os.path.exists(node.folder + "/begun"):
            assert checking.poll() is None, "it does not wait for its worker"
            time.sleep(0.05)
        os.killpg(checking.pid, signal.SIGINT)
        said, told = checking.communicate(timeout=60)
        assert (checking.returncode, said, told) == (130, "", "detctl: nothing is queued\n"), (checking.returncode, said, told)
    assert jobs(node) == 0


def test_keys_without_an_effect(node):
    """The submitter is told once, in the terminal; when a job's own keys are taken again, the note is not repeated."""
    note = r"job\.json: note: data\.augment\.size_max has no effect here: it needs data\.augment\.multiscale=true\n"
    for command in "check", "submit":
        done = node.ctl(command, "job", "data.augment.size_max=128", "train.steps=2", "val.every=2")
        expect(done, 0, note)
        assert done.stderr.count("has no effect") == 1, done.stderr
    expect(node.ctl("submit", "job", "run.after=1", "run.after_ok=true", "train.steps=2", "val.every=2", "--wait"), 0)
    for words in ["clone", "1"], ["clone", "1", "model.size=96"], ["clone", "2"]:
        done = node.ctl(*words)
        expect(done, 0)
        assert "has no effect" not in done.stderr, done.stderr


def test_other_keys_in_epochs(node):
    """val.every, checkpoint.every and train.lr_steps. Each program that reads a job file accepts them."""
    with open(node.folder + "/job.json", encoding="utf-8") as f:
        spec = json.load(f)
    spec["train"].update(steps=None, epochs=3, lr_steps=["1 epochs", "2 epochs"])
    spec["val"]["every"] = "1 epochs"
    spec["checkpoint"] = {"every": "2 epochs"}
    with open(node.folder + "/few.json", "w", encoding="utf-8") as f:
        json.dump(spec, f)
    data = some_images(node.folder, 1)  # 4 images that can be read
    done = node.ctl("submit", "few", *data, "train.batch=2", "run.ranks=1", "--wait")
    expect(done, 0, '^train.epochs 3 of 4 images, batch 2: 6 steps\ntrain.lr_steps \\["1 epochs", "2 epochs"\\] of 4 images, batch 2: '
                    'steps \\[2, 4\\]\n'
           'val.every "1 epochs" of 4 images, batch 2: steps 2\ncheckpoint.every "2 epochs" of 4 images, batch 2: steps 4\n')
    job = node.job("1")
    kept = job["spec"]
    assert (kept["train"]["steps"], kept["train"]["lr_steps"], kept["val"]["every"], kept["checkpoint"]["every"]) == (6, [2, 4], 2, 4), kept
    assert job["step"] == 6 and {c["step"] for c in job["checkpoints"]} >= {4, 6}, job
    keys = [*data, "train.batch=2", "run.ranks=1"]
    for words in ["check", "few"], ["layers", "few"], ["sample", "few", "-o", "seen", "-n", "1"]:
        expect(node.ctl(*words, *keys), 0)
    expect(node.ctl("check", "few", *keys, "train.epochs=null", "train.steps=9"), 0)
    more = some_images(node.folder, 0)
    done = node.ctl("clone", "1", "val.every=1 epochs", *more, "--wait")  # counted of the data that the new job has
    expect(done, 0, 'val.every "1 epochs" of 5 images, batch 2: steps 3\n(.|\n)*checkpoint.every, which was 4|val.every')
    assert node.job("2")["spec"]["val"]["every"] == 3, node.job("2")["spec"]


def refused_epochs(node, program, said, *args):
    done = subprocess.run([program, "submit", "job", "train.steps=null", *args], cwd=node.folder, env=node.environment(),
                          capture_output=True, text=True, timeout=60, check=False)
    expect(done, 1, said + r".*\n$")  # the last line says why
    assert done.stdout == "", done.stdout


def test_epochs_that_cannot_be_counted(node):
    data = some_images(node.folder, 5)
    refused_epochs(node, DETCTL, r"some\.json: 5 problems", "train.epochs=1", *data)
    with open(node.folder + "/none.json", "w", encoding="utf-8") as f:
        json.dump({"images": [], "annotations": [], "categories": [{"id": 1, "name": "cell"}]}, f)
    refused_epochs(node, DETCTL, r"none\.json: no images", "train.epochs=1", "data.train.annotations=none.json")
    refused_epochs(node, DETCTL, r"annotation \d+ .*no area(.|\n)*train\.json: 1 problem", "train.epochs=1", "data.on_bad=error")
    shutil.copy(DETCTL, node.folder + "/detctl")
    refused_epochs(node, node.folder + "/detctl", "detd-worker is not beside detctl", "train.epochs=1")
    with open(node.folder + "/detd-worker", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho 5 images\n")
    os.chmod(node.folder + "/detd-worker", 0o755)
    refused_epochs(node, node.folder + "/detctl", "detd-worker is of another version", "train.epochs=1")
    with open(node.folder + "/detd-worker", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n>begun && exec sleep 60\n")
    with subprocess.Popen([node.folder + "/detctl", "submit", "job", "train.steps=null", "train.epochs=1"], cwd=node.folder,
                          env=node.environment(), start_new_session=True) as counting:
        while not os.path.exists(node.folder + "/begun"):
            assert counting.poll() is None, "it does not wait for its worker"
            time.sleep(0.05)
        os.killpg(counting.pid, signal.SIGINT)  # as a terminal sends it, to both
        assert counting.wait(60) == 130, counting.returncode
    assert json.loads(node.ctl("ls", "--json").stdout) == []
    assert not [name for name in os.listdir(tempfile.gettempdir()) if re.fullmatch("detctl-[A-Za-z0-9]{6}", name)], "the job file is left"


def test_cancel(node):
    waiting = node.begin("submit", "job", "--wait", *LONG)
    number = waiting.stdout.readline().strip()
    node.until(number, lambda j: j["step"] > 0)
    shown = node.ctl("show").stdout
    assert re.search(r"^phase +[a-z_]+$", shown, re.M) and re.search(r"^use +[0-9.]+ images/s, ", shown, re.M), shown
    assert re.search(r"  running  .*  [0-9]+\.[0-9]  2 cpu ", node.ctl("ls").stdout), node.ctl("ls").stdout
    expect(node.ctl("cancel", number), 0)
    assert waiting.wait(60) == 5
    expect(node.ctl("resume", number), 1)


def test_interrupt_leaves_the_job_alone(node):
    waiting = node.begin("submit", "job", "--watch", *LONG)
    number = waiting.stdout.readline().strip()
    node.until(number, lambda j: j["step"] > 0)
    waiting.send_signal(signal.SIGINT)
    out = waiting.communicate(timeout=120)
    assert waiting.returncode == 130 and f"job {number} keeps running;" in out[1], out
    step = node.job(number)["step"]
    node.until(number, lambda j: j["state"] == "running" and j["step"] > step)


def test_daemon_is_killed_while_waiting(node):
    waiting = node.begin("submit", "job", "--watch", *LONG)
    number = waiting.stdout.readline().strip()
    node.until(number, lambda j: j["step"] > 4)
    node.kill()
    assert any("detd is away" in line for line in waiting.stderr), "its end is not noticed"
    node.start()
    node.until(number, lambda j: j["state"] == "running" and j["step"] > 4)
    expect(node.ctl("cancel", number), 0)
    out = waiting.communicate(timeout=60)
    assert waiting.returncode == 5 and "detd is back" in out[1], out
    steps = [int(step) for step in re.findall(r"^step (\d+)/\d+  train", out[0], re.M)]
    assert steps == sorted(set(steps)), steps


def train_steps(watching, until):
    """Returns the steps of the training rows that `watch` prints. until(line, steps) says when there are enough."""
    steps = []
    for line in watching.stdout:
        steps += [int(step) for step in re.findall(r"^step (\d+)/\d+  train", line)]
        if until(line, steps):
            return steps
    raise AssertionError(f"watch ends after {steps[-3:]}: {watching.stderr.read()}")


def test_supervisor_is_killed_while_watching(node):
    """Printed rows of steps after the checkpoint come again, every one."""
    watching = node.begin("submit", "job", "--watch", "train.log_every=1", "checkpoint.every=0", *LONG)
    number = watching.stdout.readline().strip()
    node.until(number, lambda j: j["step"] > 0)
    expect(node.ctl("checkpoint", number), 0)
    node.until(number, lambda j: j["checkpoints"])
    saved = node.job(number)["checkpoints"][0]["step"]
    last = train_steps(watching, lambda _, steps: steps and steps[-1] > saved)[-1]
    with open(node.folder + f"/state/jobs/{number}/lock", encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGKILL)
    told = []
    before = train_steps(watching, lambda line, steps: told.append(line) or line.startswith("attempt ") or (steps and steps[-1] <= last))
    assert told[-1] == f"attempt 2 continues from step {saved}\n", told[-1]
    last = max(before, default=last)
    again = train_steps(watching, lambda _, steps: steps and steps[-1] > last)
    assert again == list(range(saved + 1, again[-1] + 1)), (saved, last, again)
    expect(node.ctl("cancel", number), 0)
    watching.communicate(timeout=60)
    assert watching.returncode == 5, watching.returncode


def verify(node, *args):
    """Returns detctl verify's result, and its --json output about the job that it made."""
    done = node.ctl("verify", "--json", *args)
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    return done.returncode, said, node.job(str(said["job"]))


def test_verify(node):
    """A run is compared with itself from any step, on other ranks. A changed run is found."""
    expect(node.ctl("submit", "job", "checkpoint.every=4", "--wait"), 0)
    done = node.ctl("verify", "1")
    expect(done, 0, "job 2 verifies job 1")
    assert done.stdout == "equal: steps 1 .. 8 of job 1\n", done.stdout
    made, spec = node.job("2"), node.job("1")["spec"]
    assert (made["name"], made["state"], made["checkpoints"]) == ("verify 1", "completed", []), made
    errand = {key: value for key, value in made["spec"]["errand"].items() if value is not None}
    assert errand == {"evidence": node.folder + "/state/jobs/1", "from": 0, "to": 8}, made["spec"]
    for spec_of in (spec, made["spec"]):
        spec_of.pop("errand", None)
        del spec_of["name"]
    assert made["spec"] == spec, (made["spec"], spec)
    code, said, made = verify(node, "1", "--from", "5", "--steps", "2", "--ranks", "1", "--isa", "generic", "--stress", "7",
                              "run.threads=1")
    assert (code, said["outcome"], said["first"], said["last"]) == (0, "equal", 5, 7), said  # the checkpoint of step 4 is where it begins
    expect(node.ctl("verify", "1", "--from", "5", "--steps", "2"), 0, "it begins at the checkpoint of step 4 and trains 3 steps")
    expect(node.ctl("verify", "1", "--from", "3"), 0, "no checkpoint of step 3 or before is kept: it begins with step 1 and trains 8 steps")
    assert "verify 1" not in node.ctl("ls").stdout and node.ctl(
        "ls").stderr == "left out: 4 jobs of verify and eval; --all lists them\n", node.ctl("ls")
    assert node.ctl("ls", "--all").stdout.count("verify 1") == 4 and node.ctl("ls", "-n", "1").stdout.count("\n") == 2
    assert [j["kind"] for j in json.loads(node.ctl("ls", "--json").stdout)] == 4 * ["verify"] + ["train"]
    expect(node.ctl("why"), 0)
    assert re.match(r"job \d+: completed", node.ctl("why").stdout), node.ctl("why").stdout
    assert said["of"] == {"job": 1, "dir": node.folder + "/state/jobs/1", "steps": 8, "recorded": 8}, said
    assert said["compared"] == "all" and said["identity"] is None, said
    run = made["spec"]["run"]
    assert (run["ranks"], run["isa"], made["spec"]["errand"]["stress"], made["ranks"]) == (1, "generic", 7, 1), made
    expect(node.ctl("verify", "1", "--from", "8"), 1, "job 1 has evidence of 8 steps, but not of steps after 8")
    expect(node.ctl("verify", "1", "--from", "3", "--steps", "6"), 1, "job 1 has evidence of 8 steps, which are 5 after step 3")
    expect(node.ctl("verify", "2"), 1, "job 2 verifies another run itself: '.*/jobs/1'")
    expect(node.ctl("verify", "1", "train.lr=-1"), 1, r"job 1: train\.lr: must be > 0")
    expect(node.ctl("verify", "1", "--steps", "0"), 2, "'0' is not a number from 1 on")
    expect(node.ctl("verify"), 2, "no job id or folder given")
    code, said, made = verify(node, "1", "train.lr=0.5")  # other keys: nothing is compared
    assert (code, said["outcome"], made["state"]) == (4, "failed", "failed") and "other keys" in said["reason"], said
    lesser(node)
    differs(node)


def lesser(node):
    """If a run kept no hashes of tensors, verify says that only the kept part is equal."""
    expect(node.ctl("submit", "job", "run.evidence=losses", "--wait"), 0)
    number = str(json.loads(node.ctl("ls", "--json").stdout)[0]["id"])
    done = node.ctl("verify", number)
    expect(done, 0)
    assert done.stdout == "equal: steps 1 .. 8 of job %s, data and losses alone\n" % number, done.stdout
    code, said, _ = verify(node, number, "--steps", "2")
    assert (code, said["compared"], said["identity"], said["last"]) == (0, "data, losses", None, 2), said


def differs(node):
    """A run that began with other weights is found to differ at its start. From its own checkpoint on it is the same."""
    init = "model.init=state/jobs/1/checkpoints/step-8/model.safetensors"
    expect(node.ctl("submit", "job", init, "checkpoint.every=4", "--wait"), 0)
    number = str(json.loads(node.ctl("ls", "--json").stdout)[0]["id"])
    done = node.ctl("verify", number, "model.init=null")
    expect(done, 6)
    assert re.fullmatch(r"differs: step 1 of job %s: loss .+\n" % number, done.stdout), done.stdout
    code, said, made = verify(node, number, "model.init=null", "--steps", "3")
    assert (code, said["outcome"], said["step"], made["state"]) == (6, "differs", 1, "failed") and len(made["attempts"]) == 1, said
    code, said, _ = verify(node, number, "model.init=null", "--from", "4")
    assert (code, said["first"], said["last"]) == (0, 5, 8), said


def test_verify_waits(node):
    """A verification waits behind a job that has all slots. A terminal says so, Ctrl-C leaves the job alone, and a
    cancelled verification compares nothing."""
    expect(node.ctl("submit", "job", "--wait"), 0)
    holder = node.submit(*LONG)
    node.until(holder, lambda j: j["state"] == "running")
    waiting = node.begin("verify", "1")
    assert waiting.stderr.readline() == "job 3 verifies job 1\n"
    assert waiting.stderr.readline().startswith("it begins with step 1 and trains 8 steps; the run took ")
    assert re.fullmatch(r"job 3 waits: needs \d+ CPU slots at once, .*\n", waiting.stderr.readline())
    waiting.send_signal(signal.SIGINT)
    said = waiting.communicate(timeout=60)
    assert waiting.returncode == 130 and said[0] == "" and "job 3 keeps running;" in said[1], (waiting.returncode, said)
    assert node.job("3")["state"] == "queued", node.job("3")
    ours, theirs = terminal()
    with subprocess.Popen([DETCTL, "watch", holder], cwd=node.folder, env=dict(node.environment(), TERM="xterm"), stdout=theirs,
                          stderr=subprocess.DEVNULL) as shown:
        said = b""
        while b"  about " not in said:  # the rate of the attempt, before a rate was watched for long enough
            said += os.read(ours, 65536)
        assert re.search(rb"images/s  about [0-9dhms ]+ left", said), said
        shown.send_signal(signal.SIGINT)
    os.close(ours)
    os.close(theirs)
    ours, theirs = terminal()
    with subprocess.Popen([DETCTL, "verify", "1", "--steps", "2"], cwd=node.folder, env=dict(node.environment(), TERM="xterm"),
                          stdout=subprocess.PIPE, stderr=theirs) as shown:
        os.close(theirs)
        said = b""
        while b"queued  step 0/2  " not in said:
            said += os.read(ours, 4096)
        expect(node.ctl("cancel", "4"), 0)
        assert shown.stdout.read() == b"not compared: job 4 cancelled\n" and shown.wait(60) == 5, shown.returncode
    os.close(ours)


def exported(node, *folder):
    return sorted(os.listdir(os.path.join(node.folder, *folder)))


def test_secrets_stay(node):
    """Data that leaves the node contains neither the values of run.env nor run.on_end."""
    expect(
        node.ctl("submit", "job", 'run.env={"PASSWORD": "hush", "B": ""}', "run.on_end=echo hush >/dev/null", "train.steps=2",
                 "val.every=2", "--wait"), 0)
    assert node.job("1")["spec"]["run"]["env"]["PASSWORD"] == "hush"
    expect(node.ctl("evidence", "export", "1", "there"), 0)
    expect(node.ctl("export", "1", "--sqlite", "there.db"), 0)
    expect(node.ctl("export", "1", "-f", "safetensors", "-o", "there/x.safetensors"), 0)
    with open(node.folder + "/there/spec.json", encoding="utf-8") as f:
        run = json.load(f)["run"]
    with sqlite3.connect(node.folder + "/there.db") as db:
        copied = json.loads(db.execute("SELECT spec FROM jobs").fetchone()[0])["run"]
    for left in run, copied:
        assert left["env"] == {"PASSWORD": None, "B": None} and left["on_end"] is None, left
    for path in [node.folder + "/there.db"] + [node.folder + "/there/" + name for name in exported(node, "there")]:
        with open(path, "rb") as f:
            assert b"hush" not in f.read(), path
    expect(node.ctl("verify", "there"), 1, "there: the value of run.env.(PASSWORD|B) is hidden: give all of run.env")
    expect(node.ctl("verify", "there", 'run.env={"PASSWORD": "hush"}'), 0, "")


def test_evidence_goes_elsewhere(node):
    expect(node.ctl("submit", "job", "--wait"), 0)
    expect(node.ctl("evidence", "export", "1", "there"), 0)
    assert exported(node, "there") == ["evidence.json", "evidence.log", "evidence.ring", "evidence.tensors", "identity.json", "spec.json"], \
        exported(node, "there")
    for name in exported(node, "there"):
        with open(node.folder + "/there/" + name, "rb") as f, open(node.folder + "/state/jobs/1/" + name, "rb") as g:
            there, here = f.read(), g.read()
        if name == "spec.json":
            there, here = json.loads(there), json.loads(here)
        assert there == here, name
    expect(node.ctl("evidence", "export", "1", "there/"), 1, "'there/' is there already and not empty")
    os.mkdir(node.folder + "/empty")
    expect(node.ctl("evidence", "export", "1", "empty"), 0)
    expect(node.ctl("evidence", "export", "1", "none/there"), 1, "create folder 'none/there.*No such file")
    expect(node.ctl("submit", "job", "run.evidence=off", "--wait"), 0)
    expect(node.ctl("evidence", "export", "2", "off"), 1, "evidence.json': No such file")
    expect(node.ctl("verify", "2"), 1, "job 2: .*evidence")
    assert not [name for name in exported(node) if name.startswith(("off", "there."))], exported(node)
    expect(node.ctl("evidence", "import", "1", "x"), 2, "export ID FOLDER")
    os.rename(node.folder + "/d", node.folder + "/moved")  # the data lies elsewhere too
    expect(node.ctl("verify", "there"), 1, "data.train.annotations: open")
    data = ["data.%s=moved/%s" % (key, place) for key, place in (("train.annotations", "train.json"), ("train.images", "images"),
                                                                 ("val.annotations", "val.json"), ("val.images", "images"))]
    done = node.ctl("verify", "there", *data)
    expect(done, 0)
    assert done.stdout == "equal: steps 1 .. 8 of there\n", (done.stdout, done.stderr)
    assert node.job("3")["name"] == "verify there"
    with open(node.folder + "/there/evidence.log", "r+b") as f:
        f.truncate(3 * 128)
    code, said, _ = verify(node, "there", *data)
    assert (code, said["last"], said["of"]["job"], said["of"]["steps"], said["of"]["recorded"]) == (0, 3, None, 8, 3), said
    with open(node.folder + "/there/identity.json", encoding="utf-8") as f:
        identity = json.load(f)
    identity["versions"]["detd"] = "0.0.0"
    with open(node.folder + "/there/identity.json", "w", encoding="utf-8") as f:
        json.dump(identity, f)
    done = node.ctl("verify", "there", *data)
    said = "from step 1 on the bits may be others than in the run that is verified: "
    assert re.fullmatch(r"equal: steps 1 .. 3 of there\n" + said + r".*0\.0\.0.*\nof 8 steps, evidence of 3\n", done.stdout), done.stdout


def test_the_same_data_once_more(node):
    shutil.copyfile(DATA + "/train.json", node.folder + "/own.json")
    expect(node.ctl("submit", "job", "train.steps=4", "data.train.annotations=own.json", "--wait"), 0)
    done = node.ctl("clone", "1", "--same-data", "--wait")
    expect(done, 0, "job 2 completed")
    first, second = node.job("1"), node.job("2")
    assert done.stdout == "2\n" and second["spec"]["errand"]["data_hash"] == first["attempts"][0]["identity"]["data"]["train"], second[
        "spec"]
    del second["spec"]["errand"]
    assert first["spec"] == second["spec"] and first["losses"] == second["losses"], (first, second)
    assert first["attempts"][0]["identity"]["hash"] == second["attempts"][0]["identity"]["hash"]
    with open(node.folder + "/own.json", encoding="utf-8") as f:
        truth = json.load(f)
    truth["annotations"].pop()
    with open(node.folder + "/own.json", "w", encoding="utf-8") as f:
        json.dump(truth, f)
    expect(node.ctl("clone", "1", "--same-data", "--wait"), 4, "job 3 failed: .*the training set is another one")
    expect(node.ctl("clone", "9", "--same-data"), 1, "no job 9")
    expect(node.ctl("clone", "d", "--same-data"), 2, "'d' is not a job id")


def test_one_refusal_keeps_no_other(node):
    first, second = node.submit(*LONG), node.submit(*LONG)
    done = node.ctl("cancel", first, "77", second)
    expect(done, 1, "no job 77")
    assert len(done.stdout.split("\n")) == 3, done.stdout
    expect(node.ctl("cancel", "77", "x"), 2, "'x' is not a job id")
    for job in (first, second):
        node.until(job, lambda j: j["state"] == "cancelled")
    done = node.ctl("rm", "77", first)
    expect(done, 1, "^detctl: no job 77\n$")
    assert done.stdout == f"job {first}: removed\n", done.stdout
    expect(node.ctl("show", first), 1, f"no job {first}")


def test_logs_that_are_rotated(node):
    """A log that is emptied, or renamed and made anew, is followed from its new beginning."""
    job = node.submit(*LONG)
    node.until(job, lambda j: j["state"] == "running")
    path = os.path.join(node.job(job)["dir"], "log", "rank-0.log")
    follows = subprocess.Popen([DETCTL, "logs", job, "-f", "--rank", "0", "--tail", "0"], env=node.environment(), stdout=subprocess.PIPE,
                               universal_newlines=True)

    def write(text, mode="a"):
        with open(path, mode, encoding="utf-8") as f:
            f.write(text + "\n")
        while follows.stdout.readline() != text + "\n":  # lines of the rank come in between; a test that hangs is ended
            assert follows.poll() is None

    node.until(job, lambda j: j["step"] > 0)
    while True:  # it may not have found its place yet
        with open(path, "a", encoding="utf-8") as f:
            f.write("here\n")
        if select.select([follows.stdout], [], [], 0.5)[0]:
            break
    write("the first of many words")
    write("short", mode="w")
    os.rename(path, path + ".1")
    write("new")
    node.ctl("cancel", job)
    assert follows.wait(120) == 0
    follows.stdout.close()


def test_tail_of_logs(node):
    job = node.submit("train.steps=2", "val.every=2")
    node.until(job, lambda j: j["state"] == "completed")
    path = f"{node.folder}/state/jobs/{job}/log/rank-1.log"
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(f"{i} {'x' * (i % 100)}\n" for i in range(5000)))
    whole = open(path, encoding="utf-8").read().split("\n")[:-1]

    def tail(count, *args):
        return node.ctl("logs", job, "--rank", "1", "--tail", str(count), *args).stdout.split("\n")[:-1]

    for count in (1, 2, 100, 4999, 5000, 9999):
        assert tail(count) == whole[-count:], count
    assert tail(0) == [] and tail(3, "-f") == whole[-3:]
    assert node.ctl("logs", job, "--tail", "1").stdout.count("\n") == 3  # two ranks and detd-job
    with open(path, "r+b") as f:  # a log as detd-job leaves it when it grew too large
        f.write(bytes(128 << 10))
    subprocess.run(["fallocate", "--punch-hole", "-o", "0", "-l", str(128 << 10), path], check=True)
    rest = open(path, "rb").read()[128 << 10:].decode().split("\n")[1:-1]
    assert node.ctl("logs", job, "--rank", "1").stdout.split("\n")[:-1] == rest
    assert tail(7) == whole[-7:] and tail(99999) == rest
    with open(path, "w", encoding="utf-8") as f:
        f.write("a\nb\nno end")
    assert tail(1) == ["no end"] and tail(2) == ["b", "no end"]
    expect(node.ctl("logs", job, "--tail", "x"), 2, "not a number of lines")


def test_queue_wait_and_clone(node):
    expect(node.ctl("queue"), 0, "no job waits")
    runs = node.submit(*LONG)
    node.until(runs, lambda j: j["state"] == "running")
    everything = "run.ranks=8", "train.shards=8"  # the whole node, so it waits for all of it
    low, high, held, last = (node.submit("train.steps=2", "val.every=2", f"run.priority={p}", *everything) for p in (1, 7, 9, 1))
    assert "state paused" in node.ctl("pause", held).stdout
    queue = json.loads(node.ctl("queue", "--json").stdout)
    assert [str(j["id"]) for j in queue] == [high, low, last], queue
    assert "CPU slots" in queue[0]["why"] and f"behind job {high}" in queue[1]["why"], queue
    assert [line.split()[0] for line in node.ctl("queue").stdout.split("\n")[1:-1]] == [high, low, last]
    expect(node.ctl("wait"), 2, "no job id")
    expect(node.ctl("wait", low, "x"), 2)
    node.ctl("cancel", runs, last)
    expect(node.ctl("wait", high, low), 0, f"job {high} completed\njob {low} completed")
    expect(node.ctl("wait", high, runs), 5)
    assert node.job(held)["state"] == "paused"
    assert "state queued" in node.ctl("resume", held).stdout
    expect(node.ctl("wait", held), 0)
    again = node.ctl("clone", runs).stdout.strip()
    mine, theirs = node.job(again), node.job(runs)
    assert int(again) > int(held) and mine["spec"] == theirs["spec"] and mine["name"] == theirs["name"], mine
    node.ctl("cancel", again)
    with open(node.folder + "/empty.json", "w", encoding="utf-8") as f:
        f.write("{}")
    fails = node.submit("data.train.annotations=empty.json")
    expect(node.ctl("wait", fails, again, high), 4, f"job {fails} failed: .*\njob {again} cancelled\njob {high} completed")
    expect(node.ctl("wait", again, fails, "77"), 1, "no job 77")


def test_priority_and_filters(node):
    runs = node.submit(*LONG, "name=first")
    node.until(runs, lambda j: j["state"] == "running")
    low, high = (node.submit(*LONG, "run.ranks=8", "train.shards=8", f"name={name}", f"run.priority={p}")
                 for name, p in (("second", 1), ("third", 7)))
    order = lambda: [str(j["id"]) for j in json.loads(node.ctl("queue", "--json").stdout)]
    assert order() == [high, low]
    expect(node.ctl("priority", high, "-5"), 0)
    assert order() == [low, high]
    node.kill()
    node.start()
    assert order() == [low, high] and node.job(high)["priority"] == -5
    expect(node.ctl("priority", high, "1001"), 1, "priority: must be -1000 to 1000, is 1001")
    expect(node.ctl("priority", high), 2)
    expect(node.ctl("priority", high, "much"), 2, "not a number")
    expect(node.ctl("priority", "77", "1"), 1, "no job 77")
    ids = lambda *args: [str(j["id"]) for j in json.loads(node.ctl("ls", "--json", *args).stdout)]
    assert ids() == ids("--mine") == ids("--since", "1h") == ids("--name", "*") == [high, low, runs]
    assert ids("--name", "t*d") == [high] and ids("--name", "irs") == [] and ids("--user", "nobody-of-that-name") == []
    assert ids("--user", node.job(runs)["user"], "--state", "queued", "--name", "s*") == [low]
    assert ids("--since", "0s") == []
    expect(node.ctl("ls", "--since", "soon"), 2, "is not a length of time")
    most = int(re.search(r"no name has more than (\d+) bytes", node.ctl("ls", "--name", "x" * 300).stderr)[1])
    expect(node.ctl("ls", "--name", "x" * most), 0)
    expect(node.ctl("ls", "--name", "x" * (most + 1)), 1, "name: no name has more than %d bytes" % most)
    node.ctl("cancel", low, high)
    expect(node.ctl("priority", low, "1"), 1, "cancelled: another priority is not possible")


def test_prune(node):
    expect(node.ctl("prune"), 2, "--older is missing")
    for wrong in ("30", "d", "-3d", "1e99d", "3 d", "3dd"):
        expect(node.ctl("prune", "--older", wrong), 2, "is not a length of time")
    expect(node.ctl("prune", "--older", ""), 2, "the value of --older is empty")
    done = node.submit("train.steps=2", "val.every=2")
    node.until(done, lambda j: j["state"] == "completed")
    lives = node.submit(*LONG)
    expect(node.ctl("prune", "--older", "2w"), 0, "no job ended so long ago")
    said = node.ctl("prune", "--older", "0s", "-n").stdout
    assert re.fullmatch(rf"job {done} \(tiny of .*, completed 2.*\): would be removed\n", said), said
    with open("%s/state/jobs/%s/lock" % (node.folder, done), "rb") as lock:  # as if one of its processes still lived
        node.until(done, lambda _: not fails(fcntl.flock, lock, fcntl.LOCK_EX | fcntl.LOCK_NB))
        expect(node.ctl("prune", "--older", "0s", "--keep-best"), 1, "detctl: .*job %s" % done)
    kept = []  # not while its processes leave
    node.until(done, lambda _: kept.append(node.ctl("prune", "--older", "0s", "--keep-best")) or kept[-1].returncode == 0)
    assert "keeps its best checkpoint only" in kept[-1].stdout, kept
    assert len(node.job(done)["attempts"]) == 1
    assert node.ctl("prune", "--older", "0s").stdout == said.replace("would be removed", "removed")
    expect(node.ctl("show", done), 1)
    node.ctl("cancel", lives)


def test_checkpoints_without_validation(node):
    """A checkpoint has the loss of a validation at its own step, not that of an earlier one."""
    number = node.submit("train.steps=4", "val.every=2", "checkpoint.every=1", "checkpoint.keep=4")
    node.until(number, lambda j: j["state"] == "completed")
    losses = {c["step"]: c["val_loss"] for c in node.job(number)["checkpoints"]}
    assert sorted(losses) == [1, 2, 3, 4] and [step for step in losses if losses[step] is None] == [3, 1], losses


def test_pause_resume_checkpoint_tier(node):
    number = node.submit(*LONG)
    node.until(number, lambda j: j["step"] > 0)
    expect(node.ctl("checkpoint", number), 0)
    node.until(number, lambda j: j["checkpoints"])
    expect(node.ctl("deterministic", "on", "--tier", "world", "--job", number), 0)
    node.until(number, lambda j: j["tier"] == "world")
    assert "world" in node.ctl("deterministic", "--job", number).stdout
    changed = node.job(number)["tiers"][-1]["step"]
    node.until(number, lambda j: j["step"] > changed + 2)
    assert re.search("^tiers +rerun from step 1, world from step %d$" % changed, node.ctl("show", number).stdout, re.M)
    deadline = time.time() + 60
    while True:  # the rows of finished steps reach the disk in a moment
        rows = [
            line.split(",") for line in node.ctl("loss", number, "--split", "train", "--term", "total", "--csv").stdout.splitlines()[1:]
        ]
        assert all(row[6] == ("world" if int(row[3]) >= changed else "rerun") for row in rows), rows
        if rows and int(rows[-1][3]) > changed:
            break
        assert time.time() < deadline, rows
        time.sleep(0.1)
    plot = node.ctl("loss", number, "--plot").stdout.splitlines()
    assert re.search(r"[|┼]", plot[-2][9:]), plot
    watching = node.begin("watch", number)
    said = [watching.stdout.readline() for _ in range(3)]
    assert "tier world from step %d on\n" % changed in said, said
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=60)
    expect(node.ctl("pause", number), 0)
    node.until(number, lambda j: j["state"] == "paused")
    assert "paused" in node.ctl("why", number).stdout
    expect(node.ctl("resume", number), 0)
    node.until(number, lambda j: j["state"] == "running" and j["attempt"] == 2)
    assert node.ctl("deterministic").stdout == "rerun\n"
    expect(node.ctl("deterministic", "off"), 0)
    assert node.ctl("deterministic").stdout == "off\n"
    expect(node.ctl("deterministic", "sideways"), 2)


def run(tests, usage):
    """The tests of a file by name, as its command line asks."""
    global DETCTL, DETD
    if set(sys.argv[1:]) & {"-h", "--help"}:
        raise SystemExit(usage)
    if not os.path.isdir(DATA):
        print(f"skip: no {DATA}")
        sys.exit(77)
    DETCTL, DETD = (os.path.join(os.path.abspath(os.environ.get("DETD_BUILD", "build")), name) for name in ("detctl", "detd"))
    tests = {name[5:]: fn for name, fn in tests.items() if name.startswith("test_")}
    for name in sys.argv[1:] or tests:
        node = Node()
        try:
            tests[name](node)
            print(f"ok {name}", flush=True)
        except NoTerminal:
            print("skip: no pseudo-terminal", flush=True)
        finally:
            node.close()


if __name__ == "__main__":
    run(globals(), __doc__)
