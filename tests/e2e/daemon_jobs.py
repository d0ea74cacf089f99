#!/usr/bin/env python3
"""Jobs under a real detd and a real detd-job, with rank.py as the trainer: each scenario of DESIGN's life of a job,
kills included."""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import fcntl
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import time

from daemon import BUILD, SEED, Daemon, MovedClock, Refused, leave_fault, make_shapes, run_scenarios


def runs_to_the_end():
    with Daemon() as d:
        job = d.submit(30, ranks=2)
        done = d.wait(job, "completed")
        assert (done["attempt"], done["step"], done["reason"], done["tier"]) == (1, 30, "", "rerun"), done
        assert done["losses"]["train"]["total"] == 250.0 / 30 and done["losses"]["val"]["box"] == 3.0, done["losses"]
        assert [c["step"] for c in done["checkpoints"]] == [30, 20, 10] and done["checkpoints"][0]["best"] is False
        assert done["attempts"][0]["outcome"] == "completed", done["attempts"]
        assert done["spec"]["run"]["threads"] is None and done["threads"] == 2, done["threads"]
        assert done["cpu_seconds"] > 0 and done["max_rss"] > 1 << 20, (done["cpu_seconds"], done["max_rss"])
        d.check_rows(job, 30)
        rows = d.call("loss.query", id=job, split="val", term="total")["rows"]
        assert [(r["step"], r["value"]) for r in rows] == d.sql("SELECT step, value FROM loss WHERE job=? AND split='val' AND term='total'",
                                                                job)
        assert [r["step"] for r in d.call("loss.query", id=job, term="total", split="train", points=3)["rows"]] == [1, 15, 30]
        first = d.call("loss.query", id=job, limit=50)
        rest = d.call("loss.query", id=job, limit=50, cursor=first["cursor"])
        every = [(r["split"], r["term"], r["step"]) for r in first["rows"] + rest["rows"]]
        assert len(every) == 66 and every == sorted(every) and rest["cursor"] is None
        assert d.call("deterministic.get", id=job)["history"] == [{"step": 1, "tier": "rerun"}]
        d.wait_left(job)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "the slots are not free")


def job_ends_while_nobody_listens():
    with Daemon() as d:
        job = d.submit(60, env={"HOLD": "7"})
        d.held(job, 7)
        d.stop()
        d.go(job)
        d.wait_left(job)
        spool = open("%s/jobs/%d/spool.0" % (d.state, job), "rb").read()
        d.start()
        done = d.wait(job, "completed")
        assert done["step"] == 60 and len(done["attempts"]) == 1, done
        d.check_rows(job, 60)
        d.wait_left(job)
        done = d.job(job)
        assert (done["attempt"], done["attempts"][0]["outcome"]) == (1, "completed") and done["attempts"][0]["ended"], done
        end = json.loads(re.search(rb'\{"type":"end".*?\}', spool)[0])
        assert done["cpu_seconds"] == end["cpu_seconds"], (done["cpu_seconds"], end)


def has_spool(d, job):
    return any(os.path.exists("%s/jobs/%d/spool.%d" % (d.state, job, i)) for i in (0, 1))


def spools_go_with_their_jobs():
    """The spool of an ended job is removed, even if detd is killed at any moment. A supervisor without a spool finds
    the end in the database."""
    rng = random.Random(SEED)
    with Daemon(step_s=0) as d:
        paused = d.submit(1000000)
        d.wait(paused, lambda j: j["step"] > 2)
        d.call("job.pause", id=paused)
        d.wait(paused, "paused")
        for _ in range(8):
            job = d.submit(10, threads=1)
            d.until(lambda j=job: os.path.exists("%s/jobs/%d/checkpoints/step-10" % (d.state, j)), "it does not get on")
            time.sleep(rng.random() / 20)
            d.kill()
            if not has_spool(d, job):
                assert d.sql("SELECT state FROM jobs WHERE id=?", job) == [("completed",)], "neither spool nor end"
            d.start()
            assert len(d.wait(job, "completed")["attempts"]) == 1
            d.until(lambda j=job: not has_spool(d, j), "the spool stays")
            d.check_rows(job, 10)
        d.wait_left(paused)
        assert has_spool(d, paused)
        d.call("job.cancel", id=paused)
        d.until(lambda: not has_spool(d, paused), "the spool of a job that was cancelled while it was paused stays")


def what_looks_like_a_spent_spool_is_kept():
    """A starting detd removes spools that an earlier detd left behind, but not the spool of a waiting job, of a job
    with lost reports, or of another database."""
    with Daemon(step_s=0) as d:
        done, other, lost, paused = (d.submit(10, threads=1) for _ in range(4))
        for job in (done, other, lost):
            d.wait(job, "completed")
            d.until(lambda j=job: not has_spool(d, j), "the spool stays")
        d.wait(paused, "completed")
        d.until(lambda: not has_spool(d, paused), "the spool stays")
        d.stop()
        for job in (done, other, lost, paused):
            open("%s/jobs/%d/spool.1" % (d.state, job), "w").close()
        with open("%s/jobs/%d/store" % (d.state, other), "w") as f:
            f.write("f" * 32)
        with sqlite3.connect(d.state + "/detd.db") as db:
            db.execute("UPDATE jobs SET state='failed', reason='spool lost: it is damaged' WHERE id=?", (lost,))
            db.execute("UPDATE jobs SET state='paused' WHERE id=?", (paused,))
        db.close()
        d.start()
        d.until(lambda: not has_spool(d, done), "the spool stays")
        time.sleep(0.2)
        assert [has_spool(d, job) for job in (other, lost, paused)] == [True] * 3


def copy_database(d):
    """Copies the database, to be put back later."""
    copy = sqlite3.connect(d.state + "/copy.db")
    with contextlib.closing(sqlite3.connect(d.state + "/detd.db")) as db, contextlib.closing(copy):
        db.backup(copy)


def put_back_database(d):
    """While no detd runs."""
    os.replace(d.state + "/copy.db", d.state + "/detd.db")
    for rest in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(d.state + "/detd.db" + rest)


def numbers_are_not_given_again():
    """An older copy of the database is put back, which knows fewer jobs than ran. The folders of the other jobs stay as
    they are, and the next job has a number above them."""
    with Daemon(step_s=0) as d:
        first = d.submit(10, threads=1)
        d.wait(first, "completed")
        copy_database(d)
        later = d.submit(20, threads=1)
        d.wait(later, "completed")
        d.until(lambda: not has_spool(d, later), "the spool stays")
        d.stop()
        put_back_database(d)
        os.rename("%s/jobs/%d" % (d.state, later), "%s/jobs/%d.old" % (d.state, later + 7))
        d.start()
        job = d.submit(10, threads=1)
        assert job == later + 8
        d.wait(job, "completed")
        d.check_rows(job, 10)
        assert "step-20" in os.listdir("%s/jobs/%d.old/checkpoints" % (d.state, later + 7)) and not d.events("folder")


def ends_outlive_an_older_database():
    """A copy of the database is put back that was made before jobs ended: their spools are gone, and they have ended
    all the same, each in its way."""
    with Daemon(slots=2) as d:
        jobs = [d.submit(30, threads=1, env={"HOLD": "10"}),
                d.submit(1000000, threads=1),
                d.submit(30, threads=1)]  # the last one waits for slots
        for job in jobs[:2]:
            d.wait(job, lambda j: j["step"] > 5)
        copy_database(d)
        assert d.job(jobs[2])["state"] == "queued"
        d.go(jobs[0])
        d.wait(jobs[0], "completed")
        d.call("job.cancel", id=jobs[1])
        d.wait(jobs[1], "cancelled")
        d.wait(jobs[2], "completed")
        for job in jobs:
            d.until(lambda j=job: not has_spool(d, j), "the spool stays")
        d.stop()
        put_back_database(d)
        d.start()
        for job, state in zip(jobs, ("completed", "cancelled", "completed")):
            ended = d.wait(job, lambda j: j["state"] in ("completed", "cancelled", "failed"))
            assert (ended["state"], ended["reason"]) == (state, ""), ended
            assert "reports" in d.wait_event("ended_before", job)[0]
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 2, "the slots are not free")


