/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_norm.c - uses: proto worker/core cpu cuda
 * Batch normalisation of a few shards: numeric gradients, the slope at zero, and equal bits in all ways to compute
 * them. */
#include "tests/device/bf16.h"

#include <math.h>

#include "worker/core/tree.h"
#include "worker/kernels/norm.h"

enum { SHARDS = 3, MAX_C = 320, MAX_LARGE_C = 100 };

struct norm_case {
    int c;
    bool slice, one_by_one, frozen, sync;
    bool apart;                 /* dx goes into memory of its own, at an odd stride; not of slices */
    const struct tensor *shape; /* [SHARDS] */
    enum dtype dtype;           /* of x and da */
};

/* 1100 pixels: several slabs of 512 at 16 channels; 6 pixels: less than one. */
static const struct tensor small[SHARDS] = { { .n = 2, .h = 3, .w = 4 }, { .n = 1, .h = 5, .w = 5 }, { .n = 2, .h = 3, .w = 1 } };
static const struct tensor large[SHARDS] = { { .n = 2, .h = 22, .w = 25 }, { .n = 1, .h = 3, .w = 2 }, { .n = 3, .h = 23, .w = 19 } };
/* Several slabs at 320 channels; a block of the CUDA device does not cover all of these channels. */
static const struct tensor middle[SHARDS] = { { .n = 2, .h = 9, .w = 9 }, { .n = 1, .h = 3, .w = 2 }, { .n = 1, .h = 5, .w = 11 } };

struct inputs {
    float *x[SHARDS], *da[SHARDS], *gamma, *beta, *slope;
    double stats[SHARDS][2 * MAX_C + 1];
};

static size_t floats_of(const struct norm_case *t, int v)
{
    return tensor_pixels(&t->shape[v]) * (size_t)(t->slice ? t->c + 3 : t->c);
}

static void plain_stats(const struct norm_case *t, const float *x, int v, double *ret)
{
    size_t n = tensor_pixels(&t->shape[v]), wide = (size_t)(t->slice ? t->c + 3 : t->c);

    ret[0] = (double)n;
    for (int k = 0; k < t->c; k++) {
        double sum = 0, m2 = 0;

        for (size_t i = 0; i < n; i++)
            sum += (double)x[i * wide + (size_t)k];
        for (size_t i = 0; i < n; i++)
            m2 += pow((double)x[i * wide + (size_t)k] - sum / (double)n, 2);
        ret[1 + k] = sum / (double)n;
        ret[1 + t->c + k] = m2;
    }
}

static void make_inputs(const struct norm_case *t, struct inputs *in)
{
    const double *stats[SHARDS];
    double all[2 * MAX_C + 1];

    in->gamma = numbers((size_t)t->c, 1, 0.5f, 1.5f);
    in->beta = numbers((size_t)t->c, 2, -0.5f, 0.5f);
    in->slope = numbers((size_t)t->c, 3, 0.0f, 0.4f);
    for (int v = 0; v < SHARDS; v++) {
        in->x[v] = numbers_of(t->dtype, floats_of(t, v), 4 + (uint64_t)v, -2.0f, 3.0f);
        in->da[v] = numbers_of(t->dtype, floats_of(t, v), 14 + (uint64_t)v, -1.0f, 1.0f);
        plain_stats(t, in->x[v], v, in->stats[v]);
    }
    for (int v = 0; v < SHARDS; v++)
        stats[v] = in->stats[v];
    tree_moments(all, stats, SHARDS, t->c);
    for (int v = 0; v < SHARDS && t->sync; v++)
        memcpy(in->stats[v], all, sizeof(all));
}

static void free_inputs(struct inputs *in)
{
    for (int v = 0; v < SHARDS; v++) {
        free(in->x[v]);
        free(in->da[v]);
    }
    free(in->gamma);
    free(in->beta);
    free(in->slope);
}

