/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/results_file.h - detections as COCO results files:
 * [{"image_id", "file_name", "category_id", "bbox": [x, y, width, height], "score"}, ...], and of masks with
 * "segmentation": {"size": [height, width], "counts": compressed run lengths} in the place of "bbox". They are two
 * files, as in COCO: if a record has both, COCO's tools take the box's area for the mask's. The tools ignore file_name.
 * It is for readers without annotations, which tell the picture of an id. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/result.h"

struct err;
struct rle;

/* The pictures by their index: original id, and name (bytes that are not UTF-8 are written as '?'). */
struct results_images {
    const int64_t *id;
    const char *const *name;
    int n;
};

/* Writes atomically (worker/core/file.h), one object a line, in the order given. category_ids[nclasses] are the
 * original ids. ERR_INPUT for an index outside the categories or the pictures, or a number that is not finite. */
int results_write(const char *path, const struct detection *dets, size_t ndets, const struct results_images *images,
                  const int64_t *category_ids, int nclasses, struct err *err);
/* A mask in the file's form: compressed run lengths of its whole picture (mask/rle.h). */
struct results_mask {
    int w, h;
    char *counts;
};
/* Makes one mask of a picture of w x h pixels; *scratch is the caller's, and so is ret->counts, which is malloc'ed.
 * -ENOMEM. */
int results_mask_make(const struct result_mask *m, int w, int h, struct rle *scratch, struct results_mask *ret, struct err *err);
/* Like results_write(), with masks[ndets] instead of boxes. */
int results_write_masks(const char *path, const struct detection *dets, const struct results_mask *masks, size_t ndets,
                        const struct results_images *images, const int64_t *category_ids, int nclasses, struct err *err);
/* Did results_write() or results_write_masks() write the file, judged by its first bytes? */
bool results_is_own(const char *path);
