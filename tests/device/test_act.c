/* tests/device/test_act.c - activations and sums of tensors, with and without something pending, dense and in slices.
 * uses: proto worker/core cpu */
#include "tests/device/devices.h"

#include <math.h>

#include "worker/kernels/act.h"

/* Two shards of different shape; y is a slice of channels in a wider tensor. */
struct act_case {
    enum act_kind kind;
    bool pending, slice, one_by_one;
    float beta;
    int c;
};

enum { N0 = 2 * 5 * 7, N1 = 3 * 4 };

static const size_t pixels_of[2] = { N0, N1 };

static struct tensor shard(float *data, int v, int c, int stride)
{
    struct tensor t = v == 0 ? tensor_f32(data, 2, 5, 7, c) : tensor_f32(data, 1, 3, 4, c);

    t.stride = stride;
    return t;
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

static float *put_numbers(struct device *dev, size_t n, uint64_t seed)
{
    float *x = numbers(n, seed, -3.0f, 3.0f), *p = put(dev, x, n * sizeof(*x));

    free(x);
    return p;
}

static void run_fwd(struct device *dev, const void *arg, void *ret)
{
    const struct act_case *t = arg;
    int wide = t->slice ? t->c + 5 : t->c;
    struct tensor y[2];
    struct operand x[2] = { 0 };
    float *out = ret;
    struct err err;

    for (int v = 0; v < 2; v++) {
        size_t n = pixels_of[v] * (size_t)wide;

        y[v] = shard(put(dev, NULL, n * sizeof(float)), v, t->c, wide);
        x[v].x = shard(put_numbers(dev, n, 10 + (uint64_t)v), v, t->c, wide);
        if (t->pending)
            make_affine(dev, &x[v].act, t->c, 20 + (uint64_t)v);
    }
    for (int v = 0; v < 2; v += t->one_by_one ? 1 : 2)
        assert_int_equal(dev->ops->act_fwd(dev, t->kind, y + v, x + v, t->one_by_one ? 1 : 2, &err), 0);
    for (int v = 0; v < 2; out += pixels_of[v++] * (size_t)wide)
        get(dev, out, y[v].data, pixels_of[v] * (size_t)wide * sizeof(float));
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
    default:
        return x;
    }
}

static double plain_pending(double x, double scale, double shift, double slope)
{
    double t = x * scale + shift;

    return t > 0 ? t : slope * t;
}

static void check_fwd(const struct act_case *t, const float *out)
{
    int wide = t->slice ? t->c + 5 : t->c;

    for (int v = 0; v < 2; v++) {
        float *x = numbers(pixels_of[v] * (size_t)wide, 10 + (uint64_t)v, -3.0f, 3.0f);
        float *scale = numbers((size_t)t->c, 20 + (uint64_t)v, -1.5f, 1.5f), *shift = numbers((size_t)t->c, 21 + (uint64_t)v, -0.5f, 0.5f);
        float *slope = numbers((size_t)t->c, 22 + (uint64_t)v, 0.0f, 0.3f);

        for (int i = 0; i < (int)pixels_of[v] * wide; i++) {
            int k = i % wide;
            double in = x[i];

            if (k < t->c && t->pending)
                in = plain_pending(in, (double)scale[k], (double)shift[k], (double)slope[k]);
            near((double)out[i], k < t->c ? plain_act(t->kind, in) : 0.0, 3e-7, "y", (size_t)i);
        }
        out += pixels_of[v] * (size_t)wide;
        free(x);
        free(scale);
        free(shift);
        free(slope);
    }
}

static void forward(void **state)
{
    static float a[(N0 + N1) * 64], b[(N0 + N1) * 64];

    (void)state;
    for (int kind = ACT_LINEAR; kind <= ACT_TANH; kind++)
        for (int bits = 0; bits < 4; bits++) {
            struct act_case t = { (enum act_kind)kind, bits & 1, bits & 2, false, 0.0f, bits & 2 ? 21 : 16 };
            size_t bytes = (size_t)((N0 + N1) * (t.slice ? t.c + 5 : t.c)) * sizeof(float);

            same_on_all(run_fwd, &t, a, bytes);
            check_fwd(&t, a);
            t.one_by_one = true;
            same_on_all(run_fwd, &t, b, bytes);
            assert_memory_equal(a, b, bytes);
        }
}

