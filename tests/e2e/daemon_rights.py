#!/usr/bin/env python3
"""Rights on a system daemon: root, group detd, a job's owner and other users, on every method of proto/methods.h.
"""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import subprocess
import time

from daemon import BUILD, HERE, Client, Refused
from evidence import Run
from launch import ANN, BOB, DETD, Node, main, of_uid

OTHERS = 4343  # a group
OWNER, OTHER, MEMBER = ANN, BOB, 2003
SECRET = "swordfish"


def methods():
    """(name, access, [(parameter, type, optional)]) of each row."""
    text = open(HERE + "/../../proto/methods.h").read()
    for name, access, params in re.findall(r'X\(\w+, "([\w.]+)", (\w+),\s*"([^"]*)"', text):
        yield name, access, [(p.split(":")[0], p.split(":")[1].rstrip("?"), p.endswith("?")) for p in params.split()]


def as_user(uid, gid, groups, what):
    """Calls what() as that user: its connections count as the user's."""
    os.setgroups(groups)
    os.setegid(gid)
    os.seteuid(uid)
    try:
        return what()
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups([])


# name: (uid, primary group, other groups), whether they are an admin
PEOPLE = {"root": ((0, 0, []), True), "primary group": ((MEMBER, DETD, []), True), "one of few groups": ((MEMBER, OTHERS, [7, DETD]), True),
          "one of many groups": ((MEMBER, OTHERS, list(range(5000, 5300)) + [DETD]), True), "owner": ((OWNER, OTHERS, [7]), False),
          "other": ((OTHER, OTHERS, [7]), False)}


def value(name, kind, job):
    words = {"token": "t", "uuid": "GPU-none", "tier": "world", "spec": {}, "older": 1e9}
    return words.get(name, job if kind == "int" else "x")


def denied(client, method, **params):
    try:
        return None, client.call(method, **params)
    except Refused as e:
        return (e.reason == "DENIED"), str(e)


def calls(job, spare):
    """Yields each method with its required parameters, and deterministic.set also with a job. spare(): makes a job of
    the owner that may be removed."""
    for name, access, params in methods():
        given = {p: value(p, kind, job) for p, kind, optional in params if not optional}
        if name == "deterministic.set":
            yield name, "WRITE", given  # of the node
            given = dict(given, id=job)
        if name == "job.rm":
            given = dict(id=spare())
        if name == "job.label":
            given = dict(given, note="seen")  # one of the two has to be there
        yield name, "READ" if name == "job.prune" else access, given  # of others it prunes nothing


def a_finished_job(d):
    """Returns an ended job. Its owner was in the group when he submitted it, and is not any more."""
    job = as_user(OWNER, DETD, [], lambda: d.submit(3, env={"STEP_S": "0", "PASSWORD": SECRET}, on_end=": " + SECRET))
    d.wait(job, "completed")
    return job


def a_cancelled_job(d):
    job = d.submit(100000)
    d.call("job.cancel", id=job)
    d.wait(job, "cancelled")
    return job


def nobody_prunes_jobs_of_others():
    with Node() as d:
        job = a_finished_job(d)
        assert as_user(*PEOPLE["other"][0], d.client).call("job.prune", older=0, dry_run=True)["jobs"] == []
        assert as_user(*PEOPLE["other"][0], d.client).call("job.prune", older=0)["jobs"] == []
        listed = [as_user(*PEOPLE[who][0], d.client).call("job.prune", older=0, dry_run=True)["jobs"] for who in ("owner", "root")]
        assert [[j["id"] for j in jobs] for jobs in listed] == [[job]] * 2, listed
        assert as_user(*PEOPLE["root"][0], d.client).call("job.prune", older=0, user="nobody-of-that-name")["jobs"] == []
        assert as_user(*PEOPLE["owner"][0], d.client).call("job.prune", older=0)["jobs"]
        assert [t for t in d.events("removed") if "job %d ('j' of" % job in t], d.events("removed")


def every_method_asks_who_calls():
    with Node() as d:
        job, rows = a_finished_job(d), 0
        for who, (ids, admin) in PEOPLE.items():
            for name, access, params in calls(job, lambda: as_user(OWNER, DETD, [], lambda: a_cancelled_job(d))):
                may = who != "root" if access == "SUBMIT" else admin or access == "READ" or (access == "OWNER" and who == "owner")
                is_denied, answer = denied(as_user(*ids, d.client), name, **params)
                assert bool(is_denied) == (not may), (who, name, params, answer)
                shown = SECRET in json.dumps(answer)
                assert shown == (name == "job.get" and who == "owner"), (who, name, answer)
                rows += 1
        assert rows == len(PEOPLE) * (len(list(methods())) + 1) and rows > 100
        spec = as_user(*PEOPLE["other"][0], d.client).call("job.get", id=job)["spec"]
        assert spec["run"]["env"] == {"STEP_S": None, "PASSWORD": None
                                      } and spec["run"]["on_end"] is None and spec["train"]["steps"] == 3, spec
        assert d.job(job)["state"] == "completed"


