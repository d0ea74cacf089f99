/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/checkpoint/test_state.c - uses: proto trainer cpu
 * A job's state comes back unchanged from its own checkpoint, and is refused from another job's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/checkpoint/owner.h"
#include "worker/checkpoint/state.h"
#include "worker/core/device.h"
#include "worker/core/safetensors.h"
#include "worker/data/set/dataset.h"
#include "worker/models/model.h"
#include "worker/optim/optimizer.h"

const struct device_ops *cpu_backend_generic(void);

enum { NPARAMS = 2, COUNT = 3, NTERMS = 2 };

/* A model of two vectors; the second is a running vector. */
struct job {
    struct jobspec spec;
    char kind[8], best[8]; /* kind of optimizer; the measure of the best checkpoint */
    struct param param[NPARAMS], *list[NPARAMS];
    struct model model;
    struct param_group group;
    struct dataset data;
    struct optimizer *optimizer;
    struct device *dev;
};

static char folder[TEMP_MAX];

static void open_job(struct job *j, const char *optimizer, double ema)
{
    struct device_options opt = { .threads = 1 };
    struct err err;

    memset(j, 0, sizeof *j);
    assert_int_equal(cpu_backend_generic()->open(0, &opt, &j->dev, &err), 0);
    for (int i = 0; i < NPARAMS; i++) {
        j->param[i] = (struct param){ .name = { (char)('a' + i) }, .kind = i ? PARAM_MEAN : PARAM_BIAS, .trainable = !i, .index = i };
        j->param[i].k = (int)(j->param[i].count = COUNT);
        j->param[i].r = j->param[i].s = j->param[i].c = 1;
        j->param[i].data = j->dev->ops->alloc(j->dev, COUNT * sizeof(float));
        j->list[i] = &j->param[i];
    }
    j->group = (struct param_group){ "all", 1, 1 };
    j->model = (struct model){ .dev = j->dev, .params = j->list, .nparams = NPARAMS, .canvas = { 64, 32 } };
    snprintf(j->kind, sizeof j->kind, "%s", optimizer);
    j->spec.train_optimizer = j->kind;
    j->spec.train_ema = ema;
    snprintf(j->best, sizeof j->best, "loss");
    j->spec.checkpoint_best = j->best;
    assert_int_equal(optimizer_open(j->dev, &j->spec, j->list, NPARAMS, &j->group, &j->optimizer, &err), 0);
}

static void close_job(struct job *j)
{
    optimizer_close(j->optimizer);
    for (int i = 0; i < NPARAMS; i++)
        j->dev->ops->free(j->dev, j->param[i].data);
    j->dev->ops->close(j->dev);
}

/* All numbers of the job differ, and another seed gives the numbers of another job. */
static void fill(struct job *j, float seed)
{
    struct optimizer_array a;

    for (int i = 0; i < NPARAMS; i++)
        for (int k = 0; k < COUNT; k++)
            j->param[i].data[k] = seed + (float)(10 * i + k);
    for (int i = 0; optimizer_array(j->optimizer, i, &a); i++)
        for (int k = 0; k < COUNT; k++)
            a.data[k] = seed + (float)(100 * (i + 1) + k);
}

static void same_numbers(struct job *a, struct job *b)
{
    struct optimizer_array x, y;
    int n = 0;

    for (int i = 0; i < NPARAMS; i++)
        assert_memory_equal(a->param[i].data, b->param[i].data, COUNT * sizeof(float));
    for (; optimizer_array(a->optimizer, n, &x); n++) {
        assert_true(optimizer_array(b->optimizer, n, &y));
        assert_memory_equal(x.data, y.data, COUNT * sizeof(float));
    }
    assert_true(n > 0);
}

static struct trained trained(struct job *j)
{
    return (struct trained){ &j->spec, j->dev, &j->model, j->optimizer, &j->data, NULL };
}

static const struct ckpt_identity ours = { "store", "spec" };

