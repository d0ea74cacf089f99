/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_pool.c - maximum pooling: every window shape against the
 * bodies, numeric gradients, ties. uses: proto worker/core cpu cuda */
#include "tests/device/bf16.h"

#include <math.h>

#include "worker/kernels/pool.h"

enum { SHARDS = 2 };

struct pool_case {
    struct pooling p;
    int c, h[SHARDS], w[SHARDS], n[SHARDS];
    bool pending, slice, ties, one_by_one;
    float beta;
    enum dtype dtype;
};

static struct tensor in_shape(const struct pool_case *t, int v)
{
    struct tensor x = tensor_f32(NULL, t->n[v], t->h[v], t->w[v], t->c);

    x.stride = t->slice ? t->c + 3 : t->c;
    return x;
}

static struct tensor out_shape(const struct pool_case *t, int v)
{
    struct tensor y = in_shape(t, v);

    y.h = maxpool_out(t->h[v], &t->p);
    y.w = maxpool_out(t->w[v], &t->p);
    return y;
}

static size_t floats_of(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->stride;
}

/* Ties: whole numbers, so that windows hold equal maxima. */
static float *input(const struct pool_case *t, int v)
{
    struct tensor x = in_shape(t, v);
    float *d = numbers_of(t->dtype, floats_of(&x), 70 + (uint64_t)v, -3.0f, 3.0f);

    for (size_t i = 0; t->ties && i < floats_of(&x); i++)
        d[i] = floorf(d[i]);
    return d;
}

static float *of_case(const struct pool_case *t, uint64_t seed, float lo, float hi)
{
    return numbers((size_t)t->c, seed, lo, hi);
}

static void set_data(struct device *dev, struct tensor *t, enum dtype dtype, float *host)
{
    t->data = put_numbers(dev, host, floats_of(t), dtype);
    t->dtype = held_as(dev, dtype);
    free(host);
}

static const float *put_channels(struct device *dev, const struct pool_case *t, uint64_t seed, float lo, float hi)
{
    float *host = of_case(t, seed, lo, hi);
    const float *ret = put(dev, host, (size_t)t->c * sizeof(*host));

    free(host);
    return ret;
}

/* Results: y of all shards, then dx. */
static void run_pool(struct device *dev, const void *arg, void *ret)
{
    const struct pool_case *t = arg;
    struct tensor y[SHARDS], dy[SHARDS], dx[SHARDS];
    struct operand x[SHARDS] = { 0 };
    int step = t->one_by_one ? 1 : SHARDS;
    float *out = ret;
    struct err err;

    for (int v = 0; v < SHARDS; v++) {
        x[v].x = dx[v] = in_shape(t, v);
        y[v] = dy[v] = out_shape(t, v);
        set_data(dev, &x[v].x, t->dtype, input(t, v));
        set_data(dev, &dx[v], t->dtype, numbers_of(t->dtype, floats_of(&dx[v]), 80, -1.0f, 1.0f));
        set_data(dev, &dy[v], t->dtype, numbers_of(t->dtype, floats_of(&dy[v]), 81 + (uint64_t)v, -1.0f, 1.0f));
        set_data(dev, &y[v], t->dtype, numbers_of(t->dtype, floats_of(&y[v]), 83, -1.0f, 1.0f)); /* the gaps of a slice keep this */
        if (t->pending)
            x[v].act = (struct affine){ put_channels(dev, t, 90, -1.0f, 1.0f), put_channels(dev, t, 91, -1.0f, 1.0f),
                                        put_channels(dev, t, 92, 0.0f, 0.5f) };
    }
    for (int v = 0; v < SHARDS; v += step) {
        assert_int_equal(dev->on->pool->max_fwd(dev, &t->p, y + v, x + v, step, &err), 0);
        assert_int_equal(dev->on->pool->max_bwd(dev, &t->p, dx + v, t->beta, dy + v, x + v, step, &err), 0);
    }
    for (int v = 0; v < SHARDS; out += floats_of(&y[v++]))
        get_numbers(dev, out, y[v].data, floats_of(&y[v]), t->dtype);
    for (int v = 0; v < SHARDS; out += floats_of(&dx[v++]))
        get_numbers(dev, out, dx[v].data, floats_of(&dx[v]), t->dtype);
}

static size_t result_floats(const struct pool_case *t)
{
    size_t n = 0;

    for (int v = 0; v < SHARDS; v++) {
        struct tensor x = in_shape(t, v), y = out_shape(t, v);

        n += floats_of(&x) + floats_of(&y);
    }
    return n;
}

