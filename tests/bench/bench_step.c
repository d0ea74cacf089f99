/* tests/bench/bench_step.c - images per second of yolov3-tiny's training step on the CPU device, with synthetic images.
 * uses: proto worker worker/train worker/models worker/layers worker/data worker/eval worker/comm worker/core cpu
 * Usage: bench_step [threads=2] [size=416] [batch=8] [shards=1] [freeze=0] [steps=5] [isa=auto]
 * Prints: images_per_s (best step), the median share of convolutions in a step, and where the rest goes. shards=1,4,8 takes turns between
 * the three, step by step, so that a busy machine slows all alike; then the ratios of their best steps to the first's. */
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

enum { CLASSES = 80, BOXES = 4, MAX_TIMED = 40, MAX_STEPS = 200, MAX_SHARDINGS = 4 };

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the device with a stop watch around every op ---- */

static struct device_ops real, timed;
struct clocks {
    int n;
    struct {
        const char *name;
        double seconds;
    } op[MAX_TIMED];
};
static struct clocks *spent; /* of the sharding that is running */

static double *clock_of(const char *name)
{
    for (int i = 0; i < spent->n; i++)
        if (spent->op[i].name == name)
            return &spent->op[i].seconds;
    spent->op[spent->n].name = name;
    return &spent->op[spent->n++].seconds;
}

static double conv_seconds(void)
{
    double sum = 0;

    for (int i = 0; i < spent->n; i++)
        sum += strncmp(spent->op[i].name, "conv", 4) == 0 ? spent->op[i].seconds : 0;
    return sum;
}

#define TIMED(op, params, args)           \
    static int timed_##op params          \
    {                                     \
        static const char name[] = #op;   \
        double start = now();             \
        int rc = real.op args;            \
                                          \
        *clock_of(name) += now() - start; \
        return rc;                        \
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

struct options {
    int threads, size, batch, shards[MAX_SHARDINGS], nshardings, freeze, steps;
    char isa[16];
    struct device *dev, *side;
    struct comm *comm;
};

struct bench {
    int batch, size, shards;
    struct device *dev;
    struct jobspec *spec;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct reduce *reduce;
    struct tensor *images;
    struct box_list *truth;
    double **terms;
    float **momentum;
    struct clocks clocks;
    double best, total, conv_share[MAX_STEPS];
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

static void devices_open(struct options *o)
{
    struct device_options opt = { o->threads, o->isa }, side = { 1, o->isa };
    struct comm_options co = { .fd = -1, .nranks = 1, .timeout_ms = 1000 };
    const struct device_ops *ops;
    struct err err = { 0 };

    if (device_backend("cpu", o->isa, &ops, &err) < 0 || ops->open(0, &opt, &o->dev, &err) < 0 || ops->open(0, &side, &o->side, &err) < 0 ||
        comm_open_shm(&co, &o->comm, &err) < 0)
        die(&err);
    o->dev->ops = with_clocks(ops);
}

static void bench_open(struct bench *b, const struct options *o, int shards)
{
    struct reduce_options r = { .dev = o->dev, .side = o->side, .comm = o->comm, .nshards = shards, .nwaves = 1 };
    json_t *root = json_pack("{s:{s:s,s:i,s:b},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i}}", "model", "preset", "yolov3_tiny", "size", o->size,
                             "freeze_bn", o->freeze, "data", "train", "annotations", "none", "images", "none", "train", "steps", 1000,
                             "batch", o->batch, "shards", shards);
    struct err err = { 0 };

    *b = (struct bench){ .batch = o->batch, .size = o->size, .shards = shards, .dev = o->dev, .best = 1e9 };
    if (jobspec_parse(root, &b->spec, &err) < 0 || model_open(b->spec, CLASSES, b->dev, &b->model, &err) < 0)
        die(&err);
    b->arena = arena_new(b->dev, (size_t)256 << 20);
    b->tape = tape_new(b->dev, b->arena, b->model->nparams);
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

static void timed_step(struct bench *b, int number)
{
    double start = now(), conv, seconds;

    spent = &b->clocks;
    conv = conv_seconds();
    step(b);
    seconds = now() - start;
    b->conv_share[number] = (conv_seconds() - conv) / seconds;
    b->total += seconds;
    b->best = seconds < b->best ? seconds : b->best;
}

static void parse_shards(struct options *o, const char *text)
{
    for (char *end; o->nshardings < MAX_SHARDINGS; text = end + 1) {
        o->shards[o->nshardings++] = (int)strtol(text, &end, 10);
        if (*end != ',')
            break;
    }
}

static void parse(struct options *o, int argc, char **argv)
{
    const struct {
        const char *name;
        int *value;
    } number[] = {
        { "threads=", &o->threads }, { "size=", &o->size }, { "batch=", &o->batch }, { "freeze=", &o->freeze }, { "steps=", &o->steps }
    };

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "shards=", 7) == 0)
            parse_shards(o, argv[i] + 7);
        else if (strncmp(argv[i], "isa=", 4) == 0)
            snprintf(o->isa, sizeof o->isa, "%s", argv[i] + 4);
        for (size_t k = 0; k < sizeof number / sizeof *number; k++)
            if (strncmp(argv[i], number[k].name, strlen(number[k].name)) == 0)
                *number[k].value = atoi(argv[i] + strlen(number[k].name));
    }
    if (o->nshardings == 0)
        parse_shards(o, "1");
    o->steps = o->steps < 1 ? 1 : o->steps > MAX_STEPS ? MAX_STEPS : o->steps;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print(struct bench *b, int steps)
{
    qsort(b->conv_share, (size_t)steps, sizeof *b->conv_share, compare);
    printf("shards %d: images_per_s %.3f  step %.1f ms  conv_share %.3f  arena %zu MiB\n", b->shards, b->batch / b->best, 1e3 * b->best,
           b->conv_share[steps / 2], arena_held(b->arena) >> 20);
    for (int i = 0; i < b->clocks.n; i++)
        printf("  %-18s %7.2f ms  %4.1f %%\n", b->clocks.op[i].name, 1e3 * b->clocks.op[i].seconds / steps,
               100 * b->clocks.op[i].seconds / b->total);
}

int main(int argc, char **argv)
{
    static struct bench bench[MAX_SHARDINGS];
    struct options o = { .threads = 2, .size = 416, .batch = 8, .steps = 5, .isa = "auto" };

    parse(&o, argc, argv);
    devices_open(&o);
    for (int k = 0; k < o.nshardings; k++) {
        bench_open(&bench[k], &o, o.shards[k]);
        timed_step(&bench[k], 0); /* arena and derived weights are made */
        bench[k].clocks.n = 0;
        bench[k].best = 1e9;
        bench[k].total = 0;
    }
    for (int i = 0; i < o.steps; i++)
        for (int k = 0; k < o.nshardings; k++)
            timed_step(&bench[k], i);
    for (int k = 0; k < o.nshardings; k++)
        print(&bench[k], o.steps);
    for (int k = 1; k < o.nshardings; k++)
        printf("shards %d over %d: %.3f\n", o.shards[k], o.shards[0], bench[k].best / bench[0].best);
    return 0;
}
