/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_layernorm.c - uses: proto worker/core cpu cuda
 * Layer normalisation: the vectors of specs sparse_rcnn section 15, plain sums in double, dtypes, gaps, shards. */
#include "tests/device/bf16.h"
#include "tests/device/golden_json.h"

#include <jansson.h>
#include <math.h>

enum { SHARDS = 3, GAP = 3, MOST = 256 };

/* The arrays of a shard: tensors of rows of c + GAP numbers, then the gradients of gamma and beta, then statistics. */
enum array { X, OTHER, DY, Y, DX, DOTHER, DGAMMA, DBETA, STATS, ARRAYS };

struct rows_case {
    int c, nshards, rows[SHARDS], first; /* first: number of the first shard */
    bool relu, residual, one;            /* one: the gradients of all shards have one place */
    enum dtype x, other, y;
    float beta;                                 /* for all but dresidual, which has 1 - beta */
    bool absent[ARRAYS];                        /* not wanted */
    const float *given[DY + 1], *gamma, *shift; /* of shard 0, or NULL: drawn */
};

static size_t count_of(const struct rows_case *t, int v, enum array a)
{
    size_t rows = (size_t)t->rows[v], c = (size_t)t->c;

    return a < DGAMMA ? rows * (c + GAP) : a < STATS ? c : 2 * rows;
}

static enum dtype dtype_of(const struct rows_case *t, enum array a)
{
    return a == X || a == DX ? t->x : a == OTHER || a == DOTHER ? t->other : a == Y || a == DY ? t->y : DTYPE_F32;
}

static size_t floats_of(const struct rows_case *t, int v)
{
    size_t n = 0;

    for (int a = Y; a < ARRAYS; a++)
        n += count_of(t, v, (enum array)a);
    return n;
}

/* The initial numbers of an array. */
static float *start_of(const struct rows_case *t, int v, enum array a)
{
    size_t n = count_of(t, v, a), wide = (size_t)t->c + GAP;
    float *x = numbers_of(dtype_of(t, a), n + 1, 100 + 10 * (uint64_t)(t->first + v) + (uint64_t)a, -2.0f, 1.5f);

    for (size_t i = 0; a <= DY && t->given[a] && i < n; i++)
        x[i] = i % wide < (size_t)t->c ? t->given[a][i / wide * (size_t)t->c + i % wide] : 0.0f;
    return x;
}

static float *channels_of(const struct rows_case *t, const float *given, uint64_t seed, float lo)
{
    float *x = numbers((size_t)t->c, seed, lo, 1.0f);

    if (given)
        memcpy(x, given, (size_t)t->c * sizeof *x);
    return x;
}

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct rows_case *t = arg;
    float *gamma = channels_of(t, t->gamma, 50, 0.25f), *shift = channels_of(t, t->shift, 51, -0.5f), *stats[SHARDS], *grad[2][SHARDS];
    const struct rows_norm how = { 1e-5f, t->relu, put(dev, gamma, (size_t)t->c * 4), put(dev, shift, (size_t)t->c * 4) };
    const struct sums_dest dest[2] = { { t->absent[DGAMMA] ? NULL : grad[0], t->beta }, { t->absent[DBETA] ? NULL : grad[1], t->beta } };
    struct tensor x[DOTHER + 1][SHARDS];
    float *mem[ARRAYS], *at = ret;
    struct err err;

    for (int v = 0; v < t->nshards; v++)
        for (int a = 0; a < ARRAYS; a++) {
            float *host = start_of(t, v, (enum array)a);

            mem[a] = put_numbers(dev, host, count_of(t, v, (enum array)a), dtype_of(t, (enum array)a));
            free(host);
            if (a < DGAMMA)
                x[a][v] = (struct tensor){ mem[a], t->rows[v], 1, 1, t->c, t->c + GAP, held_as(dev, dtype_of(t, (enum array)a)), NULL };
            else if (a == STATS)
                stats[v] = mem[a];
            else
                grad[a - DGAMMA][v] = t->one && v > 0 ? grad[a - DGAMMA][0] : mem[a];
        }
    assert_int_equal(dev->on->rows->norm_fwd(dev, &how, x[Y], stats, x[X], t->residual ? x[OTHER] : NULL, t->nshards, &err), 0);
    assert_int_equal(dev->on->rows->norm_bwd(dev, &how, t->absent[DX] ? NULL : x[DX], t->residual && !t->absent[DOTHER] ? x[DOTHER] : NULL,
                                             (float[]){ t->beta, 1.0f - t->beta }, dest, x[DY], (const float *const *)stats, x[X],
                                             t->residual ? x[OTHER] : NULL, t->nshards, &err),
                     0);
    for (int v = 0; v < t->nshards; v++)
        for (int a = Y; a < ARRAYS; at += count_of(t, v, (enum array)a++)) {
            const void *from = a < DGAMMA ? x[a][v].data : a == STATS ? stats[v] : grad[a - DGAMMA][v];

            get_numbers(dev, at, from, count_of(t, v, (enum array)a), dtype_of(t, (enum array)a));
        }
    free(gamma);
    free(shift);
}