def an_end_that_nobody_reported_outlives_an_older_database():
    """A job was cancelled while it was paused, so the older database has all of its reports, and its spool is gone: the
    job counts as ended, too."""
    with Daemon() as d:
        job = d.submit(1000000, threads=1)
        d.wait(job, lambda j: j["step"] > 5)
        d.call("job.pause", id=job)
        d.wait(job, "paused")
        d.wait_left(job)
        copy_database(d)
        d.call("job.cancel", id=job)
        d.until(lambda: not has_spool(d, job), "the spool stays")
        d.stop()
        put_back_database(d)
        d.start()
        d.call("job.resume", id=job)
        ended = d.wait(job, lambda j: j["state"] in ("cancelled", "failed") or j["attempt"] > 2 or j["state"] == "running")
        assert (ended["state"], ended["reason"]) == ("cancelled", ""), ended
        d.wait_event("ended_before", job)


def supervisor_dies():
    """The ranks die with their supervisor; the next attempt continues from the checkpoint, and its reports replace
    those of the lost steps."""
    with Daemon() as d:
        job = d.submit(100, every=20, ranks=2, env={"HOLD": "28 56"})
        for step in (28, 56):
            d.held(job, step)
            d.signal_supervisor(job, signal.SIGKILL)
            d.go(job, step)
        done = d.wait(job, "completed")
        assert done["attempt"] >= 3 and len(done["attempts"]) >= 2, done["attempts"]
        kinds = [e["kind"] for e in d.call("event.query", id=job)["events"]]
        assert kinds.count("supervisor_lost") == 2 and kinds.count("rewound") >= 2, kinds
        d.check_rows(job, 100)
        identities(d, job, done["attempts"])


def identities(d, job, attempts):
    """Each attempt has the last identity that it reported; `show` lists the differences from the first."""
    for a in attempts:
        assert a["identity"]["versions"] == {"math": "1.%d" % a["attempt"]} and a["identity"]["hash"] == "%032x" % a["attempt"], a
    stored = d.sql("SELECT attempt, identity FROM attempts WHERE job=? ORDER BY attempt DESC", job)
    assert [(n, json.loads(text)) for n, text in stored] == [(a["attempt"], a["identity"]) for a in attempts], stored
    shown = subprocess.run([BUILD + "/detctl", "--socket", d.path, "show", str(job)], check=True, capture_output=True, text=True).stdout
    told = re.findall(r"^identity +(.*)$", shown, re.M)
    assert len(told) == len(attempts) and told[-1] == "made up, fp32, worker 0.1.0, " + "0" * 8, shown
    assert told[0] == "made up, fp32, worker 0.1.0, 00000000; differs from attempt 1: math 1.%d (was 1.1)" % attempts[0]["attempt"], shown


def a_checkpoint_starts_the_count_anew():
    """The supervisor dies three times, though the budget allows one death; each time there is a newer checkpoint."""
    with Daemon() as d:
        job = d.submit(90, every=20, restarts=1, env={"HOLD": "25 45 65"})
        for n in (1, 2, 3):
            now = d.held(job, 20 * n + 5)  # so it has said that there is a checkpoint, too
            assert (now["attempt"], now["checkpoints"][0]["step"]) == (n, 20 * n), now
            d.signal_supervisor(job, signal.SIGKILL)
            d.go(job, 20 * n + 5)
            d.until(lambda n=n: len(d.events("supervisor_lost", job)) == n, "nobody sees that the supervisor is lost")
        assert d.wait(job, lambda j: j["state"] in ("completed", "failed"))["state"] == "completed", d.job(job)["reason"]
        d.check_rows(job, 90)


def commands():
    with Daemon() as d:
        job = d.submit(1000000, every=1000000, ranks=2)
        d.wait(job, lambda j: j["step"] > 5)
        d.call("job.checkpoint", id=job)
        d.call("job.eval", id=job)
        d.call("deterministic.set", id=job, tier="world")
        d.wait(job, lambda j: j["tier"] == "world" and j["checkpoints"])
        d.until(lambda: len(d.call("eval.query", id=job)["rows"]) == 2, "no scores")  # these are read from the database
        scores = d.call("eval.query", id=job)["rows"]
        assert scores[0]["metric"] == "ap50" and scores[1]["value"] is None, scores
        d.until(lambda: d.call("deterministic.get", id=job)["history"][-1]["tier"] == "world", "the change is not stored")
        assert d.call("deterministic.get", id=job)["pending"] is None, d.call("deterministic.get", id=job)
        assert d.call("job.pause", id=job)["state"] == "stopping"
        paused = d.wait(job, "paused")
        d.kill()
        d.start()
        assert d.job(job)["state"] == "paused"
        d.call("job.resume", id=job)
        d.until(lambda: d.sql("SELECT 1 FROM loss WHERE job=? AND step>?", job, paused["step"] + 10), "no rows")
        assert d.job(job)["attempts"][0]["resume_step"] == paused["step"], d.job(job)["attempts"]
        tiers = {t for (t,) in d.sql("SELECT tier FROM loss WHERE job=? AND step>?", job, paused["step"])}
        assert tiers == {"world"}, tiers
        d.call("job.cancel", id=job)
        assert d.wait(job, "cancelled")["ended"] is not None
        d.call("job.cancel", id=job)
        try:
            d.call("job.pause", id=job)
            assert False, "a cancelled job was paused"
        except Refused as e:
            assert (e.reason, e.field) == ("STATE", "id"), str(e)


@contextlib.contextmanager
def away(d, program):
    """The program is missing for a moment, as while it is replaced."""
    path = "%s/%s" % (d.bin, program)
    os.rename(path, path + ".away")
    yield
    os.rename(path + ".away", path)


def wait_tries(d, job, count):
    """Waits until detd has tried `count` more times to start the job's supervisor. Each try writes the files that the
    supervisor reads."""
    seen = set()
    d.until(lambda: seen.add(os.stat("%s/jobs/%d/spec.json" % (d.state, job)).st_mtime_ns) or len(seen) > count, "it is not tried again")


def supervisor_cannot_be_started():
    """A failed start does not end the job: it waits and says why. Steps that it trained while detd did not run are
    stored when detd-job connects again."""
    with Daemon() as d:
        job = d.submit(80, threads=1, env={"HOLD": "14"})
        d.held(job, 14)
        d.kill()
        d.go(job)
        d.until(lambda: "job completed" in supervisor_log(d, job), "the job does not complete")
        d.kill_session(job)
        d.wait_left(job)
        with away(d, "detd-job"):
            d.start()
            assert "detd-job" in d.wait_event("waits", job)[0]
            assert "detd-job" in d.call("job.why", id=job)["text"], d.call("job.why", id=job)
            assert d.job(job)["state"] == "starting"
            wait_tries(d, job, 3)
            assert len(d.events("waits", job)) == 1, "it is told again: %s" % d.events("waits", job)
            waiting, other = d.submit(5, threads=1), d.submit(5, threads=1)
            for new in (waiting, other):  # nothing of them is in a spool: they wait without slots
                d.wait(new, "queued")
                d.until(lambda n=new: "has given its slots back, and is tried again within a minute: " in d.call("job.why", id=n)["text"],
                        "it does not say so")
            assert d.call("daemon.info")["cpu_free"] == 3
            d.call("job.cancel", id=waiting)  # it never ran: it needs no supervisor to end
            d.wait(waiting, "cancelled")
        d.call("job.resume", id=other)  # the next try is now
        assert d.wait(other, "completed")["reason"] == ""
        assert len(d.events("waits", other)) == 1 and d.events("state", other).count("starting") == 1, d.events("state", other)
        assert len(d.wait(job, "completed")["attempts"]) == 1
        d.check_rows(job, 80)


