#!/usr/bin/env python3
"""Replays the control-socket examples of proto/PROTOCOL.md against a real detd: each reply must have the members of the
example and their types, and no others.
usage: protocol_examples.py [--update] BUILD_FOLDER
--update puts detd's replies into the document (numbers and names of this machine are made plain by
hand)."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOC = os.path.join(ROOT, "proto", "PROTOCOL.md")
DATA = os.path.normpath(os.path.join(ROOT, "..", "shared", "data", "bccd"))
# Objects with members that depend on the job: only their type is compared.
OPEN = {"spec", "losses"}


class Client:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def ask(self, line):
        """Sends one line, returns the reply with the same id; notifications in between are passed over."""
        self.sock.sendall(line.encode() + b"\n")
        while True:
            got = self.file.readline()
            if not got:
                raise SystemExit("detd closed the connection after: " + line)
            reply = json.loads(got)
            if "id" in reply:
                return reply


def kind(value):
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def compare(where, want, got, problems):
    """Same members, same types; null goes with everything; lists are compared by their first elements."""
    if want is None or got is None:
        return
    if kind(want) != kind(got):
        problems.append(f"{where}: the example has {kind(want)}, detd {kind(got)} ({json.dumps(got)[:80]})")
    elif isinstance(want, dict):
        if where.rsplit(".", 1)[-1] in OPEN:
            return
        for name in want.keys() - got.keys():
            problems.append(f"{where}.{name}: in the example only")
        for name in got.keys() - want.keys():
            problems.append(f"{where}.{name}: in the reply only")
        for name in want.keys() & got.keys():
            compare(f"{where}.{name}", want[name], got[name], problems)
    elif isinstance(want, list) and want and got:
        compare(where + "[0]", want[0], got[0], problems)
    elif where.endswith((".code", ".reason", ".field", ".tier")) and ".error" in where and want != got:
        problems.append(f"{where}: the example has {want!r}, detd {got!r}")


def start(build, folder):
    path = os.path.join(folder, "s")
    log = open(os.path.join(folder, "log"), "wb")
    daemon = subprocess.Popen([os.path.join(build, "detd"), "--state", os.path.join(folder, "state"), "--socket", path],
                              stdout=log, stderr=log)
    until = time.time() + 60
    while daemon.poll() is None and time.time() < until:
        try:
            return daemon, Client(path)
        except OSError:  # the socket is not there, or detd does not listen yet
            time.sleep(0.05)
    sys.stderr.write(open(log.name).read())
    raise SystemExit("detd did not start")


def wait(client, job, deadline_s=120):
    end = time.time() + deadline_s
    while time.time() < end:
        state = client.ask(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "job.get", "params": {"id": job}}))["result"]["state"]
        if state in ("completed", "failed", "cancelled"):
            return
        time.sleep(0.1)
    raise SystemExit(f"job {job} did not end within {deadline_s} s")


def replay(client, lines):
    """Yields (line number, request, example, reply)."""
    request = None
    for number, line in enumerate(lines):
        if line.startswith("→ "):
            request = line[2:].strip()
        elif line.startswith("← "):
            reply = client.ask(request.replace("/data/bccd", DATA))
            yield number, request, json.loads(line[2:]), reply
        elif line.startswith("<!-- wait "):
            wait(client, int(line.split()[2]))


def main():
    if not os.path.isdir(DATA):
        print(f"skip: no {DATA}")
        return 77
    folder = tempfile.mkdtemp(prefix="detd-doc-")
    lines = open(DOC, encoding="utf-8").read().split("\n")
    problems, count = [], 0
    daemon, client = start(os.path.abspath(os.environ.get("DETD_BUILD", "build")), folder)
    try:
        for number, request, want, got in replay(client, lines):
            where = f"PROTOCOL.md:{number + 1}: {json.loads(request)['method']}"
            compare(where, want, got, problems)
            count += 1
            if "--update" in sys.argv:
                text = json.dumps(got, ensure_ascii=False, separators=(",", ":"))
                lines[number] = "← " + text.replace(DATA, "/data/bccd").replace(folder + "/state", "/var/lib/detd")
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        if problems:
            sys.stderr.write(open(os.path.join(folder, "log")).read()[-4000:])
        shutil.rmtree(folder, ignore_errors=True)
    if "--update" in sys.argv:
        open(DOC, "w", encoding="utf-8").write("\n".join(lines))
    for problem in problems:
        print(problem)
    print(f"{count} examples, {len(problems)} differences")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
