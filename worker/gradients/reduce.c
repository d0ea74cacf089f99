#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/core/arena.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"
#include "worker/gradients/reduce_plan.h"

enum { ARENA_CHUNK = 32 << 20 };

struct reduce {
    struct device *dev, *side;
    struct comm *comm;
    int rank, nranks, nshards;
    struct plan *plan;

    float **plane; /* [plan->nplanes] */
    float *grad;   /* gathered */
    struct arena *arena;
    float **leaf; /* [entries][most shards of a wave]: NULL until asked for */
    int max_wave;
    struct tree_part *part; /* of the fold that is being made */
    struct plan_wave *wave; /* the current one */
    bool last;
    int *missing;              /* [buckets]: parameters that are not ready */
    struct device_mark **mark; /* [buckets]: passed when a bucket's gradients are computed */
    bool merged;               /* in this step */
    int waves;                 /* begun in this step */

    /* The communication thread's own. What a rank sends: its canonical segments, or one sum of all its shards. */
    struct outline {
        int *planes;             /* [ranks]: planes each rank sends */
        struct tree_part *chunk; /* [nchunk], all ranks': what the chunk of a bucket is added from */
        int nchunk;
    } segments, sums, *sent; /* sent: of this step */
    const void **view;       /* [most chunks] */
    size_t *cut;
    size_t *square_cut;         /* [ranks + 1], bytes: each rank's blocks, bucket by bucket */
    double *squares, *gathered; /* shared memory in that order; host memory in flat order */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int issued, done; /* buckets of this step; done counts one more for the squares. Under lock, like all below */
    bool quit;
    struct err failure; /* code 0: none */
    double square_norm;
};

/* ---- communication thread ---- */

static int all_to_all(struct reduce *r, const struct plan_bucket *b, struct err *err)
{
    struct comm_exchange x = { r->plane[0], r->plan->blocks * REDUCE_BLOCK * sizeof(float), r->sent->planes, r->cut };
    int rc;

    for (int j = 0; j <= r->nranks; j++)
        r->cut[j] = plan_chunk(b, j, r->nranks) * REDUCE_BLOCK * sizeof(float);
    rc = comm_alltoall(r->comm, COMM_GRAD, &x, r->view, err);
    for (int i = 0; rc == 0 && i < r->sent->nchunk; i++)
        r->sent->chunk[i].data = r->view[i];
    return rc;
}

/* This rank's chunk, over all ranks' segments, into its place in the gathered buffer. One rank's segment lies there already. */
static int add_chunk(struct reduce *r, float *dst, size_t count, struct err *err)
{
    if (count == 0 || (r->sent->nchunk == 1 && r->sent->chunk[0].data == dst))
        return 0;
    return r->side->on->reduce->tree_add(r->side, dst, r->sent->chunk, r->sent->nchunk, count, err);
}

static int reduce_bucket(struct reduce *r, int bucket, size_t *squares_at, struct err *err)
{
    const struct plan_bucket *b = &r->plan->bucket[bucket];
    size_t lo = plan_chunk(b, r->rank, r->nranks), hi = plan_chunk(b, r->rank + 1, r->nranks), count = (hi - lo) * REDUCE_BLOCK;
    float *dst = r->grad + lo * REDUCE_BLOCK;
    int rc = r->side->ops->wait(r->side, r->mark[bucket], err);

    if (rc == 0)
        rc = all_to_all(r, b, err);
    if (rc == 0)
        rc = add_chunk(r, dst, count, err);
    if (rc == 0 && count)
        rc = r->side->on->reduce->sum_squares(r->side, r->squares + *squares_at, dst, count, err);
    *squares_at += hi - lo;
    if (rc == 0)
        rc = comm_allgather(r->comm, COMM_GRAD, r->grad, r->cut, err);
    return rc;
}

/* The ranks' blocks back into flat order, which knows neither ranks nor buckets, then the tree over them. The one wait for the side queue:
 * buckets before it are only queued there. */
