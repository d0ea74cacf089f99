#!/usr/bin/env python3
"""Loss of power. A small job runs under detd and detd-job with tests/stand/mock/disk.c preloaded in all three programs,
which writes down each change of the disk, each sync and each message. First, the log itself: everything that a message
reports as done was durable before the message was sent. Then states of the disk that a loss of power would have left:
each prefix of the log, and each prefix without one change that was not durable, is checked (prefixes.py). From some
states, with any of those changes being there or not, the programs continue: the job ends with the rows and weights of
an undisturbed one, and no published checkpoint is lost. SEED: of the random choices; STATES, PREFIXES: their number.
"""  # SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import disk
import prefixes
from daemon import HERE, SANITIZED, SEED, Daemon, Refused, make_shapes

STEPS, SAVED, VALIDATED = 20, 4, 10  # the first validation is the best so far, so step VALIDATED is saved as well
STATES = int(os.environ.get("STATES", "150" if os.environ.get("TEST_LONG") else "14"))
PREFIXES = int(os.environ.get("PREFIXES", "0"))  # of each part, to save time; 0: all
JOB = "jobs/1"
WHERE = "state/" + JOB  # in the folder that is watched
VOLATILE = ("detd.db-shm", "sup.sock", "log")  # of no meaning after a start, or not durable by intention
PATIENCE_S = 240


def spec(data, env):
    def split(name):
        return {"annotations": "%s/%s.json" % (data, name), "images": data + "/images"}

    return {
        "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.125}, "data": {"train": split("train"), "val": split("val")},
        "train": {"steps": STEPS, "batch": 4, "shards": 2, "log_every": 1, "lr": 0.002}, "val": {"every": VALIDATED},
        "checkpoint": {"every": SAVED, "keep": 2}, "run": {"device": "cpu", "threads": 1, "env": env}
    }


def submit(d, data, env):
    return d.call("job.submit", spec=spec(data, env), token="once")["id"]


def found(d, job):
    """Returns rows, scores and the weights that a job leaves."""
    rows = d.sql("SELECT split, term, step, epoch, num, den FROM loss WHERE job=? ORDER BY 1, 2, 3", job)
    scores = d.sql("SELECT metric, step, value FROM eval WHERE job=? ORDER BY 1, 2", job)
    with open("%s/%s/checkpoints/step-%d/model.safetensors" % (d.state, JOB, STEPS), "rb") as f:
        return rows, scores, hashlib.sha256(f.read()).hexdigest()


def finish(d, job):
    done = d.wait(job, lambda j: j["state"] in ("completed", "failed", "cancelled"), PATIENCE_S)
    assert done["state"] == "completed", (done["state"], done["reason"])
    return done


# ---- the watched programs ----

class Watched(Daemon):
    """The shim is preloaded in detd by its environment, in detd-job by a script in its place, in detd-worker by run.env."""

    def __init__(self, shim):
        super().__init__(foreign=False)
        self.log = self.root + "/disk.log"
        self.env = {"LD_PRELOAD": shim, "DISK_ROOT": os.path.realpath(self.root), "DISK_LOG": self.log}
        os.mkdir(self.bin + "/real")
        for name in ("detd-job", "detd-worker"):
            os.rename("%s/%s" % (self.bin, name), "%s/real/%s" % (self.bin, name))
        with open(self.bin + "/detd-job", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n%s\nexec '%s/real/detd-job' \"$@\"\n" % ("\n".join("export %s='%s'" % v
                                                                                   for v in self.env.items()), self.bin))
        os.chmod(self.bin + "/detd-job", 0o755)
        open(self.log, "w", encoding="utf-8").close()

    def has_said(self, word, since):
        """Returns whether the log has the word behind that place."""
        with open(self.log, "rb") as f:
            f.seek(since)
            return word in f.read()


