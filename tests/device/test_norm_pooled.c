/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_norm_pooled.c - uses: proto worker/core cpu cuda
 * Normalisation with a gradient that comes from maxima of 2 x 2 windows: the bits equal those of first computing the
 * gradient of pooling. */
#include "tests/device/bf16.h"

#include <math.h>

struct pooled_case {
    int n, h, w, c;
};

/* Windows of fewer than a vector of channels, slabs that begin in the middle of a row and of a window, a slab that is
 * written past the caches. */
static const struct pooled_case cases[] = { { 1, 2, 2, 3 },    { 2, 6, 10, 16 }, { 1, 34, 18, 33 },
                                            { 3, 62, 30, 40 }, { 2, 4, 6, 300 }, { 1, 260, 256, 16 } };

enum { SUMS, DX, RESULTS };

struct bench {
    struct device *dev;
    struct operand x;
    struct tensor dy, da, dx;
    const float *mean, *invstd;
    double *sums;
    float *grad[2];
};

static void *filled(struct device *dev, enum dtype dtype, size_t count, uint64_t seed, float lo, float hi)
{
    float *host = numbers_of(dtype, count, seed, lo, hi);
    void *p;

    for (size_t i = 0; i < count; i++)
        host[i] = floorf(2 * host[i]) / 2; /* maxima are often equal */
    p = put_as(dev, host, count, dtype);
    free(host);
    return p;
}

static struct tensor tensor(struct bench *b, const struct pooled_case *t, int part, enum dtype dtype, uint64_t seed)
{
    struct tensor r = tensor_f32(NULL, t->n, t->h / part, t->w / part, t->c);

    r.dtype = dtype;
    r.data = filled(b->dev, dtype, tensor_count(&r), seed, -3, 3);
    return r;
}

/* The results of gradient da, one behind the other: sums, gradients of beta and gamma, dx. */
static char *run(struct bench *b, const struct tensor *da, size_t *ret_bytes)
{
    const size_t c = (size_t)b->x.x.c, sums = 2 * c * sizeof(double), grads = 2 * c * sizeof(float);
    const struct sums_dest dest[2] = { { &b->grad[0], 0 }, { &b->grad[1], 0 } };
    const double pixels = (double)tensor_pixels(&b->x.x);
    double *stats = put(b->dev, &pixels, sizeof *stats);
    struct err err;
    char *ret;

    *ret_bytes = sums + grads + tensor_count(&b->dx) * dtype_bytes(b->dx.dtype);
    ret = malloc(*ret_bytes);
    assert_int_equal(b->dev->on->norm->bwd_reduce(b->dev, &b->sums, dest, &b->x, &b->mean, &b->invstd, da, 1, &err), 0);
    assert_int_equal(b->dev->on->norm->bwd_apply(b->dev, &b->dx, da, &b->x, &b->mean, &b->invstd, (const double *const *)&b->sums,
                                                 (const double *const *)&stats, 1, &err),
                     0);
    get(b->dev, ret, b->sums, sums);
    get(b->dev, ret + sums, b->grad[0], grads / 2);
    get(b->dev, ret + sums + grads / 2, b->grad[1], grads / 2);
    get(b->dev, ret + sums + grads, b->dx.data, *ret_bytes - sums - grads);
    return ret;
}

static void check(struct device *dev, const struct pooled_case *t, enum dtype dtype)
{
    const struct pooling p = { .size = 2, .stride = 2, .pad_total = t->h % 4 ? 1 : 0 };
    const size_t c = (size_t)t->c;
    struct bench b = { .dev = dev };
    char *whole, *pooled;
    struct err err;
    size_t bytes;

    b.x.x = tensor(&b, t, 1, dtype, 1);
    b.x.act =
        (struct affine){ filled(dev, DTYPE_F32, c, 2, -2, 2), filled(dev, DTYPE_F32, c, 3, -1, 1), filled(dev, DTYPE_F32, c, 4, 0, 1) };
    b.mean = filled(dev, DTYPE_F32, c, 5, -1, 1);
    b.invstd = filled(dev, DTYPE_F32, c, 6, 0.5f, 2);
    b.dy = tensor(&b, t, 2, dtype, 7);
    b.da = tensor(&b, t, 1, dtype, 8);
    b.dx = tensor(&b, t, 1, dtype, 9);
    b.sums = put(dev, NULL, 2 * c * sizeof *b.sums);
    b.grad[0] = put(dev, NULL, c * sizeof(float));
    b.grad[1] = put(dev, NULL, c * sizeof(float));
    assert_int_equal(dev->on->pool->max_bwd(dev, &p, &b.da, 0.0f, &b.dy, &b.x, 1, &err), 0);
    whole = run(&b, &b.da, &bytes);
    pooled = run(&b, &b.dy, &bytes);
    for (size_t i = 0; i < bytes; i++)
        if (whole[i] != pooled[i])
            fail_msg("%s, %s, %d x [%d,%d], %d channels: byte %zu of %zu differs", dev->ops->name, dtype == DTYPE_BF16 ? "bf16" : "fp32",
                     t->n, t->h, t->w, t->c, i, bytes);
    free(whole);
    free(pooled);
    free_buffers();
}

static void as_if_pooling_had_spread_it(void **state)
{
    int took = 0;

    (void)state;
    for (int d = 0; d < devices.n; d++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases && devices.dev[d]->pooled_grads; i++, took++) {
            check(devices.dev[d], &cases[i], DTYPE_F32);
            check(devices.dev[d], &cases[i], DTYPE_BF16);
        }
    assert_true(took > 0 || !devices.dev[0]->pending);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_if_pooling_had_spread_it) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
