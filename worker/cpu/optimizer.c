/* worker/cpu/optimizer.c - parameter updates over flat arrays. */
#include "worker/kernels/optimizer.h"

#include "worker/cpu/rows.h"

struct sgd_args {
    float *w, *m;
    const float *g;
    struct sgd s;
};

static void sgd_part(void *arg, size_t from, size_t to)
{
    const struct sgd_args *a = arg;
    const struct sgd s = a->s;
    float *w = a->w, *m = a->m;
    const float *g = a->g;

    CPU_LANES
    for (size_t i = from; i < to; i++)
        sgd_element(&w[i], &m[i], g[i], &s);
}

int cpu_sgd_step(struct device *dev, float *w, float *m, const float *g, size_t count, const struct sgd *s, const int32_t *skip,
                 struct err *err)
{
    struct sgd_args a = { w, m, g, *s };

    (void)err;
    if (!*skip)
        pool_run(cpu_pool(dev), count, sgd_part, &a);
    return 0;
}
