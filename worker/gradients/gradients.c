/* SPDX-License-Identifier: Apache-2.0 */ /* worker/gradients/gradients.c - the destination of a shard's gradient, and
 * its fold with those of other shards of this rank. */
#include "worker/gradients/gradients.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/hash/hash_keys.h"
#include "worker/comm/comm.h"
#include "worker/core/arena.h"
#include "worker/core/device.h"
#include "worker/core/tree.h"
#include "worker/gradients/allreduce.h"
#include "worker/gradients/layout.h"
#include "worker/ops/families.h"

enum { ARENA_CHUNK = 32 << 20 };

_Static_assert((int)LAYOUT_BLOCK == (int)HASH_BLOCK, "blocks of the layout are those that are hashed");

struct gradients {
    struct device *dev;
    int rank, nranks;
    struct layout *layout;
    struct allreduce *allreduce;

    float **plane; /* [layout->nplanes] */
    struct arena *arena;
    float **leaf; /* [entries][most shards of a wave]: NULL until used */
    int max_wave;
    struct tree_part *part;   /* summands of the current fold */
    struct layout_wave *wave; /* the current wave */
    bool last;
    int *missing; /* [buckets]: number of parameters still missing */
    int issued;   /* buckets handed over in this step */
    bool one_sum; /* of this step */
    int waves;    /* waves begun in this step */
};

/* ---- opening ---- */

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "gradients: out of memory");
}

/* Planes that peers read come first; the others are private to this rank. */
static int take_planes(struct gradients *g, struct err *err)
{
    const struct layout *p = g->layout;
    size_t elements = p->blocks * LAYOUT_BLOCK, bytes = elements * sizeof(float);

    g->plane = calloc((size_t)p->nplanes, sizeof(*g->plane));
    if (!g->plane)
        return no_memory(err);
    for (int k = 0; k < p->nplanes; k++) {
        g->plane[k] = k < p->nsegments ? allreduce_planes(g->allreduce) + (size_t)k * elements : g->dev->ops->alloc(g->dev, bytes);
        if (!g->plane[k])
            return err_set(err, ERR_DEVICE, "no memory for %zu bytes of partial gradients", bytes);
    }
    return 0;
}

static int take_host(struct gradients *g, const struct gradients_options *opt, struct err *err)
{
    const struct layout *p = g->layout;

    for (int w = 0; w < p->nwaves; w++) {
        int m = p->wave[w].shards.hi - p->wave[w].shards.lo;

        g->max_wave = m > g->max_wave ? m : g->max_wave;
    }
    g->arena = arena_new(g->dev, ARENA_CHUNK);
    if (g->arena && opt->stress)
        arena_stress(g->arena, opt->stress);
    g->leaf = calloc((size_t)p->nentries * (size_t)g->max_wave, sizeof(*g->leaf));
    g->part = calloc((size_t)opt->nshards, sizeof(*g->part));
    g->missing = calloc((size_t)p->nbuckets, sizeof(*g->missing));
    return g->arena && g->leaf && g->part && g->missing ? 0 : no_memory(err);
}

int gradients_open(const struct gradients_options *opt, struct param *const *params, int nparams, struct gradients **ret_gradients,
                   struct err *err)
{
    struct gradients *g = calloc(1, sizeof(*g));
    struct err local = { 0 };
    int rc;

    err = err ? err : &local;
    if (!g)
        return no_memory(err);
    g->dev = opt->dev;
    g->rank = comm_rank(opt->comm);
    g->nranks = comm_ranks(opt->comm);
    rc = layout_new(opt, g->rank, g->nranks, params, nparams, &g->layout, err);
    if (rc == 0)
        rc = allreduce_open(opt, g->layout, &g->allreduce, err);
    if (rc == 0)
        rc = take_planes(g, err);
    if (rc == 0)
        rc = take_host(g, opt, err);
    if (rc < 0) {
        gradients_close(g);
        return rc;
    }
    *ret_gradients = g;
    return 0;
}

/* Frees the private planes, which are the device's. */
static void free_planes(struct gradients *g)
{
    for (int k = g->layout->nsegments; g->plane && k < g->layout->nplanes; k++)
        if (g->plane[k])
            g->dev->ops->free(g->dev, g->plane[k]);
    free(g->plane);
}

void gradients_close(struct gradients *g)
{
    if (!g)
        return;
    allreduce_close(g->allreduce);
    if (g->layout)
        free_planes(g);
    arena_free(g->arena);
    layout_free(g->layout);
    free(g->leaf);
    free(g->part);
    free(g->missing);
    free(g);
}

/* ---- a step ---- */

void gradients_begin(struct gradients *g)
{
    const struct layout *p = g->layout;

    g->one_sum = g->dev->one_dest;
    allreduce_begin(g->allreduce, g->one_sum);
    g->issued = 0;
    g->waves = 0;
    for (int i = 0; i < p->nbuckets; i++)
        g->missing[i] = p->bucket[i].nentries;
    memset(g->leaf, 0, (size_t)p->nentries * (size_t)g->max_wave * sizeof(*g->leaf));
    arena_reset(g->arena);
    g->wave = NULL;
}

