/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/pool.c - maximum pooling. Loops run along channels; windows of 2
 * x 2 with stride 2 have passes of their own. */
#include "worker/kernels/pool.h"

#include <stddef.h>

#include "worker/cpu/elem.h"
#include "worker/cpu/pool4.h"
#include "worker/cpu/rows.h"
#include "worker/cpu/wide.h"

enum { BLOCK = 64 }; /* channels with winners kept during a window */

struct maxpool_args {
    const struct pooling *p;
    float beta;
    struct tensor *dst; /* y, or dx */
    const struct operand *x;
    const struct tensor *dy;
};

SIMD_FN void *pixel(const struct tensor *t, int image, int y, int x, bool half)
{
    return elem_row(t, ((size_t)image * (size_t)t->h + (size_t)y) * (size_t)t->w + (size_t)x, half);
}

SIMD_FN vec read_channels(const struct affine *p, bool pending, const void *x, int k, int n, bool half)
{
    vec v = elem_load_n(x, k, n, half);

    return pending ? vact(vfma(v, vload_n(p->scale + k, n), vload_n(p->shift + k, n)), vload_n(p->slope + k, n)) : v;
}

KERNEL_FN bool is_two_by_two(const struct pooling *p)
{
    return p->size == 2 && p->stride == 2; /* pad_total is 0 or 1: no padding on the left */
}

/* ---- forward ---- */

/* The maxima of a window, for n channels from k on. ret_win may be NULL; it gives the pixels from the window's first
 * one to the first maximum. A float is exact enough: windows have at most 64 rows, and rows thousands of pixels. */
SIMD_FN vec window_best(const struct operand *x, int image, struct maxpool_range ry, struct maxpool_range rx, int k, int n, bool pending,
                        bool half, vec *ret_win)
{
    const struct tensor *t = &x->x;
    vec best = read_channels(&x->act, pending, pixel(t, image, ry.from, rx.from, half), k, n, half);
    vec win = vset1(0.0f);

    for (int i = ry.from; i < ry.to; i++)
        for (int j = rx.from; j < rx.to; j++) { /* the first pixel is compared twice, which changes nothing */
            vec v = read_channels(&x->act, pending, pixel(t, image, i, j, half), k, n, half), more = vsub(v, best);

            best = vpick(more, v, best);
            win = vpick(more, vset1((float)((i - ry.from) * t->w + j - rx.from)), win);
        }
    if (ret_win)
        *ret_win = win;
    return best;
}

/* Among values that are stored alike, either may be taken. */
SIMD_FN void fwd_window(void *y, const struct operand *x, int image, struct maxpool_range ry, struct maxpool_range rx, bool pending,
                        bool half)
{
    for (int k = 0; k < x->x.c; k += VW) {
        const int n = vlanes(x->x.c, k);

        elem_store_n(y, k, window_best(x, image, ry, rx, k, n, pending, half, NULL), n, half);
    }
}

/* The first outputs of a row with 2 x 2 windows and stride 2, for n channels from k on. */
SIMD_FN void fwd_fours(struct tensor *y, const struct operand *x, int image, int oy, int count, int k, int n, bool pending, bool half)
{
    const ptrdiff_t step = x->x.stride;
    const void *row = elem_at(pixel(&x->x, image, 2 * oy, 0, half), k, half), *below = elem_at(row, x->x.w * step, half);
    void *to = elem_at(pixel(y, image, oy, 0, half), k, half);
    const vec scale = pending ? vload_n(x->act.scale + k, n) : vset1(1.0f), shift = pending ? vload_n(x->act.shift + k, n) : vset1(0.0f);
    const vec slope = pending ? vload_n(x->act.slope + k, n) : vset1(1.0f);

    for (int ox = 0; ox < count; ox++) {
        vec v[4];

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            v[i] = elem_load_n(i < 2 ? row : below, (2 * ox + i % 2) * step, n, half);
            if (pending)
                v[i] = vact(vfma(v[i], scale, shift), slope);
        }
        elem_store_n(to, (ptrdiff_t)ox * y->stride, vmax(v[3], vmax(v[2], vmax(v[1], v[0]))), n, half);
    }
}

SIMD_FN void fwd_row(const struct maxpool_args *a, int v, int image, int oy, bool pending, bool half)
{
    struct tensor *y = &a->dst[v];
    const struct tensor *t = &a->x[v].x;
    struct maxpool_range ry = maxpool_range(oy, t->h, a->p);
    int whole = is_two_by_two(a->p) && ry.to - ry.from == 2 ? t->w / 2 : 0;

    whole = whole < y->w ? whole : y->w;
    for (int k = 0; k < t->c && whole > 0; k += VW)
        if (vlanes(t->c, k) == VW)
            fwd_fours(y, &a->x[v], image, oy, whole, k, VW, pending, half);
        else
            fwd_fours(y, &a->x[v], image, oy, whole, k, vlanes(t->c, k), pending, half);
    for (int ox = whole; ox < y->w; ox++)
        fwd_window(pixel(y, image, oy, ox, half), &a->x[v], image, ry, maxpool_range(ox, t->w, a->p), pending, half);
}

