#!/usr/bin/env python3
"""Evaluations of checkpoints, on the validation split and on other sets, and which checkpoint is the best.
usage: eval.py BUILD_FOLDER [TEST ...]"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import csv
import io
import json
import os
import re
import shutil
import sqlite3
from unittest import mock

import forms
from detctl import expect, run


def sql(node, query, *args):
    db = sqlite3.connect("file:%s/state/detd.db?mode=ro" % node.folder, uri=True)
    try:
        return db.execute(query, args).fetchall()
    finally:
        db.close()


def validated(node, job, step):
    """Returns (losses, metrics) by name, as they are stored."""
    losses = {
        term: (num, den)
        for term, num, den in sql(node, "SELECT term, num, den FROM loss WHERE job=? AND split='val' AND step=?", job, step)
    }
    return losses, dict(sql(node, "SELECT metric, value FROM eval WHERE job=? AND step=?", job, step))


def evaluated(node, *args):
    """Runs detctl eval. Returns {metric: value}, the evaluating job's number, and standard error."""
    done = node.ctl("eval", "1", "--json", *args)
    expect(done, 0)
    by = re.search(r"job (\d+) evaluates\n", done.stderr)
    return {row["metric"]: row["value"] for row in json.loads(done.stdout)}, int(by.group(1)), done.stderr


def change_set(node, name, change, split="val"):
    with open("%s/d/%s.json" % (node.folder, split), encoding="utf-8") as f:
        coco = json.load(f)
    change(coco)
    with open(os.path.join(node.folder, name), "w", encoding="utf-8") as f:
        json.dump(coco, f)


def other_ids(coco):
    """A set with other numbers, in another order, and with a class that the job does not know."""
    for one in coco["categories"] + [a for a in coco["annotations"]]:
        key = "id" if "name" in one else "category_id"
        one[key] = 100 - one[key]
    coco["categories"].append({"id": 7, "name": "unheard of"})
    coco["annotations"].append({**coco["annotations"][0], "id": 10 ** 9, "category_id": 7})


def test_a_checkpoint_once_more(node):
    """The result equals that of the validation in training to the bit; also on a set with other numbers."""
    expect(node.ctl("submit", "job", "checkpoint.every=4", "--wait"), 0)
    for step, args in (8, ()), (4, ("--checkpoint", "4")), (8, ("--checkpoint", "last")), (8, ("--set", "again")):
        found, by, told = evaluated(node, "--on", "d/val.json", *args)
        losses, metrics = validated(node, 1, step)
        assert len(losses) > 4 and len(metrics) > 20 and validated(node, by, step) == (losses, metrics), (step, args)
        name = "again" if "again" in args else "val"
        stored = dict(sql(node, "SELECT metric, value FROM eval_on WHERE job=1 AND dataset=? AND step=?", name, step))
        assert stored == {**metrics, **{"loss/" + term: num / den for term, (num, den) in losses.items()}}
        assert found == stored, (found, stored)
        assert "checkpoint of step %d: " % step in told, told
    job = node.job("2")
    assert (job["name"], job["state"], job["checkpoints"]) == ("eval 1 on val", "completed", []), job
    assert sql(node,
               "SELECT count(*) FROM loss WHERE job=1 AND split='val' AND term='total'") == [(2,)], "the job's own rows are what they were"
    assert node.ctl("ls", "--all").stdout.splitlines()[1].split()[:7] == ["5", "eval", "1", "on", "again", "completed",
                                                                          "-"], node.ctl("ls", "--all").stdout
    assert re.search(r"^step +-\nevaluates +step 4 of job 1 on val$", node.ctl("show", "3").stdout, re.M), node.ctl("show", "3").stdout
    assert node.ctl("why", "3").stdout == "completed the evaluation\n" and job["steps"] == 0, node.ctl("why", "3").stdout
    assert "step 4/4  val  total" in node.ctl("watch", "3").stdout, node.ctl("watch", "3").stdout
    expect(node.ctl("extend", "3", "--steps", "20"), 1, "job 3 ")
    change_set(node, "other.json", other_ids)
    found, by, _ = evaluated(node, "--on", "other.json", "--images", "d/images", "--checkpoint", "8")
    losses, metrics = validated(node, 1, 8)
    assert found == {**metrics, **{"loss/" + term: num / den for term, (num, den) in losses.items()}}
    assert any("objects of classes that the network does not know, which are left out: 1" in e["text"]
               for e in json.loads(node.ctl("events", str(by), "--json").stdout))
    listed = node.ctl("eval", "1", "--set", "other")
    expect(listed, 0)
    assert "loss/total" in listed.stdout and "AP50:RBC" in listed.stdout and "R50:" not in listed.stdout, listed.stdout
    expect(node.ctl("export", "--sqlite", "copy.db"), 0)
    rows = "SELECT job, dataset, step, metric, value, time, by FROM eval_on ORDER BY 1, 2, 3, 4"
    with contextlib.closing(sqlite3.connect(node.folder + "/copy.db")) as db:
        assert db.execute(rows).fetchall() == sql(node, rows), "the copy tells of the sets what detd.db does"
    expect(node.ctl("rm", str(by)), 0)
    expect(node.ctl("eval", "1", "--set", "other"), 1, "set: job 1 has no 'other'; it has again, val")


