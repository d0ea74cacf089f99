/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_repeat.c - uses: proto worker/backend trainer cpu cuda
 * Training steps have the same bits every time, while another queue of the same device is kept busy. A GPU named by
 * DETD_TEST_CUDA runs alone, with larger settings: DETD_TEST_REPEATS=20 DETD_TEST_SIZE=416 DETD_TEST_WIDTH=1
 * DETD_TEST_NOISE=16777216 (defaults 2, 32, 0.125, 4096). */
#include "tests/device/devices.h"

#include <pthread.h>
#include <stdatomic.h>

#include "proto/hash/hash.h"
#include "proto/job/jobspec.h"
#include "tests/stand/batches.h"
#include "worker/comm/comm.h"
#include "worker/comm/staged.h"
#include "worker/core/arena.h"
#include "worker/layers/tape.h"
#include "worker/layers/layers.h"
#include "worker/models/builtin.h"
#include "worker/gradients/gradients.h"

enum { CLASSES = 3, BATCH = 8, SHARDS = 4, BOXES = 2, STEPS = 2 };

static double setting(const char *name, double otherwise)
{
    const char *text = getenv(name);

    return text ? atof(text) : otherwise;
}

/* A training run on one device. */
struct run {
    struct device *dev, *side;
    struct comm *host, *link;
    struct jobspec *spec;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct gradients *gradients;
    double *raw[SHARDS], *stats[SHARDS];
    struct tensor images[SHARDS];
    struct box_list truth[SHARDS];
    struct optim_item *items;
    float **start; /* the weights every repeat begins with; host memory */
    int nitems;
    struct clip *clip;
    struct hash128 *blocks; /* of the largest hashed array, then that array's own hash; device memory */
    size_t nblocks;
};

#define OK(call)                     \
    do {                             \
        struct err err = { 0 };      \
        if ((call) < 0)              \
            fail_msg("%s", err.msg); \
    } while (0)

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    return gradients_dest(((struct run *)arg)->gradients, p, shard, ret_written);
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    return gradients_ready(((struct run *)arg)->gradients, p, err);
}

static double *stats_dest(void *arg, int index, int use, int shard)
{
    struct run *r = arg;
    size_t at = 0;

    (void)use;
    for (int i = 0; i < index; i++)
        at += 2 * r->model->norms[i].mean->count + 1;
    return r->stats[shard] + at;
}

static void *take(struct run *r, const void *host, size_t bytes)
{
    void *p = r->dev->ops->alloc(r->dev, bytes);

    assert_non_null(p);
    if (host)
        OK(r->dev->ops->upload(r->dev, p, host, bytes, &err));
    return p;
}

static void make_batch(struct run *r, int size)
{
    size_t count = (size_t)(BATCH / SHARDS) * (size_t)size * (size_t)size * 3, stats = 1;
    float *pixels = numbers(count * SHARDS, 5, 0, 1), *box = numbers(BATCH * BOXES * 4, 6, 0.2f, 0.6f), *mem;
    int32_t offset[BATCH / SHARDS + 1], cls[BATCH / SHARDS * BOXES];

    mem = take(r, pixels, count * SHARDS * sizeof *pixels);
    for (int i = 0; i < r->model->nnorms; i++)
        stats += 2 * r->model->norms[i].mean->count + 1;
    for (int i = 0; i <= BATCH / SHARDS; i++)
        offset[i] = i * BOXES;
    for (int i = 0; i < BATCH / SHARDS * BOXES; i++)
        cls[i] = i % CLASSES;
    for (int v = 0; v < SHARDS; v++) {
        r->images[v] = tensor_f32(mem + (size_t)v * count, BATCH / SHARDS, size, size, 3);
        r->truth[v] = (struct box_list){ take(r, offset, sizeof offset), take(r, cls, sizeof cls),
                                         take(r, box + v * BATCH / SHARDS * BOXES * 4, BATCH / SHARDS * BOXES * 4 * sizeof *box),
                                         BATCH / SHARDS * BOXES };
        r->raw[v] = take(r, NULL, r->model->raw_terms * sizeof(double));
        r->stats[v] = take(r, NULL, stats * sizeof(double));
    }
    r->clip = take(r, &(struct clip){ .factor = 1 }, sizeof(struct clip));
    r->nblocks = 2 * r->model->raw_terms / 1024 + 1;
    for (int i = 0; i < r->nitems; i++)
        r->nblocks = r->items[i].param->count / 1024 + 1 > r->nblocks ? r->items[i].param->count / 1024 + 1 : r->nblocks;
    r->blocks = take(r, NULL, (r->nblocks + 1) * sizeof *r->blocks);
    free(pixels);
    free(box);
}

