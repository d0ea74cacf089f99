/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/test_forward.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * The passes of a model, as its device sees them: the convolutions are those announced by plan(), and values that no
 * later layer reads are freed. */
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
#include "worker/core/device.h"
#include "worker/layers/tape.h"
#include "worker/models/builtin.h"
#include "worker/ops/families.h"

const struct device_ops *cpu_backend_generic(void);

enum { NOMINAL = 64, SIZE = 96, SHARDS = 2, IMAGES = 3, MAX_CONVS = 80, MAX_TERMS = 64 };

struct seen {
    int n, h, w, c, pitch, stride, pad, shards, passes;
    const struct param *weight;
    bool bias;
};

static struct seen planned[MAX_CONVS], computed[MAX_CONVS];
static int nplanned, ncomputed;
static size_t written; /* bytes of all convolutions' outputs */

static struct seen seen(const struct tensor *x, const struct conv *cv, const struct param *w, bool bias, int shards)
{
    struct seen s;

    memset(&s, 0, sizeof s); /* padding is compared too */
    s.n = x->n;
    s.h = x->h;
    s.w = x->w;
    s.c = x->c;
    s.pitch = x->stride;
    s.stride = cv->stride;
    s.pad = cv->pad;
    s.shards = shards;
    s.weight = w;
    s.bias = bias;
    return s;
}

static const struct families *real;

static int note_plan(struct device *dev, const struct tensor *x, const struct conv *cv, const struct param *w, bool bias,
                     enum conv_passes passes, int nshards, struct err *err)
{
    (void)dev;
    (void)err;
    assert_true(nplanned < MAX_CONVS);
    for (int s = 1; s < nshards; s++)
        assert_memory_equal(&x[s], &x[0], sizeof *x);
    planned[nplanned] = seen(x, cv, w, bias, nshards);
    planned[nplanned++].passes = (int)passes;
    return 0;
}

static int note_conv(struct device *dev, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w,
                     const float *bias, double *const *stats, int nshards, struct err *err)
{
    assert_true(ncomputed < MAX_CONVS);
    computed[ncomputed++] = seen(&x[0].x, cv, w, bias != NULL, nshards);
    for (int s = 0; s < nshards; s++)
        written += tensor_count(&y[s]) * sizeof(float);
    return real->conv->fwd(dev, y, x, cv, w, bias, stats, nshards, err);
}

/* Whether the data gradient of the convolution with these weights was added to the gradient of another reader. */
static struct {
    const struct param *weight;
    bool added;
} went_back[MAX_CONVS];
static int nwent_back;

static int note_data(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w,
                     int nshards, struct err *err)
{
    assert_true(nwent_back < MAX_CONVS);
    went_back[nwent_back].weight = w;
    went_back[nwent_back++].added = beta != 0.0f;
    return real->conv->bwd_data(dev, dx, beta, dy, cv, w, nshards, err);
}

struct net {
    struct device_ops ops;
    struct families on;
    struct conv_ops conv;
    struct plan_ops plan;
    struct device *dev;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
};

static int net_open(void **state, const char *preset)
{
    json_t *json = json_pack("{s:{s:s,s:i,s:f},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "size", NOMINAL, "width", 0.125,
                             "data", "train", "annotations", "none", "images", "none", "train", "steps", 1, "batch", 1);
    const struct device_options opt = { .threads = 1 };
    struct net *n = calloc(1, sizeof *n);
    struct jobspec *spec;
    struct err err;

    if (!n || jobspec_parse(json, &spec, &err) < 0 || cpu_backend_generic()->open(0, &opt, &n->dev, &err) < 0 ||
        model_open(&models_builtin, spec, (struct model_classes){ 2, NULL, NULL }, n->dev, &n->model, &err) < 0)
        return -1;
    jobspec_free(spec);
    json_decref(json);
    real = n->dev->on;
    n->on = *real;
    n->conv = *real->conv;
    n->conv.fwd = note_conv;
    n->conv.bwd_data = note_data;
    n->plan.conv = note_plan;
    n->on.conv = &n->conv;
    n->on.plan = &n->plan;
    n->dev->on = &n->on;
    n->arena = arena_new(n->dev, 1 << 20);
    n->tape = tape_new(n->dev, n->arena, n->model->nparams);
    nplanned = ncomputed = nwent_back = 0;
    written = 0;
    *state = n;
    return 0;
}

