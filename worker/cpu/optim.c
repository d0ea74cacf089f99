/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/optim.c - parameter updates over flat arrays, and hashes of the
 * new values. */
#include "worker/kernels/optim.h"

#include "proto/hash/hash_keys.h"
#include "worker/core/tree.h"
#include "worker/cpu/hash.h"
#include "worker/cpu/rows.h"

int cpu_optim_clip(struct device *dev, struct clip *ret, const double *blocks, const uint32_t *order, int n, double weight, double max_norm,
                   struct err *err)
{
    (void)dev;
    (void)err;
    *ret = clip_of(tree_sum_ordered(blocks, order, n), weight, max_norm);
    return 0;
}

struct step {
    const struct optim_item *items;
    const void *how;
    float factor;
    void (*numbers)(const struct step *s, const struct optim_item *item, size_t from, size_t to);
};

static size_t blocks_of_item(const void *arg, int i)
{
    const struct step *s = arg;

    return (s->items[i].param->count + HASH_BLOCK - 1) / HASH_BLOCK;
}

static void average(const struct optim_item *item, size_t from, size_t to)
{
    const float *w = item->param->data, decay = item->ema_decay;
    float *ema = item->ema;

    CPU_LANES
    for (size_t i = from; ema && i < to; i++)
        ema_element(&ema[i], w[i], decay);
}

static void sgd_numbers(const struct step *s, const struct optim_item *item, size_t from, size_t to)
{
    const struct sgd how = *(const struct sgd *)s->how;
    const float *g = item->grad, factor = s->factor, lr = item->lr, decay = item->decay;
    float *w = item->param->data, *m = item->state[0];

    CPU_LANES
    for (size_t i = from; i < to; i++)
        sgd_element(&w[i], &m[i], factor * g[i], lr, decay, &how);
}

typedef void adam_fn(float *w, float *m, float *v, float g, float lr, float decay, const struct adam *a);

/* Inlined with a constant `element`, so that each kind of Adam is a loop without a call. */
static inline __attribute__((always_inline)) void adams(const struct step *s, const struct optim_item *item, size_t from, size_t to,
                                                        adam_fn *element)
{
    const struct adam how = *(const struct adam *)s->how;
    const float *g = item->grad, factor = s->factor, lr = item->lr, decay = item->decay;
    float *w = item->param->data, *m = item->state[0], *v = item->state[1];

    CPU_LANES
    for (size_t i = from; i < to; i++)
        element(&w[i], &m[i], &v[i], factor * g[i], lr, decay, &how);
}

static void adam_numbers(const struct step *s, const struct optim_item *item, size_t from, size_t to)
{
    adams(s, item, from, to, adam_element);
}

static void adamw_numbers(const struct step *s, const struct optim_item *item, size_t from, size_t to)
{
    adams(s, item, from, to, adamw_element);
}

/* Goes block by block, so that values to average and hash are still in the L1 cache. */
static void step_blocks(const void *arg, int index, size_t from, size_t to)
{
    const struct step *s = arg;
    const struct optim_item *item = &s->items[index];

    for (size_t b = from; b < to; b++) {
        size_t at = b * HASH_BLOCK, rest = item->param->count - at, n = rest < HASH_BLOCK ? rest : HASH_BLOCK;

        s->numbers(s, item, at, at + n);
        average(item, at, at + n);
        if (item->hashes)
            item->hashes[b] = cpu_hash_block(item->param->data + at, n);
    }
}

static int run(struct device *dev, const struct optim_item *items, int nitems, const void *how, const struct clip *clip,
               void (*numbers)(const struct step *s, const struct optim_item *item, size_t from, size_t to))
{
    const struct step s = { items, how, clip->factor, numbers };

    if (!clip->skip)
        cpu_over_shards(dev, &(struct shard_work){ nitems, blocks_of_item, step_blocks, &s });
    for (int i = 0; i < nitems; i++)
        items[i].param->version++;
    return 0;
}

int cpu_optim_sgd(struct device *dev, const struct optim_item *items, int nitems, const struct sgd *how, const struct clip *clip,
                  struct err *err)
{
    (void)err;
    return run(dev, items, nitems, how, clip, sgd_numbers);
}

int cpu_optim_adam(struct device *dev, const struct optim_item *items, int nitems, const struct adam *how, const struct clip *clip,
                   struct err *err)
{
    (void)err;
    return run(dev, items, nitems, how, clip, adam_numbers);
}

int cpu_optim_adamw(struct device *dev, const struct optim_item *items, int nitems, const struct adam *how, const struct clip *clip,
                    struct err *err)
{
    (void)err;
    return run(dev, items, nitems, how, clip, adamw_numbers);
}
