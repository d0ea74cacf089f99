#include <assert.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/param.h"
#include "worker/gradients/layout.h"

enum { FIRST_BYTES = 1 << 20, BUCKET_BYTES = 16 << 20 };

/* The segments after a wave, and the plane of each. */
struct stand {
    struct tree_span seg[TREE_MAX_SEGMENTS];
    int plane[TREE_MAX_SEGMENTS];
    int n;
};

size_t layout_chunk(const struct layout_bucket *b, int j, int nranks)
{
    return b->lo + (b->hi - b->lo) * (size_t)j / (size_t)nranks;
}

/* ---- flat space and buckets ---- */

static size_t blocks_of(const struct param *p)
{
    return (p->count + LAYOUT_BLOCK - 1) / LAYOUT_BLOCK;
}

static void add_entry(struct layout *p, const struct param *param, size_t limit_bytes)
{
    struct layout_bucket *b = p->nbuckets ? &p->bucket[p->nbuckets - 1] : NULL;

    if (!b || (b->hi - b->lo) * LAYOUT_BLOCK * sizeof(float) >= limit_bytes) {
        b = &p->bucket[p->nbuckets++];
        b->lo = p->blocks;
    }
    p->entry[p->nentries] = (struct layout_entry){ param, p->blocks * LAYOUT_BLOCK, p->nbuckets - 1 };
    p->entry_of[param->index] = p->nentries++;
    p->blocks += blocks_of(param);
    b->hi = p->blocks;
    b->nentries++;
}

/* Backward finishes the last parameters first, so they come first. The first bucket is small, so that the first
 * transfer starts early. */
static int lay_out(struct layout *p, const struct gradients_options *opt, struct param *const *params, int nparams, struct err *err)
{
    size_t first = opt->first_bytes ? opt->first_bytes : FIRST_BYTES, other = opt->bucket_bytes ? opt->bucket_bytes : BUCKET_BYTES;

    p->nparams = nparams;
    for (int i = 0; i < nparams; i++)
        p->entry_of[i] = -1;
    for (int i = nparams - 1; i >= 0; i--) {
        assert(params[i]->index == i);
        if (param_trainable(params[i]))
            add_entry(p, params[i], p->nbuckets < 2 ? first : other);
    }
    return p->nentries ? 0 : err_set(err, ERR_INPUT, "the model has no trainable parameter");
}

/* ---- waves ---- */

static int plane_at(const struct stand *s, int lo, int hi)
{
    for (int i = 0; i < s->n; i++)
        if (s->seg[i].lo == lo && s->seg[i].hi <= hi)
            return i;
    return -1;
}

/* A plane without a segment before or after this wave. The shards of a wave are written before any fold. */
static int free_plane(struct layout *p, const struct stand *before, const struct stand *after)
{
    for (int plane = p->nsegments;; plane++) {
        bool used = false;

        for (int i = 0; i < before->n; i++)
            used = used || before->plane[i] == plane;
        for (int i = 0; i < after->n; i++)
            used = used || after->plane[i] == plane;
        if (!used) {
            p->nplanes = plane < p->nplanes ? p->nplanes : plane + 1;
            return plane;
        }
    }
}

/* The plane of a new segment: that of its leftmost part; or the final plane that starts at the same shard; or a private
 * one. */
static int choose_plane(struct layout *p, struct tree_span seg, const struct tree_span *final, const struct stand *before,
                        const struct stand *after)
{
    int leftmost = plane_at(before, seg.lo, seg.hi);

    if (leftmost >= 0)
        return before->plane[leftmost];
    for (int k = 0; k < p->nsegments; k++)
        if (final[k].lo == seg.lo)
            return k;
    return free_plane(p, before, after);
}

static void add_fold(struct layout_wave *w, struct tree_span seg, int plane, const struct stand *before)
{
    struct layout_fold *f = &w->fold[w->nfolds++];

    *f = (struct layout_fold){ seg.lo, seg.hi, plane, w->nparts, 0 };
    for (int at = seg.lo; at < seg.hi;) {
        int old = plane_at(before, at, seg.hi);
        struct layout_part part = { at, old >= 0 ? before->seg[old].hi : at + 1, old >= 0 ? before->plane[old] : -1 };

        if (old < 0)
            w->direct[at - w->shards.lo] = at == seg.lo ? plane : -1;
        w->part[w->nparts++] = part;
        f->nparts++;
        at = part.hi;
    }
}

