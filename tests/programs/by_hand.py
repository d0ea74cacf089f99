"""Runs a program as one process without detd, with a module `detd` that only adds up what it is given. Prints its rows as
JSON: [[split, step, term, numerator, denominator], ...]

usage: by_hand.py PROGRAM"""  # SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
import runpy
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
import detd  # noqa: E402

rows = []


class Adder:
    """Takes the place of detd.Run."""
    active, resume, step, rank, ranks = False, None, 0, 0, 1

    def loss(self, step, terms=None, epoch=None, images=None, **more):
        rows.extend(["train", step, name, float(n), float(d)] for name, (n, d) in {**(terms or {}), **more}.items())

    def validation(self, step):
        return Validation(step)

    def wants(self, step, word):
        return False

    def metrics(self, step, numbers):
        pass

    def finish(self):
        pass


class Validation:
    def __init__(self, step):
        self.step, self.sums = step, {}

    def add(self, terms=None, **more):
        for name, (n, d) in {**(terms or {}), **more}.items():
            a, b = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = a + float(n), b + float(d)

    def report(self):
        rows.extend(["val", self.step, name, n, d] for name, (n, d) in self.sums.items())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.report()


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
detd.init = lambda one=Adder(): one
with contextlib.redirect_stdout(sys.stderr):
    runpy.run_path(sys.argv[1], run_name="__main__")
print(json.dumps(rows))
