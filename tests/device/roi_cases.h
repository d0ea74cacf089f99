/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/roi_cases.h - calls of RoIAlign on every device, and the
 * results of the scalar bodies of kernels/roi.h. */
#pragma once
#include "tests/device/bf16.h"

#include "worker/kernels/roi.h"

enum { CASE_SHARDS = 20, CASE_ROWS = 1024 };

/* A call forward and a call back. Level l of shard v has n[v] images of h[v] >> l by w[v] >> l cells, at least 1. */
struct roi_case {
    struct roi_align roi;
    int nshards, c;
    int n[CASE_SHARDS], h[CASE_SHARDS], w[CASE_SHARDS];
    int cap, count[CASE_SHARDS];
    const float (*box)[4]; /* [cap], the same in each shard */
    const int32_t *image;  /* [cap] */
    const int *turn;       /* [cap]: which of them, and of the numbers that come back, row i has; NULL: i */
    bool shares;           /* all rows are in use, and images own equal shares: the op gets neither images nor counts */
    bool slice;            /* tensors have gaps */
    unsigned unwanted;     /* levels with an unwanted gradient, as bits */
    float beta[ROI_MAX_LEVELS];
    enum dtype dtype;
    const float *x, *dy; /* of shard 0 in level 0; NULL: drawn */
};

static inline struct roi_align roi_like(int nlevels, int pool, int sampling, bool aligned)
{
    struct roi_align r = { .nlevels = nlevels,
                           .levels = aligned ? ROI_LEVELS_D2 : ROI_LEVELS_TV,
                           .first_level = 2,
                           .canonical_level = 4,
                           .canonical_side = 224,
                           .pool = pool,
                           .sampling = sampling,
                           .aligned = aligned };

    for (int l = 0; l < nlevels; l++)
        r.scale[l] = 0.25f / (float)(1 << l);
    return r;
}

static inline int row_of(const struct roi_case *t, int i)
{
    return t->turn ? t->turn[i] : i;
}

static inline struct tensor map_of(const struct roi_case *t, int level, int v)
{
    int h = t->h[v] >> level, w = t->w[v] >> level;

    return (struct tensor){ NULL, t->n[v], h > 0 ? h : 1, w > 0 ? w : 1, t->c, t->slice ? t->c + 3 : t->c, DTYPE_F32, NULL };
}

static inline struct tensor bins_of(const struct roi_case *t)
{
    return (struct tensor){ NULL, t->cap, t->roi.pool, t->roi.pool, t->c, t->slice ? t->c + 1 : t->c, DTYPE_F32, NULL };
}

static inline size_t numbers_in(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->stride;
}

/* Results: y of each shard, then dx of each level of each shard. */
static inline size_t results_of(const struct roi_case *t)
{
    struct tensor y = bins_of(t);
    size_t n = numbers_in(&y) * (size_t)t->nshards;

    for (int l = 0; l < t->roi.nlevels; l++)
        for (int v = 0; v < t->nshards; v++) {
            struct tensor x = map_of(t, l, v);

            n += numbers_in(&x);
        }
    return n;
}

/* The input numbers; the caller frees. */
static inline float *map_numbers(const struct roi_case *t, int level, int v)
{
    struct tensor x = map_of(t, level, v);
    float *host = numbers_of(t->dtype, numbers_in(&x), 100 * (uint64_t)v + (uint64_t)level, -2.0f, 2.0f);

    if (t->x)
        memcpy(host, t->x, numbers_in(&x) * sizeof *host);
    return host;
}

static inline float *old_numbers(const struct roi_case *t, int level, int v)
{
    struct tensor x = map_of(t, level, v);

    return numbers_of(t->dtype, numbers_in(&x), 5000 + 100 * (uint64_t)v + (uint64_t)level, -2.0f, 2.0f);
}

static inline float *bin_numbers(const struct roi_case *t, int v)
{
    struct tensor y = bins_of(t);
    size_t n = numbers_in(&y), each = n / (size_t)t->cap;
    float *drawn = numbers_of(t->dtype, n, 9000 + (uint64_t)v, -2.0f, 2.0f), *host = malloc(n * sizeof *host);

    assert_non_null(host);
    for (int i = 0; i < t->cap; i++)
        memcpy(host + (size_t)i * each, (t->dy ? t->dy : drawn) + (size_t)row_of(t, i) * each, each * sizeof *host);
    free(drawn);
    return host;
}