static int sum_all_squares(struct reduce *r, double *ret_sum, struct err *err)
{
    size_t n = r->plan->blocks;
    double *host = r->gathered + n;
    const double *from = host;
    int rc = comm_allgather(r->comm, COMM_GRAD, r->squares, r->square_cut, err);

    if (rc == 0)
        rc = r->side->ops->download(r->side, host, r->squares, n * sizeof(double), err);
    if (rc == 0)
        rc = comm_check(r->comm, COMM_GRAD, err);
    if (rc < 0)
        return rc;
    for (int j = 0; j < r->nranks; j++)
        for (int i = 0; i < r->plan->nbuckets; i++) {
            const struct plan_bucket *b = &r->plan->bucket[i];
            size_t lo = plan_chunk(b, j, r->nranks), hi = plan_chunk(b, j + 1, r->nranks);

            memcpy(r->gathered + lo, from, (hi - lo) * sizeof(double));
            from += hi - lo;
        }
    *ret_sum = tree_sum(r->gathered, 1, (int)n);
    return 0;
}

/* Waits for the next thing to do: a bucket's number, plan->nbuckets for the squares, -1 to leave. */
static int next_task(struct reduce *r)
{
    int task = -1;

    pthread_mutex_lock(&r->lock);
    for (;;) {
        bool all = r->done == r->plan->nbuckets && r->issued == r->plan->nbuckets;

        if (r->quit)
            break;
        if (r->failure.code == 0 && (r->done < r->issued || all)) {
            task = r->done;
            break;
        }
        pthread_cond_wait(&r->changed, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return task;
}

static void finish_task(struct reduce *r, int rc, const struct err *err, double square_norm)
{
    pthread_mutex_lock(&r->lock);
    if (rc < 0)
        r->failure = *err;
    else
        r->done++;
    r->square_norm = square_norm;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void *communicate(void *arg)
{
    struct reduce *r = arg;
    size_t squares_at = 0;

    for (int task; (task = next_task(r)) >= 0;) {
        struct err err;
        double sum = 0;
        int rc;

        if (task == 0)
            squares_at = r->square_cut[r->rank] / sizeof(double);
        rc = task < r->plan->nbuckets ? reduce_bucket(r, task, &squares_at, &err) : sum_all_squares(r, &sum, &err);
        finish_task(r, rc, &err, sum); /* who is woken by the abort finds the reason */
        if (rc < 0)
            comm_abort(r->comm); /* the others must not wait for what will not come */
    }
    return NULL;
}

static int start_thread(struct reduce *r, struct err *err)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&r->thread, NULL, communicate, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_set(err, -rc, "start the communication thread: %s", strerror(rc));
    r->started = true;
    pthread_setname_np(r->thread, "reduce");
    return 0;
}

/* ---- opening ---- */

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "gradient reduction: out of memory");
}

static int take_outline(struct reduce *r, struct outline *o, int most)
{
    o->planes = calloc((size_t)r->nranks, sizeof(*o->planes));
    o->chunk = calloc((size_t)most, sizeof(*o->chunk));
    return o->planes && o->chunk ? 0 : -ENOMEM;
}

/* What every rank sends, and where its blocks stand in the gathered squares. */
static int know_ranks(struct reduce *r, struct err *err)
{
    const struct plan *p = r->plan;

    r->cut = calloc((size_t)r->nranks + 1, sizeof(*r->cut));
    r->square_cut = calloc((size_t)r->nranks + 1, sizeof(*r->square_cut));
    r->view = calloc((size_t)r->nshards, sizeof(*r->view));
    if (!r->cut || !r->square_cut || !r->view || take_outline(r, &r->segments, r->nshards) < 0 || take_outline(r, &r->sums, r->nranks) < 0)
        return no_memory(err);
    for (int j = 0; j < r->nranks; j++) {
        struct tree_span seg[TREE_MAX_SEGMENTS];
        struct span shards = rank_shards(j, r->nranks, r->nshards);
        size_t blocks = 0;

        r->segments.planes[j] = tree_segments(shards.lo, shards.hi, seg);
        for (int k = 0; k < r->segments.planes[j]; k++)
            r->segments.chunk[r->segments.nchunk++] = (struct tree_part){ seg[k].lo, seg[k].hi, NULL };
        r->sums.planes[j] = 1;
        r->sums.chunk[r->sums.nchunk++] = (struct tree_part){ j, j + 1, NULL };
        for (int i = 0; i < p->nbuckets; i++)
            blocks += plan_chunk(&p->bucket[i], j + 1, r->nranks) - plan_chunk(&p->bucket[i], j, r->nranks);
        r->square_cut[j + 1] = r->square_cut[j] + blocks * sizeof(double);
    }
    return 0;
}

