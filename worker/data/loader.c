#include "worker/data/loader.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/err.h"
#include "worker/core/shards.h"
#include "worker/data/cache.h"
#include "worker/data/image.h"
#include "worker/data/sampler.h"
#include "worker/data/whole_file.h"

/* One wave is with the caller, the others are being made. */
enum { SLOTS = 3, MAX_WORKERS = 256 };

/* A non-empty wave of a step: local shards [lo, hi). Validation has one wave of one shard. */
struct wave {
    int number, lo, hi;
};

/* A wave being made. Each image has its own place in every array, so threads never meet. */
struct slot {
    struct batch batch;
    struct shard_batch *shard; /* [most shards of a wave] */
    struct draw *draw;         /* [most images of a wave] */
    float *image;
    int32_t *cls;    /* [images][max_boxes], closed up shard by shard when the wave is whole */
    float (*box)[4]; /* likewise */
    int32_t *kept;   /* [images] boxes of each image */
    int32_t *offset; /* [images + shards] */
    int32_t *index;  /* [images] */
    int images, taken, done;
    int bad;        /* first image that failed, or -1 */
    struct err err; /* its error */
};

struct loader {
    const struct dataset *d;
    struct loader_options opt;
    struct sampler *sampler; /* training */
    struct cache *cache;
    struct wave wave[64];
    int nwaves, shard_images, max_boxes, val_shards; /* val_shards: of this rank */
    struct slot slot[SLOTS];

    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    int64_t planned;  /* waves [0, planned) have been given a slot */
    int64_t working;  /* first wave with an image that no thread has taken */
    int64_t released; /* waves [0, released) have been given back */
    int64_t next;     /* to be delivered */
    bool stop, pass_over;
    struct err failed;
    struct loader_stats stats;

    pthread_t thread[MAX_WORKERS];
    int nthreads;
};

static struct canvas largest(const struct loader_options *o)
{
    return o->train ? scales_largest(&o->scales) : o->canvas;
}

static size_t pixel_floats(struct canvas c)
{
    return (size_t)c.h * (size_t)c.w * 3;
}

/* ---- what each wave holds ---- */

