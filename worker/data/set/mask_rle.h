/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/set/mask_rle.h - the masks of a data set's boxes as run lengths
 * of their whole picture (worker/mask/rle.h). */
#pragma once
#include <stdint.h>

struct dataset;
struct err;
struct rle;

/* The mask of box number `box` of dataset.boxes, an object of image `image`. Polygons are drawn like COCO's tools do;
 * an object without a segmentation (a crowd) covers its box. -ENOMEM. */
int dataset_mask_rle(const struct dataset *d, int image, int64_t box, struct rle *ret, struct err *err);
