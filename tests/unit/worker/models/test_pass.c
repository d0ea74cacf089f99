/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/test_pass.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu cuda
 * Pictures through a model, as validation and predict send them: the losses and results of a picture do not depend on
 * its neighbours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/batches.h"
#include "worker/core/arena.h"
#include "worker/core/tree.h"
#include "worker/layers/tape.h"
#include "worker/models/builtin.h"
#include "worker/models/pass.h"

const struct device_ops *cpu_backend_generic(void);
const struct device_ops *cuda_backend_emu(void);

enum { SIZE = 64, IMAGES = 3, CLASSES = 2, BOXES = 3, MAX_TERMS = 16, MAX_FOUND = 100, PIXELS = SIZE * SIZE * 3 };

/* The objects of three pictures: two boxes, no box, one box. */
static const int32_t offset[IMAGES + 1] = { 0, 2, 2, 3 }, cls[BOXES] = { 0, 1, 1 };
static const float boxes[BOXES][4] = { { .3f, .3f, .2f, .3f }, { .7f, .6f, .5f, .5f }, { .5f, .5f, .4f, .2f } };

struct looks {
    struct device *dev;
    struct jobspec *spec;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct pass *pass;
    float *pixels; /* [IMAGES] pictures; device memory, as the lists */
    int32_t *offset, *cls;
    float *box;
};

static void *put(struct device *dev, const void *from, size_t bytes)
{
    struct err err;
    void *to = dev->ops->alloc(dev, bytes);

    assert_true(to && dev->ops->upload(dev, to, from, bytes, &err) >= 0);
    return to;
}

static void look(struct looks *l, const struct device_ops *backend)
{
    json_t *json = json_pack("{s:{s:s,s:i,s:f,s:f},s:{s:{s:s,s:s}},s:{s:i,s:i},s:{s:f,s:i}}", "model", "preset", "yolov3_tiny", "size",
                             SIZE, "width", 0.05, "obj_prior", 0.3, "data", "train", "annotations", "none", "images", "none", "train",
                             "steps", 1, "batch", 1, "val", "conf", 0.1, "max_det", MAX_FOUND);
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    float *pixels = calloc(IMAGES * PIXELS, sizeof *pixels);
    struct err err = { 0 };

    assert_true(json && pixels);
    for (size_t i = 0; i < IMAGES * PIXELS; i++)
        pixels[i] = (float)(i * 2654435761u % 1021) / 1021.0f;
    if (jobspec_parse(json, &l->spec, &err) < 0 || backend->open(0, &opt, &l->dev, &err) < 0 ||
        model_open(&models_builtin, l->spec, (struct model_classes){ CLASSES, NULL, NULL }, l->dev, &l->model, &err) < 0)
        fail_msg("%s", err.msg);
    l->arena = arena_new(l->dev, 1 << 20);
    l->tape = tape_new(l->dev, l->arena, l->model->nparams);
    if (pass_open(&(struct pass_options){ l->model, l->tape, IMAGES, .losses = true, .results = true }, &l->pass, &err) < 0)
        fail_msg("%s", err.msg);
    l->pixels = put(l->dev, pixels, IMAGES * PIXELS * sizeof *pixels);
    l->offset = put(l->dev, offset, sizeof offset);
    l->cls = put(l->dev, cls, sizeof cls);
    l->box = put(l->dev, boxes, sizeof boxes);
    free(pixels);
    json_decref(json);
}

static void look_away(struct looks *l)
{
    void *mem[] = { l->pixels, l->offset, l->cls, l->box };

    for (size_t i = 0; i < sizeof mem / sizeof *mem; i++)
        l->dev->ops->free(l->dev, mem[i]);
    pass_close(l->pass);
    tape_free(l->tape);
    arena_free(l->arena);
    model_free(l->model);
    l->dev->ops->close(l->dev);
    jobspec_free(l->spec);
}

