/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_act.c - activations and sums of tensors, with and without
 * something pending, dense and in slices. uses: proto worker/core cpu cuda */
#include "tests/device/bf16.h"

#include <math.h>

#include "worker/kernels/act.h"

/* The layout of a case's tensors: dense, or slices of channels of wider tensors. The slices begin at any number, or at
 * an address from which 16 bytes can be read at once. */
enum lie { DENSE, SLICE, ALIGNED_SLICE, LIES };

/* Two shards of different shape. */
struct act_case {
    enum act_kind kind;
    bool pending, one_by_one;
    enum lie lie;
    float beta;
    int c;
    enum dtype dtype;
};

enum { N0 = 2 * 5 * 7, N1 = 3 * 4, PIXELS = N0 + N1, MAX_WIDE = 80 };

static const size_t pixels_of[2] = { N0, N1 };

static int wide_of(enum lie lie, int c)
{
    return lie == DENSE ? c : lie == SLICE ? c + 5 : (c + 23) / 8 * 8;
}

static int first_of(enum lie lie)
{
    return lie == DENSE ? 0 : lie == SLICE ? 3 : 8;
}

static struct tensor shard(void *data, int v, int c, enum lie lie, enum dtype dtype, const struct device *dev)
{
    struct tensor t = v == 0 ? tensor_f32(data, 2, 5, 7, c) : tensor_f32(data, 1, 3, 4, c);

    t.dtype = held_as(dev, dtype);
    t.stride = wide_of(lie, c);
    t.data = (char *)data + (size_t)first_of(lie) * dtype_bytes(t.dtype);
    return t;
}

/* A tensor of numbers from `seed`, and in *ret_mem all of the memory it is part of. */
static struct tensor put_shard(struct device *dev, int v, int c, enum lie lie, enum dtype dtype, uint64_t seed, void **ret_mem)
{
    size_t n = pixels_of[v] * (size_t)wide_of(lie, c);
    float *x = numbers_of(dtype, n, seed, -3.0f, 3.0f);

    *ret_mem = put_numbers(dev, x, n, dtype);
    free(x);
    return shard(*ret_mem, v, c, lie, dtype, dev);
}

static void make_affine(struct device *dev, struct affine *a, int c, uint64_t seed)
{
    float *scale = numbers((size_t)c, seed, -1.5f, 1.5f), *shift = numbers((size_t)c, seed + 1, -0.5f, 0.5f);
    float *slope = numbers((size_t)c, seed + 2, 0.0f, 0.3f);

    a->scale = put(dev, scale, (size_t)c * sizeof(float));
    a->shift = put(dev, shift, (size_t)c * sizeof(float));
    a->slope = put(dev, slope, (size_t)c * sizeof(float));
    free(scale);
    free(shift);
    free(slope);
}

/* Fetches the memory of all shards, with the gaps of slices. */
static void fetch(struct device *dev, const struct act_case *t, float *out, void *const *mem)
{
    for (int v = 0; v < 2; v++) {
        size_t n = pixels_of[v] * (size_t)wide_of(t->lie, t->c);

        get_numbers(dev, out, mem[v], n, t->dtype);
        out += n;
    }
}

static size_t result_bytes(const struct act_case *t)
{
    return (size_t)(PIXELS * wide_of(t->lie, t->c)) * sizeof(float);
}

static void run_fwd(struct device *dev, const void *arg, void *ret)
{
    const struct act_case *t = arg;
    struct operand x[2] = { 0 };
    struct tensor y[2];
    void *mem[2], *unused;
    struct err err;

    for (int v = 0; v < 2; v++) {
        y[v] = put_shard(dev, v, t->c, t->lie, t->dtype, 5, &mem[v]);
        x[v].x = put_shard(dev, v, t->c, t->lie, t->dtype, 10 + (uint64_t)v, &unused);
        if (t->pending)
            make_affine(dev, &x[v].act, t->c, 20 + (uint64_t)v);
    }
    for (int v = 0; v < 2; v += t->one_by_one ? 1 : 2)
        assert_int_equal(dev->on->map->act_fwd(dev, t->kind, y + v, x + v, t->one_by_one ? 1 : 2, &err), 0);
    fetch(dev, t, ret, mem);
}

static double plain_act(enum act_kind kind, double x)
{
    switch (kind) {
    case ACT_LEAKY:
        return x > 0 ? x : 0.1 * x;
    case ACT_RELU:
        return x > 0 ? x : 0;
    case ACT_LOGISTIC:
        return 1 / (1 + exp(-x));
    case ACT_TANH:
        return tanh(x);
    case ACT_ELU:
        return x > 0 ? x : exp(x) - 1;
    default:
        return x;
    }
}

