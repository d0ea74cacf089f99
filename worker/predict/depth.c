#include "worker/predict/depth.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/data/image/image.h"
#include "worker/eval/depth_metrics.h"
#include "worker/eval/depth/depth_picture.h"
#include "worker/eval/depth/depth_view.h"
#include "worker/eval/result.h"

static int write_numbers(const struct result_map *m, const struct jobspec *spec, uint16_t *memory, const char *path, struct err *err)
{
    int64_t n = (int64_t)m->w * m->h;
    bool metres = !isnan(spec->val_depth_factor);
    double factor = metres ? spec->val_depth_factor : 1, farthest, median, scale;
    char text[32];
    const struct image_text texts[] = { { "Depth-unit", metres ? "m" : "network" }, { "Depth-scale", text } };
    int rc = depth_place(m->value, n, n - 1, &farthest, err);

    if (rc >= 0)
        rc = depth_place(m->value, n, n / 2, &median, err);
    if (rc < 0)
        return rc;
    scale = depth_code_scale(farthest * factor, median * factor);
    snprintf(text, sizeof text, "%.17g", scale);
    depth_code(m, factor, scale, memory);
    return image_write_png16(path, memory, m->w, m->h, texts, sizeof texts / sizeof *texts, err);
}

int predict_write_depth(const struct result *r, const struct jobspec *spec, const char *numbers, const char *colours, struct err *err)
{
    void *memory;
    int rc = result_depth_check(r, err);

    if (rc < 0)
        return rc;
    memory = malloc((size_t)r->depth.w * (size_t)r->depth.h * 3);
    if (!memory)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = write_numbers(&r->depth, spec, memory, numbers, err);
    if (rc >= 0)
        rc = depth_colours(&r->depth, memory, err);
    if (rc >= 0)
        rc = image_write_png(colours, memory, r->depth.w, r->depth.h, err);
    free(memory);
    return rc;
}

int predict_write_view(const struct result *r, const struct depth_lens *lens, const double *motion, const uint8_t *rgb, const char *path,
                       struct err *err)
{
    uint8_t *seen = malloc((size_t)r->depth.w * (size_t)r->depth.h * 3);
    int rc;

    if (!seen)
        return err_set(err, ERR_DEVICE, "out of memory");
    depth_view(&r->depth, lens, motion, rgb, seen);
    rc = image_write_png(path, seen, r->depth.w, r->depth.h, err);
    free(seen);
    return rc;
}
