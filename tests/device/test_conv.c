/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_conv.c - uses: proto worker/core cpu
 * Convolutions on the CPU: compared with the plain definition, and equal bits in every way to compute them: each ISA,
 * 1, 2 and 3 threads, several shards in one call or one by one. */
#include "tests/device/conv_cases.h"

static void definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct data d;
        char *got, *alone;

        looking_at(devices.dev[0], "on all", &cases[i]);
        make(&cases[i], DTYPE_F32, &d);
        got = malloc(d.out_bytes);
        alone = malloc(d.out_bytes);
        same_on_all(run, &d, got, d.out_bytes);
        check_case(&d, got);
        d.one_by_one = true;
        same_on_all(run, &d, alone, d.out_bytes);
        assert_memory_equal(got, alone, d.out_bytes);
        free(got), free(alone);
        drop(&d);
    }
    no_faults();
}

/* Results of more than 8 MiB are written past the caches, where the ISA can; the same values as by plain stores. */
static void large_results(void **state)
{
    static const struct conv_case kinds[] = { { 0, 16, 16, 3, 1, 1, ONE(1, 363, 363) }, { 0, 4, 16, 1, 1, 0, ONE(1, 257, 513) } };
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct conv cv = { .stride = 1, .pad = kinds[i].pad };
        float *first = NULL;
        struct data d;

        make(&kinds[i], DTYPE_F32, &d);
        for (int n = 0; n < devices.n; n++) {
            struct param w = { .k = 16, .r = kinds[i].size, .s = kinds[i].size, .c = kinds[i].c, .count = d.w_count, .version = 1 };
            struct device *dev = devices.dev[n];
            size_t bytes = floats_of(&d.s[0].y) * sizeof(float);
            float *got = malloc(bytes);
            struct on_device o;

            if (strstr(dev->ops->name, "generic")) { /* correct, and far too slow for this size */
                free(got);
                continue;
            }
            upload(dev, &d, &o);
            w.data = put(dev, d.w, d.w_count * sizeof(float));
            assert_int_equal(dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, NULL, NULL, 1, &err), 0);
            get(dev, got, o.y[0].data, bytes);
            dev->ops->param_release(dev, &w);
            free_buffers();
            if (first)
                assert_memory_equal(first, got, bytes);
            if (first)
                free(got);
            else
                first = got;
        }
        free(first);
        drop(&d);
    }
}

/* Data read in place give the bits of a copy: x, and x with a pending function that changes no number. Sums go directly
 * to their place or, for statistics, through a buffer: the same bits again. */
static void where_it_lies(void **state)
{
    static const struct conv_case kinds[] = {
        { 0, 48, 96, 1, 1, 0, TWO(2, 11, 13) },
        { SLICE, 40, 40, 1, 2, 0, ONE(2, 9, 12) },
        { 0, 600, 16, 1, 1, 0, ONE(1, 1, 150) },
        { 0, 16, 32, 3, 2, 1, ONE(2, 9, 7) },
    };

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int n = 0; n < devices.n; n++) {
            struct conv cv = { .stride = kinds[i].stride, .pad = kinds[i].pad };
            struct device *dev = devices.dev[n];
            struct on_device o;
            struct data d;
            float *got[3], *dw[2], *channels;
            size_t bytes, dw_bytes, c = (size_t)kinds[i].c;
            struct err err;

            make(&kinds[i], DTYPE_F32, &d);
            bytes = floats_of(&d.s[0].y) * sizeof(float);
            dw_bytes = d.w_count * sizeof(float);
            channels = malloc(2 * c * sizeof *channels);
            assert_non_null(channels);
            for (size_t k = 0; k < c; k++) {
                channels[k] = 1.0f;
                channels[c + k] = 0.0f;
            }
            for (int way = 0; way < 3; way++) {
                struct param w = {
                    .k = kinds[i].k, .r = kinds[i].size, .s = kinds[i].size, .c = kinds[i].c, .count = d.w_count, .version = 1
                };
                double *stats = put(dev, NULL, (2 * (size_t)kinds[i].k + 1) * sizeof *stats);
                float *to = put(dev, NULL, dw_bytes);

                upload(dev, &d, &o);
                w.data = put(dev, d.w, dw_bytes);
                if (way == 1) {
                    const float *one = put(dev, channels, c * sizeof(float));

                    o.x[0].act = (struct affine){ one, put(dev, channels + c, c * sizeof(float)), one };
                }
                assert_int_equal(dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, NULL, way == 2 ? &stats : NULL, 1, &err), 0);
                got[way] = malloc(bytes);
                get(dev, got[way], o.y[0].data, bytes);
                if (way < 2) {
                    assert_int_equal(dev->on->conv->bwd_weights(dev, &to, 0.0f, o.x, o.y, &cv, &w, 1, &err), 0);
                    dw[way] = malloc(dw_bytes);
                    get(dev, dw[way], to, dw_bytes);
                }
                dev->ops->param_release(dev, &w);
                free_buffers();
            }
            assert_memory_equal(got[0], got[1], bytes);
            assert_memory_equal(got[0], got[2], bytes);
            assert_memory_equal(dw[0], dw[1], dw_bytes);
            for (int way = 0; way < 3; way++)
                free(got[way]);
            free(dw[0]), free(dw[1]), free(channels);
            drop(&d);
        }
}

