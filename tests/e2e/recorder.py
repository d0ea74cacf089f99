#!/usr/bin/env python3
"""The evidence that training leaves: the same whatever the number of ranks, waves and kills, and hashes of what the
checkpoint holds. A bit is flipped in the weights of a rank that runs: other ranks notice, or the next attempt, or a
verification of the job."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys

import evidence
from daemon import BUILD, Daemon
from ranks import PATIENCE_S, SLOTS, arrays, base_spec, draw, finish, merged, run_keys, strike, struck, submit

RECORD, RING = 128, 256
STEPS, SAVED = 14, 4
STILL = {"train": {"lr": 1e-30, "weight_decay": 0}}  # so small that weights stay as they are: they can be found in memory
POINT = "module_list.13.conv_13.weight"              # a convolution of 1 x 1: stored as it is trained


def folder(d, job):
    return "%s/jobs/%d" % (d.state, job)


def records(d, job):
    """Returns [(step, attempt, ranks, the training's result, its chain)]"""
    with open(folder(d, job) + "/evidence.log", "rb") as f:
        log = f.read()
    assert len(log) % RECORD == 0, len(log)
    found = [log[at:at + RECORD] for at in range(0, len(log), RECORD)]
    return [struct.unpack_from("<qIH", r) + (r[15:104], r[104:120]) for r in found]


def detail(d, job, step):
    """{(part, tensor): (lane 0, lane 1)} of gradients and weights"""
    with open(folder(d, job) + "/evidence.json", encoding="utf-8") as f:
        head = json.load(f)
    n, shards = len(head["tensors"]), head["shards"]
    size = 16 + 16 * (2 * shards + 3 + 2 * n)
    with open(folder(d, job) + "/evidence.ring", "rb") as f:
        f.seek(step % RING * size)
        found = f.read(size)
    assert struct.unpack_from("<q", found)[0] == step, (step, found[:8])
    hashes = list(struct.iter_unpack("<QQ", found[8 + 16 * (2 * shards + 3):-8]))
    names = [t[0] for t in head["tensors"]]
    return {(part, name): hashes[i * n + k] for i, part in enumerate(("gradient", "weight")) for k, name in enumerate(names)}


def events(d, job, kind):
    return [text for (text,) in d.sql("SELECT text FROM events WHERE job=? AND kind=? ORDER BY id", job, kind)]


# ---- undisturbed, other ranks, killed ----

def agree(d, base):
    """Checks jobs that must leave the same evidence. Returns the first."""
    kinds = [("1 rank", {}), ("2 ranks, 2 waves", merged(run_keys(ranks=2), {"train": {"waves": 2}})), ("8 ranks", run_keys(ranks=8))]
    jobs = [(what, submit(d, merged(base, keys), what)) for what, keys in kinds]
    jobs.append(("3 ranks, killed", struck(d, merged(base, run_keys(ranks=3)), "3 ranks, killed", SAVED + 1, random.Random(1))))
    for what, job in jobs:
        finish(d, job)
        have, want = records(d, job), records(d, jobs[0][1])
        assert len(have) == STEPS and len({r[3] for r in have}) == STEPS, what
        for a, b in zip(want, have):
            assert a[3] == b[3], "%s: step %d leaves other evidence than with 1 rank" % (what, b[0])
            assert (a[4] == b[4]) == ("waves" not in what), "%s: step %d: the chain starts from the keys of the job" % (what, b[0])
        assert not events(d, job, "determinism") and not events(d, job, "evidence"), what
    attempts = [r[1] for r in records(d, jobs[-1][1])]
    assert attempts[0] == 1 and attempts[-1] >= 2, attempts  # one more where it made room for the job that needs all slots
    print("%d jobs: %d steps of equal evidence" % (len(jobs), STEPS))
    return jobs[0][1]


# ---- the hashes are those of the stored data ----

def product(word, key):
    return (word + key & 0xFFFFFFFF) * ((word >> 32) + (key >> 32) & 0xFFFFFFFF)


def hash_tensor(name, numbers):
    """proto/hash/hash.h, in other words: blocks of 1024 numbers, as if zeros followed the last."""
    keys = [evidence.mix((j + 1) * evidence.GAMMA & evidence.MASK, evidence.MUL[0]) for j in range(513)]
    kappa, sums = evidence.hash_name(name), [0, 0]
    for b, at in enumerate(range(0, len(numbers), 1024)):
        block = struct.pack("<%df" % len(numbers[at:at + 1024]), *numbers[at:at + 1024]).ljust(4096, b"\0")
        words = struct.unpack("<512Q", block)
        for lane in range(2):
            h = sum(product(w, keys[j + lane]) for j, w in enumerate(words)) & evidence.MASK
            sums[lane] += evidence.mix(h ^ (kappa + (b + 1) * evidence.GAMMA & evidence.MASK), evidence.MUL[lane])
    return tuple(s & evidence.MASK for s in sums)


def check_hashes(d, job):
    """The weights' hashes are those of the numbers in the checkpoint, for trained and for frozen weights."""
    found, model = detail(d, job, STEPS), arrays("%s/checkpoints/step-%d/model.safetensors" % (folder(d, job), STEPS))
    names = [n for n in model if "conv" not in n or n == POINT or n.endswith(".bias")]
    assert POINT in names and len(names) > 40, names
    for name in names:
        assert hash_tensor(name, model[name]) == found["weight", name], name
        assert ("running" in name) == (found["gradient", name] == (0, 0)), name
    print("%d weights hashed by other means: the same" % len(names))


# ---- a bit that flips ----

def places(pid, pattern):
    """Yields addresses of the pattern in memory that the process may write."""
    with open("/proc/%d/maps" % pid, encoding="utf-8") as maps, open("/proc/%d/mem" % pid, "rb") as mem:
        for line in maps:
            span, rights = line.split()[:2]
            lo, hi = (int(x, 16) for x in span.split("-"))
            if not rights.startswith("rw") or "/dev/shm" in line or hi - lo > 1 << 30:  # a sanitizer keeps terabytes
                continue
            try:
                mem.seek(lo)
                data = mem.read(hi - lo)
            except (OSError, ValueError):
                continue
            at = data.find(pattern)
            while at >= 0:
                yield lo + at
                at = data.find(pattern, at + 1)


def stopped(pid):
    """All its threads are."""
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, thread), encoding="utf-8") as f:
            if f.read().rsplit(")", 1)[1].split()[0] != "T":
                return False
    return True


