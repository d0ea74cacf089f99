#include "worker/mask/rle.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/grow.h"
#include "worker/kernels/polygon.h"
#include "worker/mask/rle_writer.h"

/* Places (column * h + row) where polygons cross a column; at the end pairs: the start and the end of a piece
 * inside. */
struct places {
    int32_t *at;
    size_t n, room;
};

static bool add_edge(struct places *p, const double *a, const double *b, int h, int w)
{
    struct polygon_edge e = polygon_edge(a, b);
    int first, last;

    polygon_columns(&e, w, &first, &last);
    if (first > last)
        return true;
    if (!GROW(p->at, p->room, p->n + (size_t)(last - first) + 1))
        return false;
    for (int c = first; c <= last; c++)
        p->at[p->n++] = c * h + polygon_row(&e, c, h);
    return true;
}

static int compare_places(const void *a, const void *b)
{
    int32_t p = *(const int32_t *)a, q = *(const int32_t *)b;

    return (p > q) - (p < q);
}

/* Sorts the places from index `from` on. Two crossings at one place cancel each other. */
static void settle(struct places *p, size_t from)
{
    size_t to = from;

    qsort(p->at + from, p->n - from, sizeof *p->at, compare_places);
    for (size_t i = from; i < p->n; i++)
        if (to > from && p->at[to - 1] == p->at[i])
            to--;
        else
            p->at[to++] = p->at[i];
    p->n = to;
}

static bool add_polygon(struct places *p, const double (*xy)[2], int64_t points, int h, int w)
{
    size_t from = p->n;
    bool ok = true;

    for (int64_t i = 0; i < points && ok; i++)
        ok = add_edge(p, xy[i], xy[i + 1 < points ? i + 1 : 0], h, w);
    if (ok && p->n > from)
        settle(p, from);
    return ok;
}

int rle_from_polygons(struct rle *m, int h, int w, const double (*xy)[2], const int64_t *first, int parts, struct err *err)
{
    struct places p = { 0 };
    struct rle_writer o;
    bool ok = true;

    for (int k = 0; k < parts && ok; k++)
        ok = add_polygon(&p, xy + first[k], first[k + 1] - first[k], h, w);
    if (ok && parts > 1 && p.n > 0)
        qsort(p.at, p.n / 2, 2 * sizeof *p.at, compare_places); /* by their starts */
    rle_write_begin(&o, m, h, w);
    for (size_t i = 0; i + 1 < p.n; i += 2)
        rle_write(&o, p.at[i], p.at[i + 1]);
    free(p.at);
    o.failed = !ok;
    return rle_write_end(&o, err);
}

int rle_from_box(struct rle *m, int h, int w, const double box[4], struct err *err)
{
    const double l = box[0], t = box[1], r = box[0] + box[2], b = box[1] + box[3];

    return rle_from_polygons(m, h, w, (const double[][2]){ { l, t }, { l, b }, { r, b }, { r, t } }, (const int64_t[]){ 0, 4 }, 1, err);
}
