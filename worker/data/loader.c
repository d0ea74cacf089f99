#include "worker/data/loader.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/host/tasks.h"
#include "worker/core/shards.h"
#include "worker/core/stress.h"
#include "worker/data/image/image.h"
#include "worker/data/sample/task.h"
#include "worker/data/make/sampler.h"
#include "worker/data/wave_store.h"
#include "worker/data/text/whole_file.h"

/* The caller has one wave; the others are in work. */
enum { SLOTS = 3, MAX_WORKERS = 256 };

/* A non-empty wave of a step: local shards [lo, hi). Validation has one wave of one shard. */
struct wave {
    int number, lo, hi;
};

/* A wave in work. */
struct slot {
    struct batch batch;
    struct shard_batch *shard; /* [most shards of a wave] */
    int *first;                /* [most shards of a wave]: the shard's first image in the wave */
    struct draw *draw;         /* [most images of a wave] */
    struct hash128 *hash;      /* [most images of a wave]; NULL: not needed */
    struct wave_store *store;
    int images, taken, done;
    int *order, *turn; /* [most images of a wave], under stress: the k-th image to take, and the images done before it; NULL: no stress */
    int bad;           /* first image that failed, or -1 */
    struct err err;    /* its error */
};

struct loader {
    struct task *task;
    struct loader_options opt;
    struct sampler *sampler; /* for training */
    struct wave wave[64];
    int nwaves, shard_images, val_shards; /* val_shards: those of this rank */
    struct slot slot[SLOTS];

    pthread_mutex_t lock;
    pthread_cond_t work, ready, turn;
    int64_t planned;  /* waves [0, planned) have had a slot */
    int64_t working;  /* the first wave with an image still to take */
    int64_t released; /* waves [0, released) were given back by the caller */
    int64_t next;     /* next wave to deliver */
    bool stop, pass_over;
    struct err failed;

    pthread_t thread[MAX_WORKERS];
    int nthreads;
};

/* ---- the contents of waves ---- */

static int plan_waves(struct loader *l, struct err *err)
{
    const struct loader_options *o = &l->opt;
    int local = o->shard_hi - o->shard_lo;

    if (o->batch < 1 || o->workers < 1)
        return err_set(err, ERR_INPUT, "loader: batch %d, workers %d", o->batch, o->workers);
    if (!o->train) {
        int all = val_shards(l->task->samples, o->batch);

        if (o->ranks < 1 || o->rank < 0 || o->rank >= o->ranks)
            return err_set(err, ERR_INPUT, "loader: rank %d of %d", o->rank, o->ranks);
        l->shard_images = o->batch;
        l->val_shards = val_shards_of_rank(all, o->rank, o->ranks);
        l->wave[0] = (struct wave){ 0, 0, 1 };
        l->nwaves = 1;
        return 0;
    }
    if (o->shards < 1 || o->batch % o->shards || o->shard_lo < 0 || local < 1 || o->shard_hi > o->shards || o->waves < 1 || o->waves > 64)
        return err_set(err, ERR_INPUT, "loader: shards %d .. %d of %d, batch %d, waves %d do not fit", o->shard_lo, o->shard_hi, o->shards,
                       o->batch, o->waves);
    if (o->first_step < 1)
        return err_set(err, ERR_INPUT, "loader: first step %lld", (long long)o->first_step);
    l->shard_images = o->batch / o->shards;
    for (int w = 0; w < o->waves; w++) {
        struct span part = wave_shards((struct span){ 0, local }, w, o->waves);
        struct wave wave = { w, part.lo, part.hi };

        if (wave.lo < wave.hi)
            l->wave[l->nwaves++] = wave;
    }
    return 0;
}

/* The draws of the shard must be the last ones in the slot. */
static void add_shard(struct loader *l, struct slot *s, int number, int images)
{
    const struct task *t = l->task;
    int v = s->batch.nshards++;
    struct canvas canvas = t->ops->canvas(t, s->batch.step, s->draw + s->images, images);

    wave_store_add(s->store, number, images, canvas, &s->shard[v], &s->first[v]);
    s->shard[v].hash = s->hash ? s->hash + s->images : NULL;
    s->images += images;
}

