/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/photo.c - the photometric difference of two pictures, and its
 * gradient. A row of an image is one run of numbers, with the neighbours of each c numbers before and behind it in
 * every channel; loops run along it. Rows are copied with mirrored pixels at both ends; a band keeps the rows that it
 * needs. */
#include "worker/kernels/photo.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/core/carve.h"
#include "worker/cpu/rows.h"

enum {
    BAND = 32, /* rows of a thread's piece of work */
    RUN = 512, /* numbers with windows that fit the L1 cache */
    KEPT = 4,  /* rows of a picture: three of a window, and the next one */
    SHARES = 3,
};

struct photo_args {
    float ssim_weight, beta;
    const struct tensor *a, *b, *dmap;
    struct tensor *dst; /* the map, or da */
    int nshards;
    size_t *first_band; /* [nshards + 1] */
    char *mem;
    size_t bytes_per_thread;
};

/* Some rows of a picture, dense, each between two mirrored pixels. */
struct kept {
    const struct tensor *t;
    int image, at[KEPT];
    float *row[KEPT];
};

/* The memory of a thread. */
struct work {
    struct kept a, b;
    float *term;                /* [w][c] */
    float *share[KEPT][SHARES]; /* rows of shares; unused in forward */
    int share_at[KEPT];
    float *column[SHARES]; /* sums of shares over rows, between two pixels of 0 */
    float *grad;           /* [w][c]: gradient of each number's pixel */
    float *zero;           /* [w][c] */
};

static void layout(struct work *w, const struct tensor *t, struct carve *c)
{
    size_t row = (size_t)t->w * (size_t)t->c * sizeof(float), padded = row + 2 * (size_t)t->c * sizeof(float);

    for (int i = 0; i < KEPT; i++) {
        w->a.row[i] = carve(c, padded);
        w->b.row[i] = carve(c, padded);
        for (int k = 0; k < SHARES; k++)
            w->share[i][k] = carve(c, row);
    }
    for (int k = 0; k < SHARES; k++)
        w->column[k] = carve(c, padded);
    w->term = carve(c, row);
    w->grad = carve(c, row);
    w->zero = carve(c, row);
}

static int start(struct photo_args *p, struct device *dev, struct err *err)
{
    int threads = threads_count(cpu_threads(dev));
    size_t most = 0, bands = 0, table = ((size_t)p->nshards + 1) * sizeof *p->first_band;
    struct carve c = { NULL, 0 };
    struct work w;

    for (int v = 0; v < p->nshards; v++) {
        struct carve of = { NULL, 0 };

        assert(p->a[v].h >= 2 && p->a[v].w >= 2);
        layout(&w, &p->a[v], &of);
        most = of.used > most ? of.used : most;
    }
    carve(&c, table);
    c.base = cpu_scratch(dev, c.used + (size_t)threads * most, err);
    if (!c.base)
        return -ENOMEM;
    c.used = 0;
    p->first_band = carve(&c, table);
    p->mem = c.base + c.used;
    p->bytes_per_thread = most;
    for (int v = 0; v < p->nshards; v++) {
        p->first_band[v] = bands;
        bands += (size_t)p->a[v].n * (size_t)((p->a[v].h + BAND - 1) / BAND);
    }
    p->first_band[p->nshards] = bands;
    return 0;
}

/* ---- rows ---- */

static void keep(struct kept *k, const struct tensor *t, int image)
{
    k->t = t;
    k->image = image;
    for (int i = 0; i < KEPT; i++)
        k->at[i] = -1;
}

/* The first number of row y, mirrored if the row is outside of the image. */
static const float *kept_row(struct kept *k, int y)
{
    const struct tensor *t = k->t;
    int at = photo_mirror(y, t->h), slot = at % KEPT, c = t->c, w = t->w;
    const float *from = (const float *)t->data + ((size_t)k->image * (size_t)t->h + (size_t)at) * (size_t)w * (size_t)t->stride;
    float *row = k->row[slot];

    if (k->at[slot] == at)
        return row + c;
    k->at[slot] = at;
    if (t->stride == c)
        memcpy(row + c, from, (size_t)w * (size_t)c * sizeof *row);
    for (int x = 0; x < w && t->stride != c; x++)
        memcpy(row + (ptrdiff_t)(x + 1) * c, from + (ptrdiff_t)x * t->stride, (size_t)c * sizeof *row);
    memcpy(row, row + 2 * (ptrdiff_t)c, (size_t)c * sizeof *row);
    memcpy(row + (ptrdiff_t)(w + 1) * c, row + (ptrdiff_t)(w - 1) * c, (size_t)c * sizeof *row);
    return row + c;
}

struct windows {
    float mx[RUN], my[RUN], sx[RUN], sy[RUN], sxy[RUN];
};

