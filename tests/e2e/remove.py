#!/usr/bin/env python3
"""Removing jobs: removed data, kept data, and old data."""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import json
import os
import re
import shutil
import sqlite3
import subprocess
import time

from daemon import BUILD, Daemon, MovedClock, Refused, run_scenarios

TABLES = ("specs", "attempts", "series", "eval", "events", "checkpoints", "tiers", "loss")


def refusal(d, method, **params):
    try:
        return d.call(method, **params)
    except Refused as e:
        return e.reason


def folder(d, job):
    return "%s/jobs/%d" % (d.state, job)


def rows(d, job):
    return sum(d.sql("SELECT count(*) FROM %s WHERE job=?" % table, job)[0][0] for table in TABLES)


def finished(d, steps=20):
    job = d.submit(steps, every=5)
    d.wait(job, "completed")
    return job


def is_wiped(d, job):
    return not [n for n in os.listdir(d.state + "/jobs") if n.split(".")[0] == str(job)] and rows(d, job) == 0 and \
        not d.sql("SELECT 1 FROM removed WHERE job=? AND pending", job)


def remove(d, job):
    """Removes a job, also right after its end: detd waits for its processes. The call is repeated if a minute is not
    enough for them."""
    def gone():
        c = d.client()
        c.sock.settimeout(300)
        try:
            assert c.call("job.rm", id=job) == {"state": "removed"}
            return True
        except Refused as e:
            assert "ask again later" in str(e), "job %d: %s" % (job, e)
            return False
    d.until(gone, "job %d cannot be removed" % job, 240)


def a_job_leaves_nothing():
    with Daemon(step_s=0) as d:
        job, stays = finished(d), finished(d)
        before = rows(d, stays)
        assert rows(d, job) > 30, rows(d, job)
        assert os.path.exists(folder(d, job) + "/checkpoints/step-20")
        remove(d, job)
        assert refusal(d, "job.get", id=job) == refusal(d, "job.rm", id=job) == refusal(d, "job.rm", id=99) == "NOTFOUND"
        assert refusal(d, "job.cancel", id=job) == "NOTFOUND"
        assert [j["id"] for j in d.call("job.list")["jobs"]] == [stays]
        d.until(lambda: is_wiped(d, job), "something of it stays")
        assert rows(d, stays) == before and os.path.exists(folder(d, stays) + "/checkpoints/step-20")
        assert d.events("removed")[0].startswith("job %d ('j' of " % job), d.events("removed")
        remove(d, stays)
        assert d.submit(5) == stays + 1


