#!/usr/bin/env python3
"""detd-worker on small nets made for one question each; alone from a job file where one rank is enough, else under
detd."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time

from daemon import BUILD, HERE, Daemon
from ranks import PATIENCE_S, merged

sys.path.insert(0, HERE + "/../demo")
from make_shapes import png  # noqa: E402

# ---- parts of jobs ----


def write(path, content):
    with open(path, "wb" if isinstance(content, bytes) else "w") as f:
        f.write(content)
    return path


def flat_images(folder, name, size, grey, classes=1):
    """Writes pictures of a single grey level each, with a single box, of each class in turn. Returns them as a split of
    a job file."""
    os.makedirs(folder + "/images", exist_ok=True)
    coco = {"images": [], "annotations": [], "categories": [{"id": c + 1, "name": "class %d" % c} for c in range(classes)]}
    for i, level in enumerate(grey):
        file = "%s-%d.png" % (name, i)
        write(folder + "/images/" + file, png(size, size, [bytes([level]) * (3 * size)] * size))
        coco["images"].append({"id": i + 1, "file_name": file, "width": size, "height": size})
        coco["annotations"].append({"id": i + 1, "image_id": i + 1, "category_id": i % classes + 1, "iscrowd": 0, "area": size * size / 4,
                                    "bbox": [size / 4, size / 4, size / 2, size / 2]})
    return {"annotations": write("%s/%s.json" % (folder, name), json.dumps(coco)), "images": folder + "/images"}


def safetensors(path, arrays):
    """Writes a file of the arrays {name: (shape, numbers)}, all f32. Returns its path."""
    head, data = {}, b""
    for name, (shape, numbers) in sorted(arrays.items()):
        packed = struct.pack("<%df" % len(numbers), *numbers)
        head[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(head).encode()
    return write(path, struct.pack("<Q", len(text)) + text + data)


def alone(root, name, spec, program=BUILD + "/detd-worker"):
    """Runs a job in the folder root/name, once more if it is there already. Returns the exit status and the records of
    its output."""
    file = write("%s/%s.job" % (root, name), json.dumps(merged(spec, {"name": name})))
    done = subprocess.run([program, "--dir", root + "/" + name, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode in (0, 1), (done.returncode, done.stderr)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def of_type(records, kind):
    return [r for r in records if r["type"] == kind]


CLASSES = 1100  # more than a page of rows, and than four records
STILL = {"flip": 0, "jitter": 0, "hue": 0, "saturation": 1, "exposure": 1}

# ---- gradients that are not finite ----

OVERFLOW_CFG = """
[net]
width=64
height=64
channels=3
[convolutional]
filters=4
size=2
stride=2
activation=linear
[convolutional]
filters=18
size=1
activation=linear
[yolo]
mask=0,1,2
anchors=10,14, 23,27, 37,58
num=3
classes=1
[route]
layers=-3
[convolutional]
filters=18
size=1
activation=linear
[yolo]
mask=0,1,2
anchors=10,14, 23,27, 37,58
num=3
classes=1
"""
# Seeds for epochs of three pictures: with the first, two white pictures follow each other, but never three; with the
# second, three follow each other over the end of an epoch.
MIXED_SEED, MIXED_SKIPS = 14, [1, 2, 4, 5]
CUT_SEED, CUT_SKIPS = 8, [2, 3]
HUGE = 1e37  # of a white picture's features; heads bring them down to 1. Summed over 32 x 32 places, weights' gradients pass 3.4e38


def overflowing(root):
    """Returns a job in which a batch with a white picture makes the gradient overflow, and no other batch does; losses
    are finite."""
    first, zeros = [0.0] * (4 * 3 * 2 * 2), [0.0] * 18
    first[0] = HUGE
    arrays = {"module_list.0.conv_0.weight": ((4, 3, 2, 2), first), "module_list.0.conv_0.bias": ((4,), [0.0] * 4)}
    for layer in (1, 4):
        arrays["module_list.%d.conv_%d.weight" % (layer, layer)] = ((18, 4, 1, 1), [1 / HUGE] * 72)
        arrays["module_list.%d.conv_%d.bias" % (layer, layer)] = ((18,), zeros)
    return {"model": {"cfg": write(root + "/overflow.cfg", OVERFLOW_CFG), "init": safetensors(root + "/overflow.safetensors", arrays)},
            "data": {"augment": STILL}, "train": {"batch": 1, "shards": 1, "burn_in": 0, "lr": 1e-6, "log_every": 1},
            "checkpoint": {"every": 1, "keep": 100}, "run": {"device": "cpu", "threads": 1}}


def pictures(root, name, grey, **train):
    return {"data": {"train": flat_images(root, name, 64, grey)}, "train": train}


def skipped(records):
    return [int(r["text"].split(":")[0].split()[1]) for r in of_type(records, "event") if r["kind"] == "gradient"]


def check_gave_up(records, step):
    (end,) = of_type(records, "end")
    assert (end["outcome"], end["class"]) == ("failed", "nonfinite"), end
    assert end["reason"].startswith("step %d: the gradient is not finite, 3 steps in a row" % step), end
    assert "'module_list.1.conv_1.weight'" in end["reason"], end
    assert all(num is not None for r in of_type(records, "loss") for num, _ in r["terms"].values()), records


def model_of(root, name, step):
    with open("%s/%s/checkpoints/step-%d/model.safetensors" % (root, name, step), "rb") as f:
        return f.read()


def check_rest(records, each):
    """The window that the failure left open is a single row of the steps before it, with the losses `each`."""
    (row,) = of_type(records, "loss")
    assert each and (row["split"], row["step"]) == ("train", len(each)), (row, each)
    for term, (num, den) in row["terms"].items():
        assert num == sum(e[term][0] for e in each) and den == sum(e[term][1] for e in each), (term, row, each)


def nonfinite(root):
    base = overflowing(root)
    status, said = alone(root, "white", merged(base, pictures(root, "white", [255], steps=9)))
    assert status == 1 and skipped(said) == [1, 2] and [r["step"] for r in of_type(said, "loss")] == [1, 2, 3], said
    check_gave_up(said, 3)
    each = [r["terms"] for r in of_type(said, "loss")]
    # the same where no window asks for losses before: they are read a step late, but the step that ends the job is
    # named as soon as it is done
    late = {"train": {"log_every": 100}, "checkpoint": {"every": 0}}
    status, said = alone(root, "unread", merged(merged(base, pictures(root, "unread", [255], steps=9)), late))
    assert status == 1 and skipped(said) == [1, 2], said
    check_gave_up(said, 3)
    check_rest(said, each)
    wild = merged(merged(base, pictures(root, "wild", [40, 90], steps=9, lr=1000)), {"model": {"init": None}})
    often, seldom = (alone(root, "wild%d" % every, merged(wild, {"train": {"log_every": every}, "checkpoint": {"every": 0}}))[1]
                     for every in (1, 100))
    ends = [of_type(said, "end") for said in (often, seldom)]
    check_rest(seldom, [r["terms"] for r in of_type(often, "loss")])
    assert ends[0][0]["class"] == "nonfinite" and "loss term" in ends[0][0]["reason"] and ends[0] == ends[1], ends
    # two of three pictures are white, so two steps in a row are skipped, and training continues
    status, said = alone(root, "mixed", merged(base, pictures(root, "mixed", [255, 255, 0], steps=6, seed=MIXED_SEED)))
    assert status == 0 and skipped(said) == MIXED_SKIPS and of_type(said, "end")[0]["outcome"] == "completed", said
    for step in range(2, 7):
        same = model_of(root, "mixed", step) == model_of(root, "mixed", step - 1)
        assert same == (step in MIXED_SKIPS), "step %d %s the model" % (step, "leaves" if same else "changes")


def resumed(root):
    """The third step in a row comes in another attempt; the count is in the checkpoint."""
    spec = merged(overflowing(root), pictures(root, "cut", [255, 255, 0], steps=9, seed=CUT_SEED))
    status, said = alone(root, "cut", spec)
    assert status == 1 and skipped(said) == CUT_SKIPS, said
    check_gave_up(said, CUT_SKIPS[-1] + 1)
    for step in CUT_SKIPS[-1], CUT_SKIPS[-1] - 1:
        shutil.rmtree("%s/cut/checkpoints/step-%d" % (root, step + 1), ignore_errors=True)
        status, said = alone(root, "cut", spec)
        assert status == 1 and of_type(said, "start")[0]["resume_step"] == step, said
        check_gave_up(said, CUT_SKIPS[-1] + 1)


def several_ranks(d):
    """A single white picture among four is enough: every rank stops, and the job is not tried again."""
    spec = merged(overflowing(d.root), pictures(d.root, "ranks", [0, 0, 255, 0], steps=9, batch=4, shards=4))
    job = d.call("job.submit", spec=merged(spec, {"name": "ranks", "run": {"ranks": 3, "restarts": 3}}), token="ranks")["id"]
    ended = d.wait(job, "failed")
    assert "step 3: the gradient is not finite" in ended["reason"] and len(ended["attempts"]) == 1, ended
    said = d.sql("SELECT text FROM events WHERE job=? AND kind='gradient' ORDER BY id", job)
    assert [text.split(":")[0] for (text,) in said] == ["step 1", "step 2"], said


# ---- network sizes ----

def strided_cfg(convolutions):
    """Convolutions that each halve the resolution; a second head reads the last but one, joined with the last."""
    hidden = "[convolutional]\nfilters=4\nsize=3\nstride=2\npad=1\nactivation=leaky\n" * convolutions
    head = "[convolutional]\nfilters=18\nsize=1\nactivation=linear\n[yolo]\nmask=0,1,2\nanchors=10,14, 23,27, 37,58\nnum=3\nclasses=1\n"
    finer = "[route]\nlayers=%d\n[upsample]\nstride=2\n[route]\nlayers=-1,%d\n" % (convolutions - 1, convolutions - 2)
    return "[net]\nwidth=128\nheight=128\nchannels=3\n" + hidden + head + finer + head


def sizes(root):
    """A network of stride 64 trains in sizes that its strides divide; keys that do not fit are refused by name, as the user's mistake."""
    base = {"model": {"cfg": write(root + "/stride64.cfg", strided_cfg(6))},
            "data": {"train": flat_images(root, "sizes", 64, [200]), "augment": {"multiscale": True, "size_min": 64, "size_max": 256}},
            "train": {"steps": 60, "batch": 1, "shards": 1}, "run": {"device": "cpu", "threads": 1}}
    status, said = alone(root, "sizes64", base)
    assert status == 0 and of_type(said, "end")[0]["outcome"] == "completed", said
    for key, value, spec in (("data.augment.size_min", 96, {"data": {"augment": {"size_min": 96}}}),
                             ("data.augment.size_max", 160, {"data": {"augment": {"size_max": 160}}}),
                             ("model.size", 96, {"model": {"size": 96}})):
        status, said = alone(root, "refused-" + key, merged(base, spec))
        (end,) = of_type(said, "end")
        assert status == 1 and end["class"] == "user" and not of_type(said, "start"), said
        assert end["reason"].startswith("%s: must be a multiple of 64 " % key) and end["reason"].endswith("is %d" % value), end
    status, said = alone(root, "refused", merged(base, {"data": {"augment": {"size_min": 192, "size_max": None}}}))
    assert status == 1 and of_type(said, "end")[0]["reason"].startswith("data.augment.size_min: 192 "), said