static double plain_pending(double x, double scale, double shift, double slope)
{
    double t = x * scale + shift;

    return t > 0 ? t : slope * t;
}

/* fp32 results: the expected results of act_fwd(), and the earlier values in the gaps. */
static void check_fwd(const struct act_case *t, const float *out)
{
    int wide = wide_of(t->lie, t->c), first = first_of(t->lie);

    for (int v = 0; v < 2; v++) {
        size_t n = pixels_of[v] * (size_t)wide;
        float *x = numbers(n, 10 + (uint64_t)v, -3.0f, 3.0f), *old = numbers(n, 5, -3.0f, 3.0f);
        float *scale = numbers((size_t)t->c, 20 + (uint64_t)v, -1.5f, 1.5f), *shift = numbers((size_t)t->c, 21 + (uint64_t)v, -0.5f, 0.5f);
        float *slope = numbers((size_t)t->c, 22 + (uint64_t)v, 0.0f, 0.3f);

        for (int i = 0; i < (int)n; i++) {
            int k = i % wide - first;
            double in = x[i];

            if (k >= 0 && k < t->c && t->pending)
                in = plain_pending(in, (double)scale[k], (double)shift[k], (double)slope[k]);
            near((double)out[i], k >= 0 && k < t->c ? plain_act(t->kind, in) : (double)old[i], 3e-7, "y", (size_t)i);
        }
        out += n;
        free(x);
        free(old);
        free(scale);
        free(shift);
        free(slope);
    }
}

static void forward_case(struct act_case t)
{
    static float a[PIXELS * MAX_WIDE], b[PIXELS * MAX_WIDE];
    size_t bytes = result_bytes(&t);

    same_on_all(run_fwd, &t, a, bytes);
    if (t.dtype == DTYPE_F32)
        check_fwd(&t, a);
    t.one_by_one = true;
    same_on_all(run_fwd, &t, b, bytes);
    assert_memory_equal(a, b, bytes);
}

static void forward(void **state)
{
    static const int channels[] = { 1, 16, 21 };

    (void)state;
    for (int kind = ACT_LINEAR; kind <= ACT_ELU; kind++)
        for (int bits = 0; bits < 4; bits++)
            for (int lie = DENSE; lie < LIES; lie++)
                for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
                    struct act_case t = { .kind = (enum act_kind)kind, .pending = bits & 1, .lie = (enum lie)lie, .c = channels[i] };

                    t.dtype = bits & 2 ? DTYPE_BF16 : DTYPE_F32;
                    forward_case(t);
                }
}

static void run_bwd(struct device *dev, const void *arg, void *ret)
{
    const struct act_case *t = arg;
    struct tensor y[2], dx[2], dy[2];
    void *mem[2], *unused;
    struct err err;

    for (int v = 0; v < 2; v++) {
        size_t n = pixels_of[v] * (size_t)t->c;
        float *h = numbers(n, 30 + (uint64_t)v, -3.0f, 3.0f);

        for (size_t i = 0; i < n; i++)
            h[i] = stored(act_value(t->kind, h[i]), t->dtype);
        y[v] = shard(put_numbers(dev, h, n, t->dtype), v, t->c, DENSE, t->dtype, dev);
        dx[v] = put_shard(dev, v, t->c, t->lie, t->dtype, 40, &mem[v]);
        dy[v] = put_shard(dev, v, t->c, t->lie == DENSE ? DENSE : ALIGNED_SLICE, t->dtype, 50 + (uint64_t)v, &unused);
        free(h);
    }
    assert_int_equal(dev->on->map->act_bwd(dev, t->kind, dx, t->beta, dy, t->kind == ACT_LINEAR ? NULL : y, 2, &err), 0);
    fetch(dev, t, ret, mem);
}

