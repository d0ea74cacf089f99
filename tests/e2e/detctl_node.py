#!/usr/bin/env python3
"""Requests to a node that a group shares: completion, drain, jobs after others, limits, copies of rows, and errors,
against a real detd and real jobs.
usage: detctl_node.py BUILD_FOLDER [TEST ...]"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import pwd
import re
import signal
import sqlite3
import subprocess
import sys
import time

import detctl
from daemon import Relay
from detctl import LONG, expect


def test_completion(node):
    number = node.submit(*LONG)

    def words(*line):
        """Returns bash's completions for the last word of the line."""
        script = 'source <("$0" completion); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _detctl; printf "%s\\n" "${COMPREPLY[@]}"'
        said = subprocess.run(["bash", "-uc", script, detctl.DETCTL, detctl.DETCTL, *line], cwd=node.folder, env=node.environment(),
                              stdout=subprocess.PIPE, universal_newlines=True, timeout=60, check=True).stdout
        return said.split()

    assert words("pri") == ["priority"] and words("cancel", "") == [number] and words("--socket", "nowhere", "cancel", "") == []
    assert words("--socket", node.socket, "show", "") == [number] and words("--so") == ["--socket"] and words("fly", "") == []
    for command in detctl.commands(node):
        assert command in words(command) and "--help" in words(command, "--h"), command
    assert {"--state", "--user", "--mine", "--name", "--since", "-n", "--limit", "--json"} <= set(words("ls", "-"))
    assert words("ls", "--state", "p") == ["paused"] and words("logs", "--rank", "") == [] and words("deterministic", "o") == ["on", "off"]
    assert words("eval", number, "--metric", "") == []
    assert words("submit", "jo") == [] and words("submit", "job", "model.pre") == ["model.preset="]
    assert words("submit", "job", "model.preset", "=") == words("submit", "job", "model.preset", "=", "") and "mask_rcnn_r50_fpn" in words(
        "submit", "job", "model.preset", "=", "mask_rcnn_r50")
    assert words("submit", "job", "model.sync_bn", "=", "t") == ["true"]
    node.ctl("cancel", number)


def test_drain(node):
    runs = node.submit(*LONG, "run.threads=1", "run.ranks=1")
    node.until(runs, lambda j: j["step"] > 0)
    expect(node.ctl("drain"), 2, "a reason is required")
    expect(node.ctl("drain", "x" * 201), 1, "reason: needs 1 to 200 bytes")
    assert node.ctl("drain", "new", "driver").stdout == "drained; running jobs continue\n"
    waits = node.submit("train.steps=2", "val.every=2", "run.threads=1", "run.ranks=1")
    said = "no job is started, because this node is drained: new driver"
    assert said in node.ctl("why", waits).stdout, node.ctl("why", waits).stdout
    assert "drained: new driver" in node.ctl("queue").stdout and json.loads(node.ctl("info", "--json").stdout)["drained"] == "new driver"
    node.kill()
    node.start()
    assert node.job(waits)["state"] == "queued" and said in node.ctl("why", waits).stdout
    waiting = subprocess.Popen([detctl.DETCTL, "drain", "--wait", "newer", "driver"], env=node.environment(), stdout=subprocess.PIPE,
                               universal_newlines=True)
    node.until(runs, lambda j: j["state"] == "running")  # after detd came back too
    node.ctl("cancel", runs)
    assert waiting.communicate(timeout=120)[0] == "drained; no job runs\n" and waiting.returncode == 0
    assert node.job(runs)["state"] == "cancelled" and node.job(waits)["state"] == "queued" and "drained: newer driver" in node.ctl(
        "why", waits).stdout
    expect(node.ctl("undrain"), 0)
    node.until(waits, lambda j: j["state"] == "completed")
    expect(node.ctl("undrain"), 0)
    asked, deadline = [], time.time() + 60
    while len(asked) < 4:  # names of users are looked up apart
        assert time.time() < deadline, asked
        asked = re.findall(r"(drain \(.*?\)|undrain) by", node.ctl("events").stdout)
    assert sorted(asked) == ["drain (new driver)", "drain (newer driver)", "undrain", "undrain"], asked


