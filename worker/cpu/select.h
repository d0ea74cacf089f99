/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/select.h - the smallest of many keys (kernels/select.h), by
 * radix: work grows only with the number of keys. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Moves the k smallest of n different keys to the front, unordered. Returns their number: k, or n if there are
 * fewer. */
size_t select_smallest(uint64_t *key, size_t n, size_t k);
/* Sorts n keys, ascending. tmp: room for n more. */
void select_sort(uint64_t *key, uint64_t *tmp, size_t n);
