/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/survey.h - what `check` says of a checked data set besides its counts: objects by size, pictures that are empty, that are the same bytes or look
 * alike, or that lie turned in their files; boxes that stand twice or are the whole picture (survey_boxes.h). Of frames only what both sets have is said. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct dataset;
struct err;

enum { SURVEY_LINES = 10 };             /* so many of a kind are told one by one, the rest by its number */
#define SURVEY_PAIRS ((int64_t)1 << 33) /* pairs of pictures that are compared at most: about ten seconds */

/* Lines that begin with "SPLIT: ". upright: an orientation is applied. Possible mistakes go to `warnings`, the rest to `facts`. 0 or -ENOMEM. */
int survey_split(const struct dataset *d, const char *split, bool upright, FILE *facts, FILE *warnings, struct err *err);
/* Pictures, or frames, of `val` whose bytes are those of one in `train`; pictures that nearly equal one there. */
int survey_common(const struct dataset *train, const struct dataset *val, FILE *out, struct err *err);
