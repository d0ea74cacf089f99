#!/usr/bin/env python3
"""Depth networks on frames of a real video, with the real programs.
usage: depth.py [SCENARIO ...]"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shutil
import struct
import subprocess

from daemon import BUILD, Daemon, run_scenarios
from grey16 import grey16
from ranks import PATIENCE_S, finish, merged, over, rows, submit

DATA = os.path.abspath("../shared/data/depth_bin")


def spec_of(d, **more):
    """A network of few channels on a copy of the frames, which a test may change."""
    video = d.root + "/video"
    if not os.path.isdir(video):
        shutil.copytree(DATA, video)
    split = {name: {"format": "frames", "annotations": "%s/%s.txt" % (video, name), "images": video} for name in ("train", "val")}
    return merged({"name": "depth", "data": split, "model": {"preset": "featdepth_baseline_r18", "width": 0.125, "size": [96, 96]},
                   "train": {"steps": 4, "batch": 2, "shards": 2, "log_every": 1, "burn_in": 0}, "val": {"every": 2, "batch": 3},
                   "run": {"device": "cpu", "threads": 1, "ranks": 1}}, more)


def check(d, spec):
    path = d.root + "/check.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump(spec, f)
    return subprocess.run([BUILD + "/detctl", "check", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def break_poses(d, line):
    """Removes the numbers of that line (from 1)."""
    path = d.root + "/video/poses.txt"
    with open(path, encoding="utf-8") as f:
        lines = f.readlines()
    lines[line - 1] = "nobody knows\n"
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.writelines(lines)
    os.rename(path + ".new", path)


def motion_is_scored_alike_by_any_number_of_ranks():
    with Daemon(foreign=False, slots=2) as d:
        jobs = [submit(d, spec_of(d, run={"ranks": n}), "%d ranks" % n) for n in (1, 2)]
        for job in jobs:
            assert finish(d, job)["state"] == "completed"
        assert rows(d, jobs[0]) == rows(d, jobs[1])
        listed = subprocess.run([BUILD + "/detctl", "--socket", d.path, "ls"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                check=False)
        assert listed.returncode == 0 and listed.stdout.count("  abs_rel ") == 2 and len(listed.stdout.splitlines()) == 3, listed
        for step in (2, 4):
            found = dict(d.sql("SELECT metric, value FROM eval WHERE job=? AND step=?", jobs[0], step))
            assert 0 < found["ate"] < 1 and found["ate_std"] > 0 and found[
                "abs_rel"] > 0, found  # metres, of five frames of a camera held by hand


def scores_where_all_is_far(window, least, cap):
    """Returns abs_rel and rmse of a network that says the cap everywhere: means over the pictures of val.txt."""
    sums = [0, 0]
    with open(DATA + "/val.txt", encoding="utf-8") as f:
        numbers = [int(line) for line in f]
    for number in numbers:
        rows = grey16(DATA + "/depth/%06d.png" % number)
        top, bottom, left, right = (int(part * (len(rows) if k < 2 else len(rows[0]))) for k, part in enumerate(window))
        g = [v * .001 for row in rows[top:bottom] for v in row[left:right] if v and least < v * .001 < cap]
        sums[0] += sum((cap - x) / x for x in g) / len(g)
        sums[1] += (sum((cap - x) ** 2 for x in g) / len(g)) ** .5
    return [x / len(numbers) for x in sums]


def depth_is_scored_as_the_job_says():
    windows = {
        "garg": (.40810811, .99189189, .03594771, .96405229), "eigen": (.3324324, .91351351, .0359477, .96405229), "none": (0, 1, 0, 1)
    }
    least, cap = .3505, .9005  # bounds that lie between the depths of the files
    with Daemon(foreign=False, slots=2) as d:
        how = {"every": 1, "depth_least": least, "depth_cap": cap, "depth_factor": 1e6}
        jobs = {crop: submit(d, spec_of(d, train={"steps": 1}, val=dict(how, depth_crop=crop)), crop) for crop in windows}
        for crop, job in jobs.items():
            assert finish(d, job)["state"] == "completed"
            found, want = dict(d.sql("SELECT metric, value FROM eval WHERE job=?", job)), scores_where_all_is_far(windows[crop], least, cap)
            assert all(abs(found[k] - x) < 1e-6 * x for k, x in zip(("abs_rel", "rmse"), want)), (crop, found, want)


def a_frame_without_neighbours_has_scores_and_no_loss():
    """Frames 0 and 49 are the first and the last of the folder. Validation counts them; its losses are those of the frames between."""
    with Daemon(foreign=False, slots=2) as d:
        spec = spec_of(d, train={"steps": 2}, val={"batch": 1})
        lists = {"between": "41\n45\n", "whole": "41\n45\n0\n49\n", "ends": "0\n49\n"}
        jobs = {}
        for name, text in lists.items():
            with open("%s/video/%s.txt" % (d.root, name), "w", encoding="utf-8") as f:
                f.write(text)
            split = {"val": {"annotations": "%s/video/%s.txt" % (d.root, name)}, "missing_neighbour": "repeat"}
            jobs[name] = submit(d, merged(spec, {"data": split}), name)
        for job in jobs.values():
            assert finish(d, job)["state"] == "completed"
        seen = {name: dict(d.sql("SELECT metric, value FROM eval WHERE job=? AND step=2", job)) for name, job in jobs.items()}
        assert [seen[name]["depth_images"] for name in lists] == [2, 4, 2], seen
        assert abs(seen["whole"]["abs_rel"] - (seen["between"]["abs_rel"] + seen["ends"]["abs_rel"]) / 2) < 1e-9, seen
        losses = {
            name: d.sql("SELECT value FROM loss WHERE job=? AND split='val' AND step=2 ORDER BY term", job)
            for name, job in jobs.items()
        }
        assert len(losses["between"]) > 1 and all(abs(a - b) <= 1e-12 * abs(a)
                                                  for (a,), (b,) in zip(losses["between"], losses["whole"])), losses
        assert not any(value for (value,) in losses["ends"]), losses
        told = d.sql("SELECT text FROM events WHERE job=? AND text LIKE 'val: % targets %'", jobs["whole"])
        assert "; 2 lack a neighbour: scored, but without losses; " in told[0][0], told
        lossless = "val: no frame has all of its neighbours: a validation has no loss to choose the best checkpoint by; " \
            "checkpoint.best=abs_rel chooses by depth"
        told = {name: d.sql("SELECT text FROM events WHERE job=? AND text LIKE 'val: no frame %'", job) for name, job in jobs.items()}
        assert told == {"between": [], "whole": [], "ends": [(lossless,)]}, told
        done = subprocess.run(
            [BUILD + "/detd-worker", "--check", "%s/jobs/%d/spec.json" % (d.state, jobs["ends"])], capture_output=True, text=True,
            check=True)
        assert lossless in (done.stdout + done.stderr).splitlines(), done


def saturated_depth_is_told():
    """A network with all depths within 5 % of the nearest gets a warning, once. With the default depths it gets no
    warning."""
    with Daemon(foreign=False, slots=2) as d:
        jobs = [submit(d, spec_of(d, train={"steps": 2}, val={"every": 1}, **more), name) for name, more in
                (("flat", {"model": {"min_depth": 1, "max_depth": 1.04}}), ("deep", {}))]
        for job in jobs:
            assert finish(d, job)["state"] == "completed"
        flat, deep = ([t for (t,) in d.sql("SELECT text FROM events WHERE job=? AND kind='depth'", job)] for job in jobs)
        assert len(flat) == 1 and flat[0].startswith(
            "validation after step 1: 100 % of the pixels of 'frames/000041.jpg' are at model.min_depth (1)"), flat
        assert not deep, deep


def pictures_of(d, job):
    return d.state + "/jobs/%d/pictures" % job


def a_picture_of_each_validation_while_it_is_new():
    with Daemon(foreign=False, slots=2) as d:
        job = submit(d, spec_of(d, train={"steps": 7}, val={"every": 1}, run={"ranks": 2}), "pictures")
        assert finish(d, job)["state"] == "completed"
        kept = sorted(os.listdir(pictures_of(d, job)))
        assert kept == ["val-step-%d.png" % n for n in range(3, 8)], kept
        with open(pictures_of(d, job) + "/val-step-7.png", "rb") as f:
            assert struct.unpack(">II", f.read(24)[16:]) == (640, 960)  # the frame above its depth
        watched = subprocess.run([BUILD + "/detctl", "--socket", d.path, "watch", str(job)], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout
        assert "\npicture of step 7: %s/val-step-7.png\n" % pictures_of(d, job) in watched, watched
        held = [t for t in d.events("data", job) if " bad records" in t]
        assert len(held) == 2 and all(re.fullmatch(r"(train|val): \d+ images, 0 bad records skipped", t)
                                      for t in held), held  # and no word of boxes


def no_picture_is_no_reason_to_fail():
    with Daemon(foreign=False, slots=1) as d:
        spec = spec_of(d, train={"steps": 16}, val={"every": 1})
        job = submit(d, spec, "no pictures")
        d.until(lambda: os.path.isdir(pictures_of(d, job)), "no picture", PATIENCE_S)
        shutil.rmtree(pictures_of(d, job), ignore_errors=True)
        while not os.path.isfile(pictures_of(d, job)):
            try:
                with open(pictures_of(d, job), "x", encoding="utf-8"):
                    break
            except FileExistsError:
                shutil.rmtree(pictures_of(d, job), ignore_errors=True)
        assert finish(d, job)["state"] == "completed"
        told = [t for (t,) in d.sql("SELECT text FROM events WHERE job=? AND kind='picture'", job)]
        assert told and told[-1].startswith("no picture of the validation after step ") and pictures_of(d, job) in told[-1], told
        assert len(told) < 5, told


def matrices(path):
    with open(path, encoding="utf-8") as f:
        return [[float(x) for x in line.split()] for line in f]


def times(a, b):
    return [sum(a[4 * i + k] * b[4 * k + j] for k in range(3)) + (a[4 * i + 3] if j == 3 else 0) for i in range(3) for j in range(4)]


def undone(a):
    turned = [a[4 * j + i] for i in range(3) for j in range(3)]
    return [turned[3 * i + j] if j < 3 else -sum(turned[3 * i + k] * a[4 * k + 3] for k in range(3)) for i in range(3) for j in range(4)]


def snippet_error(truth, predicted):
    """Specs featdepth section 7, odometry: the ways of motions chained, with the least-squares scale."""
    ways = []
    for motions in truth, predicted:
        at, way = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0], []
        for m in motions:
            at = times(at, m)
            way.append(at[3::4])
        ways.append(way)
    pairs = [(g, p) for a, b in zip(*ways) for g, p in zip(a, b)]
    scale = sum(g * p for g, p in pairs) / sum(p * p for _, p in pairs)
    return sum((scale * p - g) ** 2 for g, p in pairs) ** 0.5 / 5


def the_way_of_a_folder_is_what_validation_scored():
    with Daemon(foreign=False, slots=1) as d:
        job = submit(d, spec_of(d), "way")
        assert finish(d, job)["state"] == "completed"
        subprocess.run(
            [BUILD + "/detctl", "--socket", d.path, "predict",
             str(job), d.root + "/video", "-o", d.root + "/out", "--checkpoint", "last"], stdout=subprocess.DEVNULL, check=True)
        ways = matrices(d.root + "/video/poses.txt"), matrices(d.root + "/out/trajectory_kitti.txt")
        assert len(ways[0]) == len(ways[1]) == 50
        motions = [[times(undone(b), a) for a, b in zip(way, way[1:])] for way in ways]
        errors = [snippet_error(*(m[k:k + 4] for m in motions))
                  for k in range(41, 46)]  # the frames of val.txt that have four more behind them
        (ate,), = d.sql("SELECT value FROM eval WHERE job=? AND step=4 AND metric='ate'", job)
        assert abs(sum(errors) / 5 - ate) < 1e-4 * ate, (errors, ate)


def bad_poses_are_refused_before_the_job_begins():
    with Daemon(foreign=False, slots=1) as d:
        spec = spec_of(d)
        assert check(d, spec).returncode == 0
        break_poses(d, 7)
        why = "/video/poses.txt:7: number 1 of 12 is missing or no finite number"
        done = check(d, spec)
        assert done.returncode == 1 and why in done.stdout, done.stdout
        ended = d.wait(submit(d, spec, "bad"), over, PATIENCE_S)
        assert ended["state"] == "failed" and why in ended["reason"] and ended["attempt"] == 1, ended


def depth_that_no_pattern_finds_is_told():
    """A depth_pattern of intrinsics.json that finds no file gives a warning of the check and of the job; a
    depth_pattern of the job file gives an error."""
    with Daemon(foreign=False, slots=1) as d:
        spec = spec_of(d, train={"steps": 2})
        assert "measured depth: " not in check(d, spec).stdout
        done = check(d, spec_of(d, data={"depth_pattern": "depht/%06d.png"}))
        assert done.returncode == 1, done.stdout
        assert re.search(r"data\.depth_pattern: no target of \d+ has measured depth: no file matches '\S+/video/depht/%06d\.png'",
                         done.stdout), done.stdout
        os.rename(d.root + "/video/depth", d.root + "/video/elsewhere")
        done = check(d, spec)
        told = re.search(r"^val: (no target of \d+ has measured depth: no file matches '\S+/video/depth/%06d\.png')$", done.stdout, re.M)
        assert done.returncode == 0 and told and "train: no target of" not in done.stdout, done.stdout
        job = submit(d, spec, "nowhere")
        assert finish(d, job)["state"] == "completed"
        events = d.sql("SELECT level, text FROM events WHERE job=? AND text LIKE '%no target of%'", job)
        assert events == [("warning", "val: " + told.group(1))], (events, told)


def poses_that_end_early_are_told():
    """Targets without a pose are in no score of motion; the check and the job's events say how many."""
    with Daemon(foreign=False, slots=1) as d:
        spec = spec_of(d, train={"steps": 2})
        assert "have no pose" not in check(d, spec).stdout
        path, lines = d.root + "/video/poses.txt", open(d.root + "/video/poses.txt", encoding="utf-8").readlines()
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(lines[:5])
        done = check(d, spec)
        told = re.search(r"^val: (\d+ of \d+ targets have no pose of theirs and of the next frame in poses\.txt: '\S+/video/poses\.txt' "
                         r"has 5 poses)$", done.stdout, re.M)
        assert done.returncode == 0 and told, done.stdout
        job = submit(d, spec, "early")
        assert finish(d, job)["state"] == "completed"
        events = d.sql("SELECT level, text FROM events WHERE job=? AND text LIKE '%have no pose%'", job)
        assert events == [("warning", "val: " + told.group(1))], (events, told)


