/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_frozen.c
 * uses: proto worker/layers worker/comm worker/core cpu cuda
 * Values without a gradient: frozen parameters, detached values, and the memory of both. */
#include "tests/device/tape_net.h"

static const int side[NET_SHARDS] = { 6, 6, 6 };

enum { C = 8 };

static void equal_grad(struct net *n, const struct param *p, float *const *want)
{
    for (int s = 0; s < n->nshards; s++) {
        float *g = net_grad(n, p, s);

        if (memcmp(g, want[s], p->count * sizeof *g) != 0)
            fail_msg("%s: the gradient of %s, shard %d, is another", n->dev->ops->name, p->name, s);
        free(g);
    }
}

/* Gradients of p, which equal_grad() compares others with. */
static void keep_grad(struct net *n, const struct param *p, float **ret)
{
    for (int s = 0; s < n->nshards; s++)
        ret[s] = net_grad(n, p, s);
}

static void free_grad(struct net *n, float **g)
{
    for (int s = 0; s < n->nshards; s++)
        free(g[s]);
}

/* Which of the middle block's parameters train. */
struct middle {
    bool weight, bias, affine;
};

/* A convolution, a block of two convolutions with parameters that may be frozen, and one more. All trained parameters
 * get the same gradients as when every parameter trains. */
static void run_middle(struct net *n, const struct middle *m, struct param *p[6])
{
    const struct conv cv = { 1, 1 };
    struct norm norm;
    struct value *v = net_begin(n);

    p[0] = net_param(n, PARAM_CONV, C, 3, C, true);
    p[1] = net_param(n, PARAM_CONV, C, 3, C, m->weight);
    p[2] = net_param(n, PARAM_BIAS, C, 1, 1, m->bias);
    p[3] = net_param(n, PARAM_CONV, C, 3, C, true);
    norm = net_norm(n, C, m->affine, false);
    p[4] = norm.gamma;
    p[5] = norm.beta;
    v = layer_conv(n->tape, v, &cv, p[0], NULL);
    v = layer_conv(n->tape, layer_act(n->tape, v, ACT_LEAKY), &cv, p[1], p[2]);
    v = layer_conv_norm(n->tape, v, &cv, p[3], &norm, LEAKY_SLOPE);
    net_seed(n, v, 0);
    net_back(n);
    for (int i = 0; i < 6; i++)
        assert_int_equal(n->ready[p[i]->index], p[i]->trainable);
}

static void frozen_parts(void **state)
{
    static const struct middle cases[] = {
        { true, true, true }, { false, true, true }, { true, false, true }, { true, true, false }, { false, false, false }
    };

    (void)state;
    for (int d = 0; d < devices.n; d++) {
        float *want[6][NET_SHARDS];
        struct param *p[6];
        struct net n;

        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            net_open_on(&n, d, 0, 2, 2, side, side, C);
            run_middle(&n, &cases[i], p);
            for (int k = 0; k < 6; k++)
                if (i == 0)
                    keep_grad(&n, p[k], want[k]);
                else if (p[k]->trainable)
                    equal_grad(&n, p[k], want[k]);
            net_free(&n);
        }
        for (int k = 0; k < 6; k++)
            free_grad(&n, want[k]);
    }
}

static int no_bwd_apply(struct device *dev, struct tensor *dx, const struct tensor *da, const struct operand *x, const float *const *mean,
                        const float *const *invstd, const double *const *sums, const double *const *stats, int nshards, struct err *err)
{
    (void)dev, (void)dx, (void)da, (void)x, (void)mean, (void)invstd, (void)sums, (void)stats, (void)nshards;
    return err_set(err, ERR_DEVICE, "a gradient that nobody needs");
}

/* A scale or an offset may train alone: its gradient is the same as when both train. No gradient goes to frozen
 * weights. */
