/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/roi.c - RoIAlign. The bands of all boxes are computed first.
 * Forward: a box is a unit, and each of its rows of cells is read once, along channels. Backward: a tile of cells is a
 * unit and takes the share of each box; boxes find the tile in the cache. */
#include "worker/kernels/roi.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/core/carve.h"
#include "worker/core/simd.h"
#include "worker/cpu/rows.h"
#include "worker/cpu/wide.h"

enum {
    TILE = 16,  /* cells of a side: with SLAB channels a quarter of a core's L2 cache */
    SLAB = 256, /* channels of a tile */
    VECS = 8,   /* vectors summed at once */
};

/* The weight of a cell, or a bin. */
struct term {
    int32_t at;
    float w;
};

/* A box's place in the order of the forward pass. Boxes with close cells are neighbours, so that cells are found in the
 * cache. */
struct turn {
    uint64_t where;
    int32_t row;
};

struct roi_args {
    const struct roi_align *roi;
    const struct roi_rows *rows;
    struct roi_table *table; /* [nshards] */
    int nshards;
    /* for forward */
    const struct tensor *const *x;
    struct tensor *y;
    struct turn **turns; /* [nshards][cap] */
    /* for backward */
    struct tensor *const *dx;
    const float *beta;
    const struct tensor *dy;
    size_t *first_unit; /* [nlevels * nshards + 1] */
    /* memory of the threads */
    char *mem;
    size_t bytes_per_thread;
};

/* ---- memory: one piece of scratch ---- */

static int longest(const struct roi_args *a, const struct tensor *const *level, int v, bool width)
{
    int most = 1;

    for (int l = 0; l < a->roi->nlevels; l++)
        if (level[l]) {
            int n = width ? level[l][v].w : level[l][v].h;

            most = n > most ? n : most;
        }
    return most;
}

static void layout_table(struct roi_args *a, const struct tensor *const *level, int v, struct carve *c)
{
    size_t cap = (size_t)a->rows[v].cap, pool = (size_t)a->roi->pool;
    struct roi_table t = { .pool = a->roi->pool };

    t.room[ROI_Y] = roi_room(a->roi, longest(a, level, v, false));
    t.room[ROI_X] = roi_room(a->roi, longest(a, level, v, true));
    t.place = carve(c, cap * sizeof *t.place);
    t.band = carve(c, cap * ROI_AXES * pool * sizeof *t.band);
    t.weight = carve(c, cap * ((size_t)t.room[ROI_Y] + (size_t)t.room[ROI_X]) * sizeof *t.weight);
    if (c->base)
        a->table[v] = t;
}

static void layout(struct roi_args *a, const struct tensor *const *level, struct carve *c, int threads)
{
    size_t terms = (size_t)TILE * (size_t)a->roi->pool;

    a->table = carve(c, (size_t)a->nshards * sizeof *a->table);
    a->turns = carve(c, (size_t)a->nshards * sizeof(*a->turns));
    a->first_unit = carve(c, ((size_t)a->roi->nlevels * (size_t)a->nshards + 1) * sizeof *a->first_unit);
    for (int v = 0; v < a->nshards; v++) {
        size_t room = (size_t)roi_room(a->roi, longest(a, level, v, true));
        struct turn *turns = carve(c, (size_t)a->rows[v].cap * sizeof *turns);

        if (c->base)
            a->turns[v] = turns;
        layout_table(a, level, v, c);
        terms = room > terms ? room : terms;
    }
    a->bytes_per_thread =
        (size_t)a->roi->pool * SLAB * sizeof(float) + (terms * sizeof(struct term) + CARVE_ALIGN - 1) / CARVE_ALIGN * CARVE_ALIGN;
    a->mem = carve(c, (size_t)threads * a->bytes_per_thread);
}

/* ---- bands ---- */

/* The box's bands along one axis. Returns false if it covers no cell. */
static bool place_axis(const struct roi_args *a, int v, int row, int axis, float scale, int cells)
{
    const struct roi_table *t = &a->table[v];
    const float *box = a->rows[v].box + (size_t)row * 4;
    struct roi_axis along = roi_axis(a->roi, box[axis == ROI_X ? 0 : 1], box[axis == ROI_X ? 2 : 3], scale, cells);
    struct roi_band *band = roi_bands(t, row, axis);
    int from = cells, to = 0;

    for (int p = 0; p < a->roi->pool; p++) {
        band[p] = roi_band(a->roi, &along, p, roi_weights(t, row, axis));
        if (band[p].first == band[p].end)
            continue;
        from = band[p].first < from ? band[p].first : from;
        to = band[p].end > to ? band[p].end : to;
    }
    t->place[row].from[axis] = from;
    t->place[row].to[axis] = to;
    return from < to;
}