# ---- the validation of many classes ----

def many_classes(d):
    """Every class has its row, for any number of classes and any names; detctl shows them all."""
    split = flat_images(d.root, "classes", 64, [100, 180], CLASSES)
    with open(split["annotations"], encoding="utf-8") as f:
        coco = json.load(f)
    for c, end in (2, "a"), (3, "b"):  # equal in the part that fits into the name of a metric
        coco["categories"][c]["name"] = "\u00e9" * 60 + end
    coco["categories"][4]["name"] = "of two\nlines"
    write(split["annotations"], json.dumps(coco))
    spec = {"name": "classes", "model": {"cfg": write(d.root + "/classes.cfg", strided_cfg(3))}, "data": {"train": split, "val": split},
            "train": {"steps": 2, "batch": 2, "shards": 1}, "val": {"every": 2}, "run": {"device": "cpu", "threads": 1}}
    job = d.call("job.submit", spec=spec, token="classes")["id"]
    d.wait(job, "completed")
    cut = {3: "\u00e9" * 27, 4: "\u00e9" * 27, 5: "of two lines"}
    want = {"AP50:%s #%d" % (cut.get(c["id"], c["name"]), c["id"]) for c in coco["categories"]}
    rows = dict(d.sql("SELECT metric, value FROM eval WHERE job=? AND step=2 AND metric LIKE 'AP50:%'", job))
    assert set(rows) == want, set(rows) ^ want
    assert {m for m, value in rows.items() if value is not None} == {"AP50:class 0 #1", "AP50:class 1 #2"}, rows
    shown = subprocess.run([BUILD + "/detctl", "--socket", d.path, "eval", str(job), "--csv"], check=True, stdout=subprocess.PIPE).stdout
    assert {line.split(",")[2] for line in shown.decode().splitlines() if ",AP50:" in line} == want, shown


