/* tests/unit/test_forward.c - the forward pass of a model, as its device sees it: the convolutions are those that plan() had announced, and what no later
 * layer reads is given back. uses: proto worker/models worker/layers worker/eval worker/comm worker/core cpu */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "worker/core/arena.h"
#include "worker/core/device.h"
#include "worker/core/tape.h"
#include "worker/models/model.h"

const struct device_ops *cpu_backend_generic(void);

enum { NOMINAL = 64, SIZE = 96, SHARDS = 2, IMAGES = 3, MAX_CONVS = 64 };

struct seen {
    int n, h, w, c, stride, pad, shards, passes;
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
    s.stride = cv->stride;
    s.pad = cv->pad;
    s.shards = shards;
    s.weight = w;
    s.bias = bias;
    return s;
}

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
    return cpu_backend_generic()->conv_fwd(dev, y, x, cv, w, bias, stats, nshards, err);
}

struct net {
    struct device_ops ops;
    struct device *dev;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
};

static int net_open(void **state)
{
    json_t *json = json_pack("{s:{s:s,s:i,s:f},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", "yolov3_tiny", "size", NOMINAL, "width",
                             0.125, "data", "train", "annotations", "none", "images", "none", "train", "steps", 1, "batch", 1);
    const struct device_options opt = { .threads = 1 };
    struct net *n = calloc(1, sizeof *n);
    struct jobspec *spec;
    struct err err;

    if (!n || jobspec_parse(json, &spec, &err) < 0 || cpu_backend_generic()->open(0, &opt, &n->dev, &err) < 0 ||
        model_open(spec, 2, n->dev, &n->model, &err) < 0)
        return -1;
    jobspec_free(spec);
    json_decref(json);
    n->ops = *n->dev->ops;
    n->ops.conv_plan = note_plan;
    n->ops.conv_fwd = note_conv;
    n->dev->ops = &n->ops;
    n->arena = arena_new(n->dev, 1 << 20);
    n->tape = tape_new(n->dev, n->arena, n->model->nparams);
    nplanned = ncomputed = 0;
    written = 0;
    *state = n;
    return 0;
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
    struct tensor x[SHARDS];
    struct err err;

    assert_non_null(pixels);
    for (int s = 0; s < SHARDS; s++)
        x[s] = tensor_f32(pixels + s * IMAGES * size * size * 3, IMAGES, size, size, 3);
    tape_begin(n->tape, TAPE_EVAL, SHARDS, NULL);
    if (n->model->ops->forward(n->model, n->tape, x, &err) < 0)
        fail_msg("%s", err.msg);
    free(pixels);
}

static void what_is_planned_is_computed(void **state)
{
    struct net *n = *state;
    struct err err;

    assert_int_equal(n->model->ops->plan(n->model, TAPE_EVAL, IMAGES, SHARDS, SIZE, &err), 0);
    forward(n, SIZE);
    assert_int_equal(nplanned, 13);
    assert_int_equal(ncomputed, nplanned);
    for (int i = 0; i < nplanned; i++) {
        assert_int_equal(planned[i].passes, CONV_FORWARD);
        assert_memory_equal(&planned[i], &computed[i], sizeof planned[i]);
    }
}

/* The pictures have no gradient. */
static void training_passes_back_to_all_but_the_first(void **state)
{
    struct net *n = *state;
    struct err err;

    assert_int_equal(n->model->ops->plan(n->model, TAPE_TRAIN, IMAGES, SHARDS, SIZE, &err), 0);
    assert_int_equal(nplanned, 13);
    for (int i = 0; i < nplanned; i++)
        assert_int_equal(planned[i].passes, i == 0 ? CONV_WEIGHTS : CONV_DATA);
}

/* Outputs of convolutions are not all there is, yet together they are more than what lives at once. */
static void memory_goes_back(void **state)
{
    struct net *n = *state;

    forward(n, SIZE);
    assert_true(arena_peak(n->arena) < written);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_planned_is_computed, net_open, net_close),
        cmocka_unit_test_setup_teardown(training_passes_back_to_all_but_the_first, net_open, net_close),
        cmocka_unit_test_setup_teardown(memory_goes_back, net_open, net_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
