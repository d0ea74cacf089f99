/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_smooth.c - edge-aware smoothness and its gradient: golden
 * numbers, numeric gradients, shards of several sizes, images apart. uses: proto worker/core cpu cuda */
#include "tests/device/golden_json.h"

#include "worker/kernels/smooth.h"

enum { SHARDS = 3, MOST_IMAGES = 2 };

struct smooth_case {
    struct smoothness s;
    struct tensor x[SHARDS], picture[SHARDS]; /* host numbers */
    int nshards;
    bool apart;
    float beta, scale;
    int gap; /* behind the channels of x */
};

static struct tensor put_tensor(struct device *dev, const struct tensor *host, int gap)
{
    struct tensor t = *host;
    size_t pixels = tensor_pixels(host);
    float *wide;

    t.stride = t.c + gap;
    wide = calloc(pixels * (size_t)t.stride, sizeof *wide);
    for (size_t i = 0; i < pixels; i++)
        memcpy(wide + i * (size_t)t.stride, (const float *)host->data + i * (size_t)t.c, (size_t)t.c * sizeof *wide);
    t.data = put(dev, wide, pixels * (size_t)t.stride * sizeof *wide);
    free(wide);
    return t;
}

static void *zeros(struct device *dev, size_t bytes)
{
    void *host = calloc(1, bytes), *ret = put(dev, host, bytes);

    free(host);
    return ret;
}

/* Results: the losses as floats' pairs (doubles), then dx without gaps. */
static void run(struct device *dev, const void *arg, void *ret)
{
    const struct smooth_case *c = arg;
    struct tensor x[SHARDS], picture[SHARDS], edge[SHARDS], dx[SHARDS];
    double *sums[SHARDS], *part[SHARDS], *loss = zeros(dev, sizeof(double) * SHARDS * MOST_IMAGES), *row[SHARDS * MOST_IMAGES];
    int images[SHARDS], rows = 0;
    struct smooth_in in = { x, edge };
    char *out = ret;
    struct err err;

    for (int v = 0; v < c->nshards; v++) {
        x[v] = put_tensor(dev, &c->x[v], c->gap);
        dx[v] = put_tensor(dev, &c->x[v], c->gap);
        picture[v] = put_tensor(dev, &c->picture[v], 0);
        edge[v] = tensor_f32(zeros(dev, tensor_pixels(&x[v]) * SMOOTH_EDGES * sizeof(float)), x[v].n, x[v].h, x[v].w, SMOOTH_EDGES);
        sums[v] = zeros(dev, sizeof(double) * SMOOTH_SUMS * (size_t)x[v].n);
        part[v] = zeros(dev, sizeof(double) * SMOOTH_SUMS * tensor_pixels(&x[v]));
        images[v] = c->apart ? 1 : x[v].n;
        for (int i = 0; i < (c->apart ? x[v].n : 1); i++, rows++)
            row[rows] = loss + rows;
    }
    assert_int_equal(dev->on->smooth->edges(dev, &c->s, edge, picture, x[0].c, images, c->nshards, &err), 0);
    assert_int_equal(dev->on->smooth->sums(dev, sums, part, &in, c->nshards, &err), 0);
    assert_int_equal(dev->on->smooth->loss(dev, &c->s, row, c->apart, sums, &in, c->nshards, &err), 0);
    assert_int_equal(dev->on->smooth->bwd(dev, &c->s, dx, c->beta, c->scale, sums, &in, c->nshards, &err), 0);
    get(dev, out, loss, sizeof(double) * SHARDS * MOST_IMAGES);
    out += sizeof(double) * SHARDS * MOST_IMAGES;
    for (int v = 0; v < c->nshards; v++) {
        size_t pixels = tensor_pixels(&dx[v]);
        float *wide = malloc(pixels * (size_t)dx[v].stride * sizeof *wide);

        get(dev, wide, dx[v].data, pixels * (size_t)dx[v].stride * sizeof *wide);
        for (size_t i = 0; i < pixels; i++, out += (size_t)dx[v].c * sizeof *wide)
            memcpy(out, wide + i * (size_t)dx[v].stride, (size_t)dx[v].c * sizeof *wide);
        free(wide);
    }
}

