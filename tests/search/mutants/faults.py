"""A planted fault: lines of a file, ' ' as they are, '-' to be replaced by '+'. Lines are compared without their
indentation."""  # SPDX-License-Identifier: Apache-2.0
import os

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


class Fault:
    def __init__(self, number, path, what):
        self.number, self.path, self.what, self.lines = number, path, what, []

    def old(self):
        return [text for mark, text in self.lines if mark != "+"]

    def new(self):
        return [text for mark, text in self.lines if mark != "-"]

    def place(self, source):
        """Returns the index of the fault's first line among the lines of its file. Raises ValueError unless its text
        stands there exactly once."""
        old, have = [line.strip() for line in self.old()], [line.strip() for line in source]
        found = [i for i in range(len(have) - len(old) + 1) if have[i:i + len(old)] == old]
        if len(found) != 1:
            raise ValueError("fault %d: %s has its text %s" % (self.number, self.path, "%d times" % len(found) if found else "no more"))
        return found[0]

    def line(self, root=ROOT):
        """Returns the number of the first line that changes."""
        first = next(i for i, (mark, _) in enumerate(self.lines) if mark != " ")
        return self.place(read(root, self.path)) + first + 1

    def put_in(self, root):
        source = read(root, self.path)
        at = self.place(source)
        source[at:at + len(self.old())] = self.new()
        with open(os.path.join(root, self.path), "w", encoding="utf-8") as f:
            f.write("\n".join(source) + "\n")

    def text(self):
        return "".join("%s%s\n" % line for line in self.lines)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read().splitlines()
