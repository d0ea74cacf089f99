#!/usr/bin/env python3
"""A small network is trained, and its weights leave for other programs.
usage: export.py [opencv]"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import stat
import struct
import sys

from daemon import Daemon, make_shapes, tensors_of

SIDE, LEAST = 64, 0.3
HEADER = 20


class Place:
    def __init__(self, d):
        self.d, self.detctl = d, d.detctl
        self.data = d.root + "/shapes"
        make_shapes(self.data, 6, 0, SIDE)

    def train(self, steps, **model):
        spec = {"model": dict({"preset": "yolov3_tiny", "size": SIDE, "width": 0.125}, **model),
                "data": {"train": {"annotations": self.data + "/train.json", "images": self.data + "/images"},
                         "augment": {"flip": 0, "jitter": 0, "hue": 0, "saturation": 1, "exposure": 1}},
                "train": {"steps": steps, "batch": 6, "lr": 0.01, "burn_in": 0}, "run": {"device": "cpu"}}
        spec["model"] = {k: v for k, v in spec["model"].items() if v is not None}
        job = self.d.call("job.submit", spec=spec, token="%d %s" % (steps, sorted(model)))["id"]
        job = self.d.wait(job, lambda j: j["state"] in ("completed", "failed"))
        assert job["state"] == "completed", job
        return job["id"]

    def export(self, job, form, name, *more):
        done = self.detctl("export", str(job), "-f", form, "-o", name, *more)
        assert done.returncode == 0, done
        return self.read(name), done.stdout

    def read(self, name):
        with open(os.path.join(self.d.root, name), "rb") as f:
            return f.read()


def as_darknet_has_them(arrays):
    """Returns the bytes behind the header of a .weights file."""
    numbers, layers = b"", sorted({int(name.split(".")[1]) for name in arrays})
    for i in layers:
        norm = "module_list.%d.batch_norm_%d." % (i, i)
        conv = "module_list.%d.conv_%d." % (i, i)
        order = [norm + a for a in ("bias", "weight", "running_mean", "running_var")] if norm + "bias" in arrays else [conv + "bias"]
        numbers += b"".join(arrays[name][2] for name in order + [conv + "weight"])
    return numbers


def said_of(cfg):
    """Returns a .cfg without its last line, which has the hash of the .weights."""
    return cfg[:cfg.rindex(b"# weights ")]


def plain(place):
    job = place.train(3)
    weights, said = place.export(job, "weights", "tiny.weights")
    place.export(job, "safetensors", "tiny.safetensors")
    assert said.startswith("checkpoint of step 3") and said.endswith("\nthe network, and its weights -> tiny.cfg, tiny.weights\n"), said
    assert struct.unpack("<iiiq", weights[:HEADER]) == (0, 2, 0, 3 * 6), weights[:HEADER]
    assert weights[HEADER:] == as_darknet_has_them(tensors_of(place.d.root + "/tiny.safetensors"))
    # The pair is a whole network of ours; it is imported and exported unchanged.
    cfg = os.path.join(place.d.root, "tiny.cfg")
    again = place.train(1, preset=None, size=None, width=None, cfg=cfg, init=os.path.join(place.d.root, "tiny.weights"))
    assert "loaded layers 0-22 of 24 from" in place.d.call("job.get", id=again)["init"], place.d.call("job.get", id=again)
    place.export(again, "weights", "again.weights")
    assert said_of(place.read("again.cfg")) == said_of(place.read("tiny.cfg"))
    first, _ = place.export(job, "weights", "first.weights", "--checkpoint", "last")
    assert first == weights
    refused(place, job)


def refused(place, job):
    for args, said, code in ((("-f", "onnx", "-o",
                               "x"), "-f onnx: models of the family yolo cannot be written so; their formats are safetensors, weights",
                              1), (("-f", "weights", "-o", "x.bin"), "should end in .weights",
                                   1), (("-f", "weights", "-o", "x.weights", "--checkpoint", "77"), "no checkpoint of step 77", 1),
                             (("-f", "weights"), "with -f FORM and -o FILE", 2), (("-f", "weights", "-o", "x.weights", "--sqlite", "x.db"),
                                                                                  "with -f", 2)):
        done = place.detctl("export", str(job), *args)
        assert done.returncode == code and said in done.stderr, (args, done)
    assert not [name for name in os.listdir(place.d.root) if name.startswith("x")]
    with open(place.d.root + "/mine.cfg", "w", encoding="utf-8") as f:
        f.write("[net]\n# by hand\n")
    done = place.detctl("export", str(job), "-f", "weights", "-o", "mine.weights")
    assert done.returncode == 1 and "'mine.cfg' is there" in done.stderr and place.read("mine.cfg") == b"[net]\n# by hand\n", done
    place.export(job, "weights", "tiny.weights")  # detd replaces its own files
    nothing_of_the_users_is_lost(place, job)


def nothing_of_the_users_is_lost(place, job):
    """Export replaces nothing that bears the name but is not its own: a file of the user, a link to one, a device, a
    pipe, a folder; or a pair with one file of the user."""
    at = lambda name: os.path.join(place.d.root, name)
    mine = b"mine\n"
    for name in ("own.st", "own.weights", "real", "tiny2.weights"):
        with open(at(name), "wb") as f:
            f.write(mine)
    os.symlink("real", at("link"))
    os.mkfifo(at("fifo"))
    shutil.copy(at("tiny.cfg"), at("tiny2.cfg"))
    checkpoint = os.path.join(place.d.call("job.get", id=job)["dir"], "checkpoints/step-3/model.safetensors")
    before = place.read(checkpoint), place.read("tiny.safetensors"), sorted(os.listdir(place.d.root))
    for form, names in (("safetensors", ("own.st", "link", "fifo", "/dev/null", ".", checkpoint)), ("weights", ("own.weights",
                                                                                                                "tiny2.weights"))):
        for name in names:
            done = place.detctl("export", str(job), "-f", form, "-o", name)
            assert done.returncode == 1 and ("detd did not write it" in done.stderr or "not a regular file" in done.stderr), (name, done)
    for taken in ("own.st", "link", "fifo", "/dev/null"):
        done = place.detctl("export", str(job), "--sqlite", taken)
        assert done.returncode == 1 and "File exists" in done.stderr, done
        done = place.detctl("evidence", "export", str(job), taken)
        assert done.returncode == 1 and not os.path.isdir(at(taken)), done
    assert before == (place.read(checkpoint), place.read("tiny.safetensors"), sorted(os.listdir(place.d.root)))
    assert [place.read(name) for name in ("own.st", "own.weights", "real", "tiny2.weights")] == [mine] * 4
    assert os.path.islink(at("link")) and stat.S_ISFIFO(os.stat(at("fifo")).st_mode) and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    # Export follows a link to a file that detd wrote, and a link to a file that does not exist yet.
    for target in ("tiny.safetensors", "new.safetensors"):
        os.unlink(at("link"))
        os.symlink(target, at("link"))
        assert place.export(job, "safetensors", "link")[0] == before[1] and os.path.islink(at("link")) and place.read(target) == before[1]


def opencv(place):
    import cv2  # only here: the other test has no need of it
    import numpy

    job = place.train(150)
    place.export(job, "weights", "tiny.weights", "--checkpoint", "last")
    pictures = sorted(os.listdir(place.data + "/images"))
    done = place.detctl("predict", str(job), *["shapes/images/" + p for p in pictures], "-o", "out", "--conf", str(LEAST), "--checkpoint",
                        "last")
    assert done.returncode == 0, done
    ours = {}
    for r in json.loads(place.read("out/results.json")):
        ours.setdefault(os.path.basename(r["file_name"]), []).append((r["category_id"] - 1, r["score"], *r["bbox"]))
    net = cv2.dnn.readNetFromDarknet(os.path.join(place.d.root, "tiny.cfg"), os.path.join(place.d.root, "tiny.weights"))
    found = 0
    for p in pictures:
        picture = cv2.imread(os.path.join(place.data, "images", p))
        assert picture.shape[:2] == (SIDE, SIDE)
        net.setInput(cv2.dnn.blobFromImage(picture, 1 / 255, (SIDE, SIDE), swapRB=True))
        rows = numpy.concatenate(net.forward(net.getUnconnectedOutLayersNames()))
        theirs = suppressed(cv2, rows)
        close(ours.get(p, []), theirs, p)
        found += len(theirs)
    assert found >= 6, "the network has learned nothing, so nothing is compared"
    print("%d boxes of %d pictures are OpenCV %s's" % (found, len(pictures), cv2.__version__))


def suppressed(cv2, rows):
    """Returns the boxes above LEAST that no better box of their class covers, cut at the picture's edges."""
    left = []
    for c in range(rows.shape[1] - 5):
        boxes = [[float(v) for v in ((r[0] - r[2] / 2) * SIDE, (r[1] - r[3] / 2) * SIDE, r[2] * SIDE, r[3] * SIDE)] for r in rows
                 if r[5 + c] > LEAST]
        scores = [float(r[5 + c]) for r in rows if r[5 + c] > LEAST]
        for i in cv2.dnn.NMSBoxes(boxes, scores, LEAST, 0.45):
            x, y, w, h = boxes[int(i)]
            x0, y0, x1, y1 = max(x, 0), max(y, 0), min(x + w, SIDE), min(y + h, SIDE)
            left.append((c, scores[int(i)], x0, y0, x1 - x0, y1 - y0))
    return left


def close(ours, theirs, what):
    assert len(ours) == len(theirs), (what, ours, theirs)
    for a in ours:
        best = min(theirs, key=lambda b: (b[0] != a[0], abs(b[1] - a[1]), abs(b[2] - a[2])))  # pylint: disable=cell-var-from-loop
        assert best[0] == a[0] and abs(best[1] - a[1]) < 2e-3 and all(abs(u - v) < 0.1 for u, v in zip(a[2:], best[2:])), (what, a, best)


def main():
    with Daemon(foreign=False) as d:
        (opencv if "opencv" in sys.argv[1:] else plain)(Place(d))


main()
