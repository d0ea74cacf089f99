#!/usr/bin/env python3
"""A model of three classes is trained, and another of one class begins with its weights."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import subprocess
import uuid

from daemon import BUILD, Daemon, make_shapes, tensors_of


def one_class(data):
    truth = json.load(open(data + "/train.json"))
    truth["categories"] = [{"id": 1, "name": "shape"}]
    for a in truth["annotations"]:
        a["category_id"] = 1
    json.dump(truth, open(data + "/one.json", "w"))


def run(d, data, annotations, train=None, ranks=1, **model):
    spec = {"model": dict({"preset": "yolov3_tiny", "size": 64, "width": 0.02}, **model),
            "data": {"train": {"annotations": "%s/%s.json" % (data, annotations), "images": data + "/images"}},
            "train": dict({"steps": 2, "batch": 2}, **train or {}), "run": {"device": "cpu", "ranks": ranks}}
    job = d.call("job.submit", spec=spec, token=uuid.uuid4().hex)["id"]
    d.wait(job, lambda j: j["state"] in ("completed", "failed"))
    return d.call("job.get", id=job)


def told(d, job, said):
    """An event, `show` and the rank's log name the loaded weights."""
    assert job["state"] == "completed" and said in d.detctl("events", job["id"]).stdout, d.detctl("events", job["id"]).stdout
    assert d.call("job.get", id=job["id"])["init"].startswith(said), d.call("job.get", id=job["id"])
    show = d.detctl("show", str(job["id"])).stdout
    assert "\ninit         " + said in show, show
    log = open("%s/jobs/%d/log/rank-0.log" % (d.state, job["id"])).read()
    assert said in log, log


def unfit(d, data, init):
    """`check` refuses a file with the same words as the job's first attempt, which is also its last."""
    with open(data + "/one-class.json", "w", encoding="utf-8") as f:
        json.dump({"model": {"preset": "yolov3_tiny", "size": 64, "width": 0.02},
                   "data": {"train": {"annotations": "one.json", "images": "images"}}, "train": {"steps": 2, "batch": 2}}, f)
    files = {
        "empty.weights": b"", "text.weights": b"not a file of weights, whatever its name may say\n",
        "text.safetensors": b"neither is this\n"
    }
    for name, content in files.items():
        with open("%s/%s" % (data, name), "wb") as f:
            f.write(content)
    good = d.detctl("check", data + "/one-class.json", "model.init=" + init)
    assert good.returncode == 0 and "\nmodel.init: loaded layers 0-14, 18-21 of 24 from '%s'" % init in good.stdout, good
    for name, width in [(f, 0.02) for f in files] + [(init, 0.04)]:
        path = os.path.join(data, name)
        checked = d.detctl("check", data + "/one-class.json", "model.init=" + path, "model.width=%g" % width)
        assert checked.returncode == 1 and "model.init" in checked.stderr and os.path.basename(name) in checked.stderr, checked
        job = run(d, data, "one", init=path, width=width)
        log = open("%s/jobs/%d/log/supervisor.log" % (d.state, job["id"])).read()
        assert job["state"] == "failed" and job["reason"] in checked.stderr, (job, checked)
        assert "attempt 1 failed" in log and "attempt 2" not in log, log
    assert "is [8, 8, 3, 3] in the file and [24, 8, 3, 3] in the model" in job["reason"] and "model.width" in job["reason"], job


