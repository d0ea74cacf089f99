/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/idmap.h - from 64-bit ids of annotation files to positions.
 * Open addressing; grows to twice the number of entries. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idmap {
    struct idmap_slot {
        int64_t id;
        int32_t value; /* position + 1; 0: free */
    } * slot;
    size_t size, used; /* size is 0 or a power of two */
};

/* All zero is empty. idmap_free() leaves it empty. */
void idmap_free(struct idmap *m);
/* Position of an id, or -1. */
int32_t idmap_get(const struct idmap *m, int64_t id);
/* Adds an id that is not there yet, value >= 0. Returns 0 or -ENOMEM. */
int idmap_put(struct idmap *m, int64_t id, int32_t value);