/* n pictures from `first` on. */
static void run(struct looks *l, int first, int n, double *ret_losses)
{
    const struct box_list truth = { l->offset + first, l->cls, (const float *)l->box, BOXES };
    const struct tensor x = tensor_f32(l->pixels + (size_t)first * PIXELS, n, SIZE, SIZE, 3);
    struct shard_batch shard;
    const struct batch b = boxes_batch(&shard, &x, &truth, 1);
    struct err err;

    if (pass_run(l->pass, &b, &err) < 0)
        fail_msg("%s", err.msg);
    pass_losses(l->pass, NULL, ret_losses);
}

static int found(struct looks *l, int i, double least, struct detection ret[MAX_FOUND])
{
    struct result r;
    struct err err;

    assert_int_equal(pass_result(l->pass, i, 40 + i, 2 * SIZE, SIZE, least, &r, &err), 0);
    assert_int_equal(r.kind, RESULT_BOXES);
    assert_int_equal(r.image, 40 + i);
    memcpy(ret, r.boxes, (size_t)r.n * sizeof *ret);
    return r.n;
}

static void check_pictures(const struct device_ops *backend)
{
    static struct detection beside[IMAGES][MAX_FOUND], alone[MAX_FOUND];
    double all[MAX_TERMS], one[MAX_TERMS], each[IMAGES][MAX_TERMS];
    struct looks l;
    int n[IMAGES];

    look(&l, backend);
    run(&l, 0, IMAGES, all);
    for (int i = 0; i < IMAGES; i++)
        n[i] = found(&l, i, NAN, beside[i]);
    for (int i = 0; i < IMAGES; i++) {
        run(&l, i, 1, one);
        memcpy(each[i], one, sizeof one);
        assert_true(n[i] > 0);
        for (int k = 0; k < n[i]; k++)
            beside[i][k].image = 40; /* as the first of its batch */
        assert_int_equal(found(&l, 0, NAN, alone), n[i]);
        assert_memory_equal(alone, beside[i], (size_t)n[i] * sizeof *alone);
    }
    for (int k = 0; k < 2 * l.model->nterms; k++)
        assert_true(fabs(all[k] - tree_sum(&each[0][k], MAX_TERMS, IMAGES)) <= 1e-12 * fabs(all[k]));
    assert_int_equal(all[1], IMAGES);
    assert_true(each[0][0] != each[2][0] && each[1][10] == 0 && each[0][10] > 0); /* a picture without boxes has no overlap */
    look_away(&l);
}

static void pictures_do_not_see_each_other(void **state)
{
    (void)state;
    check_pictures(cpu_backend_generic());
    check_pictures(cuda_backend_emu());
}

/* The lowest score is the job's, or the caller's; boxes are in pixels of the picture, inside it. */
static void results_are_those_asked_for(void **state)
{
    static struct detection job[MAX_FOUND], sure[MAX_FOUND];
    double losses[MAX_TERMS];
    struct looks l;
    int n, fewer;

    (void)state;
    look(&l, cpu_backend_generic());
    run(&l, 0, IMAGES, losses);
    n = found(&l, 1, NAN, job);
    fewer = found(&l, 1, job[n / 2].score, sure);
    assert_true(n > 2 && fewer > 0 && fewer < n);
    for (int i = 0; i < n; i++) {
        assert_true(job[i].score > 0.1 && (i == 0 || job[i].score <= job[i - 1].score));
        assert_true(job[i].box[0] >= 0 && job[i].box[0] + job[i].box[2] <= 2 * SIZE);
        assert_true(job[i].box[1] >= 0 && job[i].box[1] + job[i].box[3] <= SIZE);
    }
    for (int i = 0; i < fewer; i++)
        assert_true(sure[i].score > job[n / 2].score);
    look_away(&l);
}

/* ---- terms that are means over images ---- */

enum { RAW = 2 };
static const struct loss_term both[] = { { "total", TERM_RATIO }, { "mean", TERM_MEAN } };
static const double rows[IMAGES][RAW] = { { 6, 2 }, { 5, 0 }, { 1, 4 } }; /* the second has nothing to divide by */

static int leave_rows(struct model *m, struct tape *t, const struct batch *b, const struct model_want *want, struct err *err)
{
    (void)t;
    assert_false(want->results);
    for (int i = 0; i < b->shard[0].n; i++)
        assert_int_equal(m->dev->ops->upload(m->dev, want->raw[i], rows[i], sizeof rows[i], err), 0);
    return 0;
}

