/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/survey_boxes.h - boxes that nearly equal another one, and
 * boxes of the whole picture: usually mistakes of labelling. */
#pragma once
#include <stdint.h>
#include <stdio.h>

struct dataset;
struct err;

/* Boxes that are repeated or overlap another one of their picture by an IoU of at least .95, and boxes that cover at
 * least .99 of their picture. Crowds are left out. The first of both are reported in lines that begin with "SPLIT: ". 0
 * or -ENOMEM. */
int survey_boxes(const struct dataset *d, const char *split, FILE *out, int64_t *ret_twice, int64_t *ret_whole, struct err *err);