static int plan_waves(struct loader *l, struct err *err)
{
    const struct loader_options *o = &l->opt;
    const struct scales *z = &o->scales;
    int local = o->shard_hi - o->shard_lo;
    struct canvas nominal = o->train ? o->scales.nominal : o->canvas;

    if (o->batch < 1 || o->workers < 1 || nominal.w < 1 || nominal.h < 1)
        return err_set(err, ERR_INPUT, "loader: batch %d, workers %d, canvas %d x %d", o->batch, o->workers, nominal.w, nominal.h);
    if (!o->train) {
        int all = val_shards(l->d->nimages, o->batch);

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
    if (z->min > z->max || o->first_step < 1 ||
        (z->min < z->max && (z->min < 1 || z->grain < 1 || z->apart < 1 || (z->max - z->min) % z->apart)))
        return err_set(err, ERR_INPUT, "loader: sizes %d .. %d, first step %lld", z->min, z->max, (long long)o->first_step);
    l->shard_images = o->batch / o->shards;
    for (int w = 0; w < o->waves; w++) {
        struct span part = wave_shards((struct span){ 0, local }, w, o->waves);
        struct wave wave = { w, part.lo, part.hi };

        if (wave.lo < wave.hi)
            l->wave[l->nwaves++] = wave;
    }
    return 0;
}

static void add_shard(struct loader *l, struct slot *s, int number, int images, struct canvas canvas)
{
    int before = s->batch.nshards; /* each shard before this one took an offset more than it has images */
    struct shard_batch *last = before ? &s->shard[before - 1] : NULL;

    s->shard[before] = (struct shard_batch){
        .shard = number,
        .n = images,
        .canvas = canvas,
        .image = last ? last->image + (size_t)last->n * pixel_floats(last->canvas) : s->image,
        .index = s->index + s->images,
        .truth = { .offset = s->offset + s->images + before,
                   .cls = s->cls + (size_t)s->images * (size_t)l->max_boxes,
                   .box = s->box[(size_t)s->images * (size_t)l->max_boxes] },
    };
    s->batch.nshards++;
    s->images += images;
}

static void plan_training(struct loader *l, struct slot *s, int64_t seq)
{
    const struct loader_options *o = &l->opt;
    const struct wave *w = &l->wave[seq % l->nwaves];
    int64_t step = o->first_step + seq / l->nwaves;
    struct canvas canvas = scales_canvas(&o->scales, o->seed, step, o->steps);

    s->batch.step = step;
    s->batch.wave = w->number;
    s->batch.last = seq % l->nwaves == l->nwaves - 1;
    for (int v = o->shard_lo + w->lo; v < o->shard_lo + w->hi; v++) {
        for (int i = 0; i < l->shard_images; i++)
            s->draw[s->images + i] = sampler_at(l->sampler, stream_position(step, o->batch, o->shards, v, i));
        add_shard(l, s, v, l->shard_images, canvas);
    }
    s->batch.epoch = s->draw[0].epoch;
}

static void plan_validation(struct loader *l, struct slot *s, int64_t seq)
{
    const struct loader_options *o = &l->opt;
    int64_t k = seq % l->val_shards, first = (o->rank + k * o->ranks) * o->batch, left = l->d->nimages - first;
    int n = left < o->batch ? (int)left : o->batch;

    s->batch.last = k == l->val_shards - 1;
    for (int i = 0; i < n; i++)
        s->draw[i] = (struct draw){ 0, (int32_t)(first + i) };
    add_shard(l, s, (int)(first / o->batch), n, o->canvas);
}

/* Whether there is a wave of that number at all. */
static bool exists(const struct loader *l, int64_t seq)
{
    if (l->opt.train)
        return l->opt.first_step + seq / l->nwaves <= l->opt.steps;
    return l->val_shards > 0;
}

/* Gives free slots to the next waves. The caller holds the lock, or is alone. */
static void plan(struct loader *l)
{
    for (; l->planned < l->released + SLOTS && exists(l, l->planned); l->planned++) {
        struct slot *s = &l->slot[l->planned % SLOTS];

        s->batch = (struct batch){ .shard = s->shard };
        s->images = s->taken = s->done = 0;
        s->bad = -1;
        if (l->opt.train)
            plan_training(l, s, l->planned);
        else
            plan_validation(l, s, l->planned);
    }
    pthread_cond_broadcast(&l->work);
}

/* ---- the threads ---- */

struct worker {
    struct loader *l;
    struct decoder *dec;
    float *scratch;
    size_t scratch_floats;
};

/* Pixels of a sample, from memory or from its file. */
static int fetch(struct worker *w, int32_t sample, const uint8_t **ret_rgb, struct err *err)
{
    struct loader *l = w->l;
    const struct dataset_image *im = &l->d->images[sample];
    char path[DATASET_MAX_PATH];
    struct image img;
    int rc;

    *ret_rgb = cache_get(l->cache, sample);
    if (*ret_rgb)
        return 0;
    rc = image_read(w->dec, dataset_path(l->d, sample, path), &img, err);
    if (rc < 0)
        return rc;
    if (img.w != im->w || img.h != im->h)
        return err_set(err, ERR_DATA, "%s: is %d x %d pixels now, was %d x %d when it was checked", path, img.w, img.h, im->w, im->h);
    cache_put(l->cache, sample, img.rgb, (size_t)im->w * (size_t)im->h * 3);
    *ret_rgb = img.rgb;
    return 1;
}

/* Under BAD_SKIP the next readable sample stands in: which one does not depend on thread or rank. Returns how many were passed over. */
static int fetch_or_replace(struct worker *w, int32_t *sample, const uint8_t **ret_rgb, int64_t *decoded, struct err *err)
{
    struct loader *l = w->l;
    int skipped = 0, rc = fetch(w, *sample, ret_rgb, err);

    while (rc < 0 && file_at_fault(rc) && l->opt.train && l->opt.on_bad == BAD_SKIP && ++skipped < l->d->nimages) {
        *sample = (*sample + 1) % l->d->nimages;
        rc = fetch(w, *sample, ret_rgb, err);
    }
    *decoded = rc == 1;
    return rc < 0 ? rc : skipped;
}

static int grow_scratch(struct worker *w, size_t floats, struct err *err)
{
    if (floats <= w->scratch_floats)
        return 0;
    free(w->scratch);
    w->scratch_floats = 0;
    w->scratch = malloc(floats * sizeof *w->scratch);
    if (!w->scratch)
        return err_set(err, -ENOMEM, "loader: no memory for %zu floats", floats);
    w->scratch_floats = floats;
    return 0;
}

static const struct shard_batch *shard_of(const struct slot *s, int image, int *ret_first)
{
    int v = 0, first = 0;

    while (image >= first + s->shard[v].n)
        first += s->shard[v++].n;
    *ret_first = first;
    return &s->shard[v];
}

/* Makes image i of a slot. Returns how many samples were passed over, or the error. */
static int make_image(struct worker *w, struct slot *s, int i, int64_t *decoded, struct err *err)
{
    struct loader *l = w->l;
    const struct loader_options *o = &l->opt;
    int32_t sample = s->draw[i].sample;
    int first, skipped, rc;
    const struct shard_batch *shard = shard_of(s, i, &first);
    struct canvas canvas = shard->canvas;
    size_t place = (size_t)i * (size_t)l->max_boxes;
    const struct dataset_image *im;
    struct placement p;
    const uint8_t *rgb;

    skipped = fetch_or_replace(w, &sample, &rgb, decoded, err);
    if (skipped < 0)
        return skipped;
    im = &l->d->images[sample];
    rc = grow_scratch(w, render_scratch(im->w, canvas), err);
    if (rc < 0)
        return rc;
    p = o->train ? place_random(&o->augment, o->seed, s->draw[i].epoch, sample, im->w, im->h, canvas)
                 : place_letterbox(im->w, im->h, canvas);
    render(&p, rgb, im->w, im->h, shard->image + (size_t)(i - first) * pixel_floats(canvas), w->scratch);
    s->kept[i] = place_boxes(&p, l->d->boxes + l->d->offset[sample], (int)(l->d->offset[sample + 1] - l->d->offset[sample]), im->w, im->h,
                             s->cls + place, s->box + place);
    s->index[i] = sample;
    return skipped;
}

/* The next image that no thread has taken, or false when the loader stops. Called and returns with the lock held. */
static bool take(struct loader *l, struct slot **ret_slot, int *ret_image)
{
    while (!l->stop) {
        if (l->working < l->planned) {
            struct slot *s = &l->slot[l->working % SLOTS];

            *ret_slot = s;
            *ret_image = s->taken++;
            if (s->taken == s->images)
                l->working++;
            return true;
        }
        pthread_cond_wait(&l->work, &l->lock);
    }
    return false;
}

static void *work(void *arg)
{
    struct worker w = { .l = arg, .dec = decoder_new() };
    struct loader *l = w.l;
    struct slot *s;
    struct err err;
    int64_t decoded;
    int i, rc;

    pthread_mutex_lock(&l->lock);
    while (take(l, &s, &i)) {
        pthread_mutex_unlock(&l->lock);
        decoded = 0;
        rc = w.dec ? make_image(&w, s, i, &decoded, &err) : err_set(&err, -ENOMEM, "loader: no memory for a decoder");
        pthread_mutex_lock(&l->lock);
        l->stats.decoded += decoded;
        l->stats.cache_hits += rc >= 0 && !decoded;
        l->stats.replaced += rc > 0 ? rc : 0;
        if (rc < 0 && (s->bad < 0 || i < s->bad)) {
            s->bad = i;
            s->err = err;
        }
        if (++s->done == s->images)
            pthread_cond_signal(&l->ready);
    }
    pthread_mutex_unlock(&l->lock);
    decoder_free(w.dec);
    free(w.scratch);
    return NULL;
}

/* Signals belong to the thread that trains. */
static int start_threads(struct loader *l, struct err *err)
{
    int workers = l->opt.workers < MAX_WORKERS ? l->opt.workers : MAX_WORKERS, rc = 0;
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    while (l->nthreads < workers && (rc = pthread_create(&l->thread[l->nthreads], NULL, work, l)) == 0)
        l->nthreads++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return l->nthreads > 0 ? 0 : err_set(err, -rc, "loader: cannot start a thread: %s", strerror(rc));
}

/* ---- open and close ---- */

static int make_slot(struct loader *l, struct slot *s, size_t images, size_t shards)
{
    size_t bytes = (images * pixel_floats(largest(&l->opt)) * sizeof(float) + 63) / 64 * 64, rows = images * (size_t)l->max_boxes;

    s->image = l->opt.dev ? l->opt.dev->ops->host_alloc(l->opt.dev, bytes) : aligned_alloc(64, bytes);
    s->shard = calloc(shards, sizeof *s->shard);
    s->draw = calloc(images, sizeof *s->draw);
    s->cls = calloc(rows, sizeof *s->cls);
    s->box = calloc(rows, sizeof *s->box);
    s->kept = calloc(images, sizeof *s->kept);
    s->offset = calloc(images + shards, sizeof *s->offset);
    s->index = calloc(images, sizeof *s->index);
    return s->image && s->shard && s->draw && s->cls && s->box && s->kept && s->offset && s->index ? 0 : -ENOMEM;
}

static int make_slots(struct loader *l, struct err *err)
{
    int shards = 1;

    for (int w = 0; w < l->nwaves; w++)
        if (l->wave[w].hi - l->wave[w].lo > shards)
            shards = l->wave[w].hi - l->wave[w].lo;
    l->max_boxes = l->d->max_boxes > 0 ? l->d->max_boxes : 1;
    l->cache = cache_new(l->d->nimages, l->opt.cache_bytes);
    for (int i = 0; i < SLOTS; i++)
        if (!l->cache || make_slot(l, &l->slot[i], (size_t)shards * (size_t)l->shard_images, (size_t)shards) < 0)
            return err_set(err, -ENOMEM, "loader: no memory for %d waves of %d images of %d x %d pixels", SLOTS, shards * l->shard_images,
                           largest(&l->opt).w, largest(&l->opt).h);
    return 0;
}

int loader_open(const struct dataset *d, const struct loader_options *opt, struct loader **ret_loader, struct err *err)
{
    struct loader *l;
    int rc;

    if (d->nimages == 0)
        return err_set(err, ERR_DATA, "%s: no images", d->source);
    l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, -ENOMEM, "loader: no memory");
    l->d = d;
    l->opt = *opt;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    rc = plan_waves(l, err);
    if (rc == 0)
        rc = make_slots(l, err);
    if (rc == 0 && opt->train)
        rc = sampler_new(opt->seed, d->nimages, &l->sampler, err);
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
    pthread_mutex_unlock(&l->lock);
    while (l->nthreads > 0)
        pthread_join(l->thread[--l->nthreads], NULL);
    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &l->slot[i];

        if (s->image && l->opt.dev)
            l->opt.dev->ops->host_free(l->opt.dev, s->image);
        else
            free(s->image);
        free(s->shard);
        free(s->draw);
        free(s->cls);
        free(s->box);
        free(s->kept);
        free(s->offset);
        free(s->index);
    }
    sampler_free(l->sampler);
    cache_free(l->cache);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* ---- delivery ---- */