def a_supervisor_that_says_nothing():
    """The supervisor leaves at once, as with a missing library. Seven times in a row end the job, and the job says how.
    After the cause is mended, the resumed job runs."""
    with Daemon() as d:
        d.stop()
        whole = d.bin + "/whole"
        os.rename(d.bin + "/detd-job", whole)
        with open(d.bin + "/detd-job", "w") as f:
            f.write("#!/bin/sh\necho once >>%s/starts\nexit 127\n" % d.root)
        os.chmod(d.bin + "/detd-job", 0o755)
        d.start()
        job = d.submit(5, restarts=0)
        assert "ended without a message (status 127)" in d.wait_event("waits", job)[0]
        d.until(lambda: "supervisor.log" in d.call("job.why", id=job)["text"], "it does not say why it waits")
        assert len(d.events("waits", job)) == 1 and d.job(job)["state"] == "starting", d.job(job)
        failed = d.wait(job, "failed", 240)
        assert failed["reason"].startswith("its supervisor ended without a message (status 127)"), failed["reason"]
        assert len(open(d.root + "/starts").readlines()) == 7
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "the slots are not free")
        os.rename(whole, d.bin + "/detd-job")
        d.call("job.resume", id=job)
        assert d.wait(job, lambda j: j["state"] in ("completed", "failed"))["state"] == "completed"
        d.check_rows(job, 5)
        assert not d.events("supervisor_lost", job)


def a_cancelled_job_whose_supervisor_says_nothing():
    """The spool is read before the job ends. If no supervisor can read the spool, the job is cancelled all the same,
    and says that its spool was not read."""
    with Daemon() as d:
        job = d.submit(100, env={"HOLD": "28"})
        d.held(job, 28)
        d.kill()
        d.kill_session(job)
        os.unlink(d.bin + "/detd-job")
        with open(d.bin + "/detd-job", "w") as f:
            f.write("#!/bin/sh\nexit 127\n")
        os.chmod(d.bin + "/detd-job", 0o755)
        d.start()
        d.call("job.cancel", id=job)
        ended = d.wait(job, lambda j: j["ended"], 240)
        assert ended["state"] == "cancelled", ended
        assert ended["reason"].startswith("spool unread: its supervisor ended without a message (status 127)"), ended["reason"]
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "the slots are not free")
        assert os.path.exists("%s/jobs/%d/spool.0" % (d.state, job)), os.listdir("%s/jobs/%d" % (d.state, job))


def a_folder_that_cannot_be_used():
    """A file stands in place of the folder of logs, which only the job's owner can mend. After seven tries the job has
    failed, and holds no slots."""
    with Daemon() as d:
        d.call("daemon.drain", reason="test")
        job = d.submit(5)
        os.makedirs("%s/jobs/%d" % (d.state, job))
        with open("%s/jobs/%d/log" % (d.state, job), "w", encoding="utf-8"):
            pass
        d.call("daemon.undrain")
        assert "cannot be used" in d.wait_event("waits", job)[0], d.events("waits", job)
        failed = d.wait(job, "failed", 240)
        assert failed["reason"].startswith("spool unread: jobs/%d cannot be used" % job), failed["reason"]
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "the slots are not free")


def a_lock_that_is_no_file():
    """A folder stands in place of a job's lock file, so the lock cannot be held: the job says so, and meanwhile keeps
    no slots from other jobs."""
    with Daemon(slots=1) as d:
        job = d.submit(10 ** 6, threads=1)
        d.wait(job, lambda j: j["step"] > 3)
        d.call("job.pause", id=job)
        d.wait(job, "paused")
        lock = "%s/jobs/%d/lock" % (d.state, job)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 1, "its processes have not left")
        os.unlink(lock)
        os.mkdir(lock)
        d.call("job.resume", id=job)
        assert "cannot be used" in d.wait_event("waits", job)[0], d.events("waits", job)
        d.call("job.pause", id=job)
        d.wait(job, "paused")
        d.wait(d.submit(5, threads=1), "completed")
        os.rmdir(lock)
        d.call("job.resume", id=job)
        d.wait(job, "running")
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")


def pauses_do_not_count():
    """A pause counts neither as seconds that a job ran nor against run.time_limit; the time before the pause does
    count."""
    with Daemon() as d:
        job, limited = (d.submit(10 ** 6, every=5, threads=1, time_limit=5000) for _ in range(2))
        for j in (job, limited):
            d.wait(j, lambda now: now["step"] > 5)
            d.call("job.pause", id=j)
        ran = [d.wait(j, "paused")["seconds"] for j in (job, limited)]
        assert all(0 < s < 5000 for s in ran), ran
        d.stop()
        with contextlib.closing(sqlite3.connect(d.state + "/detd.db")) as db, db:  # a long pause, and of one a long time before it
            db.execute("UPDATE jobs SET started=started-100000")
            db.execute("UPDATE jobs SET limited=6000, seconds=6000, seconds_before=6000 WHERE id=?", (limited,))
        d.start()
        for j in (job, limited):
            d.call("job.resume", id=j)
        ended = d.wait(limited, "cancelled")
        assert "its run.time_limit" in ended["reason"] and 6000 <= ended["seconds"] < 11000, ended
        d.wait(job, lambda now: now["step"] > ended["step"] and now["seconds"] > ran[0])
        d.call("job.cancel", id=job)
        ended = d.wait(job, "cancelled")
        assert ended["reason"] == "" and ran[0] < ended["seconds"] < 5000 < 100000 < ended["ended"] - ended["started"], ended
        assert d.sql("SELECT seconds, elapsed > 99999 FROM job_summary WHERE id=?", job) == [(ended["seconds"], 1)]


def a_tier_for_a_step_that_never_comes():
    """An event tells of a tier that is asked for before the last step and begins after it. A tier that the last step has is
    not told."""
    with Daemon() as d:

        def told_of_tier(hold):
            job = d.submit(20, env={"HOLD": str(hold)})
            d.held(job, hold)
            d.call("deterministic.set", id=job, tier="world")
            d.until(lambda: "tier" in supervisor_log(d, job), "nobody hears of the tier")
            d.go(job)
            d.wait(job, "completed")
            return job, d.events("tier", job)

        _, told = told_of_tier(20)
        assert any(
            re.fullmatch(r"tier world was (not applied: the job|to begin with step \d+; the job) ended after step 20", text)
            for text in told), told
        job, told = told_of_tier(18)
        last = d.call("deterministic.get", id=job)["history"][-1]
        assert last["tier"] == "world" and last["step"] in (19, 20), last
        assert not any("ended after" in text for text in told), told


def a_fifo_in_a_folder():
    """A FIFO that a job's trainer creates does not block other jobs, or detd when it is to stop."""
    with Daemon() as d:
        job = d.submit(1000, every=10, threads=1)
        d.wait(job, lambda j: j["checkpoints"])
        for name in ("store", "log/supervisor.log"):
            path = "%s/jobs/%d/%s" % (d.state, job, name)
            os.rename(path, path + ".away")
            os.mkfifo(path)
            d.kill_session(job)
            d.until(lambda: name in d.call("job.why", id=job)["text"], "it does not say why it waits")
            other = d.submit(5, threads=1)
            d.wait(other, "completed")
            d.stop()
            d.start()
            os.rename(path + ".away", path)
            saved = d.newest_checkpoint(job)
            d.wait(job, lambda j: j["step"] > saved + 10)
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")


def trainer_cannot_be_opened():
    with Daemon() as d:
        with away(d, "detd-worker"):
            job = d.submit(50, env={"HOLD": "10"})
            assert "detd-worker" in d.wait_event("waits", job)[0]
            assert "detd-worker" in d.call("job.why", id=job)["text"], d.call("job.why", id=job)
        d.wait(job, "running")
        assert "detd-worker" not in d.call("job.why", id=job)["text"], "it still waits"
        d.go(job)
        assert d.wait(job, "completed")["attempt"] == 1


