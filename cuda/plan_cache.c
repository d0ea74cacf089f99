#include "cuda/plan_cache.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

enum { BUCKETS = 1024 };

enum entry_state { ENTRY_QUEUED, ENTRY_MAKING, ENTRY_MADE, ENTRY_DROPPED, ENTRY_FAILED };

struct entry {
    struct entry *next_in_bucket, *next_in_queue;
    struct plan_key key;
    enum entry_state state;
    int64_t asked;     /* turn of the last request */
    struct plan *plan; /* only for ENTRY_MADE */
    char *line;        /* ENTRY_DROPPED: line of the dropped plan */
    bool compiled;     /* the same; also for ENTRY_MADE */
    struct err err;    /* only for ENTRY_FAILED */
};

struct planner {
    struct plan_cache *cache;
    struct plan_target target; /* only this thread uses it */
    pthread_t thread;
};

struct plan_cache {
    void (*attach)(void);
    int nplanners;
    struct planner planner[PLAN_THREADS];
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t asked, made;
    bool stop;
    int making;
    int64_t turn;
    size_t held; /* number of made plans */
    struct entry *queue;
    struct entry *bucket[BUCKETS];
};

static size_t bucket_of(const struct plan_key *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

    for (size_t i = 0; i < sizeof *key; i++)
        h = (h ^ byte[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 32) % BUCKETS;
}

/* Queues an entry behind the others; front: ahead of them, since a thread waits for it. */
static void enqueue(struct plan_cache *c, struct entry *e, bool front)
{
    struct entry **at = &c->queue;

    while (!front && *at)
        at = &(*at)->next_in_queue;
    e->next_in_queue = *at;
    *at = e;
    pthread_cond_signal(&c->asked);
}

static void hurry(struct plan_cache *c, struct entry *e)
{
    struct entry **at = &c->queue;

    while (*at != e)
        at = &(*at)->next_in_queue;
    *at = e->next_in_queue;
    enqueue(c, e, true);
}

/* The entry of the key. A new one looks like one with a dropped plan. NULL: out of memory. */
static struct entry *find(struct plan_cache *c, const struct plan_key *key)
{
    struct entry **head = &c->bucket[bucket_of(key)], *e;

    for (e = *head; e; e = e->next_in_bucket)
        if (plan_key_equal(&e->key, key))
            return e;
    e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    memcpy(&e->key, key, sizeof *key);
    e->state = ENTRY_DROPPED;
    e->next_in_bucket = *head;
    *head = e;
    return e;
}

/* Notes a request in this turn. Without a plan the entry is queued. */
static struct entry *ask(struct plan_cache *c, const struct plan_key *key, bool front)
{
    struct entry *e = find(c, key);

    if (!e)
        return NULL;
    e->asked = c->turn;
    if (e->state == ENTRY_DROPPED) {
        e->state = ENTRY_QUEUED;
        enqueue(c, e, front);
    }
    return e;
}

/* The caller frees it with unmake(). */
static struct plan *make_plan(const struct planner *p, const struct plan_key *key, struct err *err)
{
    struct plan *plan = malloc(sizeof *plan);

    if (!plan)
        err_set(err, -ENOMEM, "out of memory for plans of convolutions");
    else if (plan_make(plan, &p->target, key, err) == 0)
        return plan;
    free(plan);
    return NULL;
}

static void unmake(struct plan *p)
{
    plan_free(p);
    free(p);
}

/* The caller holds the lock; it is released during the work. */
static void make_one(struct planner *p, struct entry *e)
{
    struct plan_cache *c = p->cache;

    c->queue = e->next_in_queue;
    e->state = ENTRY_MAKING;
    c->making++;
    pthread_mutex_unlock(&c->lock);
    e->plan = make_plan(p, &e->key, &e->err);
    pthread_mutex_lock(&c->lock);
    e->state = e->plan ? ENTRY_MADE : ENTRY_FAILED;
    if (e->plan) {
        e->compiled = e->plan->library == PLAN_CUDNN && e->plan->dnn.runtime;
        free(e->line);
        e->line = NULL;
        c->held++;
    }
    c->making--;
    pthread_cond_broadcast(&c->made);
}

static void *make_plans(void *arg)
{
    struct planner *p = arg;
    struct plan_cache *c = p->cache;

    if (c->attach)
        c->attach();
    pthread_mutex_lock(&c->lock);
    while (!c->stop)
        if (c->queue)
            make_one(p, c->queue);
        else
            pthread_cond_wait(&c->asked, &c->lock);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

int plan_cache_new(void (*attach)(void), struct plan_cache **ret_cache, struct err *err)
{
    struct plan_cache *c = calloc(1, sizeof *c);

    if (!c)
        return err_set(err, -ENOMEM, "out of memory for plans of convolutions");
    c->attach = attach;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->asked, NULL);
    pthread_cond_init(&c->made, NULL);
    *ret_cache = c;
    return 0;
}

/* The worker's main thread handles signals. */
int plan_cache_add(struct plan_cache *c, const struct plan_target *target, struct err *err)
{
    struct planner *p = &c->planner[c->nplanners];
    sigset_t all, before;
    int rc;

    assert(c->nplanners < PLAN_THREADS);
    p->cache = c;
    p->target = *target;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&p->thread, NULL, make_plans, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        plan_target_close(&p->target);
        return err_set(err, -rc, "start a thread that plans convolutions: %s", strerror(rc));
    }
    pthread_setname_np(p->thread, "plans");
    c->nplanners++;
    return 0;
}

