#!/usr/bin/env python3
"""The same bits whatever the number of ranks. Every job of a group must store the rows and the model of the group's
first job, which a single rank trained: other ranks, threads, waves, ISAs and tiers, ranks and supervisors killed at
random moments, a tier changed in mid-job, averaged weights, another optimizer, a larger network, an input that is no
square."""  # SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time

from daemon import BUILD, HERE, SANITIZED, Daemon, make_shapes, tensors_of

SEED = int(os.environ.get("RANKS_SEED", "1"))
SLOTS = 8
PATIENCE_S = 1800 if SANITIZED else 900  # limit for jobs that hang
LONG_STEPS = 60
LOG_EVERY = 3  # of the long job; val.every is no multiple of it


def merged(spec, more):
    """Returns a copy of spec with the keys of `more`, which may be nested, put in."""
    out = dict(spec)
    for key, value in more.items():
        out[key] = merged(spec.get(key, {}), value) if isinstance(value, dict) else value
    return out


def base_spec(data):
    """Validation shards of 4 out of 11 images: the last one is smaller. The images of an epoch are no multiple of the batch."""

    def split(name):
        return {"annotations": "%s/%s.json" % (data, name), "images": data + "/images"}

    return {"name": "ranks", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.125},
            "data": {"train": split("train"), "val": split("val"), "augment": {"scale": 0.2}},
            "train": {"steps": 7, "batch": 16, "shards": 8, "log_every": 2, "lr": 0.005, "lr_steps": [], "burn_in": 0},
            "val": {"every": 3, "batch": 4}, "run": {"device": "cpu", "threads": 1, "ranks": 1}}


def mask_spec(data):
    """A Mask R-CNN of few channels and few proposals, from scratch, over data with masks; pictures are drawn at two sizes."""
    split = {name: {"annotations": "%s/%s.json" % (data, name), "images": data + "/images"} for name in ("train", "val")}
    return {
        "name": "masks", "data": split, "model": {
            "preset": "mask_rcnn_r18_fpn", "width": 0.125, "fpn_channels": 16, "head_channels": 32, "mask_channels": 8,
            "min_size": [48, 64], "max_size": 96, "anchors": [8, 16, 32, 48, 64], "rpn_batch": 64, "rpn_pre_nms": 100,
            "rpn_pre_nms_val": 100, "rpn_post_nms": 50, "rpn_post_nms_val": 50, "roi_batch": 32
        }, "train": {"steps": 5, "batch": 4, "shards": 4, "log_every": 1, "lr": 0.005, "burn_in": 0}, "val": {"every": 5, "batch": 2},
        "run": {"device": "cpu", "threads": 1, "ranks": 1}
    }


def sparse_spec(data):
    """A Sparse R-CNN of few channels from scratch, with batch normalisation, whose pictures are drawn at two sizes and cut."""
    split = {name: {"annotations": "%s/%s.json" % (data, name), "images": data + "/images"} for name in ("train", "val")}
    return {
        "name": "sparse", "data": dict(split, augment={"crop": 0.5}), "model": {
            "preset": "sparse_rcnn_r18_fpn", "width": 0.125, "fpn_channels": 16, "proposals": 12, "stages": 2, "heads": 4,
            "dynamic_channels": 8, "ffn_channels": 32, "min_size": [48, 64], "max_size": 96
        }, "train": {"steps": 5, "batch": 8, "shards": 8, "log_every": 1, "lr": 0.001, "burn_in": 0}, "val": {"every": 5, "batch": 2},
        "run": {"device": "cpu", "threads": 1, "ranks": 1}
    }


def frames_spec(data):
    """Depth, motion and features with few channels, all of them trained."""
    return {"name": "depth", "data": {name: {"annotations": "%s/%s.txt" % (data, name), "images": data} for name in ("train", "val")},
            "model": {"preset": "featdepth_joint_r18", "width": 0.125, "size": [96, 96], "pose_size": [64, 64], "sync_bn": True},
            "train": {"steps": 5, "batch": 4, "shards": 4, "log_every": 1, "lr": 0.001, "burn_in": 0}, "val": {"every": 5, "batch": 2},
            "run": {"device": "cpu", "threads": 1, "ranks": 1}}


