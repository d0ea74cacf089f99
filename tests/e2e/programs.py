#!/usr/bin/env python3
"""Jobs that are programs of the user: detctl run, the environment of the ranks, exit codes, retries, pauses, what ranks
leave behind, and losses over descriptor 3. The programs here are scripts of sh and python3.

usage: programs.py [SCENARIO]     all scenarios, several at a time; or the one named
"""  # SPDX-License-Identifier: Apache-2.0
import fcntl
import hashlib
import json
import os
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import tty

from daemon import BUILD, HERE, Daemon, run_scenarios

# The start of a Python program that reports: say(TYPE, members) writes a line, page is its progress page.
SPEAK = """
import json, mmap, os, socket, sys, time
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
report = int(os.environ["DETD_REPORT"].split(":")[0])
page = memoryview(mmap.mmap(int(os.environ["DETD_PAGE"].split(":")[0]), 4096)).cast("Q")
page[0] = 3 << 32 | 0x64657464
def say(_type, **members):
    line = (json.dumps(dict(type=_type, **members)) + "\\n").encode()
    while line:
        line = line[os.write(report, line):]
def share(step, split="train", **terms):
    say("share", split=split, step=step, terms=terms)
def wants(step, word):
    page[12] = step
    while True:
        order = page[13]
        if not order or order & (1 << 48) - 1 > step:
            return False
        if order >> 52 & 1:
            break
        time.sleep(0.001)
    if order >> 48 & 15 != {"checkpoint": 1, "validate": 2, "pause": 3, "cancel": 4}[word] or order == page[14]:
        return False
    page[14] = order
    return True
"""


def run(d, *words, **env):
    """detctl run with these words. Returns the job's id."""
    done = subprocess.run([BUILD + "/detctl", "run", *map(str, words)], cwd=d.root, capture_output=True, text=True, check=False,
                          env=dict(os.environ, DETD_SOCKET=d.path, HOME=d.root, **env))
    assert done.returncode == 0, (words, done.stderr)
    return int(done.stdout)


def speak(d, text, *options, name="program.py"):
    """Queues a Python program that begins with SPEAK. Returns the job's id."""
    path = "%s/%s" % (d.root, name)
    with open(path, "w") as f:
        f.write(SPEAK + text)
    return run(d, *options, "--", sys.executable, path)


def log(d, job, rank=0):
    with open("%s/jobs/%d/log/rank-%d.log" % (d.state, job, rank)) as f:
        return f.read()


def log_of_job(d, job):
    with open("%s/jobs/%d/log/supervisor.log" % (d.state, job)) as f:
        return f.read()


def rows(d, job, split="train", term="total"):
    return d.sql("SELECT step, num, den FROM loss WHERE job=? AND split=? AND term=? ORDER BY step", job, split, term)


