/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/label.h - what people say of their jobs: a note, and tags by which they find them again. Pure. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

#include "daemon/job/job.h"

struct err;
struct text;

/* Carries out changes of tags, with blanks between: "+night" or "night" adds one, "-base" takes one away. ERR_INPUT names what is no tag, or more than JOB_TAGS of
 * them, and tags stay as they are. */
int label_change(char tags[JOB_TAGS_BYTES], const char *changes, struct err *err);
/* As JSON: ["a","b"]. */
void label_text(struct text *out, const char *tags);
json_t *label_json(const char *tags);
bool label_has(const char *tags, const char *tag);
/* ERR_INPUT: too long, or with characters that a terminal would obey. */
int label_check_note(const char *note, struct err *err);