static int tiny_open(void **state)
{
    return net_open(state, "yolov3_tiny");
}

static int large_open(void **state)
{
    return net_open(state, "yolov3");
}

static int net_close(void **state)
{
    struct net *n = *state;

    tape_free(n->tape);
    arena_free(n->arena);
    model_free(n->model);
    n->dev->ops->close(n->dev);
    free(n);
    return 0;
}

static void forward(struct net *n, int size)
{
    float *pixels = calloc((size_t)(SHARDS * IMAGES * size * size * 3), sizeof *pixels);
    const struct box_list none[SHARDS] = { { 0 } };
    struct shard_batch shard[SHARDS];
    struct batch batch;
    struct tensor x[SHARDS];
    struct err err;

    assert_non_null(pixels);
    for (int s = 0; s < SHARDS; s++)
        x[s] = tensor_f32(pixels + s * IMAGES * size * size * 3, IMAGES, size, size, 3);
    batch = boxes_batch(shard, x, none, SHARDS);
    tape_begin(n->tape, TAPE_EVAL, SHARDS, NULL);
    if (n->model->ops->forward(n->model, n->tape, &batch, &(struct model_want){ .results = true }, &err) < 0)
        fail_msg("%s", err.msg);
    free(pixels);
}

/* On a device that wants pixels of whole rows too. */
static void what_is_planned_is_computed(void **state)
{
    struct net *n = *state;
    struct err err;

    for (n->dev->row = 0; n->dev->row <= 64; n->dev->row += 64) {
        int gaps = 0;

        nplanned = ncomputed = 0;
        assert_int_equal(n->model->ops->plan(n->model, TAPE_EVAL, IMAGES, SHARDS, (struct canvas){ SIZE, SIZE }, &err), 0);
        forward(n, SIZE);
        assert_int_equal(nplanned, 13);
        assert_int_equal(ncomputed, nplanned);
        for (int i = 0; i < nplanned; i++) {
            assert_int_equal(planned[i].passes, CONV_FORWARD);
            assert_memory_equal(&planned[i], &computed[i], sizeof planned[i]);
            gaps += planned[i].pitch > planned[i].c;
        }
        assert_int_equal(planned[0].pitch, 3); /* images are dense */
        assert_int_equal(gaps > 0, n->dev->row > 0);
    }
}

/* ---- and back ---- */

/* All gradients and statistics share a single destination: it does not matter here. */
static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    (void)p;
    (void)shard;
    *ret_written = false;
    return arg;
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
    (void)index;
    (void)use;
    (void)shard;
    return arg;
}

/* raw: the loss terms; first (may be NULL): gradient of the first convolution's weights. */
static void train(struct net *n, double *raw, float *first)
{
    static const int32_t no_boxes[IMAGES + 1];
    size_t most = 2 * 1024 + 1, pixels = (size_t)IMAGES * SIZE * SIZE * 3;
    const struct box_list truth = { no_boxes, NULL, NULL, 0 };
    struct tape_hooks hooks = { .grad_dest = grad_dest, .grad_ready = grad_ready, .stats_dest = stats_dest };
    struct shard_batch shard;
    struct batch batch;
    struct tensor x;
    float *image = calloc(pixels, sizeof *image);
    struct err err;

    for (int i = 0; i < n->model->nparams; i++)
        most = n->model->params[i]->count > most ? n->model->params[i]->count : most;
    hooks.arg = calloc(most, sizeof(double));
    assert_true(image && hooks.arg);
    for (size_t i = 0; i < pixels; i++)
        image[i] = (float)(i * 2654435761u % 1024) / 1024.0f;
    x = tensor_f32(image, IMAGES, SIZE, SIZE, 3);
    batch = boxes_batch(&shard, &x, &truth, 1);
    tape_begin(n->tape, TAPE_TRAIN, 1, &hooks);
    if (n->model->ops->forward(n->model, n->tape, &batch, &(struct model_want){ .raw = &raw, .images_of_step = 1 }, &err) < 0 ||
        tape_backward(n->tape, n->model->params, n->model->nparams, &err) < 0)
        fail_msg("%s", err.msg);
    if (first) /* written last */
        memcpy(first, hooks.arg, n->model->params[0]->count * sizeof *first);
    free(image);
    free(hooks.arg);
}

