/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_view.c - pictures as the network reads them, channels
 * that become pixels. uses: proto worker/core cpu cuda */
#include "tests/device/bf16.h"

#include "worker/ops/view.h"

enum { SHARDS = 2 };

/* ---- pictures ---- */

enum { PICTURE_FLOATS = (2 * 5 * 7 + 1 * 3 * 9) * 3 };

static const struct tensor picture[SHARDS] = { { .n = 2, .h = 5, .w = 7, .c = 3, .stride = 3, .dtype = DTYPE_U8 },
                                               { .n = 1, .h = 3, .w = 9, .c = 3, .stride = 3, .dtype = DTYPE_U8 } };
static const int32_t sizes[SHARDS][4] = { { 5, 7, 2, 6 }, { 3, 4 } };

struct colours_case {
    struct view_colours colours;
    enum dtype dtype;
    bool whole; /* sizes are not given */
};

static uint8_t byte_at(int v, size_t i)
{
    return (uint8_t)((i * 37 + (size_t)v * 11 + i / 5) % 256);
}

static void run_pictures(struct device *dev, const void *arg, void *ret)
{
    const struct colours_case *t = arg;
    struct tensor x[SHARDS], y[SHARDS];
    const int32_t *size[SHARDS];
    float *out = ret;
    struct err err;

    for (int v = 0; v < SHARDS; v++) {
        uint8_t bytes[2 * 5 * 7 * 3];
        float *old = numbers_of(t->dtype, sizeof bytes, 3, 1.0f, 2.0f);

        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = byte_at(v, i);
        x[v] = y[v] = picture[v];
        x[v].data = put(dev, bytes, tensor_count(&x[v]));
        y[v].dtype = held_as(dev, t->dtype);
        y[v].data = put_numbers(dev, old, tensor_count(&y[v]), t->dtype);
        size[v] = put(dev, sizes[v], sizeof sizes[v]);
        free(old);
    }
    assert_int_equal(dev->on->view->normalise(dev, y, x, t->whole ? NULL : size, &t->colours, SHARDS, &err), 0);
    for (int v = 0; v < SHARDS; out += tensor_count(&y[v++]))
        get_numbers(dev, out, y[v].data, tensor_count(&y[v]), t->dtype);
}

static float colour(const struct colours_case *t, int v, size_t pixel, int k)
{
    int w = picture[v].w, h = picture[v].h, image = (int)(pixel / (size_t)(w * h)), y = (int)(pixel / (size_t)w) % h, x = (int)pixel % w;

    if (!t->whole && (y >= sizes[v][2 * image] || x >= sizes[v][2 * image + 1]))
        return 0.0f;
    return ((float)byte_at(v, pixel * 3 + (size_t)(t->colours.swap ? 2 - k : k)) - t->colours.mean[k]) / t->colours.std[k];
}

static void pictures(void **state)
{
    static float out[PICTURE_FLOATS];

    (void)state;
    for (int swap = 0; swap < 2; swap++)
        for (int kind = 0; kind < 4; kind++) {
            struct colours_case t = { { { 103.53f, 116.28f, 123.675f }, { 1.0f, 57.375f, 0.5f }, swap },
                                      kind % 2 ? DTYPE_BF16 : DTYPE_F32,
                                      kind > 1 };
            size_t at = 0;

            same_on_all(run_pictures, &t, out, sizeof out);
            for (int v = 0; v < SHARDS; v++)
                for (size_t i = 0; i < tensor_count(&picture[v]); i++, at++)
                    assert_true(out[at] == stored(colour(&t, v, i / 3, (int)(i % 3)), t.dtype));
        }
}

/* ---- shuffle ---- */

struct shuffle_case {
    int c; /* of the large side */
    bool bias, gap;
    float beta;
    enum dtype dtype;
};

static const struct tensor shape[SHARDS] = { { .n = 2, .h = 3, .w = 2 }, { .n = 3, .h = 1, .w = 4 } };

static struct tensor sized(const struct shuffle_case *t, int v, int factor)
{
    int c = factor == 1 ? 4 * t->c : t->c;

    return (struct tensor){
        .n = shape[v].n, .h = shape[v].h * factor, .w = shape[v].w * factor, .c = c, .stride = t->gap ? c + 2 : c, .dtype = DTYPE_F32
    };
}

static size_t floats_of(const struct tensor *t)
{
    return tensor_pixels(t) * (size_t)t->stride;
}

static void fill(struct device *dev, struct tensor *t, enum dtype dtype, uint64_t seed)
{
    float *host = numbers_of(dtype, floats_of(t), seed, -1.0f, 1.0f);

    t->data = put_numbers(dev, host, floats_of(t), dtype);
    t->dtype = held_as(dev, dtype);
    free(host);
}