def test_sets_of_every_form(node):
    """By their files, a list by --format; the numbers are those of COCO's file."""
    expect(node.ctl("submit", "job", "--wait"), 0)
    wanted, _, _ = evaluated(node, "--on", "d/val.json")
    forms.BCCD = node.folder + "/d"
    for write in forms.as_yolo, forms.as_darknet, forms.as_devkit:
        write(node.folder)
    for k, words in enumerate((("yolo/data.yaml",), ("darknet/cfg/obj.data",), ("voc/ImageSets/Main/val.txt", "--format", "voc"))):
        found, by, _ = evaluated(node, "--on", *words, "--set", "form %d" % k)
        assert found == wanted, (words, {m: (found.get(m), wanted.get(m)) for m in wanted if found.get(m) != wanted.get(m)})
        assert node.ctl("predict", "1", "--on", *words, "--no-pictures", "-o", "form%d" % k).returncode == 0
    expect(node.ctl("predict", "1", "--split", "val", "--no-pictures", "-o", "coco"), 0)
    told = [
        sorted((r["file_name"].rsplit("/")[-1].rsplit(".")[0], r["score"], r["bbox"])
               for r in json.load(open(os.path.join(node.folder, name, "results.json"), encoding="utf-8")))
        for name in ("coco", "form0", "form1", "form2")
    ]
    assert told[0] and told[1:] == told[:1] * 3, [len(t) for t in told]
    expect(node.ctl("predict", "1", "--on", "voc/Annotations", "--images", "voc/JPEGImages", "--no-pictures", "-o", "folder"), 0)
    with open(node.folder + "/folder/results.json", encoding="utf-8") as f:
        assert {r["file_name"] for r in json.load(f)} == set(os.listdir(node.folder + "/voc/JPEGImages")), "a folder of XML files"
    forms.as_voc(node.folder + "/corners")  # a data set with other boxes than the development kit's
    corners = "corners/voc/ImageSets/Main/val.txt", "--format", "voc"
    assert evaluated(node, "--on", *corners)[0] != wanted and evaluated(node, "--on", *corners, "data.voc_boxes=corners")[0] == wanted
    found, _, _ = evaluated(node, "--on", "darknet/data/val.txt", "--format", "darknet", "--images", "darknet",
                            "data.names=darknet/data/obj.names")
    assert found == wanted, found
    for wrong in ("data.voc_boxes=corners",), ("--on", "d/val.json", "model.width=1"), ("--on", "d/val.json", "2"):
        expect(node.ctl("eval", "1", *wrong), 2)
    aside = node.folder + "/aside"  # the validation split alone
    os.makedirs(aside)
    for stem, *_ in forms.images("val"):
        shutil.copy("%s/voc/Annotations/%s.xml" % (node.folder, stem), aside)
    found, _, _ = evaluated(node, "--on", "aside", "--images", "voc/JPEGImages")
    assert found["AP"] == wanted["AP"] and abs(found["loss/total"] - wanted["loss/total"]) < 1e-9 * wanted["loss/total"], (found, wanted)
    expect(node.ctl("check", "job", "data.val.format=voc", "data.val.annotations=aside", "data.val.images=voc/JPEGImages"), 0)
    lists = [
        "data.%s.%s=%s" % (split, key, value) for split in forms.SPLITS
        for key, value in (("format", "yolo"), ("annotations", "yolo/images/" + split), ("images", "yolo"))
    ]
    expect(node.ctl("check", "job", "data.names=darknet/data/obj.names", *lists), 0)
    expect(node.ctl("check", "job", "data.val.annotations=aside"), 1, "'.*/aside' is a folder, not a file")
    expect(node.ctl("predict", "1", "--on", "aside", "--no-pictures", "-o", "no"), 1,
           "aside: no image of it can be used: [0-9]+ bad records, the first: ")
    expect(node.ctl("predict", "1", "--on", "yolo/data.yaml", "--format", "xml", "-o", "no"), 1,
           "--format is coco, voc, darknet or yolo, not 'xml'")
    expect(node.ctl("predict", "1", "--split", "val", "--format", "voc", "-o", "no"), 2, "--images and --format need --on SET")


