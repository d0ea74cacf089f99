/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_conv_gpu.c - uses: proto worker/core cpu cuda
 * Convolutions on GPUs, in fp32 and bf16: compared with the plain definition in every tier. In TIER_WORLD a shard has
 * equal bits beside any other shards. Also: gradients that are summed over shards, and plans that are ready when they
 * are requested. */
#include "proto/tier.h"
#include "tests/device/conv_cases.h"

#include <errno.h>

enum { MAX_EMULATED_WORK = 1 << 21 };

static bool emulated(const struct device *dev)
{
#ifdef CUDA_EMU
    return dev->ops == cuda_backend_emu();
#else
    (void)dev;
    return false;
#endif
}

/* The required exactness of a weight gradient: for bf16 tensors cuDNN gives it in bf16, cuBLASLt in fp32. */
static enum dtype dw_dtype(const struct device *dev)
{
    return emulated(dev) ? DTYPE_F32 : dev->dtype;
}

/* devices.dev[]: first the CPU's devices, then GPUs in fp32. Each GPU has a further device in bf16. */
static int ncpu, nhalf;
static struct device *half_precision[MAX_DEVICES];

/* The bias gradients have the same bits everywhere. */
static bool same_db(const struct data *d, const char *a, const char *b)
{
    for (int v = 0; v < d->t->nshards; v++) {
        size_t db = result_bytes(d, v) - (2 * (size_t)d->t->k + 1) * sizeof(double) - 2 * (size_t)d->t->k * sizeof(float);

        if (memcmp(a + db, b + db, 2 * (size_t)d->t->k * sizeof(float)) != 0)
            return false;
        a += result_bytes(d, v);
        b += result_bytes(d, v);
    }
    return true;
}

static void gpu_case(struct device *dev, struct data *d)
{
    char *cpu = malloc(d->out_bytes), *got = malloc(d->out_bytes), *alone = malloc(d->out_bytes);

    d->one_by_one = false;
    run(devices.dev[0], d, cpu);
    free_buffers();
    for (enum tier tier = TIER_OFF; tier <= TIER_WORLD; tier++) {
        int before = faults.n;

        looking_at(dev, tier_name(tier), d->t);
        dev->ops->set_tier(dev, tier);
        run(dev, d, got);
        free_buffers();
        if (faults.n > before)
            continue; /* it was not computed */
        check_case(d, got);
        if (!same_db(d, cpu, got))
            fault("db has other bits than the CPU's");
    }
    d->one_by_one = true;
    run(dev, d, alone);
    free_buffers();
    if (memcmp(got, alone, d->out_bytes) != 0)
        fault("a shard alone has other bits");
    free(cpu), free(got), free(alone);
}

static void each_gpu(void (*with)(struct device *dev, int seed_of))
{
    for (int i = ncpu; i < devices.n; i++)
        with(devices.dev[i], i);
    for (int i = 0; i < nhalf; i++)
        with(half_precision[i], ncpu + i);
}

static void gpu_cases(struct device *dev, int i)
{
    const char *one_of = getenv("DETD_TEST_ONE_OF"); /* every n-th case, for tools under which a GPU is slow */
    size_t step = one_of ? (size_t)atoi(one_of) : 1;

    use_device(i);
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n += step) {
        const struct conv_case *t = &cases[n];
        struct data d;

        if (emulated(dev) &&
            (size_t)t->c * (size_t)t->k * tensor_pixels(&(struct tensor){ .n = t->shard[0].n, .h = t->shard[0].h, .w = t->shard[0].w }) >
                MAX_EMULATED_WORK)
            continue; /* correct, and far too slow */
        make(t, dev->dtype, &d);
        d.dw_dtype = dw_dtype(dev);
        gpu_case(dev, &d);
        drop(&d);
    }
}

static void gpu_definition(void **state)
{
    (void)state;
    each_gpu(gpu_cases);
    no_faults();
}

