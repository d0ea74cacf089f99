#include "worker/models/model.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/hash/hash.h"
#include "worker/core/philox.h"
#include "worker/data/make/batch.h"
#include "worker/layers/layers.h"

/* Shard number in keys of validation. No shard of a step has it. */
enum { NO_SHARD = UINT16_MAX };

void model_free(struct model *m)
{
    struct device *dev;

    if (!m)
        return;
    dev = m->dev;
    for (int i = 0; i < m->nparams; i++) {
        dev->ops->param_release(dev, m->params[i]);
        dev->ops->free(dev, m->params[i]->data);
        free(m->params[i]);
    }
    if (m->class_weight)
        dev->ops->free(dev, m->class_weight);
    free(m->params);
    free(m->norms);
    if (m->ops->free)
        m->ops->free(m);
    else
        free(m);
}

/* ---- for constructors ---- */

/* Returns the array with room for one more element. It is doubled whenever n is a power of two. */
static void *one_more(void *array, int n, size_t bytes)
{
    return n & (n - 1) ? array : realloc(array, (n ? 2 * (size_t)n : 1) * bytes);
}

/* Convolutions start as in He et al. 2015, arXiv:1502.01852: variance 2 / (inputs of an output). */
static struct param_start start_of(enum param_kind kind, int r, int s, int c)
{
    if (kind == PARAM_CONV)
        return (struct param_start){ .init = INIT_NORMAL, .value = sqrt(2.0 / ((double)r * s * c)) };
    return (struct param_start){ .init = INIT_FILL, .value = kind == PARAM_SCALE || kind == PARAM_VAR };
}

struct param *model_add_param(struct model *m, const char *name, enum param_kind kind, int k, int r, int s, int c, struct err *err)
{
    struct param **list = one_more(m->params, m->nparams, sizeof *list), *p = list ? calloc(1, sizeof *p) : NULL;

    m->params = list ? list : m->params;
    if (!p) {
        err_set(err, ERR_DEVICE, "out of memory: %s", name);
        return NULL;
    }
    *p = (struct param){
        .kind = kind, .trainable = param_kind_trains(kind), .k = k, .r = r, .s = s, .c = c, .index = m->nparams, .version = 1, .pixels = 1
    };
    p->start = start_of(kind, r, s, c);
    p->layout = kind == PARAM_CONV ? LAYOUT_OIHW : LAYOUT_VECTOR;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->count = (size_t)k * (size_t)r * (size_t)s * (size_t)c;
    m->params[m->nparams++] = p;
    p->data = m->dev->ops->alloc(m->dev, p->count * sizeof(float));
    if (!p->data) {
        err_set(err, ERR_DEVICE, "out of memory: %s, %zu MiB", p->name, p->count * sizeof(float) >> 20);
        return NULL;
    }
    return p;
}

int model_add_norm(struct model *m, const char *name, int k, const struct jobspec *spec, struct err *err)
{
    static const enum param_kind kind[4] = { PARAM_SCALE, PARAM_SHIFT, PARAM_MEAN, PARAM_VAR };
    static const char *const part[4] = { "weight", "bias", "running_mean", "running_var" };
    struct norm *list = one_more(m->norms, m->nnorms, sizeof *list);
    struct param *p[4];
    char full[sizeof p[0]->name];

    if (!list)
        return err_set(err, ERR_DEVICE, "out of memory: %s", name);
    m->norms = list;
    for (int i = 0; i < 4; i++) {
        snprintf(full, sizeof full, "%s.%s", name, part[i]);
        p[i] = model_add_param(m, full, kind[i], k, 1, 1, 1, err);
        if (!p[i])
            return err->code;
    }
    m->norms[m->nnorms] = (struct norm){ .gamma = p[0],
                                         .beta = p[1],
                                         .mean = p[2],
                                         .var = p[3],
                                         .eps = 1e-5f,
                                         .index = m->nnorms,
                                         .uses = 1,
                                         .sync = spec->model_sync_bn,
                                         .frozen = spec->model_freeze_bn };
    return m->nnorms++;
}

/* ---- initial weights: pure functions of (seed, name, element) ---- */

static void fill_random(const struct param *p, uint64_t seed, float *w)
{
    const uint64_t name = hash_name(p->name);
    const struct philox_key key = { seed, (uint32_t)name, philox_op("model.weights"), (uint16_t)(name >> 32), (uint16_t)(name >> 48) };

    for (size_t i = 0; i < p->count; i++)
        w[i] = (float)(p->start.value * (p->start.init == INIT_NORMAL ? philox_normal(&key, i) : 2 * (double)philox_uniform(&key, i) - 1));
}

static int init_param(struct device *dev, struct param *p, uint64_t seed, struct err *err)
{
    float *w = calloc(p->count, sizeof *w);
    int rc;

    if (!w)
        return err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
    if (p->start.init == INIT_GIVEN)
        memcpy(w, p->start.given, p->count * sizeof *w);
    else if (p->start.init != INIT_FILL)
        fill_random(p, seed, w);
    else
        for (size_t i = (size_t)p->start.first; i<p->count; i += p->start.period> 0 ? (size_t)p->start.period : 1)
            w[i] = (float)p->start.value;
    rc = dev->ops->upload(dev, p->data, w, p->count * sizeof *w, err);
    free(w);
    return rc;
}

int model_init_weights(struct model *m, uint64_t seed, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < m->nparams && rc >= 0; i++)
        rc = init_param(m->dev, m->params[i], seed, err);
    return rc;
}

int model_explain(const struct model *m, const double *terms, struct err *err)
{
    size_t used = strlen(err->msg);
    char why[160] = "";

    if (m->ops->explain)
        m->ops->explain(m, terms, why, sizeof why);
    if (why[0])
        snprintf(err->msg + used, sizeof err->msg - used, ": %s", why);
    return err->code;
}

struct philox_key model_key(const struct batch *b, const char *purpose, int shard, int image)
{
    const struct shard_batch *s = &b->shard[shard];

    if (b->step == 0)
        return (struct philox_key){ b->seed, (uint32_t)s->index[image], philox_op(purpose), NO_SHARD, 0 };
    return (struct philox_key){ b->seed, (uint32_t)(b->step - 1), philox_op(purpose), (uint16_t)s->shard, (uint16_t)image };
}