/* Computes the windows of n <= RUN numbers of row y, from number `from` on. */
static void windows(struct windows *restrict ret, struct work *w, int y, int from, int n)
{
    const float *a0 = kept_row(&w->a, y - 1) + from, *a1 = kept_row(&w->a, y) + from, *a2 = kept_row(&w->a, y + 1) + from;
    const float *b0 = kept_row(&w->b, y - 1) + from, *b1 = kept_row(&w->b, y) + from, *b2 = kept_row(&w->b, y + 1) + from;
    int step = w->a.t->c;

    CPU_LANES
    for (int i = 0; i < n; i++) {
        struct ssim_window s = ssim_window(a0 + i, a1 + i, a2 + i, b0 + i, b1 + i, b2 + i, step);

        ret->mx[i] = s.mx;
        ret->my[i] = s.my;
        ret->sx[i] = s.sx;
        ret->sy[i] = s.sy;
        ret->sxy[i] = s.sxy;
    }
}

KERNEL_FN struct ssim_window window_at(const struct windows *w, int i)
{
    return (struct ssim_window){ w->mx[i], w->my[i], w->sx[i], w->sy[i], w->sxy[i] };
}

/* ---- forward ---- */

static void terms(struct work *w, float ssim_weight, int y)
{
    const float *a = kept_row(&w->a, y), *b = kept_row(&w->b, y);
    int count = w->a.t->w * w->a.t->c;
    struct windows s;

    for (int from = 0; from < count; from += RUN) {
        int n = count - from < RUN ? count - from : RUN;
        float *restrict term = w->term + from;

        windows(&s, w, y, from, n);
        CPU_LANES
        for (int i = 0; i < n; i++) {
            struct ssim_window at = window_at(&s, i);

            term[i] = photo_value(ssim_weight, &at, a[from + i], b[from + i]);
        }
    }
}

static void map_row(const struct photo_args *p, struct work *w, int v, int image, int y)
{
    const struct tensor *map = &p->dst[v];
    float *dst = (float *)map->data + ((size_t)image * (size_t)map->h + (size_t)y) * (size_t)map->w * (size_t)map->stride;
    int c = p->a[v].c;
    float each = 1.0f / (float)c;

    terms(w, p->ssim_weight, y);
    for (int x = 0; x < map->w; x++) {
        const float *term = w->term + (ptrdiff_t)x * c;
        float sum = term[0];

        for (int k = 1; k < c; k++)
            sum += term[k];
        dst[(ptrdiff_t)x * map->stride] = sum * each;
    }
}

/* Finds shard, image and first row of a band, and the thread's memory. */
static int begin_band(const struct photo_args *p, size_t unit, int thread, struct work *w, int *ret_image, int *ret_y)
{
    struct carve c = { p->mem + (size_t)thread * p->bytes_per_thread, 0 };
    int v = 0, bands;

    while (unit >= p->first_band[v + 1])
        v++;
    unit -= p->first_band[v];
    bands = (p->a[v].h + BAND - 1) / BAND;
    *ret_image = (int)unit / bands;
    *ret_y = (int)unit % bands * BAND;
    layout(w, &p->a[v], &c);
    keep(&w->a, &p->a[v], *ret_image);
    keep(&w->b, &p->b[v], *ret_image);
    return v;
}

static void fwd_band(void *arg, size_t unit, int thread)
{
    const struct photo_args *p = arg;
    struct work w;
    int image, y, v = begin_band(p, unit, thread, &w, &image, &y);

    for (int end = y + BAND < p->a[v].h ? y + BAND : p->a[v].h; y < end; y++)
        map_row(p, &w, v, image, y);
}

int cpu_photo_map_fwd(struct device *dev, float ssim_weight, struct tensor *map, const struct tensor *a, const struct tensor *b,
                      int nshards, struct err *err)
{
    struct photo_args p = { .ssim_weight = ssim_weight, .a = a, .b = b, .dst = map, .nshards = nshards };
    int rc = start(&p, dev, err);

    if (rc == 0)
        threads_each(cpu_threads(dev), p.first_band[nshards], fwd_band, &p);
    return rc;
}

/* ---- backward ---- */

/* The gradient of each number's pixel, times `scale`. */
static void spread_grad(float *restrict to, const struct tensor *dmap, int image, int y, int c, float scale)
{
    const float *from = (const float *)dmap->data + ((size_t)image * (size_t)dmap->h + (size_t)y) * (size_t)dmap->w * (size_t)dmap->stride;

    for (int x = 0; x < dmap->w; x++) {
        float g = from[(ptrdiff_t)x * dmap->stride] * scale;

        for (int k = 0; k < c; k++)
            to[(ptrdiff_t)x * c + k] = g;
    }
}

/* Computes the shares of the windows of row y. */
static void share_row(const struct photo_args *p, struct work *w, int v, int image, int y)
{
    int c = p->a[v].c, count = p->a[v].w * c, slot = y % KEPT;
    struct windows s;

    if (w->share_at[slot] == y)
        return;
    w->share_at[slot] = y;
    spread_grad(w->grad, &p->dmap[v], image, y, c, p->ssim_weight / (float)c);
    for (int from = 0; from < count; from += RUN) {
        int n = count - from < RUN ? count - from : RUN;
        float *restrict to[SHARES] = { w->share[slot][0] + from, w->share[slot][1] + from, w->share[slot][2] + from };
        const float *grad = w->grad + from;

        windows(&s, w, y, from, n);
        CPU_LANES
        for (int i = 0; i < n; i++) {
            struct ssim_window at = window_at(&s, i);
            struct ssim_share share = ssim_share(&at, grad[i]);

            to[0][i] = share.a;
            to[1][i] = share.b;
            to[2][i] = share.c;
        }
    }
}