static void place_row(const struct roi_args *a, const struct tensor *const *level, int v, int row)
{
    struct roi_place *at = &a->table[v].place[row];
    int l = roi_level(a->roi, a->rows[v].box + (size_t)row * 4);
    const struct tensor *t = level[l] ? &level[l][v] : NULL;

    *at = (struct roi_place){ .level = -1, .image = roi_image(&a->rows[v], t ? t->n : 1, row) };
    if (!t || at->image < 0 || at->image >= t->n)
        return;
    if (place_axis(a, v, row, ROI_Y, a->roi->scale[l], t->h) && place_axis(a, v, row, ROI_X, a->roi->scale[l], t->w))
        at->level = l;
}

struct place_args {
    const struct roi_args *a;
    const struct tensor *const *level;
};

static int count_of(const struct roi_rows *r)
{
    int n = r->count ? *r->count : r->cap;

    return n < 0 ? 0 : n < r->cap ? n : r->cap;
}

static size_t place_units(const void *arg, int v)
{
    const struct place_args *p = arg;

    return (size_t)count_of(&p->a->rows[v]);
}

static void place_part(const void *arg, int v, size_t from, size_t to)
{
    const struct place_args *p = arg;

    for (size_t r = from; r < to; r++)
        place_row(p->a, p->level, v, (int)r);
}

/* Allocates memory and places the rows. */
static int start(struct roi_args *a, struct device *dev, const struct tensor *const *level, struct err *err)
{
    struct place_args p = { a, level };
    int threads = threads_count(cpu_threads(dev));
    struct carve c = { NULL, 0 };

    assert(a->roi->nlevels >= 1 && a->roi->nlevels <= ROI_MAX_LEVELS && a->roi->pool >= 1 && a->roi->pool <= ROI_MAX_POOL);
    layout(a, level, &c, threads);
    c.base = cpu_scratch(dev, c.used, err);
    if (!c.base)
        return -ENOMEM;
    c.used = 0;
    layout(a, level, &c, threads);
    cpu_over_shards(dev, &(struct shard_work){ a->nshards, place_units, place_part, &p });
    return 0;
}

/* ---- forward ---- */

/* Order: level, image, then tiles row by row. Rows without cells come first. */
static uint64_t where(const struct roi_place *p)
{
    if (p->level < 0)
        return 0;
    return (uint64_t)(p->level + 1) << 60 | (uint64_t)(p->image & 0xFFFFF) << 40 | (uint64_t)(p->from[ROI_Y] / TILE & 0xFFFFF) << 20 |
           (uint64_t)(p->from[ROI_X] / TILE & 0xFFFFF);
}

/* Shell sort, in place. Equal elements may come in any order. */
static void sort_turns(struct turn *t, int n)
{
    int gap = 1;

    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int i = gap; i < n; i++) {
            struct turn own = t[i];
            int j = i;

            for (; j >= gap && t[j - gap].where > own.where; j -= gap)
                t[j] = t[j - gap];
            t[j] = own;
        }
}

static void take_turns(struct roi_args *a, int v)
{
    int n = count_of(&a->rows[v]);

    for (int r = 0; r < n; r++)
        a->turns[v][r] = (struct turn){ where(&a->table[v].place[r]), r };
    sort_turns(a->turns[v], n);
}

/* The rows of bins that read one row of cells. */
struct seen_by {
    int n;
    int p[ROI_MAX_POOL];
    float w[ROI_MAX_POOL];
};

static void seen_by(struct seen_by *ret, const struct roi_view *view, int pool, int i)
{
    ret->n = 0;
    for (int p = 0; p < pool; p++) {
        float w = roi_weight(&view->band[ROI_Y][p], view->weight[ROI_Y], i);

        if (w != 0.0f) {
            ret->p[ret->n] = p;
            ret->w[ret->n++] = w;
        }
    }
}

