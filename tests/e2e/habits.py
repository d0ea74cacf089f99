#!/usr/bin/env python3
"""detctl anchors, detctl sample, and train.stop_after, with a small network. No detd is needed."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import subprocess
import sys
import tempfile

from daemon import BUILD, HERE, make_shapes

JOB = {
    "name": "tiny", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.05}, "data": {
        "train": {"annotations": "shapes/train.json", "images": "shapes/images"},
        "val": {"annotations": "shapes/val.json", "images": "shapes/images"}
    }, "train": {"steps": 60, "batch": 4, "lr": 0.02, "burn_in": 0, "log_every": 4}, "val": {"every": 2}, "checkpoint": {"keep": 100},
    "run": {"device": "cpu"}
}


class Place:
    def __init__(self, folder):
        self.folder = folder
        self.shapes("shapes")
        self.write("tiny.json", JOB)

    def shapes(self, name, *more):
        make_shapes(self.path(name), 8, 4, 64, *more)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as f:
            json.dump(content, f)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def run(self, program, *args):
        return subprocess.run([BUILD + "/" + program, *args], cwd=self.folder, capture_output=True, text=True, check=False)

    def good(self, program, *args):
        done = self.run(program, *args)
        assert done.returncode == 0, done
        return done.stdout

    def refused(self, said, program, *args, code=1):
        done = self.run(program, *args)
        assert done.returncode == code and said in done.stderr, done


def iou(a, b):
    both = min(a[0], b[0]) * min(a[1], b[1])
    return both / (a[0] * a[1] + b[0] * b[1] - both)


def anchors(p):
    found = json.loads(p.good("detctl", "anchors", "tiny", "--json"))
    sizes = found["anchor_sizes"]
    pairs = list(zip(sizes[::2], sizes[1::2]))
    # The boxes of pictures of 64 x 64 at an input of 64 x 64 are as they are annotated.
    boxes = [a["bbox"][2:] for a in json.loads(p.read("shapes/train.json"))["annotations"]]
    mean = sum(max(iou(b, a) for a in pairs) for b in boxes) / len(boxes)
    assert found["boxes"] == len(boxes) and len(pairs) == 6 and pairs == sorted(pairs, key=lambda a: a[0] * a[1]), found
    assert abs(found["mean_iou"] - mean) < 1e-6 and found["mean_iou"] > found["own_mean_iou"], (found, mean)
    text = p.good("detctl", "anchors", "tiny.json")
    key = "[" + text.split("[")[1].split("]")[0] + "]"
    assert json.loads(key) == sizes and text.startswith("%d boxes at 64 x 64: mean IoU %.4f; " % (len(boxes), mean)), text
    # Anchors grow with the input, and pasted anchors are those of the network.
    twice = json.loads(p.good("detctl", "anchors", "tiny", "model.size=128", "--json"))
    assert abs(twice["mean_iou"] - mean) < 0.02 and abs(sum(twice["anchor_sizes"]) / sum(sizes) - 2) < 0.05, twice
    again = json.loads(p.good("detctl", "anchors", "tiny", "model.anchor_sizes=" + key, "--json"))
    assert again["mean_iou"] == found["mean_iou"] and abs(again["own_mean_iou"] - found["mean_iou"]) < 1e-6, again
    few = p.good("detctl", "anchors", "tiny", "-n", "2")
    assert "another number needs a .cfg with this number" in few, few
    p.refused("model.anchor_sizes: must be 12 numbers, width and height of each of the 6 anchors of yolov3_tiny, are 4", "detctl", "check",
              "tiny", "model.anchor_sizes=[1,2,3,4]")
    p.refused("model.anchor_sizes: must be pixels above 0, number 3 is -1", "detctl", "check", "tiny",
              "model.anchor_sizes=[1,2,-1,4,5,6,7,8,9,10,11,12]")
    p.refused("boxes are too few for 32 anchors", "detctl", "anchors", "tiny", "-n", "32")
    for wrong in "x", "0", "00":
        p.refused("-n is a count above 0, not '%s'" % wrong, "detctl", "anchors", "tiny", "-n", wrong, code=2)
    p.refused("number is out of range", "detd-worker", "--anchors", "--count", "0", "tiny.json", code=2)


def trained_with_anchors(p):
    """The anchors decide the training: other anchors give other losses, and the exported network has them."""
    p.good("detd-worker", "--dir", "own", "tiny.json", "train.steps=2")
    p.good("detd-worker", "--dir", "given", "tiny.json", "train.steps=2", "model.anchor_sizes=[5,5, 9,8, 12,13, 17,16, 20,21, 30,31]")
    p.good("detd-worker", "--export", "weights", "--job-dir", "given", "--out", "given.weights")
    p.good("detd-worker", "--export", "weights", "--job-dir", "own", "--out", "own.weights")
    assert "anchors=5,5, 9,8, 12,13, 17,16, 20,21, 30,31\n" in p.read("given.cfg").decode()
    assert "anchors=10,14, 23,27, 37,58, 81,82, 135,169, 344,319\n" in p.read("own.cfg").decode()
    assert p.read("given.weights") != p.read("own.weights")


def size_of(png):
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def sample(p):
    said = p.good("detctl", "sample", "tiny", "-o", "seen", "-n", "5").splitlines()
    assert len(said) == 5 and sorted(os.listdir(p.path("seen"))) == ["sample-%03d.png" % (i + 1) for i in range(5)], said
    assert [line.split(",")[0] for line in said] == ["step 1"] * 4 + ["step 2"], said
    first = p.read("seen/sample-001.png")
    assert size_of(first) == (64, 64)
    # The same command draws the same picture, other augmentation draws another; files that detd did not write stay.
    p.good("detctl", "sample", "tiny", "-o", "seen", "-n", "1")
    assert p.read("seen/sample-001.png") == first
    p.good("detctl", "sample", "tiny", "data.augment.scale=0.5", "train.epochs=1", "train.steps=null", "-o", "zoomed", "-n", "1")
    assert p.read("zoomed/sample-001.png") != first
    shutil.copy(p.path("shapes/images/train-0001.png"), p.path("seen/sample-001.png"))
    p.refused("is there, and detd did not write it", "detctl", "sample", "tiny", "-o", "seen", "-n", "1")
    assert p.read("seen/sample-001.png") == p.read("shapes/images/train-0001.png")
    p.refused("-o DIR is required", "detctl", "sample", "tiny", code=2)


def sample_masks(p):
    p.shapes("outlines", "--masks")
    job = {
        "model": {
            "preset": "mask_rcnn_r18_fpn", "width": 0.125, "min_size": 64, "max_size": 64, "fpn_channels": 16, "head_channels": 16,
            "mask_channels": 8
        }, "data": {"train": {"annotations": "outlines/train.json", "images": "outlines/images"}}, "train": {"steps": 2, "batch": 2}
    }
    p.write("masks.json", job)
    job["model"]["preset"] = "faster_rcnn_r18_fpn"
    del job["model"]["mask_channels"]
    p.write("boxes.json", job)
    for flavor in "d2", "tv":
        for name in "masks", "boxes":
            p.good("detctl", "sample", name, "model.flavor=" + flavor, "-o", name + flavor, "-n", "2")
        assert size_of(p.read("masks%s/sample-001.png" % flavor)) == (64, 64)
        assert p.read("masks%s/sample-001.png" % flavor) != p.read("boxes%s/sample-001.png" % flavor)


def sample_frames(p):
    """A sample shows the target beside both of its neighbours."""
    p.shapes("film", "--train", "20")
    subprocess.run([sys.executable, HERE + "/../demo/as_frames.py", p.path("film"), "64"], check=True)
    p.write(
        "film.json", {
            "model": {"preset": "featdepth_baseline_r18", "size": [96, 64], "width": 0.125},
            "data": {"train": {"format": "frames", "annotations": "film/train.txt", "images": "film"}}, "train": {"steps": 2, "batch": 2}
        })
    said = p.good("detctl", "sample", "film", "-o", "film-seen", "-n", "2")
    assert "96 x 64 -> film-seen/sample-001.png" in said and "objects" not in said, said
    assert size_of(p.read("film-seen/sample-001.png")) == (3 * 96, 64)


def steps_of(p, folder):
    return sorted(int(name.split("-")[1]) for name in os.listdir(p.path(folder + "/checkpoints")))


def rows(text, kind):
    return [r for r in map(json.loads, text.splitlines()) if r["type"] == kind]


def stop(p):
    """Training ends so many validations after the best one, and says so. A run that continues from a checkpoint in
    between ends there too, with the same bits."""
    text = p.good("detd-worker", "--dir", "stopped", "tiny.json", "train.stop_after=3")
    losses = {r["step"]: r["terms"]["total"] for r in rows(text, "loss") if r["split"] == "val"}
    end, best = steps_of(p, "stopped")[-1], None
    for r in rows(text, "checkpoint"):
        best = r["step"] if r.get("best") else best
    assert end < 60 and end == best + 2 * 3, (end, best, losses)
    last = rows(text, "end")[-1]
    assert last["outcome"] == "completed", last
    assert last["reason"] == "stopped after step %d of 60: 3 validations since that of step %d were no better (train.stop_after)" % (
        end, best), last
    shutil.copytree(p.path("stopped"), p.path("again"))
    for step in steps_of(p, "again"):
        if step > best + 2:
            shutil.rmtree(p.path("again/checkpoints/step-%d" % step))
    p.good("detd-worker", "--dir", "again", "tiny.json", "train.stop_after=3")
    assert steps_of(p, "again")[-1] == end
    for name in "model.safetensors", "state.safetensors":
        assert p.read("again/checkpoints/step-%d/%s" % (end, name)) == p.read("stopped/checkpoints/step-%d/%s" % (end, name)), name
    done = p.good("detd-worker", "--dir", "again", "tiny.json", "train.stop_after=3")
    assert rows(done, "end")[-1] == dict(last, **{k: v for k, v in rows(done, "end")[-1].items() if k not in ("outcome", "reason")}), done
    p.refused("train.stop_after: needs data.val", "detd-worker", "--dir", "x", "tiny.json", "train.stop_after=3", "val.every=0")


def terms(text, step):
    return {r["split"]: {name: tuple(value) for name, value in r["terms"].items()} for r in rows(text, "loss") if r["step"] == step}


def class_weights(p):
    """Class weights appear in the losses of both splits: a weight of a single class changes the loss by that class's
    share, a weight of all classes is a factor, and a factor of one changes no bit of the weights."""
    names = [c["name"] for c in json.loads(p.read("shapes/train.json"))["categories"]]
    spec = dict(JOB, train=dict(JOB["train"], steps=2, log_every=1))
    texts = {}
    for name, weights in ("none", {}), ("one", dict.fromkeys(names,
                                                             1)), ("twice", dict.fromkeys(names,
                                                                                          2)), ("first", {names[0]: 2
                                                                                                          }), ("last",
                                                                                                               dict.fromkeys(names[1:], 2)):
        spec["train"]["class_weights"] = weights
        p.write("weights.json", spec)
        texts[name] = p.good("detd-worker", "--dir", "weights-" + name, "weights.json")
    cls = {name: terms(text, 1)["train"]["cls"] for name, text in texts.items()}
    (plain, den), (first, _), (last, _) = cls["none"], cls["first"], cls["last"]
    assert cls["one"] == cls["none"] and cls["twice"] == (2 * plain, den), cls
    assert plain < first < 2 * plain and abs(first + last - 3 * plain) < 1e-6 * plain, cls
    for name in "box", "obj", "noobj":
        assert terms(texts["twice"], 1)["train"][name] == terms(texts["none"], 1)["train"][name], name
    models = {name: p.read("weights-%s/checkpoints/step-2/model.safetensors" % name) for name in texts}
    assert models["one"] == models["none"] and len(set(models.values())) == 4, "weights are trained by their losses"
    p.refused("train.class_weights: the data set has no category 'circel'; did you mean 'circle'?", "detctl", "check", "weights",
              "train.class_weights.circel=2")


def main():
    with tempfile.TemporaryDirectory(prefix="detd-habits-") as folder:
        p = Place(folder)
        for test in anchors, trained_with_anchors, sample, sample_masks, sample_frames, stop, class_weights:
            test(p)
            print("ok", test.__name__)


main()
