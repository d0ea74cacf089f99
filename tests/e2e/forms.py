#!/usr/bin/env python3
"""BCCD as COCO JSON, Pascal VOC, darknet's lists and a folder with a data.yaml: every form trains to the same bits.
usage: forms.py BUILD_FOLDER"""  # SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import subprocess
import sys
import tempfile

from daemon import tensors_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BCCD = os.path.join(ROOT, "..", "shared", "data", "bccd")
NAMES = ["RBC", "WBC", "Platelets"]  # in the order of COCO's ids, which is that of the network's outputs
SPLITS = ("train", "val")
WORKER = ""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def images(split):
    """[(stem, width, height, [(class, x, y, w, h)])] in the order of ids, as COCO's are trained on."""
    with open(os.path.join(BCCD, split + ".json"), encoding="utf-8") as f:
        truth = json.load(f)
    number = {c["id"]: NAMES.index(c["name"]) for c in truth["categories"]}
    boxes = {i["id"]: [] for i in truth["images"]}
    for a in truth["annotations"]:
        boxes[a["image_id"]].append((number[a["category_id"]], *a["bbox"]))
    return [(os.path.splitext(i["file_name"])[0], i["width"], i["height"], boxes[i["id"]])
            for i in sorted(truth["images"], key=lambda i: i["id"])]


def link(path, stem):
    os.makedirs(path, exist_ok=True)
    os.symlink(os.path.abspath(os.path.join(BCCD, "images", stem + ".jpg")), os.path.join(path, stem + ".jpg"))


def as_coco(_root):
    return {s: {"annotations": os.path.join(BCCD, s + ".json"), "images": os.path.join(BCCD, "images")} for s in SPLITS}


def as_voc(root):
    """Writes BCCD as it was published: corners unchanged."""
    for split in SPLITS:
        for stem, w, h, boxes in images(split):
            objects = "".join(
                "<object><name>%s</name><difficult>0</difficult><bndbox><xmin>%g</xmin><ymin>%g</ymin><xmax>%g</xmax><ymax>%g</ymax>"
                "</bndbox></object>\n" % (NAMES[c], x, y, x + bw, y + bh) for c, x, y, bw, bh in boxes)
            write(
                "%s/voc/Annotations/%s.xml" % (root, stem),
                "<annotation><filename>%s.jpg</filename>\n<size><width>%d</width><height>%d</height>"
                "<depth>3</depth></size>\n%s</annotation>\n" % (stem, w, h, objects))
            link(root + "/voc/JPEGImages", stem)
        write("%s/voc/ImageSets/Main/%s.txt" % (root, split), "".join(i[0] + "\n" for i in images(split)))
    write(root + "/voc.names", "".join(n + "\n" for n in NAMES))
    return {"names": root + "/voc.names", "voc_boxes": "corners",
            **{s: {"format": "voc", "annotations": "%s/voc/ImageSets/Main/%s.txt" % (root, s)} for s in SPLITS}}


def as_devkit(root):
    """The same corners as the development kit has them."""
    data = as_voc(root)
    for file in os.listdir(root + "/voc/Annotations"):
        path = root + "/voc/Annotations/" + file
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for side in ("xmin", "ymin"):  # the last pixel inside is the corner minus one, counted from 1 the corner itself
            head, *rest = text.split("<%s>" % side)
            text = head + "".join("<%s>%d%s" % (side, int(r.split("<", 1)[0]) + 1, r[r.index("<"):]) for r in rest)
        write(path, text)
    return {**data, "voc_boxes": "devkit"}


def labels(boxes, w, h):
    """Six digits, as converters write them."""
    return "".join("%d %.6f %.6f %.6f %.6f\n" % (c, (x + bw / 2) / w, (y + bh / 2) / h, bw / w, bh / h) for c, x, y, bw, bh in boxes)


