/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/depth/test_depth_model.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * Depth networks: statistics of each use, sizes, the results for a picture, and plans. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/worker/models/depth/depth_models.h"
#include "tests/unit/worker/models/plan_watch.h"
#include "worker/core/arena.h"
#include "worker/data/make/batch.h"
#include "worker/data/sample/frames.h"
#include "worker/eval/depth/ate.h"
#include "worker/layers/layers.h"
#include "worker/models/depth/depth.h"

enum { SOURCES = 2, ARRAYS = 16 };

/* ---- a step ---- */

struct step {
    struct model *m;
    float **grad;   /* [param] */
    double **stats; /* [norm] */
    int *uses;      /* [norm], the most that was asked for */
    double *raw, terms[64];
    void *array[ARRAYS];
};

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    struct step *s = arg;

    assert_int_equal(shard, 0);
    *ret_written = false;
    for (int i = 0; i < s->m->nparams; i++)
        if (s->m->params[i] == p) {
            if (!s->grad[i])
                s->grad[i] = calloc(p->count, sizeof(float));
            return s->grad[i];
        }
    fail_msg("%s is no parameter of the model", p->name);
    return NULL;
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    (void)arg;
    (void)p;
    (void)err;
    return 0;
}

static double *stats_dest(void *arg, int index, int use, int shard)
{
    struct step *s = arg;

    (void)shard;
    s->uses[index] = use + 1 > s->uses[index] ? use + 1 : s->uses[index];
    if (!s->stats[index])
        s->stats[index] = calloc(2 * s->m->norms[index].mean->count + 1, sizeof(double));
    return s->stats[index];
}

static struct shard_batch frames_of(struct step *s, const struct batch_form *form)
{
    const float camera[4] = { 0.6f * WIDTH, 1.9f * HEIGHT, 0.5f * WIDTH, 0.5f * HEIGHT };
    struct shard_batch b = { .n = IMAGES, .canvas = { HEIGHT, WIDTH } };

    assert_true(form->narrays <= ARRAYS);
    for (int k = 0; k < form->narrays; k++) {
        size_t bytes = batch_bytes(form, &b, k);
        uint8_t *mem = calloc(1, bytes);
        uint32_t noise = (uint32_t)k + 1;

        assert_non_null(mem);
        for (size_t i = 0; i < bytes && form->array[k].canvas; i++) {
            noise = noise * 1664525u + 1013904223u;
            mem[i] = (uint8_t)(noise >> 24);
        }
        for (int i = 0; i < IMAGES && strcmp(form->array[k].name, "camera") == 0; i++)
            memcpy(mem + (size_t)i * sizeof camera, camera, sizeof camera);
        b.array[k] = s->array[k] = mem;
    }
    return b;
}

static void step_run(struct step *s, struct model *m, int nsources)
{
    const struct batch_form *form = frames_form(nsources);
    const struct tape_hooks hooks = { s, grad_dest, grad_ready, stats_dest, NULL };
    struct arena *arena = arena_new(dev, (size_t)1 << 20);
    struct tape *t = tape_new(dev, arena, m->nparams);
    struct shard_batch shard;
    struct batch b = { .form = form, .seed = 1, .step = 1, .nshards = 1, .shard = &shard };
    struct model_want want = { .images_of_step = IMAGES, .shards_of_step = 1 };
    struct err err = { 0 };

    *s = (struct step){ .m = m,
                        .grad = calloc((size_t)m->nparams, sizeof(float *)),
                        .stats = calloc((size_t)m->nnorms, sizeof(double *)),
                        .uses = calloc((size_t)m->nnorms, sizeof(int)),
                        .raw = calloc(m->raw_terms, sizeof(double)) };
    assert_true(s->grad && s->stats && s->uses && s->raw && (size_t)m->nterms * 2 <= sizeof s->terms / sizeof *s->terms);
    shard = frames_of(s, form);
    want.raw = &s->raw;
    tape_begin(t, TAPE_TRAIN, 1, &hooks);
    if (m->ops->forward(m, t, &b, &want, &err) < 0 || tape_backward(t, m->params, m->nparams, &err) < 0)
        fail_msg("%s", err.msg);
    m->ops->sum_terms(m, s->raw, IMAGES, s->terms);
    tape_free(t);
    arena_free(arena);
}

static void step_free(struct step *s)
{
    for (int i = 0; i < s->m->nparams; i++)
        free(s->grad[i]);
    for (int i = 0; i < s->m->nnorms; i++)
        free(s->stats[i]);
    for (int i = 0; i < ARRAYS; i++)
        free(s->array[i]);
    free(s->grad);
    free(s->stats);
    free(s->uses);
    free(s->raw);
}

