/* worker/cpu/pool.c - maximum pooling. Loops run along channels; windows of 2 x 2 with stride 2 have passes of their own. */
#include "worker/kernels/pool.h"

#include <stddef.h>

#include "worker/cpu/rows.h"

enum { BLOCK = 64 }; /* channels whose winners are kept while a window goes by */

struct maxpool_args {
    const struct pooling *p;
    float beta;
    struct tensor *dst; /* y, or dx */
    const struct operand *x;
    const struct tensor *dy;
};

static const float *pixel(const struct tensor *t, int image, int y, int x)
{
    return (const float *)t->data + (((size_t)image * (size_t)t->h + (size_t)y) * (size_t)t->w + (size_t)x) * (size_t)t->stride;
}

static float *pixel_of(struct tensor *t, int image, int y, int x)
{
    return (float *)t->data + (pixel(t, image, y, x) - (const float *)t->data);
}

KERNEL_FN float read_channel(const struct affine *p, bool pending, const float *x, int k)
{
    return pending ? act_pending(x[k], p->scale[k], p->shift[k], p->slope[k]) : x[k];
}

KERNEL_FN bool is_two_by_two(const struct pooling *p)
{
    return p->size == 2 && p->stride == 2; /* pad_total is 0 or 1: no padding on the left */
}

/* ---- forward ---- */

KERNEL_FN void fwd_window(float *y, const struct operand *x, int image, struct maxpool_range ry, struct maxpool_range rx, bool pending)
{
    const struct tensor *t = &x->x;
    const float *first = pixel(t, image, ry.from, rx.from);

    CPU_LANES
    for (int k = 0; k < t->c; k++)
        y[k] = read_channel(&x->act, pending, first, k);
    for (int i = ry.from; i < ry.to; i++)
        for (int j = rx.from; j < rx.to; j++) {
            const float *src = pixel(t, image, i, j);

            CPU_LANES
            for (int k = 0; k < t->c; k++) /* the first one again changes nothing */
                y[k] = max_first(y[k], read_channel(&x->act, pending, src, k));
        }
}

KERNEL_FN void fwd_four(float *y, const struct operand *x, int image, int oy, int ox, bool pending)
{
    const struct affine *p = &x->act;
    const float *a = pixel(&x->x, image, 2 * oy, 2 * ox), *b = a + x->x.stride;
    const float *c = a + (ptrdiff_t)x->x.w * x->x.stride, *d = c + x->x.stride;

    CPU_LANES
    for (int k = 0; k < x->x.c; k++)
        y[k] =
            max_first(max_first(max_first(read_channel(p, pending, a, k), read_channel(p, pending, b, k)), read_channel(p, pending, c, k)),
                      read_channel(p, pending, d, k));
}

KERNEL_FN void fwd_row(const struct maxpool_args *a, int v, int image, int oy, bool pending)
{
    struct tensor *y = &a->dst[v];
    const struct tensor *t = &a->x[v].x;
    struct maxpool_range ry = maxpool_range(oy, t->h, a->p);
    int ox = 0, whole = is_two_by_two(a->p) && ry.to - ry.from == 2 ? t->w / 2 : 0;

    for (; ox < whole && ox < y->w; ox++)
        fwd_four(pixel_of(y, image, oy, ox), &a->x[v], image, oy, ox, pending);
    for (; ox < y->w; ox++)
        fwd_window(pixel_of(y, image, oy, ox), &a->x[v], image, ry, maxpool_range(ox, t->w, a->p), pending);
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
            fwd_row(a, v, (int)(r / h), (int)(r % h), true);
        else
            fwd_row(a, v, (int)(r / h), (int)(r % h), false);
}

int cpu_pool_max_fwd(struct device *dev, const struct pooling *p, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct maxpool_args a = { .p = p, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, fwd_rows, fwd_part, &a });
    return 0;
}

/* ---- backward, any window: the owner of (image, block of channels) walks the windows in row-major order and adds to their winners,
 * which gives each input the order of additions of maxpool_grad() without looking at a window more than once ---- */

KERNEL_FN void window_winners(int32_t *win, const struct operand *x, int image, int first, int width, struct maxpool_range ry,
                              struct maxpool_range rx, bool pending)
{
    float best[BLOCK];
    int pix = ry.from * x->x.w + rx.from;
    struct affine p = { NULL, NULL, NULL };
    const float *src = pixel(&x->x, image, ry.from, rx.from) + first;

    if (pending)
        p = (struct affine){ x->act.scale + first, x->act.shift + first, x->act.slope + first };
    for (int k = 0; k < width; k++) {
        best[k] = read_channel(&p, pending, src, k);
        win[k] = pix;
    }
    for (int i = ry.from; i < ry.to; i++)
        for (int j = rx.from; j < rx.to; j++) {
            src = pixel(&x->x, image, i, j) + first;
            pix = i * x->x.w + j;
            CPU_LANES
            for (int k = 0; k < width; k++) {
                float v = read_channel(&p, pending, src, k);

                win[k] = v > best[k] ? pix : win[k];
                best[k] = max_first(best[k], v);
            }
        }
}