static void same_terms(const struct model *m, const double *raw, int images, double *ret)
{
    (void)m;
    (void)images;
    ret[0] = ret[2] = raw[0];
    ret[1] = ret[3] = raw[1];
}

/* Images that are left out add nothing to the sums, and are not counted. */
static void check_left_out(struct pass *pass, const struct batch *b)
{
    static const bool second[IMAGES] = { false, true, false }, all[IMAGES] = { true, true, true };
    struct err err;
    double ret[4];

    assert_int_equal(pass_run(pass, b, &err), 0);
    pass_losses(pass, second, ret);
    assert_true(ret[0] == 7 && ret[1] == 6 && ret[2] == 3.25 && ret[3] == 2);
    assert_int_equal(pass_run(pass, b, &err), 0);
    pass_losses(pass, all, ret);
    assert_true(ret[0] == 0 && ret[1] == 0 && ret[2] == 0 && ret[3] == 0);
}

static void means_are_over_images(void **state)
{
    static const struct model_ops ops = { .name = "rows", .forward = leave_rows, .sum_terms = same_terms };
    struct model m = { .ops = &ops, .terms = both, .nterms = 2, .raw_terms = RAW };
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    struct shard_batch shard = { .canvas = { SIZE, SIZE } };
    struct arena *arena;
    struct pass *pass;
    struct tape *tape;
    double ret[4];
    struct err err;

    (void)state;
    assert_int_equal(cpu_backend_generic()->open(0, &opt, &m.dev, &err), 0);
    arena = arena_new(m.dev, 1 << 16);
    tape = tape_new(m.dev, arena, 0);
    assert_int_equal(pass_open(&(struct pass_options){ &m, tape, IMAGES, .losses = true }, &pass, &err), 0);
    for (int n = IMAGES; n >= 1; n -= 2) { /* the last batch may be short */
        shard.n = n;
        assert_int_equal(pass_run(pass, &(struct batch){ .nshards = 1, .shard = &shard }, &err), 0);
        pass_losses(pass, NULL, ret);
        assert_true(ret[0] == (n == 1 ? 6 : 12) && ret[1] == (n == 1 ? 2 : 6));
        assert_true(ret[2] == (n == 1 ? 3 : 3.25) && ret[3] == n);
    }
    shard.n = IMAGES;
    check_left_out(pass, &(struct batch){ .nshards = 1, .shard = &shard });
    pass_close(pass);
    tape_free(tape);
    arena_free(arena);
    m.dev->ops->close(m.dev);
}

/* ---- keys of random numbers ---- */

static void keys_know_neither_ranks_nor_batches(void **state)
{
    const int32_t first[2] = { 70000, 9 }, second[1] = { 70000 };
    const struct shard_batch shards[2] = { { .shard = 5, .n = 2, .index = first }, { .shard = 6, .n = 1, .index = second } };
    const struct batch train = { .seed = 3, .step = 8, .nshards = 2, .shard = shards };
    const struct batch val = { .seed = 3, .nshards = 2, .shard = shards };
    struct philox_key k = model_key(&train, "test.a", 1, 2);

    (void)state;
    assert_true(k.seed == 3 && k.step == 7 && k.shard == 6 && k.substream == 2 && k.op == philox_op("test.a"));
    k = model_key(&val, "test.a", 0, 0);
    assert_true(k.seed == 3 && k.step == 70000 && k.shard >= JOB_MAX_SHARDS && k.substream == 0 && k.op == philox_op("test.a"));
    assert_true(model_key(&val, "test.a", 1, 0).step == 70000 && model_key(&val, "test.a", 0, 1).step == 9);
    assert_true(model_key(&val, "test.b", 0, 0).op != k.op);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_do_not_see_each_other),
        cmocka_unit_test(results_are_those_asked_for),
        cmocka_unit_test(means_are_over_images),
        cmocka_unit_test(keys_know_neither_ranks_nor_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
