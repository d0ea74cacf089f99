#include "worker/checkpoint/state.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/models/classes.h"
#include "worker/core/device.h"
#include "worker/data/set/dataset.h"
#include "worker/models/model.h"
#include "worker/models/weights.h"
#include "worker/optim/ema.h"
#include "worker/optim/optimizer.h"

/* Order of the numbers in the arrays "counters" and "scores" of state.safetensors. */
enum { COUNT_WINDOW_IMAGES, COUNT_VAL_STEP, COUNTERS };
enum { SCORE_BEST, SCORE_VAL, SCORES };

void state_init(struct state *s, int nterms)
{
    *s = (struct state){ .best = INFINITY, .val_loss = NAN, .val_step = -1, .score = NAN, .due_best = INFINITY };
    window_reset(&s->window, nterms);
}

/* ---- state.safetensors ---- */

/* The first `copies` arrays are host copies, with names[] of their own. */
struct arrays {
    struct st_array *arrays;
    size_t n, copies;
    int64_t counters[COUNTERS];
    double scores[SCORES];
    char (*names)[128];
};

static void arrays_free(struct arrays *s)
{
    for (size_t i = 0; i < s->copies; i++)
        free((void *)s->arrays[i].data);
    free(s->arrays);
    free(s->names);
}

static struct st_array vector(const char *name, enum st_dtype dtype, int64_t n, const void *data)
{
    return (struct st_array){ name, dtype, 1, { n }, data };
}

/* Copies a parameter's vector that model.safetensors lacks, as "<kind>.<name>". */
static int copy_vector(const struct trained *of, struct arrays *s, const char *kind, const struct param *p, const float *from,
                       struct err *err)
{
    float *copy = malloc(p->count * sizeof *copy);
    char *name = s->names[s->copies];

    if (!copy)
        return err_set(err, ERR_DEVICE, "out of memory: checkpoint");
    snprintf(name, sizeof *s->names, "%s.%s", kind, p->name);
    s->arrays[s->copies++] = vector(name, ST_F32, (int64_t)p->count, copy);
    return of->dev->ops->download(of->dev, copy, from, p->count * sizeof *copy, err);
}

static int copy_vectors(const struct trained *of, struct arrays *s, struct err *err)
{
    const struct ema *ema = optimizer_ema(of->optimizer);
    const struct model *m = of->model;
    struct optimizer_array a;
    int rc = 0;

    for (int i = 0; rc >= 0 && optimizer_array(of->optimizer, i, &a); i++)
        rc = copy_vector(of, s, a.of, a.param, a.data, err);
    for (int i = 0; i < m->nparams && rc >= 0; i++)
        if (ema_other(ema, i))
            rc = copy_vector(of, s, "raw", m->params[i], m->params[i]->data, err);
    return rc;
}

static int arrays_fill(const struct state *from, const struct trained *of, struct arrays *s, struct err *err)
{
    size_t vectors = (OPTIM_STATES + 1) * (size_t)of->model->nparams;
    int rc;

    memset(s, 0, sizeof *s);
    s->arrays = calloc(vectors + 10, sizeof *s->arrays);
    s->names = calloc(vectors, sizeof *s->names);
    if (!s->arrays || !s->names)
        return err_set(err, ERR_DEVICE, "out of memory: checkpoint");
    rc = copy_vectors(of, s, err);
    s->counters[COUNT_WINDOW_IMAGES] = from->window.images;
    s->counters[COUNT_VAL_STEP] = from->val_step;
    s->scores[SCORE_BEST] = from->best;
    s->scores[SCORE_VAL] = from->val_loss;
    s->n = s->copies;
    s->arrays[s->n++] = vector("window", ST_F64, 2 * (int64_t)from->window.nterms, from->window.sum);
    s->arrays[s->n++] = vector("counters", ST_I64, COUNTERS, s->counters);
    s->arrays[s->n++] = vector("best_step", ST_I64, 1, &from->best_step);
    s->arrays[s->n++] = vector("scores", ST_F64, SCORES, s->scores);
    s->arrays[s->n++] = vector("skips", ST_I64, 1, &from->skips);
    if (of->spec->train_stop_after > 0) {
        s->arrays[s->n++] = vector("stale", ST_I64, 1, &from->stale);
        s->arrays[s->n++] = vector("due_best", ST_F64, 1, &from->due_best);
        s->arrays[s->n++] = vector("due_best_step", ST_I64, 1, &from->due_best_step);
    }
    if (from->proof)
        s->arrays[s->n++] = vector("evidence.chain", ST_I64, 2, &from->proof->chain);
    if (from->proof && from->proof->weight)
        s->arrays[s->n++] = vector("evidence.weights", ST_I64, 2 * (int64_t)of->model->nparams, from->proof->weight);
    return rc;
}

