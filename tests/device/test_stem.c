/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_stem.c - uses: proto worker/core cpu cuda
 * The kernels for the convolution that reads images (cuda/stem.cu), in fp32 and bf16: compared with the plain
 * definition, for any order of blocks; and the convolutions that are left to the libraries. */
#include "tests/device/conv_cases.h"

/* Less than a tile, borders, a tile and a pixel more, several blocks of slabs; a tree of two rounds (131 slabs). */
static const struct conv_case own[] = {
    { 0, 3, 32, 3, 1, 1, ONE(2, 9, 37) },  { 0, 3, 8, 3, 1, 0, ONE(1, 10, 34) },  { 0, 3, 64, 3, 1, 1, ONE(1, 3, 1) },
    { 0, 3, 40, 3, 1, 2, ONE(1, 8, 31) },  { 0, 3, 16, 3, 1, 1, TWO(1, 18, 70) }, { 0, 3, 24, 3, 1, 4, ONE(3, 1, 2) },
    { 0, 3, 32, 3, 1, 1, ONE(1, 33, 65) }, { 0, 3, 8, 3, 1, 1, ONE(521, 1, 1) },
};

/* Another filter, stride, number of channels; slices of channels. */
static const struct conv_case others[] = {
    { 0, 3, 16, 5, 1, 2, ONE(1, 9, 9) }, { 0, 3, 16, 3, 2, 1, ONE(1, 9, 9) }, { 0, 4, 16, 3, 1, 1, ONE(1, 9, 9) },
    { 0, 3, 12, 3, 1, 1, ONE(1, 9, 9) }, { 0, 3, 72, 3, 1, 1, ONE(1, 9, 9) }, { SLICE, 3, 16, 3, 1, 1, ONE(1, 9, 9) },
};

/* The devices of a test: each GPU in fp32, or in bf16. All results of a precision are compared with the first. */
static void on_each_gpu(enum precision precision, void (*with)(struct device *dev, char **first, const struct conv_case *t),
                        const struct conv_case *list, size_t n)
{
    const struct device_options opt = { .precision = precision };

    for (size_t c = 0; c < n; c++) {
        char *first = NULL;

        for (int i = 0; i < devices.n; i++) {
            struct device *dev;
            struct err err;

            if (!is_gpu(devices.dev[i]))
                continue;
            use_device(i);
            assert_int_equal(devices.dev[i]->ops->open(0, &opt, &dev, &err), 0);
            dev->ops->set_tier(dev, TIER_RERUN);
            looking_at(dev, "rerun", &list[c]);
            with(dev, &first, &list[c]);
            dev->ops->close(dev);
        }
        free(first);
    }
    no_faults();
}

/* The number of plans for this direction that use our kernels. */
static int own_plans(struct device *dev, const char *dir)
{
    struct err err;
    char *text;
    int n = 0;

    assert_int_equal(dev->on->plan->text(dev, &text, &err), 0);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        n += strncmp(line, dir, strlen(dir)) == 0 && strstr(line, "own stem") != NULL;
    free(text);
    return n;
}

/* Without a bias: the same as with a bias of zeros. */
static void check_unbiased(struct device *dev, struct data *d)
{
    struct param w = { .k = d->t->k, .r = d->t->size, .s = d->t->size, .c = d->t->c, .count = d->w_count, .version = 1 };
    struct conv cv = { d->t->stride, d->t->pad };
    size_t n = floats_of(&d->s[0].y);
    float *bias = calloc((size_t)d->t->k, sizeof *bias), *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    struct on_device o;

    upload(dev, d, &o);
    w.data = put(dev, d->w, d->w_count * sizeof(float));
    DONE(dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, put(dev, bias, (size_t)d->t->k * sizeof *bias), NULL, 1, &err));
    get_numbers(dev, a, o.y[0].data, n, d->dtype);
    DONE(dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, NULL, NULL, 1, &err));
    get_numbers(dev, b, o.y[0].data, n, d->dtype);
    if (memcmp(a, b, n * sizeof *a) != 0)
        fault("no bias is not a bias of zeros");
    dev->ops->param_release(dev, &w);
    free_buffers();
    free(bias), free(a), free(b);
}

static void taken(struct device *dev, char **first, const struct conv_case *t)
{
    struct data d;
    char *got;

    make(t, dev->dtype, &d);
    got = malloc(d.out_bytes);
    run(dev, &d, got);
    free_buffers();
    check_case(&d, got);
    if (*first && memcmp(*first, got, d.out_bytes) != 0)
        fault("the bits depend on the order of blocks");
    check_unbiased(dev, &d);
    if (own_plans(dev, "fwd") < 2 || own_plans(dev, "bwd_weights") == 0 || own_plans(dev, "bwd_data") != 0)
        fault("not by kernels of ours");
    if (*first)
        free(got);
    else
        *first = got;
    drop(&d);
}

static void left(struct device *dev, char **first, const struct conv_case *t)
{
    struct data d;
    char *got;

    (void)first;
    make(t, dev->dtype, &d);
    d.dw_dtype = dev->dtype;
    got = malloc(d.out_bytes);
    run(dev, &d, got);
    free_buffers();
    check_case(&d, got);
    if (own_plans(dev, "") != 0)
        fault("by kernels of ours");
    free(got);
    drop(&d);
}

static void fp32(void **state)
{
    (void)state;
    on_each_gpu(PRECISION_FP32, taken, own, sizeof own / sizeof *own);
}

static void bf16(void **state)
{
    (void)state;
    on_each_gpu(PRECISION_BF16, taken, own, sizeof own / sizeof *own);
}

static void others_are_left_to_the_libraries(void **state)
{
    (void)state;
    on_each_gpu(PRECISION_FP32, left, others, sizeof others / sizeof *others);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fp32), cmocka_unit_test(bf16),
                                        cmocka_unit_test(others_are_left_to_the_libraries) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
