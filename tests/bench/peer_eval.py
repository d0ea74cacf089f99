#!/usr/bin/env python3
"""Peer of bench_eval.c: pycocotools over the files it wrote, from annotations and results in memory to scores; reading
files and printing are not counted.

usage: peer_eval.py FOLDER boxes|masks
"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import sys
import time

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval


def main():
    folder, kind = sys.argv[1:]
    with contextlib.redirect_stdout(io.StringIO()):
        truths = COCO(folder + "/gt.json")
        found = truths.loadRes("%s/%s.json" % (folder, kind))
        evaluation = COCOeval(truths, found, {"boxes": "bbox", "masks": "segm"}[kind])
        start = time.monotonic()
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        seconds = time.monotonic() - start
    print("peer kind=%s seconds=%.4f ap=%.9f" % (kind, seconds, evaluation.stats[0]))


main()