/* The results of row r of a shard, in double: want[Y], [DX] and [DOTHER] (without beta), and sums of [DGAMMA],
 * [DBETA]. */
static void plain_row(const struct rows_case *t, float *const start[ARRAYS], const float *gamma, const float *shift, int r,
                      double want[ARRAYS][MOST])
{
    double mean = 0, var = 0, rho, dt = 0, dtx = 0, xhat[MOST], g[MOST];
    int c = t->c, at = r * (c + GAP);

    for (int k = 0; k < c; k++) {
        xhat[k] = (double)start[X][at + k] + (t->residual ? (double)start[OTHER][at + k] : 0);
        mean += xhat[k] / c;
    }
    for (int k = 0; k < c; k++)
        var += (xhat[k] - mean) * (xhat[k] - mean) / c;
    rho = 1 / sqrt(var + 1e-5);
    for (int k = 0; k < c; k++) {
        xhat[k] = (xhat[k] - mean) * rho;
        want[Y][k] = (double)gamma[k] * xhat[k] + (double)shift[k];
        g[k] = t->relu && want[Y][k] <= 0 ? 0 : (double)start[DY][at + k];
        want[Y][k] = t->relu && want[Y][k] <= 0 ? 0 : want[Y][k];
        want[DGAMMA][k] += g[k] * xhat[k];
        want[DBETA][k] += g[k];
        g[k] *= (double)gamma[k];
        dt += g[k] / c;
        dtx += g[k] * xhat[k] / c;
    }
    for (int k = 0; k < c; k++)
        want[DX][k] = want[DOTHER][k] = rho * (g[k] - dt - xhat[k] * dtx);
    want[STATS][0] = mean;
    want[STATS][1] = rho;
}

/* got: the array; from number i on, n numbers of which the first c are results. */
static void check_array(const struct rows_case *t, enum array a, const float *got, const float *old, const double *want, size_t i, int n,
                        int c)
{
    double tol = dtype_of(t, a) == DTYPE_BF16 ? 1.0 / 128 : a == DGAMMA ? 1e-3 : 1e-4;
    double beta = a == Y || a == STATS ? 0 : a == DOTHER ? 1 - (double)t->beta : (double)t->beta;
    bool none = t->absent[a] || (a == DOTHER && !t->residual);

    for (int k = 0; k < n; k++)
        near(got[i + (size_t)k], k >= c || none ? (double)old[i + (size_t)k] : beta * (double)old[i + (size_t)k] + want[k],
             k >= c || none ? 0 : tol, "array of the shard", (size_t)a);
}

static void check_shard(const struct rows_case *t, const float *got, int v)
{
    float *gamma = channels_of(t, t->gamma, 50, 0.25f), *shift = channels_of(t, t->shift, 51, -0.5f), *start[ARRAYS];
    double want[ARRAYS][MOST] = { { 0 } };
    const float *of[ARRAYS] = { NULL };

    for (int a = 0; a < ARRAYS; a++) {
        start[a] = start_of(t, v, (enum array)a);
        of[a] = got;
        got += a < Y ? 0 : count_of(t, v, (enum array)a);
    }
    for (int r = 0; r < t->rows[v]; r++) {
        plain_row(t, start, gamma, shift, r, want);
        for (int a = Y; a <= DOTHER; a++)
            check_array(t, (enum array)a, of[a], start[a], want[a], (size_t)(r * (t->c + GAP)), t->c + GAP, t->c);
        check_array(t, STATS, of[STATS], start[STATS], want[STATS], 2 * (size_t)r, 2, 2);
    }
    for (int a = DGAMMA; a <= DBETA; a++)
        check_array(t, (enum array)a, of[a], start[a], want[a], 0, t->c, t->c);
    for (int a = 0; a < ARRAYS; a++)
        free(start[a]);
    free(gamma);
    free(shift);
}

/* Each shard has the bits that it has alone. Returns the results, to be freed. */
static float *check(const struct rows_case *t)
{
    size_t floats = 0, at = 0;
    float *all;

    for (int v = 0; v < t->nshards; v++)
        floats += floats_of(t, v);
    all = malloc(floats * sizeof *all);
    same_on_all(run, t, all, floats * sizeof *all);
    for (int v = 0; v < t->nshards; at += floats_of(t, v++)) {
        float *alone = malloc(floats_of(t, v) * sizeof *alone);
        struct rows_case own = *t;

        check_shard(t, all + at, v);
        own.nshards = 1;
        own.rows[0] = t->rows[v];
        own.first = t->first + v;
        run(devices.dev[0], &own, alone);
        free_buffers();
        assert_memory_equal(alone, all + at, floats_of(t, v) * sizeof *alone);
        free(alone);
    }
    return all;
}

