/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/sparse/test_sparse_model.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Sparse R-CNN before its first step: parameters, initial values, groups; its terms, and the order of its detections.
 * Source: specs sparse_rcnn sections 2.1, 2.2, 3.9, 5.4, 7 and 13.1. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/worker/models/sparse/sparse_models.h"
#include "worker/kernels/roi.h"
#include "worker/models/sparse/network.h"
#include "worker/models/sparse/sparse.h"

/* ---- parameters ---- */

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Numbers and arrays with such names. The reference's counts leave out normalisations of the body. */
static size_t count(const struct model *m, const char *with, int *ret_arrays)
{
    size_t n = 0;

    *ret_arrays = 0;
    for (int i = 0; i < m->nparams; i++) {
        if (!begins(m->params[i]->name, with))
            continue;
        (*ret_arrays)++;
        n += strstr(m->params[i]->name, ".norm.") ? 0 : m->params[i]->count;
    }
    return n;
}

static void networks_have_the_references_sizes(void **state)
{
    static const struct {
        int layers;
        size_t body, pyramid;
        int arrays;
    } rows[] = {
        { 18, 11166912, 2607104, 100 }, { 34, 21267648, 2607104, 180 }, { 50, 23454912, 3344384, 265 }, { 101, 42394816, 3344384, 520 }
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char keys[80];
        struct model *m;
        struct err err;
        int n;

        snprintf(keys, sizeof keys, "\"preset\": \"sparse_rcnn_r%d_fpn\"", rows[i].layers);
        if (try_open(keys, NULL, 80, false, &m, &err) < 0)
            fail_msg("%s", err.msg);
        assert_int_equal(count(m, "backbone.bottom_up.", &n), rows[i].body);
        assert_int_equal(n, rows[i].arrays);
        assert_int_equal(count(m, "backbone.fpn_", &n), rows[i].pyramid);
        assert_int_equal(n, 16);
        assert_int_equal(count(m, "init_proposal_", &n), 26000);
        assert_int_equal(n, 2);
        for (int stage = 0; stage < 6; stage++) {
            snprintf(keys, sizeof keys, "head.head_series.%d.", stage);
            assert_int_equal(count(m, keys, &n), 13235412);
            assert_int_equal(n, 40);
        }
        assert_int_equal(m->nparams, rows[i].arrays + 16 + 2 + 240);
        assert_int_equal(m->nterms, 7 + 6);
        model_free(m);
    }
}

/* The small network of section 12.1. */
static void the_small_network_is_as_small(void **state)
{
    struct model *m =
        opened("\"preset\": \"sparse_rcnn_r18_fpn\", \"width\": 0.25, \"fpn_channels\": 64, \"proposals\": 20, \"stages\": 3, "
               "\"dynamic_channels\": 16, \"ffn_channels\": 256, \"min_size\": 100, \"max_size\": 130, \"size_divisible\": 64",
               NULL, 3);
    size_t all = 0;
    int n;

    (void)state;
    for (int i = 0; i < m->nparams; i++)
        all += param_kind_trains(m->params[i]->kind) ? m->params[i]->count : 0;
    assert_int_equal(all, 2071701);
    assert_int_equal(count(m, "head.head_series.2.", &n), 401639);
    assert_true(m->grain == 64 && m->canvas.h == 192 && m->canvas.w == 192);
    model_free(m);
}

static void the_body_has_a_rate_of_its_own(void **state)
{
    struct model *m = opened(SPARSE_SMALL, NULL, 3);

    (void)state;
    for (int i = 0; i < m->nparams; i++) {
        const struct param_group *g = &m->groups[m->params[i]->group];

        assert_true(g->lr == (begins(m->params[i]->name, "backbone.") ? 0.1f : 1) && g->decay == 1);
    }
    model_free(m);
}

/* ---- initial values ---- */

static double most_of(const struct param *p)
{
    const float *w = p->data;
    double most = 0;

    for (size_t i = 0; i < p->count; i++)
        most = fmax(most, fabs((double)w[i]));
    return most;
}

static void weights_begin_as_the_references(void **state)
{
    const char *bounds = "self_attn.in_proj_weight 0.076547 self_attn.in_proj_bias 0 self_attn.out_proj.bias 0 "
                         "self_attn.out_proj.weight 0.108253 cls_module.0.weight 0.108253 reg_module.6.weight 0.108253 "
                         "inst_interact.dynamic_layer.weight 0.013479 inst_interact.dynamic_layer.bias 0.0625 "
                         "inst_interact.out_layer.weight 0.021651 inst_interact.out_layer.bias 0.008929 linear1.weight 0.051031 "
                         "linear1.bias 0.0625 linear2.weight 0.051031 linear2.bias 0.022097 class_logits.weight 0.133631 "
                         "bboxes_delta.weight 0.151911 class_logits.bias 4.59511985 inst_interact.norm1.weight 1 reg_module.7.bias 0";
    struct model *m = opened("\"preset\": \"sparse_rcnn_r18_fpn\", \"width\": 0.0625, \"stages\": 1", NULL, 80);
    const float *q = param_named(m, "init_proposal_features.weight")->data,
                *bias = param_named(m, "head.head_series.0.class_logits.bias")->data;
    double squares = 0, want;
    char word[64], name[96];

    (void)state;
    for (int used; sscanf(bounds, "%63s %lf%n", word, &want, &used) == 2; bounds += used) {
        double most;

        snprintf(name, sizeof name, "head.head_series.0.%s", word);
        assert_non_null(param_named(m, name));
        most = most_of(param_named(m, name));
        if (most > want + 1e-6 || most < want * 0.97)
            fail_msg("%s: %g, not %g", name, most, want);
    }
    for (int k = 0; k < 80; k++)
        assert_true(bias[k] == -4.59511985013459f);
    for (int i = 0; i < 25600; i++)
        squares += (double)q[i] * (double)q[i];
    assert_true(fabs(squares / 25600 - 1) < 0.05);
    model_free(m);
}

