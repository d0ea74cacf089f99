#!/usr/bin/env python3
"""detctl extend: a completed job trains on, and equals a job that had so many steps from the start: weights, state,
rows and evidence."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import shutil

from daemon import Daemon, Relay, make_shapes, tensors_of

STEPS, MORE, EVERY = 12, 20, 4


def spec_of(data, steps, **train):
    return {"model": {"preset": "yolov3_tiny", "size": 64, "width": 0.02},
            "data": {"train": {"annotations": data + "/train.json", "images": data + "/images"},
                     "val": {"annotations": data + "/val.json", "images": data + "/images"}, "augment": {"flip": 0.5, "scale": 0.2}},
            "train": dict({"steps": steps, "batch": 4, "shards": 2, "log_every": 4, "burn_in": 2, "schedule": "constant"}, **train),
            "val": {"every": 4}, "checkpoint": {"every": EVERY, "keep": 5}, "run": {"device": "cpu", "ranks": 2}}


def submit(d, spec):
    submit.count = getattr(submit, "count", 0) + 1
    return d.call("job.submit", spec=spec, token=str(submit.count))["id"]


def check_same(d, job, whole, steps):
    for table in ("SELECT split, term, step, epoch, num, den, tier FROM loss WHERE job=? ORDER BY 1, 2, 3",
                  "SELECT metric, step, value FROM eval WHERE job=? ORDER BY 1, 2"):
        ours, theirs = d.sql(table, job), d.sql(table, whole)
        assert ours == theirs, (table, [r for r in ours if r not in theirs], [r for r in theirs if r not in ours])
    for name in ("model", "state"):
        ours, theirs = (tensors_of("%s/jobs/%d/checkpoints/step-%d/%s.safetensors" % (d.state, j, steps, name)) for j in (job, whole))
        assert ours == theirs, [k for k in theirs if ours.get(k) != theirs[k]]
    done = d.detctl("diff", str(job), str(whole))
    assert done.returncode == 0, done
    ours, theirs = ([(c["step"], c["val_loss"]) for c in d.job(j)["checkpoints"] if c["there"] and c["step"] % EVERY == 0][:3]
                    for j in (job, whole))
    assert ours == theirs, (ours, theirs)  # a pause leaves one more, at any step


def trains_on(d, data, whole):
    job = submit(d, spec_of(data, STEPS))
    assert d.wait(job, "completed")["step"] == STEPS
    done = d.detctl("extend", str(job), "--steps", str(MORE), "--wait")
    assert done.returncode == 0 and done.stdout == "%d\n" % job, done
    assert "goes on after step %d, to step %d" % (STEPS, MORE) in done.stderr, done
    now = d.job(job)
    assert (now["step"], now["steps"], now["attempt"], now["spec"]["train"]["steps"]) == (MORE, MORE, 2, MORE), now
    assert [a["resume_step"] for a in now["attempts"]] == [STEPS, 0], now["attempts"]
    check_same(d, job, whole, MORE)
    assert any(t.startswith("extend from %d to %d steps by " % (STEPS, MORE)) for t in d.events("audit", job)), d.events("audit", job)
    assert not d.events("evidence", job) and not d.events("identity", job), (d.events("evidence", job), d.events("identity", job))
    done = d.detctl("verify", str(job), "--from", str(STEPS - 2))
    assert done.returncode == 0, done
    return job


def with_rates_that_fall(d, data):
    """The rate falls at .8 and .9 of the steps, the default: the newest checkpoint before the first fall stays,
    whatever checkpoint.keep says."""
    spec = spec_of(data, STEPS, schedule="steps")
    spec["checkpoint"] = {"every": 4, "keep": 1}
    job = submit(d, spec)
    d.wait(job, "completed")
    assert {"step-8", "step-12"} <= set(os.listdir("%s/jobs/%d/checkpoints" % (d.state, job)))
    done = d.detctl("extend", str(job), "--steps", str(MORE), "--wait")
    assert done.returncode == 0 and "goes on after step 8, to step %d" % MORE in done.stderr, done
    assert " stays " not in done.stderr, done.stderr  # its file gives them
    spec["train"]["steps"] = MORE
    whole = submit(d, spec)
    d.wait(whole, "completed")
    check_same(d, job, whole, MORE)


def keys_that_followed_from_the_steps(d, data):
    """Keys that followed from the steps keep their values, and extend names each key that a new job of that length
    would set otherwise."""
    spec = spec_of(data, 20)
    del spec["train"]["burn_in"], spec["val"], spec["checkpoint"]
    job = submit(d, spec)
    d.wait(job, "completed")
    done = d.detctl("extend", str(job), "--steps", "60", "--wait")
    assert done.returncode == 0, done
    told = [line for line in done.stderr.splitlines() if " stays " in line]
    assert told == [
        "train.burn_in stays 1; a new job of 60 steps has 3 by default", "val.every stays 2; a new job of 60 steps has 6 by default"
    ], done.stderr


def refusing(d, granted, refused):
    """A socket in front of detd's own. It refuses a method after another one was granted, like a detd that is busy by
    then."""
    asked, by_now = {}, []

    def instead(msg):
        if "method" in msg:
            asked[msg.get("id")] = msg["method"]
            error = {"code": -32000, "message": "not now", "data": {"field": "", "reason": ""}}
            return {"jsonrpc": "2.0", "id": msg["id"], "error": error} if by_now and msg["method"] == refused else None
        if asked.get(msg["id"]) == granted and "error" not in msg:
            by_now.append(msg)
        return None

    return Relay("%s/%s-%s" % (d.root, granted, refused), d.path, instead).path


def what_is_granted_is_no_error(d, data):
    """detctl reports the result of its request even if detd refuses its later queries."""
    job = submit(d, spec_of(data, 20))
    d.wait(job, "completed")
    between = refusing(d, "job.extend", "job.get")
    done = d.detctl("--socket", between, "extend", str(job), "--steps", "30")
    assert done.returncode == 0 and done.stdout == "%d\n" % job and d.job(job)["steps"] == 30, done
    d.wait(job, "completed")
    between = refusing(d, "job.list", "job.get")  # evaluated once more, on another file of that name: the note would ask for both
    for n in "1", "2":
        os.makedirs(data + "/" + n)
        shutil.copy(data + "/val.json", data + "/%s/again.json" % n)
        words = "eval", str(job), "--on", data + "/%s/again.json" % n, "--images", data + "/images", "--json"
        done = d.detctl(*(("--socket", between) if n == "2" else ()), *words)
        assert done.returncode == 0 and len(json.loads(done.stdout)) > 3, done
    between = refusing(d, "eval.query", "job.get")
    done = d.detctl("--socket", between, "eval", str(job))
    assert done.returncode == 0 and "AP50" in done.stdout, done


def data_that_has_changed(d, data, whole):
    """Changed data, with which the job would fail for good, is refused before the job is queued. With the original data
    the job continues."""
    job = submit(d, spec_of(data, STEPS))
    d.wait(job, "completed")
    with open(data + "/train.json", encoding="utf-8") as f:
        text = f.read()
    for change, mend, said in ((lambda: open(data + "/train.json", "a", encoding="utf-8").write(" "),
                                lambda: open(data + "/train.json", "w", encoding="utf-8").write(text),
                                "train.json: has changed since the data set was checked"),
                               (lambda: os.rename(data + "/images", data + "/away"), lambda: os.rename(data + "/away", data + "/images"),
                                "No such file"), (lambda: os.rename(data + "/val.json", data + "/away"),
                                                  lambda: os.rename(data + "/away", data + "/val.json"), "val.json")):
        change()
        done = d.detctl("extend", str(job), "--steps", str(MORE), "--wait")
        assert done.returncode == 1 and not done.stdout and said in done.stderr, done
        assert "job %d is not extended" % job in done.stderr and "`detctl clone %d`" % job in done.stderr, done
        assert d.job(job)["state"] == "completed"
        mend()
    done = d.detctl("extend", str(job), "--steps", str(MORE), "--wait")
    assert done.returncode == 0, done
    check_same(d, job, whole, MORE)


def from_before_its_last_step(d, data, whole):
    """Its last step was no multiple of train.log_every and val.every: the rows that its end stored there are removed."""
    job = submit(d, spec_of(data, 10))
    d.wait(job, "completed")
    assert d.sql("SELECT count(*) FROM loss WHERE job=? AND step=10", job) != [(0,)]
    done = d.detctl("extend", str(job), "--steps", str(MORE), "--wait")
    assert done.returncode == 0 and "goes on after step 8," in done.stderr, done
    check_same(d, job, whole, MORE)
    assert "step-10" not in os.listdir("%s/jobs/%d/checkpoints" % (d.state, job))


def killed_on_the_way(d, data, whole):
    """detd dies right after its answer, and the supervisor and ranks die in the midst of the added steps. The job is
    extended twice."""
    job = submit(d, spec_of(data, 8))
    d.wait(job, "completed")
    d.call("job.extend", id=job, steps=STEPS)
    assert d.call("job.extend", id=job, steps=STEPS)["steps"] == STEPS  # the answer was lost
    d.kill()
    d.start()
    d.until(lambda: any(a["resume_step"] == 8 for a in d.job(job)["attempts"]), "it does not go on")
    d.kill_session(job)
    d.wait(job, "completed")
    d.call("job.extend", id=job, steps=MORE)
    d.wait(job, "completed")
    d.wait_left(job)
    check_same(d, job, whole, MORE)


def failed_jobs_go_on(d, data, whole):
    """A job that failed for its data continues when the data is put back, from its newest checkpoint and to the same
    bits. This also holds if its spool is gone since, and after a restart of detd. The same holds for a job that a raw
    request gave more steps though its data had changed."""
    def change():
        with open(data + "/train.json", "a", encoding="utf-8") as f:
            f.write(" ")

    def mend():
        with open(data + "/train.json", "w", encoding="utf-8") as f:
            f.write(text)

    with open(data + "/train.json", encoding="utf-8") as f:
        text = f.read()
    for extended in (False, True):
        job = submit(d, spec_of(data, 8 if extended else MORE))
        if extended:
            d.wait(job, "completed")
            change()
            d.call("job.extend", id=job, steps=MORE)
        else:
            d.wait(job, lambda j: j["checkpoints"])
            d.call("job.pause", id=job)
            d.wait(job, "paused")
            change()
            d.call("job.resume", id=job)
        failed = d.wait(job, "failed")
        assert "has changed since the data set was checked" in failed["reason"], failed["reason"]
        for words, said in ((("extend", str(job), "--steps", "40"), "detctl resume"), (("why", str(job)), "detctl resume %d" % job),
                            (("show", str(job)), "detctl resume %d" % job)):
            done = d.detctl(*words)
            assert said in done.stdout + done.stderr or (words[0] == "extend" and "has changed" in done.stderr), (words, done)
        d.until(lambda j=job: not os.path.exists("%s/jobs/%d/spool.0" % (d.state, j)), "the spool stays")
        done = d.detctl("resume", str(job))  # the cause is still there: it fails again
        assert done.returncode == 0 and "state queued" in done.stdout, done
        d.wait(job, "failed")
        mend()
        d.stop()
        d.start()
        assert d.call("job.resume", id=job) == {"state": "queued"}
        assert d.wait(job, lambda j: j["state"] in ("completed", "failed"))["state"] == "completed"
        d.wait_left(job)
        check_same(d, job, whole, MORE)
        assert not d.events("ended_before", job), d.events("ended_before", job)
        assert any(t.startswith("resume by ") for t in d.events("audit", job)), d.events("audit", job)


def what_is_missing_is_waited_for(d, data, whole):
    """The pictures are away, like those on a server that is down: the job waits for them without slots, and continues
    to the same bits."""
    job = submit(d, spec_of(data, MORE))
    d.wait(job, lambda j: j["checkpoints"])
    d.call("job.pause", id=job)
    d.wait(job, "paused")
    os.rename(data + "/images", data + "/away")
    d.call("job.resume", id=job)
    d.wait(job, lambda j: j["state"] == "queued" and "waits for a file that is missing" in j["reason"])
    d.until(lambda: "No such file" in d.detctl("why", str(job)).stdout, "why does not say what is missing")
    d.until(lambda: d.call("daemon.info")["cpu_free"] == 4, "the slots are not free")
    known = len(d.call("event.query", id=job, limit=1000)["events"])
    d.call("job.resume", id=job)  # the job looks at once, and the file is still missing
    d.until(lambda: len(d.events("end", job)) == 3, "it is not tried again")  # of the pause and of each wait
    assert len(d.call("event.query", id=job, limit=1000)["events"]) <= known + 2, "each try is told at length"
    os.rename(data + "/away", data + "/images")
    d.call("job.resume", id=job)
    assert d.wait(job, lambda j: j["state"] in ("completed", "failed"))["state"] == "completed"
    d.wait_left(job)
    check_same(d, job, whole, MORE)


def check_link(d, job):
    """best/ is the folder of the checkpoint that is the best by validation loss, also where it is not the last one."""
    best = max(c["step"] for c in d.job(job)["checkpoints"] if c["best"])
    link = "%s/jobs/%d/best" % (d.state, job)
    assert os.readlink(link) == "checkpoints/step-%d" % best and os.path.isfile(link + "/model.safetensors"), (os.readlink(link), best)


def the_link_is_mended(d, data):
    """A rank is killed between publishing the best checkpoint and linking it; and a job has no validated checkpoint."""
    job = submit(d, dict(spec_of(data, 10 ** 6), val={"every": 4}))
    d.wait(job, lambda j: len(j["checkpoints"]) > 1)
    d.call("job.pause", id=job)
    d.wait(job, "paused")
    d.wait_left(job)
    link = "%s/jobs/%d/best" % (d.state, job)
    os.unlink(link)
    os.symlink("checkpoints/step-1", link)
    d.call("job.resume", id=job)
    d.wait(job, lambda j: len(j["attempts"]) > 1)
    d.call("job.cancel", id=job)
    d.wait(job, "cancelled")
    d.wait_left(job)
    check_link(d, job)
    plain = spec_of(data, 8)
    del plain["data"]["val"], plain["val"]
    job = submit(d, plain)
    d.wait(job, "completed")
    assert os.readlink("%s/jobs/%d/best" % (d.state, job)) == "checkpoints/step-8"


def an_older_copy_of_the_database(d, job):
    """A copy of the database from before the job was extended: detd finds in the job's folder that the job has ended,
    and how."""
    d.until(lambda: not os.path.exists("%s/jobs/%d/spool.0" % (d.state, job)), "the spool stays")
    end = json.load(open("%s/jobs/%d/end" % (d.state, job)))
    assert (end["state"], end["seq"]) == ("completed", d.sql("SELECT last_seq FROM jobs WHERE id=?", job)[0][0]), end


def refusals(d, data):
    def refused(job, steps, *said):
        done = d.detctl("extend", str(job), "--steps", str(steps))
        assert done.returncode == 1 and not done.stdout and all(s in done.stderr for s in said), (done, said)

    falls = dict(spec_of(data, 4, schedule="cosine"), checkpoint={"every": 0})
    job = submit(d, falls)
    d.wait(job, "completed")
    refused(job, 8, "train.schedule: with cosine each rate depends on train.steps (4)", "job %d cannot be given more steps" % job)
    falls["train"]["schedule"] = "steps"
    steps = submit(d, falls)
    d.wait(steps, "completed")
    refused(steps, 8, "train.lr_steps: the rate has fallen after a fraction (0.8) of train.steps (4)")
    refused(steps, 4, "train.steps: must be more than the 4")
    refused(steps, 10 ** 9, "train.steps: must be at most")
    cut = submit(d, dict(spec_of(data, 6), checkpoint={"every": 0}))
    d.wait(cut, "completed")
    refused(cut, 8, "train.log_every: step 6 is not a multiple of it",
            "no earlier checkpoint is there; `detctl clone %d train.steps=8` trains anew" % cut)
    early = submit(d, spec_of(data, 400, stop_after=1, lr=1e-12))
    step = d.wait(early, "completed")["step"]
    assert step < 400, step
    refused(early, 800, "train.stop_after (1) ended it after step %d of 400, and would again" % step)
    refused(999, 8, "no job 999")
    d.call("daemon.drain", reason="test")
    waits = submit(d, spec_of(data, 8))
    refused(waits, 16, "job %d is queued: only a completed one is given more steps" % waits)
    d.call("job.cancel", id=waits)
    refused(waits, 16, "is cancelled: only a completed one", "detctl clone")
    d.call("daemon.undrain")
    for words, said in ((["3"], "--steps N or --epochs N"), (["3", "--steps", "x"], "is not a number of steps"), (["--steps",
                                                                                                                   "8"], "one job id")):
        done = d.detctl("extend", *words)
        assert done.returncode == 2 and said in done.stderr, done


def epochs_and_clone(d, data, whole):
    """--epochs counts as submission does: 12 images in batches of 4. A clone copies all keys except those that the
    command sets."""
    job = submit(d, spec_of(data, 8))
    d.wait(job, "completed")
    done = d.detctl("extend", str(job), "--epochs", str(MORE / 3), "--wait")
    assert done.returncode == 0 and "%d steps" % MORE in done.stderr, done
    check_same(d, job, whole, MORE)
    done = d.detctl("clone", str(job), "--wait")
    assert done.returncode == 0 and int(done.stdout) != job, done
    check_same(d, int(done.stdout), whole, MORE)
    done = d.detctl("clone", str(job), "train.lr=0.002", "train.epochs=1", "model.init=job:%d@%d" % (job, MORE), "name=other", "--wait")
    assert done.returncode == 0, done
    ours, theirs = (d.job(int(j))["spec"] for j in (done.stdout, job))
    assert (ours["train"]["lr"], ours["train"]["steps"], ours["name"]) == (0.002, 3, "other"), ours
    assert ours["model"]["init"] == "%s/jobs/%d/inits/step-%d.safetensors" % (d.state, job, MORE), ours
    ours["train"].update(lr=theirs["train"]["lr"], steps=MORE)
    ours.update(name=theirs["name"])
    ours["model"]["init"] = theirs["model"]["init"]
    assert ours == theirs, (ours, theirs)
    for words, said in ((["999"], "no job 999"), ([str(job),
                                                   "train.lrr=1"], "did you mean train.lr?"), ([str(job),
                                                                                                "train.steps=1"], "train.burn_in")):
        done = d.detctl("clone", *words)
        assert done.returncode == 1 and re.search(re.escape(said), done.stderr), (done, said)


def intervals_of_a_clone(d, data):
    """A derived interval follows the value that it was derived from; an interval that a user set stays."""
    def cloned(job, *words):
        done = d.detctl("clone", str(job), *words)
        assert done.returncode == 0, done
        spec = d.job(int(done.stdout))["spec"]
        d.call("job.cancel", id=int(done.stdout))
        return (spec["val"]["every"], spec["checkpoint"]["every"],
                "val.every, which was 4, is a tenth of the steps again" in done.stderr,
                "checkpoint.every, which was 4, is " in done.stderr)

    d.call("daemon.drain", reason="test")
    spec = spec_of(data, 40)
    del spec["val"], spec["checkpoint"]
    derived = submit(d, spec)
    assert cloned(derived, "name=same") == (4, 4, False, False)
    assert cloned(derived, "train.steps=80") == (8, 8, True, True)
    assert cloned(derived, "train.epochs=20") == (6, 6, True, True)
    assert cloned(derived, "val.every=5", "train.steps=80") == (5, 5, False, True)
    assert cloned(derived, "val.every=5") == (5, 5, False, True)
    assert cloned(derived, "checkpoint.every=20", "train.steps=80") == (8, 20, True, False)
    told = submit(d, dict(spec, val={"every": 8}, checkpoint={"every": 20}))
    assert cloned(told, "train.steps=80") == (8, 20, False, False)
    assert cloned(told, "val.every=20") == (20, 20, False, False)
    never = submit(d, dict(spec, val={"every": 0}))
    assert cloned(never, "train.steps=80") == (0, 8, False, True)
    done = d.detctl("clone", str(derived), "train.steps=x")
    assert done.returncode == 1 and "which was" not in done.stderr, done
    d.call("daemon.undrain")


def main():
    with Daemon(foreign=False) as d:
        data = d.root + "/shapes"
        make_shapes(data, 12, 4, 48)
        whole = submit(d, spec_of(data, MORE))
        d.wait(whole, "completed")
        job = trains_on(d, data, whole)
        check_link(d, job)
        the_link_is_mended(d, data)
        an_older_copy_of_the_database(d, job)
        from_before_its_last_step(d, data, whole)
        with_rates_that_fall(d, data)
        keys_that_followed_from_the_steps(d, data)
        what_is_granted_is_no_error(d, data)
        data_that_has_changed(d, data, whole)
        killed_on_the_way(d, data, whole)
        failed_jobs_go_on(d, data, whole)
        what_is_missing_is_waited_for(d, data, whole)
        refusals(d, data)
        epochs_and_clone(d, data, whole)
        intervals_of_a_clone(d, data)


main()