/* The numeric gradient of the activation itself, at points away from the kink. */
static void check_bwd(const struct act_case *t, const float *out)
{
    enum lie dy_lie = t->lie == DENSE ? DENSE : ALIGNED_SLICE;
    int wide = wide_of(t->lie, t->c), dy_wide = wide_of(dy_lie, t->c);
    const double eps = 1e-6;

    for (int v = 0; v < 2; v++) {
        size_t n = pixels_of[v] * (size_t)wide;
        float *x = numbers(pixels_of[v] * (size_t)t->c, 30 + (uint64_t)v, -3.0f, 3.0f), *old = numbers(n, 40, -3.0f, 3.0f);
        float *dy = numbers(pixels_of[v] * (size_t)dy_wide, 50 + (uint64_t)v, -3.0f, 3.0f);

        for (int i = 0; i < (int)n; i++) {
            int k = i % wide - first_of(t->lie), p = i / wide;
            double at, slope;

            if (k < 0 || k >= t->c) {
                assert_true(out[i] == old[i]);
                continue;
            }
            at = (double)x[p * t->c + k];
            slope = (plain_act(t->kind, at + eps) - plain_act(t->kind, at - eps)) / (2 * eps);
            if (fabs(at) > 1e-4)
                near((double)out[i], (t->beta != 0.0f ? (double)old[i] : 0.0) + (double)dy[p * dy_wide + first_of(dy_lie) + k] * slope,
                     1e-6, "dx", (size_t)i);
        }
        out += n;
        free(x);
        free(old);
        free(dy);
    }
}

static void backward(void **state)
{
    static const int channels[] = { 16, 19 };
    static float out[PIXELS * MAX_WIDE];

    (void)state;
    for (int kind = ACT_LINEAR; kind <= ACT_ELU; kind++)
        for (int bits = 0; bits < 8; bits++)
            for (int lie = DENSE; lie < LIES; lie++) {
                struct act_case t = { .kind = (enum act_kind)kind, .lie = (enum lie)lie, .beta = bits & 1 ? 1.0f : 0.0f };

                t.c = channels[bits >> 1 & 1];
                t.dtype = bits & 4 ? DTYPE_BF16 : DTYPE_F32;
                same_on_all(run_bwd, &t, out, result_bytes(&t));
                if (t.dtype == DTYPE_F32)
                    check_bwd(&t, out);
            }
}

enum { BORDER = 8 };

static void run_border(struct device *dev, const void *arg, void *ret)
{
    static const float y[BORDER] = { 0.0f, -0.0f, 1e-30f, -1e-30f, 1.0f, -1.0f, 0.0f, -0.0f }, dy[BORDER] = { 2, 2, 2, 2, 2, 2, -3, -3 };
    const enum act_kind kind = *(const enum act_kind *)arg;
    struct tensor ty = tensor_f32(put(dev, y, sizeof y), 1, 1, 1, BORDER), tdy = tensor_f32(put(dev, dy, sizeof dy), 1, 1, 1, BORDER),
                  dx = tensor_f32(put(dev, NULL, sizeof y), 1, 1, 1, BORDER);
    struct err err;

    assert_int_equal(dev->on->map->act_bwd(dev, kind, &dx, 0.0f, &tdy, &ty, 1, &err), 0);
    get(dev, ret, dx.data, sizeof y);
}

/* At an output of exactly 0 the slope is that of the negative side, the same as for a pending activation. */
static void slope_at_zero(void **state)
{
    const float leaky[BORDER] = { 0.2f, 0.2f, 2, 0.2f, 2, 0.2f, 0.1f * -3, 0.1f * -3 }, relu[BORDER] = { 0, 0, 2, 0, 2, 0, 0, 0 };
    const enum act_kind kinds[] = { ACT_LEAKY, ACT_RELU };
    float dx[BORDER];

    (void)state;
    for (int i = 0; i < 2; i++) {
        same_on_all(run_border, &kinds[i], dx, sizeof dx);
        for (int k = 0; k < BORDER; k++)
            assert_true(dx[k] == (kinds[i] == ACT_LEAKY ? leaky[k] : relu[k]));
    }
}

/* ---- the sum of two values ---- */
struct add_case {
    int pending; /* 1: a, 2: b */
    int c;
    enum dtype dtype;
};

static void run_add(struct device *dev, const void *arg, void *ret)
{
    const struct add_case *t = arg;
    struct operand a[2] = { 0 }, b[2] = { 0 };
    struct tensor y[2];
    void *mem[2], *unused;
    float *out = ret;
    struct err err;

    for (int v = 0; v < 2; v++) {
        y[v] = put_shard(dev, v, t->c, DENSE, t->dtype, 59, &mem[v]);
        a[v].x = put_shard(dev, v, t->c, DENSE, t->dtype, 60, &unused);
        b[v].x = put_shard(dev, v, t->c, DENSE, t->dtype, 61, &unused);
        if (t->pending & 1)
            make_affine(dev, &a[v].act, t->c, 62);
        if (t->pending & 2)
            make_affine(dev, &b[v].act, t->c, 65);
    }
    assert_int_equal(dev->on->map->add_fwd(dev, y, a, b, 2, &err), 0);
    for (int v = 0; v < 2; out += pixels_of[v++] * (size_t)t->c)
        get_numbers(dev, out, mem[v], pixels_of[v] * (size_t)t->c, t->dtype);
}