def test_a_name_of_two_files(node):
    """A user who evaluates another file under the name of an earlier file gets a warning, for names of any bytes. The
    newest results are listed."""
    expect(node.ctl("submit", "job", "--wait"), 0)
    for name in "test", "t[e]st*" + "x" * 50:
        for folder in "one", "two":
            os.makedirs(os.path.join(node.folder, folder), exist_ok=True)
        change_set(node, "one/%s.json" % name, lambda coco: None)
        change_set(node, "two/%s.json" % name, lambda coco: coco["images"].pop())
        for words in (), ("--set", "again" + name[:3]), ():
            _, _, told = evaluated(node, "--on", "one/%s.json" % name, "--images", "d/images", *words)
            assert "--set" not in told, told
        _, _, told = evaluated(node, "--on", "two/%s.json" % name, "--images", "d/images", "--set", "apart" + name[:3])
        assert "--set" not in told, told
        found, _, told = evaluated(node, "--on", "two/%s.json" % name, "--images", "d/images")
        assert re.search(r"'%s' of job 1 was the name of results on '.*/one/%s\.json' \(job \d+\), .* on '.*/two/.*--set NAME" %
                         (re.escape(name[:64]), re.escape(name)), told), told
        listed = json.loads(node.ctl("eval", "1", "--set", name[:64], "--json").stdout)
        assert {row["metric"]: row["value"] for row in listed} == found


def test_names_are_of_one_form(node):
    """The names that a job gives its lists are not used for a set that has names of its own, in another order."""
    forms.BCCD = node.folder + "/d"
    forms.as_darknet(node.folder)
    lists = ["data.%s.%s=%s/darknet%s" % (split, key, node.folder, below) for split in forms.SPLITS
             for key, below in (("annotations", "/data/%s.txt" % split), ("images", ""))]
    with mock.patch.object(forms, "NAMES", forms.NAMES[::-1]):
        forms.as_yolo(node.folder)
    expect(
        node.ctl("submit", "job", "data.train.format=darknet", "data.val.format=darknet",
                 "data.names=%s/darknet/data/obj.names" % node.folder, *lists, "--wait"), 0)
    _, metrics = validated(node, 1, 8)
    found, _, _ = evaluated(node, "--on", "yolo/data.yaml")
    assert metrics and {m: found[m] for m in metrics} == metrics, (found, metrics)


