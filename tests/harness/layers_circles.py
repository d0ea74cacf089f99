#!/usr/bin/env python3
"""No two files of ours include each other, directly or over others: prints each circle and fails."""  # SPDX-License-Identifier: Apache-2.0
import glob
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def includes():
    found = {}
    for folder in ("proto", "daemon", "supervisor", "client", "worker", "cuda"):
        for path in glob.glob(folder + "/**/*.[ch]*", root_dir=ROOT, recursive=True):
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                found[path] = INCLUDE.findall(f.read())
    return found


def circles(files):
    done, on_way, found = set(), [], []

    def walk(path):
        if path in on_way:
            found.append(on_way[on_way.index(path):] + [path])
        elif path not in done:
            on_way.append(path)
            for other in files.get(path, ()):
                walk(other)
            done.add(on_way.pop())

    for path in sorted(files):
        walk(path)
    return found


FOUND = circles(includes())
for circle in FOUND:
    print("a circle of includes: " + " -> ".join(circle), file=sys.stderr)
sys.exit(bool(FOUND))