/* Device arrays of one run. */
struct arrays {
    float *mean[SHARDS], *invstd[SHARDS], *scale[SHARDS], *shift[SHARDS];
    float *grad[2][SHARDS]; /* of beta, gamma */
    double *stats[SHARDS], *sums[SHARDS];
    struct operand x[SHARDS];
    struct tensor da[SHARDS], dx[SHARDS];
};

static void prepare(struct device *dev, const struct norm_case *t, const struct inputs *in, struct arrays *a)
{
    size_t row = (size_t)t->c * sizeof(float);
    float *gamma = put(dev, in->gamma, row), *beta = put(dev, in->beta, row), *slope = put(dev, in->slope, row);
    struct err err;

    for (int v = 0; v < SHARDS; v++) {
        float **const vector[] = { &a->mean[v], &a->invstd[v], &a->scale[v], &a->shift[v] };

        for (int i = 0; i < 4; i++)
            *vector[i] = put(dev, NULL, row);
        a->stats[v] = put(dev, in->stats[v], (2 * (size_t)t->c + 1) * sizeof(double));
        a->sums[v] = put(dev, NULL, 2 * (size_t)t->c * sizeof(double));
        for (int i = 0; i < 2; i++)
            a->grad[i][v] = put(dev, in->gamma, row);
        a->x[v].x = t->shape[v];
        a->x[v].x.c = t->c;
        a->x[v].x.stride = t->slice ? t->c + 3 : t->c;
        a->x[v].x.dtype = held_as(dev, t->dtype);
        a->da[v] = a->x[v].x;
        a->x[v].x.data = put_numbers(dev, in->x[v], floats_of(t, v), t->dtype);
        a->da[v].data = put_numbers(dev, in->da[v], floats_of(t, v), t->dtype);
        a->dx[v] = a->da[v];
        if (t->apart) {
            a->dx[v].stride++;
            a->dx[v].data = put(dev, NULL, tensor_pixels(&t->shape[v]) * (size_t)a->dx[v].stride * sizeof(float));
        }
        a->x[v].act = (struct affine){ a->scale[v], a->shift[v], slope };
    }
    assert_int_equal(dev->on->norm->prepare(dev, a->mean, a->invstd, a->scale, a->shift, (const double *const *)a->stats, gamma, beta,
                                            1e-5f, t->c, SHARDS, &err),
                     0);
}

/* dx of shard v without gaps. Memory apart: they are untouched, and so is da. */
static void get_dx(struct device *dev, const struct norm_case *t, const struct arrays *a, const struct inputs *in, int v, float *ret)
{
    size_t npixels = tensor_pixels(&t->shape[v]), stride = (size_t)a->dx[v].stride, c = (size_t)t->c;
    float *all;

    if (!t->apart) {
        get_numbers(dev, ret, a->dx[v].data, floats_of(t, v), t->dtype);
        return;
    }
    all = malloc(npixels * stride * sizeof *all);
    assert_non_null(all);
    get_numbers(dev, all, a->dx[v].data, npixels * stride, t->dtype);
    for (size_t i = 0; i < npixels; i++) {
        memcpy(ret + i * c, all + i * stride, c * sizeof *all);
        assert_true(all[i * stride + c] == 0.0f);
    }
    get_numbers(dev, all, a->da[v].data, npixels * c, t->dtype);
    for (size_t i = 0; i < npixels * c; i++)
        assert_true(all[i] == in->da[v][i]);
    free(all);
}

/* Results: per shard sums [2c], then dx, then the gradients of beta and those of gamma. With sync, the gradient of beta
 * is added to, otherwise that of gamma; the other is overwritten. */