static int read_exact(const struct safetensors *f, const char *name, enum st_dtype dtype, int64_t n, void *ret, struct err *err)
{
    const struct st_array *a = safetensors_find(f, name);

    if (!a || a->dtype != dtype || a->ndims != 1 || a->shape[0] != n)
        return err_set(err, ERR_CORRUPT, "state.safetensors: '%s' is missing or has another shape", name);
    memcpy(ret, a->data, (size_t)st_bytes(a));
    return 0;
}

static int load_vector(const struct trained *of, const struct safetensors *f, const char *kind, const struct param *p, float *to,
                       struct err *err)
{
    float *copy = malloc(p->count * sizeof *copy);
    char name[128];
    int rc;

    snprintf(name, sizeof name, "%s.%s", kind, p->name);
    rc = copy ? read_exact(f, name, ST_F32, (int64_t)p->count, copy, err) : err_set(err, ERR_DEVICE, "out of memory: checkpoint");
    if (rc >= 0)
        rc = of->dev->ops->upload(of->dev, to, copy, p->count * sizeof *copy, err);
    free(copy);
    return rc;
}

/* Loads the raw weights when model.safetensors holds their moving averages. */
static int load_raw(const struct trained *of, const struct safetensors *f, struct param *p, bool average, struct err *err)
{
    char name[128];

    snprintf(name, sizeof name, "raw.%s", p->name);
    if (!average != !safetensors_find(f, name))
        return err_set(err, ERR_STATE,
                       "state.safetensors: '%s' is %s: the checkpoint was saved with%s a moving average of the weights, the job says "
                       "train.ema = %g",
                       name, average ? "missing" : "there", average ? "out" : "", of->spec->train_ema);
    if (!average)
        return 0;
    p->version++;
    return load_vector(of, f, "raw", p, p->data, err);
}

static int load_vectors(const struct trained *of, const struct safetensors *f, struct err *err)
{
    const struct ema *ema = optimizer_ema(of->optimizer);
    const struct model *m = of->model;
    struct optimizer_array a;
    int rc = 0;

    for (int i = 0; rc >= 0 && optimizer_array(of->optimizer, i, &a); i++)
        rc = load_vector(of, f, a.of, a.param, a.data, err);
    for (int i = 0; i < m->nparams && rc >= 0; i++)
        if (param_trainable(m->params[i]))
            rc = load_raw(of, f, m->params[i], ema_other(ema, i) != NULL, err);
    return rc;
}

/* Checkpoints that were saved without evidence lack both arrays; to->known is then false. */
static int load_proof(struct proof *to, int nparams, const struct safetensors *f, struct err *err)
{
    int rc = 0;

    to->known = safetensors_find(f, "evidence.chain") && (!to->weight || safetensors_find(f, "evidence.weights"));
    if (to->known)
        rc = read_exact(f, "evidence.chain", ST_I64, 2, &to->chain, err);
    if (rc >= 0 && to->known && to->weight)
        rc = read_exact(f, "evidence.weights", ST_I64, 2 * (int64_t)nparams, to->weight, err);
    return rc;
}

/* A checkpoint that was written without train.stop_after has no due_best. The best of all validations then stands for
 * it. */
static int load_due(struct state *to, const struct safetensors *f, struct err *err)
{
    int rc = safetensors_find(f, "stale") ? read_exact(f, "stale", ST_I64, 1, &to->stale, err) : 0;

    to->due_best = to->best;
    to->due_best_step = to->best_step;
    if (rc >= 0 && safetensors_find(f, "due_best"))
        rc = read_exact(f, "due_best", ST_F64, 1, &to->due_best, err);
    if (rc >= 0 && safetensors_find(f, "due_best_step"))
        rc = read_exact(f, "due_best_step", ST_I64, 1, &to->due_best_step, err);
    return rc;
}

