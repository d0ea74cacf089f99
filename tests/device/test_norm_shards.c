/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_norm_shards.c - uses: proto worker/core cpu cuda
 * Batch normalisation of more shards than the arguments of a launch hold, with a gradient each or a single one for all;
 * and the number of launches. */
#include "tests/device/bf16.h"

#include <math.h>

#include "worker/core/tree.h"
#include "worker/kernels/norm.h"

enum { MANY = 70, MANY_C = 3, MANY_ROW = 2 * MANY_C + 1 };

/* Statistics of shard v: [MANY_ROW]; every seventh shard is empty, and neighbours often have the same size. */
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
    assert_int_equal(dev->on->reduce->tree_moments(dev, dst, stats, n, MANY_C, &err), 0);
    get(dev, out, dst, MANY_ROW * sizeof *dst);
    assert_int_equal(dev->on->reduce->tree_sums(dev, dst, stats, n, MANY_ROW, &err), 0);
    get(dev, out + MANY_ROW, dst, MANY_ROW * sizeof *dst);
    for (int v = 0; v < n; v++)
        stats[v] = mem; /* as with SyncBN */
    assert_int_equal(dev->on->norm->prepare(dev, vector[0], vector[1], vector[2], vector[3], stats, one, one, 1e-5f, MANY_C, n, &err), 0);
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

/* Shards, the vectors of their normalisation, and room for the results. */
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

        c->t[v] = (struct tensor){
            .data = c->da + at, .n = 1, .h = 1, .w = (int)crowd_pixels(v), .c = CROWD_C, .stride = CROWD_C, .dtype = held_as(dev, dtype)
        };
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

    assert_int_equal(dev->on->norm->bwd_reduce(dev, c->sums + from, dest, c->in + from, (const float *const *)c->vector + from,
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
    assert_int_equal(dev->on->norm->bwd_apply(dev, c.t, c.t, c.in, (const float *const *)c.vector, (const float *const *)c.vector,
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

/* If a device takes a single destination for all shards, it gets their sum, added in order. */
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
            if (!dev->one_dest)
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
            assert_false(dev->one_dest);
            free_buffers();
        }
}

/* Statistics and norm_prepare in a single call give the same as one after the other. */
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
    assert_int_equal(dev->on->norm_apart->batch(dev, stats, to[0][0], to[0][1], to[0][2], to[0][3], c->t, gamma, beta, 1e-5f, n, &err), 0);
    assert_int_equal(dev->on->norm->prepare(dev, to[1][0], to[1][1], to[1][2], to[1][3], (const double *const *)stats, gamma, beta, 1e-5f,
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
        for (size_t i = 0; devices.dev[d]->on->norm_apart && i < sizeof counts / sizeof *counts; i++) {
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
            assert_int_equal(dev->on->norm_apart->batch(dev, c.sums, &vector[0], &vector[1], &vector[2], &vector[3], c.t, c.vector[0],
                                                        c.vector[0], 1e-5f, 1, &err),
                             0);
            assert_int_equal(tasks_run(dev) - before, 2);
            dev->ops->set_tier(dev, TIER_WORLD);
            free_buffers();
        }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_shards), cmocka_unit_test(crowd), cmocka_unit_test(merged), cmocka_unit_test(batch),
#ifdef CUDA_EMU
        cmocka_unit_test(launches),
#endif
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