void gradients_wave(struct gradients *g, int wave)
{
    assert(wave >= 0 && wave < g->layout->nwaves);
    g->wave = &g->layout->wave[wave];
    g->last = wave == g->layout->nwaves - 1;
    g->waves++;
}

static int entry_index(const struct gradients *g, const struct param *p)
{
    return p->index >= 0 && p->index < g->layout->nparams ? g->layout->entry_of[p->index] : -1;
}

float *gradients_dest(struct gradients *g, const struct param *p, int shard, bool *ret_written)
{
    int i = entry_index(g, p), plane = g->wave->direct[shard];
    float **leaf;

    assert(i >= 0 && shard < g->wave->shards.hi - g->wave->shards.lo);
    *ret_written = g->one_sum && g->waves > 1;
    if (g->one_sum)
        return g->plane[0] + g->layout->entry[i].at;
    leaf = &g->leaf[i * g->max_wave + shard];
    if (!*leaf)
        *leaf = plane >= 0 ? g->plane[plane] + g->layout->entry[i].at : arena_alloc(g->arena, p->count * sizeof(float));
    return *leaf;
}

static int fold(struct gradients *g, const struct layout_fold *f, const struct layout_entry *e, float *const *leaf, struct err *err)
{
    for (int k = 0; k < f->nparts; k++) {
        const struct layout_part *part = &g->wave->part[f->first + k];
        const float *data = part->plane >= 0 ? g->plane[part->plane] + e->at : leaf[part->lo - g->wave->shards.lo];

        if (!data)
            return err_set(err, ERR_STATE, "%s: no gradient of shard %d", e->param->name, part->lo);
        g->part[k] = (struct tree_part){ part->lo, part->hi, data };
    }
    return f->nparts == 1 ? 0 : g->dev->on->reduce->tree_add(g->dev, g->plane[f->plane] + e->at, g->part, f->nparts, e->param->count, err);
}

static void drop_leaves(struct gradients *g, float **leaf)
{
    for (int s = 0; s < g->wave->shards.hi - g->wave->shards.lo; s++) {
        if (g->wave->direct[s] < 0)
            arena_release(g->arena, leaf[s]);
        leaf[s] = NULL;
    }
}

/* Hands over the complete buckets, in order, up to the first incomplete one. */
static int issue(struct gradients *g, struct err *err)
{
    int n = g->issued, rc;

    while (n < g->layout->nbuckets && g->missing[n] == 0)
        n++;
    if (n == g->issued)
        return 0;
    rc = allreduce_issue(g->allreduce, n, err);
    if (rc == 0)
        g->issued = n;
    return rc;
}

int gradients_ready(struct gradients *g, const struct param *p, struct err *err)
{
    struct err local = { 0 };
    int i = entry_index(g, p), rc = 0;
    float **leaf;

    assert(i >= 0);
    err = err ? err : &local;
    leaf = &g->leaf[i * g->max_wave];
    for (int f = 0; rc == 0 && !g->one_sum && f < g->wave->nfolds; f++)
        rc = fold(g, &g->wave->fold[f], &g->layout->entry[i], leaf, err);
    if (!g->one_sum)
        drop_leaves(g, leaf);
    if (rc == 0 && g->last) {
        int bucket = g->layout->entry[i].bucket;

        assert(g->missing[bucket] > 0);
        g->missing[bucket]--;
        rc = issue(g, err);
    }
    return rc;
}

int gradients_wait(struct gradients *g, struct err *err)
{
    int rc = allreduce_wait(g->allreduce, err);

    if (rc == 0 && g->issued < g->layout->nbuckets)
        return err_set(err, ERR_STATE, "gradients of %d parameters are missing in bucket %d", g->missing[g->issued], g->issued);
    return rc;
}

int gradients_state(struct gradients *g, struct err *err)
{
    return allreduce_state(g->allreduce, err);
}

float *gradients_sum(const struct gradients *g, const struct param *p)
{
    int i = entry_index(g, p);

    return i < 0 ? NULL : allreduce_sum(g->allreduce) + g->layout->entry[i].at;
}

struct square_sums gradients_squares(const struct gradients *g)
{
    return allreduce_squares(g->allreduce);
}

struct hash_piece gradients_hashes(const struct gradients *g, const struct param *p, uint64_t kappa)
{
    const struct layout *l = g->layout;
    int i = entry_index(g, p);
    struct hash_piece none = { NULL, 0, 0, kappa };
    const struct layout_bucket *b;
    size_t first, lo, hi, from, to;

    if (i < 0)
        return none;
    b = &l->bucket[l->entry[i].bucket];
    first = l->entry[i].at / LAYOUT_BLOCK;
    lo = layout_chunk(b, g->rank, g->nranks);
    hi = layout_chunk(b, g->rank + 1, g->nranks);
    from = first > lo ? first : lo;
    to = first + (p->count + LAYOUT_BLOCK - 1) / LAYOUT_BLOCK;
    to = to < hi ? to : hi;
    if (from >= to)
        return none;
    return (struct hash_piece){ allreduce_hashes(g->allreduce, l->entry[i].bucket) + (from - lo), (int)(to - from), (int)(from - first),
                                kappa };
}
