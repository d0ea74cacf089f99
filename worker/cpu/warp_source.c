/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/warp_source.c - the gradient of the warped source, in bands
 * of its rows. For each row of the target the range of source rows is known, so a band skips rows without a share
 * for it. */
#include "worker/cpu/warp.h"

#include <errno.h>

#include "worker/core/carve.h"

enum { BAND = 8 /* rows of a source */ };

/* The places where the pixels of all images fall. */
struct source_args {
    struct warp_args w;
    float beta;
    struct cell *cell;                            /* [pixels] */
    struct rows_seen *seen;                       /* [rows] */
    size_t *first_pixel, *first_row, *first_unit; /* [images + 1] */
    size_t images;
};

struct cell {
    int32_t y, x;
    float fx, fy;
};

/* The rows of a source that a row of the target falls into. */
struct rows_seen {
    int32_t from, to;
};

static void place_row(const struct source_args *a, size_t image, int y)
{
    const struct warp_image *m = &a->w.image[image];
    struct cell *cell = a->cell + a->first_pixel[image] + (size_t)y * (size_t)m->w;
    struct rows_seen seen = { INT32_MAX, 0 };
    struct warp_piece p;

    for (int x = 0; x < m->w; x += WARP_PIECE) {
        int n = m->w - x < WARP_PIECE ? m->w - x : WARP_PIECE;

        warp_place(&p, m, &a->w.view[image], y, x, n);
        for (int i = 0; i < n; i++) {
            cell[x + i] = (struct cell){ p.y0[i], p.x0[i], p.fx[i], p.fy[i] };
            seen.from = p.y0[i] < seen.from ? p.y0[i] : seen.from;
            seen.to = p.y0[i] > seen.to ? p.y0[i] : seen.to;
        }
    }
    seen.to += m->lens.below + 1;
    a->seen[a->first_row[image] + (size_t)y] = seen;
}

static void place_part(const void *arg, int v, size_t from, size_t to)
{
    const struct source_args *a = arg;

    for (size_t r = from; r < to; r++)
        place_row(a, (size_t)a->w.first[v] + r / (size_t)a->w.disp[v].h, (int)(r % (size_t)a->w.disp[v].h));
}

static size_t place_units(const void *arg, int v)
{
    return warp_rows(&((const struct source_args *)arg)->w, v);
}

/* dst += w * g */
SIMD_FN void add_weighted(float *restrict dst, const float *restrict g, float w, int c)
{
    vec weight = vset1(w);
    int k = 0;

    for (; k + VW <= c; k += VW)
        vstore(dst + k, vfma(weight, vload(g + k), vload(dst + k)));
    if (k < c)
        vstore_n(dst + k, vfma(weight, vload_n(g + k, c - k), vload_n(dst + k, c - k)), c - k);
}

/* Adds a pixel's shares to those of its four cells that lie in rows [from, to). */
static void spread(const struct warp_image *m, const struct cell *at, const float *g, int from, int to)
{
    struct warp_weights w = warp_weights(at->fx, at->fy);

    for (int i = 0; i < 4; i++) {
        int y = at->y + i / 2 * m->lens.below, x = at->x + i % 2 * m->lens.right;

        if (y >= from && y < to)
            add_weighted(m->dsource + ((size_t)y * (size_t)m->source_w + (size_t)x) * (size_t)m->source_stride, g, w.w[i], m->c);
    }
}

static void begin_band(const struct warp_image *m, float beta, int from, int to)
{
    for (size_t i = (size_t)from * (size_t)m->source_w; i < (size_t)to * (size_t)m->source_w && beta != 1.0f; i++) {
        float *dst = m->dsource + i * (size_t)m->source_stride;

        for (int k = 0; k < m->c; k++)
            dst[k] = beta == 0.0f ? 0.0f : beta * dst[k];
    }
}

static void band_unit(void *arg, size_t unit, int thread)
{
    const struct source_args *a = arg;
    size_t image = 0;
    const struct warp_image *m;
    int from, to;

    (void)thread;
    while (unit >= a->first_unit[image + 1])
        image++;
    m = &a->w.image[image];
    from = (int)(unit - a->first_unit[image]) * BAND;
    to = from + BAND < m->source_h ? from + BAND : m->source_h;
    begin_band(m, a->beta, from, to);
    for (int y = 0; y < m->h; y++) {
        const struct rows_seen *seen = &a->seen[a->first_row[image] + (size_t)y];
        const struct cell *cell = a->cell + a->first_pixel[image] + (size_t)y * (size_t)m->w;
        const float *g = m->dy + (size_t)y * (size_t)m->w * (size_t)m->y_stride;

        if (seen->from >= to || seen->to <= from)
            continue;
        for (int x = 0; x < m->w; x++)
            if (cell[x].y < to && cell[x].y + m->lens.below >= from)
                spread(m, &cell[x], g + (size_t)x * (size_t)m->y_stride, from, to);
    }
}

static size_t bands(const struct warp_image *m)
{
    return (size_t)(m->source_h + BAND - 1) / BAND;
}

/* Computes the first pixel, row and band of each image. */
static void number(struct source_args *a, struct tensor *dsource, int nshards)
{
    size_t pixels = 0, rows = 0, units = 0, at = 0;

    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < dsource[v].n; i++, at++) {
            struct warp_image *m = &a->w.image[at];

            m->source_stride = dsource[v].stride;
            m->dsource = (float *)dsource[v].data + (size_t)i * (size_t)m->source_h * (size_t)m->source_w * (size_t)m->source_stride;
            a->first_pixel[at] = pixels;
            a->first_row[at] = rows;
            a->first_unit[at] = units;
            pixels += (size_t)m->h * (size_t)m->w;
            rows += (size_t)m->h;
            units += bands(m);
        }
    a->first_unit[at] = units;
}

int cpu_warp_bwd_source(struct device *dev, const struct warp *w, struct tensor *dsource, float beta, const struct tensor *dy,
                        const struct warp_in *in, int nshards, struct err *err)
{
    struct source_args a = { .beta = beta, .images = (size_t)warp_images(dy, nshards) };
    size_t pixels = 0, rows = 0, more;
    struct carve c = { NULL, 0 };

    for (int v = 0; v < nshards; v++) {
        pixels += tensor_pixels(&in->disp[v]);
        rows += (size_t)in->disp[v].n * (size_t)in->disp[v].h;
    }
    more = (pixels * sizeof *a.cell + rows * sizeof *a.seen + 3 * (a.images + 1) * sizeof(size_t)) + 5 * CARVE_ALIGN;
    c.base = warp_start(&a.w, dev, w, in, dy, nshards, more, err);
    if (!c.base)
        return -ENOMEM;
    a.cell = carve(&c, pixels * sizeof *a.cell);
    a.seen = carve(&c, rows * sizeof *a.seen);
    a.first_pixel = carve(&c, (a.images + 1) * sizeof(size_t));
    a.first_row = carve(&c, (a.images + 1) * sizeof(size_t));
    a.first_unit = carve(&c, (a.images + 1) * sizeof(size_t));
    number(&a, dsource, nshards);
    cpu_over_shards(dev, &(struct shard_work){ nshards, place_units, place_part, &a });
    threads_each(cpu_threads(dev), a.first_unit[a.images], band_unit, &a);
    return 0;
}
