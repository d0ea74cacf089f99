/* tests/device/test_resample.c - nearest-neighbour upsampling and its gradient.
 * uses: proto worker/core cpu */
#include "tests/device/devices.h"

#include "worker/kernels/resample.h"

enum { SHARDS = 2 };

struct up_case {
    int factor, c;
    bool pending, slice;
    float beta;
};

static const struct tensor shape[SHARDS] = { { .n = 2, .h = 3, .w = 5 }, { .n = 1, .h = 4, .w = 1 } };

static struct tensor sized(const struct up_case *t, int v, int factor)
{
    return (struct tensor){ NULL, shape[v].n, shape[v].h * factor, shape[v].w * factor, t->c, t->slice ? t->c + 2 : t->c, DTYPE_F32 };
}

static size_t floats_of(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->stride;
}

static void set_data(struct device *dev, struct tensor *t, float *host)
{
    t->data = put(dev, host, floats_of(t) * sizeof(float));
    free(host);
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
        set_data(dev, &x[v].x, numbers(floats_of(&x[v].x), 1 + (uint64_t)v, -1.0f, 1.0f));
        set_data(dev, &dx[v], numbers(floats_of(&dx[v]), 3, -1.0f, 1.0f));
        set_data(dev, &dy[v], numbers(floats_of(&dy[v]), 4 + (uint64_t)v, -1.0f, 1.0f));
        y[v].data = put(dev, NULL, floats_of(&y[v]) * sizeof(float));
        if (t->pending) {
            struct tensor row = tensor_f32(NULL, 1, 1, 1, t->c), param[3] = { row, row, row };

            for (int i = 0; i < 3; i++)
                set_data(dev, &param[i], numbers((size_t)t->c, 6 + (uint64_t)i, 0.0f, 1.0f));
            x[v].act = (struct affine){ param[0].data, param[1].data, param[2].data };
        }
    }
    assert_int_equal(dev->ops->upsample_fwd(dev, t->factor, y, x, SHARDS, &err), 0);
    assert_int_equal(dev->ops->upsample_bwd(dev, t->factor, dx, t->beta, dy, SHARDS, &err), 0);
    for (int v = 0; v < SHARDS; out += floats_of(&y[v++]))
        get(dev, out, y[v].data, floats_of(&y[v]) * sizeof(float));
    for (int v = 0; v < SHARDS; out += floats_of(&dx[v++]))
        get(dev, out, dx[v].data, floats_of(&dx[v]) * sizeof(float));
}

static void check_fwd(const struct up_case *t, int v, const float *y)
{
    struct tensor xs = sized(t, v, 1), ys = sized(t, v, t->factor);
    float *x = numbers(floats_of(&xs), 1 + (uint64_t)v, -1.0f, 1.0f), *scale = numbers((size_t)t->c, 6, 0.0f, 1.0f);
    float *shift = numbers((size_t)t->c, 7, 0.0f, 1.0f), *slope = numbers((size_t)t->c, 8, 0.0f, 1.0f);

    for (int i = 0; i < ys.n * ys.h * ys.w; i++)
        for (int k = 0; k < t->c; k++) {
            int image = i / (ys.h * ys.w), row = i / ys.w % ys.h / t->factor, col = i % ys.w / t->factor;
            float in = x[((image * xs.h + row) * xs.w + col) * xs.stride + k];

            assert_true(y[i * ys.stride + k] == (t->pending ? act_pending(in, scale[k], shift[k], slope[k]) : in));
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
    float *old = numbers(floats_of(&xs), 3, -1.0f, 1.0f), *dy = numbers(floats_of(&ys), 4 + (uint64_t)v, -1.0f, 1.0f);
    double *want = calloc(floats_of(&xs), sizeof(*want));

    for (int i = 0; i < ys.n * ys.h * ys.w; i++)
        for (int k = 0; k < t->c; k++) {
            int image = i / (ys.h * ys.w), row = i / ys.w % ys.h / t->factor, col = i % ys.w / t->factor;

            want[((image * xs.h + row) * xs.w + col) * xs.stride + k] += (double)dy[i * ys.stride + k];
        }
    for (size_t i = 0; i < floats_of(&xs); i++)
        if ((int)i % xs.stride < t->c)
            near((double)dx[i], want[i] + (double)(t->beta * old[i]), 2e-6, "dx", i);
        else
            assert_true(dx[i] == old[i]);
    free(old);
    free(dy);
    free(want);
}

static void upsampling(void **state)
{
    static float out[20000];

    (void)state;
    for (int factor = 1; factor <= 3; factor++)
        for (int bits = 0; bits < 8; bits++) {
            struct up_case t = { factor, bits & 1 ? 16 : 11, bits & 1, bits & 2, bits & 4 ? 1.0f : 0.0f };
            const float *at = out;
            size_t n = 0;

            for (int v = 0; v < SHARDS; v++) {
                struct tensor x = sized(&t, v, 1), y = sized(&t, v, factor);

                n += floats_of(&x) + floats_of(&y);
            }
            assert_true(n <= sizeof out / sizeof *out);
            same_on_all(run_up, &t, out, n * sizeof(float));
            for (int v = 0; v < SHARDS; v++) {
                struct tensor y = sized(&t, v, factor);

                check_fwd(&t, v, at);
                at += floats_of(&y);
            }
            for (int v = 0; v < SHARDS; v++) {
                struct tensor x = sized(&t, v, 1);

                check_bwd(&t, v, at);
                at += floats_of(&x);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(upsampling) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
