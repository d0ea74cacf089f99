/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/test_optim.c - uses: proto trainer cpu
 * Optimizers and learning rates, compared with the results of torch.optim that make_optim.py stored: two groups of
 * parameters, decay, clipping, a step that is skipped. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/comm/comm.h"
#include "worker/core/device.h"
#include "worker/core/safetensors.h"
#include "worker/gradients/gradients.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/schedule.h"

const struct device_ops *cpu_backend_generic(void);

/* The same numbers as in make_optim.py. */
enum { STEPS = 7, SKIPPED = 4, SHORT = 2, NPARAMS = 2, NUMBERS = 40, RATES = 60, WARM = 11 };
static const size_t counts[NPARAMS] = { NUMBERS, 7 };
static const struct param_group groups[NPARAMS] = { { "w", 1, 1 }, { "b", 0.5f, 0 } };

static uint32_t noise(uint32_t i)
{
    i = i * 2654435761u + 1;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

static float number(int step, int param, size_t i)
{
    return (float)(((noise((uint32_t)(step * 2 + param) * 64 + (uint32_t)i) >> 8) / 16777216.0 - 0.5) * 2);
}

static const float *golden(const char *of, const char *name, size_t count)
{
    static struct safetensors *file;
    const struct st_array *a;
    char key[64];
    struct err err;

    if (!file && safetensors_open("tests/golden/optim.safetensors", &file, &err) < 0)
        fail_msg("%s", err.msg);
    snprintf(key, sizeof key, "%s.%s", of, name);
    a = safetensors_find(file, key);
    assert_non_null(a);
    assert_int_equal(st_count(a), count);
    return (const float *)a->data;
}

/* ---- steps ---- */

struct run {
    struct device *dev, *side;
    struct comm *comm;
    struct param param[NPARAMS], *list[NPARAMS];
    struct gradients *gradients;
    struct optimizer *optimizer;
};

static void run_open(struct run *r, const struct jobspec *spec)
{
    const struct device_options one = { .threads = 1 };
    const struct comm_options alone = { .fd = -1, .nranks = 1, .timeout_ms = 60000 };
    struct gradients_options opt = { .nshards = 1, .nwaves = 1 };
    struct err err;

    assert_int_equal(cpu_backend_generic()->open(0, &one, &r->dev, &err), 0);
    assert_int_equal(cpu_backend_generic()->open(0, &one, &r->side, &err), 0);
    assert_int_equal(comm_open_shm(&alone, &r->comm, &err), 0);
    for (int p = 0; p < NPARAMS; p++) {
        r->param[p] = (struct param){ .trainable = true, .count = counts[p], .index = p, .group = p };
        r->param[p].data = r->dev->ops->alloc(r->dev, counts[p] * sizeof(float));
        for (size_t i = 0; i < counts[p]; i++)
            r->param[p].data[i] = number(0, p, i);
        r->list[p] = &r->param[p];
    }
    opt.dev = r->dev;
    opt.side = r->side;
    opt.comm = r->comm;
    assert_int_equal(gradients_open(&opt, r->list, NPARAMS, &r->gradients, &err), 0);
    assert_int_equal(optimizer_open(r->dev, spec, r->list, NPARAMS, groups, &r->optimizer, &err), 0);
}

static void run_close(struct run *r)
{
    optimizer_close(r->optimizer);
    gradients_close(r->gradients);
    for (int p = 0; p < NPARAMS; p++)
        r->dev->ops->free(r->dev, r->param[p].data);
    comm_close(r->comm);
    r->side->ops->close(r->side);
    r->dev->ops->close(r->dev);
}

static void make_gradients(struct run *r, int step, float scale)
{
    struct err err;
    bool written;

    gradients_begin(r->gradients);
    gradients_wave(r->gradients, 0);
    for (int p = NPARAMS - 1; p >= 0; p--) {
        float *g = gradients_dest(r->gradients, r->list[p], 0, &written);

        for (size_t i = 0; i < counts[p]; i++)
            g[i] = step == SKIPPED && i == 3 ? INFINITY : number(step, p, i) * (step == SHORT ? 0.2f : 1) * scale;
        assert_int_equal(gradients_ready(r->gradients, r->list[p], &err), 0);
    }
    assert_int_equal(gradients_wait(r->gradients, &err), 0);
}

static void check_step(const struct run *r, const char *of, int step)
{
    for (int p = 0; p < NPARAMS; p++) {
        const float *want = golden(of, groups[p].name, STEPS * counts[p]) + (size_t)(step - 1) * counts[p];

        for (size_t i = 0; i < counts[p]; i++)
            if (!(fabsf(r->param[p].data[i] - want[i]) <= 2e-6f))
                fail_msg("%s, step %d: %s[%zu] is %.8g, torch has %.8g", of, step, groups[p].name, i, (double)r->param[p].data[i],
                         (double)want[i]);
    }
}

/* Gradients come as a part of themselves, with a weight that makes them whole. */
static void check(const char *of, struct jobspec spec, float weight)
{
    struct run r;
    struct err err;

    spec.train_weight_decay = 0.1;
    spec.train_clip_norm = 3;
    run_open(&r, &spec);
    for (int step = 1; step <= STEPS; step++) {
        struct clip found;

        make_gradients(&r, step, 1 / weight);
        assert_int_equal(optimizer_step(r.optimizer, r.gradients, (double)weight, 0.05f, step, &err), 0);
        assert_int_equal(optimizer_found(r.optimizer, &found, &err), 0);
        assert_int_equal(found.skip != 0, step == SKIPPED);
        assert_true(step == SKIPPED || (found.factor == weight) == (step == SHORT));
        check_step(&r, of, step);
    }
    run_close(&r);
}

/* The names are those of make_optim.py. */
static const struct {
    const char *golden;
    struct jobspec spec;
} trained[] = {
    { "plain", { .train_optimizer = "sgd" } },
    { "sgd", { .train_optimizer = "sgd", .train_momentum = 0.8 } },
    { "nesterov", { .train_optimizer = "sgd", .train_momentum = 0.8, .train_nesterov = true } },
    { "adam", { .train_optimizer = "adam", .train_beta1 = 0.8, .train_beta2 = 0.95, .train_eps = 1e-3 } },
    { "adamw", { .train_optimizer = "adamw", .train_beta1 = 0.8, .train_beta2 = 0.95, .train_eps = 1e-3 } },
};
enum { TRAINED = sizeof trained / sizeof *trained };

static void steps(void **state)
{
    (void)state;
    for (size_t i = 0; i < TRAINED; i++)
        for (float weight = 0.25f; weight <= 4; weight *= 4)
            check(trained[i].golden, trained[i].spec, weight);
}

/* "sgd|adam|adamw" */
static const char *words(void)
{
#define X(field, key, type, def, neutral, families, min, max, unit, values, help) \
    if (strcmp(key, "train.optimizer") == 0)                                      \
        return values;
    JOB_KEYS(X)
#undef X
    return "";
}

/* Every word of train.optimizer is an optimizer. Its steps are compared with torch's above. */
static void words_are_kinds(void **state)
{
    char list[256], *rest = list, *word;
    int n = 0;

    (void)state;
    snprintf(list, sizeof list, "%s", words());
    for (; (word = strsep(&rest, "|")); n++) {
        const struct optimizer_kind *kind = optimizer_kind_of(word);
        size_t i = 0;

        if (!kind)
            fail_msg("train.optimizer has the word '%s', optimizer.c no such kind", word);
        while (i < TRAINED && strcmp(trained[i].spec.train_optimizer, word) != 0)
            i++;
        if (i == TRAINED)
            fail_msg("no steps of '%s' are held beside torch's", word);
    }
    assert_true(n >= 3);
}

/* The arrays in a checkpoint, in their order. */
static void arrays(void **state)
{
    static const struct {
        char *optimizer;
        const char *names[OPTIM_STATES];
    } rows[] = { { "sgd", { "momentum" } }, { "adam", { "adam.m", "adam.v" } }, { "adamw", { "adam.m", "adam.v" } } };

    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct run r;
        struct optimizer_array a;
        int n = 0;

        run_open(&r, &(struct jobspec){ .train_optimizer = rows[k].optimizer, .train_beta1 = 0.9, .train_beta2 = 0.9 });
        for (; optimizer_array(r.optimizer, n, &a); n++) {
            assert_string_equal(a.of, rows[k].names[n / NPARAMS]);
            assert_ptr_equal(a.param, r.list[n % NPARAMS]);
            assert_true(a.data[a.param->count - 1] == 0);
        }
        assert_int_equal(n, (rows[k].names[1] ? 2 : 1) * NPARAMS);
        run_close(&r);
    }
}