def isas():
    """Returns the ISAs of this CPU, the best first."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        flags = next((line.split() for line in f if line.startswith("flags")), [])
    needs = {"avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}, "avx2": {"avx2", "fma", "bmi2"}, "generic": set()}
    return [name for name, need in needs.items() if need <= set(flags)]


# ---- the results of a job ----

def rows(d, job):
    """Returns {name of a row: (bits, tier)} of all measured values; tier is None in rows without a tier."""
    found = {}
    for split, term, step, epoch, num, den, tier in d.sql(
            "SELECT split, term, step, epoch, num, den, tier FROM loss WHERE job=? ORDER BY step, split, term", job):
        found["%s step %d %s" % (split, step, term)] = (struct.pack("<ddd", epoch, num, den).hex(), tier)
    for metric, step, value in d.sql("SELECT metric, step, value FROM eval WHERE job=? ORDER BY step, metric", job):
        found["eval step %d %s" % (step, metric)] = ("undefined" if value is None else struct.pack("<d", value).hex(), None)
    return found


def models(d, job, file="model"):
    """{step: hash} of every checkpoint that is kept"""
    found, folder = {}, "%s/jobs/%d/checkpoints" % (d.state, job)
    for name in sorted(os.listdir(folder), key=lambda n: int(n.split("-")[1])):
        with open("%s/%s/%s.safetensors" % (folder, name, file), "rb") as f:
            found[int(name.split("-")[1])] = hashlib.sha256(f.read()).hexdigest()
    return found


def told(bits):
    """Returns the numbers in a row's bits: epoch, num, den of a loss, or a metric's value."""
    try:
        raw = bytes.fromhex(bits)
    except ValueError:
        return bits
    return "%s %s" % (bits, struct.unpack("<%dd" % (len(raw) // 8), raw))


def of_both(a, b):
    """Returns two jobs' checkpoints of the same steps, the last among them: a job that made room for another has a
    checkpoint more."""
    both = a.keys() & b.keys()
    assert max(both) == max(a.keys() | b.keys()), (a, b)
    return {step: a[step] for step in both}, {step: b[step] for step in both}


def same(d, first, job, what):
    """Compares rows without their tier, and models of the same steps."""
    want, have = rows(d, first), rows(d, job)
    for name in list(want) + [n for n in have if n not in want]:
        a, b = want.get(name, ("no such row",))[0], have.get(name, ("no such row",))[0]
        assert a == b, "%s: first difference to job %d is job %d, row '%s': %s instead of %s" % (what, first, job, name, told(b), told(a))
    a, b = of_both(models(d, first), models(d, job))
    assert a == b, "%s: same rows, but the models of job %d %s are not those of job %d %s" % (what, job, b, first, a)


def submit(d, spec, what):
    return d.call("job.submit", spec=spec, token=what)["id"]


def over(now):
    return now["state"] in ("completed", "failed", "cancelled")


def finish(d, job):
    now = d.wait(job, over, PATIENCE_S)
    assert now["state"] == "completed", "job %d: %s: %s" % (job, now["state"], now["reason"])
    return now


# ---- variants ----

def run_keys(**run):
    return {"run": run}


def variants(sync_bn):
    """Returns (name, keys) of jobs that must not differ; the others are compared with the first."""
    have = isas()
    few = [("1 rank", run_keys(deterministic="rerun"))]
    few += [("%d ranks, tier %s" % (p, tier), run_keys(ranks=p, deterministic=tier))
            for p, tier in ((2, "off"), (3, "world"), (4, "rerun"), (5, "off"), (7, "world"))]
    few += [("%d ranks, 2 threads" % p, run_keys(ranks=p, threads=2)) for p in (1, 3)]
    few += [("%d ranks, %s" % (p, isa), run_keys(ranks=p, isa=isa)) for p, isa in zip((2, 3), have[1:])]
    if sync_bn:
        return few
    many = [("4 ranks again", run_keys(ranks=4, deterministic="rerun")), ("as many ranks as shards", run_keys(ranks=8))]
    many += [("1 rank, tier %s" % tier, run_keys(deterministic=tier)) for tier in ("off", "world")]
    many += [("%d ranks, 2 waves" % p, merged(run_keys(ranks=p), {"train": {"waves": 2}})) for p in (1, 2, 3)]
    many += [("3 ranks, 2 waves, 2 threads, %s" % have[-1], merged(run_keys(ranks=3, threads=2, isa=have[-1]), {"train": {"waves": 2}}))]
    return few + many


def check_moved(d, job):
    """Equal rows of a training without changes would prove nothing."""
    totals = [v for (v,) in d.sql("SELECT value FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", job)]
    hashes = models(d, job)
    # a job that made room has more
    assert totals[-1] < 0.9 * totals[0] and len(set(hashes.values())) == len(hashes) and {3, 6, 7} <= set(hashes), (totals, hashes)
    assert {(r.split()[0], int(r.split()[2])) for r in rows(d, job)} >= {(s, n) for s in ("val", "eval") for n in (3, 6, 7)}, rows(d, job)


# ---- kills and a tier that changes ----

def long_spec(base):
    """Log windows are open across checkpoints, and network sizes vary."""
    return merged(base, {"data": {"augment": {"multiscale": True, "size_min": 32, "size_max": 96}},
                         "train": {"steps": LONG_STEPS, "log_every": LOG_EVERY, "lr": 0.002}, "val": {"every": 7},
                         "checkpoint": {"every": 4}, "run": {"restarts": 20}})


def strike(d, job, name, rng):
    """Sends SIGKILL to a process of the job with that name, and waits for it if the job is just starting again. Returns
    False if the job is over."""
    until = time.time() + PATIENCE_S
    while time.time() < until:
        found = [pid for pid, command in sorted(d.members(job).items()) if command == name]
        try:
            if found:
                os.kill(rng.choice(found), signal.SIGKILL)
                return True
        except ProcessLookupError:
            pass
        if over(d.job(job)):
            return False
        time.sleep(0.005)
    raise AssertionError("job %d has no %s to kill" % (job, name))


def struck(d, spec, what, step, rng):
    """Returns a job with a rank that was killed after that step. If the job was over by then, another job is started."""
    for i in range(8):
        job = submit(d, spec, "%s, %d" % (what, i))
        d.wait(job, lambda j: j["step"] >= step or over(j), PATIENCE_S)
        if strike(d, job, "detd-worker", rng) and d.wait(job, lambda j: j["attempt"] >= 2 or over(j), PATIENCE_S)["attempt"] >= 2:
            return job
    raise AssertionError("%s: over before it could be killed" % what)


def kill_at_random(d, job, rng):
    """Kills a rank, then detd-job, then both at once, and again; each at a random moment after a random step. Returns
    the number of kills, which is lower if the job was over by then."""
    kills = 0
    for at, names in zip((3, 12, 22, 32, 42), (["detd-worker"], ["detd-job"], ["detd-worker", "detd-job"], ["detd-worker"], ["detd-job"])):
        step = at + rng.randrange(6)
        d.wait(job, lambda j, s=step: j["step"] >= s or over(j), PATIENCE_S)
        time.sleep(rng.uniform(0, 0.06))
        for name in names:
            kills += strike(d, job, name, rng)
    return kills


def killed_at_random(d, spec, rng):
    """Returns the ended job, and how often it was killed. On a busy machine the job may end before it is killed: then
    another job is started."""
    for i in range(8):
        job = submit(d, merged(spec, run_keys(ranks=3)), "3 ranks, killed, %d" % i)
        kills = kill_at_random(d, job, rng)
        ended = finish(d, job)
        if ended["attempt"] >= 5 and max(a["resume_step"] for a in ended["attempts"]) >= 30:
            return job, kills
    raise AssertionError("over before it could be killed: %s" % ended["attempts"])


def change_tier(d, job):
    """Returns whether the tier was agreed in time."""
    d.wait(job, lambda j: j["step"] >= 3, PATIENCE_S)
    done = subprocess.run([BUILD + "/detctl", "--socket", d.path, "deterministic", "on", "--tier", "world", "--job", str(job)], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        assert over(d.job(job)), done.stderr
        return False
    d.until(lambda: len(tiers(d, job)) == 2 or over(d.job(job)), "no tier", PATIENCE_S)
    return len(tiers(d, job)) == 2 and tiers(d, job)[1][0] < LONG_STEPS - 10


def toggled(d, spec):
    for i in range(8):
        job = submit(d, merged(spec, run_keys(ranks=2, deterministic="off")), "2 ranks, tier changed, %d" % i)
        if change_tier(d, job):
            return job
    raise AssertionError("over before its tier could be changed")


def tiers(d, job):
    return d.sql("SELECT step, tier FROM tiers WHERE job=? ORDER BY step", job)


def check_tiers(d, job):
    """From the agreed step on, and only there, rows have the new tier."""
    agreed = tiers(d, job)
    assert len(agreed) == 2 and agreed[0] == (1, "off") and agreed[1][1] == "world", agreed
    start = agreed[1][0]
    assert 3 < start < LONG_STEPS - 10 and (start - 1) % LOG_EVERY == 0, agreed
    for name, (_, tier) in rows(d, job).items():
        step = int(name.split()[2])
        assert tier in (None, "world" if step >= start else "off"), "row '%s' is of tier %s; world was agreed from step %d on" % (
            name, tier, start)
    return start


def disturb(d, base, rng):
    """Returns the long jobs: (name, job), the undisturbed one first."""
    spec = long_spec(base)
    calm = submit(d, spec, "undisturbed")
    changed = toggled(d, spec)
    killed, kills = killed_at_random(d, spec, rng)
    print("%d kills, attempts resumed from steps %s" % (kills, [a["resume_step"] for a in d.job(killed)["attempts"]]))
    finish(d, changed)
    print("tier world from step %d on" % check_tiers(d, changed))
    return [("1 rank", calm), ("3 ranks, killed", killed), ("2 ranks, tier changed", changed)]


# ---- averaged weights ----

AVERAGED_STEPS = 24


def losses(d, job, split):
    """{row: bits} of a split's losses"""
    return {name: bits for name, (bits, _) in rows(d, job).items() if name.startswith(split + " ")}


