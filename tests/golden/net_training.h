/* SPDX-License-Identifier: Apache-2.0 */ /* tests/golden/net_training.h - steps of a network of objects_net.h with the
 * product's gradients and optimizer, beside numbers of a golden file. */
#pragma once
#include "tests/golden/objects_net.h"
#include "worker/comm/comm.h"
#include "worker/comm/staged.h"
#include "worker/gradients/gradients.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/schedule.h"
#include "worker/models/weights.h"

/* The training of a network: gradients of one shard, and the product's optimizer with the job's keys and the model's
 * groups. */
struct training {
    struct device *side;
    struct comm *comm, *link; /* link: over the device's memory */
    struct gradients *gradients;
    struct optimizer *optimizer;
    double *stats; /* of all normalisations, for nobody */
    struct model *model;
    int64_t steps;
};

static inline void training_open(struct training *t, const struct device_ops *ops, const struct net *n)
{
    const struct device_options one = { 1, "auto", PRECISION_FP32 };
    const struct comm_options alone = { .fd = -1, .nranks = 1, .timeout_ms = 60000 };
    struct gradients_options opt = { .dev = n->dev, .nshards = 1, .nwaves = 1 };
    size_t stats = 1;
    struct err err = { 0 };

    *t = (struct training){ .model = n->model };
    for (int i = 0; i < n->model->nnorms; i++)
        stats += 2 * n->model->norms[i].mean->count + 1;
    t->stats = n->dev->ops->alloc(n->dev, stats * sizeof *t->stats);
    assert_int_equal(ops->open(0, &one, &t->side, &err), 0);
    assert_int_equal(comm_open_shm(&alone, &t->comm, &err), 0);
    t->link = t->comm;
    if (!n->dev->host_memory)
        assert_int_equal(comm_open_staged(t->comm, n->dev, t->side, &t->link, &err), 0);
    opt.side = t->side;
    opt.comm = t->link;
    if (gradients_open(&opt, n->model->params, n->model->nparams, &t->gradients, &err) < 0 ||
        optimizer_open(n->dev, n->spec, n->model->params, n->model->nparams, n->model->groups, &t->optimizer, &err) < 0)
        fail_msg("%s", err.msg);
}

static inline void training_close(struct training *t)
{
    t->model->dev->ops->free(t->model->dev, t->stats);
    optimizer_close(t->optimizer);
    gradients_close(t->gradients);
    if (t->link != t->comm)
        comm_close(t->link);
    comm_close(t->comm);
    t->side->ops->close(t->side);
}

static inline float *sum_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    return gradients_dest(((struct training *)arg)->gradients, p, shard, ret_written);
}

static inline int sum_ready(void *arg, const struct param *p, struct err *err)
{
    return gradients_ready(((struct training *)arg)->gradients, p, err);
}

static inline double *stats_dest(void *arg, int index, int use, int shard)
{
    const struct training *t = arg;
    size_t at = 0;

    (void)use, (void)shard;
    for (int i = 0; i < index; i++)
        at += 2 * t->model->norms[i].mean->count + 1;
    return t->stats + at;
}

/* ret: [nterms] losses; gradients stand in t->gradients. */
static inline void step(struct net *n, struct training *t, double *ret)
{
    const struct tape_hooks hooks = { t, sum_dest, sum_ready, stats_dest, NULL };
    const struct model_want want = { .raw = n->raw, .images_of_step = IMAGES, .shards_of_step = 1 };
    double raw[64], record[32];
    struct err err = { 0 };

    n->dev->ops->set_tier(n->dev, TIER_WORLD);
    gradients_begin(t->gradients);
    gradients_wave(t->gradients, 0);
    tape_begin(n->tape, TAPE_TRAIN, 1, &hooks);
    if (n->model->ops->forward(n->model, n->tape, &n->batch, &want, &err) < 0 ||
        tape_backward(n->tape, n->model->params, n->model->nparams, &err) < 0 || gradients_wait(t->gradients, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(n->dev->ops->download(n->dev, raw, n->raw[0], n->model->raw_terms * sizeof *raw, &err), 0);
    n->model->ops->sum_terms(n->model, raw, IMAGES, record);
    for (int k = 0; k < n->model->nterms; k++)
        ret[k] = record[2 * k] / record[2 * k + 1];
}

/* weight: factor of the gradient. */
static inline void update(const struct net *n, struct training *t, double weight)
{
    struct err err;

    t->steps++;
    if (optimizer_step(t->optimizer, t->gradients, weight, schedule_lr(n->spec, t->steps), t->steps, &err) < 0)
        fail_msg("%s", err.msg);
}

/* ---- comparisons ---- */

static inline struct safetensors *golden(const char *name)
{
    char path[64];
    struct safetensors *f;
    struct err err;

    snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    if (safetensors_open(path, &f, &err) < 0)
        fail_msg("%s", err.msg);
    return f;
}

static inline const float *array(const struct safetensors *f, const char *name, size_t *ret_n)
{
    const struct st_array *a = safetensors_find(f, name);

    if (!a)
        fail_msg("%s is not in the golden file", name);
    *ret_n = (size_t)st_count(a);
    return a->data;
}

/* Compares two lists of numbers: the largest difference, relative to the largest number. */
static inline void close_to(const char *what, const float *got, size_t every, const float *want, size_t n, double tol)
{
    double most = 0, largest = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i * every] - (double)want[i]);

        if (!(d <= most))
            most = d;
        largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
    }
    if (!(most <= tol * largest + 1e-9))
        fail_msg("%s: differs by %g where numbers reach %g", what, most, largest);
}

/* The gradient of p as its file would have it. */
static inline float *gradient(struct net *n, const struct training *t, struct param *p)
{
    float *weights = p->data, *ret;
    struct err err;

    p->data = gradients_sum(t->gradients, p);
    ret = weights_get_stored(n->model, p, &err);
    p->data = weights;
    assert_non_null(ret);
    return ret;
}

static inline void check_gradient(struct net *n, const struct training *t, const struct safetensors *f, struct param *p, const char *name,
                                  double tol)
{
    size_t count;
    const float *want = array(f, name, &count);
    float *got = gradient(n, t, p);

    close_to(name, got, p->count > LARGE ? EVERY : 1, want, count, tol);
    free(got);
}