static size_t fwd_rows(const void *arg, int v)
{
    const struct maxpool_args *a = arg;

    return (size_t)a->dst[v].n * (size_t)a->dst[v].h;
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct maxpool_args *a = arg;
    size_t h = (size_t)a->dst[v].h;

    for (size_t r = from; r < to; r++)
        if (a->x[v].act.scale)
            ELEM_CALL(a->dst[v].dtype, fwd_row, a, v, (int)(r / h), (int)(r % h), true);
        else
            ELEM_CALL(a->dst[v].dtype, fwd_row, a, v, (int)(r / h), (int)(r % h), false);
}

int cpu_pool_max_fwd(struct device *dev, const struct pooling *p, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct maxpool_args a = { .p = p, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, fwd_rows, fwd_part, &a });
    return 0;
}

/* ---- backward, any window: the owner of (image, block of channels) walks the windows in row-major order and adds to
 * their winners. Each input thus has the order of additions of maxpool_grad(), and each window is read once. ---- */

/* The pixels of the first maxima. */
SIMD_FN void window_winners(int32_t win[BLOCK], const struct operand *x, int image, int first, int width, struct maxpool_range ry,
                            struct maxpool_range rx, bool pending, bool half)
{
    for (int k = 0; k < width; k += VW) {
        float lanes[VW];
        vec at;

        window_best(x, image, ry, rx, first + k, vlanes(width, k), pending, half, &at);
        vstore(lanes, at);
        for (int l = 0; l < VW; l++)
            win[k + l] = ry.from * x->x.w + rx.from + (int32_t)lanes[l];
    }
}

static void scale_block(struct tensor *dx, int image, int first, int width, float beta)
{
    for (int i = 0; i < dx->h * dx->w; i++) {
        float *d = (float *)pixel(dx, image, 0, 0, false) + (ptrdiff_t)i * dx->stride + first;

        for (int k = 0; k < width; k++)
            d[k] = beta != 0.0f ? beta * d[k] : 0.0f;
    }
}

static void bwd_block(const struct maxpool_args *a, int v, int image, int first, int width)
{
    struct tensor *dx = &a->dst[v];
    const struct tensor *dy = &a->dy[v];
    int32_t win[BLOCK];

    if (a->beta != 1.0f)
        scale_block(dx, image, first, width, a->beta);
    for (int oy = 0; oy < dy->h; oy++)
        for (int ox = 0; ox < dy->w; ox++) {
            struct maxpool_range ry = maxpool_range(oy, dx->h, a->p), rx = maxpool_range(ox, dx->w, a->p);
            const float *d = (const float *)pixel(dy, image, oy, ox, false) + first;
            float *to = (float *)pixel(dx, image, 0, 0, false) + first;

            if (a->x[v].act.scale)
                window_winners(win, &a->x[v], image, first, width, ry, rx, true, false);
            else
                window_winners(win, &a->x[v], image, first, width, ry, rx, false, false);
            for (int k = 0; k < width; k++)
                to[(ptrdiff_t)win[k] * dx->stride + k] += d[k];
        }
}

static size_t blocks_per_image(const struct tensor *t)
{
    return ((size_t)t->c + BLOCK - 1) / BLOCK;
}

static size_t bwd_blocks(const void *arg, int v)
{
    const struct maxpool_args *a = arg;

    return (size_t)a->dst[v].n * blocks_per_image(&a->dst[v]);
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct maxpool_args *a = arg;
    size_t per = blocks_per_image(&a->dst[v]);

    for (size_t u = from; u < to; u++) {
        int first = (int)(u % per) * BLOCK, rest = a->dst[v].c - first;

        bwd_block(a, v, (int)(u / per), first, rest < BLOCK ? rest : BLOCK);
    }
}

/* ---- backward, 2 x 2 with stride 2: every input is in at most one window, so each pair of input rows is written once,
 * in one pass ---- */

SIMD_FN void bwd_four(struct tensor *dx, float beta, const void *dy, const struct operand *x, int image, int oy, int ox, bool pending,
                      bool half)
{
    const struct affine *p = &x->act;
    const void *a = pixel(&x->x, image, 2 * oy, 2 * ox, half), *b = elem_at(a, x->x.stride, half);
    const void *c = elem_at(a, (ptrdiff_t)x->x.w * x->x.stride, half), *d = elem_at(c, x->x.stride, half);
    void *to[4] = { pixel(dx, image, 2 * oy, 2 * ox, half) };

    to[1] = elem_at(to[0], dx->stride, half);
    to[2] = elem_at(to[0], (ptrdiff_t)dx->w * dx->stride, half);
    to[3] = elem_at(to[2], dx->stride, half);
    for (int k = 0; k < dx->c; k += VW) {
        const int n = vlanes(dx->c, k);
        const struct pool4 wins = pool4_wins(read_channels(p, pending, a, k, n, half), read_channels(p, pending, b, k, n, half),
                                             read_channels(p, pending, c, k, n, half), read_channels(p, pending, d, k, n, half));
        const vec g = elem_load_n(dy, k, n, half);

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            vec old = beta != 0.0f ? vmul(vset1(beta), elem_load_n(to[i], k, n, half)) : vset1(0.0f);

            elem_store_n(to[i], k, pool4_grad(&wins, i, old, g), n, half);
        }
    }
}