static size_t result_bytes(const struct smooth_case *c)
{
    size_t n = sizeof(double) * SHARDS * MOST_IMAGES;

    for (int v = 0; v < c->nshards; v++)
        n += tensor_count(&c->x[v]) * sizeof(float);
    return n;
}

/* Losses in *ret_loss [SHARDS * MOST_IMAGES]; returns dx of all shards. Caller frees. */
static float *results(const struct smooth_case *c, double *ret_loss)
{
    char *all = calloc(1, result_bytes(c));
    float *dx = malloc(result_bytes(c));

    same_on_all(run, c, all, result_bytes(c));
    memcpy(ret_loss, all, sizeof(double) * SHARDS * MOST_IMAGES);
    memcpy(dx, all + sizeof(double) * SHARDS * MOST_IMAGES, result_bytes(c) - sizeof(double) * SHARDS * MOST_IMAGES);
    free(all);
    return dx;
}

/* ---- golden ---- */

static void near_value(double got, double want)
{
    if (!(fabs(got - want) <= 2e-6 + 2e-5 * fabs(want)))
        fail_msg("%.12g, should be %.12g", got, want);
}

static void golden_run(json_t *of, json_t *one, struct smooth_case *c)
{
    struct tensor shape;
    float *want = picture_in_json(member(one, "grad_disp"), &shape), *dx;
    double loss[SHARDS * MOST_IMAGES];

    c->s = (struct smoothness){ (float)number_of(of, "edge_factor"), 1, 0, json_is_true(member(one, "disp_norm")) };
    free(results(c, loss));
    near_value(loss[0], number_of(one, "first"));
    c->s.second = 1;
    dx = results(c, loss);
    near_value(loss[0], number_of(one, "total"));
    close_to(dx, want, tensor_count(&shape), 1e-6, 1e-5, "gradient");
    free(want);
    free(dx);
}

static void golden(void **state)
{
    json_t *root = golden_open(), *of = member(root, "smoothness"), *one;
    struct smooth_case c = { .nshards = 1, .scale = 1, .gap = 1 };
    float *x, *picture;
    size_t i;

    (void)state;
    x = picture_in_json(member(of, "disp"), &c.x[0]);
    picture = picture_in_json(member(of, "image"), &c.picture[0]);
    c.x[0].data = x;
    c.picture[0].data = picture;
    assert_int_equal(json_array_size(member(of, "runs")), 2);
    json_array_foreach (member(of, "runs"), i, one) {
        golden_run(of, one, &c);
    }
    free(x);
    free(picture);
    json_decref(root);
}

/* For a feature map: first differences are rewarded, second differences punished. */
static void golden_features(void **state)
{
    json_t *root = golden_open(), *of = member(root, "feature_regularisation");
    struct smooth_case c = { .nshards = 1, .scale = 1 };
    double loss[SHARDS * MOST_IMAGES];
    struct tensor shape;
    float *x, *picture, *want, *dx;

    (void)state;
    x = picture_in_json(member(of, "feature"), &c.x[0]);
    picture = picture_in_json(member(of, "image"), &c.picture[0]);
    want = picture_in_json(member(of, "grad_feature"), &shape);
    c.x[0].data = x;
    c.picture[0].data = picture;
    c.s = (struct smoothness){ 1, -(float)number_of(of, "dis"), (float)number_of(of, "cvt"), false };
    dx = results(&c, loss);
    near_value(loss[0], number_of(of, "value"));
    close_to(dx, want, tensor_count(&shape), 1e-9, 1e-5, "gradient");
    free(x);
    free(picture);
    free(want);
    free(dx);
    json_decref(root);
}

/* ---- numeric ---- */

static void fill(struct tensor *t, int n, int h, int w, int c, uint64_t seed)
{
    *t = tensor_f32(NULL, n, h, w, c);
    t->data = numbers(tensor_count(t), seed, 0.1f, 1.0f);
}

