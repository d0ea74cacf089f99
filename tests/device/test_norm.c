/* tests/device/test_norm.c - batch normalisation: the vector, numeric gradients, and equal bits whoever computes them.
 * uses: proto worker/core cpu cuda */
#include "tests/device/bf16.h"

#include <jansson.h>
#include <math.h>

#include "tests/harness.h"
#include "worker/core/safetensors.h"
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
/* Several slabs at 320 channels, where a block of the CUDA device has not all of them. */
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
    assert_int_equal(dev->ops->norm_prepare(dev, a->mean, a->invstd, a->scale, a->shift, (const double *const *)a->stats, gamma, beta,
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

/* Results: per shard sums [2c], then dx, then the gradients of beta and those of gamma. One was overwritten, the other, beta's with sync, was
 * added to. */
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
        assert_int_equal(dev->ops->norm_bwd_reduce(
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
        assert_int_equal(dev->ops->norm_bwd_apply(dev, a.dx + v, a.da + v, a.x + v, (const float *const *)a.mean + v,
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

/* One parameter moved both ways; a kink in between shows as a difference of the one-sided slopes and is left out. */
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
    assert_int_equal(dev->ops->norm_bwd_reduce(dev, &sums, (const struct sums_dest[]){ dest, dest }, &in, &mean, &invstd, &t, 1, &err), 0);
    assert_int_equal(dev->ops->norm_bwd_apply(dev, &t, &t, &in, NULL, NULL, NULL, NULL, 1, &err), 0);
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

/* ---- over more shards than the arguments of a launch hold ---- */
enum { MANY = 70, MANY_C = 3, MANY_ROW = 2 * MANY_C + 1 };

/* Statistics of shard v: [MANY_ROW]; every seventh shard is empty, and neighbours are often as large. */
static void many_stats(int v, double *ret)
{
    float *x = numbers(MANY_ROW, 90 + (uint64_t)v, 0.0f, 4.0f);

    for (int j = 0; j < MANY_ROW; j++)
        ret[j] = (double)x[j];
    ret[0] = v % 7 == 3 ? 0 : 2 + v / 3;
    free(x);
}

/* Merged moments, merged sums, then shards of norm_prepare() one after the other. */
static void run_many(struct device *dev, const void *arg, void *ret)
{
    const int n = *(const int *)arg;
    double *out = ret, *dst = put(dev, NULL, MANY_ROW * sizeof *dst), *mem = put(dev, NULL, MANY * MANY_ROW * sizeof *mem);
    float *prepared = put(dev, NULL, 4 * MANY * MANY_C * sizeof(float));
    const float ones[MANY_C] = { 1, 1, 1 };
    float *vector[4][MANY], *one = put(dev, ones, sizeof ones), *floats = (float *)(out + 2 * MANY_ROW);
    const double *stats[MANY];
    struct err err;

    for (int v = 0; v < n; v++) {
        double row[MANY_ROW];

        many_stats(v, row);
        assert_int_equal(dev->ops->upload(dev, mem + v * MANY_ROW, row, sizeof row, &err), 0);
        stats[v] = mem + v * MANY_ROW;
        for (int i = 0; i < 4; i++)
            vector[i][v] = prepared + (i * MANY + v) * MANY_C;
    }
    assert_int_equal(dev->ops->merge_moments(dev, dst, stats, n, MANY_C, &err), 0);
    get(dev, out, dst, MANY_ROW * sizeof *dst);
    assert_int_equal(dev->ops->merge_sums(dev, dst, stats, n, MANY_ROW, &err), 0);
    get(dev, out + MANY_ROW, dst, MANY_ROW * sizeof *dst);
    for (int v = 0; v < n; v++)
        stats[v] = mem; /* as with SyncBN */
    assert_int_equal(dev->ops->norm_prepare(dev, vector[0], vector[1], vector[2], vector[3], stats, one, one, 1e-5f, MANY_C, n, &err), 0);
    get(dev, floats, prepared, 4 * MANY * MANY_C * sizeof(float));
}

static void many_shards(void **state)
{
    static const int counts[] = { 1, 3, 16, 17, 64, MANY };
    static double out[2 * MANY_ROW + 2 * MANY * MANY_C], row[MANY][MANY_ROW];
    const double *rows[MANY];
    double want[MANY_ROW];

    (void)state;
    for (int v = 0; v < MANY; v++) {
        many_stats(v, row[v]);
        rows[v] = row[v];
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        same_on_all(run_many, &counts[i], out, sizeof out);
        tree_moments(want, rows, counts[i], MANY_C);
        assert_memory_equal(out, want, sizeof want);
        tree_sum_rows(want, rows, counts[i], MANY_ROW);
        assert_memory_equal(out + MANY_ROW, want, sizeof want);
    }
}

/* The backward of shards of 1 to 400 pixels; large ones make several slabs each. */
enum { CROWD = 37, CROWD_C = 40, CROWD_PIXELS = 400 };

static size_t crowd_pixels(int v)
{
    return 1 + (size_t)v * 97 % CROWD_PIXELS;
}

/* All devices cut alike, so only numbers tell: another cut would be other bits than those of an older version. */
static void slabs_by_channels(void **state)
{
    static const int pixels[][2] = { { 1, 512 }, { 32, 512 }, { 33, 496 }, { 64, 256 }, { 1023, 16 }, { 1024, 16 }, { 2048, 16 } };

    (void)state;
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels; i++)
        assert_int_equal(norm_slab_pixels(pixels[i][0]), pixels[i][1]);
}

/* Shards, the vectors of their normalisation, and room for what comes of them. */
struct crowd {
    struct tensor t[CROWD];
    struct operand in[CROWD];
    float *vector[CROWD], *grads, *grad[2][CROWD];
    double *sums_mem, *sums[CROWD];
    char *da;
};

static void crowd_put(struct device *dev, enum dtype dtype, bool one_grad, struct crowd *c)
{
    const size_t n = (size_t)CROWD * CROWD_PIXELS * CROWD_C;
    float *x = numbers_of(dtype, n, 80, -2.0f, 3.0f), *da = numbers_of(dtype, n, 81, -1.0f, 1.0f),
          *v4 = numbers(4 * CROWD_C, 82, 0.5f, 1.5f);
    char *x_mem = put_numbers(dev, x, n, dtype);
    float *vectors = put(dev, v4, 4 * CROWD_C * sizeof(float));

    c->da = put_numbers(dev, da, n, dtype);
    c->sums_mem = put(dev, NULL, CROWD * 2 * CROWD_C * sizeof(double));
    c->grads = put(dev, x, CROWD * 2 * CROWD_C * sizeof(float));
    for (int v = 0; v < CROWD; v++) {
        size_t at = (size_t)v * CROWD_PIXELS * CROWD_C * dtype_bytes(held_as(dev, dtype));

        c->t[v] = (struct tensor){ c->da + at, 1, 1, (int)crowd_pixels(v), CROWD_C, CROWD_C, held_as(dev, dtype) };
        c->in[v] = (struct operand){ c->t[v], { vectors, vectors + CROWD_C, vectors + 2 * CROWD_C } };
        c->in[v].x.data = x_mem + at;
        c->vector[v] = vectors + 3 * CROWD_C;
        c->sums[v] = c->sums_mem + v * 2 * CROWD_C;
        for (int i = 0; i < 2; i++)
            c->grad[i][v] = c->grads + (one_grad ? i : 2 * v + i) * CROWD_C;
    }
    free(x);
    free(da);
    free(v4);
}

/* The sums of shards [from, from + n); gradients of beta are overwritten, of gamma added to. */
static void crowd_reduce(struct device *dev, struct crowd *c, int from, int n)
{
    const struct sums_dest dest[2] = { { c->grad[0] + from, 0 }, { c->grad[1] + from, 1 } };
    struct err err;

    assert_int_equal(dev->ops->norm_bwd_reduce(dev, c->sums + from, dest, c->in + from, (const float *const *)c->vector + from,
                                               (const float *const *)c->vector + from, c->t + from, n, &err),
                     0);
}

static void run_crowd(struct device *dev, const void *arg, void *ret)
{
    const enum dtype dtype = *(const enum dtype *)arg;
    const double count[2 * CROWD_C + 1] = { 7 };
    const double *stats_mem = put(dev, count, sizeof count), *stats[CROWD];
    double *sums = ret;
    float *grads = (float *)(sums + CROWD * 2 * CROWD_C);
    struct crowd c;
    struct err err;

    crowd_put(dev, dtype, false, &c);
    for (int v = 0; v < CROWD; v++)
        stats[v] = stats_mem;
    crowd_reduce(dev, &c, 0, CROWD);
    assert_int_equal(dev->ops->norm_bwd_apply(dev, c.t, c.t, c.in, (const float *const *)c.vector, (const float *const *)c.vector,
                                              (const double *const *)c.sums, stats, CROWD, &err),
                     0);
    get(dev, sums, c.sums_mem, CROWD * 2 * CROWD_C * sizeof *sums);
    get(dev, grads, c.grads, CROWD * 2 * CROWD_C * sizeof *grads);
    get_numbers(dev, grads + CROWD * 2 * CROWD_C, c.da, (size_t)CROWD * CROWD_PIXELS * CROWD_C, dtype);
}

static void crowd(void **state)
{
    const size_t bytes = CROWD * CROWD_C * (2 * (sizeof(double) + sizeof(float)) + CROWD_PIXELS * sizeof(float));
    void *out = malloc(bytes);

    (void)state;
    for (int bits = 0; bits < 2; bits++) {
        const enum dtype dtype = bits ? DTYPE_BF16 : DTYPE_F32;

        same_on_all(run_crowd, &dtype, out, bytes);
    }
    free(out);
}

/* Where a device takes one destination for all shards, it gets their sum, added in order. */
static void merged(void **state)
{
    static const int counts[] = { 2, 4, 5, 16, 17, CROWD };

    (void)state;
    for (int d = 0; d < devices.n; d++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            struct device *dev = devices.dev[d];
            float before[2 * CROWD_C], after[2 * CROWD_C];
            static double sums[CROWD][2 * CROWD_C];
            struct crowd c;

            dev->ops->set_tier(dev, TIER_RERUN);
            if (!dev->merges)
                continue;
            use_device(d);
            crowd_put(dev, DTYPE_F32, true, &c);
            get(dev, before, c.grads, sizeof before);
            crowd_reduce(dev, &c, 0, counts[i]);
            get(dev, after, c.grads, sizeof after);
            get(dev, sums, c.sums_mem, sizeof sums);
            for (int j = 0; j < 2 * CROWD_C; j++) {
                double sum = 0;

                for (int v = 0; v < counts[i]; v++)
                    sum += sums[v][j];
                assert_true(after[j] == (j < CROWD_C ? (float)sum : before[j] + (float)sum));
            }
            dev->ops->set_tier(dev, TIER_WORLD);
            assert_false(dev->merges);
            free_buffers();
        }
}

/* Statistics and what norm_prepare makes of them, in one: the same as one after the other. */
static void run_batch(struct device *dev, int n, struct crowd *c)
{
    enum { ROW = 2 * CROWD_C + 1 };
    double *stats_mem = put(dev, NULL, CROWD * ROW * sizeof *stats_mem), *stats[CROWD], got[ROW];
    float *mem[2] = { put(dev, NULL, 4 * CROWD * CROWD_C * sizeof(float)), put(dev, NULL, 4 * CROWD * CROWD_C * sizeof(float)) };
    static float one[4 * CROWD * CROWD_C], two[4 * CROWD * CROWD_C], x[CROWD_PIXELS * CROWD_C];
    float *to[2][4][CROWD], *gamma = c->vector[0], *beta = gamma - CROWD_C;
    struct err err;

    for (int v = 0; v < n; v++) {
        stats[v] = stats_mem + v * ROW;
        for (int i = 0; i < 8; i++)
            to[i / 4][i % 4][v] = mem[i / 4] + (4 * v + i % 4) * CROWD_C;
    }
    assert_int_equal(dev->ops->norm_batch(dev, stats, to[0][0], to[0][1], to[0][2], to[0][3], c->t, gamma, beta, 1e-5f, n, &err), 0);
    assert_int_equal(dev->ops->norm_prepare(dev, to[1][0], to[1][1], to[1][2], to[1][3], (const double *const *)stats, gamma, beta, 1e-5f,
                                            CROWD_C, n, &err),
                     0);
    get(dev, one, mem[0], sizeof one);
    get(dev, two, mem[1], sizeof two);
    assert_memory_equal(one, two, sizeof one);
    for (int v = 0; v < n; v++) {
        size_t npixels = crowd_pixels(v);

        get(dev, got, stats[v], sizeof got);
        get(dev, x, c->t[v].data, npixels * CROWD_C * sizeof *x);
        assert_true(got[0] == (double)npixels);
        for (size_t k = 0; k < CROWD_C; k++) {
            double sum = 0, m2 = 0;

            for (size_t i = 0; i < npixels; i++)
                sum += (double)x[i * CROWD_C + k];
            for (size_t i = 0; i < npixels; i++)
                m2 += pow((double)x[i * CROWD_C + k] - sum / (double)npixels, 2);
            near(got[1 + k], sum / (double)npixels, 1e-6, "mean", k);
            near(got[1 + CROWD_C + k], m2, 1e-5, "M2", k);
            assert_true(one[(size_t)v * 4 * CROWD_C + k] == (float)got[1 + k]);
        }
    }
}

static void batch(void **state)
{
    static const int counts[] = { 1, 16, CROWD };

    (void)state;
    for (int d = 0; d < devices.n; d++)
        for (size_t i = 0; devices.dev[d]->ops->norm_batch && i < sizeof counts / sizeof *counts; i++) {
            struct crowd c;

            use_device(d);
            crowd_put(devices.dev[d], DTYPE_F32, false, &c);
            run_batch(devices.dev[d], counts[i], &c);
            free_buffers();
        }
}

#ifdef CUDA_EMU
static uint64_t tasks_run(struct device *dev)
{
    struct err err;

    assert_int_equal(dev->ops->sync(dev, &err), 0);
    return emu_tasks_run();
}

/* A step has a hundred and fifty of these: two launches each, whether or not all shards have one gradient. */
static void launches(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++)
        for (int one_grad = 0; devices.seed[d] && one_grad < 2; one_grad++) {
            struct device *dev = devices.dev[d];
            float *vector[4];
            uint64_t before;
            struct crowd c;
            struct err err;

            use_device(d);
            dev->ops->set_tier(dev, one_grad ? TIER_RERUN : TIER_WORLD);
            crowd_put(dev, DTYPE_F32, one_grad, &c);
            for (int i = 0; i < 4; i++)
                vector[i] = c.grads + i * CROWD_C;
            crowd_reduce(dev, &c, 0, 1); /* scratch memory is there */
            before = tasks_run(dev);
            crowd_reduce(dev, &c, 0, 4);
            assert_int_equal(tasks_run(dev) - before, 2);
            before = tasks_run(dev);
            assert_int_equal(dev->ops->norm_batch(dev, c.sums, &vector[0], &vector[1], &vector[2], &vector[3], c.t, c.vector[0],
                                                  c.vector[0], 1e-5f, 1, &err),
                             0);
            assert_int_equal(tasks_run(dev) - before, 2);
            dev->ops->set_tier(dev, TIER_WORLD);
            free_buffers();
        }
}
#endif

enum { RUNNING_MOST = 70 };

struct running_case {
    int nstats, c, skip;
    bool sync;
    double stats[RUNNING_MOST][5];
    float mean[2], var[2];
};

/* Three layers: the one of the case between two others, whose channels it must not touch; its statistics begin in mid-record. */
static void run_running(struct device *dev, const void *arg, void *ret)
{
    enum { BEFORE = 3, AFTER = 300, MIDDLE = 2 * BEFORE + 1, BEHIND = MIDDLE + 5, RECORD = BEHIND + 2 * AFTER + 1 };
    const struct running_case *t = arg;
    const double *stats[RUNNING_MOST];
    float ones[AFTER], *out = ret;
    struct param mean[3] = { { .count = BEFORE }, { .count = (size_t)t->c }, { .count = AFTER } }, var[3];
    struct running_item items[3];
    int32_t *skip = put(dev, &t->skip, sizeof(int32_t));
    struct err err;

    for (int k = 0; k < AFTER; k++)
        ones[k] = 1.0f;
    for (int i = 0; i < t->nstats; i++) {
        double record[RECORD];

        for (int j = 0; j < RECORD; j++)
            record[j] = 2.0;
        memcpy(record + MIDDLE, t->stats[i], sizeof t->stats[i]);
        stats[i] = put(dev, record, sizeof record);
    }
    for (int l = 0; l < 3; l++) {
        var[l] = mean[l];
        mean[l].data = put(dev, l == 1 ? t->mean : ones, l == 1 ? sizeof t->mean : mean[l].count * sizeof(float));
        var[l].data = put(dev, l == 1 ? t->var : ones, l == 1 ? sizeof t->var : mean[l].count * sizeof(float));
        items[l] = (struct running_item){ &mean[l], &var[l], l == 0 ? 0 : l == 1 ? MIDDLE : BEHIND, l == 1 && t->sync };
    }
    assert_int_equal(dev->ops->norm_running(dev, items, 3, stats, t->nstats, 0.1f, skip, &err), 0);
    assert_true(mean[0].version == 1 && var[2].version == 1);
    get(dev, out, mean[1].data, sizeof t->mean);
    get(dev, out + 2, var[1].data, sizeof t->var);
    get(dev, ones, mean[2].data, sizeof ones); /* .9 * 1 + .1 * 2 */
    for (int k = 0; k < AFTER; k++)
        near((double)ones[k], t->skip ? 1 : 1.1, 1e-6, "layer behind", (size_t)k);
}

static void running(void **state)
{
    struct running_case t = {
        .nstats = 2, .c = 2, .stats = { { 4, 4, 1, 38, 3 }, { 4, 2, -1, 10, 6 } }, .mean = { 0, 3 }, .var = { 1, 2 }
    };
    float out[4];

    (void)state;
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.9 * 0 + 0.1 * 3, 1e-6, "mean", 0);
    near((double)out[1], 0.9 * 3 + 0.1 * 0, 1e-6, "mean", 1);
    near((double)out[2], 0.9 * 1 + 0.1 * (38.0 / 3 + 10.0 / 3) / 2, 1e-6, "var", 0);
    near((double)out[3], 0.9 * 2 + 0.1 * (1.0 + 2.0) / 2, 1e-6, "var", 1);
    t.skip = 1;
    same_on_all(run_running, &t, out, sizeof(out));
    assert_true(out[0] == 0.0f && out[1] == 3.0f && out[2] == 1.0f && out[3] == 2.0f);
}

/* One pixel has no unbiased variance: the shard's mean counts, the variance is that of the others, or stays. */
static void running_of_one_pixel(void **state)
{
    struct running_case t = { .nstats = 2, .c = 2, .stats = { { 4, 4, 1, 38, 3 }, { 1, 2, -1, 0, 0 } }, .mean = { 0, 3 }, .var = { 1, 2 } };
    float out[4];

    (void)state;
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.9 * 0 + 0.1 * 3, 1e-6, "mean", 0);
    near((double)out[1], 0.9 * 3 + 0.1 * 0, 1e-6, "mean", 1);
    near((double)out[2], 0.9 * 1 + 0.1 * 38 / 3, 1e-6, "var", 0);
    near((double)out[3], 0.9 * 2 + 0.1 * 1, 1e-6, "var", 1);
    t.sync = true; /* five pixels as one batch */
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.1 * 18 / 5, 1e-6, "merged mean", 0);
    near((double)out[1], 0.9 * 3 + 0.1 * 3 / 5, 1e-6, "merged mean", 1);
    near((double)out[2], 0.9 * 1 + 0.1 * (38 + 4 * 4.0 / 5) / 4, 1e-6, "merged var", 0);
    near((double)out[3], 0.9 * 2 + 0.1 * (3 + 4 * 4.0 / 5) / 4, 1e-6, "merged var", 1);
    t.stats[0][0] = 1;
    t.stats[0][3] = t.stats[0][4] = 0;
    same_on_all(run_running, &t, out, sizeof(out)); /* two pixels of two shards */
    near((double)out[2], 0.9 * 1 + 0.1 * 2, 1e-6, "merged var", 0);
    t.sync = false;
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.1 * 3, 1e-6, "mean", 0);
    assert_true(out[2] == 1.0f && out[3] == 2.0f);
    t.sync = true;
    t.nstats = 1; /* one pixel in all */
    same_on_all(run_running, &t, out, sizeof(out));
    near((double)out[0], 0.1 * 4, 1e-6, "mean", 0);
    assert_true(out[2] == 1.0f && out[3] == 2.0f);
}

