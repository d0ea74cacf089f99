/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_resize.c - uses: proto worker/core cpu cuda
 * Operations that are linear in their inputs: pixels mirrored around or enlarged, bilinear resizing, means of images,
 * dropout. Each is compared with a list of the share of every input in every output, and its gradient with that list
 * read backwards. */
#include "tests/device/bf16.h"

#include "worker/kernels/philox.h"
#include "worker/kernels/resample.h"

enum { SHARDS = 2, MOST = 100000 };
enum kind { MIRROR, UPSAMPLE, BILINEAR, MEAN, DROPOUT };

struct linear {
    enum kind kind;
    struct mirror mirror; /* UPSAMPLE: its factor */
    int h, w;             /* BILINEAR: of the output */
    float number;         /* MEAN: factor; DROPOUT: rate */
    int c;
    bool pending, slice;
    float beta;
    enum dtype dtype;
};

static const struct tensor shape[SHARDS] = { { .n = 2, .h = 4, .w = 5 }, { .n = 1, .h = 3, .w = 6 } };
static const struct philox_key keys[3] = { { 7, 1, 2, 3, 4 }, { 7, 1, 2, 3, 5 }, { 7, 1, 2, 4, 4 } };

static struct tensor input(const struct linear *t, int v)
{
    struct tensor x = shape[v];

    x.c = t->c;
    x.stride = t->slice ? t->c + 2 : t->c;
    x.dtype = DTYPE_F32;
    return x;
}

static struct tensor output(const struct linear *t, int v)
{
    struct tensor y = input(t, v);

    if (t->kind == MIRROR || t->kind == UPSAMPLE) {
        y.h = y.h * t->mirror.factor + 2 * t->mirror.pad;
        y.w = y.w * t->mirror.factor + 2 * t->mirror.pad;
    } else if (t->kind == BILINEAR) {
        y.h = t->h;
        y.w = t->w;
    } else if (t->kind == MEAN) {
        y.h = y.w = 1;
    }
    return y;
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
    const float *ret = put(dev, host, (size_t)c * sizeof *host);

    free(host);
    return ret;
}

static int forward(struct device *dev, const struct linear *t, struct tensor *y, const struct operand *x, struct err *err)
{
    switch (t->kind) {
    case MIRROR:
        return dev->on->resample->mirror_fwd(dev, &t->mirror, y, x, SHARDS, err);
    case UPSAMPLE:
        return dev->on->resample->upsample_fwd(dev, t->mirror.factor, y, x, SHARDS, err);
    case BILINEAR:
        return dev->on->resample->bilinear_fwd(dev, y, x, SHARDS, err);
    case MEAN:
        return dev->on->resample->mean_fwd(dev, t->number, y, x, SHARDS, err);
    default:
        return dev->on->map->dropout(dev, t->number, keys, y, 0.0f, x, SHARDS, err);
    }
}

static int backward(struct device *dev, const struct linear *t, struct tensor *dx, const struct tensor *dy, struct err *err)
{
    struct operand of[SHARDS] = { { .x = dy[0] }, { .x = dy[1] } };

    switch (t->kind) {
    case MIRROR:
        return dev->on->resample->mirror_bwd(dev, &t->mirror, dx, t->beta, dy, SHARDS, err);
    case UPSAMPLE:
        return dev->on->resample->upsample_bwd(dev, t->mirror.factor, dx, t->beta, dy, SHARDS, err);
    case BILINEAR:
        return dev->on->resample->bilinear_bwd(dev, dx, t->beta, dy, SHARDS, err);
    case MEAN:
        return dev->on->resample->mean_bwd(dev, t->number, dx, t->beta, dy, SHARDS, err);
    default:
        return dev->on->map->dropout(dev, t->number, keys, dx, t->beta, of, SHARDS, err);
    }
}

/* Results: y of both shards, then dx. */
static void run(struct device *dev, const void *arg, void *ret)
{
    const struct linear *t = arg;
    struct tensor y[SHARDS], dy[SHARDS], dx[SHARDS];
    struct operand x[SHARDS] = { 0 };
    float *out = ret;
    struct err err;

    for (int v = 0; v < SHARDS; v++) {
        x[v].x = dx[v] = input(t, v);
        y[v] = dy[v] = output(t, v);
        set_data(dev, &x[v].x, t->dtype, 1 + (uint64_t)v);
        set_data(dev, &dx[v], t->dtype, 3);
        set_data(dev, &dy[v], t->dtype, 4 + (uint64_t)v);
        set_data(dev, &y[v], t->dtype, 9); /* the gaps of a slice keep this */
        if (t->pending)
            x[v].act = (struct affine){ put_channels(dev, t->c, 6), put_channels(dev, t->c, 7), put_channels(dev, t->c, 8) };
    }
    assert_int_equal(forward(dev, t, y, x, &err), 0);
    assert_int_equal(backward(dev, t, dx, dy, &err), 0);
    for (int v = 0; v < SHARDS; out += floats_of(&y[v++]))
        get_numbers(dev, out, y[v].data, floats_of(&y[v]), t->dtype);
    for (int v = 0; v < SHARDS; out += floats_of(&dx[v++]))
        get_numbers(dev, out, dx[v].data, floats_of(&dx[v]), t->dtype);
}

