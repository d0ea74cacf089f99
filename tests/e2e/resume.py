#!/usr/bin/env python3
"""What an older version began, this one ends. usage: resume.py DETD_JOB WORKER LATER_WORKER

LATER_WORKER knows a job key more, train.later: its neutral value is 0, its default .5."""  # SPDX-License-Identifier: Apache-2.0
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

from super_job import HERE, Job

KEPT = HERE + "/../checkpoints"
WORKER, LATER = map(os.path.abspath, sys.argv[2:4])


class Resumed:
    """A job's folder of tests/checkpoints in a folder of its own, beside its data; paths in its job file go through the working directory."""

    def __init__(self, name):
        self.name, self.root = name, tempfile.mkdtemp(prefix="detd-resume-")
        shutil.copytree(KEPT, self.root, dirs_exist_ok=True)
        self.expected = losses(open("%s/%s/rows.jsonl" % (KEPT, name)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)

    def run(self, worker, *assignments):
        done = subprocess.run([worker, "--dir", self.name, self.name + ".json", *assignments], cwd=self.root, capture_output=True, text=True)
        return done, [json.loads(line) for line in done.stdout.splitlines()]

    def checkpoints(self):
        return sorted(os.listdir("%s/%s/checkpoints" % (self.root, self.name)))


def losses(lines):
    said = [json.loads(line) if isinstance(line, str) else line for line in lines]
    return [(m["split"], m["step"], m["terms"]["total"]) for m in said if m["type"] == "loss"]


def check_losses(found, expected):
    """The window that was open, momentum, averages and the order of the pictures: without one of them the sums are others by far."""
    assert [row[:2] for row in found] == [row[:2] for row in expected], (found, expected)
    for row, (_, _, (num, den)) in zip(found, expected):
        assert row[2][1] == den and math.isclose(row[2][0], num, rel_tol=0.01), (row, num, den)


def resumes(name, worker, *assignments):
    with Resumed(name) as job:
        done, said = job.run(worker, *assignments)
        assert done.returncode == 0, done.stderr
        start = [m for m in said if m["type"] == "start"]
        assert len(start) == 1 and start[0]["resume_step"] == 4, start
        check_losses(losses(said), job.expected)
        assert said[-1]["type"] == "end" and said[-1]["outcome"] == "completed", said[-1]
        assert job.checkpoints() == ["step-4", "step-8"]
    print("ok  %s resumes '%s' %s" % (os.path.relpath(worker, os.path.dirname(WORKER)), name, " ".join(assignments)))


def refuses(name, worker, assignments, *words):
    """An error of the job: another attempt would find the same."""
    with Resumed(name) as job:
        done, said = job.run(worker, *assignments)
        assert done.returncode == 1 and said[-1]["type"] == "end" and said[-1]["outcome"] == "failed", (said[-1:], done.stderr)
        assert said[-1]["class"] == "user" and all(w in said[-1]["reason"] for w in words), said[-1]
        assert not any(m["type"] == "start" for m in said) and job.checkpoints() == ["step-4"]
    print("ok  %s refuses '%s' %s" % (os.path.relpath(worker, os.path.dirname(WORKER)), name, " ".join(assignments)))


def under_detd_job(worker):
    """spec.json of then lacks the key: not its default, its neutral value is meant."""
    job = Job()
    try:
        for source in (KEPT, KEPT + "/plain"):
            shutil.copytree(source, job.dir, dirs_exist_ok=True)
        job.start(worker=worker)
        job.finish("completed")
        assert [a["resume_step"] for a in job.store.of("attempt")] == [4]
        check_losses(losses(job.store.of("loss")), losses(open(KEPT + "/plain/rows.jsonl")))
    except BaseException:
        print(job.log(), job.log("rank-0"), file=sys.stderr)
        raise
    finally:
        job.close()
    print("ok  %s resumes 'plain' from its spec.json" % os.path.relpath(worker, os.path.dirname(WORKER)))


def identity_events(job, worker):
    """Of the steps after the fourth, trained again."""
    shutil.rmtree("%s/%s/checkpoints/step-8" % (job.root, job.name), ignore_errors=True)
    done, said = job.run(worker)
    assert done.returncode == 0 and [m["resume_step"] for m in said if m["type"] == "start"] == [4], done.stderr
    return [m["text"] for m in said if m["type"] == "event" and m["kind"] == "identity"]


def names_what_differs(name):
    """The older identity.json knows no programs and no codecs; then they are kept, and an attempt with another one says so."""
    with Resumed(name) as job:
        assert identity_events(job, WORKER) == [] and identity_events(job, WORKER) == []
        path = "%s/%s/identity.json" % (job.root, name)
        kept = json.load(open(path))
        now = dict(kept["files"]["libpng"])
        assert sorted(kept["files"]) == ["libjpeg-turbo", "libpng", "libwebp", "worker"]
        assert all(len(f["hash"]) == 32 and f["version"] for f in kept["files"].values()), kept
        kept["files"]["libpng"].update(version="1.2.3", hash="0" * 32)
        json.dump(kept, open(path, "w"))
        differs = "from step 5 on the bits may be others than before: "
        libpng = "libpng version %s (was 1.2.3), libpng hash %s (was %s)" % (now["version"], now["hash"], "0" * 32)
        assert identity_events(job, WORKER) == [differs + libpng]
        other = job.root + "/other-worker"
        shutil.copy(WORKER, other)
        open(other, "ab").write(b"x")
        (said,) = identity_events(job, other)
        was, is_ = kept["files"]["worker"]["hash"], json.load(open(path))["files"]["worker"]["hash"]
        assert was != is_ and said == differs + "worker hash %s (was %s)" % (is_, was), said
    print("ok  another worker and another libpng are named")


def main():
    resumes("plain", WORKER)
    resumes("ema", WORKER)
    refuses("plain", WORKER, ["train.lr=0.02"], "plain/checkpoints/step-4", "new job")
    refuses("plain", WORKER, ["train.ema=0.9"], "train.ema: ", "plain/checkpoints/step-4")
    resumes("plain", LATER, "train.later=0")
    resumes("ema", LATER, "train.later=0")
    refuses("plain", LATER, ["train.later=0.25"], "train.later: ", "plain/checkpoints/step-4")
    refuses("ema", LATER, [], "train.later: ", "ema/checkpoints/step-4")
    under_detd_job(WORKER)
    under_detd_job(LATER)
    names_what_differs("plain")


main()
