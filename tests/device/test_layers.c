/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_layers.c
 * uses: proto worker/layers worker/comm worker/core cpu cuda
 * Values with several readers: each reader's gradient counts, in any order. */
#include "tests/device/devices.h"

#include <math.h>

#include "worker/core/arena.h"
#include "worker/layers/tape.h"
#include "worker/layers/layers.h"

enum { SHARDS = 2, C = 4, K = 5, PARAMS = 4, COUNT = 2 * 4 * 3 * K };

/* Two images of 4 x 3 pixels a shard. */
struct net {
    struct device *dev;
    struct arena *arena;
    struct tape *tape;
    struct param *param[PARAMS]; /* [K][3][3][C] and its bias, which make the value that is read twice; [K][1][1][K], [K] of a reader */
    float *grad[PARAMS][SHARDS];
    struct tensor image[SHARDS];
};

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    struct net *n = arg;

    *ret_written = false;
    return n->grad[p->index][shard];
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    (void)arg, (void)p, (void)err;
    return 0;
}

static struct param *param_new(struct net *n, int index, enum param_kind kind, int k, int size, int c)
{
    struct param *p = calloc(1, sizeof *p);
    float *w;

    assert_non_null(p);
    p->index = index;
    p->kind = kind;
    p->trainable = true;
    p->k = k;
    p->r = p->s = size;
    p->c = c;
    p->count = (size_t)(k * size * size * c);
    snprintf(p->name, sizeof p->name, "param %d", index);
    w = numbers(p->count, 10 + (uint64_t)index, -0.5f, 0.5f);
    p->data = put(n->dev, w, p->count * sizeof *w);
    free(w);
    for (int s = 0; s < SHARDS; s++)
        n->grad[index][s] = put(n->dev, NULL, p->count * sizeof(float));
    return p;
}

static void net_open(struct net *n, int device)
{
    use_device(device);
    n->dev = devices.dev[device];
    n->dev->ops->set_tier(n->dev, TIER_WORLD); /* a gradient of each shard */
    n->arena = arena_new(n->dev, 1 << 20);
    n->tape = tape_new(n->dev, n->arena, PARAMS);
    assert_true(n->arena && n->tape);
    n->param[0] = param_new(n, 0, PARAM_CONV, K, 3, C);
    n->param[1] = param_new(n, 1, PARAM_BIAS, K, 1, 1);
    n->param[2] = param_new(n, 2, PARAM_CONV, K, 1, K);
    n->param[3] = param_new(n, 3, PARAM_BIAS, K, 1, 1);
    for (int s = 0; s < SHARDS; s++) {
        float *x = numbers(2 * 4 * 3 * C, 20 + (uint64_t)s, -1.0f, 1.0f);

        n->image[s] = tensor_f32(put(n->dev, x, 2 * 4 * 3 * C * sizeof *x), 2, 4, 3, C);
        free(x);
    }
}

static void net_close(struct net *n)
{
    tape_free(n->tape);
    arena_free(n->arena);
    for (int i = 0; i < PARAMS; i++) {
        n->dev->ops->param_release(n->dev, n->param[i]);
        free(n->param[i]);
    }
    free_buffers();
}

enum reader { LEAKY, RELU, LOGISTIC, CONV, POOL, BLOCK, READERS };

static const char *const reader_name[READERS] = { "leaky", "ReLU", "logistic", "convolution", "max-pool", "convolution and leaky" };

static struct value *raw_value(struct net *n)
{
    return layer_conv(n->tape, tape_input(n->tape, n->image), &(struct conv){ 1, 1 }, n->param[0], n->param[1]);
}

/* All have the shape of their input. */
static struct value *read_by(struct net *n, enum reader reader, struct value *raw)
{
    switch (reader) {
    case LEAKY:
        return layer_act(n->tape, raw, ACT_LEAKY);
    case RELU:
        return layer_act(n->tape, raw, ACT_RELU);
    case LOGISTIC:
        return layer_act(n->tape, raw, ACT_LOGISTIC);
    case CONV:
        return layer_conv(n->tape, raw, &(struct conv){ 1, 0 }, n->param[2], n->param[3]);
    case BLOCK:
        return layer_act(n->tape, read_by(n, CONV, raw), ACT_LEAKY);
    default:
        return layer_maxpool(n->tape, raw, &(struct pooling){ 3, 1, 2 });
    }
}