static void plan_training(struct loader *l, struct slot *s, int64_t seq)
{
    const struct loader_options *o = &l->opt;
    const struct wave *w = &l->wave[seq % l->nwaves];
    int64_t step = o->first_step + seq / l->nwaves;

    s->batch.step = step;
    s->batch.wave = w->number;
    s->batch.last = seq % l->nwaves == l->nwaves - 1;
    for (int v = o->shard_lo + w->lo; v < o->shard_lo + w->hi; v++) {
        for (int i = 0; i < l->shard_images; i++)
            s->draw[s->images + i] = sampler_at(l->sampler, stream_position(step, o->batch, o->shards, v, i));
        for (int i = 0; i < l->shard_images; i++)
            s->draw[s->images + i].shard = v;
        add_shard(l, s, v, l->shard_images);
    }
    s->batch.epoch = s->draw[0].epoch;
}

static void plan_validation(struct loader *l, struct slot *s, int64_t seq)
{
    const struct loader_options *o = &l->opt;
    int64_t k = seq % l->val_shards, first = (o->rank + k * o->ranks) * o->batch, left = l->task->samples - first;
    int n = left < o->batch ? (int)left : o->batch;

    s->batch.last = k == l->val_shards - 1;
    for (int i = 0; i < n; i++)
        s->draw[i] = (struct draw){ .sample = (int32_t)(first + i) };
    add_shard(l, s, (int)(first / o->batch), n);
}

/* Returns whether wave seq exists. */
static bool exists(const struct loader *l, int64_t seq)
{
    if (l->opt.train)
        return l->opt.first_step + seq / l->nwaves <= l->opt.steps;
    return l->val_shards > 0;
}

static int threads_of(const struct loader *l)
{
    return l->opt.workers < MAX_WORKERS ? l->opt.workers : MAX_WORKERS;
}

/* Gives free slots to the next waves. The caller holds the lock, or no thread runs yet. */
static void plan(struct loader *l)
{
    for (; l->planned < l->released + SLOTS && exists(l, l->planned); l->planned++) {
        struct slot *s = &l->slot[l->planned % SLOTS];

        s->batch = (struct batch){ .form = l->task->form, .seed = l->task->seed, .shard = s->shard };
        s->images = s->taken = s->done = 0;
        wave_store_clear(s->store);
        s->bad = -1;
        if (l->opt.train)
            plan_training(l, s, l->planned);
        else
            plan_validation(l, s, l->planned);
        if (l->opt.stress) {
            stress_order(l->opt.stress, (uint64_t)l->planned, s->images, s->order);
            stress_turns(l->opt.stress, (uint64_t)l->planned, s->images, threads_of(l), s->turn);
        }
    }
    pthread_cond_broadcast(&l->work);
}

/* ---- the threads ---- */

/* Hash of a finished sample: its place in the data set, its pictures, the rows of its lists. */
static struct hash128 hash_sample(const struct batch_form *f, struct canvas canvas, const struct sample *s)
{
    struct hash128 h = hash_data(s->index, sizeof *s->index);
    int rows[BATCH_MAX_LISTS] = { 0 };

    for (int l = 0; l < f->nlists; l++) {
        int owners = f->list[l].of == BATCH_IMAGES ? 1 : rows[f->list[l].of];

        rows[l] = 0;
        for (int r = 0; r < owners; r++)
            rows[l] += s->length[l][r];
        h = hash_fold(h, hash_data(s->length[l], (size_t)owners * sizeof *s->length[l]));
    }
    for (int i = 0; i < f->narrays; i++) {
        const struct batch_array *a = &f->array[i];
        size_t n = a->of == BATCH_IMAGES ? 1 : (size_t)rows[a->of], pixels = a->canvas ? (size_t)canvas.h * (size_t)canvas.w : 1;

        h = hash_fold(h, hash_data(s->array[i], n * pixels * (size_t)a->width * dtype_bytes(a->dtype)));
    }
    return h;
}

/* Adds advice to the error if the file of a training sample is at fault. */
static int lost(const struct loader *l, int rc, struct err *err)
{
    const struct err why = *err;

    if (!file_at_fault(rc) || !l->opt.train || l->opt.on_bad == BAD_SKIP)
        return rc;
    return err_set(err, rc, "%s; data.on_bad=skip would put another picture in its place", why.msg);
}

/* Makes image i of a slot. Under BAD_SKIP a sample that cannot be read is replaced by the next good one, which is the
 * same for all threads and ranks. */
