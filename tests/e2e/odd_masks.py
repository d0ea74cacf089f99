#!/usr/bin/env python3
"""Segmentations that are odd or wrong, before a small Mask R-CNN: detd-worker --check and jobs of a real detd report
file and id of each fault, or leave the annotation out and count it; a picture of one line, objects of one pixel, a
thousand in a picture and categories with gaps are trained on."""  # SPDX-License-Identifier: Apache-2.0
import glob
import json
import math
import os
import re
import subprocess
import sys

from daemon import BUILD, HERE, Daemon

sys.path.insert(0, HERE + "/../demo")
import make_shapes  # noqa: E402

DATA = os.path.normpath(HERE + "/../../../shared/data")
SIDE = 64
MODEL = {
    "preset": "mask_rcnn_r18_fpn", "width": 0.125, "fpn_channels": 16, "head_channels": 32, "mask_channels": 8, "min_size": 64,
    "max_size": 96, "anchors": [8, 16, 32, 48,
                                64], "rpn_pre_nms": 100, "rpn_pre_nms_val": 100, "rpn_post_nms": 50, "rpn_post_nms_val": 50, "roi_batch": 32
}
CATEGORIES = [{"id": 90, "name": "last"}, {"id": 7, "name": "first"}, {"id": 13, "name": "never seen"}]
TRIANGLE = [[10, 10, 30, 10, 30, 40]]
# The keys in which an annotation differs from a good one (None: key removed), and the expected message about annotation
# 7.
BAD = [
    ({"segmentation": [[1, 1, 9, 1, 9]]}, "segmentation: a polygon has an odd number of coordinates"),
    ({"segmentation": [[1, 1, 9, 9]]}, "segmentation: a polygon has fewer than three points"),
    ({"segmentation": [1, 1, 9, 1, 9, 9]}, "segmentation: a polygon is not a list inside the list"),
    ({"segmentation": [["1", 1, 9, 1, 9, 9]]}, "segmentation: a polygon holds something that is not a number"),
    ({"segmentation": [[1e300, 1, 9, 1, 9, 9]]}, "segmentation: a polygon holds an impossible number"),
    ({"segmentation": [[100, 100, 120, 100, 120, 120]]}, "its segmentation lies outside its image"),
    ({"segmentation": [[-9, -9, 0, -9, 0, -1]]}, "its segmentation lies outside its image"),
    ({"segmentation": []}, "has no segmentation, and its mask is asked for"),
    ({"segmentation": None}, "has no segmentation, and its mask is asked for"),
    ({"segmentation": 5}, "segmentation is neither a list nor an object"),
    ({"segmentation": {"size": [10, 10], "counts": [50, 50]}}, "the size of its segmentation is not that of the image"),
    ({"segmentation": {"size": [SIDE, 2], "counts": [64, 64]}}, "the size of its segmentation is not that of the image"),
    ({"segmentation": {"size": [SIDE, SIDE], "counts": [50, 50]}}, "segmentation: the runs do not fill its size"),
    ({"segmentation": {"size": [SIDE, SIDE], "counts": [50, -50, 4096]}}, "segmentation: a run is negative"),
    ({"segmentation": {"size": [SIDE, SIDE], "counts": [50.5, 4045.5]}}, "segmentation: a run is not an integer"),
    ({"segmentation": {"size": [SIDE, SIDE], "counts": [4096]}}, "its segmentation is empty"),
    ({"segmentation": {"size": [SIDE, SIDE], "counts": "\u00e9\u00e9"}}, "segmentation: the run string is malformed"),
    ({"segmentation": {"counts": [4096]}}, "segmentation: run lengths need a size of two positive integers, and counts"),
    ({"category_id": 8}, "category_id 8 is not in \"categories\""),
    ({"image_id": 4711}, "image_id 4711 is not in \"images\""),
    ({"ignore": 1}, "ignore is true, and iscrowd is not 1"),
    ({"bbox": [10, 10, 0, 30]}, "box has no area"),
    ({"bbox": [100, 10, 20, 30]}, "box lies outside its image"),
]
# Only the wrong part is left out, and the object stays.
LESS = [
    ({"segmentation": TRIANGLE + [[1, 1, 9, 9]]}, "segmentation: a polygon has fewer than three points"),
    ({"segmentation": [[1, 1, 9, 1, 9]] + TRIANGLE + [[]]}, "segmentation: a polygon has an odd number of coordinates"),
    ({"segmentation": TRIANGLE + [[1e300, 1]]}, "segmentation: a polygon has fewer than three points"),
    ({"id": 0}, "annotation 0 (line "),
    ({"id": "seven"}, "annotation in line "),
    ({"area": -1}, "annotation 7 (line "),
]


