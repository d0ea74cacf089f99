/* tests/device/test_cuda_plans.c - how the CUDA device chooses algorithms, on machines without a GPU: cuDNN plans for a description of one.
 * deviceprop/ holds what A100, H100 and B200 are, in the form cuDNN reads: an H100's own record, the others by hand after data sheets.
 * uses: plans proto worker/models worker/layers worker/eval worker/core */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/plan_cache.h"
#include "cuda/plan_table.h"
#include "cuda/stem.h"
#include "proto/err.h"
#include "tests/harness.h"
#include "worker/core/philox.h"
#include "worker/models/presets.h"

enum { MAX_KEYS = 20000, KEY_BUCKETS = 1 << 15 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* the library's part is slow then */
static const int batches[] = { 8 };
#else
static const int batches[] = { 2, 8, 16, 64 };
#endif

/* A handle that cuDNN asks of it fails without a driver, and the library keeps its memory. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcublasLt";
}

static const char *const gpus[] = { "sm_80", "sm_90", "sm_100" };

/* Skips the test where cuDNN is not there. */
static void describe(struct plan_target *t, const char *gpu)
{
    char path[128], json[4096];
    struct err err;
    size_t n;
    int rc;
    FILE *f;

    snprintf(path, sizeof path, "tests/device/deviceprop/%s.json", gpu);
    f = fopen(path, "r");
    assert_non_null(f);
    n = fread(json, 1, sizeof json - 1, f);
    fclose(f);
    json[n] = '\0';
    rc = plan_target_describe(t, json, &err);
    if (rc == ERR_UNSUPPORTED)
        SKIP("no cuDNN and cuBLASLt to ask: %s", err.msg);
    assert_int_equal(rc, 0);
}

/* ---- the convolutions of the presets: of the smallest, or with TEST_LONG of all, at two sizes ---- */

struct keys {
    size_t n;
    struct plan_key key[MAX_KEYS];
    uint32_t bucket[KEY_BUCKETS]; /* 1 + index; the next free one is taken */
};

static void add_key(struct keys *s, const struct conv_key *conv)
{
    struct plan_key key = plan_key_make(conv, NULL);
    const unsigned char *byte = (const unsigned char *)&key;
    uint32_t h = 0;

    for (size_t i = 0; i < sizeof key; i++)
        h = (h ^ byte[i]) * 16777619u;
    for (h %= KEY_BUCKETS; s->bucket[h]; h = (h + 1) % KEY_BUCKETS)
        if (plan_key_equal(&s->key[s->bucket[h] - 1], &key))
            return;
    assert_true(s->n < MAX_KEYS);
    s->key[s->n++] = key;
    s->bucket[h] = (uint32_t)s->n;
}

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

/* A shard of tier world is small; tier off promises nothing, so one batch of it is enough. */
static bool in_use(enum tier tier, int n)
{
    return tier == TIER_RERUN || n == 8 || (tier == TIER_WORLD && n < 8);
}

static struct conv_key layer_key(const struct darknet_layer *l, enum dtype dtype, enum precision precision, enum tier tier, int n)
{
    return (struct conv_key){ .dtype = dtype,
                              .precision = precision,
                              .tier = tier,
                              .n = n,
                              .h = l->in.h,
                              .w = l->in.w,
                              .c = l->in.c,
                              .k = l->filters,
                              .r = l->size,
                              .s = l->size,
                              .stride = l->stride,
                              .pad = l->pad,
                              .x_stride = l->in.c,
                              .y_stride = l->filters };
}

static void add_layer(struct keys *s, const struct darknet_layer *l, int n)
{
    static const struct {
        enum dtype dtype;
        enum precision precision;
    } number[] = { { DTYPE_F32, PRECISION_FP32 }, { DTYPE_F32, PRECISION_TF32 }, { DTYPE_BF16, PRECISION_BF16 } };

    for (size_t p = 0; p < sizeof number / sizeof *number; p++)
        for (int tier = TIER_OFF; tier <= TIER_WORLD; tier++) {
            struct conv_key k = layer_key(l, number[p].dtype, number[p].precision, (enum tier)tier, n);

            if (in_use(k.tier, n))
                add_directions(s, k, !l->bn);
        }
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
                    add_layer(s, &net->layers[i], batches[b]);
            darknet_net_free(net);
        }
    return s;
}