def undisturbed_and_killed(d, spec, title, rng):
    """Returns jobs that must not differ: (name, job). The jobs of several ranks, and one of a single rank, are killed
    between two checkpoints, 4 steps apart."""
    jobs = [(title + ", 1 rank", submit(d, spec, title))]
    for p in (1, 2, 3):
        what = "%s, %d ranks, killed" % (title, p)
        jobs.append((what, struck(d, merged(spec, run_keys(ranks=p)), what, 5 + rng.randrange(4), rng)))
        ended = finish(d, jobs[-1][1])
        assert ended["attempt"] == 2 and max(a["resume_step"] for a in ended["attempts"]) >= 4, ended["attempts"]
    return jobs


def average(d, base, rng):
    spec = merged(base, {"train": {"steps": AVERAGED_STEPS, "ema": 0.9}, "val": {"every": 6}, "checkpoint": {"every": 4}})
    plain = submit(d, merged(spec, {"train": {"ema": 0}}), "not averaged")
    jobs = undisturbed_and_killed(d, spec, "averaged", rng)
    finish(d, plain)
    check_average(d, spec, plain, jobs[0][1])
    return jobs


def check_average(d, spec, plain, job):
    """Averaging changes the validation, not the training: the validation scores are those of a job that starts from the
    checkpoint and does not move."""
    finish(d, job)
    assert losses(d, job, "train") == losses(d, plain, "train"), "averaging changes the training"
    assert losses(d, job, "val") != losses(d, plain, "val") and models(d, job) != models(d, plain), "averaging changes nothing"
    init = "%s/jobs/%d/checkpoints/step-%d/model.safetensors" % (d.state, job, AVERAGED_STEPS)
    still = submit(d, merged(spec, {"model": {"init": init, "freeze_bn": True}, "train": {"steps": 1, "lr": 1e-300, "ema": 0},
                                    "val": {"every": 1}}), "averaged, looked at again")
    finish(d, still)
    for term in ("total", "box"):
        found = [d.sql("SELECT num, den FROM loss WHERE job=? AND split='val' AND term=? ORDER BY step DESC LIMIT 1", j, term)
                 for j in (job, still)]
        assert found[0] == found[1], "loss '%s' of the averages is %s, of the checkpoint that holds them %s" % (term, *found)


