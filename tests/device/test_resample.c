/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_resample.c - nearest-neighbour upsampling and its gradient.
 * uses: proto worker/core cpu cuda */
#include "tests/device/bf16.h"

#include "worker/kernels/resample.h"

enum { SHARDS = 2 };

struct up_case {
    int factor, c;
    bool pending, slice;
    float beta;
    enum dtype dtype;
};

static const struct tensor shape[SHARDS] = { { .n = 2, .h = 3, .w = 5 }, { .n = 1, .h = 4, .w = 1 } };

static struct tensor sized(const struct up_case *t, int v, int factor)
{
    return (struct tensor){ .data = NULL,
                            .n = shape[v].n,
                            .h = shape[v].h * factor,
                            .w = shape[v].w * factor,
                            .c = t->c,
                            .stride = t->slice ? t->c + 2 : t->c,
                            .dtype = DTYPE_F32 };
}

static size_t floats_of(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->stride;
}

static void set_data(struct device *dev, struct tensor *t, enum dtype dtype, uint64_t seed)
{
    float *host = numbers_of(dtype, floats_of(t), seed, -1.0f, 1.0f);

    t->data = put_numbers(dev, host, floats_of(t), dtype);
    t->dtype = held_as(dev, dtype);
    free(host);
}

static const float *put_channels(struct device *dev, int c, uint64_t seed)
{
    float *host = numbers((size_t)c, seed, 0.0f, 1.0f);
    const float *ret = put(dev, host, (size_t)c * sizeof(*host));

    free(host);
    return ret;
}

/* Results: y of both shards, then dx. */
static void run_up(struct device *dev, const void *arg, void *ret)
{
    const struct up_case *t = arg;
    struct tensor y[SHARDS], dy[SHARDS], dx[SHARDS];
    struct operand x[SHARDS] = { 0 };
    float *out = ret;
    struct err err;

    for (int v = 0; v < SHARDS; v++) {
        x[v].x = dx[v] = sized(t, v, 1);
        y[v] = dy[v] = sized(t, v, t->factor);
        set_data(dev, &x[v].x, t->dtype, 1 + (uint64_t)v);
        set_data(dev, &dx[v], t->dtype, 3);
        set_data(dev, &dy[v], t->dtype, 4 + (uint64_t)v);
        set_data(dev, &y[v], t->dtype, 9); /* the gaps of a slice keep this */
        if (t->pending)
            x[v].act = (struct affine){ put_channels(dev, t->c, 6), put_channels(dev, t->c, 7), put_channels(dev, t->c, 8) };
    }
    assert_int_equal(dev->on->resample->upsample_fwd(dev, t->factor, y, x, SHARDS, &err), 0);
    assert_int_equal(dev->on->resample->upsample_bwd(dev, t->factor, dx, t->beta, dy, SHARDS, &err), 0);
    for (int v = 0; v < SHARDS; out += floats_of(&y[v++]))
        get_numbers(dev, out, y[v].data, floats_of(&y[v]), t->dtype);
    for (int v = 0; v < SHARDS; out += floats_of(&dx[v++]))
        get_numbers(dev, out, dx[v].data, floats_of(&dx[v]), t->dtype);
}

static void check_fwd(const struct up_case *t, int v, const float *y)
{
    struct tensor xs = sized(t, v, 1), ys = sized(t, v, t->factor);
    float *x = numbers_of(t->dtype, floats_of(&xs), 1 + (uint64_t)v, -1.0f, 1.0f), *scale = numbers((size_t)t->c, 6, 0.0f, 1.0f);
    float *shift = numbers((size_t)t->c, 7, 0.0f, 1.0f), *slope = numbers((size_t)t->c, 8, 0.0f, 1.0f);

    for (int i = 0; i < ys.n * ys.h * ys.w; i++)
        for (int k = 0; k < t->c; k++) {
            int image = i / (ys.h * ys.w), row = i / ys.w % ys.h / t->factor, col = i % ys.w / t->factor;
            float in = x[((image * xs.h + row) * xs.w + col) * xs.stride + k];

            if (t->pending)
                in = stored(act_pending(in, scale[k], shift[k], slope[k]), t->dtype);
            assert_true(y[i * ys.stride + k] == in);
        }
    free(x);
    free(scale);
    free(shift);
    free(slope);
}

