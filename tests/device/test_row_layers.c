/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_row_layers.c
 * uses: proto worker/layers worker/comm worker/core cpu cuda
 * Layer normalisation and attention on the tape: numeric gradients, frozen parameters, inputs without gradient. */
#include "tests/device/tape_net.h"

#include "worker/kernels/bf16.h"
#include "worker/layers/sparse.h"

enum { C = 6, IMAGES = 4, ROWS = 2, SHARDS = 2, PARAMS = 4 };

enum kind { NORM_X /* of the convolution + the image */, NORM_RESIDUAL /* the other way round */, NORM_ALONE, ATTENTION, KINDS };

struct row_net {
    struct net net;
    enum kind kind;
    struct param *p[PARAMS]; /* of the convolution; gamma and beta */
    struct value *out;
};

static void open_net(struct row_net *r, int device, enum kind kind)
{
    static const int one[SHARDS] = { 1, 1 };
    int k = kind == ATTENTION ? 3 * C : C;

    r->kind = kind;
    net_open_on(&r->net, device, 0, SHARDS, IMAGES, one, one, C);
    r->net.image[1].n = ROWS;
    r->p[0] = net_param(&r->net, PARAM_CONV, k, 1, C, true);
    r->p[1] = net_param(&r->net, PARAM_BIAS, k, 1, 1, true);
    r->p[2] = net_param(&r->net, PARAM_SCALE, C, 1, 1, true);
    r->p[3] = net_param(&r->net, PARAM_SHIFT, C, 1, 1, true);
}

static struct value *forward(struct row_net *r, bool relu, enum dtype dtype)
{
    const struct conv cv = { .stride = 1 };
    struct tape *t = r->net.tape;
    struct value *x = net_begin(&r->net), *y = layer_conv(t, x, &cv, r->p[0], r->p[1]);

    if (r->kind == ATTENTION)
        r->out = layer_attention(t, y, 2, ROWS);
    else if (r->kind == NORM_RESIDUAL)
        r->out = layer_row_norm(t, x, y, r->p[2], r->p[3], relu, dtype);
    else
        r->out = layer_row_norm(t, y, r->kind == NORM_X ? x : NULL, r->p[2], r->p[3], relu, dtype);
    return r->out;
}

/* The sum of out times the gradient that net_seed() puts there. */
static double through(struct row_net *r)
{
    double sum = 0;

    assert_non_null(forward(r, false, DTYPE_F32));
    for (int s = 0; s < SHARDS; s++) {
        const struct tensor *y = &r->out->x[s];
        float *dy = numbers(tensor_count(y), 1000 + (uint64_t)s, -1.0f, 1.0f), row[C];

        assert_true(y->c == C && y->n == r->net.image[s].n);
        for (int i = 0; i < y->n; i++) {
            get(r->net.dev, row, (const float *)y->data + (size_t)i * (size_t)y->stride, sizeof row);
            for (int k = 0; k < C; k++)
                sum += (double)dy[i * C + k] * (double)row[k];
        }
        free(dy);
    }
    return sum;
}

static void check_slope(struct row_net *r, const struct param *p, size_t i)
{
    const float step = 1.0f / 512;
    double slope = 0, side[2] = { 0 };
    struct err err;
    float w;

    for (int s = 0; s < SHARDS; s++) {
        float *g = net_grad(&r->net, p, s);

        slope += (double)g[i];
        free(g);
    }
    get(r->net.dev, &w, p->data + i, sizeof w);
    for (int up = 0; up < 3; up++) {
        float moved = up == 2 ? w : up ? w + step : w - step;

        assert_int_equal(r->net.dev->ops->upload(r->net.dev, p->data + i, &moved, sizeof moved, &err), 0);
        ((struct param *)(uintptr_t)p)->version++;
        if (up < 2)
            side[up] = through(r);
    }
    near((side[1] - side[0]) / (2.0 * (double)step), slope, 5e-3, p->name, i);
}

static void numeric_gradients(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d += devices.n - 1)
        for (int kind = 0; kind < KINDS; kind++) {
            struct row_net r;

            open_net(&r, d, (enum kind)kind);
            assert_non_null(forward(&r, false, DTYPE_F32));
            net_seed(&r.net, r.out, 0);
            net_back(&r.net);
            for (int p = 0; p < (kind == ATTENTION ? 2 : PARAMS); p++)
                for (size_t i = 0; i < r.p[p]->count; i += r.p[p]->count / 6)
                    check_slope(&r, r.p[p], i);
            net_free(&r.net);
        }
}

/* A frozen parameter is never asked for a gradient, and the others have the bits that they have beside one that
 * trains. */
static void frozen(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++)
        for (int which = 1; which < 8; which++) {
            float *got[2][PARAMS] = { { NULL } };

            for (int all = 0; all < 2; all++) {
                struct row_net r;

                open_net(&r, d, NORM_X);
                for (int p = 0; p < PARAMS && !all; p++)
                    r.p[p]->trainable = which >> (p ? p - 1 : 0) & 1; /* of the convolution: both or none */
                assert_non_null(forward(&r, true, DTYPE_F32));
                net_seed(&r.net, r.out, 0);
                net_back(&r.net);
                for (int p = 0; p < PARAMS; p++) {
                    assert_int_equal(r.net.ready[r.p[p]->index], r.p[p]->trainable);
                    got[all][p] = r.p[p]->trainable ? net_grad(&r.net, r.p[p], 0) : NULL;
                }
                net_free(&r.net);
            }
            for (int p = 0; p < PARAMS; p++) {
                if (got[0][p])
                    assert_memory_equal(got[0][p], got[1][p], (p ? C : C * C) * sizeof(float));
                free(got[0][p]);
                free(got[1][p]);
            }
        }
}

/* Another dtype of the output is its rounding; without training there is no gradient. */
static void outputs(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        float want[IMAGES][C];
        uint16_t got[C];
        struct row_net r;

        open_net(&r, d, NORM_X);
        assert_non_null(forward(&r, true, DTYPE_F32));
        for (int i = 0; i < IMAGES; i++)
            get(r.net.dev, want[i], (const float *)r.out->x[0].data + i * r.out->x[0].stride, sizeof want[i]);
        for (int p = 0; p < PARAMS; p++)
            r.p[p]->trainable = false;
        assert_false(forward(&r, true, DTYPE_BF16)->needs_grad);
        assert_int_equal(r.out->x[0].dtype, DTYPE_BF16);
        for (int i = 0; i < IMAGES; i++) {
            get(r.net.dev, got, (const uint16_t *)r.out->x[0].data + i * r.out->x[0].stride, sizeof got);
            for (int k = 0; k < C; k++)
                assert_int_equal(got[k], bf16_round(want[i][k]));
        }
        net_free(&r.net);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(numeric_gradients), cmocka_unit_test(frozen), cmocka_unit_test(outputs) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