def test_time_limit(node):
    expect(node.ctl("submit", "job", "--time", "soon"), 2, "'soon' is not a length of time")
    done = node.ctl("submit", "job", *LONG, "--time", "6s", "--wait")
    expect(done, 5, "cancelled: it ran for 6 s, its run.time_limit; it")
    job = node.job("1")
    saved = job["checkpoints"][0]["step"] if job["checkpoints"] else 0  # a machine may need those 6 s to begin
    assert job["state"] == "cancelled" and saved == job["step"], job
    assert (f"is of step {saved}" if saved else "it has no checkpoint") in job["reason"] and "limit" in node.ctl("events", "1").stdout
    other = node.submit("train.steps=2", "val.every=2", "run.time_limit=3600")
    node.until(other, lambda j: j["state"] == "completed")


def test_export(node):
    jobs = [node.submit("train.steps=4", "val.every=2") for _ in range(2)]
    for job in jobs:
        node.until(job, lambda j: j["state"] == "completed")
    expect(node.ctl("export", "3"), 2, "--sqlite FILE is missing")
    expect(node.ctl("export", "--sqlite", "job.json"), 1, "make 'job.json': File exists")
    expect(node.ctl("export", "998", "999", "--sqlite", "half.db"), 1, "no job 999")
    assert not os.path.exists(node.folder + "/half.db")
    done = node.ctl("export", "999", jobs[0], "998", jobs[1], "--sqlite", "most.db")  # the others are exported
    expect(done, 1, "no job 999")
    assert "no job 998" in done.stderr and done.stdout.startswith("most.db: 2 jobs, "), done
    said = node.ctl("export", "--sqlite", "all.db").stdout
    assert re.fullmatch(r"all.db: 2 jobs, \d+ rows\n", said), said
    expect(node.ctl("export", jobs[1], "--sqlite", "one.db"), 0)

    def rows(file, sql):
        db = sqlite3.connect(os.path.join(node.folder, file))
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()

    for sql in ("SELECT job, split, term, step, epoch, value, num, den, tier, time FROM loss ORDER BY 1, 2, 3, 4",
                "SELECT * FROM loss_wide ORDER BY 1, 2", "SELECT job, split, term, value FROM loss_latest ORDER BY 1, 2, 3",
                "SELECT job, metric, step, value FROM eval ORDER BY 1, 2, 3",
                "SELECT id, job, time, level, kind, text FROM events WHERE job IS NOT NULL ORDER BY 1",
                "SELECT job, attempt, resume_step, outcome FROM attempts ORDER BY 1, 2",
                "SELECT id, name, user, state, step, steps, cpu_seconds, submitted FROM jobs ORDER BY 1",
                "SELECT job, step, path, bytes FROM checkpoints ORDER BY 1, 2", "SELECT job, step, tier FROM tiers ORDER BY 1, 2"):
        whole = rows("state/detd.db", sql)
        assert whole and rows("all.db", sql) == whole, sql
        job = 1 if sql.startswith("SELECT id, job") else 0
        assert rows("one.db", sql) == [row for row in whole if str(row[job]) == jobs[1]], sql


