/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_engines.c
 * uses: plans proto worker/models worker/layers worker/data worker/eval worker/mask worker/core
 * The measurements of bench_engines and their evaluation, and the table that it writes as the plugin reads it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda/plan_table.h"
#include "proto/err.h"
#include "tests/bench/engines.h"
#include "tests/stand/harness.h"
#include "worker/models/yolo/presets.h"

static struct works works;
static struct results results;

static void works_of_preset(const char *preset, enum tier tier, int n)
{
    struct darknet_net *net;
    struct err err;

    assert_int_equal(preset_net(preset, &net, &err), 0);
    assert_int_equal(darknet_net_set_size(net, 416, 416, &err), 0);
    works_of(net, PRECISION_BF16, tier, n, &works);
    darknet_net_free(net);
}

static const struct work *find(const char *text)
{
    char key[PLAN_KEY_TEXT];

    for (int i = 0; i < works.n; i++)
        if (strcmp(plan_key_text(&works.work[i].key, key), text) == 0)
            return &works.work[i];
    fail_msg("no convolution %s", text);
    return NULL;
}

/* 75 convolutions. Gradients that are added to come from 23 residual blocks, two routes back to the backbone and two
 * past the heads. */
static void a_step_has_its_convolutions(void **state)
{
    int times[3] = { 0 }, adds = 0;

    (void)state;
    works_of_preset("yolov3", TIER_OFF, 16);
    for (int i = 0; i < works.n; i++) {
        const struct work *w = &works.work[i];

        times[w->key.conv.dir] += w->times;
        adds += w->key.conv.add ? w->times : 0;
        assert_true(i == 0 || least_seconds(w - 1) >= least_seconds(w));
    }
    assert_int_equal(times[CONV_FWD], 75);
    assert_int_equal(times[CONV_BWD_DATA], 74);
    assert_int_equal(times[CONV_BWD_WEIGHTS], 75);
    assert_int_equal(adds, 27);
    assert_int_equal(find("bwd_data bf16 off x[16,52,52,256] w[128,1,1,256] stride 1 pad 0 add")->times, 8);
    assert_int_equal(find("fwd bf16 off x[16,52,52,128] w[256,3,3,128] stride 1 pad 1")->times, 11);
    assert_int_equal(find("fwd bf16 off x[16,13,13,1024] w[255,1,1,1024] stride 1 pad 0 bias pitch 1024,256")->times, 1);
    assert_float_equal(find("bwd_weights bf16 off x[16,416,416,3] w[32,3,3,3] stride 1 pad 1")->flops, 2.0 * 16 * 416 * 416 * 32 * 27, 1);
    works_of_preset("yolov3", TIER_WORLD, 1); /* heads of a single image are aligned like all other tensors */
    (void)find("fwd bf16 world x[1,13,13,1024] w[255,1,1,1024] stride 1 pad 0 bias pitch 1024,256");
    (void)find("bwd_data bf16 world x[1,13,13,1024] w[255,1,1,1024] stride 1 pad 0 pitch 1024,256");
    (void)find("bwd_weights bf16 world x[1,13,13,1024] w[255,1,1,1024] stride 1 pad 0 pitch 1024,256");
}

static struct plan_name way(const char *text, bool deterministic, bool runtime)
{
    struct plan_name n = { .deterministic = deterministic,
                           .runtime = runtime,
                           .library = strncmp(text, "own", 3) == 0        ? PLAN_OWN
                                      : strncmp(text, "cublaslt", 8) == 0 ? PLAN_CUBLASLT
                                                                          : PLAN_CUDNN };

    snprintf(n.text, sizeof n.text, "%s", text);
    return n;
}

/* Two ways of each library and one compiled; if they do not repeat their bits, also as many that do. */
static void first_ways_are_tried(void **state)
{
    const struct plan_name loose = way("cudnn a", false, false), fixed = way("cudnn b", true, false), slow = way("cudnn c", true, true);
    struct quota q = { .most = 2, .most_runtime = 1 };

    (void)state;
    quota_take(&q, &loose);
    assert_true(quota_allows(&q, &loose));
    quota_take(&q, &loose);
    assert_false(quota_allows(&q, &loose));
    for (int i = 0; i < 2; i++) {
        assert_true(quota_allows(&q, &fixed));
        quota_take(&q, &fixed);
    }
    assert_false(quota_allows(&q, &fixed));
    assert_true(quota_allows(&q, &slow));
    quota_take(&q, &slow);
    assert_false(quota_allows(&q, &slow));
}

static void measured(int work, int rank, double us, const char *text, bool deterministic)
{
    results.result[results.n++] = (struct result){ work, rank, us, way(text, deterministic, strstr(text, "slow") != NULL) };
}

