/* tests/device/test_conv.c - convolutions on the CPU: against the plain definition, and equal bits whoever computes them: each ISA, 1, 2
 * and 3 threads, several shards in one call or one by one. uses: proto worker/core cpu */
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

static void versions(void **state)
{
    (void)state;
    check_versions(devices.dev[0]);
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
        cmocka_unit_test(definition),
        cmocka_unit_test(large_results),
        cmocka_unit_test(versions),
        cmocka_unit_test(far_from_zero),
    };

    return cmocka_run_group_tests(tests, open_all, close_devices);
}