static int load_state(struct state *to, int nparams, const struct safetensors *f, struct err *err)
{
    int64_t counters[COUNTERS];
    double scores[SCORES];
    int rc = read_exact(f, "window", ST_F64, 2 * (int64_t)to->window.nterms, to->window.sum, err);

    if (rc >= 0)
        rc = read_exact(f, "counters", ST_I64, COUNTERS, counters, err);
    if (rc >= 0)
        rc = read_exact(f, "best_step", ST_I64, 1, &to->best_step, err);
    if (rc >= 0)
        rc = read_exact(f, "scores", ST_F64, SCORES, scores, err);
    if (rc >= 0)
        rc = read_exact(f, "skips", ST_I64, 1, &to->skips, err);
    if (rc >= 0 && to->proof)
        rc = load_proof(to->proof, nparams, f, err);
    if (rc < 0)
        return rc;
    to->window.images = counters[COUNT_WINDOW_IMAGES];
    to->val_step = counters[COUNT_VAL_STEP];
    to->best = scores[SCORE_BEST];
    to->val_loss = scores[SCORE_VAL];
    return load_due(to, f, err);
}

bool state_best(const struct safetensors *f, struct state_best *ret)
{
    const char *metric = safetensors_meta(f, STATE_METRIC);
    double scores[SCORES];
    struct err ignored;

    snprintf(ret->metric, sizeof ret->metric, "%s", metric ? metric : "");
    if (read_exact(f, "best_step", ST_I64, 1, &ret->step, &ignored) < 0 || read_exact(f, "scores", ST_F64, SCORES, scores, &ignored) < 0)
        return false;
    ret->value = scores[SCORE_BEST];
    return true;
}

/* ---- both files ---- */

/* model.safetensors holds the weights that are validated: the moving averages, if the job keeps them. */
static int export_model(const struct trained *of, struct st_array **ret_arrays, struct err *err)
{
    int rc;

    ema_swap(optimizer_ema(of->optimizer));
    rc = weights_export(of->model, ret_arrays, err);
    ema_swap(optimizer_ema(of->optimizer));
    return rc;
}

int state_save(const struct state *s, const struct trained *of, const char *dir, const struct ckpt_identity *id, int64_t *ret_bytes,
               struct err *err)
{
    struct st_array *arrays = NULL;
    struct arrays a = { 0 };
    char *classes = classes_text(of->classes), size[32];
    const struct canvas canvas = of->model->canvas;
    struct st_meta meta[2 + MODEL_TRAITS] = { { CLASSES_META, classes ? classes : "[]" }, { "size", size } };
    const bool by_loss = strcmp(of->spec->checkpoint_best, "loss") == 0;
    struct st_meta about[2];
    size_t nabout = 0;
    int rc;

    if (canvas.w == canvas.h)
        snprintf(size, sizeof size, "%d", canvas.w);
    else
        snprintf(size, sizeof size, "%dx%d", canvas.w, canvas.h);
    if (of->job)
        about[nabout++] = (struct st_meta){ STATE_JOB, of->job };
    if (!by_loss)
        about[nabout++] = (struct st_meta){ STATE_METRIC, of->spec->checkpoint_best };
    assert(of->model->ntraits <= MODEL_TRAITS);
    for (int i = 0; i < of->model->ntraits; i++)
        meta[2 + i] = of->model->traits[i];
    rc = export_model(of, &arrays, err);
    if (rc >= 0)
        rc = arrays_fill(s, of, &a, err);
    if (rc >= 0) {
        struct ckpt_part model = { arrays, (size_t)of->model->nparams, meta, 2 + (size_t)of->model->ntraits };
        struct ckpt_part state = { a.arrays, a.n, about, nabout };

        rc = ckpt_write(dir, s->step, id, &model, &state, ret_bytes, err);
    }
    arrays_free(&a);
    weights_export_free(of->model, arrays);
    free(classes);
    return rc;
}

int state_load(struct state *s, const struct trained *to, const char *dir, int64_t step, const struct ckpt_identity *id, int64_t *ret_bytes,
               struct err *err)
{
    struct ckpt *c;
    int rc = ckpt_open(dir, step, id, &c, err);

    if (rc < 0)
        return rc;
    ema_swap(optimizer_ema(to->optimizer));
    rc = weights_import(to->model, c->model, err);
    ema_swap(optimizer_ema(to->optimizer));
    if (rc >= 0)
        rc = load_state(s, to->model->nparams, c->state, err);
    if (rc >= 0)
        rc = load_vectors(to, c->state, err);
    s->step = step;
    *ret_bytes = c->bytes;
    ckpt_close(c);
    return rc;
}