static enum conv_passes planned_for(const struct param *weight)
{
    for (int i = 0; i < nplanned; i++)
        if (planned[i].weight == weight)
            return (enum conv_passes)planned[i].passes;
    fail_msg("'%s' was not planned", weight->name);
    return CONV_FORWARD;
}

/* The pictures have no gradient. All other values have a gradient, and each reader adds to the gradients of later
 * readers. */
static void what_goes_back_was_planned(void **state)
{
    struct net *n = *state;
    double raw[MAX_TERMS];
    int added = 0;
    struct err err;

    assert_int_equal(n->model->ops->plan(n->model, TAPE_TRAIN, IMAGES, 1, (struct canvas){ SIZE, SIZE }, &err), 0);
    assert_int_equal(planned[0].passes, CONV_WEIGHTS);
    train(n, raw, NULL);
    assert_int_equal(nwent_back, nplanned - 1);
    for (int i = 0; i < nwent_back; i++) {
        assert_int_equal(planned_for(went_back[i].weight), went_back[i].added ? CONV_DATA_ADD : CONV_DATA);
        added += went_back[i].added;
    }
    assert_true(added > 0 && added < nwent_back);
}

static void *alloc_nan(struct device *dev, size_t bytes)
{
    void *p = cpu_backend_generic()->alloc(dev, bytes);

    return p ? memset(p, 0xFF, bytes) : NULL;
}

/* Gaps after the channels hold NaN here: if a gap is read, the result shows it. */
static void gaps_change_no_number(void **state)
{
    struct net *n = *state;
    size_t bytes = n->model->params[0]->count * sizeof(float);
    double raw[2][MAX_TERMS];
    float *first[2] = { malloc(bytes), malloc(bytes) };

    assert_true(first[0] && first[1]);
    n->ops = *n->dev->ops;
    n->ops.alloc = alloc_nan;
    n->dev->ops = &n->ops;
    for (int i = 0; i < 2; i++) {
        tape_free(n->tape);
        arena_free(n->arena);
        n->arena = arena_new(n->dev, 1 << 20);
        n->tape = tape_new(n->dev, n->arena, n->model->nparams);
        n->dev->row = i * 64;
        nwent_back = ncomputed = 0;
        train(n, raw[i], first[i]);
    }
    assert_true(raw[0][YOLO_TOTAL] > 0);
    assert_memory_equal(raw[0], raw[1], n->model->raw_terms * sizeof(double));
    assert_memory_equal(first[0], first[1], bytes);
    free(first[0]), free(first[1]);
}

/* The arena holds more than the outputs of convolutions, yet these outputs together are larger than the peak. */
static void memory_goes_back(void **state)
{
    struct net *n = *state;

    forward(n, SIZE);
    assert_true(arena_peak(n->arena) < written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_planned_is_computed, tiny_open, net_close),
        cmocka_unit_test_setup_teardown(what_goes_back_was_planned, tiny_open, net_close),
        cmocka_unit_test_setup_teardown(what_goes_back_was_planned, large_open, net_close),
        cmocka_unit_test_setup_teardown(gaps_change_no_number, tiny_open, net_close),
        cmocka_unit_test_setup_teardown(memory_goes_back, tiny_open, net_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