def flip(pid, pattern):
    """Flips the lowest bit of the pattern's fifth number in all places. The process is stopped meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    Daemon.until(lambda: stopped(pid), "it is not stopped")
    found = list(places(pid, pattern))
    with open("/proc/%d/mem" % pid, "r+b", buffering=0) as mem:
        for at in found:
            mem.seek(at + 16)
            mem.write(bytes([pattern[16] ^ 1]))
    os.kill(pid, signal.SIGCONT)
    assert found, "the weights are nowhere"


def train_still(d, base, what, steps, **run):
    """Returns a job with weights that do not change, after its only checkpoint, and the first bytes of its weights."""
    spec = merged(merged(base, STILL), {"train": {"steps": steps}, "val": {"every": 0}, "checkpoint": {"every": 0}, "run": run})
    job = submit(d, spec, what)
    d.wait(job, lambda j: j["step"] > 2, PATIENCE_S)
    d.call("job.checkpoint", id=job)
    d.wait(job, lambda j: j["checkpoints"], PATIENCE_S)
    (first,) = [c["path"] for c in d.job(job)["checkpoints"]][-1:]
    numbers = arrays("%s/model.safetensors" % os.path.join(folder(d, job), first))[POINT]
    return job, struct.pack("<16f", *numbers[:16])


def check_ranks(d, base):
    """Rank 1 of three goes wrong: the others say so, and the job continues from its last checkpoint, or fails if it may
    not restart."""
    job, pattern = train_still(d, base, "one of three", 800, ranks=3)
    flip(d.rank_pid(job, 1), pattern)
    ended = finish(d, job)
    reasons = [a["reason"] for a in ended["attempts"]]
    assert ended["attempt"] == 2 and any("rank 1 has other weights" in r and POINT in r for r in reasons), reasons
    assert not events(d, job, "determinism"), events(d, job, "determinism")
    job, pattern = train_still(d, base, "one of two", 100000, ranks=2, on_corruption="fail")
    flip(d.rank_pid(job, 1), pattern)
    ended = d.wait(job, lambda j: j["state"] in ("completed", "failed"), PATIENCE_S)
    assert ended["state"] == "failed" and "ranks 0 and 1 have different weights" in ended["reason"] and POINT in ended["reason"], ended[
        "reason"]
    print("a bit in one rank: %s" % ended["reason"])


def check_again(d, base):
    """The only rank goes wrong and dies: its next attempt trains the same steps with another result."""
    job, pattern = train_still(d, base, "alone, killed", 100000, ranks=1)
    flip(d.rank_pid(job, 0), pattern)
    at = d.job(job)["step"]
    d.wait(job, lambda j: j["step"] > at + 2, PATIENCE_S)
    strike(d, job, "detd-worker", random.Random(1))
    d.until(lambda: events(d, job, "determinism"), "nobody noticed", PATIENCE_S)
    d.call("job.cancel", id=job)
    d.wait(job, "cancelled", PATIENCE_S)
    (said,) = events(d, job, "determinism")
    assert "came out differently than in an earlier attempt: " in said, said
    print("a bit in a rank that died: %s" % said)


def check_verify(d, base):
    """Verifying a run with a flipped bit finds the step and the tensor, from the beginning and from a checkpoint."""
    job, pattern = train_still(d, base, "alone", 100000, ranks=1)
    flip(d.rank_pid(job, 0), pattern)
    at = d.job(job)["step"]
    d.wait(job, lambda j: j["step"] > at + 2, PATIENCE_S)
    d.call("job.pause", id=job)
    d.wait(job, "paused", PATIENCE_S)
    steps = [r[0] for r in records(d, job)]
    wrong = next(b for a, b in zip(steps, steps[1:]) if detail(d, job, a)["weight", POINT] != detail(d, job, b)["weight", POINT])
    (saved,) = [c["step"] for c in d.job(job)["checkpoints"] if c["step"] < wrong]
    spec = json.loads(d.sql("SELECT spec FROM specs WHERE job=?", job)[0][0])
    for begin in (0, saved):
        again = submit(d, merged(spec, {"errand": {"evidence": folder(d, job), "from": begin, "to": steps[-1]}}), "verify from %d" % begin)
        ended = d.wait(again, lambda j: j["state"] in ("completed", "failed"), PATIENCE_S)
        assert ended["state"] == "failed" and ended["reason"].startswith("step %d differs: " % wrong), (
            wrong, ended["reason"])  # in the middle of a step: its gradients too
        assert ended["attempts"][0]["resume_step"] == begin and not os.path.exists(folder(d, again) + "/checkpoints"), ended["attempts"]
    again = submit(d, merged(spec, {"errand": {"evidence": folder(d, job), "from": 0, "to": wrong - 1}, "run": {"ranks": 2}}),
                   "verify the rest")
    assert finish(d, again)["reason"] == "equal: steps 1 .. %d" % (wrong - 1), d.job(again)["reason"]
    print("a bit in a run that is verified: %s" % ended["reason"])


# ---- verification against the evidence of other runs ----

def alone(root, name, spec):
    """Returns the last record of a worker that runs alone."""
    with open("%s/%s.job" % (root, name), "w", encoding="utf-8") as f:
        json.dump(spec, f)
    done = subprocess.run([BUILD + "/detd-worker", "--dir", "%s/%s" % (root, name), f.name], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def verifying(spec, folder, to, **more):
    return merged(merged(spec, {"errand": {"evidence": folder, "from": 0, "to": to}}), more)


def refused(root, name, spec, why, kind="user"):
    ended = alone(root, name, spec)
    assert ended["outcome"] == "failed" and why in ended["reason"] and ended["class"] == kind, (name, ended)


def check_refusals(root, base):
    """Evidence of any other job is refused before a step is trained; the folder of the refused job stays as it was."""
    spec = merged(base, {"train": {"steps": 6}, "checkpoint": {"every": 3}})
    assert alone(root, "one", spec)["outcome"] == "completed"
    log = root + "/one/evidence.log"
    size = os.path.getsize(log)
    assert alone(root, "again", verifying(spec, root + "/one", 6))["reason"] == "equal: steps 1 .. 6"
    refused(root, "nowhere", verifying(spec, root + "/nothing", 6), "nothing")
    refused(root, "keys", verifying(spec, root + "/one", 6, train={"lr": 0.5}), "a run with other keys")
    refused(root, "own", verifying(spec, root + "/own", 6), "own")
    os.truncate(root + "/again/evidence.log", 4 * RECORD)
    refused(root, "short", verifying(spec, root + "/again", 6), "has no evidence of step 5")
    shutil.copytree(root + "/one", root + "/large")
    with open(root + "/large/evidence.json", encoding="utf-8") as f:
        head = json.load(f)
    head["tensors"] += [["more.%d" % i, 1, True] for i in range(30000)]
    with open(root + "/large/evidence.json", "w", encoding="utf-8") as f:
        json.dump(head, f)
    refused(root, "other", verifying(spec, root + "/large", 6), "another network")
    assert alone(root, "less", merged(spec, {"run": {"evidence": "losses"}}))["outcome"] == "completed"
    said = alone(root, "lesser", verifying(spec, root + "/less", 6))["reason"]
    assert said == "equal: steps 1 .. 6, data and losses alone", said
    assert alone(root, "one", merged(spec, {"train": {"lr": 0.5}}))["outcome"] == "failed"
    assert os.path.getsize(log) == size, "who is refused his checkpoint has lost his evidence"
    shutil.copytree(root + "/one", root + "/pipe")
    os.unlink(root + "/pipe/identity.json")
    os.mkfifo(root + "/pipe/identity.json")
    assert alone(root, "piped", verifying(spec, root + "/pipe", 6))["reason"] == "equal: steps 1 .. 6"
    os.makedirs(root + "/none/evidence.json.tmp")
    ended = alone(root, "none", spec)
    assert ended["outcome"] == "completed", ended  # a record that is only a proof ends no training
    assert not os.path.exists(root + "/none/evidence.json")
    print("evidence of anything else is refused")


def check_asked_for(d, base):
    """A validation that a user asked for after the last checkpoint is not repeated by the next attempt, which is no difference."""
    spec = merged(base, {"train": {"steps": 400}, "val": {"every": 0}, "checkpoint": {"every": 0}})
    job = submit(d, spec, "asked for")
    d.wait(job, lambda j: j["step"] > 2, PATIENCE_S)
    d.call("job.checkpoint", id=job)
    d.wait(job, lambda j: j["checkpoints"], PATIENCE_S)
    d.call("job.eval", id=job)
    d.until(lambda: d.sql("SELECT 1 FROM eval WHERE job=?", job), "no validation", PATIENCE_S)
    at = d.job(job)["step"]
    d.wait(job, lambda j: j["step"] > at + 2, PATIENCE_S)
    assert strike(d, job, "detd-worker", random.Random(1)), "it was over before it could be killed"
    finish(d, job)
    assert not events(d, job, "determinism"), events(d, job, "determinism")


def main():
    with Daemon(foreign=False, slots=SLOTS) as d:
        draw(d.root + "/shapes")
        base = base_spec(d.root + "/shapes")
        calm = agree(d, merged(base, {"train": {"steps": STEPS}, "checkpoint": {"every": SAVED}}))
        check_hashes(d, calm)
        check_refusals(d.root, base)
        check_asked_for(d, base)
        try:
            with open("/proc/self/mem", "r+b"):
                pass
        except OSError as e:
            print("SKIP: memory of processes cannot be written here: %s" % e)
            sys.exit(77)
        check_ranks(d, base)
        check_again(d, base)
        check_verify(d, base)


main()