/* The op is linear: its gradient is its transpose, summed here by scattering. */
static void check_bwd(const struct up_case *t, int v, const float *dx)
{
    struct tensor xs = sized(t, v, 1), ys = sized(t, v, t->factor);
    float *old = numbers_of(t->dtype, floats_of(&xs), 3, -1.0f, 1.0f);
    float *dy = numbers_of(t->dtype, floats_of(&ys), 4 + (uint64_t)v, -1.0f, 1.0f);
    double *want = calloc(floats_of(&xs), sizeof(*want));

    for (int i = 0; i < ys.n * ys.h * ys.w; i++)
        for (int k = 0; k < t->c; k++) {
            int image = i / (ys.h * ys.w), row = i / ys.w % ys.h / t->factor, col = i % ys.w / t->factor;

            want[((image * xs.h + row) * xs.w + col) * xs.stride + k] += (double)dy[i * ys.stride + k];
        }
    for (size_t i = 0; i < floats_of(&xs); i++)
        if ((int)i % xs.stride < t->c)
            near((double)dx[i], want[i] + (double)(t->beta * old[i]), t->dtype == DTYPE_BF16 ? 4e-3 : 2e-6, "dx", i);
        else
            assert_true(dx[i] == old[i]);
    free(old);
    free(dy);
    free(want);
}

static void check_case(const struct up_case *t)
{
    static float out[60000];
    const float *at = out;
    size_t n = 0;

    for (int v = 0; v < SHARDS; v++) {
        struct tensor x = sized(t, v, 1), y = sized(t, v, t->factor);

        n += floats_of(&x) + floats_of(&y);
    }
    assert_true(n <= sizeof out / sizeof *out);
    same_on_all(run_up, t, out, n * sizeof(float));
    for (int v = 0; v < SHARDS; v++) {
        struct tensor y = sized(t, v, t->factor);

        check_fwd(t, v, at);
        at += floats_of(&y);
    }
    for (int v = 0; v < SHARDS; v++) {
        struct tensor x = sized(t, v, 1);

        check_bwd(t, v, at);
        at += floats_of(&x);
    }
}

static void upsampling(void **state)
{
    (void)state;
    for (int factor = 1; factor <= 3; factor++)
        for (int bits = 0; bits < 16; bits++) {
            struct up_case t = {
                factor, bits & 1 ? 16 : 11, bits & 1, bits & 2, bits & 4 ? 1.0f : 0.0f, bits & 8 ? DTYPE_BF16 : DTYPE_F32
            };

            check_case(&t);
        }
}

/* Few and many channels. */
static void widths(void **state)
{
    const int c[] = { 1, 2, 3, 8, 40, 300 };

    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        check_case(&(struct up_case){ 2, c[i], i % 2 == 0, i % 3 == 0, 1.0f, i % 2 ? DTYPE_BF16 : DTYPE_F32 });
}

/* More shards than travel in one launch. Results: all y, then all dx. */
enum { MANY_SHARDS = 35, MANY_IN = 2 * 4, MANY_OUT = 4 * MANY_IN };

static void run_many(struct device *dev, const void *arg, void *ret)
{
    struct tensor y[MANY_SHARDS], dy[MANY_SHARDS], dx[MANY_SHARDS];
    struct operand x[MANY_SHARDS] = { 0 };
    float *out = ret;
    struct err err;

    (void)arg;
    for (int v = 0; v < MANY_SHARDS; v++) {
        x[v].x = dx[v] = tensor_f32(NULL, 1, 1, 2, 4);
        y[v] = dy[v] = tensor_f32(NULL, 1, 2, 4, 4);
        set_data(dev, &x[v].x, DTYPE_F32, 20 + (uint64_t)v);
        set_data(dev, &dy[v], DTYPE_F32, 60 + (uint64_t)v);
        set_data(dev, &y[v], DTYPE_F32, 9);
        set_data(dev, &dx[v], DTYPE_F32, 9);
    }
    assert_int_equal(dev->on->resample->upsample_fwd(dev, 2, y, x, MANY_SHARDS, &err), 0);
    assert_int_equal(dev->on->resample->upsample_bwd(dev, 2, dx, 0.0f, dy, MANY_SHARDS, &err), 0);
    for (int v = 0; v < MANY_SHARDS; v++, out += MANY_OUT)
        get(dev, out, y[v].data, MANY_OUT * sizeof(float));
    for (int v = 0; v < MANY_SHARDS; v++, out += MANY_IN)
        get(dev, out, dx[v].data, MANY_IN * sizeof(float));
}

static void many_shards(void **state)
{
    static float out[MANY_SHARDS * (MANY_OUT + MANY_IN)];

    (void)state;
    same_on_all(run_many, NULL, out, sizeof(out));
    for (int v = 0; v < MANY_SHARDS; v++) {
        float *x = numbers(MANY_IN, 20 + (uint64_t)v, -1.0f, 1.0f);

        assert_true(out[v * MANY_OUT] == x[0] && out[(v + 1) * MANY_OUT - 1] == x[MANY_IN - 1]);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(upsampling), cmocka_unit_test(widths), cmocka_unit_test(many_shards) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