static void run_bwd(struct device *dev, const void *arg, void *ret)
{
    const struct act_case *t = arg;
    struct tensor y[2], dx[2], dy[2];
    float *out = ret;
    struct err err;

    for (int v = 0; v < 2; v++) {
        int n = (int)pixels_of[v] * t->c, wide = t->c + 3;
        float *h = numbers((size_t)n, 30 + (uint64_t)v, -3.0f, 3.0f);

        for (int i = 0; i < n; i++)
            h[i] = act_value(t->kind, h[i]);
        y[v] = shard(put(dev, h, (size_t)n * sizeof(float)), v, t->c, t->c);
        dx[v] = shard(put_numbers(dev, (size_t)n, 40), v, t->c, t->c);
        dy[v] = shard(put_numbers(dev, pixels_of[v] * (size_t)wide, 50 + (uint64_t)v), v, t->c, t->slice ? wide : t->c);
        free(h);
    }
    assert_int_equal(dev->ops->act_bwd(dev, t->kind, dx, t->beta, dy, t->kind == ACT_LINEAR ? NULL : y, 2, &err), 0);
    for (int v = 0; v < 2; out += pixels_of[v++] * (size_t)t->c)
        get(dev, out, dx[v].data, pixels_of[v] * (size_t)t->c * sizeof(float));
}

/* The numeric gradient of the activation itself, at points away from the kink. */
static void check_bwd(const struct act_case *t, const float *out)
{
    const double eps = 1e-6;

    for (int v = 0; v < 2; v++) {
        int n = (int)pixels_of[v] * t->c, wide = t->slice ? t->c + 3 : t->c;
        float *x = numbers((size_t)n, 30 + (uint64_t)v, -3.0f, 3.0f), *old = numbers((size_t)n, 40, -3.0f, 3.0f);
        float *dy = numbers(pixels_of[v] * ((size_t)t->c + 3), 50 + (uint64_t)v, -3.0f, 3.0f);

        for (int i = 0; i < n; i++) {
            double slope = (plain_act(t->kind, (double)x[i] + eps) - plain_act(t->kind, (double)x[i] - eps)) / (2 * eps);
            double d = dy[i / t->c * wide + i % t->c];

            if (fabsf(x[i]) > 1e-4f)
                near((double)out[i], (t->beta != 0.0f ? (double)old[i] : 0.0) + d * slope, 1e-6, "dx", (size_t)i);
        }
        out += n;
        free(x);
        free(old);
        free(dy);
    }
}

static void backward(void **state)
{
    static float a[(N0 + N1) * 64];

    (void)state;
    for (int kind = ACT_LINEAR; kind <= ACT_TANH; kind++)
        for (int bits = 0; bits < 4; bits++) {
            struct act_case t = { (enum act_kind)kind, false, bits & 2, false, bits & 1 ? 1.0f : 0.0f, 19 };

            same_on_all(run_bwd, &t, a, (size_t)((N0 + N1) * t.c) * sizeof(float));
            check_bwd(&t, a);
        }
}

static void run_add(struct device *dev, const void *arg, void *ret)
{
    int bits = *(const int *)arg, c = 18;
    struct operand a[2] = { 0 }, b[2] = { 0 };
    struct tensor y[2];
    float *out = ret;
    struct err err;

    for (int v = 0; v < 2; v++) {
        size_t n = pixels_of[v] * (size_t)c;

        y[v] = shard(put(dev, NULL, n * sizeof(float)), v, c, c);
        a[v].x = shard(put_numbers(dev, n, 60), v, c, c);
        b[v].x = shard(put_numbers(dev, n, 61), v, c, c);
        if (bits & 1)
            make_affine(dev, &a[v].act, c, 62);
        if (bits & 2)
            make_affine(dev, &b[v].act, c, 65);
    }
    assert_int_equal(dev->ops->add_fwd(dev, y, a, b, 2, &err), 0);
    for (int v = 0; v < 2; out += pixels_of[v++] * (size_t)c)
        get(dev, out, y[v].data, pixels_of[v] * (size_t)c * sizeof(float));
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

static void sums(void **state)
{
    static float out[(N0 + N1) * 18];
    float *a = numbers(N0 * 18, 60, -3.0f, 3.0f), *b = numbers(N0 * 18, 61, -3.0f, 3.0f);

    (void)state;
    for (int bits = 0; bits < 4; bits++) {
        same_on_all(run_add, &bits, out, sizeof(out));
        for (int i = 0; i < (N0 + N1) * 18; i++) {
            int j = i < N0 * 18 ? i : i - N0 * 18;

            near((double)out[i], pending_of(a, j, 18, bits & 1, 62) + pending_of(b, j, 18, bits & 2, 65), 1e-6, "y", (size_t)i);
        }
    }
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(forward), cmocka_unit_test(backward), cmocka_unit_test(sums) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
