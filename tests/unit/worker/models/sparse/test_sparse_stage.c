/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/sparse/test_sparse_stage.c
 * uses: proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core cpu
 * One stage of Sparse R-CNN, forward and back, against the vectors `stage` of specs sparse_rcnn section 15, in fp64. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <jansson.h>

#include "tests/unit/worker/models/sparse/sparse_models.h"
#include "worker/core/arena.h"
#include "worker/models/sparse/network.h"
#include "worker/models/sparse/sparse.h"

enum { IMAGES = 2, EACH = 4, ROWS = IMAGES * EACH, D = 8, K = 3, LEVELS = 4, MOST = 8192 };

static json_t *vectors;

static json_t *at(const char *name)
{
    json_t *x = json_object_get(vectors, name);

    assert_non_null(x);
    return x;
}

/* The generator of the vectors, continued from *x. */
static float drawn(uint32_t *x)
{
    *x = (1103515245u * *x + 12345u) & 0x7FFFFFFFu;
    return (float)((int)(*x >> 16) - 16384) / 16384.0f;
}

/* to may be NULL: a new array. more: added to each. */
static float *draw(json_t *of, float scale, float more, float *to, size_t n)
{
    uint32_t x = (uint32_t)json_integer_value(json_is_array(of) ? json_array_get(of, 0) : json_object_get(of, "seed"));

    for (size_t i = 0; i < n; i++)
        to[i] = drawn(&x) * scale + more;
    return to;
}

static float scale_of(json_t *of)
{
    return (float)json_number_value(json_object_get(of, "scale"));
}

static size_t flat(json_t *array, double *ret)
{
    size_t n = 0;

    if (!json_is_array(array)) {
        *ret = json_number_value(array);
        return 1;
    }
    for (size_t i = 0; i < json_array_size(array); i++)
        n += flat(json_array_get(array, i), ret + n);
    return n;
}

static void near(const char *what, double got, double want, double most)
{
    if (!(fabs(got - want) <= 2e-5 * most))
        fail_msg("%s: %.9g, not %.9g (of %g)", what, got, want, most);
}

/* want: nested numbers, or a digest. */
static void compare(const char *what, const float *got, size_t n, json_t *want)
{
    double all[MOST], most = 0, sum = 0, size = 0, dot = 0;
    uint32_t x = 777;

    if (json_is_array(want)) {
        assert_int_equal(flat(want, all), n);
        for (size_t i = 0; i < n; i++)
            most = fmax(most, fabs(all[i]));
        for (size_t i = 0; i < n; i++)
            near(what, (double)got[i], all[i], most);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        sum += (double)got[i];
        size += fabs((double)got[i]);
        dot += (double)got[i] * (double)drawn(&x);
    }
    near(what, sum, json_number_value(json_object_get(want, "sum")), size);
    near(what, size, json_number_value(json_object_get(want, "abs")), size);
    near(what, dot, json_number_value(json_object_get(want, "dot")), size);
    for (size_t i = 0; i < json_array_size(json_object_get(want, "at")); i++) {
        json_t *pair = json_array_get(json_object_get(want, "at"), i);

        near(what, (double)got[json_integer_value(json_array_get(pair, 0))], json_number_value(json_array_get(pair, 1)), size / 10);
    }
}

/* ---- the tape ---- */

struct grads {
    float *of[512]; /* by param.index */
};

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    struct grads *g = arg;

    (void)shard;
    assert_true(p->index < 512);
    *ret_written = false;
    if (!g->of[p->index])
        g->of[p->index] = calloc(p->count, sizeof(float));
    return g->of[p->index];
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    (void)arg, (void)p, (void)err;
    return 0;
}

static void seed(struct tape *t, struct value *v, const float *numbers, size_t n)
{
    struct err err;
    float beta;

    assert_true(v && v->needs_grad);
    assert_int_equal(tape_grad(t, v, &beta, &err), 0);
    assert_int_equal(v->grad[0].stride, v->grad[0].c);
    memcpy(v->grad[0].data, numbers, n * sizeof *numbers);
}

/* Level l in NHWC from the vectors' NCHW, or back. */
static void turn(const struct tensor *s, const float *from, float *to, bool back)
{
    for (int i = 0; i < s->n; i++)
        for (int c = 0; c < s->c; c++)
            for (int p = 0; p < s->h * s->w; p++) {
                int theirs = (i * s->c + c) * s->h * s->w + p, ours = (i * s->h * s->w + p) * s->c + c;

                to[back ? theirs : ours] = from[back ? ours : theirs];
            }
}

static struct value *level_value(struct tape *t, int l)
{
    const struct tensor shape = tensor_f32(NULL, IMAGES, 16 >> l, 24 >> l, D);
    struct value *v = tape_value(t, &shape, true, "level");
    float x[MOST];

    turn(&shape, draw(json_array_get(at("levels"), (size_t)l), 1, 0, x, tensor_count(&shape)), v->x[0].data, false);
    return v;
}

