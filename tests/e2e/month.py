#!/usr/bin/env python3
"""A month on a node of a group: jobs end every day, old data is removed by itself, and the state folder keeps its size.
detd is real; the jobs are copies of a job that a real detd-job ran. TEST_LONG=1: 10,000 jobs in 30 days.
"""  # SPDX-License-Identifier: Apache-2.0
import os
import random
import shutil
import sqlite3
import tempfile

from daemon import SEED, Daemon

DAY = 24 * 3600
LONG = os.environ.get("TEST_LONG", "0") != "0"
DAYS, JOBS = (30, 334) if LONG else (6, 12)  # JOBS a day
KEEP_JOBS, KEEP_POINTS, KEEP_LOGS, KEEP_EVENTS = (7, 3, 2, 7) if LONG else (3, 2, 1, 3)
CONF = "keep_jobs = %d\nkeep_points = %d\nkeep_logs = %d\nkeep_events = %d\n" % (KEEP_JOBS, KEEP_POINTS, KEEP_LOGS, KEEP_EVENTS)
# Tables with rows of jobs, each with the column that holds the job's number.
TABLES = {"jobs": "id", "specs": "job", "attempts": "job", "eval": "job", "checkpoints": "job", "tiers": "job"}


def columns(db, table, *without):
    return ", ".join(row[1] for row in db.execute("PRAGMA table_info(%s)" % table) if row[1] not in without)


def copy_job(db, state, template, job, ended):
    """Adds rows and a folder like the template's, of a job that ended when detd had run so long."""
    for table, key in TABLES.items():
        rest = columns(db, table, key)
        db.execute(
            "INSERT INTO %s (%s, %s) SELECT ?, %s FROM %s WHERE %s=?" %
            (table, key, rest, rest.replace("token", "'copy-%d'" % job), table, key), (job, template))
    for series, split, term in db.execute("SELECT id, split, term FROM series WHERE job=?", (template,)).fetchall():
        new = db.execute("INSERT INTO series (job, split, term) VALUES (?, ?, ?)", (job, split, term)).lastrowid
        rest = columns(db, "point", "series")
        db.execute("INSERT INTO point (series, %s) SELECT ?, %s FROM point WHERE series=?" % (rest, rest), (new, series))
    db.execute("INSERT INTO events (job, time, level, kind, text) SELECT ?, ?, level, kind, text FROM events WHERE job=?",
               (job, ended, template))
    db.execute("UPDATE jobs SET ended_running=? WHERE id=?", (ended, job))
    shutil.copytree("%s/jobs/%d" % (state, template), "%s/jobs/%d" % (state, job))


def a_day(d, template, rng):
    """While no detd runs: everything is a day older, and JOBS more have ended in between."""
    with sqlite3.connect(d.state + "/detd.db") as db:
        newest, = db.execute("SELECT max(id) FROM jobs").fetchone()
        now, = db.execute("UPDATE meta SET value=CAST(value AS INTEGER)+? WHERE key='running' RETURNING CAST(value AS INTEGER)",
                          (DAY,)).fetchone()
        db.execute("INSERT INTO days SELECT ?, max(id) FROM events", (now // DAY,))
        db.execute("UPDATE jobs SET ended_running=? WHERE id=?", (now, template))
        for job in range(newest + 1, newest + 1 + JOBS):
            copy_job(db, d.state, template, job, now - rng.random() * DAY)
    db.close()


def is_done(d, template):
    old = lambda days: ("FROM jobs WHERE ended_running < (SELECT ended_running FROM jobs WHERE id=?) - ?", (template, days * DAY + 60))
    for days, more in ((KEEP_JOBS, ""), (KEEP_POINTS, " AND (cleared & 1)=0"), (KEEP_LOGS, " AND (cleared & 2)=0")):
        query, args = old(days)
        if d.sql("SELECT 1 %s%s LIMIT 1" % (query, more), *args):
            return False
    return not d.sql("SELECT 1 FROM removed WHERE pending LIMIT 1")


def size(d):
    """Returns (bytes of the database, folders of jobs, bytes of their logs)."""
    with sqlite3.connect(d.state + "/detd.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    folders = os.listdir(d.state + "/jobs")
    logs = sum(
        os.path.getsize(os.path.join(at, name)) for f in folders for at, _, names in os.walk("%s/jobs/%s/log" % (d.state, f))
        for name in names)
    return os.path.getsize(d.state + "/detd.db"), len(folders), logs


def main():
    if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 << 30:
        tempfile.tempdir = "/dev/shm"  # thousands of small changes are synced here one after the other, and no power is lost
    rng = random.Random(SEED)
    with Daemon(step_s=0, conf=CONF) as d:
        template = d.submit(60, every=30)
        d.wait(template, "completed")
        d.wait_left(template)
        seen = []
        for _ in range(DAYS):
            d.stop()
            a_day(d, template, rng)
            d.start()
            d.until(lambda: is_done(d, template), "what is old stays", seconds=600)
            kept, = d.sql("SELECT count(*) FROM jobs")[0]
            assert KEEP_JOBS * JOBS >= kept - 1 - JOBS and len(d.call("job.list", limit=5)["jobs"]) == 5
            d.stop()
            seen.append(size(d))
            d.start()
        full, end = seen[KEEP_JOBS], seen[-1]
        print("%d jobs in %d days: after %d days %.1f MB of database, %d folders, %d bytes of logs; at the end %.1f MB, %d, %d" % (
            DAYS * JOBS, DAYS, KEEP_JOBS + 1, full[0] / 1e6, full[1], full[2], end[0] / 1e6, end[1], end[2]), flush=True)
        most = (KEEP_JOBS + 1) * JOBS + 1
        assert end[1] <= most and end[0] <= 1.2 * full[0] and end[2] <= 1.2 * full[2], seen
        newest = d.sql("SELECT max(id) FROM jobs")[0][0]
        assert newest == DAYS * JOBS + template and len(d.sql("SELECT job FROM removed")) >= newest - most
        again = d.submit(10)  # and it still works
        d.wait(again, "completed")
        assert again == newest + 1


main()
