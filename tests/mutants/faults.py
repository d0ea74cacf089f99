#!/usr/bin/env python3
"""The lists of faults (drawn.txt, hand.txt). Run as a program: does the text of each still stand in its file exactly once?

    17 worker/train/step.c: the learning rate of the step before
         float scale = 1;
    -    float lr = schedule_lr(s, t->step + 1);
    +    float lr = schedule_lr(s, t->step);
    why: of a fault that may survive: the reason

A number, a file, what is wrong; then lines of the file: ' ' as they are, '-' to be replaced by '+'. Lines are compared without their indentation. The number
stays with a fault for good; 1 to 100 are drawn by draw.py, the others are written by hand.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LISTS = ("drawn.txt", "hand.txt")
HEAD = re.compile(r"(\d+) (\S+): (.+)")


class Fault:
    def __init__(self, number, path, what):
        self.number, self.path, self.what, self.why, self.lines = number, path, what, "", []

    def old(self):
        return [text for mark, text in self.lines if mark != "+"]

    def new(self):
        return [text for mark, text in self.lines if mark != "-"]

    def place(self, source):
        """The index of the first of its lines in the lines of its file. ValueError: there are none, or several."""
        old, have = [line.strip() for line in self.old()], [line.strip() for line in source]
        found = [i for i in range(len(have) - len(old) + 1) if have[i:i + len(old)] == old]
        if len(found) != 1:
            raise ValueError("fault %d: %s has its text %s" % (self.number, self.path, "%d times" % len(found) if found else "no more"))
        return found[0]

    def line(self, root=ROOT):
        """The number of the first line that changes."""
        first = next(i for i, (mark, _) in enumerate(self.lines) if mark != " ")
        return self.place(read(root, self.path)) + first + 1

    def put_in(self, root):
        source = read(root, self.path)
        at = self.place(source)
        source[at:at + len(self.old())] = self.new()
        with open(os.path.join(root, self.path), "w", encoding="utf-8") as f:
            f.write("\n".join(source) + "\n")

    def text(self):
        body = "".join("%s%s\n" % line for line in self.lines)
        return "%d %s: %s\n%s%s" % (self.number, self.path, self.what, body, "why: %s\n" % self.why if self.why else "")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read().splitlines()


def load(name):
    faults = []
    for i, line in enumerate(read(HERE, name), 1):
        head = HEAD.fullmatch(line)
        if not line or line.startswith("#"):
            continue
        if head:
            faults.append(Fault(int(head[1]), head[2], head[3]))
        elif faults and line[0] in " -+":
            faults[-1].lines.append((line[0], line[1:]))
        elif faults and line.startswith("why: "):
            faults[-1].why = line[5:]
        else:
            raise ValueError("%s:%d: neither a fault nor a line of one" % (name, i))
    return faults


def load_all():
    return [fault for name in LISTS for fault in load(name)]


def save(name, faults):
    """Comments at the head of the list stay."""
    path, head = os.path.join(HERE, name), []
    if os.path.exists(path):
        for line in read(HERE, name):
            if not line.startswith("#"):
                break
            head.append(line + "\n")
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(head) + "".join("\n" + fault.text() for fault in faults))


def problems(faults):
    bad, numbers, texts = [], set(), set()
    for fault in faults:
        if fault.number in numbers:
            bad.append("fault %d: the number is used twice" % fault.number)
        if fault.text().split("\n", 1)[1] in texts or fault.old() == fault.new():
            bad.append("fault %d: the same as another, or no fault" % fault.number)
        numbers.add(fault.number)
        texts.add(fault.text().split("\n", 1)[1])
        try:
            fault.place(read(ROOT, fault.path))
        except (OSError, ValueError) as e:
            bad.append(str(e))
    return bad


if __name__ == "__main__":
    listed = load_all()
    found = problems(listed)
    print("\n".join(found) or "%d faults, each with one place" % len(listed))
    if found:
        print("drawn ones: tests/mutants/draw.py --replace; those by hand: tests/mutants/hand.txt")
    sys.exit(1 if found or not listed else 0)
