#include "worker/data/wave_store.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/data/sample/task.h"

struct wave_store {
    const struct task *task;
    struct device *dev;
    int images, shards;          /* added so far */
    char *mem;                   /* the whole memory */
    char *end[BATCH_MAX_ARRAYS]; /* of arrays of pictures: end of the last shard */
    char *array[BATCH_MAX_ARRAYS];
    size_t step[BATCH_MAX_ARRAYS]; /* bytes between samples; for pictures the most */
    int32_t *length[BATCH_MAX_LISTS], *offset[BATCH_MAX_LISTS];
    int32_t *rows[BATCH_MAX_LISTS]; /* [images]: rows of each sample */
    int32_t *index;                 /* [images] */
};

/* The most rows of one sample. */
static size_t room_of(const struct task *t, int of)
{
    return of == BATCH_IMAGES ? 1 : (size_t)t->room[of];
}

static size_t align(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void *place(char *mem, size_t at)
{
    return mem ? mem + at : NULL;
}

/* Places everything behind `mem`. Returns the size, also for mem NULL. */
static size_t lay_out(struct wave_store *s, char *mem, size_t images, size_t shards)
{
    const struct batch_form *f = s->task->form;
    size_t at = 0;

    for (int i = 0; i < f->narrays; i++) {
        const struct batch_array *a = &f->array[i];
        size_t pixels = a->canvas ? (size_t)s->task->largest.h * (size_t)s->task->largest.w : 1;

        s->array[i] = place(mem, at);
        s->step[i] = room_of(s->task, a->of) * pixels * (size_t)a->width * dtype_bytes(a->dtype);
        at += align(images * s->step[i]);
    }
    for (int l = 0; l < f->nlists; l++) {
        size_t divided = images * room_of(s->task, f->list[l].of);

        s->length[l] = place(mem, at);
        at += align(divided * sizeof(int32_t));
        s->offset[l] = place(mem, at);
        at += align((divided + shards) * sizeof(int32_t));
        s->rows[l] = place(mem, at);
        at += align(images * sizeof(int32_t));
    }
    s->index = place(mem, at);
    return at + align(images * sizeof(int32_t));
}

struct wave_store *wave_store_new(const struct task *task, struct device *dev, int images, int shards)
{
    struct wave_store *s = calloc(1, sizeof *s);
    size_t bytes;

    if (!s)
        return NULL;
    s->task = task;
    s->dev = dev;
    bytes = lay_out(s, NULL, (size_t)images, (size_t)shards);
    s->mem = dev ? dev->ops->host_alloc(dev, bytes) : aligned_alloc(64, bytes);
    if (!s->mem) {
        free(s);
        return NULL;
    }
    lay_out(s, s->mem, (size_t)images, (size_t)shards);
    return s;
}

void wave_store_free(struct wave_store *s)
{
    if (!s)
        return;
    if (s->dev)
        s->dev->ops->host_free(s->dev, s->mem);
    else
        free(s->mem);
    free(s);
}

void wave_store_clear(struct wave_store *s)
{
    s->images = s->shards = 0;
    memcpy(s->end, s->array, sizeof s->end);
}

void wave_store_add(struct wave_store *s, int shard, int n, struct canvas canvas, struct shard_batch *ret, int *ret_first)
{
    const struct batch_form *f = s->task->form;
    size_t first = (size_t)s->images;

    assert(canvas.h <= s->task->largest.h && canvas.w <= s->task->largest.w);
    *ret = (struct shard_batch){ .shard = shard, .n = n, .canvas = canvas, .index = s->index + first };
    for (int i = 0; i < f->narrays; i++) {
        ret->array[i] = f->array[i].canvas ? s->end[i] : s->array[i] + first * s->step[i];
        if (f->array[i].canvas)
            s->end[i] += batch_bytes(f, ret, i);
    }
    for (int l = 0; l < f->nlists; l++) /* each earlier shard has one more offset than rows */
        ret->offset[l] = s->offset[l] + first * room_of(s->task, f->list[l].of) + s->shards;
    *ret_first = s->images;
    s->images += n;
    s->shards++;
}

void wave_store_place(struct wave_store *s, const struct shard_batch *b, int first, int i, struct sample *ret)
{
    const struct batch_form *f = s->task->form;
    size_t at = (size_t)first + (size_t)i;

    ret->index = &s->index[at];
    for (int k = 0; k < f->narrays; k++)
        ret->array[k] =
            f->array[k].canvas ? (char *)b->array[k] + batch_bytes(f, b, k) / (size_t)b->n * (size_t)i : s->array[k] + at * s->step[k];
    for (int l = 0; l < f->nlists; l++)
        ret->length[l] = s->length[l] + at * room_of(s->task, f->list[l].of);
    ret->room = s->task->room;
}

/* The number of lengths of list l that sample `at` has. */
static int owners(const struct wave_store *s, int l, size_t at)
{
    int of = s->task->form->list[l].of;

    return of == BATCH_IMAGES ? 1 : s->rows[of][at];
}

int wave_store_count(struct wave_store *s, int i, struct err *err)
{
    const struct task *t = s->task;
    size_t at = (size_t)i;

    for (int l = 0; l < t->form->nlists; l++) { /* a list comes after the list that it divides */
        const int32_t *length = s->length[l] + at * room_of(t, t->form->list[l].of);
        int64_t rows = 0;

        for (int r = 0; r < owners(s, l, at); r++) {
            if (length[r] < 0 || rows + length[r] > t->room[l])
                return err_set(err, ERR_DATA, "%s: sample %d has %lld rows in list '%s', which has room for %d", t->source, s->index[at],
                               (long long)rows + length[r], t->form->list[l].name, t->room[l]);
            rows += length[r];
        }
        s->rows[l][at] = (int32_t)rows;
    }
    return 0;
}

/* Moves the rows of sample `at` in list l directly behind the `before` rows of earlier samples. */
static void move_rows(struct wave_store *s, struct shard_batch *b, int l, size_t at, size_t before, size_t rows)
{
    const struct batch_form *f = s->task->form;

    for (int k = 0; k < f->narrays; k++) {
        size_t row = (size_t)f->array[k].width * dtype_bytes(f->array[k].dtype);

        if (f->array[k].of == l)
            memmove((char *)b->array[k] + before * row, s->array[k] + at * s->step[k], rows * row);
    }
}

static void close_list(struct wave_store *s, struct shard_batch *b, int first, int l)
{
    int divided = 0, total = 0;

    for (int i = 0; i < b->n; i++) {
        size_t at = (size_t)first + (size_t)i;
        const int32_t *length = s->length[l] + at * room_of(s->task, s->task->form->list[l].of);
        int before = total;

        for (int r = 0; r < owners(s, l, at); r++) {
            b->offset[l][divided++] = total;
            total += length[r];
        }
        move_rows(s, b, l, at, (size_t)before, (size_t)(total - before));
    }
    b->offset[l][divided] = total;
    b->rows[l] = total;
}

void wave_store_close_up(struct wave_store *s, struct shard_batch *b, int first)
{
    for (int l = 0; l < s->task->form->nlists; l++) /* a list comes after the list that it divides */
        close_list(s, b, first, l);
}