# ---- owners of checkpoints ----

def marked(root, spec, name="marked"):
    return merged(
        spec, {
            "name": name, "model": {"cfg": write(root + "/marked.cfg", strided_cfg(3))}, "data": {
                "train": flat_images(root, "marked", 64, [120])
            }, "train": {"steps": 4, "batch": 1, "shards": 1}, "checkpoint": {"every": 2}, "run": {"device": "cpu", "threads": 1}
        })


def store_of(path):
    with open(path + "/checkpoints/step-4/manifest.json", encoding="utf-8") as f:
        return json.load(f)["store_id"]


def begin_with(d, left, spec):
    """Puts files of another job where detd's next job will have its folder. Returns the end of that job."""
    job = 1 + max((j["id"] for j in d.call("job.list")["jobs"]), default=0)
    folder = "%s/jobs/%d" % (d.state, job)
    shutil.copytree(left, folder)
    shutil.rmtree(folder + "/checkpoints/step-4")
    assert d.call("job.submit", spec=spec, token="begins with others %d" % job)["id"] == job
    return d.wait(job, lambda j: j["state"] in ("completed", "failed"))


def whose(d):
    """A folder and its checkpoints say which database numbered the job. A folder of another database is moved aside,
    and a checkpoint of another is refused. A folder without a mark is used by any job."""
    spec = marked(d.root, {})
    job = d.call("job.submit", spec=spec, token="marked")["id"]
    d.wait(job, "completed")
    ours = d.call("daemon.info")["store_id"]
    first, unmarked = "%s/jobs/%d" % (d.state, job), d.root + "/unmarked"
    assert len(ours) == 32 and store_of(first) == ours, (store_of(first), ours)
    status, _ = alone(d.root, "unmarked", spec)
    assert status == 0 and store_of(unmarked) == "", store_of(unmarked)
    ended = begin_with(d, unmarked, spec)
    assert ended["state"] == "completed" and ended["attempts"][0]["resume_step"] == 2, ended
    with Daemon(foreign=False) as other:
        theirs = other.call("daemon.info")["store_id"]
        ended = begin_with(other, first, spec)  # a folder marked by another database is moved aside
        assert ended["state"] == "completed" and ended["attempts"][0]["resume_step"] == 0, ended
        assert os.path.exists("%s/jobs/%d.%s/checkpoints/step-2" % (other.state, ended["id"], ours))
        assert other.events("folder", ended["id"]), other.call("event.query", id=ended["id"])
        silent = shutil.copytree(first, d.root + "/silent")
        for name in os.listdir(silent):
            if name == "store" or name.startswith("spool"):
                os.unlink(silent + "/" + name)
        ended = begin_with(other, silent, spec)
        assert ended["state"] == "failed" and len(ended["attempts"]) <= 1, ended
        assert "its store_id is %s, the job's is %s" % (ours, theirs) in ended["reason"], ended


