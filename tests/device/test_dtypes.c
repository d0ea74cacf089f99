/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_dtypes.c - values of a dtype that is not the device's: a
 * branch in fp32 beside bf16, and integers. uses: proto worker/layers worker/comm worker/core cpu cuda */
#include "tests/device/bf16.h"
#include "tests/device/tape_net.h"

enum { C = 5, H = 6, W = 4, IMAGES = 2, COUNT = IMAGES * H * W * C, SHARDS = 2 };

/* The gradient that arrived at a leaf, shard by shard, without gaps. */
struct arrived {
    float grad[SHARDS][COUNT];
};

/* n pixels of C numbers, in either dtype, from or to host memory without gaps. */
static void move(struct net *n, const struct tensor *x, float *host, bool up)
{
    size_t each = dtype_bytes(x->dtype);

    for (size_t p = 0; p < tensor_pixels(x); p++) {
        char *dev = (char *)x->data + p * (size_t)x->stride * each;
        float *at = host + p * (size_t)x->c;
        uint16_t half[2 * C];

        for (int k = 0; k < x->c && up; k++)
            half[k] = bf16_bits(at[k]);
        if (up)
            NET_OK(n, n->dev->ops->upload(n->dev, dev, x->dtype == DTYPE_BF16 ? (void *)half : at, (size_t)x->c * each, &n->err));
        else
            get(n->dev, x->dtype == DTYPE_BF16 ? (void *)half : at, dev, (size_t)x->c * each);
        for (int k = 0; k < x->c && !up && x->dtype == DTYPE_BF16; k++)
            at[k] = bf16_value(half[k]);
    }
}

static int arrive(struct tape *t, struct node *node, struct err *err)
{
    struct arrived *a = ((struct arrived **)node->ctx)[0];
    struct net *n = ((void **)node->ctx)[1];

    (void)t, (void)err;
    for (int s = 0; s < SHARDS; s++)
        move(n, &node->out->grad[s], a->grad[s], false);
    return 0;
}

/* A value of the device's dtype with the same numbers on all devices. Its gradient is recorded. */
static struct value *leaf(struct net *n, struct arrived *a)
{
    struct tensor shape[SHARDS];
    void **ctx;
    struct value *v;

    for (int s = 0; s < SHARDS; s++) {
        shape[s] = tensor_f32(NULL, IMAGES, H, W, C);
        shape[s].dtype = n->dev->dtype;
    }
    v = tape_value(n->tape, shape, true, "leaf");
    ctx = tape_host(n->tape, 2 * sizeof *ctx);
    ctx[0] = a;
    ctx[1] = n;
    assert_non_null(v);
    for (int s = 0; s < SHARDS; s++) {
        float *x = numbers_of(DTYPE_BF16, COUNT, 50 + (uint64_t)s, -1, 1);

        move(n, &v->x[s], x, true);
        free(x);
    }
    tape_record(n->tape, arrive, v, NULL, 0, 0, ctx);
    return v;
}

/* Everything that works in fp32 beside bf16. */
static struct value *branch(struct net *n, struct value *v)
{
    struct value *wide = layer_cast(n->tape, v, DTYPE_F32), *x = layer_act(n->tape, wide, ACT_LEAKY);

    assert_int_equal(wide->x[0].dtype, DTYPE_F32);
    x = layer_add(n->tape, layer_maxpool(n->tape, x, &(struct pooling){ 3, 1, 2 }), layer_act(n->tape, wide, ACT_TANH));
    return layer_concat(n->tape, (struct value *[]){ x, wide }, 2);
}

/* The output of the branch of the last net, and the gradient that arrived at its leaf. */
static void run_branch(struct net *n, int readers, float out[SHARDS][2 * COUNT], struct arrived *a)
{
    struct value *v, *y[2];

    net_begin(n);
    v = leaf(n, a);
    for (int i = 0; i < readers; i++)
        y[i] = branch(n, v);
    for (int i = 0; i < readers; i++)
        net_seed(n, y[i], (uint64_t)i);
    for (int s = 0; s < SHARDS; s++)
        move(n, &y[0]->x[s], out[s], false);
    net_back(n);
}

static const int h[NET_SHARDS] = { H, H }, w[NET_SHARDS] = { W, W };

static void net_on(struct net *n, int device)
{
    net_open_on(n, device, 0, SHARDS, IMAGES, h, w, C);
}

/* The numbers of the branch equal those of a device with fp32 throughout. Gradients are rounded where they become bf16,
 * and then added. */
