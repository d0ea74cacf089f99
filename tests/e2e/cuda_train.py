#!/usr/bin/env python3
"""Training on the CUDA device, end to end: real detd, detd-job and workers, jobs with run.device = cuda.

DETD_PLUGIN names the plugin: the plugin of an emulated GPU, with threads, blocks and streams in another order for every
job, or, with DETD_REAL_GPU set, the plugin for the GPU of this machine. Reruns must give the same bits in tier `rerun`;
in `world` also 1 to 4 ranks that share the GPU, waves, and a job after a killed rank. Losses must be nearly those of
the CPU in fp32, and close to them in bf16."""  # SPDX-License-Identifier: Apache-2.0
import json
import math
import os
import random
import subprocess
import tempfile
import time

from daemon import BUILD
from gpu_node import REAL, Node
from ranks import base_spec, change_tier, compare, draw, draw_masks, finish, mask_spec, merged, sparse_spec, strike, submit

UNPLANNED = tempfile.mktemp(prefix="detd-unplanned-")  # here the emulated GPU lists the plans that it had to make in the middle of a step
NEAR = {"fp32": 1e-3, "tf32": 2e-2, "bf16": 0.1}  # of losses over a few steps, relative


def cuda(**run):
    env = {"EMU_SEED": str(random.getrandbits(30)), "EMU_UNPLANNED": UNPLANNED}
    return {"run": dict({"device": "cuda", "ranks_per_gpu": run.get("ranks", 1), "env": env}, **run)}


def spec_of(data):
    """The tiny job of ranks.py, four shards."""
    return merged(base_spec(data), {"name": "cuda", "train": {"steps": 5, "batch": 8, "shards": 4, "log_every": 1}, "val": {"every": 5}})


def losses(d, job):
    return [v for (v,) in d.sql("SELECT value FROM loss WHERE job=? AND term='total' ORDER BY split, step", job)]


def beside(d, cpu, job, precision):
    """The loss curve of a job is that of the same job on the CPU."""
    want, have = losses(d, cpu), losses(d, job)
    assert len(want) == len(have) > 0, (want, have)
    for a, b in zip(want, have):
        assert abs(a - b) <= NEAR[precision] * abs(a), "%s: loss %.7g, on the CPU %.7g; curves %s and %s" % (precision, b, a, have, want)
    return max(abs(a - b) / abs(a) for a, b in zip(want, have))


def in_turn(d, base, title, variants):
    """Returns (name, job) of jobs that run in turn, since there is a single GPU."""
    jobs = []
    for what, keys in variants:
        jobs.append((what, submit(d, merged(base, keys), title + ", " + what)))
        finish(d, jobs[-1][1])
    return jobs


def killed(d, base):
    """A longer job in `world`, undisturbed on one rank, and on two ranks, one of them killed."""
    spec = merged(base, {"train": {"steps": 12}, "checkpoint": {"every": 3}, "val": {"every": 6}, "run": {"restarts": 5}})
    calm = submit(d, merged(spec, cuda(deterministic="world")), "undisturbed")
    finish(d, calm)
    job = submit(d, merged(spec, cuda(ranks=2, deterministic="world")), "2 ranks, one is killed")
    d.wait(job, lambda j: j["step"] >= 5, 600)
    strike(d, job, "detd-worker", random.Random(1))
    ended = finish(d, job)
    assert ended["attempt"] >= 2 and max(a["resume_step"] for a in ended["attempts"]) >= 3, ended["attempts"]
    return [("1 rank", calm), ("2 ranks, killed", job)]