static void put(struct job *j, const struct state *s)
{
    struct trained of = trained(j);
    int64_t bytes = 0;
    struct err err;

    if (state_save(s, &of, folder, &ours, &bytes, &err) != 0 || ckpt_publish(folder, s->step, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(bytes > 0);
}

static int get(struct job *j, int64_t step, const struct ckpt_identity *id, struct state *ret, struct err *err)
{
    struct trained to = trained(j);
    int64_t bytes;

    state_init(ret, NTERMS);
    return state_load(ret, &to, folder, step, id, &bytes, err);
}

static void all_comes_back(void **state)
{
    struct state out, in;
    struct job a, b;
    struct err err;

    (void)state;
    state_init(&out, NTERMS);
    assert_true(isinf(out.best) && isnan(out.val_loss) && out.val_step == -1 && out.window.nterms == NTERMS);
    out.step = 7;
    out.skips = 2;
    out.best = 0.5;
    out.best_step = 4;
    out.val_step = 6;
    out.val_loss = 0.75;
    window_add(&out.window, (const double[]){ 1, 2, 3, 4 }, 16);
    open_job(&a, "adam", 0);
    open_job(&b, "adam", 0);
    fill(&a, 1);
    fill(&b, 2);
    put(&a, &out);
    assert_int_equal(get(&b, 7, &ours, &in, &err), 0);
    same_numbers(&a, &b);
    assert_true(in.step == 7 && in.skips == 2 && in.best == 0.5 && in.best_step == 4 && in.val_step == 6 && in.val_loss == 0.75);
    assert_memory_equal(&in.window, &out.window, sizeof in.window);
    assert_int_equal(get(&b, 7, &(struct ckpt_identity){ "store", "other" }, &in, &err), ERR_STATE);
    close_job(&a);
    close_job(&b);
}

/* The error names missing and additional arrays. */
static void another_optimizer_finds_no_arrays(void **state)
{
    struct state out, in;
    struct job a, b;
    struct err err;

    (void)state;
    state_init(&out, NTERMS);
    out.step = 3;
    open_job(&a, "sgd", 0);
    put(&a, &out);
    open_job(&b, "adam", 0);
    assert_true(get(&b, 3, &ours, &in, &err) < 0);
    assert_string_equal(err.msg, "state.safetensors: 'adam.m.a' is missing or has another shape");
    close_job(&b);
    open_job(&b, "sgd", 0.5);
    assert_int_equal(get(&b, 3, &ours, &in, &err), ERR_STATE);
    assert_non_null(strstr(err.msg, "'raw.a' is missing: the checkpoint was saved without a moving average"));
    close_job(&b);
    close_job(&a);
}

/* With averages, model.safetensors holds the averages and state.safetensors the weights; both come back to their
 * places. */
static void averages_and_weights_change_files(void **state)
{
    struct state out, in;
    struct job a, b;
    struct ckpt *c;
    struct err err;

    (void)state;
    state_init(&out, NTERMS);
    out.step = 5;
    open_job(&a, "sgd", 0.5); /* zeros, and so are the averages */
    open_job(&b, "sgd", 0.5);
    fill(&a, 1);
    fill(&b, 2);
    put(&a, &out);
    assert_int_equal(ckpt_open(folder, 5, &ours, &c, &err), 0);
    assert_int_equal(((const float *)safetensors_find(c->model, "a")->data)[0], 0);
    assert_int_equal(((const float *)safetensors_find(c->state, "raw.a")->data)[0], 1);
    ckpt_close(c);
    assert_int_equal(get(&b, 5, &ours, &in, &err), 0);
    same_numbers(&a, &b);
    close_job(&a);
    close_job(&b);
}

static int fresh(void **state)
{
    (void)state;
    temp_path(folder, sizeof folder, "test_state.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int cleared(void **state)
{
    char command[TEMP_MAX + 20];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A reader without the job gets the measure and the value of the best checkpoint. */
static void the_best_is_told(void **state)
{
    static const char *const by[] = { "loss", "AP50" };
    struct state_best best = { 0 };
    struct state out;
    struct ckpt *c;
    struct err err;
    struct job a;

    (void)state;
    open_job(&a, "sgd", 0);
    for (int i = 0; i < 2; i++) {
        state_init(&out, NTERMS);
        out.step = 7 + i;
        out.best = 0.25;
        out.best_step = 3;
        snprintf(a.best, sizeof a.best, "%s", by[i]);
        put(&a, &out);
        assert_int_equal(ckpt_open(folder, out.step, &ours, &c, &err), 0);
        assert_true(state_best(c->state, &best));
        ckpt_close(c);
        assert_true(best.step == 3 && best.value == 0.25);
        assert_string_equal(best.metric, i ? "AP50" : "");
    }
    close_job(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_best_is_told, fresh, cleared),
        cmocka_unit_test_setup_teardown(all_comes_back, fresh, cleared),
        cmocka_unit_test_setup_teardown(another_optimizer_finds_no_arrays, fresh, cleared),
        cmocka_unit_test_setup_teardown(averages_and_weights_change_files, fresh, cleared),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
