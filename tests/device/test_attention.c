/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_attention.c - uses: proto worker/core cpu cuda
 * Attention: the vectors of specs sparse_rcnn section 15, plain sums in double, dtypes, gaps, shards. */
#include "tests/device/bf16.h"
#include "tests/device/golden_json.h"

#include <jansson.h>
#include <math.h>

enum { SHARDS = 3, GAP = 5 };

struct attn_case {
    struct attn how;
    int d, nshards, images[SHARDS], first; /* d: channels of a head; first: number of the first shard */
    enum dtype dtype;
    float beta;
    const float *qkv, *d_o; /* of shard 0; NULL: drawn */
};

/* Tensors: 0 qkv, 1 its gradient, 2 o, 3 its gradient; then statistics. */
static size_t count_of(const struct attn_case *t, int v, int what)
{
    size_t rows = (size_t)(t->images[v] * t->how.rows), c = (size_t)(t->how.heads * t->d);

    return what == 4 ? rows * (size_t)t->how.heads * 2 : rows * ((what < 2 ? 3 : 1) * c + GAP);
}

static size_t shard_floats(const struct attn_case *t, int v)
{
    return count_of(t, v, 1) + count_of(t, v, 2) + count_of(t, v, 4);
}

static float *start_of(const struct attn_case *t, int v, int what)
{
    const float *given = what == 0 ? t->qkv : what == 3 ? t->d_o : NULL;
    size_t n = count_of(t, v, what), c = (size_t)(t->how.heads * t->d) * (what < 2 ? 3 : 1);
    float *x = numbers_of(t->dtype, n + 1, 100 + 10 * (uint64_t)(t->first + v) + (uint64_t)what, -2.0f, 1.5f);

    for (size_t i = 0; given && i < n; i++)
        x[i] = i % (c + GAP) < c ? given[i / (c + GAP) * c + i % (c + GAP)] : 0.0f;
    return x;
}

static void run(struct device *dev, const void *arg, void *ret)
{
    const struct attn_case *t = arg;
    struct tensor x[4][SHARDS];
    float *stats[SHARDS], *at = ret;
    struct err err;

    for (int v = 0; v < t->nshards; v++) {
        stats[v] = put(dev, NULL, count_of(t, v, 4) * sizeof(float));
        for (int i = 0; i < 4; i++) {
            float *host = start_of(t, v, i);
            int c = t->how.heads * t->d * (i < 2 ? 3 : 1);

            x[i][v] = (struct tensor){ put_numbers(dev, host, count_of(t, v, i), t->dtype),
                                       t->images[v] * t->how.rows,
                                       1,
                                       1,
                                       c,
                                       c + GAP,
                                       held_as(dev, t->dtype),
                                       NULL };
            free(host);
        }
    }
    assert_int_equal(dev->on->attn->fwd(dev, &t->how, x[2], stats, x[0], t->nshards, &err), 0);
    for (int v = 0; v < t->nshards; v++) { /* as every device holds it */
        get_numbers(dev, at, x[2][v].data, count_of(t, v, 2), t->dtype);
        x[2][v].data = put_numbers(dev, at, count_of(t, v, 2), t->dtype);
        at += shard_floats(t, v);
    }
    assert_int_equal(dev->on->attn->bwd(dev, &t->how, x[1], t->beta, x[3], (const float *const *)stats, x[0], x[2], t->nshards, &err), 0);
    at = ret;
    for (int v = 0; v < t->nshards; v++) {
        get_numbers(dev, at + count_of(t, v, 2), x[1][v].data, count_of(t, v, 1), t->dtype);
        get(dev, at + count_of(t, v, 2) + count_of(t, v, 1), stats[v], count_of(t, v, 4) * sizeof *at);
        at += shard_floats(t, v);
    }
}

/* Row r of `part` of the tensor, in the channels of a head. */
static const float *row_at(const struct attn_case *t, const float *x, int width, int r, int part, int head)
{
    int c = t->how.heads * t->d;

    return x + r * (width * c + GAP) + part * c + head * t->d;
}

static double dot(const float *a, const float *b, int d)
{
    double sum = 0;

    for (int k = 0; k < d; k++)
        sum += (double)a[k] * (double)b[k];
    return sum;
}

