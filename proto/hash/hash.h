/* SPDX-License-Identifier: Apache-2.0 */ /* proto/hash/hash.h - evidence: 128-bit hashes of tensors and of steps, so
 * that two runs can be compared number by number. Not cryptographic. Source: specs determinism sections 9.2 and 9.3,
 * with one change: a tensor is hashed in two stages:
 *
 *   block    1024 neighbouring fp32 elements, by hash_keys.h. It is cheap enough for the numbers that a step touches
 *            anyway: gradients when they are summed and weights when they are updated
 *   tensor   lane l = sum over its blocks b of hash_word(block b's lane l, kappa, b, HASH_MUL_l), mod 2^64; hash_mix.h.
 *            The numbers of blocks go in, so a moved block changes the hash. The order of the sum does not matter:
 *            every distribution of blocks over devices, threads and ranks gives the same hash
 *
 * Devices do both: worker/ops/reduce.h, worker/ops/optim.h. Raw bits count: -0 is not 0, and NaNs differ by their
 * payload. Names, samples and losses are no tensors: hash_bytes() hashes them, word by word. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t lane[2];
};

/* kappa of a tensor: 64 bits of its name. */
uint64_t hash_name(const char *name);
/* Adds `bytes` bytes to the two lanes' sums: little-endian words, the last one zero-padded, counted from
 * first_word. Only the last piece of a tensor may have a length that is not a multiple of 8. */
void hash_add(uint64_t out[2], const void *data, size_t bytes, uint64_t kappa, uint64_t first_word);
/* Hash of one whole buffer. */
struct hash128 hash_bytes(const void *data, size_t bytes, uint64_t kappa);
/* Hash of a buffer that is hashed in every step, in the way of a tensor: faster than hash_bytes(), with another result.
 * The length goes in. */
struct hash128 hash_data(const void *data, size_t bytes);
/* fold(x, y): x, then y. Not commutative: the order of folds is part of the record. A chain starts from the identity's
 * hash. */
struct hash128 hash_fold(struct hash128 x, struct hash128 y);
struct hash128 hash_fold_u64(struct hash128 x, uint64_t y);
/* 32 hexadecimal digits (lane 0 first) and a terminating zero; and back: 0, or -1 when text is anything else. */
void hash_hex(struct hash128 h, char ret[33]);
int hash_parse(const char *text, struct hash128 *ret_hash);
