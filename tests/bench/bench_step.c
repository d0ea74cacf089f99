/* tests/bench/bench_step.c - images per second of yolov3-tiny's training step on the CPU device, with synthetic images.
 * uses: proto worker worker/train worker/models worker/layers worker/data worker/eval worker/comm worker/core cpu
 * Usage: bench_step [threads=2] [size=416] [batch=8] [shards=1] [freeze=0] [steps=5] [isa=auto]
 * Prints: images_per_s (best step), conv share of the time, and where the rest goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/err.h"
#include "proto/jobspec.h"
#include "worker/comm/comm.h"
#include "worker/core/arena.h"
#include "worker/core/tape.h"
#include "worker/devices.h"
#include "worker/models/model.h"
#include "worker/train/reduce.h"

enum { CLASSES = 80, BOXES = 4, MAX_TIMED = 40 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the device with a stop watch around every op ---- */

static struct device_ops real, timed;
static struct {
    const char *name;
    double seconds;
} spent[MAX_TIMED];
static int nspent;

static double *clock_of(const char *name)
{
    for (int i = 0; i < nspent; i++)
        if (spent[i].name == name)
            return &spent[i].seconds;
    spent[nspent].name = name;
    return &spent[nspent++].seconds;
}

#define TIMED(op, params, args)              \
    static int timed_##op params             \
    {                                        \
        static const char name[] = #op;      \
        double start = now();                \
        int rc = real.op args;               \
                                             \
        *clock_of(name) += now() - start;    \
        return rc;                           \
    }

/* clang-format off */
TIMED(conv_fwd, (struct device *d, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w, const float *b, double *const *st, int n, struct err *e), (d, y, x, cv, w, b, st, n, e))
TIMED(conv_bwd_data, (struct device *d, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w, int n, struct err *e), (d, dx, beta, dy, cv, w, n, e))
TIMED(conv_bwd_weights, (struct device *d, float *const *dw, float beta, const struct operand *x, const struct tensor *dy, const struct conv *cv, const struct param *w, int n, struct err *e), (d, dw, beta, x, dy, cv, w, n, e))
TIMED(conv_bwd_bias, (struct device *d, float *const *db, float beta, const struct tensor *dy, int n, struct err *e), (d, db, beta, dy, n, e))
TIMED(norm_bwd_reduce, (struct device *d, double *const *s, const struct operand *x, const float *const *m, const float *const *i, const struct tensor *da, int n, struct err *e), (d, s, x, m, i, da, n, e))
TIMED(norm_bwd_apply, (struct device *d, struct tensor *da, const struct operand *x, const float *const *m, const float *const *i, const double *const *s, const double *c, int n, struct err *e), (d, da, x, m, i, s, c, n, e))
TIMED(act_fwd, (struct device *d, enum act_kind k, struct tensor *y, const struct operand *x, int n, struct err *e), (d, k, y, x, n, e))
TIMED(act_bwd, (struct device *d, enum act_kind k, struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *y, int n, struct err *e), (d, k, dx, beta, dy, y, n, e))
TIMED(maxpool_fwd, (struct device *d, const struct pooling *p, struct tensor *y, const struct operand *x, int n, struct err *e), (d, p, y, x, n, e))
TIMED(maxpool_bwd, (struct device *d, const struct pooling *p, struct tensor *dx, float beta, const struct tensor *dy, const struct operand *x, int n, struct err *e), (d, p, dx, beta, dy, x, n, e))
TIMED(upsample_fwd, (struct device *d, int f, struct tensor *y, const struct operand *x, int n, struct err *e), (d, f, y, x, n, e))
TIMED(upsample_bwd, (struct device *d, int f, struct tensor *dx, float beta, const struct tensor *dy, int n, struct err *e), (d, f, dx, beta, dy, n, e))
TIMED(yolo_loss, (struct device *d, const struct yolo_head *h, struct tensor *dz, float g, double *const *t, const struct tensor *z, const struct box_list *b, int n, struct err *e), (d, h, dz, g, t, z, b, n, e))
TIMED(tree_add, (struct device *d, float *dst, const struct tree_part *p, int np, size_t c, struct err *e), (d, dst, p, np, c, e))
TIMED(sgd_step, (struct device *d, float *w, float *m, const float *g, size_t c, const struct sgd *s, const int32_t *k, struct err *e), (d, w, m, g, c, s, k, e))
/* clang-format on */

