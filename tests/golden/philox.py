"""Philox 4x32-10 for the golden generators of this folder (specs determinism 3): philox(key, counter) is a block of
four words."""  # SPDX-License-Identifier: Apache-2.0


def philox(key, counter):
    key, counter = list(key), list(counter)
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter
