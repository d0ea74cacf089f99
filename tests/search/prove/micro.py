"""Runs the ranks of a small job as detd-job does, but for its watching: one call trains a job folder to its end, with
kills where they were asked for."""  # SPDX-License-Identifier: Apache-2.0
import collections
import fcntl
import json
import mmap
import os
import select
import signal
import socket
import struct
import time

PATIENCE_S = 600  # of one run
SLACK = 3  # steps after which a kill no longer waits for its phase, which was too short to be seen
PHASES = ["starting", "wait_go", "check_data", "load_checkpoint", "data", "forward", "backward", "reduce", "sync_bn", "optimizer",
          "report_wait", "validate", "checkpoint", "ending", "plan"]
FD_CONTROL, FD_COMM, FD_PROGRESS = 3, 4, 5
HIGH = 10  # descriptors of ours are above those of ranks

# The moment of a kill: as soon as rank 0 is in that phase of a step >= step (phase None: in any phase), plus so many
# seconds. Phase "publish": its checkpoint is to be published, before the answer is sent; "published": after it.
Kill = collections.namedtuple("Kill", "step phase delay")


class Broken(Exception):
    """A run that did not end as it should; the text says how."""


def high(fd):
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    finally:
        os.close(fd)


class Rank:
    def __init__(self, folder, program, comm, place, env):
        """place: rank, ranks, attempt."""
        rank, ranks, attempt = place
        ours, theirs = socket.socketpair()
        page = high(os.memfd_create("progress"))
        os.ftruncate(page, mmap.PAGESIZE)
        self.page, self.sock, self.buffer, self.open = mmap.mmap(page, mmap.PAGESIZE), ours, b"", True
        control = high(theirs.detach())
        log = os.open("%s/rank-%d.log" % (folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        argv = [
            program, "--job-dir", folder, "--rank",
            str(rank), "--ranks",
            str(ranks), "--local-rank",
            str(rank), "--attempt",
            str(attempt)
        ]
        places = [(os.POSIX_SPAWN_DUP2, fd, at)
                  for fd, at in ((log, 1), (log, 2), (control, FD_CONTROL), (comm, FD_COMM), (page, FD_PROGRESS))]
        try:
            self.pid = os.posix_spawn(program, argv, env, file_actions=places)
        finally:
            for fd in (control, page, log):
                os.close(fd)

    def say(self, **message):
        try:
            self.sock.sendall((json.dumps(message) + "\n").encode())
        except OSError:
            pass  # it has just died, and another place handles that

    def hear(self):
        """Returns the output since the last call, or None at the end."""
        try:
            got = self.sock.recv(1 << 16)
        except ConnectionError:
            got = b""
        if not got:
            self.open = False
            return None
        *lines, self.buffer = (self.buffer + got).split(b"\n")
        return [json.loads(line) for line in lines]

    def at(self):
        """(finished steps, phase)"""
        (step,), (phase,) = struct.unpack_from("<Q", self.page, 24), struct.unpack_from("<I", self.page, 32)
        return step, PHASES[phase]

    def end(self):
        """Kills the remaining processes, returns the status."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.sock.close()
        self.page.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Attempt:
    """All ranks, from hello to their end. It fills rows, the measured values by (split, step), and errors, messages
    that should not appear."""

    def __init__(self, folder, program, ranks, number, env, rows, errors):
        comm = high(os.memfd_create("comm"))
        self.rows, self.errors, self.number, self.outcome, self.hellos, self.pending = rows, errors, number, None, 0, None
        try:
            self.ranks = [Rank(folder, program, comm, (r, ranks, number), env) for r in range(ranks)]
        finally:
            os.close(comm)

    def close(self):
        for rank in self.ranks:
            rank.end()

    def measured(self, message):
        key = "%s step %d" % (message.get("split", "eval"), message["step"])
        if message["type"] == "eval":
            key += " " + next(iter(message["metrics"]))  # metrics may come in several records
        row = json.dumps({k: v for k, v in message.items() if k not in ("time", "images_per_s", "tier", "type")}, sort_keys=True)
        if self.rows.setdefault(key, row) != row:
            self.errors.append("%s was measured twice: %s and %s" % (key, self.rows[key], row))

    def take(self, rank, message):
        kind = message["type"]
        if kind == "hello":
            self.hellos += 1
            if self.hellos == len(self.ranks):
                for r in self.ranks:
                    r.say(type="go", nccl_id=None, store_id=None, attempt=self.number, tiers=[])
        elif kind in ("loss", "eval"):
            self.measured(message)
        elif kind == "checkpoint" and message["phase"] == "ready":
            self.pending = (rank, message["step"])
        elif kind == "event" and message["level"] == "error":
            self.errors.append("attempt %d said: %s" % (self.number, message["text"]))
        elif kind == "end":
            if message["outcome"] != "completed":
                raise Broken("attempt %d ended as %s: %s" % (self.number, message["outcome"], message["reason"]))
            if rank is self.ranks[0]:
                self.outcome = message["outcome"]

    def publish(self):
        if self.pending:
            self.pending[0].say(type="publish", step=self.pending[1])
            self.pending = None

    def due(self, kill):
        step, phase = self.ranks[0].at()
        if kill.phase in ("publish", "published"):
            return self.pending is not None and self.pending[1] >= kill.step
        return step >= kill.step and (kill.phase in (None, phase) or step > kill.step + SLACK)

    def strike(self, kill):
        if kill.phase == "published":
            self.publish()
        time.sleep(kill.delay)

    def run(self, kill, until):
        """True: trained to the end; False: was killed."""
        while any(r.open for r in self.ranks):
            if time.monotonic() > until:
                raise Broken("no end after %d s; ranks are at %s" % (PATIENCE_S, [r.at() for r in self.ranks]))
            ready, _, _ = select.select([r.sock for r in self.ranks if r.open], [], [], 0.0005 if kill else 0.2)
            for rank in [r for r in self.ranks if r.sock in ready]:
                for message in rank.hear() or []:
                    self.take(rank, message)
            if kill and self.due(kill):
                self.strike(kill)
                return False
            self.publish()
        if not self.outcome:
            raise Broken("attempt %d: the ranks left without a word" % self.number)
        return True


def train(folder, spec, program, env, kills=(), ranks=()):
    """Trains the job in an existing folder to its end. ranks: of each attempt in turn, the last one's of all that
    follow; default: run.ranks. Returns (rows, attempts, errors)."""
    rows, errors, until, number, kills = {}, [], time.monotonic() + PATIENCE_S, 0, list(kills)
    ranks = list(ranks) or [spec["run"]["ranks"]]
    while True:
        number += 1
        now = ranks.pop(0) if len(ranks) > 1 else ranks[0]
        with open(folder + "/spec.json", "w", encoding="utf-8") as f:
            json.dump(dict(spec, run=dict(spec["run"], ranks=now, ranks_per_gpu=min(now, 8))), f)
        attempt = Attempt(folder, program, now, number, env, rows, errors)
        try:
            if attempt.run(kills.pop(0) if kills else None, until):
                return rows, number, errors
        except Broken as e:
            raise Broken("%s%s" % (e, last_words(folder))) from None
        finally:
            attempt.close()


def last_words(folder):
    try:
        with open(folder + "/rank-0.log", encoding="utf-8", errors="replace") as f:
            said = f.read().strip().splitlines()
    except OSError:
        said = []
    return "; rank 0 said: " + said[-1] if said else ""
