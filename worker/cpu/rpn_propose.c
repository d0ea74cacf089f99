/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/rpn_propose.c - from logits to proposals: each level of an image
 * by itself, then the best of all levels, then all images of a shard. */
#include <errno.h>
#include <string.h>

#include "worker/cpu/cpu.h"
#include "worker/cpu/overlap.h"
#include "worker/cpu/select.h"
#include "worker/cpu/work.h"
#include "worker/kernels/rpn.h"

/* The proposals left in one level of an image: [pre] boxes, and keys made of score and place among the best of all
 * levels. */
struct level_found {
    float (*box)[4];
    float *score;
    uint64_t *key;
    int n, broken;
};

struct propose_args {
    const struct rpn_head *head;
    const struct rpn_selection *sel;
    const struct rcnn_images *images;
    const struct tensor *const *logits, *const *deltas;
    struct level_found *found; /* [images][nlevels] */
    int32_t *count;            /* [images] proposals */
    uint64_t *best;            /* [images][most of an image]: keys of an image's proposals */
    size_t most, widest;       /* keys of an image; keys of a level before selection */
    int pre;                   /* most boxes of a level */
    struct slots slots;        /* for levels of images; there are fewer images */
    uint64_t *keys;            /* per slot: [widest + pre] */
    float *boxes;              /* per slot */
    int32_t *gone;             /* per slot: [2][pre] */
};

static int not_finite(float x)
{
    return !(x - x == 0.0f);
}

/* Makes the keys of all anchors of a level. Returns the number of anchors with a number that is not finite. */
static int level_keys(const struct tensor *z, int image, uint64_t *key)
{
    size_t pixels = (size_t)z->h * (size_t)z->w, i = 0;
    const float *x = (const float *)z->data + (size_t)image * pixels * (size_t)z->stride;
    int broken = 0;

    for (size_t p = 0; p < pixels; p++, x += z->stride)
        for (int r = 0; r < z->c; r++, i++) {
            key[i] = select_by_score(x[r], (uint32_t)i);
            broken += not_finite(x[r]);
        }
    return broken;
}

/* Decodes the n best anchors of a level. gone[i]: box i is dropped. */
static int decode_best(const struct propose_args *a, const struct rpn_grid *g, int v, int image, int l, const uint64_t *key, size_t n,
                       const struct overlap_boxes *b, float *score, int32_t *gone)
{
    const struct tensor *z = &a->logits[l][v], *d = &a->deltas[l][v];
    const int32_t *size = a->images[v].size + (size_t)image * 2;
    int broken = 0;

    for (size_t i = 0; i < n; i++) {
        int anchor = (int)select_index(key[i]), bad;
        struct box box;

        score[i] = ((const float *)z->data)[rpn_place(&g->level[l], g->nratios, image, anchor, z->stride, 1)];
        gone[i] = !rpn_proposal(&box, &bad, a->sel, rpn_anchor(a->head, g, l, anchor), score[i],
                                (const float *)d->data + rpn_place(&g->level[l], g->nratios, image, anchor, d->stride, 4), (float)size[0],
                                (float)size[1]);
        overlap_set(b, i, box);
        broken += bad && !not_finite(score[i]);
        score[i] = a->sel->sigmoid ? math_sigmoid(score[i]) : score[i];
    }
    return broken;
}

static void propose_level(void *arg, size_t index, int thread)
{
    const struct propose_args *a = arg;
    int image, levels = a->head->nlevels, l = (int)(index % (size_t)levels);
    int v = shard_of_image(a->images, index / (size_t)levels, &image);
    struct rpn_grid g = rpn_grid(a->head, a->images[v].canvas, a->logits, v);
    size_t slot = slot_of(a->slots, index, thread);
    uint64_t *key = a->keys + slot * (a->widest + (size_t)a->pre);
    struct overlap_boxes b = overlap_boxes(a->boxes + slot * (size_t)a->pre * (OVERLAP_FLOATS + 1), (size_t)a->pre);
    float *score = b.area + a->pre;
    int32_t *gone = a->gone + slot * 2 * (size_t)a->pre, *keep = gone + a->pre;
    size_t n = (size_t)a->logits[l][v].h * (size_t)a->logits[l][v].w * (size_t)g.nratios;
    struct level_found *f = &a->found[index];

    f->broken = level_keys(&a->logits[l][v], image, key);
    n = select_smallest(key, n, (size_t)a->sel->pre);
    select_sort(key, key + n, n);
    f->broken += decode_best(a, &g, v, image, l, key, n, &b, score, gone);
    f->n = (int)overlap_suppress(&b, n, gone, a->sel->nms, (size_t)a->sel->post, keep);
    for (int i = 0; i < f->n; i++) {
        int32_t k = keep[i];

        f->box[i][0] = b.x1[k];
        f->box[i][1] = b.y1[k];
        f->box[i][2] = b.x2[k];
        f->box[i][3] = b.y2[k];
        f->score[i] = score[k];
        f->key[i] = select_by_score(score[k], (uint32_t)(l * a->sel->pre + k));
    }
}