static void check_bf16(int device)
{
    static float want[SHARDS][2 * COUNT], out[SHARDS][2 * COUNT];
    static struct arrived exact[2], got;
    struct net n;

    net_on(&n, 0);
    run_branch(&n, 1, want, &exact[0]);
    net_free(&n);
    for (int readers = 1; readers <= 2; readers++) {
        net_on(&n, device);
        run_branch(&n, readers, out, &got);
        net_free(&n);
        assert_memory_equal(out, want, sizeof want);
        for (int s = 0; s < SHARDS && readers == 1; s++)
            for (int i = 0; i < COUNT; i++)
                assert_true(got.grad[s][i] == stored(exact[0].grad[s][i], devices.dev[device]->dtype));
    }
    net_on(&n, 0);
    run_branch(&n, 2, out, &exact[1]);
    net_free(&n);
    for (int s = 0; s < SHARDS; s++)
        for (int i = 0; i < COUNT; i++) /* the second branch's share comes first */
            near((double)got.grad[s][i], (double)exact[1].grad[s][i], 0.02, "sum of two branches", (size_t)i);
}

static void beside_bf16(void **state)
{
    (void)state;
    for (int d = 1; d < devices.n; d++)
        check_bf16(d);
    for (int threads = 1; threads <= 2; threads++) {
        open_device(devices.dev[0]->ops, &(struct device_options){ .threads = threads, .precision = PRECISION_BF16 }, 0);
        assert_int_equal(devices.dev[devices.n - 1]->dtype, DTYPE_BF16);
        check_bf16(devices.n - 1);
    }
#ifdef CUDA_EMU
    if (cuda_plugin())
        return;
    for (uint64_t seed = 1; seed <= EMU_SEEDS; seed++) {
        open_device(cuda_backend_emu(), &(struct device_options){ .precision = PRECISION_BF16 }, seed);
        assert_int_equal(devices.dev[devices.n - 1]->dtype, DTYPE_BF16);
        check_bf16(devices.n - 1);
    }
#endif
}

/* A NaN of any sign and payload is stored in bf16 as one fixed NaN, so that evidence does not depend on its origin. */
static void one_nan_is_stored(void **state)
{
    static const uint32_t wide[] = { 0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF8ABCDEu, 0x7FFFFFFFu, 0xFFFFFFFFu };
    static const uint16_t half[] = { 0x7FC0, 0xFFC0, 0x7F81, 0xFF8A, 0x7FFF, 0xFFFF };
    enum { N = sizeof half / sizeof *half };

    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct device *dev = devices.dev[d];
        uint16_t got[3][N];
        void *mem[] = { put(dev, wide, sizeof wide), put(dev, half, sizeof half), put(dev, NULL, sizeof got) };
        struct tensor x = tensor_f32(mem[0], 1, 1, N, 1), b = tensor_f32(mem[1], 1, 1, N, 1), y[3];
        struct operand of = { .x = b };
        struct err err;

        b.dtype = of.x.dtype = DTYPE_BF16;
        for (int i = 0; i < 3; i++) {
            y[i] = b;
            y[i].data = (uint16_t *)mem[2] + i * N;
        }
        if (held_as(dev, DTYPE_BF16) == DTYPE_BF16) {
            assert_int_equal(dev->on->map->cast(dev, &y[0], &x, 1, &err), 0);
            assert_int_equal(dev->on->map->act_fwd(dev, ACT_LEAKY, &y[1], &of, 1, &err), 0);
            assert_int_equal(dev->on->map->add_fwd(dev, &y[2], &of, &of, 1, &err), 0);
            get(dev, got, mem[2], sizeof got);
            for (int i = 0; i < 3 * N; i++)
                assert_int_equal(got[i / N][i % N], 0x7FFF);
        }
        free_buffers();
    }
}

/* Integers have no gaps, on any device, and no gradient; values from outside are read in place. */
static void integers(void **state)
{
    (void)state;
    for (int d = 0; d < devices.n; d++) {
        struct tensor shape[SHARDS];
        struct value *v;
        struct net n;
        int32_t *given;

        net_on(&n, d);
        net_begin(&n);
        given = put(n.dev, NULL, 3 * sizeof *given);
        for (int s = 0; s < SHARDS; s++)
            shape[s] = (struct tensor){ .data = given + s, .n = 1 + s, .h = 1, .w = 1, .c = 1, .stride = 1, .dtype = DTYPE_I32 };
        v = tape_input(n.tape, shape);
        assert_true(v && v->x[1].dtype == DTYPE_I32 && v->x[1].data == given + 1 && !v->needs_grad);
        for (int s = 0; s < SHARDS; s++)
            shape[s] = (struct tensor){ .n = 7 + s, .h = 1, .w = 1, .c = 3, .dtype = DTYPE_I32 };
        v = tape_value(n.tape, shape, false, "rows");
        assert_true(v && v->x[0].dtype == DTYPE_I32 && v->x[0].stride == 3 && !v->needs_grad);
        assert_ptr_equal(v->x[1].data, (int32_t *)v->x[0].data + 21);
        net_free(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(beside_bf16), cmocka_unit_test(one_nan_is_stored), cmocka_unit_test(integers) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
