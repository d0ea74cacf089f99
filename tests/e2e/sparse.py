#!/usr/bin/env python3
"""A small Sparse R-CNN (specs sparse_rcnn section 12) learns from the pictures of BCCD: the loss falls in 200 steps.
The gradient is divided by the number of objects. With TEST_LONG the network finds the objects of the validation
pictures after 800 steps from a grid; with TEST_LONG=2 it knows eight pictures after 500."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

from daemon import BUILD, HERE, SANITIZED

DATA = os.path.normpath(HERE + "/../../../shared/data/bccd")
LONG = int(os.environ.get("TEST_LONG", "0"))
WINDOW = 25  # steps of a mean


def train(folder, splits, model=None, **keys):
    """Trains in a new folder; returns {split: {step: {term: quotient}}} and the metrics of the last validation."""
    spec = {
        "model": {
            "preset": "sparse_rcnn_r18_fpn", "width": 0.25, "fpn_channels": 64, "proposals": 20, "stages": 3, "heads": 8,
            "dynamic_channels": 16, "ffn_channels": 256, "min_size": [240], "max_size": 320
        } | (model or {}), "data": {s: {"annotations": path, "images": DATA + "/images"}
                                    for s, path in splits.items()} | {"on_bad": "skip"},
        "train": {"batch": 4, "shards": 1, "lr": 0.001, "seed": 1, "log_every": WINDOW} | keys,
        "val": {"every": keys["steps"] if "val" in splits else 0}, "run": {"device": "cpu", "threads": 2, "evidence": "off"}
    }
    with open(folder + ".json", "w", encoding="utf-8") as f:
        json.dump(spec, f)
    done = subprocess.run([BUILD + "/detd-worker", "--dir", folder, folder + ".json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    losses, metrics = {}, {}
    for m in map(json.loads, done.stdout.splitlines()):
        if m["type"] == "loss":
            losses.setdefault(m["split"], {})[m["step"]] = {term: n / d for term, (n, d) in m["terms"].items()}
        if m["type"] == "eval":
            metrics = m["metrics"]
    return losses, metrics


def falls(root):
    """The first test of specs sparse_rcnn section 10.3."""
    steps, least = (50, 0.9) if SANITIZED else (200, 0.55)
    train_losses = train(root + "/falls", {"train": DATA + "/train.json"}, steps=steps, burn_in=80 if steps == 200 else 10,
                         schedule="constant")[0]["train"]
    first, last = train_losses[WINDOW], train_losses[steps]
    print("total %.3f to %.3f, giou %.3f to %.3f" % (first["total"], last["total"], first["giou"], last["giou"]))
    assert last["total"] < least * first["total"], (first, last)
    assert SANITIZED or last["giou"] < 0.85 * first["giou"], (first, last)


def objects_divide(root):
    """The gradient is divided by the objects of the step, which the length of a step of SGD shows: without a class loss,
    a picture that has no objects changes nothing."""
    with open(DATA + "/train.json", encoding="utf-8") as f:
        data = json.load(f)
    pictures = data["images"][:2]
    objects = [a for a in data["annotations"] if a["image_id"] == pictures[0]["id"]]
    train(root + "/first", {"train": DATA + "/train.json"}, steps=1)
    model = {"init": root + "/first/checkpoints/step-1/model.safetensors", "freeze_at": 0, "cls_gain": 0}
    rows = []
    for n in 1, 2:
        with open("%s/pictures-%d.json" % (root, n), "w", encoding="utf-8") as f:
            json.dump(data | {"images": pictures[:n], "annotations": objects}, f)
        rows.append(train("%s/divided-%d" % (root, n), {"train": f.name}, model, steps=3, batch=n, shards=n, optimizer="sgd", clip_norm=0,
                          burn_in=0, log_every=1)[0]["train"])
    assert rows[0] == rows[1], rows


def finds(root):
    splits = {s: "%s/%s.json" % (DATA, s) for s in ("train", "val")}
    losses, metrics = train(root + "/finds", splits, {"proposal_init": "grid"}, steps=800, burn_in=40)
    print("800 steps from a grid: validation %s, metrics %s" % (losses["val"][800], metrics))
    assert losses["train"][600]["total"] < 0.9 * losses["train"][200]["total"], losses["train"]
    assert metrics["AP50"] >= 0.4 and metrics["AP"] >= 0.22 and losses["val"][800]["total"] <= 6.2


def knows(root):
    """The first eight pictures with 5 to 20 objects."""
    with open(DATA + "/train.json", encoding="utf-8") as f:
        data = json.load(f)
    of = {i["id"]: [a for a in data["annotations"] if a["image_id"] == i["id"]] for i in data["images"]}
    few = [i for i in data["images"] if 5 <= len(of[i["id"]]) <= 20][:8]
    with open(root + "/few.json", "w", encoding="utf-8") as f:
        json.dump(data | {"images": few, "annotations": [a for i in few for a in of[i["id"]]]}, f)
    losses, metrics = train(root + "/knows", {s: root + "/few.json" for s in ("train", "val")}, steps=500, burn_in=25)
    print("500 steps over 8 pictures: validation %s, metrics %s" % (losses["val"][500], metrics))
    assert losses["val"][500]["total"] <= 2.5 and metrics["AP50"] >= 0.85


def main():
    if not os.path.isdir(DATA):
        print("skip: no ../shared/data/bccd")
        return
    with tempfile.TemporaryDirectory() as root:
        objects_divide(root)
        falls(root)
        if LONG:
            finds(root)
        if LONG > 1:
            knows(root)


sys.exit(main())
