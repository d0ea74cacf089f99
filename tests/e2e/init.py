#!/usr/bin/env python3
"""A model of three classes is trained, and another of one class begins with its weights."""
import json
import os
import subprocess
import sys

from daemon import BUILD, HERE, Daemon


def one_class(data):
    truth = json.load(open(data + "/train.json"))
    truth["categories"] = [{"id": 1, "name": "shape"}]
    for a in truth["annotations"]:
        a["category_id"] = 1
    json.dump(truth, open(data + "/one.json", "w"))


def run(d, data, annotations, **model):
    spec = {"model": dict({"preset": "yolov3_tiny", "size": 64, "width": 0.02}, **model),
            "data": {"train": {"annotations": "%s/%s.json" % (data, annotations), "images": data + "/images"}},
            "train": {"steps": 2, "batch": 2}, "run": {"device": "cpu"}}
    job = d.call("job.submit", spec=spec, token=annotations + str(sorted(model))[:100])["id"]
    return d.wait(job, lambda j: j["state"] in ("completed", "failed"))


def events(d, job):
    env = dict(os.environ, DETD_SOCKET=d.path)
    return subprocess.run([BUILD + "/detctl", "events", str(job)], env=env, capture_output=True, text=True, check=True).stdout


def submit(d, *args):
    return subprocess.run([BUILD + "/detctl", "submit", *args], env=dict(os.environ, DETD_SOCKET=d.path), capture_output=True, text=True, check=False)


def by_number(d, data, job):
    """job:ID in place of a file is the checkpoint that is there now."""
    spec = d.call("job.get", id=job)["spec"]
    spec["train"]["steps"] = 1
    with open(data + "/next.json", "w", encoding="utf-8") as f:
        json.dump(spec, f)
    init = "%s/jobs/%d/checkpoints/step-%%d/model.safetensors" % (d.state, job)
    for which, step in ("", 2), ("@last", 2), ("@2", 2):
        done = submit(d, data + "/next.json", "model.init=job:%d%s" % (job, which))
        assert done.returncode == 0, done
        assert d.call("job.get", id=int(done.stdout))["spec"]["model"]["init"] == init % step, which
    for text, said in (("job:%d@best" % job, "that is 'best'"), ("job:%d@77" % job, "that is '77'"), ("job:999", "999"),
                       ("job:x", "should be job:ID"), ("job:%d@" % job, "should be job:ID"), ("job:%d,1" % job, "should be job:ID")):
        done = submit(d, data + "/next.json", "model.init=" + text)
        assert done.returncode == 1 and said in done.stderr and not done.stdout, (text, done)


def verified(d, job, init):
    """The same where a run is trained once more."""
    done = subprocess.run([BUILD + "/detctl", "verify", str(job), "model.init=" + init], env=dict(os.environ, DETD_SOCKET=d.path), capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done
    return d.call("job.get", id=int(done.stderr.split()[1]))["spec"]["model"]["init"]


def main():
    with Daemon(foreign=False) as d:
        data = d.root + "/shapes"
        subprocess.run([sys.executable, HERE + "/../demo/make_shapes.py", data, "--train", "4", "--val", "0", "--size", "32"], check=True,
                       stdout=subprocess.DEVNULL)
        one_class(data)
        three = run(d, data, "train")
        assert three["state"] == "completed" and "model.init" not in events(d, three["id"]), three
        init = "%s/jobs/%d/checkpoints/step-2/model.safetensors" % (d.state, three["id"])
        front = run(d, data, "one", init=init, load_until=15)
        said = "model.init '%s': 45 of 59 arrays loaded, all but layers 15 to 22" % init
        assert front["state"] == "completed" and said in events(d, front["id"]), events(d, front["id"])
        whole = run(d, data, "one", init=init)
        assert whole["state"] == "failed" and whole["reason"].startswith("model.init '%s': module_list.15." % init), whole
        log = open("%s/jobs/%d/log/supervisor.log" % (d.state, whole["id"])).read()
        assert "model.load_until=15" in whole["reason"] and "attempt 1 failed" in log and "attempt 2" not in log, log
        print(events(d, front["id"]), end="")
        by_number(d, data, three["id"])
        assert verified(d, front["id"], "job:%d@2" % three["id"]) == init


main()
