#include "worker/data/set/mask.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "proto/grow.h"
#include "worker/data/set/dataset.h"

struct masks *masks_new(void)
{
    return calloc(1, sizeof(struct masks));
}

void masks_free(struct masks *m)
{
    if (!m)
        return;
    free(m->ref);
    free(m->polygon);
    free(m->xy);
    free(m->run);
    free(m);
}

bool masks_add_point(struct masks *m, double x, double y)
{
    if (!GROW(m->xy, m->points_cap, m->npoints + 1))
        return false;
    m->xy[m->npoints][0] = x;
    m->xy[m->npoints++][1] = y;
    return true;
}

bool masks_end_polygon(struct masks *m)
{
    if (!GROW(m->polygon, m->polygons_cap, m->npolygons + 2))
        return false;
    m->polygon[0] = 0;
    m->polygon[++m->npolygons] = m->npoints;
    return true;
}

bool masks_add_run(struct masks *m, uint32_t run)
{
    if (!GROW(m->run, m->runs_cap, m->nruns + 1))
        return false;
    m->run[m->nruns++] = run;
    return true;
}

bool masks_reserve(struct masks *m, int64_t boxes)
{
    size_t had = m->refs_cap;

    if (!GROW(m->ref, m->refs_cap, boxes))
        return false;
    if (m->refs_cap > had)
        memset(m->ref + had, 0, (m->refs_cap - had) * sizeof *m->ref);
    return true;
}

/* Shrinks the block. If that fails the larger one stays. */
static void *trimmed(void *array, int64_t count, size_t *cap, size_t size)
{
    void *smaller = count > 0 && (size_t)count < *cap ? realloc(array, (size_t)count * size) : NULL;

    if (!smaller)
        return array;
    *cap = (size_t)count;
    return smaller;
}

void masks_trim(struct masks *m, int64_t refs)
{
    m->ref = trimmed(m->ref, refs, &m->refs_cap, sizeof *m->ref);
    m->polygon = trimmed(m->polygon, m->npolygons ? m->npolygons + 1 : 0, &m->polygons_cap, sizeof *m->polygon);
    m->xy = trimmed(m->xy, m->npoints, &m->points_cap, sizeof *m->xy);
    m->run = trimmed(m->run, m->nruns, &m->runs_cap, sizeof *m->run);
}

struct masks_mark masks_mark(const struct masks *m)
{
    return (struct masks_mark){ m->npolygons, m->npoints, m->nruns };
}

void masks_rewind(struct masks *m, struct masks_mark mark)
{
    m->npolygons = mark.npolygons;
    m->npoints = mark.npoints;
    m->nruns = mark.nruns;
}

struct mask masks_view(const struct masks *m, const struct mask_ref *ref)
{
    struct mask mask = { .kind = (enum mask_kind)ref->kind, .n = ref->n };

    if (mask.kind == MASK_POLYGONS) {
        mask.first = m->polygon + ref->at;
        mask.xy = m->xy;
    } else if (mask.kind == MASK_RUNS) {
        mask.run = m->run + ref->at;
    }
    return mask;
}

struct mask dataset_mask(const struct dataset *d, int64_t box)
{
    return d->masks ? masks_view(d->masks, &d->masks->ref[box]) : (struct mask){ .kind = MASK_NONE };
}

static bool polygon_inside(const struct mask *m, int k, int w, int h)
{
    const double *p = m->xy[m->first[k]];
    double x1 = p[0], x2 = p[0], y1 = p[1], y2 = p[1];

    for (int64_t i = m->first[k]; i < m->first[k + 1]; i++) {
        p = m->xy[i];
        x1 = p[0] < x1 ? p[0] : x1;
        x2 = p[0] > x2 ? p[0] : x2;
        y1 = p[1] < y1 ? p[1] : y1;
        y2 = p[1] > y2 ? p[1] : y2;
    }
    return x2 > 0 && y2 > 0 && x1 < w && y1 < h;
}

bool mask_inside(const struct mask *m, int w, int h)
{
    for (int k = 0; k < m->n && m->kind == MASK_POLYGONS; k++)
        if (polygon_inside(m, k, w, h))
            return true;
    for (int k = 1; k < m->n && m->kind == MASK_RUNS; k += 2)
        if (m->run[k] > 0)
            return true;
    return false;
}
