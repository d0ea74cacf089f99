/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/survey_boxes.h - boxes that are nearly another's, and boxes of the whole picture: mistakes of labelling, as a rule. */
#pragma once
#include <stdint.h>
#include <stdio.h>

struct dataset;
struct err;

/* Boxes that stand twice or overlap another one of their picture by an IoU of at least .95, and boxes that cover at least .99 of their picture. Crowds are
 * left out. The first of both are told in lines that begin with "SPLIT: ". 0 or -ENOMEM. */
int survey_boxes(const struct dataset *d, const char *split, FILE *out, int64_t *ret_twice, int64_t *ret_whole, struct err *err);