struct summary {
    int plans, products, finished_by_us, nondeterministic_chosen;
    size_t workspace, scratch;
    struct cudnn_tally tally;
};

static void note(struct summary *s, const struct plan *p)
{
    s->plans++;
    s->products += lt_is_product(&p->key.conv);
    s->finished_by_us += p->finish != PLAN_DONE;
    s->workspace = p->workspace > s->workspace ? p->workspace : s->workspace;
    s->scratch = p->scratch > s->scratch ? p->scratch : s->scratch;
    s->tally.named += p->tally.named;
    s->tally.nondeterministic += p->tally.nondeterministic;
    s->tally.reduced += p->tally.reduced;
    s->tally.tensor_core += p->tally.tensor_core;
    s->tally.too_big += p->tally.too_big;
    s->tally.unmade += p->tally.unmade;
    s->tally.unmade_runtime += p->tally.unmade_runtime;
}

/* What must not be, read off the engine that was chosen and not off the filter. */
static void check_notes(const struct plan *p, struct summary *s)
{
    const struct conv_key *k = &p->key.conv;
    bool nondeterministic = p->dnn.notes >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1;
    bool rounds = p->dnn.notes & (1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);

    s->nondeterministic_chosen += nondeterministic;
    if (nondeterministic && k->tier != TIER_OFF)
        fail_msg("not deterministic: %s", p->text);
    if (rounds && k->precision == PRECISION_FP32)
        fail_msg("not fp32: %s", p->text);
    if (p->dnn.notes >> CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION & 1)
        fail_msg("sums in low precision: %s", p->text);
    if (k->precision == PRECISION_BF16 && k->tier == TIER_RERUN && strstr(p->text, "cudnn fallback")) /* tens of times slower */
        fail_msg("an engine of last resort: %s", p->text);
    if (p->workspace > CUDNN_WORKSPACE_MAX)
        fail_msg("too big: %s", p->text);
}

static void plan_all(const char *gpu, const struct keys *keys)
{
    struct summary s = { 0 };
    struct plan_target t;
    struct plan p;
    struct err err;

    describe(&t, gpu);
    for (size_t i = 0; i < keys->n; i++) {
        if (plan_make(&p, &t, &keys->key[i], &err) < 0)
            fail_msg("%s: %s", gpu, err.msg);
        check_notes(&p, &s);
        note(&s, &p);
        plan_free(&p);
    }
    plan_target_close(&t);
    printf("%s: %zu keys, %d plans; %d of 1x1 that cuBLASLt is asked for first where there is a GPU, here cuDNN's\n", gpu, keys->n, s.plans,
           s.products);
    printf("  engines looked at: %d; refused: %d not deterministic, %d low precision sums, %d tensor cores, %d too big; not made: %d, of "
           "these compiled at run time: %d\n",
           s.tally.named, s.tally.nondeterministic, s.tally.reduced, s.tally.tensor_core, s.tally.too_big, s.tally.unmade,
           s.tally.unmade_runtime);
    printf("  largest workspace %zu MiB; plans finished by a kernel of ours: %d, largest scratch %zu MiB; not deterministic in tier off: "
           "%d\n",
           s.workspace >> 20, s.finished_by_us, s.scratch >> 20, s.nondeterministic_chosen);
    assert_int_equal(s.plans, keys->n);
    assert_true(s.tally.nondeterministic > 0); /* or the filter was never asked */
    assert_true(s.tally.tensor_core > 0);
}