/* Shards of several sizes, down to two pixels a side; sides of the picture that are no multiples. */
static void fill_case(struct smooth_case *c, int channels)
{
    c->nshards = SHARDS;
    fill(&c->x[0], 2, 5, 7, channels, 1);
    fill(&c->x[1], 1, 2, 2, channels, 2);
    fill(&c->x[2], 2, 3, 9, channels, 3);
    fill(&c->picture[0], 2, 11, 14, 3, 4);
    fill(&c->picture[1], 1, 2, 5, 3, 5);
    fill(&c->picture[2], 2, 3, 20, 3, 6);
}

static void free_case(struct smooth_case *c)
{
    for (int v = 0; v < SHARDS; v++) {
        free(c->x[v].data);
        free(c->picture[v].data);
    }
}

/* Changes a single number of shard v, on the first device only: the loss is exact up to a double's sum of floats. */
static double stepped(const struct smooth_case *c, int v, size_t i, float by)
{
    char *all = calloc(1, result_bytes(c));
    float *x = c->x[v].data, was = x[i];
    double loss[SHARDS];

    x[i] = was + by;
    run(devices.dev[0], c, all);
    free_buffers();
    x[i] = was;
    memcpy(loss, all, sizeof loss);
    free(all);
    return loss[v];
}

static void numeric(struct smooth_case *c)
{
    const float step = 1.0f / 4096;
    double loss[SHARDS * MOST_IMAGES];
    float *dx = results(c, loss), *at = dx;
    int bad = 0;

    for (int v = 0; v < SHARDS; at += tensor_count(&c->x[v++]))
        for (size_t i = 0; i < tensor_count(&c->x[v]); i += 1 + tensor_count(&c->x[v]) / 24) {
            double slope = (stepped(c, v, i, step) - stepped(c, v, i, -step)) / (2 * (double)step);
            double had = (double)(c->beta * ((const float *)c->x[v].data)[i]);

            bad +=
                !(fabs(((double)at[i] - had) / (double)c->scale - slope) <= 2e-3 * (1 + fabs(slope))); /* a sign may turn within the step */
        }
    assert_true(bad <= 2);
    free(dx);
}

static void numeric_gradients(void **state)
{
    (void)state;
    for (int bits = 0; bits < 4; bits++) {
        struct smooth_case c = {
            .s = { 0.5f, 1.0f, bits & 1 ? 0.75f : 1.0f, bits & 2 }, .beta = bits & 1, .scale = 0.25f, .gap = bits & 1
        };

        fill_case(&c, bits & 2 ? 1 : 5);
        numeric(&c);
        free_case(&c);
    }
}

/* An image's loss is that of a shard of its own; a shard's is their mean. */
static void images_apart(void **state)
{
    struct smooth_case c = { .s = { 0.5f, 1, 1, true }, .scale = 1 };
    double whole[SHARDS * MOST_IMAGES], apart[SHARDS * MOST_IMAGES];
    int row = 0;

    (void)state;
    fill_case(&c, 1);
    free(results(&c, whole));
    c.apart = true;
    free(results(&c, apart));
    for (int v = 0; v < SHARDS; v++) {
        double sum = 0;

        for (int i = 0; i < c.x[v].n; i++)
            sum += apart[row++];
        near_value(whole[v], sum / c.x[v].n);
    }
    free_case(&c);
}

/* A constant map has no loss and no gradient, and a mean of zero divides by the guard alone. */
static void nothing_changes(void **state)
{
    struct smooth_case c = { .s = { 0.5f, 1, 1, true }, .scale = 1 };
    double loss[SHARDS * MOST_IMAGES];
    float *dx;

    (void)state;
    fill_case(&c, 1);
    for (int v = 0; v < SHARDS; v++)
        memset(c.x[v].data, 0, tensor_count(&c.x[v]) * sizeof(float));
    dx = results(&c, loss);
    for (int v = 0; v < SHARDS; v++)
        assert_true(loss[v] == 0);
    for (size_t i = 0; i < tensor_count(&c.x[0]); i++)
        assert_true(dx[i] == 0.0f);
    free(dx);
    free_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(golden), cmocka_unit_test(golden_features), cmocka_unit_test(numeric_gradients),
                                        cmocka_unit_test(images_apart), cmocka_unit_test(nothing_changes) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