def record(shim, data):
    """Runs a job with a tier change, during which detd is killed, then its rank; in the end detd stops. Returns the
    watched daemon, which has stopped, or None if the job went too fast."""
    d = Watched(shim)
    with contextlib.ExitStack() as undo:
        undo.push(d)
        d.start()
        job = submit(d, data, d.env)
        d.wait(job, lambda j: j["step"] >= 2, PATIENCE_S)
        rank = next((pid for pid, name in d.members(job).items() if name == "detd-worker"), None)
        if rank is None:
            return None
        d.signal(rank, signal.SIGSTOP)  # the job cannot end before it hears of the tier
        try:
            d.call("deterministic.set", id=job, tier="world")
        except Refused:
            return None
        d.kill()
        said = os.path.getsize(d.log)
        d.start()
        d.until(lambda: d.has_said(b'"world"', said), "detd does not pass the tier on", PATIENCE_S)
        d.signal(rank, signal.SIGCONT)
        d.until(lambda: d.newest_checkpoint(job) >= 2 * SAVED, "no checkpoint", PATIENCE_S)
        for pid, name in d.members(job).items():
            if name == "detd-worker":
                d.signal(pid, signal.SIGKILL)
        if finish(d, job)["attempt"] != 2 or not d.sql("SELECT 1 FROM tiers WHERE job=? AND tier='world'", job):
            return None  # it was over before its rank could be killed, or its tier changed
        d.wait_left(job)
        d.until(lambda: not os.path.exists("%s/%s/spool.0" % (d.state, JOB)), "the spool stays", PATIENCE_S)
        d.stop()
        os.rename(d.log, d.log + ".kept")  # programs that are not watched have the name in their environment, too
        undo.pop_all()
    return d


def check_whole(log, d):
    """The log is complete: all its changes together give the files on the disk."""
    made = disk.State(log, log.changes)
    for folder, _, names in os.walk(d.state):
        if "/log" in folder:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if name not in VOLATILE:
                with open(path, "rb") as f:
                    assert made.read(os.path.relpath(path, d.root)) == f.read(), "'%s' is not what the log makes of it" % path


# ---- state on the disk when a message is sent ----

class Says:
    """Returns [(event, program, object)] of the lines in messages that are JSON objects."""

    def __init__(self, log):
        self.lines = []
        for at, e in enumerate(log.events):
            if e.what == "say":
                for text in e.data.split(b"\n"):
                    try:
                        self.lines.append((at, e.program, json.loads(text), text))
                    except ValueError:
                        continue

    def of(self, program, **members):
        return [(at, msg) for at, p, msg, _ in self.lines
                if p == program and isinstance(msg, dict) and all(msg.get(k) == v for k, v in members.items())]


def query(state, sql):
    """Returns the rows of the database in a state of the disk, after checking it."""
    with tempfile.TemporaryDirectory(prefix="detd-e2e-") as folder:
        for name in ("detd.db", "detd.db-wal", "detd.db-journal"):
            if state.find("state/" + name):
                state.write_file("%s/%s" % (folder, name), state.find("state/" + name))
        with contextlib.closing(sqlite3.connect(folder + "/detd.db")) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "the database is damaged"
            return db.execute(sql).fetchall()


def durable_rows(log, moment, sql):
    try:
        return query(disk.State(log, log.durable(moment)), sql)
    except sqlite3.OperationalError as e:  # nothing of it is there
        return [("nothing: %s" % e,)]