/* ---- the share of every pixel in every output ---- */

/* On an axis of n pixels: the share of pixel j in output i. */
static double share(const struct linear *t, int n, int out, int i, int j)
{
    double at = fmax((i + 0.5) * n / out - 0.5, 0), f = at - floor(at);
    int lo = (int)at, hi = lo + 1 < n ? lo + 1 : lo, large = n * t->mirror.factor, k = i - t->mirror.pad;

    switch (t->kind) {
    case MIRROR:
    case UPSAMPLE:
        k = k < 0 ? -k : k;
        k = k >= large ? 2 * large - 2 - k : k;
        return k / t->mirror.factor == j;
    case BILINEAR:
        return (lo == j ? 1 - f : 0) + (hi == j ? f : 0);
    case MEAN:
        return 1.0 / n;
    default:
        return i == j;
    }
}

static double weight(const struct linear *t, int v, int image, int oy, int ox, int y, int x, int k)
{
    struct tensor in = input(t, v), out = output(t, v);
    double w = share(t, in.h, out.h, oy, y) * share(t, in.w, out.w, ox, x);

    if (t->kind == MEAN)
        return w * (double)t->number;
    if (t->kind != DROPOUT || w == 0)
        return w;
    return (double)philox_uniform(&keys[v == 0 ? image : 2], (uint64_t)((y * in.w + x) * t->c + k)) < (double)t->number
               ? 0
               : 1 / (1 - (double)t->number);
}

static int place(const struct tensor *t, int image, int y, int x, int k)
{
    return ((image * t->h + y) * t->w + x) * t->stride + k;
}

static double tolerance(const struct linear *t)
{
    return t->dtype == DTYPE_BF16 ? 8e-3 : 3e-6;
}

static void check_fwd(const struct linear *t, int v, const float *y)
{
    struct tensor in = input(t, v), out = output(t, v);
    float *x = numbers_of(t->dtype, floats_of(&in), 1 + (uint64_t)v, -1.0f, 1.0f), *scale = numbers((size_t)t->c, 6, 0.0f, 1.0f);
    float *shift = numbers((size_t)t->c, 7, 0.0f, 1.0f), *slope = numbers((size_t)t->c, 8, 0.0f, 1.0f);

    for (int o = 0; o < out.n * out.h * out.w * t->c; o++) {
        int k = o % t->c, ox = o / t->c % out.w, oy = o / t->c / out.w % out.h, image = o / t->c / out.w / out.h;
        double want = 0;

        for (int i = 0; i < in.h * in.w; i++) {
            float one = x[place(&in, image, i / in.w, i % in.w, k)];

            if (t->pending)
                one = act_pending(one, scale[k], shift[k], slope[k]);
            want += weight(t, v, image, oy, ox, i / in.w, i % in.w, k) * (double)one;
        }
        near((double)y[place(&out, image, oy, ox, k)], want, tolerance(t), "y", (size_t)o);
        if (t->kind == MIRROR || t->kind == UPSAMPLE) /* copies are exact */
            assert_true(y[place(&out, image, oy, ox, k)] == stored((float)want, t->dtype));
    }
    free(x);
    free(scale);
    free(shift);
    free(slope);
}

static void check_bwd(const struct linear *t, int v, const float *dx)
{
    struct tensor in = input(t, v), out = output(t, v);
    float *old = numbers_of(t->dtype, floats_of(&in), 3, -1.0f, 1.0f);
    float *dy = numbers_of(t->dtype, floats_of(&out), 4 + (uint64_t)v, -1.0f, 1.0f);

    for (int i = 0; i < in.n * in.h * in.w * in.stride; i++) {
        int k = i % in.stride, x = i / in.stride % in.w, y = i / in.stride / in.w % in.h, image = i / in.stride / in.w / in.h;
        double want = (double)(t->beta * old[i]);

        if (k >= t->c) {
            assert_true(dx[i] == old[i]);
            continue;
        }
        for (int o = 0; o < out.h * out.w; o++)
            want += weight(t, v, image, o / out.w, o % out.w, y, x, k) * (double)dy[place(&out, image, o / out.w, o % out.w, k)];
        near((double)dx[i], want, tolerance(t), "dx", (size_t)i);
    }
    free(old);
    free(dy);
}

