#!/usr/bin/env python3
"""doc_links.py - each path and each link in README.md, docs/ and CONTRIBUTING.md leads to a file, and each anchor to a heading.

A path is a word between backticks that begins with a top folder of the tree."""  # SPDX-License-Identifier: Apache-2.0
import glob
import os
import re
import sys

os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/../..")
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/GPU.md"] + sorted(glob.glob("docs/**/*.md", recursive=True))
TOPS = "client|cuda|daemon|docs|launch|mk|proto|schema|supervisor|systemd|tests|worker"
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


def main():
    wrong = ["%s: %s" % (page, fault) for page in PAGES for fault in sorted(faults(page))]
    print("\n".join(wrong + ["%d pages, %d faults" % (len(PAGES), len(wrong))]))
    return 1 if wrong or len(PAGES) < 5 else 0


sys.exit(main())