/* If a device takes a single destination for all shards, it gets the sum of their gradients. */
static void gpu_sum(struct device *dev, struct data *d)
{
    struct param w = { .k = d->t->k, .r = d->t->size, .s = d->t->size, .c = d->t->c, .count = d->w_count, .version = 1 };
    struct conv cv = { .stride = d->t->stride, .pad = d->t->pad };
    double *dw = calloc(d->w_count, sizeof *dw), *db = calloc((size_t)d->t->k, sizeof *db);
    float *got = malloc(d->w_count * sizeof *got);
    struct on_device o;

    looking_at(dev, "rerun, summed", d->t);
    upload(dev, d, &o);
    for (int v = 0; v < d->t->nshards; v++) {
        const struct plain *p = plain_shard(d, v);

        for (size_t i = 0; i < d->w_count; i++)
            dw[i] += p->dw[i];
        for (int k = 0; k < d->t->k; k++)
            db[k] += p->db[k];
    }
    for (int beta = 0; beta < 2; beta++) {
        struct tensor dw_view = tensor_f32(NULL, 1, 1, 1, (int)d->w_count), db_view = tensor_f32(NULL, 1, 1, 1, d->t->k);
        float *to_dw[MAX_SHARDS], *to_db[MAX_SHARDS];

        for (int v = 0; v < d->t->nshards; v++) {
            to_dw[v] = o.dw[beta][0];
            to_db[v] = o.db[beta][0];
        }
        DONE(dev->on->conv->bwd_weights(dev, to_dw, (float)beta, o.x, o.dy, &cv, &w, d->t->nshards, &err));
        DONE(dev->on->conv->bwd_bias(dev, to_db, (float)beta, o.dy, d->t->nshards, &err));
        get(dev, got, to_dw[0], d->w_count * sizeof *got);
        check(dw_dtype(dev), "sum of dw", (const char *)got, &dw_view, dw, beta ? d->s[0].dw0 : NULL);
        get(dev, got, to_db[0], (size_t)d->t->k * sizeof *got);
        check(DTYPE_F32, "sum of db", (const char *)got, &db_view, db, beta ? d->s[0].db0 : NULL);
    }
    free_buffers();
    free(dw), free(db), free(got);
}

static void gpu_merged(struct device *dev, int i)
{
    static const struct conv_case kinds[] = { { PENDING, 16, 16, 3, 2, 1, TWO(1, 13, 12) },
                                              { SLICE, 20, 24, 1, 1, 0, FOUR(1, 9, 7) },
                                              { 0, 6, 5, 3, 1, 1, 2, { { 2, 6, 9 }, { 1, 4, 4 } } } };

    dev->ops->set_tier(dev, TIER_RERUN);
    use_device(i);
    for (size_t n = 0; dev->one_dest && n < sizeof kinds / sizeof *kinds; n++) {
        struct data d;

        make(&kinds[n], dev->dtype, &d);
        gpu_sum(dev, &d);
        drop(&d);
    }
    dev->ops->set_tier(dev, TIER_WORLD);
}

static void gpu_merges(void **state)
{
    (void)state;
    each_gpu(gpu_merged);
    no_faults();
}

/* Bias gradients of more shards than one launch takes: the CPU's bits, and their sum where the device takes one
 * destination. */
enum { CROWD = 37, CROWD_C = 12, CROWD_PIXELS = 700 };

static void bias_of_crowd(struct device *dev, bool one, float *ret)
{
    const size_t n = (size_t)CROWD * CROWD_PIXELS * CROWD_C;
    float *dy = numbers_of(DTYPE_BF16, n, 70, -1.0f, 1.0f), *db = put(dev, NULL, CROWD * CROWD_C * sizeof(float)), *to[CROWD];
    char *mem = put_numbers(dev, dy, n, dev->dtype);
    struct tensor t[CROWD];
    struct err err;

    for (int v = 0; v < CROWD; v++) {
        t[v] = (struct tensor){ .data = mem + (size_t)v * CROWD_PIXELS * CROWD_C * dtype_bytes(dev->dtype),
                                .n = 1,
                                .h = 1,
                                .w = 1 + v * 97 % CROWD_PIXELS,
                                .c = CROWD_C,
                                .stride = CROWD_C,
                                .dtype = dev->dtype };
        to[v] = one ? db : db + v * CROWD_C;
    }
    assert_int_equal(dev->on->conv->bwd_bias(dev, to, 0.0f, t, CROWD, &err), 0);
    get(dev, ret, db, CROWD * CROWD_C * sizeof(float));
    free_buffers();
    free(dy);
}

