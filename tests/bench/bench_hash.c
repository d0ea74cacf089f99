/* SPDX-License-Identifier: Apache-2.0 */ /* tests/bench/bench_hash.c - uses: proto worker/backend trainer cpu
 * The cost of evidence in a step on one device: each op that hashes its results, with and without hashes, over a
 * network's parameters.
 * Usage: bench_hash [device=cpu] [model=yolov3_tiny] [threads=2] [repeats=40] [isa=auto]
 * Prints a record "hash" an op: milliseconds of the best call without hashes (0 if the op only hashes) and of the best
 * call with them. Both kinds take turns. Gradients are squared by one thread, as in a step that does this beside its
 * own work. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/bench/bench.h"
#include "tests/bench/device_memory.h"
#include "worker/backend/devices.h"
#include "worker/models/builtin.h"
#include "worker/ops/families.h"

enum { BLOCK = 1024, CLASSES = 80 };

struct bench {
    struct device *dev, *side;
    struct jobspec *spec;
    struct model *model;
    struct optim_item *items;
    struct hash_piece *pieces;
    int nitems;
    float *grad;            /* of all items, each from a whole block on */
    double *squares;        /* [nblocks] */
    struct hash128 *hashes; /* [nblocks] of weights, [nblocks] of gradients, then [nitems] of tensors */
    size_t nblocks;
    struct clip *clip;
};

static void die(const struct err *err)
{
    fprintf(stderr, "bench_hash: %s\n", err->msg);
    exit(1);
}

/* Small numbers other than zero, like gradients and moments. */
static void *take_numbers(struct bench *b, size_t count)
{
    float *x = malloc(count * sizeof *x), *p;

    for (size_t i = 0; i < count; i++)
        x[i] = ((float)(i * 2654435761u >> 8 & 1023) - 511.5f) * 1e-5f;
    p = bench_device_memory(b->dev, x, count * sizeof *x);
    free(x);
    return p;
}

static size_t blocks_of(const struct param *p)
{
    return (p->count + BLOCK - 1) / BLOCK;
}

static void open_model(struct bench *b, const char *model)
{
    json_t *root = json_pack("{s:{s:s},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", model, "data", "train", "annotations", "none",
                             "images", "none", "train", "steps", 1000, "batch", 8);
    struct err err = { 0 };

    if (jobspec_parse(root, &b->spec, &err) < 0 ||
        model_open(&models_builtin, b->spec, (struct model_classes){ CLASSES, NULL, NULL }, b->dev, &b->model, &err) < 0)
        die(&err);
    json_decref(root);
}

static void add_items(struct bench *b)
{
    size_t at = 0;

    b->items = calloc((size_t)b->model->nparams, sizeof *b->items);
    b->pieces = calloc((size_t)b->model->nparams, sizeof *b->pieces);
    for (int i = 0; i < b->model->nparams; i++)
        b->nblocks += param_trainable(b->model->params[i]) ? blocks_of(b->model->params[i]) : 0;
    b->grad = take_numbers(b, b->nblocks * BLOCK);
    b->squares = bench_device_memory(b->dev, NULL, b->nblocks * sizeof *b->squares);
    b->hashes = bench_device_memory(b->dev, NULL, (2 * b->nblocks + (size_t)b->model->nparams) * sizeof *b->hashes);
    for (int i = 0; i < b->model->nparams; i++) {
        struct param *p = b->model->params[i];

        if (!param_trainable(p))
            continue;
        b->pieces[b->nitems] = (struct hash_piece){ b->hashes + at, (int)blocks_of(p), 0, 1 + (uint64_t)i };
        b->items[b->nitems++] = (struct optim_item){ .param = p,
                                                     .grad = b->grad + at * BLOCK,
                                                     .state = { take_numbers(b, p->count), take_numbers(b, p->count) },
                                                     .lr = 1e-6f,
                                                     .decay = 5e-4f };
        at += blocks_of(p);
    }
    b->clip = bench_device_memory(b->dev, &(struct clip){ .factor = 1 }, sizeof *b->clip);
}

/* ---- the ops: which device they run on, and whether there is anything without hashes ---- */

static void want_hashes(struct bench *b, bool hashed)
{
    for (int i = 0; i < b->nitems; i++)
        b->items[i].hashes = hashed ? (struct hash128 *)(uintptr_t)b->pieces[i].blocks : NULL;
}