/* A box during the loop over its rows of cells. */
struct fwd_box {
    int pool, x_stride, y_stride;
    struct term *term; /* of bin q's columns: first[q] .. first[q + 1] */
    int first[ROI_MAX_POOL + 1];
    bool begun[ROI_MAX_POOL]; /* rows of bins with a first value */
    float *y;
};

static void fwd_columns(struct fwd_box *b, const struct roi_view *view)
{
    int n = 0;

    for (int q = 0; q < b->pool; q++) {
        const struct roi_band *band = &view->band[ROI_X][q];

        b->first[q] = n;
        for (int j = band->first; j < band->end; j++) {
            float w = roi_weight(band, view->weight[ROI_X], j);

            if (w != 0.0f)
                b->term[n++] = (struct term){ j, w };
        }
    }
    b->first[b->pool] = n;
}

/* Adds `vecs` vectors of channels to the bins (p, q), for all p that read the row of cells x. `lanes`: of the last
 * vector. */
SIMD_FN void fwd_vecs(const struct fwd_box *b, const struct seen_by *rows, int q, const float *x, float *y, int vecs, int lanes)
{
    vec part[VECS];

    for (int i = 0; i < vecs; i++)
        part[i] = vset1(0.0f);
    for (int t = b->first[q]; t < b->first[q + 1]; t++) {
        const float *src = x + (ptrdiff_t)b->term[t].at * b->x_stride;
        vec w = vset1(b->term[t].w);

        for (int i = 0; i < vecs; i++)
            part[i] = vfma(w, lanes == VW ? vload(src + i * VW) : vload_n(src, lanes), part[i]);
    }
    for (int m = 0; m < rows->n; m++) {
        float *dst = y + ((ptrdiff_t)rows->p[m] * b->pool + q) * b->y_stride;
        vec w = vset1(rows->w[m]);

        for (int i = 0; i < vecs; i++) {
            vec sum = !b->begun[rows->p[m]] ? vset1(0.0f) : lanes == VW ? vload(dst + i * VW) : vload_n(dst, lanes);

            sum = vfma(w, part[i], sum);
            if (lanes == VW)
                vstore(dst + i * VW, sum);
            else
                vstore_n(dst, sum, lanes);
        }
    }
}

/* Adds a row of cells. */
static void fwd_line(struct fwd_box *b, const struct seen_by *rows, const float *x, int c)
{
    for (int q = 0; q < b->pool; q++) {
        int k = 0;

        for (; k + VECS * VW <= c; k += VECS * VW)
            fwd_vecs(b, rows, q, x + k, b->y + k, VECS, VW);
        for (; k + VW <= c; k += VW)
            fwd_vecs(b, rows, q, x + k, b->y + k, 1, VW);
        if (k < c)
            fwd_vecs(b, rows, q, x + k, b->y + k, 1, c - k);
    }
    for (int m = 0; m < rows->n; m++)
        b->begun[rows->p[m]] = true;
}

static void zero_pixels(float *y, int pixels, int stride, int c)
{
    for (int i = 0; i < pixels; i++)
        memset(y + (ptrdiff_t)i * stride, 0, (size_t)c * sizeof *y);
}

static void fwd_row(const struct roi_args *a, int v, int row, void *mem)
{
    const struct roi_place *at = &a->table[v].place[row];
    const struct tensor *x = &a->x[at->level][v], *y = &a->y[v];
    struct roi_view view = roi_view(&a->table[v], row);
    int pool = a->roi->pool;
    struct fwd_box b = { .pool = pool, .x_stride = x->stride, .y_stride = y->stride, .term = mem };
    struct seen_by rows;

    b.y = (float *)y->data + (size_t)row * (size_t)(pool * pool) * (size_t)y->stride;
    fwd_columns(&b, &view);
    for (int i = at->from[ROI_Y]; i < at->to[ROI_Y]; i++) {
        seen_by(&rows, &view, pool, i);
        if (rows.n > 0)
            fwd_line(&b, &rows, (const float *)x->data + ((size_t)at->image * (size_t)x->h + (size_t)i) * (size_t)x->w * (size_t)x->stride,
                     x->c);
    }
    for (int p = 0; p < pool; p++)
        if (!b.begun[p])
            zero_pixels(b.y + (ptrdiff_t)p * pool * y->stride, pool, y->stride, y->c);
}