def commands():
    """detctl run, and what it takes along; show, why and ls tell of the job."""
    with Daemon() as d:
        done = d.detctl("run", "--wait", "--", "false")
        assert done.returncode == 4, done
        job = int(done.stdout)
        assert d.job(job)["reason"] == "rank 0 exited with status 1; see its log", d.job(job)["reason"]
        assert d.job(job)["kind"] == "program" and d.job(job)["attempt"] == 1
        assert d.job(job)["name"] == "false"
        assert "reports them with run.loss() of the Python module detd" in d.detctl("loss", job).stderr
        assert "reports them with run.metrics() of" in d.detctl("eval", job).stderr
        done = d.detctl("run", "--logs", "run.priority=3", "program.steps=9", "--", "sh", "-c", "echo hello from $RANK of $WORLD_SIZE")
        assert done.returncode == 0 and "hello from 0 of 1" in done.stdout, done
        job = run(d, "--wait", "--", "printf", "start\\n 1%%\\r50%%\\r99%%\\n\\rend\\r\\n")
        assert d.detctl("logs", job, "--rank", 0).stdout.splitlines()[1:] == ["start", "99%", "end"], d.detctl("logs", job, "--rank", 0)
        for name in ("job.json", "config.py"):
            open(d.root + "/" + name, "w").close()
        with open(d.root + "/tool", "w") as f:
            f.write("no line with an interpreter\n")
        os.chmod(d.root + "/tool", 0o755)
        for words, want in ((("no-such-program-here",), "there is no program 'no-such-program-here' in PATH"),
                            (("./nothing",), "there is no file '%s/./nothing'" % d.root),
                            (("job.json",), "'job.json' is no program; detctl submit job.json queues a job file"),
                            (("./job.json",), "detctl submit ./job.json queues a job file"),
                            (("job",), "detctl submit job queues a job file"),
                            (("config.py", "--lr", 1), "put its interpreter before it, as in python3 config.py, or use chmod +x"),
                            (("tool",), "there is no program 'tool' in PATH; that of its folder is ./tool"),
                            (("/tmp",), "'/tmp' is a folder, no program"),
                            (("python3 train.py",), "give each word by itself, or a line of a shell as sh -c 'LINE'"),
                            (("A=1", "true"), "'A=1' is no program; --env NAME=VALUE sets a variable"),
                            (("run.ranks_per_gpu=2", "--", "true"), "run.ranks_per_gpu: not a key of a program"),
                            (("model.preset=x", "--", "true"), "model.preset: not a key of a program (program.command)"),
                            (("train.lr=1", "--", "true"), "train.lr: not a key of a program (program.command)"),
                            (("--gpus", "2", "--", "true"), "program.gpus: asks for 2 GPUs, this node has no GPUs"),
                            (("--ranks", "3", "--gpus", "4", "--", "true"), "program.gpus: must be a multiple of run.ranks (3), is 4")):
            done = d.detctl("run", *words)
            assert done.returncode == 1 and want in done.stderr, (words, done)
        done = d.detctl("run", "--wait", "./tool")
        assert "is neither a program nor a script that begins with #! and its interpreter" in done.stderr, done
        done = d.detctl("submit", "config.py")
        assert "config.py is no job file; detctl run queues a program" in done.stderr, done
        assert d.detctl("run").returncode == 2
        printed = json.loads(d.detctl("run", "--print", "--ranks", "2", "--", "true", "").stdout)
        assert printed["program"]["command"] == ["true", ""] and printed["run"]["ranks"] == 2, printed
        job = run(d, "--", "true", "", "it's", "a 'b'\n\\t", "é\x1b[1m")
        assert "command      true '' 'it'\\''s' $'a \\'b\\'\\n\\\\t' 'é" in d.detctl("show", job).stdout, d.detctl("show", job).stdout
        d.wait(job, "completed")
        assert d.detctl("why", job).stdout == "completed\n", d.detctl("why", job).stdout
        assert "exclude each other" in d.detctl("run", "--env-all", "--env-none", "--", "true").stderr
        told = d.detctl("run", "--print", "--env-all", "--env", "MY_TOKEN", "--", "true", MY_TOKEN="t1", MY_SECRET="s1").stderr
        assert "MY_SECRET" in told and "MY_TOKEN" not in told, told
        assert "program.command" in d.detctl("run", "").stderr
        told = d.detctl("run", "--print", "--env", "RANK=7", "--env", "OMP_NUM_THREADS=3", "--", "true").stderr
        assert told == "detctl: note: --env RANK has no effect: detd sets this variable\n", told
        job = run(d, "--env-all", "--env", "MY_TOKEN", "--wait", "--", "sh", "-c", "env; pwd", MY_TOKEN="t1", MY_SECRET="s1", SOME="x")
        text = log(d, job)
        for line in ("MY_TOKEN=t1", "SOME=x", "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "OMP_NUM_THREADS=",
                     "TORCHELASTIC_USE_AGENT_STORE=False", "CUDA_VISIBLE_DEVICES=\n", "DETD_JOB_ID=%d" % job, "DETD_RESUME_STEP=0",
                     "\n%s\n" % d.root):
            assert line in text, (line, text)
        assert "s1" not in text and "NCCL_SOCKET_IFNAME" not in text and "CUDA_DEVICE_MAX_CONNECTIONS" not in text
        shown = d.detctl("show", job).stdout
        assert "command      sh -c 'env; pwd'\n" in shown and "MY_TOKEN" in shown and "t1" not in shown, shown
        for words in (("predict", job, "x.png", "-o", "o"), ("layers", job), ("verify", job), ("evidence", "export", job, "o"),
                      ("eval", job, "--on", "x.json"), ("extend", job, "--steps", 5), ("deterministic", "on", "--job", job)):
            done = d.detctl(*words)
            assert done.returncode == 1 and "job %d is a program" % job in done.stderr, (words, done)
        for limit in (600, 700):  # as the submitter's
            done = subprocess.run(["sh", "-c", "ulimit -S -n %d; umask 027; exec %s/detctl run --wait -- sh -c 'ulimit -n; umask'"
                                   % (limit, BUILD)], cwd=d.root, env=dict(os.environ, DETD_SOCKET=d.path, HOME=d.root), check=True,
                                  stdout=subprocess.PIPE)
            assert log(d, int(done.stdout)).splitlines()[1:] == [str(limit), "0027"], log(d, int(done.stdout))
        with open(d.root + "/p.json", "w") as f:
            json.dump({"program": {"command": ["sh", "-c", "echo here $PWD"]}, "run": {"ranks": 2}}, f)
        done = d.detctl("submit", "p.json", "--wait")
        assert done.returncode == 0 and "here " + d.root in log(d, int(done.stdout), 1), done
        assert "are there" in d.detctl("check", "p.json").stdout
        assert d.detctl("clone", done.stdout.strip(), "--wait").returncode == 0
        code(d)