def another_database_while_a_job_runs():
    """The first job of a new database has a number above the old folders. A job whose folder is taken all the same names
    the processes there, and runs in a new folder when they have left."""
    with Daemon() as d:
        old = d.submit(100000, every=10)
        d.wait(old, lambda j: j["checkpoints"])
        (store,), = d.sql("SELECT value FROM meta WHERE key='store_id'")
        d.kill()
        for name in os.listdir(d.state):
            if name.startswith("detd.db"):
                os.unlink(d.state + "/" + name)
        d.signal_session(old, signal.SIGSTOP)
        d.start()
        os.rename("%s/jobs/%d" % (d.state, old), "%s/jobs/%d" % (d.state, old + 1))
        job = d.submit(20)
        assert job == old + 1
        holder = "process %d (" % d.session(job)
        assert holder in d.wait_event("waits", job)[0], (holder, d.events("waits", job))
        assert holder in d.call("job.why", id=job)["text"], d.call("job.why", id=job)
        d.kill_session(job)
        assert [a["resume_step"] for a in d.wait(job, "completed")["attempts"]] == [0]
        d.check_rows(job, 20)
        assert "jobs/%d.%s" % (job, store) in d.wait_event("folder", job)[0]
        assert os.path.isdir("%s/jobs/%d.%s/checkpoints" % (d.state, job, store))


def spooled_checkpoint(d, job):
    """Returns the step of the newest checkpoint that is recorded in the spool."""
    steps = [0]
    for name in ("spool.0", "spool.1"):
        with open("%s/jobs/%d/%s" % (d.state, job, name), "rb") as f:
            steps += [int(s) for s in re.findall(rb'"type": "checkpoint", "step": (\d+), "phase": "published"', f.read())]
    return max(steps)


@contextlib.contextmanager
def unheard(d, job, steps):
    """Lets the job train to a checkpoint at least `steps` later while detd is stopped. In the block detd runs again,
    and the job is stopped."""
    goal = d.newest_checkpoint(job) + steps
    os.kill(d.proc.pid, signal.SIGSTOP)
    d.go(job)  # a job that is held
    d.until(lambda: d.newest_checkpoint(job) >= goal, "no checkpoint")
    d.until(lambda: spooled_checkpoint(d, job) >= goal, "it is not reported")  # its rank says so after it lies there
    d.signal_session(job, signal.SIGSTOP)
    os.kill(d.proc.pid, signal.SIGCONT)
    yield
    d.kill_session(job)


def supervisor_log(d, job):
    """Returns the log of the job's supervisor, or "" before its first start."""
    path = "%s/jobs/%d/log/supervisor.log" % (d.state, job)
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as f:
        return f.read()


def check_reported(d, job):
    """No report at or before a checkpoint is lost."""
    steps = [s for (s,) in d.sql("SELECT step FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", job)]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= d.newest_checkpoint(job), (len(steps), d.newest_checkpoint(job))


def ends_without_a_supervisor():
    """A job is cancelled, or has spent its budget, when its supervisor is dead: its spool is read to the end first."""
    for outcome in ("cancelled", "failed"):
        with Daemon(step_s=0) as d:
            job = d.submit(1000000, every=500, restarts=0)
            d.wait(job, lambda j: j["step"] > 5)
            with unheard(d, job, 4000):
                if outcome == "cancelled":
                    d.call("job.cancel", id=job)
            assert d.wait(job, outcome)["attempt"] == 1
            check_reported(d, job)


def budget_counts_from_the_newest_checkpoint():
    """The restart budget counts from the newest checkpoint, even if detd had not heard of that checkpoint when the
    supervisor died for the second time. The next supervisor was to end the job, but continues it, and runs for longer
    than a supervisor may take that only reads a spool."""
    with Daemon() as d:
        job = d.submit(120, every=50, restarts=1, env={"STEP_S": "0", "HOLD": "3"})
        d.wait(job, lambda j: j["step"] == 2)
        d.kill_session(job)
        d.wait(job, lambda j: j["state"] == "running" and j["attempt"] == 2)
        leave_fault(d, job, "hold 51")
        with unheard(d, job, 50):
            leave_fault(d, job, "rest 51")
        done = d.wait(job, lambda j: j["state"] in ("completed", "failed"), 240)
        assert done["state"] == "completed", (done["reason"], done["attempts"])
        assert [a["resume_step"] for a in done["attempts"]] == [50, 0, 0] and not d.events("kill", job), done["attempts"]
        d.check_rows(job, 120)


def budget_counts_from_a_checkpoint_that_nobody_told_of():
    """All processes of the job die between publishing a checkpoint and reporting it: that counts as progress. Later
    deaths without a newer checkpoint do not."""
    with Daemon() as d:
        leave_fault(d, 1, "unsaid-by-all 10")
        job = d.submit(100, every=50, restarts=1, env={"STEP_S": "0", "HOLD": "52"})
        d.wait(job, lambda j: j["state"] == "running" and j["attempt"] == 2)
        d.until(lambda: d.newest_checkpoint(job) == 50, "no checkpoint")
        for attempt in (2, 3):
            d.wait(job, lambda j, a=attempt: (j["state"], j["attempt"], j["step"]) == ("running", a, 51))
            d.kill_session(job)
        done = d.wait(job, "failed")
        assert "lost 2 times" in done["reason"] and [a["resume_step"]
                                                     for a in done["attempts"]] == [50, 50, 0], (done["reason"], done["attempts"])


def a_forgotten_job_is_not_run_again():
    """A token is sent again when detd no longer has its job in memory, and an older job has ended after it."""
    with Daemon(step_s=0, slots=1) as d:
        holder, old, other = d.submit(1000000), d.submit(2), d.submit(2)  # it holds the slots, or one of them might end before it is paused
        for paused in (old, other):
            d.call("job.pause", id=paused)
            d.wait(paused, "paused")
        d.call("job.cancel", id=holder)
        d.wait(holder, "cancelled")
        job = d.submit(2, token="once")
        d.wait(job, "completed")
        blocker = d.submit(1000000)
        d.wait(blocker, "running")
        for _ in range(128):  # as many finished jobs as detd keeps
            d.call("job.cancel", id=d.submit(2))
        d.call("job.cancel", id=blocker)
        d.wait(blocker, "cancelled")
        d.wait_left(blocker)
        d.call("job.resume", id=old)
        d.wait(old, "completed")
        d.wait_left(old)
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 1, "the slots are not free")
        assert d.submit(2, token="once") == job
        assert d.call("daemon.info")["jobs_live"] == 1, "it is queued again"  # the paused one
        assert (d.job(job)["state"], d.job(job)["attempt"]) == ("completed", 1), d.job(job)
        d.check_rows(job, 2)
        ids = [i for (i,) in d.sql("SELECT id FROM jobs ORDER BY id DESC")]
        for limit in range(125, len(ids) + 1):  # lists end at each of those in memory, and beyond
            assert [j["id"] for j in d.call("job.list", limit=limit)["jobs"]] == ids[:limit], "a forgotten job is not listed"


def the_node_shuts_down():
    """All processes get SIGTERM: the job writes a checkpoint, and continues from it when detd is back."""
    with Daemon() as d:
        job = d.submit(60, every=1000, ranks=2, env={"HOLD": "7"})
        d.held(job, 7)
        d.signal_session(job, signal.SIGTERM)
        d.until(lambda: "pause passed to rank 0" in supervisor_log(d, job), "it does not hear that it is to stop")
        d.go(job)
        d.stop()
        d.wait_left(job)
        saved = d.newest_checkpoint(job)
        assert saved > 5, saved
        d.start()
        done = d.wait(job, "completed")
        assert [a["resume_step"] for a in done["attempts"]] == [saved, 0], done["attempts"]
        assert d.events("end", job)[-1] == "paused: detd-job was told to stop" and not d.events("supervisor_lost", job)
        d.check_rows(job, 60)


def the_terminal_is_closed():
    """A detd in the foreground stops in order, and its job continues. A detd under nohup keeps running, and so does
    detd-job."""
    try:
        for fd in os.openpty():
            os.close(fd)
    except OSError:
        print("skip: no pseudo-terminal", flush=True)
        return
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup may have started this test, too
    with Daemon() as d:
        job = d.submit(60, ranks=2, env={"HOLD": "7"})
        d.held(job, 7)
        d.stop()
        told = open(d.root + "/log").read().count("stops; jobs run on")
        for before in ([], ["nohup"]):
            terminal, side = os.openpty()
            d.under = ["setsid", "--ctty", *before]
            d.start(stdin=side)
            os.close(side)
            os.close(terminal)
            if before:
                for _ in range(3):  # turns of its loop
                    assert d.call("daemon.info")["jobs_live"] == 1
                d.stop()
            else:
                assert d.proc.wait(60) == 0, "detd left with %d" % d.proc.returncode
                d.proc = None
            d.under, told = [], told + 1
            assert open(d.root + "/log").read().count("stops; jobs run on") == told, open(d.root + "/log").read()
        d.start()
        d.signal_session(job, signal.SIGHUP)
        d.go(job)
        assert len(d.wait(job, "completed")["attempts"]) == 1
        d.check_rows(job, 60)


