/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/photo_loss.c - losses that take the least of several candidates.
 * A row of an image is the unit of work. Its sum is a double; the sums of a shard are added as a tree. */
#include "worker/kernels/photo.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/core/tree.h"
#include "worker/cpu/rows.h"
#include "worker/kernels/reduce.h"

enum { PIECE = 256 };

static size_t rows_before(const struct tensor *t, int v)
{
    size_t n = 0;

    for (int i = 0; i < v; i++)
        n += (size_t)t[i].n * (size_t)t[i].h;
    return n;
}

/* ret[v] = weight * (sum of the shard's rows) / its pixels */
static void finish(double *const *ret, const double *rows, const struct tensor *t, float weight, int nshards)
{
    for (int v = 0; v < nshards; v++) {
        int n = t[v].n * t[v].h;

        *ret[v] = (double)weight * (tree_sum(rows, 1, n) / (double)tensor_pixels(&t[v]));
        rows += n;
    }
}

/* ---- the least of several maps ---- */

struct least_args {
    const struct photo_maps *in;
    struct tensor *const *dwarped;
    float weight, grad_scale, noise_scale;
    double *rows; /* [rows of all shards] */
};

static size_t least_units(const void *arg, int v)
{
    const struct tensor *t = &((const struct least_args *)arg)->in->warped[0][v];

    return (size_t)t->n * (size_t)t->h;
}

/* The noise of n <= PIECE pixels from `element` on. */
static void noise(float *ret, const struct least_args *a, const struct philox_key *key, uint64_t element, int n)
{
    const struct automask_noise *m = &a->in->noise;
    uint32_t word[PIECE / 4 + 1][4];
    int before = (int)(element % 4), blocks = (before + n + 3) / 4;

    if (m->kind != AUTOMASK_UNIFORM) {
        for (int i = 0; i < n; i++)
            ret[i] = photo_noise(m->kind, key, element + (uint64_t)i, m->sigma, a->noise_scale);
        return;
    }
    for (int i = 0; i < blocks; i++)
        philox_block_of(key, element / 4 + (uint64_t)i, word[i]);
    for (int i = 0; i < n; i++)
        ret[i] = photo_uniform(word[(before + i) / 4][(before + i) % 4], a->noise_scale);
}

struct choice {
    float value[PIECE];
    int32_t of[PIECE];
};

static void choose(struct choice *restrict c, const float *restrict value, int which, int n)
{
    CPU_LANES
    for (int i = 0; i < n; i++) {
        bool less = which == 0 || photo_less(value[i], c->value[i]);

        c->value[i] = less ? value[i] : c->value[i];
        c->of[i] = less ? which : c->of[i];
    }
}

static void load(float *restrict ret, const struct tensor *t, size_t pixel, int n)
{
    const float *from = (const float *)t->data + pixel * (size_t)t->stride;

    if (t->stride == 1)
        memcpy(ret, from, (size_t)n * sizeof *ret);
    for (int i = 0; i < n && t->stride != 1; i++)
        ret[i] = from[(ptrdiff_t)i * t->stride];
}

/* Pixels [x, x + n) of a row of shard v. first: the row's first pixel in the shard. */
static void least_piece(struct choice *c, const struct least_args *a, int v, size_t row, int x, int n)
{
    const struct photo_maps *in = a->in;
    const struct tensor *t = &in->warped[0][v];
    size_t pixel = row * (size_t)t->w + (size_t)x, image = row / (size_t)t->h;
    uint64_t element = (uint64_t)(row % (size_t)t->h) * (uint64_t)t->w + (uint64_t)x;
    float value[PIECE], more[PIECE];

    for (int i = 0; i < v; i++)
        image += (size_t)in->warped[0][i].n;
    for (int i = 0; i < in->nidentity; i++) {
        load(value, &in->identity[i][v], pixel, n);
        if (in->noise.kind != AUTOMASK_NONE) {
            noise(more, a, &in->noise.key[i][image], element, n);
            for (int k = 0; k < n; k++)
                value[k] += more[k];
        }
        choose(c, value, i, n);
    }
    for (int i = 0; i < in->nwarped; i++) {
        load(value, &in->warped[i][v], pixel, n);
        choose(c, value, in->nidentity + i, n);
    }
}

static void mark_chosen(const struct choice *c, const struct least_args *a, int v, size_t pixel, int n)
{
    float g = photo_pixel_grad(a->weight, a->grad_scale, tensor_pixels(&a->in->warped[0][v]));

    for (int i = 0; i < a->in->nwarped; i++) {
        const struct tensor *d = a->dwarped[i] ? &a->dwarped[i][v] : NULL;
        float *dst = d ? (float *)d->data + pixel * (size_t)d->stride : NULL;

        for (int k = 0; k < n && d; k++)
            dst[(ptrdiff_t)k * d->stride] = c->of[k] == a->in->nidentity + i ? g : 0.0f;
    }
}

/* Adds n numbers to the lanes of a row's sum. The piece begins at a multiple of the lanes. */
static void add_piece(double lane[PHOTO_LANES], const float *value, int n)
{
    int i = 0;

    for (; i + PHOTO_LANES <= n; i += PHOTO_LANES)
        for (int k = 0; k < PHOTO_LANES; k++)
            lane[k] += (double)value[i + k];
    for (int k = 0; i + k < n; k++)
        lane[k] += (double)value[i + k];
}