def others_runs_are_compared():
    """Compares jobs of other users without the private evidence, and says that it is left out. A comparison that needs
    it is refused."""
    with Node() as d:
        jobs = [a_finished_job(d), a_finished_job(d)]
        subprocess.run(["cp", BUILD + "/detctl", d.bin + "/detctl"], check=True)
        os.chmod(d.bin, 0o755)
        for job in jobs:
            Run().write("%s/jobs/%d" % (d.state, job), 420, 1)

        def detctl(who, *words):
            uid, gid, groups = PEOPLE[who][0]
            done = subprocess.run([d.bin + "/detctl", "--socket", d.path] + list(map(str, words)), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=60, check=False,
                                  cwd="/", user=uid, group=gid, extra_groups=groups)
            assert SECRET not in done.stdout, done.stdout
            return done
        done = detctl("other", "diff", *jobs)  # evidence is read with the rights of the caller
        assert done.returncode == 1 and "job 1: " in done.stdout and "Permission denied" in done.stdout, done
        for folder in (d.state, d.state + "/jobs", *("%s/jobs/%d" % (d.state, job) for job in jobs)):
            os.chmod(folder, 0o755)
        for who in ("other", "owner"):
            done = detctl(who, "diff", *jobs)
            assert done.returncode == 0 and "equal: steps 1 .. 420" in done.stdout, (who, done)
            for job in jobs:
                assert ("job %d: run.env.PASSWORD is visible to its owner only, and is not compared" % job
                        in done.stdout) == (who == "other"), (who, done)
        done = detctl("other", "diff", "--json", *jobs)
        assert done.returncode == 0 and json.loads(done.stdout)["run"]["equal"] is True, done
        done = detctl("other", "verify", jobs[0])
        assert done.returncode == 1 and "job 1 has run.on_end, which is code: only its owner, ann" in done.stdout, done


def admins_alone():
    """read = admins: other users cannot reach the socket. If its mode is opened to them, they are refused."""
    with Node(read="admins") as d:
        job = a_finished_job(d)
        for who, (ids, admin) in PEOPLE.items():
            if admin:
                assert as_user(*ids, d.client).call("job.get", id=job)["state"] == "completed", who
                continue
            try:
                as_user(*ids, lambda: Client(d.path))
                raise AssertionError("%s came in" % who)
            except PermissionError:
                pass
        os.chmod(d.path, 0o666)
        for who in ("owner", "other"):
            c = as_user(*PEOPLE[who][0], d.client)
            assert c.read()["error"]["data"]["reason"] == "DENIED" and c.read() is None, who


def told(client, job, kind="audit"):
    return [e["text"] for e in reversed(client.call("event.query", id=job, limit=1000)["events"]) if e["kind"] == kind]


def who_asked_is_an_event():
    with Node() as d:
        job = as_user(OWNER, DETD, [], lambda: d.submit(100000))
        d.wait(job, "running")
        owner, root = as_user(*PEOPLE["owner"][0], d.client), d.client()
        owner.call("job.pause", id=job)
        d.wait(job, "paused")
        root.call("deterministic.set", id=job, tier="world")
        root.call("deterministic.set", tier="off")
        as_user(*PEOPLE["primary group"][0], d.client).call("job.cancel", id=job)
        d.wait(job, "cancelled")
        by = ["submitted by ann (uid 2001)", "pause by ann (uid 2001)", "tier world by root (uid 0)", "cancel by 2003 (uid 2003)"]
        until = time.time() + 60
        while told(root, job) != by:  # a name may take a while
            assert time.time() < until, told(root, job)
            time.sleep(0.05)
        assert denied(as_user(*PEOPLE["other"][0], d.client), "job.cancel", id=job)[0]
        assert told(root, job) == by
        node = [e["text"] for e in root.call("event.query", limit=1000)["events"] if e["kind"] == "audit" and e["job"] is None]
        assert node == ["tier off of new jobs by root (uid 0)"], node
        log = open(d.root + "/log").read()
        assert all("job %d: audit: %s" % (job, text) in log for text in by), log


SCENARIOS = [every_method_asks_who_calls, nobody_prunes_jobs_of_others, others_runs_are_compared, admins_alone, who_asked_is_an_event]


if __name__ == "__main__":
    main(SCENARIOS)