def layers(d, data, job):
    """Layers of a job, its file, a preset and a file of weights; names, shapes and order are those of the checkpoint."""
    init = "%s/jobs/%d/checkpoints/step-2/model.safetensors" % (d.state, job)
    listed = {what: d.detctl("layers", what, "--json", *more) for what, *more in
              ((str(job),), (init,), (data + "/three",), ("yolov3_tiny", "model.width=0.02", "--classes", "3"))}
    for done in listed.values():
        assert done.returncode == 0, done
    first, in_file, *others = [json.loads(done.stdout) for done in listed.values()]
    assert all(rows == first for rows in others), others
    assert {r["name"]: r["shape"] for r in first} == {r["name"]: r["shape"] for r in in_file} and len(first) == 59, in_file
    assert first[0] == {"layer": 0, "name": "module_list.0.conv_0.weight", "shape": [8, 3, 3, 3], "trains": True}, first[0]
    head = [r for r in first if r["layer"] == 15]
    assert [r["shape"] for r in head] == [[24, 8, 1, 1], [24]], head
    assert [r["trains"] for r in first if "running" in r["name"]] == [None] * 22, first
    table = d.detctl("layers", data + "/three.json").stdout.splitlines()
    assert len(table) == 60 and table[1].split(None, 2) == ["0", "yes", "[8, 3, 3, 3]        module_list.0.conv_0.weight"], table[:3]
    for what, said in (("nosuch", 'is "nosuch"'), (data + "/empty.weights", "without names and shapes"),
                       (data + "/text.safetensors", "text.safetensors"), ("999", "no job 999")):
        done = d.detctl("layers", what)
        assert done.returncode == 1 and said in done.stderr and not done.stdout, done


def looks_at_weights_of_a_job(d, data, job):
    """A job file that begins with a job's weights is checked like any other."""
    spec = d.call("job.get", id=job)["spec"]
    spec["model"]["init"] = "job:%d@last" % job
    with open(data + "/begun.json", "w", encoding="utf-8") as f:
        json.dump(spec, f)
    for words in ("layers", data + "/begun"), ("anchors", data + "/begun.json"), ("sample", data + "/begun", "-n", "1", "-o",
                                                                                  data + "/seen"):
        done = d.detctl(*words)
        assert done.returncode == 0 and done.stdout, done
        done = d.detctl(*words, "model.init=job:999")
        assert done.returncode == 1 and "no job 999" in done.stderr and not done.stdout, done
    done = subprocess.run("%s layers %s | head -n 1" % (BUILD + "/detctl", data + "/begun"), shell=True,
                          env=dict(os.environ, DETD_SOCKET=d.path), capture_output=True, text=True, check=False)
    assert done.stdout.startswith("LAYER") and not done.stderr, done


def frozen(d, data, init):
    """Frozen layers have the file's numbers after training, statistics included; everything else has changed. Two ranks
    give the same result."""
    ends = []
    for ranks in 1, 2:
        job = run(d, data, "train", train={"freeze": ["0-12", "module_list.13"], "shards": 2}, ranks=ranks, init=init)
        assert job["state"] == "completed" and job["init"].startswith("model.init: loaded layers 0-22 of 24"), job
        ends.append(tensors_of("%s/jobs/%d/checkpoints/step-2/model.safetensors" % (d.state, job["id"])))
    begun = tensors_of(init)
    kept = [name for name in begun if begun[name] == ends[0][name]]
    assert sorted(kept) == sorted(name for name in begun if int(name.split(".")[1]) <= 13), kept
    assert ends[0] == ends[1]
    listed = json.loads(d.detctl("layers", str(job["id"]), "--json").stdout)
    assert [r["trains"] for r in listed if r["layer"] <= 14 and r["trains"] is not None] == [False] * 24 + [True] * 3, listed
    wrong = d.detctl("check", data + "/one-class.json", "model.init=" + init, "train.freeze=module_lost.*")
    assert wrong.returncode == 1, wrong
    assert "train.freeze: nothing is called 'module_lost.*'; similar names are module_list, module_list.0, " in wrong.stderr, wrong
    wrong = d.detctl("submit", data + "/one-class.json", "train.freeze=0-12")
    assert wrong.returncode == 1 and "train.freeze: needs model.init" in wrong.stderr, wrong