static inline struct roi_rows put_rows(struct device *dev, const struct roi_case *t, int v)
{
    float box[CASE_ROWS][4];
    int32_t image[CASE_ROWS], count = t->count[v];

    assert_true(t->cap <= CASE_ROWS);
    for (int i = 0; i < t->cap; i++) {
        memcpy(box[i], t->box[row_of(t, i)], sizeof box[i]);
        image[i] = t->image[row_of(t, i)];
    }
    return (struct roi_rows){ put(dev, box, (size_t)t->cap * sizeof *box),
                              t->shares ? NULL : put(dev, image, (size_t)t->cap * sizeof *image),
                              t->shares ? NULL : put(dev, &count, sizeof count), t->cap };
}

static inline void set_numbers(struct device *dev, struct tensor *t, float *host, enum dtype dtype)
{
    t->data = put_numbers(dev, host, numbers_in(t), dtype);
    t->dtype = held_as(dev, dtype);
    free(host);
}

/* For same_on_all(). */
static inline void run_case(struct device *dev, const void *arg, void *ret)
{
    static struct tensor x[ROI_MAX_LEVELS][CASE_SHARDS], dx[ROI_MAX_LEVELS][CASE_SHARDS];
    const struct tensor *in[ROI_MAX_LEVELS];
    struct tensor *back[ROI_MAX_LEVELS], y[CASE_SHARDS], dy[CASE_SHARDS];
    struct roi_rows rows[CASE_SHARDS];
    const struct roi_case *t = arg;
    float *out = ret;
    struct err err;

    for (int v = 0; v < t->nshards; v++) {
        y[v] = dy[v] = bins_of(t);
        set_numbers(dev, &y[v], bin_numbers(t, v), t->dtype); /* gaps keep this */
        set_numbers(dev, &dy[v], bin_numbers(t, v), t->dtype);
        rows[v] = put_rows(dev, t, v);
    }
    for (int l = 0; l < t->roi.nlevels; l++) {
        for (int v = 0; v < t->nshards; v++) {
            x[l][v] = dx[l][v] = map_of(t, l, v);
            set_numbers(dev, &x[l][v], map_numbers(t, l, v), t->dtype);
            set_numbers(dev, &dx[l][v], old_numbers(t, l, v), t->dtype);
        }
        in[l] = x[l];
        back[l] = t->unwanted >> l & 1u ? NULL : dx[l];
    }
    if (dev->on->roi->align_fwd(dev, &t->roi, y, in, rows, t->nshards, &err) < 0 ||
        dev->on->roi->align_bwd(dev, &t->roi, back, t->beta, dy, rows, t->nshards, &err) < 0)
        fail_msg("%s: %s", dev->ops->name, err.msg);
    for (int v = 0; v < t->nshards; out += numbers_in(&y[v++]))
        get_numbers(dev, out, y[v].data, numbers_in(&y[v]), t->dtype);
    for (int l = 0; l < t->roi.nlevels; l++)
        for (int v = 0; v < t->nshards; out += numbers_in(&dx[l][v++]))
            get_numbers(dev, out, dx[l][v].data, numbers_in(&dx[l][v]), t->dtype);
}

/* ---- results of the scalar bodies ---- */

/* The bands of a shard's rows, made here. */
static inline void table_new(struct roi_table *ret, const struct roi_case *t, int v)
{
    size_t cap = (size_t)t->cap, pool = (size_t)t->roi.pool;
    struct tensor widest = map_of(t, 0, v);

    ret->pool = t->roi.pool;
    ret->room[ROI_Y] = roi_room(&t->roi, widest.h);
    ret->room[ROI_X] = roi_room(&t->roi, widest.w);
    ret->place = calloc(cap, sizeof *ret->place);
    ret->band = calloc(cap * ROI_AXES * pool, sizeof *ret->band);
    ret->weight = calloc(cap * (size_t)(ret->room[ROI_Y] + ret->room[ROI_X]), sizeof *ret->weight);
    assert_true(ret->place && ret->band && ret->weight);
    for (int i = 0; i < t->cap; i++) {
        const float *box = t->box[row_of(t, i)];
        int level = roi_level(&t->roi, box), image = t->image[row_of(t, i)];
        struct tensor map = map_of(t, level, v);

        ret->place[i] = (struct roi_place){ .level = i < t->count[v] && image >= 0 && image < map.n ? level : -1, .image = image };
        for (int axis = 0; axis < ROI_AXES && ret->place[i].level >= 0; axis++) {
            int first = axis == ROI_X ? 0 : 1;
            struct roi_axis a = roi_axis(&t->roi, box[first], box[first + 2], t->roi.scale[level], axis == ROI_X ? map.w : map.h);

            for (int p = 0; p < t->roi.pool; p++)
                roi_bands(ret, i, axis)[p] = roi_band(&t->roi, &a, p, roi_weights(ret, i, axis));
        }
    }
}