/* Section 6.4, from the gradient of the decoded box. */
static void decode_back(const float *box, const float *delta, const float *g, float *ret)
{
    for (int k = 0; k < 2; k++) {
        double side = (double)box[2 + k] - (double)box[k], out = ((double)g[2 + k] - (double)g[k]) / 2;

        ret[k] = (float)(((double)g[k] + (double)g[2 + k]) * side / 2);
        ret[2 + k] = (float)(out * side * exp((double)delta[2 + k]));
    }
}

static void check_grads(struct model *m, const struct grads *g)
{
    const char *name;
    json_t *want;

    json_object_foreach (at("grads"), name, want) {
        char full[96];
        struct param *p;

        snprintf(full, sizeof full, "head.head_series.0.%s", name);
        p = param_named(m, full);
        assert_true(p && g->of[p->index]);
        compare(name, g->of[p->index], p->count, want);
    }
}

static struct model *stage_model(void)
{
    struct model *m = opened("\"preset\": \"sparse_rcnn_r18_fpn\", \"width\": 0.0625, \"fpn_channels\": 8, \"heads\": 2, \"proposals\": 4, "
                             "\"dynamic_channels\": 8, \"ffn_channels\": 16, \"stages\": 1",
                             NULL, K);
    const char *name;
    json_t *of;

    json_object_foreach (at("seeds"), name, of) {
        char full[96];
        struct param *p;

        snprintf(full, sizeof full, "head.head_series.0.%s", name);
        p = param_named(m, full);
        assert_non_null(p);
        draw(of, 0.25f, (float)json_integer_value(json_array_get(of, 1)), p->data, p->count);
    }
    return m;
}

static void a_stage_and_its_gradients(void **state)
{
    const struct roi_align roi = pyramid_align(7, 2, true);
    const struct tensor rows = tensor_f32(NULL, ROWS, 1, 1, D);
    struct model *m = stage_model();
    struct arena *arena = arena_new(dev, 1 << 20);
    struct tape *t = tape_new(dev, arena, m->nparams);
    struct grads grads = { { NULL } };
    struct tape_hooks hooks = { .arg = &grads, .grad_dest = grad_dest, .grad_ready = grad_ready };
    struct value *level[LEVELS], *q, *next, *logits, *deltas;
    float box[ROWS * 4], g[MOST], dd[ROWS * 4];
    double flat_box[ROWS * 4];
    struct err err;

    (void)state;
    assert_int_equal(flat(at("box"), flat_box), ROWS * 4);
    for (int i = 0; i < ROWS * 4; i++)
        box[i] = (float)flat_box[i];
    tape_begin(t, TAPE_TRAIN, 1, &hooks);
    for (int l = 0; l < LEVELS; l++)
        level[l] = level_value(t, l);
    q = tape_value(t, &rows, true, "q");
    draw(at("q"), scale_of(at("q")), 0, q->x[0].data, ROWS * D);
    next = sparse_stage(sparse_network_of(m), 0, t, layer_roi_align(t, level, &roi, &(struct roi_rows){ box, NULL, NULL, ROWS }), q,
                        &logits, &deltas);
    assert_int_equal(tape_status(t, &err), 0);
    compare("logits", logits->x[0].data, ROWS * K, at("logits"));
    compare("delta", deltas->x[0].data, ROWS * 4, at("delta"));
    compare("q_out", next->x[0].data, ROWS * D, at("q_out"));
    draw(at("ddecoded"), scale_of(at("ddecoded")), 0, g, ROWS * 4);
    for (int i = 0; i < ROWS; i++)
        decode_back(box + 4 * i, (const float *)deltas->x[0].data + 4 * i, g + 4 * i, dd + 4 * i);
    seed(t, deltas, dd, ROWS * 4);
    seed(t, logits, draw(at("dlogits"), 1, 0, g, ROWS * K), ROWS * K);
    seed(t, next, draw(at("dq_out"), 1, 0, g, ROWS * D), ROWS * D);
    if (tape_backward(t, m->params, m->nparams, &err) < 0)
        fail_msg("%s", err.msg);
    check_grads(m, &grads);
    compare("dq", q->grad[0].data, ROWS * D, at("dq"));
    for (int l = 0; l < LEVELS; l++) {
        turn(&level[l]->grad[0], level[l]->grad[0].data, g, true);
        compare("dlevels", g, tensor_count(&level[l]->grad[0]), json_array_get(at("dlevels"), (size_t)l));
    }
    for (int i = 0; i < 512; i++)
        free(grads.of[i]);
    tape_free(t);
    arena_free(arena);
    model_free(m);
}

static int open_all(void **state)
{
    json_t *all = json_load_file("tests/golden/sparse_rcnn.json", 0, NULL);

    inner = 4;
    vectors = json_incref(json_object_get(all, "stage"));
    json_decref(all);
    return vectors ? open_device(state) : -1;
}

static int close_all(void **state)
{
    json_decref(vectors);
    return close_device(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_stage_and_its_gradients) };

    return cmocka_run_group_tests(tests, open_all, close_all);
}
