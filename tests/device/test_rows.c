/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_rows.c - uses: proto worker/core cpu
 * Values with room for more images than are in use (tensor.rows). The used images have the bits of a value without
 * extra room, sums are over them only, and the room beyond is not read. */
#include "tests/device/devices.h"

#include <math.h>

enum { ROOM = 12, C = 24, K = 40 };

struct rows_case {
    int side, kernel, pad; /* of images and of the convolution */
    int used;              /* -1: no room, ROOM images */
    float beta;
};

/* y, dx, dw, db, then an activation's way back. */
static size_t count_of(const struct rows_case *t, int n)
{
    size_t pixels = (size_t)n * (size_t)t->side * (size_t)t->side;

    return pixels * K + pixels * C + (size_t)K * (size_t)t->kernel * (size_t)t->kernel * C + K + pixels * K;
}

/* The first `used` images are numbers, the images behind them are NaN. */
static float *images(struct device *dev, size_t each, int used, uint64_t seed)
{
    float *host = numbers(each * ROOM, seed, -1.0f, 1.0f), *ret;

    for (size_t i = each * (size_t)used; i < each * ROOM; i++)
        host[i] = NAN;
    ret = put(dev, host, each * ROOM * sizeof *host);
    free(host);
    return ret;
}

static float *filled(struct device *dev, size_t n, uint64_t seed)
{
    float *host = numbers(n, seed, -1.0f, 1.0f), *ret = put(dev, host, n * sizeof *host);

    free(host);
    return ret;
}

static struct tensor tensor(float *data, const struct rows_case *t, int n, const int32_t *rows, int c)
{
    struct tensor x = tensor_f32(data, n, t->side, t->side, c);

    x.rows = rows;
    return x;
}

/* With room for n images; returns the results of the first `used`. */
static void compute(struct device *dev, const struct rows_case *t, int used, const int32_t *rows, int n, float *ret)
{
    size_t pixels = (size_t)t->side * (size_t)t->side, weights = (size_t)K * (size_t)t->kernel * (size_t)t->kernel * C;
    struct param w = { .kind = PARAM_CONV, .k = K, .r = t->kernel, .s = t->kernel, .c = C, .count = weights, .version = 1 };
    struct operand x = { .x = tensor(images(dev, pixels * C, used, 1), t, n, rows, C) };
    struct tensor y = tensor(filled(dev, pixels * K * ROOM, 2), t, n, rows, K),
                  dx = tensor(filled(dev, pixels * C * ROOM, 3), t, n, rows, C);
    struct tensor dy = tensor(images(dev, pixels * K, used, 4), t, n, rows, K),
                  da = tensor(filled(dev, pixels * K * ROOM, 9), t, n, rows, K);
    float *dw = filled(dev, weights, 5), *db = filled(dev, K, 6), *bias = filled(dev, K, 7);
    struct operand z = { .x = dy, .act = { bias, bias, db } };
    const struct conv cv = { 1, t->pad };
    struct err err;

    w.data = filled(dev, weights, 8);
    assert_int_equal(dev->on->norm->bwd_apply(dev, &da, &dy, &z, NULL, NULL, NULL, NULL, 1, &err), 0);
    assert_int_equal(dev->on->conv->fwd(dev, &y, &x, &cv, &w, bias, NULL, 1, &err), 0);
    assert_int_equal(dev->on->conv->bwd_data(dev, &dx, t->beta, &dy, &cv, &w, 1, &err), 0);
    assert_int_equal(dev->on->conv->bwd_weights(dev, (float *[]){ dw }, t->beta, &x, &dy, &cv, &w, 1, &err), 0);
    assert_int_equal(dev->on->conv->bwd_bias(dev, (float *[]){ db }, t->beta, &dy, 1, &err), 0);
    dev->ops->param_release(dev, &w);
    get(dev, ret, y.data, pixels * (size_t)used * K * sizeof *ret);
    ret += pixels * (size_t)used * K;
    get(dev, ret, dx.data, pixels * (size_t)used * C * sizeof *ret);
    ret += pixels * (size_t)used * C;
    get(dev, ret, dw, weights * sizeof *ret);
    ret += weights;
    get(dev, ret, db, K * sizeof *ret);
    ret += K;
    get(dev, ret, da.data, pixels * (size_t)used * K * sizeof *ret);
}

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct rows_case *t = arg;
    int32_t used = t->used;

    compute(dev, t, t->used, put(dev, &used, sizeof used), ROOM, ret);
}

static void check(const struct rows_case *t)
{
    size_t n = count_of(t, t->used), tail = (size_t)K * (size_t)t->kernel * (size_t)t->kernel * C + K;
    float *got = malloc(n * sizeof *got), *want = malloc(n * sizeof *want);
    bool flat = t->side == 1; /* pixels that are images of their own: slabs differ, and so do the last bits */

    assert_true(got && want);
    same_on_all(run, t, got, n * sizeof *got);
    if (t->used > 0) {
        compute(devices.dev[0], t, t->used, NULL, t->used, want);
        free_buffers();
    } else {
        float *old = numbers(tail - K, 5, -1.0f, 1.0f), *bias = numbers(K, 6, -1.0f, 1.0f);

        for (size_t i = 0; i < tail; i++)
            want[i] = t->beta == 0.0f ? 0.0f : i < tail - K ? old[i] : bias[i - (tail - K)];
        free(old);
        free(bias);
    }
    for (size_t i = 0; i < n; i++)
        if (flat ? !(fabsf(got[i] - want[i]) <= 1e-5f) : got[i] != want[i])
            fail_msg("side %d, kernel %d, %d in use: [%zu] is %.9g, should be %.9g", t->side, t->kernel, t->used, i, (double)got[i],
                     (double)want[i]);
    free(got);
    free(want);
}

static void rows_in_use(void **state)
{
    static const struct {
        int side, kernel, pad;
    } kinds[] = { { 1, 1, 0 }, { 6, 3, 1 }, { 6, 1, 0 } };
    static const int used[] = { 0, 1, 5, ROOM };

    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t u = 0; u < sizeof used / sizeof *used; u++)
            for (int beta = 0; beta < 2; beta++)
                check(&(struct rows_case){ kinds[k].side, kinds[k].kernel, kinds[k].pad, used[u], (float)beta });
}

/* An impossible count is limited: at most the room, at least 0. */
static void counts_are_bounded(void **state)
{
    int32_t many = 99, less = -3;
    struct tensor t = { .n = 7 };

    (void)state;
    assert_int_equal(tensor_rows(&t), 7);
    t.rows = &many;
    assert_int_equal(tensor_rows(&t), 7);
    t.rows = &less;
    assert_int_equal(tensor_rows(&t), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_in_use),
        cmocka_unit_test(counts_are_bounded),
    };
    return cmocka_run_group_tests_name("rows", tests, open_devices, close_devices);
}