# ---- which data ----

def wanted_data(root):
    """errand.data_hash is the hash of the training set's content, in any folder. Another set is refused before
    training, and the message names both hashes."""
    base, asked = marked(root, {}), "0" * 32
    status, said = alone(root, "data-no", merged(base, {"errand": {"data_hash": asked}}))
    (end,) = of_type(said, "end")
    assert status == 1 and end["class"] == "data" and not of_type(said, "start"), said
    theirs = re.search("/marked.json: .* its hash is ([0-9a-f]{32}), errand.data_hash is %s$" % asked, end["reason"])
    assert theirs, end
    held = {"errand": {"data_hash": theirs.group(1)}}
    os.mkdir(root + "/elsewhere")
    there = {"data": {"train": flat_images(root + "/elsewhere", "marked", 64, [120])}}
    for name, spec in ("data-here", {}), ("data-there", there):
        status, said = alone(root, name, merged(merged(base, spec), held))
        assert status == 0 and of_type(said, "end")[0]["outcome"] == "completed", said
    status, said = alone(root, "data-other", merged(merged(base, {"data": {"train": flat_images(root, "lighter", 64, [121])}}), held))
    assert status == 1 and of_type(said, "end")[0]["class"] == "data", said


# ---- a picture that is late ----

def late_picture(root):
    """A step of a GPU does not wait for the pictures of the next one: its loss is there while they are still being read."""
    shim, pipe = root + "/hold.so", root + "/hold"
    subprocess.run(["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", shim, HERE + "/../stand/mock/hold.c"], check=True)
    os.mkfifo(pipe)
    spec = merged(marked(root, {}, "late"), {"data": {"train": flat_images(root, "late", 64, [90, 160])}, "checkpoint": {"every": 0},
                                             "train": {"log_every": 1}, "run": {"device": "cuda"}})
    program = BUILD + "/emu/detd-worker"  # beside it lies the CUDA device on an emulated GPU
    alone(root, "late", spec, program)  # leaves the index, so that the data set is not read once more
    shutil.rmtree(root + "/late/checkpoints")
    env = dict(os.environ, LD_PRELOAD=shim, HOLD=pipe, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0")
    with subprocess.Popen([program, "--dir", root + "/late", root + "/late.job"], stdout=subprocess.PIPE, env=env) as worker:
        watchdog = threading.Timer(PATIENCE_S, worker.kill)
        watchdog.start()
        said = iter(worker.stdout.readline, b"")
        first = next((r for r in map(json.loads, said) if r["type"] == "loss"), None)
        assert first and first["step"] == 1, "no loss of the first step while the second picture is held"
        with open(pipe, "wb"):
            pass
        rest = [json.loads(line) for line in said]
        watchdog.cancel()
    assert [r["step"] for r in of_type(rest, "loss")] == [2, 3, 4] and of_type(rest, "end")[0]["outcome"] == "completed", rest


def chosen_precision(root):
    """The precision auto is decided once, and stored. A user who asks for bf16 on a CPU where it is slow gets a note."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        unit = "amx_bf16" in f.read().split()
    base = merged(overflowing(root), pictures(root, "grey", [40], steps=1))
    for asked, wanted in ("auto", "bf16" if unit else "fp32"), ("bf16", "bf16"):
        _, said = alone(root, "computes_" + asked, merged(base, {"run": {"device": "cpu", "precision": asked}}))
        with open("%s/computes_%s/spec.json" % (root, asked), encoding="utf-8") as f:
            assert json.load(f)["run"]["precision"] == wanted, asked
        slow = [
            r for r in of_type(said, "event")
            if r["text"].startswith("run.precision bf16: slower than fp32 on this CPU, as it has no unit for bf16")
        ]
        assert bool(slow) == (wanted == "bf16" and not unit), said


def wrong_use(root):
    """A rank needs a folder and a place among the ranks. Any other command line needs a job file."""
    for words in ("--job-dir %s" % root, "--rank 0 --ranks 1", "--job-dir %s --rank 1 --ranks 1" % root):
        done = subprocess.run([BUILD + "/detd-worker", *words.split()], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and "a job file is needed" in done.stderr, (words, done)


def main():
    began = time.time()
    with Daemon(foreign=False) as d:
        wrong_use(d.root)
        chosen_precision(d.root)
        nonfinite(d.root)
        resumed(d.root)
        several_ranks(d)
        sizes(d.root)
        many_classes(d)
        whose(d)
        wanted_data(d.root)
        late_picture(d.root)
    print("%.0f s" % (time.time() - began))


if __name__ == "__main__":
    main()
