#!/usr/bin/env python3
"""bench_python.py [calls=N] - run.loss() of the module detd, with another process that reads the lines as detd-job does.
Prints `loss terms=3 median_us=...` and the same with 20 terms."""  # SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))
import detd.lines  # noqa: E402
import detd.page  # noqa: E402
import detd.run  # noqa: E402

calls = int(dict(word.split("=") for word in sys.argv[1:]).get("calls", "20000"))
near, far = socket.socketpair()
with subprocess.Popen(["cat"], stdin=far, stdout=subprocess.DEVNULL) as reader:
    far.close()
    run = detd.run.Run(detd.lines.Lines(os.dup(near.fileno())), detd.page.Page(), {})
    for terms in 3, 20:
        shares, took = {"term_%d" % i: (1234.567 + i, 32) for i in range(terms)}, []
        for step in range(1, calls + 1):
            began = time.perf_counter()
            run.loss(step, shares)
            took.append(time.perf_counter() - began)
        run.flush()
        print("loss terms=%d median_us=%.2f" % (terms, statistics.median(took) * 1e6))
    near.shutdown(socket.SHUT_RDWR)
