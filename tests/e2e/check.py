#!/usr/bin/env python3
"""The output of `check` about data, line by line.

usage: check.py BUILD_FOLDER"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

import on_pty

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "demo"))
from make_shapes import png  # noqa: E402

WORKER = ""
SIDE = 128


def picture(folder, name, level, orientation=0):
    """Writes a picture of a single grey level, with an EXIF block if an orientation is given."""
    data = png(SIDE, SIDE, [bytes([level]) * (3 * SIDE)] * SIDE)
    if orientation:
        body = b"eXIf" + b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + struct.pack(">HH", orientation, 0) + b"\0\0\0\0"
        data = data[:33] + struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body)) + data[33:]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


class Place:
    """A job with two splits, each [(file, [(class, x, y, w, h)])]; classes 1 and 2."""

    def __init__(self, root, train, val, names=("cat", "dog"), val_names=None):
        self.root = root
        self.write("train", train, names)
        self.write("val", val, val_names or names)
        self.spec = {"name": "check", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.05},
                     "data": {s: {"annotations": "%s/%s.json" % (root, s), "images": root} for s in ("train", "val")},
                     "train": {"steps": 1, "batch": 2, "shards": 1}, "run": {"device": "cpu"}}

    def write(self, split, images, names):
        truth = {"categories": [{"id": i + 1, "name": n} for i, n in enumerate(names)], "images": [], "annotations": []}
        for i, (file, boxes) in enumerate(images):
            truth["images"].append({"id": i + 1, "file_name": file, "width": SIDE, "height": SIDE})
            for c, *box in boxes:
                truth["annotations"].append({"id": len(truth["annotations"]) + 1, "image_id": i + 1, "category_id": c, "bbox": box})
        with open("%s/%s.json" % (self.root, split), "w", encoding="utf-8") as f:
            json.dump(truth, f)

    def change(self, split, what):
        """Passes the split's JSON to the function what, which changes it."""
        path = "%s/%s.json" % (self.root, split)
        with open(path, encoding="utf-8") as f:
            truth = json.load(f)
        what(truth)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(truth, f)

    def run(self, *args):
        with open(self.root + "/job.json", "w", encoding="utf-8") as f:
            json.dump(self.spec, f)
        return subprocess.run([WORKER, *args, self.root + "/job.json"], capture_output=True, text=True, check=False)

    def shown(self, *args):
        """Returns the output of the command on a terminal."""
        self.run(*args)
        try:
            return on_pty.shown([WORKER, *args, self.root + "/job.json"], stdin=subprocess.DEVNULL).decode()
        except OSError:
            print("skip: no pseudo-terminal", flush=True)
            sys.exit(77)

    def check(self, status, *wanted, never=()):
        done = self.run("--check")
        assert done.returncode == status, done
        for text in wanted:
            assert re.search(text, done.stdout + done.stderr, re.M), (text, done.stdout, done.stderr)
        for text in never:
            assert not re.search(text, done.stdout + done.stderr), (text, done.stdout, done.stderr)


def good(root):
    picture(root, "a.png", 10)
    picture(root, "b.png", 20)
    picture(root, "c.png", 30)
    picture(root, "d.png", 40)
    return [("a.png", [(1, 0, 0, 31, 33), (1, 0, 0, 32, 32)]), ("b.png", [(2, 0, 0, 96, 95.99), (1, 0, 0, 96, 96)]), ("c.png", [])]


def sizes_and_empty_ones(root):
    Place(root, good(root), [("d.png", [(1, 0, 0, 10, 10)])]).check(
        0, r"^train: objects by size, below 32 x 32, below 96 x 96, above: small 1, medium 2, large 1; cat 1/1/1, dog 0/1/0$",
        r"^train: 1 of 3 images have no box$", r"^val: objects by size.*: small 1, medium 0, large 0; cat 1/0/0$",
        never=("same bytes", "EXIF", "val: 1 of"))