/* Some gradient arrives at v, as a loss would leave it. */
static void seed(struct net *n, struct value *v, uint64_t which)
{
    struct err err;
    float beta;

    assert_int_equal(tape_grad(n->tape, v, &beta, &err), 0);
    assert_true(beta == 0.0f);
    for (int s = 0; s < SHARDS; s++) {
        float *g = numbers(COUNT, 30 + 2 * which + (uint64_t)s, -1.0f, 1.0f), *to = v->grad[s].data;

        for (int i = 0; i < COUNT / K; i++) /* the contents of the gaps after the channels must not matter */
            assert_int_equal(n->dev->ops->upload(n->dev, to + i * v->grad[s].stride, g + i * K, K * sizeof *g, &err), 0);
        free(g);
    }
}

/* Gradients of the first convolution and its bias. */
static void back(struct net *n, float ret[SHARDS][K * 9 * C + K])
{
    struct err err = { 0 };

    if (tape_backward(n->tape, n->param, PARAMS, &err) < 0)
        fail_msg("%s", err.msg);
    for (int s = 0; s < SHARDS; s++) {
        get(n->dev, ret[s], n->grad[0][s], n->param[0]->count * sizeof(float));
        get(n->dev, ret[s] + n->param[0]->count, n->grad[1][s], n->param[1]->count * sizeof(float));
    }
}

/* Computes gradients; reader i's output is seeded if seeded[i]. The readers are in this order. */
static void gradients(struct net *n, const enum reader *readers, const bool *seeded, float ret[SHARDS][K * 9 * C + K])
{
    const struct tape_hooks hooks = { .arg = n, .grad_dest = grad_dest, .grad_ready = grad_ready };
    struct value *raw, *out[2];
    struct err err = { 0 };

    tape_begin(n->tape, TAPE_TRAIN, SHARDS, &hooks);
    raw = raw_value(n);
    for (int i = 0; i < 2; i++)
        out[i] = read_by(n, readers[i], raw);
    if (tape_status(n->tape, &err) < 0)
        fail_msg("%s", err.msg);
    for (int i = 0; i < 2; i++)
        if (seeded[i])
            seed(n, out[i], (uint64_t)i);
    back(n, ret);
}

/* A gradient is linear in the arriving gradients: the gradient of both readers is the sum of each reader's. */
static void both(struct net *n, enum reader first, enum reader second)
{
    static const bool seeded[3][2] = { { true, false }, { false, true }, { true, true } };
    const enum reader readers[2] = { first, second };
    float g[3][SHARDS][K * 9 * C + K];

    for (int i = 0; i < 3; i++)
        gradients(n, readers, seeded[i], g[i]);
    for (int s = 0; s < SHARDS; s++)
        for (size_t k = 0; k < sizeof g[0][0] / sizeof(float); k++) {
            double sum = (double)g[0][s][k] + (double)g[1][s][k], diff = (double)g[2][s][k] - sum;

            assert_true(g[0][s][k] != 0.0f && g[1][s][k] != 0.0f);
            if (!(diff < 1e-4 && diff > -1e-4))
                fail_msg("%s, readers %s and %s: gradient %zu is %g, should be %g", n->dev->ops->name, reader_name[first],
                         reader_name[second], k, (double)g[2][s][k], sum);
        }
}

static void two_readers(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct net n;

        net_open(&n, d);
        for (int r = 0; r < READERS; r++) {
            both(&n, LEAKY, (enum reader)r);
            both(&n, (enum reader)r, LEAKY);
        }
        net_close(&n);
    }
}

enum sum { SUM, SUM_SWAPPED, ONLY_READER, ONLY_VALUE, TWICE };

/* Gradients at the sum of a reader's output and its input: in either order, through one of both only, or at value +
 * value. */
static void sum_gradients(struct net *n, enum sum sum, enum reader reader, float ret[SHARDS][K * 9 * C + K])
{
    const struct tape_hooks hooks = { .arg = n, .grad_dest = grad_dest, .grad_ready = grad_ready };
    struct value *raw, *read;
    struct err err = { 0 };

    tape_begin(n->tape, TAPE_TRAIN, SHARDS, &hooks);
    raw = raw_value(n);
    read = sum == TWICE || sum == ONLY_VALUE ? raw : read_by(n, reader, raw);
    if (sum == SUM || sum == TWICE)
        read = layer_add(n->tape, read, raw);
    else if (sum == SUM_SWAPPED)
        read = layer_add(n->tape, raw, read);
    if (tape_status(n->tape, &err) < 0)
        fail_msg("%s", err.msg);
    seed(n, read, 0);
    back(n, ret);
}

