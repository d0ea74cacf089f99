/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/label.h - labels of jobs by users: a note, and tags for
 * searching. Pure. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "daemon/job/job.h"

struct err;
struct text;

/* Applies changes of tags, with blanks between: "+night" or "night" adds one, "-base" removes one. ERR_INPUT names a
 * word that is not a valid tag, or says that there are more than JOB_TAGS; tags stay unchanged. */
int label_change(char tags[JOB_TAGS_BYTES], const char *changes, struct err *err);
/* The tags as JSON: ["a","b"]. */
void label_text(struct text *out, const char *tags);
json_t *label_json(const char *tags);
bool label_has(const char *tags, const char *tag);
/* ERR_INPUT: too long, or with characters that a terminal would obey. */
int label_check_note(const char *note, struct err *err);
