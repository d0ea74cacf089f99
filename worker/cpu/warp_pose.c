/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/warp_pose.c - poses as matrices. */
#include "worker/kernels/pose.h"

#include "worker/cpu/rows.h"

struct pose_args {
    bool invert;
    float beta;
    struct tensor *dst;
    const struct tensor *x, *dy;
};

static size_t pose_units(const void *arg, int v)
{
    return (size_t)((const struct pose_args *)arg)->x[v].n;
}

static void pose_part(const void *arg, int v, size_t from, size_t to)
{
    const struct pose_args *a = arg;

    for (size_t i = from; i < to; i++) {
        const float *x = (const float *)a->x[v].data + i * (size_t)a->x[v].stride;
        float *dst = (float *)a->dst[v].data + i * (size_t)a->dst[v].stride;

        if (a->dy)
            pose_grad(dst, a->beta, (const float *)a->dy[v].data + i * (size_t)a->dy[v].stride, x, a->invert);
        else
            pose_matrix(dst, x, a->invert);
    }
}

int cpu_warp_pose_fwd(struct device *dev, bool invert, struct tensor *y, const struct tensor *x, int nshards, struct err *err)
{
    struct pose_args a = { .invert = invert, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, pose_units, pose_part, &a });
    return 0;
}

int cpu_warp_pose_bwd(struct device *dev, bool invert, struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *x,
                      int nshards, struct err *err)
{
    struct pose_args a = { .invert = invert, .beta = beta, .dst = dx, .x = x, .dy = dy };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, pose_units, pose_part, &a });
    return 0;
}