/* One head of an image whose rows begin at r0: outputs, and gradients added to dqkv (as the tensor, in double). */
static void plain_head(const struct attn_case *t, const float *qkv, const float *d_o, int r0, int head, double *o, double *dqkv)
{
    int n = t->how.rows, d = t->d, c = t->how.heads * d, wide = 3 * c + GAP;
    double *p = malloc((size_t)n * 2 * sizeof *p), *dp = p + n, tau = 1 / sqrt(d);

    for (int i = 0; i < n; i++) {
        const float *q = row_at(t, qkv, 3, r0 + i, 0, head), *g = row_at(t, d_o, 1, r0 + i, 0, head);
        double sum = 0, mean = 0;

        for (int j = 0; j < n; j++)
            sum += p[j] = exp(dot(q, row_at(t, qkv, 3, r0 + j, 1, head), d) * tau);
        for (int j = 0; j < n; j++) {
            p[j] /= sum;
            dp[j] = dot(g, row_at(t, qkv, 3, r0 + j, 2, head), d);
            mean += p[j] * dp[j];
        }
        for (int j = 0; j < n; j++)
            for (int k = 0; k < d; k++) {
                double s = tau * p[j] * (dp[j] - mean);

                o[(r0 + i) * (c + GAP) + head * d + k] += p[j] * (double)row_at(t, qkv, 3, r0 + j, 2, head)[k];
                dqkv[(r0 + i) * wide + head * d + k] += s * (double)row_at(t, qkv, 3, r0 + j, 1, head)[k];
                dqkv[(r0 + j) * wide + c + head * d + k] += s * (double)q[k];
                dqkv[(r0 + j) * wide + 2 * c + head * d + k] += p[j] * (double)g[k];
            }
    }
    free(p);
}

static void check_shard(const struct attn_case *t, const float *got, int v)
{
    size_t n[4];
    float *start[4];
    double *o, *dqkv, tol = t->dtype == DTYPE_BF16 ? 1.0 / 32 : 1e-4;
    int c = t->how.heads * t->d;

    for (int i = 0; i < 4; i++) {
        n[i] = count_of(t, v, i);
        start[i] = start_of(t, v, i);
    }
    o = calloc(n[2] + 1, sizeof *o);
    dqkv = calloc(n[0] + 1, sizeof *dqkv);
    for (int u = 0; u < t->images[v] * t->how.heads; u++)
        plain_head(t, start[0], start[3], u / t->how.heads * t->how.rows, u % t->how.heads, o, dqkv);
    for (size_t i = 0; i < n[2]; i++)
        near(got[i], i % (size_t)(c + GAP) < (size_t)c ? o[i] : (double)start[2][i], tol, "o", i);
    for (size_t i = 0; i < n[1]; i++)
        near(got[n[2] + i], i % (size_t)(3 * c + GAP) < 3 * (size_t)c ? (double)(t->beta * start[1][i]) + dqkv[i] : (double)start[1][i],
             tol, "dqkv", i);
    for (int i = 0; i < 4; i++)
        free(start[i]);
    free(o);
    free(dqkv);
}

/* Each shard has the bits that it has alone. */
static void check(const struct attn_case *t)
{
    size_t floats = 0, at = 0;
    float *all;

    for (int v = 0; v < t->nshards; v++)
        floats += shard_floats(t, v);
    all = malloc(floats * sizeof *all);
    same_on_all(run, t, all, floats * sizeof *all);
    for (int v = 0; v < t->nshards; at += shard_floats(t, v++)) {
        struct attn_case own = *t;
        float *alone = malloc((shard_floats(t, v) + 1) * sizeof *alone);

        check_shard(t, all + at, v);
        own.nshards = 1;
        own.images[0] = t->images[v];
        own.first = t->first + v;
        run(devices.dev[0], &own, alone);
        free_buffers();
        assert_memory_equal(alone, all + at, shard_floats(t, v) * sizeof *alone);
        free(alone);
    }
    free(all);
}

static void sizes(void **state)
{
    static const int rows[] = { 1, 3, 20, 33 }, channels[] = { 1, 5, 8, 32 };

    (void)state;
    for (int i = 0; i < 16; i++)
        check(&(struct attn_case){ .how = { rows[i / 4], 1 + i % 3 },
                                   .d = channels[i % 4],
                                   .nshards = 3,
                                   .images = { 1, 0, 2 },
                                   .dtype = i % 5 == 0 ? DTYPE_BF16 : DTYPE_F32,
                                   .beta = (float)(i % 2) });
    check(&(struct attn_case){ .how = { 300, 1 }, .d = 8, .nshards = 1, .images = { 1 } });
    check(&(struct attn_case){ .how = { 9, 2 }, .d = 256, .nshards = 1, .images = { 1 }, .dtype = DTYPE_BF16 });
}

/* ---- vectors ---- */

static double number_at(json_t *array, size_t i, size_t n)
{
    return json_number_value(json_array_get(json_array_get(array, i / n), i % n));
}

static json_t *open_vectors(const char *name, json_t **ret_root)
{
    *ret_root = golden_file("tests/golden/sparse_rcnn.json");
    return json_object_get(*ret_root, name);
}

/* Scores are the first channels of the keys, and probabilities are outputs: 16 channels, of which queries have 4 in the
 * first, and value j has 1 in channel j. */