def a_silent_supervisor_is_killed():
    with Daemon() as d:
        job = d.submit(40, env={"STEP_S": "0", "HOLD": "20"})
        d.held(job, 20)
        d.signal_supervisor(job, signal.SIGSTOP)
        d.wait_event("kill", job, 240)
        d.go(job)
        assert d.wait(job, "completed")["attempt"] == 2
        d.check_rows(job, 40)


def a_lock_that_stays_held():
    """A descriptor on its way through a socket holds the lock, so there is no process to kill. The slots stay taken,
    and `why` says by what."""
    with Daemon() as d:
        job = d.submit(40, env={"HOLD": "7"})
        d.held(job, 7)
        os.kill(d.proc.pid, signal.SIGSTOP)
        d.kill_session(job)
        d.wait_left(job)
        d.go(job)
        pair = socket.socketpair()
        with open("%s/jobs/%d/lock" % (d.state, job), "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            socket.send_fds(pair[0], [b"x"], [lock.fileno()])
        os.kill(d.proc.pid, signal.SIGCONT)
        assert "a process that detd cannot see" in d.wait_event("stuck", job, 240)[0]
        assert "its slots are held" in d.call("job.why", id=job)["text"], d.call("job.why", id=job)
        assert d.call("daemon.info")["cpu_free"] == 0
        for end in pair:
            end.close()
        d.wait(job, "completed")
        d.check_rows(job, 40)


def who_has_a_lock_is_named():
    """A start finds the lock of the job's folder taken. The message must not name the session in the lock file, which
    is that of an earlier supervisor, if any."""
    with Daemon() as d:
        first = d.submit(1000000)
        d.wait(first, "running")
        job = d.submit(5)
        os.makedirs("%s/jobs/%d" % (d.state, job))
        with open("%s/jobs/%d/lock" % (d.state, job), "w") as lock:
            lock.write("%d\n" % d.session(first))
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            d.call("job.cancel", id=first)
            with open("/proc/self/comm") as f:
                words = "its supervisor cannot be started: process %d (%s) holds the lock of its folder, jobs/%d" % (os.getpid(),
                                                                                                                     f.read().strip(), job)
            d.until(lambda: words in d.call("job.why", id=job)["text"], "it does not say who has the lock")
        d.wait(job, "completed")


def what_holds_the_lock_does_not_die():
    """`why` and a single event say which process keeps the slots, and in which state it is."""
    with Daemon() as d:
        d.stop()
        faults = d.preload("kill")
        open(faults + "/kill", "w").close()
        d.start()
        leave_fault(d, 1, "helper 5")
        job = d.submit(40, env={"HOLD": "8"})
        d.held(job, 8)
        d.signal_supervisor(job, signal.SIGKILL)
        (killed,) = d.wait_event("kill", job)
        process = re.search(r"process (\d+) \(sleep, state [A-Z]\)", killed)
        assert process, killed
        text = "its slots are held: process %s (sleep, state S) was killed and does not end" % process[1]
        assert d.wait_event("stuck", job) == [text], d.events("stuck", job)
        assert d.call("job.why", id=job)["text"] == "has its slots and waits: " + text, d.call("job.why", id=job)
        assert d.call("daemon.info")["cpu_free"] == 0
        d.go(job)
        os.unlink(faults + "/kill")
        d.wait(job, "completed")  # at the next try
        assert d.events("stuck", job) == [text], d.events("stuck", job)
        d.check_rows(job, 40)


def the_wall_clock_is_moved():
    """The clock moves forward and back. Waits stay as long as they were, no silence is assumed, and stored rows have
    the time that the clock showed."""
    with Daemon() as d:
        d.stop()
        clock = MovedClock(d)
        d.start()
        job = d.submit(1000000, every=10)
        d.wait(job, lambda j: j["checkpoints"])
        for attempt, hours in ((1, -1), (2, 1), (3, 0), (4, -1)):
            clock.move(hours)
            saved = d.newest_checkpoint(job)
            time.sleep(1.5)  # detd looks at its deadlines once a second
            info = d.call("daemon.info")
            assert 0 <= info["uptime_s"] < 600 and info["cpu_free"] == 0, info
            assert d.job(job)["attempt"] == attempt and not d.events("kill", job), d.events("kill", job)
            d.until(lambda n=saved: d.newest_checkpoint(job) > n, "no checkpoint")  # or this would be one failure in a row too many
            d.kill_session(job)  # which waits a moment before the next one
            d.wait(job, lambda j, a=attempt: j["state"] == "running" and j["attempt"] == a + 1)
            newest = d.call("event.query", id=job, limit=1)["events"][0]
            lost = [e for e in d.call("event.query", id=job, limit=50)["events"] if e["kind"] == "supervisor_lost"][0]
            assert clock.shows(hours, lost["time"]), (hours, lost["time"] - time.time(), newest)
        clock.move(0)
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")
        clock.move(-1)
        late = d.submit(20)
        clock.move(1)
        assert clock.shows(-1, d.job(late)["submitted"]), d.job(late)["submitted"]
        d.wait(late, "completed")
        d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "slots are held")
        d.check_rows(late, 20)


def the_spool_is_lost():
    """The spool is missing, or cannot be read: its reports are lost, and the job ends with that error instead of
    starting again."""
    for damage in (os.unlink, lambda path: (os.unlink(path), os.mkdir(path))):
        with Daemon() as d:
            jobs = [d.submit(1000000, every=1000000, threads=1) for _ in range(2)]
            for job in jobs:
                d.wait(job, lambda j: j["step"] > 5)
            d.kill()
            for job in jobs:
                d.kill_session(job)
                d.wait_left(job)
                for name in ("spool.0", "spool.1"):
                    damage("%s/jobs/%d/%s" % (d.state, job, name))
            d.start()
            d.call("job.cancel", id=jobs[1])
            assert "spool lost: " in d.wait(jobs[0], "failed")["reason"]
            assert "spool lost: " in d.wait(jobs[1], "cancelled")["reason"]
            d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "the slots are not free")


def tries_without_room(d, job):
    """A start finds no room: for the spool, which its supervisor's log says, or earlier, for the files of its folder,
    which detd says."""
    return supervisor_log(d, job).count("No space left") + sum("spool" not in told for told in d.events("waits", job))


def no_room_for_the_spool():
    """A start waits, says why and counts as no death; jobs begin when there is room."""
    with Daemon(disk_mb=120) as d:
        holder = d.submit(1000000, ranks=4)
        d.wait(holder, "running")
        jobs = [d.submit(10, threads=1, restarts=0) for _ in range(4)]
        d.resize(55)  # the holder's spool, which is kept while it is paused, has 32, and one more finds no room
        d.call("job.pause", id=holder)
        for job in jobs:
            assert "No space left" in d.wait_event("waits", job)[0]
            assert "No space left" in d.call("job.why", id=job)["text"], d.call("job.why", id=job)
        d.until(lambda: all("cannot be started" in d.call("job.why", id=job)["text"] for job in jobs), "they do not wait")
        assert not d.events("supervisor_lost") and len(d.events("end")) == 1, d.events("end")
        d.until(lambda: tries_without_room(d, jobs[3]) > 3, "it is not tried again")
        for job in jobs:  # either of the two files may be the first to find no room
            told = d.events("waits", job)
            assert all(a != b for a, b in zip(told, told[1:])), "it is told again: %s" % told
        d.until(lambda: accepted(d, "job.cancel", id=jobs[0]), "it cannot be cancelled")  # a spool that is being made may have all the room
        d.wait(jobs[0], "cancelled")  # it never ran
        d.resize(200)
        for job in jobs[1:]:
            assert d.wait(job, "completed", 240)["attempt"] == 1  # the next try may be a minute away
            d.check_rows(job, 10)


