/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_engines.c
 * uses: plugin proto worker/models worker/layers worker/data worker/eval worker/mask worker/comm worker/core
 * On a GPU: times the ways that the plugin may choose to compute every convolution of a training step.
 * Usage: bench_engines [model=yolov3] [size=416] [batch=16] [precision=bf16] [tier=off] [seconds=240] [each=8]
 * [compiled=1] [repeats=15] [table=FILE]
 * Times the first each= plans of each library, in the order in which the plugin tries them, and compiled= of the plans
 * that have to be compiled. Prints a line a plan as soon as it is timed, then a line "choice" a convolution, then the
 * results of each kind, then the time of a step with today's choices and with the best. After seconds=, or when
 * interrupted, it prints these results for the plans timed so far. table= writes a section of cuda/engines.txt.
 * tier=off times plans for all tiers; with tier=world batch= is the size of a shard. Data is random, and in more memory
 * than the L2 holds. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/engine.h"
#include "cuda/memory.h"
#include "tests/bench/bench.h"
#include "tests/bench/engines.h"
#include "worker/models/yolo/presets.h"

enum { REPEATS_MAX = 64, COPIES_MAX = 16, CLEARS = 4, PATTERN = 4 << 20 };

#define BEYOND_L2   ((size_t)384 << 20)
#define ALIGN       256
#define HOPELESS_US 5e4 /* such a slow plan is not timed again */
#define SLOW_S      0.3 /* a plan that takes longer and fails counts like a plan that was made */

struct options {
    int batch, each, compiled, repeats;
    double end; /* of bench_now() */
    enum precision precision;
    enum tier tier;
};

/* Arrays of a convolution, [copies] of them behind one another. */
struct layout {
    size_t x, y, w; /* bytes of one, a multiple of ALIGN */
    int copies;
};

struct bench {
    struct options o;
    struct cuda_device *d;
    struct engine *engine;
    struct plan_target target;
    struct works works;
    struct results results;
    char *in, *out, *aside; /* read, written; and memory that is cleared so that the queue is long enough */
    size_t in_bytes, out_bytes;
    cudaEvent_t event[2 * REPEATS_MAX];
};

static struct bench bench;
static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool late(const struct bench *b)
{
    return interrupted || bench_now() > b->o.end;
}

static void die(const struct err *err)
{
    fprintf(stderr, "bench_engines: %s\n", err->msg);
    exit(1);
}

/* ---- memory ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static struct layout layout_of(const struct plan_key *key)
{
    const struct conv_key *k = &key->conv;
    size_t es = plan_key_bytes(k), filter = (size_t)k->k * (size_t)k->r * (size_t)k->s * (size_t)k->c;
    size_t out = (size_t)k->n * (size_t)plan_key_out_h(k) * (size_t)plan_key_out_w(k) * (size_t)k->y_stride;
    struct layout l = { aligned((size_t)k->n * (size_t)k->h * (size_t)k->w * (size_t)k->x_stride * es), aligned(out * es),
                        aligned(filter * (k->dir == CONV_BWD_WEIGHTS ? sizeof(float) : es)), 2 };
    size_t all = l.x + l.y + l.w;

    while (l.copies < COPIES_MAX && (size_t)l.copies * all < BEYOND_L2)
        l.copies++;
    return l;
}

static size_t written(const struct layout *l, enum conv_dir dir)
{
    return dir == CONV_FWD ? l->y : dir == CONV_BWD_DATA ? l->x : l->w;
}

static size_t read_bytes(const struct layout *l, enum conv_dir dir)
{
    return l->x + l->y + l->w - written(l, dir);
}

static struct conv_args args_of(const struct bench *b, const struct plan_key *key, const struct layout *l, int i)
{
    enum conv_dir dir = key->conv.dir;
    size_t copy = (size_t)(i % l->copies);
    char *in = b->in + copy * read_bytes(l, dir), *out = b->out + copy * written(l, dir);

    switch (dir) {
    case CONV_FWD:
        return (struct conv_args){ .x = in, .w = in + l->x, .y = out, .bias = b->in };
    case CONV_BWD_DATA:
        return (struct conv_args){ .x = out, .w = in + l->y, .y = in };
    case CONV_BWD_WEIGHTS:
        break;
    }
    return (struct conv_args){ .x = in, .y = in + l->x, .dw = (float *)(void *)out };
}

/* Random numbers in [-1/2, 1/2). bf16 are the upper halves of floats. */
static unsigned char *pattern_of(enum precision precision, size_t bytes)
{
    size_t es = precision == PRECISION_BF16 ? 2 : 4;
    unsigned char *pattern = malloc(bytes);
    uint32_t word = 1;

    for (size_t i = 0; pattern && i < bytes / es; i++) {
        float f;

        word = word * 1664525u + 1013904223u;
        f = (float)(word >> 8) * 0x1p-24f - 0.5f;
        memcpy(pattern + i * es, (const unsigned char *)&f + sizeof f - es, es);
    }
    return pattern;
}