/* Convolution 0: the best way does not repeat its bits. 1: today's way is the best. 2: the best is not worth a row. 3:
 * not reached. */
static void some_results(void)
{
    works_of_preset("yolov3_tiny", TIER_OFF, 16);
    memset(&results, 0, sizeof results);
    measured(0, 3, 70, "cudnn engine 3 knobs -", true);
    measured(0, 0, 100, "cublaslt algo 66", true);
    measured(0, 2, 50, "cudnn engine 2 knobs 1=1,2=5", false);
    measured(1, 0, 10, "cudnn engine 4 knobs - then widen", true);
    measured(1, 1, 20, "cudnn engine 5 slow", true);
    measured(2, 0, 100, "cudnn engine 6", true);
    measured(2, 1, 98, "cudnn engine 7", true);
    for (int i = 0; i < 3; i++)
        works.work[i].times = i + 1;
}

static void totals_are_of_a_step(void **state)
{
    struct total t;

    (void)state;
    some_results();
    t = total_of(&works, &results, false);
    assert_int_equal(t.works, 3);
    assert_float_equal(t.today, 100 + 2 * 10 + 3 * 100, 1e-9);
    assert_float_equal(t.best, 50 + 2 * 10 + 3 * 98, 1e-9);
    t = total_of(&works, &results, true);
    assert_float_equal(t.best, 70 + 2 * 10 + 3 * 98, 1e-9);
    assert_string_equal(kind_of(&results.result[4].name), "cudnn compiled");
    t = total_of_kind(&works, &results, works.work[1].key.conv.dir, "cudnn");
    assert_int_equal(t.works, 1);
    t = total_of_kind(&works, &results, works.work[1].key.conv.dir, "cudnn compiled");
    assert_float_equal(t.today, 2 * 20, 1e-9);
    assert_float_equal(t.best, 2 * 10, 1e-9);
}

/* plan_table_next() finds the rows that print_table() writes below a title, in their order, and no row of another
 * section. */
static void the_table_is_read_back(void **state)
{
    char text[4096], key[PLAN_KEY_TEXT], name[PLAN_NAME_TEXT];
    const char *rows;
    FILE *f = fmemopen(text, sizeof text, "w");

    (void)state;
    some_results();
    assert_non_null(f);
    fprintf(f, "# for people\n");
    print_table(f, &works, &results, "GPU of the test; cuDNN 9");
    print_table(f, &works, &results, "GPU of another");
    print_table(f, &works, &results, "GPU of the test; cuDNN 9");
    print_table(f, &works, &results, "GPU of yet another");
    fclose(f);
    assert_null(plan_table_rows(text, "GPU of the test; cuDNN"));
    rows = plan_table_rows(text, "GPU of the test; cuDNN 9");
    assert_non_null(rows);
    plan_key_any_tier(&works.work[0].key, key);
    for (int section = 0; section < 2; section++) {
        assert_true(plan_table_next(&rows, "GPU of the test; cuDNN 9", key, name, sizeof name));
        assert_string_equal(name, "cudnn engine 2 knobs 1=1,2=5");
        assert_true(plan_table_next(&rows, "GPU of the test; cuDNN 9", key, name, sizeof name));
        assert_string_equal(name, "cudnn engine 3 knobs -");
    }
    assert_false(plan_table_next(&rows, "GPU of the test; cuDNN 9", key, name, sizeof name));
    for (int i = 1; i < works.n; i++) {
        rows = plan_table_rows(text, "GPU of the test; cuDNN 9");
        assert_false(plan_table_next(&rows, "GPU of the test; cuDNN 9", plan_key_any_tier(&works.work[i].key, key), name, sizeof name));
    }
}

/* The table shipped with the plugin consists of titles, rows and remarks. */
static void the_shipped_table_is_one(void **state)
{
    bool titled = false;

    (void)state;
    for (const char *line = plan_table_shipped(), *end; *line; line = end + 1) {
        const char *colon = strstr(line, ": ");
        bool title = strncmp(line, "GPU ", 4) == 0;

        end = strchr(line, '\n');
        assert_non_null(end);
        titled = titled || title;
        if (*line != '#' && !title &&
            (!titled || !colon || colon > end ||
             (strncmp(colon + 2, "cudnn engine ", 13) != 0 && strncmp(colon + 2, "cublaslt algo ", 14) != 0 &&
              strncmp(colon + 2, "own ", 4) != 0)))
            fail_msg("cuda/engines.txt: %.*s", (int)(end - line), line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_its_convolutions), cmocka_unit_test(first_ways_are_tried),     cmocka_unit_test(totals_are_of_a_step),
        cmocka_unit_test(the_table_is_read_back),      cmocka_unit_test(the_shipped_table_is_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