def test_doctor(node):
    state = os.path.realpath(node.folder + "/state")

    def found(code=0):
        done = node.ctl("doctor", "--json")
        expect(done, code)
        return {row["what"]: (row["level"], row["text"]) for row in json.loads(done.stdout)}

    done = node.submit("train.steps=2", "val.every=2")
    node.until(done, lambda j: j["state"] == "completed")
    runs = node.submit(*LONG)
    node.until(runs, lambda j: j["step"] > 0)
    well = found()
    fine = {what for what, (level, _) in well.items() if level == "ok"}
    assert fine >= {"socket", "libraries", "store", "disk", "database", "folders", "processes", "users"}, well
    mine = f"{state}/jobs: {pwd.getpwuid(os.geteuid()).pw_name} "
    assert re.fullmatch(re.escape(mine) + r"[0-9.]+ [KM]iB", well["users"][1]), well["users"]
    os.mkdir(state + "/jobs/lost+found")  # as in a file system of its own
    assert re.fullmatch(r"SQLite 3[.0-9]+, libuv [.0-9]+, jansson [.0-9]+", well["libraries"][1]), well["libraries"]
    with sqlite3.connect(state + "/detd.db") as db:  # as for jobs in folders that detd is about to remove
        db.executemany("INSERT INTO removed (job, name, user, uid, token, time, submitted, attempt) VALUES (?, 'j', 'u', 0, ?, 0, 0, 1)",
                       [(555, "a"), (556, "b")])
    db.close()
    os.mkdir(state + "/jobs/555")
    os.mkdir(state + "/jobs/556.removed")
    assert found()["folders"][0] == "ok", found()["folders"]
    os.mkdir(state + "/jobs/557.removed")
    node.ctl("drain", "new", "driver")
    os.mkdir(state + "/jobs/999")
    os.mkdir(state + "/jobs/7.0123")
    stray = subprocess.Popen(["detd-worker", "-c", "import time; time.sleep(600)", state + f"/jobs/{done}"], executable=sys.executable)
    try:
        ill = found()
        assert ill["drained"] == ("warning", "no job is started: new driver"), ill
        assert ill["folders"][0] == "warning" and "999" in ill["folders"][1] and "7.0123" in ill["folders"][1] and "557.removed" in ill[
            "folders"][1], ill
        assert ill["folders"][1].startswith("3 in "), ill
        assert ill["processes"] == ("warning", f"1 belong to no job that runs: {stray.pid}"), ill
        assert re.search("(?m)^warning +drained +no job.*\n +-> detctl undrain", node.ctl("doctor").stdout)
    finally:
        stray.kill()
        stray.wait()
    node.ctl("cancel", runs)
    node.until(runs, lambda j: j["state"] == "cancelled")
    with sqlite3.connect(state + "/detd.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(state + "/detd.db", "r+b") as db:  # every page but the first
        db.seek(4096)
        db.write(os.urandom(os.path.getsize(state + "/detd.db") - 4096))
    level, text = found(1)["database"]
    assert level == "wrong" and "detd.db is damaged: " in text, text
    node.kill()
    assert found(3)["socket"][0] == "wrong"


def test_lost_database(node):
    """A job still runs in a folder, and a new database gives its number again."""
    node.until(node.submit(*LONG), lambda j: j["step"] > 0)
    node.kill()
    for name in ("detd.db", "detd.db-wal", "detd.db-shm"):
        os.unlink(os.path.join(node.folder, "state", name))
    node.start()
    job = node.submit("train.steps=2", "val.every=2")
    node.until(job, lambda j: j["state"] == "starting")
    (found,) = [row for row in json.loads(node.ctl("doctor", "--json").stdout) if row["what"] == "processes"]
    assert found["level"] == "warning" and found["text"].startswith("3 belong to no job that runs: "), found
    strays = [int(pid) for pid in re.findall(r"(\d+) \(job 1 of another database\)", found["text"])]
    assert len(strays) == 3, found
    for pid in strays:
        with contextlib.suppress(ProcessLookupError):  # the ranks end with their detd-job
            os.kill(pid, signal.SIGKILL)
    node.until(job, lambda j: j["state"] == "completed")

    def is_well():
        (found,) = [row for row in json.loads(node.ctl("doctor", "--json").stdout) if row["what"] == "processes"]
        return found["level"] == "ok"
    deadline = time.monotonic() + 60
    while not is_well():  # the last ones may be on their way out
        assert time.monotonic() < deadline, node.ctl("doctor").stdout
        time.sleep(0.1)


def test_stopped(node):
    """A detd that accepts connections but does not answer delays a command for less than a minute."""
    node.daemon.send_signal(signal.SIGSTOP)
    try:
        done = subprocess.run([detctl.DETCTL, "completion", "--", "show", ""], env=node.environment(), capture_output=True, timeout=40,
                              check=True)
        assert done.stdout == b"", done.stdout
        done = subprocess.run([detctl.DETCTL, "doctor"], env=node.environment(), capture_output=True, timeout=40, check=False, text=True)
        expect(done, 3)
        assert re.search("(?m)^wrong +socket +.* takes connections, but detd does not answer within 5 s$", done.stdout), done.stdout
    finally:
        node.daemon.send_signal(signal.SIGCONT)
    expect(node.ctl("info"), 0)


def test_after(node):
    """Jobs that wait for another job; 7 chains in all, also over a restart of detd."""
    expect(node.ctl("submit", "job", "--after", "x"), 2, "'x' is not a job id")
    expect(node.ctl("submit", "job", "--after", "3:bad"), 2, "neither ID nor ID:ok")
    expect(node.ctl("submit", "job", "--after", "99"), 1, "run.after: there is no job 99")
    short = ["train.steps=2", "val.every=2", "run.threads=1", "run.ranks=1"]

    def after(other, *more):
        done = node.ctl("submit", "job", *short, "--after", other, *more)
        expect(done, 0)
        return done.stdout.strip()

    first = node.submit(*LONG, "run.threads=1", "run.ranks=1")
    any_end, ok, chain = after(first), after(first + ":ok"), None
    chain = after(ok + ":ok")
    held = after(first)
    node.ctl("pause", held)
    node.until(first, lambda j: j["step"] > 0)
    assert node.ctl("why",
                    any_end).stdout == f"waits till job {first}, which is running, has ended (run.after)\n", node.ctl("why", any_end).stdout
    assert "has completed (run.after)" in node.ctl("why", ok).stdout
    free = node.submit(*short)  # there is a slot for it, and no earlier job waits for slots
    node.until(free, lambda j: j["state"] == "completed")
    node.kill()
    node.start()
    assert node.job(ok)["after"] == int(first) and node.job(ok)["after_ok"], node.job(ok)
    assert node.job(any_end)["state"] == "queued", (node.job(any_end), node.job(first))
    node.ctl("cancel", first)
    node.until(any_end, lambda j: j["state"] == "completed")
    node.until(chain, lambda j: j["state"] == "cancelled")
    assert node.job(ok)["reason"] == f"job {first}, after which it was to run, was cancelled", node.job(ok)
    assert node.job(chain)["reason"] == f"job {ok}, after which it was to run, was cancelled", node.job(chain)
    assert node.job(ok)["attempt"] == 0 and node.job(held)["state"] == "paused"
    node.ctl("resume", held)
    node.until(held, lambda j: j["state"] == "completed")
    expect(node.ctl("submit", "job", *short, "--after", first + ":ok"), 1, f"job {first}, which was to complete, is cancelled")
    well = after(any_end + ":ok")  # for a job that ended long ago
    assert node.job(well)["after"] is None
    node.until(well, lambda j: j["state"] == "completed")
    node.ctl("drain", "so that it waits")
    lost, kept = after(well + ":ok"), after(well)
    node.until(lost, lambda j: j["after"] is None)  # it had completed: its later fate does not matter
    expect(node.ctl("rm", well), 0)
    slow = node.submit(*LONG, "run.threads=1", "run.ranks=1")
    gone = after(slow + ":ok")
    node.ctl("pause", gone)
    node.ctl("cancel", slow)
    node.until(slow, lambda j: j["state"] == "cancelled")
    expect(node.ctl("rm", slow), 0)
    node.ctl("undrain")
    node.ctl("resume", gone)
    node.until(gone, lambda j: j["state"] == "cancelled")
    assert node.job(gone)["reason"] == f"job {slow}, after which it was to run, was removed"
    for job in (lost, kept):
        node.until(job, lambda j: j["state"] == "completed")
    again = node.ctl("clone", gone).stdout.strip()  # without waiting for removed jobs
    node.until(again, lambda j: j["state"] == "completed")


def test_what_lies_where_a_log_should_be(node):
    """A job's folder belongs to its user. When root looks at the logs, detctl neither follows a link in it nor waits
    for a FIFO."""
    number = node.submit("train.steps=2", "val.every=2")
    node.until(number, lambda j: j["state"] == "completed")
    log = node.job(number)["dir"] + "/log/rank-0.log"
    assert "attempt 1, rank 0 of 2" in node.ctl("logs", number).stdout
    os.rename(log, log + ".old")
    os.mkfifo(log)
    expect(node.ctl("logs", number), 1, "rank-0.log': Invalid argument")
    os.unlink(log)
    os.symlink("rank-0.log.old", log)
    expect(node.ctl("logs", number), 1, "rank-0.log': Too many levels of symbolic links")


def test_usage(node):
    """The rows fit the job as it is shown: the CPU time is the same, and the memory is at most that of its ranks."""
    number = node.submit(*LONG)

    def rows():
        return json.loads(node.ctl("usage", number, "--json").stdout)

    assert rows() == [] or rows()[0]["cpu"] >= 0
    deadline = time.time() + 120
    while len(rows()) < 2:
        assert time.time() < deadline, node.job(number)
        time.sleep(0.2)
    used, job = rows(), node.job(number)
    assert used == sorted(used, key=lambda r: -r["time"]) and all(r["gpu"] is None and r["gpu_memory"] is None for r in used), used
    spans = [a["time"] - b["time"] for a, b in zip(used, used[1:])]
    assert 0 < sum(r["cpu"] * (s - 1)
                   for r, s in zip(used, spans)) <= job["cpu_seconds"], (used, job["cpu_seconds"])  # times are whole seconds
    assert all(1 << 20 < r["memory"] <= job["ranks"] * job["max_rss"] for r in used), (used, job["max_rss"])
    table = node.ctl("usage", number, "-n", "1").stdout.splitlines()
    assert len(table) == 2 and table[0].split() == ["TIME", "CPU", "MEMORY", "GPU", "GPU", "MEMORY"], table
    assert re.fullmatch(r"[0-9-]+ [0-9:]+ +\d+\.\d\d +[0-9.]+ MiB +- +-", table[1]), table
    expect(node.ctl("usage", "77"), 1, "no job 77")
    node.ctl("cancel", number)
    node.until(number, lambda j: j["state"] == "cancelled")
    expect(node.ctl("export", number, "--sqlite", "used.db"), 0)
    db = sqlite3.connect(os.path.join(node.folder, "used.db"))
    assert db.execute("SELECT job, time, cpu, memory, gpu FROM usage ORDER BY time DESC").fetchall() == [
        (int(number), r["time"], r["cpu"], r["memory"], None) for r in rows()]
    db.close()


def test_expected(node):
    """The first waiting job gets an expected start once the running job has a pace. The second gets no expected start,
    since the duration of the first is unknown."""
    runs, first, second = node.submit("train.steps=100000"), node.submit("train.steps=2"), node.submit("train.steps=2")

    def expected():
        return [(str(j["id"]), j["expected"]) for j in json.loads(node.ctl("queue", "--json").stdout)]

    deadline = time.time() + 120
    while not (expected() and expected()[0][1]):
        assert time.time() < deadline, expected()
        time.sleep(0.2)
    ((one, when), (two, never)), job = expected(), node.job(runs)
    assert (one, two, never) == (first, second, None) and when > time.time(), (one, when, two, never)
    assert job["step"] < 100000
    assert re.search(r" %s +[0-9-]+ [0-9:]+ +[0-9-]+ [0-9:]+ +needs " % job["device"], node.ctl("queue").stdout), node.ctl("queue").stdout
    node.ctl("drain", "nothing starts")
    assert [e for _, e in expected()] == [None, None]
    node.ctl("undrain")
    node.ctl("cancel", runs)
    for number in (first, second):
        node.until(number, lambda j: j["state"] == "completed")


def test_ls_asks_once(node):
    """One answer has all columns of ls, also the best values of jobs that were validated."""
    jobs = [node.submit("train.steps=2", "val.every=2", "--wait") for _ in range(2)]
    relay = Relay(node.folder + "/relay", node.socket)
    done = node.ctl("--socket", relay.path, "ls")
    expect(done, 0)
    assert relay.said == ["job.list", "answer"] and [row.split()[6] for row in done.stdout.splitlines()[1:]] == ["AP", "AP"], done.stdout
    for job in jobs:
        node.ctl("rm", job)


def test_who_waits_is_told(node):
    """A waiting client asks once, and again after a notification of detd; also over a new connection."""
    relay = Relay(node.folder + "/relay", node.socket)

    def asked(times):
        deadline = time.time() + 60
        while relay.said != ["subscribe", "answer", "job.get", "answer"] * times:
            assert time.time() < deadline, relay.said
            time.sleep(0.05)

    node.ctl("drain", "so that it waits")
    number = node.submit("train.steps=2", "val.every=2")
    waiting = node.begin("--socket", relay.path, "wait", number)
    asked(1)
    time.sleep(3)
    asked(1)
    relay.cut()
    asked(2)
    node.ctl("undrain")
    assert waiting.wait(120) == 0
    told = [word for word in relay.said if word in ("jobs", "losses", "dropped")]
    assert told and relay.said.count("job.get") <= 2 + len(told), relay.said


if __name__ == "__main__":
    detctl.run(globals(), __doc__)
