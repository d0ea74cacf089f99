#include "worker/eval/result.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>

#include "proto/err.h"
#include "worker/mask/rle.h"

int result_boxes_check(const struct result *r, int nclasses, struct err *err)
{
    if (r->kind != RESULT_BOXES && r->kind != RESULT_MASKS)
        return err_set(err, ERR_INPUT, "a result without boxes");
    for (int i = 0; i < r->n; i++)
        if (r->boxes[i].image != r->image)
            return err_set(err, ERR_INPUT, "detection %d: image %d in a result of image %d", i, r->boxes[i].image, r->image);
    return detections_check(r->boxes, (size_t)r->n, nclasses, err);
}

static int outside(int from, int size)
{
    return from < 0 || size < 0 || size > RLE_MAX_SIDE || from > RLE_MAX_SIDE - size;
}

int result_masks_check(const struct result *r, int nclasses, struct err *err)
{
    if (r->kind != RESULT_MASKS)
        return err_set(err, ERR_INPUT, "a result without masks");
    for (int i = 0; i < r->n; i++) {
        const struct result_mask *m = &r->masks[i];

        if (outside(m->x, m->w) || outside(m->y, m->h))
            return err_set(err, ERR_INPUT, "detection %d: a mask of %d x %d pixels at %d, %d", i, m->w, m->h, m->x, m->y);
    }
    return result_boxes_check(r, nclasses, err);
}

int result_depth_check(const struct result *r, struct err *err)
{
    if (r->kind != RESULT_DEPTH || r->depth.w < 1 || r->depth.h < 1)
        return err_set(err, ERR_INPUT, "a result without depth");
    for (size_t i = 0; i < (size_t)r->depth.w * (size_t)r->depth.h; i++)
        if (!(r->depth.value[i] > 0) || !isfinite(r->depth.value[i]))
            return err_set(err, ERR_NONFINITE, "a depth is %g: it must be a number above 0", (double)r->depth.value[i]);
    return 0;
}