def check_database(log, says):
    """A job is stored when it is accepted, all data that its supervisor needs when that starts, and a report when it is
    acked."""
    (accepted,) = [at for at, msg in says.of("detd", jsonrpc="2.0") if msg.get("result") == {"id": 1}][:1]
    assert durable_rows(log, accepted, "SELECT token FROM jobs") == [("once",)], "a job was accepted and not stored"
    started = next(at for at, e in enumerate(log.events) if e.program == "detd-job")
    assert durable_rows(log, started,
                        "SELECT attempt, length(nonce) > 0 FROM jobs") == [(1, 1)], "a supervisor was started that is not stored"
    # each process needs syncs of its own: it may find changes that another process could not sync any more
    for pid in {log.events[at].pid for at, _ in says.of("detd", type="welcome")}:
        first = next(at for at, e in enumerate(log.events) if e.pid == pid and e.what == "say")
        assert any(e.pid == pid and e.what == "synced" and "/detd.db" in e.path
                   for e in log.events[:first]), "detd tells what may not be durable"
    acks = [(at, msg["seq"]) for at, msg in says.of("detd", type="ack") if msg["seq"] > 0]
    for at, seq in acks:
        have = durable_rows(log, at, "SELECT last_seq FROM jobs")
        assert have[0][0] >= seq if isinstance(have[0][0], int) else False, "report %d was acked, stored was %s" % (seq, have)
    assert len(acks) > 5, acks
    return accepted, acks


def spool(state):
    return state.read(WHERE + "/spool.0") + state.read(WHERE + "/spool.1")


def same_folder(log, moment, folder):
    """The content of the folder is durable."""
    have, want = disk.State(log, log.durable(moment)), disk.State(log, log.before(moment))
    assert want.folders[folder], "an empty checkpoint"
    assert have.folders[folder] == want.folders[folder], "names in a checkpoint are not durable: %s" % log.pending(moment)
    for name, file in want.folders[folder].items():
        assert have.bytes(file) == want.bytes(file), "%s in a checkpoint is not durable" % name


def check_checkpoints(log, says):
    """Order of a checkpoint: reports before the word to publish, the checkpoint before its name, the name before it is
    reported, the end of the old name before the end of the old files."""
    published = [(at, e, int(m[1])) for at, e in enumerate(log.events) for m in [re.search(r"/step-(\d+)$", e.to)]
                 if e.what == "rename" and m]
    assert [step for _, _, step in published] == sorted({*range(SAVED, STEPS + 1, SAVED), VALIDATED}), published
    told = {msg["step"]: at for at, msg in says.of("detd-worker", type="checkpoint", phase="published")[::-1]}
    ready = {msg["step"]: at for at, msg in says.of("detd-worker", type="checkpoint", phase="ready")}
    words = {msg["step"]: at for at, msg in says.of("detd-job", type="publish")}
    for at, msg in says.of("detd-worker", type="checkpoint", phase="published"):  # also by a process that continues after a killed one
        pid = log.events[at].pid
        assert any(e.what == "synced" and e.pid == pid and e.path.endswith("/checkpoints") for e in log.events[:at]), \
            "step %d is said to be published by a process that cannot know whether its name is durable" % msg["step"]
    for at, e, step in published:
        assert ready[step] < words[step] < at, "step %d was published at %d without the word, which came at %s" % (step, at,
                                                                                                                   words.get(step))
        kept = spool(disk.State(log, log.durable(words[step])))
        for said, program, msg, text in says.lines:
            # the last message of a killed process may be lost; the next process repeats it
            same = log.events[said].pid == log.events[ready[step]].pid
            if program == "detd-worker" and same and said < ready[step] and msg["type"] in ("loss", "eval", "data"):
                assert text in kept, "checkpoint %d was to be published before this was durable: %s" % (step, text)
        same_folder(log, at, log.named_at(at))
        evidence = disk.State(log, log.durable(at)).read(WHERE + "/evidence.log")
        assert len(evidence) >= 128 * step, "evidence of step %d was not durable" % step
        have = disk.State(log, log.durable(told[step]))
        assert have.find("%s/checkpoints/step-%d" % (WHERE, step)), "step %d was said to be published, and its name was not durable" % step
        same_folder(log, told[step], have.find("%s/checkpoints/step-%d" % (WHERE, step)))
    return published


def check_removals(log):
    """A published checkpoint loses its name before any of its files is removed."""
    count = 0
    for at, e in enumerate(log.events):
        m = re.search(r"checkpoints/\.tmp-step-(\d+)/[^/]+$", e.path)
        if e.what == "remove" and m:
            assert not disk.State(log, log.durable(at)).find("%s/checkpoints/step-%s" %
                                                             (WHERE, m[1])), "'%s' goes while its checkpoint has its name" % e.path
            count += 1
    assert count > 0, "no checkpoint was removed"