/* Closes the gaps between the boxes of a shard's images and fills in its offsets. */
static void close_up(struct loader *l, struct slot *s)
{
    int image = 0;

    for (int v = 0; v < s->batch.nshards; v++) {
        size_t base = (size_t)image * (size_t)l->max_boxes;
        int32_t *offset = s->offset + image + v, rows = 0;

        for (int i = 0; i < s->shard[v].n; i++, image++) {
            size_t from = (size_t)image * (size_t)l->max_boxes, n = (size_t)s->kept[image];

            offset[i] = rows;
            memmove(s->cls + base + rows, s->cls + from, n * sizeof *s->cls);
            memmove(s->box + base + rows, s->box + from, n * sizeof *s->box);
            rows += s->kept[image];
        }
        offset[s->shard[v].n] = rows;
        s->shard[v].truth.rows = rows;
    }
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits for wave l->next with the lock held. */
static struct slot *wait_for(struct loader *l)
{
    struct slot *s = &l->slot[l->next % SLOTS];
    int64_t start;

    if (s->done < s->images) {
        start = now_ns();
        while (s->done < s->images)
            pthread_cond_wait(&l->ready, &l->lock);
        l->stats.wait_ns += now_ns() - start;
    }
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
            close_up(l, s);
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
    ready = l->failed.code || l->pass_over || l->next == l->planned || s->done == s->images; /* what is not planned is the end */
    pthread_mutex_unlock(&l->lock);
    return ready;
}

void loader_rewind(struct loader *l)
{
    pthread_mutex_lock(&l->lock);
    /* a pass that was left in the middle is run to its end and thrown away */
    while (!l->opt.train && l->val_shards && l->next % l->val_shards) {
        l->released = l->next;
        plan(l);
        wait_for(l);
        l->next++;
    }
    l->pass_over = false;
    pthread_mutex_unlock(&l->lock);
}

void loader_stats(struct loader *l, struct loader_stats *ret)
{
    pthread_mutex_lock(&l->lock);
    *ret = l->stats;
    ret->cached_bytes = cache_bytes(l->cache);
    pthread_mutex_unlock(&l->lock);
}