/* Where the driver's library is, cuDNN also compiles engines for GPUs that are only described, a second or more each: an hour for all keys. */
static bool driver_is_there(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (lib)
        dlclose(lib);
    return lib != NULL;
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

static struct conv_key conv(enum conv_dir dir, enum precision precision, enum tier tier, int n, int side, int c, int k, int size)
{
    return (struct conv_key){ .dir = dir,
                              .dtype = precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32,
                              .precision = precision,
                              .tier = tier,
                              .n = n,
                              .h = side,
                              .w = side,
                              .c = c,
                              .k = k,
                              .r = size,
                              .s = size,
                              .stride = 1,
                              .pad = size / 2,
                              .x_stride = c,
                              .y_stride = k };
}

static void made(struct plan *p, const struct plan_target *t, const struct conv_key *k)
{
    struct plan_key key = plan_key_make(k, NULL);
    struct err err;

    if (plan_make(p, t, &key, &err) < 0)
        fail_msg("%s", err.msg);
}

/* The data gradient of a 7x7 stem with three channels: on this GPU the best engine adds in the order in which blocks finish. */
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

/* The weight gradient of bf16 tensors: an engine that comes compiled rounds it and a kernel of ours widens it, whether it is added to or not.
 * No engine was asked for that has to be compiled. All names say so, and without it they name nothing: not an engine that gives
 * fp32, which cuDNN has where there is a driver. */
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
            continue; /* beside an H100, cuDNN 9.19 died of planning this for another one */
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

/* Added to or not: the same plan, and room to add where the library's result is fp32. */
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

/* Each way to compute a convolution has a name, by which it is made; the first that can be made is the one that is taken. */
static void ways_are_made_by_name(void **state)
{
    static struct plan_name name[PLAN_NAMES];
    struct plan_target t;

    (void)state;
    describe(&t, "sm_90");
    for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++) {
        struct conv_key k = conv((enum conv_dir)dir, PRECISION_BF16, TIER_RERUN, 8, 52, 128, 256, 3);
        struct plan_key key = plan_key_make(&k, NULL);
        int n = plan_names(&t, &key, name), nmade = 0;
        struct plan p, first;
        struct err err;

        made(&first, &t, &k);
        assert_in_range(n, 2, PLAN_NAMES);
        for (int i = 0; i < n; i++) {
            assert_true(name[i].deterministic);
            if (plan_make_named(&p, &t, &key, name[i].text, &err) < 0)
                continue;
            assert_string_equal(p.name, name[i].text);
            if (nmade++ == 0) {
                assert_string_equal(p.text, first.text);
                assert_int_equal(p.finish, first.finish);
            }
            plan_free(&p);
        }
        assert_in_range(nmade, 2, n);
        plan_free(&first);
        assert_int_equal(plan_make_named(&p, &t, &key, "cudnn engine 12345 knobs -", &err), ERR_UNSUPPORTED);
        assert_int_equal(plan_make_named(&p, &t, &key, "cublaslt algo 66", &err), ERR_UNSUPPORTED);
        assert_non_null(strstr(err.msg, "cublaslt algo 66"));
    }
    plan_target_close(&t);
}

/* A name is no way around the filter: what tier off may take is refused where results have to repeat. */
static void names_pass_the_filter(void **state)
{
    static struct plan_name name[PLAN_NAMES];
    struct conv_key k = conv(CONV_BWD_DATA, PRECISION_TF32, TIER_OFF, 8, 416, 3, 64, 7);
    struct plan_key off, rerun;
    struct plan_target t;
    struct plan p;
    struct err err;

    (void)state;
    describe(&t, "sm_90");
    k.stride = 2;
    off = plan_key_make(&k, NULL);
    k.tier = TIER_RERUN;
    rerun = plan_key_make(&k, NULL);
    assert_true(plan_names(&t, &off, name) > 0);
    assert_false(name[0].deterministic);
    assert_int_equal(plan_make_named(&p, &t, &off, name[0].text, &err), 0);
    plan_free(&p);
    assert_int_equal(plan_make_named(&p, &t, &rerun, name[0].text, &err), ERR_UNSUPPORTED);
    plan_target_close(&t);
}