/* ---- rates ---- */

static void check_rates(const char *name, struct jobspec s)
{
    const float *want = golden("lr", name, RATES);

    s.train_lr = 0.05;
    s.train_steps = RATES;
    s.train_warmup = s.train_warmup ? s.train_warmup : "power";
    s.train_warmup_factor = 0.05;
    s.train_poly_power = 2;
    s.train_lr_scale = 0.1;
    for (int t = 1; t <= RATES; t++)
        if (!(fabsf(schedule_lr(&s, t) - want[t - 1]) <= 1e-6f * want[t - 1]))
            fail_msg("%s: the rate of step %d is %.8g, torch has %.8g", name, t, (double)schedule_lr(&s, t), (double)want[t - 1]);
}

static void rates(void **state)
{
    const struct jobspec_list at = { 2, { 0.5, 45 } };

    (void)state;
    check_rates("steps", (struct jobspec){ .train_schedule = "steps", .train_lr_steps = at });
    check_rates("linear_steps",
                (struct jobspec){ .train_schedule = "steps", .train_warmup = "linear", .train_burn_in = WARM, .train_lr_steps = at });
    check_rates("cosine", (struct jobspec){ .train_schedule = "cosine" });
    check_rates("poly", (struct jobspec){ .train_schedule = "poly" });
    check_rates("linear_cosine",
                (struct jobspec){ .train_schedule = "cosine", .train_warmup = "linear", .train_burn_in = WARM, .train_lr_end = 0.1 });
    check_rates("linear_poly", (struct jobspec){ .train_schedule = "poly", .train_warmup = "linear", .train_burn_in = WARM });
    check_rates("linear_constant", (struct jobspec){ .train_schedule = "constant", .train_warmup = "linear", .train_burn_in = WARM });
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(steps), cmocka_unit_test(words_are_kinds), cmocka_unit_test(arrays),
                                        cmocka_unit_test(rates) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
