/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/coco/coco_keys.h - keys of a COCO file that its reader
 * ignores and that may change a result: misspelt ones, and ones that other tools obey. Each is reported once, for any
 * number of records. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct problems;

enum coco_place { COCO_FILE, COCO_IMAGES, COCO_ANNOTATIONS, COCO_CATEGORIES };
enum { COCO_KEYS_TOLD = 16, COCO_KEYS_HARMLESS = 32, COCO_KEY_MAX = 48 };

/* All zero: nothing seen. */
struct coco_keys {
    int ntold;
    struct coco_key {
        enum coco_place place;
        char name[COCO_KEY_MAX];
        int64_t count, at; /* how often; byte of the record that had it first */
    } told[COCO_KEYS_TOLD];
    unsigned nharmless; /* keys put into this cache so far: they need no message */
    struct {
        enum coco_place place;
        char name[COCO_KEY_MAX];
    } harmless[COCO_KEYS_HARMLESS];
};

/* Takes note of a key that was skipped in the record that begins at byte `at`. Longer keys than COCO_KEY_MAX - 1, and
 * the 17th to be told, are not noted. */
void coco_keys_see(struct coco_keys *k, enum coco_place place, const char *name, int64_t at);
/* The key of the file itself that looks like the missing key `name`: borrowed. NULL: no key does. */
const char *coco_keys_like(const struct coco_keys *k, const char *name);
/* Tells each key as a note, with the line of its first record in bytes[]. */
void coco_keys_tell(const struct coco_keys *k, const char *bytes, struct problems *problems);
