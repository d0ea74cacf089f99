/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/darknet_keys.h - every key that a .cfg may have, and its
 * treatment: it is read, must have its neutral value, is left to the job's keys, or changes nothing here. Any other key
 * is refused. Sources: parse_*() in src/parser.c of pjreddie/darknet f6afaab and of AlexeyAB/darknet 59596d7. */
#pragma once
#include <stdbool.h>

struct cfg_section;
struct cfg_text;

enum { DARKNET_MAX_KEYS = 192 };

/* Which keys of a file were ignored, by row of the table. Starts as zeros. */
struct darknet_ignored {
    bool row[DARKNET_MAX_KEYS];
};

/* Checks the keys of one section. `kind` is its full name ("net", "convolutional"). Fails in p about an unknown key,
 * with the nearest known key, and about an unsupported value. Adds the ignored keys to *ignored. */
void darknet_keys_check(struct cfg_text *p, const struct cfg_section *s, const char *kind, struct darknet_ignored *ignored);
/* Warns in p once about each kind of ignored keys, with their names. */
void darknet_keys_tell(struct cfg_text *p, const struct darknet_ignored *ignored);