static inline void table_free(struct roi_table *t)
{
    free(t->place);
    free(t->band);
    free(t->weight);
}

static inline void same(float got, float want, const struct roi_case *t, const char *what, size_t i)
{
    want = stored(want, t->dtype);
    if (memcmp(&got, &want, sizeof got) != 0 && !(got != got && want != want))
        fail_msg("%s[%zu] is %.9g, by the scalar body %.9g (pool %d, sampling %d, %s)", what, i, (double)got, (double)want, t->roi.pool,
                 t->roi.sampling, t->roi.aligned ? "aligned" : "not aligned");
}

static inline void check_y(const struct roi_case *t, const struct roi_table *table, int v, const float *y)
{
    struct tensor shape = bins_of(t);
    float *x[ROI_MAX_LEVELS], *old = bin_numbers(t, v);

    for (int l = 0; l < t->roi.nlevels; l++)
        x[l] = map_numbers(t, l, v);
    for (size_t e = 0; e < numbers_in(&shape); e++) {
        int k = (int)(e % (size_t)shape.stride), bin = (int)(e / (size_t)shape.stride), row = bin / (t->roi.pool * t->roi.pool);
        const struct roi_place *at = &table->place[row];
        struct roi_view view = roi_view(table, row);
        float want = 0.0f;

        if (at->level >= 0 && k < t->c) {
            struct tensor map = map_of(t, at->level, v);
            const float *image = x[at->level] + (size_t)at->image * (size_t)(map.h * map.w * map.stride);

            want = roi_value(&view, bin / t->roi.pool % t->roi.pool, bin % t->roi.pool, image + k, map.w, map.stride);
        }
        same(y[e], k < t->c ? want : old[e], t, "y", e);
    }
    for (int l = 0; l < t->roi.nlevels; l++)
        free(x[l]);
    free(old);
}

static inline void check_dx(const struct roi_case *t, const struct roi_table *table, int level, int v, const float *dx)
{
    struct tensor shape = map_of(t, level, v), bins = bins_of(t);
    float *old = old_numbers(t, level, v), *dy = bin_numbers(t, v);

    for (size_t e = 0; e < numbers_in(&shape); e++) {
        int k = (int)(e % (size_t)shape.stride), cell = (int)(e / (size_t)shape.stride), j = cell % shape.w, i = cell / shape.w % shape.h;
        float want = t->beta[level] != 0.0f ? t->beta[level] * old[e] : 0.0f;

        for (int row = 0; row < t->cap && k < t->c; row++) {
            struct roi_view view = roi_view(table, row);

            if (table->place[row].level == level && table->place[row].image == cell / shape.w / shape.h)
                want = roi_gradient(&view, t->roi.pool, i, j, dy + (size_t)(row * bins.h * bins.w * bins.stride + k), bins.stride, want);
        }
        same(dx[e], k < t->c && !(t->unwanted >> level & 1u) ? want : old[e], t, "dx", e);
    }
    free(old);
    free(dy);
}

/* Runs it on all devices; all have the bits of the bodies. Returns the results; caller frees. */
static inline float *results(const struct roi_case *t)
{
    float *out = malloc(results_of(t) * sizeof *out);

    assert_non_null(out);
    same_on_all(run_case, t, out, results_of(t) * sizeof *out);
    return out;
}

static inline void check_case(const struct roi_case *t)
{
    float *out = results(t), *at = out;
    struct roi_table table[CASE_SHARDS];

    for (int v = 0; v < t->nshards; v++) {
        struct tensor y = bins_of(t);

        table_new(&table[v], t, v);
        check_y(t, &table[v], v, at);
        at += numbers_in(&y);
    }
    for (int l = 0; l < t->roi.nlevels; l++)
        for (int v = 0; v < t->nshards; v++) {
            struct tensor x = map_of(t, l, v);

            check_dx(t, &table[v], l, v, at);
            at += numbers_in(&x);
        }
    for (int v = 0; v < t->nshards; v++)
        table_free(&table[v]);
    free(out);
}