/* Sums over the rows that have row y in their windows. */
static void add_rows(struct work *w, int h, int y, int c, int count)
{
    float times[3];

    for (int d = 0; d < 3; d++)
        times[d] = photo_times(y, y - 1 + d, h);
    for (int k = 0; k < SHARES; k++) {
        const float *above = y > 0 ? w->share[(y - 1) % KEPT][k] : w->zero, *at = w->share[y % KEPT][k];
        const float *below = y + 1 < h ? w->share[(y + 1) % KEPT][k] : w->zero;
        float *restrict to = w->column[k] + c;

        CPU_LANES
        for (int i = 0; i < count; i++)
            to[i] = fmaf(times[2], below[i], fmaf(times[1], at[i], fmaf(times[0], above[i], 0.0f)));
    }
}

/* Number i of row y: sums over the columns that have it in their windows. */
KERNEL_FN float row_slope(const struct work *w, int i, int c, const float times[3], float a, float b)
{
    float sum[SHARES];

    for (int k = 0; k < SHARES; k++) {
        const float *at = w->column[k] + c + i;

        sum[k] = fmaf(times[2], at[c], fmaf(times[1], at[0], fmaf(times[0], at[-c], 0.0f)));
    }
    return photo_slope(sum[0], sum[1], sum[2], a, b, w->grad[i]);
}

static void store_row(const struct photo_args *p, const float *slope, int v, int image, int y)
{
    const struct tensor *t = &p->dst[v];
    float *dst = (float *)t->data + ((size_t)image * (size_t)t->h + (size_t)y) * (size_t)t->w * (size_t)t->stride;

    if (t->stride == t->c) {
        CPU_LANES
        for (int i = 0; i < t->w * t->c; i++)
            dst[i] = act_store(p->beta, &dst[i], slope[i]);
        return;
    }
    for (int x = 0; x < t->w; x++, dst += t->stride)
        for (int k = 0; k < t->c; k++)
            dst[k] = act_store(p->beta, &dst[k], slope[(ptrdiff_t)x * t->c + k]);
}

static void slope_row(const struct photo_args *p, struct work *w, int v, int image, int y)
{
    static const float once[3] = { 1.0f, 1.0f, 1.0f };
    const struct tensor *t = &p->a[v];
    const float *a = kept_row(&w->a, y), *b = kept_row(&w->b, y);
    const int c = t->c, count = t->w * c, edge[] = { 0, 1, t->w - 2, t->w - 1 };
    float *restrict term = w->term;

    spread_grad(w->grad, &p->dmap[v], image, y, c, (1.0f - p->ssim_weight) / (float)c);
    CPU_LANES
    for (int i = 0; i < count; i++)
        term[i] = row_slope(w, i, c, once, a[i], b[i]);
    for (int e = 0; e < 4; e++) {
        float times[3];

        for (int d = 0; d < 3; d++)
            times[d] = photo_times(edge[e], edge[e] - 1 + d, t->w);
        for (int i = edge[e] * c; i < (edge[e] + 1) * c; i++)
            term[i] = row_slope(w, i, c, times, a[i], b[i]);
    }
    store_row(p, term, v, image, y);
}

static void bwd_band(void *arg, size_t unit, int thread)
{
    const struct photo_args *p = arg;
    struct work w;
    int image, y, v = begin_band(p, unit, thread, &w, &image, &y), c = p->a[v].c, count = p->a[v].w * c, h = p->a[v].h;

    for (int i = 0; i < KEPT; i++)
        w.share_at[i] = -1;
    memset(w.zero, 0, (size_t)count * sizeof *w.zero);
    for (int k = 0; k < SHARES; k++)
        for (int i = 0; i < c; i++)
            w.column[k][i] = w.column[k][c + count + i] = 0.0f;
    for (int end = y + BAND < h ? y + BAND : h; y < end; y++) {
        for (int of = y > 0 ? y - 1 : 0; of <= y + 1 && of < h; of++)
            share_row(p, &w, v, image, of);
        add_rows(&w, h, y, c, count);
        slope_row(p, &w, v, image, y);
    }
}

int cpu_photo_map_bwd(struct device *dev, float ssim_weight, struct tensor *da, float beta, const struct tensor *dmap,
                      const struct tensor *a, const struct tensor *b, int nshards, struct err *err)
{
    struct photo_args p = { .ssim_weight = ssim_weight, .beta = beta, .a = a, .b = b, .dmap = dmap, .dst = da, .nshards = nshards };
    int rc = start(&p, dev, err);

    if (rc == 0)
        threads_each(cpu_threads(dev), p.first_band[nshards], bwd_band, &p);
    return rc;
}