static void free_entries(struct plan_cache *c)
{
    for (size_t i = 0; i < BUCKETS; i++)
        while (c->bucket[i]) {
            struct entry *e = c->bucket[i];

            c->bucket[i] = e->next_in_bucket;
            if (e->state == ENTRY_MADE)
                unmake(e->plan);
            free(e->line);
            free(e);
        }
}

void plan_cache_free(struct plan_cache *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->asked);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->nplanners; i++)
        pthread_join(c->planner[i].thread, NULL);
    free_entries(c);
    for (int i = 0; i < c->nplanners; i++)
        plan_target_close(&c->planner[i].target);
    pthread_cond_destroy(&c->asked);
    pthread_cond_destroy(&c->made);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int plan_cache_prepare(struct plan_cache *c, const struct plan_key *key, struct err *err)
{
    struct entry *e;

    pthread_mutex_lock(&c->lock);
    e = ask(c, key, false);
    pthread_mutex_unlock(&c->lock);
    return e ? 0 : err_set(err, -ENOMEM, "out of memory for plans of convolutions");
}

int plan_cache_get(struct plan_cache *c, const struct plan_key *key, struct plan **ret_plan, struct err *err)
{
    struct entry *e;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    e = ask(c, key, true);
    if (e && e->state == ENTRY_QUEUED)
        hurry(c, e);
    while (e && (e->state == ENTRY_QUEUED || e->state == ENTRY_MAKING))
        pthread_cond_wait(&c->made, &c->lock);
    pthread_mutex_unlock(&c->lock);
    if (!e)
        return err_set(err, -ENOMEM, "out of memory for plans of convolutions");
    if (e->state == ENTRY_FAILED)
        rc = err_set(err, e->err.code, "%s", e->err.msg);
    else
        *ret_plan = e->plan;
    return rc;
}

/* ---- dropping ---- */

/* True if there was no request in the last `keep` turns. */
static bool unused(const struct plan_cache *c, const struct entry *e, int keep)
{
    return e->state == ENTRY_MADE && c->turn - e->asked > keep;
}

/* Lists the unused entries in `entry`; NULL: only counts them. */
static size_t list_unused(const struct plan_cache *c, int keep, struct entry **entry)
{
    size_t n = 0;

    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *e = c->bucket[i]; e; e = e->next_in_bucket)
            if (unused(c, e, keep)) {
                if (entry)
                    entry[n] = e;
                n++;
            }
    return n;
}

static int by_turn(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;

    return (x->asked > y->asked) - (x->asked < y->asked);
}

/* Drops the plan, but keeps its line: the identity of the run still lists it. */
static void drop(struct plan_cache *c, struct entry *e)
{
    e->line = strdup(e->plan->text);
    if (!e->line)
        return;
    unmake(e->plan);
    e->plan = NULL;
    e->state = ENTRY_DROPPED;
    c->held--;
}

size_t plan_cache_begin(struct plan_cache *c, int keep, size_t most)
{
    size_t n;

    pthread_mutex_lock(&c->lock);
    c->turn++;
    n = c->held > most ? list_unused(c, keep, NULL) : 0;
    pthread_mutex_unlock(&c->lock);
    return n;
}

void plan_cache_drop(struct plan_cache *c, int keep, size_t least)
{
    struct entry **entry;
    size_t n;

    pthread_mutex_lock(&c->lock);
    entry = malloc((list_unused(c, keep, NULL) + 1) * sizeof *entry);
    n = entry ? list_unused(c, keep, entry) : 0;
    if (n > 0)
        qsort(entry, n, sizeof *entry, by_turn);
    for (size_t i = 0; i < n && c->held > least; i++)
        drop(c, entry[i]);
    pthread_mutex_unlock(&c->lock);
    free(entry);
}

/* ---- lists of plans ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Joins all lines to one text. Sorts the array of lines. */
static char *join(const char **line, size_t n)
{
    size_t size = 1;
    char *text, *to;

    qsort(line, n, sizeof *line, by_text);
    for (size_t i = 0; i < n; i++)
        size += strlen(line[i]) + 1;
    text = to = malloc(size);
    if (!text)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(line[i]);

        memcpy(to, line[i], len);
        to[len] = '\n';
        to += len + 1;
    }
    *to = '\0';
    return text;
}

/* Lists the lines of all plans in `line`; NULL: only counts them. */
static size_t lines(const struct plan_cache *c, const char **line)
{
    size_t n = 0;

    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct entry *e = c->bucket[i]; e; e = e->next_in_bucket)
            if (e->plan || e->line) {
                if (line)
                    line[n] = e->plan ? e->plan->text : e->line;
                n++;
            }
    return n;
}

/* The caller holds the lock. */
static void wait_all(struct plan_cache *c)
{
    while (c->queue || c->making)
        pthread_cond_wait(&c->made, &c->lock);
}

void plan_cache_wait(struct plan_cache *c, struct plan_readiness *ret)
{
    *ret = (struct plan_readiness){ 0 };
    pthread_mutex_lock(&c->lock);
    wait_all(c);
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct entry *e = c->bucket[i]; e; e = e->next_in_bucket)
            if (e->plan || e->line) {
                ret->plans++;
                ret->compiled += e->compiled;
            }
    pthread_mutex_unlock(&c->lock);
}

char *plan_cache_text(struct plan_cache *c)
{
    const char **line;
    char *text = NULL;

    pthread_mutex_lock(&c->lock);
    wait_all(c);
    line = malloc((lines(c, NULL) + 1) * sizeof *line);
    if (line)
        text = join(line, lines(c, line));
    pthread_mutex_unlock(&c->lock);
    free(line);
    return text;
}
