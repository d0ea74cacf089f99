"""Evidence as proto/evidence/evidence.h describes it, written and hashed by other code than detd's, for the tests that
compare evidence. It needs no GPU, no network and only the standard library."""  # SPDX-License-Identifier: Apache-2.0
import json
import os
import struct

MASK = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
MUL = (0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9)
RING, EVERY = 256, 100
PARTS = ("data", "loss", "gradient", "update", "state")


def mix(x, mul):
    x ^= x >> 32
    x = x * mul & MASK
    x ^= x >> 32
    x = x * mul & MASK
    return x ^ x >> 32


def hash_bytes(data, kappa):
    sums = [0, 0]
    data += bytes(-len(data) % 8)
    for j, (word,) in enumerate(struct.iter_unpack("<Q", data)):
        for lane in range(2):
            sums[lane] += mix(word ^ (kappa + (j + 1) * GAMMA & MASK), MUL[lane])
    return tuple(s & MASK for s in sums)


def hash_name(name):
    data = name.encode()
    return mix(hash_bytes(data, len(data))[0] + GAMMA & MASK, MUL[0])


def fold(x, y):
    y = y if isinstance(y, tuple) else (y & MASK, y & MASK)
    return tuple(mix(x[lane] * GAMMA + y[lane] & MASK, MUL[lane]) for lane in range(2))


def some(*what):
    """Returns a hash that stands for these words."""
    return hash_bytes(repr(what).encode(), 1)


def pack(hashes):
    return b"".join(struct.pack("<QQ", *h) for h in hashes)


class Run:
    """The files that a run leaves. A test may replace detail(step) and rate(step) to change them."""

    def __init__(self, shards=4, tensors=(("conv.weight", 432, True), ("bn.running_mean", 16, False), ("head.bias", 16, True)),
                 level="tensors", spec="the same keys", data="the same data", ranks=1, tier=1, attempt=1):
        self.shards, self.tensors, self.level, self.ranks, self.tier, self.attempt = shards, tensors, level, ranks, tier, attempt
        self.spec, self.data = some(spec), some(data)

    def start(self):
        c = fold(fold(fold((0, 0), 1), self.spec), self.data)
        c = fold(fold(fold(c, self.level == "tensors"), self.shards), len(self.tensors))
        for name, count, trains in self.tensors:
            c = fold(fold(fold(c, hash_name(name)), count), trains)
        return c

    def rate(self, step):
        return 0.5

    def detail(self, step):
        """Returns the hashes of each part: by shard, by tensor, of three states."""
        tensors = [name for name, _, _ in self.tensors]
        return {"data": [some(step, "data", v) for v in range(self.shards)], "loss": [some(step, "loss", v) for v in range(self.shards)],
                "gradient": [some(step, "gradient", t) for t in tensors], "update": [some(step, "weight", t) for t in tensors],
                "state": [some(step, "state", i) for i in range(3)]}

    def record(self, step, detail, chain):
        """Returns the bytes without their check, and the chain after them."""
        parts = [(0, 0)] * 5
        for i, part in enumerate(PARTS):
            if self.level == "tensors" or part not in ("gradient", "update"):
                for h in detail[part]:
                    parts[i] = fold(parts[i], h)
        lr, loss = struct.pack("<f", self.rate(step)), struct.pack("<f", 10.0 / step)
        chain = fold(fold(chain, step), 0)
        chain = fold(chain, struct.unpack("<I", lr)[0] << 32 | struct.unpack("<I", loss)[0])
        for h in parts:
            chain = fold(chain, h)
        return struct.pack("<qIHBB", step, self.attempt, self.ranks, self.tier, 0) + lr + loss + pack(parts) + pack([chain]), chain

    def write(self, folder, last, first=1):
        """Writes steps first .. last into a folder, which is made."""
        start = self.start()
        chain, size = start, 16 + 16 * (2 * self.shards + 3 + 2 * len(self.tensors))

        def check(data, step):
            return data + struct.pack("<Q", fold(hash_bytes(data, start[0]), step)[0])

        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "evidence.json"), "w", encoding="utf-8") as f:
            json.dump(
                {
                    "format": 1, "level": self.level, "spec": "%016x%016x" % self.spec, "data": "%016x%016x" % self.data,
                    "shards": self.shards, "tensors": [list(t) for t in self.tensors]
                }, f)
        with open(os.path.join(folder, "evidence.log"), "wb") as log, open(os.path.join(folder, "evidence.ring"), "wb") as ring, \
                open(os.path.join(folder, "evidence.tensors"), "wb") as kept:
            for step in range(first, last + 1):
                detail = self.detail(step)
                record, chain = self.record(step, detail, chain)
                log.seek((step - 1) * 128)
                log.write(check(record, step))
                if self.level != "tensors":
                    continue
                bytes_ = check(
                    struct.pack("<q", step) + b"".join(pack(detail[p]) for p in ("data", "loss", "state", "gradient", "update")), step)
                assert len(bytes_) == size
                ring.seek(step % RING * size)
                ring.write(bytes_)
                if step % EVERY == 0:
                    kept.seek((step // EVERY - 1) * size)
                    kept.write(bytes_)
        return folder


class Parting(Run):
    """A run that differs from step `at` on: in one hash of `part` (which: its index), and in everything after it."""

    def __init__(self, at, part, which=0, **more):
        super().__init__(**more)
        self.at, self.part, self.which = at, part, which

    def rate(self, step):
        return 0.25 if self.part == "rate" and step >= self.at else 0.5

    def detail(self, step):
        detail = super().detail(step)
        order = ("data", "loss", "gradient", "rate", "update", "state")
        for part in PARTS:
            if step > self.at or (step == self.at and order.index(part) > order.index(self.part)):
                detail[part] = [fold(h, 1) for h in detail[part]]
            elif step == self.at and part == self.part:
                detail[part][self.which] = fold(detail[part][self.which], 1)
        return detail