static struct maxpool_plane plane(const struct pool_case *t, const float *x, int v, int image, int k)
{
    struct tensor s = in_shape(t, v);
    float *scale = of_case(t, 90, -1.0f, 1.0f), *shift = of_case(t, 91, -1.0f, 1.0f), *slope = of_case(t, 92, 0.0f, 0.5f);
    struct maxpool_plane m = {
        x + (size_t)image * (size_t)(s.h * s.w) * (size_t)s.stride + k, s.h, s.w, s.stride, t->pending, scale[k], shift[k], slope[k]
    };

    free(scale);
    free(shift);
    free(slope);
    return m;
}

/* Plain definition, written another way: the last pixel of the reversed scan that is not smaller. */
static double plain_max(const struct pool_case *t, const struct maxpool_plane *m, int oy, int ox, int *ret_pixel)
{
    int y0 = oy * t->p.stride - t->p.pad_total / 2, x0 = ox * t->p.stride - t->p.pad_total / 2;
    double best = -INFINITY;

    for (int y = y0 + t->p.size - 1; y >= y0; y--)
        for (int x = x0 + t->p.size - 1; x >= x0; x--) {
            float v;

            if (y < 0 || y >= m->h || x < 0 || x >= m->w)
                continue;
            v = maxpool_read(m, y * m->w + x);
            if ((double)v >= best) {
                best = (double)v;
                *ret_pixel = y * m->w + x;
            }
        }
    return best;
}

static void check_plane(const struct pool_case *t, const float *x, const float *y, const float *dx, int v, int image, int k)
{
    struct tensor xs = in_shape(t, v), ys = out_shape(t, v);
    struct maxpool_plane m = plane(t, x, v, image, k);
    float *dy = numbers_of(t->dtype, floats_of(&ys), 81 + (uint64_t)v, -1.0f, 1.0f);
    float *old = numbers_of(t->dtype, floats_of(&xs), 80, -1.0f, 1.0f);
    size_t in0 = (size_t)image * (size_t)(xs.h * xs.w) * (size_t)xs.stride + (size_t)k,
           out0 = (size_t)image * (size_t)(ys.h * ys.w) * (size_t)ys.stride + (size_t)k;
    double *want = calloc((size_t)xs.h * (size_t)xs.w, sizeof(*want));

    for (int i = 0; i < ys.h * ys.w; i++) {
        int win = -1;

        assert_true(y[out0 + (size_t)i * (size_t)ys.stride] == stored((float)plain_max(t, &m, i / ys.w, i % ys.w, &win), t->dtype));
        want[win] += (double)dy[out0 + (size_t)i * (size_t)ys.stride];
    }
    for (int i = 0; i < xs.h * xs.w; i++) {
        size_t at = in0 + (size_t)i * (size_t)xs.stride;
        float start = t->beta != 0.0f ? t->beta * old[at] : 0.0f;
        float body = maxpool_grad(&t->p, &m, dy + out0, ys.stride, ys.h, ys.w, i / xs.w, i % xs.w, start);

        body = stored(body, t->dtype);
        assert_memory_equal(&dx[at], &body, sizeof(body));
        near((double)dx[at], want[i] + (double)start, t->dtype == DTYPE_BF16 ? 4e-3 : 1e-5, "dx", at);
    }
    free(dy);
    free(old);
    free(want);
}

static void check_case(const struct pool_case *t)
{
    size_t n = result_floats(t);
    float *out = calloc(n, sizeof(float)), *y = out, *dx = out;
    struct tensor s;

    same_on_all(run_pool, t, out, n * sizeof(float));
    for (int v = 0; v < SHARDS; v++) {
        s = out_shape(t, v);
        dx += floats_of(&s);
    }
    for (int v = 0; v < SHARDS; v++) {
        float *x = input(t, v);

        for (int image = 0; image < t->n[v]; image++)
            for (int k = 0; k<t->c; k += t->c> 20 ? 13 : 1)
                check_plane(t, x, y, dx, v, image, k);
        s = out_shape(t, v);
        y += floats_of(&s);
        s = in_shape(t, v);
        dx += floats_of(&s);
        free(x);
    }
    free(out);
}

static void windows(void **state)
{
    const struct pooling p[] = { { 2, 2, 1 }, { 2, 2, 0 }, { 2, 1, 1 }, { 3, 2, 2 }, { 5, 1, 4 }, { 3, 3, 0 }, { 1, 1, 0 }, { 4, 2, 3 } };

    (void)state;
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        for (int bits = 0; bits < 16; bits++) {
            struct pool_case t = { p[i],
                                   bits & 4 ? 70 : 6,
                                   { 7, 6 },
                                   { 9, 8 },
                                   { 1, 2 },
                                   bits & 1,
                                   bits & 2,
                                   bits & 4,
                                   bits & 1,
                                   bits & 2 ? 1.0f : 0.0f,
                                   bits & 8 ? DTYPE_BF16 : DTYPE_F32 };

            check_case(&t);
        }
}