/* Planes that peers read come first, as many as the rank with the most segments has: symmetric memory is alike everywhere. */
static int take_planes(struct reduce *r, struct err *err)
{
    struct plan *p = r->plan;
    size_t elements = p->blocks * REDUCE_BLOCK, bytes = elements * sizeof(float);
    int most = 0;

    for (int j = 0; j < r->nranks; j++)
        most = r->segments.planes[j] > most ? r->segments.planes[j] : most;
    r->plane = calloc((size_t)p->nplanes, sizeof(*r->plane));
    if (!r->plane)
        return no_memory(err);
    r->grad = comm_alloc_shared(r->comm, bytes, err);
    r->squares = r->grad ? comm_alloc_shared(r->comm, p->blocks * sizeof(double), err) : NULL;
    if (!r->squares)
        return err->code;
    r->plane[0] = r->nranks == 1 ? r->grad : comm_alloc(r->comm, bytes * (size_t)most, err);
    if (!r->plane[0])
        return err->code;
    for (int k = 1; k < p->nplanes; k++) {
        r->plane[k] = k < p->nsegments ? r->plane[0] + (size_t)k * elements : r->dev->ops->alloc(r->dev, bytes);
        if (!r->plane[k])
            return err_set(err, ERR_DEVICE, "no memory for %zu bytes of partial gradients", bytes);
    }
    return 0;
}

static int take_host(struct reduce *r, struct err *err)
{
    struct plan *p = r->plan;

    for (int w = 0; w < p->nwaves; w++) {
        int m = p->wave[w].shards.hi - p->wave[w].shards.lo;

        r->max_wave = m > r->max_wave ? m : r->max_wave;
    }
    r->arena = arena_new(r->dev, ARENA_CHUNK);
    r->leaf = calloc((size_t)p->nentries * (size_t)r->max_wave, sizeof(*r->leaf));
    r->part = calloc((size_t)r->nshards, sizeof(*r->part));
    r->missing = calloc((size_t)p->nbuckets, sizeof(*r->missing));
    r->mark = calloc((size_t)p->nbuckets, sizeof(*r->mark));
    r->gathered = calloc(2 * p->blocks, sizeof(*r->gathered)); /* flat order, then as it came */
    if (!r->arena || !r->leaf || !r->part || !r->missing || !r->mark || !r->gathered)
        return no_memory(err);
    for (int i = 0; i < p->nbuckets; i++) {
        r->mark[i] = r->dev->ops->mark_new(r->dev);
        if (!r->mark[i])
            return no_memory(err);
    }
    return 0;
}

/* Two steps of zeros, since a device of its own memory may stop all its queues when it meets a kernel, a size or a peer for the first time.
 * Later that could be for ever: the communication thread would wait for a collective of the main thread, whose peer waits for the
 * communication thread. */
static int rehearse(struct reduce *r, struct err *err)
{
    struct outline *const outlines[] = { &r->segments, &r->sums };
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0 && !r->side->host_memory; i++) {
        reduce_begin(r);
        pthread_mutex_lock(&r->lock);
        r->sent = outlines[i];
        r->issued = r->plan->nbuckets;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        rc = reduce_wait(r, err);
    }
    return rc;
}