static bool is_of(const char *name, const char *part)
{
    return strncmp(name, part, strlen(part)) == 0;
}

static int uses_of(const struct step *s, const char *norm_weight)
{
    for (int i = 0; i < s->m->nnorms; i++)
        if (strcmp(s->m->norms[i].gamma->name, norm_weight) == 0)
            return s->uses[i];
    fail_msg("no normalisation has %s", norm_weight);
    return -1;
}

/* ---- tests ---- */

/* Specs featdepth section 5.5: the network of depth is used once, that of motion once a source, the stem that sees
 * features once a frame. */
static void statistics_of_each_use(void **state)
{
    struct model *m = opened("featdepth_joint_r18", NULL);
    struct step s = { 0 };

    (void)state;
    step_run(&s, m, SOURCES);
    for (int i = 0; i < m->nnorms; i++)
        assert_int_equal(s.uses[i], m->norms[i].uses);
    assert_int_equal(uses_of(&s, "depth.encoder.layer4.1.bn2.weight"), 1);
    assert_int_equal(uses_of(&s, "pose.encoder.layer4.1.bn2.weight"), SOURCES);
    assert_int_equal(uses_of(&s, "extractor.encoder.bn1.weight"), 1 + SOURCES);
    assert_int_equal(uses_of(&s, "extractor.encoder.layer1.0.bn1.weight"), 1);
    step_free(&s);
    model_free(m);
}

/* Numbers of parameters that begin so: trained ones, or running statistics. */
static size_t numbers_of(const struct model *m, const char *part, bool running)
{
    size_t n = 0;

    for (int i = 0; i < m->nparams; i++)
        if (is_of(m->params[i]->name, part) && (strstr(m->params[i]->name, "running_") != NULL) == running)
            n += m->params[i]->count;
    return n;
}

static void starts_as(const struct model *m, const char *name, enum param_init init, double value)
{
    for (int i = 0; i < m->nparams; i++)
        if (strcmp(m->params[i]->name, name) == 0) {
            assert_int_equal(m->params[i]->start.init, init);
            assert_float_equal(m->params[i]->start.value, value, 1e-12);
            return;
        }
    fail_msg("no parameter %s", name);
}

/* Networks of full width, with untouched memory: specs featdepth sections 1.1 to 1.6 (the decoder "upconv" is
 * monodepth2's own). */
static void networks_are_as_large_as_featdepth_s(void **state)
{
    static const struct {
        const char *preset, *decoder, *part;
        size_t trained, running;
    } parts[] = {
        { "featdepth_joint_r18", "crp", "depth.encoder.", 11176512, 9600 },
        { "featdepth_joint_r18", "crp", "depth.decoder.", 8521476, 0 },
        { "featdepth_joint_r18", "upconv", "depth.decoder.", 3152724, 0 },
        { "featdepth_joint_r18", "crp", "pose.encoder.", 11185920, 9600 },
        { "featdepth_joint_r18", "crp", "pose.decoder.", 1313030, 0 },
        { "featdepth_joint_r18", "crp", "extractor.encoder.", 11176512, 9600 },
        { "featdepth_joint_r18", "crp", "extractor.decoder.", 2364476, 0 },
        { "featdepth_joint_r50", "crp", "depth.encoder.", 23508032, 53120 },
        { "featdepth_joint_r50", "crp", "depth.decoder.", 9651972, 0 },
        { "featdepth_joint_r50", "crp", "pose.encoder.", 11185920, 9600 },
        { "featdepth_joint_r50", "crp", "extractor.decoder.", 5903420, 0 },
        { "featdepth_autoencoder_r50", "crp", "depth.", 0, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        json_t *root = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", parts[i].preset, "data", "train",
                                 "annotations", "a", "images", "i", "train", "steps", 1, "batch", IMAGES);
        struct jobspec *spec = NULL;
        struct model *m = NULL;
        struct err err = { 0 };

        if (strcmp(parts[i].decoder, "crp") != 0)
            json_object_set_new(json_object_get(root, "model"), "decoder", json_string(parts[i].decoder));
        if (jobspec_parse(root, &spec, &err) < 0 || depth_new(spec, 0, dev, &m, &err) < 0)
            fail_msg("%s", err.msg);
        json_decref(root);
        jobspec_free(spec);
        assert_int_equal(numbers_of(m, parts[i].part, false), parts[i].trained);
        assert_int_equal(numbers_of(m, parts[i].part, true), parts[i].running);
        if (i == 0) {
            starts_as(m, "depth.encoder.conv1.weight", INIT_NORMAL, sqrt(2.0 / (64 * 49)));
            starts_as(m, "pose.encoder.layer2.0.conv1.weight", INIT_NORMAL, sqrt(2.0 / (128 * 9)));
            starts_as(m, "depth.decoder.iconv3.conv.weight", INIT_UNIFORM, 1 / sqrt(513 * 9));
            starts_as(m, "depth.decoder.iconv3.conv.bias", INIT_UNIFORM, 1 / sqrt(513 * 9));
            starts_as(m, "pose.decoder.conv3.weight", INIT_UNIFORM, 1.0 / 16);
        }
        model_free(m);
    }
}