/* y, dx and dw of 1x1 convolutions. */
struct pixel_results {
    char *got[3];
    size_t bytes[3];
};

/* Weight gradients in chains of 1024 pixels. */
static void weights_by_chains(struct device *dev, const struct conv *cv, const struct param *w, struct on_device *o)
{
    enum { CHAIN = 1024 };
    struct operand x = o->x[0];
    struct tensor dy = o->dy[0];
    struct err err;

    for (int at = 0; at < o->dy[0].w; at += CHAIN) {
        x.x.w = dy.w = o->dy[0].w - at < CHAIN ? o->dy[0].w - at : CHAIN;
        x.x.data = (float *)o->x[0].x.data + at * x.x.stride;
        dy.data = (float *)o->dy[0].data + at * dy.stride;
        assert_int_equal(dev->on->conv->bwd_weights(dev, o->dw[0], at > 0, &x, &dy, cv, w, 1, &err), 0);
    }
}

/* row: takes the images, of a single pixel each, as one image. */
static struct pixel_results run_pixels(struct device *dev, const struct data *d, bool row)
{
    struct param w = { .k = d->t->k, .r = 1, .s = 1, .c = d->t->c, .version = 1 };
    struct pixel_results ret = { .bytes = { floats_of(&d->s[0].y) * 4, floats_of(&d->s[0].x) * 4, d->w_count * 4 } };
    struct conv cv = { .stride = 1 };
    struct on_device o;
    struct tensor *const all[] = { &o.x[0].x, o.y, o.dy, o.dx[0] };
    struct err err;

    upload(dev, d, &o);
    w.data = put(dev, d->w, ret.bytes[2]);
    for (size_t i = 0; row && i < sizeof all / sizeof *all; i++) {
        all[i]->w = all[i]->n;
        all[i]->n = 1;
    }
    assert_int_equal(dev->on->conv->fwd(dev, o.y, o.x, &cv, &w, NULL, NULL, 1, &err), 0);
    assert_int_equal(dev->on->conv->bwd_data(dev, o.dx[0], 0.0f, o.dy, &cv, &w, 1, &err), 0);
    if (row)
        weights_by_chains(dev, &cv, &w, &o);
    else
        assert_int_equal(dev->on->conv->bwd_weights(dev, o.dw[0], 0.0f, o.x, o.dy, &cv, &w, 1, &err), 0);
    for (int i = 0; i < 3; i++) {
        ret.got[i] = malloc(ret.bytes[i]);
        get(dev, ret.got[i], (const void *[]){ o.y[0].data, o.dx[0][0].data, o.dw[0][0] }[i], ret.bytes[i]);
    }
    dev->ops->param_release(dev, &w);
    free_buffers();
    return ret;
}

/* Images of a single pixel have the bits of one image of these pixels. Their weight gradients are chains of 1024
 * images, of which at most two are added here. */
static void single_pixels(void **state)
{
    static const struct conv_case kinds[] = {
        { PENDING, 48, 70, 1, 1, 0, ONE(40, 1, 1) },
        { 0, 33, 64, 1, 1, 0, ONE(1025, 1, 1) },
        { SLICE, 64, 20, 1, 1, 0, ONE(1600, 1, 1) },
    };

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct data d;

        make(&kinds[i], DTYPE_F32, &d);
        for (int n = 0; n < devices.n; n++) {
            struct pixel_results images = run_pixels(devices.dev[n], &d, false), row = run_pixels(devices.dev[n], &d, true);

            for (int k = 0; k < 3; k++) {
                assert_memory_equal(images.got[k], row.got[k], images.bytes[k]);
                free(images.got[k]), free(row.got[k]);
            }
        }
        drop(&d);
    }
}

static void large_with_statistics(void **state)
{
    (void)state;
    check_large_results(devices.dev[0]);
}

static void versions(void **state)
{
    (void)state;
    check_versions(devices.dev[0]);
}

static void many_uses(void **state)
{
    (void)state;
    check_many_uses(devices.dev[0]);
}

static void far_from_zero(void **state)
{
    (void)state;
    check_far_from_zero(devices.dev[0]);
}

/* GPUs compute with other algorithms, so they have a test of their own. */
static int open_all(void **state)
{
    const struct device_ops *ops = cpu_backend_avx512();
    struct device_options opt = { .threads = 3 };
    struct err err;
    int rc;

    if (ops->open(0, &opt, &devices.dev[devices.n], &err) == 0)
        devices.n++;
    rc = open_devices(state);
    while (devices.n > 0 && is_gpu(devices.dev[devices.n - 1])) {
        devices.n--;
        devices.dev[devices.n]->ops->close(devices.dev[devices.n]);
    }
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(definition),    cmocka_unit_test(large_results), cmocka_unit_test(large_with_statistics),
        cmocka_unit_test(where_it_lies), cmocka_unit_test(versions),      cmocka_unit_test(many_uses),
        cmocka_unit_test(far_from_zero), cmocka_unit_test(single_pixels),
    };

    return cmocka_run_group_tests(tests, open_all, close_devices);
}
