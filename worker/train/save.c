/* worker/train/save.c - the job's state to and from checkpoints: resume is the uninterrupted run, to the bit, rows included. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/core/hash.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/models/weights.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/optim/ema.h"
#include "worker/optim/optimizer.h"
#include "worker/checkpoint/identity.h"
#include "worker/report/progress.h"
#include "worker/train/trainer_impl.h"

enum { PATH_BYTES = 4096 + 64 };

/* Order of the numbers in the arrays "counters" and "scores" of state.safetensors. */
enum { COUNT_WINDOW_IMAGES, COUNT_VAL_STEP, COUNTERS };
enum { SCORE_BEST, SCORE_VAL, SCORES };

static void folder(const struct trainer *t, char ret[PATH_BYTES])
{
    snprintf(ret, PATH_BYTES, "%s/checkpoints", t->opt.job_dir);
}

/* but: as jobspec_deciding() says. */
static int whose(const struct trainer *t, const char *but, struct ckpt_identity *ret, struct err *err)
{
    json_t *spec = jobspec_deciding(t->spec, but);
    char *text = spec ? json_dumps(spec, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    memset(ret, 0, sizeof *ret);
    json_decref(spec);
    if (!text)
        return err_set(err, ERR_DEVICE, "out of memory: job file");
    hash_hex(hash_bytes(text, strlen(text), hash_name("spec")), ret->spec);
    snprintf(ret->store_id, sizeof ret->store_id, "%s", t->store_id);
    free(text);
    return 0;
}

/* [{"id": ..., "name": ...}, ...]: what predict needs to know of the data set. */
static char *classes_json(const struct dataset *d)
{
    json_t *list = json_array();
    char *text;

    for (int i = 0; i < d->nclasses; i++)
        json_array_append_new(list, json_pack("{s:I,s:s}", "id", (json_int_t)d->classes[i].id, "name", d->classes[i].name));
    text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

/* ---- state.safetensors ---- */

/* The first `copies` arrays are host copies, with names[] of their own. */
struct state {
    struct st_array *arrays;
    size_t n, copies;
    int64_t counters[COUNTERS];
    double scores[SCORES];
    char (*names)[128];
};

static void state_free(struct state *s)
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

/* What a parameter has besides what model.safetensors says of it: "<of>.<name>". */
static int copy_vector(struct trainer *t, struct state *s, const char *of, const struct param *p, const float *from, struct err *err)
{
    float *copy = malloc(p->count * sizeof *copy);
    char *name = s->names[s->copies];

    if (!copy)
        return err_set(err, ERR_DEVICE, "out of memory: checkpoint");
    snprintf(name, sizeof *s->names, "%s.%s", of, p->name);
    s->arrays[s->copies++] = vector(name, ST_F32, (int64_t)p->count, copy);
    return t->machine.dev->ops->download(t->machine.dev, copy, from, p->count * sizeof *copy, err);
}

static int copy_vectors(struct trainer *t, struct state *s, struct err *err)
{
    const struct ema *ema = optimizer_ema(t->optimizer);
    const struct model *m = t->model;
    struct optimizer_array a;
    int rc = 0;

    for (int i = 0; rc >= 0 && optimizer_array(t->optimizer, i, &a); i++)
        rc = copy_vector(t, s, a.of, a.param, a.data, err);
    for (int i = 0; i < m->nparams && rc >= 0; i++)
        if (ema_other(ema, i))
            rc = copy_vector(t, s, "raw", m->params[i], m->params[i]->data, err);
    return rc;
}

static int state_fill(struct trainer *t, struct state *s, struct err *err)
{
    size_t vectors = (OPTIM_STATES + 1) * (size_t)t->model->nparams;
    int rc;

    memset(s, 0, sizeof *s);
    s->arrays = calloc(vectors + 5, sizeof *s->arrays);
    s->names = calloc(vectors, sizeof *s->names);
    if (!s->arrays || !s->names)
        return err_set(err, ERR_DEVICE, "out of memory: checkpoint");
    rc = copy_vectors(t, s, err);
    s->counters[COUNT_WINDOW_IMAGES] = t->window.images;
    s->counters[COUNT_VAL_STEP] = t->val_step;
    s->scores[SCORE_BEST] = t->best;
    s->scores[SCORE_VAL] = t->val_loss;
    s->n = s->copies;
    s->arrays[s->n++] = vector("window", ST_F64, 2 * (int64_t)t->window.nterms, t->window.sum);
    s->arrays[s->n++] = vector("counters", ST_I64, COUNTERS, s->counters);
    s->arrays[s->n++] = vector("best_step", ST_I64, 1, &t->best_step);
    s->arrays[s->n++] = vector("scores", ST_F64, SCORES, s->scores);
    s->arrays[s->n++] = vector("skips", ST_I64, 1, &t->skips);
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

static int load_vector(struct trainer *t, const struct safetensors *f, const char *of, const struct param *p, float *to, struct err *err)
{
    float *copy = malloc(p->count * sizeof *copy);
    char name[128];
    int rc;

    snprintf(name, sizeof name, "%s.%s", of, p->name);
    rc = copy ? read_exact(f, name, ST_F32, (int64_t)p->count, copy, err) : err_set(err, ERR_DEVICE, "out of memory: checkpoint");
    if (rc >= 0)
        rc = t->machine.dev->ops->upload(t->machine.dev, to, copy, p->count * sizeof *copy, err);
    free(copy);
    return rc;
}

/* The weights beside their averages, which model.safetensors holds. */
static int load_raw(struct trainer *t, const struct safetensors *f, struct param *p, bool average, struct err *err)
{
    char name[128];

    snprintf(name, sizeof name, "raw.%s", p->name);
    if (!average != !safetensors_find(f, name))
        return err_set(err, ERR_STATE,
                       "state.safetensors: '%s' is %s: the checkpoint was saved with%s a moving average of the weights, the job says "
                       "train.ema = %g",
                       name, average ? "missing" : "there", average ? "out" : "", t->spec->train_ema);
    if (!average)
        return 0;
    p->version++;
    return load_vector(t, f, "raw", p, p->data, err);
}

static int load_vectors(struct trainer *t, const struct safetensors *f, struct err *err)
{
    const struct ema *ema = optimizer_ema(t->optimizer);
    const struct model *m = t->model;
    struct optimizer_array a;
    int rc = 0;

    for (int i = 0; rc >= 0 && optimizer_array(t->optimizer, i, &a); i++)
        rc = load_vector(t, f, a.of, a.param, a.data, err);
    for (int i = 0; i < m->nparams && rc >= 0; i++)
        if (param_trainable(m->params[i]))
            rc = load_raw(t, f, m->params[i], ema_other(ema, i) != NULL, err);
    return rc;
}

static int state_load(struct trainer *t, const struct safetensors *f, struct err *err)
{
    int64_t counters[COUNTERS];
    double scores[SCORES];
    int64_t best_step;
    int rc = read_exact(f, "window", ST_F64, 2 * (int64_t)t->window.nterms, t->window.sum, err);

    if (rc >= 0)
        rc = read_exact(f, "counters", ST_I64, COUNTERS, counters, err);
    if (rc >= 0)
        rc = read_exact(f, "best_step", ST_I64, 1, &best_step, err);
    if (rc >= 0)
        rc = read_exact(f, "scores", ST_F64, SCORES, scores, err);
    if (rc >= 0 && safetensors_find(f, "skips")) /* older checkpoints have none */
        rc = read_exact(f, "skips", ST_I64, 1, &t->skips, err);
    if (rc >= 0)
        rc = load_vectors(t, f, err);
    if (rc < 0)
        return rc;
    t->window.images = counters[COUNT_WINDOW_IMAGES];
    t->best_step = best_step;
    t->val_step = counters[COUNT_VAL_STEP];
    t->best = scores[SCORE_BEST];
    t->val_loss = scores[SCORE_VAL];
    return 0;
}

/* ---- save ---- */

/* model.safetensors holds what is validated. */
static int export_model(struct trainer *t, struct st_array **ret_arrays, struct err *err)
{
    int rc;

    ema_swap(optimizer_ema(t->optimizer));
    rc = weights_export(t->model, ret_arrays, err);
    ema_swap(optimizer_ema(t->optimizer));
    return rc;
}

static int write_files(struct trainer *t, const char *dir, int64_t *ret_bytes, struct err *err)
{
    struct ckpt_identity id;
    struct st_array *arrays = NULL;
    struct state s = { 0 };
    char *classes = classes_json(t->train.set), size[32];
    const struct canvas canvas = t->model->canvas;
    const struct st_meta meta[] = { { "classes", classes ? classes : "[]" }, { "size", size } };
    int rc = whose(t, NULL, &id, err);

    if (canvas.w == canvas.h)
        snprintf(size, sizeof size, "%d", canvas.w);
    else
        snprintf(size, sizeof size, "%dx%d", canvas.w, canvas.h);
    if (rc >= 0)
        rc = export_model(t, &arrays, err);
    if (rc >= 0)
        rc = state_fill(t, &s, err);
    if (rc >= 0) {
        struct ckpt_part model = { arrays, (size_t)t->model->nparams, meta, sizeof meta / sizeof *meta };
        struct ckpt_part state = { s.arrays, s.n, NULL, 0 };

        rc = ckpt_write(dir, t->step, &id, &model, &state, ret_bytes, err);
    }
    state_free(&s);
    weights_export_free(t->model, arrays);
    free(classes);
    return rc;
}

/* Written, then durable reports, then published: a checkpoint never knows more than the spool. */
static int save(struct trainer *t, struct err *err)
{
    char dir[PATH_BYTES], path[PATH_BYTES + 32];
    int64_t bytes = 0;
    bool best = t->val.set && t->best_step == t->step;
    int rc;

    folder(t, dir);
    rc = write_files(t, dir, &bytes, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = ckpt_path(dir, t->step, path, sizeof path, err);
    if (rc >= 0)
        rc = report_ckpt_wait_publish(t->machine.report, t->step, path, err);
    if (rc >= 0)
        rc = ckpt_publish(dir, t->step, err);
    if (rc >= 0)
        rc = report_ckpt_published(t->machine.report, t->step, path, bytes, t->val_step == t->step ? t->val_loss : NAN, best, err);
    return rc < 0 ? rc : ckpt_prune(dir, (int)t->spec->checkpoint_keep, t->best_step > 0 ? t->best_step : -1, err);
}

int trainer_save(struct trainer *t, struct err *err)
{
    int rc = 0;

    if (t->saved_step == t->step)
        return 0;
    progress_phase(t->machine.progress, PHASE_CHECKPOINT);
    if (t->opt.rank == 0)
        rc = save(t, err);
    if (rc >= 0 && t->opt.rank == 0)
        rc = identity_save(t->identity, err);
    t->saved_step = t->step;
    return rc;
}

/* ---- resume ---- */

static void passed_over(void *arg, const char *text)
{
    struct trainer *t = arg;
    struct err ignored;

    report_event(t->machine.report, &ignored, "warning", "checkpoint", "%s", text);
}

static int load(struct trainer *t, const char *dir, int64_t step, const struct ckpt_identity *id, int64_t *ret_bytes, struct err *err)
{
    struct ckpt *c;
    int rc = ckpt_open(dir, step, id, &c, err);

    if (rc < 0)
        return rc;
    ema_swap(optimizer_ema(t->optimizer));
    rc = weights_import(t->model, c->model, err);
    ema_swap(optimizer_ema(t->optimizer));
    if (rc >= 0)
        rc = state_load(t, c->state, err);
    *ret_bytes = c->bytes;
    ckpt_close(c);
    return rc;
}

/* Rank 0. The rank before may have died between publishing and saying so: it is said again, the store takes it twice. */
static int report_resume(struct trainer *t, int64_t step, const char *path, int64_t bytes, struct err *err)
{
    int rc = report_start(t->machine.report, step, step > 0 ? path : NULL, err);

    if (rc < 0 || step == 0)
        return rc;
    return report_ckpt_published(t->machine.report, step, path, bytes, t->val_step == step ? t->val_loss : NAN,
                                 t->val.set && t->best_step == step, err);
}

/* Of a checkpoint that ckpt_pick() found to be of another job: no attempt can do better, so it is an error of the job. Where the checkpoint
 * is older than a key, the key is named. */
static int refuse(const struct trainer *t, const char *dir, struct err *err)
{
    static const struct {
        const char *path, *neutral;
    } keys[] = {
#define X(field, key, type, def, neutral, ...) { key, neutral },
        JOB_KEYS(X)
#undef X
    };
    struct err why = *err, ignored;
    struct ckpt_identity id;
    int64_t step;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (whose(t, keys[i].path, &id, &ignored) >= 0 && ckpt_pick(dir, &id, NULL, NULL, &step, &ignored) >= 0 && step > 0)
            return err_field(err, ERR_INPUT, keys[i].path, "%s: '%s/step-%lld' was trained with %s; another value needs a new job",
                             keys[i].path, dir, (long long)step, keys[i].neutral);
    return err_set(err, ERR_INPUT, "%s: it was trained by another job, or the job has changed since; train it as a new job", why.msg);
}

int trainer_resume(struct trainer *t, struct err *err)
{
    struct ckpt_identity id;
    char dir[PATH_BYTES], path[PATH_BYTES + 32];
    int64_t step = 0, bytes = 0;
    int rc = whose(t, NULL, &id, err);

    folder(t, dir);
    if (rc >= 0 && t->opt.rank == 0)
        rc = ckpt_pick(dir, &id, passed_over, t, &step, err);
    if (rc == ERR_STATE)
        rc = refuse(t, dir, err);
    if (rc >= 0)
        rc = comm_broadcast(t->machine.comm, COMM_SYNC, &step, sizeof step, err);
    if (rc >= 0 && step > 0)
        rc = load(t, dir, step, &id, &bytes, err);
    if (rc >= 0)
        rc = ckpt_path(dir, step, path, sizeof path, err);
    if (rc >= 0 && t->opt.rank == 0)
        rc = report_resume(t, step, path, bytes, err);
    if (rc < 0)
        return rc;
    t->step = step;
    t->saved_step = step > 0 ? step : -1;
    progress_step(t->machine.progress, (uint64_t)step);
    return t->identity ? identity_check(t->identity, step, err) : 0;
}