/* Returns the network's result for `image`, a picture of w x h, with or without losses. */
static void look_at(struct step *s, struct model *m, const struct batch *b, bool views, bool losses, int image, int w, int h,
                    struct result *ret)
{
    const struct model_picture picture = { image, w, h, place_letterbox(w, h, m->canvas) };
    struct arena *arena = arena_new(dev, (size_t)1 << 20);
    struct tape *t = tape_new(dev, arena, m->nparams);
    double *rows[IMAGES] = { s->raw, s->raw + m->raw_terms };
    struct model_want want = { .results = true, .views = views, .raw = losses ? rows : NULL };
    struct err err = { 0 };

    tape_begin(t, TAPE_EVAL, 1, NULL);
    if (m->ops->forward(m, t, b, &want, &err) < 0 || m->ops->result(m, 0, image, &picture, NAN, ret, &err) < 0)
        fail_msg("%s", err.msg);
    tape_free(t);
    arena_free(arena);
}

static void look(struct step *s, struct model *m, const struct batch *b, bool views, bool losses, int image, struct result *ret)
{
    look_at(s, m, b, views, losses, image, WIDTH, HEIGHT, ret);
}

static void fill_param(struct model *m, const char *name, float factor, float offset)
{
    for (int i = 0; i < m->nparams; i++)
        for (size_t k = 0; k < m->params[i]->count && strcmp(m->params[i]->name, name) == 0; k++)
            m->params[i]->data[k] = factor * m->params[i]->data[k] + offset;
}

/* Specs featdepth section 3.8, from a map of `from` numbers along this axis to one of `to`. */
static void between(int i, int from, int to, int *ret_lo, int *ret_hi, double *ret_part)
{
    double at = fmax((i + 0.5) * from / to - 0.5, 0);

    *ret_lo = (int)at;
    *ret_hi = *ret_lo + 1 < from ? *ret_lo + 1 : *ret_lo;
    *ret_part = at - *ret_lo;
}

/* The largest disparities are half as wide and high as the network's input. They are resized to the picture, and depth
 * is computed from the resized values. A picture of exactly their size shows them unchanged. */
static void depth_of_a_picture(void **state)
{
    enum { W = WIDTH / 2, H = HEIGHT / 2, WIDE = 83, HIGH = 131 };
    static const float bias[] = { 60, -60 }, depth[] = { 0.1f, 100 };
    static double inverse[H][W];
    const struct batch_form *form = frames_form(SOURCES);
    struct model *m = opened("featdepth_baseline_r18", NULL);
    struct step s = { .m = m, .raw = calloc(IMAGES * m->raw_terms, sizeof(double)) };
    struct shard_batch shard = frames_of(&s, form);
    const struct batch b = { .form = form, .seed = 1, .step = 1, .nshards = 1, .shard = &shard };
    double least = 1e9, most = 0;
    struct result r;

    (void)state;
    fill_param(m, "depth.decoder.disp1.0.conv.weight", 40, 0);
    look_at(&s, m, &b, false, false, 1, W, H, &r);
    assert_true(r.kind == RESULT_DEPTH && r.image == 1 && r.depth.w == W && r.depth.h == H);
    for (int i = 0; i < W * H; i++) {
        inverse[i / W][i % W] = 1 / (double)r.depth.value[i];
        least = fmin(least, (double)r.depth.value[i]);
        most = fmax(most, (double)r.depth.value[i]);
    }
    assert_true(most > 2 * least);
    look_at(&s, m, &b, false, false, 1, WIDE, HIGH, &r);
    for (int i = 0; i < WIDE * HIGH; i++) {
        int x[2], y[2];
        double fx, fy, want;

        between(i % WIDE, W, WIDE, &x[0], &x[1], &fx);
        between(i / WIDE, H, HIGH, &y[0], &y[1], &fy);
        want = (1 - fy) * ((1 - fx) * inverse[y[0]][x[0]] + fx * inverse[y[0]][x[1]]) +
               fy * ((1 - fx) * inverse[y[1]][x[0]] + fx * inverse[y[1]][x[1]]);
        assert_float_equal((double)r.depth.value[i] * want, 1, 1e-4);
    }
    fill_param(m, "depth.decoder.disp1.0.conv.weight", 0, 0);
    for (int k = 0; k < 2; k++) { /* the limits of its output */
        fill_param(m, "depth.decoder.disp1.0.conv.bias", 0, bias[k]);
        look_at(&s, m, &b, false, false, 0, WIDE, HIGH, &r);
        for (int i = 0; i < WIDE * HIGH; i++)
            assert_float_equal(r.depth.value[i], depth[k], 1e-5 * depth[k]);
    }
    free(s.raw);
    for (int i = 0; i < ARRAYS; i++)
        free(s.array[i]);
    model_free(m);
}