static void check(const struct linear *t)
{
    static float out[MOST];
    const float *at = out;
    size_t n = 0;

    for (int v = 0; v < SHARDS; v++) {
        struct tensor x = input(t, v), y = output(t, v);

        n += floats_of(&x) + floats_of(&y);
    }
    assert_true(n <= MOST);
    same_on_all(run, t, out, n * sizeof *out);
    for (int v = 0; v < SHARDS; v++) {
        struct tensor y = output(t, v);

        check_fwd(t, v, at);
        at += floats_of(&y);
    }
    for (int v = 0; v < SHARDS; v++) {
        struct tensor x = input(t, v);

        check_bwd(t, v, at);
        at += floats_of(&x);
    }
}

/* In every way that numbers can lie. */
static void check_all(struct linear t, bool halves)
{
    for (int bits = 0; bits < (halves ? 16 : 8); bits++) {
        t.c = bits & 1 ? 16 : 3;
        t.pending = bits & 1;
        t.slice = bits & 2;
        t.beta = bits & 4 ? 1.0f : 0.0f;
        t.dtype = bits & 8 ? DTYPE_BF16 : DTYPE_F32;
        check(&t);
    }
}

static void mirrors(void **state)
{
    (void)state;
    for (int factor = 1; factor <= MIRROR_MAX_FACTOR; factor++)
        for (int pad = 0; pad <= 2; pad++)
            check_all((struct linear){ .kind = MIRROR, .mirror = { factor, pad } }, true);
}

/* Few and many channels, too. */
static void upsampling(void **state)
{
    static const int c[] = { 1, 2, 8, 11, 40, 300 };

    (void)state;
    for (int factor = 1; factor <= 3; factor++)
        check_all((struct linear){ .kind = UPSAMPLE, .mirror = { factor, 0 } }, true);
    for (int i = 0; i < 6; i++)
        check(&(struct linear){ .kind = UPSAMPLE,
                                .mirror = { 2, 0 },
                                .c = c[i],
                                .pending = i % 2 == 0,
                                .slice = i % 3 == 0,
                                .beta = 1.0f,
                                .dtype = i % 2 ? DTYPE_BF16 : DTYPE_F32 });
}

/* Larger and smaller, by whole factors and others, and to a single pixel. */
static void bilinear(void **state)
{
    static const int to[][2] = { { 8, 10 }, { 2, 3 }, { 7, 4 }, { 1, 1 }, { 4, 5 }, { 16, 5 } };

    (void)state;
    for (size_t i = 0; i < sizeof to / sizeof *to; i++)
        check_all((struct linear){ .kind = BILINEAR, .mirror = { 1, 0 }, .h = to[i][0], .w = to[i][1] }, false);
}

static void means(void **state)
{
    (void)state;
    check_all((struct linear){ .kind = MEAN, .mirror = { 1, 0 }, .number = 0.01f }, true);
    check_all((struct linear){ .kind = MEAN, .mirror = { 1, 0 }, .number = 1 }, true);
}

static void dropouts(void **state)
{
    (void)state;
    check_all((struct linear){ .kind = DROPOUT, .mirror = { 1, 0 }, .number = 0.5f }, true);
    check_all((struct linear){ .kind = DROPOUT, .mirror = { 1, 0 }, .number = 0.25f }, true);
}

/* ---- PyTorch's numbers: specs featdepth, vector interpolate ---- */

static const float golden_in[4 * 6] = { 0.9482, 0.0228, 0.2042, 0.3302, 0.0676, 0.6287, 0.4128, 0.6778, 0.3562, 0.2594, 0.5163, 0.7666,
                                        0.8786, 0.3481, 0.1474, 0.3456, 0.3444, 0.7095, 0.6796, 0.1022, 0.4719, 0.3606, 0.9846, 0.8574 };
static const double golden_out[3 * 5] = { 0.786266666667, 0.161236666667, 0.273966666667, 0.195188333333, 0.600753333333,
                                          0.632425,       0.434605,       0.27715,        0.391995,       0.70728,
                                          0.655808333333, 0.225573333333, 0.387958333333, 0.72196,        0.837265 };
static const float golden_up[3 * 5] = { -0.8887, 0.7472, -0.7981, -0.7295, 0.8719, 0.4185, -0.5903, -0.6178,
                                        -0.243,  -0.107, -0.2119, -0.8388, 0.8672, 0.6477, -0.2212 };