/* A row of the table is followed in every tier whose filter lets it through; the next where not; and where none can be taken, the rule. */
static void measured_choices_are_followed(void **state)
{
    static const struct {
        const char *gpu;
        int n; /* the first is stale, the second not for tiers that promise bits */
    } rows[] = { { "empty", 0 }, { "good", 3 }, { "stale", 1 } };
    static struct plan_name name[PLAN_NAMES];
    char table[4096], any[PLAN_KEY_TEXT];
    struct plan_target t;

    (void)state;
    describe(&t, "sm_90");
    for (int tier = TIER_OFF; tier <= TIER_WORLD; tier++) {
        struct conv_key k = conv(CONV_BWD_DATA, PRECISION_TF32, (enum tier)tier, 8, 416, 3, 64, 7);
        struct plan rule, p;
        struct plan_key key;
        int loose = -1, fixed = -1, n;

        k.stride = 2;
        key = plan_key_make(&k, NULL);
        t.rows = NULL;
        made(&rule, &t, &k);
        key.conv.tier = TIER_OFF;
        for (int i = plan_names(&t, &key, name) - 1; i >= 0; i--) /* not the rule's */
            if (strcmp(name[i].text, rule.name) != 0)
                *(name[i].deterministic ? &fixed : &loose) = i;
        assert_true(loose >= 0 && fixed >= 0);
        plan_key_any_tier(&key, any);
        n = snprintf(table, sizeof table, "# why\n");
        for (size_t g = 0; g < sizeof rows / sizeof *rows; g++) {
            const char *row[] = { "cudnn engine 12345 knobs -", name[loose].text, name[fixed].text };

            plan_target_table(&t, "", rows[g].gpu);
            n += snprintf(table + n, sizeof table - (size_t)n, "%s\n", t.title);
            for (int i = 0; i < rows[g].n; i++)
                n += snprintf(table + n, sizeof table - (size_t)n, "%s: %s\n", any, row[i]);
        }
        for (size_t g = 0; g < sizeof rows / sizeof *rows; g++) {
            plan_target_table(&t, table, rows[g].gpu);
            made(&p, &t, &k);
            assert_string_equal(p.name, rows[g].n < 3 ? rule.name : name[tier == TIER_OFF ? loose : fixed].text);
            assert_int_equal(strstr(p.text, "; measured") != NULL, rows[g].n == 3);
            assert_int_equal(strstr(p.text, "; not as measured") != NULL, rows[g].n == 1);
            if (rows[g].n == 0)
                assert_string_equal(p.text, rule.text);
            plan_free(&p);
        }
        plan_target_table(&t, table, "unknown");
        assert_null(t.rows);
        made(&p, &t, &k);
        assert_string_equal(p.text, rule.text);
        plan_free(&p);
        plan_free(&rule);
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

/* The convolution of images is ours by rule and by name, cuDNN's where that was measured to be better, and cuDNN's where anything about it
 * is not as our kernels need it. */
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
    same.add = true; /* not used by the direction, nor by weight gradients; and what the padding after it holds does not count */
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

/* ---- 1x1 convolutions as matrix products: the definition of each direction, and what lt_product() makes of it, in whole numbers ---- */

enum { PIXELS = 6, IN = 3, OUT = 4, X_PITCH = 5, Y_PITCH = 7 };

struct arrays {
    float of[3][64]; /* by enum lt_operand */
};

static void fill(struct arrays *a, uint64_t seed)
{
    struct philox_key key = { .seed = seed };

    for (int o = 0; o < 3; o++)
        for (int i = 0; i < 64; i++)
            a->of[o][i] = (float)(int)(philox_uniform(&key, (uint64_t)(o * 64 + i)) * 17) - 8;
}

static void define(struct arrays *a, enum conv_dir dir, bool add)
{
    float *x = a->of[LT_X], *w = a->of[LT_W], *y = a->of[LT_Y];
    float *d = dir == CONV_FWD ? y : dir == CONV_BWD_DATA ? x : w;

    for (int i = 0; i < 64 && !add; i++) /* the gaps of a pitch keep what they hold */
        if (dir == CONV_BWD_WEIGHTS ? i < IN * OUT
                                    : i < PIXELS * (dir == CONV_FWD ? Y_PITCH : X_PITCH) &&
                                          i % (dir == CONV_FWD ? Y_PITCH : X_PITCH) < (dir == CONV_FWD ? OUT : IN))
            d[i] = 0;
    for (int p = 0; p < PIXELS; p++)
        for (int c = 0; c < IN; c++)
            for (int k = 0; k < OUT; k++)
                if (dir == CONV_FWD)
                    y[p * Y_PITCH + k] += x[p * X_PITCH + c] * w[k * IN + c];
                else if (dir == CONV_BWD_DATA)
                    x[p * X_PITCH + c] += y[p * Y_PITCH + k] * w[k * IN + c];
                else
                    w[k * IN + c] += x[p * X_PITCH + c] * y[p * Y_PITCH + k];
}

static void multiply(struct arrays *a, const struct lt_product *g, bool add)
{
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t i = 0; i < g->m; i++) {
            float *d = &a->of[g->d][j * g->ldd + i], sum = add ? *d : 0;

            for (int64_t l = 0; l < g->k; l++)
                sum += a->of[g->a][g->transpose_a ? i * g->lda + l : l * g->lda + i] *
                       a->of[g->b][g->transpose_b ? l * g->ldb + j : j * g->ldb + l];
            *d = sum;
        }
}

static void products_are_the_convolutions(void **state)
{
    (void)state;
    for (int dir = CONV_FWD; dir <= CONV_BWD_WEIGHTS; dir++)
        for (int add = 0; add < (dir == CONV_FWD ? 1 : 2); add++) {
            struct conv_key k = conv((enum conv_dir)dir, PRECISION_FP32, TIER_RERUN, 1, 1, IN, OUT, 1);
            struct arrays want, got;
            struct lt_product g;

            k.n = 2;
            k.w = 3;
            k.x_stride = X_PITCH;
            k.y_stride = Y_PITCH;
            g = lt_product(&k);
            fill(&want, 7);
            got = want;
            define(&want, k.dir, add);
            multiply(&got, &g, add);
            assert_true(lt_is_product(&k));
            assert_memory_equal(&want, &got, sizeof want);
        }
}

/* ---- cuBLASLt's answers, made up: where there is no GPU it says nothing ---- */

static const struct lt_answer {
    cublasStatus_t state, told;
    size_t workspace;
    uint32_t reduction;
    uint64_t flags;
} lt_answer[] = {
    { .told = CUBLAS_STATUS_INVALID_VALUE },
    { .reduction = CUBLASLT_REDUCTION_SCHEME_INPLACE, .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F },
    { .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F },
    { .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F | CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA },
    { .workspace = LT_WORKSPACE + 1, .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F },
    { .state = CUBLAS_STATUS_NOT_SUPPORTED },
    { .reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, .flags = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F },
};

static int lt_answers, lt_live; /* how many are given; descriptors that were made and not destroyed */

static cublasStatus_t lt_create(void *ret)
{
    static int some;

    *(void **)ret = &some;
    lt_live++;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_destroy(void *d)
{
    assert_non_null(d);
    lt_live--;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_desc(cublasLtMatmulDesc_t *ret, cublasComputeType_t compute, cudaDataType_t scale)
{
    (void)compute;
    (void)scale;
    return lt_create(ret);
}

static cublasStatus_t lt_desc_free(cublasLtMatmulDesc_t d)
{
    return lt_destroy(d);
}

static cublasStatus_t lt_desc_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attr, const void *value, size_t size)
{
    (void)d;
    (void)attr;
    (void)value;
    (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_layout(cublasLtMatrixLayout_t *ret, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    (void)type;
    (void)rows;
    (void)cols;
    (void)ld;
    return lt_create(ret);
}

static cublasStatus_t lt_layout_free(cublasLtMatrixLayout_t d)
{
    return lt_destroy(d);
}

static cublasStatus_t lt_preference(cublasLtMatmulPreference_t *ret)
{
    return lt_create(ret);
}

static cublasStatus_t lt_preference_free(cublasLtMatmulPreference_t d)
{
    return lt_destroy(d);
}

static cublasStatus_t lt_preference_set(cublasLtMatmulPreference_t d, cublasLtMatmulPreferenceAttributes_t attr, const void *value,
                                        size_t size)
{
    (void)d;
    (void)attr;
    (void)value;
    (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t pref, int most,
                                   cublasLtMatmulHeuristicResult_t ret[], int *ret_n)
{
    (void)handle;
    (void)pref;
    assert_true(op && a && b && c && d && most >= lt_answers);
    memset(ret, 0, (size_t)lt_answers * sizeof *ret);
    for (int i = 0; i < lt_answers; i++) {
        ret[i].algo.data[0] = (uint64_t)i;
        ret[i].state = lt_answer[i].state;
        ret[i].workspaceSize = lt_answer[i].workspace;
    }
    *ret_n = lt_answers;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t lt_cap(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t attr, void *ret, size_t size, size_t *got)
{
    const struct lt_answer *a = &lt_answer[algo->data[0]];

    assert_int_equal(attr, CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS);
    assert_int_equal(size, sizeof a->flags);
    memcpy(ret, &a->flags, size);
    *got = size;
    return a->told;
}

static cublasStatus_t lt_config(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attr, void *ret, size_t size,
                                size_t *got)
{
    uint32_t value = attr == CUBLASLT_ALGO_CONFIG_ID ? (uint32_t)algo->data[0] : lt_answer[algo->data[0]].reduction;

    if (attr != CUBLASLT_ALGO_CONFIG_ID && attr != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)
        return CUBLAS_STATUS_INVALID_VALUE;
    assert_int_equal(size, sizeof value);
    memcpy(ret, &value, size);
    *got = size;
    return CUBLAS_STATUS_SUCCESS;
}

static size_t lt_version(void)
{
    return 130100;
}

static const struct cublaslt_api made_up = { .cublasLtGetVersion = lt_version,
                                             .cublasLtMatmulDescCreate = lt_desc,
                                             .cublasLtMatmulDescDestroy = lt_desc_free,
                                             .cublasLtMatmulDescSetAttribute = lt_desc_set,
                                             .cublasLtMatrixLayoutCreate = lt_layout,
                                             .cublasLtMatrixLayoutDestroy = lt_layout_free,
                                             .cublasLtMatmulPreferenceCreate = lt_preference,
                                             .cublasLtMatmulPreferenceDestroy = lt_preference_free,
                                             .cublasLtMatmulPreferenceSetAttribute = lt_preference_set,
                                             .cublasLtMatmulAlgoGetHeuristic = lt_heuristic,
                                             .cublasLtMatmulAlgoCapGetAttribute = lt_cap,
                                             .cublasLtMatmulAlgoConfigGetAttribute = lt_config };

/* Where it has nothing that the filter lets through, each for another reason, cuDNN computes the product and the plan's line says why. */
static void refused_products_say_why(void **state)
{
    static const char why[] = "; cublaslt has none (algorithms 6: 1 do not tell how they sum, 1 sum in no order, 1 sum in low precision, "
                              "1 on tensor cores, 1 too big, 1 cannot)";
    struct conv_key k = conv(CONV_FWD, PRECISION_FP32, TIER_RERUN, 8, 13, 64, 128, 1);
    struct plan_key key = plan_key_make(&k, NULL);
    static struct plan_name name[PLAN_NAMES];
    struct plan_target t;
    struct plan p;
    struct err err;

    (void)state;
    describe(&t, "sm_90");
    t.lt.api = &made_up;
    lt_answers = 6;
    made(&p, &t, &k);
    assert_int_equal(p.library, PLAN_CUDNN);
    assert_non_null(strstr(p.text, why));
    assert_string_equal(strstr(p.text, why), why);
    plan_free(&p);
    assert_true(plan_names(&t, &key, name) > 0);
    assert_int_equal(name[0].library, PLAN_CUDNN);
    lt_answers = 7;
    made(&p, &t, &k);
    assert_string_equal(p.name, "cublaslt algo 6 reduction 2");
    assert_null(strstr(p.text, "has none"));
    plan_free(&p);
    assert_true(plan_names(&t, &key, name) > 1);
    assert_string_equal(name[0].text, "cublaslt algo 6 reduction 2");
    assert_int_equal(plan_make_named(&p, &t, &key, name[0].text, &err), 0);
    plan_free(&p);
    assert_int_equal(plan_make_named(&p, &t, &key, "cublaslt algo 3 reduction 0", &err), ERR_UNSUPPORTED);
    k.precision = PRECISION_TF32; /* may use tensor cores */
    made(&p, &t, &k);
    assert_string_equal(p.name, "cublaslt algo 3 reduction 0");
    plan_free(&p);
    k.r = k.s = 3; /* no product: nobody asks */
    k.pad = 1;
    made(&p, &t, &k);
    assert_int_equal(p.library, PLAN_CUDNN);
    assert_null(strstr(p.text, "cublaslt"));
    plan_free(&p);
    assert_int_equal(lt_live, 0);
    t.lt.api = NULL;
    plan_target_close(&t);
}

/* ---- the cache ---- */

enum { CACHED = 12 };

static struct plan_key cached(int i)
{
    struct conv_key k = conv((enum conv_dir)(i % 3), i % 2 ? PRECISION_BF16 : PRECISION_TF32, TIER_RERUN, 2, 13, 64 + 8 * (i / 6), 64, 3);

    return plan_key_make(&k, NULL);
}

static struct plan_cache *open_cache(int threads)
{
    struct plan_target t;
    struct plan_cache *c;
    struct err err;

    assert_int_equal(plan_cache_new(NULL, &c, &err), 0);
    for (int i = 0; i < threads; i++) {
        describe(&t, "sm_90");
        assert_int_equal(plan_cache_add(c, &t, &err), 0);
    }
    return c;
}

/* Asked for in one order or another, ahead or when needed, by one thread or three: the same plans, so the same lines. */
static void order_of_asking_does_not_matter(void **state)
{
    struct plan_cache *a = open_cache(3), *b = open_cache(1);
    struct plan *p, *again;
    char *text_a, *text_b;
    struct err err;
    int lines = 0;

    (void)state;
    for (int i = 0; i < CACHED; i++) {
        struct plan_key up = cached(i), down = cached(CACHED - 1 - i);

        assert_int_equal(plan_cache_prepare(a, &up, &err), 0);
        assert_int_equal(plan_cache_get(b, &down, &p, &err), 0);
        assert_memory_equal(&p->key, &down, sizeof down);
        assert_int_equal(plan_cache_get(b, &down, &again, &err), 0);
        assert_ptr_equal(p, again);
    }
    for (int i = CACHED - 1; i >= 0; i--) {
        struct plan_key key = cached(i);

        assert_int_equal(plan_cache_get(a, &key, &p, &err), 0);
    }
    text_a = plan_cache_text(a);
    text_b = plan_cache_text(b);
    assert_string_equal(text_a, text_b);
    for (const char *at = text_a, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, lines++) {
        const char *next = strchr(end + 1, '\n');

        assert_true(!next || strcmp(at, end + 1) < 0);
    }
    assert_int_equal(lines, CACHED);
    free(text_a);
    free(text_b);
    plan_cache_free(a);
    plan_cache_free(b);
}

/* Its error names the convolution and stays; others are not touched. What is still queued is dropped. */
static void what_cannot_be_planned_says_why(void **state)
{
    struct plan_cache *c = open_cache(2);
    struct conv_key k = conv(CONV_FWD, PRECISION_FP32, TIER_RERUN, 64, 8192, 65536, 65536, 63);
    struct plan_key key = plan_key_make(&k, NULL), good = cached(0);
    struct plan *p;
    struct err err;
    char *text;

    (void)state;
    assert_int_equal(plan_cache_prepare(c, &key, &err), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(plan_cache_get(c, &key, &p, &err) < 0);
        assert_non_null(strstr(err.msg, "fwd fp32 rerun x[64,8192,8192,65536] w[65536,63,63,65536] stride 1 pad 31"));
    }
    printf("%s\n", err.msg);
    assert_int_equal(plan_cache_get(c, &good, &p, &err), 0);
    text = plan_cache_text(c);
    assert_non_null(strstr(text, "fwd tf32 rerun"));
    assert_null(strstr(text, "x[64,"));
    free(text);
    for (int i = 0; i < CACHED; i++) {
        good = cached(i);
        assert_int_equal(plan_cache_prepare(c, &good, &err), 0);
    }
    plan_cache_free(c);
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

/* ---- where there is a GPU ---- */

/* The GPU's own record, to be kept in deviceprop/ instead of one that was written by hand. */
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

/* Skips the test where there is none. */
static void open_gpu(struct plan_target *t)
{
    struct err err;

    if (plan_target_open(t, &err) < 0)
        SKIP("no GPU that cuDNN works with: %s", err.msg);
}

/* One that there is not is a line, too. */
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
            struct conv_key k = layer_key(&net->layers[i], DTYPE_BF16, PRECISION_BF16, TIER_RERUN, 16);

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
        cmocka_unit_test(products_are_the_convolutions),
        cmocka_unit_test(bad_descriptions_are_refused),
        cmocka_unit_test(best_engine_is_refused_for_its_order),
        cmocka_unit_test(precision_chooses_the_unit),
        cmocka_unit_test(odd_memory_has_plans),
        cmocka_unit_test(images_are_for_our_kernels),
        cmocka_unit_test(bf16_weight_gradients_come_compiled),
        cmocka_unit_test(weight_gradients_have_one_plan),
        cmocka_unit_test(refused_products_say_why),
        cmocka_unit_test(ways_are_made_by_name),
        cmocka_unit_test(names_pass_the_filter),
        cmocka_unit_test(measured_choices_are_followed),
        cmocka_unit_test(order_of_asking_does_not_matter),
        cmocka_unit_test(what_cannot_be_planned_says_why),
        cmocka_unit_test(every_convolution_has_a_plan),
        cmocka_unit_test(this_gpu_has_plans),
        cmocka_unit_test(this_gpu_plans_yolov3),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
