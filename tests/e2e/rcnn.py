#!/usr/bin/env python3
"""A small Mask R-CNN is trained on eight pictures until it knows them; then it predicts, is exported and begins another
job, frozen in part."""  # SPDX-License-Identifier: Apache-2.0
import glob
import json
import math
import os
import struct
import subprocess
import tempfile

from daemon import BUILD, make_shapes

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


def changed(path, to, name, how):
    """Writes a copy of a safetensors file, after how(header, data) has changed the entry of the array."""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), bytearray(f.read())
    how(header[name], data)
    text = json.dumps(header).encode()
    with open(to, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def notes(path):
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(size))["__metadata__"]


def put_nan(array, data):
    struct.pack_into("<f", data, array["data_offsets"][0] + 4, math.nan)


def put_shape(array, _):
    array["shape"] = [array["shape"][0] * array["shape"][1], *array["shape"][2:], 1]


def put_half(array, _):
    array["data_offsets"][1] -= 4


def bad_weights(root, data, good):
    """Each message is a sentence that names the file and, if there is one, the array."""
    def broken(name, how):
        changed(good, root + "/bad.safetensors", name, how)

    def cut(n):
        with open(good, "rb") as f, open(root + "/bad.safetensors", "wb") as to:
            to.write(f.read()[:n])

    size, predictor, deconv = os.path.getsize(
        good), "roi_heads.box_predictor.cls_score.weight", "roi_heads.mask_predictor.conv5_mask.weight"
    cases = [(lambda: broken("backbone.fpn.inner_blocks.0.0.weight", put_nan),
              "'backbone.fpn.inner_blocks.0.0.weight': backbone.fpn_lateral2.weight: number 1 is nan, which is not finite"),
             (lambda: broken(predictor, put_nan), "nan, which is not finite"),
             (lambda: broken("rpn.head.conv.0.0.weight", put_shape), "is [1024, 3, 3, 1] in the file and [32, 32, 3, 3] in the model"),
             (lambda: broken(deconv, put_shape), "is [256, 2, 2, 1] in the file and [16, 16, 2, 2] in the model"),
             (lambda: broken(predictor, put_shape), "has 256 rows and 256 numbers in the file; 4 rows of 64 numbers are wanted"),
             (lambda: broken(predictor, put_half), ""), (lambda: cut(size - 1), ""), (lambda: cut(size // 2), ""), (lambda: cut(100), ""),
             (lambda: cut(7), ""), (lambda: cut(0), "")]
    for i, (make, said) in enumerate(cases):
        make()
        code, messages, err = train("%s/bad-%d" % (root, i), data, 1, init=root + "/bad.safetensors")
        assert code == 1 and root + "/bad.safetensors" in err and said in err, (i, said, err)
        assert [m["outcome"] for m in messages if m["type"] == "end"] == ["failed"], messages
        print("ok  ", err.strip()[-150:], flush=True)


def finer_masks(root, data, picture):
    """Weights learned with masks of 28 x 28 begin a job of 56 x 56, and its files say so. A file of any program fits,
    as the head is convolutions."""
    code, messages, err = train(root + "/finer", data, 20, init=root + "/torchvision.safetensors", mask_pool=28)
    assert code == 0, err
    check_losses(messages)
    said = [m["text"] for m in messages if m["type"] == "event" and m["kind"] == "init"]
    assert len(said) == 1 and "; its model.mask_pool is 14, the job's is 28" in said[0], said
    scores = [m for m in messages if m["type"] == "eval"][-1]["metrics"]
    assert scores["segm_AP50"] >= 0.8, scores
    (saved,) = glob.glob(root + "/finer/checkpoints/*20/model.safetensors")
    assert notes(saved)["model.mask_pool"] == "28", notes(saved)
    code, out, err = worker("--predict", "--job-dir", root + "/finer", "--out", root + "/seen", picture)
    assert code == 0 and json.load(open(root + "/seen/results_segm.json")), (out, err)
    code, out, err = worker("--export", "detectron2", "--job-dir", root + "/finer", "--out", root + "/finer.safetensors", "--checkpoint",
                            "last")
    assert code == 0 and notes(root + "/finer.safetensors")["model.mask_pool"] == "28", (out, err)
    code, messages, err = train(root + "/back", data, 1, init=root + "/finer.safetensors")
    said = [m["text"] for m in messages if m["type"] == "event" and m["kind"] == "init"]
    assert code == 0 and "; its model.mask_pool is 28, the job's is 14" in said[0], (said, err)
    code, _, err = train(root + "/no-mask", data, 1, mask_pool=33)
    assert code == 1 and "model.mask_pool: must be at most 32, is 33" in err, err
    code, _, err = train(root + "/no-masks", data, 1, preset="faster_rcnn_r18_fpn", mask_pool=28, mask_channels=256)
    assert code == 1 and "model.mask_pool: needs a network that finds masks" in err, err


def main():
    with tempfile.TemporaryDirectory() as root:
        data = root + "/shapes"
        make_shapes(data, 8, 0, 64, "--masks")
        code, messages, err = train(root + "/whole", data, 500)
        assert code == 0, err
        check_losses(messages)
        scores = [m for m in messages if m["type"] == "eval"][-1]["metrics"]
        assert scores["AP"] >= 0.9 and scores["segm_AP"] >= 0.9 and scores["segm_AP50"] >= 0.95, scores

        picture = data + "/images/" + json.load(open(data + "/train.json"))["images"][0]["file_name"]
        code, out, err = worker("--predict", "--job-dir", root + "/whole", "--out", root + "/seen", picture)
        assert code == 0, err
        masks = json.load(open(root + "/seen/results_segm.json"))
        assert masks and all(m["segmentation"]["size"] == [64, 64] for m in masks), out
        code, out, err = worker("--predict", "--job-dir", root + "/whole", "--out", root + "/seen", root + "/no such picture.png")
        assert code == 1 and "0 masks of score 0.25 and more -> " in out and "1 of 1 images could not be read" in err, (out, err)
        assert json.load(open(root + "/seen/results_segm.json")) == [] == json.load(
            open(root + "/seen/results.json")), "those of an earlier predict are left"

        for names in ("torchvision", "detectron2"):
            path = f"{root}/{names}.safetensors"
            code, out, err = worker("--export", names, "--job-dir", root + "/whole", "--out", path, "--checkpoint", "last")
            assert code == 0, err
            told = out.splitlines()[-1]
            if names == "torchvision":
                assert "image_mean=[103.53, 116.28, 123.675]" in told and "aligned=True" in told, out
            else:
                assert "defaults are the job's" in told, out
            code, messages, err = train(f"{root}/{names}", data, 1, init=path)
            assert code == 0, err
            said = [m["text"] for m in messages if m["type"] == "event" and m["kind"] == "init"]
            assert len(said) == 1 and names in said[0] and "not in the file" not in said[0], said
            again = [m for m in messages if m["type"] == "eval"][-1]["metrics"]
            assert again["AP"] >= 0.8, (names, again)
            traits = {"model.flavor": "d2", "model.backbone": "msra"}
            assert notes(path) == dict(traits, written_by="detd export"), notes(path)
        finer_masks(root, data, picture)
        (saved,) = glob.glob(root + "/whole/checkpoints/*500/model.safetensors")
        assert notes(saved).items() >= traits.items(), notes(saved)
        changed(root + "/torchvision.safetensors", root + "/theirs.safetensors", "__metadata__", lambda notes, _: notes.clear())
        code, messages, err = train(root + "/theirs", data, 1, init=root + "/theirs.safetensors")
        assert code == 1 and "model.init" in err and "a detector of torchvision, which fits model.flavor=tv" in err, err
        bad_weights(root, data, root + "/torchvision.safetensors")
        code, _, err = worker("--export", "darknet", "--job-dir", root + "/whole", "--out", root + "/x")
        assert code == 1 and "their formats are safetensors, torchvision, detectron2" in err, err
        code, _, err = train(root + "/frozen", data, 1, freeze_at=1)
        assert code == 1 and "model.freeze_at: needs model.init" in err, err


main()