def grey(width, height):
    return make_shapes.png(width, height, [bytes((x * 7 + y * 3) % 200 for x in range(3 * width)) for y in range(height)])


def annotation(number, image=1, **keys):
    a = dict(
        {"id": number, "image_id": image, "category_id": 7, "bbox": [10, 10, 20, 30], "area": 300, "iscrowd": 0, "segmentation": TRIANGLE},
        **keys)
    return {k: v for k, v in a.items() if v is not None}


def thin(number, image, box):
    """Its box is its outline."""
    x, y, w, h = box
    return annotation(number, image, bbox=box, area=w * h, segmentation=[[x, y, x + w, y, x + w, y + h, x, y + h]])


def odd_but_right():
    """Returns (images, annotations): images 2 and 3 are a line of pixels, 4 has a thousand objects, 5 has no object, 6
    has only a crowd without a mask."""
    images = [(1, SIDE, SIDE), (2, 5000, 1), (3, 1, 5000), (4, 256, 256), (5, SIDE, SIDE), (6, SIDE, SIDE)]
    found = [thin(100, 2, [2500, 0, 1, 1]), thin(101, 2, [0, 0, 5000, 1]), thin(102, 3, [0, 4000, 1, 700]), thin(103, 3, [0, 0, 1, 1]),
             thin(104, 1, [63, 63, 1, 1]),
             annotation(105, 1, category_id=90, bbox=[0, 0, 64, 64], segmentation=[[-1e6, -1e6, 1e6, -1e6, 1e6, 1e6]]),
             annotation(106, 1, segmentation=[[10, 10, 30, 40, 30, 10, 10, 40]]),  # crosses itself
             annotation(107, 1, segmentation=[[10, 10, 10, 10, 10, 10]]),  # three points that are one
             annotation(108, 1, bbox=[60, 60, 50, 50], segmentation=[[60, 60, 110, 60, 110, 110, 60, 110]]),  # is cut
             annotation(109, 1, segmentation={"size": [SIDE, SIDE], "counts": [0, 1, 4095]}, bbox=[0, 0, 1, 1]),
             annotation(110, 6, iscrowd=1, segmentation=None)]
    found += [thin(1000 + i, 4, [i % 32 * 8, i // 32 * 8, 7, 7]) for i in range(1000)]
    return images, found


class Place:
    """A folder with pictures, where data sets and jobs are written."""

    def __init__(self, root):
        self.root = root
        os.mkdir(root + "/images")
        for number, w, h in odd_but_right()[0]:
            with open("%s/images/%d.png" % (root, number), "wb") as f:
                f.write(grey(w, h))

    def dataset(self, name, images, annotations, categories=None):
        path = "%s/%s.json" % (self.root, name)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(
                {
                    "images": [{"id": i, "file_name": "%d.png" % i, "width": w, "height": h}
                               for i, w, h in images], "categories": categories or CATEGORIES, "annotations": annotations
                }, f, indent=0)
        return path

    def job(self, annotations, images=None, **keys):
        split = {"annotations": annotations, "images": images or self.root + "/images"}
        job = {"name": "odd", "model": MODEL, "data": {"train": split, "val": split},
               "train": {"steps": 2, "batch": 2, "shards": 2, "lr": 0.001, "burn_in": 0, "log_every": 1}, "val": {"every": 2},
               "run": {"device": "cpu", "threads": 1}}
        for key, value in keys.items():
            section, key = key.split("_", 1)
            job[section] = dict(job[section], **{key: value})
        return job

    def check(self, job):
        path = self.root + "/job.json"
        with open(path, "w", encoding="utf-8") as f:
            json.dump(job, f)
        done = subprocess.run([BUILD + "/detd-worker", "--check", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=300, check=False)
        assert done.returncode in (0, 1), done
        return done


def bad_ones_are_told(place):
    for n, (keys, said) in enumerate(BAD):
        path = place.dataset("bad-%d" % n, [(1, SIDE, SIDE)], [annotation(1), annotation(7, **keys)])
        done = place.check(place.job(path))
        assert done.returncode == 1 and "train: annotation 7" in done.stdout and said in done.stdout and path in done.stderr, (said, done)
        done = place.check(place.job(path, data_on_bad="skip"))
        assert done.returncode == 0 and said in done.stdout, (said, done)
        assert "train: 1 images, 1 boxes, 3 classes, 1 bad records skipped, 0 boxes clipped" in done.stdout, (said, done)
    for n, (keys, said) in enumerate(LESS):
        path = place.dataset("less-%d" % n, [(1, SIDE, SIDE)], [annotation(1), annotation(7, **keys)])
        for on_bad in "error", "skip":
            done = place.check(place.job(path, data_on_bad=on_bad))
            assert done.returncode == 0 and said in done.stdout, (said, done)
            assert "train: 1 images, 2 boxes, 3 classes, 0 bad records skipped, 1 note, 0 boxes clipped" in done.stdout, (said, done)
    for harmless in (0, False, None, 0.0):
        path = place.dataset("harmless", [(1, SIDE, SIDE)], [dict(annotation(1), ignore=harmless)])
        assert place.check(place.job(path)).returncode == 0
    print("ok  %d bad annotations" % (len(BAD) + len(LESS)), flush=True)


def splits_that_do_not_fit_are_told(place):
    """The check already reports errors that would end a job at its start."""
    good = place.dataset("good", [(1, SIDE, SIDE)], [annotation(1)])
    crowds = place.dataset("crowds", [(1, SIDE, SIDE)], [annotation(1, iscrowd=1)])
    said = place.check(place.job(crowds))
    assert said.returncode == 1 and "%s: no image has an object to train on" % crowds in said.stderr, said
    for categories, why in (([{"id": 7, "name": "first"}], "list different categories: both splits need the same ids"),
                            ([dict(c, name={7: "last", 90: "first"}.get(c["id"], c["name"]))
                              for c in CATEGORIES], "category 7 is 'first' in ")):
        other = place.dataset("other", [(1, SIDE, SIDE)], [annotation(1)], categories)
        job = place.job(good)
        job["data"]["val"] = {"annotations": other, "images": place.root + "/images"}
        said = place.check(job)
        assert said.returncode == 1 and why in said.stderr and good in said.stderr and other in said.stderr, said
    print("ok  splits that do not fit", flush=True)


def ended(d, job):
    now = d.wait(job, lambda j: j["state"] in ("completed", "failed"), 300)
    return now["state"], now["reason"] or ""


def submit(d, job):
    return d.call("job.submit", spec=job, token=os.urandom(8).hex())["id"]


def check_rows(d, job):
    rows = d.sql("SELECT split, term, num, den FROM loss WHERE job=?", job)
    assert {r[0] for r in rows} == {"train", "val"} and {r[1] for r in rows} == {"total", "rpn_cls", "rpn_box", "cls", "box", "mask"}, rows
    assert all(math.isfinite(num) and num >= 0 and den > 0 for _, _, num, den in rows), rows
    mask = [num for split, term, num, _ in rows if term == "mask" and split == "train"]
    assert max(mask) > 0, rows
    assert d.sql("SELECT count(DISTINCT metric) FROM eval WHERE job=? AND metric IN ('AP', 'segm_AP')", job) == [(2,)]


def jobs_train_on_the_rest(place, d):
    images, good = odd_but_right()
    bad = [annotation(200 + n, **keys) for n, (keys, _) in enumerate(BAD)]
    less = [dict(annotation(300 + n), **keys) for n, (keys, _) in enumerate(LESS)]
    path = place.dataset("all", images, good + bad + less)
    state, reason = ended(d, submit(d, place.job(path)))
    assert state == "failed" and path in reason and "annotation 200" in reason and "%d problems" % len(
        bad) in reason and "data.on_bad=skip" in reason, reason
    print("ok ", reason, flush=True)
    good += [annotation(300 + n) for n in range(len(less))]
    right = place.dataset("right", images, good)
    done = place.check(place.job(right))
    assert done.returncode == 0 and "train: 6 images, %d boxes, 3 classes, 0 bad records skipped, 1 boxes clipped" % len(
        good) in done.stdout, done
    by_class = "objects by class: first %d, never seen 0, last 1" % (len(good) - 2)  # one is a crowd
    assert "train: 2 images without an object to train on are left out; %s\n" % by_class in done.stdout, done
    assert "val: %s\n" % by_class in done.stdout, done
    for flavor in ("d2", "tv"):
        skipping = submit(d, place.job(path, data_on_bad="skip", model_flavor=flavor, train_steps=4))
        sound = submit(d, place.job(right, model_flavor=flavor, train_steps=4, run_ranks=2))
        for job in (skipping, sound):
            assert ended(d, job)[0] == "completed", ended(d, job)
            check_rows(d, job)
        # left out annotations change nothing else
        assert d.sql("SELECT split, term, step, num FROM loss WHERE job=? ORDER BY 1, 2, 3", skipping) == d.sql(
            "SELECT split, term, step, num FROM loss WHERE job=? ORDER BY 1, 2, 3", sound)
        told = [t for t in d.events("data", skipping) if "%d bad records skipped; first: annotation 200" % len(bad) in t]
        assert len(told) == 2, d.events("data", skipping)
        notes = [t for t in d.events("data", skipping) if t.startswith("train: annotation")]
        assert len(notes) == len(less), notes
        lines = {"d2": ["train: 2 images without an object to train on are left out; " + by_class, "val: " + by_class],
                 "tv": ["train: 3 images without an object to train on are left out; " + by_class, "val: " + by_class]}
        assert sorted(t for t in d.events("data", sound) if "objects by class" in t) == lines[flavor], d.events("data", sound)
        print("ok  flavor %s" % flavor, flush=True)


def outlined(place, path):
    """Makes a copy in which the outline of each box without a segmentation is the box itself; returns the file itself
    if that is impossible."""
    try:
        with open(path, encoding="utf-8") as f:
            whole = json.load(f)
        for a in whole["annotations"]:
            x, y, w, h = map(float, a["bbox"])
            a.setdefault("segmentation", [[x, y, x + w, y, x + w, y + h, x, y + h]])
    except (ValueError, TypeError, KeyError, RecursionError):
        return path
    copy = place.root + "/outlined-" + os.path.basename(path)
    with open(copy, "w", encoding="utf-8") as f:
        json.dump(whole, f, indent=0)
    return copy


def checked(place, path, on_bad):
    """Returns (whether the check found no error, the job). Each error is a sentence that begins with the file's name
    and has the record's id or line."""
    job = place.job(path, DATA + "/bccd/images", data_on_bad=on_bad, train_steps=1, val_every=1)
    done = place.check(job)
    if done.returncode == 0:
        assert (" bad records skipped" if on_bad == "skip" else " 0 bad records skipped") in done.stdout, done
    else:
        assert re.search(re.escape(path) + r"[:,] \S+ \S+", done.stderr), done
        told = [line for line in done.stdout.splitlines() if line.startswith("train: ")]
        of_a_record = r"train: (note: )?((annotation|image) (\d+|in line \d+)\b|annotation id \d+|categories \d+|" \
            r"\d+ images?( without an object to train on|, )|\d+ of \d+ images have no box|" \
            r"objects by|\w+: key |possible mistakes: )"
        assert all(re.match(of_a_record, line) for line in told), done
    return done.returncode == 0, job


def collection(place, d):
    """Checks each file of the collection of odd files, which has its own pictures; if a file has no outlines, again
    with added outlines, so that the job has something to train on."""
    files = [f for f in sorted(glob.glob(DATA + "/odd_json/*.json")) if not f.endswith("manifest.json")]
    jobs = []
    for path in files:
        for copy in sorted({path, outlined(place, path)}):
            for on_bad in ("error", "skip"):
                good, job = checked(place, copy, on_bad)
                jobs.append((copy, good, submit(d, job)))
    trained = set()
    for path, good, job in jobs:
        state, reason = ended(d, job)
        assert state == "completed" or path in reason, (path, state, reason)
        assert good or state == "failed", (path, reason)
        if state == "completed":
            check_rows(d, job)
            trained.add(os.path.basename(path))
    assert {"outlined-%s.json" % name for name in ("ok_base", "ok_big_ids", "box_outside", "seg_rle_wrong_size")} <= trained, trained
    print("ok  %d files of the collection; %d could be trained on in part or as a whole" % (len(files), len(trained)), flush=True)


def main():
    with Daemon(foreign=False) as d:
        place = Place(d.root)
        bad_ones_are_told(place)
        splits_that_do_not_fit_are_told(place)
        jobs_train_on_the_rest(place, d)
        if os.path.exists(DATA + "/odd_json/ok_base.json"):
            collection(place, d)
        else:
            print("skip: no %s" % DATA)


if __name__ == "__main__":
    main()
