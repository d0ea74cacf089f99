#include "worker/evidence/tensors.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/err.h"
#include "proto/hash/hash_keys.h"
#include "worker/core/device.h"
#include "worker/gradients/gradients.h"
#include "worker/models/model.h"
#include "worker/ops/families.h"
#include "worker/optim/optimizer.h"

struct tensors {
    struct device *dev;
    const struct model *model;
    struct hash128 *blocks; /* device memory: hashes of the blocks of all parameters, in a row */
    struct hash128 **at;    /* [nparams]: a parameter's part of blocks */
    struct hash_item *item; /* [nparams]; the first nrunning are running statistics, which the optimizer does not write */
    int nrunning;
    struct hash_piece *piece; /* [2 * nparams]: gradients, then weights */
    struct hash128 *sums;     /* device memory, [2 * nparams] */
    struct hash128 *host;     /* host copy of sums */
    struct device_mark *sent;
};

static size_t blocks_of(const struct param *p)
{
    return (p->count + HASH_BLOCK - 1) / HASH_BLOCK;
}

static int no_memory(struct err *err)
{
    return err_set(err, ERR_DEVICE, "out of memory: hashes of the weights");
}

static void place(struct tensors *t, const struct gradients *gradients)
{
    const struct model *m = t->model;
    struct hash128 *at = t->blocks;
    int n = 0;

    for (int i = 0; i < m->nparams; i++) {
        const struct param *p = m->params[i];
        uint64_t kappa = hash_name(p->name);

        t->at[i] = at;
        at += blocks_of(p);
        t->piece[i] = gradients_hashes(gradients, p, kappa);
        t->piece[m->nparams + i] = (struct hash_piece){ t->at[i], (int)blocks_of(p), 0, kappa };
    }
    for (int running = 1; running >= 0; running--) {
        for (int i = 0; i < m->nparams; i++)
            if (param_kind_trains(m->params[i]->kind) != running)
                t->item[n++] = (struct hash_item){ m->params[i]->data, m->params[i]->count, t->at[i] };
        if (running)
            t->nrunning = n;
    }
}

static int take_memory(struct tensors *t, struct err *err)
{
    const struct device_ops *ops = t->dev->ops;
    size_t n = (size_t)t->model->nparams, blocks = 0;

    for (size_t i = 0; i < n; i++)
        blocks += blocks_of(t->model->params[i]);
    t->blocks = ops->alloc(t->dev, blocks * sizeof *t->blocks);
    t->sums = ops->alloc(t->dev, 2 * n * sizeof *t->sums);
    t->host = ops->host_alloc(t->dev, 2 * n * sizeof *t->host);
    t->sent = ops->mark_new(t->dev);
    t->at = calloc(n, sizeof(*t->at));
    t->item = calloc(n, sizeof *t->item);
    t->piece = calloc(2 * n, sizeof *t->piece);
    return t->blocks && t->sums && t->host && t->sent && t->at && t->item && t->piece ? 0 : no_memory(err);
}

int tensors_open(struct device *dev, const struct model *model, const struct gradients *gradients, struct optimizer *optimizer,
                 struct tensors **ret_tensors, struct err *err)
{
    struct tensors *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return no_memory(err);
    t->dev = dev;
    t->model = model;
    rc = take_memory(t, err);
    if (rc < 0) {
        tensors_close(t);
        return rc;
    }
    place(t, gradients);
    optimizer_hash(optimizer, t->at);
    *ret_tensors = t;
    return 0;
}

void tensors_close(struct tensors *t)
{
    if (!t)
        return;
    if (t->blocks)
        t->dev->ops->free(t->dev, t->blocks);
    if (t->sums)
        t->dev->ops->free(t->dev, t->sums);
    if (t->host)
        t->dev->ops->host_free(t->dev, t->host);
    if (t->sent)
        t->dev->ops->mark_free(t->dev, t->sent);
    free(t->at);
    free(t->item);
    free(t->piece);
    free(t);
}

int tensors_begin(struct tensors *t, const struct hash128 **ret_weights, struct err *err)
{
    int n = t->model->nparams, rc = t->dev->on->reduce->hash_blocks(t->dev, t->item, n, err);

    if (rc >= 0)
        rc = t->dev->on->reduce->hash_tensors(t->dev, t->sums + n, t->piece + n, n, err);
    if (rc >= 0)
        rc = t->dev->ops->download(t->dev, t->host + n, t->sums + n, (size_t)n * sizeof *t->host, err);
    *ret_weights = t->host + n;
    return rc;
}

int tensors_send(struct tensors *t, struct err *err)
{
    size_t n = 2 * (size_t)t->model->nparams;
    int rc = t->dev->on->reduce->hash_blocks(t->dev, t->item, t->nrunning, err);

    if (rc >= 0)
        rc = t->dev->on->reduce->hash_tensors(t->dev, t->sums, t->piece, (int)n, err);
    if (rc >= 0)
        rc = t->dev->ops->copy_async(t->dev, t->host, t->sums, n * sizeof *t->host, err);
    return rc < 0 ? rc : t->dev->ops->mark(t->dev, t->sent, err);
}

int tensors_take(struct tensors *t, struct tensor_hashes *ret, struct err *err)
{
    *ret = (struct tensor_hashes){ t->host, t->host + t->model->nparams };
    return t->dev->ops->reach(t->dev, t->sent, err);
}