static void half_an_affine(void **state)
{
    const struct conv cv = { 1, 1 };

    (void)state;
    for (int d = 0; d < devices.n; d++) {
        float *want[2][NET_SHARDS];
        const struct families *real = devices.dev[d]->on;
        struct families on = *real;
        struct norm_ops ops = *real->norm;

        ops.bwd_apply = no_bwd_apply;
        on.norm = &ops;
        for (int which = 0; which < 3; which++) {
            struct net n;
            struct norm norm;
            struct param *w;
            struct value *v;

            net_open_on(&n, d, 0, 2, 2, side, side, C);
            w = net_param(&n, PARAM_CONV, C, 3, C, false);
            norm = net_norm(&n, C, true, false);
            norm.gamma->trainable = which != 1;
            norm.beta->trainable = which != 2;
            v = layer_conv_norm(n.tape, net_begin(&n), &cv, w, &norm, LEAKY_SLOPE);
            net_seed(&n, v, 0);
            n.dev->on = &on;
            net_back(&n);
            n.dev->on = real;
            assert_int_equal(n.ready[w->index], 0);
            for (int k = 0; k < 2; k++) {
                const struct param *p = k ? norm.beta : norm.gamma;

                assert_int_equal(n.ready[p->index], p->trainable);
                if (which == 0)
                    keep_grad(&n, p, want[k]);
                else if (p->trainable)
                    equal_grad(&n, p, want[k]);
            }
            net_free(&n);
        }
        for (int k = 0; k < 2; k++)
            for (int s = 0; s < 2; s++)
                free(want[k][s]);
    }
}

/* A backbone of `depth` blocks, then a head that trains; the model drops the values it has read. Returns the largest
 * number of bytes in use. */
static size_t backbone(struct net *n, int depth, bool trains, bool drops, float **ret_grad)
{
    const struct conv cv = { 1, 1 };
    struct param *head = net_param(n, PARAM_CONV, C, 3, C, true);
    struct value *v = net_begin(n), *next;
    size_t peak;

    for (int i = 0; i < depth; i++) {
        struct param *w = net_param(n, PARAM_CONV, C, 3, C, trains);
        struct norm norm = net_norm(n, C, trains, true);

        next = layer_conv_norm(n->tape, v, &cv, w, &norm, LEAKY_SLOPE);
        if (drops)
            tape_drop(n->tape, v);
        v = next;
        assert_int_equal(v->needs_grad, trains);
    }
    next = layer_conv(n->tape, v, &cv, head, NULL);
    if (drops)
        tape_drop(n->tape, v);
    net_seed(n, next, 0);
    net_back(n);
    peak = arena_peak(n->arena);
    keep_grad(n, head, ret_grad);
    return peak;
}

/* Values that are not read again are freed, with or without a gradient; this changes no bit. */
static void frozen_backbone(void **state)
{
    static const int large[NET_SHARDS] = { 32, 32, 32 };
    const size_t layer = 2 * 32 * 32 * C * sizeof(float);

    (void)state;
    for (int d = 0; d < devices.n; d++) {
        size_t frozen[2], train[2];
        float *want[NET_SHARDS], *got[NET_SHARDS];
        struct net n;

        for (int i = 0; i < 2; i++) {
            int depth = i ? 7 : 3;

            net_open_on(&n, d, 0, 2, 1, large, large, C);
            train[i] = backbone(&n, depth, true, true, want);
            net_free(&n);
            net_open_on(&n, d, 0, 2, 1, large, large, C);
            frozen[i] = backbone(&n, depth, false, true, got);
            for (int s = 0; s < 2; s++)
                assert_memory_equal(want[s], got[s], C * C * 9 * sizeof(float));
            free_grad(&n, got);
            net_free(&n);
            net_open_on(&n, d, 0, 2, 1, large, large, C);
            assert_true(backbone(&n, depth, false, false, got) > frozen[i]);
            for (int s = 0; s < 2; s++)
                assert_memory_equal(want[s], got[s], C * C * 9 * sizeof(float));
            free_grad(&n, got);
            net_free(&n);
            free_grad(&n, want);
        }
        assert_true(train[1] >= train[0] + 4 * layer);
        assert_true(frozen[1] < frozen[0] + layer / 2); /* scales and offsets of four more */
    }
}