static int below(const struct philox_key *k, uint64_t i, int n)
{
    return (int)philox_below(k, i, (uint32_t)n);
}

/* Random shapes. */
static void random_windows(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct philox_key k = { .seed = 1000 + seed };
        struct pool_case t = { .c = 1 + below(&k, 0, 24), .pending = below(&k, 1, 2), .slice = below(&k, 2, 2), .ties = below(&k, 3, 2) };

        if (below(&k, 4, 3) == 0)
            t.c = 8 * t.c; /* wide loads */
        t.p.size = 1 + below(&k, 5, 5);
        t.p.stride = 1 + below(&k, 6, 3);
        t.p.pad_total = below(&k, 7, t.p.size);
        t.beta = (float)below(&k, 8, 2);
        t.dtype = below(&k, 9, 2) ? DTYPE_BF16 : DTYPE_F32;
        for (int v = 0; v < SHARDS; v++) {
            t.n[v] = 1 + below(&k, 10 + (uint64_t)v, 3);
            t.h[v] = t.p.size + below(&k, 20 + (uint64_t)v, 8);
            t.w[v] = t.p.size + below(&k, 30 + (uint64_t)v, 8);
        }
        check_case(&t);
    }
}

static void spp_window(void **state)
{
    struct pool_case t = { { 13, 1, 12 }, 17, { 13, 3 }, { 13, 15 }, { 1, 1 }, true, false, false, false, 0.0f, DTYPE_F32 };

    (void)state;
    check_case(&t);
}

/* More shards than travel in one launch; both ways through backward. Results: all y, then all dx. */
enum { MANY_SHARDS = 35, MANY_SIDE = 4, MANY_FLOATS = MANY_SIDE * MANY_SIDE * 4 };

static struct tensor many_shape(const struct pooling *p)
{
    struct tensor x = tensor_f32(NULL, 1, MANY_SIDE, MANY_SIDE, 4);

    if (p)
        x.h = x.w = maxpool_out(MANY_SIDE, p);
    return x;
}

static void run_many(struct device *dev, const void *arg, void *ret)
{
    const struct pooling *p = arg;
    struct tensor y[MANY_SHARDS], dy[MANY_SHARDS], dx[MANY_SHARDS];
    struct operand x[MANY_SHARDS] = { 0 };
    float *out = ret;
    struct err err;

    for (int v = 0; v < MANY_SHARDS; v++) {
        x[v].x = dx[v] = many_shape(NULL);
        y[v] = dy[v] = many_shape(p);
        set_data(dev, &x[v].x, DTYPE_F32, numbers(MANY_FLOATS, 20 + (uint64_t)v, -1.0f, 1.0f));
        set_data(dev, &dy[v], DTYPE_F32, numbers(MANY_FLOATS, 60 + (uint64_t)v, -1.0f, 1.0f));
        set_data(dev, &y[v], DTYPE_F32, numbers(MANY_FLOATS, 9, -1.0f, 1.0f));
        set_data(dev, &dx[v], DTYPE_F32, numbers(MANY_FLOATS, 9, -1.0f, 1.0f));
    }
    assert_int_equal(dev->on->pool->max_fwd(dev, p, y, x, MANY_SHARDS, &err), 0);
    assert_int_equal(dev->on->pool->max_bwd(dev, p, dx, 0.0f, dy, x, MANY_SHARDS, &err), 0);
    memset(ret, 0, 2 * MANY_SHARDS * MANY_FLOATS * sizeof(float));
    for (int v = 0; v < MANY_SHARDS; v++, out += MANY_FLOATS)
        get(dev, out, y[v].data, floats_of(&y[v]) * sizeof(float));
    for (int v = 0; v < MANY_SHARDS; v++, out += MANY_FLOATS)
        get(dev, out, dx[v].data, MANY_FLOATS * sizeof(float));
}

static void many_shards(void **state)
{
    static float out[2 * MANY_SHARDS * MANY_FLOATS];

    (void)state;
    same_on_all(run_many, &(struct pooling){ 2, 2, 0 }, out, sizeof(out));
    same_on_all(run_many, &(struct pooling){ 3, 1, 2 }, out, sizeof(out));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(windows), cmocka_unit_test(random_windows), cmocka_unit_test(spp_window),
                                        cmocka_unit_test(many_shards) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
