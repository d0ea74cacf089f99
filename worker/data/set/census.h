/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/census.h - what a split holds, said once: its objects by class, and how many pictures have none. Pure. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dataset;

enum { CENSUS_TEXT = 3000, CENSUS_NAME = 40 };

/* "12 images without an object to train on are left out; objects by class: circle 400, square 0", in buf; left_out 0: the second part alone. Crowds are no
 * objects. Of frames: "179 targets with 2 sources each, of 181 frames, 960 x 540; 0 with measured depth". Classes that do not fit are counted at the end; names come from outside, and are cut. Returns buf. */
char *census_text(const struct dataset *d, int left_out, char *buf, size_t size);
/* Whether images have more objects than max_det, the detections that a model gives of one: the others count as missed. buf then says how many images, and
 * which has most. A crowd is no object. */
bool census_crowded(const struct dataset *d, int64_t max_det, char *buf, size_t size);
/* Of a validation split: whether no frame has all of its neighbours, so that there is no loss. buf then says so, and what it means for checkpoint.best, which is
 * `best`. Not of a set that was read from an index. */
bool census_lossless(const struct dataset *d, const char *best, char *buf, size_t size);
/* A name from outside, cut, and without what a terminal or a log would take for more than text. Returns buf. */
char *census_name(const char *name, char buf[CENSUS_NAME]);