static int fill(struct bench *b, struct err *err)
{
    size_t have = PATTERN < b->in_bytes ? PATTERN : b->in_bytes;
    unsigned char *pattern = pattern_of(b->o.precision, have);
    int rc;

    if (!pattern)
        return err_set(err, -ENOMEM, "out of memory");
    rc = cuda_check(cudaMemcpy(b->in, pattern, have, cudaMemcpyHostToDevice), "fill", err);
    free(pattern);
    for (size_t n; rc == 0 && have < b->in_bytes; have += n) {
        n = have < b->in_bytes - have ? have : b->in_bytes - have;
        rc = cuda_check(cudaMemcpy(b->in + have, b->in, n, cudaMemcpyDeviceToDevice), "fill", err);
    }
    return rc;
}

static void open_memory(struct bench *b)
{
    struct err err;
    int rc;

    for (int i = 0; i < b->works.n; i++) {
        const struct plan_key *key = &b->works.work[i].key;
        struct layout l = layout_of(key);
        size_t in = (size_t)l.copies * read_bytes(&l, key->conv.dir), out = (size_t)l.copies * written(&l, key->conv.dir);

        b->in_bytes = in > b->in_bytes ? in : b->in_bytes;
        b->out_bytes = out > b->out_bytes ? out : b->out_bytes;
    }
    rc = cuda_malloc((void **)&b->in, b->in_bytes, "what convolutions read", &err);
    if (rc == 0)
        rc = cuda_malloc((void **)&b->out, b->out_bytes, "what convolutions write", &err);
    if (rc == 0)
        rc = cuda_malloc((void **)&b->aside, BEYOND_L2, "memory to clear", &err);
    if (rc == 0)
        rc = fill(b, &err);
    for (int i = 0; i < 2 * REPEATS_MAX && rc == 0; i++)
        rc = cuda_check(cudaEventCreate(&b->event[i]), "event", &err);
    if (rc < 0)
        die(&err);
}

/* ---- time ---- */