static void run_bwd(struct device *dev, const void *arg, void *ret)
{
    const struct norm_case *t = arg;
    int step = t->one_by_one ? 1 : SHARDS;
    struct inputs in;
    struct arrays a;
    struct err err;
    double *sums = ret;
    float *dx = (float *)(sums + SHARDS * 2 * t->c);

    make_inputs(t, &in);
    prepare(dev, t, &in, &a);
    for (int v = 0; v < SHARDS; v += step)
        assert_int_equal(dev->on->norm->bwd_reduce(
                             dev, a.sums + v, (const struct sums_dest[]){ { a.grad[0] + v, t->sync }, { a.grad[1] + v, !t->sync } },
                             a.x + v, (const float *const *)a.mean + v, (const float *const *)a.invstd + v, a.da + v, step, &err),
                         0);
    for (int v = 0; v < SHARDS; v++)
        get(dev, sums + v * 2 * t->c, a.sums[v], 2 * (size_t)t->c * sizeof(double));
    if (t->sync) { /* the exchange of the trainer: everybody gets the sum over all shards */
        double all[2 * MAX_C];

        tree_sum_rows(all, (const double *const[]){ sums, sums + 2 * t->c, sums + 4 * t->c }, SHARDS, 2 * (size_t)t->c);
        for (int v = 0; v < SHARDS; v++)
            assert_int_equal(dev->ops->upload(dev, a.sums[v], all, 2 * (size_t)t->c * sizeof(double), &err), 0);
    }
    for (int v = 0; v < SHARDS; v += step)
        assert_int_equal(dev->on->norm->bwd_apply(dev, a.dx + v, a.da + v, a.x + v, (const float *const *)a.mean + v,
                                                  (const float *const *)a.invstd + v, t->frozen ? NULL : (const double *const *)a.sums + v,
                                                  (const double *const *)a.stats + v, step, &err),
                         0);
    for (int v = 0; v < SHARDS; dx += floats_of(t, v++))
        get_dx(dev, t, &a, &in, v, dx);
    for (int i = 0; i < 2 * SHARDS; i++, dx += t->c)
        get(dev, dx, a.grad[i / SHARDS][i % SHARDS], (size_t)t->c * sizeof *dx);
    free_inputs(&in);
}

static size_t result_bytes(const struct norm_case *t)
{
    size_t n = SHARDS * 2 * (size_t)t->c * (sizeof(double) + sizeof(float));

    for (int v = 0; v < SHARDS; v++)
        n += floats_of(t, v) * sizeof(float);
    return n;
}

/* L = sum of da * activated value over all shards, in double; frozen: with the statistics of the untouched input. */
static double plain_loss(const struct norm_case *t, struct inputs *in)
{
    double loss = 0, stats[SHARDS][2 * MAX_C + 1], all[2 * MAX_C + 1];
    size_t wide = (size_t)(t->slice ? t->c + 3 : t->c);

    for (int v = 0; v < SHARDS; v++)
        plain_stats(t, in->x[v], v, stats[v]);
    tree_moments(all, (const double *const[]){ stats[0], stats[1], stats[2] }, SHARDS, t->c);
    for (int v = 0; v < SHARDS; v++)
        for (size_t i = 0; i < tensor_pixels(&t->shape[v]); i++)
            for (int k = 0; k < t->c; k++) {
                const double *s = t->frozen ? in->stats[v] : t->sync ? all : stats[v];
                double xhat = ((double)in->x[v][i * wide + (size_t)k] - s[1 + k]) / sqrt(s[1 + t->c + k] / s[0] + 1e-5);
                double y = xhat * (double)in->gamma[k] + (double)in->beta[k];

                loss += (double)in->da[v][i * wide + (size_t)k] * (y > 0 ? y : (double)in->slope[k] * y);
            }
    return loss;
}

/* Moves a single parameter both ways. A kink in between shows as a difference of the one-sided slopes and is left
 * out. */
static bool slope_at(const struct norm_case *t, struct inputs *in, float *at, double *ret_slope)
{
    float old = *at, up = old + 0.0004f, down = old - 0.0004f;
    double mid = plain_loss(t, in), right, left;

    *at = up;
    right = (plain_loss(t, in) - mid) / ((double)up - (double)old);
    *at = down;
    left = (mid - plain_loss(t, in)) / ((double)old - (double)down);
    *at = old;
    *ret_slope = (left + right) / 2;
    return fabs(left - right) < 0.02;
}