def the_same_bytes(root):
    train = good(root)
    picture(root, "e.png", 10)
    picture(root, "f.png", 20)
    Place(root, train + [("e.png", [(1, 0, 0, 9, 9)]), ("b.png", [(2, 0, 0, 9, 9)])], [("d.png", [(1, 0, 0, 9, 9)]), ("f.png", [])]).check(
        0, r"^train: images 1 \('a.png'\) and 4 \('e.png'\) are the same bytes, but their boxes differ$",
        r"^train: images 2 and 5 are both 'b.png': objects of one are background in the other$",
        r"^val: image 2 \('f.png'\) is the same bytes as image 2 \('b.png'\) of train, but their boxes differ$",
        r"^train: possible mistakes: 1 boxes nearly twice, 2 pictures with the bytes of another$", never=("val: image 1 ",))
    Place(root, train[:1] + [("e.png", train[0][1][::-1])],
          train[:1]).check(0, r"^train: images 1 \('a.png'\) and 2 \('e.png'\) are the same bytes$",
                           r"^val: image 1 \('a.png'\) is the same bytes as .* of train$")
    for i in range(30):
        picture(root, "n%d.png" % i, 77)
    many = [("n%d.png" % i, [(1, 0, 0, 9, 9)]) for i in range(30)]
    Place(root, many, [("d.png", [])]).check(0, r"^train: \.\.\. and 19 more images that are the same bytes as another$")