static double pending_of(const float *x, int i, int c, bool pending, uint64_t seed)
{
    float *scale = numbers((size_t)c, seed, -1.5f, 1.5f), *shift = numbers((size_t)c, seed + 1, -0.5f, 0.5f);
    float *slope = numbers((size_t)c, seed + 2, 0.0f, 0.3f);
    int k = i % c;
    double y = pending ? plain_pending((double)x[i], (double)scale[k], (double)shift[k], (double)slope[k]) : (double)x[i];

    free(scale);
    free(shift);
    free(slope);
    return y;
}

static void check_add(const struct add_case *t, const float *out)
{
    int c = t->c;
    float *a = numbers((size_t)(N0 * c), 60, -3.0f, 3.0f), *b = numbers((size_t)(N0 * c), 61, -3.0f, 3.0f);

    for (int i = 0; i < PIXELS * c; i++) {
        int j = i < N0 * c ? i : i - N0 * c;

        near((double)out[i], pending_of(a, j, c, t->pending & 1, 62) + pending_of(b, j, c, t->pending & 2, 65), 1e-6, "y", (size_t)i);
    }
    free(a);
    free(b);
}

static void sums(void **state)
{
    static float out[PIXELS * 24];

    (void)state;
    for (int bits = 0; bits < 16; bits++) {
        struct add_case t = { bits & 3, bits & 4 ? 24 : 18, bits & 8 ? DTYPE_BF16 : DTYPE_F32 };

        same_on_all(run_add, &t, out, (size_t)(PIXELS * t.c) * sizeof(float));
        if (t.dtype == DTYPE_F32)
            check_add(&t, out);
    }
}

/* ---- more shards than one launch takes, with and without numbers; another element type ---- */
enum { MANY = 37 };

static size_t many_pixels(int v)
{
    return (size_t)(v % 5 * 3);
}

/* Casts shard by shard to `dtype` and back. */
static void run_cast(struct device *dev, const void *arg, void *ret)
{
    const enum dtype dtype = *(const enum dtype *)arg;
    struct tensor x[MANY], half[MANY], y[MANY];
    float *out = ret;
    struct err err;

    for (int v = 0; v < MANY; v++) {
        float *n = numbers(many_pixels(v) * 3, (uint64_t)v, -3.0f, 3.0f);

        x[v] = half[v] = y[v] = tensor_f32(NULL, 1, 1, (int)many_pixels(v), 3);
        x[v].data = put(dev, n, tensor_count(&x[v]) * sizeof(float));
        half[v].dtype = held_as(dev, dtype);
        half[v].data = put(dev, NULL, tensor_count(&x[v]) * sizeof(float));
        y[v].data = put(dev, NULL, tensor_count(&x[v]) * sizeof(float));
        free(n);
    }
    assert_int_equal(dev->on->map->cast(dev, half, x, MANY, &err), 0);
    assert_int_equal(dev->on->map->cast(dev, y, half, MANY, &err), 0);
    for (int v = 0; v < MANY; out += tensor_count(&y[v++])) {
        get(dev, out, y[v].data, tensor_count(&y[v]) * sizeof(float));
        for (size_t i = 0; i < tensor_count(&y[v]); i++)
            out[i] = stored(out[i], dtype); /* devices without it made a copy */
    }
}

static void casts(void **state)
{
    static float out[MANY * 36];
    size_t n = 0, at = 0;

    (void)state;
    for (int v = 0; v < MANY; v++)
        n += many_pixels(v) * 3;
    for (int bits = 0; bits < 2; bits++) {
        const enum dtype dtype = bits ? DTYPE_BF16 : DTYPE_F32;

        same_on_all(run_cast, &dtype, out, n * sizeof(float));
        at = 0;
        for (int v = 0; v < MANY; v++) {
            float *x = numbers(many_pixels(v) * 3, (uint64_t)v, -3.0f, 3.0f);

            for (size_t i = 0; i < many_pixels(v) * 3; i++)
                assert_true(out[at++] == stored(x[i], dtype));
            free(x);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(forward), cmocka_unit_test(backward), cmocka_unit_test(sums),
                                        cmocka_unit_test(slope_at_zero), cmocka_unit_test(casts) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
