#!/usr/bin/env python3
"""doc_links.py - each path and each link in README.md, docs/ and CONTRIBUTING.md leads to a file, and each anchor to a heading.

A path is a word between backticks that begins with a top folder of the tree. docs/internals/README.md names each folder
of the product and each file of supervisor/ and launch/. A row of its tables with the name of a function, `f()`, has the
path of a file that contains f(."""  # SPDX-License-Identifier: Apache-2.0
import glob
import os
import re
import sys

os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/../..")
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tests/GPU.md"] + sorted(glob.glob("docs/**/*.md", recursive=True))
TOPS = "client|cuda|daemon|docs|launch|mk|proto|python|schema|supervisor|systemd|tests|worker"
INTERNALS = "docs/internals/README.md"
PRODUCT = ("client", "cuda", "daemon", "launch", "proto", "supervisor", "worker")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def anchors(page):
    """The names of a page's headings, as a forge makes them."""
    with open(page, encoding="utf-8") as f:
        heads = re.findall(r"^#+ (.*)$", FENCE.sub("", f.read()), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def faults(page):
    with open(page, encoding="utf-8") as f:
        text = FENCE.sub("", f.read())
    for path in set(re.findall(r"`((?:%s)/[A-Za-z0-9_./-]*)`" % TOPS, text)):
        if not os.path.exists(path):
            yield "`%s` is not there" % path
    for target, anchor in set(re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text)):
        to = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
        if re.match("[a-z]+:", target):
            continue
        if not os.path.exists(to):
            yield "link to %s, which is not there" % target
        elif anchor and anchor not in anchors(to):
            yield "link to %s#%s: no such heading" % (target, anchor)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def internals_faults():
    text = read(INTERNALS)
    sources = glob.glob("[a-z]*/**/*.[ch]", recursive=True)
    for folder in {os.path.dirname(path) for path in sources if path.split("/")[0] in PRODUCT}:
        if "`%s/`" % folder not in text:
            yield "folder %s/ is not named" % folder
    for path in sources:
        if os.path.dirname(path) in ("supervisor", "launch") and path.endswith(".c") and "`%s`" % os.path.basename(path) not in text:
            yield "%s is not named" % path
    for row in re.findall(r"^\|.*\|$", text, re.M):
        files = [path for path in re.findall(r"`([a-z]+/[a-z0-9_./]+)`", row) if os.path.isfile(path)]
        for name in re.findall(r"`(\w+)\(\)`", row):
            if files and not any(re.search(r"\b%s\(" % name, read(path)) for path in files):
                yield "%s() is not in %s" % (name, " or ".join(files))


def main():
    wrong = ["%s: %s" % (page, fault) for page in PAGES for fault in sorted(faults(page))]
    wrong += ["%s: %s" % (INTERNALS, fault) for fault in sorted(internals_faults())]
    print("\n".join(wrong + ["%d pages, %d faults" % (len(PAGES), len(wrong))]))
    return 1 if wrong or len(PAGES) < 5 else 0


sys.exit(main())
