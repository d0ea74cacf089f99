/* worker/cpu/optim.c - parameter updates over flat arrays. */
#include "worker/kernels/optim.h"

#include "worker/cpu/rows.h"

static size_t item_count(const void *arg, int i)
{
    const struct sgd_item *items = arg;

    return items[i].param->count;
}

static void step_item(const void *arg, int index, size_t from, size_t to)
{
    const struct sgd_item *item = (const struct sgd_item *)arg + index;
    const struct sgd s = item->sgd;
    float *w = item->param->data, *m = item->momentum, *ema = item->ema;
    const float *g = item->grad;

    CPU_LANES
    for (size_t i = from; i < to; i++)
        sgd_element(&w[i], &m[i], g[i], &s);
    if (!ema)
        return;
    CPU_LANES
    for (size_t i = from; i < to; i++)
        ema_element(&ema[i], w[i], s.ema_decay);
}

int cpu_optim_sgd(struct device *dev, const struct sgd_item *items, int nitems, const int32_t *skip, struct err *err)
{
    (void)err;
    if (!*skip)
        cpu_over_shards(dev, &(struct shard_work){ nitems, item_count, step_item, items });
    for (int i = 0; i < nitems; i++)
        items[i].param->version++;
    return 0;
}