/* Results: y of both shards, then dx. */
static void run_shuffle(struct device *dev, const void *arg, void *ret)
{
    const struct shuffle_case *t = arg;
    struct tensor x[SHARDS], y[SHARDS], dy[SHARDS], dx[SHARDS];
    float *bias = numbers((size_t)t->c, 6, -1.0f, 1.0f), *out = ret;
    const float *there = put(dev, bias, (size_t)t->c * sizeof *bias);
    struct err err;

    for (int v = 0; v < SHARDS; v++) {
        x[v] = dx[v] = sized(t, v, 1);
        y[v] = dy[v] = sized(t, v, 2);
        fill(dev, &x[v], t->dtype, 1 + (uint64_t)v);
        fill(dev, &dx[v], t->dtype, 3);
        fill(dev, &dy[v], t->dtype, 4 + (uint64_t)v);
        fill(dev, &y[v], t->dtype, 9);
    }
    assert_int_equal(dev->on->view->shuffle_fwd(dev, y, x, t->bias ? there : NULL, SHARDS, &err), 0);
    assert_int_equal(dev->on->view->shuffle_bwd(dev, dx, t->beta, dy, SHARDS, &err), 0);
    for (int v = 0; v < SHARDS; out += floats_of(&y[v++]))
        get_numbers(dev, out, y[v].data, floats_of(&y[v]), t->dtype);
    for (int v = 0; v < SHARDS; out += floats_of(&dx[v++]))
        get_numbers(dev, out, dx[v].data, floats_of(&dx[v]), t->dtype);
    free(bias);
}

/* y as the definition of a transposed convolution has it: pixel (2i + u, 2j + v) is quarter (u, v) of pixel (i, j). */
static void check_fwd(const struct shuffle_case *t, int v, const float *y)
{
    struct tensor xs = sized(t, v, 1), ys = sized(t, v, 2);
    float *x = numbers_of(t->dtype, floats_of(&xs), 1 + (uint64_t)v, -1.0f, 1.0f), *bias = numbers((size_t)t->c, 6, -1.0f, 1.0f);

    for (int n = 0; n < ys.n; n++)
        for (int r = 0; r < ys.h; r++)
            for (int s = 0; s < ys.w; s++)
                for (int k = 0; k < t->c; k++) {
                    float in = x[((n * xs.h + r / 2) * xs.w + s / 2) * xs.stride + (2 * (r % 2) + s % 2) * t->c + k];

                    assert_true(y[((n * ys.h + r) * ys.w + s) * ys.stride + k] == stored(t->bias ? in + bias[k] : in, t->dtype));
                }
    free(x);
    free(bias);
}

static void check_bwd(const struct shuffle_case *t, int v, const float *dx)
{
    struct tensor xs = sized(t, v, 1), ys = sized(t, v, 2);
    float *dy = numbers_of(t->dtype, floats_of(&ys), 4 + (uint64_t)v, -1.0f, 1.0f);
    float *old = numbers_of(t->dtype, floats_of(&xs), 3, -1.0f, 1.0f);

    for (int i = 0; i < xs.n * xs.h * xs.w; i++)
        for (int k = 0; k < xs.stride; k++) {
            int n = i / (xs.h * xs.w), r = i / xs.w % xs.h, s = i % xs.w, q = k / t->c, at = i * xs.stride + k;
            float g = k < xs.c ? dy[((n * ys.h + 2 * r + q / 2) * ys.w + 2 * s + q % 2) * ys.stride + k % t->c] : 0.0f;

            assert_true(dx[at] == (k < xs.c ? stored(t->beta != 0.0f ? old[at] + g : g, t->dtype) : old[at]));
        }
    free(dy);
    free(old);
}

static void check(const struct shuffle_case *t)
{
    static float out[8192];
    const float *at = out;
    size_t n = 0;

    for (int v = 0; v < SHARDS; v++) {
        struct tensor x = sized(t, v, 1), y = sized(t, v, 2);

        n += floats_of(&x) + floats_of(&y);
    }
    assert_true(n <= sizeof out / sizeof *out);
    same_on_all(run_shuffle, t, out, n * sizeof *out);
    for (int v = 0; v < SHARDS; v++) {
        struct tensor y = sized(t, v, 2);

        check_fwd(t, v, at);
        at += floats_of(&y);
    }
    for (int v = 0; v < SHARDS; v++) {
        struct tensor x = sized(t, v, 1);

        check_bwd(t, v, at);
        at += floats_of(&x);
    }
}

static void shuffling(void **state)
{
    (void)state;
    for (int bits = 0; bits < 32; bits++)
        check(&(struct shuffle_case){ .c = bits & 1 ? 16 : 5,
                                      .bias = bits & 2,
                                      .gap = bits & 4,
                                      .beta = bits & 8 ? 1.0f : 0.0f,
                                      .dtype = bits & 16 ? DTYPE_BF16 : DTYPE_F32 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures),
        cmocka_unit_test(shuffling),
    };
    return cmocka_run_group_tests_name("view", tests, open_devices, close_devices);
}