def test_what_is_refused(node):
    expect(node.ctl("submit", "job", "--wait"), 0)
    expect(node.ctl("eval", "1", "--set", "test"), 0, "job 1 has no evaluation on 'test' yet")
    expect(node.ctl("eval", "1", "--metric", "mAP"), 1, r"metric: job 1 has no 'mAP'; it has AP, AP50, AP75, APl, ")
    expect(node.ctl("eval", "1", "--metric", "AP50"), 0)
    for more in (), ("--csv",), ("--json",), ("--plot",), ("--split", "val"):
        expect(node.ctl("loss", "1", "--term", "foo", *more), 1, r"term: job 1 has no loss 'foo'; it has .*total")
    expect(node.ctl("loss", "1", "--term", "box"), 0)
    expect(node.ctl("eval", "1", "--on", "d/val.json", "--checkpoint", "7"), 1, "job 1 has no checkpoint '7' on the disk")
    expect(node.ctl("eval", "1", "--on", "nowhere.json"), 1, r"data\.val\.annotations: open .nowhere.json.")
    expect(node.ctl("eval", "9", "--on", "d/val.json"), 1, "job 9")
    for wrong in ("--images", "d/images"), ("--checkpoint", "best"), ("--now", "--on", "d/val.json"), ("--per-class", "--metric",
                                                                                                       "AP"), ("--set", ""):
        expect(node.ctl("eval", "1", *wrong), 2)
    change_set(node, "none.json", lambda coco: [c.update(name="no " + c["name"]) for c in coco["categories"]])
    expect(node.ctl("eval", "1", "--on", "none.json", "--images", "d/images"), 4, "no category of it is a class of the network")
    for key in "errand.step=4", 'errand={"step": 4}':
        expect(node.ctl("submit", "job", key), 1, r"errand: not a key of a job file; verify, eval --on and clone --same-data set it")
    with open(node.folder + "/job.json", encoding="utf-8") as f, open(node.folder + "/errand.json", "w", encoding="utf-8") as g:
        json.dump(dict(json.load(f), errand={"run": "/d", "step": 4}), g)
    expect(node.ctl("submit", "errand"), 1, r"errand: not a key of a job file")


def test_names_of_any_bytes(node):
    """A set with a path that is not UTF-8 is not silently replaced by the job's own set; a long name is cut after a
    whole character."""
    expect(node.ctl("submit", "job", "--wait"), 0)
    folder = os.path.join(os.fsencode(node.folder), b"d\xff")
    os.mkdir(folder)
    shutil.copy(node.folder + "/d/val.json", folder + b"/test.json")
    for words in ("--on", folder + b"/test.json", "--images", "d/images"), ("--on", "d/val.json", "--images", folder):
        expect(node.ctl("eval", "1", *words), 1, "not valid UTF-8")
    name = "x" + "é" * 40
    shutil.copy(node.folder + "/d/val.json", "%s/%s.json" % (node.folder, name))
    _, by, _ = evaluated(node, "--on", name + ".json", "--images", "d/images")
    assert sql(node, "SELECT dataset FROM evaluations WHERE by=?", by) == [(name[:32],)]
    assert node.job(str(by))["name"] == "eval 1 on " + name[:20], node.job(str(by))["name"]


def test_of_each_class(node):
    expect(node.ctl("submit", "job", "--wait"), 0)
    _, metrics = validated(node, 1, 8)
    rows = json.loads(node.ctl("eval", "1", "--per-class", "--json").stdout)
    assert [(r["class"], r["of"], r["step"]) for r in rows] and {r["class"] for r in rows} == {"RBC", "WBC", "Platelets"}, rows
    for row in rows:
        for column, metric in ("count", "n"), ("ap", "AP"), ("ap50", "AP50"), ("precision", "P50"), ("recall", "R50"), ("conf", "conf"):
            assert row[column] == metrics["%s:%s" % (metric, row["class"])], (row, column)
    with open(node.folder + "/d/val.json", encoding="utf-8") as f:
        coco = json.load(f)
    for c in coco["categories"]:  # the box without area is left out, as data.on_bad says
        count = sum(a["category_id"] == c["id"] and a["bbox"][2] * a["bbox"][3] > 0 for a in coco["annotations"])
        assert [r["count"] for r in rows if r["class"] == c["name"]] == [count], (c, count, rows)
    table = list(csv.DictReader(io.StringIO(node.ctl("eval", "1", "--per-class", "--csv").stdout)))
    columns = ("count", "ap", "ap50", "precision", "recall", "conf")
    assert [{k: float(v) if v else None for k, v in t.items() if k in columns} for t in table] == \
        [{k: row[k] for k in columns} for row in rows], table
    shown = node.ctl("eval", "1", "--per-class").stdout.splitlines()
    assert shown[0].split() == ["CLASS", "OF", "COUNT", "AP", "AP50", "PRECISION", "RECALL", "CONF"] and len(shown) == 4, shown


def test_a_class_with_a_comma(node):
    """Lines of CSV have as many fields as their head, for class names of any characters."""
    for split in "train", "val":
        change_set(node, split + "-new.json", lambda coco: coco["categories"][0].update(name='a, "b"'), split)
    expect(node.ctl("submit", "job", "data.train.annotations=train-new.json", "data.val.annotations=val-new.json", "--wait"), 0)
    for words in (), ("--per-class",):
        rows = list(csv.DictReader(io.StringIO(node.ctl("eval", "1", "--csv", *words).stdout)))
        assert all(None not in row for row in rows) and any('a, "b"' in (row.get("metric") or row["class"]) for row in rows), rows


