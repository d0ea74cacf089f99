#!/usr/bin/env python3
"""Exchanges of an older detctl with the detd of its time, asked again of the detd of now: each request is still understood, and each reply has the
members, with their types, that the older one had; it may have more, which clients ignore.

usage: older_client.py             replays each detctl-VERSION.jsonl
       older_client.py --record    writes that of the version that is built: once, when the next protocol is begun"""  # SPDX-License-Identifier: Apache-2.0
import glob
import json
import os
import re
import socket
import subprocess
import sys
import threading

from daemon import BUILD, HERE, Client, Daemon

# What detctl is asked in a record, and what is waited for in between.
SESSION = ["submit short.json", ("wait", 1, "completed"), "ls --json", "ls", "show 1", "show 1 --json", "why 1", "watch 1", "loss 1", "loss 1 --split val --csv",
           "loss 1 --plot", "eval 1", "eval 1 --metric AP50", "events 1", "events", "logs 1", "gpus", "info", "deterministic", "deterministic --job 1",
           "submit long.json", ("wait", 2, "running"), "ls", "checkpoint 2", "deterministic on --tier world --job 2", "pause 2", ("wait", 2, "paused"), "why 2",
           "resume 2", ("wait", 2, "running"), "cancel 2", ("wait", 2, "cancelled"), "show 2", "cancel 2", "show 77"]


def spec(steps):
    data = {"annotations": "shapes/train.json", "images": "shapes/images"}
    return {"name": "old", "model": {"preset": "yolov3_tiny"}, "data": {"train": data}, "train": {"steps": steps, "batch": 8, "shards": 2, "log_every": 1},
            "checkpoint": {"every": 10}, "run": {"device": "cpu", "ranks": 1, "env": {"STEP_S": "0.01"}}}


def kinds(value):
    """The types of a reply; of lists, that of the first element."""
    if isinstance(value, dict):
        return {name: kinds(v) for name, v in value.items()}
    if isinstance(value, list):
        return [kinds(v) for v in value[:1]]
    if value is None or isinstance(value, bool):
        return None if value is None else "bool"
    return "number" if isinstance(value, (int, float)) else "string"


def missing(where, old, new):
    """Names what the older client looked at and does not find. null was, and is, in the place of anything."""
    if old is None or new is None:
        return []
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for name in old:
            found += missing("%s.%s" % (where, name), old[name], new[name]) if name in new else ["%s.%s is missing" % (where, name)]
        return found
    if isinstance(old, list) and isinstance(new, list):
        return missing(where + "[0]", old[0], new[0]) if old and new else []
    return [] if old == new else ["%s was %s, and is %s" % (where, old, new)]


def await_state(d, job, state):
    """One that runs has told a loss, too."""
    d.wait(job, state)
    if state == "running":
        Daemon.until(lambda: d.call("job.get", id=job)["losses"].get("train"), "no loss")


# ---- recording ----

class Between:
    """A socket between detctl and detd that keeps what goes to and fro."""

    def __init__(self, d, kept):
        self.d, self.kept, self.path = d, kept, d.root + "/between"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            self.carry(self.listener.accept()[0])

    def carry(self, client):
        there = Client(self.d.path)
        for line in client.makefile("rb"):
            request = json.loads(line)
            there.sock.sendall(line)
            reply = there.read()
            client.sendall((json.dumps(reply) + "\n").encode())
            self.kept.append({"request": request, "reply": kinds(reply)})


def record():
    kept = []
    with Daemon() as d:
        for name, steps in (("short", 30), ("long", 1000000)):
            with open(d.root + "/%s.json" % name, "w", encoding="utf-8") as f:
                json.dump(spec(steps), f)
        subprocess.run([sys.executable, HERE + "/../demo/make_shapes.py", d.root + "/shapes", "--train", "8", "--val", "2", "--size", "96"], check=True)
        between = Between(d, kept)
        for what in SESSION:
            if isinstance(what, tuple):
                await_state(d, what[1], what[2])
                kept.append({"wait": what[1:]})
            else:
                subprocess.run([BUILD + "/detctl", "--socket", between.path] + what.split(), cwd=d.root, timeout=60, check=False)
        version = d.call("daemon.info")["version"]
    with open("%s/detctl-%s.jsonl" % (HERE, version), "w", encoding="utf-8") as f:
        for line in kept:
            f.write(json.dumps(line).replace(d.root, "/data") + "\n")
    print(len(kept), "lines")


# ---- replaying ----

def replay(path):
    found, asked = [], 0
    with Daemon() as d, open(path, encoding="utf-8") as lines:
        client = d.client()
        for number, line in enumerate(lines, 1):
            said = json.loads(line)
            if "wait" in said:
                await_state(d, *said["wait"])
                continue
            reply = client.raw((json.dumps(said["request"]) + "\n").encode())
            asked += 1
            found += missing("%s:%d: %s" % (os.path.basename(path), number, said["request"]["method"]), said["reply"], kinds(reply))
    print("%d requests of detctl %s" % (asked, re.search(r"detctl-(.*)\.jsonl", path)[1]))
    assert asked > 20 and not found, found


if sys.argv[1:] == ["--record"]:
    record()
else:
    records = sorted(glob.glob(HERE + "/detctl-*.jsonl"))
    assert records, "no records"
    for known in records:
        replay(known)