# ---- another optimizer ----

def adapt(d, base, rng):
    """AdamW on a rate that rises in a line and falls as a cosine; windows are open across checkpoints."""
    spec = merged(
        base, {
            "train": {
                "steps": AVERAGED_STEPS, "optimizer": "adamw", "weight_decay": 0.05, "lr": 0.002, "clip_norm": 30, "log_every": 3,
                "schedule": "cosine", "lr_end": 0.1, "warmup": "linear", "warmup_factor": 0.1, "burn_in": 6
            }, "val": {"every": 6}, "checkpoint": {"every": 4}
        })
    jobs = undisturbed_and_killed(d, spec, "adamw", rng)
    finish(d, jobs[0][1])
    totals = [v for (v,) in d.sql("SELECT value FROM loss WHERE job=? AND split='train' AND term='total' ORDER BY step", jobs[0][1])]
    assert totals[-1] < 0.9 * totals[0], totals
    return jobs


# ---- SyncBN ----

def arrays(path):
    """{name: numbers} of a safetensors file of float32"""
    return {name: struct.unpack("<%df" % (len(raw) // 4), raw) for name, (_, _, raw) in tensors_of(path).items()}


def whole_batch(d, base):
    """With SyncBN eight shards train like one shard with all images, running statistics included, except for rounding."""
    still = {"flip": 0, "jitter": 0, "scale": 0, "hue": 0, "saturation": 1, "exposure": 1}  # random numbers depend on the shard: draw none
    spec = merged(base, {"model": {"sync_bn": True}, "data": {"augment": still}, "train": {"steps": 1}, "val": {"every": 1}})
    found = {}
    for shards in (8, 1):
        job = submit(d, merged(spec, {"train": {"shards": shards}}), "SyncBN of %d" % shards)
        finish(d, job)
        found[shards] = arrays("%s/jobs/%d/checkpoints/step-1/model.safetensors" % (d.state, job))
    names = [name for name in found[1] if ".running_" in name]
    for name in names:
        far = max(abs(a - b) / (abs(b) + 0.1) for a, b in zip(found[8][name], found[1][name]))
        assert far < 1e-5, "%s of eight shards is %g from that of one" % (name, far)
    moved = [n for n in names if n.endswith(".running_var") and max(abs(v - 1) for v in found[1][n]) > 1e-3]
    assert len(names) > 20 and 2 * len(moved) == len(names), (names, moved)
    print("SyncBN of eight shards and of one: %d running statistics, the same" % len(names))


# ---- a larger network ----

def enlarge(d, base):
    """Returns (name, job). Four images a shard, the default of jobs, and layers wide enough for all forms of
    convolution."""
    spec = merged(base, {"model": {"size": 160, "width": 0.5}, "train": {"steps": 6, "batch": 32, "lr": 0.001}})
    return [(what, submit(d, merged(spec, run_keys(ranks=p)), what)) for p, what in ((1, "1 rank, larger"), (4, "4 ranks, larger"))]


# ---- an input that is no square ----

def widen(d, base):
    """Returns (name, job) of changing sizes; the shorter side follows the longer one."""
    spec = merged(base, {"model": {"size": [96, 64]}, "data": {"augment": {"multiscale": True, "size_min": 64, "size_max": 128}},
                         "train": {"steps": 12, "lr": 0.002}, "val": {"every": 6}})
    few = [("1 rank, wide", {}), ("3 ranks, wide, 2 waves", merged(run_keys(ranks=3, isa=isas()[-1]), {"train": {"waves": 2}}))]
    return [(what, submit(d, merged(spec, keys), what)) for what, keys in few]


# ---- all of it ----

def draw(data):
    make_shapes(data, 40, 11, 96)


def draw_masks(data):
    make_shapes(data, 12, 5, 64, "--masks")


def draw_frames(data):
    draw(data)
    subprocess.run([sys.executable, HERE + "/../demo/as_frames.py", data, "96"], check=True)


def compare(d, title, jobs):
    for _, job in jobs:
        finish(d, job)
    for what, job in jobs[1:]:
        same(d, jobs[0][1], job, what)
    print("%s: %d jobs, %d rows and %d models each: equal" % (title, len(jobs), len(rows(d, jobs[0][1])), len(models(d, jobs[0][1]))))


def two_stages(d):
    """A Mask R-CNN with statistics over all shards, in canvases that differ from shard to shard."""
    draw_masks(d.root + "/masks")
    spec = mask_spec(d.root + "/masks")
    synced = merged(spec, {"model": {"sync_bn": True}})
    jobs = [("%d ranks" % n, submit(d, merged(synced, run_keys(ranks=n, deterministic="world")), "Mask R-CNN, SyncBN, %d ranks" % n))
            for n in (1, 2, 3)]
    compare(d, "Mask R-CNN, SyncBN", jobs)
    alone = submit(d, spec, "Mask R-CNN, BN of each shard")
    finish(d, alone)
    assert models(d, alone) != models(d, jobs[0][1]), "model.sync_bn changes nothing of Mask R-CNN"


def as_a_set(d):
    """A Sparse R-CNN, whose gradient is divided by the objects of all shards."""
    spec = sparse_spec(d.root + "/masks")
    jobs = [("%d ranks" % n, submit(d, merged(spec, run_keys(ranks=n, deterministic="world")), "Sparse R-CNN, %d ranks" % n))
            for n in (1, 2, 3, 5, 8)]
    jobs.append(("3 ranks, 2 waves, 2 threads",
                 submit(d, merged(spec, {"train": {"waves": 2}, "run": {"ranks": 3, "threads": 2, "isa": isas()[-1]}}),
                        "Sparse R-CNN, 2 waves")))
    compare(d, "Sparse R-CNN", jobs)


def main():
    rng = random.Random(SEED)
    began = time.time()
    with Daemon(foreign=False, slots=SLOTS) as d:
        draw(d.root + "/shapes")
        base = base_spec(d.root + "/shapes")
        compare(d, "kills and tiers (seed %d)" % SEED, disturb(d, base, rng))
        groups = []
        for sync_bn in (False, True):
            spec = merged(base, {"model": {"sync_bn": sync_bn}, "train": {"clip_norm": 30} if sync_bn else {}})
            title = "SyncBN, clipped" if sync_bn else "BN of each shard"
            groups.append((title, [(what, submit(d, merged(spec, keys), title + ", " + what)) for what, keys in variants(sync_bn)]))
        for title, jobs in groups:
            compare(d, title, jobs)
            check_moved(d, jobs[0][1])
        assert models(d, groups[0][1][0][1]) != models(d, groups[1][1][0][1]), "model.sync_bn changes nothing"
        whole_batch(d, base)
        for title, jobs in (("averaged weights", average(d, base, rng)), ("AdamW, cosine", adapt(d, base, rng))):
            compare(d, title, jobs)
            for what, job in jobs[1:]:
                ours, theirs = of_both(models(d, job, "state"), models(d, jobs[0][1], "state"))
                assert ours == theirs, what + ": other state.safetensors"
        compare(d, "larger", enlarge(d, base))
        compare(d, "wide", widen(d, base))
        two_stages(d)
        as_a_set(d)
    print("%.0f s" % (time.time() - began))


if __name__ == "__main__":
    main()