def other_identity(d, base):
    """A job continues although its folder says that another GPU and another algorithm computed it so far: events say
    so. Events also say which guarantee cannot be kept."""
    spec = merged(base, merged(cuda(deterministic="rerun"), {"train": {"steps": 12}, "checkpoint": {"every": 3}, "val": {"every": 0}}))
    job = submit(d, spec, "another identity")
    d.wait(job, lambda j: j["step"] >= 3, 600)
    d.call("job.pause", id=job)
    d.wait(job, "paused", 600)
    path = "%s/jobs/%d/identity.json" % (d.state, job)
    with open(path, encoding="utf-8") as f:
        kept = json.load(f)
    assert kept["plans"] == sorted(kept["plans"]) and kept["precision"] == "fp32", kept
    assert kept["files"]["plugin"]["version"] == kept["files"]["worker"]["version"], kept
    kept["files"]["plugin"]["hash"] = "0" * 32
    kept["device"], kept["plans"][0] = "Another GPU", kept["plans"][0].split(": ")[0] + ": another algorithm"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(kept, f)
    os.mkdir(path + ".tmp")  # in the way of a new one
    d.call("job.resume", id=job)
    finish(d, job)
    said = [text for (text,) in d.sql("SELECT text FROM events WHERE job=? AND kind='identity' ORDER BY id", job)]
    assert len([t for t in said if "(was Another GPU)" in t and ", plugin hash " in t]) == 1 and any(
        "1 convolutions are computed by other" in t for t in said), said
    assert any(t.startswith("not kept: ") and "identity.json" in t for t in said), said


def new_shapes(d, base):
    """The tier, the network's size and the shards of a wave change, and a validation ends with a short shard: plans are
    made before all of these."""
    spec = merged(base, {"data": {"augment": {"multiscale": True, "size_min": 32, "size_max": 64}},
                         "train": {"steps": 30, "waves": 3}, "val": {"every": 6}})
    job = submit(d, merged(spec, cuda(deterministic="off")), "new shapes")
    change_tier(d, job)
    finish(d, job)
    (_, first), (start, second) = d.sql("SELECT step, tier FROM tiers WHERE job=? ORDER BY step", job)
    assert (first, second) == ("off", "world") and 3 < start < 30, (start, second)
    said = [text for (text,) in d.sql("SELECT text FROM events WHERE job=? AND kind='plan' ORDER BY id", job)]
    assert len(said) == 2 and all(" convolutions planned in " in t for t in said), said  # at the start, and after the change of tier


