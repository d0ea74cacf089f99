/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/sparse/test_sparse_batch.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Losses and detections of Sparse R-CNN for shards of different sizes: those of each picture alone, with and without
 * the other output, with weights of classes. Source: specs sparse_rcnn sections 5.1, 5.6 and 7. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/unit/worker/models/plan_watch.h"
#include "tests/unit/worker/models/sparse/sparse_models.h"
#include "worker/core/arena.h"
#include "worker/data/make/batch.h"
#include "worker/data/sample/instances.h"
#include "worker/eval/result.h"
#include "worker/layers/layers.h"
#include "worker/ops/set.h"

enum { SHARDS = 2, IMAGES = 3, CLASSES = 3, STAGES = 2, RAW = STAGES * SET_TERMS, MOST = 18, PIXELS = 2 * 64 * 96 + 96 * 64 };

/* Two pictures of 64 x 96, and a high one. The second has no objects. */
static const struct canvas canvas[SHARDS] = { { 64, 96 }, { 96, 64 } };
static int32_t size[IMAGES][2] = { { 64, 96 }, { 50, 70 }, { 90, 60 } };
static const int first[SHARDS + 1] = { 0, 2, 3 };
static int32_t objects[IMAGES] = { 2, 0, 7 }, cls[9] = { 0, 2, 1, 1, 0, 2, 2, 0, 1 };
static float box[9][4] = { { 4, 5, 40, 50 }, { 30, 8, 90, 60 }, { 2, 3, 20, 40 },   { 30, 40, 58, 88 }, { 5, 50, 25, 85 },
                           { 8, 9, 50, 30 }, { 1, 1, 59, 89 },  { 20, 20, 40, 60 }, { 33, 2, 57, 20 } };
static uint8_t pixels[PIXELS * 3];

/* A network, and its outputs for the pictures. */
struct run {
    struct model *m;
    struct arena *arena;
    struct tape *tape;
    double raw[IMAGES][RAW];
    struct detection found[IMAGES][MOST];
    int nfound[IMAGES];
};

/* more: further keys of the job. */
static void open_keys(struct run *r, const char *more)
{
    char keys[600];

    snprintf(keys, sizeof keys,
             SPARSE_SMALL ", \"proposal_init\": \"grid\", \"cls_prior\": 0.3, \"delta_clamp\": 0.2, \"delta_floor\": true%s", more);
    memset(r, 0, sizeof *r);
    r->m = opened(keys, NULL, CLASSES);
    r->arena = arena_new(dev, 1 << 20);
    r->tape = tape_new(dev, r->arena, r->m->nparams);
    for (int i = 0; i < r->m->nnorms; i++)
        r->m->norms[i].frozen = true; /* training gives the numbers of validation */
    for (int i = 0; i < PIXELS * 3; i++)
        pixels[i] = (uint8_t)(i * 37 % 251 ^ i / 96);
}

static void open_run(struct run *r)
{
    open_keys(r, "");
}

static void close_run(struct run *r)
{
    r->m->class_weight = NULL; /* the test's */
    tape_free(r->tape);
    arena_free(r->arena);
    model_free(r->m);
}

/* Images [from, to) of a shard. offset: [to - from + 1]. */
static struct shard_batch shard_of(int shard, int from, int to, int32_t *offset)
{
    const struct batch_form *f = task_instances.form;
    struct shard_batch s = { .n = to - from, .canvas = canvas[shard] };
    int before = 0;

    for (int i = 0; i < from; i++)
        before += objects[i];
    offset[0] = 0;
    for (int i = from; i < to; i++)
        offset[i - from + 1] = offset[i - from] + objects[i];
    s.array[batch_array_of(f, "image")] = pixels + from * 3 * 64 * 96;
    s.array[batch_array_of(f, "size")] = size[from];
    s.array[batch_array_of(f, "truth.class")] = cls + before;
    s.array[batch_array_of(f, "truth.box")] = box[before];
    s.offset[batch_list_of(f, "truth")] = offset;
    s.rows[batch_list_of(f, "truth")] = offset[to - from];
    return s;
}

/* All gradients go to one place: no test reads them. */
static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    static float grad[1 << 15];

    (void)arg, (void)shard;
    assert_true(p->count <= sizeof grad / sizeof *grad);
    *ret_written = false;
    return grad;
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    (void)arg, (void)p, (void)err;
    return 0;
}

