/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/photo_cases.h - photometric maps and their gradients as a test
 * asks every device for them. */
#pragma once
#include "tests/device/golden_json.h"

#include "worker/kernels/photo.h"

enum { SHARDS = 3 };

__attribute__((unused)) static size_t floats_of(const struct tensor *x)
{
    return tensor_pixels(x) * (size_t)x->stride;
}

__attribute__((unused)) static struct tensor on(struct device *dev, const struct tensor *shape, const float *host)
{
    struct tensor t = *shape;

    t.data = put(dev, host, floats_of(shape) * sizeof *host);
    return t;
}

__attribute__((unused)) static float *room(size_t n)
{
    float *x = calloc(n + 1, sizeof *x);

    assert_non_null(x);
    return x;
}

__attribute__((unused)) static void same(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s[%zu] is %.9g, by the scalar body %.9g", what, i, (double)got[i], (double)want[i]);
}

/* ---- maps ---- */

struct map_case {
    int nshards;
    struct tensor shape[SHARDS]; /* of the pictures; data NULL */
    float ssim_weight, beta;
    int map_stride;
    const float *a[SHARDS], *b[SHARDS], *dmap[SHARDS], *old[SHARDS]; /* old: the earlier values of da */
};

static struct tensor map_of(const struct map_case *t, int v)
{
    struct tensor m = t->shape[v];

    m.c = 1;
    m.stride = t->map_stride;
    return m;
}

static size_t map_results(const struct map_case *t)
{
    size_t n = 0;

    for (int v = 0; v < t->nshards; v++) {
        struct tensor map = map_of(t, v);

        n += floats_of(&map) + floats_of(&t->shape[v]);
    }
    return n;
}

/* Map and da of each shard; gaps of the map keep 0. */
static void run_map(struct device *dev, const void *arg, void *ret)
{
    struct tensor a[SHARDS], b[SHARDS], da[SHARDS], map[SHARDS], dmap[SHARDS];
    const struct map_case *t = arg;
    float *out = ret;
    struct err err;

    for (int v = 0; v < t->nshards; v++) {
        struct tensor of = map_of(t, v);

        a[v] = on(dev, &t->shape[v], t->a[v]);
        b[v] = on(dev, &t->shape[v], t->b[v]);
        da[v] = on(dev, &t->shape[v], t->old[v]);
        map[v] = on(dev, &of, NULL);
        dmap[v] = on(dev, &of, t->dmap[v]);
    }
    if (dev->on->photo->map_fwd(dev, t->ssim_weight, map, a, b, t->nshards, &err) < 0 ||
        dev->on->photo->map_bwd(dev, t->ssim_weight, da, t->beta, dmap, a, b, t->nshards, &err) < 0)
        fail_msg("%s: %s", dev->ops->name, err.msg);
    for (int v = 0; v < t->nshards; v++) {
        get(dev, out, map[v].data, floats_of(&map[v]) * sizeof *out);
        out += floats_of(&map[v]);
        get(dev, out, da[v].data, floats_of(&da[v]) * sizeof *out);
        out += floats_of(&da[v]);
    }
}

static float *map_run(const struct map_case *t)
{
    float *out = room(map_results(t));

    same_on_all(run_map, t, out, map_results(t) * sizeof *out);
    return out;
}

/* Map and gradient of one shard of dense pictures. */
__attribute__((unused)) static float *one_map(const struct tensor *shape, float ssim_weight, const float *a, const float *b,
                                              const float *dmap)
{
    struct map_case t = { .nshards = 1,
                          .shape = { *shape },
                          .ssim_weight = ssim_weight,
                          .map_stride = 1,
                          .a = { a },
                          .b = { b },
                          .dmap = { dmap },
                          .old = { a } };

    return map_run(&t);
}