static const double golden_grad[4 * 6] = { -0.666525, 0.361808333333,  -0.145741666667, -0.514916666667,  -0.352883333333,  0.653925,
                                           0.05502,   -0.113318333333, -0.272143333333, -0.293883333333,  -0.160976666667,  0.082635,
                                           0.15654,   -0.287071666667, -0.212668333333, -0.0862483333333, -0.0185216666667, -0.08133,
                                           -0.158925, -0.506958333333, 0.151633333333,  0.523258333333,   0.359391666667,   -0.1659 };

static void run_golden(struct device *dev, const void *arg, void *ret)
{
    struct tensor y = tensor_f32(NULL, 1, 3, 5, 1), dx = tensor_f32(NULL, 1, 4, 6, 1), dy = y;
    struct operand x = { .x = dx };
    struct err err;

    (void)arg;
    x.x.data = put(dev, golden_in, sizeof golden_in);
    dx.data = put(dev, golden_in, sizeof golden_in);
    y.data = put(dev, golden_up, sizeof golden_up);
    dy.data = put(dev, golden_up, sizeof golden_up);
    assert_int_equal(dev->on->resample->bilinear_fwd(dev, &y, &x, 1, &err), 0);
    assert_int_equal(dev->on->resample->bilinear_bwd(dev, &dx, 0.0f, &dy, 1, &err), 0);
    get(dev, ret, y.data, sizeof golden_up);
    get(dev, (float *)ret + 15, dx.data, sizeof golden_in);
}

static void golden(void **state)
{
    float out[15 + 24];

    (void)state;
    same_on_all(run_golden, NULL, out, sizeof out);
    for (int i = 0; i < 15; i++)
        near((double)out[i], golden_out[i], 1e-6, "golden y", (size_t)i);
    for (int i = 0; i < 24; i++)
        near((double)out[15 + i], golden_grad[i], 1e-6, "golden dx", (size_t)i);
}

/* More shards than travel in one launch, through ops that copy. Results: all numbers at the end. */
enum { MANY_SHARDS = 35, MANY = 6 };

static void run_many(struct device *dev, const void *arg, void *ret)
{
    struct tensor y[MANY_SHARDS], dx[MANY_SHARDS];
    struct operand x[MANY_SHARDS] = { 0 };
    struct philox_key many[MANY_SHARDS];
    struct err err;

    (void)arg;
    for (int v = 0; v < MANY_SHARDS; v++) {
        x[v].x = y[v] = dx[v] = tensor_f32(NULL, 1, 2, 3, 1);
        set_data(dev, &x[v].x, DTYPE_F32, 20 + (uint64_t)v);
        set_data(dev, &y[v], DTYPE_F32, 9);
        many[v] = keys[v % 3];
    }
    assert_int_equal(dev->on->map->dropout(dev, 0.0f, many, y, 0.0f, x, MANY_SHARDS, &err), 0);
    for (int v = 0; v < MANY_SHARDS; v++)
        x[v].x.data = y[v].data;
    for (int v = 0; v < MANY_SHARDS; v++)
        set_data(dev, &y[v], DTYPE_F32, 9);
    assert_int_equal(dev->on->resample->mirror_fwd(dev, &(struct mirror){ 1, 0 }, y, x, MANY_SHARDS, &err), 0);
    for (int v = 0; v < MANY_SHARDS; v++) {
        x[v].x.data = y[v].data;
        set_data(dev, &y[v], DTYPE_F32, 9);
        set_data(dev, &dx[v], DTYPE_F32, 9);
    }
    assert_int_equal(dev->on->resample->upsample_fwd(dev, 1, y, x, MANY_SHARDS, &err), 0);
    assert_int_equal(dev->on->resample->upsample_bwd(dev, 1, dx, 0.0f, y, MANY_SHARDS, &err), 0);
    for (int v = 0; v < MANY_SHARDS; v++)
        get(dev, (float *)ret + v * MANY, dx[v].data, MANY * sizeof(float));
}

static void many_shards(void **state)
{
    static float out[MANY_SHARDS * MANY];

    (void)state;
    same_on_all(run_many, NULL, out, sizeof out);
    for (int v = 0; v < MANY_SHARDS; v++) {
        float *x = numbers(MANY, 20 + (uint64_t)v, -1.0f, 1.0f);

        assert_memory_equal(out + v * MANY, x, MANY * sizeof *x);
        free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(mirrors),    cmocka_unit_test(upsampling), cmocka_unit_test(bilinear),
                                        cmocka_unit_test(means),      cmocka_unit_test(dropouts),   cmocka_unit_test(golden),
                                        cmocka_unit_test(many_shards) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
