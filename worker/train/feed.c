#include "worker/train/feed.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "worker/core/device.h"
#include "worker/data/loader.h"

/* Device memory of one batch: images, then the box lists. Grown only. */
struct place {
    char *mem;
    size_t room;
    struct device_mark *sent, *read; /* on the side queue: the copy is done; on the computing one: nobody reads it any more */
    struct batch batch;
    struct tensor images[JOB_MAX_SHARDS];
    struct box_list truth[JOB_MAX_SHARDS];
};

struct feed {
    struct device *dev, *side;
    struct loader *loader;
    struct place place[2];
    int at;     /* of the batch given out last */
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

static size_t list_bytes(const struct shard_batch *b)
{
    size_t rows = (size_t)b->truth.rows;

    return align(((size_t)b->n + 1) * sizeof(int32_t)) + align(rows * sizeof(int32_t)) + align(rows * 4 * sizeof(float));
}

static size_t image_floats(const struct shard_batch *b)
{
    return (size_t)b->n * (size_t)b->canvas.h * (size_t)b->canvas.w * 3;
}

/* Room for the whole batch. Growing waits for the device, which happens in the first steps and when sizes change. */
static int make_room(struct feed *f, struct place *p, struct err *err)
{
    size_t need = 0;
    int rc;

    for (int s = 0; s < p->batch.nshards; s++)
        need += image_floats(&p->batch.shard[s]) * sizeof(float) + list_bytes(&p->batch.shard[s]);
    need = align(need + 256);
    if (need <= p->room)
        return 0;
    rc = f->dev->ops->reach(f->dev, p->read, err);
    if (rc < 0)
        return rc;
    if (p->mem)
        f->dev->ops->free(f->dev, p->mem);
    p->room = 0;
    need += need / 4; /* box lists differ from batch to batch */
    p->mem = f->dev->ops->alloc(f->dev, need);
    if (!p->mem)
        return err_set(err, ERR_DEVICE, "out of memory: a batch of %zu MiB", need >> 20);
    p->room = need;
    return 0;
}

/* Copies one array and moves `*at` behind it. */
static int send(struct feed *f, char **at, const void *host, size_t bytes, struct err *err)
{
    int rc = bytes ? f->side->ops->upload(f->side, *at, host, bytes, err) : 0;

    *at += align(bytes);
    return rc;
}

static int send_list(struct feed *f, char **at, const struct shard_batch *b, struct box_list *ret, struct err *err)
{
    const struct box_list *from = &b->truth;
    size_t rows = (size_t)from->rows;
    int rc;

    ret->rows = from->rows;
    ret->offset = (const int32_t *)(const void *)*at;
    rc = send(f, at, from->offset, ((size_t)b->n + 1) * sizeof *from->offset, err);
    ret->cls = (const int32_t *)(const void *)*at;
    if (rc >= 0)
        rc = send(f, at, from->cls, rows * sizeof *from->cls, err);
    ret->box = (const float *)(const void *)*at;
    return rc < 0 ? rc : send(f, at, from->box, rows * 4 * sizeof *from->box, err);
}

static int send_batch(struct feed *f, struct place *p, struct err *err)
{
    struct device *side = f->side;
    int rc = make_room(f, p, err);
    char *at = p->mem;

    if (rc >= 0)
        rc = side->ops->wait(side, p->read, err);
    for (int s = 0; s < p->batch.nshards && rc >= 0; s++) {
        const struct shard_batch *b = &p->batch.shard[s];
        size_t floats = image_floats(b);

        p->images[s] = tensor_f32((float *)(void *)at, b->n, b->canvas.h, b->canvas.w, 3);
        rc = side->ops->copy_async(side, at, b->image, floats * sizeof(float), err);
        at += floats * sizeof(float); /* shards follow each other without a gap: one batch for the device */
    }
    at = p->mem + align((size_t)(at - p->mem));
    for (int s = 0; s < p->batch.nshards && rc >= 0; s++)
        rc = send_list(f, &at, &p->batch.shard[s], &p->truth[s], err);
    return rc < 0 ? rc : side->ops->mark(side, p->sent, err);
}

/* The host memory of the batch before is the loader's again as soon as loader_next() is called, so its copy must be done. */
static int fetch(struct feed *f, struct place *p, struct err *err)
{
    int rc = f->side->ops->reach(f->side, f->place[f->at].sent, err);

    if (rc >= 0)
        rc = loader_next(f->loader, &p->batch, err);
    return rc != 0 ? rc : send_batch(f, p, err);
}

static int point_at(struct feed *f, struct place *p, struct err *err)
{
    int rc = loader_next(f->loader, &p->batch, err);

    for (int s = 0; rc == 0 && s < p->batch.nshards; s++) {
        const struct shard_batch *b = &p->batch.shard[s];

        p->images[s] = tensor_f32(b->image, b->n, b->canvas.h, b->canvas.w, 3);
        p->truth[s] = b->truth;
    }
    return rc;
}

int feed_next(struct feed *f, struct batch *ret_batch, struct model_batch *ret, struct err *err)
{
    struct place *p = &f->place[1 - f->at];
    int rc;

    if (f->dev->host_memory) {
        rc = point_at(f, p, err);
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
    *ret_batch = p->batch;
    *ret = (struct model_batch){ p->images, p->truth };
    return f->dev->ops->wait(f->dev, p->sent, err);
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