/* The update of channel k by the words of device.h. */
static void plain_running(const struct running_case *t, int k, double *ret_mean, double *ret_var)
{
    double pixels = 0, sum = 0, square = 0, means = 0, vars = 0;
    int nvars = 0;

    for (int v = 0; v < t->nstats; v++) {
        const double *s = t->stats[v];

        pixels += s[0];
        sum += s[0] * s[1 + k];
        square += s[3 + k] + s[0] * s[1 + k] * s[1 + k];
        means += s[1 + k];
        vars += s[0] > 1 ? s[3 + k] / (s[0] - 1) : 0;
        nvars += s[0] > 1;
    }
    *ret_mean = 0.9 * (double)t->mean[k] + 0.1 * (t->sync ? sum / pixels : means / t->nstats);
    *ret_var = 0.9 * (double)t->var[k] + 0.1 * (t->sync ? (square - sum * sum / pixels) / (pixels - 1) : vars / nvars);
}

/* As many rows as are read at once, fewer and more, with shards of one pixel at the end or everywhere. */
static void running_many(void **state)
{
    static const int counts[] = { 3, 4, 6, 7, 8, 9, 15, 16, RUNNING_MOST };
    struct running_case t = { .c = 2, .mean = { 0, 3 }, .var = { 1, 2 } };
    float out[4];

    (void)state;
    for (size_t i = 0; i < 4 * (sizeof counts / sizeof *counts); i++) {
        t.nstats = counts[i / 4];
        t.sync = i % 2;
        for (int v = 0; v < RUNNING_MOST; v++) {
            t.stats[v][0] = v == t.nstats - 1 || (i % 4 > 1 && v % 3 == 0) ? 1 : 5 + v;
            for (int j = 1; j < 5; j++)
                t.stats[v][j] = t.stats[v][0] > 1 || j < 3 ? 1.0 / (7 * v + j) + (j < 3 ? v % 2 : 0) : 0;
        }
        same_on_all(run_running, &t, out, sizeof(out));
        for (int k = 0; k < 2; k++) {
            double mean, var;

            plain_running(&t, k, &mean, &var);
            near((double)out[k], mean, 1e-6, "mean", (size_t)k);
            near((double)out[2 + k], var, 1e-6, "var", (size_t)k);
        }
    }
}

