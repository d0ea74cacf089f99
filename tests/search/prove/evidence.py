"""The results of a run: its evidence, read without the project's own reader (proto/evidence/evidence.h has the form),
and the tensors of its last checkpoint."""  # SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "golden"))
import make_hash  # noqa: E402

RECORD, RING, EVERY = 128, 256, 100
PARTS = ("data", "loss", "gradient", "weight", "state")
STATES = ("window", "validation", "skips")
RESULT = slice(15, 104)  # of a record: all except step, attempt, ranks, tier and the chain


def load(folder):
    """Returns {step: record}, or None without evidence; and the head."""
    try:
        with open(folder + "/evidence.json", encoding="utf-8") as f:
            head = json.load(f)
        with open(folder + "/evidence.log", "rb") as f:
            log = f.read()
    except FileNotFoundError:
        return None, None
    records = {}
    for i in range(len(log) // RECORD):
        record = log[i * RECORD:(i + 1) * RECORD]
        if struct.unpack_from("<Q", record)[0] == i + 1:
            records[i + 1] = record
    return records, head


def detail(folder, head, step):
    """Returns {(part, name): hash} of a step in the ring, or {} if the step is not there."""
    shards, names = head["shards"], [t[0] for t in head["tensors"]]
    keys = [("data", "shard %d" % s) for s in range(shards)] + [("loss", "shard %d" % s) for s in range(shards)]
    keys += [("state", s) for s in STATES] + [("gradient", n) for n in names] + [("weight", n) for n in names]
    size = 8 + 16 * len(keys) + 8
    with open(folder + "/evidence.ring", "rb") as f:
        f.seek(step % RING * size)
        found = f.read(size)
    if len(found) < size or struct.unpack_from("<Q", found)[0] != step:
        return {}
    return {key: found[8 + 16 * i:24 + 16 * i] for i, key in enumerate(keys)}


def no_gradients(head):
    """{name: the hashes of a gradient that is nothing} of tensors that train: of zeros, and of a step that was skipped"""
    zeros = make_hash.block_hash([])
    return {name: (bytes(16), struct.pack("<QQ", *make_hash.tensor_hash(name, [zeros] * -(-count // 1024))))
            for name, count, trains in head["tensors"] if trains}


def tensors(path):
    """{name: hash of its shape and bytes} of a safetensors file"""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    return {name: hashlib.sha256(repr((a["dtype"], a["shape"])).encode() + data[slice(*a["data_offsets"])]).hexdigest()
            for name, a in header.items() if name != "__metadata__"}


def last_checkpoint(folder, step):
    """Returns tensors without the chain: it begins with a hash of keys, and some keys change no result."""
    found = {}
    for file in ("model", "state"):
        path = "%s/checkpoints/step-%d/%s.safetensors" % (folder, step, file)
        found.update(("%s %s" % (file, name), h) for name, h in tensors(path).items() if name != "evidence.chain")
    return found


def differing(a, b):
    """Compares two rows: "box is [406.5, 24], not [406.4, 24]" for the first number that differs."""
    if a is None or b is None:
        return "no such row" if b is None else "a row that should not be there"
    a, b = json.loads(a), json.loads(b)
    numbers, others = a.get("terms") or a.get("metrics") or a, b.get("terms") or b.get("metrics") or b
    return next(("%s is %s, not %s" % (k, others.get(k), numbers[k]) for k in sorted(numbers) if numbers[k] != others.get(k)), "its shape")


class Left:
    """The compared results of a run. rows: as micro.train() gives them."""

    def __init__(self, folder, steps, rows):
        self.folder, self.steps, self.rows = folder, steps, rows
        self.records, self.head = load(folder)
        self.tensors = last_checkpoint(folder, steps)

    def idle(self, unused=()):
        """Returns None, or the part of the model that did nothing: a term of the loss that is 0, a trained tensor
        without a gradient in some step. Comparing such a part would show nothing. unused: tensors that need no
        gradient."""
        for name, row in self.rows.items():
            row = json.loads(row)
            flat = [term for term, (num, _) in row.get("terms", {}).items()
                    if not num > 0 and not term.startswith("recall")]  # a measure, no loss
            if flat:
                return "%s: the loss %s is nothing" % (name, flat[0])
        if self.records is None:
            return None
        none = no_gradients(self.head)
        for step in range(1, self.steps + 1):
            have = detail(self.folder, self.head, step)
            flat = [name for name, hashes in none.items() if name not in unused and have.get(("gradient", name), hashes[0]) in hashes]
            if flat:
                return "step %d: %s has no gradient (%d of %d tensors)" % (step, flat[0], len(flat), len(none))
        return None

    def difference(self, other):
        """Returns None, or the first difference of the other run: "step 3: gradient of conv_1.weight (7 of 46)"."""
        if self.records is not None:
            said = self.records_part(other)
            if said:
                return said
        for name in sorted(self.rows.keys() | other.rows.keys(), key=lambda n: (int(n.split()[2]), n)):
            if self.rows.get(name) != other.rows.get(name):
                return "%s: %s" % (name, differing(self.rows.get(name), other.rows.get(name)))
        wrong = sorted(n for n in self.tensors.keys() | other.tensors.keys() if self.tensors.get(n) != other.tensors.get(n))
        return "step %d: %s (%d of %d tensors of the checkpoint)" % (self.steps, wrong[0], len(wrong), len(self.tensors)) if wrong else None

    def broken_off(self, folder):
        """Returns the first difference of a run that did not come to its end, or "" if its records are the same."""
        other = Left.__new__(Left)
        other.folder, (other.records, other.head) = folder, load(folder)
        said = self.records_part(other) if self.records and other.records else None
        return "" if said is None or said.endswith("no record") else said

    def records_part(self, other):
        for step in range(1, self.steps + 1):
            a, b = self.records.get(step), (other.records or {}).get(step)
            if a is None or b is None:
                return "step %d: no record%s" % (step, "" if b is None else " in the reference")
            if a[RESULT] != b[RESULT]:
                return "step %d: %s" % (step, self.part(other, step, a, b))
            if self.head == other.head and a[104:120] != b[104:120]:
                return "step %d: the chain, though no record before differs" % step
        return None

    def part(self, other, step, a, b):
        parts = [p for i, p in enumerate(PARTS) if a[24 + 16 * i:40 + 16 * i] != b[24 + 16 * i:40 + 16 * i]]
        if not parts:
            return "learning rate, loss or whether it was skipped"
        mine, theirs = detail(self.folder, self.head, step), detail(other.folder, other.head, step)
        wrong = [name for (part, name), h in mine.items() if part == parts[0] and theirs.get((part, name)) != h]
        if parts[0] == "gradient":
            wrong.reverse()  # the last layer's comes first
        return "%s of %s (%d of %d)" % (parts[0], wrong[0], len(wrong), sum(p == parts[0] for p, _ in mine)) if wrong else parts[0]


def exists(folder):
    return os.path.exists(folder + "/evidence.log")