static void least_part(const void *arg, int v, size_t from, size_t to)
{
    const struct least_args *a = arg;
    const struct tensor *t = &a->in->warped[0][v];
    size_t first = rows_before(a->in->warped[0], v);
    struct choice c;

    for (size_t r = from; r < to; r++) {
        double lane[PHOTO_LANES] = { 0 };

        for (int x = 0; x < t->w; x += PIECE) {
            int n = t->w - x < PIECE ? t->w - x : PIECE;

            least_piece(&c, a, v, r, x, n);
            if (a->dwarped)
                mark_chosen(&c, a, v, r * (size_t)t->w + (size_t)x, n);
            add_piece(lane, c.value, n);
        }
        a->rows[first + r] = sum_lanes(lane);
    }
}

int cpu_photo_least(struct device *dev, const struct photo_maps *in, struct tensor *const *dwarped, float weight, float grad_scale,
                    double *const *ret, int nshards, struct err *err)
{
    struct least_args a = { in, dwarped, weight, grad_scale, photo_uniform_scale(in->noise.sigma), NULL };

    a.rows = cpu_scratch(dev, (rows_before(in->warped[0], nshards) + 1) * sizeof *a.rows, err);
    if (!a.rows)
        return -ENOMEM;
    cpu_over_shards(dev, &(struct shard_work){ nshards, least_units, least_part, &a });
    finish(ret, a.rows, in->warped[0], weight, nshards);
    return 0;
}

/* ---- the nearest features ---- */

struct nearest_args {
    const struct photo_features *in;
    const struct photo_grads *to;
    float weight, grad_scale;
    double *rows;
};

static size_t nearest_units(const void *arg, int v)
{
    const struct tensor *t = &((const struct nearest_args *)arg)->in->target[v];

    return (size_t)t->n * (size_t)t->h;
}

/* The mean robust distance over all channels. */
static float distance(const float *a, const float *b, int c)
{
    float lane[PHOTO_LANES] = { 0 };
    int k = 0;

    for (; k + PHOTO_LANES <= c; k += PHOTO_LANES)
        for (int j = 0; j < PHOTO_LANES; j++)
            lane[j] += robust(a[k + j] - b[k + j]);
    for (int j = 0; k + j < c; j++)
        lane[j] += robust(a[k + j] - b[k + j]);
    for (int half = PHOTO_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[2 * i] + lane[2 * i + 1];
    return lane[0] * (1.0f / (float)c);
}

static float *at_pixel(const struct tensor *t, size_t pixel)
{
    return (float *)t->data + pixel * (size_t)t->stride;
}

/* dst = beta * dst + g * slope; a negative g gives the slope of b. */
static void add_slopes(float *restrict dst, float beta, const float *restrict a, const float *restrict b, float g, int c)
{
    CPU_LANES
    for (int k = 0; k < c; k++) {
        float d = a[k] - b[k];

        dst[k] = act_store(beta, &dst[k], g * (d / robust(d)));
    }
}

static void pixel_grads(const struct nearest_args *a, int v, size_t pixel, int chosen, float g)
{
    const struct tensor *target = &a->in->target[v];
    const float *b = at_pixel(target, pixel), *x = at_pixel(&a->in->warped[chosen][v], pixel);

    for (int i = 0; i < a->in->nwarped; i++) {
        float *dst;

        if (!a->to->warped[i])
            continue;
        dst = at_pixel(&a->to->warped[i][v], pixel);
        if (i == chosen)
            add_slopes(dst, a->to->beta[i], x, b, g, target->c);
        for (int k = 0; k < target->c && i != chosen; k++)
            dst[k] = act_store(a->to->beta[i], &dst[k], 0.0f);
    }
    if (a->to->target)
        add_slopes(at_pixel(&a->to->target[v], pixel), a->to->beta_target, x, b, -g, target->c);
}

static void nearest_part(const void *arg, int v, size_t from, size_t to)
{
    const struct nearest_args *a = arg;
    const struct tensor *t = &a->in->target[v];
    size_t first = rows_before(a->in->target, v);
    float g = photo_pixel_grad(a->weight, a->grad_scale, tensor_pixels(t)) * (1.0f / (float)t->c);

    for (size_t r = from; r < to; r++) {
        double lane[PHOTO_LANES] = { 0 };

        for (int x = 0; x < t->w; x++) {
            size_t pixel = r * (size_t)t->w + (size_t)x;
            float best = 0.0f;
            int chosen = 0;

            for (int i = 0; i < a->in->nwarped; i++) {
                float d = distance(at_pixel(&a->in->warped[i][v], pixel), at_pixel(t, pixel), t->c);

                if (i == 0 || photo_less(d, best)) {
                    best = d;
                    chosen = i;
                }
            }
            lane[x % PHOTO_LANES] += (double)best;
            if (a->to)
                pixel_grads(a, v, pixel, chosen, g);
        }
        a->rows[first + r] = sum_lanes(lane);
    }
}

int cpu_photo_nearest(struct device *dev, const struct photo_features *in, const struct photo_grads *to, float weight, float grad_scale,
                      double *const *ret, int nshards, struct err *err)
{
    struct nearest_args a = { in, to, weight, grad_scale, NULL };

    a.rows = cpu_scratch(dev, (rows_before(in->target, nshards) + 1) * sizeof *a.rows, err);
    if (!a.rows)
        return -ENOMEM;
    cpu_over_shards(dev, &(struct shard_work){ nshards, nearest_units, nearest_part, &a });
    finish(ret, a.rows, in->target, weight, nshards);
    return 0;
}
