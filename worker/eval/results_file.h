/* worker/eval/results_file.h - detections as a COCO results file: [{"image_id", "file_name", "category_id", "bbox": [x, y, width, height], "score"}, ...].
 * COCO's tools do not look at file_name; it is for whoever has no annotations that tell which picture an id means. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/detection.h"

struct err;

/* The pictures by their index: original id, and name (bytes that are not UTF-8 are written as '?'). */
struct results_images {
    const int64_t *id;
    const char *const *name;
    int n;
};

/* Writes atomically (worker/core/file.h), one object a line, in the order given. category_ids[nclasses] are the original ids. ERR_INPUT for an index
 * outside of them or of the pictures, or a number that is not finite. */
int results_write(const char *path, const struct detection *dets, size_t ndets, const struct results_images *images,
                  const int64_t *category_ids, int nclasses, struct err *err);
/* Whether results_write() wrote the file, as far as its first bytes tell. */
bool results_is_own(const char *path);
