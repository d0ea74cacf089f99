/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/optim/test_ema.c - uses: proto trainer cpu
 * Moving averages of the weights: their decay, the effect of a swap, their arrays in checkpoints, and the refused
 * checkpoints. */
#include <fcntl.h>
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

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "worker/core/device.h"
#include "worker/data/image/image.h"
#include "worker/kernels/optim.h"
#include "worker/models/model.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/optim/ema.h"
#include "worker/models/builtin.h"
#include "worker/train/trainer.h"

const struct device_ops *cpu_backend_generic(void);

enum { NPARAMS = 3, COUNT = 5, STEPS = 4, SIDE = 32 };

static const enum param_kind kinds[NPARAMS] = { PARAM_CONV, PARAM_MEAN, PARAM_BIAS };

static void decay(void **state)
{
    (void)state;
    assert_true(ema_decay(0.999, 1) == (float)(2.0 / 11));
    assert_true(ema_decay(0.999, 100) == (float)(101.0 / 110));
    assert_true(ema_decay(0.5, 7) == (float)(8.0 / 17)); /* below a half for the last time */
    assert_true(ema_decay(0.5, 8) == 0.5f);
    assert_true(ema_decay(0.99999, 100000000) == 0.99999f);
    assert_true(ema_decay(0, 1) == 0);
}

/* ---- swaps ---- */

static struct device *open_device(void)
{
    struct device_options opt = { .threads = 1 };
    struct device *dev;
    struct err err;

    assert_int_equal(cpu_backend_generic()->open(0, &opt, &dev, &err), 0);
    return dev;
}

static void open_params(struct device *dev, struct param p[NPARAMS], struct param *list[NPARAMS])
{
    for (int i = 0; i < NPARAMS; i++) {
        p[i] = (struct param){ .kind = kinds[i], .trainable = param_kind_trains(kinds[i]), .count = COUNT, .version = 7, .index = i };
        snprintf(p[i].name, sizeof p[i].name, "p%d", i);
        p[i].data = dev->ops->alloc(dev, COUNT * sizeof(float));
        for (int k = 0; k < COUNT; k++)
            p[i].data[k] = (float)(10 * i + k);
        list[i] = &p[i];
    }
}

static void close_params(struct device *dev, struct param p[NPARAMS])
{
    for (int i = 0; i < NPARAMS; i++)
        dev->ops->free(dev, p[i].data);
    dev->ops->close(dev);
}

static void swaps(void **state)
{
    struct param p[NPARAMS], *list[NPARAMS];
    struct device *dev = open_device();
    float *weights, *average;
    struct ema *e;
    struct err err;

    (void)state;
    open_params(dev, p, list);
    assert_int_equal(ema_open(dev, list, NPARAMS, &e, &err), 0);
    weights = p[2].data;
    average = ema_other(e, 2);
    assert_null(ema_other(e, 1));
    assert_ptr_not_equal(weights, average);
    assert_memory_equal(average, weights, COUNT * sizeof(float));
    ema_swap(e);
    assert_ptr_equal(p[2].data, average);
    assert_ptr_equal(ema_other(e, 2), weights);
    assert_true(p[0].version == 8 && p[1].version == 7 && p[2].version == 8);
    ema_swap(e);
    assert_ptr_equal(p[2].data, weights);
    assert_ptr_equal(ema_other(e, 2), average);
    assert_true(p[0].version == 9 && p[1].version == 7);
    ema_close(e);
    close_params(dev, p);
    ema_swap(NULL);
    ema_close(NULL);
    assert_null(ema_other(NULL, 1));
}

/* The CPU device; `room` is the number of arrays that it can still allocate. */
static int room;

static void *scarce_alloc(struct device *dev, size_t bytes)
{
    return room-- > 0 ? cpu_backend_generic()->alloc(dev, bytes) : NULL;
}

static void out_of_memory(void **state)
{
    struct device_ops scarce = *cpu_backend_generic();
    struct device *dev = open_device();
    const struct device_ops *ops = dev->ops;
    struct param p[NPARAMS], *list[NPARAMS];
    struct ema *e = NULL;
    struct err err;

    (void)state;
    open_params(dev, p, list);
    scarce.alloc = scarce_alloc;
    dev->ops = &scarce;
    room = 1;
    assert_int_equal(ema_open(dev, list, NPARAMS, &e, &err), ERR_DEVICE);
    assert_string_equal(err.msg, "out of memory: average of p2");
    assert_null(e);
    dev->ops = ops;
    close_params(dev, p);
}

/* ---- jobs: a data set of four pictures, tiny networks ---- */

static char root[TEMP_MAX];