/* Outputs of the network for the images [from, to) as shards of `each` images at most. */
static void pass(struct run *r, int from, int to, int each, enum tape_mode mode, bool losses, bool results)
{
    struct shard_batch shard[IMAGES];
    int32_t offset[IMAGES][IMAGES + 1];
    double *raw[IMAGES];
    struct batch b = { .form = task_instances.form, .nshards = 0, .shard = shard };
    const struct model_want want = { .results = results, .raw = losses ? raw : NULL, .images_of_step = IMAGES, .shards_of_step = SHARDS };
    static const struct tape_hooks hooks = { NULL, grad_dest, grad_ready, NULL, NULL };
    struct err err;

    for (int v = 0; v < SHARDS; v++)
        for (int i = first[v]; i < first[v + 1]; i += each)
            if (i >= from && i < to)
                shard[b.nshards] = shard_of(v, i, i + each < first[v + 1] ? i + each : first[v + 1], offset[b.nshards]), b.nshards++;
    for (int i = from; i < to; i++)
        raw[i - from] = r->raw[mode == TAPE_EVAL ? i : i - from];
    tape_begin(r->tape, mode, b.nshards, &hooks);
    if (r->m->ops->forward(r->m, r->tape, &b, &want, &err) < 0)
        fail_msg("%s", err.msg);
    for (int v = 0, i = from; v < b.nshards && results; v++)
        for (int k = 0; k < shard[v].n; k++, i++) {
            const struct model_picture picture = { .index = i, .w = 2 * size[i][1], .h = size[i][0] };
            struct result found;

            assert_int_equal(r->m->ops->result(r->m, v, k, &picture, (double)NAN, &found, &err), 0);
            assert_true(found.kind == RESULT_BOXES && found.image == i && found.n <= MOST);
            r->nfound[i] = found.n;
            memcpy(r->found[i], found.boxes, (size_t)found.n * sizeof *found.boxes);
        }
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-4 * fmax(fabs(want), 1)))
        fail_msg("%.9g, not %.9g", got, want);
}

static void same_found(const struct run *a, const struct run *b)
{
    for (int i = 0; i < IMAGES; i++) {
        assert_int_equal(a->nfound[i], b->nfound[i]);
        for (int k = 0; k < a->nfound[i]; k++) {
            assert_true(a->found[i][k].image == i);
            near(a->found[i][k].score, b->found[i][k].score);
            for (int c = 0; c < 4; c++)
                near(a->found[i][k].box[c], b->found[i][k].box[c]);
        }
    }
}

static void same_raw(const struct run *a, const struct run *b)
{
    for (int i = 0; i < IMAGES; i++)
        for (int k = 0; k < RAW; k++)
            near(a->raw[i][k], b->raw[i][k]);
}

/* ---- tests ---- */

static void pictures_in_any_company(void **state)
{
    struct run all, alone;
    int n = 0;

    (void)state;
    open_run(&all);
    open_run(&alone);
    pass(&all, 0, IMAGES, IMAGES, TAPE_EVAL, true, true);
    for (int i = 0; i < IMAGES; i++) {
        pass(&alone, i, i + 1, 1, TAPE_EVAL, true, true);
        n += all.nfound[i];
    }
    assert_true(n > IMAGES && all.raw[0][SET_L1] != all.raw[2][SET_L1] && all.found[0][0].score != all.found[1][0].score);
    assert_true(all.raw[0][SET_TERMS + SET_L1] > 0 && all.raw[0][SET_TERMS + SET_L1] != all.raw[0][SET_L1]);
    same_raw(&all, &alone);
    same_found(&all, &alone);
    close_run(&alone);
    close_run(&all);
}

static void one_output_without_the_other(void **state)
{
    struct run both, one;

    (void)state;
    open_run(&both);
    open_run(&one);
    pass(&both, 0, IMAGES, IMAGES, TAPE_EVAL, true, true);
    pass(&one, 0, IMAGES, IMAGES, TAPE_EVAL, true, false);
    pass(&one, 0, IMAGES, IMAGES, TAPE_EVAL, false, true);
    assert_memory_equal(both.raw, one.raw, sizeof one.raw);
    assert_memory_equal(both.found, one.found, sizeof one.found);
    close_run(&one);
    close_run(&both);
}

/* A row of training is the sum of the shard's images. */
static void rows_of_training(void **state)
{
    struct run val, train;

    (void)state;
    open_run(&val);
    open_run(&train);
    pass(&val, 0, IMAGES, IMAGES, TAPE_EVAL, true, false);
    pass(&train, 0, IMAGES, IMAGES, TAPE_TRAIN, true, false);
    for (int k = 0; k < RAW; k++) {
        near(train.raw[0][k], val.raw[0][k] + val.raw[1][k]);
        near(train.raw[1][k], val.raw[2][k]);
    }
    assert_true(val.raw[0][SET_PAIRS] == 2 && val.raw[1][SET_PAIRS] == 0 && val.raw[2][SET_PAIRS] == 6 && val.raw[1][SET_CLS] > 0);
    close_run(&train);
    close_run(&val);
}