static void sum_with(struct net *n, enum reader reader)
{
    float g[TWICE + 1][SHARDS][K * 9 * C + K];

    for (int sum = 0; sum <= TWICE; sum++)
        sum_gradients(n, (enum sum)sum, reader, g[sum]);
    assert_memory_equal(g[SUM], g[SUM_SWAPPED], sizeof g[SUM]);
    for (int s = 0; s < SHARDS; s++)
        for (size_t k = 0; k < sizeof g[0][0] / sizeof(float); k++) {
            double sum = (double)g[ONLY_READER][s][k] + (double)g[ONLY_VALUE][s][k], diff = (double)g[SUM][s][k] - sum;

            assert_true(g[TWICE][s][k] == 2 * g[ONLY_VALUE][s][k]);
            if (!(diff < 1e-4 && diff > -1e-4))
                fail_msg("%s, a value plus its %s: gradient %zu is %g, should be %g", n->dev->ops->name, reader_name[reader], k,
                         (double)g[SUM][s][k], sum);
        }
}

/* The gradient of a sum is that of both terms, in one memory: a term that changes its gradient must not change the
 * other's. */
static void sums(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct net n;

        net_open(&n, d);
        for (int r = 0; r < READERS; r++)
            sum_with(&n, (enum reader)r);
        net_close(&n);
    }
}

static int no_act_bwd(struct device *dev, enum act_kind kind, struct tensor *dx, float beta, const struct tensor *dy,
                      const struct tensor *y, int nshards, struct err *err)
{
    (void)dev, (void)kind, (void)dx, (void)beta, (void)dy, (void)y, (void)nshards;
    return err_set(err, ERR_DEVICE, "a gradient is copied");
}

/* Residual blocks in a row copy no gradient, neither into the block nor around it. */
static void sums_copy_nothing(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        const struct families *real = devices.dev[d]->on;
        struct families on = *real;
        struct map_ops map = *real->map;
        struct net n;
        const struct tape_hooks hooks = { .arg = &n, .grad_dest = grad_dest, .grad_ready = grad_ready };
        struct err err = { 0 };
        struct value *v;

        net_open(&n, d);
        map.act_bwd = no_act_bwd;
        on.map = &map;
        n.dev->on = &on;
        tape_begin(n.tape, TAPE_TRAIN, SHARDS, &hooks);
        v = layer_act(n.tape, raw_value(&n), ACT_LEAKY);
        for (int i = 0; i < 3; i++)
            v = layer_add(n.tape, read_by(&n, BLOCK, v), v);
        seed(&n, v, 0);
        if (tape_backward(n.tape, n.param, PARAMS, &err) < 0)
            fail_msg("%s: %s", n.dev->ops->name, err.msg);
        n.dev->on = real;
        net_close(&n);
    }
}

/* Pixels of values and gradients have the device's stride, and shards lie one after the other. */
static void pixels_are_rows(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct net n;
        const struct tape_hooks hooks = { .arg = &n, .grad_dest = grad_dest, .grad_ready = grad_ready };
        struct value *v;

        net_open(&n, d);
        tape_begin(n.tape, TAPE_TRAIN, SHARDS, &hooks);
        v = raw_value(&n);
        seed(&n, v, 0);
        for (int i = 0; i < 2; i++) {
            const struct tensor *x = i ? v->grad : v->x;
            size_t pixel = (size_t)x->stride * sizeof(float);

            assert_int_equal(pixel, n.dev->host_memory ? K * sizeof(float) : 32);
            assert_int_equal((uintptr_t)x->data % 16, 0);
            assert_ptr_equal((char *)x[0].data + (size_t)(COUNT / K) * pixel, x[1].data);
        }
        net_close(&n);
    }
}

