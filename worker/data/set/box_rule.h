/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/box_rule.h - what a box has to be, whatever file it stands in. Pure. */
#pragma once
#include "worker/data/set/dataset.h"

/* Pixels; far over any picture, far under where doubles lose hundredths. */
#define BOX_COORDINATE_MAX 1e7

/* What is wrong with a box of that image, as it stands (constant text), or NULL. One that reaches over its image is clipped then, and *ret_clipped is set. */
const char *box_flaw(const struct dataset_image *im, struct dataset_box *box, bool *ret_clipped);