static int fold_wave(struct layout *p, struct layout_wave *w, const struct tree_span *final, struct stand *stand, struct err *err)
{
    int m = w->shards.hi - w->shards.lo;
    struct stand after = { .n = 0 };
    struct tree_span segs[TREE_MAX_SEGMENTS];
    int n = m > 0 ? tree_segments(p->shards.lo, w->shards.hi, segs) : 0;

    w->direct = calloc((size_t)m + 1, sizeof(*w->direct));
    w->fold = calloc((size_t)n + 1, sizeof(*w->fold));
    w->part = calloc((size_t)m + (size_t)stand->n + 1, sizeof(*w->part));
    if (!w->direct || !w->fold || !w->part)
        return err_set(err, -ENOMEM, "gradients: out of memory");
    for (int i = 0; i < n; i++) {
        int old = plane_at(stand, segs[i].lo, segs[i].hi);
        int plane = choose_plane(p, segs[i], final, stand, &after);

        if (old < 0 || stand->seg[old].hi != segs[i].hi)
            add_fold(w, segs[i], plane, stand);
        after.seg[after.n] = segs[i];
        after.plane[after.n++] = plane;
    }
    if (m > 0)
        *stand = after;
    return 0;
}

static int fold_waves(struct layout *p, int nwaves, struct err *err)
{
    struct tree_span final[TREE_MAX_SEGMENTS];
    struct stand stand = { .n = 0 };
    int rc = 0;

    p->nsegments = p->nplanes = tree_segments(p->shards.lo, p->shards.hi, final);
    p->nwaves = nwaves;
    for (int w = 0; rc == 0 && w < nwaves; w++) {
        p->wave[w].shards = wave_shards(p->shards, w, nwaves);
        rc = fold_wave(p, &p->wave[w], final, &stand, err);
    }
    return rc;
}

/* ---- open and close ---- */

static int check(const struct gradients_options *opt, int nranks, struct err *err)
{
    if (opt->nshards < 1 || (opt->nshards & (opt->nshards - 1)))
        return err_field(err, ERR_INPUT, "train.shards", "must be a power of two, is %d", opt->nshards);
    if (nranks > opt->nshards)
        return err_field(err, ERR_INPUT, "run.ranks", "%d ranks are more than %d shards", nranks, opt->nshards);
    if (opt->nwaves < 1)
        return err_field(err, ERR_INPUT, "train.waves", "must be > 0, is %d", opt->nwaves);
    return 0;
}

int layout_new(const struct gradients_options *opt, int rank, int nranks, struct param *const *params, int nparams,
               struct layout **ret_layout, struct err *err)
{
    size_t n = (size_t)nparams + 1;
    struct layout *p;
    int rc = check(opt, nranks, err);

    if (rc < 0)
        return rc;
    p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, -ENOMEM, "gradients: out of memory");
    p->entry = calloc(n, sizeof(*p->entry));
    p->entry_of = calloc(n, sizeof(*p->entry_of));
    p->bucket = calloc(n, sizeof(*p->bucket));
    p->wave = calloc((size_t)opt->nwaves, sizeof(*p->wave));
    p->shards = rank_shards(rank, nranks, opt->nshards);
    if (!p->entry || !p->entry_of || !p->bucket || !p->wave)
        rc = err_set(err, -ENOMEM, "gradients: out of memory");
    if (rc == 0)
        rc = lay_out(p, opt, params, nparams, err);
    if (rc == 0)
        rc = fold_waves(p, opt->nwaves, err);
    if (rc < 0) {
        layout_free(p);
        return rc;
    }
    *ret_layout = p;
    return 0;
}

void layout_free(struct layout *p)
{
    if (!p)
        return;
    for (int w = 0; p->wave && w < p->nwaves; w++) {
        free(p->wave[w].direct);
        free(p->wave[w].fold);
        free(p->wave[w].part);
    }
    free(p->wave);
    free(p->bucket);
    free(p->entry_of);
    free(p->entry);
    free(p);
}
