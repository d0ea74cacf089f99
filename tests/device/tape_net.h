/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/tape_net.h - a tape with parameters, images and destinations
 * of its own, for tests that build their network call by call. Shards may differ in size. */
#pragma once
#include "tests/device/devices.h"

#include "worker/core/arena.h"
#include "worker/layers/layers.h"
#include "worker/layers/tape.h"

enum { NET_SHARDS = 3, NET_PARAMS = 64, NET_STATS = 8, NET_CHANNELS = 16 };

struct net {
    struct device *dev;
    struct arena *arena;
    struct tape *tape;
    struct tape_hooks hooks;
    struct param *param[NET_PARAMS];
    int nparams, nnorms, first, nshards;
    float *grad[NET_PARAMS][NET_SHARDS];     /* NULL: it must not be asked for */
    int ready[NET_PARAMS];                   /* since net_begin() */
    double *stats[NET_STATS][2][NET_SHARDS]; /* by normalisation and use */
    struct tensor image[NET_SHARDS];
    struct err err;
};

#define NET_OK(n, call)                                            \
    do {                                                           \
        if ((call) < 0)                                            \
            fail_msg("%s: %s", (n)->dev->ops->name, (n)->err.msg); \
    } while (0)

static float *net_grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    struct net *n = arg;

    assert_non_null(n->grad[p->index][shard]);
    *ret_written = false;
    return n->grad[p->index][shard];
}

static int net_grad_ready(void *arg, const struct param *p, struct err *err)
{
    struct net *n = arg;

    (void)err;
    assert_true(p->trainable);
    n->ready[p->index]++;
    return 0;
}

static double *net_stats_dest(void *arg, int index, int use, int shard)
{
    struct net *n = arg;

    assert_true(index < n->nnorms && use < 2);
    return n->stats[index][use][shard];
}

__attribute__((unused)) static void net_free(struct net *n)
{
    tape_free(n->tape);
    arena_free(n->arena);
    for (int i = 0; i < n->nparams; i++) {
        n->dev->ops->param_release(n->dev, n->param[i]);
        free(n->param[i]);
    }
    free_buffers();
}

/* Opens shards from `first` on: `images` images of h[s] x w[s] pixels and c channels. A shard has the same contents
 * alone and beside others. */
__attribute__((unused)) static void net_open_on(struct net *n, int device, int first, int nshards, int images, const int *h, const int *w,
                                                int c)
{
    *n = (struct net){ .dev = devices.dev[device], .nshards = nshards, .first = first };
    use_device(device);
    n->dev->ops->set_tier(n->dev, TIER_WORLD); /* a gradient of each shard */
    n->arena = arena_new(n->dev, 1 << 20);
    n->tape = tape_new(n->dev, n->arena, NET_PARAMS);
    assert_true(n->arena && n->tape);
    n->hooks = (struct tape_hooks){ .arg = n, .grad_dest = net_grad_dest, .grad_ready = net_grad_ready, .stats_dest = net_stats_dest };
    for (int s = 0; s < nshards; s++) {
        size_t count = (size_t)(images * h[first + s] * w[first + s] * c);
        float *x = numbers(count, 20 + (uint64_t)(first + s), -1.0f, 1.0f);

        n->image[s] = tensor_f32(put(n->dev, x, count * sizeof *x), images, h[first + s], w[first + s], c);
        free(x);
    }
}

__attribute__((unused)) static struct param *net_param(struct net *n, enum param_kind kind, int k, int size, int c, bool trainable)
{
    struct param *p = calloc(1, sizeof *p);
    float *w;

    assert_true(p && n->nparams < NET_PARAMS);
    *p = (struct param){ .kind = kind, .trainable = trainable, .k = k, .r = size, .s = size, .c = c, .index = n->nparams, .version = 1 };
    p->count = (size_t)(k * size * size * c);
    snprintf(p->name, sizeof p->name, "param %d", p->index);
    w = numbers(p->count, 100 + (uint64_t)p->index, kind == PARAM_VAR ? 0.5f : -0.5f, kind == PARAM_VAR ? 1.5f : 0.5f);
    p->data = put(n->dev, w, p->count * sizeof *w);
    free(w);
    for (int s = 0; s < n->nshards && trainable; s++)
        n->grad[p->index][s] = put(n->dev, NULL, p->count * sizeof(float));
    n->param[n->nparams++] = p;
    return p;
}

/* trainable: gamma and beta. */
__attribute__((unused)) static struct norm net_norm(struct net *n, int c, bool trainable, bool frozen)
{
    struct norm norm = { .eps = 1e-5f, .index = n->nnorms, .frozen = frozen, .uses = 1 };

    assert_true(n->nnorms < NET_STATS);
    norm.gamma = net_param(n, PARAM_SCALE, c, 1, 1, trainable);
    norm.beta = net_param(n, PARAM_SHIFT, c, 1, 1, trainable);
    norm.mean = net_param(n, PARAM_MEAN, c, 1, 1, false);
    norm.var = net_param(n, PARAM_VAR, c, 1, 1, false);
    for (int use = 0; use < 2; use++)
        for (int s = 0; s < n->nshards; s++)
            n->stats[n->nnorms][use][s] = put(n->dev, NULL, (2 * (size_t)c + 1) * sizeof(double));
    n->nnorms++;
    return norm;
}

__attribute__((unused)) static struct value *net_begin(struct net *n)
{
    memset(n->ready, 0, sizeof n->ready);
    tape_begin(n->tape, TAPE_TRAIN, n->nshards, &n->hooks);
    return tape_input(n->tape, n->image);
}

/* Seeds a gradient at v, as a loss would: element i of shard s always gets the same number. */
__attribute__((unused)) static void net_seed(struct net *n, struct value *v, uint64_t which)
{
    float beta;

    NET_OK(n, tape_status(n->tape, &n->err));
    assert_true(v->needs_grad);
    NET_OK(n, tape_grad(n->tape, v, &beta, &n->err));
    assert_true(beta == 0.0f);
    for (int s = 0; s < n->nshards; s++) {
        const struct tensor *to = &v->grad[s];
        float *g = numbers(tensor_count(to), 1000 + 8 * which + (uint64_t)(n->first + s), -1.0f, 1.0f);

        assert_int_equal(to->dtype, DTYPE_F32);
        for (size_t i = 0; i < tensor_pixels(to); i++)
            NET_OK(n, n->dev->ops->upload(n->dev, (float *)to->data + i * (size_t)to->stride, g + i * (size_t)to->c,
                                          (size_t)to->c * sizeof *g, &n->err));
        free(g);
    }
}

__attribute__((unused)) static void net_back(struct net *n)
{
    NET_OK(n, tape_backward(n->tape, n->param, n->nparams, &n->err));
}

/* p's gradient of shard s; caller frees. */
__attribute__((unused)) static float *net_grad(struct net *n, const struct param *p, int s)
{
    float *g = malloc(p->count * sizeof *g);

    assert_non_null(g);
    get(n->dev, g, n->grad[p->index][s], p->count * sizeof *g);
    return g;
}