static void check_gradients(const struct norm_case *t, const void *result)
{
    const double *sums = result;
    const float *dx = (const float *)(sums + SHARDS * 2 * t->c);
    size_t tried = 0, used = 0, wide = (size_t)(t->slice ? t->c + 3 : t->c);
    struct inputs in;

    make_inputs(t, &in);
    for (int v = 0; v < SHARDS; dx += floats_of(t, v++))
        for (size_t i = 0; i < floats_of(t, v); i += 7) {
            double slope;

            if (i % wide >= (size_t)t->c) {
                assert_true(dx[i] == in.da[v][i]); /* the gap of a slice */
                continue;
            }
            tried++;
            if (slope_at(t, &in, &in.x[v][i], &slope)) {
                near((double)dx[i], slope, 2e-3, "dx", i);
                used++;
            }
        }
    for (int k = 0; k < t->c && !t->frozen; k++) {
        double beta = 0, gamma = 0, slope;

        for (int v = 0; v < SHARDS; v++) {
            beta += sums[v * 2 * t->c + k];
            gamma += sums[v * 2 * t->c + t->c + k];
        }
        if (slope_at(t, &in, &in.beta[k], &slope))
            near(beta, slope, 2e-3, "dbeta", (size_t)k);
        if (slope_at(t, &in, &in.gamma[k], &slope))
            near(gamma, slope, 2e-3, "dgamma", (size_t)k);
    }
    assert_true(used > tried * 3 / 4);
    free_inputs(&in);
}

static void gradients(void **state)
{
    struct norm_case t = { .c = 5, .shape = small };

    (void)state;
    for (int bits = 0; bits < 6; bits++) {
        char *result;

        t.slice = bits & 1;
        t.frozen = bits / 2 == 1;
        t.sync = bits / 2 == 2;
        result = malloc(result_bytes(&t));
        same_on_all(run_bwd, &t, result, result_bytes(&t));
        check_gradients(&t, result);
        free(result);
    }
}

/* The sums are the body's slabs, added pairwise, and the gradients are the sums. */
static void check_bodies(const struct norm_case *t, const double *sums)
{
    const float *grad = (const float *)(sums + SHARDS * 2 * t->c);
    static struct inputs in;

    make_inputs(t, &in);
    for (int v = 0; v < SHARDS; v++)
        grad += floats_of(t, v);
    for (int v = 0; v < SHARDS; v++)
        for (int k = 0; k < t->c; k++) {
            struct norm_channel n =
                norm_channel(in.stats[v][1 + k], in.stats[v][1 + t->c + k] / in.stats[v][0], in.gamma[k], in.beta[k], 1e-5f);
            int per = norm_slab_pixels(t->c), npixels = (int)tensor_pixels(&t->shape[v]), nslabs = (npixels + per - 1) / per;
            double part[2][128];

            for (int s = 0; s < nslabs; s++) {
                int to = (s + 1) * per < npixels ? (s + 1) * per : npixels;
                float ret[2];

                norm_slab(ret, in.x[v] + k, t->c, in.da[v] + k, t->c, s * per, to, n.scale, n.shift, in.slope[k], n.mean, n.invstd);
                part[0][s] = (double)ret[0];
                part[1][s] = (double)ret[1];
            }
            assert_true(sums[v * 2 * t->c + k] == tree_sum(part[0], 1, nslabs));
            assert_true(sums[v * 2 * t->c + t->c + k] == tree_sum(part[1], 1, nslabs));
            assert_true(grad[v * t->c + k] == (t->sync ? in.gamma[k] : 0.0f) + (float)sums[v * 2 * t->c + k]);
            assert_true(grad[(SHARDS + v) * t->c + k] == (t->sync ? 0.0f : in.gamma[k]) + (float)sums[v * 2 * t->c + t->c + k]);
        }
    free_inputs(&in);
}