/* number() of make_norm.py */
static double golden_number(int step, int shard, int pixel, int channel)
{
    uint32_t i = (uint32_t)(((step * 8 + shard) * 64 + pixel) * 3 + channel);

    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    i ^= i >> 13;
    return (double)(float)(((i >> 8) / 16777216.0 - 0.5) * 2.4 + (shard % 2 ? 0.7 : -0.7) * (1 + channel));
}

/* count, mean and M2 of one channel of a shard */
static void golden_stats(int step, int shard, int npixels, int channel, double *ret)
{
    ret[0] = npixels;
    ret[1] = ret[2] = 0;
    for (int p = 0; p < npixels; p++)
        ret[1] += golden_number(step, shard, p, channel) / npixels;
    for (int p = 0; p < npixels; p++)
        ret[2] += pow(golden_number(step, shard, p, channel) - ret[1], 2);
}

static void golden_case(const struct safetensors *f, const char *name, const int *pixels)
{
    struct running_case t = { .nstats = 8, .c = 1, .sync = strstr(name, "sync") != NULL };
    const struct st_array *array = safetensors_find(f, name);
    float want[6], out[4];
    struct err err;

    assert_true(array && st_count(array) == 6);
    assert_int_equal(safetensors_f32(array, want, &err), 0);
    for (int k = 0; k < 3; k++) {
        t.mean[0] = 0;
        t.var[0] = 1;
        for (int step = 0; step < 2; step++) {
            for (int v = 0; v < 8; v++)
                golden_stats(step, v, pixels[v], k, t.stats[v]);
            same_on_all(run_running, &t, out, sizeof(out));
            t.mean[0] = out[0];
            t.var[0] = out[2];
        }
        near((double)out[0], (double)want[k], 1e-6, "running mean", (size_t)k);
        near((double)out[2], (double)want[3 + k], 1e-6, "running variance", (size_t)k);
    }
}