static void scale_block(struct tensor *dx, int image, int first, int width, float beta)
{
    for (int i = 0; i < dx->h * dx->w; i++) {
        float *d = pixel_of(dx, image, 0, 0) + (ptrdiff_t)i * dx->stride + first;

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
            const float *d = pixel(dy, image, oy, ox) + first;
            float *to = pixel_of(dx, image, 0, 0) + first;

            if (a->x[v].act.scale)
                window_winners(win, &a->x[v], image, first, width, ry, rx, true);
            else
                window_winners(win, &a->x[v], image, first, width, ry, rx, false);
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

/* ---- backward, 2 x 2 with stride 2: every input has at most one window, so each pair of input rows is written once, in one pass ---- */

KERNEL_FN void bwd_four(struct tensor *dx, float beta, const float *dy, const struct operand *x, int image, int oy, int ox, bool pending)
{
    const struct affine *p = &x->act;
    const float *a = pixel(&x->x, image, 2 * oy, 2 * ox), *b = a + x->x.stride;
    const float *c = a + (ptrdiff_t)x->x.w * x->x.stride, *d = c + x->x.stride;
    float *da = pixel_of(dx, image, 2 * oy, 2 * ox), *db = da + dx->stride;
    float *dc = da + (ptrdiff_t)dx->w * dx->stride, *dd = dc + dx->stride;

    CPU_LANES
    for (int k = 0; k < dx->c; k++) {
        float v0 = read_channel(p, pending, a, k), v1 = read_channel(p, pending, b, k);
        float v2 = read_channel(p, pending, c, k), v3 = read_channel(p, pending, d, k), g = dy[k];

        da[k] = maxpool4_grad(v0, v1, v2, v3, 0, g, beta != 0.0f ? beta * da[k] : 0.0f);
        db[k] = maxpool4_grad(v0, v1, v2, v3, 1, g, beta != 0.0f ? beta * db[k] : 0.0f);
        dc[k] = maxpool4_grad(v0, v1, v2, v3, 2, g, beta != 0.0f ? beta * dc[k] : 0.0f);
        dd[k] = maxpool4_grad(v0, v1, v2, v3, 3, g, beta != 0.0f ? beta * dd[k] : 0.0f);
    }
}

/* An input at the rim, in no window of four: alone, in a clipped window, or in none. */
static void bwd_rim(const struct maxpool_args *a, int v, int image, int y, int x)
{
    const struct operand *o = &a->x[v];
    struct tensor *dx = &a->dst[v];
    const struct tensor *dy = &a->dy[v];
    float *d = pixel_of(dx, image, y, x);

    for (int k = 0; k < dx->c; k++) {
        struct maxpool_plane m = { pixel(&o->x, image, 0, 0) + k, dx->h, dx->w, o->x.stride, o->act.scale != NULL, 1.0f, 0.0f, 1.0f };

        if (m.pending) {
            m.scale = o->act.scale[k];
            m.shift = o->act.shift[k];
            m.slope = o->act.slope[k];
        }
        d[k] = maxpool_grad(a->p, &m, pixel(dy, image, 0, 0) + k, dy->stride, dy->h, dy->w, y, x, a->beta != 0.0f ? a->beta * d[k] : 0.0f);
    }
}

static size_t row_pairs(const void *arg, int v)
{
    const struct maxpool_args *a = arg;

    return (size_t)a->dst[v].n * (size_t)((a->dst[v].h + 1) / 2);
}

KERNEL_FN void bwd_whole(const struct maxpool_args *a, int v, int image, int pair, bool pending, float beta)
{
    for (int ox = 0; ox < a->dst[v].w / 2; ox++)
        bwd_four(&a->dst[v], beta, pixel(&a->dy[v], image, pair, ox), &a->x[v], image, pair, ox, pending);
}

static void bwd_pair(const struct maxpool_args *a, int v, int image, int pair)
{
    const struct tensor *dx = &a->dst[v];
    bool whole = 2 * pair + 1 < dx->h;

    if (whole && a->x[v].act.scale && a->beta != 0.0f)
        bwd_whole(a, v, image, pair, true, a->beta);
    else if (whole && a->x[v].act.scale)
        bwd_whole(a, v, image, pair, true, 0.0f);
    else if (whole && a->beta != 0.0f)
        bwd_whole(a, v, image, pair, false, a->beta);
    else if (whole)
        bwd_whole(a, v, image, pair, false, 0.0f);
    for (int y = 2 * pair; y < 2 * pair + 2 && y < dx->h; y++)
        for (int x = whole ? dx->w / 2 * 2 : 0; x < dx->w; x++)
            bwd_rim(a, v, image, y, x);
}

static void bwd_pairs(const void *arg, int v, size_t from, size_t to)
{
    const struct maxpool_args *a = arg;
    size_t per = (size_t)((a->dst[v].h + 1) / 2);

    for (size_t u = from; u < to; u++)
        bwd_pair(a, v, (int)(u / per), (int)(u % per));
}

int cpu_pool_max_bwd(struct device *dev, const struct pooling *p, struct tensor *dx, float beta, const struct tensor *dy,
                     const struct operand *x, int nshards, struct err *err)
{
    struct maxpool_args a = { p, beta, dx, x, dy };

    (void)err;
    if (is_two_by_two(p))
        cpu_over_shards(dev, &(struct shard_work){ nshards, row_pairs, bwd_pairs, &a });
    else
        cpu_over_shards(dev, &(struct shard_work){ nshards, bwd_blocks, bwd_part, &a });
    return 0;
}