static const struct device_ops *with_clocks(const struct device_ops *ops)
{
    real = timed = *ops;
#define T(op) timed.op = timed_##op;
    T(conv_fwd)
    T(conv_bwd_data)
    T(conv_bwd_weights)
    T(conv_bwd_bias)
    T(norm_bwd_reduce)
    T(norm_bwd_apply)
    T(act_fwd)
    T(act_bwd)
    T(maxpool_fwd)
    T(maxpool_bwd)
    T(upsample_fwd)
    T(upsample_bwd)
    T(yolo_loss)
    T(tree_add)
    T(sgd_step)
#undef T
    return &timed;
}

/* ---- the step ---- */

struct bench {
    int threads, size, batch, shards, freeze, steps;
    char isa[16];
    struct device *dev, *side;
    struct comm *comm;
    struct jobspec *spec;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct reduce *reduce;
    struct tensor *images;
    struct box_list *truth;
    double **terms;
    float **momentum;
};

static void die(const struct err *err)
{
    fprintf(stderr, "bench_step: %s\n", err->msg);
    exit(1);
}

static float *grad_dest(void *arg, const struct param *p, int shard)
{
    return reduce_dest(((struct bench *)arg)->reduce, p, shard);
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    return reduce_ready(((struct bench *)arg)->reduce, p, err);
}

static int no_stats(void *arg, int index, const double *const *stats, int c, struct err *err)
{
    (void)arg;
    (void)index;
    (void)stats;
    (void)c;
    (void)err;
    return 0;
}

static void make_batch(struct bench *b)
{
    int per = b->batch / b->shards;
    size_t count = (size_t)b->size * (size_t)b->size * 3;
    float *mem = b->dev->ops->alloc(b->dev, (size_t)b->batch * count * sizeof *mem);

    for (size_t i = 0; i < (size_t)b->batch * count; i++)
        mem[i] = (float)((i * 2654435761u >> 8) & 255) / 255.0f;
    b->images = calloc((size_t)b->shards, sizeof *b->images);
    b->truth = calloc((size_t)b->shards, sizeof *b->truth);
    b->terms = calloc((size_t)b->shards, sizeof *b->terms);
    for (int v = 0; v < b->shards; v++) {
        int32_t *offset = calloc((size_t)per + 1, sizeof *offset), *cls = calloc((size_t)per * BOXES, sizeof *cls);
        float *box = calloc((size_t)per * BOXES * 4, sizeof *box);

        for (int i = 0; i < per * BOXES; i++) {
            offset[i / BOXES + 1] = (i / BOXES + 1) * BOXES;
            cls[i] = i % CLASSES;
            for (int k = 0; k < 4; k++)
                box[i * 4 + k] = 0.1f + 0.05f * (float)((i * 7 + k * 3) % 11);
        }
        b->images[v] = tensor_f32(mem + (size_t)v * (size_t)per * count, per, b->size, b->size, 3);
        b->truth[v] = (struct box_list){ offset, cls, box, per * BOXES };
        b->terms[v] = calloc(64, sizeof(double));
    }
}