/* Merges the best of all levels. A key then contains level and place in the level. */
static void merge_levels(void *arg, size_t index, int thread)
{
    const struct propose_args *a = arg;
    uint64_t *key = a->best + index * a->most, *tmp = a->keys + slot_of(a->slots, index, thread) * (a->widest + (size_t)a->pre);
    size_t n = 0;

    for (int l = 0; l < a->head->nlevels; l++) {
        const struct level_found *f = &a->found[index * (size_t)a->head->nlevels + (size_t)l];

        memcpy(key + n, f->key, (size_t)f->n * sizeof *key);
        n += (size_t)f->n;
    }
    n = select_smallest(key, n, (size_t)a->sel->post);
    select_sort(key, tmp, n);
    a->count[index] = (int32_t)n;
}

/* The place in its level of the box with this key. Levels keep their order. */
static int place_of(const struct level_found *f, uint64_t key)
{
    int lo = 0, hi = f->n;

    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;

        if (select_index(f->key[mid]) <= select_index(key))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void write_image(const struct propose_args *a, size_t index, int image, const struct rpn_proposals *ret)
{
    for (int32_t i = 0, at = ret->offset[image]; i < a->count[index]; i++, at++) {
        uint64_t key = a->best[index * a->most + (size_t)i];
        const struct level_found *f = &a->found[index * (size_t)a->head->nlevels + select_index(key) / (uint32_t)a->sel->pre];
        int place = place_of(f, key);

        memcpy(ret->box + (size_t)at * 4, f->box[place], sizeof f->box[place]);
        ret->score[at] = f->score[place];
        ret->image[at] = image;
    }
}

static void write_shard(const struct propose_args *a, int v, const struct rpn_proposals *ret)
{
    size_t first = first_image(a->images, v), levels = (size_t)a->head->nlevels, rows;
    int n = a->images[v].n;

    ret->offset[0] = ret->broken[0] = 0;
    for (int i = 0; i < n; i++) {
        ret->offset[i + 1] = ret->offset[i] + a->count[first + (size_t)i];
        write_image(a, first + (size_t)i, i, ret);
        for (size_t l = 0; l < levels; l++)
            *ret->broken += a->found[(first + (size_t)i) * levels + l].broken;
    }
    rows = (size_t)ret->offset[n];
    memset(ret->box + rows * 4, 0, ((size_t)ret->cap - rows) * 4 * sizeof *ret->box);
    memset(ret->score + rows, 0, ((size_t)ret->cap - rows) * sizeof *ret->score);
    memset(ret->image + rows, 0, ((size_t)ret->cap - rows) * sizeof *ret->image);
}

static void layout(struct carve *c, struct propose_args *a, size_t images, int nshards)
{
    size_t found = images * (size_t)a->head->nlevels, room;

    a->widest = 0;
    for (int l = 0; l < a->head->nlevels; l++)
        for (int v = 0; v < nshards; v++)
            if ((size_t)a->logits[l][v].h * (size_t)a->logits[l][v].w > a->widest)
                a->widest = (size_t)a->logits[l][v].h * (size_t)a->logits[l][v].w;
    a->widest *= (size_t)a->head->nratios;
    a->pre = (size_t)a->sel->pre < a->widest ? a->sel->pre : (int)a->widest;
    room = (size_t)(a->pre < a->sel->post ? a->pre : a->sel->post);
    a->most = room * (size_t)a->head->nlevels;
    a->found = carve(c, found * sizeof *a->found);
    a->count = carve(c, images * sizeof *a->count);
    a->best = carve(c, images * a->most * sizeof *a->best);
    if (a->widest < a->most)
        a->widest = a->most; /* merging sorts in this memory, too */
    a->keys = carve(c, a->slots.n * (a->widest + (size_t)a->pre) * sizeof *a->keys);
    a->boxes = carve(c, a->slots.n * (size_t)a->pre * (OVERLAP_FLOATS + 1) * sizeof *a->boxes);
    a->gone = carve(c, a->slots.n * 2 * (size_t)a->pre * sizeof *a->gone);
    for (size_t i = 0; i < found; i++) {
        struct level_found measured = { .n = 0 }, *f = a->found ? &a->found[i] : &measured;

        f->box = carve(c, room * sizeof *f->box);
        f->score = carve(c, room * sizeof *f->score);
        f->key = carve(c, room * sizeof *f->key);
    }
}

int cpu_rpn_propose(struct device *dev, const struct rpn_head *head, const struct rpn_selection *sel, const struct rcnn_images *images,
                    const struct tensor *const *logits, const struct tensor *const *deltas, struct rpn_proposals *ret, int nshards,
                    struct err *err)
{
    struct propose_args a = { .head = head, .sel = sel, .images = images, .logits = logits, .deltas = deltas };
    size_t n = count_images(images, nshards);
    struct carve c = { NULL, 0 };

    a.slots = slots_for(n * (size_t)head->nlevels, (size_t)threads_count(cpu_threads(dev)));
    layout(&c, &a, n, nshards);
    c.base = cpu_scratch(dev, c.used, err);
    if (!c.base)
        return -ENOMEM;
    c.used = 0;
    layout(&c, &a, n, nshards);
    threads_each(cpu_threads(dev), n * (size_t)head->nlevels, propose_level, &a);
    threads_each(cpu_threads(dev), n, merge_levels, &a);
    for (int v = 0; v < nshards; v++)
        write_shard(&a, v, &ret[v]);
    return 0;
}