static void fwd_unit(void *arg, size_t unit, int thread)
{
    const struct roi_args *a = arg;
    int pixels = a->roi->pool * a->roi->pool, v = 0, row;

    for (; unit >= (size_t)a->rows[v].cap; v++)
        unit -= (size_t)a->rows[v].cap;
    row = (int)unit < count_of(&a->rows[v]) ? a->turns[v][unit].row : -1;
    if (row >= 0 && a->table[v].place[row].level >= 0)
        fwd_row(a, v, row, a->mem + (size_t)thread * a->bytes_per_thread);
    else
        zero_pixels((float *)a->y[v].data + (row >= 0 ? (size_t)row : unit) * (size_t)pixels * (size_t)a->y[v].stride, pixels,
                    a->y[v].stride, a->y[v].c);
}

static int align_fwd(struct device *dev, const struct roi_align *roi, struct tensor *y, const struct tensor *const *x,
                     const struct roi_rows *rows, int nshards, struct err *err)
{
    struct roi_args a = { .roi = roi, .rows = rows, .nshards = nshards, .x = x, .y = y };
    size_t units = 0;
    int rc = start(&a, dev, x, err);

    if (rc < 0)
        return rc;
    for (int v = 0; v < nshards; v++) {
        take_turns(&a, v);
        units += (size_t)rows[v].cap;
    }
    threads_each(cpu_threads(dev), units, fwd_unit, &a);
    return 0;
}

/* Levels in bf16. beta: not NULL if levels are written. */
static void wide_levels(struct wide *w, const struct tensor *const *x, int nlevels, const float *beta)
{
    for (int l = 0; l < nlevels; l++)
        w[l] = (struct wide){ .of = x[l], .each = sizeof **x, .read = !beta || beta[l] != 0.0f };
}

int cpu_roi_align_fwd(struct device *dev, const struct roi_align *roi, struct tensor *y, const struct tensor *const *x,
                      const struct roi_rows *rows, int nshards, struct err *err)
{
    struct wide w[1 + ROI_MAX_LEVELS] = { { y, sizeof *y, false, NULL } };
    const struct tensor *levels[ROI_MAX_LEVELS];
    int rc;

    if (y[0].dtype != DTYPE_BF16)
        return align_fwd(dev, roi, y, x, rows, nshards, err);
    wide_levels(w + 1, x, roi->nlevels, NULL);
    rc = cpu_widen(dev, w, 1 + roi->nlevels, nshards, err);
    for (int l = 0; l < roi->nlevels; l++)
        levels[l] = w[1 + l].as;
    if (rc >= 0)
        rc = align_fwd(dev, roi, w[0].as, levels, rows, nshards, err);
    if (rc >= 0)
        cpu_narrow(dev, w, nshards);
    return rc;
}

/* ---- backward ---- */

/* Cells [y, y_end) x [x, x_end) of an image of a level, channels from k on. */
struct tile {
    int level, image, y, y_end, x, x_end, k, c;
    float *dx; /* channel k of cell (0, 0) */
    int w, stride;
};

