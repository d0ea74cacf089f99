#!/usr/bin/env python3
"""A small Mask R-CNN is trained on eight pictures until it knows them; then it predicts, is exported and begins another job, frozen in part."""
import json
import math
import os
import subprocess
import sys
import tempfile

BUILD = os.environ["DETD_BUILD"]
HERE = os.path.dirname(os.path.abspath(__file__))
TERMS = {"total", "rpn_cls", "rpn_box", "cls", "box", "mask"}


def worker(*args):
    r = subprocess.run([BUILD + "/detd-worker", *args], capture_output=True, text=True, check=False)
    return r.returncode, r.stdout, r.stderr


def train(folder, data, steps, **more):
    model = {"preset": "mask_rcnn_r18_fpn", "width": 0.25, "min_size": [64], "max_size": 64, "fpn_channels": 32, "head_channels": 64,
             "mask_channels": 16, "anchors": [8, 16, 32, 64, 128], "rpn_pre_nms": 100, "rpn_pre_nms_val": 100, "rpn_post_nms": 50,
             "rpn_post_nms_val": 50, "roi_batch": 64}
    split = {"annotations": data + "/train.json", "images": data + "/images"}
    spec = {"model": dict(model, **more), "data": {"train": split, "val": split, "augment": {"flip": 0}},
            "train": {"steps": steps, "batch": 4, "shards": 1, "lr": 0.02, "burn_in": min(20, steps)}, "val": {"every": steps},
            "run": {"device": "cpu", "threads": 2, "evidence": "off"}}
    os.mkdir(folder)
    with open(folder + ".json", "w") as f:
        json.dump(spec, f)
    code, out, err = worker("--dir", folder, folder + ".json")
    return code, [json.loads(line) for line in out.splitlines()], err


def check_losses(messages):
    for m in messages:
        if m["type"] == "loss":
            assert set(m["terms"]) == TERMS, m
            quotient = {k: n / d for k, (n, d) in m["terms"].items()}
            assert all(math.isfinite(q) and q >= 0 for q in quotient.values()), m
            assert abs(quotient["total"] - sum(quotient[k] for k in TERMS - {"total"})) < 1e-6 * quotient["total"] + 1e-9, m


def main():
    with tempfile.TemporaryDirectory() as root:
        data = root + "/shapes"
        subprocess.run([sys.executable, HERE + "/../demo/make_shapes.py", data, "--train", "8", "--val", "0", "--size", "64", "--masks"], check=True)
        code, messages, err = train(root + "/whole", data, 400)
        assert code == 0, err
        check_losses(messages)
        scores = [m for m in messages if m["type"] == "eval"][-1]["metrics"]
        assert scores["AP"] >= 0.9 and scores["segm_AP"] >= 0.85 and scores["segm_AP50"] >= 0.95, scores

        picture = data + "/images/" + json.load(open(data + "/train.json"))["images"][0]["file_name"]
        code, out, err = worker("--predict", "--job-dir", root + "/whole", "--out", root + "/seen", picture)
        assert code == 0, err
        masks = json.load(open(root + "/seen/results_segm.json"))
        assert masks and all(m["segmentation"]["size"] == [64, 64] for m in masks), out

        for names in ("torchvision", "detectron2"):
            path = f"{root}/{names}.safetensors"
            code, out, err = worker("--export", names, "--job-dir", root + "/whole", "--out", path, "--checkpoint", "last")
            assert code == 0, err
            code, messages, err = train(f"{root}/{names}", data, 1, init=path)
            assert code == 0, err
            said = [m["text"] for m in messages if m["type"] == "event" and m["kind"] == "init"]
            assert len(said) == 1 and names in said[0] and "not in the file" not in said[0], said
            again = [m for m in messages if m["type"] == "eval"][-1]["metrics"]
            assert again["AP"] >= 0.8, (names, again)
        code, _, err = worker("--export", "darknet", "--job-dir", root + "/whole", "--out", root + "/x")
        assert code == 1 and "known: torchvision, detectron2" in err, err
        code, _, err = train(root + "/frozen", data, 1, freeze_at=1)
        assert code == 1 and "model.freeze_at: needs model.init" in err, err


main()