/* In evaluation memory is freed when the model says so, not when the first reader is done. */
static void read_again_in_evaluation(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct value *raw, *leaky, *other;
        struct net n;

        net_open(&n, d);
        tape_begin(n.tape, TAPE_EVAL, SHARDS, NULL);
        raw = raw_value(&n);
        leaky = layer_act(n.tape, raw, ACT_LEAKY);
        tape_drop(n.tape, leaky);
        other = layer_act(n.tape, raw, ACT_LOGISTIC);
        assert_int_equal(tape_status(n.tape, NULL), 0);
        assert_ptr_not_equal(other->x[0].data, raw->x[0].data);
        tape_drop(n.tape, raw);
        leaky = layer_maxpool(n.tape, other, &(struct pooling){ 3, 1, 2 });
        assert_ptr_equal(leaky->x[0].data, raw->x[0].data);
        net_close(&n);
    }
}

/* The first channels of g arrive at v, pixel by pixel. */
static void seed_first(struct net *n, struct value *v, const float *g)
{
    struct err err;
    float beta;

    assert_int_equal(tape_grad(n->tape, v, &beta, &err), 0);
    for (int s = 0; s < SHARDS; s++)
        for (int i = 0; i < COUNT / K; i++) {
            float pixel[2 * K] = { 0 };

            memcpy(pixel, g + i * K, K * sizeof *g);
            assert_int_equal(
                n->dev->ops->upload(n->dev, (float *)v->grad[s].data + i * v->grad[s].stride, pixel, (size_t)v->x[0].c * sizeof *g, &err),
                0);
        }
}

/* Gradients if g arrives at channels 0 .. c - 1 of an activated value, and again at channels 0 and 1 of it; layers
 * false: at the value itself. */
static void channel_gradients(struct net *n, int c, bool layers, const float *g, float ret[SHARDS][K * 9 * C + K])
{
    const struct tape_hooks hooks = { .arg = n, .grad_dest = grad_dest, .grad_ready = grad_ready };
    struct value *v, *some = NULL, *two = NULL;
    float sum[COUNT];

    tape_begin(n->tape, TAPE_TRAIN, SHARDS, &hooks);
    v = layer_act(n->tape, raw_value(n), ACT_LOGISTIC);
    if (layers) {
        some = layer_channels(n->tape, v, c);
        two = layer_channels(n->tape, v, 2);
        assert_int_equal(tape_status(n->tape, NULL), 0);
        seed_first(n, some, g);
        seed_first(n, two, g);
    } else {
        for (int i = 0; i < COUNT; i++)
            sum[i] = g[i] * (float)((i % K < c) + (i % K < 2));
        seed_first(n, v, sum);
    }
    back(n, ret);
}

static void check_channels(struct net *n, int c)
{
    float first[SHARDS][K * 9 * C + K], plain[SHARDS][K * 9 * C + K], x[COUNT], y[2 * COUNT];
    float *g = numbers(COUNT, 90, -1.0f, 1.0f);
    struct value *v, *some;

    tape_begin(n->tape, TAPE_EVAL, SHARDS, NULL);
    v = layer_act(n->tape, raw_value(n), ACT_LOGISTIC);
    some = layer_channels(n->tape, v, c);
    assert_int_equal(tape_status(n->tape, NULL), 0);
    for (int s = 0; s < SHARDS; s++)
        for (int i = 0; i < COUNT / K; i++) {
            get(n->dev, x, (float *)v->x[s].data + i * v->x[s].stride, K * sizeof *x);
            get(n->dev, y, (float *)some->x[s].data + i * some->x[s].stride, (size_t)c * sizeof *y);
            for (int k = 0; k < c; k++)
                assert_true(y[k] == (k < K ? x[k] : 0.0f));
        }
    channel_gradients(n, c, true, g, first);
    channel_gradients(n, c, false, g, plain);
    for (int s = 0; s < SHARDS; s++)
        for (int k = 0; k < K * 9 * C + K; k++)
            assert_true(fabsf(first[s][k] - plain[s][k]) <= 1e-5f);
    free(g);
}

/* Fewer channels, more of them, and as many, which is the value itself. */
static void other_channels(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct net n;

        net_open(&n, d);
        check_channels(&n, 3);
        check_channels(&n, K + 2);
        tape_begin(n.tape, TAPE_EVAL, SHARDS, NULL);
        struct value *v = raw_value(&n);
        assert_ptr_equal(layer_channels(n.tape, v, K), v);
        net_close(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(two_readers),
                                        cmocka_unit_test(sums),
                                        cmocka_unit_test(sums_copy_nothing),
                                        cmocka_unit_test(pixels_are_rows),
                                        cmocka_unit_test(read_again_in_evaluation),
                                        cmocka_unit_test(other_channels) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