static void run_open(struct run *r, const struct device_ops *ops, enum precision precision, enum tier tier)
{
    struct device_options opt = { .threads = 2, .precision = precision };
    struct comm_options co = { .fd = -1, .nranks = 1, .timeout_ms = 60000 };
    int size = (int)setting("DETD_TEST_SIZE", 32);
    json_t *root = json_pack("{s:{s:s,s:i,s:f},s:{s:{s:s,s:s}},s:{s:i,s:i,s:i}}", "model", "preset", "yolov3_tiny", "size", size, "width",
                             setting("DETD_TEST_WIDTH", 0.125), "data", "train", "annotations", "none", "images", "none", "train", "steps",
                             10, "batch", BATCH, "shards", SHARDS);
    struct gradients_options ro = { .nshards = SHARDS, .nwaves = 1 };

    memset(r, 0, sizeof *r);
    OK(ops->open(0, &opt, &r->dev, &err));
    OK(ops->open(0, &opt, &r->side, &err));
    OK(comm_open_shm(&co, &r->host, &err));
    r->link = r->host;
    if (!r->dev->host_memory)
        OK(comm_open_staged(r->host, r->dev, r->side, &r->link, &err));
    OK(jobspec_parse(root, &r->spec, &err));
    OK(model_open(&models_builtin, r->spec, (struct model_classes){ CLASSES, NULL, NULL }, r->dev, &r->model, &err));
    json_decref(root);
    r->dev->ops->set_tier(r->dev, tier);
    r->arena = arena_new(r->dev, (size_t)32 << 20);
    r->tape = tape_new(r->dev, r->arena, r->model->nparams);
    ro.dev = r->dev;
    ro.side = r->side;
    ro.comm = r->link;
    OK(gradients_open(&ro, r->model->params, r->model->nparams, &r->gradients, &err));
    r->items = calloc((size_t)r->model->nparams, sizeof *r->items);
    r->start = calloc((size_t)r->model->nparams, sizeof *r->start);
    for (int i = 0; i < r->model->nparams; i++) {
        struct param *p = r->model->params[i];

        if (!param_trainable(p))
            continue;
        r->start[r->nitems] = malloc(p->count * sizeof(float));
        OK(r->dev->ops->download(r->dev, r->start[r->nitems], p->data, p->count * sizeof(float), &err));
        r->items[r->nitems++] = (struct optim_item){ .param = p, .state = { take(r, NULL, p->count * sizeof(float)) }, .lr = 1e-3f };
    }
    make_batch(r, size);
}

static void run_close(struct run *r)
{
    for (int i = 0; i < r->nitems; i++) {
        r->dev->ops->free(r->dev, r->items[i].state[0]);
        free(r->start[i]);
    }
    for (int v = 0; v < SHARDS; v++) {
        r->dev->ops->free(r->dev, (void *)r->truth[v].offset);
        r->dev->ops->free(r->dev, (void *)r->truth[v].cls);
        r->dev->ops->free(r->dev, (void *)r->truth[v].box);
        r->dev->ops->free(r->dev, r->raw[v]);
        r->dev->ops->free(r->dev, r->stats[v]);
    }
    r->dev->ops->free(r->dev, r->images[0].data);
    r->dev->ops->free(r->dev, r->clip);
    r->dev->ops->free(r->dev, r->blocks);
    free(r->items);
    free(r->start);
    gradients_close(r->gradients);
    tape_free(r->tape);
    arena_free(r->arena);
    model_free(r->model);
    if (r->link != r->host)
        comm_close(r->link);
    comm_close(r->host);
    r->side->ops->close(r->side);
    r->dev->ops->close(r->dev);
    jobspec_free(r->spec);
}

/* *sum, then count numbers of any kind that fill as many floats. */
static void add_hash(struct run *r, struct hash128 *sum, const void *data, size_t count)
{
    struct hash128 *whole = r->blocks + r->nblocks, hash;
    const struct hash_piece piece = { r->blocks, (int)((count + 1023) / 1024), 0, 7 };

    OK(r->dev->on->reduce->hash_blocks(r->dev, &(struct hash_item){ data, count, r->blocks }, 1, &err));
    OK(r->dev->on->reduce->hash_tensors(r->dev, whole, &piece, 1, &err));
    OK(r->dev->ops->download(r->dev, &hash, whole, sizeof hash, &err));
    *sum = hash_fold(*sum, hash);
}

