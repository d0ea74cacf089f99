#!/usr/bin/env python3
"""The output of predict, and the files that it leaves alone, with a small network that was trained here.

usage: predict.py BUILD_FOLDER [TEST ...]"""  # SPDX-License-Identifier: Apache-2.0
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "demo"))
import make_shapes  # noqa: E402

JOB = {"name": "tiny", "model": {"preset": "yolov3_tiny", "size": 64, "width": 0.125},
       "data": {"train": {"annotations": "shapes/train.json", "images": "shapes/images"},
                "val": {"annotations": "shapes/val.json", "images": "shapes/images"}},
       # far too high a rate: the first checkpoint is the best
       "train": {"steps": 6, "batch": 4, "lr": 0.01, "burn_in": 0}, "val": {"every": 1}, "run": {"device": "cpu"}}
WORKER = ""


def train(folder, name="job", run=None, **model):
    subprocess.run([sys.executable, os.path.join(ROOT, "tests", "demo", "make_shapes.py"), os.path.join(folder, "shapes"),
                    "--train", "4", "--val", "2", "--size", "64"], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
        json.dump({**JOB, "model": {**JOB["model"], **model}, "run": run or JOB["run"]}, f)
    subprocess.run(
        [WORKER, "--dir", os.path.join(folder, name), os.path.join(folder, name + ".json")], check=True, stdout=subprocess.DEVNULL)


class Place:
    """An empty folder with pictures to put into it, beside a trained job."""

    def __init__(self, trained):
        self.trained = trained
        self.folder = tempfile.mkdtemp(prefix="place-", dir=trained)
        self.made = 0

    def path(self, name):
        return os.path.join(os.fsencode(self.folder), os.fsencode(name))

    def picture(self, name, side=16):
        """Writes a picture unlike every other."""
        self.made += 1
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        rows = [bytes((self.made, x % 256, y % 256)[k] for x in range(side) for k in range(3)) for y in range(side)]
        self.write(name, make_shapes.png(side, side, rows))
        return name

    def write(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content)

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()

    def command(self, out, *pictures, job="job", more=("--enlarge",)):
        return [WORKER, "--predict", "--job-dir", os.path.join(self.trained, job), "--out", out, "--conf", "0", *more, *pictures]

    def predict(self, *args, told=b"", **more):
        """told: the bytes on its standard input."""
        return subprocess.run(self.command(*args, **more), cwd=self.folder, input=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=120, check=False)

    def expect(self, done, status, told=b""):
        text = done.stdout + done.stderr
        assert done.returncode == status and told in text, f"status {done.returncode}, expected {status} and {told}: {text}"

    def files(self, folder="."):
        return sorted(os.fsdecode(name) for name in os.listdir(self.path(folder)))

    def records(self, out):
        return json.loads(self.read(out + "/results.json").decode("utf-8"))


def test_an_input_that_is_no_square_finds_boxes_in_the_whole_picture(place):
    train(place.trained, "wide", size=[96, 64])
    with open(os.path.join(place.trained, "wide", "spec.json"), encoding="utf-8") as f:
        assert json.load(f)["model"]["size"] == [96, 64]
    place.expect(place.predict("out", place.picture("a.png", 40), job="wide"), 0)
    found = [r["bbox"] for r in place.records("out")]
    assert found and all(x >= 0 and y >= 0 and x + w <= 40.001 and y + h <= 40.001 for x, y, w, h in found), found
    for at in (0, 1):  # of a letterbox that is too wide or too high boxes would miss a side
        assert min(b[at] for b in found) < 8 and max(b[at] + b[at + 2] for b in found) > 32, found


def test_a_picture_given_is_never_written_to(place):
    os.mkdir(place.path("out"))
    os.symlink("out", place.path("link"))
    given = [
        place.picture("out/here.png"), "link/" + place.picture("out/there.png")[4:], "out/../out/./" + place.picture("out/dots.png")[4:]
    ]
    os.link(place.path(place.picture("hard.png")), place.path("out/hard.png"))
    os.symlink("../" + place.picture("soft.png"), place.path("out/soft.png"))
    os.symlink("out/" + os.path.basename(place.picture("out/outside.png")), place.path("outside.png"))
    given += ["hard.png", "soft.png", "outside.png"]
    before = {
        name: (place.read(name), os.lstat(place.path(name)).st_ino)
        for name in given + ["out/hard.png", "out/soft.png", "out/outside.png"]
    }
    for out in "out", "link", "out/.", os.path.join(place.folder, "out"):
        for some in given[::2][:2], given[1:2], given[3:]:  # those of one folder together
            place.expect(place.predict(out, *some), 0)
        assert before == {name: (place.read(name), os.lstat(place.path(name)).st_ino) for name in before}
    stems = ("dots", "hard", "here", "outside", "soft", "there")
    assert place.files("out") == sorted([s + ".png" for s in stems] + [s + "-2.png" for s in stems] + ["results.json"]), place.files("out")


def test_names_are_unique_and_an_earlier_run_is_replaced(place):
    given = [place.picture(name) for name in ("i.jpg", "i.jpeg", "i-2.png", "x.jpg", "x.png", ".png", "X.png")]
    for _ in range(2):
        place.expect(place.predict("out", *given, "x.png"), 0, b"i.jpeg: 100 objects -> out/i-2.png\n")
        assert place.files("out") == [".png.png", "X.png", "i-2-2.png", "i-2.png", "i.png", "results.json", "x-2.png", "x-3.png", "x.png"]
        drawn = {place.read("out/" + name) for name in place.files("out")}
        assert len(drawn) == 8, "x.png, given twice, and no other two are equal"
    os.link(place.path("out/i.png"), place.path("kept.png"))
    kept = place.read("kept.png")
    place.expect(place.predict("out", "i.jpeg"), 0)
    assert place.read("out/i.png") != kept == place.read("kept.png"), "a file is replaced as a whole, not written over"


def test_folders_below_what_pictures_have_in_common_are_kept(place):
    for name in "a/i.jpg", "b/i.jpg", "b/c/i.jpg":
        place.picture(name)
    place.expect(place.predict("out", "a/i.jpg", "./a/../b/i.jpg", os.path.join(place.folder, "b/c/i.jpg")), 0, b"-> out/b/c/i.png\n")
    assert place.files("out") == ["a", "b", "results.json"] and place.files("out/a") == ["i.png"] and place.files("out/b") == ["c", "i.png"]
    place.expect(place.predict("deep", "b/c/i.jpg"), 0, b"b/c/i.jpg: 100 objects -> deep/i.png\n")
    place.write("deeper", b"mine")
    os.mkdir(place.path("flat"))
    place.write("flat/a", b"mine")
    place.expect(place.predict("flat", "a/i.jpg", "b/i.jpg"), 1, b"'flat/a' is not a folder")
    assert place.read("flat/a") == b"mine"


def test_folders_patterns_and_lists(place):
    for name in "p/2.png", "p/1.JPG", "p/q/1.jpeg", "p/.hidden.png", "p/[x].png", "r/1.png":
        place.picture(name)
    place.write("p/notes.txt", b"no picture")
    os.symlink("..", place.path("p/round"))

    def names(out):
        return list(dict.fromkeys((r["image_id"], r["file_name"]) for r in place.records(out)))

    place.expect(place.predict("p/out", "p"), 0)
    place.expect(place.predict("p/out", "p/"), 0, b"400 detections")  # pictures drawn there are not read
    assert names("p/out") == [(1, "p/1.JPG"), (2, "p/2.png"), (3, "p/[x].png"), (4, "p/q/1.jpeg")], names("p/out")
    assert place.files("p/out") == ["1.png", "2.png", "[x].png", "q", "results.json"] and place.files("p/out/q") == ["1.png"]
    place.expect(place.predict("two", "p", "r"), 0)
    assert place.files("two") == ["p", "r", "results.json"] and "out" in place.files("two/p") and place.files("two/r") == ["1.png"]
    place.expect(place.predict("glob", "p/[0-9].*", "p/[x].png", "?/1.png"), 0)
    assert names("glob") == [(1, "p/1.JPG"), (2, "p/2.png"), (3, "p/[x].png"), (4, "r/1.png")], names("glob")
    place.expect(place.predict("list", "-", told=b"r/1.png\n\np/2.png"), 0)
    assert names("list") == [(1, "r/1.png"), (2, "p/2.png")]
    place.expect(place.predict("windows", "-", told=b"\xef\xbb\xbfr/1.png\r\n\r\np/2.png\r\n"), 0)
    assert names("windows") == [(1, "r/1.png"), (2, "p/2.png")]
    place.expect(place.predict("list", "-"), 1, b"the list is empty")
    os.mkdir(place.path("bare"))
    place.write("bare/notes.txt", b"no picture")
    place.expect(place.predict("list", "r", "bare"), 1, b"bare: no picture is in this folder or below it")
    place.write("bare/scan.TIF", b"II*\0")
    place.expect(place.predict("scan", "r", "bare"), 1, b"bare/scan.TIF: a TIFF file, which is not read; convert it to PNG or JPEG")
    here = os.getcwd()
    os.chdir(place.folder)
    for _ in range(1900):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    place.expect(place.predict("deep", "d"), 1, b"...': more than 100 folders in each other")
    subprocess.run(["rm", "-r", "d"], cwd=place.folder, check=True)  # rmtree() recurses
    for i in range(120):  # beside each other there may be any number
        os.makedirs(place.path("w/%d" % i))
    place.picture("w/119/p.png", 40)
    place.expect(place.predict("wide", "w"), 0)
    place.expect(place.predict("list", "-", told=b"r/1.png\n" + 5000 * b"x"), 1, b"line 2 of the list is no name of a picture")
    place.expect(place.predict("glob", "none-*.png", "r/1.png"), 1, b"none-*.png")
    assert names("glob") == [(2, "r/1.png")]


def test_what_is_drawn_and_what_is_written_are_two_things(place):
    scores = sorted(r["score"] for r in (place.expect(place.predict("all", place.picture("p.png", 40)), 0), place.records("all"))[1])
    middle, high = ((scores[k - 1] + scores[k]) / 2 for k in (50, 90))
    at_least = lambda least: sum(s >= least for s in scores)
    options = ("--conf", repr(high), "--results-conf", repr(middle))
    place.expect(place.predict("out", "p.png", more=options), 0,
                 b"p.png: %d objects -> out/p.png\n%d detections of score " % (at_least(high), at_least(middle)))
    assert sorted(r["score"] for r in place.records("out")) == [s for s in scores if s >= middle]
    place.expect(place.predict("none", "p.png", more=options + ("--no-pictures",)), 0, b"%d detections" % at_least(middle))
    assert place.files("none") == ["results.json"] and place.records("none") == place.records("out")
    assert size_of(place.read("all/p.png")) == (320, 320) and size_of(place.read("out/p.png")) == (40, 40), "enlarged where asked for alone"


def test_a_sets_ids_and_categories(place):
    with open(place.path("../shapes/val.json"), encoding="utf-8") as f:
        truth = json.load(f)
    names = {c["id"]: c["name"] for c in truth["categories"]}
    place.expect(place.predict("val", more=("--split", "val")), 0)
    place.expect(place.predict("train", more=("--split", "train", "--no-pictures")), 0)
    records = place.records("val")
    assert {(r["image_id"], r["file_name"]) for r in records} == {(i["id"], i["file_name"]) for i in truth["images"]}
    assert {r["category_id"] for r in records} <= set(names) and len(records) > 100
    for image in truth["images"]:
        assert size_of(place.read("val/" + os.path.splitext(image["file_name"])[0] + ".png")) == (64, 64)
    # the same pictures under other ids, in a folder, from a list without annotations that lacks a class and has a class
    # that the job does not know
    other = {"images": [{**i, "id": 10 ** 12 - i["id"], "file_name": "deep/" + i["file_name"]} for i in truth["images"]],
             "categories": [{"id": 900 - c["id"], "name": c["name"]} for c in truth["categories"][1:]] + [{"id": 7, "name": "hexagon"}]}
    place.write("other.json", json.dumps(other).encode())
    os.makedirs(place.path("more"))
    shutil.copytree(place.path("../shapes/images"), place.path("more/deep"))
    options = ("--on", "other.json", "--images", "more")
    place.expect(place.predict("other", more=options), 0,
                 b"other.json has no category '%s': detections of it are left out\n" % truth["categories"][0]["name"].encode())
    back = {900 - c["id"]: c["id"] for c in truth["categories"][1:]}
    found = sorted((10 ** 12 - r["image_id"], back[r["category_id"]], r["score"], r["bbox"]) for r in place.records("other"))
    assert found == sorted((r["image_id"], r["category_id"], r["score"], r["bbox"]) for r in records if r["category_id"] in back.values())
    assert place.files("other") == ["deep", "results.json"] and len(place.files("other/deep")) == len(truth["images"])
    # a picture is not there, and one is of another size: the others are looked at
    other["images"][0]["file_name"], other["images"][1]["width"] = "nowhere.png", 65
    place.write(
        "other.json",
        json.dumps({
            **other, "images": other["images"] +
                               [{"id": 5, "file_name": "deep/" + truth["images"][0]["file_name"], "width": 64, "height": 64}]
        }).encode())
    place.expect(place.predict("some", more=options), 1, b"is 64 x 64 pixels, but the annotations say 65 x 64")
    assert {r["image_id"] for r in place.records("some")} == {5}
    other["categories"] = other["categories"][-1:]
    place.write("other.json", json.dumps(other).encode())
    place.expect(place.predict("no", more=options), 1, b"no category of it is a class of the job")
    assert "no" not in place.files()
    for wrong in (), ("--split", "test"), ("--on", "other.json", "--split", "val"), ("--images", "more", "--split", "val"):
        place.expect(place.predict("no", more=wrong), 2, b"Try: detd-worker --help")
    place.expect(place.predict("no", "x.png", more=("--split", "val")), 2, b"in their place")


def test_files_of_others_stay(place):
    mine = [place.picture("out/" + name) for name in ("y.png", "z.png.1.tmp", "z.png.tmp", "results.json.tmp")]
    os.mkdir(place.path("out/d.png"))
    os.symlink("nowhere", place.path("out/l.png"))
    before = [place.read(name) for name in mine]
    given = [place.picture("p/" + name) for name in ("y.jpg", "z.jpg", "d.jpg", "l.jpg")]
    place.expect(place.predict("out", *given), 0)
    place.expect(place.predict("out", *mine), 0)
    assert [place.read(name) for name in mine] == before
    place.expect(place.predict("own", *given, more=("--conf", "1")), 0)
    os.symlink("../own/z.png", place.path("out/m.png"))
    place.expect(place.predict("out", place.picture("p/m.jpg")), 0, b"-> out/m-2.png")
    assert os.readlink(place.path("out/m.png")) == b"../own/z.png"
    os.symlink("../own/y.png", place.path("p/e.png"))
    drawn = place.read("own/y.png")
    place.expect(place.predict("own", "p/e.png", "p/y.jpg"), 0, b"p/y.jpg: 100 objects -> own/y-2.png")  # own/y.png is predict's, and given
    assert place.read("own/y.png") == drawn
    assert os.readlink(place.path("out/l.png")) == b"nowhere" and place.files("out/d.png") == []
    assert {"y-2.png", "d-2.png", "l-2.png", "z.png"} <= set(place.files("out")), place.files("out")


def test_results_of_others_stay(place):
    pictures = [place.picture("p.png"), place.picture("pictures/results.json")]
    for theirs in (b'[{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]', place.read(pictures[1])):
        os.makedirs(place.path("out"), exist_ok=True)
        place.write("out/results.json", theirs)
        place.expect(place.predict("out", "p.png"), 1, b"'out/results.json' is there and would be lost")
        assert place.read("out/results.json") == theirs and place.files("out") == ["results.json"]
    place.expect(place.predict("pictures", pictures[1]), 1, b"would be lost")
    place.expect(place.predict("own", "p.png"), 0)
    own = place.read("own/results.json")
    place.expect(place.predict("own", "p.png", "own/results.json"), 1, b"would be lost")
    assert place.read("own/results.json") == own
    place.expect(place.predict("own", "p.png", more=("--conf", "1")), 0)
    assert place.records("own") == []
    place.expect(place.predict("own", "p.png"), 0, b"100 detections of score 0 and more -> own/results.json\n")


def test_results_put_there_meanwhile_stay(place):
    """A reader that does not read predict's output stops it between two pictures: the output is more than the pipe and
    its buffer hold."""
    names = [place.picture("p/%0200d.png" % i) for i in range(40)]
    ours, its = os.pipe()
    fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(place.command("out", *names), cwd=place.folder, stdout=its,
                          stderr=subprocess.PIPE) as running, open(ours, "rb") as said:
        os.close(its)
        assert said.read(1)
        place.write("out/results.json", b"mine")
        said.read()
        told = running.stderr.read()
    assert running.returncode == 1 and b"'out/results.json' is there and would be lost" in told, told
    assert place.read("out/results.json") == b"mine"


def test_a_name_that_cannot_be_is_an_error(place):
    """In this folder results.json may lie, but no longer name."""
    names = ["f" * 200] * 20 + ["f" * 60]
    here = os.open(place.folder, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=here)
        above, here = here, os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(above)
    os.close(here)
    place.expect(place.predict("/".join(names), place.picture("n" * 100 + ".png")), 1, b": File name too long")


def test_records_name_their_pictures(place):
    long_one = "a/" + "\u00e9" * 120 + ".png"
    names = ['a/"q\\.png', "a/\u00e9\n.png", b"a/l\xe9.png", "a/" + "n" * 251, "./a/../a/p.png", long_one]
    for name in names:
        place.picture(name)
    place.expect(place.predict("out", *names), 0)
    records = place.records("out")
    assert len(records) == 600
    assert list(dict.fromkeys((r["image_id"], r["file_name"]) for r in records)) == list(enumerate(names[:2] + ["a/l?.png"] + names[3:], 1))
    assert "\u00e9" * 103 + ".png" in place.files("out"), "cut between letters"
    assert len(place.files("out")) == 7 and not [name for name in place.files("out") if "tmp" in name]


def test_one_bad_picture_is_left_out(place):
    pictures = [place.picture("one.png", side=1), "none.png", place.picture("cut.png"), "directory", place.picture("last.png")]
    place.write("cut.png", place.read("cut.png")[:-20])
    os.mkdir(place.path("directory"))
    done = place.predict("out", *pictures)
    place.expect(done, 1, b"3 of 5 images could not be read")
    for told in (b"none.png", b"cut.png", b"directory: no picture is in this folder or below it", b"last.png: 100 objects",
                 b"one.png: 100 objects"):
        assert told in done.stdout, done.stdout
    assert {r["file_name"] for r in place.records("out")} == {"one.png", "last.png"}
    assert place.files("out") == ["last.png", "one.png", "results.json"]


def test_nothing_to_predict_with_leaves_nothing(place):
    place.picture("p.png")
    for job in "no such job", os.path.basename(place.folder):
        place.expect(place.predict("out", "p.png", job=job), 1, b"holds no checkpoint yet")
    place.expect(place.predict("out", "p.png", more=("--checkpoint", "77")), 1, b"no checkpoint of step 77; the newest is that of step 6")
    assert place.files() == ["p.png"]
    place.expect(place.predict("p.png", "p.png"), 1, b"'p.png' is not a folder")


def test_best_last_and_step(place):
    place.picture("p.png")
    assert sorted(os.listdir(place.path("../job/checkpoints"))) == [b"step-1", b"step-4", b"step-5", b"step-6"]
    best = b"the lowest validation loss, "
    for asked, step, why in ((), 1, best), (("--checkpoint", "best"), 1, best), (("--checkpoint", "last"), 6,
                                                                                 b"the newest\n"), (("--checkpoint", "4"), 4,
                                                                                                    b"as asked for\n"):
        place.expect(place.predict("out", "p.png", more=asked), 0, b"checkpoint of step %d: %s" % (step, why))


def test_numbers_are_of_the_jobs_precision(place):
    """Numbers have the precision of the job's validations. Both folders have the same weights."""
    train(place.trained, "half", run={"device": "cpu", "precision": "bf16"})
    shutil.copytree(os.path.join(place.trained, "half"), os.path.join(place.trained, "whole"))
    with open(os.path.join(place.trained, "whole", "spec.json"), "r+", encoding="utf-8") as f:
        spec = json.load(f)
        assert spec["run"]["precision"] == "bf16", spec
        spec["run"]["precision"] = "fp32"
        f.seek(0)
        f.truncate()
        json.dump(spec, f)
    place.picture("p.png")
    for job in "half", "whole":
        place.expect(place.predict(job + "-out", "p.png", job=job), 0)
    half, whole = ([r["score"] for r in place.records(job + "-out")] for job in ("half", "whole"))
    assert half != whole and abs(max(half) - max(whole)) < 0.05, (half[:3], whole[:3])


def decode(png):
    """Rows of RGB pixels of a PNG without interlacing."""
    width, height = struct.unpack(">II", png[16:24])
    packed, at = b"", 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        packed += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    raw, stride, rows = zlib.decompress(packed), 3 * width, [bytes(3 * width)]
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left, up, corner = row[i - 3] if i > 2 else 0, rows[-1][i], rows[-1][i - 3] if i > 2 else 0
            guess = left + up - corner
            paeth = min((left, up, corner), key=lambda v: abs(guess - v))
            row[i] = (row[i] + (0, left, up, (left + up) // 2, paeth)[kind]) % 256
        rows.append(bytes(row))
    return [[row[i:i + 3] for i in range(0, stride, 3)] for row in rows[1:]]


def test_boxes_are_in_pixels_of_the_picture(place):
    """A wide picture, and the same with the grey that a letterbox adds: boxes of the one are those of the other."""
    with open(place.path("../shapes/images/val-0001.png"), "rb") as f:
        wide = [b"".join(row) for row in decode(f.read())[16:48]]
    grey = [bytes([128] * 192)] * 16
    place.write("wide.png", make_shapes.png(64, 32, wide))
    place.write("square.png", make_shapes.png(64, 64, grey + wide + grey))
    place.expect(place.predict("out", "wide.png", "square.png"), 0)
    found = {name: [r for r in place.records("out") if r["file_name"] == name] for name in ("wide.png", "square.png")}
    same = 0
    for record in found["wide.png"]:
        x, y, w, h = record["bbox"]
        assert x >= 0 and y >= 0 and x + w <= 64.001 and y + h <= 32.001, record
        for other in found["square.png"]:
            left, top, width, height = other["bbox"]
            upper, lower = max(top - 16, 0), min(top - 16 + height, 32)
            if other["category_id"] == record["category_id"] and abs(other["score"] - record["score"]) < 0.01:
                if max(abs(x - left), abs(x + w - left - width), abs(y - upper), abs(y + h - lower)) < 0.5:
                    same += 1
                    break
    assert same >= 80, same


def test_drawings_cover_the_enlarged_picture(place):
    place.write("plain.png", make_shapes.png(16, 16, [bytes([200, 90, 40] * 16)] * 16))
    place.expect(place.predict("out", "plain.png"), 0)
    rows = decode(place.read("out/plain.png"))
    assert len(rows) == len(rows[0]) == 320
    for y0, x0 in (0, 0), (0, 200), (200, 0), (200, 200):
        assert any(rows[y][x] != bytes((200, 90, 40)) for y in range(y0, y0 + 120) for x in range(x0, x0 + 120)), (y0, x0)
    shutil.copy(place.path("../shapes/images/val-0001.png"), place.path("other.png"))
    place.expect(place.predict("two", "other.png", "plain.png"), 0)  # each picture has its own boxes
    assert place.read("two/plain.png") == place.read("out/plain.png")


def train_masks(folder):
    """Trains a Mask R-CNN for a moment. Returns the reports of its worker."""
    subprocess.run([sys.executable, os.path.join(ROOT, "tests", "demo", "make_shapes.py"), os.path.join(folder, "outlines"),
                    "--train", "4", "--val", "2", "--size", "64", "--masks"], check=True, stdout=subprocess.DEVNULL)
    data = {split: {"annotations": "outlines/%s.json" % split, "images": "outlines/images"} for split in ("train", "val")}
    model = {
        "preset": "mask_rcnn_r18_fpn", "width": 0.125, "min_size": 64, "max_size": 96, "anchors": [8, 16, 32, 64, 128], "fpn_channels": 16,
        "head_channels": 16, "mask_channels": 8, "roi_batch": 16, "rpn_post_nms": 50, "rpn_post_nms_val": 50
    }
    with open(os.path.join(folder, "masks.json"), "w", encoding="utf-8") as f:
        json.dump(
            {
                "name": "masks", "model": model, "data": data, "train": {"steps": 2, "batch": 2, "lr": 0.001}, "val": {"every": 2},
                "run": {"device": "cpu"}
            }, f)
    done = subprocess.run(
        [WORKER, "--dir", os.path.join(folder, "masks"), os.path.join(folder, "masks.json")], check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def runs(text):
    """Returns the run lengths of COCO's compressed form."""
    found, value, shift = [], 0, 0
    for c in (ord(letter) - 48 for letter in text):
        value |= (c & 31) << shift
        shift += 5
        if not c & 32:
            found.append(value - (1 << shift if c & 16 else 0) + (found[-2] if len(found) > 2 else 0))
            value = shift = 0
    return found


def test_masks_are_scored_drawn_and_written(place):
    metrics = [r["metrics"] for r in train_masks(place.trained) if r["type"] == "eval"][-1]
    boxes = [name for name in metrics if not name.startswith(("segm_", "voc_"))]
    assert boxes and set("segm_" + name for name in boxes) == {name for name in metrics if name.startswith("segm_")}, metrics
    place.write("wide.png", make_shapes.png(50, 30, [bytes([200, 90, 40] * 50)] * 30))
    place.expect(place.predict("out", "wide.png", place.picture("p.png", 40), job="masks"), 0,
                 b"masks of score 0 and more -> out/results_segm.json\n")
    assert place.files("out") == ["p.png", "results.json", "results_segm.json", "wide.png"]
    found, masks, some = place.records("out"), json.loads(place.read("out/results_segm.json")), 0
    assert len(found) == len(masks) > 50
    for box, mask in zip(found, masks):
        assert "bbox" not in mask and all(box[k] == mask[k] for k in ("image_id", "file_name", "category_id", "score")), (box, mask)
        counts = runs(mask["segmentation"]["counts"])
        assert mask["segmentation"]["size"] == ([30, 50] if box["file_name"] == "wide.png" else [40, 40]), mask
        assert min(counts[1:] or [1]) > 0 and sum(counts) == (1500 if box["file_name"] == "wide.png" else 1600), counts
        some += sum(counts[1::2]) > 0
    rows = decode(place.read("out/wide.png"))
    assert len(rows[0]) == 350 and any(row[x] != bytes((200, 90, 40)) for row in rows for x in range(350))
    assert some > 0
    place.expect(place.predict("out", "wide.png", job="masks", more=("--conf", "1")), 0)
    assert json.loads(place.read("out/results_segm.json")) == [], "there are none, and those of before are gone"


def train_turned(place, flavor):
    """Faster R-CNN over a JPEG and a PNG that are stored on their side (Pillow made them). Annotations are those of the
    upright pictures, except for flavor tv. Returns the names of its job file and of its folder."""
    with open(os.path.join(ROOT, "tests", "golden", "exif.json"), encoding="utf-8") as f:
        golden = json.load(f)
    names, side = ["turned.jpg", "turned.png"], {"width": 6, "height": 11} if flavor == "d2" else {"width": 11, "height": 6}
    for name, kind in zip(names, ("files", "pngs")):
        place.write(name, bytes.fromhex(golden[kind]["6"]))
    truth = {
        "images": [{"id": i + 1, "file_name": name, **side} for i, name in enumerate(names)], "categories": [{"id": 1, "name": "a"}],
        "annotations": [{"id": i + 1, "image_id": i + 1, "category_id": 1, "bbox": [1, 1, 4, 4], "area": 16, "iscrowd": 0}
                        for i in range(2)]
    }
    model = {
        "preset": "faster_rcnn_r18_fpn", "flavor": flavor, "width": 0.125, "min_size": 64, "max_size": 128, "anchors": [8, 16, 32, 64, 128],
        "fpn_channels": 16, "head_channels": 16, "roi_batch": 16, "rpn_post_nms": 50, "rpn_post_nms_val": 50
    }
    split = {"annotations": place.folder + "/truth.json", "images": place.folder}
    place.write("truth.json", json.dumps(truth).encode())
    place.write(flavor + ".json", json.dumps({"name": flavor, "model": model, "data": {"train": split, "val": split}, "val": {"every": 1},
                                              "train": {"steps": 1, "batch": 2, "lr": 0.001}, "run": {"device": "cpu"}}).encode())
    return os.path.join(place.folder, flavor + ".json"), os.path.join(place.folder, flavor)


def size_of(png):
    return struct.unpack(">II", png[16:24])


def test_pictures_stand_upright_where_the_flavor_says_so(place):
    """In all ways into a model: a check of the data, training, validation, prediction; pictures given by name always do."""
    for flavor, other, w, h in ("d2", "tv", 6, 11), ("tv", "d2", 11, 6):
        spec, folder = train_turned(place, flavor)
        for command in [WORKER, "--check", spec], [WORKER, "--dir", folder, spec]:
            place.expect(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False), 0)
        for command in [WORKER, "--check", spec], [WORKER, "--dir", folder + "-wrong", spec]:
            done = subprocess.run([*command, "model.flavor=" + other], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                                  check=False)
            place.expect(done, 1, b"EXIF orientation")
        for out, given, more, w, h in ("-out", ("turned.jpg", "turned.png"), (), 6,
                                       11), ("-set", (), ("--on", "truth.json", "--images", "."), w, h), ("-val", (), ("--split", "val"), w,
                                                                                                          h):
            place.expect(place.predict(flavor + out, *given, job=folder, more=more), 0)
            for name in "turned.png", "turned-2.png":
                dw, dh = size_of(place.read(flavor + out + "/" + name))
                assert dw * h == dh * w, (flavor, out, name, dw, dh)
            found = place.records(flavor + out)
            if not more:
                assert found and all(b["bbox"][0] + b["bbox"][2] <= w + 1e-3 and b["bbox"][1] + b["bbox"][3] <= h + 1e-3
                                     for b in found), (flavor, found)


def chunks(png):
    """Yields the type and content of each chunk."""
    at = 8
    while at < len(png):
        n = struct.unpack(">I", png[at:at + 4])[0]
        yield png[at + 4:at + 8], png[at + 8:at + 8 + n]
        at += 12 + n


def train_on_frames(folder, name, **more):
    """Seven frames of a pattern that moves; the network sees depth and motion in them."""
    frames = os.path.join(folder, name + "-frames")
    os.makedirs(os.path.join(frames, "frames"))
    for k in range(7):
        rows = [bytes((x * 5 + 9 * k + 3 * y * c) % 256 for x in range(80) for c in range(3)) for y in range(64)]
        with open(os.path.join(frames, "frames", "%06d.png" % k), "wb") as f:
            f.write(make_shapes.png(80, 64, rows))
    with open(os.path.join(frames, "intrinsics.json"), "w", encoding="utf-8") as f:
        json.dump({"fx": 70, "fy": 70, "cx": 40, "cy": 32, "width": 80, "height": 64, "frame_pattern": "frames/%06d.png"}, f)
    with open(os.path.join(frames, "train.txt"), "w", encoding="utf-8") as f:
        f.write("".join("%d\n" % k for k in range(1, 6)))
    job = {
        "model": {"preset": "featdepth_baseline_r18", "size": [96, 96], "width": 0.125}, "train": {"steps": 1,
                                                                                                   "batch": 1}, "run": {"device": "cpu"},
        "data": {"train": {"format": "frames", "annotations": name + "-frames/train.txt", "images": name + "-frames"}}
    }
    job["model"].update(more.pop("model", {}))
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
        json.dump({**job, **more}, f)
    subprocess.run(
        [WORKER, "--dir", os.path.join(folder, name), os.path.join(folder, name + ".json")], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(frames, "frames")


def test_depth_is_numbers_and_a_picture(place):
    frames = train_on_frames(place.trained, "deep")
    train_on_frames(place.trained, "metres", val={"depth_factor": 36})
    given = [os.path.join(frames, "%06d.%s" % name) for name in ((2, "png"), (3, "png"), (2, "jpg"))]
    shutil.copy(place.path(place.picture("other.png", 40)), given[2])
    for job, unit in ("deep", b"network"), ("metres", b"m"):
        for _ in range(2):  # the files of an earlier run are replaced
            place.expect(place.predict(job + "-out", *given, job=job), 0,
                         b"depth -> " + job.encode() + b"-out/000002_depth.png, in colours -> ")
        assert place.files(job + "-out") == ["000002-2.png", "000002.png", "000002_depth-2.png", "000002_depth.png", "000003.png",
                                             "000003_depth.png"], place.files(job + "-out")
        found = list(chunks(place.read(job + "-out/000002_depth.png")))
        assert found[0] == (b"IHDR", struct.pack(">IIBBBBB", 80, 64, 16, 0, 0, 0, 0)), found[0]
        text = dict(c.split(b"\0") for kind, c in found if kind == b"tEXt")
        assert text[b"Depth-unit"] == unit and float(text[b"Depth-scale"]) > 0, text
        assert next(chunks(place.read(job + "-out/000002.png")))[1][:10] == struct.pack(">IIBB", 80, 64, 8, 2)
        assert size_of(place.read(job + "-out/000002-2.png")) == (40, 40)
    place.write("broken.png", b"no picture")
    place.expect(place.predict("more", "broken.png", given[0], job="deep"), 1, b"1 of 2 images could not be read")
    assert place.files("more/deep-frames/frames") == ["000002.png", "000002_depth.png"], place.files("more")


def data_of(name, **more):
    return {"train": {"format": "frames", "annotations": name + "-frames/train.txt", "images": name + "-frames"}, **more}


def poses_of(text):
    return [[float(x) for x in line.split()] for line in text.decode().splitlines() if not line.startswith("#")]


def test_a_folder_of_frames_is_a_way(place):
    folder = os.path.dirname(train_on_frames(place.trained, "way"))
    names = ["%06d%s.png" % (k, suffix) for k in range(7) for suffix in ("", "_depth", "_next")][:-1]
    for _ in range(2):  # the files of an earlier run are replaced
        place.expect(place.predict("out", folder, job="way"), 0, b"the way of 7 frames -> out/trajectory.txt, out/trajectory_kitti.txt\n")
        assert place.files("out") == sorted(names + ["trajectory.txt", "trajectory_kitti.txt"]), place.files("out")
    said = place.predict("out", folder, job="way").stdout.decode().splitlines()  # a line a frame, or no lines with the option for that
    assert len([line for line in said if "depth -> " in line]) == 7 == len([line for line in said if "/00000" in line]), said
    assert sum(" shows it -> out/" in line for line in said) == 6, said
    place.expect(place.predict("out", "--quiet", folder, job="way"), 0, b"the way of 7 frames")
    assert b"depth ->" not in place.predict("out", "--quiet", folder, job="way").stdout
    assert size_of(place.read("out/000003_next.png")) == (80, 64)
    tum, kitti = poses_of(place.read("out/trajectory.txt")), poses_of(place.read("out/trajectory_kitti.txt"))
    assert [p[0] for p in tum] == list(range(7)) and [p[3::4] for p in kitti] == [p[1:4] for p in tum], (tum, kitti)
    for p in kitti:  # evo, and other programs that take them as the truth, want rotations
        bent = [sum(p[4 * k + a] * p[4 * k + b] for k in range(3)) - (a == b) for a in range(3) for b in range(3)]
        assert max(map(abs, bent)) < 1e-9, (p, bent)
    assert kitti[0] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0] and len({tuple(p) for p in kitti}) == 7
    train_on_frames(place.trained, "far", data=data_of("far", stride=2), val={"depth_factor": 36})
    place.expect(place.predict("far", os.path.join(place.trained, "far-frames"), job="far"), 0, b"the way of 4 frames")
    assert [n[:6] for n in place.files("far") if n.endswith("_depth.png")] == ["000000", "000002", "000004", "000006"], place.files("far")
    os.remove(os.path.join(folder, "frames", "000005.png"))
    place.expect(place.predict("gap", folder + "/", job="way"), 0,
                 b"frame 5 is missing: the frames after it are left out\nthe way of 5 frames")


def test_folders_that_are_no_way(place):
    folder = os.path.dirname(train_on_frames(place.trained, "odd"))
    place.expect(place.predict("out", folder, place.picture("a.png"), job="odd"), 1, b"-frames' is a folder of frames: give it alone")
    os.mkdir(place.path("out"))
    place.write("out/trajectory.txt", b"where I was on Friday\n")
    place.expect(place.predict("out", folder, job="odd"), 1, b"'out/trajectory.txt' is there and would be lost")
    assert place.files("out") == ["trajectory.txt"]
    os.mkdir(place.path("kitti"))
    place.write("kitti/trajectory_kitti.txt", b"1 0 0 0 0 1 0 0 0 0 1 0\n1 0 0 0 0 1 0 0 0 0 1 1\n")
    place.expect(place.predict("kitti", folder, job="odd"), 1, b"'kitti/trajectory_kitti.txt' is there and would be lost")
    assert place.files("kitti") == ["trajectory_kitti.txt"]
    os.mkdir(place.path("empty"))
    place.expect(place.predict("more", "empty", job="odd"), 1, b"empty/intrinsics.json' is not there: no folder of frames; pictures are "
                                                               b"given by their names, or as 'empty/*.jpg'")
    shutil.copy(os.path.join(folder, "intrinsics.json"), place.path("empty/intrinsics.json"))
    os.mkdir(place.path("empty/frames"))
    place.expect(place.predict("more", "empty", job="odd"), 1, b"empty: no frame 'frames/%06d.png'")
    train_on_frames(place.trained, "back", data=data_of("back", sources=[-1]))
    place.expect(place.predict("more", folder, job="back"), 1, b"data.sources has no frame behind its target")


def test_frames_that_cannot_be_read_are_told_and_left_out(place):
    """Unreadable frames are left out for any reason, like pictures given by their names; the path is that of the frames
    before."""
    folder = os.path.dirname(train_on_frames(place.trained, "torn"))
    at = {k: os.path.join(folder, "frames", "%06d.png" % k) for k in range(7)}
    with open(at[3], "rb") as f:
        whole = f.read()
    for out in "empty", "none", "single":  # files of an earlier run are removed if this run writes none
        place.expect(place.predict(out, folder, job="torn"), 0)
        assert len(place.files(out)) == 22, place.files(out)
    place.write("none/000000_next-2.png", b"not of predict")
    place.expect(place.predict("single", at[1], job="torn"), 0)
    assert "000000_next.png" in place.files("single") and "000001_next.png" not in place.files("single"), place.files("single")
    place.picture("small.png", 40)
    with open(os.path.join(ROOT, "tests", "golden", "exif.json"), encoding="utf-8") as f:
        jpeg = bytes.fromhex(json.load(f)["files"]["6"])
    for out, content, why in (("empty", b"", b": file is empty"), ("text", b"no picture", b": neither a JPEG, PNG, WebP nor BMP file"),
                              ("cut", whole[:200], b": damaged PNG: "), ("jpeg", jpeg[:-9], b": damaged or unsupported JPEG: "),
                              ("size", place.read("small.png"), b" is 40 x 40 pixels, but intrinsics.json says 80 x 64"),
                              ("folder", None, b": a folder, not a file")):
        os.remove(at[3])
        if content is None:  # other files in the folder are not frames
            os.mkdir(at[3])
            shutil.copy(at[2], at[3] + "/a.png")
            shutil.copy(at[2], at[3] + "/b.png")
        else:
            with open(at[3], "wb") as f:
                f.write(content)
        done = place.predict(out, folder, job="torn")
        place.expect(done, 1, b"/000003.png" + why)
        told = done.stdout.splitlines()
        assert sum(why in line for line in told) == 1, done.stdout
        assert told[-2].endswith(b"/000003.png cannot be read: the way ends before it") and told[-1].startswith(
            b"the way of 3 frames -> "), done.stdout
        assert done.stderr == b"detd-worker: 1 of 7 frames could not be read\n", done.stderr
        files = place.files(out)
        assert [n[:6] for n in files if n.endswith("_depth.png")] == ["%06d" % k for k in (0, 1, 2, 4, 5, 6)], files
        assert [n[:6] for n in files if n.endswith("_next.png")] == ["%06d" % k for k in (0, 1, 4, 5)], files
        assert len(poses_of(place.read(out + "/trajectory_kitti.txt"))) == len(poses_of(place.read(out + "/trajectory.txt"))) == 3
    shutil.rmtree(at[3])
    with open(at[3], "wb") as f:
        f.write(whole)
    with open(at[0], "wb"):
        pass
    place.expect(place.predict("late", folder, job="torn"), 1,
                 b"\nthe way of 6 frames from " + os.fsencode(at[1]) + b" on -> late/trajectory.txt, ")
    assert len(poses_of(place.read("late/trajectory_kitti.txt"))) == 6
    assert [row[0] for row in poses_of(place.read("late/trajectory.txt"))] == [1, 2, 3, 4, 5, 6]
    for path in at.values():
        with open(path, "wb"):
            pass
    place.expect(place.predict("none", folder, job="torn"), 1, b"7 of 7 frames could not be read")
    assert place.files("none") == ["000000_next-2.png"], place.files("none")
    with open(at[2], "wb") as f:
        f.write(whole)
    os.remove(at[5])
    place.expect(place.predict("one", folder, job="torn"), 1, b"\nthe way of 1 frame from " + os.fsencode(at[2]) + b" on -> ")
    os.remove(at[2])
    place.expect(place.predict("one", folder, job="torn"), 1, b"\nframe 2 is missing: the frames after it are left out\n")
    assert place.files("one") == ["000002.png", "000002_depth.png"], place.files("one")


def test_the_targets_of_a_split_are_looked_at(place):
    frames = train_on_frames(place.trained, "split")
    targets = ["%06d" % k for k in range(1, 6)]
    place.expect(place.predict("out", more=("--split", "train"), job="split"), 0, b"frames/000001.png: depth -> out/")
    assert place.files("out/frames") == [n + end for n in targets for end in (".png", "_depth.png")], place.files("out/frames")
    place.expect(place.predict("alone", os.path.join(frames, "000002.png"), job="split"), 0)
    assert place.read("out/frames/000002_depth.png") == place.read("alone/000002_depth.png")
    place.expect(place.predict("no", more=("--split", "val"), job="split"), 1, b"the job has no data.val")
    place.expect(place.predict("no", more=("--split", "train", "--no-pictures"), job="split"), 1,
                 b"a depth network is not evaluated with --on")
    shutil.copy(place.path(place.picture("other.png", 40)), frames + "/000003.png")
    place.expect(place.predict("torn", more=("--split", "train"), job="split"), 1,
                 b"/000003.png: has changed since the data set was checked")


def test_an_autoencoder_says_nothing_of_a_picture(place):
    train_on_frames(place.trained, "auto", model={"preset": "featdepth_autoencoder_r18"})
    place.expect(place.predict("out", place.picture("a.png"), job="auto"), 1, b"featdepth_autoencoder_r18 finds nothing in pictures")
    assert place.files() == ["a.png"], place.files()


def main():
    global WORKER
    WORKER = os.path.join(os.path.abspath(os.environ.get("DETD_BUILD", "build")), "detd-worker")
    tests = {name[5:]: fn for name, fn in globals().items() if name.startswith("test_")}
    folder = tempfile.mkdtemp(prefix="predict-")
    try:
        train(folder)
        for name in sys.argv[1:] or tests:
            tests[name](Place(folder))
            print(f"ok {name}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