/* value + its detached activation: the gradient is the value's alone. */
static void detached(void **state)
{
    const struct conv cv = { 1, 1 };

    (void)state;
    for (int d = 0; d < devices.n; d++) {
        float *want[NET_SHARDS];
        struct net n;

        for (int with = 0; with < 2; with++) {
            struct param *p, *q;
            struct value *raw, *stop;

            net_open_on(&n, d, 0, 2, 2, side, side, C);
            p = net_param(&n, PARAM_CONV, C, 3, C, true);
            q = net_param(&n, PARAM_CONV, C, 3, C, true);
            raw = layer_conv(n.tape, net_begin(&n), &cv, p, NULL);
            stop = layer_detach(n.tape, layer_act(n.tape, raw, ACT_LEAKY));
            assert_true(!stop->needs_grad && stop->x[0].data == raw->x[0].data && stop->act);
            if (with)
                stop = layer_conv(n.tape, stop, &cv, q, NULL); /* trains, and no gradient goes below it */
            net_seed(&n, with ? layer_add(n.tape, raw, stop) : raw, 0);
            net_back(&n);
            if (!with)
                keep_grad(&n, p, want);
            else
                equal_grad(&n, p, want);
            if (with)
                for (int s = 0; s < 2; s++) {
                    float *g = net_grad(&n, q, s);

                    assert_true(g[0] != 0.0f);
                    free(g);
                }
            if (with)
                free_grad(&n, want);
            net_free(&n);
        }
    }
}

/* Every layer in a chain; the model drops each value when the next is there. */
static void chain(struct net *n, bool drops, struct param *p[4], struct norm *norm)
{
    const struct conv cv = { 1, 1 };
    struct value *v = net_begin(n), *kept[12];
    int count = 0;

#define NEXT(call)                                                             \
    do {                                                                       \
        kept[count++] = v;                                                     \
        v = (call);                                                            \
        if (drops)                                                             \
            tape_drop(n->tape, v == kept[count - 1] ? NULL : kept[count - 1]); \
    } while (0)
    NEXT(layer_conv(n->tape, v, &cv, p[0], NULL));
    NEXT(layer_act(n->tape, v, ACT_LEAKY));
    NEXT(layer_act(n->tape, v, ACT_LOGISTIC));
    NEXT(layer_conv_norm(n->tape, v, &cv, p[1], norm, LEAKY_SLOPE));
    NEXT(layer_maxpool(n->tape, v, &(struct pooling){ 3, 1, 2 }));
    NEXT(layer_conv_norm(n->tape, v, &cv, p[2], norm + 1, 1));
    NEXT(layer_act(n->tape, v, ACT_TANH));
    NEXT(layer_concat(n->tape, (struct value *[]){ v, v }, 2));
    NEXT(layer_upsample(n->tape, v, 2));
    NEXT(layer_maxpool(n->tape, v, &(struct pooling){ 3, 2, 2 }));
    NEXT(layer_add(n->tape, v, v));
    NEXT(layer_conv(n->tape, v, &cv, p[3], NULL));
#undef NEXT
    net_seed(n, v, 0);
    net_back(n);
}

/* Values that backward still reads stay, though the model has dropped them. */
static void dropped(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        float *want[8][NET_SHARDS];
        size_t peak[2];

        for (int drops = 0; drops < 2; drops++) {
            struct param *p[4];
            struct norm norm[2];
            struct net n;

            net_open_on(&n, d, 0, 2, 2, side, side, C);
            for (int i = 0; i < 4; i++)
                p[i] = net_param(&n, PARAM_CONV, C, 3, i == 3 ? 2 * C : C, true);
            for (int i = 0; i < 2; i++)
                norm[i] = net_norm(&n, C, true, false);
            chain(&n, drops, p, norm);
            peak[drops] = arena_peak(n.arena);
            for (int i = 0; i < 8; i++) {
                const struct param *of = i < 4 ? p[i] : i % 2 ? norm[i / 6].beta : norm[i / 6].gamma;

                if (drops)
                    equal_grad(&n, of, want[i]);
                else
                    keep_grad(&n, of, want[i]);
                if (drops)
                    free_grad(&n, want[i]);
            }
            net_free(&n);
        }
        assert_true(peak[1] < peak[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frozen_parts), cmocka_unit_test(half_an_affine), cmocka_unit_test(frozen_backbone),
                                        cmocka_unit_test(detached), cmocka_unit_test(dropped) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
