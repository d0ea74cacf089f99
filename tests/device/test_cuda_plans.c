/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_cuda_plans.c - how the CUDA device chooses algorithms, on
 * machines without a GPU: cuDNN plans for a description of one.
 * uses: plans proto worker/models worker/layers worker/data worker/eval worker/mask worker/core */
#include "cuda/stem.h"
#include "tests/device/network_keys.h"
#include "tests/device/plan_keys.h"
#include "worker/models/yolo/presets.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* the library's part is slow then */
static const int batches[] = { 8 };
#else
static const int batches[] = { 2, 8, 16, 64 };
#endif

/* ---- the convolutions of the presets: of the smallest preset, or with TEST_LONG of all, at two sizes ---- */

static void add_directions(struct keys *s, struct conv_key k, bool bias)
{
    for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++) {
        k.dir = (enum conv_dir)dir;
        k.bias = bias && dir == CONV_FWD;
        k.add = false;
        add_key(s, &k);
        k.add = dir == CONV_BWD_DATA; /* a second use of the value that is read */
        if (k.add && k.n == 8)
            add_key(s, &k);
    }
}

/* A shard of tier world is small; tier off promises no bits, so a single size of batch is enough. */
static bool in_use(enum tier tier, int n)
{
    return tier == TIER_RERUN || n == 8 || (tier == TIER_WORLD && n < 8);
}

static void add_layer(struct keys *s, const struct darknet_net *net, int layer, int n)
{
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++)
        for (int tier = TIER_OFF; tier <= TIER_WORLD; tier++)
            if (in_use((enum tier)tier, n))
                add_directions(s, network_key(net, layer, (enum precision)precision, (enum tier)tier, n), !net->layers[layer].bn);
}

static const struct keys *preset_keys(void)
{
    static struct keys keys;
    static const char *const preset[] = { "yolov3_tiny", "yolov3", "yolov3_spp" };
    static const int side[] = { 416, 608 };
    size_t presets = test_long() ? sizeof preset / sizeof *preset : 1, sides = test_long() ? sizeof side / sizeof *side : 1;
    struct keys *s = &keys;
    struct darknet_net *net;
    struct err err;

    for (size_t p = 0; p < presets; p++)
        for (size_t z = 0; z < sides; z++) {
            assert_int_equal(preset_net(preset[p], &net, &err), 0);
            assert_int_equal(darknet_net_set_size(net, side[z], side[z], &err), 0);
            for (int i = 0; i < net->nlayers; i++)
                for (size_t b = 0; b < sizeof batches / sizeof *batches && net->layers[i].type == DARKNET_CONV; b++)
                    add_layer(s, net, i, batches[b]);
            darknet_net_free(net);
        }
    return s;
}

static void every_convolution_has_a_plan(void **state)
{
    const struct keys *keys;

    (void)state;
    if (driver_is_there())
        SKIP("a driver is here, and plans for other GPUs would be compiled");
    keys = preset_keys();
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        plan_all(gpus[i], keys);
}

/* ---- the filter, one engine at a time ---- */

/* The data gradient of a 7x7 stem with three channels: on this GPU the best engine adds in the order in which blocks
 * finish. */
static void best_engine_is_refused_for_its_order(void **state)
{
    static const enum tier tier[] = { TIER_OFF, TIER_RERUN, TIER_WORLD };
    struct plan_target t;
    struct plan p;

    (void)state;
    describe(&t, "sm_90");
    for (size_t i = 0; i < sizeof tier / sizeof *tier; i++) {
        struct conv_key k = conv(CONV_BWD_DATA, PRECISION_TF32, tier[i], 8, 416, 3, 64, 7);
        bool off = tier[i] == TIER_OFF;

        k.stride = 2;
        made(&p, &t, &k);
        printf("%s\n", p.text);
        assert_int_equal(p.dnn.notes >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1, off);
        assert_int_equal(p.tally.nondeterministic > 0, !off);
        plan_free(&p);
    }
    plan_target_close(&t);
}

