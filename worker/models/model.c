#include "worker/models/model.h"

#include <math.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/core/hash.h"
#include "worker/core/philox.h"
#include "worker/data/batch.h"

/* In keys of validation, which no shard of a step has. */
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
    free(m->params);
    free(m->norms);
    m->ops->free(m);
}

/* ---- initial weights: pure functions of (seed, name, element) ---- */

static void init_conv(const struct param *p, uint64_t seed, float *w)
{
    const uint64_t name = hash_name(p->name);
    const struct philox_key key = { seed, (uint32_t)name, philox_op("model.weights"), (uint16_t)(name >> 32), (uint16_t)(name >> 48) };
    double scale = sqrt(2.0 / ((double)p->r * p->s * p->c));

    for (size_t i = 0; i < p->count; i++)
        w[i] = (float)(philox_normal(&key, i) * scale);
}

static int init_param(struct model *m, struct param *p, uint64_t seed, struct err *err)
{
    float *w = calloc(p->count, sizeof *w);
    int rc;

    if (!w)
        return err_set(err, ERR_DEVICE, "out of memory: %s", p->name);
    if (p->kind == PARAM_CONV)
        init_conv(p, seed, w);
    for (size_t i = 0; (p->kind == PARAM_SCALE || p->kind == PARAM_VAR) && i < p->count; i++)
        w[i] = 1;
    if (m->ops->init)
        m->ops->init(m, p, w);
    rc = m->dev->ops->upload(m->dev, p->data, w, p->count * sizeof *w, err);
    free(w);
    return rc;
}

int model_init_weights(struct model *m, uint64_t seed, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < m->nparams && rc >= 0; i++)
        rc = init_param(m, m->params[i], seed, err);
    return rc;
}

struct philox_key model_key(const struct batch *b, const char *purpose, int shard, int image)
{
    const struct shard_batch *s = &b->shard[shard];

    if (b->step == 0)
        return (struct philox_key){ b->seed, (uint32_t)s->index[image], philox_op(purpose), NO_SHARD, 0 };
    return (struct philox_key){ b->seed, (uint32_t)(b->step - 1), philox_op(purpose), (uint16_t)s->shard, (uint16_t)image };
}
