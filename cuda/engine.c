#include "cuda/engine.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda/memory.h"
#include "cuda/plan_cache.h"
#include "cuda/plan_table.h"
#include "cuda/stem.h"
#include "proto/err.h"

#define WORKSPACE_STEP ((size_t)16 << 20) /* grows in steps, so that the first pass over a network allocates memory only a few times */

struct engine {
    struct cuda_device *d;
    struct plan_target run; /* the stream's handles; threads of the cache have their own */
    struct plan_cache *plans;
    char *workspace;
    size_t workspace_bytes;
};

static void attach(void)
{
    cudaSetDevice(0); /* if it fails, making a plan fails, too, and reports it */
}

void engine_gpu(const struct cuda_device *d, char *ret, size_t size)
{
    struct cudaDeviceProp p;

    if (cudaGetDeviceProperties(&p, 0) != cudaSuccess)
        p.name[0] = '\0';
    snprintf(ret, size, "%s, %d multiprocessors, compute %d.%d", p.name, d->multiprocessors, d->compute / 10, d->compute % 10);
}

/* Opens a target with the choices measured on this kind of GPU. */
static int open_target(const struct engine *e, struct plan_target *ret, struct err *err)
{
    char gpu[160];
    int rc = plan_target_open(ret, err);

    if (rc < 0)
        return rc;
    engine_gpu(e->d, gpu, sizeof gpu);
    plan_target_table(ret, plan_table_shipped(), gpu);
    return 0;
}

static int open_plans(struct engine *e, struct err *err)
{
    int rc = plan_cache_new(attach, &e->plans, err);

    for (int i = 0; i < PLAN_THREADS && rc == 0; i++) {
        struct plan_target target;

        rc = open_target(e, &target, err);
        if (rc == 0)
            rc = plan_cache_add(e->plans, &target, err);
    }
    return rc;
}

int engine_open(struct cuda_device *d, struct engine **ret_engine, struct err *err)
{
    struct engine *e = calloc(1, sizeof *e);
    int rc;

    if (!e)
        return err_set(err, -ENOMEM, "out of memory for the convolutions of the CUDA device");
    e->d = d;
    rc = plan_target_open(&e->run, err);
    if (rc == 0 && e->run.dnn.api->cudnnSetStream(e->run.dnn.handle, d->stream) != CUDNN_STATUS_SUCCESS)
        rc = err_set(err, ERR_DEVICE, "cuDNN does not take the stream");
    if (rc == 0)
        rc = open_plans(e, err);
    if (rc < 0) {
        engine_close(e);
        return rc;
    }
    *ret_engine = e;
    return 0;
}

void engine_close(struct engine *e)
{
    if (!e)
        return;
    cudaStreamSynchronize(e->d->stream);
    plan_cache_free(e->plans);
    plan_target_close(&e->run);
    cudaFree(e->workspace);
    free(e);
}

/* Enlarges the workspace. Only a new shape needs that. The old memory is freed first, to make room for the new. */
static int reserve(struct engine *e, size_t bytes, const char *what, struct err *err)
{
    void *memory = NULL;
    int rc;

    rc = cuda_check(cudaStreamSynchronize(e->d->stream), "workspace of convolutions", err);
    if (rc < 0)
        return rc;
    cudaFree(e->workspace);
    e->workspace = NULL;
    e->workspace_bytes = 0;
    bytes = (bytes + WORKSPACE_STEP - 1) / WORKSPACE_STEP * WORKSPACE_STEP;
    rc = cuda_malloc(&memory, bytes, what, err);
    if (rc < 0)
        return rc;
    e->workspace = memory;
    e->workspace_bytes = bytes;
    return 0;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Bytes at the front of the workspace for the library's result, if that still must be converted or added. */
static size_t scratch(const struct plan *p, const struct conv_args *args)
{
    return p->finish == PLAN_CAST || (p->finish == PLAN_ADD && args->add) ? aligned(p->scratch) : 0;
}

static int run_cudnn(struct engine *e, const struct plan *p, const struct conv_args *args, struct err *err)
{
    size_t front = scratch(p, args);
    const void *w = front ? e->workspace : p->key.conv.dir == CONV_BWD_WEIGHTS ? (const void *)args->dw : args->w;
    void *workspace = e->workspace + front;

    return cudnn_plan_run(&p->dnn, e->run.dnn.handle, args->x, w, args->y, p->key.conv.bias ? args->bias : NULL, workspace, err);
}

/* Adds or converts the library's result in scratch memory to its destination. */
static int finish(struct engine *e, const struct plan *p, const struct conv_args *args, struct err *err)
{
    const struct conv_key *k = &p->key.conv;
    size_t count = (size_t)k->k * (size_t)k->r * (size_t)k->s * (size_t)k->c;
    const struct tree_part sum[] = { { 0, 1, args->dw }, { 1, 2, (const float *)(const void *)e->workspace } };

    switch (p->finish) {
    case PLAN_DONE:
        break;
    case PLAN_ADD:
        return args->add ? cuda_reduce_tree_add(&e->d->dev, args->dw, sum, 2, count, err) : 0;
    case PLAN_CAST:
        return cuda_cast_add_f32(&e->d->dev, args->dw, e->workspace, count, args->add, err);
    }
    return 0;
}

static int run(struct engine *e, struct plan *p, const struct conv_args *args, struct err *err)
{
    int rc;

    if (p->library == PLAN_OWN)
        return stem_run(&p->key.conv, args, e->workspace, e->d->stream, err);
    if (p->library == PLAN_CUBLASLT)
        return lt_plan_run(&p->lt, &e->run.lt, args, p->key.conv.add || args->add, e->workspace, e->d->stream, err);
    rc = run_cudnn(e, p, args, err);
    return rc < 0 ? rc : finish(e, p, args, err);
}

int engine_run(struct engine *e, struct plan *p, const struct conv_args *args, struct err *err)
{
    char text[PLAN_KEY_TEXT];
    int rc;

    if (scratch(p, args) + p->workspace > e->workspace_bytes) {
        rc = reserve(e, scratch(p, args) + p->workspace, plan_key_text(&p->key, text), err);
        if (rc < 0)
            return rc;
    }
    rc = run(e, p, args, err);
    if (rc < 0)
        err_prefix(err, "convolution %s", plan_key_text(&p->key, text));
    return rc;
}

int engine_conv(struct engine *e, const struct conv_key *key, const struct conv_args *args, struct err *err)
{
    struct plan_key full = plan_key_make(key, args);
    struct plan *p;
    int rc = plan_cache_get(e->plans, &full, &p, err);

    return rc < 0 ? rc : engine_run(e, p, args, err);
}

int engine_prepare(struct engine *e, const struct conv_key *key, struct err *err)
{
    struct plan_key full = plan_key_make(key, NULL);

    return plan_cache_prepare(e->plans, &full, err);
}

int engine_begin(struct engine *e, int keep, struct err *err)
{
    int rc;

    if (plan_cache_begin(e->plans, keep, ENGINE_PLANS) == 0)
        return 0;
    rc = cuda_check(cudaStreamSynchronize(e->d->stream), "plans of convolutions", err);
    if (rc >= 0)
        plan_cache_drop(e->plans, keep, ENGINE_PLANS / 4 * 3);
    return rc;
}

void engine_ready(struct engine *e, struct plan_readiness *ret)
{
    plan_cache_wait(e->plans, ret);
}

char *engine_plans(struct engine *e)
{
    return plan_cache_text(e->plans);
}