static void softmax_vectors(void **state)
{
    enum { N = 5, D = 16, WIDE = 3 * D + GAP };
    json_t *root, *of = open_vectors("softmax", &root), *x = json_object_get(of, "x"), *dy = json_object_get(of, "dy");

    (void)state;
    for (size_t row = 0; row < 3; row++) {
        float qkv[N * 3 * D] = { 0 }, d_o[N * D] = { 0 }, got[N * (D + GAP) + N * WIDE + 2 * N];
        const struct attn_case t = { .how = { N, 1 }, .d = D, .nshards = 1, .images = { 1 }, .qkv = qkv, .d_o = d_o };

        for (size_t j = 0; j < N; j++) {
            qkv[j * 3 * D] = 4;
            qkv[j * 3 * D + D] = (float)number_at(x, row * N + j, N);
            qkv[j * 3 * D + 2 * D + j] = 1;
            d_o[j] = (float)number_at(dy, row * N + j, N);
        }
        same_on_all(run, &t, got, sizeof got);
        for (size_t j = 0; j < N; j++) {
            near(got[j], number_at(json_object_get(of, "y"), row * N + j, N), 1e-6, "y", j);
            near(got[N * (D + GAP) + j * WIDE + D], number_at(json_object_get(of, "dx"), row * N + j, N), 1e-6, "dx", j);
        }
    }
    json_decref(root);
}

static void draw(float *x, size_t n, json_t *seed, double scale)
{
    uint32_t state = (uint32_t)json_integer_value(seed);

    for (size_t i = 0; i < n; i++) {
        state = (1103515245u * state + 12345u) & 0x7FFFFFFFu;
        x[i] = (float)(((double)(state >> 16) - 16384) / 16384 * scale);
    }
}

/* y [rows][n] = x [rows][m] . w^T (or w, if turned) + bias */
static void linear(float *y, const float *x, const float *w, const float *bias, size_t rows, size_t m, size_t n, bool turned)
{
    for (size_t i = 0; i < rows * n; i++) {
        double sum = bias ? (double)bias[i % n] : 0;

        for (size_t k = 0; k < m; k++)
            sum += (double)x[i / n * m + k] * (double)w[turned ? k * n + i % n : i % n * m + k];
        y[i] = (float)sum;
    }
}

/* With the linear layers before and after. */
static void attention_vectors(void **state)
{
    enum { R = 10, D = 8, WIDE = 3 * D };
    json_t *root, *of = open_vectors("attention", &root), *seeds = json_object_get(of, "seeds");
    float x[R * D], dy[R * D], w_in[WIDE * D], b_in[WIDE], w_out[D * D], b_out[D], qkv[R * WIDE], d_o[R * D];
    float got[R * (D + GAP) + R * (WIDE + GAP) + R * 4], o[R * D], dqkv[R * WIDE], y[R * D], dx[R * D];
    const struct attn_case t = { .how = { 5, 2 }, .d = 4, .nshards = 1, .images = { 2 }, .qkv = qkv, .d_o = d_o };

    (void)state;
    draw(w_in, WIDE * D, json_object_get(seeds, "in_proj_weight"), 0.5);
    draw(b_in, WIDE, json_object_get(seeds, "in_proj_bias"), 0.5);
    draw(w_out, D * D, json_object_get(seeds, "out_proj.weight"), 0.5);
    draw(b_out, D, json_object_get(seeds, "out_proj.bias"), 0.5);
    draw(x, R * D, json_object_get(json_object_get(of, "x"), "seed"), 2);
    draw(dy, R * D, json_object_get(json_object_get(of, "dy"), "seed"), 1);
    linear(qkv, x, w_in, b_in, R, D, WIDE, false);
    linear(d_o, dy, w_out, NULL, R, D, D, true);
    same_on_all(run, &t, got, sizeof got);
    for (size_t i = 0; i < R * D; i++)
        o[i] = got[i / D * (D + GAP) + i % D];
    for (size_t i = 0; i < R * WIDE; i++)
        dqkv[i] = got[R * (D + GAP) + i / WIDE * (WIDE + GAP) + i % WIDE];
    linear(y, o, w_out, b_out, R, D, D, false);
    linear(dx, dqkv, w_in, NULL, R, WIDE, D, true);
    for (size_t i = 0; i < R * D; i++) {
        json_t *image = json_array_get(json_object_get(of, "y"), i / (R / 2 * D)),
               *back = json_array_get(json_object_get(of, "dx"), i / (R / 2 * D));

        near(y[i], number_at(image, i % (R / 2 * D), D), 1e-5, "y", i);
        near(dx[i], number_at(back, i % (R / 2 * D), D), 1e-5, "dx", i);
    }
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sizes), cmocka_unit_test(softmax_vectors), cmocka_unit_test(attention_vectors) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