/* PyTorch's, of the batch that the shards are cut from (make_norm.py). */
static void running_golden(void **state)
{
    static const int even[8] = { 64, 64, 64, 64, 64, 64, 64, 64 }, uneven[8] = { 1, 6, 25, 1, 40, 3, 1, 1 };
    struct safetensors *f;
    struct err err;

    (void)state;
    if (safetensors_open("tests/golden/norm.safetensors", &f, &err) < 0)
        fail_msg("%s", err.msg);
    golden_case(f, "even.sync", even);
    golden_case(f, "even.shards", even);
    golden_case(f, "uneven.sync", uneven);
    safetensors_close(f);
}

static double member(json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static void vector(void **state)
{
    json_t *root = json_load_file("../shared/specs/vectors/yolov3_misc.json", 0, NULL), *t = json_object_get(root, "batchnorm");
    struct running_case r = { .nstats = 1, .c = 1, .var = { 1 } };
    struct norm_channel n;
    float out[4];

    (void)state;
    if (!t) {
        json_decref(root);
        SKIP("no ../shared/specs/vectors/yolov3_misc.json");
        return;
    }
    n = norm_channel(member(t, "mean"), member(t, "var_biased"), 1.0f, 0.0f, 1e-5f);
    for (size_t i = 0; i < 4; i++) {
        double x = json_number_value(json_array_get(json_object_get(t, "x"), i));

        near((double)fmaf((float)x, n.scale, n.shift), json_number_value(json_array_get(json_object_get(t, "y_gamma1_beta0"), i)), 1e-6,
             "y", i);
    }
    r.stats[0][0] = 4;
    r.stats[0][1] = member(t, "mean");
    r.stats[0][2] = member(t, "var_biased") * 4;
    same_on_all(run_running, &r, out, sizeof(out));
    near((double)out[0], member(t, "running_mean_after"), 1e-6, "running mean", 0);
    near((double)out[2], member(t, "running_var_after"), 1e-6, "running variance", 0);
    json_decref(root);
}

/* invstd, scale, shift of three channels from running statistics. */
static void run_small(struct device *dev, const void *arg, void *ret)
{
    const float mean[3] = { 1, -2, 0.5f }, var[3] = { 4, 0, 1 }, gamma[3] = { 1, 2, -1 }, beta[3] = { 0, 1, 2 };
    float *out = put(dev, NULL, 9 * sizeof(float));
    struct err err;

    (void)arg;
    assert_int_equal(dev->ops->norm_prepare_running(dev, out, out + 3, out + 6, put(dev, mean, sizeof(mean)), put(dev, var, sizeof(var)),
                                                    put(dev, gamma, sizeof(gamma)), put(dev, beta, sizeof(beta)), 1e-5f, 3, &err),
                     0);
    get(dev, ret, out, 9 * sizeof(float));
}

static void running_prepare(void **state)
{
    const double mean[3] = { 1, -2, 0.5 }, var[3] = { 4, 0, 1 }, gamma[3] = { 1, 2, -1 }, beta[3] = { 0, 1, 2 };
    float out[9] = { 0 };

    (void)state;
    same_on_all(run_small, NULL, out, sizeof(out));
    for (size_t k = 0; k < 3; k++) {
        double invstd = 1 / sqrt(var[k] + 1e-5);

        near((double)out[k], invstd, 1e-6, "invstd", k);
        near((double)out[3 + k], gamma[k] * invstd, 1e-6, "scale", k);
        near((double)out[6 + k], beta[k] - mean[k] * gamma[k] * invstd, 1e-6, "shift", k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(slope_at_zero),
                                        cmocka_unit_test(gradients),
                                        cmocka_unit_test(bits_and_bodies),
                                        cmocka_unit_test(running),
                                        cmocka_unit_test(running_many),
                                        cmocka_unit_test(running_of_one_pixel),
                                        cmocka_unit_test(running_golden),
                                        cmocka_unit_test(vector),
                                        cmocka_unit_test(running_prepare),
                                        cmocka_unit_test(many_shards),
                                        cmocka_unit_test(crowd),
                                        cmocka_unit_test(merged),
                                        cmocka_unit_test(batch),
#ifdef CUDA_EMU
                                        cmocka_unit_test(launches),
#endif
                                        cmocka_unit_test(slabs_by_channels) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
