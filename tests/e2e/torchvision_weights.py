"""A maskrcnn_resnet50_fpn of torchvision with random weights: its file is the start of a job, which leaves every number
as it is and finds the same objects in a picture as torchvision; the file that is exported has the same bytes in every
array.

The picture has the network's size: resized pictures are rounded to whole levels here, like detectron2's, and half a
level changes the output of a random network altogether, in torchvision too."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from torchvision.models.detection import maskrcnn_resnet50_fpn
from torchvision.ops import FrozenBatchNorm2d, box_iou

BUILD = os.environ["DETD_BUILD"]
HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.normpath(HERE + "/../../../shared/data/coco_tiny")
SHORT, LONG, FOUND = 320, 480, 40
NEAR = 1e-3


def write(path, arrays):
    header, data = {}, b""
    for name, a in arrays.items():
        raw = a.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read(path):
    """{name: (shape, bytes)}"""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    return {name: (a["shape"], data[slice(*a["data_offsets"])]) for name, a in header.items() if name != "__metadata__"}


def picture(path):
    """Returns a picture of the collection, or a picture of our own if the collection is missing, at the network's size,
    with its objects."""
    folder, images = DATA + "/instances_train.json", DATA + "/train/"
    if not os.path.isdir(DATA):
        shapes = os.path.dirname(path) + "/shapes"
        subprocess.run([sys.executable, HERE + "/../demo/make_shapes.py", shapes, "--train", "1", "--val", "0", "--masks"], check=True,
                       stdout=subprocess.DEVNULL)
        folder, images = shapes + "/train.json", shapes + "/images/"
    with open(folder, encoding="utf-8") as f:
        whole = json.load(f)
    if not os.path.isdir(DATA):  # ids of categories have gaps, as in the collection
        for one in whole["categories"]:
            one["id"] *= 10
        for one in whole["annotations"]:
            one["category_id"] *= 10
        whole["categories"] += [{"id": k, "name": "class %d" % k} for k in (40, 90)]
    objects = [a for a in whole["annotations"] if not a["iscrowd"]]
    image = next(i for i in whole["images"] if any(a["image_id"] == i["id"] for a in objects))
    Image.open(images + image["file_name"]).convert("RGB").resize((LONG, SHORT)).save(path)

    def scaled(numbers):
        return [v * (SHORT / image["height"] if i % 2 else LONG / image["width"]) for i, v in enumerate(numbers)]

    return {"images": [dict(image, file_name=os.path.basename(path), width=LONG, height=SHORT)], "categories": whole["categories"],
            "annotations": [dict(a, bbox=scaled(a["bbox"]), segmentation=[scaled(p) for p in a["segmentation"]])
                            for a in objects if a["image_id"] == image["id"]]}


def theirs(ids, pixels):
    """Returns a torchvision model with frozen statistics that fit the picture, and heads with confident scores. A label
    is a category's id, as in torchvision's published detectors: 91 rows for COCO's 80 categories. The rows without a
    category never score."""
    torch.manual_seed(7)
    model = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=ids[-1] + 1, min_size=SHORT, max_size=LONG,
                                  box_score_thresh=0.05, box_detections_per_img=FOUND)
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, torch.nn.BatchNorm2d):
                m.momentum = None
                m.train()
        model.backbone.train()
        model.backbone(model.transform([pixels])[0].tensors)
        for head, scale in ((model.rpn.head.cls_logits, 30), (model.rpn.head.bbox_pred, 3), (model.roi_heads.box_predictor.cls_score, 8),
                            (model.roi_heads.mask_predictor.mask_fcn_logits, 3)):
            head.weight *= scale
        box, mask = model.roi_heads.box_predictor, model.roi_heads.mask_predictor.mask_fcn_logits
        for row in sorted(set(range(1, ids[-1])) - set(ids)):
            for a in (box.cls_score.weight[row], box.bbox_pred.weight[4 * row:4 * row + 4], box.bbox_pred.bias[4 * row:4 * row + 4],
                      mask.weight[row], mask.bias[row:row + 1]):
                a.zero_()
            box.cls_score.bias[row] = -10000
    assert not any(isinstance(m, FrozenBatchNorm2d) for m in model.modules())
    return model.eval()


def worker(*args):
    done = subprocess.run([BUILD + "/detd-worker", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def job(folder, classes_of, weights):
    split = {"annotations": classes_of, "images": folder}
    with open(folder + "/job.json", "w", encoding="utf-8") as f:
        json.dump(
            {
                "name": "theirs", "model": {
                    "preset": "mask_rcnn_r50_fpn", "flavor": "tv", "init": weights, "min_size": SHORT, "max_size": LONG
                }, "data": {"train": split}, "train": {"steps": 1, "batch": 1, "lr": 1e-300, "weight_decay": 0},
                "run": {"device": "cpu", "evidence": "off"}, "val": {"max_det": FOUND}
            }, f)
    said = [json.loads(line) for line in worker("--dir", folder + "/job", folder + "/job.json").splitlines()]
    return next(m["text"] for m in said if m["type"] == "event" and m["kind"] == "init")


def same_arrays(before, after):
    """Compares all arrays except the batch counters, which no network reads."""
    wanted = {n: a for n, a in before.items() if not n.endswith("num_batches_tracked")}
    assert set(after) == set(wanted), set(after) ^ set(wanted)
    wrong = [n for n in wanted if wanted[n] != after[n]]
    assert not wrong, wrong
    print("ok  %d arrays in and out, to the bit" % len(wanted))


def same_detections(model, pixels, folder):
    """Compares detections in their order, by their places; at the end either list may lack detections that differ by
    rounding."""
    with torch.no_grad():
        found = model([pixels])[0]
    worker("--predict", "--job-dir", folder + "/job", "--out", folder + "/out", "--checkpoint", "last", folder + "/picture.png")
    with open(folder + "/out/results.json", encoding="utf-8") as f:
        ours = json.load(f)
    assert len(found["boxes"]) >= 10 and len({int(x)
                                              for x in found["labels"]}) > 1 and found["scores"][0] - found["scores"][-1] > 0.01, found
    boxes = torch.tensor([r["bbox"] for r in ours], dtype=torch.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    labels = torch.tensor([r["category_id"] for r in ours])
    least, missing, far = float(found["scores"][-1]) + 1e-4, 0, [0.0, 0.0]
    for box, label, score in zip(found["boxes"].double(), found["labels"], found["scores"].double()):
        overlap = box_iou(box[None], boxes)[0] * (labels == label)
        best = int(overlap.argmax())
        if overlap[best] < 0.99:
            missing += float(score) > least
            continue
        far[0] = max(far[0], float((box - boxes[best]).abs().max() / max(pixels.shape[1:])))
        far[1] = max(far[1], abs(float(score) - ours[best]["score"]))
    print("%d detections of %d, farthest box %.2g of the picture, score %.2g" % (len(ours), len(found["boxes"]), *far))
    assert missing == 0 and max(far) < NEAR, (missing, far)


def main():
    with tempfile.TemporaryDirectory() as folder:
        data = picture(folder + "/picture.png")
        with open(folder + "/data.json", "w", encoding="utf-8") as f:
            json.dump(data, f)
        ids = sorted(c["id"] for c in data["categories"])
        pixels = torch.from_numpy(np.array(Image.open(folder + "/picture.png"))).permute(2, 0, 1).float() / 255
        model = theirs(ids, pixels)
        write(folder + "/theirs.safetensors",
              {n: a.detach().contiguous()
               for n, a in model.state_dict().items() if a.dtype == torch.float32})
        said = job(folder, folder + "/data.json", folder + "/theirs.safetensors")
        assert ids[-1] > len(ids) and "(torchvision's names, classes by the ids of their categories)" in said, said
        assert "not in the file" not in said and "without a place" not in said, said
        worker("--export", "torchvision", "--job-dir", folder + "/job", "--out", folder + "/ours.safetensors", "--checkpoint", "last")
        same_arrays(read(folder + "/theirs.safetensors"), read(folder + "/ours.safetensors"))
        if os.path.isdir(DATA):
            same_detections(model, pixels, folder)
        else:
            print("skip: no %s: detections in a photograph" % os.path.relpath(DATA, HERE + "/../.."))
        few = dict(data, categories=data["categories"][:3],
                   annotations=[dict(a, category_id=data["categories"][0]["id"]) for a in data["annotations"]])
        with open(folder + "/few.json", "w", encoding="utf-8") as f:
            json.dump(few, f)
        os.rename(folder + "/job", folder + "/job-80")
        said = job(folder, folder + "/few.json", folder + "/theirs.safetensors")
        assert "left out, as the file is of %d classes and the job of 3: the box predictor, the mask predictor" % ids[-1] in said, said
        print("ok ", said)


main()