def check_names(log):
    """A file that gets its final name has its final contents."""
    files = [(at, e) for at, e in enumerate(log.events) if e.what == "rename"]
    for at, e in files:
        file = log.named_at(at)
        if file not in log.folders:
            assert disk.State(log,
                              log.durable(at)).bytes(file) == disk.State(log,
                                                                         log.before(at)).bytes(file), "'%s' got its name too early" % e.to
    assert len({os.path.basename(e.to) for _, e in files}) >= 4, files


def check_folder(log):
    """Files that detd leaves in a job's folder for its supervisor are durable before the supervisor begins, and the
    record of the job's end before the spool is removed."""
    started = next(at for at, e in enumerate(log.events) if e.program == "detd-job")
    have = disk.State(log, log.durable(started))
    for name in ("store", "spec.json"):
        assert have.find("%s/%s" % (WHERE, name)), "a supervisor was started and the name of '%s' was not durable" % name
    (gone,) = [at for at, e in enumerate(log.events) if e.what == "remove" and e.path.endswith("/spool.0")]
    assert b'"completed"' in disk.State(log, log.durable(gone)).read(WHERE + "/end"), "a spool was removed before its job's end was durable"


def check_tiers(log, says):
    """The tiers are durable before the first rank begins, independently of the rank's own syncs."""
    (go, _), *_ = says.of("detd-job", type="go")
    have = disk.State(log, log.durable(go))
    for name in ("store", "spec.json", "spool.0", "spool.1", "tiers"):
        assert have.find("%s/%s" % (WHERE, name)), "a job began and the name of its '%s' was not durable" % name
    words = says.of("detd-job", type="tier_ok")  # two tiers, if detd was killed before it knew of the first
    assert words and {word["tier"] for _, word in words} == {"world"}, words
    for at, word in words:
        have = disk.State(log, log.durable(at))
        assert have.read(WHERE + "/tiers").endswith(b"%d world\n" % word["step"]), "a change of tier was agreed and not durable"
        assert b'"type":"tier","step":%d' % word["step"] in spool(have), "nor its report"


# ---- states ----

class Chosen:
    def __init__(self, moment, what, changes):
        self.moment, self.what, self.changes = moment, what, changes