def accepted(d, method, **params):
    try:
        d.call(method, **params)
        return True
    except Refused:
        return False


def the_disk_is_full():
    """A client gets the error at once, and its request is not carried out later. Running jobs continue, and all their
    reports are stored in the end."""
    with Daemon(disk_mb=120) as d:
        ended, broken = d.submit(10, every=7, threads=1), d.submit(10, threads=1, restarts=0)
        leave_fault(d, broken, "fault 5")
        d.wait(ended, "completed")
        d.wait(broken, "failed")
        ends = d.submit(40, every=10000, threads=1, env={"STEP_S": "0.01", "HOLD": "30"})
        job = d.submit(400, every=10000, threads=1, env={"STEP_S": "0.01", "HOLD": "300"})
        waiting = d.submit(10, ranks=4)  # of the whole node
        paused = d.submit(10, threads=1, priority=-1)
        d.call("job.pause", id=paused)
        d.wait(job, lambda j: j["step"] > 5)
        d.held(ends, 30)
        full = d.fill(cut_log=True)
        asked = [("job.checkpoint", dict(id=job)), ("job.eval", dict(id=job)), ("deterministic.set", dict(id=job, tier="world")),
                 ("deterministic.set", dict(tier="off")), ("job.resume", dict(id=paused)), ("job.priority", dict(id=job, priority=7)),
                 ("daemon.undrain", {})]
        for method, params in asked * 2:
            refused(d, method, **params)
        client = d.client()
        # a thread sees the full disk first, and a quick request may come before the loop knows it
        for method, params in [("job.extend", dict(id=ended, steps=20)), ("job.resume", dict(id=broken))] * 200:
            refused(client, method, **params)
        refused(d, "job.submit", spec={"model": {"preset": "yolov3_tiny"}, "data": {"train": {"annotations": "/a", "images": "/b"}},
                                       "train": {"steps": 1, "batch": 8}, "run": {"device": "cpu"}}, token="full")
        assert "full" in d.call("daemon.info")["trouble"], d.call("daemon.info")
        d.go(ends)
        d.until(
            lambda: d.call("job.why", id=ends)["text"] == "is completed, and is shown so once that is stored: " + d.call("daemon.info")[
                "trouble"], "it does not say why its end is not seen")
        assert d.job(ends)["state"] == "running"
        d.kill_session(job)  # its next start is to be stored first
        d.until(lambda: "till that is stored: detd.db cannot be written" in d.call("job.why", id=job)["text"],
                "it does not say why it waits")
        assert [d.job(j)["state"] for j in (job, waiting, paused)] == ["starting", "queued", "paused"]
        assert d.call("deterministic.get", id=job)["pending"] is None and d.call("daemon.info")["tier"] == "rerun"
        os.unlink(full)
        d.until(lambda: not d.call("daemon.info")["trouble"], "there is room, and it is not seen")
        d.go(job)
        done = d.wait(job, "completed")
        assert (done["attempt"], done["tier"]) == (2, "rerun") and [c["step"] for c in done["checkpoints"]] == [400], done["checkpoints"]
        d.check_rows(job, 400)
        d.wait(waiting, "completed")
        assert [d.job(j)["state"] for j in (paused, ended, broken, ends)] == ["paused", "completed", "failed", "completed"] and len(
            d.call("job.list")["jobs"]) == 6
        assert not [t for t in d.events("state", waiting) + d.events("state", job) if t in ("paused", "cancelled")]
        audit = [" ".join(t.split()[:2]) for t in d.events("audit")]
        assert sorted(audit) == ["pause by"] + 6 * ["submitted by"], audit  # a refused request leaves no audit event
        with open(d.root + "/log") as f:
            said = f.read()
        assert 0 < said.count("detd.db cannot be written") == said.count("detd.db is written again"), said  # it may have been full twice


NOT_STORED = "not on the disk yet: the disk is full. It is stored when there is room"


def what_ends_something_acts_at_once():
    """On a full disk, cancel, pause and drain act before they are stored, and the answer says so. A kill of detd undoes
    none of them, except a wish about a job that was never started."""
    with Daemon(disk_mb=200) as d:
        stored, ends, leaves, deaf = [d.submit(1000000, every=1000000, threads=1) for _ in range(4)]
        for job in (stored, ends, leaves, deaf):
            d.wait(job, lambda j: j["step"] > 5)
        d.call("job.pause", id=stored)
        d.wait(stored, "paused")
        waiting, other = d.submit(10, ranks=4), d.submit(10, ranks=4)
        full = d.fill(cut_log=True)
        d.signal_session(deaf, signal.SIGSTOP)
        for job, method in ((ends, "cancel"), (leaves, "pause"), (stored, "cancel"), (deaf, "cancel")) * 2:
            assert d.call("job." + method, id=job)["unstored"] == NOT_STORED, job
        refused(d, "job.resume", id=leaves)
        for job, method in ((waiting, "cancel"), (other, "pause")):
            assert d.call("job." + method, id=job)["unstored"] == NOT_STORED + ", and forgotten if detd ends before", job
        assert d.call("daemon.drain", reason="full") == {"drained": "full", "unstored": NOT_STORED}
        out = subprocess.run([BUILD + "/detctl", "--socket", d.path, "cancel", str(ends)], stdout=subprocess.PIPE, text=True,
                             check=True).stdout
        assert out.endswith("job %d: %s\n" % (ends, NOT_STORED)), out
        d.until(lambda: not d.members(ends) and not d.members(leaves), "they run on")
        assert [d.job(j)["state"] for j in (stored, waiting, other)] == ["cancelled", "cancelled", "paused"]
        assert is_stored(d, stored=stored, state="paused") and is_stored(d, stored=waiting, state="queued")
        d.kill()
        d.start()
        assert d.call("daemon.info")["drained"] == "full"
        assert [d.job(j)["state"] for j in (stored, deaf, waiting, other)] == ["cancelled", "stopping", "queued", "queued"]
        d.signal_session(deaf, signal.SIGCONT)
        d.until(lambda: not d.members(deaf), "it was told nothing")
        assert is_stored(d, stored=stored, state="paused") and is_stored(d, stored=deaf, state="running")
        os.unlink(full)
        for job, state in ((stored, "cancelled"), (ends, "cancelled"), (deaf, "cancelled"), (leaves, "paused")):
            d.wait(job, state)
            d.until(lambda: is_stored(d, stored=job, state=state), "it is not stored")
        d.until(lambda: not any(notes(d)), notes(d))
        d.call("daemon.undrain")
        d.call("job.resume", id=leaves)
        d.kill()
        d.start()
        assert d.call("daemon.info")["drained"] == ""
        d.wait(leaves, "running")
        assert "unstored" not in d.call("job.cancel", id=leaves)
        for job in (waiting, other):
            d.wait(job, "completed", 240)


def jobs_on_a_disk_of_their_own():
    """With jobs_mount = yes detd does not start without that disk. When it is full, the database still has room."""
    with Daemon(disk_mb=60) as d:
        d.stop()
        with open(d.root + "/conf", "a") as f:
            f.write("jobs_mount = yes\n")
        d.start(wait=False)
        assert d.proc.wait(60) == 1
        assert "jobs_mount: '%s/jobs' is no mount point" % os.path.realpath(d.state) in open(d.root + "/log").read()
        subprocess.run(["mount", "-o", "size=100m", "-t", "tmpfs", "detd-e2e", d.state + "/jobs"], check=True)
        d.start()
        job = d.submit(1000000, every=1000000, threads=1)
        d.wait(job, lambda j: j["step"] > 5)
        full = d.fill(folder=d.state + "/jobs")
        assert "unstored" not in d.call("job.cancel", id=job) and not d.call("daemon.info")["trouble"]
        d.wait(job, "cancelled")
        waits = d.submit(10)
        d.until(lambda: "No space left" in d.call("job.why", id=waits)["text"], "it does not say why it waits")
        os.unlink(full)
        d.call("job.resume", id=waits)
        d.wait(waits, "completed")
        d.call("job.rm", id=job)
        d.until(lambda: not os.path.exists("%s/jobs/%d" % (d.state, job)), "its folder stays")


