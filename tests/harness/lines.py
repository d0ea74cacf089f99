#!/usr/bin/env python3
"""lines.py [COMMIT] - lines of each folder, as they are checked out or were in a commit: product (C, CUDA, SQL, Python,
page, units; no rules of make), tests (their code), and data (lists and text files that tests read). Generated files
and documents do not count."""  # SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

CODE = (".c", ".h", ".cu", ".cpp", ".py", ".sh", ".map")
PRODUCT = CODE + (".sql", ".js", ".css", ".html", ".service", ".socket", ".sysusers", ".tmpfiles", ".conf")
GENERATED = ("schema/job.schema.json", "cuda/engines.txt")


def git(*args):
    return subprocess.run(["git", *args], stdout=subprocess.PIPE, check=True).stdout


def text_of(commit, path):
    if commit:
        return git("show", "%s:%s" % (commit, path))
    with open(path, "rb") as f:
        return f.read()


def kind_of(path):
    """Returns product, tests or data, or None if the file does not count."""
    end = os.path.splitext(path)[1]
    if path in GENERATED or "/" not in path or end == ".md" or path.startswith(("docs/", ".ci/")):
        return None
    if path.startswith("tests/"):
        return "tests" if end in CODE + (".mk",) else "data"
    return "product" if end in PRODUCT else None


def main():
    commit = sys.argv[1] if sys.argv[1:] else None
    names = git("ls-tree", "-r", "--name-only", commit).decode() if commit else git("ls-files").decode()
    rows = {}
    for path in names.splitlines():
        kind = kind_of(path)
        if not kind or os.path.islink(path):
            continue
        text = text_of(commit, path)
        if b"\0" in text:
            continue
        parts = path.split("/")
        row = rows.setdefault("/".join(parts[:2]) if parts[0] in ("tests", "worker") and len(parts) > 2 else parts[0],
                              dict(product=0, tests=0, data=0))
        row[kind] += text.count(b"\n")
    print("%-20s %8s %8s %8s" % ("", "product", "tests", "data"))
    for folder in sorted(rows):
        print("%-20s %8d %8d %8d" % (folder, *rows[folder].values()))
    print("%-20s %8d %8d %8d" % ("all", *(sum(row[k] for row in rows.values()) for k in ("product", "tests", "data"))))


main()
