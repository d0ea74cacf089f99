#include "worker/predict/input.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/set/dataset.h"
#include "worker/data/image/image.h"
#include "worker/data/sample/task.h"
#include "worker/models/registry.h"

/* Growing memory for an array of the batch. */
struct slot {
    void *host, *device;
    size_t room;
};

struct input {
    const struct model *model;
    const struct jobspec *spec;
    struct hand hand;
    struct slot slot[BATCH_MAX_ARRAYS];
    struct shard_batch shard;
    int32_t index;
};

/* A data set of one picture without annotations. */
struct alone {
    struct dataset set;
    struct dataset_image image;
    int64_t offset[2];
    char folder[DATASET_MAX_PATH], source[16];
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_DEVICE, "out of memory: a picture for the network");
}

int input_open(const struct model *model, const struct jobspec *spec, struct input **ret, struct err *err)
{
    struct input *in = calloc(1, sizeof *in);

    if (in)
        in->hand.decoder = decoder_new();
    if (!in || !in->hand.decoder) {
        free(in);
        return no_memory(err);
    }
    in->model = model;
    in->spec = spec;
    *ret = in;
    return 0;
}

void input_close(struct input *in)
{
    if (!in)
        return;
    for (int i = 0; i < BATCH_MAX_ARRAYS; i++) {
        free(in->slot[i].host);
        if (in->slot[i].device)
            in->model->dev->ops->free(in->model->dev, in->slot[i].device);
    }
    hand_free(&in->hand);
    free(in);
}

static bool make_room(struct input *in, struct slot *s, size_t bytes)
{
    struct device *dev = in->model->dev;

    if (bytes <= s->room)
        return true;
    free(s->host);
    if (s->device)
        dev->ops->free(dev, s->device);
    s->host = malloc(bytes);
    s->device = dev->ops->alloc(dev, bytes);
    s->room = s->host && s->device ? bytes : 0;
    return s->room > 0;
}

static int set_of(struct alone *a, const char *path, int w, int h, struct err *err)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    size_t len = slash ? (size_t)(slash - path) : 1;

    if (len >= sizeof a->folder)
        return err_set(err, ERR_DATA, "%.200s...: the path is too long", path);
    memcpy(a->folder, slash ? path : ".", len);
    a->folder[len] = '\0';
    strcpy(a->source, "a picture");
    a->image = (struct dataset_image){ .id = 1, .file = (char *)file, .w = w, .h = h };
    a->set = (struct dataset){ .source = a->source, .folder = a->folder, .nimages = 1, .images = &a->image, .offset = a->offset };
    return 0;
}

/* Arrays with rows for images are the network's input. Arrays for objects only get room, since the task may write to
 * them. */
static int place_arrays(struct input *in, const struct task *t, struct sample *sample, struct err *err)
{
    const struct batch_form *f = t->form;

    for (int i = 0; i < f->narrays; i++) {
        const struct batch_array *a = &f->array[i];
        size_t rows = a->of == BATCH_IMAGES ? 1 : (size_t)t->room[a->of];
        size_t pixels = a->canvas ? (size_t)in->shard.canvas.h * (size_t)in->shard.canvas.w : 1;

        if (!make_room(in, &in->slot[i], rows * pixels * (size_t)a->width * dtype_bytes(a->dtype)))
            return no_memory(err);
        sample->array[i] = in->slot[i].host;
        in->shard.array[i] = a->of == BATCH_IMAGES ? in->slot[i].device : NULL;
    }
    return 0;
}

static int place_lists(const struct task *t, struct sample *sample, struct err *err)
{
    for (int l = 0; l < t->form->nlists; l++) {
        int of = t->form->list[l].of;

        sample->length[l] = calloc(of == BATCH_IMAGES ? 1 : (size_t)t->room[of], sizeof *sample->length[l]);
        if (!sample->length[l])
            return no_memory(err);
    }
    return 0;
}

static int upload(struct input *in, const struct batch_form *f, struct err *err)
{
    struct device *dev = in->model->dev;
    int rc = 0;

    for (int i = 0; i < f->narrays && rc >= 0; i++)
        if (f->array[i].of == BATCH_IMAGES)
            rc = dev->ops->upload(dev, in->slot[i].device, in->slot[i].host, batch_bytes(f, &in->shard, i), err);
    return rc;
}

static int make(struct input *in, struct task *t, struct err *err)
{
    const struct draw draw = { 0 };
    struct sample sample = { .room = t->room, .index = &in->index };
    int rc;

    in->index = 0;
    in->shard = (struct shard_batch){ .n = 1, .canvas = t->ops->canvas(t, 0, &draw, 1), .index = &in->index };
    rc = place_arrays(in, t, &sample, err);
    if (rc >= 0)
        rc = place_lists(t, &sample, err);
    if (rc >= 0)
        rc = t->ops->make(t, &in->hand, 0, draw, in->shard.canvas, &sample, err);
    if (rc >= 0)
        rc = upload(in, t->form, err);
    for (int l = 0; l < t->form->nlists; l++)
        free(sample.length[l]);
    return rc;
}

int input_make_of(struct input *in, const struct dataset *d, struct batch *ret, struct err *err)
{
    const struct model *m = in->model;
    const struct task_options o = { .spec = in->spec, .canvas = m->canvas, .grain = m->grain };
    struct task *t = NULL;
    int rc = m->family->task->open(d, &o, &t, err);

    if (rc >= 0)
        rc = make(in, t, err);
    if (rc >= 0)
        *ret = (struct batch){ .form = t->form, .seed = t->seed, .last = true, .nshards = 1, .shard = &in->shard };
    task_free(t);
    return rc;
}

int input_make(struct input *in, const char *path, int w, int h, bool upright, struct batch *ret, struct err *err)
{
    struct alone a = { 0 };
    int rc = set_of(&a, path, w, h, err);

    a.set.upright = upright;
    return rc < 0 ? rc : input_make_of(in, &a.set, ret, err);
}