def is_stored(d, stored, state):
    return d.sql("SELECT state FROM jobs WHERE id=?", stored) == [(state,)]


def notes(d):
    return [open(path, "rb").read().rstrip(b"\0") for path in glob.glob(d.state + "/jobs/*/want") + [d.state + "/drained"]]


def the_database_is_damaged_while_it_runs():
    """Nothing is written any more, users are told why, and the log says how to repair it. Jobs continue, and a copy of
    the database receives their reports."""
    with Daemon() as d:
        d.wait(d.submit(10), "completed")
        job = d.submit(60, every=10, env={"HOLD": "3"})
        d.wait(job, lambda j: j["step"] == 2)
        path = d.state + "/detd.db"
        d.until(lambda: os.path.getsize(path + "-wal") == 0,
                "an idle detd keeps what it has written in the WAL")  # nor does it remember pages
        shutil.copy(path, d.root + "/copy")
        with open(path, "r+b") as f:
            f.seek(4096)
            f.write(b"\xff" * (os.path.getsize(path) - 4096))
        d.go(job)
        d.until(lambda: "is damaged" in d.call("daemon.info")["trouble"], "nobody sees that the database is damaged")
        try:
            d.submit(5)
            assert False, "a job was accepted that cannot be stored"
        except Refused as e:
            assert e.reason == "CORRUPT" and "is damaged, and nothing was changed" in str(e), (e.reason, str(e))
        d.until(lambda: "job completed" in supervisor_log(d, job), "the job does not run on")
        damaged = open(path, "rb").read()
        d.stop()
        said = open(d.root + "/log").read()
        assert said.count("detd.db is damaged") == 1 and ".recover" in said, said
        assert open(path, "rb").read() == damaged, "a damaged database was written to"
        for name in ("", "-wal", "-shm"):
            if os.path.exists(path + name):
                os.unlink(path + name)
        shutil.copy(d.root + "/copy", path)
        d.start()
        assert len(d.wait(job, "completed")["attempts"]) == 1
        d.check_rows(job, 60)


def train_shapes(d, token="real", **run):
    """A small job of detd-worker: 60 steps, a checkpoint every 3."""
    data = d.root + "/shapes"
    os.path.isdir(data) or make_shapes(data, 16, 4, 96)
    split = {"annotations": data + "/train.json", "images": data + "/images"}
    return d.call("job.submit", token=token, spec={
        "model": {"preset": "yolov3_tiny", "size": 96, "width": 0.25}, "data": {"train": split}, "checkpoint": {"every": 3},
        "train": {"steps": 60, "batch": 4, "shards": 2, "log_every": 1}, "run": dict({"ranks": 2, "device": "cpu"}, **run)})["id"]


def install(d, programs):
    """Replaces the installed programs while they run, like `make install`. programs: {name: content}"""
    os.makedirs(d.root + "/new", exist_ok=True)
    for name, content in programs.items():
        with open(d.root + "/new/" + name, "wb") as f:
            f.write(content)
    subprocess.run(["install", "-t", d.bin] + [d.root + "/new/" + name for name in programs], check=True)


def results(d, job):
    with open("%s/jobs/%d/checkpoints/step-60/model.safetensors" % (d.state, job), "rb") as f:
        model = hashlib.sha256(f.read()).hexdigest()
    return model, d.sql("SELECT split, term, step, num, den, tier FROM loss WHERE job=? ORDER BY 1, 2, 3", job)


def an_upgrade_in_mid_job():
    """New programs are installed and detd is restarted. The job keeps the programs that it was started with, also in
    its next attempt, and ends like an undisturbed job."""
    with Daemon(foreign=False) as d:
        programs = {name: open(d.bin + "/" + name, "rb").read() for name in ("detd", "detd-job", "detd-worker")}
        job = train_shapes(d)
        d.until(lambda: d.newest_checkpoint(job), "no checkpoint")
        ranks = [pid for pid, name in d.members(job).items() if name == "detd-worker"]
        for pid in ranks:  # it is not to end before the upgrade has
            os.kill(pid, signal.SIGSTOP)
        install(d, {"detd": programs["detd"], "detd-job": b"#!/bin/false\n", "detd-worker": b"#!/bin/false\n"})
        d.stop()
        d.start()
        for pid in ranks:
            d.signal(pid, signal.SIGKILL)
        done = d.wait(job, "completed", 120)
        assert [a["attempt"] for a in done["attempts"]] == [2, 1] and not d.events("supervisor_lost", job), done["attempts"]
        assert done["attempts"][0]["identity"]["files"] == done["attempts"][1]["identity"]["files"], done["attempts"]
        install(d, programs)
        alone = train_shapes(d, token="undisturbed")
        assert d.wait(alone, "completed", 120)["attempt"] == 1
        assert results(d, job) == results(d, alone), (job, alone)


def a_checkpoint_without_room():
    """detd-worker trains on without the checkpoint. The checkpoint at the end of the job is retried until there is
    room."""
    with Daemon(foreign=False, disk_mb=200) as d:
        job = train_shapes(d, restarts=0)
        d.until(lambda: d.newest_checkpoint(job), "no checkpoint")
        d.signal_session(job, signal.SIGSTOP)
        full, before = d.fill(), d.newest_checkpoint(job)
        d.signal_session(job, signal.SIGCONT)
        d.wait(job, lambda j: j["step"] >= before + 7, 120)
        why = []
        d.until(
            lambda: why.append(d.call("job.why", id=job)["text"]) or re.search(
                "no room for the checkpoint of step 60: .*; it is tried until there is room$", why[-1]), why, 120)
        assert d.newest_checkpoint(job) in (before, before + 3), "there was room"  # one may have been written already
        assert d.job(job)["state"] == "running"
        os.unlink(full)
        done = d.wait(job, "completed", 120)
        assert done["attempt"] == 1 and done["checkpoints"][0]["step"] == 60, done["attempts"]
        assert any("no room for the checkpoint of step" in text for text in d.events("checkpoint", job)), d.events("checkpoint", job)
        rows = d.sql("SELECT step FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", job)
        assert [s for (s,) in rows] == list(range(1, 61)), rows


def refused(d, method, **params):
    try:
        d.call(method, **params)
        assert False, "%s was accepted on a full disk" % method
    except Refused as e:
        assert "the disk is full" in str(e) or "No space left" in str(e), str(e)


def state_folder_is_renamed():
    """detd leaves and says so, since it would store its data in a moved folder and could start no job."""
    with Daemon() as d:
        os.rename(d.state, d.state + ".away")
        assert d.proc.wait(60) == 1, d.proc.returncode
        assert "/detd.db' was removed, renamed or replaced" in open(d.root + "/log").read()
        os.rename(d.state + ".away", d.state)
        d.start()
        assert d.wait(d.submit(5), "completed")["step"] == 5


def database_is_replaced():
    """After any kind of replacement, new data would be lost, so detd leaves and says so. Running jobs are left alone."""
    def rename(path):
        os.rename(path, path + ".away")

    def replace(path):
        shutil.copy(path, path + ".new")
        os.rename(path + ".new", path)

    with Daemon() as d:
        job = d.submit(1000000, every=1000000)
        d.wait(job, "running")
        ranks = set(d.members(job))
        for change, name in (rename, "detd.db"), (replace, "detd.db"), (rename, "detd.db-wal"), (os.remove, "detd.db"):
            change(d.state + "/" + name)
            assert d.proc.wait(60) == 1, (change, d.proc.returncode)
            d.proc = None
            with open(d.root + "/log", encoding="utf-8") as log:
                assert "/%s' was removed, renamed or replaced" % name in log.read().splitlines()[-1], (change, name)
            assert all(os.path.exists("/proc/%d" % pid) for pid in ranks)
            if change is rename:
                os.rename(d.state + "/" + name + ".away", d.state + "/" + name)
            if change is not os.remove:
                d.start()
                assert d.job(job)["state"] in ("starting", "running")