static void bench_open(struct bench *b)
{
    struct device_options opt = { b->threads, b->isa }, side = { 1, b->isa };
    struct comm_options co = { -1, 0, 1, 1000, { NULL, NULL } };
    struct reduce_options r = { .nshards = b->shards, .nwaves = 1 };
    json_t *root = json_pack("{s:{s:s,s:i,s:b},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i}}", "model", "preset", "yolov3_tiny", "size", b->size, "freeze_bn",
                             b->freeze, "data", "train", "annotations", "none", "images", "none", "train", "steps", 1000, "batch", b->batch, "shards",
                             b->shards);
    const struct device_ops *ops;
    struct err err = { 0 };

    if (jobspec_parse(root, &b->spec, &err) < 0 || device_backend("cpu", b->isa, &ops, &err) < 0 || ops->open(0, &opt, &b->dev, &err) < 0 ||
        ops->open(0, &side, &b->side, &err) < 0 || comm_open_shm(&co, &b->comm, &err) < 0)
        die(&err);
    b->dev->ops = with_clocks(ops);
    if (model_open(b->spec, CLASSES, b->dev, &b->model, &err) < 0)
        die(&err);
    b->arena = arena_new(b->dev, (size_t)256 << 20);
    b->tape = tape_new(b->dev, b->arena, b->model->nparams);
    r.dev = b->dev;
    r.side = b->side;
    r.comm = b->comm;
    if (reduce_open(&r, b->model->params, b->model->nparams, &b->reduce, &err) < 0)
        die(&err);
    b->momentum = calloc((size_t)b->model->nparams, sizeof *b->momentum);
    for (int i = 0; i < b->model->nparams; i++)
        b->momentum[i] = b->dev->ops->alloc(b->dev, b->model->params[i]->count * sizeof(float));
    make_batch(b);
    json_decref(root);
}

static void step(struct bench *b)
{
    const struct tape_hooks hooks = { b, grad_dest, grad_ready, no_stats, NULL };
    const struct model_batch mb = { b->images, b->truth };
    const struct sgd sgd = { 1e-6f, 0.9f, 5e-4f, 1 };
    static const int32_t go = 0;
    struct err err = { 0 };

    reduce_begin(b->reduce);
    reduce_wave(b->reduce, 0);
    tape_begin(b->tape, TAPE_TRAIN, b->shards, &hooks);
    if (b->model->ops->loss(b->model, b->tape, &mb, 1.0f / (float)b->batch, b->terms, &err) < 0 ||
        tape_backward(b->tape, b->model->params, b->model->nparams, &err) < 0 || reduce_wait(b->reduce, &err) < 0)
        die(&err);
    for (int i = 0; i < b->model->nparams; i++) {
        struct param *p = b->model->params[i];

        if (!param_trainable(p))
            continue;
        if (b->dev->ops->sgd_step(b->dev, p->data, b->momentum[i], reduce_grad(b->reduce, p), p->count, &sgd, &go, &err) < 0)
            die(&err);
        p->version++;
    }
}

static void parse(struct bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int n;

        if (sscanf(argv[i], "threads=%d", &n) == 1)
            b->threads = n;
        else if (sscanf(argv[i], "size=%d", &n) == 1)
            b->size = n;
        else if (sscanf(argv[i], "batch=%d", &n) == 1)
            b->batch = n;
        else if (sscanf(argv[i], "shards=%d", &n) == 1)
            b->shards = n;
        else if (sscanf(argv[i], "freeze=%d", &n) == 1)
            b->freeze = n;
        else if (sscanf(argv[i], "steps=%d", &n) == 1)
            b->steps = n;
        else if (strncmp(argv[i], "isa=", 4) == 0)
            snprintf(b->isa, sizeof b->isa, "%s", argv[i] + 4);
    }
}

int main(int argc, char **argv)
{
    struct bench b = { .threads = 2, .size = 416, .batch = 8, .shards = 1, .steps = 5, .isa = "auto" };
    double best = 1e9, conv = 0, total = 0;

    parse(&b, argc, argv);
    bench_open(&b);
    step(&b); /* arena and derived weights are made */
    memset(spent, 0, sizeof spent);
    nspent = 0;
    for (int i = 0; i < b.steps; i++) {
        double start = now(), s;

        step(&b);
        s = now() - start;
        total += s;
        best = s < best ? s : best;
    }
    for (int i = 0; i < nspent; i++)
        conv += strncmp(spent[i].name, "conv", 4) == 0 ? spent[i].seconds : 0;
    printf("images_per_s %.3f  step %.1f ms  conv_share %.3f  arena %zu MiB\n", b.batch / best, 1e3 * best, conv / total, arena_held(b.arena) >> 20);
    for (int i = 0; i < nspent; i++)
        printf("  %-18s %7.2f ms  %4.1f %%\n", spent[i].name, 1e3 * spent[i].seconds / b.steps, 100 * spent[i].seconds / total);
    return 0;
}