int reduce_open(const struct reduce_options *opt, struct param *const *params, int nparams, struct reduce **ret_reduce, struct err *err)
{
    struct reduce *r = calloc(1, sizeof(*r));
    struct err local = { 0 };
    int rc;

    err = err ? err : &local;
    if (!r)
        return no_memory(err);
    r->dev = opt->dev;
    r->side = opt->side;
    r->comm = opt->comm;
    r->rank = comm_rank(opt->comm);
    r->nranks = comm_ranks(opt->comm);
    r->nshards = opt->nshards;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    rc = plan_new(opt, r->rank, r->nranks, params, nparams, &r->plan, err);
    if (rc == 0)
        rc = know_ranks(r, err);
    if (rc == 0)
        rc = take_planes(r, err);
    if (rc == 0)
        rc = take_host(r, err);
    if (rc == 0)
        rc = start_thread(r, err);
    if (rc == 0)
        rc = rehearse(r, err);
    if (rc < 0) {
        reduce_close(r);
        return rc;
    }
    *ret_reduce = r;
    return 0;
}

static void stop_thread(struct reduce *r)
{
    bool busy;

    pthread_mutex_lock(&r->lock);
    busy = r->failure.code == 0 && (r->done < r->issued || r->done == r->plan->nbuckets);
    r->quit = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (busy)
        comm_abort(r->comm);
    pthread_join(r->thread, NULL);
}

/* Only the planes that peers do not read are the device's. */
static void free_planes(struct reduce *r)
{
    if (!r->plan || !r->plane)
        return;
    for (int k = r->plan->nsegments; k < r->plan->nplanes; k++)
        if (r->plane[k])
            r->dev->ops->free(r->dev, r->plane[k]);
    free(r->plane);
}

