/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/box_rule.h - the rules for a box, for every kind of file.
 * Pure. */
#pragma once
#include "worker/data/set/dataset.h"

/* Pixels; far above any picture, far below the size at which doubles lose hundredths. */
#define BOX_COORDINATE_MAX 1e7

/* The flaw of a box of that image, as it stands (constant text), or NULL. A sound box that reaches over its image is
 * clipped, and *ret_clipped is set. */
const char *box_flaw(const struct dataset_image *im, struct dataset_box *box, bool *ret_clipped);