/* The part of a box in a tile. */
struct bwd_box {
    int pool, dy_stride, x, x_end; /* columns of cells */
    const float *dy;               /* channel k of bin (0, 0) */
    struct term *term;             /* for column j: bins first[j - x] .. first[j - x + 1] */
    int first[TILE + 1];
    bool used[ROI_MAX_POOL]; /* columns of bins */
    float *sum;              /* [pool][SLAB]: sums for a row of cells */
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int most(int a, int b)
{
    return a > b ? a : b;
}

static void bwd_columns(struct bwd_box *b, const struct roi_view *view)
{
    int n = 0;

    memset(b->used, 0, sizeof b->used);
    for (int j = b->x; j < b->x_end; j++) {
        b->first[j - b->x] = n;
        for (int q = 0; q < b->pool; q++) {
            float w = roi_weight(&view->band[ROI_X][q], view->weight[ROI_X], j);

            if (w == 0.0f)
                continue;
            b->term[n++] = (struct term){ q * SLAB, w };
            b->used[q] = true;
        }
    }
    b->first[b->x_end - b->x] = n;
}

/* Sums the bins of column q that read a row of cells. */
SIMD_FN void bwd_sum(const struct bwd_box *b, const struct seen_by *rows, int q, int k, int vecs, int lanes)
{
    vec sum[VECS];

    for (int i = 0; i < vecs; i++)
        sum[i] = vset1(0.0f);
    for (int m = 0; m < rows->n; m++) {
        const float *dy = b->dy + ((ptrdiff_t)rows->p[m] * b->pool + q) * b->dy_stride + k;
        vec w = vset1(rows->w[m]);

        for (int i = 0; i < vecs; i++)
            sum[i] = vfma(w, lanes == VW ? vload(dy + i * VW) : vload_n(dy, lanes), sum[i]);
    }
    for (int i = 0; i < vecs; i++) /* numbers past the last channel are not used */
        vstore(b->sum + q * SLAB + k + i * VW, sum[i]);
}

/* Adds the columns of bins that read a cell to it. */
SIMD_FN void bwd_add(const struct bwd_box *b, int column, float *dx, int k, int vecs, int lanes)
{
    vec sum[VECS];

    for (int i = 0; i < vecs; i++)
        sum[i] = lanes == VW ? vload(dx + k + i * VW) : vload_n(dx + k, lanes);
    for (int t = b->first[column]; t < b->first[column + 1]; t++) {
        const float *src = b->sum + b->term[t].at + k;
        vec w = vset1(b->term[t].w);

        for (int i = 0; i < vecs; i++)
            sum[i] = vfma(w, vload(src + i * VW), sum[i]);
    }
    for (int i = 0; i < vecs; i++)
        if (lanes == VW)
            vstore(dx + k + i * VW, sum[i]);
        else
            vstore_n(dx + k, sum[i], lanes);
}

static void bwd_sums(const struct bwd_box *b, const struct seen_by *rows, int q, int c)
{
    int k = 0;

    for (; k + VECS * VW <= c; k += VECS * VW)
        bwd_sum(b, rows, q, k, VECS, VW);
    for (; k + VW <= c; k += VW)
        bwd_sum(b, rows, q, k, 1, VW);
    if (k < c)
        bwd_sum(b, rows, q, k, 1, c - k);
}

static void bwd_cell(const struct bwd_box *b, int column, float *dx, int c)
{
    int k = 0;

    for (; k + VECS * VW <= c; k += VECS * VW)
        bwd_add(b, column, dx, k, VECS, VW);
    for (; k + VW <= c; k += VW)
        bwd_add(b, column, dx, k, 1, VW);
    if (k < c)
        bwd_add(b, column, dx, k, 1, c - k);
}

static void bwd_row(const struct roi_args *a, const struct tile *t, int v, int row, char *mem)
{
    const struct roi_place *at = &a->table[v].place[row];
    const struct tensor *dy = &a->dy[v];
    struct roi_view view = roi_view(&a->table[v], row);
    int pool = a->roi->pool;
    struct bwd_box b = { .pool = pool, .dy_stride = dy->stride };
    struct seen_by rows;

    b.sum = (float *)(void *)mem;
    b.term = (struct term *)(void *)(mem + (size_t)pool * SLAB * sizeof(float));
    b.dy = (const float *)dy->data + (size_t)row * (size_t)(pool * pool) * (size_t)dy->stride + t->k;
    b.x = most(t->x, at->from[ROI_X]);
    b.x_end = least(t->x_end, at->to[ROI_X]);
    bwd_columns(&b, &view);
    for (int i = most(t->y, at->from[ROI_Y]); i < least(t->y_end, at->to[ROI_Y]); i++) {
        seen_by(&rows, &view, pool, i);
        if (rows.n == 0)
            continue;
        for (int q = 0; q < pool; q++)
            if (b.used[q])
                bwd_sums(&b, &rows, q, t->c);
        for (int j = b.x; j < b.x_end; j++)
            if (b.first[j - b.x] < b.first[j - b.x + 1])
                bwd_cell(&b, j - b.x, t->dx + ((ptrdiff_t)i * t->w + j) * t->stride, t->c);
    }
}

/* Initial value of a cell, before the first box. */
static void begin_cell(float *dx, float beta, int c)
{
    if (beta == 0.0f) {
        memset(dx, 0, (size_t)c * sizeof *dx);
        return;
    }
    CPU_LANES
    for (int k = 0; k < c; k++)
        dx[k] *= beta;
}

static void begin_tile(const struct tile *t, float beta)
{
    for (int i = t->y; i < t->y_end && beta != 1.0f; i++)
        for (int j = t->x; j < t->x_end; j++)
            begin_cell(t->dx + ((ptrdiff_t)i * t->w + j) * t->stride, beta, t->c);
}

static int pieces(int n, int of)
{
    return (n + of - 1) / of;
}

static size_t tiles(const struct tensor *t)
{
    return (size_t)t->n * (size_t)pieces(t->h, TILE) * (size_t)pieces(t->w, TILE) * (size_t)pieces(t->c, SLAB);
}

static struct tile tile_of(const struct tensor *t, int level, size_t unit)
{
    size_t slabs = (size_t)pieces(t->c, SLAB), across = (size_t)pieces(t->w, TILE), down = (size_t)pieces(t->h, TILE);
    struct tile r = { .level = level, .w = t->w, .stride = t->stride };

