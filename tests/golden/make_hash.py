#!/usr/bin/env python3
"""Makes tests/golden/hash.json: hashes of blocks and of tensors, from the definition in proto/hash/hash.h and
proto/hash/hash_keys.h, in Python's whole numbers.

The numbers of a tensor are a formula that tests/device/test_hash.c has too (golden_bits()); they are any 32 bits, NaNs among them.
Run from the repository root: python3 tests/golden/make_hash.py"""  # SPDX-License-Identifier: Apache-2.0
import json

M32, M64 = 2**32 - 1, 2**64 - 1
GAMMA, MULTIPLIERS = 0x9E3779B97F4A7C15, (0xD6E8FEB86659FD93, 0xBF58476D1CE4E5B9)
TENSORS = [("a", 1), ("conv0.weight", 2), ("conv0.norm.mean", 3), ("backbone.3.conv.weight", 1023), ("x", 1024), ("", 1025),
           ("head.0.bias", 4097), ("y" * 95, 9731)]


def mix(x, multiplier):
    for _ in range(2):
        x ^= x >> 32
        x = x * multiplier & M64
    return x ^ x >> 32


def word_hash(word, kappa, j, multiplier):
    return mix(word ^ (kappa + (j + 1) * GAMMA & M64), multiplier)


def name_hash(name):
    data = name.encode()
    padded = data + bytes(-len(data) % 8)
    total = sum(word_hash(int.from_bytes(padded[i:i + 8], "little"), len(data), i // 8, MULTIPLIERS[0]) for i in range(0, len(padded), 8))
    return mix(total + GAMMA & M64, MULTIPLIERS[0])


def number_bits(i, seed):
    x = (i + seed * 977) * 0x9E3779B1 & M32
    x = (x ^ x >> 15) * 0x85EBCA6B & M32
    return x ^ x >> 13


def block_hash(numbers):
    numbers = numbers + [0] * (1024 - len(numbers))
    lanes = [0, 0]
    for j in range(512):
        for lane in range(2):
            key = mix((j + lane + 1) * GAMMA & M64, MULTIPLIERS[0])
            low = numbers[2 * j] + (key & M32) & M32
            high = numbers[2 * j + 1] + (key >> 32) & M32
            lanes[lane] = lanes[lane] + low * high & M64
    return lanes


def text(lanes):
    return "%016x%016x" % tuple(lanes)


def tensor_hash(name, blocks):
    """Both lanes, of the hashes of its blocks."""
    kappa = name_hash(name)
    return [sum(word_hash(b[lane], kappa, i, MULTIPLIERS[lane]) for i, b in enumerate(blocks)) & M64 for lane in range(2)]


def tensor(name, count, seed):
    numbers = [number_bits(i, seed) for i in range(count)]
    blocks = [block_hash(numbers[i:i + 1024]) for i in range(0, count, 1024)]
    return {"name": name, "count": count, "seed": seed, "kappa": "%016x" % name_hash(name), "blocks": [text(b) for b in blocks],
            "tensor": text(tensor_hash(name, blocks))}


def main():
    with open("tests/golden/hash.json", "w", encoding="utf-8") as f:
        json.dump([tensor(name, count, seed) for seed, (name, count) in enumerate(TENSORS)], f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