static int run_sgd(struct bench *b, bool hashed, struct err *err)
{
    want_hashes(b, hashed);
    return b->dev->on->optim->sgd(b->dev, b->items, b->nitems, &(struct sgd){ .momentum = 0.9f }, b->clip, err);
}

static int run_adam(struct bench *b, bool hashed, struct err *err)
{
    const struct adam how = { 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f, 1.0f, 1.0f };

    want_hashes(b, hashed);
    return b->dev->on->optim->adam(b->dev, b->items, b->nitems, &how, b->clip, err);
}

static int run_squares(struct bench *b, bool hashed, struct err *err)
{
    return b->side->on->reduce->sum_squares(b->side, b->squares, hashed ? b->hashes + b->nblocks : NULL, b->grad, b->nblocks * BLOCK, err);
}

static int run_tensors(struct bench *b, bool hashed, struct err *err)
{
    (void)hashed;
    return b->dev->on->reduce->hash_tensors(b->dev, b->hashes + 2 * b->nblocks, b->pieces, b->nitems, err);
}

static int run_blocks(struct bench *b, bool hashed, struct err *err)
{
    const struct hash_item item = { b->grad, b->nblocks * BLOCK, b->hashes + b->nblocks };

    (void)hashed;
    return b->dev->on->reduce->hash_blocks(b->dev, &item, 1, err);
}

static const struct {
    const char *name;
    int (*run)(struct bench *b, bool hashed, struct err *err);
    bool plain; /* it is an op without hashes, too */
} ops[] = { { "sgd", run_sgd, true },
            { "adam", run_adam, true },
            { "sum_squares", run_squares, true },
            { "hash_tensors", run_tensors, false },
            { "hash_blocks", run_blocks, false } };

static double seconds_of(struct bench *b, int op, bool hashed)
{
    struct err err = { 0 };
    double start = bench_now();

    if (ops[op].run(b, hashed, &err) < 0 || b->dev->ops->sync(b->dev, &err) < 0 || b->side->ops->sync(b->side, &err) < 0)
        die(&err);
    return bench_now() - start;
}

static void measure(struct bench *b, int op, int repeats)
{
    double best[2] = { ops[op].plain ? 1e9 : 0, 1e9 };

    for (int i = 0; i < 2 * repeats; i++)
        if (i % 2 || ops[op].plain) {
            double s = seconds_of(b, op, i % 2);

            best[i % 2] = s < best[i % 2] ? s : best[i % 2];
        }
    printf("hash op=%s plain_ms=%.3f hashed_ms=%.3f\n", ops[op].name, 1e3 * best[0], 1e3 * best[1]);
}

static void close_all(struct bench *b)
{
    const struct device_ops *backend = b->dev->ops;

    for (int i = 0; i < b->nitems; i++)
        for (int k = 0; k < OPTIM_STATES; k++)
            backend->free(b->dev, b->items[i].state[k]);
    backend->free(b->dev, (void *)(uintptr_t)b->grad);
    backend->free(b->dev, b->squares);
    backend->free(b->dev, b->hashes);
    backend->free(b->dev, (void *)(uintptr_t)b->clip);
    free(b->items);
    free(b->pieces);
    model_free(b->model);
    jobspec_free(b->spec);
    backend->close(b->side);
    backend->close(b->dev);
}

int main(int argc, char **argv)
{
    struct device_options opt = { .threads = bench_count(argc, argv, "threads", 2), .isa = bench_word(argc, argv, "isa", "auto") },
                          side = opt;
    const struct device_ops *backend;
    struct bench b = { 0 };
    struct err err = { 0 };

    side.threads = 1;
    if (device_backend(bench_word(argc, argv, "device", "cpu"), opt.isa, &backend, &err) < 0 || backend->open(0, &opt, &b.dev, &err) < 0 ||
        backend->open(0, &side, &b.side, &err) < 0)
        die(&err);
    open_model(&b, bench_word(argc, argv, "model", "yolov3_tiny"));
    add_items(&b);
    for (size_t op = 0; op < sizeof ops / sizeof *ops; op++)
        measure(&b, (int)op, bench_count(argc, argv, "repeats", 40));
    close_all(&b);
    return 0;
}