def test_the_best_by_a_metric(node):
    """By a metric, the best checkpoint is that of the highest validation, whatever the loss says. An unknown metric is
    the user's error; the message lists the known metrics."""
    for wrong, said in ("mAP", "'mAP' is not a metric of yolov3_tiny: metrics are loss, AP, "), ("segm_AP", "'segm_AP' is not a metric"), (
            "abs_rel", "'abs_rel' is not a metric"), ("AR300", "'AR300' is not a metric .* AR10, AR100, ARs"):
        for command in "check", "submit":
            expect(node.ctl(command, "job", "checkpoint.best=" + wrong), 1, r"checkpoint\.best: " + said)
    for missing in ("val.every=0",), ("data.val.annotations=null", "data.val.images=null", "val.every=null"):
        expect(node.ctl("check", "job", "checkpoint.best=AP", *missing), 1,
               r"checkpoint\.best: 'AP' is a metric of validations: needs data\.val")
    expect(node.ctl("check", "job", "checkpoint.best=AP50:RBC"), 0)
    expect(node.ctl("check", "job", "checkpoint.best=AR100", "val.max_det=300"), 1, "'AR100' is not a metric .* AR10, AR300, ARs")
    expect(node.ctl("submit", "job", "checkpoint.best=AR300:x", "val.max_det=300", "train.steps=2", "val.every=1", "--wait"), 4,
           r"checkpoint\.best: a validation has no metric 'AR300:x'; it has loss, AP, AP50, .*, AR300")
    expect(
        node.ctl("submit", "job", "checkpoint.best=conf:RBC", "checkpoint.keep=1", "train.steps=6", "train.lr_steps=[]", "val.every=1",
                 "--wait"), 0)
    values = dict(sql(node, "SELECT step, value FROM eval WHERE job=2 AND metric='conf:RBC' AND value IS NOT NULL"))
    best = min(step for step in values if values[step] == max(values.values()))
    assert len(set(values.values())) > 1, values
    flagged = [step for step, in sql(node, "SELECT step FROM checkpoints WHERE job=2 AND best ORDER BY step")]
    assert flagged[-1] == best, (values, flagged)
    assert sorted(os.listdir(node.folder + "/state/jobs/2/checkpoints")) == sorted({"step-%d" % best, "step-6"})
    done = node.ctl("eval", "2")
    other = "step 6 is the newest validation; predict, export and job:2 take the best checkpoint, of step %d\n" % best
    assert done.stderr == ("" if best == 6 else other), done
    assert node.ctl("eval", "2", "--metric", "AP").stderr == "" == node.ctl("eval", "2", "--csv").stderr
    done = node.ctl("predict", "2", "d/images/" + sorted(os.listdir(node.folder + "/d/images"))[0], "-o", "out")
    expect(done, 0)
    assert re.match(r"checkpoint of step %d: the best conf:RBC, " % best, done.stdout), done.stdout


def test_checkpoints_by_word_take_no_place(node):
    expect(node.ctl("submit", "job", "train.steps=100000", "checkpoint.every=3", "checkpoint.keep=2", "val.every=3"), 0)
    kept = node.folder + "/state/jobs/1/checkpoints"
    node.until("1", lambda j: j["step"] >= 10)
    for _ in range(3):
        before = {c["step"] for c in node.job("1")["checkpoints"]}
        expect(node.ctl("pause", "1"), 0)
        node.until("1", lambda j: j["state"] == "paused")
        steps = {int(name.split("-")[1]) for name in os.listdir(kept)}
        newest = sorted(step for step, in sql(node, "SELECT step FROM checkpoints WHERE job=1 AND step % 3 = 0"))[-2:]
        assert set(newest) <= steps, (before, newest, steps)
        expect(node.ctl("resume", "1"), 0)
        node.until("1", lambda j: j["state"] == "running" and j["step"] > max(steps) + 1)
    expect(node.ctl("cancel", "1"), 0)


if __name__ == "__main__":
    run(globals(), __doc__)