def code(d):
    """The commit, the changes since and the script are recorded at submission; show and compare tell."""
    def git(*words):
        subprocess.run(["git", "-C", d.root, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)

    with open(d.root + "/train.sh", "w") as f:
        f.write("echo one\n")
    git("init")
    git("add", "train.sh")
    git("commit", "-m", "first")
    one = run(d, "--wait", "--", "sh", "train.sh")
    with open(d.root + "/train.sh", "w") as f:
        f.write("echo two\n")
    two = run(d, "--wait", "--", "sh", "train.sh")
    was, now = (d.job(job)["spec"]["program"] for job in (one, two))
    assert was["commit"] == now["commit"] and len(was["commit"]) == 40 and was["changes"] is None and now["changes"], (was, now)
    assert was["script"] != now["script"]
    assert "code         commit %s, script %s" % (was["commit"][:12], was["script"][:12]) in d.detctl("show", one).stdout
    compared = d.detctl("compare", one, two).stdout
    assert "program.changes" in compared and "program.script" in compared and "program.commit" not in compared, compared
    same, other = (run(d, "--env", variable, "--wait", "--", "sh", "train.sh") for variable in ("SOME=1", "SOME=2"))
    done = d.detctl("diff", same, other)  # the values of variables are not told
    assert done.returncode == 0 and done.stdout == "code, command, keys and names of variables are the same\n", done
    compared = d.detctl("compare", same, other).stdout
    assert "no key differs" in compared, compared
    compared = d.detctl("compare", one, other).stdout
    assert "run.env.SOME" in compared and " 2" not in compared.split("run.env.SOME")[1].splitlines()[0], compared
    done = d.detctl("diff", one, other)
    assert done.returncode == 6 and all(key in done.stdout for key in ("program.changes", "program.script", "run.env.SOME")), done
    assert "program.commit" not in done.stdout and "program.command" not in done.stdout, done
    assert json.loads(d.detctl("diff", "--json", one, two).stdout)["run"] is None


def ends():
    """Exit codes, signals, the error file, early exits, left processes, a missing folder."""
    with Daemon() as d:
        job = run(d, "--ranks", 2, "--", "sh", "-c", "[ $RANK = 1 ] && exit 7; sleep 600")
        got = d.wait(job, "failed")
        assert got["reason"] == "rank 1 exited with status 7; see its log" and got["attempt"] == 1, got
        job = run(d, "run.restarts=1", "--", "sh", "-c", "kill -SEGV $$")
        got = d.wait(job, "failed")
        assert got["attempt"] == 2 and "was killed by signal 11" in got["reason"], got
        job = speak(d, """
json.dump({"message": {"message": "first line\\nValueError: no such class\\n", "extraInfo": {"timestamp": "%d" % (5 - rank)}}},
          open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
sys.exit(1)
""", "--ranks", 2)
        assert d.wait(job, "failed")["reason"] == "rank 1: first line | ValueError: no such class", d.job(job)
        job = run(d, "--ranks", 2, "--", "sh", "-c", "[ $RANK = 1 ] && exit 0; sleep 1; (setsid sleep 601 & ) ; echo done")
        d.wait(job, "completed")
        assert "done" in log(d, job)
        assert "the ranks have ended and left process" in d.events("left", job)[0], d.events("left", job)
        d.wait_left(job)
        gone = d.root + "/gone"
        os.mkdir(gone)
        job = run(d, "program.directory=" + gone, "run.after=%d" % run(d, "--", "sleep", 1), "--", "true")
        os.rmdir(gone)
        assert "the folder '%s' is gone; make it again" % gone in d.wait(job, "failed")["reason"]
        assert d.detctl("why", job).stdout.count("detctl resume") == 1, d.detctl("why", job)
        os.mkdir(gone)
        d.call("job.resume", id=job)
        d.wait(job, "completed")
        os.symlink("/bin/true", gone + "/tool")
        job = run(d, "run.after=%d" % run(d, "--", "sleep", 1), "--", gone + "/tool")
        os.unlink(gone + "/tool")
        assert "'%s/tool' is gone; make it again" % gone in d.wait(job, "failed")["reason"], d.job(job)
        with open(d.root + "/script", "w") as f:
            f.write("#!/gone/venv/bin/python3\n")
        os.chmod(d.root + "/script", 0o755)
        job = run(d, "--", "./script")
        assert "the interpreter '/gone/venv/bin/python3' of" in d.wait(job, "failed")["reason"], d.job(job)


def children():
    """100 workers that hold descriptor 3, and a process that leaves the session, closes all and ignores all signals: they
    end with the ranks, or by a cancel, and one event names one of them."""
    family = """
import signal
def work():
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(600)
for i in range(100):
    if os.fork() == 0:
        work()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/")
        os.closerange(0, 100)
        work()
    os._exit(0)
share(1, total=[1, 1])
while not os.path.exists(os.environ["DETD_JOB_DIR"] + "/go"):
    time.sleep(0.01)
"""
    with Daemon() as d:
        job = speak(d, family)
        d.until(lambda: rows(d, job), "no row")
        d.until(lambda: len(d.own()) == 104, "not started: detd, detd-job, the rank, 100 workers, the one that hides")
        d.go(job)
        d.wait(job, "completed")
        d.until(lambda: len(d.own()) == 1, "processes are left")
        texts = d.events("left", job)
        assert len(texts) == 1 and texts[0].endswith("which was killed, as others were"), texts
        job = speak(d, family + "work()", "program.stop_grace=0.2")
        d.until(lambda: rows(d, job), "no row")
        d.go(job)
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.until(lambda: len(d.own()) == 1, "processes are left")


def ports():
    """Two jobs at the same time have two ports. A rank that finds its port taken fails, and is started with another port:
    this does not count as a failure."""
    with Daemon() as d:
        first = speak(d, """
import socket
s = socket.create_server(("", int(os.environ["MASTER_PORT"])))
share(1, total=[1, 1])
time.sleep(600)
""", "run.threads=1")
        d.until(lambda: rows(d, first), "no row")
        thief = speak(d, """
import socket
while not os.path.exists("wanted"):
    time.sleep(0.01)
s = socket.create_server(("", int(open("wanted").read())))
open("taken", "w").close()
time.sleep(600)
""", "run.threads=1", name="thief.py")
        second = speak(d, """
import socket
port = os.environ["MASTER_PORT"]
print("port", port, flush=True)
if os.environ["DETD_ATTEMPT"] == "1":
    with open("wanted.new", "w") as f:
        f.write(port)
    os.rename("wanted.new", "wanted")
    while not os.path.exists("taken"):
        time.sleep(0.01)
socket.create_server(("", int(port)))
""", "run.threads=1", "run.restarts=0", name="second.py")
        got = d.wait(second, "completed")
        assert got["attempt"] == 2 and "exited with status 1" in got["attempts"][1]["reason"], got["attempts"]
        numbers = [line.split()[1] for line in log(d, second).splitlines() if line.startswith("port ")]
        assert len(set(numbers)) == 2, numbers
        texts = d.events("port", second)
        assert len(texts) == 1 and numbers[0] in texts[0] and numbers[1] not in texts[0], texts
        for job in (first, thief):
            assert d.job(job)["state"] == "running" and d.job(job)["attempt"] == 1
            d.call("job.cancel", id=job)


def stops():
    """Signals have their default meaning; pause, cancel and shutdown; program.stop_grace."""
    trap = "trap 'echo stopped; exit 0' %s; echo ready; while :; do sleep 0.1; done"
    with Daemon() as d:
        def ready(job):
            d.wait(job, "running")
            d.until(lambda: "ready" in log(d, job), "not ready")

        job = run(d, "--", "sh", "-c", trap % "TERM")
        ready(job)
        done = d.detctl("pause", job)
        assert done.returncode == 1 and "runs a program that cannot be paused (program.on_pause is refuse" in done.stderr, done
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        assert "stopped" in log(d, job)
        job = run(d, "program.on_pause=signal", "program.stop_signal=SIGUSR1", "--", "sh", "-c", trap % "USR1")
        ready(job)
        d.call("job.pause", id=job)
        d.wait(job, "paused")
        assert "stopped" in log(d, job)
        d.call("job.resume", id=job)
        d.until(lambda: log(d, job).count("ready") == 2, "not resumed")
        d.signal_supervisor(job, signal.SIGTERM)  # as at a shutdown: it is queued again
        d.wait(job, lambda j: j["attempt"] == 3 and j["state"] == "running")
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        job = run(d, "program.stop_grace=0.2", "--", "sh", "-c", "trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done")
        ready(job)
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        d.wait_left(job)
        job = run(d, "--", "sh", "-c", "trap 'exit 143' TERM; echo ready; while :; do sleep 0.1; done")
        ready(job)
        d.signal_session(job, signal.SIGTERM)  # systemd stops a scope: every process gets it
        d.wait(job, lambda j: j["attempt"] == 2 and j["state"] == "running")
        assert not d.sql("SELECT 1 FROM attempts WHERE job=? AND outcome='failed'", job)
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")


def losses():
    """Rows are sums over the ranks, in rank order; incomplete, odd and backward shares are events."""
    with Daemon() as d:
        job = speak(d, """
say("hello", device="cpu", tier="off")
for step in range(1, 51):
    share(step, total=[0.1 * (rank + 1) * step, 2 + rank], box=[1.5, 1], **({"own": [1, 1]} if rank == 0 else {}))
    if step % 25 == 0 and rank < 2:
        share(step, "val", total=[step + rank, 3])
    elif step % 25 == 0:
        share(step, "val")
if rank == 0:
    say("eval", step=50, metrics={"AP": 0.5, "none": None})
page[3] = 50; page[2] += 1
share(40, total=[1, 1])
""", "--ranks", 3)
        d.wait(job, "completed")
        want = [(s, (0.1 * 1 * s + 0.1 * 2 * s) + 0.1 * 3 * s, 9.0) for s in range(1, 51)]
        assert rows(d, job) == want, rows(d, job)[:3]
        assert [r[1:] for r in rows(d, job, term="box")] == [(4.5, 3.0)] * 50
        assert rows(d, job, "val") == [(25, 51.0, 6.0), (50, 101.0, 6.0)], rows(d, job, "val")
        assert rows(d, job, term="own") == []
        assert d.sql("SELECT metric, value FROM eval WHERE job=? ORDER BY metric", job) == [("AP", 0.5), ("none", None)]
        assert d.job(job)["step"] == 50
        assert any("term own of train is not stored, first at step 1" in e for e in d.events("terms", job)), d.events("terms", job)
        assert len(d.events("backwards", job)) == 3 and "reports step 40 of train after step 50" in d.events("backwards", job)[0]
        job = speak(d, """
say("share", split="train", step=1, terms={"good": [1, 1], "total": [1, 5, 1]})
for step in range(1, 41):
    if step % (1, 4)[rank] == 0:
        share(step, loss=[step, 1], bad=[None if rank == 1 and step == 8 else 1, 1], empty=[0, 0])
""", "--ranks", 2)
        d.wait(job, "completed")
        assert [r[0] for r in rows(d, job)] == list(range(4, 41, 4))
        texts = d.events("incomplete", job)
        assert len(texts) == 2 and any("rank 0 reports every 1 steps; rank 1 reports every 4 steps" in t for t in texts), texts
        assert any("share: terms: the value of 'total' must be [number, number]" in e for e in d.events("line", job)), d.events("line", job)
        assert any("the first term, loss, is stored as total" in e for e in d.events("terms", job))
        assert any("term bad of rank 1 is not finite" in e for e in d.events("loss", job)), d.events("loss", job)
        assert any("denominators of term empty" in e for e in d.events("loss", job))
        assert d.sql("SELECT num, value FROM loss WHERE job=? AND term='bad' AND step=8", job) == [(None, None)]
        job = speak(d, """
for step in range(1, 11 if rank == 0 else 6):
    share(step, total=[step, 1])
""", "--ranks", 2)
        d.wait(job, "completed")
        assert rows(d, job) == [(s, 2.0 * s, 2.0) if s <= 5 else (s, s, 1.0) for s in range(1, 11)], rows(d, job)
        texts = d.events("incomplete", job)
        assert len(texts) == 1 and texts[0].startswith("rank 1 ended with status 0, without run.finish(), before"), texts


def garbage():
    """A program that writes nonsense harms nobody: the first nonsense of a rank is told, and what makes sense is stored."""
    with Daemon() as d:
        job = speak(d, """
os.write(report, b"not json\\n[1]\\n{}\\n" + b'{"type":"fly"}\\n' + b"\\0\\xff\\n")
share(1, total=[1, 1])
for i in range(1 << 14):
    os.write(report, b"x" * 65536)
os.write(report, b"\\n")
share(2, total=[2, 1])
while not os.path.exists(os.environ["DETD_JOB_DIR"] + "/go"):
    time.sleep(0.01)
say("share", split="train", step=3, terms={"t%d" % i: [1, 1] for i in range(10000)})
say("share", split="train", step=3, terms={"t%d" % i: [1, 1] for i in range(300)})
say("share", split="train", step=3, terms={"\\x01": [1, 1], "total": [3, 1]})
for i in range(3000):
    say("event", **{"level": "info", "kind": "many", "text": "event %d" % i})
os.close(report)
time.sleep(0.5)
""", "run.threads=1")
        d.until(lambda: rows(d, job), "no row")
        other = speak(d, "for step in range(1, 51): share(step, total=[1, 1])", "run.threads=1", name="other.py")
        d.wait(other, "completed")
        assert len(rows(d, other)) == 50
        d.until(lambda: len(rows(d, job)) == 2, "no row after the long line")
        with open("/proc/%d/status" % d.session(job)) as f:
            peak = int(next(line for line in f if line.startswith("VmHWM:")).split()[1])
        assert peak < 512 << 10, peak  # of what was written, 1 GB, nothing is kept
        d.go(job)
        d.wait(job, "completed")
        assert [r[0] for r in rows(d, job)] == [1, 2, 3], rows(d, job)
        texts = [text for text, in d.sql("SELECT text FROM events WHERE job=? AND kind='line'", job)]
        assert len(texts) == 2 and "a line of rank 0 on descriptor 3 is left out: not JSON" in " ".join(texts), texts
        assert len(d.sql("SELECT 1 FROM events WHERE job=? AND kind='many'", job)) == 999
        assert d.sql("SELECT text FROM events WHERE job=? AND kind='events'", job) == [
            ("further events of rank 0 in this attempt are not stored",)]


def silence():
    """program.silent_after: a rank that reports no more is a hang; run.phase has deadlines of its own."""
    with Daemon() as d:
        job = speak(d, """
share(7, total=[1, 1])
time.sleep(600 if rank == 1 else 0)
""", "program.silent_after=1", "run.restarts=0", "--ranks", 2)
        got = d.wait(job, "failed")
        assert "rank 1 hangs at step 7: no report for" in got["reason"], got
        assert len(d.events("hang", job)) == 1
        job = speak(d, """
page[3] = 5
for i, c in enumerate((b"load data" + bytes(7))[at:at + 8] for at in (0, 8)):
    page[16 + i] = int.from_bytes(c, sys.byteorder)
page[15] = 1000
page[2] += 1
time.sleep(600)
""", "run.on_hang=fail")
        assert "rank 0 hangs in phase load data at step 5: no progress for" in d.wait(job, "failed")["reason"], d.job(job)
        job = speak(d, """
say("hello")
time.sleep(4)  # imports for long, before its first step
share(1, total=[1, 1])
""", "program.silent_after=1", "run.restarts=0")
        d.wait(job, "completed")
        assert not d.events("hang", job)
        job = run(d, "--", "sleep", 600)
        d.until(lambda: len(d.members(job)) == 2, "it does not start")
        d.signal(next(pid for pid in d.members(job) if pid != d.session(job)), signal.SIGSTOP)
        d.until(lambda: "rank 0 does not run: " in d.call("job.why", id=job)["text"], "why does not tell of a stopped rank")
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")


def queue():
    """A program that cannot be paused does not run as backfill, and why says so."""
    with Daemon(slots=2) as d:
        first = run(d, "run.threads=1", "--", "sleep", 600)
        d.wait(first, "running")
        head = run(d, "run.threads=2", "--", "sleep", 600)
        fixed = run(d, "run.threads=1", "--", "sleep", 600)
        assert "it cannot be paused (program.on_pause), so it does not run as backfill" in d.call("job.why", id=fixed)["text"]
        moves = run(d, "run.threads=1", "program.on_pause=signal", "--", "sleep", 600)
        d.wait(moves, "running")
        assert d.job(moves)["backfill"] and d.job(fixed)["state"] == "queued"
        for job in (first, fixed, head, moves):
            d.call("job.cancel", id=job)


# A program of SPEAK that goes on where its newest checkpoint ends; `each` is code for every step.
TRAIN = """
words = sys.argv[1:]
say("hello", words=words, pid=os.getpid())
first = int(os.environ["DETD_RESUME_STEP"])
if first:
    assert open(os.environ["DETD_RESUME"]).read() == str(first)
folder = os.environ["DETD_JOB_DIR"] + "/checkpoints"
os.makedirs(folder, exist_ok=True)
def save(step):
    path = "%s/at-%d" % (folder, step)
    if rank == 0:
        with open(path, "w") as f:
            f.write(str(step))
    say("checkpoint", step=step, phase="ready", **({"path": path} if rank == 0 else {}))
for step in range(first + 1, STEPS + 1):
    share(step, total=[250.0, step * ranks])
    page[3] = step
    page[2] += 1
    time.sleep(0.002)
EACH
"""


def train(each, steps=100000):
    return TRAIN.replace("EACH", each).replace("STEPS", str(steps))


def checkpoints():
    """Checkpoints of all ranks, keep and best, and rewinds after a kill; a checkpoint makes any failure worth a retry."""
    with Daemon() as d:
        job = speak(d, train("""
    if step % 10 == 0 and step <= 60:
        share(step, "val", total=[{10: 5, 20: 3}.get(step, 9), 1])
        save(step)
    if step == 65 and first == 0:
        time.sleep(600 if rank == 0 else 0)
    if step == 80:
        break
"""), "checkpoint.keep=2", "--ranks", 2)
        got = d.wait(job, lambda j: len(j["checkpoints"]) == 6)
        assert [c["step"] for c in got["checkpoints"]] == [60, 50, 40, 30, 20, 10], got["checkpoints"]
        assert [c["step"] for c in got["checkpoints"] if c["best"]] == [20, 10], got["checkpoints"]
        assert got["checkpoints"][0]["val_loss"] == 9 and got["checkpoints"][4]["val_loss"] == 3
        folder = "%s/jobs/%d/checkpoints" % (d.state, job)
        d.until(lambda: sorted(os.listdir(folder)) == ["at-20", "at-50", "at-60"], "not pruned")
        shown = d.detctl("show", job).stdout
        assert "checkpoint   step 60" in shown and "checkpoint   step 10" not in shown, shown
        d.until(lambda: rows(d, job)[-1:] and rows(d, job)[-1][0] >= 64, "rows")
        pids = [p for p in d.members(job) if p != d.session(job)]
        d.signal(pids[0], signal.SIGKILL)
        got = d.wait(job, "completed")
        assert got["attempts"][0]["resume_step"] == 60 and got["attempt"] == 2, got["attempts"]
        assert [r[0] for r in rows(d, job)] == list(range(1, 81))
        # an exit code fails a job at once, unless the attempt has published a checkpoint
        job = speak(d, train("""
    if step == 5:
        save(step)
    if step == 9:
        time.sleep(0.5)
        sys.exit(3 if first == 0 else 0)
"""))
        got = d.wait(job, "completed")
        assert got["attempt"] == 2 and "exited with status 3" in got["attempts"][1]["reason"], got["attempts"]
        job = speak(d, train("""
    if step == 5 and rank == 0:
        save(step)
    if step == 9:
        break
"""), "--ranks", 2)
        assert d.wait(job, "completed")["checkpoints"] == []
        assert any("step 5 is not recorded: rank 1 has not called run.checkpoint()" in t for t in d.events("checkpoint", job)), job
        # a checkpoint that is changed, or gone, is not used
        job = speak(d, train("""
    if step == 5 and os.environ["DETD_ATTEMPT"] == "1":
        save(step)
        time.sleep(1)
        os.truncate("%s/at-5" % folder, 0)
        os.kill(os.getpid(), 9)
    if step == 9:
        break
"""))
        assert d.wait(job, "completed")["attempts"][0]["resume_step"] == 0
        assert any("at-5', was changed after it was recorded" in t for t in d.events("checkpoint", job)), d.events("checkpoint", job)


def words():
    """checkpoint, validate, pause and cancel reach all ranks at one step; a program that does not answer gets the signal."""
    each = """
    for word in words:
        if wants(step, word):
            print("word", word, step, flush=True)
            if word in ("checkpoint", "pause"):
                save(step)
            if word == "validate":
                share(step, "val", total=[1, 1])
            if word in ("pause", "cancel"):
                say("finish")
                sys.exit(0)
"""
    with Daemon() as d:
        path = d.root + "/train.py"
        with open(path, "w") as f:
            f.write(SPEAK + train(each))
        asked = ("checkpoint", "validate", "pause", "cancel")
        job = run(d, "--ranks", 4, "--", sys.executable, path, *asked)
        d.wait(job, lambda j: j["state"] == "running" and j["step"] > 0)

        def told(word):
            lines = [log(d, job, rank).splitlines() for rank in range(4)]
            return [[int(line.split()[2]) for line in of_rank if line.startswith("word " + word)] for of_rank in lines]

        for n in range(1, 4):
            d.call("job.checkpoint", id=job)
            d.wait(job, lambda j, n=n: len(j["checkpoints"]) >= n)
        steps = told("checkpoint")
        assert len(steps[0]) == 3 and all(s == steps[0] for s in steps), steps
        d.call("job.eval", id=job)
        d.until(lambda: rows(d, job, "val"), "no validation")
        steps = told("validate")
        assert len(steps[0]) == 1 and all(s == steps[0] for s in steps), steps
        d.until(lambda: d.detctl("pause", job).returncode == 0, "not pausable")
        got = d.wait(job, "paused")
        steps = told("pause")
        assert len(steps[0]) == 1 and all(s == steps[0] for s in steps), steps
        assert got["checkpoints"][0]["step"] == steps[0][0], got["checkpoints"]
        d.call("job.resume", id=job)
        d.until(lambda: rows(d, job)[-1][0] > steps[0][0], "not resumed")  # then all ranks have said hello
        assert d.job(job)["attempts"][0]["resume_step"] == steps[0][0]
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        steps = told("cancel")
        assert len(steps[0]) == 1 and all(s == steps[0] for s in steps), steps
        with open(path, "w") as f:
            f.write(SPEAK + train(""))
        job = run(d, "program.on_pause=words", "program.stop_grace=1", "--", sys.executable, path, "pause")
        d.wait(job, lambda j: j["state"] == "running" and j["step"] > 0)
        d.call("job.pause", id=job)
        d.wait(job, "paused")
        assert any("did not answer the word in time" in t for t in d.events("stop", job)), d.events("stop", job)


def kills():
    """kill -9 of a rank, of detd-job and of detd at random moments: rows as of an undisturbed run, each once. KILLS: how
    many, 6 if not set. Another one comes after the last step, so that the next attempt may have no step left."""
    count = int(os.environ.get("KILLS", "6"))
    last = 100 * count
    each = """
    if step % 50 == 0:
        share(step, "val", total=[step, ranks])
        save(step)
    while step == STEPS and not os.path.exists(os.environ["DETD_JOB_DIR"] + "/go"):
        time.sleep(0.01)
"""
    seed = int(os.environ.get("SEED", "0")) or random.randrange(1 << 30)
    print("seed", seed, flush=True)
    dice = random.Random(seed)
    with Daemon() as d:
        job = speak(d, train(each, last), "run.restarts=1000", "--ranks", 3)
        for n in range(count):
            d.wait(job, "running")
            time.sleep(dice.random() * 1.5)
            victim = ("rank", "job", "detd")[n % 3]
            if victim == "rank":
                ranks = [p for p in d.members(job) if p != d.session(job)]
                d.signal(dice.choice(ranks), signal.SIGKILL) if ranks else None
            elif victim == "job":
                d.signal(d.session(job), signal.SIGKILL) if d.session(job) in d.members(job) else None
            else:
                d.kill()
                d.start()
        d.wait(job, lambda j: any(c["step"] == last for c in j["checkpoints"]))
        d.signal_supervisor(job, signal.SIGKILL)
        d.go(job)
        got = d.wait(job, lambda j: j["state"] in ("completed", "failed"))
        assert got["state"] == "completed", got["reason"]
        assert rows(d, job) == [(s, 750.0, 3.0 * 3 * s) for s in range(1, last + 1)], rows(d, job)[-3:]
        assert rows(d, job, "val") == [(s, 3.0 * s, 9.0) for s in range(50, last + 1, 50)]
        assert got["checkpoints"][0]["step"] == last, got["checkpoints"][:3]


def c_program():
    """A C program that includes detd_report.h: it runs by hand, and under detd with losses, checkpoints and a pause."""
    with Daemon() as d:
        program = d.root + "/reporter"
        flags = ["-std=c17", "-Wall", "-Wextra", "-Werror", "-I", HERE + "/../.."]
        subprocess.run(["gcc", *flags, HERE + "/reporter.c", "-o", program, "-lm"], check=True)
        done = subprocess.run([program, "3"], capture_output=True, text=True, check=True)
        assert done.stdout == "goes on after 0, new\n", done
        job = run(d, "checkpoint.every=50", "--ranks", 2, "--", program, 100, d.root)
        got = d.wait(job, "completed")
        assert [c["step"] for c in got["checkpoints"]] == [100, 50], got["checkpoints"]
        assert rows(d, job) == [(s, 2 * 0.5 * s, 3.0) for s in range(1, 101)]
        assert [r[1] for r in rows(d, job, term="bad")][:3] == [2.0, None, 2.0]
        assert d.sql("SELECT metric, value FROM eval WHERE job=?", job) == [("AP", 0.25)]
        for name in ("de_DE", "ps_AF"):  # their decimal points have one byte and two, and are no points
            words = ["localedef", "-i", name, "-f", "UTF-8", "%s/%s.UTF-8" % (d.root, name)]
            made = subprocess.run(words, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                print("skip: no locale", name, "can be made here:", made.stderr.strip().replace("\n", " "))
                continue
            job = run(d, "--env", "LOCPATH=" + d.root, "--env", "LC_ALL=%s.UTF-8" % name, "--", program, 9, d.root)
            d.wait(job, "completed")
            assert rows(d, job) == [(s, 0.5 * s, 1.0) for s in range(1, 10)], (name, d.events("line", job), log(d, job))
        job = run(d, "program.on_pause=words", "--ranks", 3, "--", program, 1000000, d.root)
        d.until(lambda: rows(d, job), "no row")
        d.call("job.pause", id=job)
        step = d.wait(job, "paused")["checkpoints"][0]["step"]
        d.call("job.resume", id=job)
        d.until(lambda: rows(d, job)[-1][0] > step, "not resumed")
        assert "goes on after %d, %s/step-%d" % (step, d.root, step) in log(d, job)
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")


def runs(d, command):
    """Whether a process with this command runs in the daemon's folder."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink("/proc/%s/cwd" % pid) == d.root and open("/proc/%s/cmdline" % pid, "rb").read() == command:
                return True
        except OSError:
            continue
    return False


def told():
    """What detctl says of a job that is a program, not a model."""
    with Daemon() as d:
        job = speak(d, """
open("best.pt", "w").close()
share(1, "val", total=[1, 1])
say("checkpoint", step=1, phase="ready", path=os.path.abspath("best.pt"))
for step in (1, 2):
    share(step, total=[1, 1])
    say("eval", step=step, metrics=dict(AP=0.5))
time.sleep(600)
""", "run.threads=1")
        d.until(lambda: len(d.call("eval.query", id=job)["rows"]) == 2 and d.job(job)["checkpoints"], "no metrics")
        assert d.detctl("eval", job).stderr == "", d.detctl("eval", job)
        d.until(lambda: d.job(job)["step"] == 2, "no step")
        assert d.detctl("why", job).stdout == "runs attempt 1, step 2\n", d.detctl("why", job)
        d.call("job.cancel", id=job)
        job = run(d, "--time", "1s", "run.threads=1", "--", "sleep", 600)
        assert d.wait(job, "cancelled")["reason"] == "it ran for 1 s, its run.time_limit; it has no checkpoint", d.job(job)
        assert "its run.time_limit is over: it is told to end" in d.events("limit", job)[0], d.events("limit", job)
        for words, name in ((("sh", "-c", "ls -l /proc/self/fd | cut -c40-120"), "sh"), (("/bin/bash", "-ec", "true/x"), "bash"),
                            (("env", "python3", "-u", "/tmp/train.py", "-c", "x"), "train.py"), (("python3",), "python3")):
            printed = json.loads(d.detctl("run", "--print", "--", *words).stdout)
            assert printed["name"] == name, (words, printed)
        words = [BUILD + "/detctl", "run", "--logs", "run.threads=1", "--", "sh", "-c", "echo here; exec sleep 600"]
        with subprocess.Popen(words, cwd=d.root, text=True, env=dict(os.environ, DETD_SOCKET=d.path, HOME=d.root), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as detctl:
            while "here" not in detctl.stdout.readline():
                assert detctl.poll() is None
            detctl.send_signal(signal.SIGINT)
            assert detctl.wait(60) == 130
            assert "keeps running; `detctl watch" in detctl.stderr.read()
        job = run(d, "run.threads=1", "--", "sh", "-c", "printf '1%%\\r50%%'; while [ ! -e go ]; do sleep 0.1; done; printf '\\r99%%\\n'")
        master, slave = pty.openpty()
        seen, over = b"", time.time() + 60
        with subprocess.Popen([BUILD + "/detctl", "logs", str(job), "-f", "--rank", "0"], stdout=slave, cwd=d.root,
                              env=dict(os.environ, DETD_SOCKET=d.path, HOME=d.root)) as detctl:
            while not seen.endswith(b"99%\r\n"):  # a bar is shown before its line ends
                assert time.time() < over, seen
                if seen.endswith(b"50%"):
                    open(d.root + "/go", "w").close()
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 4096)
            assert b"50%\r\033[K99%" in seen and detctl.wait(60) == 0, seen
        os.close(master)
        os.close(slave)
        job = run(d, "--wait", "run.threads=1", "--", sys.executable, "-c", "import time\nwhile time.process_time() < 1.5: pass")
        assert d.job(job)["cpu_seconds"] >= 1.5, d.job(job)
        text = "(%s -c 'import os, time\nopen(\"pid\", \"w\").write(str(os.getpid()))\nwhile time.process_time() < 1.5: pass' &); " \
            "while [ ! -s pid ] || kill -0 $(cat pid); do sleep 0.1; done"
        job = run(d, "--wait", "run.threads=1", "--", "sh", "-c", text % sys.executable)
        assert d.job(job)["cpu_seconds"] >= 1.5, d.job(job)  # also of a process that its rank does not wait for


def shell():
    """detctl shell: a program with a terminal of its own, shown by detctl; it ends with the shell, or without a terminal."""
    with Daemon() as d:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        words = [BUILD + "/detctl", "shell", "--env", "PS1=ready> ", "run.threads=1", "--", "sh"]

        def start():
            return subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, cwd=d.root, start_new_session=True,
                                    env=dict(os.environ, DETD_SOCKET=d.path, HOME=d.root))

        detctl = start()
        seen = b""

        def until(text):
            nonlocal seen
            end = time.time() + 60
            while text not in seen:
                assert time.time() < end, seen
                if select.select([master], [], [], 1)[0]:
                    seen += os.read(master, 4096)

        until(b"ready> ")
        os.write(master, b"tty; stty size; echo $((6 * 7)) job $DETD_JOB_ID\n")
        until(b"42 job 1")
        assert b"/dev/pts/" in seen and b"33 99" in seen, seen
        os.write(master, b"sleep 600\n")
        d.until(lambda: runs(d, b"sleep\x00600\x00"), "no sleep")
        os.write(master, b"\x03")
        os.write(master, b"false\n\x04")  # Ctrl-C ends sleep, Ctrl-D the shell, whatever the status of its last command
        assert detctl.wait(60) == 0
        assert (d.job(1)["state"], d.job(1)["threads"]) == ("completed", 1), d.job(1)
        detctl = start()
        d.until(lambda: not termios.tcgetattr(slave)[3] & termios.ICANON, "not attached")
        detctl.terminate()
        assert detctl.wait(60) == 130 and d.job(2)["state"] == "running"
        assert termios.tcgetattr(slave)[3] & termios.ICANON  # as it was before
        os.close(slave)
        os.close(master)
        d.call("job.cancel", id=2)
        d.wait(2, "cancelled")
        with open(os.devnull) as null:
            refused = subprocess.run([BUILD + "/detctl", "shell"], stdin=null, cwd=d.root, env=dict(os.environ, DETD_SOCKET=d.path),
                                     capture_output=True, text=True, check=False)
        assert refused.returncode == 2 and "standard input is no terminal; detctl run queues" in refused.stderr, refused
        refused = d.detctl("run", "--print", "program.terminal=true", "--ranks", 2, "--", "true")
        assert "program.terminal: needs run.ranks=1" in refused.stderr, refused


def paste():
    """More than a terminal holds is typed at once; then the program leaves its terminal, and runs on."""
    data = random.Random(1).randbytes(300000)
    with Daemon() as d:
        master, slave = pty.openpty()
        tty.setraw(slave)
        detctl = subprocess.Popen([BUILD + "/detctl", "shell", "sh", "-c", "stty raw -echo; echo ready; head -c %d | md5sum; "
                                   "exec >/dev/null 2>&1 </dev/null; until [ -e goes ]; do sleep 0.1; done" % len(data)],
                                  stdin=slave, stdout=slave, stderr=slave, cwd=d.root, start_new_session=True,
                                  env=dict(os.environ, DETD_SOCKET=d.path, HOME=d.root))
        os.close(slave)
        os.set_blocking(master, False)
        seen, sent, end = b"", 0, time.time() + 60
        while hashlib.md5(data).hexdigest().encode() not in seen:
            assert time.time() < end and detctl.poll() is None, (seen, sent)
            more = [master] if b"ready" in seen and sent < len(data) else []
            readable, writable, _ = select.select([master], more, [], 1)
            seen += os.read(master, 4096) if readable else b""
            sent += os.write(master, data[sent:sent + 4096]) if writable else 0
        assert d.job(1)["state"] == "running" and detctl.poll() is None
        open(d.root + "/goes", "w").close()
        assert detctl.wait(60) == 0
        os.close(master)


def stacks():
    """The classic hang: a rank validates alone while the other waits for it. The log has the stacks before the restart."""
    with Daemon() as d:
        job = speak(d, """
import faulthandler, signal
faulthandler.register(signal.SIGUSR2, all_threads=True)
say("hello", pid=os.getpid(), stacks=int(signal.SIGUSR2))
def waits_for_the_other():
    time.sleep(600)
share(3, total=[1, 1])
if int(os.environ["DETD_ATTEMPT"]) == 1:
    waits_for_the_other()
""", "program.silent_after=4", "--ranks", 2)
        got = d.wait(job, "completed")
        assert got["attempt"] == 2 and "hangs at step 3" in got["attempts"][1]["reason"], got["attempts"]
        for rank in range(2):
            text = log(d, job, rank)
            assert "in waits_for_the_other" in text[:text.index("attempt 2")], text


def full_disk():
    """A checkpoint that cannot be recorded, since the disk is full, is told once there is room; the program goes on."""
    with Daemon(disk_mb=60) as d:
        job = speak(d, train("""
    folder = os.getcwd()
    if step % 10 == 0:
        save(step)
    if os.path.exists(os.environ["DETD_JOB_DIR"] + "/go"):
        break
    time.sleep(0.005)
"""), "run.threads=1")
        d.wait(job, lambda j: j["checkpoints"])
        full = d.fill(cut_log=True)
        d.until(lambda: "is not recorded: write 'published'" in log_of_job(d, job), "it is recorded")
        os.unlink(full)
        newest = d.job(job)["checkpoints"][0]["step"]
        d.wait(job, lambda j: j["checkpoints"][0]["step"] > newest)
        d.go(job)
        d.wait(job, "completed")
        assert any("is not recorded: write 'published': No space" in t for t in d.events("checkpoint", job)), d.events("checkpoint", job)


if __name__ == "__main__":
    run_scenarios([kills, words, told, c_program, shell, paste, checkpoints, stops, ends, commands, silence, children, losses, garbage,
                   ports, stacks, queue, full_disk], [full_disk])