static int write_data(void **state)
{
    uint8_t rgb[SIDE * SIDE * 3];
    char path[128];
    struct err err;
    FILE *f;

    (void)state;
    if (!mkdtemp(temp_path(root, sizeof root, "test_ema.XXXXXX")))
        return -1;
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < sizeof rgb; k++)
            rgb[k] = (uint8_t)((size_t)(i + 1) * k * 7 % 251);
        snprintf(path, sizeof path, "%s/%d.png", root, i);
        if (image_write_png(path, rgb, SIDE, SIDE, &err) < 0)
            return -1;
    }
    snprintf(path, sizeof path, "%s/train.json", root);
    f = fopen(path, "w");
    if (!f)
        return -1;
    fputs("{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[", f);
    for (int i = 0; i < 4; i++)
        fprintf(f, "%s{\"id\":%d,\"file_name\":\"%d.png\",\"width\":%d,\"height\":%d}", i ? "," : "", i + 1, i, SIDE, SIDE);
    fputs("],\"annotations\":[", f);
    for (int i = 0; i < 4; i++)
        fprintf(f, "%s{\"id\":%d,\"image_id\":%d,\"category_id\":1,\"bbox\":[%d,4,12,16],\"area\":192,\"iscrowd\":0}", i ? "," : "", i + 1,
                i + 1, 2 + i);
    fputs("]}", f);
    return fclose(f);
}

static int remove_data(void **state)
{
    char cmd[512];

    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", root);
    return system(cmd);
}

static struct jobspec *spec_of(double ema)
{
    json_t *json = json_pack("{s:{s:s,s:i,s:f},s:{s:{s:o,s:s}},s:{s:i,s:i,s:i,s:i,s:f,s:f},s:{s:i,s:i},s:{s:i}}", "model", "preset",
                             "yolov3_tiny", "size", SIDE, "width", 0.0625, "data", "train", "annotations",
                             json_sprintf("%s/train.json", root), "images", root, "train", "steps", STEPS, "batch", 4, "shards", 2,
                             "burn_in", 0, "lr", 0.01, "ema", ema, "checkpoint", "every", 1, "keep", STEPS, "run", "threads", 1);
    struct jobspec *spec = NULL;
    struct err err;

    assert_non_null(json);
    assert_int_equal(jobspec_parse(json, &spec, &err), 0);
    json_decref(json);
    return spec;
}

/* Trains in root/job, or continues there; reports are discarded. */
static int train(const char *job, double ema, struct err *err)
{
    char dir[128];
    struct trainer_options opt = { .models = &models_builtin,
                                   .backend = cpu_backend_generic(),
                                   .job_dir = dir,
                                   .nranks = 1,
                                   .attempt = 1,
                                   .control_fd = -1,
                                   .comm_fd = -1,
                                   .progress_fd = -1 };
    struct jobspec *spec = spec_of(ema);
    int out = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC), rc;

    assert_true(out >= 0 && nowhere >= 0);
    snprintf(dir, sizeof dir, "%s/%s", root, job);
    fflush(stdout);
    dup2(nowhere, STDOUT_FILENO);
    rc = trainer_run(spec, &opt, err);
    dup2(out, STDOUT_FILENO);
    close(out);
    close(nowhere);
    jobspec_free(spec);
    return rc;
}

static void make_job(const char *job)
{
    char cmd[512];

    snprintf(cmd, sizeof cmd, "mkdir '%s/%s' && mkdir '%s/%s/checkpoints'", root, job, root, job);
    assert_int_equal(system(cmd), 0);
}

static struct ckpt *open_step(const char *job, int64_t step)
{
    char dir[128];
    struct ckpt *c = NULL;
    struct err err;

    snprintf(dir, sizeof dir, "%s/%s/checkpoints", root, job);
    assert_int_equal(ckpt_open(dir, step, NULL, &c, &err), 0);
    return c;
}

static const char *raw_of(const struct st_array *a)
{
    return strncmp(a->name, "raw.", 4) == 0 ? a->name + 4 : NULL;
}

/* Arrays with the same order of elements in both files: all but the wider convolutions. */
static bool same_order(const struct st_array *a)
{
    return a->ndims == 1 || (a->ndims == 4 && a->shape[2] * a->shape[3] == 1);
}

/* Averages of all steps but the first follow from the weights in the checkpoints. Returns how many arrays were
 * compared. */
static int check_step(const struct ckpt *before, const struct ckpt *after)
{
    float d = ema_decay(0.5, after->step);
    int compared = 0;

    for (size_t i = 0; i < safetensors_count(after->state); i++) {
        const struct st_array *raw = safetensors_at(after->state, i), *was, *now;
        size_t n = (size_t)st_count(raw);
        float *want, *w;

        if (!raw_of(raw))
            continue;
        was = safetensors_find(before->model, raw_of(raw));
        now = safetensors_find(after->model, raw_of(raw));
        assert_true(was && now && st_count(now) == n && st_count(was) == n);
        if (!same_order(now))
            continue;
        want = malloc(n * sizeof *want);
        w = malloc(n * sizeof *w);
        memcpy(want, was->data, n * sizeof *want);
        memcpy(w, raw->data, n * sizeof *w);
        for (size_t k = 0; k < n; k++)
            ema_element(&want[k], w[k], d);
        assert_memory_equal(now->data, want, n * sizeof *want);
        assert_memory_not_equal(now->data, w, n * sizeof *w);
        free(want);
        free(w);
        compared++;
    }
    return compared;
}

