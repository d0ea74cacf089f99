/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/hash.h - the hash of a block of numbers (proto/hash/hash_keys.h)
 * in vectors. */
#pragma once
#include <stddef.h>

#include "proto/hash/hash.h"

/* x [count], 1 <= count <= 1024: as if zeros followed up to 1024. */
struct hash128 cpu_hash_block(const float *x, size_t count);