def toggled(d, base):
    """The tier changes in mid-run: `verify` trains the steps of both tiers again, from the start and from checkpoints
    of either, and finds every step the same."""
    spec = merged(base, {"train": {"steps": 24}, "checkpoint": {"every": 6, "keep": 9}, "val": {"every": 8}})
    job = submit(d, merged(spec, cuda(ranks=2, deterministic="rerun")), "toggled")
    change_tier(d, job)
    finish(d, job)
    (_, first), (start, second) = d.sql("SELECT step, tier FROM tiers WHERE job=? ORDER BY step", job)
    assert (first, second) == ("rerun", "world") and 3 < start < 24, (start, second)
    for at in (0, 6, 18):
        done = subprocess.run([BUILD + "/detctl", "--socket", d.path, "verify",
                               str(job), "--from", str(at)], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "equal: steps %d .. 24" % (at + 1) in done.stdout, (at, start, done.returncode, done.stdout,
                                                                                            done.stderr)


def evaluated(d, job, annotations):
    """Evaluates the last checkpoint on the job's own validation set once more, on the GPU too: the result equals that
    of the last validation to the bit."""
    ((before,),) = d.sql("SELECT max(id) FROM jobs")
    done = subprocess.run([BUILD + "/detctl", "--socket", d.path, "eval", str(job), "--on", annotations, "--checkpoint", "last", "--json"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    (by, device), (step,) = d.sql("SELECT id, device FROM jobs ORDER BY id DESC LIMIT 1")[0], d.sql(
        "SELECT max(step) FROM loss WHERE job=? AND split='val'", job)[0]
    losses = [d.sql("SELECT term, num, den FROM loss WHERE job=? AND split='val' AND step=? ORDER BY term", j, step) for j in (job, by)]
    scores = [d.sql("SELECT metric, value FROM eval WHERE job=? AND step=? ORDER BY metric", j, step) for j in (job, by)]
    assert device == "cuda" and by > before and len(losses[0]) > 4 and len(scores[0]) > 4, (device, by, losses, scores)
    assert losses[0] == losses[1] and scores[0] == scores[1], (losses, scores)
    said = {row["metric"]: row["value"] for row in json.loads(done.stdout)}
    assert said == {**dict(scores[0]), **{"loss/" + term: num / den for term, num, den in losses[0]}}, (said, scores, losses)


def terms(d, job):
    """{(split, step): {term: value}}"""
    found = {}
    for split, step, term, value in d.sql("SELECT split, step, term, value FROM loss WHERE job=? ORDER BY split, step", job):
        found.setdefault((split, step), {})[term] = value
    return found


def two_stages(d):
    """Mask R-CNN: the same bits on 1 to 3 ranks with statistics of all shards; in bf16 near fp32's losses. Which
    regions are drawn hangs on last bits of scores, so single terms of later steps may part; those of the first, before
    any weight has moved, do not, nor does the total."""
    draw_masks(d.root + "/masks")
    base = merged(mask_spec(d.root + "/masks"), {"train": {"lr": 0.001}})
    synced = merged(base, {"model": {"sync_bn": True}})
    jobs = in_turn(d, synced, "Mask R-CNN, SyncBN", [("%d ranks" % n, cuda(ranks=n, deterministic="world")) for n in (1, 2, 3)])
    compare(d, "Mask R-CNN, SyncBN", jobs)
    evaluated(d, jobs[0][1], base["data"]["val"]["annotations"])
    seen = {}
    for precision in ("fp32", "bf16"):
        ((_, job),) = in_turn(d, base, "Mask R-CNN", [(precision, cuda(precision=precision))])
        seen[precision] = terms(d, job)
    assert seen["fp32"].keys() == seen["bf16"].keys() and len(seen["fp32"]) == 6, seen
    for at, want in seen["fp32"].items():
        have, first = seen["bf16"][at], at == ("train", 1)
        assert set(have) == {"total", "rpn_cls", "rpn_box", "cls", "box", "mask"} and all(math.isfinite(v)
                                                                                          for v in have.values()), (at, have)
        for term in have if first else ("total",):
            assert abs(have[term] -
                       want[term]) <= NEAR["bf16"] * want[term], "bf16: %s of %s is %.7g, in fp32 %.7g" % (term, at, have[term], want[term])
    assert seen["fp32"][("train", 1)] != seen["bf16"][("train", 1)], "bf16 is fp32"
    print("Mask R-CNN, bf16: total at most %.2g from fp32's" %
          max(abs(seen["bf16"][at]["total"] / v["total"] - 1) for at, v in seen["fp32"].items()))


def as_a_set(d):
    """Sparse R-CNN in both precisions of both devices: fp32 near the CPU's, and bf16 near that. Its first losses are
    close in every term, later ones in total: predictions that lie alike may be matched to other objects."""
    base = merged(sparse_spec(d.root + "/masks"), {"data": {"augment": {"crop": 0}}, "model": {"proposal_init": "grid", "min_size": [64]},
                                                   "train": {"steps": 2, "batch": 2, "shards": 2}, "val": {"every": 2}})
    ways = [(device, precision) for device in ("cpu", "cuda") for precision in ("fp32", "bf16")]
    keys = [cuda(precision=p) if device == "cuda" else {"run": {"precision": p}} for device, p in ways]
    jobs = in_turn(d, base, "Sparse R-CNN", [(" ".join(way), key) for way, key in zip(ways, keys)])
    want, *others = [terms(d, job) for _, job in jobs]
    assert len(want) == 3 and len(want[("train", 1)]) == 9, want
    for (device, precision), have in zip(ways[1:], others):
        assert have.keys() == want.keys() and (precision == "fp32" or have != want), (device, precision, have, want)
        for at, first in want.items():
            for term in first if at == ("train", 1) else ("total",):
                assert abs(have[at][term] -
                           first[term]) <= NEAR[precision] * first[term], "%s of %s, %s in %s: %.7g, of the CPU in fp32 %.7g" % (
                               term, at, device, precision, have[at][term], first[term])
        print("Sparse R-CNN, %s in %s: total at most %.2g from the CPU's in fp32" % (
            device, precision, max(abs(have[at]["total"] / first["total"] - 1) for at, first in want.items())))


def forgetful(d):
    """A device that drops each plan as early as it may must give the same bits as a device that keeps all plans. Some
    steps have rare canvases, and the plans of a validation are made at the start, dropped, and made again before it
    comes."""
    dropped = tempfile.mktemp(prefix="detd-dropped-")
    base = merged(mask_spec(d.root + "/masks"), {"model": {"min_size": 6 * [32] + [64, 96], "max_size": 96},
                                                 "train": {"steps": 20, "batch": 1, "shards": 1, "log_every": 5}, "val": {"every": 20}})
    few = cuda(deterministic="world")
    few["run"]["env"].update(EMU_PLANS="0", EMU_DROPPED=dropped)
    compare(d, "plans are dropped", in_turn(d, base, "plans", [("all kept", cuda(deterministic="world")), ("few kept", few)]))
    if not REAL:
        with open(dropped, encoding="utf-8") as f:
            lines = f.read().splitlines()
        os.unlink(dropped)
        assert len(set(lines)) > 50, (len(lines), len(set(lines)))


def check_plans():
    """Checks the plans of all jobs so far."""
    if os.path.exists(UNPLANNED):
        with open(UNPLANNED, encoding="utf-8") as f:
            lines = f.read().splitlines()
        os.unlink(UNPLANNED)
        raise AssertionError("%d convolutions were planned inside a step:\n%s" % (len(lines), "\n".join(sorted(set(lines))[:20])))


def main():
    began = time.time()
    with Node() as d:
        draw(d.root + "/shapes")
        base = spec_of(d.root + "/shapes")
        world = [("1 rank", cuda(deterministic="world")), ("2 ranks", cuda(ranks=2, deterministic="world")),
                 ("4 ranks", cuda(ranks=4, deterministic="world")), ("3 ranks", cuda(ranks=3, deterministic="world")),
                 ("2 waves", merged(cuda(deterministic="world"), {"train": {"waves": 2}}))]
        jobs = in_turn(d, base, "world", world)
        compare(d, "world", jobs)
        evaluated(d, jobs[0][1], base["data"]["val"]["annotations"])
        compare(d, "world, SyncBN", in_turn(d, merged(base, {"model": {"sync_bn": True}}), "SyncBN", world[:2]))
        compare(d, "rerun", in_turn(d, base, "rerun", [("once", cuda(deterministic="rerun")), ("again", cuda(deterministic="rerun"))]))
        compare(d, "rerun, 3 ranks, 2 waves", in_turn(d, merged(base, {"train": {"waves": 2}}), "rerun 3", [
            ("once", cuda(ranks=3, deterministic="rerun")), ("again", cuda(ranks=3, deterministic="rerun"))]))
        compare(d, "killed", killed(d, base))
        other_identity(d, base)
        new_shapes(d, base)
        toggled(d, base)
        slow = merged(base, {"train": {"lr": 0.0005}})  # at the usual rate a last bit grows to percents in five steps
        cpu = submit(d, slow, "on the CPU")
        finish(d, cpu)
        for precision in ("fp32", "bf16") + (("tf32",) if REAL else ()):
            job = submit(d, merged(slow, cuda(precision=precision)), precision)
            finish(d, job)
            print("%s: losses at most %.2g from the CPU's" % (precision, beside(d, cpu, job, precision)))
        sizes = submit(
            d,
            merged(
                base,
                merged(
                    cuda(deterministic="off"),
                    {"data": {"augment": {"multiscale": True, "size_min": 32, "size_max": 96}}, "train": {"steps": 25, "log_every": 5}})),
            "multi-scale")
        finish(d, sizes)
        (device,) = {row[0] for row in d.sql("SELECT device FROM jobs WHERE id=?", sizes)}
        assert device == "cuda", device
        two_stages(d)
        as_a_set(d)
        forgetful(d)
        check_plans()
    print("%.0f s" % (time.time() - began))


main()
