/* worker/eval/results.h - detections as a COCO results file: [{"image_id", "category_id", "bbox": [x, y, width, height], "score"}, ...]. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/detection.h"

struct err;

/* Writes atomically (worker/core/file.h), one object a line, in the order given. image_ids[nimages] and category_ids[nclasses] are the
 * original ids. ERR_INPUT for an index outside of them or a number that is not finite. */
int results_write(const char *path, const struct detection *dets, size_t ndets, const int64_t *image_ids, int nimages,
                  const int64_t *category_ids, int nclasses, struct err *err);