/* The same shape, three precisions: fp32 must do without tensor cores, the others do not. */
static void precision_chooses_the_unit(void **state)
{
    static const enum precision precision[] = { PRECISION_FP32, PRECISION_TF32, PRECISION_BF16 };
    struct plan_target t;
    struct plan p;

    (void)state;
    describe(&t, "sm_90");
    for (size_t i = 0; i < sizeof precision / sizeof *precision; i++) {
        struct conv_key k = conv(CONV_FWD, precision[i], TIER_RERUN, 8, 52, 128, 256, 3);

        made(&p, &t, &k);
        assert_int_equal(p.dnn.notes >> CUDNN_NUMERICAL_NOTE_TENSOR_CORE & 1, precision[i] != PRECISION_FP32);
        plan_free(&p);
    }
    plan_target_close(&t);
}

/* The weight gradient of bf16 tensors: a precompiled engine rounds it and a kernel of ours widens it, whether or not it
 * is added to. No engine that has to be compiled is tried. All names end with the widening. Without this ending a name
 * must not work: it must not select an engine with an fp32 result, which cuDNN has if there is a driver. */
static void bf16_weight_gradients_come_compiled(void **state)
{
    static const char widen[] = " then widen";
    static struct plan_name name[PLAN_NAMES];
    struct plan_target t;
    struct plan p;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        struct conv_key k = conv(CONV_BWD_WEIGHTS, PRECISION_BF16, TIER_RERUN, 8, 52, 128, 256, 3);
        struct plan_key key = plan_key_make(&k, NULL);
        int n;

        if (driver_is_there() && strcmp(gpus[i], "sm_90") != 0)
            continue; /* beside an H100, cuDNN 9.19 crashed while planning this for another GPU */
        describe(&t, gpus[i]);
        made(&p, &t, &k);
        assert_int_equal(p.finish, PLAN_CAST);
        assert_int_equal(p.scratch, 256 * 9 * 128 * 2);
        assert_false(p.dnn.runtime);
        assert_int_equal(p.tally.unmade, 0);
        plan_free(&p);
        n = plan_names(&t, &key, name);
        assert_in_range(n, 2, PLAN_NAMES);
        for (int j = 0; j < n; j++) {
            char *end = strstr(name[j].text, widen);

            assert_non_null(end);
            assert_string_equal(end, widen);
            *end = '\0';
            assert_int_equal(plan_make_named(&p, &t, &key, name[j].text, &err), ERR_UNSUPPORTED);
        }
        plan_target_close(&t);
    }
}

/* The same plan whether or not it is added to, and room to add if the library's result is fp32. */
static void weight_gradients_have_one_plan(void **state)
{
    struct plan_target t;
    struct plan p;

    (void)state;
    describe(&t, "sm_90");
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
        struct conv_key k = conv(CONV_BWD_WEIGHTS, (enum precision)precision, TIER_RERUN, 8, 26, 64, 32, 3);
        struct conv_key more = k;
        struct plan_key a, b;

        more.add = true;
        a = plan_key_make(&k, NULL);
        b = plan_key_make(&more, NULL);
        assert_true(plan_key_equal(&a, &b));
        made(&p, &t, &k);
        assert_int_equal(p.finish, precision == PRECISION_BF16 ? PLAN_CAST : PLAN_ADD);
        assert_int_equal(p.scratch, 32 * 9 * 64 * plan_key_bytes(&k));
        plan_free(&p);
    }
    plan_target_close(&t);
}

/* Slices of channels, and shards that begin anywhere. */
static void odd_memory_has_plans(void **state)
{
    struct plan_target t;
    struct plan p;

    (void)state;
    describe(&t, "sm_80");
    for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++)
        for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
            struct conv_key k = conv((enum conv_dir)dir, (enum precision)precision, TIER_WORLD, 1, 13, 3, 255, 3);

            made(&p, &t, &k);
            assert_int_equal(p.key.align_y, k.dtype == DTYPE_BF16 ? 2 : 4);
            plan_free(&p);
            k.x_stride = 7;
            k.y_stride = 300;
            made(&p, &t, &k);
            plan_free(&p);
        }
    plan_target_close(&t);
}

/* The convolution of images uses our kernels by rule and by name. It uses cuDNN if that was measured to be better, or
 * if any property does not suit our kernels. */