def poses_that_change_meanwhile_cost_the_score_alone():
    with Daemon(foreign=False, slots=1) as d:
        job = submit(d, spec_of(d, train={"steps": 40}), "changed")
        d.until(lambda: d.sql("SELECT value FROM eval WHERE job=? AND metric='ate'", job), "no score", PATIENCE_S)
        break_poses(d, 1)
        assert finish(d, job)["state"] == "completed"
        told = [m for (m,) in d.sql("SELECT text FROM events WHERE job=? AND kind='poses' ORDER BY id", job)]
        assert told and told[-1].startswith(
            "validation after step 40 says nothing of motion: ") and "/video/poses.txt: has changed" in told[-1], told
        last = dict(d.sql("SELECT metric, value FROM eval WHERE job=? AND step=40", job))
        assert "ate" not in last and "abs_rel" in last, last


if __name__ == "__main__":
    if not os.path.exists(DATA + "/poses.txt"):
        print("skip: no ../shared/data/depth_bin")
        raise SystemExit(77)
    run_scenarios([
        saturated_depth_is_told, a_frame_without_neighbours_has_scores_and_no_loss, depth_that_no_pattern_finds_is_told,
        poses_that_end_early_are_told, depth_is_scored_as_the_job_says, the_way_of_a_folder_is_what_validation_scored,
        no_picture_is_no_reason_to_fail, a_picture_of_each_validation_while_it_is_new, poses_that_change_meanwhile_cost_the_score_alone,
        motion_is_scored_alike_by_any_number_of_ranks, bad_poses_are_refused_before_the_job_begins
    ], lanes=2)
