/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_mat_layer.c - layer_row_mul: two products whose weights
 * are channels of one value, in shards with different numbers of rows.
 * uses: proto worker/layers worker/comm worker/core cpu cuda */
#include "tests/device/bf16.h"
#include "tests/device/tape_net.h"

#include <math.h>

#include "worker/layers/sparse.h"

enum { D = 5, INNER = 3, OUT = 7, SIDE = 2, SHARDS = 2, GAP = 2, SECOND = D * INNER + GAP, CHANNELS = SECOND + INNER * OUT + 1 };

static const int height[SHARDS] = { SIDE, SIDE }, width[SHARDS] = { SIDE, SIDE }, rows[SHARDS] = { 4, 2 };

struct pair {
    struct net net;
    struct param *wx, *wt;
    struct tensor q[SHARDS];
    struct value *theta, *y;
};

static void open_pair(struct pair *p, int device)
{
    struct net *n = &p->net;

    net_open_on(n, device, 0, SHARDS, rows[0], height, width, D);
    p->wx = net_param(n, PARAM_CONV, D, 1, D, true);
    p->wt = net_param(n, PARAM_CONV, CHANNELS, 1, D, true);
    for (int s = 0; s < SHARDS; s++) {
        float *q = numbers(D * (size_t)rows[s], 7 + (uint64_t)s, -1, 1);

        n->image[s].n = rows[s];
        p->q[s] = tensor_f32(put(n->dev, q, D * (size_t)rows[s] * sizeof *q), rows[s], 1, 1, D);
        free(q);
    }
}

static void forward(struct pair *p)
{
    const struct conv one = { .stride = 1 };
    struct tape *t = p->net.tape;
    struct value *x = layer_conv(t, net_begin(&p->net), &one, p->wx, NULL);

    p->theta = layer_conv(t, tape_input(t, p->q), &one, p->wt, NULL);
    p->y = layer_row_mul(t, layer_row_mul(t, x, p->theta, 0, INNER), p->theta, SECOND, OUT);
    NET_OK(&p->net, tape_status(t, &p->net.err));
    for (int s = 0; s < SHARDS; s++)
        assert_true(p->y->x[s].n == rows[s] && p->y->x[s].h == SIDE && p->y->x[s].w == SIDE && p->y->x[s].c == OUT);
}

/* The sum of y times the gradient that net_seed() gives, after a step of one weight. */
static double moved(struct pair *p, struct param *w, size_t i, float by)
{
    double sum = 0;
    float old;

    get(p->net.dev, &old, w->data + i, sizeof old);
    old += by;
    NET_OK(&p->net, p->net.dev->ops->upload(p->net.dev, w->data + i, &old, sizeof old, &p->net.err));
    w->version++;
    forward(p);
    for (int s = 0; s < SHARDS; s++) {
        const struct tensor *y = &p->y->x[s];
        float *dy = numbers(tensor_count(y), 1000 + (uint64_t)s, -1.0f, 1.0f), got[OUT];

        for (size_t pixel = 0; pixel < tensor_pixels(y); pixel++) {
            get(p->net.dev, got, (const float *)y->data + pixel * (size_t)y->stride, sizeof got);
            for (size_t k = 0; k < OUT; k++)
                sum += (double)dy[pixel * OUT + k] * (double)got[k];
        }
        free(dy);
    }
    return sum;
}

static void check_slopes(struct pair *p, struct param *w, size_t step)
{
    const float eps = 1.0f / 256;
    float *g[SHARDS];

    for (int s = 0; s < SHARDS; s++)
        g[s] = net_grad(&p->net, w, s);
    for (size_t i = 0; i < w->count; i += step) {
        size_t channel = w == p->wt ? i / D : 0;
        bool read = channel < D * INNER || (channel >= SECOND && channel < CHANNELS - 1);
        double up = moved(p, w, i, eps), down = moved(p, w, i, -2 * eps);

        moved(p, w, i, eps); /* back */
        near((double)g[0][i] + (double)g[1][i], (up - down) / 2 / (double)eps, 1e-3, "slope", i);
        assert_true((g[0][i] != 0) == read && (g[1][i] != 0) == read);
    }
    for (int s = 0; s < SHARDS; s++)
        free(g[s]);
}

/* Both products count in the gradient of the weights, and channels that no layer reads have none. */
static void gradients_are_slopes(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct pair p;

        open_pair(&p, d);
        for (int pass = 0; pass < 2; pass++) { /* the second in memory that was used */
            forward(&p);
            net_seed(&p.net, p.y, 0);
            net_back(&p.net);
        }
        check_slopes(&p, p.wx, d == 0 ? 1 : 7);
        check_slopes(&p, p.wt, d == 0 ? 1 : 31);
        net_free(&p.net);
    }
}

/* The weights of a row are a matrix [c][out] as it lies. */
static void check_rows(int device)
{
    const enum dtype dtype = devices.dev[device]->dtype;
    float *x, *w, got[OUT];
    struct tensor in[2];
    struct value *y;
    struct net n;

    net_open_on(&n, device, 0, 1, rows[0], height, width, D);
    in[0] = n.image[0];
    x = numbers(tensor_count(&in[0]), 20, -1, 1); /* as net_open_on() */
    w = numbers((size_t)rows[0] * CHANNELS, 5, -1, 1);
    in[1] = tensor_f32(put(n.dev, w, (size_t)rows[0] * CHANNELS * sizeof *w), rows[0], 1, 1, CHANNELS);
    tape_begin(n.tape, TAPE_EVAL, 1, NULL);
    y = layer_row_mul(n.tape, tape_input(n.tape, &in[0]), tape_input(n.tape, &in[1]), GAP, OUT);
    NET_OK(&n, tape_status(n.tape, &n.err));
    for (size_t p = 0; p < tensor_pixels(y->x); p++) {
        get_numbers(n.dev, got, (const char *)y->x->data + p * (size_t)y->x->stride * dtype_bytes(dtype), OUT, dtype);
        for (size_t k = 0; k < OUT; k++) {
            float want = 0;

            for (size_t c = 0; c < D; c++)
                want = fmaf(stored(x[p * D + c], dtype), stored(w[p / (SIDE * SIDE) * CHANNELS + GAP + c * OUT + k], dtype), want);
            assert_true(got[k] == stored(want, dtype));
        }
    }
    free(x);
    free(w);
    net_free(&n);
}

static void weights_are_rows(void **state)
{
    const struct device_options half = { .threads = 2, .precision = PRECISION_BF16 };

    (void)state;
    open_device(devices.dev[0]->ops, &half, 0);
    open_device(devices.dev[devices.n - 2]->ops, &half, devices.seed[devices.n - 2]);
    assert_int_equal(devices.dev[devices.n - 1]->dtype, DTYPE_BF16);
    for (int d = 0; d < devices.n; d++)
        check_rows(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(gradients_are_slopes), cmocka_unit_test(weights_are_rows) };

    return cmocka_run_group_tests_name("row_mul", tests, open_devices, close_devices);
}