/* An input at the rim, outside of all whole windows: alone, in a clipped window, or in no window. */
KERNEL_FN void bwd_rim(const struct maxpool_args *a, int v, int image, int y, int x, bool half)
{
    const struct operand *o = &a->x[v];
    const struct tensor *dx = &a->dst[v], *dy = &a->dy[v];
    struct maxpool_range ry = maxpool_readers(y, dy->h, a->p), rx = maxpool_readers(x, dy->w, a->p);
    bool seen = ry.from < ry.to && rx.from < rx.to;
    void *d = pixel(dx, image, y, x, half);
    int32_t win[BLOCK];

    for (int first = 0; first < dx->c; first += BLOCK) {
        int width = dx->c - first < BLOCK ? dx->c - first : BLOCK;

        if (seen)
            window_winners(win, o, image, first, width, maxpool_range(ry.from, dx->h, a->p), maxpool_range(rx.from, dx->w, a->p),
                           o->act.scale != NULL, half);
        for (int k = 0; k < width; k++) {
            float old = a->beta != 0.0f ? a->beta * elem_get(d, first + k, half) : 0.0f;

            if (seen && win[k] == y * dx->w + x)
                old += elem_get(pixel(dy, image, ry.from, rx.from, half), first + k, half);
            elem_set(d, first + k, old, half);
        }
    }
}

static size_t row_pairs(const void *arg, int v)
{
    const struct maxpool_args *a = arg;

    return (size_t)a->dst[v].n * (size_t)((a->dst[v].h + 1) / 2);
}

KERNEL_FN void bwd_whole(const struct maxpool_args *a, int v, int image, int pair, bool pending, float beta, bool half)
{
    for (int ox = 0; ox < a->dst[v].w / 2; ox++)
        bwd_four(&a->dst[v], beta, pixel(&a->dy[v], image, pair, ox, half), &a->x[v], image, pair, ox, pending, half);
}

KERNEL_FN void bwd_pair(const struct maxpool_args *a, int v, int image, int pair, bool half)
{
    const struct tensor *dx = &a->dst[v];
    bool whole = 2 * pair + 1 < dx->h;

    if (whole && a->x[v].act.scale && a->beta != 0.0f)
        bwd_whole(a, v, image, pair, true, a->beta, half);
    else if (whole && a->x[v].act.scale)
        bwd_whole(a, v, image, pair, true, 0.0f, half);
    else if (whole && a->beta != 0.0f)
        bwd_whole(a, v, image, pair, false, a->beta, half);
    else if (whole)
        bwd_whole(a, v, image, pair, false, 0.0f, half);
    for (int y = 2 * pair; y < 2 * pair + 2 && y < dx->h; y++)
        for (int x = whole ? dx->w / 2 * 2 : 0; x < dx->w; x++)
            bwd_rim(a, v, image, y, x, half);
}

static void bwd_pairs(const void *arg, int v, size_t from, size_t to)
{
    const struct maxpool_args *a = arg;
    size_t per = (size_t)((a->dst[v].h + 1) / 2);

    for (size_t u = from; u < to; u++)
        ELEM_CALL(a->dst[v].dtype, bwd_pair, a, v, (int)(u / per), (int)(u % per));
}

int cpu_pool_max_bwd(struct device *dev, const struct pooling *p, struct tensor *dx, float beta, const struct tensor *dy,
                     const struct operand *x, int nshards, struct err *err)
{
    struct wide w[] = { { dx, sizeof *dx, beta != 0.0f, NULL }, { dy, sizeof *dy, true, NULL }, { x, sizeof *x, true, NULL } };
    struct maxpool_args a = { p, beta, dx, x, dy };
    int rc = 0;

    if (is_two_by_two(p)) {
        cpu_over_shards(dev, &(struct shard_work){ nshards, row_pairs, bwd_pairs, &a });
        return 0;
    }
    if (dx[0].dtype == DTYPE_BF16) {
        rc = cpu_widen(dev, w, 3, nshards, err);
        a = (struct maxpool_args){ p, beta, w[0].as, w[2].as, w[1].as };
    }
    if (rc >= 0)
        cpu_over_shards(dev, &(struct shard_work){ nshards, bwd_blocks, bwd_part, &a });
    if (rc >= 0 && dx[0].dtype == DTYPE_BF16)
        cpu_narrow(dev, w, nshards);
    return rc;
}