def as_darknet(root):
    """A project's folder: the .data file in cfg, pictures and labels side by side in data."""
    for split in SPLITS:
        for stem, w, h, boxes in images(split):
            link(root + "/darknet/data/obj", stem)
            write("%s/darknet/data/obj/%s.txt" % (root, stem), labels(boxes, w, h))
        write("%s/darknet/data/%s.txt" % (root, split), "".join("data/obj/%s.jpg\n" % i[0] for i in images(split)))
    write(root + "/darknet/data/obj.names", "".join(n + "\n" for n in NAMES))
    write(root + "/darknet/cfg/obj.data", "classes = 3\ntrain = data/train.txt\nvalid = data/val.txt\nnames = data/obj.names\nbackup = "
                                          "backup/\n")
    return {s: {"format": "darknet", "annotations": root + "/darknet/cfg/obj.data"} for s in SPLITS}


def as_yolo(root):
    """Folders, which come in the order of names."""
    for split in SPLITS:
        for stem, w, h, boxes in images(split):
            link("%s/yolo/images/%s" % (root, split), stem)
            write("%s/yolo/labels/%s/%s.txt" % (root, split, stem), labels(boxes, w, h))
    write(root + "/yolo/data.yaml",
          "path: .\ntrain: images/train\nval: images/val\nnc: 3\nnames:\n" + "".join("  %d: %s\n" % n for n in enumerate(NAMES)))
    return {s: {"format": "yolo", "annotations": root + "/yolo/data.yaml"} for s in SPLITS}


def run(*args):
    done = subprocess.run([WORKER, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (args, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def spec_of(data):
    return {"name": "forms", "model": {"preset": "yolov3_tiny", "size": 96, "width": 0.125}, "data": {"on_bad": "skip", **data},
            "train": {"steps": 4, "batch": 8, "shards": 2, "log_every": 1, "lr": 0.002, "burn_in": 0}, "val": {"every": 4},
            "run": {"device": "cpu", "threads": 2}}


def file_hash(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def tensors(path):
    """Returns {name: hash} of all tensors except the chain of evidence, which begins with the text of the job file."""
    return {name: hashlib.sha256(raw).hexdigest() for name, (_, _, raw) in tensors_of(path).items() if name != "evidence.chain"}


def measured(out):
    """Returns the reports of ranks without time and place."""
    kept = []
    for line in out.splitlines():
        record = json.loads(line)
        if record.get("type") in ("loss", "eval"):
            kept.append(json.dumps({k: v for k, v in record.items() if k not in ("images_per_s", "time")}, sort_keys=True))
    return kept


def with_fraction(data):
    """Validation is part of the training split."""
    return {**{k: v for k, v in data.items() if k != "val"}, "val": {"fraction": 0.3}}


def look(root, form, data):
    """Returns {name: bits} of a job on the data, and the output of check about it."""
    job = "%s/%s.json" % (root, form)
    write(job, json.dumps(spec_of(data)))
    said = [line for line in run("--check", job).splitlines() if "annotation" not in line and "line" not in line]
    folder = "%s/job-%s" % (root, form)
    rows = measured(run("--dir", folder, job))
    assert len(rows) >= 6, rows
    return {"check": said, "rows": rows, "model": file_hash(folder + "/checkpoints/step-4/model.safetensors"),
            "state": tensors(folder + "/checkpoints/step-4/state.safetensors"), "evidence": file_hash(folder + "/evidence.tensors")}


def main():
    with tempfile.TemporaryDirectory(prefix="forms-") as top:
        found, parts = {}, {}
        for form, make in (("coco", as_coco), ("voc", as_voc), ("devkit", as_devkit), ("darknet", as_darknet), ("yolo", as_yolo)):
            root = os.path.join(top, form)
            os.makedirs(root)
            data = make(root)
            found[form] = look(root, form, data)
            if form in ("coco", "darknet"):
                parts[form] = look(root, form + "-part", with_fraction(data))
            print(form, found[form]["model"][:16], len(found[form]["rows"]), "rows")
        for form, bits in found.items():
            for what, value in bits.items():
                assert value == found["coco"][what], "%s: another %s: %s | %s" % (form, what, value, found["coco"][what])
        assert parts["coco"] == parts["darknet"] and parts["coco"]["model"] != found["coco"]["model"], parts
    print("one data set in five forms: the same bits")


if __name__ == "__main__":
    if not os.path.isdir("../shared/data/bccd"):
        print("skip: no ../shared/data")
        sys.exit(77)
    WORKER = os.path.join(os.path.abspath(os.environ.get("DETD_BUILD", "build")), "detd-worker")
    main()
