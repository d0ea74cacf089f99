/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_shard_shapes.c
 * uses: proto worker/layers worker/comm worker/core cpu cuda
 * Shards with different heights and widths: through all layers each shard gives the same bits as alone. */
#include "tests/device/tape_net.h"

enum { C = 6, IMAGES = 2, NPARAMS = 7 };

static const int height[NET_SHARDS] = { 8, 4, 10 }, width[NET_SHARDS] = { 6, 12, 4 };

struct outcome {
    float grad[NET_SHARDS][NPARAMS][2 * C * 9 * C];
    double stats[NET_SHARDS][2 * C + 1];
    float out[NET_SHARDS][IMAGES * 10 * 12 * C];
};

static void keep(struct net *n, const struct value *v, struct param *const *p, struct outcome *ret)
{
    for (int s = 0; s < n->nshards; s++) {
        const struct tensor *x = &v->x[s];
        int at = n->first + s;

        for (size_t i = 0; i < tensor_pixels(x); i++)
            get(n->dev, ret->out[at] + i * C, (float *)x->data + i * (size_t)x->stride, C * sizeof(float));
        get(n->dev, ret->stats[at], n->stats[0][0][s], sizeof ret->stats[at]);
    }
    net_back(n);
    for (int s = 0; s < n->nshards; s++)
        for (int i = 0; i < NPARAMS; i++)
            get(n->dev, ret->grad[n->first + s][i], n->grad[p[i]->index][s], p[i]->count * sizeof(float));
}

static void run(int device, int first, int nshards, struct outcome *ret)
{
    const struct conv cv = { 1, 1 }, down = { 2, 1 };
    struct param *p[NPARAMS];
    struct value *v, *half;
    struct norm norm;
    struct net n;

    net_open_on(&n, device, first, nshards, IMAGES, height, width, C);
    for (int i = 0; i < 4; i++)
        p[i] = net_param(&n, PARAM_CONV, C, 3, i == 3 ? 2 * C : C, true);
    p[4] = net_param(&n, PARAM_BIAS, C, 1, 1, true);
    norm = net_norm(&n, C, true, false);
    p[5] = norm.gamma;
    p[6] = norm.beta;
    v = layer_conv(n.tape, net_begin(&n), &cv, p[0], p[4]);
    v = layer_add(n.tape, layer_act(n.tape, v, ACT_LEAKY), layer_act(n.tape, v, ACT_LOGISTIC));
    half = layer_conv_norm(n.tape, v, &down, p[1], &norm, LEAKY_SLOPE);
    half = layer_maxpool(n.tape, layer_conv(n.tape, half, &cv, p[2], NULL), &(struct pooling){ 3, 1, 2 });
    v = layer_concat(n.tape, (struct value *[]){ layer_upsample(n.tape, half, 2), layer_detach(n.tape, v) }, 2);
    v = layer_conv(n.tape, v, &cv, p[3], NULL);
    net_seed(&n, v, 0);
    keep(&n, v, p, ret);
    net_free(&n);
}

static void each_as_alone(void **state)
{
    static struct outcome together, alone;

    (void)state;
    for (int d = 0; d < devices.n; d++) {
        memset(&together, 0, sizeof together);
        memset(&alone, 0, sizeof alone);
        run(d, 0, NET_SHARDS, &together);
        for (int s = 0; s < NET_SHARDS; s++)
            run(d, s, 1, &alone);
        for (int s = 0; s < NET_SHARDS; s++)
            assert_true(together.stats[s][0] == IMAGES * height[s] * width[s] / 4);
        assert_memory_equal(together.out, alone.out, sizeof alone.out);
        assert_memory_equal(together.stats, alone.stats, sizeof alone.stats);
        assert_memory_equal(together.grad, alone.grad, sizeof alone.grad);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_as_alone) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