def torn(change):
    """Half of a write."""
    return disk.Change(change.at, change.of, change.kind, change.offset, change.data[:len(change.data) // 2], path=change.path)


def states_at(log, moment, rng):
    """Yields the states with all changes, with the durable changes, and with all but one change that was not durable."""
    pending, before = [c for c in log.pending(moment) if not c.path.endswith("-shm")], log.before(moment)
    yield Chosen(moment, "all of it", before)
    yield Chosen(moment, "what is durable", log.durable(moment))
    if pending:
        one = rng.choice(pending)
        yield Chosen(moment, "without %s" % one, [c for c in before if c is not one])
        if one.kind == "write" and len(one.data) > 1:
            yield Chosen(moment, "half of %s" % one, [torn(c) if c is one else c for c in before])
        some = {c for c in pending if rng.randrange(2)}
        yield Chosen(moment, "without %d of %d" % (len(some), len(pending)), [c for c in before if c not in some])


def choose(log, rng):
    """Half of the moments are beside important events: a rename, a sync, a message."""
    marked = [
        at + i for at, e in enumerate(log.events) for i in (0, 1)
        if e.what in ("rename", "remove", "synced") or (e.what == "say" and re.search(rb'"(ack|publish|published|tier_ok|result)"', e.data))
    ]
    moments = rng.sample(sorted(set(marked)), min(STATES, len(set(marked)))) + rng.sample(range(len(log.events)),
                                                                                          min(STATES, len(log.events)))
    every = [s for m in moments for s in states_at(log, m, rng)]
    rng.shuffle(every)
    return every[:STATES], every


def newest(published, log, moment):
    """Returns the last step with a checkpoint that was durable under its name. An older checkpoint is replaced only
    later."""
    found = [(log.change_at[at].durable, step) for at, _, step in published]
    return max([step for durable, step in found if durable is not None and durable < moment], default=0)


def recover(log, chosen, data, env, accepted, published, calm):
    """The programs continue from a state."""
    d = Daemon(foreign=False)
    state, began = disk.State(log, chosen.changes), time.time()
    with contextlib.ExitStack() as undo:
        undo.push(d)
        try:
            if state.find("state"):
                os.mkdir(d.state)
                state.write(d.state, state.find("state"), left_out=lambda name: name in VOLATILE)
            d.start()
            jobs = d.call("job.list")["jobs"]
            assert len(jobs) == 1 if chosen.moment > accepted else len(jobs) <= 1, "an accepted job is lost"
            assert submit(d, data, env) == 1
            done = finish(d, 1)
            assert found(d, 1) == calm, "other rows or weights"
            if done["attempts"][0]["started"] > began:
                assert done["attempts"][0]["resume_step"] >= newest(published, log,
                                                                    chosen.moment), ("a published checkpoint is lost", done["attempts"])
            for kind in ("conflict", "spool_damaged", "determinism", "folder", "checkpoint"):
                assert not d.events(kind), d.events(kind)
            assert not [n for n in os.listdir("%s/%s/checkpoints" %
                                              (d.state, JOB)) if n.endswith(".bad")], "a published checkpoint was damaged"
        except Exception as e:
            raise AssertionError("from event %d of %d on, with %s: %s" % (chosen.moment, len(log.events), chosen.what, e)) from e


def main():
    if SANITIZED:
        print("a sanitizer's runtime has to come before what is preloaded")
        sys.exit(77)
    rng, began = random.Random(SEED), time.time()
    with contextlib.ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="detd-e2e-"))
        data, shim = folder + "/shapes", folder + "/disk.so"
        make_shapes(data, 8, 3, 64)
        subprocess.run(["gcc", "-std=c17", "-O1", "-Wall", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", shim, HERE + "/../stand/mock/disk.c"],
                       check=True)
        with Daemon(foreign=False) as d:
            job = submit(d, data, {})
            finish(d, job)
            calm = found(d, job)
        d = next(filter(None, (record(shim, data) for _ in range(8))))
        undo.callback(shutil.rmtree, d.root)
        log = disk.Disk(d.log + ".kept", d.root, ("log", "conf"))
        says = Says(log)
        check_whole(log, d)
        accepted, acks = check_database(log, says)
        published = check_checkpoints(log, says)
        check_removals(log)
        check_names(log)
        check_folder(log)
        check_tiers(log, says)
        print("ok order: %d events, %d changes, %d acks, %d checkpoints (%.1f s)" %
              (len(log.events), len(log.changes), len(acks), len(published), time.time() - began))
        began = time.time()
        (gone,) = [at for at, e in enumerate(log.events) if e.what == "remove" and e.path.endswith("/spool.0")]
        looks = prefixes.Looks(log, WHERE, accepted, acks, published, gone, lambda moment: newest(published, log, moment))
        print("ok %d of %d prefixes, most without one change (%.1f s)" % (*looks.run(HERE + "/../..", PREFIXES, rng), time.time() - began),
              flush=True)
        some, every = choose(log, rng)
        for chosen in every[:20 * STATES]:
            if disk.State(log, chosen.changes).find("state/detd.db"):
                query(disk.State(log, chosen.changes), "SELECT 1")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda c: recover(log, c, data, d.env, accepted, published, calm), some):
                pass
        print("ok %d states of the disk, %d of the database, seed %d (%.1f s)" %
              (len(some), len(every[:20 * STATES]), SEED, time.time() - began))


main()