/* Each class's losses count by its weight; matches do not see it. */
static void weights_of_classes(void **state)
{
    float weight[CLASSES] = { 3, 1, 0.5f }, unit[CLASSES] = { 0 };
    double sum[IMAGES] = { 0 };
    struct run r, plain;

    (void)state;
    open_run(&r);
    open_run(&plain);
    pass(&plain, 0, IMAGES, IMAGES, TAPE_EVAL, true, false);
    r.m->class_weight = unit;
    for (int k = 0; k < CLASSES; k++) {
        unit[k] = 1;
        pass(&r, 0, IMAGES, IMAGES, TAPE_EVAL, true, false);
        unit[k] = 0;
        for (int i = 0; i < IMAGES; i++)
            sum[i] += (double)weight[k] * r.raw[i][SET_CLS];
    }
    r.m->class_weight = weight;
    pass(&r, 0, IMAGES, IMAGES, TAPE_EVAL, true, false);
    for (int i = 0; i < IMAGES; i++) {
        near(r.raw[i][SET_CLS], sum[i]);
        assert_true(fabs(sum[i] / plain.raw[i][SET_CLS] - 1) > 1e-2);
        assert_true(r.raw[i][SET_L1] == plain.raw[i][SET_L1] && r.raw[i][SET_GIOU] == plain.raw[i][SET_GIOU]);
    }
    close_run(&plain);
    close_run(&r);
}

/* Detections end at a score that the caller may give, that score included. */
static void scores_from_the_least_on(void **state)
{
    const struct model_picture picture = { .index = 2, .w = 60, .h = 90 };
    struct run r;

    (void)state;
    open_run(&r);
    pass(&r, 0, IMAGES, IMAGES, TAPE_EVAL, false, true);
    assert_true(r.nfound[2] > 3 && r.found[2][2].score > r.found[2][3].score);
    for (int k = 0; k < r.nfound[2]; k++) {
        struct result found;
        struct err err;

        assert_int_equal(r.m->ops->result(r.m, 1, 0, &picture, r.found[2][k].score, &found, &err), 0);
        assert_true(found.n > k && found.boxes[found.n - 1].score == r.found[2][k].score);
    }
    close_run(&r);
}

#define ONE_STAGE ", \"stages\": 1" /* no box leaves its picture */

/* Detections of a job: at most val.max_det, of val.conf and more. */
static void limits_of_the_job(void **state)
{
    struct run all, few, high;
    char keys[120];

    (void)state;
    open_keys(&all, ONE_STAGE SPARSE_VAL "\"max_det\": 18");
    open_keys(&few, ONE_STAGE SPARSE_VAL "\"max_det\": 4");
    pass(&all, 0, IMAGES, IMAGES, TAPE_EVAL, false, true);
    pass(&few, 0, IMAGES, IMAGES, TAPE_EVAL, false, true);
    assert_true(all.nfound[2] == 18 && few.nfound[2] == 4);
    assert_memory_equal(few.found[2], all.found[2], 4 * sizeof *all.found[2]);
    snprintf(keys, sizeof keys, ONE_STAGE SPARSE_VAL "\"max_det\": 18, \"conf\": %.17g", all.found[2][4].score);
    open_keys(&high, keys);
    pass(&high, 0, IMAGES, IMAGES, TAPE_EVAL, false, true);
    assert_true(high.nfound[2] == 5 && all.found[2][4].score > all.found[2][5].score);
    close_run(&high);
    close_run(&few);
    close_run(&all);
}

/* Without objects the class loss follows from the scores. */
static void keys_of_the_class_loss(void **state)
{
    double want = 0;
    struct run r;

    (void)state;
    open_keys(&r, ONE_STAGE ", \"focal_alpha\": 0.4, \"focal_gamma\": 1.5" SPARSE_VAL "\"max_det\": 18");
    pass(&r, 0, IMAGES, IMAGES, TAPE_EVAL, true, true);
    assert_int_equal(r.nfound[1], 18);
    for (int k = 0; k < 18; k++)
        want += 0.6 * pow(r.found[1][k].score, 1.5) * -log1p(-r.found[1][k].score);
    near(r.raw[1][SET_CLS], want);
    assert_true(want > 0.1);
    close_run(&r);
}

static void a_plan_is_what_a_step_computes(void **state)
{
    struct device *fp32 = dev;

    (void)state;
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision += PRECISION_BF16 - PRECISION_FP32) {
        struct device_options opt = { 1, "generic", (enum precision)precision };
        struct err err;
        struct run r;

        assert_int_equal(cpu_backend_generic()->open(0, &opt, &dev, &err), 0);
        open_keys(&r, ", \"cls_layers\": 2");
        plan_watch(dev);
        assert_int_equal(r.m->ops->plan(r.m, TAPE_TRAIN, 2, 1, canvas[0], &err), 0);
        pass(&r, 0, 2, 2, TAPE_TRAIN, true, false);
        assert_int_equal(tape_backward(r.tape, r.m->params, r.m->nparams, &err), 0);
        plan_compare(dev, precision == PRECISION_BF16 ? "bf16" : "fp32");
        close_run(&r);
        dev->ops->close(dev);
    }
    dev = fp32;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pictures_in_any_company),  cmocka_unit_test(one_output_without_the_other),
                                        cmocka_unit_test(rows_of_training),         cmocka_unit_test(weights_of_classes),
                                        cmocka_unit_test(scores_from_the_least_on), cmocka_unit_test(limits_of_the_job),
                                        cmocka_unit_test(keys_of_the_class_loss),   cmocka_unit_test(a_plan_is_what_a_step_computes) };

    return cmocka_run_group_tests(tests, open_device, close_device);
}
