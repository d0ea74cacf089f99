"""Each prefix of the log of a disk, and each prefix without one of the changes that were not durable, checked without a
daemon: the database is whole and has what was accepted and acked, the spool is read to its durable end and holds
nothing else, and each checkpoint that has its name has the same content as when it got the name. A dropped change of
one of the three changes nothing in the others, so each is checked by itself. Among moments without a change of a part,
only the last is checked, after most messages."""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import ctypes
import os
import re
import sqlite3
import subprocess
import tempfile

import disk

WORDS = {"database": "/detd.db", "spool": "/spool.", "checkpoints": "/checkpoints"}
SEGMENT = 16 << 20  # supervisor/spool/spool.h


def belongs(change, part):
    return (WORDS[part] in change.path and not change.path.endswith("-shm")) or change.kind == "mkdir"


def states_of(log, part, end):
    """Yields (moment, the dropped change or None)."""
    changes = [c for c in log.changes if belongs(c, part)]
    for moment in sorted({c.at for c in changes} | {c.durable for c in changes if c.durable is not None} | {end}):
        if 0 < moment <= end:
            yield moment, None
            for c in changes:
                if c.at < moment and (c.durable is None or c.durable >= moment):
                    yield moment, c


class Looks:
    """accepted: the event that said so; acks: (event, number); published: (event, the event's record, step); gone: the
    event that removes the spool; newest(moment): the last step that was durable under its name."""

    def __init__(self, log, where, accepted, acks, published, gone, newest):
        self.log, self.where, self.accepted, self.acks, self.newest = log, where, accepted, acks, newest
        self.ends = {"database": len(log.events), "spool": gone, "checkpoints": len(log.events)}
        self.whole = {step: self.contents(disk.State(log, log.before(at)), log.named_at(at)) for at, _, step in published}
        self.folder, self.spool, self.records = None, None, {}

    def state(self, part, moment, dropped):
        return disk.State(self.log, [c for c in self.log.before(moment) if c is not dropped and belongs(c, part)])

    @staticmethod
    def contents(state, folder):
        return {name: state.bytes(file) for name, file in state.folders[folder].items()}

    @contextlib.contextmanager
    def put(self, files):
        """Yields a new folder with these files of a state, {name: (state, file)}."""
        with tempfile.TemporaryDirectory(prefix="detd-e2e-", dir=self.folder) as folder:
            for name, (state, file) in files.items():
                state.write_file("%s/%s" % (folder, name), file)
            yield folder

    # ---- the database ----

    def look_at_database(self, moment, dropped):
        state = self.state("database", moment, dropped)
        names = ("detd.db", "detd.db-wal", "detd.db-journal")
        with self.put({n: (state, state.find("state/" + n)) for n in names if state.find("state/" + n)}) as folder:
            with contextlib.closing(sqlite3.connect(folder + "/detd.db")) as db:
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "the database is damaged"
                has_jobs = db.execute("SELECT count(*) FROM sqlite_master WHERE name='jobs'").fetchone()[0]
                jobs = db.execute("SELECT token, last_seq FROM jobs").fetchall() if has_jobs else []
        assert moment <= self.accepted or [token for token, _ in jobs] == ["once"], "an accepted job is lost"
        acked = max([seq for at, seq in self.acks if at < moment], default=0)
        assert acked == 0 or jobs[0][1] >= acked, "report %d was acked, and the last one stored is %d" % (acked, jobs[0][1])

    # ---- the spool ----

    def scan(self, state):
        """Returns its records, as supervisor/spool/spool.c reads them."""
        files = {"spool.%d" % i: (state, state.find("%s/spool.%d" % (self.where, i))) for i in range(2)}
        files = {name: file for name, file in files.items() if file[1]}
        if not files:
            return []
        err, spool = ctypes.create_string_buffer(4096), ctypes.c_void_p()
        cursor, payload, length, seq = ctypes.create_string_buffer(64), ctypes.c_char_p(), ctypes.c_size_t(), ctypes.c_uint64()
        found, lib = [], self.spool
        with self.put(files) as folder:
            assert lib.spool_open(folder.encode(), ctypes.c_size_t(SEGMENT), ctypes.c_uint64(0), ctypes.byref(spool),
                                  err) == 0, "it does not open"
            assert lib.spool_lost(spool) == 0, "records were lost in its midst"
            assert lib.spool_seek(spool, ctypes.c_uint64(0), cursor, err) == 0
            while lib.spool_next(spool, cursor, ctypes.byref(payload), ctypes.byref(length), ctypes.byref(seq), err) == 1:
                found.append((seq.value, payload.value))
            lib.spool_close(spool)
        return found

    def records_of(self, moment, changes):
        """Returns the records after these changes; each list of changes is read once."""
        key = (len(changes), changes[-1].at if changes else 0)
        if key not in self.records:
            self.records[key] = self.scan(disk.State(self.log, changes))
        return self.records[key]

    def look_at_spool(self, moment, dropped):
        mine = [c for c in self.log.before(moment) if belongs(c, "spool")]
        every = self.records_of(moment, mine)
        assert [seq for seq, _ in every] == list(range(1, len(every) + 1)), every
        if dropped:
            safe = self.records_of(moment, [c for c in mine if c.durable is not None and c.durable < moment])
            left = self.scan(disk.State(self.log, [c for c in mine if c is not dropped]))
            assert left == every[:len(left)], "a spool has what nobody has written"
            assert len(left) >= len(safe), "of %d records that were durable %d are left" % (len(safe), len(left))

    # ---- checkpoints ----

    def look_at_checkpoints(self, moment, dropped):
        state = self.state("checkpoints", moment, dropped)
        folder = state.find(self.where + "/checkpoints")
        names = state.folders[folder] if folder in state.folders else {}
        steps = {int(m[1]): file for name, file in names.items() for m in [re.fullmatch(r"step-(\d+)", name)] if m}
        assert max(steps, default=0) >= self.newest(moment), "a published checkpoint is lost"
        for step, file in steps.items():
            assert self.contents(state, file) == self.whole[step], "checkpoint %d is not what it was when it got its name" % step

    # ---- all ----

    def run(self, sources, most, rng):
        """most: of each part, drawn; 0: all. Returns (looked at, there are)."""
        done = count = 0
        with tempfile.TemporaryDirectory(prefix="detd-e2e-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as self.folder:
            self.spool = ctypes.CDLL(build_spool(sources, self.folder))
            self.spool.spool_lost.restype = ctypes.c_uint64
            for part, end in self.ends.items():
                states = list(states_of(self.log, part, end))
                some = rng.sample(states, min(most or len(states), len(states)))
                for moment, dropped in sorted(some, key=lambda s: s[0]):
                    try:
                        getattr(self, "look_at_" + part)(moment, dropped)
                    except (AssertionError, sqlite3.Error) as e:
                        raise AssertionError("%s, at event %d of %d, without %s: %s" %
                                             (part, moment, len(self.log.events), dropped, e)) from e
                done, count = done + len(some), count + len(states)
        return done, count


def build_spool(sources, folder):
    path = folder + "/spool.so"
    subprocess.run(["gcc", "-std=c17", "-O1", "-w", "-D_GNU_SOURCE", "-I", sources, "-shared", "-fPIC", "-o", path] +
                   [sources + "/" + name for name in ("supervisor/spool/spool.c", "proto/err.c", "proto/host/folder.c")], check=True)
    return path