static void sizes(void **state)
{
    static const int channels[] = { 1, 5, 8, 16, 64, MOST };

    (void)state;
    for (int i = 0; i < 6; i++) {
        free(check(&(struct rows_case){ .c = channels[i], .nshards = 3, .rows = { 1, 0, 20 }, .relu = i % 2, .residual = i % 3 > 0 }));
        free(check(&(struct rows_case){ .c = channels[i], .nshards = 2, .rows = { 3, 130 }, .relu = i % 2 == 0, .beta = 1 }));
    }
    free(check(&(struct rows_case){ .c = 24, .nshards = 1, .rows = { 300 }, .relu = true, .residual = true, .beta = 1 }));
}

static void dtypes(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++)
        free(check(&(struct rows_case){ .c = 24,
                                        .nshards = 2,
                                        .rows = { 2, 70 },
                                        .residual = i & 1,
                                        .x = i & 2 ? DTYPE_BF16 : DTYPE_F32,
                                        .other = i & 4 ? DTYPE_BF16 : DTYPE_F32,
                                        .y = i & 8 ? DTYPE_BF16 : DTYPE_F32,
                                        .relu = i % 3 == 0,
                                        .beta = (float)(i % 2) }));
}

static void not_wanted(void **state)
{
    (void)state;
    for (int i = 1; i < 16; i++)
        free(check(&(struct rows_case){ .c = 24,
                                        .nshards = 2,
                                        .rows = { 2, 70 },
                                        .residual = true,
                                        .absent = { [DX] = i & 1, [DOTHER] = i & 2, [DGAMMA] = i & 4, [DBETA] = i & 8 } }));
}

/* If a device takes a single destination for all shards, it gets their sum. */
static void one_destination(void **state)
{
    enum { C = 40, LARGE = 70 };
    struct rows_case t = { .c = C, .nshards = SHARDS, .rows = { LARGE, 0, 2 * LARGE } };
    float *got[2];

    (void)state;
    got[0] = malloc(3 * 3 * LARGE * (C + GAP + 2) * sizeof **got + 3 * 2 * C * sizeof **got);
    got[1] = malloc(3 * 3 * LARGE * (C + GAP + 2) * sizeof **got + 3 * 2 * C * sizeof **got);
    for (int d = 0; d < devices.n; d++) {
        struct device *dev = devices.dev[d];
        size_t at = 3 * count_of(&t, 0, Y), third = floats_of(&t, 0) + floats_of(&t, 1) + 3 * count_of(&t, 2, Y);

        dev->ops->set_tier(dev, TIER_RERUN);
        use_device(d);
        for (int one = 0; one < 2 && dev->one_dest; one++) {
            t.one = one;
            run(dev, &t, got[one]);
            free_buffers();
        }
        for (size_t k = 0; k < 2 * C && dev->one_dest; k++)
            assert_true(got[1][at + k] == got[0][at + k] + got[0][third + k]);
        dev->ops->set_tier(dev, TIER_WORLD);
    }
    free(got[0]);
    free(got[1]);
}

/* ---- vectors: 3 x 8, one row without variance ---- */

static const float *numbers_in(json_t *of, const char *name, float *x)
{
    json_t *array = json_object_get(of, name);
    size_t n = json_array_size(json_array_get(array, 0));

    for (size_t i = 0; i < json_array_size(array) * (n ? n : 1); i++)
        x[i] = (float)json_number_value(n ? json_array_get(json_array_get(array, i / n), i % n) : json_array_get(array, i));
    return x;
}

static void vectors(void **state)
{
    enum { R = 3, N = 8, WIDE = N + GAP };
    json_t *root = golden_file("tests/golden/sparse_rcnn.json"), *of = json_object_get(root, "layer_norm");
    float x[4][R * N], want[4][R * N], *got;
    struct rows_case t = { .c = N, .nshards = 1, .rows = { R } };

    (void)state;
    assert_non_null(of);
    t.given[X] = numbers_in(of, "x", x[0]);
    t.given[DY] = numbers_in(of, "dy", x[1]);
    t.gamma = numbers_in(of, "gamma", x[2]);
    t.shift = numbers_in(of, "beta", x[3]);
    got = check(&t);
    numbers_in(of, "y", want[0]);
    numbers_in(of, "dx", want[1]);
    numbers_in(of, "dgamma", want[2]);
    numbers_in(of, "dbeta", want[3]);
    for (size_t i = 0; i < R * N; i++) {
        near(got[i / N * WIDE + i % N], want[0][i], 1e-5, "y", i);
        near(got[R * WIDE + i / N * WIDE + i % N], want[1][i], 1e-5, "dx", i);
    }
    for (size_t k = 0; k < N; k++) {
        near(got[3 * R * WIDE + k], want[2][k], 1e-5, "dgamma", k);
        near(got[3 * R * WIDE + N + k], want[3][k], 1e-5, "dbeta", k);
    }
    free(got);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sizes), cmocka_unit_test(dtypes), cmocka_unit_test(not_wanted),
                                        cmocka_unit_test(one_destination), cmocka_unit_test(vectors) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
