#include "worker/data/set/mask_rle.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "worker/data/set/dataset.h"
#include "worker/mask/rle.h"

static int copy_runs(const struct mask *m, int h, int w, struct rle *ret, struct err *err)
{
    int rc = rle_begin(ret, h, w, err);

    for (int i = 0; i < m->n && rc >= 0; i++)
        rc = rle_add(ret, m->run[i], err);
    return rc < 0 ? rc : rle_end(ret, err);
}

int dataset_mask_rle(const struct dataset *d, int image, int64_t box, struct rle *ret, struct err *err)
{
    const struct mask m = dataset_mask(d, box);
    const struct dataset_box *b = &d->boxes[box];
    int w = d->images[image].w, h = d->images[image].h;

    if (m.kind == MASK_POLYGONS)
        return rle_from_polygons(ret, h, w, m.xy, m.first, m.n, err);
    if (m.kind == MASK_RUNS)
        return copy_runs(&m, h, w, ret, err);
    return rle_from_box(ret, h, w, (const double[]){ b->x, b->y, b->w, b->h }, err);
}