static void gpu_crowd(struct device *dev, int i)
{
    static float want[CROWD * CROWD_C], got[CROWD * CROWD_C];

    use_device(i);
    bias_of_crowd(devices.dev[0], false, want);
    bias_of_crowd(dev, false, got);
    assert_memory_equal(want, got, sizeof want);
    dev->ops->set_tier(dev, TIER_RERUN);
    if (dev->one_dest)
        bias_of_crowd(dev, true, got);
    for (size_t k = 0; dev->one_dest && k < CROWD_C; k++) {
        double sum = 0;

        for (size_t v = 0; v < CROWD; v++)
            sum += (double)want[v * CROWD_C + k];
        near((double)got[k], sum, 1e-5, "sum of db", k);
    }
    dev->ops->set_tier(dev, TIER_WORLD);
}

static void gpu_bias(void **state)
{
    (void)state;
    each_gpu(gpu_crowd);
}

static int lines_of(const char *text)
{
    int n = 0;

    for (; text && *text; text++)
        n += *text == '\n';
    return n;
}

/* A step requests exactly the plans made ready by conv_plan(), for shards that lie one after the other and for one
 * shard, of k channels. */
static void planned_for(struct device *dev, int k)
{
    const struct device_ops *ops = dev->ops;
    struct param w = { .k = k, .r = 3, .s = 3, .c = 16, .count = (size_t)k * 9 * 16, .version = 1, .name = "planned" };
    int stride = device_stride(dev, k);
    struct conv cv = { 2, 1 };
    struct tensor x[2], y[2];
    struct operand in[2] = { 0 };
    float *dw[2], *bias = put(dev, NULL, (size_t)k * sizeof(float));
    char *before, *after, *mem = put(dev, NULL, 65536);
    struct plan_readiness ready;
    struct err err;

    assert_int_equal((size_t)stride * dtype_bytes(dev->dtype) % 16, 0);
    w.data = put(dev, NULL, w.count * sizeof(float));
    dw[0] = dw[1] = put(dev, NULL, w.count * sizeof(float));
    for (int v = 0; v < 2; v++) {
        x[v] = (struct tensor){ .data = NULL, .n = 2, .h = 7, .w = 6, .c = 16, .stride = 16, .dtype = dev->dtype };
        y[v] = (struct tensor){ .data = NULL, .n = 2, .h = 4, .w = 3, .c = k, .stride = stride, .dtype = dev->dtype };
    }
    for (int turn = 0; turn < 6; turn++) {
        bool added = turn % 2;

        ops->set_tier(dev, (enum tier)(turn / 2));
        for (int v = 0; v < 2; v++)
            x[v].data = NULL;
        assert_int_equal(dev->on->plan->conv(dev, x, &cv, &w, true, added ? CONV_DATA_ADD : CONV_DATA, 2, &err), 0);
        assert_int_equal(dev->on->plan->ready(dev, &ready, &err), 0);
        assert_int_equal(dev->on->plan->text(dev, &before, &err), 0);
        assert_int_equal(lines_of(before), ready.plans);
        assert_int_equal(dev->on->plan->begin(dev, 0, &err), 0); /* so few plans are not dropped, even if long unused */
        for (int v = 0; v < 2; v++) {
            x[v].data = mem + (size_t)v * tensor_count(&x[0]) * dtype_bytes(dev->dtype);
            y[v].data = mem + 32768 + (size_t)v * tensor_pixels(&y[0]) * (size_t)stride * dtype_bytes(dev->dtype);
            in[v].x = x[v];
        }
        assert_int_equal(dev->on->conv->fwd(dev, y, in, &cv, &w, bias, NULL, 2, &err), 0);
        assert_int_equal(dev->on->conv->bwd_data(dev, x, (float)added, y, &cv, &w, 2, &err), 0);
        for (int beta = 0; beta < 2; beta++) /* the same plan */
            assert_int_equal(dev->on->conv->bwd_weights(dev, dw, (float)beta, in, y, &cv, &w, dev->one_dest ? 2 : 1, &err), 0);
        assert_int_equal(dev->on->plan->text(dev, &after, &err), 0);
        assert_non_null(before);
        assert_non_null(after);
        if (emulated(dev)) /* a real engine's thread may still be at it */
            assert_string_equal(before, after);
        free(before), free(after);
    }
    ops->param_release(dev, &w);
    assert_null(w.derived);
    free_buffers();
}