static int by_us(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Microseconds of the median of n runs. They are queued behind a long task, so that no run waits for the host. */
static int run_n(struct bench *b, struct plan *p, const struct layout *l, int n, double *ret_us, struct err *err)
{
    cudaStream_t stream = b->d->stream;
    float ms[REPEATS_MAX];
    int rc = 0;

    for (int i = 0; i < CLEARS && rc == 0; i++)
        rc = cuda_check(cudaMemsetAsync(b->aside, 0, BEYOND_L2, stream), "clear", err);
    for (int i = 0; i < n && rc == 0; i++) {
        struct conv_args args = args_of(b, &p->key, l, i);

        rc = cuda_check(cudaEventRecord(b->event[2 * i], stream), "event", err);
        if (rc == 0)
            rc = engine_run(b->engine, p, &args, err);
        if (rc == 0)
            rc = cuda_check(cudaEventRecord(b->event[2 * i + 1], stream), "event", err);
    }
    if (rc == 0)
        rc = cuda_check(cudaStreamSynchronize(stream), "run", err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = cuda_check(cudaEventElapsedTime(&ms[i], b->event[2 * i], b->event[2 * i + 1]), "time", err);
    if (rc < 0)
        return rc;
    qsort(ms, (size_t)n, sizeof *ms, by_us);
    *ret_us = 1e3 * (double)ms[n / 2];
    return 0;
}

/* The first round takes workspace and loads code; the second tells how long one run is, so that slow ones are run less
 * often. */
static int time_plan(struct bench *b, struct plan *p, const struct layout *l, double *ret_us, struct err *err)
{
    double us = 0;
    int n, rc = run_n(b, p, l, 1, &us, err);

    if (rc == 0)
        rc = run_n(b, p, l, 2, &us, err);
    *ret_us = us;
    if (rc < 0 || us > HOPELESS_US)
        return rc;
    n = us * b->o.repeats < 30e3 ? b->o.repeats : (int)(30e3 / us);
    return run_n(b, p, l, n < 3 ? 3 : n, ret_us, err);
}

/* ---- one convolution ---- */

/* Returns false if the GPU does not respond any more. */
static bool try_way(struct bench *b, int work, int rank, const struct plan_name *name, struct quota *q)
{
    const struct plan_key *key = &b->works.work[work].key;
    struct result r = { .work = work, .rank = rank, .name = *name };
    struct layout l = layout_of(key);
    double start = bench_now();
    char text[PLAN_KEY_TEXT];
    struct plan p;
    struct err err;
    int rc = plan_make_named(&p, &b->target, key, name->text, &err);

    start = bench_now() - start;
    if (rc < 0) {
        if (start > SLOW_S)
            quota_take(q, name);
        printf("unmade make_ms=%.0f | %s\n", 1e3 * start, err.msg);
        return true;
    }
    rc = time_plan(b, &p, &l, &r.us, &err);
    plan_free(&p);
    if (rc < 0) {
        printf("failed | %s | %s: %s\n", plan_key_text(key, text), name->text, err.msg);
        return cuda_check(cudaStreamSynchronize(b->d->stream), "after a failure", &err) == 0;
    }
    quota_take(q, name);
    if (b->results.n < RESULTS_MAX)
        b->results.result[b->results.n++] = r;
    print_result(stdout, &b->works, &r, start);
    return true;
}

static bool try_all(struct bench *b, int work)
{
    static struct plan_name name[PLAN_NAMES];
    const struct plan_key *key = &b->works.work[work].key;
    struct layout l = layout_of(key);
    int n = plan_names(&b->target, key, name);
    struct quota q = { 0 };
    bool alive = cudaMemsetAsync(b->out, 0, (size_t)l.copies * written(&l, key->conv.dir), b->d->stream) == cudaSuccess; /* is added to */

    for (int i = 0; i < n && alive && !late(b); i++) {
        if (i == 0 || name[i].library != name[i - 1].library)
            q = (struct quota){ .most = b->o.each, .most_runtime = b->o.compiled };
        if (quota_allows(&q, &name[i]))
            alive = try_way(b, work, i, &name[i], &q);
        fflush(stdout);
    }
    print_choice(stdout, &b->works, &b->results, work);
    fflush(stdout);
    return alive;
}

/* ---- all ---- */

static void open_gpu(struct bench *b, const char *model, int side)
{
    struct device_options opt = { .precision = b->o.precision };
    struct darknet_net *net;
    struct device *dev;
    struct err err;

    if (preset_net(model, &net, &err) < 0 || darknet_net_set_size(net, side, side, &err) < 0)
        die(&err);
    works_of(net, b->o.precision, b->o.tier, b->o.batch, &b->works);
    darknet_net_free(net);
    if (cuda_available(&err) < 0) {
        printf("bench_engines: skipped, there is no GPU to measure: %s (%d convolutions of %s %d would be)\n", err.msg, b->works.n, model,
               side);
        exit(0);
    }
    if (cuda_open(0, &opt, &dev, &err) < 0)
        die(&err);
    b->d = cuda_device(dev);
    if (engine_open(b->d, &b->engine, &err) < 0 || plan_target_open(&b->target, &err) < 0)
        die(&err);
    open_memory(b);
}

static void close_gpu(struct bench *b)
{
    for (int i = 0; i < 2 * REPEATS_MAX; i++)
        cudaEventDestroy(b->event[i]);
    cudaFree(b->in);
    cudaFree(b->out);
    cudaFree(b->aside);
    plan_target_close(&b->target);
    engine_close(b->engine);
    cuda_close(&b->d->dev);
}

/* Opened before anything is measured for it; the contents of the file stay until then. NULL: no table is requested. */
static FILE *open_table(const char *path)
{
    FILE *f = path ? fopen(path, "a") : NULL;

    if (path && !f) {
        fprintf(stderr, "bench_engines: cannot write '%s': %s\n", path, strerror(errno));
        exit(1);
    }
    return f;
}

static bool write_table(const struct bench *b, FILE *f, const char *path)
{
    bool whole = ftruncate(fileno(f), 0) == 0;

    print_table(f, &b->works, &b->results, b->target.title);
    whole = whole && !ferror(f);
    if (fclose(f) != 0 || !whole) {
        fprintf(stderr, "bench_engines: cannot write '%s': %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

/* The index of the word in words, which ends with NULL. */
static int choice_of(int argc, char **argv, const char *key, const char *const *words, int fallback)
{
    const char *word = bench_word(argc, argv, key, words[fallback]);

    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    fprintf(stderr, "bench_engines: %s=%s is not known\n", key, word);
    exit(1);
}

int main(int argc, char **argv)
{
    static const char *const precisions[] = { "fp32", "tf32", "bf16", NULL }, *const tiers[] = { "off", "rerun", "world", NULL };
    struct bench *b = &bench;
    const char *model = bench_word(argc, argv, "model", "yolov3"), *table = bench_word(argc, argv, "table", NULL);
    int side = bench_count(argc, argv, "size", 416), work = 0;
    FILE *f = open_table(table);
    bool written = true;
    char gpu[160];

    b->o = (struct options){ .batch = bench_count(argc, argv, "batch", 16),
                             .each = bench_count(argc, argv, "each", 8),
                             .compiled = (int)bench_number(argc, argv, "compiled", 1),
                             .repeats = bench_count(argc, argv, "repeats", 15),
                             .end = bench_now() + bench_number(argc, argv, "seconds", 240),
                             .precision = (enum precision)choice_of(argc, argv, "precision", precisions, PRECISION_BF16),
                             .tier = (enum tier)choice_of(argc, argv, "tier", tiers, TIER_OFF) };
    b->o.repeats = b->o.repeats < REPEATS_MAX ? b->o.repeats : REPEATS_MAX;
    signal(SIGTERM, interrupt);
    signal(SIGINT, interrupt);
    open_gpu(b, model, side);
    engine_gpu(b->d, gpu, sizeof gpu);
    plan_target_table(&b->target, "", gpu); /* the rule is measured */
    printf("%s\n%d convolutions of %s %d, batch %d\n", b->target.title, b->works.n, model, side, b->o.batch);
    while (work < b->works.n && !late(b) && try_all(b, work))
        work++;
    if (work < b->works.n)
        printf("ended after %d of %d convolutions\n", work, b->works.n);
    print_kinds(stdout, &b->works, &b->results);
    print_total(stdout, &b->works, &b->results, false);
    print_total(stdout, &b->works, &b->results, true);
    if (f)
        written = write_table(b, f, table);
    close_gpu(b);
    return !written || (work < b->works.n && !late(b));
}