static int make_image(struct loader *l, struct hand *hand, struct slot *s, int i, struct err *err)
{
    struct task *t = l->task;
    struct draw draw = s->draw[i];
    bool replace = l->opt.train && l->opt.on_bad == BAD_SKIP;
    struct sample place;
    int v = 0, skipped = 0, rc;

    while (i >= s->first[v] + s->shard[v].n)
        v++;
    wave_store_place(s->store, &s->shard[v], s->first[v], i - s->first[v], &place);
    rc = t->ops->make(t, hand, s->batch.step, draw, s->shard[v].canvas, &place, err);
    while (rc < 0 && file_at_fault(rc) && replace && ++skipped < t->samples) {
        draw.sample = (draw.sample + 1) % t->samples;
        rc = t->ops->make(t, hand, s->batch.step, draw, s->shard[v].canvas, &place, err);
    }
    *place.index = task_image(t, draw.sample);
    if (rc >= 0)
        rc = wave_store_count(s->store, i, err);
    else
        rc = lost(l, rc, err);
    if (rc >= 0 && s->hash)
        s->hash[i] = hash_sample(t->form, s->shard[v].canvas, &place);
    return rc;
}

/* Takes the next image, the k-th of its wave. Returns false when the loader stops. The lock is held at call and
 * return. */
static bool take(struct loader *l, struct slot **ret_slot, int *ret_k)
{
    while (!l->stop) {
        if (l->working < l->planned) {
            struct slot *s = &l->slot[l->working % SLOTS];

            *ret_slot = s;
            *ret_k = s->taken++;
            if (s->taken == s->images)
                l->working++;
            return true;
        }
        pthread_cond_wait(&l->work, &l->lock);
    }
    return false;
}

/* Under stress: waits until the drawn number of images of the wave are done. The lock is held. */
static void wait_turn(struct loader *l, const struct slot *s, int k)
{
    while (s->done != s->turn[k] && !l->stop)
        pthread_cond_wait(&l->turn, &l->lock);
}

static void *work(void *arg)
{
    struct loader *l = arg;
    struct hand hand = { .decoder = decoder_new() };
    struct slot *s;
    struct err err;
    int k, i, rc;

    pthread_mutex_lock(&l->lock);
    while (take(l, &s, &k)) {
        i = s->order ? s->order[k] : k;
        pthread_mutex_unlock(&l->lock);
        rc = hand.decoder ? make_image(l, &hand, s, i, &err) : err_set(&err, -ENOMEM, "loader: no memory for a decoder");
        if (l->opt.stress)
            stress_pause(l->opt.stress, (uint64_t)s->batch.step << 32 | (uint64_t)k);
        pthread_mutex_lock(&l->lock);
        if (l->opt.stress)
            wait_turn(l, s, k);
        if (rc < 0 && (s->bad < 0 || i < s->bad)) {
            s->bad = i;
            s->err = err;
        }
        if (++s->done == s->images)
            pthread_cond_signal(&l->ready);
        if (l->opt.stress)
            pthread_cond_broadcast(&l->turn);
    }
    pthread_mutex_unlock(&l->lock);
    hand_free(&hand);
    return NULL;
}

/* Blocks all signals in these threads: the training thread handles them. */
static int start_threads(struct loader *l, struct err *err)
{
    int workers = threads_of(l), least = l->opt.stress ? workers : 1, rc = 0; /* under stress threads wait for each other */
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    while (l->nthreads < workers && (rc = pthread_create(&l->thread[l->nthreads], NULL, work, l)) == 0)
        l->nthreads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return l->nthreads >= least ? 0 : err_set(err, -rc, "loader: cannot start a thread: %s", thread_lacks(rc));
}

/* ---- open and close ---- */

static int make_slot(struct loader *l, struct slot *s, int images, int shards)
{
    s->store = wave_store_new(l->task, l->opt.dev, images, shards);
    s->shard = calloc((size_t)shards, sizeof *s->shard);
    s->first = calloc((size_t)shards, sizeof *s->first);
    s->draw = calloc((size_t)images, sizeof *s->draw);
    s->hash = l->opt.hashes ? calloc((size_t)images, sizeof *s->hash) : NULL;
    if (l->opt.stress) {
        s->order = calloc((size_t)images, sizeof *s->order);
        s->turn = calloc((size_t)images, sizeof *s->turn);
    }
    return s->store && s->shard && s->first && s->draw && (s->hash || !l->opt.hashes) && (!l->opt.stress || (s->order && s->turn))
               ? 0
               : -ENOMEM;
}