static void proposals_begin_on_the_picture_or_a_grid(void **state)
{
    static const float corner[] = { 1 / 6.0f, 0.25f, 0.25f, 0.25f }, last[] = { 0.5f, 0.75f, 0.25f, 0.25f }, all[] = { 0.5f, 0.5f, 1, 1 };
    struct model *m = opened(SPARSE_SMALL, NULL, 3),
                 *grid = opened(SPARSE_SMALL ", \"proposals\": 5, \"proposal_init\": \"grid\"", NULL, 3);

    (void)state;
    for (int i = 0; i < 6; i++)
        assert_memory_equal((const float *)param_named(m, "init_proposal_boxes.weight")->data + 4 * i, all, sizeof all);
    assert_memory_equal(param_named(grid, "init_proposal_boxes.weight")->data, corner, sizeof corner);
    assert_memory_equal((const float *)param_named(grid, "init_proposal_boxes.weight")->data + 16, last, sizeof last);
    model_free(grid);
    model_free(m);
}

/* ---- regions ---- */

/* The level of a square. */
static int level_of(float side)
{
    const struct roi_align align = pyramid_align(7, 2, true);
    const float box[4] = { 0, 0, side, side };

    return roi_level(&align, box);
}

/* The reference adds 4 to a logarithm in fp32. Right below a border the sum is a whole number already. */
static void levels_are_the_references(void **state)
{
    static const float border[] = { 112, 224, 448 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(level_of(border[i] - 0.01f), i);
        assert_int_equal(level_of(nextafterf(border[i], 0)), i + 1);
        assert_int_equal(level_of(border[i]), i + 1);
    }
}

/* ---- terms and detections ---- */

static void terms_are_weighted_sums_over_pairs(void **state)
{
    static const double raw[2 * SET_TERMS] = { 1, 2, 3, 4, 0, 10, 20, 30, 4, 0 };
    static const double want[] = { 3 + 14 + 33 + 30 + 140 + 330, 33, 154, 363, 30, 140, 330, 50, 500 };
    struct model *m = opened(SPARSE_SMALL ", \"cls_gain\": 3, \"l1_gain\": 7, \"giou_gain\": 11", NULL, 3);
    double ret[2 * 9], broken[2 * SET_TERMS];
    char why[160] = "";

    (void)state;
    assert_int_equal(m->nterms, 9);
    assert_int_equal(m->raw_terms, 2 * SET_TERMS);
    m->ops->sum_terms(m, raw, 1, ret);
    for (int k = 0; k < 9; k++)
        assert_true(ret[2 * k] == want[k] && ret[2 * k + 1] == 4 && m->terms[k].aggregate == TERM_RATIO);
    m->ops->explain(m, ret, why, sizeof why);
    assert_string_equal(why, "");
    memcpy(broken, raw, sizeof raw);
    broken[SET_TERMS + SET_BROKEN] = 1;
    m->ops->sum_terms(m, broken, 1, ret);
    assert_true(isnan(ret[0]) && isnan(ret[2 * 8]) && ret[2 * 7] == 50 && ret[2] == 33);
    m->ops->explain(m, ret, why, sizeof why);
    assert_true(strncmp(why, "stage 2: ", 9) == 0 && strlen(why) < sizeof why - 1);
    assert_string_equal(m->terms[8].name, "total_2");
    model_free(m);
}

/* Vectors `top`. */
static void detections_are_the_best_pairs_in_order(void **state)
{
    static const float logits[3][4] = { { 0.5f, -1, 0.5f, 9 }, { 2, 0.5f, -3, 9 }, { 0.5f, 2, -1, 9 } },
                       box[3][4] = { { 1 }, { 2 }, { 3 } };
    static const int slot[] = { 3, 7, 0, 2, 4, 6, 1, 8, 5 };
    struct candidate got[12];
    float bad[3][4];

    (void)state;
    for (int most = 1; most <= 12; most++) {
        int n = sparse_best(logits[0], 4, box[0], 3, 3, most, got);

        assert_int_equal(n, most < 9 ? most : 9);
        for (int i = 0; i < n; i++)
            assert_true(got[i].slot == slot[i] && got[i].cls == slot[i] % 3 && got[i].x1 == box[slot[i] / 3][0]);
    }
    memcpy(bad, logits, sizeof bad);
    bad[1][0] = NAN;
    assert_int_equal(sparse_best(bad[0], 4, box[0], 3, 3, 12, got), 8);
    assert_int_equal(got[0].slot, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_have_the_references_sizes),       cmocka_unit_test(the_small_network_is_as_small),
        cmocka_unit_test(the_body_has_a_rate_of_its_own),           cmocka_unit_test(weights_begin_as_the_references),
        cmocka_unit_test(proposals_begin_on_the_picture_or_a_grid), cmocka_unit_test(levels_are_the_references),
        cmocka_unit_test(terms_are_weighted_sums_over_pairs),       cmocka_unit_test(detections_are_the_best_pairs_in_order)
    };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