def by_number(d, data, job):
    """job:ID in place of a file means the checkpoint that is there now."""
    spec = d.call("job.get", id=job)["spec"]
    spec["train"]["steps"] = 1
    with open(data + "/next.json", "w", encoding="utf-8") as f:
        json.dump(spec, f)
    init, held = "%s/jobs/%d/checkpoints/step-2/model.safetensors" % (d.state, job), "%s/jobs/%d/inits/step-2.safetensors" % (d.state, job)
    for which in "", "@last", "@2":
        done = d.detctl("submit", data + "/next.json", "model.init=job:%d%s" % (job, which))
        assert done.returncode == 0, done
        assert done.stderr.count("model.init: checkpoint of step 2 of job %d, its newest\n" % job) == (which != "@2"), done
        assert d.call("job.get", id=int(done.stdout))["spec"]["model"]["init"] == held and os.path.samefile(init, held), which
        d.wait(int(done.stdout), "completed")
    done = d.detctl("submit", data + "/next.json", "--init", "job:%d@last" % job, "train.steps=2")
    assert done.returncode == 0 and d.call("job.get", id=int(done.stdout))["spec"]["model"]["init"] == held, done
    d.wait(int(done.stdout), "completed")
    # the checkpoint goes, and one of the same step comes, before the job begins
    d.call("daemon.drain", reason="so that it waits")
    waits = int(d.detctl("submit", data + "/next.json", "model.init=job:%d" % job).stdout)
    shutil.copy(init, data + "/again")
    os.replace(data + "/again", init)
    later = int(d.detctl("submit", data + "/next.json", "model.init=job:%d" % job).stdout)
    os.unlink(init)
    d.call("daemon.undrain")
    for number, path in (waits, held), (later, held.replace("step-2", "step-2-2")):
        done = d.wait(number, lambda j: j["state"] in ("completed", "failed"))
        assert done["state"] == "completed" and done["spec"]["model"]["init"] == path, done
    shutil.copy(held, init)
    # a user's folder with the name of a job's folder stays as it is
    own = data + "/checkpoints/step-2/model.safetensors"
    os.makedirs(os.path.dirname(own))
    shutil.copy(init, own)
    done = d.detctl("submit", data + "/next.json", "model.init=" + own)
    assert d.call("job.get", id=int(done.stdout))["spec"]["model"]["init"] == own and not os.path.exists(data + "/inits"), done
    d.wait(int(done.stdout), "completed")
    for text, said in (("job:%d@best" % job, "has no checkpoint 'best'"), ("job:%d@77" % job, "has no checkpoint '77'"), ("job:999", "999"),
                       ("job:x", "should be job:ID"), ("job:%d@" % job, "should be job:ID"), ("job:%d,1" % job, "should be job:ID")):
        done = d.detctl("submit", data + "/next.json", "model.init=" + text)
        assert done.returncode == 1 and said in done.stderr and not done.stdout, (text, done)


def verified(d, job, init):
    """The same for a repeated training of a run."""
    done = d.detctl("verify", job, "model.init=" + init)
    assert done.returncode == 0, done
    return d.call("job.get", id=int(done.stderr.split()[1]))["spec"]["model"]["init"]


def main():
    with Daemon(foreign=False) as d:
        data = d.root + "/shapes"
        make_shapes(data, 4, 0, 32)
        one_class(data)
        three = run(d, data, "train")
        assert three["state"] == "completed" and "model.init" not in d.detctl("events", three["id"]).stdout, three
        init = "%s/jobs/%d/checkpoints/step-2/model.safetensors" % (d.state, three["id"])
        front = run(d, data, "one", init=init, load_until=15)
        told(d, front, "model.init: loaded layers 0-14 of 24 from '%s' (45 of 59 arrays); left out: layers 15-22" % init)
        told(d, run(d, data, "one", init=init), "model.init: loaded layers 0-14, 18-21 of 24 from '%s' (55 of 59 arrays); left out: "
                                                "layers 15, 22; "
             "the file is of 3 classes, the job of 1" % init)
        assert d.call("job.get", id=three["id"])["init"] is None
        unfit(d, data, init)
        with open(data + "/three.json", "w", encoding="utf-8") as f:
            json.dump({"model": {"preset": "yolov3_tiny", "size": 64, "width": 0.02}, "train": {"epochs": 1, "batch": 2},
                       "data": {"train": {"annotations": "train.json", "images": "images"}}}, f)
        layers(d, data, three["id"])
        looks_at_weights_of_a_job(d, data, three["id"])
        frozen(d, data, init)
        print(d.detctl("events", front["id"]).stdout, end="")
        by_number(d, data, three["id"])
        assert os.path.samefile(verified(d, front["id"], "job:%d@2" % three["id"]),
                                init.replace("checkpoints/step-2/model", "inits/step-2-3"))


main()
