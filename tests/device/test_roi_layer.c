/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_roi_layer.c
 * uses: proto worker/layers worker/comm worker/core cpu cuda
 * RoIAlign on the tape: two heads read the levels of one pyramid, with one level pending; every gradient counts. */
#include "tests/device/tape_net.h"

enum { C = 5, ROWS = 6, LEVELS = 2, SHARDS = 2, SMALL = 2, LARGE = 3 };

static const float box[ROWS][4] = {
    { 1, 2, 14, 18 }, { 8, 8, 40, 30 }, { 0, 0, 44, 36 }, { -5, 3, 9, 60 }, { 20, 20, 24, 23 }, { 2, 2, 4, 4 },
};
static const int32_t image[ROWS] = { 0, 1, 1, 0, 1, 0 }, count[SHARDS] = { ROWS, 3 };
static const int height[SHARDS] = { 10, 8 }, width[SHARDS] = { 12, 6 };

struct pyramid {
    struct net net;
    struct param *w[LEVELS], *bias[LEVELS];
    struct norm norm;
    struct roi_rows rows[SHARDS];
    struct value *level[LEVELS], *small, *large;
};

static void open_pyramid(struct pyramid *p, int device)
{
    struct net *n = &p->net;

    net_open_on(n, device, 0, SHARDS, 2, height, width, C);
    for (int l = 0; l < LEVELS; l++)
        p->w[l] = net_param(n, PARAM_CONV, C, 1, C, true);
    p->bias[0] = net_param(n, PARAM_BIAS, C, 1, 1, true);
    p->norm = net_norm(n, C, true, true);
    for (int s = 0; s < SHARDS; s++)
        p->rows[s] = (struct roi_rows){ put(n->dev, box, sizeof box), put(n->dev, image, sizeof image),
                                        put(n->dev, &count[s], sizeof *count), ROWS };
}

static struct roi_align roi_of(int pool)
{
    return (struct roi_align){ .nlevels = LEVELS,
                               .scale = { 0.25f, 0.125f },
                               .first_level = 2,
                               .canonical_level = 2,
                               .canonical_side = 12,
                               .pool = pool,
                               .aligned = true };
}

/* A fine level and one of every second cell, and the heads that are asked for. */
static void forward(struct pyramid *p, bool small, bool large)
{
    struct conv fine = { .stride = 1 }, coarse = fine;
    struct roi_align roi;
    struct value *x = net_begin(&p->net);

    coarse.stride = 2;
    p->level[0] = layer_conv(p->net.tape, x, &fine, p->w[0], p->bias[0]);
    p->level[1] = layer_conv_norm(p->net.tape, x, &coarse, p->w[1], &p->norm, 0.0f);
    roi = roi_of(SMALL);
    p->small = small ? layer_roi_align(p->net.tape, p->level, &roi, p->rows) : NULL;
    roi = roi_of(LARGE);
    p->large = large ? layer_roi_align(p->net.tape, p->level, &roi, p->rows) : NULL;
}

static void backward(struct pyramid *p)
{
    if (p->small)
        net_seed(&p->net, p->small, 1);
    if (p->large)
        net_seed(&p->net, p->large, 2);
    net_back(&p->net);
}

/* With both heads, the weights of all levels get the sum of the gradients with each head. */
static void every_head_counts(void **state)
{
    enum { N = SHARDS * LEVELS * C * C };

    (void)state;
    for (int d = 0; d < devices.n; d++) {
        float *got[3][LEVELS][SHARDS];
        struct pyramid p;
        int zero = 0;

        open_pyramid(&p, d);
        for (int which = 0; which < 3; which++) {
            forward(&p, which != 1, which != 0);
            backward(&p);
            for (int l = 0; l < LEVELS; l++)
                for (int s = 0; s < SHARDS; s++)
                    got[which][l][s] = net_grad(&p.net, p.w[l], s);
        }
        for (int l = 0; l < LEVELS; l++)
            for (int s = 0; s < SHARDS; s++)
                for (size_t i = 0; i < C * C; i++) {
                    near((double)got[2][l][s][i], (double)got[0][l][s][i] + (double)got[1][l][s][i], 1e-5, "both heads", i);
                    zero += got[2][l][s][i] == 0.0f;
                }
        assert_true(zero < N / 2); /* a ReLU may have closed some */
        for (int which = 0; which < 3; which++)
            for (int l = 0; l < LEVELS; l++)
                for (int s = 0; s < SHARDS; s++)
                    free(got[which][l][s]);
        net_free(&p.net);
    }
}

/* y = sum of dy * out as a function of one weight, by differences. */
static double through(struct pyramid *p)
{
    double sum = 0;

    forward(p, true, true);
    for (int head = 0; head < 2; head++) {
        struct value *v = head ? p->large : p->small;

        for (int s = 0; s < SHARDS; s++) {
            size_t n = tensor_count(&v->x[s]);
            float *dy = numbers(n, 1000 + 8 * (uint64_t)(head + 1) + (uint64_t)s, -1.0f, 1.0f), *y = malloc(n * sizeof *y);

            assert_non_null(y);
            assert_int_equal(v->x[s].n, ROWS);
            for (size_t i = 0; i < tensor_pixels(&v->x[s]); i++)
                get(p->net.dev, y + i * C, (const float *)v->x[s].data + i * (size_t)v->x[s].stride, C * sizeof *y);
            for (size_t i = 0; i < n; i++)
                sum += (double)dy[i] * (double)y[i];
            free(dy);
            free(y);
        }
    }
    return sum;
}

static void numeric_gradient(void **state)
{
    const float step = 1.0f / 1024;

    (void)state;
    for (int d = 0; d < devices.n; d += devices.n - 1) {
        struct pyramid p;
        struct err err;

        open_pyramid(&p, d);
        forward(&p, true, true);
        backward(&p);
        for (int l = 0; l < LEVELS; l++)
            for (size_t i = 0; i < C * C; i += 4) {
                double slope = 0, side[2];
                float w, moved;

                for (int s = 0; s < SHARDS; s++) {
                    float *g = net_grad(&p.net, p.w[l], s);

                    slope += (double)g[i];
                    free(g);
                }
                get(p.net.dev, &w, p.w[l]->data + i, sizeof w);
                for (int up = 0; up < 2; up++) {
                    moved = up ? w + step : w - step;
                    assert_int_equal(p.net.dev->ops->upload(p.net.dev, p.w[l]->data + i, &moved, sizeof moved, &err), 0);
                    p.w[l]->version++;
                    side[up] = through(&p);
                }
                assert_int_equal(p.net.dev->ops->upload(p.net.dev, p.w[l]->data + i, &w, sizeof w, &err), 0);
                p.w[l]->version++;
                near((side[1] - side[0]) / (2.0 * (double)step), slope, 5e-3, "weight", i);
            }
        net_free(&p.net);
    }
}

/* The memory of the rows may be reused after the call of the layer; a frozen level requests no gradient. */
static void frozen_level(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct pyramid p;

        open_pyramid(&p, d);
        p.w[1]->trainable = p.norm.gamma->trainable = p.norm.beta->trainable = false;
        forward(&p, true, false);
        assert_true(p.level[0]->needs_grad && !p.level[1]->needs_grad && p.small->needs_grad);
        memset(p.rows, 0, sizeof p.rows);
        backward(&p);
        assert_true(p.net.ready[p.w[0]->index] == 1 && p.net.ready[p.w[1]->index] == 0);
        net_free(&p.net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_head_counts), cmocka_unit_test(numeric_gradient),
                                        cmocka_unit_test(frozen_level) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
