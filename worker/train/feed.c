#include "worker/train/feed.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/device.h"
#include "worker/data/loader.h"

/* Device memory of one batch: for each array of pictures all shards, then the other arrays shard by shard. It only
 * grows. */
struct place {
    char *mem;
    size_t room;
    struct device_mark *sent, *read; /* sent: the copy is done (side queue); read: no computation reads it any more (computing queue) */
    struct batch host, batch;
    struct shard_batch shard[JOB_MAX_SHARDS]; /* the shards of `batch` */
};

struct feed {
    struct device *dev, *side;
    struct loader *loader;
    struct place place[2];
    int at;     /* index of the place given out last */
    bool ahead; /* the other place holds the next batch, or rc and err say why not */
    int rc;
    struct err err;
};

struct feed *feed_open(struct device *dev, struct device *side, struct loader *loader)
{
    struct feed *f = calloc(1, sizeof *f);
    bool ok = f != NULL;

    if (!f)
        return NULL;
    *f = (struct feed){ .dev = dev, .side = side, .loader = loader };
    for (int i = 0; i < 2; i++) {
        f->place[i].sent = dev->ops->mark_new(dev);
        f->place[i].read = dev->ops->mark_new(dev);
        ok = ok && f->place[i].sent && f->place[i].read;
    }
    if (!ok) {
        feed_close(f);
        return NULL;
    }
    return f;
}

void feed_close(struct feed *f)
{
    struct err ignored;

    if (!f)
        return;
    f->side->ops->sync(f->side, &ignored); /* copies under way read the loader's memory */
    for (int i = 0; i < 2; i++) {
        struct place *p = &f->place[i];

        if (p->mem)
            f->dev->ops->free(f->dev, p->mem);
        if (p->sent)
            f->dev->ops->mark_free(f->dev, p->sent);
        if (p->read)
            f->dev->ops->mark_free(f->dev, p->read);
    }
    free(f);
}

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t offset_bytes(const struct batch_form *f, const struct shard_batch *b, int list)
{
    return ((size_t)batch_rows(b, f->list[list].of) + 1) * sizeof(int32_t);
}

/* Room for the whole batch. Growing waits for the device, which happens in the first steps and when sizes change. */
static int make_room(struct feed *f, struct place *p, struct err *err)
{
    const struct batch_form *form = p->host.form;
    size_t need = 0;
    int rc;

    for (int s = 0; s < p->host.nshards; s++) {
        for (int i = 0; i < form->narrays; i++)
            need += align(batch_bytes(form, &p->host.shard[s], i));
        for (int l = 0; l < form->nlists; l++)
            need += align(offset_bytes(form, &p->host.shard[s], l));
    }
    if (need <= p->room)
        return 0;
    rc = f->dev->ops->reach(f->dev, p->read, err);
    if (rc < 0)
        return rc;
    if (p->mem)
        f->dev->ops->free(f->dev, p->mem);
    p->room = 0;
    need += need / 4; /* the sizes of lists differ from batch to batch */
    p->mem = f->dev->ops->alloc(f->dev, need);
    if (!p->mem)
        return err_set(err, ERR_DEVICE, "out of memory: a batch of %zu MiB", need >> 20);
    p->room = need;
    return 0;
}

/* Copies one array to *at and moves *at behind it. */
static int send(struct feed *f, char **at, const void *host, size_t bytes, struct err *err)
{
    int rc = bytes ? f->side->ops->copy_async(f->side, *at, host, bytes, err) : 0;

    *at += bytes;
    return rc;
}

/* Sends the pictures of all shards without gaps: one batch for the device. */
static int send_pictures(struct feed *f, struct place *p, int array, char **at, struct err *err)
{
    int rc = 0;

    for (int s = 0; s < p->host.nshards && rc >= 0; s++) {
        const struct shard_batch *from = &p->host.shard[s];

        p->shard[s].array[array] = *at;
        rc = send(f, at, from->array[array], batch_bytes(p->host.form, from, array), err);
    }
    *at = p->mem + align((size_t)(*at - p->mem));
    return rc;
}

/* Sends the arrays that are not pictures, and the offsets of the lists. */
static int send_rest(struct feed *f, struct place *p, int s, char **at, struct err *err)
{
    const struct batch_form *form = p->host.form;
    const struct shard_batch *from = &p->host.shard[s];
    int rc = 0;

    for (int i = 0; i < form->narrays && rc >= 0; i++) {
        if (form->array[i].canvas)
            continue;
        p->shard[s].array[i] = *at;
        rc = send(f, at, from->array[i], batch_bytes(form, from, i), err);
        *at = p->mem + align((size_t)(*at - p->mem));
    }
    for (int l = 0; l < form->nlists && rc >= 0; l++) {
        p->shard[s].offset[l] = (int32_t *)(void *)*at;
        rc = send(f, at, from->offset[l], offset_bytes(form, from, l), err);
        *at = p->mem + align((size_t)(*at - p->mem));
    }
    return rc;
}

static int send_batch(struct feed *f, struct place *p, struct err *err)
{
    struct device *side = f->side;
    int rc = make_room(f, p, err);
    char *at = p->mem;

    if (rc >= 0)
        rc = side->ops->wait(side, p->read, err);
    memcpy(p->shard, p->host.shard, (size_t)p->host.nshards * sizeof p->shard[0]);
    for (int i = 0; i < p->host.form->narrays && rc >= 0; i++)
        if (p->host.form->array[i].canvas)
            rc = send_pictures(f, p, i, &at, err);
    for (int s = 0; s < p->host.nshards && rc >= 0; s++)
        rc = send_rest(f, p, s, &at, err);
    p->batch = p->host;
    p->batch.shard = p->shard;
    return rc < 0 ? rc : side->ops->mark(side, p->sent, err);
}

/* loader_next() takes back the host memory of the previous batch, so the copy of that batch must be done. */
static int fetch(struct feed *f, struct place *p, struct err *err)
{
    int rc = f->side->ops->reach(f->side, f->place[f->at].sent, err);

    if (rc >= 0)
        rc = loader_next(f->loader, &p->host, err);
    return rc != 0 ? rc : send_batch(f, p, err);
}

int feed_next(struct feed *f, struct batch *ret, struct err *err)
{
    struct place *p = &f->place[1 - f->at];
    int rc;

    if (f->dev->host_memory) {
        rc = loader_next(f->loader, &p->batch, err);
    } else if (f->ahead) {
        rc = f->rc;
        *err = f->err;
    } else {
        rc = f->dev->ops->mark(f->dev, f->place[f->at].read, err);
        rc = rc < 0 ? rc : fetch(f, p, err);
    }
    f->ahead = false;
    if (rc != 0)
        return rc;
    f->at = 1 - f->at;
    *ret = p->batch;
    return f->dev->ops->wait(f->dev, p->sent, err);
}

const struct shard_batch *feed_host(const struct feed *f)
{
    const struct place *p = &f->place[f->at];

    return f->dev->host_memory ? p->batch.shard : p->host.shard;
}

void feed_ahead(struct feed *f)
{
    if (f->dev->host_memory || f->ahead || !loader_ready(f->loader))
        return;
    f->rc = f->dev->ops->mark(f->dev, f->place[f->at].read, &f->err);
    if (f->rc >= 0)
        f->rc = fetch(f, &f->place[1 - f->at], &f->err);
    f->ahead = true;
}

void feed_rewind(struct feed *f)
{
    struct err ignored;

    f->side->ops->sync(f->side, &ignored);
    f->ahead = false;
    loader_rewind(f->loader);
}