/* Losses, gradients and weights of a few steps from the same start. */
static struct hash128 train(struct run *r)
{
    const struct tape_hooks hooks = { r, grad_dest, grad_ready, stats_dest, NULL };
    struct shard_batch shard[SHARDS];
    const struct batch mb = boxes_batch(shard, r->images, r->truth, SHARDS);
    const struct model_want want = { .raw = r->raw, .images_of_step = BATCH, .shards_of_step = SHARDS };
    struct hash128 sum = { { 0, 0 } };

    for (int i = 0; i < r->nitems; i++) {
        struct param *p = r->items[i].param;

        OK(r->dev->ops->upload(r->dev, p->data, r->start[i], p->count * sizeof(float), &err));
        OK(r->dev->ops->zero(r->dev, r->items[i].state[0], p->count * sizeof(float), &err));
        p->version++;
    }
    for (int s = 0; s < STEPS; s++) {
        gradients_begin(r->gradients);
        gradients_wave(r->gradients, 0);
        tape_begin(r->tape, TAPE_TRAIN, SHARDS, &hooks);
        OK(r->model->ops->forward(r->model, r->tape, &mb, &want, &err));
        OK(tape_backward(r->tape, r->model->params, r->model->nparams, &err));
        OK(gradients_wait(r->gradients, &err));
        for (int v = 0; v < SHARDS; v++)
            add_hash(r, &sum, r->raw[v], 2 * r->model->raw_terms);
        for (int i = 0; i < r->nitems; i++) {
            r->items[i].grad = gradients_sum(r->gradients, r->items[i].param);
            add_hash(r, &sum, r->items[i].grad, r->items[i].param->count);
        }
        OK(r->dev->on->optim->sgd(r->dev, r->items, r->nitems, &(struct sgd){ .momentum = 0.9f }, r->clip, &err));
    }
    for (int i = 0; i < r->nitems; i++)
        add_hash(r, &sum, r->items[i].param->data, r->items[i].param->count);
    return sum;
}

/* ---- the other queue ---- */

struct noise {
    const struct device_ops *ops;
    atomic_bool stop;
    int rc;
};

static void *make_noise(void *arg)
{
    struct noise *n = arg;
    struct device_options opt = { .threads = 1 };
    struct device *dev;
    struct err err;
    size_t count = (size_t)setting("DETD_TEST_NOISE", 4096);
    float *a, *b;

    n->rc = n->ops->open(0, &opt, &dev, &err);
    if (n->rc < 0)
        return NULL;
    a = dev->ops->alloc(dev, count * sizeof *a);
    b = dev->ops->alloc(dev, count * sizeof *b);
    while (a && b && !atomic_load(&n->stop) && n->rc >= 0) {
        struct tree_part parts[2] = { { 0, 1, a }, { 1, 2, b } };

        n->rc = dev->on->reduce->tree_add(dev, b, parts, 2, count, &err);
        if (n->rc >= 0)
            n->rc = dev->ops->sync(dev, &err);
    }
    dev->ops->free(dev, a);
    dev->ops->free(dev, b);
    dev->ops->close(dev);
    return NULL;
}

static void repeat(const struct device_ops *ops, enum precision precision, enum tier tier)
{
    static const char *const names[] = { "fp32", "tf32", "bf16" };
    int times = (int)setting("DETD_TEST_REPEATS", 2);
    struct noise noise = { .ops = ops };
    struct hash128 first, again;
    pthread_t thread;
    struct run r;

    run_open(&r, ops, precision, tier);
    first = train(&r);
    assert_int_equal(pthread_create(&thread, NULL, make_noise, &noise), 0);
    for (int i = 1; i < times; i++) {
        again = train(&r);
        if (memcmp(&first, &again, sizeof first) != 0)
            fail_msg("%s %s, tier %d: repeat %d has other bits than the first", ops->name, names[precision], (int)tier, i);
    }
    atomic_store(&noise.stop, true);
    pthread_join(thread, NULL);
    assert_true(noise.rc >= 0);
    run_close(&r);
    print_message("%s %s tier %d: %d times the same bits\n", ops->name, names[precision], (int)tier, times);
}

static void same_bits_every_time(void **state)
{
    const bool gpu_alone = cuda_plugin() != NULL;

    (void)state;
    for (int i = 0; i < devices.n; i++) {
        const struct device_ops *ops = devices.dev[i]->ops;

        if (i > 0 && devices.dev[i - 1]->ops == ops)
            continue; /* the same backend opened otherwise */
        if (gpu_alone && devices.dev[i]->host_memory)
            continue; /* minutes, at a GPU's settings */
        for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++)
            for (int tier = TIER_RERUN; tier <= TIER_WORLD && !(devices.dev[i]->host_memory && p == PRECISION_TF32); tier++)
                repeat(ops, (enum precision)p, (enum tier)tier);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_bits_every_time) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