def boxes_that_are_nearly_anothers(root):
    """The reports are the same for networks that find boxes and for networks that find masks; crowds are left out."""
    near = [(1, 10, 10, 40, 40), (2, 10.5, 10, 40, 40.5), (1, 60, 60, 20, 20), (1, 60, 62, 20, 20), (2, 70, 5, 30, 30), (2, 70, 5, 30, 30)]
    whole = [(2, 0, 0, SIDE, SIDE), (1, 0.2, 0, SIDE - 0.3, SIDE), (1, 0, 0, SIDE, SIDE - 2)]
    place = Place(root, [("a.png", near), ("b.png", whole[:1]), ("c.png", whole[1:])], [("d.png", near)])
    place.change("val", lambda t: [a.update({"iscrowd": 1}) for a in t["annotations"][::2]])
    told = (r"^train: image 1 \('a.png'\) has two boxes with an IoU of 0\.96: annotation 1, 'cat' \[10, 10, 40, 40\] and annotation 2, "
            r"'dog' \[10\.5, 10, 40, 40\.5\]$",
            r"^train: image 1 \('a.png'\) has a box twice: annotation 5, 'dog' \[70, 5, 30, 30\] and annotation 6, 'dog' \[70, 5, 30, "
            r"30\]$",
            r"^train: image 2 \('b.png'\) has a box of the whole picture: annotation 7, 'dog' \[0, 0, 128, 128\]$",
            r"^train: image 3 \('c.png'\) has a box of the whole picture: annotation 8, 'cat' ",
            r"^train: possible mistakes: 3 boxes nearly twice, 2 boxes of the whole picture$")
    place.check(0, *told, r"^train: 3 images, 9 boxes, ", never=("annotations? 3", "annotation 4", r"val: .*(twice|IoU|mistakes)"))
    place.spec["model"] = {"preset": "mask_rcnn_r18_fpn"}
    for split in "train", "val":
        place.change(
            split, lambda t: [
                a.update({"segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]]}) for a in t["annotations"]
                for x, y, w, h in [a["bbox"]]
            ])
    place.check(0, *told, r"^train: 3 images, 9 boxes, ")
    place = Place(root, [("a.png", [(1, 10, 10, 40, 40)] * 30)], [])
    place.check(1, r"^train: possible mistakes: 29 boxes nearly twice$")


def pattern(root, name, seed, lighter=0):
    """Blocks of grey levels that depend on the seed."""
    levels = [[(seed * 7919 + 31 * x * (seed + y) + 57 * y * y) % 200 + lighter for x in range(16)] for y in range(16)]
    with open(os.path.join(root, name), "wb") as f:
        f.write(png(SIDE, SIDE, [b"".join(bytes([levels[y // 8][x]]) * (3 * SIDE // 16) for x in range(16)) for y in range(SIDE)]))


def pictures_that_nearly_equal(root):
    """A picture saved anew, a little lighter, has other bytes and still counts as the same picture. Plain pictures look
    alike, and are not reported."""
    for k in range(6):
        pattern(root, "p%d.png" % k, k + 1)
    pattern(root, "q.png", 3, lighter=4)
    place = Place(root, [("p%d.png" % k, [(1, 0, 0, 9, 9)]) for k in range(5)] + [("a.png", [])], [("p5.png", []), ("q.png", []),
                                                                                                   ("b.png", [])])
    place.check(0, r"^val: 'q.png' nearly equals 'p2.png' of train$", never=("'p5.png'", "'b.png'", "same bytes"))


def orientations(root):
    picture(root, "t.png", 50, 6)
    picture(root, "u.png", 60, 1)
    Place(root, [("t.png", [(1, 0, 0, 9, 9)]), ("u.png", [(1, 0, 0, 9, 9)])], [("u.png", [])]).check(
        0, r"^train: 1 image carries an EXIF orientation, which is not applied; the first is 't.png', orientation 6$",
        never=("val: 1 image carries",))


def both_splits_are_looked_at(root):
    train = good(root)
    place = Place(root, train + [("gone.png", [])], [("d.png", [(1, 0, 0, 0, 9)])])
    way_out = "; data.on_bad=skip leaves out bad records$"
    place.check(1, r"^train: image 4: .*gone.png", r"^val: annotation 1 \(image 1, 'd.png'\): box has no area",
                r"^val: .*val.json: 1 problem" + way_out, r"train.json: 1 problem" + way_out)
    place.write("train", train, ("cat", "dog"))
    place.check(1, r"^train: 3 images", r"^val: annotation 1 ", r"val.json: 1 problem" + way_out)


def doubtful_records_cost_nothing(root):
    """Odd but usable records are reported by check and by the job, and are trained on."""
    place = Place(root, good(root), [("d.png", [(1, 0, 0, 10, 10)])])
    place.change("train", lambda t: t["annotations"][0].update({"id": 0, "area": "big", "segmentation": [[]], "bboxs": float("nan")}))
    told = (r"^train: note: annotation 0 \(line 1\): area is not a number >= 0: that of the box is taken$",
            r"^train: note: annotation 0 \(line 1\): pycocotools counts ",
            r'^train: note: annotations: key "bboxs" is not read \(1 times, first in line 1\); did you mean "bbox"\?$')
    place.check(0, *told, r"^train: 3 images, 4 boxes, 2 classes, 0 bad records skipped, 3 notes, 0 boxes clipped$")
    done = place.run("--dir", root + "/job-1")
    assert done.returncode == 0, done
    place.change("train", lambda t: t["annotations"].extend(dict(t["annotations"][0]) for _ in range(60)))
    place.check(0, r"^train: note: \.\.\. and 103 more notes$", r" 123 notes")


def doubtful_labels_are_told(root):
    """Check and the events of the job report unknown keys and elements, and doubles, for labels in many files."""
    place = Place(root, good(root), [("d.png", [(1, 0, 0, 10, 10)])])
    for path, text in (("set/data.yaml", "train: .\nval: .\nnames: [cat]\nnamse: [dog]\n"), ("set/labels.txt", ""), ("set/a.txt",
                                                                                                                     2 * "0 .5 .5 .5 .5\n"),
                       ("set/a.xml",
                        "<annotation><object><name>cat</name><dificult>1</dificult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax>"
                        "<ymax>9</ymax></bndbox></object></annotation>")):
        os.makedirs(root + "/set", exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as f:
            f.write(text)
    picture(root + "/set", "a.png", 10)
    for form, annotations, told in (("yolo", "/set/data.yaml",
                                     (r'set/data\.yaml, line 4: key "namse" is not known and ignored; "names" may be meant',
                                      r"set/a\.txt, line 2: the same object as in line 1; one of them is kept")),
                                    ("voc", "/set", (r'set/a\.xml, line 1: element of <object> "dificult" is not known and ignored; '
                                                     r'"difficult" may be meant',))):
        place.spec["data"] = {s: {"format": form, "annotations": root + annotations} for s in ("train", "val")}
        place.check(0, *("^%s: note: .*%s$" % (split, text) for split in ("train", "val") for text in told))
        done = place.run("--dir", "%s/job-%s" % (root, form))
        assert done.returncode == 0, done
        events = [e["text"] for e in map(json.loads, done.stdout.splitlines()) if e["type"] == "event" and e["level"] == "warning"]
        for text in told:
            assert any(re.search("^train: .*%s$" % text, e) for e in events), (text, events)


def clipped_boxes_of_pictures_that_stay(root):
    """The counts include only the pictures that are trained on."""
    place = Place(root,
                  good(root) + [("gone.png", [(1, -5, 0, 20, 20), (2, 0, -5, 20, 20)]), ("a.png", [(1, 120, 0, 20, 20)])], [("d.png", [])])
    place.spec["data"]["on_bad"] = "skip"
    place.check(0, r"^train: 4 images, 5 boxes, 2 classes, 1 bad records skipped, 1 boxes clipped$")


def more_objects_than_detections(root):
    """Counts the objects of the validation split; crowds are not objects."""
    many = [(1 + k % 2, 4 * (k % 30), 10 * (k // 30), 4, 9) for k in range(103)]
    place = Place(root, [("a.png", many)], [("b.png", many[:101]), ("c.png", []), ("d.png", many)])
    place.change("val", lambda t: t["annotations"][0].update({"iscrowd": 1}))
    place.check(0, r"^val: note: 1 of 3 images have more objects than val\.max_det, 100, which then count as missed; the most are 103, "
                   r"in 'd\.png': val\.max_det=103 ",
                never=("train: note: 1 of",))
    place.spec["val"] = {"max_det": 103}
    place.check(0, never=("max_det",))


def other_categories_in_val(root):
    Place(root, good(root), [("d.png", [])],
          val_names=("cat", "cow")).check(1, r"category 2 is 'dog' in .*train.json and 'cow' in .*val.json")


def a_split_without_a_box(root):
    """A training split of background alone is reported before training; a validation split may have no object."""
    place = Place(root, [("a.png", []), ("b.png", [])], good(root))
    place.check(1, r"train.json: no image has an object to train on")
    place = Place(root, good(root), [("c.png", []), ("d.png", [])])
    place.check(0, r"^val: 2 of 2 images have no box$")
    done = place.run("--dir", root + "/job-2")
    assert done.returncode == 0, done


def names_that_a_terminal_would_obey(root):
    """Control characters in the names of a data set's files and classes never reach the terminal of any command."""
    evil = "\033[31m\u009b31m\u202e"
    picture(root, evil + ".png", 90)
    place = Place(root, good(root) + [(evil + ".png", [(1, 0, 0, 9, 9)]), (evil, [])], [("d.png", [])], names=(evil, "dog"))
    told = ""
    for on_bad in "error", "skip":
        place.spec["data"]["on_bad"] = on_bad
        for words in ["--check"], ["--anchors"], ["--layers"], ["--count-images"], ["--sample", "--out", root + "/seen"]:
            said = place.shown(*words)
            assert not re.search("[\033\u009b\u202e]", said), (words, said)
            told += said
    assert "^[[31m<U+009B>31m<U+202E>" in told, told


def main():
    for test in (sizes_and_empty_ones, the_same_bytes, boxes_that_are_nearly_anothers, pictures_that_nearly_equal, orientations,
                 both_splits_are_looked_at, doubtful_records_cost_nothing, doubtful_labels_are_told, clipped_boxes_of_pictures_that_stay,
                 more_objects_than_detections, other_categories_in_val, a_split_without_a_box, names_that_a_terminal_would_obey):
        with tempfile.TemporaryDirectory(prefix="check-") as root:
            good(root)
            test(root)
            print("ok", test.__name__)


if __name__ == "__main__":
    WORKER = os.path.join(os.path.abspath(os.environ.get("DETD_BUILD", "build")), "detd-worker")
    main()