/* Averaging must not change the training beside it. */
static void check_undisturbed(const struct ckpt *averaged, const struct ckpt *plain)
{
    for (size_t i = 0; i < safetensors_count(plain->model); i++) {
        const struct st_array *want = safetensors_at(plain->model, i), *have;
        char name[256];

        snprintf(name, sizeof name, "raw.%s", want->name);
        have = safetensors_find(averaged->state, name);
        if (!have)
            have = safetensors_find(averaged->model, want->name); /* running statistics */
        assert_non_null(have);
        assert_true(st_bytes(have) == st_bytes(want));
        if (same_order(want))
            assert_memory_equal(have->data, want->data, (size_t)st_bytes(want));
    }
}

static void checkpoints(void **state)
{
    struct err err;
    struct ckpt *before, *after, *plain;

    (void)state;
    make_job("averaged");
    make_job("plain");
    assert_int_equal(train("averaged", 0.5, &err), 0);
    assert_int_equal(train("plain", 0, &err), 0);
    before = open_step("averaged", 1);
    for (int step = 2; step <= STEPS; step++) {
        after = open_step("averaged", step);
        assert_true(check_step(before, after) > 20);
        ckpt_close(before);
        before = after;
    }
    plain = open_step("plain", STEPS);
    check_undisturbed(before, plain);
    ckpt_close(plain);
    ckpt_close(before);
}

/* A job's second checkpoint in a new job, with the weights of `raw` beside those of the first. */
static void transplant(const char *from, const char *raw, const char *to)
{
    struct ckpt *c = open_step(from, 2), *r = raw ? open_step(raw, 2) : NULL;
    struct st_array model[200], s[400];
    struct ckpt_part parts[2] = { { model, 0, NULL, 0 }, { s, 0, NULL, 0 } };
    char dir[128];
    int64_t bytes;
    struct err err;

    make_job(to);
    for (size_t i = 0; i < safetensors_count(c->model); i++)
        model[parts[0].narrays++] = *safetensors_at(c->model, i);
    for (size_t i = 0; i < safetensors_count(c->state); i++)
        if (!raw_of(safetensors_at(c->state, i)))
            s[parts[1].narrays++] = *safetensors_at(c->state, i);
    for (size_t i = 0; r && i < safetensors_count(r->state); i++)
        if (raw_of(safetensors_at(r->state, i)))
            s[parts[1].narrays++] = *safetensors_at(r->state, i);
    snprintf(dir, sizeof dir, "%s/%s/checkpoints", root, to);
    assert_int_equal(ckpt_write(dir, 2, &c->id, &parts[0], &parts[1], &bytes, &err), 0);
    assert_int_equal(ckpt_publish(dir, 2, &err), 0);
    ckpt_close(c);
    ckpt_close(r);
}

static void same_files(const char *a, const char *b)
{
    char cmd[512];

    snprintf(cmd, sizeof cmd, "cmp '%s/%s/checkpoints/step-%d/model.safetensors' '%s/%s/checkpoints/step-%d/model.safetensors'", root, a,
             STEPS, root, b, STEPS);
    assert_int_equal(system(cmd), 0);
    memcpy(strstr(cmd, "model.s"), "state.s", 7);
    memcpy(strstr(cmd, "model.s"), "state.s", 7);
    assert_int_equal(system(cmd), 0);
}

/* Resumed from a checkpoint, both trainings end like the uninterrupted ones. */
static void resumed(void **state)
{
    struct err err;

    (void)state;
    transplant("averaged", "averaged", "averaged-2");
    transplant("plain", NULL, "plain-2");
    assert_int_equal(train("averaged-2", 0.5, &err), 0);
    assert_int_equal(train("plain-2", 0, &err), 0);
    same_files("averaged", "averaged-2");
    same_files("plain", "plain-2");
}

static void refused(void **state)
{
    struct err err;

    (void)state;
    transplant("averaged", NULL, "without");
    transplant("plain", "averaged", "with");
    assert_int_equal(train("without", 0.5, &err), ERR_STATE);
    assert_non_null(
        strstr(err.msg, "is missing: the checkpoint was saved without a moving average of the weights, the job says train.ema = 0.5"));
    assert_int_equal(train("with", 0, &err), ERR_STATE);
    assert_non_null(strstr(err.msg, "is there: the checkpoint was saved with a moving average of the weights, the job says train.ema = 0"));
    assert_int_equal(train("averaged", 0, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "was trained with train.ema 0.5;"));
    assert_int_equal(train("plain", 0.5, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "train.ema: '"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decay),       cmocka_unit_test(swaps),   cmocka_unit_test(out_of_memory),
        cmocka_unit_test(checkpoints), cmocka_unit_test(resumed), cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, write_data, remove_data);
}
