/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/sample/task.h - a task defines a sample: the arrays and lists
 * of a batch (its form), the size of a shard's canvas, and the making of one sample from a data set. boxes.c is the
 * task of single-stage detectors. A further struct task serves canvases that follow from a shard's pictures, or samples
 * made of several pictures; loader and feed stay unchanged. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/data/make/batch.h"
#include "worker/data/make/sampler.h"

struct dataset;
struct decoder;
struct err;
struct jobspec;
struct task;

/* Working memory of a thread that makes samples. It starts as zeros with a decoder; hand_memory() grows it. */
struct hand {
    struct decoder *decoder;
    void *memory;
    size_t bytes;
};

/* Destination of one sample. length[l]: for each row of list l's parent, its number of rows of list l; a single number
 * if the parent is the image. A sample with more rows than there is room for counts them all but writes only those that
 * fit: the loader makes an error of it. */
struct sample {
    void *array[BATCH_MAX_ARRAYS];
    int32_t *length[BATCH_MAX_LISTS];
    const int *room; /* [lists]: most rows of each, and so most lengths of the lists below it */
    int32_t *index;  /* position in the data set; set by the loader */
};

struct task_ops {
    /* The canvas of a shard with these samples, in a step (0: validation). Pure. draw NULL: for any samples; { 0, 0 }
     * if it depends on them. */
    struct canvas (*canvas)(const struct task *t, int64_t step, const struct draw *draw, int n);
    /* Makes one sample for a shard of that canvas in *ret. Its draws depend on its seed, the step and the draw alone.
     * It may replace a sample that could not be read, so it must fit any canvas. Several threads call it, each with its
     * own hand. Errors name the file. */
    int (*make)(struct task *t, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                struct err *err);
    void (*free)(struct task *t);
};

/* The samples of a data set, for training or for validation. */
struct task {
    const struct task_ops *ops;
    const struct batch_form *form;
    uint64_t seed;
    int32_t samples;      /* of the data set; */
    const int32_t *image; /* [samples]: place of each in the data set; NULL: all of it in its order */
    /* [samples]: samples of a group share shards, see sampler_group(); NULL: no groups. Training */
    const uint8_t *group;
    const char *source;        /* its name for messages */
    struct canvas largest;     /* no canvas is higher or wider */
    int room[BATCH_MAX_LISTS]; /* most rows of each list in one sample, >= 1 */
};

/* How a job's task is opened. */
struct task_options {
    const struct jobspec *spec;
    bool train;
    struct canvas canvas; /* of the model: nominal; */
    int grain;            /* sides are multiples of it */
    size_t cache_bytes;   /* decoded pictures kept in memory; 0: no pictures */
};

/* A kind of task; models name theirs. */
struct task_kind {
    const char *name;
    const struct batch_form *form;
    /* The data set must outlive the task. Caller frees with task_free(). */
    int (*open)(const struct dataset *d, const struct task_options *opt, struct task **ret_task, struct err *err);
    /* Number of images of a training set that such a job trains on. NULL: all. */
    int (*count)(const struct dataset *d, const struct jobspec *spec);
};

/* NULL is ignored. */
static inline void task_free(struct task *t)
{
    if (t)
        t->ops->free(t);
}
/* Place of a sample in the data set. */
static inline int32_t task_image(const struct task *t, int32_t sample)
{
    return t->image ? t->image[sample] : sample;
}
/* A sampler for the training stream, with the groups of the task. Caller frees with sampler_free(). */
int task_sampler(const struct task *t, int shard_images, struct sampler **ret_sampler, struct err *err);
/* At least so many bytes, with their last contents only if there were as many. NULL: no memory; err tells it. */
void *hand_memory(struct hand *h, size_t bytes, struct err *err);
void hand_free(struct hand *h);