    r.k = (int)(unit % slabs) * SLAB;
    r.x = (int)(unit / slabs % across) * TILE;
    r.y = (int)(unit / slabs / across % down) * TILE;
    r.image = (int)(unit / slabs / across / down);
    r.c = least(t->c - r.k, SLAB);
    r.x_end = least(t->w, r.x + TILE);
    r.y_end = least(t->h, r.y + TILE);
    r.dx = (float *)t->data + (size_t)r.image * (size_t)t->h * (size_t)t->w * (size_t)t->stride + r.k;
    return r;
}

static void bwd_unit(void *arg, size_t unit, int thread)
{
    const struct roi_args *a = arg;
    int set = 0, level, v;
    struct tile t;

    while (unit >= a->first_unit[set + 1])
        set++;
    level = a->roi->nlevels - 1 - set / a->nshards;
    v = set % a->nshards;
    t = tile_of(&a->dx[level][v], level, unit - a->first_unit[set]);
    begin_tile(&t, a->beta[level]);
    for (int r = 0; r < count_of(&a->rows[v]); r++)
        if (roi_touches(&a->table[v].place[r], level, t.image, t.y, t.y_end, t.x, t.x_end))
            bwd_row(a, &t, v, r, a->mem + (size_t)thread * a->bytes_per_thread);
}

static int align_bwd(struct device *dev, const struct roi_align *roi, struct tensor *const *dx, const float *beta, const struct tensor *dy,
                     const struct roi_rows *rows, int nshards, struct err *err)
{
    struct roi_args a = { .roi = roi, .rows = rows, .nshards = nshards, .dx = dx, .beta = beta, .dy = dy };
    size_t units = 0;
    int rc = start(&a, dev, (const struct tensor *const *)dx, err), set = 0;

    if (rc < 0)
        return rc;
    for (int l = roi->nlevels - 1; l >= 0; l--) /* first levels with few tiles and much work */
        for (int v = 0; v < nshards; v++) {
            a.first_unit[set++] = units;
            units += dx[l] ? tiles(&dx[l][v]) : 0;
        }
    a.first_unit[set] = units;
    threads_each(cpu_threads(dev), units, bwd_unit, &a);
    return 0;
}

int cpu_roi_align_bwd(struct device *dev, const struct roi_align *roi, struct tensor *const *dx, const float *beta, const struct tensor *dy,
                      const struct roi_rows *rows, int nshards, struct err *err)
{
    struct wide w[1 + ROI_MAX_LEVELS] = { { dy, sizeof *dy, true, NULL } };
    struct tensor *levels[ROI_MAX_LEVELS];
    int rc;

    if (dy[0].dtype != DTYPE_BF16)
        return align_bwd(dev, roi, dx, beta, dy, rows, nshards, err);
    wide_levels(w + 1, (const struct tensor *const *)dx, roi->nlevels, beta);
    rc = cpu_widen(dev, w, 1 + roi->nlevels, nshards, err);
    for (int l = 0; l < roi->nlevels; l++)
        levels[l] = w[1 + l].as;
    if (rc >= 0)
        rc = align_bwd(dev, roi, levels, beta, w[0].as, rows, nshards, err);
    for (int l = 0; l < roi->nlevels && rc >= 0; l++)
        cpu_narrow(dev, &w[1 + l], nshards);
    return rc;
}