def a_folder_that_is_held():
    """Another process holds the folder's lock for a while: the folder is removed when it leaves, without a further
    removal."""
    with Daemon(step_s=0) as d:
        job = finished(d)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "the slots are not free")
        with open(folder(d, job) + "/lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            remove(d, job)
            d.until(lambda: "job %d was removed, but its folder cannot be removed yet: processes" % job in open(d.root + "/log").read(),
                    "it is not told")
            assert os.path.exists(folder(d, job) + "/checkpoints/step-20") and rows(d, job)
        d.until(lambda: is_wiped(d, job), "it stays when nobody has it any more")


def pruned_page_by_page():
    with Daemon(step_s=0) as d:
        old = [d.submit(5, threads=1) for _ in range(5)]
        for job in old:
            d.wait(job, "completed")
        new, age = finished(d, 5), 43200
        d.stop()
        with sqlite3.connect(d.state + "/detd.db") as db:  # they ended a day ago: no wait of ours can tell them apart
            db.execute("UPDATE jobs SET ended=ended-86400 WHERE id<?", (new,))
        d.start()
        assert [j["id"] for j in d.call("job.prune", older=age, dry_run=True)["jobs"]] == old
        page = d.call("job.prune", older=age, dry_run=True, limit=2)
        assert page["cursor"] == old[1] and [j["id"]
                                             for j in d.call("job.prune", older=age, dry_run=True, cursor=old[1])["jobs"]] == old[2:]
        assert len(d.call("job.list")["jobs"]) == 6
        assert not d.call("job.prune", older=age)["refused"]
        assert [j["id"] for j in d.call("job.list")["jobs"]] == [new]
        d.until(lambda: all(is_wiped(d, job) for job in old), "something of it stays")
        for bad in (dict(older=-1), dict(older=0, limit=0), dict(older=0, limit=101), dict(older=0, user="u" * 40), {}, dict(older="x")):
            assert refusal(d, "job.prune", **bad) == "INPUT", bad


def the_best_is_kept():
    with Daemon(step_s=0) as d:
        job = finished(d)
        kept = rows(d, job)
        best = d.sql("SELECT coalesce(max(iif(best, step, NULL)), max(step)) FROM checkpoints WHERE job=?", job)[0][0]
        there = os.listdir(folder(d, job) + "/checkpoints")
        assert len(there) > 1 and "step-%d" % best in there, (best, there)
        os.symlink(folder(d, job), folder(d, job) + "/log/link")
        d.until(lambda: not d.call("job.prune", older=0, keep_best=True)["refused"], "it cannot be pruned")
        assert os.listdir(folder(d, job) + "/checkpoints") == ["step-%d" % best] and os.listdir(folder(d, job) + "/log") == []
        assert rows(d, job) == kept and d.job(job)["state"] == "completed" and os.path.exists(folder(d, job) + "/spec.json")
        listed = d.job(job)["checkpoints"]
        assert [c["step"] for c in listed if c["there"]] == [best] and len(listed) == len(there), listed
        shown = subprocess.run([BUILD + "/detctl", "--socket", d.path, "show", str(job)], check=True, capture_output=True, text=True).stdout
        assert re.findall(r"^checkpoint +step (\d+),", shown, re.M) == [str(best)], shown
        assert [j["id"] for j in d.call("job.prune", older=0, keep_best=True)["jobs"]] == [job]


def nothing_goes_where_the_best_is_gone():
    with Daemon(step_s=0) as d:
        job = finished(d)
        d.wait_left(job)
        best = d.sql("SELECT coalesce(max(iif(best, step, NULL)), max(step)) FROM checkpoints WHERE job=?", job)[0][0]
        os.unlink(folder(d, job) + "/checkpoints/step-%d" % best)
        left = sorted(os.listdir(folder(d, job) + "/checkpoints"))
        said = lambda: [r["message"] for r in d.call("job.prune", older=0, keep_best=True)["refused"]]
        d.until(lambda: ["step-%d, is missing" % best in text for text in said()] == [True],
                "it is not refused")  # detd may be in its folder itself
        assert left and sorted(os.listdir(folder(d, job) + "/checkpoints")) == left and os.listdir(folder(d, job) + "/log")


def what_another_job_of_that_number_left_stays():
    """The folder names another time of submission than the database, which is not its own."""
    with Daemon(step_s=0) as d:
        job = finished(d)
        d.wait_left(job)
        d.stop()
        with contextlib.closing(sqlite3.connect(d.state + "/detd.db")) as db, db:
            db.execute("UPDATE jobs SET submitted=submitted-1")
        d.start()
        left = sorted(os.listdir(folder(d, job) + "/checkpoints"))
        d.call("job.prune", older=0, keep_best=True)
        assert left and sorted(os.listdir(folder(d, job) + "/checkpoints")) == left and os.listdir(folder(d, job) + "/log")
        remove(d, job)
        d.until(lambda: d.sql("SELECT pending FROM removed WHERE job=?", job) == [(0,)], "its rows stay")
        assert sorted(os.listdir(folder(d, job) + "/checkpoints")) == left


def what_is_old_goes_by_itself():
    """Old data is removed as detd.conf says; younger data stays."""
    day = 24 * 3600
    with Daemon(step_s=0, conf="keep_jobs = 90\nkeep_points = 60\nkeep_logs=30\nkeep_events = 10\n") as d:
        ages = [100, 70, 40, 20, 0]
        jobs = [finished(d, 10) for _ in ages][::-1]  # the youngest first
        before = rows(d, jobs[0])
        d.wait_left(jobs[0])
        d.stop()
        with sqlite3.connect(d.state + "/detd.db") as db:
            db.execute("UPDATE meta SET value=? WHERE key='running'", (1000 * day,))
            for job, age in zip(jobs[::-1], ages):
                db.execute("UPDATE jobs SET ended_running=? WHERE id=?", ((1000 - age) * day, job))
                db.execute("INSERT INTO days SELECT ?, max(id) FROM events WHERE job=?", (1001 - age, job))
        db.close()
        d.start()
        d.until(lambda: is_wiped(d, jobs[4]), "the oldest stays")
        assert "was removed by detd (keep_jobs)" in d.wait_event("removed")[0]
        d.until(lambda: [r[0] for r in d.sql("SELECT cleared FROM jobs ORDER BY id")] == [3, 2, 0, 0], "not all is cleared")
        d.until(lambda: not d.sql("SELECT 1 FROM events WHERE job IN (?, ?, ?)", *jobs[1:4]), "old events stay")
        curves = [d.sql("SELECT count(*) FROM loss WHERE job=? AND split='train' AND term='total'", j)[0][0] for j in jobs]
        assert curves == [10, 10, 10, 1, 0], curves
        assert d.job(jobs[3])["losses"]["train"]["total"] == 25.0
        assert [len(os.listdir(folder(d, j) + "/log")) > 0 for j in jobs[:4]] == [True, True, False, False]
        assert all(os.path.exists(folder(d, j) + "/checkpoints/step-10") for j in jobs[:4])
        assert rows(d, jobs[0]) == before and "completed" in d.events("end", jobs[0])


def a_wrong_clock_removes_nothing():
    """A detd starts with a clock that is years ahead: everything stays until detd itself has run so long."""
    with Daemon(step_s=0, conf="keep_jobs = 30\nkeep_points = 20\nkeep_logs = 20\nkeep_events = 30\n") as d:
        job = finished(d, 10)
        d.wait_left(job)
        before = rows(d, job)
        d.stop()
        MovedClock(d).move(400 * 24)
        d.start()
        later = d.submit(5)
        d.wait(later, "completed")
        d.wait_left(later)
        assert rows(d, job) == before and d.job(job)["state"] == "completed" and os.listdir(folder(d, job) + "/log")
        d.stop()
        d.env = {}
        with contextlib.closing(sqlite3.connect(d.state + "/detd.db")) as db, db:
            db.execute("UPDATE meta SET value=value+31*86400 WHERE key='running'")
        d.start()
        d.until(lambda: is_wiped(d, job) and is_wiped(d, later), "they stay")


def is_full(d):
    return "full" in d.call("daemon.info")["trouble"]


def made_room_for():
    """On a full disk, where all other requests are refused, jobs can be removed, also jobs that hold next to nothing; a
    kill after that brings none of them back."""
    with Daemon(step_s=0, disk_mb=120) as d:
        large, small = finished(d), [finished(d, 5) for _ in range(3)]
        d.until(lambda: all(not os.path.exists("%s/spool.0" % folder(d, job)) for job in [large, *small]), "the spools stay")
        with open(folder(d, large) + "/predictions", "wb") as f:
            f.write(bytes(12 << 20))
        d.call("daemon.drain", reason="so that it waits")
        empty = [d.submit(5) for _ in range(40)]
        for job in empty:
            d.call("job.cancel", id=job)
        d.fill(cut_log=True)
        assert refusal(d, "daemon.undrain") == "SYSTEM" and is_full(d)
        for job in empty:  # each removal needs room, and frees no room
            remove(d, job)
        d.kill()
        d.start()
        assert [refusal(d, "job.get", id=job) for job in empty] == ["NOTFOUND"] * 40
        d.fill(cut_log=True)
        remove(d, large)
        d.until(lambda: is_wiped(d, large), "something of it stays")
        d.until(lambda: not is_full(d), "there is room, and it is not seen")
        d.fill()
        done = d.call("job.prune", older=0)
        assert [j["id"] for j in done["jobs"]] == small and not done["refused"], done
        assert [refusal(d, "job.get", id=job) for job in small] == ["NOTFOUND"] * 3
        os.unlink(d.state + "/filler")
        d.until(lambda: all(is_wiped(d, job) for job in [*small, *empty]), "something of them stays")
        d.until(lambda: os.stat(d.state + "/reserve").st_blocks << 9 >= 4 << 20, "no room is kept for the next time")


SCENARIOS = [a_folder_that_is_held, a_job_leaves_nothing, pruned_page_by_page, the_best_is_kept, nothing_goes_where_the_best_is_gone,
             what_another_job_of_that_number_left_stays, what_is_old_goes_by_itself, a_wrong_clock_removes_nothing, made_room_for]
run_scenarios(SCENARIOS, private=[made_room_for])
