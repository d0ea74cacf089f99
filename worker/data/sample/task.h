/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/sample/task.h - a task says what a sample is: which arrays and lists a batch has (its form), how large the canvas of a shard is, and how one
 * sample is made from a data set. boxes.c is the task of single-stage detectors. A task whose canvas follows from a shard's pictures, or whose samples
 * are made of several pictures, is another of these; loader and feed stay as they are. */
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

/* Working memory of a thread that makes samples. Zeroed with a decoder is a good start; hand_memory() grows it. */
struct hand {
    struct decoder *decoder;
    void *memory;
    size_t bytes;
};

/* Where one sample is made. length[l]: how many rows of list l each row of what it divides has; one number where that is the image. A sample that has more
 * rows than there is room for counts them all and writes none beyond: the loader makes an error of it. */
struct sample {
    void *array[BATCH_MAX_ARRAYS];
    int32_t *length[BATCH_MAX_LISTS];
    const int *room; /* [lists]: most rows of each, and so most lengths of a list that divides them */
    int32_t *index;  /* position in the data set; the loader's */
};

struct task_ops {
    /* The canvas of a shard that holds these samples, in a step (0: validation). Pure. draw NULL: of any samples; { 0, 0 } where it depends on them. */
    struct canvas (*canvas)(const struct task *t, int64_t step, const struct draw *draw, int n);
    /* Makes one sample for a shard of that canvas in *ret. What it draws depends on its seed, the step and the draw alone. It may stand in for one that
     * could not be read, so it fits whatever canvas there is. Several threads call it, each with a hand of its own. Errors name the file. */
    int (*make)(struct task *t, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                struct err *err);
    void (*free)(struct task *t);
};

/* The samples of a data set, for training or for validation. */
struct task {
    const struct task_ops *ops;
    const struct batch_form *form;
    uint64_t seed;
    int32_t samples;           /* of the data set; */
    const int32_t *image;      /* [samples]: place of each in the data set; NULL: all of it in its order */
    const uint8_t *group;      /* [samples]: those of a group shall share shards, see sampler_group(); NULL: there are none. Training */
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
    size_t cache_bytes;   /* decoded pictures kept in memory; 0: none */
};

/* A kind of task; models name theirs. */
struct task_kind {
    const char *name;
    const struct batch_form *form;
    /* The data set outlives the task. Caller frees with task_free(). */
    int (*open)(const struct dataset *d, const struct task_options *opt, struct task **ret_task, struct err *err);
    /* Images of a training set that such a job trains on. NULL: all. */
    int (*count)(const struct dataset *d, const struct jobspec *spec);
};

/* NULL is nothing. */
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
/* Of the training stream: with the groups of the task. Caller frees with sampler_free(). */
int task_sampler(const struct task *t, int shard_images, struct sampler **ret_sampler, struct err *err);
/* At least so many bytes, with what they last held only if there were as many. NULL: no memory, and err says so. */
void *hand_memory(struct hand *h, size_t bytes, struct err *err);
void hand_free(struct hand *h);
