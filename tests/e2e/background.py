#!/usr/bin/env python3
"""A split with pictures and no box is background: it trains and validates, its losses are finite and its AP is
undefined."""  # SPDX-License-Identifier: Apache-2.0
import json
import os

from daemon import Daemon, make_shapes

STEPS = 4


def bare(data, split):
    """The same pictures, under the shortest names, with nothing on them; a record of such a picture is the shortest of all."""
    truth = json.load(open("%s/%s.json" % (data, split)))
    for n, image in enumerate(truth["images"]):
        name = split[0] + str(n)
        os.link(data + "/images/" + image["file_name"], data + "/images/" + name)
        image["file_name"] = name
    truth["annotations"] = []
    json.dump(truth, open("%s/bare_%s.json" % (data, split), "w"))


def run(d, data, train, val):
    splits = {"train": train, "val": val}
    spec = {"model": {"preset": "yolov3_tiny", "size": 64, "width": 0.01},
            "data": {s: {"annotations": "%s/%s.json" % (data, name), "images": data + "/images"} for s, name in splits.items()},
            "train": {"steps": STEPS, "batch": 4, "shards": 2, "log_every": 1}, "val": {"every": 2}, "run": {"device": "cpu"}}
    job = d.call("job.submit", spec=spec, token=train + val)["id"]
    done = d.wait(job, lambda j: j["state"] in ("completed", "failed"))
    assert done["state"] == "completed" and done["attempt"] == 1, (done["state"], done["attempts"])
    check_losses(d, job, "train", train, list(range(1, STEPS + 1)))
    check_losses(d, job, "val", val, [2, STEPS])
    scores = dict(d.sql("SELECT metric, value FROM eval WHERE job=? AND step=?", job, STEPS))
    assert "AP" in scores and "voc_AP50" in scores and all(
        (v is None) == (val == "bare_val") for v in (scores["AP"], scores["voc_AP50"])), scores
    print("ok  %s, %s: AP %s" % (train, val, scores["AP"]))


def check_losses(d, job, split, name, steps):
    """Infinities and NaN do not pass: the store has NULL for them."""
    rows = {term: d.sql("SELECT step, value, den FROM loss WHERE job=? AND split=? AND term=? ORDER BY step", job, split, term)
            for term in ("total", "noobj", "obj", "iou")}
    for term in ("total", "noobj", "obj"):
        assert [r[0] for r in rows[term]] == steps and all(r[1] is not None and 0 <= r[1] < 1e6 for r in rows[term]), rows
    empty = name.startswith("bare_")
    assert all(r[1] > 0 for r in rows["noobj"]) and all((r[1] == 0) == empty for r in rows["obj"]), rows
    assert all((r[1] is None) == empty and (r[2] == 0) == empty for r in rows["iou"]), rows


def main():
    with Daemon(foreign=False) as d:
        data = d.root + "/shapes"
        make_shapes(data, 6, 2, 32)
        for split in ("train", "val"):
            bare(data, split)
        for train, val in (("bare_train", "val"), ("train", "bare_val"), ("bare_train", "bare_val")):
            run(d, data, train, val)


main()