static void gpu_planned(struct device *dev, int i)
{
    use_device(i);
    planned_for(dev, 8);
    planned_for(dev, 21);
}

static void gpu_plans(void **state)
{
    (void)state;
    each_gpu(gpu_planned);
}

static void gpu_versions(struct device *dev, int i)
{
    use_device(i);
    check_versions(dev);
    if (dev->dtype == DTYPE_F32)
        check_far_from_zero(dev);
}

static void versions(void **state)
{
    (void)state;
    each_gpu(gpu_versions);
}

#ifdef CUDA_EMU
/* The n-th allocation of a first convolution fails: the call must report it, and the next try must succeed. Returns
 * whether there was an n-th allocation. */
static bool fails_at(struct device *dev, int n)
{
    static const struct conv_case t = { SLICE, 20, 24, 3, 1, 1, TWO(1, 9, 7) };
    struct param w = { .k = t.k, .r = t.size, .s = t.size, .c = t.c, .count = 20 * 24 * 9, .version = 1, .name = "short" };
    struct conv cv = { t.stride, t.pad };
    struct on_device o;
    struct data d;
    struct err err;
    float *bias;
    int rc;

    make(&t, dev->dtype, &d);
    upload(dev, &d, &o);
    w.data = put(dev, d.w, d.w_count * sizeof(float));
    bias = put(dev, d.bias, (size_t)t.k * sizeof(float));
    emu_fail_malloc_after(n);
    rc = dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, bias, o.stats, 2, &err);
    emu_fail_malloc_after(0);
    if (rc < 0) {
        assert_int_equal(rc, -ENOMEM);
        assert_non_null(strstr(err.msg, "out of GPU memory"));
        assert_int_equal(dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, bias, o.stats, 2, &err), 0);
    }
    assert_int_equal(dev->ops->sync(dev, &err), 0);
    dev->ops->param_release(dev, &w);
    free_buffers();
    drop(&d);
    return rc < 0;
}

static void out_of_memory(void **state)
{
    const struct device_options opt = { .precision = PRECISION_BF16 };
    struct device *dev;
    struct err err;
    bool failed = true;

    (void)state;
    for (int n = 1; failed; n++) {
        assert_int_equal(cuda_backend_emu()->open(0, &opt, &dev, &err), 0);
        failed = fails_at(dev, n);
        assert_true(failed || n > 2); /* at least the weights' copy and scratch memory */
        dev->ops->close(dev);
    }
}
#endif

static void open_half(void)
{
    const struct device_options opt = { .precision = PRECISION_BF16 };
    struct err err;

    for (int i = ncpu; i < devices.n; i++) {
        const struct device_ops *ops = devices.dev[i]->ops;

        if (i > ncpu && ops == devices.dev[i - 1]->ops)
            continue;
        assert_int_equal(ops->open(0, &opt, &half_precision[nhalf], &err), 0);
        assert_int_equal(half_precision[nhalf++]->dtype, DTYPE_BF16);
    }
}

static int open_all(void **state)
{
    int rc = open_devices(state);

    while (ncpu < devices.n && !is_gpu(devices.dev[ncpu]))
        ncpu++;
    open_half();
    return rc;
}

static int close_all(void **state)
{
    for (int i = 0; i < nhalf; i++)
        half_precision[i]->ops->close(half_precision[i]);
    return close_devices(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_definition), cmocka_unit_test(gpu_merges), cmocka_unit_test(gpu_plans),
        cmocka_unit_test(gpu_bias),       cmocka_unit_test(versions),
#ifdef CUDA_EMU
        cmocka_unit_test(out_of_memory),
#endif
    };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