void reduce_close(struct reduce *r)
{
    if (!r)
        return;
    if (r->started)
        stop_thread(r);
    free_planes(r);
    for (int i = 0; r->mark && i < r->plan->nbuckets; i++)
        if (r->mark[i])
            r->dev->ops->mark_free(r->dev, r->mark[i]);
    arena_free(r->arena);
    plan_free(r->plan);
    free(r->leaf);
    free(r->part);
    free(r->missing);
    free(r->mark);
    free(r->segments.planes);
    free(r->segments.chunk);
    free(r->sums.planes);
    free(r->sums.chunk);
    free(r->view);
    free(r->cut);
    free(r->square_cut);
    free(r->gathered);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- a step ---- */

void reduce_begin(struct reduce *r)
{
    struct plan *p = r->plan;

    pthread_mutex_lock(&r->lock);
    assert(r->done == 0 || r->done > p->nbuckets || r->failure.code < 0);
    r->issued = r->done = 0;
    r->merged = r->dev->merges;
    r->sent = r->merged ? &r->sums : &r->segments;
    pthread_mutex_unlock(&r->lock);
    r->waves = 0;
    for (int i = 0; i < p->nbuckets; i++)
        r->missing[i] = p->bucket[i].nentries;
    memset(r->leaf, 0, (size_t)p->nentries * (size_t)r->max_wave * sizeof(*r->leaf));
    arena_reset(r->arena);
    r->wave = NULL;
}

void reduce_wave(struct reduce *r, int wave)
{
    assert(wave >= 0 && wave < r->plan->nwaves);
    r->wave = &r->plan->wave[wave];
    r->last = wave == r->plan->nwaves - 1;
    r->waves++;
}

static int entry_index(const struct reduce *r, const struct param *p)
{
    return p->index >= 0 && p->index < r->plan->nparams ? r->plan->entry_of[p->index] : -1;
}

float *reduce_dest(struct reduce *r, const struct param *p, int shard, bool *ret_written)
{
    int i = entry_index(r, p), plane = r->wave->direct[shard];
    float **leaf;

    assert(i >= 0 && shard < r->wave->shards.hi - r->wave->shards.lo);
    *ret_written = r->merged && r->waves > 1;
    if (r->merged)
        return r->plane[0] + r->plan->entry[i].at;
    leaf = &r->leaf[i * r->max_wave + shard];
    if (!*leaf)
        *leaf = plane >= 0 ? r->plane[plane] + r->plan->entry[i].at : arena_alloc(r->arena, p->count * sizeof(float));
    return *leaf;
}

static int fold(struct reduce *r, const struct plan_fold *f, const struct plan_entry *e, float *const *leaf, struct err *err)
{
    for (int k = 0; k < f->nparts; k++) {
        const struct plan_part *part = &r->wave->part[f->first + k];
        const float *data = part->plane >= 0 ? r->plane[part->plane] + e->at : leaf[part->lo - r->wave->shards.lo];

        if (!data)
            return err_set(err, ERR_STATE, "%s: no gradient of shard %d", e->param->name, part->lo);
        r->part[k] = (struct tree_part){ part->lo, part->hi, data };
    }
    return f->nparts == 1 ? 0 : r->dev->on->reduce->tree_add(r->dev, r->plane[f->plane] + e->at, r->part, f->nparts, e->param->count, err);
}

static void drop_leaves(struct reduce *r, float **leaf)
{
    for (int s = 0; s < r->wave->shards.hi - r->wave->shards.lo; s++) {
        if (r->wave->direct[s] < 0)
            arena_release(r->arena, leaf[s]);
        leaf[s] = NULL;
    }
}

/* Hands over every bucket that is complete and whose turn it is. issued is written by this thread alone. */
static int issue(struct reduce *r, struct err *err)
{
    int n = r->issued, rc = 0;

    while (n < r->plan->nbuckets && r->missing[n] == 0)
        n++;
    if (n == r->issued)
        return 0;
    for (int i = r->issued; i < n && rc == 0; i++)
        rc = r->dev->ops->mark(r->dev, r->mark[i], err);
    pthread_mutex_lock(&r->lock);
    if (rc == 0 && r->failure.code < 0) {
        *err = r->failure;
        rc = err->code;
    }
    if (rc == 0)
        r->issued = n;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int reduce_ready(struct reduce *r, const struct param *p, struct err *err)
{
    struct err local = { 0 };
    int i = entry_index(r, p), rc = 0;
    float **leaf;

    assert(i >= 0);
    err = err ? err : &local;
    leaf = &r->leaf[i * r->max_wave];
    for (int f = 0; rc == 0 && !r->merged && f < r->wave->nfolds; f++)
        rc = fold(r, &r->wave->fold[f], &r->plan->entry[i], leaf, err);
    if (!r->merged)
        drop_leaves(r, leaf);
    if (rc == 0 && r->last) {
        int bucket = r->plan->entry[i].bucket;

        assert(r->missing[bucket] > 0);
        r->missing[bucket]--;
        rc = issue(r, err);
    }
    return rc;
}

int reduce_wait(struct reduce *r, struct err *err)
{
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    while (r->failure.code == 0 && r->issued == r->plan->nbuckets && r->done <= r->plan->nbuckets)
        pthread_cond_wait(&r->changed, &r->lock);
    if (r->failure.code < 0) {
        rc = r->failure.code;
        if (err)
            *err = r->failure;
    } else if (r->issued < r->plan->nbuckets) {
        rc = err_set(err, ERR_STATE, "gradients of %d parameters are missing in bucket %d", r->missing[r->issued], r->issued);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int reduce_state(struct reduce *r, struct err *err)
{
    int rc;

    pthread_mutex_lock(&r->lock);
    rc = r->failure.code;
    if (rc < 0 && err)
        *err = r->failure;
    pthread_mutex_unlock(&r->lock);
    return rc;
}

float *reduce_grad(const struct reduce *r, const struct param *p)
{
    int i = entry_index(r, p);

    return i < 0 ? NULL : r->grad + r->plan->entry[i].at;
}

double reduce_square_norm(const struct reduce *r)
{
    return r->square_norm;
}