static void images_are_for_our_kernels(void **state)
{
    static struct plan_name name[PLAN_NAMES];
    char table[1024], any[PLAN_KEY_TEXT];
    struct plan_target t;
    struct plan p;
    struct err err;

    (void)state;
    describe(&t, "sm_90");
    for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++)
        for (int tier = TIER_OFF; tier <= TIER_WORLD; tier++) {
            struct conv_key k = conv((enum conv_dir)dir, PRECISION_BF16, (enum tier)tier, 16, 416, 3, 32, 3),
                            other[] = { k, k, k, k, k, k };
            struct plan_key key = plan_key_make(&k, NULL);
            int n = plan_names(&t, &key, name);

            t.rows = NULL;
            assert_int_equal(stem_takes(&key), dir != CONV_BWD_DATA);
            made(&p, &t, &k);
            assert_int_equal(p.library, dir == CONV_BWD_DATA ? PLAN_CUDNN : PLAN_OWN);
            assert_string_equal(p.name, name[0].text);
            assert_int_equal(strstr(p.text, ": own stem workspace ") != NULL, dir != CONV_BWD_DATA);
            plan_free(&p);
            if (dir == CONV_BWD_DATA) {
                assert_int_equal(plan_make_named(&p, &t, &key, "own stem", &err), ERR_UNSUPPORTED);
                continue;
            }
            assert_int_equal(name[0].library, PLAN_OWN);
            assert_true(name[0].deterministic);
            assert_in_range(n, 2, PLAN_NAMES);
            assert_int_equal(plan_make_named(&p, &t, &key, "own stem", &err), 0);
            assert_int_equal(p.finish, PLAN_DONE);
            assert_int_equal(p.workspace, dir == CONV_FWD ? 0 : (2704 + 22) * 32 * 27 * sizeof(float));
            plan_free(&p);
            plan_target_table(&t, "", "a GPU");
            snprintf(table, sizeof table, "%s\n%s: %s\n", t.title, plan_key_any_tier(&key, any), name[n - 1].text);
            plan_target_table(&t, table, "a GPU");
            if (name[n - 1].deterministic) {
                made(&p, &t, &k);
                assert_int_equal(p.library, PLAN_CUDNN);
                plan_free(&p);
            }
            other[0].c = other[0].x_stride = 4;
            other[1].k = other[1].y_stride = 36;
            other[2].k = other[2].y_stride = 72;
            other[3].stride = 2;
            other[4].x_stride = 8;
            other[5].y_stride = 64;
            for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
                key = plan_key_make(&other[i], NULL);
                assert_false(stem_takes(&key));
            }
            key = plan_key_make(&k, &(struct conv_args){ .x = (void *)4096, .y = (void *)(4096 + 8) });
            assert_false(stem_takes(&key));
        }
    plan_target_close(&t);
}

/* ---- keys ---- */

static void keys_know_what_matters(void **state)
{
    struct conv_key k = conv(CONV_FWD, PRECISION_BF16, TIER_WORLD, 2, 13, 64, 255, 1), same;
    struct conv_args args = { .x = (void *)4096, .w = (void *)256, .y = (void *)4096, .bias = (void *)8 };
    char text[PLAN_KEY_TEXT];
    struct plan_key a = plan_key_make(&k, NULL), b;

    (void)state;
    same = k;
    same.add = true; /* not used by this direction, nor by weight gradients; the padding after it does not count either */
    memset((char *)&same + offsetof(struct conv_key, add) + 1, 0xff, sizeof same - offsetof(struct conv_key, add) - 1);
    b = plan_key_make(&same, NULL);
    assert_memory_equal(&a, &b, sizeof a);
    assert_string_equal(plan_key_text(&a, text), "fwd bf16 world x[2,13,13,64] w[255,1,1,64] stride 1 pad 0 align 16,16,4");
    k.bias = true;
    b = plan_key_make(&k, &args);
    assert_string_equal(plan_key_text(&b, text), "fwd bf16 world x[2,13,13,64] w[255,1,1,64] stride 1 pad 0 bias align 16,8,4");
    k.x_stride = 96;
    args.x = (void *)(4096 + 6);
    b = plan_key_make(&k, &args);
    assert_string_equal(plan_key_text(&b, text), "fwd bf16 world x[2,13,13,64] w[255,1,1,64] stride 1 pad 0 bias pitch 96,255 align 2,8,4");
}

static void bad_descriptions_are_refused(void **state)
{
    struct plan_target t;
    struct err err = { 0 };

    (void)state;
    describe(&t, "sm_90");
    plan_target_close(&t);
    assert_true(plan_target_describe(&t, "{\"deviceVer\":", &err) < 0);
    assert_non_null(strstr(err.msg, "description"));
}