def many_label_at_once():
    """Each client finds the tags of the clients before it; each granted change is logged once."""
    with Daemon() as d:
        job = d.submit(1000000)
        clients = [d.client() for _ in range(4)]
        for n, c in enumerate(clients):
            lines = [{"jsonrpc": "2.0", "id": k, "method": "job.label", "params": {"id": job, "tags": "+t%d-%d" % (n, k)}}
                     for k in range(4)]
            c.sock.sendall("".join(json.dumps(line) + "\n" for line in lines).encode())
        given = set()
        for n, c in enumerate(clients):
            for _ in range(4):
                msg = c.read()
                if "result" in msg:
                    given.add("t%d-%d" % (n, msg["id"]))
                else:
                    assert "is being changed by other requests" in msg["error"]["message"], msg
            c.close()
        assert given and set(d.job(job)["tags"]) == given, (given, d.job(job)["tags"])
        d.call("job.label", id=job, note="the last")
        d.until(lambda: len([t for t in d.events("audit", job) if t.startswith("label")]) > len(given), "an audit line is missing")
        assert len([t for t in d.events("audit", job) if t.startswith("label")]) == len(given) + 1, d.events("audit", job)


def say_at(d, step, line):
    """Rank 0 of later jobs runs this line once, at that step; line: Python of rank.py."""
    with open(d.bin + "/detd-worker", encoding="utf-8") as f:
        text = f.read()
    marked = "            self.fault(step)\n"
    assert marked in text
    with open(d.bin + "/detd-worker.new", "w", encoding="utf-8") as f:
        f.write(text.replace(marked, marked + "            if step == %d and self.rank == 0: %s\n" % (step, line), 1))
    os.chmod(d.bin + "/detd-worker.new", 0o755)
    os.replace(d.bin + "/detd-worker.new", d.bin + "/detd-worker")


def reports_that_cannot_be():
    """A report that detd cannot store is the rank's fault, and a report that is only too long is cut. No job waits for
    a report that never goes through."""
    lines = {
        "step": 'self.say("loss", split="train", step=(1 << 62) + 7, epoch=1.0, tier="rerun", time=time.time(), terms={"total": '
                '[1.0, 1.0]})',
        "deep": """self.sock.sendall(b'{"type":"loss","split":"train","step":20,"tier":"rerun","time":1.5,"terms":'"""
                """b'{"total":[1.0,1.0]},"x":' + b"[" * 2000 + b"]" * 2000 + b"}\\n")"""
    }
    for what, line in lines.items():
        with Daemon() as d:
            say_at(d, 20, line)
            failed = d.wait(d.submit(40, threads=1, restarts=0), "failed")
            assert "malformed report" in failed["reason"], (what, failed["reason"])
    for text in "'\\n' * 12500", "'\\n' * 30000", "('x' * 48 + '\\n') * 1290":
        with Daemon() as d:
            say_at(d, 20, 'self.say("event", level="info", kind="table", text=%s)' % text)
            job = d.submit(40, threads=1)
            d.wait(job, "completed")
            d.check_rows(job, 40)
            assert len(d.events("table", job)) == 1, d.events("table", job)


def half_of_a_spool_is_lost():
    """While detd is away, the older of two full segments is lost, or its head is damaged. The other segment is read,
    and the loss is reported."""
    for how in "removed", "damaged":
        with Daemon() as d:
            job = d.submit(1000, every=50, threads=1, env={"HOLD": "20", "STEP_S": "0"})
            d.held(job, 20)
            leave_fault(d, job, "flood 30")
            d.kill()
            d.go(job)
            paths = ["%s/jobs/%d/spool.%d" % (d.state, job, i) for i in (0, 1)]

            def first(path):
                with open(path, "rb") as f:
                    return struct.unpack("<8sQ", f.read(16))[1]
            d.until(lambda: first(paths[1]) > 0, "there is no second segment")
            d.kill_session(job)
            d.wait_left(job)
            older, newer = sorted(paths, key=first)
            begins = first(newer)
            if how == "removed":
                os.unlink(older)
            else:
                with open(older, "r+b") as f:
                    f.write(bytes(512))
            d.start()
            assert "to %d of the job are lost" % (begins - 1) in d.wait_event("reports_lost", job)[0], d.events("reports_lost", job)
            d.call("job.cancel", id=job)
            ended = d.wait(job, lambda j: j["state"] in ("cancelled", "failed", "completed"))
            assert ended["state"] == "cancelled", ended
            d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "its slots are not free")


def an_older_database_under_a_live_job():
    """The database lacks reports, and the spool has only the newer ones of them: the job continues and ends."""
    with Daemon() as d:
        job = d.submit(600, every=50, threads=1, env={"STEP_S": "0.002", "HOLD": "400"})
        d.wait(job, lambda j: j["step"] > 50)
        copy_database(d)
        d.held(job, 400)
        d.kill()
        put_back_database(d)
        d.start()
        d.go(job)
        done = d.wait(job, "completed")
        assert done["step"] == 600 and done["attempt"] == 1, done
        steps = [s for (s,) in d.sql("SELECT step FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", job)]
        assert steps == list(range(1, 601)), "the spool had them all: %d rows" % len(steps)


def a_lock_that_is_removed():
    """A job never runs twice: a supervisor with a removed lock makes room for the supervisor that detd starts."""
    with Daemon() as d:
        job = d.submit(1000000, every=50, threads=1)
        d.wait(job, lambda j: j["step"] > 60)
        before = set(d.members(job))
        d.signal_supervisor(job, signal.SIGSTOP)
        d.kill()
        os.unlink("%s/jobs/%d/lock" % (d.state, job))
        d.start()
        d.until(lambda: "another detd-job of the job lives" in d.call("job.why", id=job)["text"], "the spool of one is the other's, too")
        for pid in before:
            with contextlib.suppress(ProcessLookupError):  # a rank may have left meanwhile
                os.kill(pid, signal.SIGCONT)
        d.wait(job, lambda j: j["attempt"] > 1 and j["state"] == "running")
        d.until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in before), "two supervisors of one job")
        d.call("job.cancel", id=job)
        d.wait(job, "cancelled")


SCENARIOS = [
    what_holds_the_lock_does_not_die, a_silent_supervisor_is_killed, no_room_for_the_spool, budget_counts_from_the_newest_checkpoint,
    a_lock_that_stays_held, who_has_a_lock_is_named, an_upgrade_in_mid_job, ends_without_a_supervisor, the_wall_clock_is_moved,
    supervisor_cannot_be_started, a_supervisor_that_says_nothing, a_cancelled_job_whose_supervisor_says_nothing,
    a_tier_for_a_step_that_never_comes, pauses_do_not_count, a_folder_that_cannot_be_used, a_lock_that_is_no_file,
    a_checkpoint_without_room, the_spool_is_lost, a_fifo_in_a_folder, a_forgotten_job_is_not_run_again, runs_to_the_end,
    the_database_is_damaged_while_it_runs, job_ends_while_nobody_listens, spools_go_with_their_jobs, what_looks_like_a_spent_spool_is_kept,
    ends_outlive_an_older_database, an_end_that_nobody_reported_outlives_an_older_database, numbers_are_not_given_again,
    budget_counts_from_a_checkpoint_that_nobody_told_of, supervisor_dies, a_checkpoint_starts_the_count_anew, commands, many_label_at_once,
    reports_that_cannot_be, half_of_a_spool_is_lost, an_older_database_under_a_live_job, a_lock_that_is_removed, trainer_cannot_be_opened,
    another_database_while_a_job_runs, the_node_shuts_down, the_terminal_is_closed, the_disk_is_full, what_ends_something_acts_at_once,
    jobs_on_a_disk_of_their_own, state_folder_is_renamed, database_is_replaced
]

# scenarios with disks of their own, which other processes must not see
PRIVATE = [no_room_for_the_spool, the_disk_is_full, what_ends_something_acts_at_once, jobs_on_a_disk_of_their_own,
           a_checkpoint_without_room]

run_scenarios(SCENARIOS, PRIVATE)
