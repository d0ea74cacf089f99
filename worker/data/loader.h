/* worker/data/loader.h - batches, decoded and augmented ahead of time by threads of its own. What a batch holds depends on (data set,
 * seed, step) alone: results are placed by index, so neither threads nor order of arrival nor the number of ranks change a bit.
 *
 * Two streams. Training: shards [shard_lo, shard_hi) of `shards` of every step, cut into waves, for ever. Validation: the data set in its
 * order, cut into shards of `batch` images; this rank takes shards q with q mod ranks == rank; one pass, then loader_rewind().
 * A two-stage detector with its own padding per shard, or frames of a video, is another `struct batch` filled by the same slots. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/ops/yolo.h"
#include "worker/data/augment.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"

struct err;
struct loader;

struct loader_options {
    bool train; /* false: validation */
    uint64_t seed;
    int batch; /* training: images of the global batch; validation: of one val shard */
    /* training */
    int shards, shard_lo, shard_hi; /* global number, and this rank's */
    int waves;
    int64_t first_step, steps; /* first step to deliver, counted from 1; all steps of the job (multi-scale ends at the largest size) */
    struct scales scales;
    struct augment augment;
    enum bad_policy on_bad; /* a picture that cannot be read any more: BAD_ERROR, or BAD_SKIP: the next sample that can takes its place */
    /* validation */
    struct canvas canvas;
    int rank, ranks;
    /* both */
    struct device *dev; /* pictures lie in its host_alloc() memory; NULL: in plain memory. Outlives the loader */
    int workers;        /* decoding threads, >= 1 */
    size_t cache_bytes; /* decoded pictures kept in memory; 0: none */
};

/* One shard's part of a wave. Host memory. */
struct shard_batch {
    int shard; /* global number: training shard v, or validation shard q */
    int n;     /* images; only the last validation shard may be short */
    struct canvas canvas;
    float *image;          /* [n][canvas.h][canvas.w][3], 0 .. 1; the shards of a wave follow each other */
    const int32_t *index;  /* [n]: position of each image in the data set */
    struct box_list truth; /* n images; crowds are left out */
};

struct batch {
    int64_t step;  /* counted from 1; 0 in validation */
    int64_t epoch; /* of the first image */
    int wave;      /* of this step, 0 .. waves - 1; empty waves are not delivered */
    bool last;     /* last wave of the step, or last shard of the validation pass */
    int nshards;
    const struct shard_batch *shard; /* [nshards], ascending */
};

struct loader_stats {
    int64_t decoded;    /* pictures decoded from files */
    int64_t cache_hits; /* taken from memory */
    int64_t replaced;   /* unreadable pictures that another sample stood in for */
    int64_t wait_ns;    /* time loader_next() waited */
    size_t cached_bytes;
};

enum { LOADER_END = 1 };

/* Starts the threads. `d` must outlive the loader and have been checked. ERR_INPUT: options that do not fit each other; ERR_DATA: no images. */
int loader_open(const struct dataset *d, const struct loader_options *opt, struct loader **ret_loader, struct err *err);
/* Stops and joins the threads; whatever they are at is finished first. NULL is allowed. */
void loader_close(struct loader *l);
/* The next wave, or LOADER_END after the last validation shard of this rank. *ret is borrowed until the next call. Errors name the file
 * (ERR_DATA) and repeat on further calls. */
int loader_next(struct loader *l, struct batch *ret, struct err *err);
/* Whether loader_next() would return without waiting. */
bool loader_ready(struct loader *l);
/* Validation: the next loader_next() starts a new pass. */
void loader_rewind(struct loader *l);
/* Counters for the log. */
void loader_stats(struct loader *l, struct loader_stats *ret);
