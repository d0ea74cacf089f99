/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/survey.h - the report of `check` on a checked data set
 * besides its counts: objects by size; pictures that are empty, have the same bytes, look alike, or lie turned in their
 * files; boxes that are repeated or cover the whole picture (survey_boxes.h). For frames only the parts that apply to
 * both kinds of sets are reported. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct dataset;
struct err;

enum { SURVEY_LINES = 10 };             /* reported one by one per kind; the rest as a number */
#define SURVEY_PAIRS ((int64_t)1 << 33) /* most pairs of pictures that are compared: about ten seconds */

/* Lines that begin with "SPLIT: ". upright: an orientation is applied. Possible mistakes go to `warnings`, the rest to
 * `facts`. 0 or -ENOMEM. */
int survey_split(const struct dataset *d, const char *split, bool upright, FILE *facts, FILE *warnings, struct err *err);
/* Pictures, or frames, of `val` with the same bytes as one in `train`; pictures that nearly equal one there. */
int survey_common(const struct dataset *train, const struct dataset *val, FILE *out, struct err *err);
