/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_conv_norm.c - uses: proto worker/core cpu
 * Weight gradients of the convolution before a normalisation, computed from the normalisation's results: the bits equal
 * those from the written output gradients. */
#include "tests/device/bf16.h"

enum { SHARDS = 3 };

struct fold_case {
    int h, w, c, k; /* outputs; channels in and out */
    int size, stride, pad;
    bool pooled, frozen;
    float beta;
};

/* Rows that are cut at odd columns and in bands of odd heights; outputs that do not fill a vector; several panels and
 * groups of them; single-pixel taps, so that an image is one row. */
static const struct fold_case cases[] = {
    { 34, 34, 3, 16, 3, 1, 1, true, false, 0 },  { 6, 262, 3, 16, 3, 1, 1, true, false, 1 }, { 18, 38, 6, 24, 3, 1, 1, true, false, 0 },
    { 10, 14, 3, 64, 7, 2, 3, false, false, 0 }, { 12, 10, 1, 8, 1, 1, 0, true, false, 0 },  { 9, 150, 15, 40, 3, 2, 1, false, false, 1 },
    { 9, 13, 15, 40, 3, 1, 0, false, true, 0 },  { 8, 8, 3, 336, 3, 1, 1, true, false, 0 },  { 7, 9, 2, 300, 5, 1, 2, false, false, 0 },
    { 130, 36, 3, 33, 3, 1, 1, true, false, 0 }, { 64, 1, 3, 16, 3, 1, 1, false, false, 0 },
};

struct layer {
    struct operand in[SHARDS], raw[SHARDS];
    struct tensor da[SHARDS], dx[SHARDS];
    const float *mean[SHARDS], *invstd[SHARDS];
    const double *sums[SHARDS], *stats[SHARDS];
    float *dw[SHARDS];
};

static void *filled(struct device *dev, enum dtype dtype, size_t count, uint64_t seed, float lo, float hi)
{
    float *host = numbers_of(dtype, count, seed, lo, hi);
    void *p = put_as(dev, host, count, dtype);

    free(host);
    return p;
}

static struct tensor tensor(struct device *dev, enum dtype dtype, int n, int h, int w, int c, uint64_t seed)
{
    struct tensor r = tensor_f32(NULL, n, h, w, c);

    r.dtype = dtype;
    r.data = filled(dev, dtype, tensor_count(&r), seed, -2, 2);
    return r;
}

static void shard_make(struct device *dev, const struct fold_case *t, enum dtype dtype, struct layer *l, int v)
{
    const int n = v == 2 ? 1 : 2, side = t->size - 2 * t->pad, seed = 20 * v;
    const size_t c = (size_t)t->k;
    double *numbers = malloc((2 * c + 1) * sizeof *numbers);

    l->in[v] = (struct operand){ .x = tensor(dev, dtype, n, (t->h - 1) * t->stride + side, (t->w - 1) * t->stride + side, t->c,
                                             (uint64_t)seed + 1) };
    l->raw[v].x = tensor(dev, dtype, n, t->h, t->w, t->k, (uint64_t)seed + 2);
    l->raw[v].act =
        (struct affine){ filled(dev, DTYPE_F32, c, (uint64_t)seed + 3, -2, 2), filled(dev, DTYPE_F32, c, (uint64_t)seed + 4, -1, 1),
                         filled(dev, DTYPE_F32, c, (uint64_t)seed + 5, 0, 1) };
    l->da[v] = tensor(dev, dtype, n, t->pooled ? t->h / 2 : t->h, t->pooled ? t->w / 2 : t->w, t->k, (uint64_t)seed + 6);
    l->dx[v] = tensor(dev, dtype, n, t->h, t->w, t->k, (uint64_t)seed + 7);
    l->mean[v] = filled(dev, DTYPE_F32, c, (uint64_t)seed + 8, -1, 1);
    l->invstd[v] = filled(dev, DTYPE_F32, c, (uint64_t)seed + 9, 0.5f, 2);
    numbers[0] = (double)tensor_pixels(&l->raw[v].x);
    l->stats[v] = put(dev, numbers, sizeof *numbers);
    for (size_t i = 0; i < 2 * c; i++)
        numbers[i] = numbers[0] * (i % 2 ? 0.3 : -0.2) + (double)i + v;
    l->sums[v] = put(dev, numbers, 2 * c * sizeof *numbers);
    free(numbers);
}

/* Returns the gradients of all shards. made: computed from output gradients that are written first. */
static float *run(struct device *dev, const struct fold_case *t, struct layer *l, const struct param *w, bool made)
{
    const struct conv cv = { t->stride, t->pad };
    const double *const *sums = t->frozen ? NULL : l->sums;
    const struct norm_grad grad = { l->da, l->raw, l->mean, l->invstd, sums, t->frozen ? NULL : l->stats };
    float *ret = malloc(SHARDS * w->count * sizeof *ret);
    struct err err;

    for (int v = 0; v < SHARDS; v++)
        l->dw[v] = filled(dev, DTYPE_F32, w->count, 90 + (uint64_t)v, -1, 1);
    if (made) {
        assert_int_equal(dev->on->norm->bwd_apply(dev, l->dx, l->da, l->raw, l->mean, l->invstd, sums, l->stats, SHARDS, &err), 0);
        assert_int_equal(dev->on->conv->bwd_weights(dev, l->dw, t->beta, l->in, l->dx, &cv, w, SHARDS, &err), 0);
    } else {
        assert_int_equal(dev->on->conv_norm->bwd_weights(dev, l->dw, t->beta, l->in, &grad, &cv, w, SHARDS, &err), 0);
    }
    for (int v = 0; v < SHARDS; v++)
        get(dev, ret + (size_t)v * w->count, l->dw[v], w->count * sizeof *ret);
    return ret;
}

static void check(struct device *dev, const struct fold_case *t, enum dtype dtype)
{
    struct param w = { .name = "w", .k = t->k, .r = t->size, .s = t->size, .c = t->c, .count = (size_t)(t->k * t->size * t->size * t->c) };
    struct layer l = { 0 };
    float *whole, *folded;

    for (int v = 0; v < SHARDS; v++)
        shard_make(dev, t, dtype, &l, v);
    whole = run(dev, t, &l, &w, true);
    folded = run(dev, t, &l, &w, false);
    for (size_t i = 0; i < SHARDS * w.count; i++)
        if (memcmp(&whole[i], &folded[i], sizeof *whole) != 0)
            fail_msg("%s, %s, %d -> %d, %d x %d to [%d,%d]: weight %zu of shard %zu is %.9g, not %.9g", dev->ops->name,
                     dtype == DTYPE_BF16 ? "bf16" : "fp32", t->c, t->k, t->size, t->size, t->h, t->w, i % w.count, i / w.count,
                     (double)folded[i], (double)whole[i]);
    free(whole);
    free(folded);
    free_buffers();
}

static void as_if_it_had_been_written(void **state)
{
    int took = 0;

    (void)state;
    for (int d = 0; d < devices.n; d++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases && devices.dev[d]->on->conv_norm; i++, took++) {
            check(devices.dev[d], &cases[i], DTYPE_F32);
            check(devices.dev[d], &cases[i], DTYPE_BF16);
        }
    assert_true(took > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_if_it_had_been_written) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