static int make_slots(struct loader *l, struct err *err)
{
    const struct canvas *c = &l->task->largest;
    int shards = 1;

    for (int w = 0; w < l->nwaves; w++)
        if (l->wave[w].hi - l->wave[w].lo > shards)
            shards = l->wave[w].hi - l->wave[w].lo;
    for (int i = 0; i < SLOTS; i++)
        if (make_slot(l, &l->slot[i], shards * l->shard_images, shards) < 0)
            return err_set(err, -ENOMEM, "loader: no memory for %d waves of %d images of %d x %d pixels", SLOTS, shards * l->shard_images,
                           c->w, c->h);
    return 0;
}

int loader_open(struct task *task, const struct loader_options *opt, struct loader **ret_loader, struct err *err)
{
    struct loader *l;
    int rc;

    if (task->samples == 0)
        return err_set(err, ERR_DATA, "%s: no images", task->source);
    l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "loader: no memory");
    l->task = task;
    l->opt = *opt;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_cond_init(&l->turn, NULL);
    rc = plan_waves(l, err);
    if (rc == 0)
        rc = make_slots(l, err);
    if (rc == 0 && opt->train)
        rc = task_sampler(task, l->shard_images, &l->sampler, err);
    if (rc == 0) {
        plan(l);
        rc = start_threads(l, err);
    }
    if (rc < 0)
        loader_close(l);
    else
        *ret_loader = l;
    return rc;
}

void loader_close(struct loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_cond_broadcast(&l->turn);
    pthread_mutex_unlock(&l->lock);
    while (l->nthreads > 0)
        pthread_join(l->thread[--l->nthreads], NULL);
    for (int i = 0; i < SLOTS; i++) {
        wave_store_free(l->slot[i].store);
        free(l->slot[i].shard);
        free(l->slot[i].first);
        free(l->slot[i].draw);
        free(l->slot[i].order);
        free(l->slot[i].turn);
        free(l->slot[i].hash);
    }
    sampler_free(l->sampler);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->turn);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- delivery ---- */

/* Waits for wave l->next with the lock held. */
static struct slot *wait_for(struct loader *l)
{
    struct slot *s = &l->slot[l->next % SLOTS];

    while (s->done < s->images)
        pthread_cond_wait(&l->ready, &l->lock);
    return s;
}

int loader_next(struct loader *l, struct batch *ret, struct err *err)
{
    struct slot *s;
    int rc = 0;

    pthread_mutex_lock(&l->lock);
    if (l->released < l->next) {
        l->released = l->next;
        plan(l);
    }
    if (l->failed.code) {
        rc = l->failed.code;
        if (err)
            *err = l->failed;
    } else if (!exists(l, l->next) || l->pass_over) {
        rc = LOADER_END;
    } else {
        s = wait_for(l);
        if (s->bad >= 0) {
            l->failed = s->err;
            rc = s->err.code;
            if (err)
                *err = s->err;
        } else {
            for (int v = 0; v < s->batch.nshards; v++)
                wave_store_close_up(s->store, &s->shard[v], s->first[v]);
            l->next++;
            l->pass_over = !l->opt.train && s->batch.last;
            *ret = s->batch;
        }
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}

bool loader_ready(struct loader *l)
{
    const struct slot *s;
    bool ready;

    pthread_mutex_lock(&l->lock);
    s = &l->slot[l->next % SLOTS];
    ready = l->failed.code || l->pass_over || l->next == l->planned || s->done == s->images; /* a wave that is not planned means the end */
    pthread_mutex_unlock(&l->lock);
    return ready;
}

void loader_rewind(struct loader *l)
{
    pthread_mutex_lock(&l->lock);
    /* a pass that was left halfway is run to its end and dropped */
    while (!l->opt.train && l->val_shards && l->next % l->val_shards) {
        l->released = l->next;
        plan(l);
        wait_for(l);
        l->next++;
    }
    l->pass_over = false;
    pthread_mutex_unlock(&l->lock);
}