/* ---- tests with a GPU ---- */

/* The GPU's own record, to be stored in deviceprop/ instead of a record written by hand. */
static void print_record(const struct plan_target *t)
{
    static char json[8192];
    struct cudnn_descs b;
    cudnnBackendDescriptor_t d;
    int64_t n = 0;

    cudnn_descs_init(&b, t->dnn.api);
    d = cudnn_desc_new(&b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    cudnn_desc_set(&b, d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &t->dnn.handle);
    cudnn_desc_finalize(&b, d);
    if (b.status == CUDNN_STATUS_SUCCESS)
        b.status =
            b.api->cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof json - 1, &n, json);
    if (b.status == CUDNN_STATUS_SUCCESS)
        printf("this GPU: %s\n", json);
    cudnn_descs_free(&b);
}

/* Skips the test if there is no GPU. */
static void open_gpu(struct plan_target *t)
{
    struct err err;

    if (plan_target_open(t, &err) < 0)
        SKIP("no GPU that cuDNN works with: %s", err.msg);
}

/* A plan that cannot be made is printed as a line, too. */
static bool print_plan(const struct plan_target *t, struct plan_key key)
{
    struct plan p;
    struct err err;
    int rc = plan_make(&p, t, &key, &err);

    printf("%s%s\n", rc < 0 ? "NO PLAN: " : "", rc < 0 ? err.msg : p.text);
    fflush(stdout);
    if (rc == 0)
        plan_free(&p);
    return rc == 0;
}

/* cuBLASLt and engines that are compiled at run time exist only here: a layer of each kind, all lines printed. */
static void this_gpu_has_plans(void **state)
{
    static const struct {
        int side, c, k, size;
    } layer[] = { { 416, 3, 32, 3 }, { 208, 64, 32, 1 }, { 104, 64, 128, 3 }, { 13, 512, 1024, 3 }, { 13, 1024, 255, 1 } };
    struct plan_target t;
    int none = 0;

    (void)state;
    open_gpu(&t);
    print_record(&t);
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++)
            for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++)
                for (int more = 0; more < 2; more++) {
                    struct conv_key k = conv((enum conv_dir)dir, (enum precision)precision, TIER_RERUN, 8, layer[i].side, layer[i].c,
                                             layer[i].k, layer[i].size);

                    k.bias = more && dir == CONV_FWD;
                    k.add = more && dir == CONV_BWD_DATA;
                    none += !print_plan(&t, plan_key_make(&k, NULL));
                }
    plan_target_close(&t);
    assert_int_equal(none, 0);
}

/* The model that is measured: yolov3 in bf16 at 416, batch 16. */
static void this_gpu_plans_yolov3(void **state)
{
    static struct keys keys;
    struct darknet_net *net;
    struct plan_target t;
    struct err err;
    int none = 0;

    (void)state;
    open_gpu(&t);
    assert_int_equal(preset_net("yolov3", &net, &err), 0);
    assert_int_equal(darknet_net_set_size(net, 416, 416, &err), 0);
    for (int i = 0; i < net->nlayers; i++)
        for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS && net->layers[i].type == DARKNET_CONV; dir++) {
            struct conv_key k = network_key(net, i, PRECISION_BF16, TIER_RERUN, 16);

            k.dir = (enum conv_dir)dir;
            k.bias = dir == CONV_FWD && !net->layers[i].bn;
            add_key(&keys, &k);
        }
    for (size_t i = 0; i < keys.n; i++)
        none += !print_plan(&t, keys.key[i]);
    darknet_net_free(net);
    plan_target_close(&t);
    assert_int_equal(none, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_know_what_matters),
        cmocka_unit_test(bad_descriptions_are_refused),
        cmocka_unit_test(best_engine_is_refused_for_its_order),
        cmocka_unit_test(precision_chooses_the_unit),
        cmocka_unit_test(odd_memory_has_plans),
        cmocka_unit_test(images_are_for_our_kernels),
        cmocka_unit_test(bf16_weight_gradients_come_compiled),
        cmocka_unit_test(weight_gradients_have_one_plan),
        cmocka_unit_test(every_convolution_has_a_plan),
        cmocka_unit_test(this_gpu_has_plans),
        cmocka_unit_test(this_gpu_plans_yolov3),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