static void bits_and_bodies(void **state)
{
    const int channels[] = { 1, 16, 37, 64, 100, 320 };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof channels / sizeof *channels; i++) {
        struct norm_case t = { .c = channels[i / 2],
                               .shape = channels[i / 2] > MAX_LARGE_C ? middle : large,
                               .dtype = i % 2 ? DTYPE_BF16 : DTYPE_F32 };
        size_t bytes = result_bytes(&t);
        char *a = malloc(bytes), *b = malloc(bytes);

        same_on_all(run_bwd, &t, a, bytes);
        check_bodies(&t, (const double *)a);
        t.one_by_one = true;
        same_on_all(run_bwd, &t, b, bytes);
        assert_memory_equal(a, b, bytes);
        t.apart = true;
        same_on_all(run_bwd, &t, b, bytes);
        assert_memory_equal(a, b, bytes);
        t.frozen = true;
        same_on_all(run_bwd, &t, a, bytes);
        t.apart = false;
        same_on_all(run_bwd, &t, b, bytes);
        assert_memory_equal(a, b, bytes);
        free(a);
        free(b);
        t.slice = true;
        t.frozen = false;
        a = malloc(result_bytes(&t));
        same_on_all(run_bwd, &t, a, result_bytes(&t));
        free(a);
    }
}

/* x * 0 + 0 is on the kink: there the slope is that of the negative side. */
static void run_kink(struct device *dev, const void *arg, void *ret)
{
    enum { C = 3 };
    const float scale[C] = { 2, 2, 2 }, shift[C] = { 0, 0, -2 }, slope[C] = { 0.25f, 0, 0.25f }, x[C] = { 0, 0, 1 }, da[C] = { 1, 1, 1 };
    const float zero[C] = { 0 };
    struct operand in = { tensor_f32(put(dev, x, sizeof x), 1, 1, 1, C),
                          { put(dev, scale, sizeof scale), put(dev, shift, sizeof shift), put(dev, slope, sizeof slope) } };
    struct tensor t = tensor_f32(put(dev, da, sizeof da), 1, 1, 1, C);
    const float *mean = put(dev, zero, sizeof zero), *invstd = put(dev, da, sizeof da);
    double *sums = put(dev, NULL, 2 * C * sizeof *sums);
    float *grad = put(dev, NULL, C * sizeof *grad);
    const struct sums_dest dest = { &grad, 0 };
    struct err err;

    (void)arg;
    assert_int_equal(dev->on->norm->bwd_reduce(dev, &sums, (const struct sums_dest[]){ dest, dest }, &in, &mean, &invstd, &t, 1, &err), 0);
    assert_int_equal(dev->on->norm->bwd_apply(dev, &t, &t, &in, NULL, NULL, NULL, NULL, 1, &err), 0);
    get(dev, ret, sums, C * sizeof *sums);
    get(dev, (double *)ret + C, t.data, sizeof da);
}

static void slope_at_zero(void **state)
{
    struct {
        double sum[3];
        float dx[3];
    } out = { { 0 }, { 0 } };

    (void)state;
    same_on_all(run_kink, NULL, &out, sizeof out.sum + sizeof out.dx);
    assert_true(out.sum[0] == 0.25 && out.sum[1] == 0 && out.sum[2] == 0.25);
    assert_true(out.dx[0] == 0.5f && out.dx[1] == 0 && out.dx[2] == 0.5f);
}

/* All devices cut alike, so only fixed numbers show a change: another cut would give other bits than an older
 * version. */
static void slabs_by_channels(void **state)
{
    static const int pixels[][2] = { { 1, 512 }, { 32, 512 }, { 33, 496 }, { 64, 256 }, { 1023, 16 }, { 1024, 16 }, { 2048, 16 } };

    (void)state;
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        assert_int_equal(norm_slab_pixels(pixels[i][0]), pixels[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slope_at_zero),
        cmocka_unit_test(gradients),
        cmocka_unit_test(bits_and_bodies),
        cmocka_unit_test(slabs_by_channels),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