/* Image 0 has a frame before it and itself; image 1 has itself and the frame after it. Both are the same two frames, so
 * the motion from one to its source is the inverse of the other. */
static void views_of_sources(void **state)
{
    const size_t bytes = (size_t)WIDTH * HEIGHT * 3;
    const struct batch_form *form = frames_form(SOURCES);
    struct model *m = opened("featdepth_baseline_r18", NULL);
    struct step s = { .m = m, .raw = calloc(IMAGES * m->raw_terms, sizeof(double)) };
    struct shard_batch shard = frames_of(&s, form);
    const struct batch b = { .form = form, .seed = 1, .step = 1, .nshards = 1, .shard = &shard };
    uint8_t *seen[1 + SOURCES];
    double there[RESULT_POSE], back[RESULT_POSE], both[RESULT_POSE];
    float with_losses[RESULT_POSE];
    struct result r;

    (void)state;
    for (int k = 0; k < 1 + SOURCES; k++)
        seen[k] = s.array[batch_array_of(form, (const char *[]){ "seen", "seen0", "seen1" }[k])];
    memcpy(seen[0] + bytes, seen[1], bytes);
    memcpy(seen[2] + bytes, seen[0], bytes);
    look(&s, m, &b, false, true, 0, &r);
    assert_int_equal(r.nviews, 0);
    look(&s, m, &b, true, true, 0, &r);
    assert_int_equal(r.nviews, SOURCES);
    memcpy(with_losses, r.views[0].pose, sizeof with_losses);
    look(&s, m, &b, true, false, 0, &r);
    assert_memory_equal(r.views[0].pose, with_losses, sizeof with_losses);
    for (int i = 0; i < RESULT_POSE; i++)
        there[i] = (double)r.views[0].pose[i];
    look(&s, m, &b, true, false, 1, &r);
    for (int i = 0; i < RESULT_POSE; i++)
        back[i] = (double)r.views[1].pose[i];
    pose_times(there, back, both);
    for (int i = 0; i < RESULT_POSE; i++)
        assert_float_equal(both[i], (i % 5 == 0 ? 1 : 0), 1e-6);
    assert_true(fabs(there[3]) + fabs(there[7]) + fabs(there[11]) > 1e-6);
    free(s.raw);
    for (int i = 0; i < ARRAYS; i++)
        free(s.array[i]);
    model_free(m);
}

static void a_plan_is_what_a_step_computes(void **state)
{
    static const char *const presets[] = { "featdepth_baseline_r18", "featdepth_r18", "featdepth_autoencoder_r18", "featdepth_joint_r18" };

    (void)state;
    save_autoencoder();
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        struct model *m = opened(presets[i], strcmp(presets[i], "featdepth_r18") == 0 ? "init_extractor" : NULL);
        struct step s = { 0 };
        struct err err;

        plan_watch(dev);
        assert_int_equal(m->ops->plan(m, TAPE_TRAIN, IMAGES, 1, m->canvas, &err), 0);
        step_run(&s, m, strstr(presets[i], "autoencoder") ? 0 : SOURCES);
        plan_compare(dev, presets[i]);
        step_free(&s);
        model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_of_each_use),
        cmocka_unit_test(networks_are_as_large_as_featdepth_s),
        cmocka_unit_test(depth_of_a_picture),
        cmocka_unit_test(views_of_sources),
        cmocka_unit_test(a_plan_is_what_a_step_computes),
    };
    int rc;

    if (models_open("depth_model") < 0)
        return 1;
    rc = cmocka_run_group_tests_name("depth_model", tests, NULL, NULL);
    models_close();
    return rc;
}
